"""Reductions over axes.

Axes come as an attribute (older opsets) or an input; in the IR they are always the attribute `axes`,
sorted, non-negative and complete: an empty list reduces nothing. Half floats are summed in float32
and rounded once. A reduction over no elements gives the neutral element of its fold. The global
pooling operators are reductions over the spatial axes and become one here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar

import numpy as np

from monobloc.errors import ModelError
from monobloc.ir.expr import Expr, Fn, call, cast, idx, lift, reduce, select
from monobloc.ir.graph import Node, Value
from monobloc.ir.types import DType, TensorType
from monobloc.ops import EXACT, Case, OpDef
from monobloc.ops.contract import HALF_HOLDS, INF, INTEGERS_WRAP, NAN, NAN_LOST, Edge, f16, f32, i32

Array = np.ndarray


def wide(d: DType) -> DType:
    """The type that sums of `d` are made in."""
    return DType.F32 if d in (DType.F16, DType.BF16) else d


def np_wide(x: Array) -> Array:
    """float64 for floats (half floats too), integers as they are"""
    return x.astype(np.float64) if DType.of(x.dtype).is_float else x


def normalized_axes(axes: Sequence[int], rank: int) -> list[int]:
    """Sorted, non-negative, each once; ModelError when out of range."""
    out = set()
    for a in axes:
        if not -rank <= a < rank:
            raise ModelError(f"axis {a} is out of range for a tensor of rank {rank}")
        out.add(a % rank)
    return sorted(out)


def reduced_shape(shape: Sequence[int], axes: Sequence[int], keepdims: bool) -> tuple[int, ...]:
    kept = [1 if a in axes else d for a, d in enumerate(shape)]
    return tuple(kept if keepdims else [d for a, d in enumerate(kept) if a not in axes])


def row_index(i: Sequence[Expr], r: Sequence[Expr], axes: Sequence[int], keepdims: bool) -> list[Expr]:
    """Input index of element `r` (along `axes`) of the row that output index `i` reduces."""
    out, rest, inner = [], iter(i), iter(r)
    rank = len(i) if keepdims else len(i) + len(axes)
    for a in range(rank):
        if a in axes:
            out.append(next(inner))
            if keepdims:
                next(rest)
        else:
            out.append(next(rest))
    return out


class Reduction(OpDef):
    """Base: `fold` says how to fold, `before` and `after` what is done to elements and to the result."""

    example = {"axes": [0], "keepdims": True}

    fold: ClassVar[str] = "sum"
    in_floats: ClassVar[bool] = False  # integers are folded in float64: what is made of the fold is float
    numpy: ClassVar[Callable[..., Array]]
    axes_input_since: ClassVar[int] = 18

    def from_onnx(self, b: Any, n: Any) -> Sequence[Value | None]:
        if n.op.startswith("Global"):
            return self.from_global_pool(b, n)
        x = n.inputs[0]
        axes = n.ints(1, []) if n.opset >= self.axes_input_since else n.ints("axes", [])
        if not axes and not n.attrs.get("noop_with_empty_axes", 0):
            axes = list(range(x.type.rank))
        keep = int(n.attrs.get("keepdims", 1) == 1)  # as ONNX has it: any other number is no
        return self.emit(b, x, normalized_axes(axes, x.type.rank), keep)

    def from_global_pool(self, b: Any, n: Any) -> Sequence[Value | None]:
        x = n.inputs[0]
        if x.type.rank < 2:
            n.fail(f"{n.op} needs a tensor of rank 2 or more, got {x.type}")
        return self.emit(b, x, list(range(2, x.type.rank)), 1)

    def emit(self, b: Any, x: Value, axes: list[int], keepdims: int) -> Sequence[Value | None]:
        return b.emit(self.name, [x], {"axes": axes, "keepdims": keepdims})

    def infer(self, ins: Sequence[Value | None], attrs: dict[str, Any]) -> list[TensorType]:
        x = ins[0]
        assert x is not None
        axes = normalized_axes(attrs["axes"], x.type.rank)
        return [TensorType(x.dtype, reduced_shape(x.shape, axes, attrs["keepdims"]))]

    def ref(self, attrs: dict[str, Any], *xs: Array | None) -> Array:
        x = xs[0]
        assert x is not None
        axes, keep = tuple(attrs["axes"]), bool(attrs["keepdims"])
        wider = x.astype(np.float64) if self.in_floats and x.dtype.kind in "iu" else np_wide(x)
        y = type(self).numpy(wider, axes, keep)
        return np.asarray(y).astype(x.dtype)

    def expr(self, n: Node, *xs: Fn | None) -> Fn:
        x, v = xs[0], n.inputs[0]
        assert x is not None and v is not None
        axes, keep = n.attrs["axes"], n.attrs["keepdims"]
        extents = [v.shape[a] for a in axes]

        def at(*i: Expr) -> Expr:
            def row(*r: Expr) -> Expr:
                e = x(*row_index(i, r, axes, keep))
                return cast(e, DType.F64 if self.in_floats and not e.dtype.is_float else wide(e.dtype))

            return cast(self.folded(extents, row), v.dtype)

        return at

    def folded(self, extents: list[int], row: Fn) -> Expr:
        return self.after(reduce(self.fold, extents, lambda *r: self.before(row(*r))), math.prod(extents))

    def before(self, x: Expr) -> Expr:
        return x

    def after(self, y: Expr, count: int) -> Expr:
        return y

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        x = rng.uniform(0.5, 1.5, (3, 4, 5)).astype(np.float32)
        yield Case((x,), {"axes": [1], "keepdims": 1}, "middle")
        yield Case((x,), {"axes": [0, 2], "keepdims": 0}, "two")
        yield Case((x,), {"axes": [0, 1, 2], "keepdims": 0}, "all")
        yield Case((x,), {"axes": [], "keepdims": 1}, "none")
        yield Case((rng.uniform(-1, 1, (3, 200)).astype(np.float16),), {"axes": [1], "keepdims": 0}, "half")


class ReduceSum(Reduction):
    name = "ReduceSum"
    edges = (
        Edge("NaN", "gives NaN", (f32(1, NAN, 2),), (f32(NAN),)),
        Edge("infinities", "inf - inf is NaN", (f32(INF, 1, -INF),), (f32(NAN),)),
        Edge("nothing", "of nothing it is 0", (f32(),), (f32(0),)),
        Edge("overflow", "wraps", (i32(2**31 - 1, 1),), (i32(-(2**31)),)).differs(
            "onnxruntime", "saturates", INTEGERS_WRAP),
    )
    numpy = staticmethod(lambda x, a, k: x.sum(a, keepdims=k, dtype=x.dtype))
    axes_input_since = 13

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        yield from super().cases(rng)
        yield Case((rng.integers(-99, 99, (4, 7)).astype(np.int32),), {"axes": [0], "keepdims": 0}, "int")
        yield Case((np.zeros((3, 0, 2), np.float32),), {"axes": [1], "keepdims": 1}, "empty")


def _mean(x: Array, axes: tuple[int, ...], keep: bool) -> Array:
    count = math.prod(x.shape[a] for a in axes)
    total = x.sum(axes, keepdims=keep, dtype=x.dtype)
    if x.dtype.kind == "f":
        return total / count if count else total * np.nan
    return np.trunc(total / count).astype(x.dtype) if count else total


class ReduceMean(Reduction):
    """Integers: the quotient truncates. Of no elements: NaN."""

    name = "ReduceMean"
    edges = (
        Edge("NaN", "gives NaN", (f32(1, NAN, 2),), (f32(NAN),)),
        Edge("infinities", "inf - inf is NaN", (f32(INF, 1, -INF),), (f32(NAN),)),
        Edge("nothing", "of nothing it is NaN", (f32(),), (f32(NAN),)).differs(
            "onnxruntime", "gives 0", "0 / 0 is NaN, as ONNX's reference has it"),
        Edge("overflow", "halves are summed in float32", (f16(60000, 60000),), (f16(60000),)).differs(
            "onnx", "gives inf", HALF_HOLDS),
    )
    aliases = ("GlobalAveragePool",)
    numpy = staticmethod(_mean)

    def after(self, y: Expr, count: int) -> Expr:
        if count == 0:
            return lift(float("nan") if y.dtype.is_float else 0, y.dtype)
        return y if count == 1 else call("div", y, lift(count, y.dtype))

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        yield from super().cases(rng)
        yield Case((np.full((4096,), 100, np.float16),), {"axes": [0], "keepdims": 0}, "half_overflow")
        yield Case((rng.integers(-(2**28), 2**28, (4, 7)).astype(np.int32),), {"axes": [0], "keepdims": 0}, "int")


class Extreme(Reduction):
    """ReduceMax and ReduceMin: NaN wins; booleans are or and and."""

    logical: ClassVar[str]

    def folded(self, extents: list[int], row: Fn) -> Expr:
        is_bool = row(*[idx(0)] * len(extents)).dtype is DType.BOOL
        return reduce(self.logical if is_bool else self.fold, extents, row)

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        yield from super().cases(rng)
        x = rng.standard_normal((3, 5)).astype(np.float32)
        x[1, 2] = np.nan
        yield Case((x,), {"axes": [1], "keepdims": 1}, "nan")
        yield Case((rng.integers(0, 255, (4, 7)).astype(np.uint8),), {"axes": [1], "keepdims": 0}, "u8")
        large = np.int64(2**53) + rng.integers(0, 9, (4, 7))
        yield Case((large,), {"axes": [1], "keepdims": 0}, "i64")
        yield Case((large.astype(np.uint64) * 2**10,), {"axes": [0], "keepdims": 0}, "u64")
        yield Case((rng.random((4, 2)) > 0.5,), {"axes": [1], "keepdims": 0}, "bool")
        yield Case((np.zeros((2, 0), np.float32),), {"axes": [1], "keepdims": 0}, "empty")
        yield Case((np.zeros((2, 0), np.int32),), {"axes": [1], "keepdims": 0}, "empty_int")


def _limit(d: np.dtype, sign: int) -> Any:
    if d.kind == "b":
        return sign > 0
    if d.kind in "iu":
        return np.iinfo(d).max if sign > 0 else np.iinfo(d).min
    return sign * np.inf


class ReduceMax(Extreme):
    name = "ReduceMax"
    tol = EXACT
    edges = (
        Edge("NaN", "gives NaN", (f32(1, NAN, 2),), (f32(NAN),)).differs(
            "onnxruntime", "loses it", NAN_LOST),
        Edge("infinities", "are the largest and smallest numbers", (f32(-INF, 1),), (f32(1),)),
        Edge("nothing", "of nothing it is -inf", (f32(),), (f32(-INF),)),
    )
    aliases = ("GlobalMaxPool",)
    fold, logical = "max", "or"
    numpy = staticmethod(lambda x, a, k: x.max(a, keepdims=k, initial=_limit(x.dtype, -1)))


class ReduceMin(Extreme):
    name = "ReduceMin"
    tol = EXACT
    edges = (
        Edge("NaN", "gives NaN", (f32(1, NAN, 2),), (f32(NAN),)).differs(
            "onnxruntime", "loses it", NAN_LOST),
        Edge("infinities", "are the largest and smallest numbers", (f32(-INF, 1),), (f32(-INF),)),
        Edge("nothing", "of nothing it is inf", (f32(),), (f32(INF),)),
    )
    fold, logical = "min", "and"
    numpy = staticmethod(lambda x, a, k: x.min(a, keepdims=k, initial=_limit(x.dtype, 1)))


class ReduceProd(Reduction):
    name = "ReduceProd"
    edges = (
        Edge("NaN", "gives NaN", (f32(1, NAN, 2),), (f32(NAN),)),
        Edge("infinities", "by 0 is NaN", (f32(INF, 0),), (f32(NAN),)),
        Edge("nothing", "of nothing it is 1", (f32(),), (f32(1),)),
        Edge("overflow", "wraps", (i32(2**30, 4),), (i32(0),)).differs(
            "onnxruntime", "saturates", INTEGERS_WRAP),
    )
    fold = "prod"
    numpy = staticmethod(lambda x, a, k: x.prod(a, keepdims=k, dtype=x.dtype))


class ReduceL1(Reduction):
    name = "ReduceL1"
    edges = (
        Edge("NaN", "gives NaN", (f32(1, NAN, 2),), (f32(NAN),)),
        Edge("infinities", "give inf", (f32(INF, -INF),), (f32(INF),)),
        Edge("nothing", "of nothing it is 0", (f32(),), (f32(0),)),
        Edge("overflow", "wraps", (i32(2**31 - 1, 1),), (i32(-(2**31)),)).differs(
            "onnxruntime", "saturates", INTEGERS_WRAP),
    )
    numpy = staticmethod(lambda x, a, k: np.abs(x).sum(a, keepdims=k, dtype=x.dtype))

    def before(self, x: Expr) -> Expr:
        return call("abs", x) if x.dtype.is_signed else x

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        yield from super().cases(rng)
        yield Case((rng.integers(-(2**27), 2**27, (3, 5)).astype(np.int32),), {"axes": [1], "keepdims": 0}, "i32")


class ReduceL2(Reduction):
    """Integers: the root truncates."""

    name = "ReduceL2"
    in_floats = True
    edges = (
        Edge("NaN", "gives NaN", (f32(1, NAN, 2),), (f32(NAN),)),
        Edge("infinities", "give inf", (f32(INF, -INF),), (f32(INF),)),
        Edge("nothing", "of nothing it is 0", (f32(),), (f32(0),)),
        Edge("overflow", "halves are summed in float32, integers in float64", (f16(300, 400),), (f16(500),)).differs(
            "onnx", "gives inf", HALF_HOLDS),
    )
    numpy = staticmethod(lambda x, a, k: np.sqrt((x * x).sum(a, keepdims=k, dtype=x.dtype)))

    def before(self, x: Expr) -> Expr:
        return call("mul", x, x)

    def after(self, y: Expr, count: int) -> Expr:
        return call("sqrt", y)

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        yield from super().cases(rng)
        yield Case((rng.integers(-60000, 60000, (3, 40)).astype(np.int32),), {"axes": [1], "keepdims": 0}, "i32")


class ReduceSumSquare(Reduction):
    name = "ReduceSumSquare"
    edges = (
        Edge("NaN", "gives NaN", (f32(1, NAN, 2),), (f32(NAN),)),
        Edge("infinities", "give inf", (f32(INF, -INF),), (f32(INF),)),
        Edge("nothing", "of nothing it is 0", (f32(),), (f32(0),)),
        Edge("overflow", "wraps", (i32(2**16, 1),), (i32(1),)).differs(
            "onnx", "gives int64", "ONNX's text says the type of the input").differs(
            "onnxruntime", "saturates", INTEGERS_WRAP),
    )
    numpy = staticmethod(lambda x, a, k: (x * x).sum(a, keepdims=k, dtype=x.dtype))

    def before(self, x: Expr) -> Expr:
        return call("mul", x, x)


class ReduceLogSum(Reduction):
    name = "ReduceLogSum"
    in_floats = True
    edges = (
        Edge("NaN", "gives NaN", (f32(1, NAN, 2),), (f32(NAN),)),
        Edge("infinities", "inf gives inf", (f32(INF, 1),), (f32(INF),)),
        Edge("nothing", "of nothing it is -inf", (f32(),), (f32(-INF),)),
    )
    numpy = staticmethod(lambda x, a, k: np.log(x.sum(a, keepdims=k, dtype=x.dtype)))

    def after(self, y: Expr, count: int) -> Expr:
        return call("log", y)

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        yield from super().cases(rng)
        yield Case((rng.integers(1 << 29, 1 << 30, (3, 40)).astype(np.int32),), {"axes": [1], "keepdims": 0}, "i32")


def _log_sum_exp(x: Array, axes: tuple[int, ...], keep: bool) -> Array:
    x = x.astype(np.float64)
    m = x.max(axes, keepdims=True, initial=-np.inf)
    m = np.where(np.isinf(m), 0, m)
    y = np.log(np.exp(x - m).sum(axes, keepdims=True)) + m
    return y if keep else y.reshape(reduced_shape(x.shape, axes, False))


class ReduceLogSumExp(Reduction):
    """log(sum(exp(x - m))) + m with m the row's maximum (0 when that is infinite): no overflow"""

    name = "ReduceLogSumExp"
    in_floats = True
    edges = (
        Edge("NaN", "gives NaN", (f32(1, NAN, 2),), (f32(NAN),)),
        Edge("infinities", "inf gives inf, -inf counts as nothing", (f32(INF, -INF),), (f32(INF),)).differs(
            "onnx", "gives NaN", "it takes the largest off, and inf - inf is NaN; the sum itself is inf"),
        Edge("nothing", "of nothing it is -inf", (f32(),), (f32(-INF),)),
        Edge("overflow", "the largest is taken off first", (f32(1000, 1000),), (f32(1000.6931),)),
    )
    numpy = staticmethod(_log_sum_exp)

    def folded(self, extents: list[int], row: Fn) -> Expr:
        top = reduce("max", extents, row)
        infinite = call("abs", top).eq(float("inf"))
        m = select(infinite, lift(0, top.dtype), top)
        total = reduce("sum", extents, lambda *r: call("exp", row(*r) - m))
        return call("log", total) + m

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        yield from super().cases(rng)
        x = np.array([[1000, 1001], [-np.inf, -np.inf], [np.inf, 0], [-1e5, -1e5]], np.float32)
        yield Case((x,), {"axes": [1], "keepdims": 1}, "extreme")
