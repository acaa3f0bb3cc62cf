"""Floats quantized while the model runs, for products with int8 weights: per row, as TFLite's kernels do it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from monobloc.ir.graph import Value
from monobloc.ir.types import DType
from monobloc.ops.build import Builder

F32, F64, I8 = DType.F32, DType.F64, DType.I8


def rounded(b: Builder, x: Value) -> Value:
    """Half away from zero"""
    whole = b.one("Cast", b.one("Cast", x, to=DType.I32), to=x.dtype)
    rest = b.one("Sub", x, whole)
    up = b.one("Cast", b.one("GreaterOrEqual", rest, b.const(0.5, x.dtype)), to=x.dtype)
    down = b.one("Cast", b.one("LessOrEqual", rest, b.const(-0.5, x.dtype)), to=x.dtype)
    return b.one("Sub", b.one("Add", whole, up), down)


def product(b: Builder, x: Value, y: Value) -> Value:
    """Of float32, rounded to it: made in float64, since a compiler may leave out the rounding of a product that is
    added to something"""
    return b.one("Cast", b.one("Mul", *(b.one("Cast", v, to=F64) for v in (x, y))), to=F32)


def _within(b: Builder, x: Value, lo: float, hi: float) -> Value:
    return b.one("Clip", x, b.const(lo, x.dtype), b.const(hi, x.dtype))


def rows_times(b: Builder, x: Value, w: Value, scales: np.ndarray, asymmetry: bool) -> Value:
    """Rows x [..., k] times int8 w [k, n] in float32; `scales` has one number, or one per column of w"""
    axis = [x.type.rank - 1]
    if asymmetry and x.type.rank == 2:
        q, scale, offset = asymmetric(b, x, axis)
        total = b.one("MatMulInteger", q, w, b.one("Reshape", offset, shape=[offset.type.size]), None)
    elif asymmetry:
        q, scale, offset = asymmetric(b, x, axis)
        left = b.one("Sub", *(b.one("Cast", v, to=DType.I32) for v in (q, offset)))
        total = b.one("MatMul", left, b.one("Cast", w, to=DType.I32))
    else:
        q, scale = symmetric(b, x, axis)
        total = b.one("MatMulInteger", q, w, None, None)
    factor = b.one("Mul", scale, b.const(scales[0] if scales.size == 1 else scales, F32))
    return b.one("Mul", b.one("Cast", total, to=F32), factor)


def symmetric(b: Builder, x: Value, axes: Sequence[int]) -> tuple[Value, Value]:
    """(int8, scale): the largest magnitude along `axes` becomes 127."""
    every = {"axes": list(axes), "keepdims": 1}
    top = b.emit("ReduceMax", [b.one("Abs", x)], every)[0]
    empty = b.one("Equal", top, b.const(0, F32))
    scale = b.one("Where", empty, b.const(1, F32), b.one("Div", top, b.const(127, F32)))
    inverse = b.one("Where", empty, b.const(0, F32), b.one("Div", b.const(127, F32), top))
    q = _within(b, rounded(b, b.one("Mul", x, inverse)), -127, 127)
    return b.one("Cast", q, to=I8), scale


def asymmetric(b: Builder, x: Value, axes: Sequence[int]) -> tuple[Value, Value, Value]:
    """(int8, scale, zero point): the range along `axes`, widened to hold 0, becomes [-128, 127]."""
    every, zero = {"axes": list(axes), "keepdims": 1}, b.const(0, F32)
    low = b.one("Cast", b.one("Min", b.emit("ReduceMin", [x], every)[0], zero), to=F64)
    high = b.one("Cast", b.one("Max", b.emit("ReduceMax", [x], every)[0], zero), to=F64)
    span = b.one("Sub", high, low)
    empty = b.one("Equal", span, b.const(0, F64))
    wide = b.one("Where", empty, b.const(1, F64), b.one("Div", span, b.const(255, F64)))
    from_low, from_high = b.one("Div", low, wide), b.one("Div", high, wide)
    nearer_low = b.one("Less", b.one("Add", b.one("Abs", from_low), b.const(128, F64)),
                       b.one("Add", b.one("Abs", from_high), b.const(127, F64)))
    place = b.one("Where", nearer_low, b.one("Sub", b.const(-128, F64), from_low),
                  b.one("Sub", b.const(127, F64), from_high))
    place = b.one("Where", empty, b.const(0, F64), rounded(b, _within(b, place, -128, 127)))
    offset, scale = b.one("Cast", place, to=F32), b.one("Cast", wide, to=F32)
    inverse = b.one("Div", b.const(1, F32), scale)
    q = _within(b, rounded(b, b.one("Add", product(b, x, inverse), offset)), -128, 127)
    return b.one("Cast", q, to=I8), scale, b.one("Cast", offset, to=I8)
