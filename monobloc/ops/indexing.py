"""Operators that read or write at indices that are data.

An index is checked where it is used: negative ones count from the end, others outside are the error
MB_E_INDEX and never a stray read or write. Constant indices are checked, and made non-negative, while
the model is read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from monobloc.errors import ModelError
from monobloc.ir.expr import Expr, Fn, Num, all_of, call, cast, floormod, idx, select
from monobloc.ir.graph import Node, Value
from monobloc.ir.types import DType, TensorType
from monobloc.ops import Case, OpDef
from monobloc.ops.contract import NAN, NAN_LOST, Edge, f32, i8, i64
from monobloc.ops.movement import clamp, slice_of
from monobloc.ops.shape import axis_of, only, reshape

Array = np.ndarray


def index_dtype(v: Value, op: str) -> None:
    if v.dtype not in (DType.I32, DType.I64):
        raise ModelError(f"{op} needs indices of i32 or i64, got {v.dtype.value}")


def wrapped(at: Array, n: int | Array, op: str) -> Array:
    """constant indices counted from the front; ModelError with the first that is outside"""
    size = np.broadcast_to(n, at.shape)
    bad = (at < -size) | (at >= size)
    if bad.any():
        raise ModelError(f"{op} reads index {int(at[bad][0])} of an axis of size {int(size[bad][0])}")
    return np.where(at < 0, at + size, at)


INDEX_RANGE = "index_range"  # attribute: [lowest, highest] that indices are proven to be (passes/ranges.py)


def proven(v: Value, attrs: dict[str, Any], n: int) -> str:
    """What is left to do with an index of an axis of size n: nothing ("inside"), to count negative ones from
    the end ("wrap"), to compare with n ("below"), or both ("index")."""
    if v.const is not None and v.type.size:
        lo, hi = int(v.const.array.min()), int(v.const.array.max())
    elif INDEX_RANGE in attrs:
        lo, hi = attrs[INDEX_RANGE]
    else:
        return "index"
    if hi < n and lo >= -n:
        return "inside" if lo >= 0 else "wrap"
    return "below" if lo >= 0 else "index"


def checked(at: Fn, v: Value, n: int, attrs: dict[str, Any]) -> Fn:
    """`at` as an index of an axis of size n: checked at run time as far as nothing proves it"""
    how = "index_" + proven(v, attrs, n) if proven(v, attrs, n) != "index" else "index"
    return lambda *i: call(how, cast(at(*i), DType.I64), Num(n, DType.I64), dtype=DType.I64)


def checked_c(k: str, v: Value, attrs: dict[str, Any], n: int) -> str:
    """C: the same for an index in the variable `k` of a routine"""
    how = proven(v, attrs, n)
    wrap, check = f"{k} += {k} < 0 ? {n} : 0;", f"if ({k} < 0 || {k} >= {n}) return MB_E_INDEX;"
    return {"inside": "", "wrap": wrap, "below": check, "index": f"{wrap} {check}"}[how]


class Gather(OpDef):
    """x[..., indices, ...]: `axis` of x is replaced by the axes of the indices"""

    name = "Gather"
    strings = "moves"
    moves = True
    example = {"axis": 0}
    edges = (
        Edge("indices", "negative ones count from the end", (f32(1, 2, 3), i64(-1, -3)), (f32(3, 1),)),
        Edge("indices", "others outside make the run fail", (f32(1, 2, 3), i64(0, 3)), ()),
    )
    codes = True

    def from_onnx(self, b: Any, n: Any) -> Sequence[Value | None]:
        x, at = n.inputs
        axis = axis_of(n.attrs.get("axis", 0), x.type.rank, "Gather")
        index_dtype(at, "Gather")
        if at.const is None:
            return b.emit("Gather", [x, at], {"axis": axis})
        return [gather_const(b, x, wrapped(at.const.array, x.shape[axis], "Gather"), axis)]

    def infer(self, ins: Sequence[Value | None], attrs: dict[str, Any]) -> list[TensorType]:
        x, at = only(ins[0], "Gather"), only(ins[1], "Gather")
        index_dtype(at, "Gather")
        axis = attrs["axis"]
        if at.type.size and not x.shape[axis]:
            raise ModelError("Gather from an axis of size 0")
        return [TensorType(x.dtype, (*x.shape[:axis], *at.shape, *x.shape[axis + 1 :]))]

    def ref(self, attrs: dict[str, Any], *xs: Array | None) -> Array:
        x, at = xs
        assert x is not None and at is not None
        return np.take(x, wrapped(at, x.shape[attrs["axis"]], "Gather"), attrs["axis"])

    def expr(self, n: Node, *xs: Fn | None) -> Fn:
        (x, at), axis = xs, n.attrs["axis"]
        assert x is not None and at is not None
        v, rank = n.used[0], n.used[1].type.rank
        pick = checked(at, n.used[1], v.shape[axis], n.attrs)
        return lambda *i: x(*i[:axis], pick(*i[axis : axis + rank]), *i[axis + rank :])

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        x = rng.standard_normal((3, 4, 5)).astype(np.float32)
        yield Case((x, np.array([[0, -1, 2], [1, 1, -3]])), {"axis": 0})
        yield Case((x, np.array([3, -1], np.int32)), {"axis": 1}, "i32")
        yield Case((x, np.array(-2)), {"axis": 2}, "rank0")
        yield Case((x, np.zeros((0,), np.int64)), {"axis": 1}, "empty")


def gather_const(b: Any, x: Value, at: Array, axis: int) -> Value:
    """Gather with known indices (none negative): a slice where they are evenly spaced"""
    flat = at.ravel().astype(np.int64)
    step = int(flat[1] - flat[0]) if flat.size > 1 else 1
    if flat.size and step and (np.diff(flat) == step).all():
        cut = [(int(flat[0]), step, flat.size) if k == axis else (0, 1, d) for k, d in enumerate(x.shape)]
        return reshape(b, slice_of(b, x, cut), [*x.shape[:axis], *at.shape, *x.shape[axis + 1 :]])
    out: Value = b.one("Gather", x, b.const(at.astype(np.int64)), axis=axis)
    return out


class GatherElements(OpDef):
    """x at the output's own index, but for `axis`, where the index is data"""

    name = "GatherElements"
    strings = "moves"
    moves = True
    example = {"axis": 0}
    edges = (
        Edge("indices", "negative ones count from the end", (f32(1, 2, 3), i64(-1, -3)), (f32(3, 1),)),
        Edge("indices", "others outside make the run fail", (f32(1, 2, 3), i64(0, -4)), ()),
    )

    def from_onnx(self, b: Any, n: Any) -> Sequence[Value | None]:
        x, at = n.inputs
        axis = axis_of(n.attrs.get("axis", 0), x.type.rank, "GatherElements")
        return b.emit("GatherElements", [x, wrap_const(b, at, x.shape[axis], self.name)], {"axis": axis})

    def infer(self, ins: Sequence[Value | None], attrs: dict[str, Any]) -> list[TensorType]:
        x, at = only(ins[0], self.name), only(ins[1], self.name)
        index_dtype(at, self.name)
        fits_elements(self.name, x, at, attrs["axis"])
        return [TensorType(x.dtype, at.shape)]

    def ref(self, attrs: dict[str, Any], *xs: Array | None) -> Array:
        x, at = xs
        assert x is not None and at is not None
        return x[element_index(at, x.shape, attrs["axis"], self.name)]

    def expr(self, n: Node, *xs: Fn | None) -> Fn:
        (x, at), axis = xs, n.attrs["axis"]
        assert x is not None and at is not None
        pick = checked(at, n.used[1], n.used[0].shape[axis], n.attrs)
        return lambda *i: x(*i[:axis], pick(*i), *i[axis + 1 :])

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        x = rng.standard_normal((3, 4)).astype(np.float32)
        yield Case((x, np.array([[0, -1, 2], [-3, 1, 1]])), {"axis": 0})
        yield Case((x, np.array([[3, -4], [0, -2], [1, 1]], np.int32)), {"axis": 1}, "i32")


