"""Inputs of a run: from files, or random with a seed that is told."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from monobloc.errors import ModelError
from monobloc.ir.graph import Graph, Value
from monobloc.ir.symbolic import lower
from monobloc.loader import TensorSpec, to_strings

Feeds = dict[str, np.ndarray]
IMAGES = (".png", ".jpg", ".jpeg", ".bmp", ".webp")
SMALL = 10  # random integers are below: they are often indices
DECIDES = {"Bounded": 0, "RangeExtent": 1}  # which input of a node is a size, at most its `most`
SAME_NUMBERS = ("Cast", "Reshape", "Squeeze", "Unsqueeze", "Flatten", "Identity", "Transpose", "Slice", "Expand")


def random_feeds(specs: Sequence[TensorSpec], seed: int, limits: Mapping[str, int] | None = None) -> Feeds:
    """Normal numbers, small integers; an input's data depend on the seed, its name and its limit only."""
    ends = {s.name: min(SMALL, (limits or {}).get(s.name, SMALL)) for s in specs}
    return {s.name: _random(s, np.random.default_rng([seed, zlib.crc32(s.name.encode())]), ends[s.name]) for s in specs}


def _random(s: TensorSpec, rng: np.random.Generator, end: int) -> np.ndarray:
    if s.dtype == np.bool_:
        return rng.integers(0, 2, s.shape).astype(np.bool_)
    if s.dtype.kind == "S":
        lengths = rng.integers(0, min(SMALL, s.dtype.itemsize) + 1, s.shape)
        words = ["".join(map(chr, rng.integers(97, 123, n))) for n in lengths.ravel()]
        return np.array(words, s.dtype).reshape(s.shape)
    if s.dtype.kind in "iu":
        return rng.integers(0, end, s.shape).astype(s.dtype)
    return rng.standard_normal(s.shape).astype(s.dtype)


def index_limits(g: Graph) -> dict[str, int]:
    """Inputs that index tables, and the size of the smallest, or that decide sizes, and the room there is: random data
    beyond it would be the caller's mistake."""
    limits: dict[Value, int] = {}
    for node in reversed(g.nodes):
        if node.op == "Gather" and node.inputs[0] is not None and node.inputs[1] is not None:
            _limit(limits, node.inputs[1], lower(node.inputs[0].shape[node.attrs.get("axis", 0)]))
        elif node.op in DECIDES and node.inputs[DECIDES[node.op]] is not None:
            _limit(limits, node.used[DECIDES[node.op]], node.attrs["most"] + 1)
        elif node.op in SAME_NUMBERS and node.outputs[0] in limits and node.inputs[0] is not None:
            _limit(limits, node.inputs[0], limits[node.outputs[0]])
    return {v.origin or v.name: limits[v] for v in g.inputs if v in limits}


def _limit(limits: dict[Value, int], v: Value, size: int) -> None:
    limits[v] = max(1, min(size, limits.get(v, size)))


def read_feeds(words: Sequence[str], specs: Sequence[TensorSpec]) -> Feeds:
    """`x.npy`, `NAME=x.npy`, `all.npz`, tensors of ONNX's tests (.pb), images."""
    out: Feeds = {}
    for word in words:
        name, path = _split(word, specs)
        if path.suffix == ".npz":
            if name:
                raise ModelError(f"`{word}`: a .npz names its arrays itself")
            found = {k: v for k, v in _npz_inputs(path).items()}
        else:
            name = name or next((s.name for s in specs if s.name not in out), "")
            if not name:
                raise ModelError(f"`{word}`: the model has no input left for it", notes=_known(specs))
            found = {name: _read(path, _spec(name, specs, word))}
        for key, value in found.items():
            out[key] = _fitting(value, _spec(key, specs, word), word)
    missing = [s.name for s in specs if s.name not in out]
    if missing:
        raise ModelError(f"no data for input `{'`, `'.join(missing)}`", notes=_known(specs))
    return out


def _split(word: str, specs: Sequence[TensorSpec]) -> tuple[str, Path]:
    for s in specs:
        if word.startswith(s.name + "="):
            return s.name, Path(word[len(s.name) + 1 :])
    name, eq, path = word.partition("=")
    return (name, Path(path)) if eq and not Path(word).exists() else ("", Path(word))


def _known(specs: Sequence[TensorSpec]) -> list[str]:
    return [f"input `{s.name}` is {s.dtype}{list(s.shape)}" for s in specs]


def _spec(name: str, specs: Sequence[TensorSpec], word: str) -> TensorSpec:
    for s in specs:
        if s.name == name:
            return s
    raise ModelError(f"`{word}`: the model has no input `{name}`", notes=_known(specs))


