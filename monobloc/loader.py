"""Compiled shared libraries in Python: numpy in, numpy out.

A CompiledModel owns its arena, so several of one library are independent and may run in threads of
their own. Inputs are copied into the arena unless the caller writes into `input_buffer(name)`
himself; outputs are copies unless `copy=False`, which gives views that the next run overwrites.
"""

from __future__ import annotations

import ctypes
import math
import re
import shutil
import sys
import tempfile
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from monobloc.errors import LinkError, ModelError
from monobloc.ir.strings import texts, to_chars

ABI = 1
FOREIGN = 256  # a status from here on is the code of a foreign kernel, and so is a negative one
ALIGN = 64
_DTYPES = {
    8: "S1", 1: np.float32, 2: np.uint8, 3: np.int8, 4: np.uint16, 5: np.int16, 6: np.int32, 7: np.int64, 9: np.bool_,
    10: np.float16, 11: np.float64, 12: np.uint32, 13: np.uint64, 16: ml_dtypes.bfloat16,
    17: ml_dtypes.float8_e4m3fn, 18: ml_dtypes.float8_e4m3fnuz, 19: ml_dtypes.float8_e5m2,
    20: ml_dtypes.float8_e5m2fnuz, 21: ml_dtypes.uint4, 22: ml_dtypes.int4, 23: ml_dtypes.float4_e2m1fn,
    24: ml_dtypes.float8_e8m0fnu, 25: ml_dtypes.uint2, 26: ml_dtypes.int2,
}


class _TensorInfo(ctypes.Structure):
    _fields_ = [
        ("name", ctypes.c_char_p), ("dtype", ctypes.c_int32), ("rank", ctypes.c_int32),
        ("dims", ctypes.POINTER(ctypes.c_int64)), ("bytes", ctypes.c_uint64),
        ("at", ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)),
    ]


class _Dim(ctypes.Structure):
    _fields_ = [
        ("name", ctypes.c_char_p), ("least", ctypes.c_int64), ("most", ctypes.c_int64),
        ("n_sizes", ctypes.c_int32), ("sizes", ctypes.POINTER(ctypes.c_int64)),
    ]


class _Dynamic(ctypes.Structure):
    _fields_ = [
        ("n_dims", ctypes.c_int32), ("dims", ctypes.POINTER(_Dim)),
        ("axes", ctypes.POINTER(ctypes.POINTER(ctypes.c_int32))),
        ("set", ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_int32, ctypes.c_int64)),
        ("shapes", ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.POINTER(ctypes.c_int64))),
    ]


class _ModelInfo(ctypes.Structure):
    _fields_ = [
        ("abi", ctypes.c_uint32), ("size", ctypes.c_uint32), ("name", ctypes.c_char_p),
        ("n_inputs", ctypes.c_int32), ("n_outputs", ctypes.c_int32),
        ("inputs", ctypes.POINTER(_TensorInfo)), ("outputs", ctypes.POINTER(_TensorInfo)),
        ("ram_size", ctypes.c_uint64), ("weights_bytes", ctypes.c_uint64), ("stack_bound", ctypes.c_uint64),
        ("run", ctypes.CFUNCTYPE(ctypes.c_int)), ("run_at", ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)),
        ("reset", ctypes.c_void_p), ("reset_at", ctypes.CFUNCTYPE(None, ctypes.c_void_p)),
        ("ram", ctypes.CFUNCTYPE(ctypes.c_void_p)), ("set_threads", ctypes.CFUNCTYPE(None, ctypes.c_int)),
        ("stop", ctypes.CFUNCTYPE(None)), ("strerror", ctypes.CFUNCTYPE(ctypes.c_char_p, ctypes.c_int)),
        ("target", ctypes.c_char_p), ("features", ctypes.c_char_p), ("max_threads", ctypes.c_int32),
        ("n_banks", ctypes.c_int32), ("banks", ctypes.c_void_p),
        ("dynamic", ctypes.POINTER(_Dynamic)),
    ]


@dataclass(frozen=True)
class TensorSpec:
    """Name, numpy dtype and shape of an input or output; of a model that takes several sizes, the largest. Strings are
    `S64` with 64 bytes of room each.

    `axes` then names, for every axis of an input, the dimension that it is, "" where it is none.
    """

    name: str
    dtype: np.dtype
    shape: tuple[int, ...]
    axes: tuple[str, ...] = ()

    def fits(self, shape: Sequence[int]) -> bool:
        """Whether an array of this shape may be one, as far as its axes tell."""
        if len(shape) != len(self.shape):
            return False
        axes = self.axes or ("",) * len(shape)
        return all(n <= most if name else n == most for n, most, name in zip(shape, self.shape, axes, strict=True))