def wrap_const(b: Any, at: Value, n: int | Array, op: str) -> Value:
    """constant indices checked and counted from the front; others as they are"""
    if at.const is None or not at.type.size:
        return at
    out: Value = b.const(wrapped(at.const.array, n, op).astype(np.int64))
    return out


def fits_elements(op: str, x: Value, at: Value, axis: int) -> None:
    """indices of one element each: same rank, and no larger than x but along `axis`"""
    small = all(a <= d for k, (a, d) in enumerate(zip(at.shape, x.shape, strict=False)) if k != axis)
    if at.type.rank != x.type.rank or not small or (at.type.size and not x.shape[axis]):
        raise ModelError(f"{op} along axis {axis} of shape {list(x.shape)} has indices of shape {list(at.shape)}")


def element_index(at: Array, shape: Sequence[int], axis: int, op: str) -> tuple[Array, ...]:
    """full numpy index of what `at` names along `axis`"""
    grid: list[Array] = list(np.indices(at.shape, sparse=True))
    grid[axis] = wrapped(at, shape[axis], op)
    return tuple(grid)


class GatherND(OpDef):
    """Slices of x at index tuples, the last axis of the indices; the first batch_dims axes agree"""

    name = "GatherND"
    strings = "moves"
    moves = True
    example = {"batch_dims": 0}
    edges = (
        Edge("indices", "negative ones count from the end", (f32(1, 2, 3), i64([-1], [-3])), (f32(3, 1),)),
        Edge("indices", "others outside make the run fail", (f32(1, 2, 3), i64([0], [3])), ()),
    )

    def from_onnx(self, b: Any, n: Any) -> Sequence[Value | None]:
        x, at = n.inputs
        batch = n.attrs.get("batch_dims", 0)
        attrs = {"batch_dims": batch}
        self.infer([x, at], attrs)
        return b.emit("GatherND", [x, wrap_const(b, at, tuple_sizes(x, at, batch), self.name)], attrs)

    def infer(self, ins: Sequence[Value | None], attrs: dict[str, Any]) -> list[TensorType]:
        x, at = only(ins[0], self.name), only(ins[1], self.name)
        index_dtype(at, self.name)
        batch = attrs["batch_dims"]
        width = at.shape[-1] if at.type.rank else 0
        inside = 0 <= batch < at.type.rank and 1 <= width <= x.type.rank - batch
        if not inside or at.shape[:batch] != x.shape[:batch]:
            raise ModelError(
                f"GatherND of shape {list(x.shape)} has indices of shape {list(at.shape)} with {batch} batch axes"
            )
        return [TensorType(x.dtype, (*at.shape[:-1], *x.shape[batch + width :]))]

    def ref(self, attrs: dict[str, Any], *xs: Array | None) -> Array:
        x, at = xs
        assert x is not None and at is not None
        batch, width = attrs["batch_dims"], at.shape[-1]
        grid = np.indices(at.shape[:-1], sparse=True)[:batch] if batch else ()
        at = wrapped(at, np.array(x.shape[batch : batch + width]), self.name)
        return x[(*grid, *np.moveaxis(at, -1, 0))]

    def expr(self, n: Node, *xs: Fn | None) -> Fn:
        x, at = xs
        assert x is not None and at is not None
        v, w = n.used
        batch, lead, width = n.attrs["batch_dims"], w.type.rank - 1, w.shape[-1]
        picks = [checked(at, w, v.shape[batch + k], n.attrs) for k in range(width)]

        def f(*i: Expr) -> Expr:
            inner = [p(*i[:lead], idx(k)) for k, p in enumerate(picks)]
            return x(*i[:batch], *inner, *i[lead:])

        return f

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        x = rng.standard_normal((2, 3, 4)).astype(np.float32)
        yield Case((x, np.array([[-1, -1], [0, -2]])), {"batch_dims": 0})
        yield Case((x, np.array([[[0, 3], [-1, -4]], [[1, 1], [2, 2]]])), {"batch_dims": 1}, "batch")
        yield Case((x, np.array([[1, 2, 3], [-1, -1, -1]], np.int32)), {"batch_dims": 0}, "full")


