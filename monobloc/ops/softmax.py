"""Softmax and its kin along one axis.

Before opset 13 these operators flatten their input to a matrix at `axis` (default 1) and work on its
rows; that is the same as one axis only where nothing follows it. The importer reshapes otherwise.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from monobloc.ir.expr import I64, Expr, Fn, call, cast, lift, reduce, select
from monobloc.ir.graph import Node, Value
from monobloc.ir.types import DType, TensorType
from monobloc.ops import EXACT, Case, OpDef
from monobloc.ops.contract import INF, NAN, Edge, f32
from monobloc.ops.norm import rows, widened
from monobloc.ops.reduce import normalized_axes, np_wide

Array = np.ndarray


class AlongAxis(OpDef):
    """Base: rows along `axis` of the input, output of the same type."""

    def from_onnx(self, b: Any, n: Any) -> Sequence[Value | None]:
        x = n.inputs[0]
        legacy = n.opset < 13
        rank = x.type.rank
        if rank == 0:
            n.fail(f"{self.name} needs a tensor of rank 1 or more, got {x.type}")
        default = (1 if rank > 1 else 0) if legacy else -1
        axis = normalized_axes([int(n.attrs.get("axis", default))], rank)[0]
        if not legacy or all(d == 1 for d in x.shape[axis + 1 :]):
            return b.emit(self.name, [x], {"axis": axis})
        return self.flattened(b, x, axis)

    def flattened(self, b: Any, x: Value, axis: int) -> Sequence[Value | None]:
        outer, inner = int(np.prod(x.shape[:axis])), int(np.prod(x.shape[axis:]))
        matrix = b.one("Reshape", x, shape=[outer, inner])
        y = b.one(self.name, matrix, axis=1)
        return [b.one("Reshape", y, shape=list(x.shape))]

    def infer(self, ins: Sequence[Value | None], attrs: dict[str, Any]) -> list[TensorType]:
        x = ins[0]
        assert x is not None
        normalized_axes([attrs["axis"]], x.type.rank)
        return [TensorType(x.dtype, x.shape)]

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        x = rng.standard_normal((3, 4, 5)).astype(np.float32) * 5
        for axis in range(3):
            yield Case((x,), {"axis": axis}, f"axis{axis}")
        yield Case((np.array([[1000, 1001, -1000]], np.float32),), {"axis": 1}, "large")
        yield Case((rng.standard_normal((2, 70)).astype(np.float16),), {"axis": 1}, "half")


class Softmax(AlongAxis):
    name = "Softmax"
    example = {"axis": 1}
    edges = (
        Edge("NaN", "makes its row NaN", (f32([1, NAN], [0, 0]),), (f32([NAN, NAN], [0.5, 0.5]),)),
        Edge("infinities", "inf makes its row NaN; -inf gives 0; a row of -inf is NaN",
             (f32([1, INF], [1, -INF], [-INF, -INF]),), (f32([NAN, NAN], [1, 0], [NAN, NAN]),)),
        Edge("overflow", "the largest is taken off first", (f32([1000, 1000]),), (f32([0.5, 0.5]),)),
    )

    def ref(self, attrs: dict[str, Any], *xs: Array | None) -> Array:
        x = np_wide(xs[0])  # type: ignore[arg-type]
        e = np.exp(x - x.max(attrs["axis"], keepdims=True, initial=-np.inf))
        return (e / e.sum(attrs["axis"], keepdims=True)).astype(xs[0].dtype)  # type: ignore[union-attr]

    def expr(self, n: Node, *xs: Fn | None) -> Fn:
        assert xs[0] is not None
        x, axis, out = widened(xs[0]), n.attrs["axis"], n.outputs[0]

        def at(*i: Expr) -> Expr:
            row = rows(x, i, [axis])
            top = reduce("max", [out.shape[axis]], row)
            total = reduce("sum", [out.shape[axis]], lambda r: call("exp", row(r) - top))
            return cast(call("mul", call("exp", x(*i) - top), call("reciprocal", total)), out.dtype)

        return at


class LogSoftmax(AlongAxis):
    name = "LogSoftmax"
    example = {"axis": 1}
    edges = (
        Edge("NaN", "makes its row NaN", (f32([1, NAN], [0, 0]),), (f32([NAN, NAN], [-0.6931472, -0.6931472]),)),
        Edge("infinities", "inf makes its row NaN; -inf gives -inf; a row of -inf is NaN",
             (f32([1, INF], [1, -INF], [-INF, -INF]),), (f32([NAN, NAN], [0, -INF], [NAN, NAN]),)),
        Edge("overflow", "the largest is taken off first", (f32([1000, 1000]),), (f32([-0.6931472, -0.6931472]),)),
    )

    def ref(self, attrs: dict[str, Any], *xs: Array | None) -> Array:
        x = np_wide(xs[0])  # type: ignore[arg-type]
        d = x - x.max(attrs["axis"], keepdims=True, initial=-np.inf)
        y = d - np.log(np.exp(d).sum(attrs["axis"], keepdims=True))
        return y.astype(xs[0].dtype)  # type: ignore[union-attr]

    def expr(self, n: Node, *xs: Fn | None) -> Fn:
        assert xs[0] is not None
        x, axis, out = widened(xs[0]), n.attrs["axis"], n.outputs[0]

        def at(*i: Expr) -> Expr:
            row = rows(x, i, [axis])
            top = reduce("max", [out.shape[axis]], row)
            total = reduce("sum", [out.shape[axis]], lambda r: call("exp", row(r) - top))
            return cast((x(*i) - top) - call("log", total), out.dtype)

        return at


class Hardmax(AlongAxis):
    """1 at the first largest element (a NaN is the largest), 0 elsewhere"""

    name = "Hardmax"
    tol = EXACT
    example = {"axis": 0}
    edges = (
        Edge("ties", "the first is 1", (f32(3, 5, 5),), (f32(0, 1, 0),)),
        Edge("NaN", "counts as the largest", (f32(3, NAN, 5),), (f32(0, 1, 0),)).differs(
            "onnxruntime", "loses it", "as ArgMax"),
    )

    def ref(self, attrs: dict[str, Any], *xs: Array | None) -> Array:
        x, axis = np_wide(xs[0]), attrs["axis"]  # type: ignore[arg-type]
        out = np.zeros(x.shape, xs[0].dtype)  # type: ignore[union-attr]
        if x.size:
            np.put_along_axis(out, np.expand_dims(x.argmax(axis), axis), 1, axis)
        return out

    def expr(self, n: Node, *xs: Fn | None) -> Fn:
        assert xs[0] is not None
        x, axis, out = xs[0], n.attrs["axis"], n.outputs[0]
        extents = [out.shape[axis]]

        def at(*i: Expr) -> Expr:
            row = rows(x, i, [axis])
            top = reduce("max", extents, row)

            def hit(r: Expr) -> Expr:
                e = row(r)
                return call("lor", e.eq(top), call("isnan", e, dtype=DType.BOOL)) if e.dtype.is_float else e.eq(top)

            first = reduce("min", extents, lambda r: cast(r, I64), hit)
            return select(first.eq(i[axis]), lift(1, out.dtype), lift(0, out.dtype))

        return at

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        yield from super().cases(rng)
        yield Case((np.array([[1, 3, 3, 2], [0, 0, 0, 0]], np.float32),), {"axis": 1}, "ties")
