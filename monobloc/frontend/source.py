"""Reads a model file into a ModelProto without touching the weights, and says what is wrong with
it.

A protobuf parser copies every weight. Only the framing has to be read to find them: fields of the
model, of its graph and of its initializers. Large `raw_data` are cut out before parsing and stay
in the file until somebody asks, so a file of gigabytes opens at once, even beyond protobuf's 2 GB limit,
and a truncated one is told apart from one that is no model at all. Files are read piece by piece and never
mapped: whoever overwrites one that we map kills us.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from google.protobuf.message import DecodeError

from monobloc.errors import Loc, ModelError
from monobloc.frontend import proto
from monobloc.frontend.pieces import read_at, state

CUT_BYTES = 4096  # smaller tensors are left where they are
WINDOW = 1 << 16  # bytes of a file read at a time while looking for fields

_GRAPH, _INITIALIZER, _RAW_DATA = 7, 5, 9  # field numbers in ModelProto, GraphProto, TensorProto
_MODEL_FIELDS = frozenset({1, 2, 3, 4, 5, 6, 7, 8, 14, 20, 25, 26})
_MAGIC = {  # what people pass by mistake: offset, bytes, name
    "a TensorFlow Lite model": (4, b"TFL3"),
    "a zip file (a PyTorch checkpoint, .pt2 or .npz)": (0, b"PK\x03\x04"),
    "an HDF5 file (Keras)": (0, b"\x89HDF"),
    "a GGUF file": (0, b"GGUF"),
    "an ELF file": (0, b"\x7fELF"),
    "a gzip file": (0, b"\x1f\x8b"),
    "a Python pickle": (0, b"\x80\x02"),
}


@dataclass(frozen=True)
class Raw:
    """The bytes of a tensor, read when they are asked for."""

    size: int
    read: Callable[[], memoryview]

    @classmethod
    def of(cls, data: bytes | memoryview) -> Raw:
        return cls(len(data), lambda: memoryview(data))


@dataclass(frozen=True)
class Source:
    """A parsed model; `raws` are the bytes cut out of top-level initializers, by their position."""

    name: str  # for messages
    model: proto.ModelProto
    path: Path | None = None
    raws: dict[int, Raw] = field(default_factory=dict)

    @property
    def loc(self) -> Loc:
        return Loc(self.name)


def read_source(model: str | os.PathLike[str] | bytes | memoryview | proto.ModelProto) -> Source:
    """The model of a path, of bytes, or as it is; ModelError when there is none."""
    if isinstance(model, proto.ModelProto):
        return Source("model", model)
    if isinstance(model, (bytes, bytearray, memoryview)):
        return _parse(_Bytes(memoryview(model)), "model", None)
    path = Path(model)
    loc = Loc(path.name)
    try:
        if path.is_dir():
            raise ModelError("is a folder, not a model", loc=loc, hints=_models_in(path))
        if not path.is_file():
            raise ModelError("no such file", loc=Loc(str(path)))
        with path.open("rb") as f:
            return _parse(_File(path, f.fileno()), path.name, path)
    except OSError as e:
        raise ModelError(f"cannot be read: {e.strerror or e}", loc=loc) from None


def _models_in(folder: Path) -> list[str]:
    names = sorted(p.name for p in folder.glob("*.onnx"))[:5]
    return [f"it holds {', '.join(names)}"] if names else []


def _parse(data: _Contents, name: str, path: Path | None) -> Source:
    loc = Loc(name)
    if not data.size:
        raise ModelError("the file is empty", loc=loc)
    _check_magic(data, loc)
    try:
        reduced, raws = _cut_weights(data)
    except _Truncated as e:
        raise ModelError(str(e), loc=loc, notes=["the file is truncated, or no ONNX model"]) from None
    model = proto.ModelProto()
    try:
        model.ParseFromString(reduced)
    except (DecodeError, ValueError, RecursionError):
        raise ModelError(
            "is not an ONNX model: its protobuf does not parse",
            loc=loc,
            notes=[f"read {data.size} bytes"],
        ) from None
    if not model.HasField("graph"):
        raise ModelError("has no graph", loc=loc, notes=["it parses as protobuf, but is no ONNX model"])
    _check_text(model, loc)
    return Source(name, model, path, raws)


def _check_magic(data: _Contents, loc: Loc) -> None:
    head = data.part(0, min(200, data.size))
    if head.startswith(b"version https://git-lfs"):
        raise ModelError("is a Git LFS pointer, not the model", loc=loc, hints=["run `git lfs pull`"])
    for what, (at, magic) in _MAGIC.items():
        if head[at : at + len(magic)] == magic:
            raise ModelError(f"is {what}, not an ONNX model", loc=loc)


def _check_text(model: proto.ModelProto, loc: Loc) -> None:
    """Protobuf hands out names that are no UTF-8 as bytes; nobody else has to think of that."""
    bodies: list[proto.GraphProto | proto.FunctionProto] = [model.graph, *model.functions]
    texts: list[object] = [o.domain for o in model.opset_import]
    for body in bodies:
        named = [*body.value_info, *getattr(body, "initializer", ())]
        if isinstance(body, proto.GraphProto):
            named += [*body.input, *body.output, *(s.values for s in body.sparse_initializer)]
        else:
            texts += [body.domain, body.overload, *body.input, *body.output, *body.attribute]
        texts += [body.name, *(x.name for x in named)]
        for n in body.node:
            texts += [n.name, n.op_type, n.domain, n.overload, *n.input, *n.output]
            for a in n.attribute:
                texts += [a.name, a.ref_attr_name]
                bodies += [*([a.g] if a.HasField("g") else []), *a.graphs]
    for text in texts:
        if not isinstance(text, str):
            raise ModelError(f"has a name that is no UTF-8 text: {text!r}", loc=loc)


# -- where the bytes are -----------------------------------------------------------------------------
class _Bytes:
    """A model in memory"""

    def __init__(self, data: memoryview) -> None:
        self.data, self.size = data.cast("B"), data.nbytes

    def part(self, at: int, end: int) -> bytes:
        return bytes(self.data[at:end])

    def number(self, at: int) -> int:
        """one byte"""
        return self.data[at]

    def raw(self, at: int, end: int) -> Raw:
        return Raw.of(self.data[at:end])


class _File:
    """A file, open while it is parsed; weights open it again: a thousand models would need a thousand descriptors."""

    def __init__(self, path: Path, fd: int) -> None:
        self.path, self.fd = path, fd
        self.seen = state(fd)
        self.size = self.seen[0]
        self._window, self._at = b"", 0

    def part(self, at: int, end: int) -> bytes:
        return read_at(self.fd, at, end - at, self.seen, self.path.name)

    def number(self, at: int) -> int:
        if not self._at <= at < self._at + len(self._window):
            self._at, self._window = at, self.part(at, min(at + WINDOW, self.size))
        return self._window[at - self._at]

    def raw(self, at: int, end: int) -> Raw:
        path, seen = self.path, self.seen  # who reads later must not hold what was read meanwhile

        def read() -> memoryview:
            with path.open("rb") as f:
                return memoryview(read_at(f.fileno(), at, end - at, seen, path.name))

        return Raw(end - at, read)


_Contents = _Bytes | _File


# -- protobuf framing ------------------------------------------------------------------------------
class _Truncated(Exception):
    """The framing does not hold; the text says where."""


@dataclass(frozen=True)
class _Field:
    number: int
    wire: int
    start: int  # of the key
    body: int  # of the value, after its length
    end: int


def _varint(buf: _Contents, at: int, end: int) -> tuple[int, int]:
    value = shift = 0
    while at < end and shift < 70:
        byte = buf.number(at)
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
    raise _Truncated(f"ends inside a number at byte {at}" if at >= end else f"has a bad number at byte {at}")


def _fields(buf: _Contents, at: int, end: int) -> Iterator[_Field]:
    """The fields of one message, bodies unread."""
    while at < end:
        start = at
        key, at = _varint(buf, at, end)
        number, wire = key >> 3, key & 7
        body = at
        if wire == 0:
            _, at = _varint(buf, at, end)
        elif wire in (1, 5):
            at += 8 if wire == 1 else 4
        elif wire == 2:
            size, body = _varint(buf, at, end)
            at = body + size
            if at > end:
                raise _Truncated(f"field {number} at byte {start} needs {size} bytes, {end - body} are left")
        else:
            raise _Truncated(f"has a bad field type {wire} at byte {start}")
        if at > end:
            raise _Truncated(f"ends inside field {number} at byte {start}")
        yield _Field(number, wire, start, body, at)


def _cut_weights(buf: _Contents) -> tuple[bytes, dict[int, Raw]]:
    """The model's bytes without large raw_data of initializers, and those by position."""
    top = list(_fields(buf, 0, buf.size))
    graphs = [f for f in top if f.number == _GRAPH and f.wire == 2]
    if not graphs and top and not any(f.number in _MODEL_FIELDS for f in top):
        raise _Truncated("none of its fields is a model's")
    if len(graphs) != 1:  # protobuf would merge several: leave that to it
        return buf.part(0, buf.size), {}
    graph, raws = graphs[0], {}
    parts: list[bytes] = []
    index, kept = 0, graph.body
    for f in _fields(buf, graph.body, graph.end):
        if f.number != _INITIALIZER or f.wire != 2:
            continue
        cut = _raw_data(buf, f) if f.end - f.body > CUT_BYTES else None
        if cut is not None:
            raws[index] = buf.raw(cut.body, cut.end)
            rest = [buf.part(f.body, cut.start), buf.part(cut.end, f.end)]
            parts += [buf.part(kept, f.start), _framed(_INITIALIZER, rest)]
            kept = f.end
        index += 1
    if not raws:
        return buf.part(0, buf.size), {}
    parts.append(buf.part(kept, graph.end))
    return b"".join([buf.part(0, graph.start), _framed(_GRAPH, parts), buf.part(graph.end, buf.size)]), raws


def _raw_data(buf: _Contents, tensor: _Field) -> _Field | None:
    found = [f for f in _fields(buf, tensor.body, tensor.end) if f.number == _RAW_DATA and f.wire == 2]
    return found[0] if len(found) == 1 and found[0].end - found[0].body > CUT_BYTES else None


def _framed(number: int, parts: list[bytes]) -> bytes:
    body = b"".join(parts)
    key, size = number << 3 | 2, len(body)
    out = bytearray([key])
    while size >= 0x80:
        out.append(size & 0x7F | 0x80)
        size >>= 7
    out.append(size)
    return bytes(out) + body