def tuple_sizes(x: Value, at: Value, batch: int) -> Array:
    """sizes of the axes that the parts of an index tuple name"""
    return np.array(x.shape[batch : batch + at.shape[-1]])


# -- writing ----------------------------------------------------------------------------------------------
REDUCTIONS = ("none", "add", "mul", "max", "min")
_UFUNCS: dict[str, Any] = {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}


def scatter_ref(x: Array, at: tuple[Any, ...], updates: Array, reduction: str) -> Array:
    """x with the updates written in order; halves are summed in float64"""
    if reduction == "none":
        out = x.copy()
        out[at] = updates
        return out
    wide = np.float64 if x.dtype.kind not in "biu" else x.dtype
    out = x.astype(wide)
    _UFUNCS[reduction].at(out, at, updates.astype(wide))
    return out.astype(x.dtype)


def reduction_of(n: Any) -> str:
    """the attribute, one of REDUCTIONS"""
    kind: str = n.attrs.get("reduction", "none")
    if kind not in REDUCTIONS:
        n.fail(f"has the unknown reduction {kind!r}")
    return kind


def same_kind(op: str, x: Value, updates: Value, reduction: str) -> None:
    if x.dtype is not updates.dtype:
        raise ModelError(f"{op} writes {updates.dtype.value} into {x.dtype.value}")
    if x.dtype is DType.BOOL and reduction != "none":
        raise ModelError(f"{op} with reduction {reduction!r} of booleans")


