"""Where a value's elements lie: a base, an offset and one stride per logical axis, in elements.

Strides are what makes a transpose, a slice or a concatenation free: it is the same memory under other
strides. Every code generator addresses through a Storage and through nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from monobloc.ir.expr import I64, Expr, Num, add, idx, mul
from monobloc.ir.types import DType, TensorType


@dataclass(frozen=True)
class Storage:
    """`base` is a buffer of the arena (an id >= 0) or the symbol of a constant."""

    base: int | str
    dtype: DType  # of an element in memory
    offset: int
    strides: tuple[int, ...]

    def address(self, index: tuple[Expr, ...]) -> Expr:
        """flat element offset from the base, simplified"""
        out: Expr = Num(self.offset, I64)
        for i, s in zip(index, self.strides, strict=True):
            out = add(out, mul(idx(i), Num(s, I64)))
        return out

    def at(self, offset: int) -> Storage:
        return replace(self, offset=self.offset + offset)


def dense(base: int | str, t: TensorType) -> Storage:
    """The whole buffer, axes in the type's memory order."""
    return Storage(base, t.memory, 0, t.strides)


def same_layout(a: Storage, b: Storage, shape: tuple[int, ...]) -> bool:
    """Equal addresses for every index (strides of axes of one element do not count)."""
    return all(x == y for x, y, d in zip(a.strides, b.strides, shape, strict=True) if d > 1)


def is_dense(s: Storage, t: TensorType) -> bool:
    """Plain row-major, without gaps."""
    plain = TensorType(t.dtype, t.shape).strides
    return all(x == y for x, y, d in zip(s.strides, plain, t.shape, strict=True) if d > 1)