def spec_of(name: str, dtype: Any, shape: tuple[int, ...]) -> TensorSpec:
    """Of strings the last axis is their room."""
    d = np.dtype(dtype)
    return TensorSpec(name, np.dtype(f"S{shape[-1]}"), shape[:-1]) if d.kind == "S" else TensorSpec(name, d, shape)


class CompiledModel:
    """One model of a compiled library, with an arena of its own."""

    def __init__(self, path: Path, index: int = 0, keep: Any = None) -> None:
        self.path, self._keep = Path(path), keep
        try:
            self._lib = ctypes.CDLL(str(self.path.resolve()))
        except OSError as e:
            raise LinkError(f"cannot load `{path}`: {e}") from None
        self._info = _model_info(self._lib, index, self.path)
        self._ram = _aligned(int(self._info.ram_size))
        self._sizes = Sizes(self._info) if self._info.size >= ctypes.sizeof(_ModelInfo) and self._info.dynamic else None
        self._inputs = [(s, self._view(i, s)) for s, i in _specs(self._info.inputs, self._info.n_inputs)]
        self._outputs = [(s, self._view(i, s)) for s, i in _specs(self._info.outputs, self._info.n_outputs)]
        if self._sizes is not None:
            axes = zip(self._inputs, self._sizes.axes, strict=True)
            self._inputs = [(replace(s, axes=a[: len(s.shape)]), view) for (s, view), a in axes]
        self._seen: tuple[Any, tuple[list[np.ndarray], list[np.ndarray]]] = (None, ([], []))
        self.reset()
        if self._info.max_threads > 1:
            self.set_threads(int(self._info.max_threads))
            weakref.finalize(self, self._info.stop)

    def _view(self, info: _TensorInfo, spec: TensorSpec) -> np.ndarray:
        base = self._ram.ctypes.data
        offset = int(info.at(base) or 0) - base
        return self._ram[offset : offset + int(info.bytes)].view(spec.dtype).reshape(spec.shape)

    def _now(self) -> tuple[list[np.ndarray], list[np.ndarray]]:
        """Inputs and outputs in the sizes set, in which they are dense."""
        ins, outs = ([view for _, view in ports] for ports in (self._inputs, self._outputs))
        if self._sizes is None or (shapes := self._sizes.shapes(self._ram.ctypes.data, ins, outs)) is None:
            return ins, outs
        if shapes != self._seen[0]:  # runs of one size after the other need no new views
            now = [view.reshape(-1)[: math.prod(s)].reshape(s) for view, s in zip([*ins, *outs], shapes, strict=True)]
            self._seen = (shapes, (now[: len(ins)], now[len(ins) :]))
        return self._seen[1]

    # -- facts --
    @property
    def name(self) -> str:
        return str(self._info.name.decode())

    @property
    def inputs(self) -> list[TensorSpec]:
        return [s for s, _ in self._inputs]

    @property
    def outputs(self) -> list[TensorSpec]:
        return [s for s, _ in self._outputs]

    @property
    def dims(self) -> dict[str, tuple[int, ...] | range]:
        """The dimensions that a run chooses, with the sizes that each may have."""
        return {} if self._sizes is None else dict(self._sizes.dims)

    @property
    def arena_bytes(self) -> int:
        return int(self._info.ram_size)

    @property
    def weights_bytes(self) -> int:
        return int(self._info.weights_bytes)

    @property
    def target(self) -> str:
        return str(self._info.target.decode())

    def __repr__(self) -> str:
        return f"CompiledModel({self.name!r}, arena_bytes={self.arena_bytes})"

    # -- running --
    def set_dims(self, **sizes: int) -> None:
        """Sizes of the next runs, as the shapes given to `run` set them too."""
        for name, n in sizes.items():
            if self._sizes is None or name not in self._sizes.dims:
                raise ModelError(f"{self.name} has no dimension `{name}` to set",
                                 notes=[f"it has: {', '.join(self.dims) or 'none'}"])
            self._sizes.set(self._ram.ctypes.data, name, n)

    def input_buffer(self, name: str) -> np.ndarray:
        """The input inside the arena: write here, then `run({})` copies nothing."""
        if (view := self._input_views().get(name)) is not None:
            return view
        raise ModelError(f"{self.name} has no input `{name}`; it has {', '.join(s.name for s in self.inputs)}")

    def _input_views(self) -> dict[str, np.ndarray]:
        return {s.name: view for (s, _), view in zip(self._inputs, self._now()[0], strict=True)}

    def run(self, feeds: Mapping[str, Any] | None = None, *, copy: bool = True) -> dict[str, np.ndarray]:
        """One inference. Missing inputs keep what their buffer holds; unknown names are errors."""
        self.write(feeds or {})
        status = self._info.run_at(self._ram.ctypes.data)
        if status:
            code = f" with code {status - FOREIGN if status > 0 else status}" if not 0 <= status < FOREIGN else ""
            raise ModelError(f"{self.name}: {self._info.strerror(status).decode()}{code}")
        names = [s.name for s, _ in self._outputs]
        return {name: _taken(view) if copy else view for name, view in zip(names, self._now()[1], strict=True)}

    def write(self, feeds: Mapping[str, Any]) -> None:
        """Inputs into the arena, for runs that are given none; their shapes set the sizes that a run chooses."""
        feeds = spread(feeds, [s.name for s in self.inputs])
        if self._sizes is not None:
            self._take_sizes(feeds)
        views = self._input_views() if feeds else {}
        for name, value in feeds.items():
            self._write(views[name] if name in views else self.input_buffer(name), name, value)

    def _take_sizes(self, feeds: Mapping[str, Any]) -> None:
        """Dimensions as the inputs given have them."""
        found: dict[str, tuple[int, str]] = {}
        for spec in self.inputs:
            shape = np.shape(feeds[spec.name]) if spec.name in feeds else ()
            for name, n in zip(spec.axes, shape, strict=False):
                if name and found.setdefault(name, (n, spec.name))[0] != n:
                    raise ModelError(f"dimension `{name}` is {found[name][0]} in input `{found[name][1]}` and {n} in "
                                     f"input `{spec.name}`")
        self.set_dims(**{name: n for name, (n, _) in found.items()})

    def _write(self, view: np.ndarray, name: str, value: Any) -> None:
        array = _array(value, f"input `{name}`")
        if array.dtype == "S1" and array.shape == (*view.shape, view.dtype.itemsize):  # letters, as they lie
            array = np.ascontiguousarray(array).view(view.dtype).reshape(view.shape)
        if view.dtype.kind == "S":
            array = to_strings(array, f"input `{name}`", view.dtype)
        if array.dtype != view.dtype and not (np.isscalar(value) or isinstance(value, (list, tuple))):
            raise ModelError(f"input `{name}` is {array.dtype}, {self.name} takes {view.dtype}")
        if array.shape != view.shape:
            raise ModelError(f"input `{name}` has shape {list(array.shape)}, {self.name} takes {list(view.shape)}")
        view[...] = array

    def __call__(self, *args: Any) -> Any:
        """Inputs in order; one output as it is, several as a tuple."""
        if len(args) != len(self._inputs):
            raise ModelError(f"{self.name} takes {len(self._inputs)} inputs, got {len(args)}")
        out = tuple(self.run({s.name: a for s, a in zip(self.inputs, args, strict=True)}).values())
        return out[0] if len(out) == 1 else out

    def reset(self) -> None:
        """State of streaming models back to the start."""
        self._info.reset_at(self._ram.ctypes.data)

    def set_threads(self, n: int) -> None:
        """At most as many as it was compiled for."""
        self._info.set_threads(n)

    def stop(self) -> None:
        """End worker threads."""
        self._info.stop()