def _combine(reduction: str, dtype: DType) -> str:
    """C: the element `*d` and the update `v` become one; NaN stays NaN"""
    nan = " || v != v" if dtype.is_float else ""
    return {
        "none": "*d = v;",
        "add": f"*d = ({dtype.c})(*d + v);",
        "mul": f"*d = ({dtype.c})(*d * v);",
        "max": f"if (v > *d{nan}) *d = v;",
        "min": f"if (v < *d{nan}) *d = v;",
    }[reduction]


def _loops(shape: Sequence[int]) -> str:
    """C: the heads of nested loops over i0, i1, ..."""
    return "\n".join(f"for (long i{k} = 0; i{k} < {d}; i{k}++)" for k, d in enumerate(shape))


def _offset(strides: Sequence[int], names: Sequence[str]) -> str:
    return " + ".join(f"{n} * {s}" for n, s in zip(names, strides, strict=True)) or "0"


def _dense(shape: Sequence[int]) -> list[int]:
    return list(TensorType(DType.I64, tuple(shape)).strides)


def _head(n: Node, c: Any) -> str:
    """C: pointers, and the output as a copy of x"""
    x, at, u = n.used
    y = n.outputs[0]
    return f"""\
const {x.dtype.c} *x = {c.ptr(x)}, *u = {c.ptr(u)};
const {at.dtype.c} *at = {c.ptr(at)};
{y.dtype.c} *y = {c.ptr(y)};
for (long i = 0; i < {x.type.size}; i++) y[i] = x[i];
"""


class ScatterElements(OpDef):
    """x with elements replaced (or combined) at the updates' own index, but for `axis`, where it is data.
    Updates are taken in row-major order, so the last one wins."""

    name = "ScatterElements"
    edges = (
        Edge("indices", "negative ones count from the end", (f32(1, 2, 3), i64(-1), f32(9)), (f32(1, 2, 9),),
             {"axis": 0, "reduction": "none"}),
        Edge("indices", "others outside make the run fail; nothing is written there", (f32(1, 2, 3), i64(3), f32(9)),
             (), {"axis": 0, "reduction": "none"}),
        Edge("ties", "of updates for one element the last one stays", (f32(1, 2, 3), i64(1, 1), f32(8, 9)),
             (f32(1, 9, 3),), {"axis": 0, "reduction": "none"}),
        Edge("NaN", "`max` and `min` keep it", (f32(1, NAN, 3), i64(0, 1), f32(NAN, 8)), (f32(NAN, NAN, 3),),
             {"axis": 0, "reduction": "max"}).differs(
            "onnx", "loses it depending on the order", NAN_LOST).differs(
            "onnxruntime", "loses it depending on the order", NAN_LOST),
        Edge("overflow", "`add` and `mul` wrap", (i8(127, 1), i64(0), i8(1)), (i8(-128, 1),),
             {"axis": 0, "reduction": "add"}),
    )
    aliases = ("Scatter",)

    def from_onnx(self, b: Any, n: Any) -> Sequence[Value | None]:
        x, at, updates = n.inputs
        axis = axis_of(n.attrs.get("axis", 0), x.type.rank, self.name)
        attrs = {"axis": axis, "reduction": reduction_of(n)}
        return b.emit(self.name, [x, wrap_const(b, at, x.shape[axis], self.name), updates], attrs)

    def infer(self, ins: Sequence[Value | None], attrs: dict[str, Any]) -> list[TensorType]:
        x, at, updates = (only(v, self.name) for v in ins)
        index_dtype(at, self.name)
        same_kind(self.name, x, updates, attrs["reduction"])
        fits_elements(self.name, x, at, attrs["axis"])
        if at.shape != updates.shape:
            raise ModelError(f"{self.name} has indices {list(at.shape)} and updates {list(updates.shape)}")
        return [TensorType(x.dtype, x.shape)]

    def ref(self, attrs: dict[str, Any], *xs: Array | None) -> Array:
        x, at, updates = xs
        assert x is not None and at is not None and updates is not None
        where = element_index(at, x.shape, attrs["axis"], self.name)
        return scatter_ref(x, where, updates, attrs["reduction"])

    def routine(self, n: Node, c: Any) -> str:
        x, at, _ = n.used
        axis, size = n.attrs["axis"], x.shape[n.attrs["axis"]]
        names = [f"i{k}" for k in range(x.type.rank)]
        here = _offset(_dense(at.shape), names)
        names[axis] = "k"
        return f"""{_head(n, c)}{_loops(at.shape)} {{
  long p = {here}, k = (long)at[p];
  {checked_c("k", at, n.attrs, size)}
  {x.dtype.c} *d = y + ({_offset(_dense(x.shape), names)}), v = u[p];
  {_combine(n.attrs["reduction"], x.dtype)}
}}"""

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        x = rng.standard_normal((3, 4)).astype(np.float32)
        at, u = np.array([[0, -1, 2], [-3, 1, 1]]), rng.standard_normal((2, 3)).astype(np.float32)
        yield Case((x, at, u), {"axis": 0, "reduction": "none"})
        twice = np.array([[1, -3, 1], [0, 0, 3]], np.int32)
        for kind in REDUCTIONS[1:]:
            yield Case((x, twice, u), {"axis": 1, "reduction": kind}, kind)
        with_nan = u.copy()
        with_nan[0, 0] = np.nan
        yield Case((x, twice, with_nan), {"axis": 1, "reduction": "max"}, "nan")
        ints = (x * 9).astype(np.int64)
        yield Case((ints, twice, ints[:2, :3] + 1), {"axis": 1, "reduction": "mul"}, "int")
        yield Case((x, at[:0], u[:0]), {"axis": 0, "reduction": "none"}, "empty")


