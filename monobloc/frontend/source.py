"""Reads a model file into a ModelProto without touching the weights, and says what is wrong with
it.

A protobuf parser copies every weight. Only the framing has to be read to find them: fields of the
model, of its graph and of its initializers. Large `raw_data` are cut out before parsing and kept
as slices of the file, so a file of gigabytes opens at once, even beyond protobuf's 2 GB limit,
and a truncated one is told apart from one that is no model at all.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import onnx
from google.protobuf.message import DecodeError

from monobloc.errors import Loc, ModelError

CUT_BYTES = 4096  # smaller tensors are left where they are
MMAP_BYTES = 1 << 28  # larger files are mapped; others read, so that overwriting them cannot kill us

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
class Source:
    """A parsed model; `raws` are the bytes cut out of top-level initializers, by their position."""

    name: str  # for messages
    model: onnx.ModelProto
    path: Path | None = None
    raws: dict[int, memoryview] = field(default_factory=dict)

    @property
    def loc(self) -> Loc:
        return Loc(self.name)


def read_source(model: str | os.PathLike[str] | bytes | memoryview | onnx.ModelProto) -> Source:
    """The model of a path, of bytes, or as it is; ModelError when there is none."""
    if isinstance(model, onnx.ModelProto):
        return Source("model", model)
    if isinstance(model, (bytes, bytearray, memoryview)):
        return _parse(memoryview(model), "model", None)
    path = Path(model)
    loc = Loc(path.name)
    try:
        if path.is_dir():
            raise ModelError("is a folder, not a model", loc=loc, hints=_models_in(path))
        if not path.is_file():
            raise ModelError("no such file", loc=Loc(str(path)))
        data = _contents(path)
    except OSError as e:
        raise ModelError(f"cannot be read: {e.strerror or e}", loc=loc) from None
    return _parse(data, path.name, path)


def _models_in(folder: Path) -> list[str]:
    names = sorted(p.name for p in folder.glob("*.onnx"))[:5]
    return [f"it holds {', '.join(names)}"] if names else []


def _contents(path: Path) -> memoryview:
    with path.open("rb") as f:
        if os.fstat(f.fileno()).st_size <= MMAP_BYTES:
            return memoryview(f.read())
        return memoryview(mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ))


def _parse(data: memoryview, name: str, path: Path | None) -> Source:
    loc = Loc(name)
    if not len(data):
        raise ModelError("the file is empty", loc=loc)
    _check_magic(data, loc)
    try:
        reduced, raws = _cut_weights(data)
    except _Truncated as e:
        raise ModelError(str(e), loc=loc, notes=["the file is truncated, or no ONNX model"]) from None
    model = onnx.ModelProto()
    try:
        model.ParseFromString(reduced)
    except (DecodeError, ValueError, RecursionError):
        raise ModelError(
            "is not an ONNX model: its protobuf does not parse",
            loc=loc,
            notes=[f"read {len(data)} bytes"],
        ) from None
    if not model.HasField("graph"):
        raise ModelError("has no graph", loc=loc, notes=["it parses as protobuf, but is no ONNX model"])
    _check_text(model, loc)
    return Source(name, model, path, raws)


def _check_magic(data: memoryview, loc: Loc) -> None:
    head = bytes(data[:200])
    if head.startswith(b"version https://git-lfs"):
        raise ModelError("is a Git LFS pointer, not the model", loc=loc, hints=["run `git lfs pull`"])
    for what, (at, magic) in _MAGIC.items():
        if head[at : at + len(magic)] == magic:
            raise ModelError(f"is {what}, not an ONNX model", loc=loc)


def _check_text(model: onnx.ModelProto, loc: Loc) -> None:
    """Protobuf hands out names that are no UTF-8 as bytes; nobody else has to think of that."""
    bodies: list[onnx.GraphProto | onnx.FunctionProto] = [model.graph, *model.functions]
    texts: list[object] = [o.domain for o in model.opset_import]
    for body in bodies:
        named = [*body.value_info, *getattr(body, "initializer", ())]
        if isinstance(body, onnx.GraphProto):
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


# -- protobuf framing ------------------------------------------------------------------------------
_Parts = list[bytes | memoryview]


class _Truncated(Exception):
    """The framing does not hold; the text says where."""


@dataclass(frozen=True)
class _Field:
    number: int
    wire: int
    start: int  # of the key
    body: int  # of the value, after its length
    end: int


def _varint(buf: memoryview, at: int, end: int) -> tuple[int, int]:
    value = shift = 0
    while at < end and shift < 70:
        byte = buf[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
    raise _Truncated(f"ends inside a number at byte {at}" if at >= end else f"has a bad number at byte {at}")


def _fields(buf: memoryview, at: int, end: int) -> Iterator[_Field]:
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


def _cut_weights(buf: memoryview) -> tuple[bytes, dict[int, memoryview]]:
    """The model's bytes without large raw_data of initializers, and those by position."""
    top = list(_fields(buf, 0, len(buf)))
    graphs = [f for f in top if f.number == _GRAPH and f.wire == 2]
    if not graphs and top and not any(f.number in _MODEL_FIELDS for f in top):
        raise _Truncated("none of its fields is a model's")
    if len(graphs) != 1:  # protobuf would merge several: leave that to it
        return bytes(buf), {}
    graph, raws = graphs[0], {}
    parts: _Parts = []
    index, kept = 0, graph.body
    for f in _fields(buf, graph.body, graph.end):
        if f.number != _INITIALIZER or f.wire != 2:
            continue
        cut = _raw_data(buf, f) if f.end - f.body > CUT_BYTES else None
        if cut is not None:
            raws[index] = buf[cut.body : cut.end]
            rest: _Parts = [buf[f.body : cut.start], buf[cut.end : f.end]]
            parts += [buf[kept : f.start], _framed(_INITIALIZER, rest)]
            kept = f.end
        index += 1
    parts.append(buf[kept : graph.end])
    whole: _Parts = [buf[: graph.start], _framed(_GRAPH, parts), buf[graph.end :]]
    return (b"".join(whole) if raws else bytes(buf)), raws


def _raw_data(buf: memoryview, tensor: _Field) -> _Field | None:
    found = [f for f in _fields(buf, tensor.body, tensor.end) if f.number == _RAW_DATA and f.wire == 2]
    return found[0] if len(found) == 1 and found[0].end - found[0].body > CUT_BYTES else None


def _framed(number: int, parts: _Parts) -> bytes:
    body = b"".join(parts)
    key, size = number << 3 | 2, len(body)
    out = bytearray([key])
    while size >= 0x80:
        out.append(size & 0x7F | 0x80)
        size >>= 7
    out.append(size)
    return bytes(out) + body