class Sizes:
    """The dimensions of a model that a run chooses."""

    def __init__(self, info: _ModelInfo) -> None:
        self._of, self._model = info.dynamic.contents, info.name.decode()
        self.dims: dict[str, tuple[int, ...] | range] = {}
        for k in range(self._of.n_dims):
            d = self._of.dims[k]
            sizes = tuple(d.sizes[i] for i in range(d.n_sizes)) if d.n_sizes else range(d.least, d.most + 1)
            self.dims[d.name.decode()] = sizes
        names = list(self.dims)
        self.axes = [tuple("" if self._of.axes[k][a] < 0 else names[self._of.axes[k][a]]
                           for a in range(info.inputs[k].rank)) for k in range(info.n_inputs)]

    def set(self, ram: int, name: str, n: int) -> None:
        if self._of.set(ram, list(self.dims).index(name), n):
            sizes = self.dims[name]
            told = f"{sizes[0]}..{sizes[-1]}" if isinstance(sizes, range) else ",".join(map(str, sizes))
            raise ModelError(f"dimension `{name}` is {n}, {self._model} takes {told}")

    def shapes(self, ram: int, ins: Sequence[np.ndarray], outs: Sequence[np.ndarray]) -> list[tuple[int, ...]] | None:
        """Shapes of all inputs and outputs in the sizes set; None while one is not set."""
        ranks = [v.ndim + (v.dtype.kind == "S") for v in (*ins, *outs)]  # of strings with the axis of their room
        flat = (ctypes.c_int64 * max(sum(ranks), 1))()
        if self._of.shapes(ram, flat):
            return None
        rest = iter(flat)
        found = [tuple(next(rest) for _ in range(r)) for r in ranks]
        return [shape[: v.ndim] for shape, v in zip(found, (*ins, *outs), strict=True)]