def _fitting(value: np.ndarray, s: TensorSpec, word: str) -> np.ndarray:
    if s.dtype.kind == "S":
        value = to_strings(value, f"`{word}`", s.dtype)
    if value.dtype.kind == "V" and value.dtype.itemsize == s.dtype.itemsize:
        value = value.view(s.dtype)  # .npy has no name for bfloat16
    if not s.fits(value.shape) or value.dtype != s.dtype:
        raise ModelError(f"`{word}` holds {value.dtype}{list(value.shape)}, input `{s.name}` is "
                         f"{s.dtype}{list(s.shape)}")
    return value


def load_npz(path: Path) -> dict[str, np.ndarray]:
    try:
        with np.load(path, allow_pickle=False) as z:
            return {k: z[k] for k in z.files}
    except (OSError, ValueError, zlib.error) as e:
        raise ModelError(f"cannot read `{path}`: {_reason(e)}") from None


def _reason(e: Exception) -> str:
    return (e.strerror or str(e)).lower() if isinstance(e, OSError) else str(e)


def _npz_inputs(path: Path) -> dict[str, np.ndarray]:
    """Arrays by input name; a file of examples has `in_NAME` beside `out_NAME`."""
    found = load_npz(path)
    marked = {k[3:]: v for k, v in found.items() if k.startswith("in_")}
    return marked if marked and all(k.startswith(("in_", "out_")) for k in found) else found


def split_examples(path: Path) -> tuple[Feeds, dict[str, np.ndarray]]:
    """Inputs and expected outputs of an example file."""
    found = load_npz(path)
    ins = {k[3:]: v for k, v in found.items() if k.startswith("in_")}
    outs = {k[4:]: v for k, v in found.items() if k.startswith("out_")}
    if not outs:
        raise ModelError(f"`{path}` holds no expected outputs", hints=["call them out_NAME, and inputs in_NAME"])
    return ins, outs


def _read(path: Path, s: TensorSpec) -> np.ndarray:
    if path.suffix.lower() in IMAGES:
        return _image(path, s)
    try:
        if path.suffix == ".pb":
            return _pb(path)
        return np.asarray(np.load(path, allow_pickle=False))
    except (OSError, ValueError, EOFError) as e:
        raise ModelError(f"cannot read `{path}`: {_reason(e)}") from None


def _pb(path: Path) -> np.ndarray:
    from google.protobuf.message import DecodeError
    from onnx import TensorProto, numpy_helper

    t = TensorProto()
    try:
        t.ParseFromString(path.read_bytes())
    except DecodeError:
        raise ModelError(f"cannot read `{path}`: it is no ONNX tensor") from None
    return np.asarray(numpy_helper.to_array(t))


def _image(path: Path, s: TensorSpec) -> np.ndarray:
    """Scaled to the input's size; floats are 0..1, integers 0..255."""
    try:
        from PIL import Image, UnidentifiedImageError
    except ImportError:
        raise ModelError(f"`{path}`: images need Pillow", hints=["pip install pillow"]) from None
    h, w, c, channels_first = _image_shape(s, path)
    try:
        picture = Image.open(path).convert("L" if c == 1 else "RGB").resize((w, h))
    except (OSError, UnidentifiedImageError) as e:
        raise ModelError(f"cannot read `{path}`: {_reason(e)}") from None
    a = np.asarray(picture).reshape(h, w, c)
    a = a.transpose(2, 0, 1) if channels_first else a
    if s.dtype.kind == "f" or s.dtype == ml_dtypes.bfloat16:
        a = a / np.float32(255)
    return np.ascontiguousarray(a.reshape(s.shape).astype(s.dtype))


def _image_shape(s: TensorSpec, path: Path) -> tuple[int, int, int, bool]:
    dims = [d for d in s.shape]
    while len(dims) > 3 and dims[0] == 1:
        dims.pop(0)
    if len(dims) == 2:
        return dims[0], dims[1], 1, True
    if len(dims) == 3 and dims[0] in (1, 3):
        return dims[1], dims[2], dims[0], True
    if len(dims) == 3 and dims[2] in (1, 3):
        return dims[0], dims[1], dims[2], False
    raise ModelError(f"`{path}`: input `{s.name}` {list(s.shape)} takes no image")


def write_outputs(out: Path, values: Mapping[str, Any]) -> None:
    """`.npz`, one `.npy`, or a folder with one file per output."""
    values = {k: np.asarray(v, str) if v.dtype == object else v for k, v in values.items()}
    if out.suffix == ".npz":
        out.parent.mkdir(parents=True, exist_ok=True)
        np.savez(out, **values)
    elif out.suffix == ".npy":
        if len(values) != 1:
            raise ModelError(f"`-o {out}`: the model has {len(values)} outputs", hints=["write a .npz or a folder"])
        out.parent.mkdir(parents=True, exist_ok=True)
        np.save(out, next(iter(values.values())))
    else:
        out.mkdir(parents=True, exist_ok=True)
        for name, value in values.items():
            np.save(out / (name.replace("/", "_") + ".npy"), value)