class ScatterND(OpDef):
    """x with slices replaced (or combined) at index tuples, in the order of the tuples"""

    name = "ScatterND"
    strings = "moves"
    edges = (
        Edge("indices", "negative ones count from the end", (f32(1, 2, 3), i64([-1]), f32(9)), (f32(1, 2, 9),),
             {"reduction": "none"}),
        Edge("indices", "others outside make the run fail; nothing is written there", (f32(1, 2, 3), i64([3]), f32(9)),
             (), {"reduction": "none"}),
        Edge("ties", "of updates for one element the last one stays", (f32(1, 2, 3), i64([1], [1]), f32(8, 9)),
             (f32(1, 9, 3),), {"reduction": "none"}),
        Edge("NaN", "`max` and `min` keep it", (f32(1, NAN, 3), i64([0], [1]), f32(NAN, 8)), (f32(NAN, NAN, 3),),
             {"reduction": "max"}).differs(
            "onnxruntime", "loses it depending on the order", NAN_LOST),
        Edge("overflow", "`add` and `mul` wrap", (i8(127, 1), i64([0]), i8(1)), (i8(-128, 1),), {"reduction": "add"}),
    )

    def from_onnx(self, b: Any, n: Any) -> Sequence[Value | None]:
        x, at, updates = n.inputs
        attrs = {"reduction": reduction_of(n)}
        self.infer(n.inputs, attrs)
        return b.emit(self.name, [x, wrap_const(b, at, tuple_sizes(x, at, 0), self.name), updates], attrs)

    def infer(self, ins: Sequence[Value | None], attrs: dict[str, Any]) -> list[TensorType]:
        x, at, updates = (only(v, self.name) for v in ins)
        index_dtype(at, self.name)
        same_kind(self.name, x, updates, attrs["reduction"])
        width = at.shape[-1] if at.type.rank else 0
        if not 1 <= width <= x.type.rank or updates.shape != (*at.shape[:-1], *x.shape[width:]):
            raise ModelError(
                f"ScatterND into shape {list(x.shape)} has indices {list(at.shape)} and updates {list(updates.shape)}"
            )
        return [TensorType(x.dtype, x.shape)]

    def ref(self, attrs: dict[str, Any], *xs: Array | None) -> Array:
        x, at, updates = xs
        assert x is not None and at is not None and updates is not None
        at = wrapped(at, np.array(x.shape[: at.shape[-1]]), self.name)
        return scatter_ref(x, tuple(np.moveaxis(at, -1, 0)), updates, attrs["reduction"])

    def routine(self, n: Node, c: Any) -> str:
        x, at, _ = n.used
        width = at.shape[-1]
        inner = TensorType(x.dtype, x.shape[width:]).size
        find = "\n".join(
            f"  k = (long)at[t * {width} + {j}]; {checked_c('k', at, n.attrs, d)}\n"
            f"  base += k * {s};"
            for j, (d, s) in enumerate(zip(x.shape[:width], _dense(x.shape)[:width], strict=True))
        )
        return f"""{_head(n, c)}for (long t = 0; t < {at.type.size // width}; t++) {{
  long k, base = 0;
{find}
  for (long i = 0; i < {inner}; i++) {{
    {x.dtype.c} *d = y + base + i, v = u[t * {inner} + i];
    {_combine(n.attrs["reduction"], x.dtype)}
  }}
}}"""

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        x = rng.standard_normal((3, 4, 2)).astype(np.float32)
        at = np.array([[-1, -1], [0, -2], [2, 3]])
        u = rng.standard_normal((3, 2)).astype(np.float32)
        for kind in REDUCTIONS:
            yield Case((x, at, u), {"reduction": kind}, kind)
        full = np.array([[[0, 1, 1]], [[-3, -3, -1]]], np.int32)
        yield Case((x, full, u[:2, :1]), {"reduction": "add"}, "full")


