"""Operators whose result is shape, a constant or the same elements in the same order.

Every shape is known while a model is read, so most of these leave nothing behind: `Shape` is a
constant, and `Flatten`, `Squeeze` and `Unsqueeze` are all `Reshape`, the one view there is.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from monobloc.errors import ModelError
from monobloc.ir.expr import Expr, Fn, Num, cast, floordiv, floormod, idx, lift, select
from monobloc.ir.graph import Node, Value
from monobloc.ir.symbolic import has_open, integers, whole
from monobloc.ir.types import DType, TensorType
from monobloc.ops import EXACT, Case, OpDef
from monobloc.ops.contract import Edge, f32, i64
from monobloc.ops.elementwise import bcast, broadcast_shapes

Array = np.ndarray


# -- helpers of all movement operators ------------------------------------------------------------------
def axis_of(axis: int, rank: int, op: str) -> int:
    """`axis` counted from the front; ModelError when the tensor has no such axis"""
    axis = int(axis)
    if not -rank <= axis < rank:
        raise ModelError(f"{op} along axis {axis} of a tensor of rank {rank}")
    return axis + rank if axis < 0 else axis


def axes_of(axes: Sequence[int], rank: int, op: str) -> list[int]:
    """`axes` counted from the front, in the order given; ModelError when one is named twice"""
    out = [axis_of(a, rank, op) for a in axes]
    if len(set(out)) != len(out):
        raise ModelError(f"{op} names an axis twice: {list(axes)} of a tensor of rank {rank}")
    return out


def only(v: Value | None, op: str) -> Value:
    """an input that must be there"""
    if v is None:
        raise ModelError(f"{op} lacks an input")
    return v


def flatten_index(shape: Sequence[int], index: Sequence[Expr]) -> Expr:
    """row-major position of `index`"""
    flat: Expr = idx(0)
    for n, i in zip(shape, index, strict=True):
        flat = flat * n + i
    return flat


def unflatten_index(shape: Sequence[int], flat: Expr) -> list[Expr]:
    """inverse of flatten_index"""
    out: list[Expr] = []
    for k, n in enumerate(shape):
        at = floordiv(flat, max(math.prod(shape[k + 1 :]), 1))
        out.append(idx(0) if n == 1 else at if k == 0 else floormod(at, n))
    return out


def shape_groups(a: Sequence[int], b: Sequence[int]) -> list[tuple[range, range]]:
    """Shortest runs of axes of `a` and `b` with equal products: index arithmetic stays inside one."""
    out: list[tuple[range, range]] = []
    i = j = 0
    while i < len(a) or j < len(b):
        p, q, i0, j0 = 1, 1, i, j
        while True:
            if i < len(a) and (p <= q or j == len(b)):
                p, i = p * a[i], i + 1
            elif j < len(b):
                q, j = q * b[j], j + 1
            if p == q:
                break
        out.append((range(i0, i), range(j0, j)))
    return out


def reshaped(x: Fn, shape: Sequence[int], to: Sequence[int]) -> Fn:
    """`x` of `shape` read with an index of the shape `to` of as many elements"""
    if 0 in shape:
        return lambda *i: x(*[idx(0)] * len(shape))
    groups = shape_groups(shape, to)

    def at(*i: Expr) -> Expr:
        src: list[Expr] = []
        for from_axes, to_axes in groups:
            flat = flatten_index([to[k] for k in to_axes], [i[k] for k in to_axes])
            src += unflatten_index([shape[k] for k in from_axes], flat)
        return x(*src)

    return at


# -- constants --------------------------------------------------------------------------------------------
class Constant(OpDef):
    """Vanishes: the value of its one attribute."""

    name = "Constant"

    def from_onnx(self, b: Any, n: Any) -> Sequence[Value | None]:
        dtypes = {"value_float": np.float32, "value_floats": np.float32, "value_int": np.int64, "value_ints": np.int64}
        given = [(k, v) for k, v in n.attrs.items() if k.startswith("value") or k == "sparse_value"]
        if len(given) != 1:
            n.fail(f"needs one value, got {', '.join(k for k, _ in given) or 'none'}")
        key, value = given[0]
        if key == "value":
            return [b.const(value)]
        if key not in dtypes:
            n.unsupported(f"a constant of the kind {key}")
        return [b.const(np.asarray(value, dtypes[key]))]


class ConstantOfShape(OpDef):
    """Vanishes: one element, expanded."""

    name = "ConstantOfShape"
    codes = True

    def from_onnx(self, b: Any, n: Any) -> Sequence[Value | None]:
        shape = sizes(n, n.const(0, "shape"), "shape")
        value = np.asarray(n.attrs.get("value", np.zeros(1, np.float32)))
        if value.size != 1:
            n.fail(f"needs a value of one element, got {value.size}")
        return [b.one("Expand", b.const(value.reshape([1] * len(shape))), shape=shape)]


class Shape(OpDef):
    """Vanishes: the sizes of the axes start..end of its input."""

    name = "Shape"
    strings = "moves"
    codes = True

    def from_onnx(self, b: Any, n: Any) -> Sequence[Value | None]:
        shape = n.inputs[0].shape
        start, end = n.attrs.get("start", 0), n.attrs.get("end")
        rank = len(shape)
        lo, hi = (min(max(v + rank if v < 0 else v, 0), rank) for v in (start, rank if end is None else end))
        return [b.ints(shape[lo:hi])]


class Size(OpDef):
    """Vanishes: the number of elements of its input."""

    name = "Size"
    strings = "moves"
    codes = True

    def from_onnx(self, b: Any, n: Any) -> Sequence[Value | None]:
        return [b.const(integers(n.inputs[0].type.size, np.int64))]


class Range(OpDef):
    """Vanishes: start, start + delta, ... before limit; its size is data, so all three are constants"""

    name = "Range"

    def from_onnx(self, b: Any, n: Any) -> Sequence[Value | None]:
        names = ("start", "limit", "delta")
        given = [np.asarray(n.const(i, w)).reshape(()) for i, w in enumerate(names)]
        if any(map(has_open, given)):
            if all(whole(x.item()) == x.item() for x in given):
                return self._open(b, n, [whole(x.item()) for x in given])
            given = [np.asarray(float(x.item())) for x in given]  # each size has its own
        start, limit, delta = given
        if delta == 0:
            n.fail("has a delta of 0")
        if start.dtype.kind in "iu":
            count = max(-((int(start) - int(limit)) // int(delta)), 0)
        else:
            count = max(math.ceil((float(limit) - float(start)) / float(delta)), 0)
        if count > 1 << 28:
            n.fail(f"has {count} elements, from {start} to {limit} by {delta}")
        return [b.const((start + np.arange(count).astype(start.dtype) * delta).astype(start.dtype))]


    def _open(self, b: Any, n: Any, given: Sequence[int]) -> Sequence[Value | None]:
        """Sizes among start, limit and delta"""
        start, limit, delta = given
        if delta == 0:
            n.fail("has a delta of 0")
        count = -((start - limit) // delta)
        y, to = b.one("Iota", start=start, delta=delta, size=count if count > 0 else 0), n.inputs[0].dtype
        return [y if to is DType.I64 else b.one("Cast", y, to=to)]


class Iota(OpDef):
    """start, start + delta, ...: a Range whose size a run chooses"""

    name = "Iota"
    internal = True

    def infer(self, ins: Sequence[Value | None], attrs: dict[str, Any]) -> list[TensorType]:
        return [TensorType(DType.I64, (attrs["size"],))]

    def ref(self, attrs: dict[str, Any], *xs: Array | None) -> Array:
        return np.asarray(attrs["start"] + np.arange(attrs["size"], dtype=np.int64) * attrs["delta"])

    def expr(self, n: Node, *xs: Fn | None) -> Fn:
        start, delta = n.attrs["start"], n.attrs["delta"]
        return lambda i: i * delta + start

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        yield Case((), {"start": 3, "delta": 2, "size": 40})
        yield Case((), {"start": 3, "delta": -2, "size": 5}, "down")


class EyeLike(OpDef):
    """1 where column - row = k, else 0; attributes shape, k, dtype; no input is read"""

    name = "EyeLike"
    tol = EXACT

    def from_onnx(self, b: Any, n: Any) -> Sequence[Value | None]:
        x = n.inputs[0]
        dtype = n.dtype_attr("dtype") if "dtype" in n.attrs else x.dtype
        return b.emit("EyeLike", [], {"shape": list(x.shape), "k": n.attrs.get("k", 0), "dtype": dtype})

    def infer(self, ins: Sequence[Value | None], attrs: dict[str, Any]) -> list[TensorType]:
        if len(attrs["shape"]) != 2:
            raise ModelError(f"EyeLike needs a matrix, got rank {len(attrs['shape'])}")
        return [TensorType(attrs["dtype"], tuple(attrs["shape"]))]

    def ref(self, attrs: dict[str, Any], *xs: Array | None) -> Array:
        rows, columns = attrs["shape"]
        return np.eye(rows, columns, k=attrs["k"]).astype(attrs["dtype"].numpy)

    def expr(self, n: Node, *xs: Fn | None) -> Fn:
        k, t = n.attrs["k"], n.attrs["dtype"]
        return lambda i, j: select(j.eq(i + k), lift(1, t), lift(0, t))

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        for shape, k in (([4, 5], 0), ([3, 3], 1), ([5, 2], -2), ([2, 2], 7)):
            yield Case((), {"shape": shape, "k": k, "dtype": DType.F32}, f"k{k}")
        yield Case((), {"shape": [2, 3], "k": 0, "dtype": DType.I64}, "i64")


# -- views ------------------------------------------------------------------------------------------------
class Reshape(OpDef):
    """The same elements in row-major order under another shape; `shape` holds sizes, one may be -1."""

    name = "Reshape"
    strings = "moves"
    moves = True
    codes = True
    view = True

    def from_onnx(self, b: Any, n: Any) -> Sequence[Value | None]:
        x = n.inputs[0]
        shape = [whole(d) for d in n.const(1, "shape").ravel()] if n.input(1) is not None else n.ints("shape", None)
        if not n.attrs.get("allowzero", 0):
            for k, d in enumerate(shape):
                if d == 0 and k >= x.type.rank:
                    n.fail(f"copies size {k} of a tensor of rank {x.type.rank}: shape {shape}")
            shape = [x.shape[k] if d == 0 else d for k, d in enumerate(shape)]
        elif 0 in shape and -1 in shape:
            n.fail(f"has both 0 and -1 in shape {shape} with allowzero")
        return [reshape(b, x, shape)]

    def infer(self, ins: Sequence[Value | None], attrs: dict[str, Any]) -> list[TensorType]:
        x = only(ins[0], "Reshape")
        return [TensorType(x.dtype, resolve_shape(x.shape, attrs["shape"]))]

    def ref(self, attrs: dict[str, Any], *xs: Array | None) -> Array:
        x = xs[0]
        assert x is not None
        return x.reshape(resolve_shape(x.shape, attrs["shape"]))

    def expr(self, n: Node, *xs: Fn | None) -> Fn:
        (v,), x = n.used, xs[0]
        assert x is not None
        return reshaped(x, v.shape, n.outputs[0].shape)

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        x = rng.standard_normal((2, 3, 4)).astype(np.float32)
        for shape in ([6, 4], [24], [2, 1, 12], [1, 2, 3, 1, 4, 1], [4, 3, 2], [8, -1]):
            yield Case((x,), {"shape": shape}, "x".join(map(str, shape)))
        yield Case((x[:1, :1, :1],), {"shape": []}, "rank0")
        yield Case((x[0, 0, 0],), {"shape": [1, 1]}, "from_rank0")
        yield Case((x[:0],), {"shape": [3, 0, 5]}, "empty")


def resolve_shape(old: Sequence[int], shape: Sequence[int]) -> tuple[int, ...]:
    """`shape` with its -1 found; ModelError with both shapes when the elements do not agree"""
    size, known = math.prod(old), math.prod(d for d in shape if d != -1)
    out = tuple(whole(d) for d in shape)
    if out.count(-1) == 1 and known > 0 and size % known == 0:
        out = tuple(size // known if d == -1 else d for d in out)
    if any(d < 0 for d in out) or math.prod(out) != size:
        raise ModelError(f"a tensor of shape {list(old)} does not fit into the shape {list(shape)}")
    return out


def reshape(b: Any, x: Value, shape: Sequence[int]) -> Value:
    """`x` under another shape; itself where that is its own"""
    to = resolve_shape(x.shape, shape)
    out: Value = x if to == x.shape else b.one("Reshape", x, shape=list(to))
    return out


class Flatten(OpDef):
    """Reshape to a matrix: the axes before `axis` and the others"""

    name = "Flatten"
    strings = "moves"
    codes = True

    def from_onnx(self, b: Any, n: Any) -> Sequence[Value | None]:
        x, axis = n.inputs[0], n.attrs.get("axis", 1)
        if not -x.type.rank <= axis <= x.type.rank:
            n.fail(f"has axis {axis} of a tensor of rank {x.type.rank}")
        axis += x.type.rank if axis < 0 else 0
        return [reshape(b, x, [math.prod(x.shape[:axis]), math.prod(x.shape[axis:])])]


class Squeeze(OpDef):
    """Reshape without axes of size 1: those named, or all"""

    name = "Squeeze"
    strings = "moves"
    codes = True

    def from_onnx(self, b: Any, n: Any) -> Sequence[Value | None]:
        x = n.inputs[0]
        axes = ints_of(n, "axes", 1, 13)
        if axes is None:
            return [reshape(b, x, [d for d in x.shape if d != 1])]
        axes = axes_of(axes, x.type.rank, "Squeeze")
        for a in axes:
            if x.shape[a] != 1:
                n.fail(f"removes axis {a} of shape {list(x.shape)}, which has the size {x.shape[a]}")
        return [reshape(b, x, [d for k, d in enumerate(x.shape) if k not in axes])]


class Unsqueeze(OpDef):
    """Reshape with further axes of size 1, counted in the result"""

    name = "Unsqueeze"
    strings = "moves"
    codes = True

    def from_onnx(self, b: Any, n: Any) -> Sequence[Value | None]:
        x = n.inputs[0]
        axes = needed_ints(n, "axes", 1, 13)
        rank = x.type.rank + len(axes)
        axes = axes_of(axes, rank, "Unsqueeze")
        old = iter(x.shape)
        return [reshape(b, x, [1 if k in axes else next(old) for k in range(rank)])]


def ints_of(n: Any, attr: str, at: int, since: int) -> list[int] | None:
    """Integers that are an attribute before opset `since`, the constant input `at` from then on."""
    if n.opset < since:
        return None if attr not in n.attrs else [int(v) for v in n.attrs[attr]]
    return None if n.input(at) is None else [whole(v) for v in np.asarray(n.const(at, attr)).ravel()]


def needed_ints(n: Any, attr: str, at: int, since: int) -> list[int]:
    """ints_of, which must be there"""
    out = ints_of(n, attr, at, since)
    if out is None:
        n.fail(f"needs {attr}")
        raise AssertionError
    return out


def sizes(n: Any, values: Array, what: str) -> list[int]:
    """sizes of axes; n.fail when one is negative"""
    out = [whole(v) for v in np.asarray(values).ravel()]
    if any(v < 0 for v in out):
        n.fail(f"has a negative size in {what} {out}")
    return out


# -- repetition -------------------------------------------------------------------------------------------
class Expand(OpDef):
    """Broadcast to `shape`"""

    name = "Expand"
    strings = "moves"
    moves = True
    codes = True

    def from_onnx(self, b: Any, n: Any) -> Sequence[Value | None]:
        x = n.inputs[0]
        shape = broadcast_shapes(x.shape, tuple(sizes(n, n.const(1, "shape"), "shape")))
        return [x] if shape == x.shape else b.emit("Expand", [x], {"shape": list(shape)})

    def infer(self, ins: Sequence[Value | None], attrs: dict[str, Any]) -> list[TensorType]:
        x, to = only(ins[0], "Expand"), tuple(attrs["shape"])
        if broadcast_shapes(x.shape, to) != to:
            raise ModelError(f"a tensor of shape {list(x.shape)} does not expand to {list(to)}")
        return [TensorType(x.dtype, to)]

    def ref(self, attrs: dict[str, Any], *xs: Array | None) -> Array:
        return np.broadcast_to(xs[0], attrs["shape"]).copy()  # type: ignore[arg-type]

    def expr(self, n: Node, *xs: Fn | None) -> Fn:
        assert xs[0] is not None
        return bcast(xs[0], n.used[0].shape, n.outputs[0].type.rank)

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        x = rng.standard_normal((3, 1, 4)).astype(np.float32)
        yield Case((x,), {"shape": [2, 3, 5, 4]})
        yield Case((x[0, 0, 0],), {"shape": [2, 3]}, "rank0")
        yield Case((x,), {"shape": [3, 0, 4]}, "empty")


class Tile(OpDef):
    """Each axis `repeats` times over"""

    name = "Tile"
    strings = "moves"
    moves = True

    def from_onnx(self, b: Any, n: Any) -> Sequence[Value | None]:
        x, repeats = n.inputs[0], sizes(n, n.const(1, "repeats"), "repeats")
        if n.opset < 6:  # of one axis, which is the third input
            axis = axis_of(whole(n.const(2, "axis").ravel()[0]), x.type.rank, "Tile")
            repeats = [repeats[0] if k == axis else 1 for k in range(x.type.rank)]
        return [x] if all(r == 1 for r in repeats) else b.emit("Tile", [x], {"repeats": repeats})

    def infer(self, ins: Sequence[Value | None], attrs: dict[str, Any]) -> list[TensorType]:
        x, repeats = only(ins[0], "Tile"), attrs["repeats"]
        if len(repeats) != x.type.rank:
            raise ModelError(f"Tile of a tensor of rank {x.type.rank} has {len(repeats)} repeats")
        return [TensorType(x.dtype, tuple(d * r for d, r in zip(x.shape, repeats, strict=True)))]

    def ref(self, attrs: dict[str, Any], *xs: Array | None) -> Array:
        return np.tile(xs[0], attrs["repeats"])  # type: ignore[arg-type]

    def expr(self, n: Node, *xs: Fn | None) -> Fn:
        x, shape = xs[0], n.used[0].shape
        assert x is not None
        return lambda *i: x(*[floormod(k, max(d, 1)) for k, d in zip(i, shape, strict=True)])

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        x = rng.standard_normal((3, 1, 4)).astype(np.float32)
        yield Case((x,), {"repeats": [2, 3, 1]})
        yield Case((x,), {"repeats": [1, 0, 2]}, "empty")


class OneHot(OpDef):
    """`values[1]` where the new axis counts the index, `values[0]` elsewhere; negative indices count
    from the end, others outside give a row of `values[0]`. Attributes axis and depth."""

    name = "OneHot"
    moves = True
    example = {"axis": 1, "depth": 2}
    edges = (
        Edge("indices", "negative ones count from the end, others outside leave the row off",
             (i64(-1, 2, -3), f32(0, 1)), (f32([0, 1], [0, 0], [0, 0]),)),
    )

    def from_onnx(self, b: Any, n: Any) -> Sequence[Value | None]:
        indices, _, values = n.inputs
        depth = int(np.asarray(n.const(1, "depth")).ravel()[0])
        axis = axis_of(n.attrs.get("axis", -1), indices.type.rank + 1, "OneHot")
        return b.emit("OneHot", [indices, values], {"axis": axis, "depth": depth})

    def infer(self, ins: Sequence[Value | None], attrs: dict[str, Any]) -> list[TensorType]:
        indices, values = only(ins[0], "OneHot"), only(ins[1], "OneHot")
        if values.shape != (2,):
            raise ModelError(f"OneHot needs two values, got the shape {list(values.shape)}")
        if attrs["depth"] <= 0:
            raise ModelError(f"OneHot needs a positive depth, got {attrs['depth']}")
        axis = attrs["axis"]
        return [TensorType(values.dtype, (*indices.shape[:axis], attrs["depth"], *indices.shape[axis:]))]

    def ref(self, attrs: dict[str, Any], *xs: Array | None) -> Array:
        indices, values = xs
        assert indices is not None and values is not None
        axis, depth = attrs["axis"], attrs["depth"]
        at = indices.astype(np.int64)
        at = np.expand_dims(np.where(at < 0, at + depth, at), axis)
        steps = np.arange(depth).reshape([-1] + [1] * (indices.ndim - axis))
        return np.where(at == steps, values[1], values[0])

    def expr(self, n: Node, *xs: Fn | None) -> Fn:
        at, values = xs
        assert at is not None and values is not None
        axis, depth = n.attrs["axis"], n.attrs["depth"]

        def f(*i: Expr) -> Expr:
            k = cast(at(*i[:axis], *i[axis + 1 :]), DType.I64)
            k = select(k.lt(0), k + depth, k)
            return select(k.eq(i[axis]), values(Num(1, DType.I64)), values(Num(0, DType.I64)))

        return f

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        at = np.array([[1, -1, 3], [-4, 7, 0]])
        values = np.array([0.5, 2], np.float32)
        for axis in (0, 1, 2):
            yield Case((at, values), {"axis": axis, "depth": 4}, f"axis{axis}")
        yield Case((at[0].astype(np.float32), np.array([0, 9], np.int32)), {"axis": 1, "depth": 5}, "float_index")
