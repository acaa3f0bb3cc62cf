"""RFFT2D and what is read off complex numbers. A complex tensor is one of floats with a last axis of two parts."""

from __future__ import annotations

from collections.abc import Callable

from monobloc.frontend.tflite.node import Result, TflNode
from monobloc.ir.graph import Value
from monobloc.ir.types import DType
from monobloc.ops.movement import slice_of
from monobloc.ops.shape import reshape
from monobloc.ops.spectral import transform


def rfft2d(n: TflNode) -> Result:
    """Of the last two axes, each cut or filled with zeros to its length"""
    x, lengths = n.x(0), n.ints(1, "the lengths")
    if x.type.rank < 2 or len(lengths) != 2 or min(lengths) < 1 or x.dtype is not DType.F32:
        n.fail(f"transforms {x.type} to the lengths {lengths}")
    parts = reshape(n.b, x, [*x.shape, 1])
    rows = transform(n.b, n, parts, x.type.rank - 1, lengths[1], False, True)
    return [transform(n.b, n, rows, x.type.rank - 2, lengths[0], False, False)]


def part(k: int) -> Callable[[TflNode], Result]:
    def read(n: TflNode) -> Result:
        return [_part(n, n.x(0), k)]

    return read


def _part(n: TflNode, x: Value, k: int) -> Value:
    if not x.type.rank or x.shape[-1] != 2 or x.dtype is not DType.F32:
        n.fail(f"reads the parts of {x.type}, which is not complex")
    taken = slice_of(n.b, x, [*((0, 1, d) for d in x.shape[:-1]), (k, 1, 1)])
    return reshape(n.b, taken, list(x.shape[:-1]))


def magnitude(n: TflNode) -> Result:
    squares = [n.b.one("Mul", v, v) for v in (_part(n, n.x(0), k) for k in (0, 1))]
    return [n.b.one("Sqrt", n.b.one("Add", *squares))]


READERS = {"RFFT2D": rfft2d, "REAL": part(0), "IMAG": part(1), "COMPLEX_ABS": magnitude}
