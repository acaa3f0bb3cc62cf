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
from monobloc.ir.expr import Expr, Fn, Num, call, cast, idx
from monobloc.ir.graph import Node, Value
from monobloc.ir.types import DType, TensorType
from monobloc.ops import Case, OpDef
from monobloc.ops.movement import slice_of
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


def checked(at: Fn, v: Value, n: int) -> Fn:
    """`at` as an index of an axis of size n: checked at run time unless it is constant and inside"""
    if v.const is not None and v.type.size and 0 <= v.const.array.min() and v.const.array.max() < n:
        return lambda *i: cast(at(*i), DType.I64)
    return lambda *i: call("index", cast(at(*i), DType.I64), Num(n, DType.I64), dtype=DType.I64)


class Gather(OpDef):
    """x[..., indices, ...]: `axis` of x is replaced by the axes of the indices"""

    name = "Gather"

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
        pick = checked(at, n.used[1], v.shape[axis])
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