def _array(value: Any, what: str) -> np.ndarray:
    """As numpy has it. Of PyTorch's tensors numpy refuses bfloat16, parameters, and what lies elsewhere."""
    torch = sys.modules.get("torch")  # who gives a tensor has imported it
    if torch is None or not isinstance(value, torch.Tensor):
        return np.asarray(value)
    from monobloc.frontend.torch.tensors import array_of

    return array_of(value, what)


def _aligned(size: int) -> np.ndarray:
    raw = np.zeros(size + ALIGN, np.uint8)
    start = -raw.ctypes.data % ALIGN
    return raw[start : start + size]


def _model_info(lib: ctypes.CDLL, index: int, path: Path) -> _ModelInfo:
    try:
        get = lib.monobloc_model
    except AttributeError:
        raise LinkError(f"`{path}` is no library made by Monobloc") from None
    get.restype, get.argtypes = ctypes.POINTER(_ModelInfo), [ctypes.c_int]
    p = get(index)
    if not p:
        raise LinkError(f"`{path}` has no model number {index}")
    info: _ModelInfo = p.contents
    if info.abi != ABI:
        raise LinkError(f"`{path}` has ABI {info.abi}, this version reads ABI {ABI}", hints=["build it again"])
    return info


def _specs(infos: Any, n: int) -> list[tuple[TensorSpec, _TensorInfo]]:
    out = []
    for k in range(n):
        i = infos[k]
        shape = tuple(int(i.dims[d]) for d in range(i.rank))
        out.append((spec_of(i.name.decode(), _DTYPES[i.dtype], shape), i))
    return out


def load(path: str | Path, index: int = 0) -> CompiledModel:
    """A shared library made by `monobloc build -o m.so`. A private copy is loaded, so that a file that is
    rebuilt under the same name is not mistaken for the one loaded before."""
    source = Path(path)
    if not source.is_file():
        raise LinkError(f"cannot load `{path}`: no such file")
    folder = tempfile.TemporaryDirectory(prefix="monobloc-")
    private = Path(folder.name) / source.name
    shutil.copyfile(source, private)
    return CompiledModel(private, index, keep=folder)


class InferenceSession:
    """onnxruntime's habits: `InferenceSession(path).run(None, feed)`; takes models and libraries."""

    def __init__(self, path: str | Path, **options: Any) -> None:
        from monobloc.driver import compile as compile_model

        self.model = load(path) if str(path).endswith(".so") else compile_model(path, **options)

    def get_inputs(self) -> list[TensorSpec]:
        return self.model.inputs

    def get_outputs(self) -> list[TensorSpec]:
        return self.model.outputs

    def run(self, names: Sequence[str] | None, feeds: Mapping[str, Any]) -> list[Any]:
        """Names of sequences give lists."""
        out = self.model.run(feeds)
        return [out[n] if n in out else gathered(n, out) for n in names] if names else list(out.values())


# -- strings --
def to_strings(array: np.ndarray, what: str, dtype: np.dtype) -> np.ndarray:
    """Strings of any kind as numpy's of this size; ModelError where one does not fit"""
    if array.dtype.kind not in "SUO":
        raise ModelError(f"{what} is {array.dtype}, not strings")
    return to_chars(array, what, dtype.itemsize).view(dtype).reshape(array.shape)


def _taken(view: np.ndarray) -> np.ndarray:
    """A copy; of strings one of Python's, as onnxruntime gives them"""
    return texts(view) if view.dtype.kind == "S" else view.copy()


# -- sequences: one input or output per item, `x[0]`, `x[1]`, ... --
def spread(feeds: Mapping[str, Any], known: Sequence[str]) -> dict[str, Any]:
    """Lists given for sequences, by the names of their items"""
    out: dict[str, Any] = {}
    for name, value in feeds.items():
        if name in known or not isinstance(value, (list, tuple)) or f"{name}[0]" not in known:
            out[name] = value
            continue
        count = sum(re.fullmatch(re.escape(name) + r"\[\d+\]", k) is not None for k in known)
        if len(value) != count:
            raise ModelError(f"input `{name}` is given {len(value)} items, but was compiled for {count}")
        out |= {f"{name}[{k}]": x for k, x in enumerate(value)}
    return out


def flattened(values: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Lists by the names of their items; optionals without a value are left out."""
    out: dict[str, np.ndarray] = {}
    for name, v in values.items():
        if v is not None:
            out |= {f"{name}[{k}]": x for k, x in enumerate(v)} if isinstance(v, list) else {name: v}
    return out


def gathered(name: str, values: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    """The items of a sequence that has some"""
    count = sum(re.fullmatch(re.escape(name) + r"\[\d+\]", k) is not None for k in values)
    if not count:
        raise ModelError(f"there is no output `{name}`", notes=[f"there are: {', '.join(values)}"])
    return [values[f"{name}[{k}]"] for k in range(count)]
