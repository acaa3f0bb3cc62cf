"""The StableHLO operators that LiteRT has kernels of, and composites, which their own graph says."""

from __future__ import annotations

from collections.abc import Sequence

from monobloc.frontend.tflite.node import Held, Reader, Result, TflNode
from monobloc.ir.graph import Value
from monobloc.ir.types import DType
from monobloc.ops.movement import pad, slice_of
from monobloc.ops.shape import reshape


def composite(n: TflNode) -> Result:
    """What is one operation to a library that knows it is a graph to all others."""
    return [Held(last=v) for v in n.call(n.graph, n.options.whole(1), [n.x(k) for k in range(len(n.ins))])]


def binary(op: str) -> Reader:
    def read(n: TflNode) -> Result:
        x, y = n.x(0), n.x(1)
        if n.quantized() or x.dtype is not y.dtype or x.shape != y.shape:
            n.unsupported(f"{n.op} of {n.tensor(0).text} and {n.tensor(1).text}")
        return [n.b.one("And" if op == "BitwiseAnd" and x.dtype is DType.BOOL else op, x, y)]

    return read


def shift_left(n: TflNode) -> Result:
    """By as many bits as a number has, or by fewer than none, nothing is left."""
    x, by = n.x(0), n.x(1)
    bits = 8 * x.dtype.size
    if x.dtype is not by.dtype or not x.dtype.is_int or x.shape != by.shape:
        n.unsupported(f"{n.op} of {x.type} by {by.type}")
    low, high = n.b.const(0, by.dtype), n.b.const(bits - 1, by.dtype)
    moved = n.b.one("BitShift", x, n.b.one("Clip", by, low, high), direction="LEFT")
    inside = n.b.one("Equal", by, n.b.one("Clip", by, low, high))
    return [n.b.one("Where", inside, moved, n.b.const(0, x.dtype))]


def dilate(n: TflNode) -> Result:
    x, steps = n.x(0), n.ints(1, "the steps")
    if len(steps) != x.type.rank or min(steps, default=1) < 1:
        n.fail(f"has the steps {steps} for {x.type}")
    return [spread(n, x, steps, filling(n, 2))]


def padded(n: TflNode) -> Result:
    """The value round a tensor, and between its entries; a negative edge is cut off"""
    x, value = n.x(0), filling(n, 1)
    found = (n.options.array(k, "i8") for k in range(3))
    low, high, inner = ([0] * x.type.rank if v is None else [int(d) for d in v] for v in found)
    if any(len(v) != x.type.rank for v in (low, high, inner)) or min(inner, default=0) < 0:
        n.fail(f"has the edges {low} and {high}, and {inner} between entries, for {x.type}")
    return [edged(n, spread(n, x, [k + 1 for k in inner], value), low, high, value)]


def edged(n: TflNode, x: Value, low: Sequence[int], high: Sequence[int], value: Value) -> Value:
    """More of the value at the ends of each axis, or less of the tensor where an edge is negative"""
    x = pad(n.b, x, low, high, "constant", value)
    cut = [(max(-a, 0), 1, max(d - max(-a, 0) - max(-z, 0), 0)) for d, a, z in zip(x.shape, low, high, strict=True)]
    return slice_of(n.b, x, cut)


def filling(n: TflNode, i: int) -> Value:
    value = n.x(i)
    if value.dtype is not n.x(0).dtype or value.type.size != 1:
        n.fail(f"fills {n.x(0).type} with {value.type}")
    return reshape(n.b, value, [])


def spread(n: TflNode, x: Value, steps: Sequence[int], value: Value) -> Value:
    """The value between any two entries of an axis, so that these are so many apart"""
    for axis, step in enumerate(steps):
        size = x.shape[axis]
        if step == 1 or not size:
            continue
        before, behind = list(x.shape[:axis]), list(x.shape[axis + 1 :])
        wide = reshape(n.b, x, [*before, size, 1, *behind])
        wide = pad(n.b, wide, [0] * wide.type.rank, [step - 1 if k == axis + 1 else 0 for k in range(wide.type.rank)],
                   "constant", value)
        x = reshape(n.b, wide, [*before, size * step, *behind])
        x = slice_of(n.b, x, [(0, 1, size * step - step + 1 if k == axis else d) for k, d in enumerate(x.shape)])
    return x


READERS: dict[str, Reader] = {
    "STABLEHLO_COMPOSITE": composite, "STABLEHLO_ADD": binary("Add"), "STABLEHLO_MULTIPLY": binary("Mul"),
    "STABLEHLO_MAXIMUM": binary("Max"), "STABLEHLO_MINIMUM": binary("Min"), "STABLEHLO_AND": binary("BitwiseAnd"),
    "STABLEHLO_SHIFT_LEFT": shift_left, "DILATE": dilate, "STABLEHLO_PAD": padded,
}  # fmt: skip