class TensorScatter(OpDef):
    """A cache with `update` written along `axis` from a start per batch (none: 0); mode linear, circular"""

    name = "TensorScatter"
    moves = True
    example = {"axis": 1, "mode": "linear"}
    edges = (
        Edge("indices", "a place outside makes the run fail", (f32([1, 2, 3]), f32([8, 9]), i64(2)), ()),
    )
    codes = True

    def from_onnx(self, b: Any, n: Any) -> Sequence[Value | None]:
        x = n.inputs[0]
        axis = axis_of(n.attrs.get("axis", -2), x.type.rank, self.name)
        return b.emit(self.name, n.inputs, {"axis": axis, "mode": n.attrs.get("mode", "linear")})

    def infer(self, ins: Sequence[Value | None], attrs: dict[str, Any]) -> list[TensorType]:
        x, update, start = only(ins[0], self.name), only(ins[1], self.name), [*ins, None][2]
        axis = attrs["axis"]
        rest = [a == d for k, (a, d) in enumerate(zip(update.shape, x.shape, strict=False)) if k != axis]
        if update.type.rank != x.type.rank or not all(rest) or update.shape[axis] > x.shape[axis] or not axis:
            raise ModelError(f"{self.name} of shape {list(x.shape)} along {axis} has an update {list(update.shape)}")
        if start is not None and start.shape != x.shape[:1]:
            raise ModelError(f"{self.name} of shape {list(x.shape)} has starts of shape {list(start.shape)}")
        same_kind(self.name, x, update, "none")
        return [TensorType(x.dtype, x.shape)]

    def ref(self, attrs: dict[str, Any], *xs: Array | None) -> Array:
        x, update, start = [*xs, None][:3]
        assert x is not None and update is not None
        axis, size, count = attrs["axis"], x.shape[attrs["axis"]], update.shape[attrs["axis"]]
        out = x.copy()
        for k in range(x.shape[0]):
            at = (0 if start is None else int(start[k])) + np.arange(count)
            at = at % size if attrs["mode"] == "circular" else wrapped(at, size, self.name)
            np.moveaxis(out[k], axis - 1, 0)[at] = np.moveaxis(update[k], axis - 1, 0)
        return out

    def expr(self, n: Node, *xs: Fn | None) -> Fn:
        x, update, start = [*xs, None][:3]
        assert x is not None and update is not None
        axis, size, count = n.attrs["axis"], n.used[0].shape[n.attrs["axis"]], n.used[1].shape[n.attrs["axis"]]

        def at(*i: Expr) -> Expr:
            first = idx(0) if start is None else cast(start(i[0]), DType.I64)
            if n.attrs["mode"] == "circular":
                step = floormod(i[axis] - first, size)
            else:
                fits = call("index", first, Num(size - count + 1, DType.I64), dtype=DType.I64)
                step = i[axis] - (fits if start is not None else first)
            new = all_of((step.ge(0), step.lt(count)))
            return select(new, update(*i[:axis], clamp(step, count), *i[axis + 1 :]), x(*i))

        return at if count else x

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        x = rng.standard_normal((2, 3, 5, 4)).astype(np.float32)
        for mode, start in (("linear", [0, 3]), ("circular", [4, 1])):
            yield Case((x, x[:, :, :2] + 1, np.array(start)), {"axis": 2, "mode": mode}, mode)
        yield Case((x, x[:, :, :2] + 1), {"axis": 2, "mode": "linear"}, "front")
