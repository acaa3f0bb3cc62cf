"""Elementwise operators of inputs that broadcast, and the ways between floats and integers.

Integers that stand for real numbers are brought to a common scale, computed, and scaled to the output's.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from monobloc.frontend.tflite.node import TO_FIRST, Held, Result, TflNode
from monobloc.frontend.tflite.scaling import NONE, multiplier, power_of_two
from monobloc.ir.graph import Value
from monobloc.ir.types import DType
from monobloc.ops.build import Builder, cast_to
from monobloc.ops.movement import transpose
from monobloc.ops.quant import limits
from monobloc.ops.shape import reshape

F32, I32 = DType.F32, DType.I32
ALL32 = dict(zip(("lo", "hi"), limits(I32), strict=True))


def together(n: TflNode, count: int) -> tuple[list[Value], bool]:
    """The inputs in one order of axes, and whether that is channels-first"""
    values = [n._held(i).made for i in range(count)]
    rank = max(v.type.rank for v in values)
    if rank != 4 or not n.any_first():
        return [n.x(i) for i in range(count)], False
    out = []
    for i in range(count):
        v = values[i]
        if v.type.rank == 4:
            out.append(n.first(i))
        elif v.type.size == 1:
            out.append(reshape(n.b, v, []))
        else:
            out.append(transpose(n.b, reshape(n.b, v, [1] * (4 - v.type.rank) + list(v.shape)), TO_FIRST))
    return out, True


def held(v: Value, first: bool) -> Held:
    return Held(first=v) if first else Held(last=v)


# -- two inputs -------------------------------------------------------------------------------------
def binary(op: str, slot: int | None = None) -> Callable[[TflNode], Result]:
    def read(n: TflNode) -> Result:
        if n.quantized(0) and n.quantized(1):
            n.unsupported(f"{n.op} of quantized {n.x(0).dtype.value}")
        (a, c), first = together(n, 2)
        y = n.b.one(op, a, c)
        return [held(y if slot is None else n.activate(y, n.options.whole(slot, "b")), first)]

    return read


def sum_of(sign: int) -> Callable[[TflNode], Result]:
    """ADD and SUB: both inputs to half the larger scale, the result from there"""

    def read(n: TflNode) -> Result:
        activation = n.options.whole(0, "b")
        (a, c), first = together(n, 2)
        if not n.quantized(0):
            return [held(n.activate(n.b.one("Add" if sign > 0 else "Sub", a, c), activation), first)]
        (s0, _), (s1, _), (s, z) = (n.scale(t) for t in (n.tensor(0), n.tensor(1), n.outs[0]))
        small = a.dtype is not DType.I16
        powers = [power_of_two(x) for x in (s0, s1, s)]
        if not small and None not in powers and not n.micro:
            return [held(_by_shifts(n, a, c, sign, [p - powers[2] for p in powers[:2]], activation), first)]  # type: ignore
        left = 20 if small else 15
        parts, twice = brought_together(n, a, c, left)
        total = n.b.one("Add" if sign > 0 else "Sub", *parts)
        real = float(twice / np.float64(np.float32(1 << left) * s))
        return [held(rescale(n, total, real, n.out_dtype(), zero=z, **n.clamp(activation)), first)]

    return read


def _by_shifts(n: TflNode, a: Value, c: Value, sign: int, shifts: list[int], activation: int) -> Value:
    """int16 with scales of powers of two: one input has the result's, the other is divided, and sums are cut twice"""
    if min(shifts) > 0 or max(shifts) != 0:
        n.unsupported(f"{n.op} of int16 whose scales are 2^{shifts[0]} and 2^{shifts[1]} times the result's")
    parts = []
    for v, shift in zip((a, c), shifts, strict=True):
        wide = n.b.one("Cast", v, to=I32)
        parts.append(wide if shift == 0 else _halved(n, wide, -shift))
    total = n.b.one("Add" if sign > 0 else "Sub", *parts)
    bounds = n.clamp(activation)
    return n.b.one("Cast", n.b.one("Clip", total, *(n.b.const(bounds[k], I32) for k in ("lo", "hi"))), to=DType.I16)


def _halved(n: TflNode, v: Value, times: int) -> Value:
    """Rounded half away from zero"""
    attrs = {"zero_in": 0, "left": 1, "zero": 0, "to": I32, **ALL32}
    return n.b.emit("TflRescale", [v, n.b.const(1 << 30, I32), n.b.const(-times, I32)], attrs)[0]


def product(n: TflNode) -> Result:
    activation = n.options.whole(0, "b")
    (a, c), first = together(n, 2)
    if not n.quantized(0):
        return [held(n.activate(n.b.one("Mul", a, c), activation), first)]
    (s0, z0), (s1, z1), (s, z) = (n.scale(t) for t in (n.tensor(0), n.tensor(1), n.outs[0]))
    y = n.b.one("Mul", *(minus(n, v, k) for v, k in ((a, z0), (c, z1))))
    return [held(rescale(n, y, float(s0 * s1 / s), n.out_dtype(), zero=z, **n.clamp(activation)), first)]


def minus(n: TflNode, v: Value, zero: int) -> Value:
    wide = n.b.one("Cast", v, to=I32)
    return n.b.one("Sub", wide, n.b.const(zero, I32)) if zero else wide


def rescale(n: TflNode, v: Value, real: float, to: DType, **attrs: int) -> Value:
    m, s = multiplier(real)
    scales = [n.b.const(k, I32) for k in (m, s)]
    return n.b.emit("TflRescale", [v, *scales], {"zero_in": 0, "left": 0, "zero": 0, **attrs, "to": to})[0]


def brought_together(n: TflNode, a: Value, c: Value, left: int) -> tuple[list[Value], np.float64]:
    """Both inputs, `left` bits finer, at half of the larger scale, and that scale"""
    scales = [n.scale(n.tensor(k)) for k in (0, 1)]
    twice = np.float64(np.float32(2) * max(s for s, _ in scales))
    return [rescale(n, v, float(np.float64(s) / twice), I32, zero_in=z, left=left, **ALL32)
            for v, (s, z) in zip((a, c), scales, strict=True)], twice


def squared_difference(n: TflNode) -> Result:
    (a, c), first = together(n, 2)
    if not n.quantized(0):
        d = n.b.one("Sub", a, c)
        return [held(n.b.one("Mul", d, d), first)]
    if a.dtype is not DType.I8:
        n.unsupported(f"SQUARED_DIFFERENCE of quantized {a.dtype.value}")
    parts, twice = brought_together(n, a, c, 7)
    d, (s, z) = n.b.one("Sub", *parts), n.scale(n.outs[0])
    real = float(twice * twice / np.float64(np.float32(1 << 14) * s))
    return [held(rescale(n, n.b.one("Mul", d, d), real, n.out_dtype(), zero=z, **n.clamp(NONE)), first)]


def quotient(n: TflNode) -> Result:
    """DIV: of quantized integers by a reciprocal in fixed point, of others as they are"""
    activation = n.options.whole(0, "b")
    (a, c), first = together(n, 2)
    if not n.quantized(0):
        return [held(n.activate(n.b.one("Div", a, c), activation), first)]
    (s0, z0), (s1, z1), (s, z) = (n.scale(t) for t in (n.tensor(0), n.tensor(1), n.outs[0]))
    m, e = multiplier(float(np.float64(s0 / (s1 * s))))
    y = n.b.emit("TflDivide", [a, c], {"zx": z0, "zy": z1, "m": m, "s": e, "zero": z, **n.clamp(activation)})
    return [held(y[0], first)]


def floor_quotient(n: TflNode) -> Result:
    """FLOOR_DIV: rounded down, of integers too"""
    (a, c), first = together(n, 2)
    if a.dtype.is_float:
        return [held(n.b.one("Floor", n.b.one("Div", a, c)), first)]
    b, zero = n.b, n.b.const(0, a.dtype)
    rest = b.one("Mod", a, c, fmod=1)  # a's sign; a less the rest of c's sign may be out of range
    other = b.one("Xor", b.one("Less", rest, zero), b.one("Less", c, zero))
    above = b.one("And", other, b.one("Not", b.one("Equal", rest, zero)))
    return [held(b.one("Sub", b.one("Div", a, c), b.one("Cast", above, to=a.dtype)), first)]


def floor_rest(n: TflNode) -> Result:
    """FLOOR_MOD: what is left has the divisor's sign"""
    (a, c), first = together(n, 2)
    if not a.dtype.is_float:
        return [held(n.b.one("Mod", a, c, fmod=0), first)]
    rest, zero = n.b.one("Mod", a, c, fmod=1), n.b.const(0, a.dtype)
    other = n.b.one("Xor", n.b.one("Less", c, zero), n.b.one("Less", rest, zero))
    wrong = n.b.one("And", other, n.b.one("Not", n.b.one("Equal", rest, zero)))
    return [held(n.b.one("Where", wrong, n.b.one("Add", rest, c), rest), first)]


def right_shift(n: TflNode) -> Result:
    """Of signed integers with their sign; by no less than 0 and no more than all bits but one"""
    (a, c), first = together(n, 2)
    top = a.dtype.size * 8 - 1
    by = n.b.one("Clip", c, n.b.const(0, c.dtype), n.b.const(top, c.dtype))
    return [held(n.b.one("BitShift", a, by, direction="RIGHT"), first)]


def angle(n: TflNode) -> Result:
    """ATAN2(y, x): the arc tangent of y / x, half a turn on where x is negative"""
    (y, x), first = together(n, 2)
    return [held(arc(n.b, y, x), first)]


def arc(b: Builder, y: Value, x: Value) -> Value:
    d = y.dtype
    zero, one, inf = (b.const(v, d) for v in (0, 1, np.inf))
    ends = b.one("And", *(b.one("Equal", b.one("Abs", v), inf) for v in (y, x)))
    ratio = b.one("Where", ends, b.one("Mul", b.one("Sign", y), b.one("Sign", x)), b.one("Div", y, x))
    at_zero = b.one("And", *(b.one("Equal", v, zero) for v in (y, x)))
    base = b.one("Where", at_zero, y, b.one("Atan", ratio))
    below = [b.one("Or", b.one("Less", v, zero), b.one("Less", b.one("Div", one, v), zero)) for v in (y, x)]  # or -0
    turn = b.one("Where", below[0], b.const(-np.pi, d), b.const(np.pi, d))
    return b.one("Where", below[1], b.one("Add", base, turn), base)


def sum_of_all(n: TflNode) -> Result:
    """ADD_N; integers as ADD does it"""
    values, first = together(n, len(n.ins))
    if n.quantized(0):
        n.unsupported("ADD_N of quantized integers")
    return [held(n.b.emit("Sum", values)[0] if len(values) > 1 else values[0], first)]


def compared(op: str, negated: bool = False, plain16: bool = True) -> Callable[[TflNode], Result]:
    """Quantized integers are compared at one scale, 8 bits finer; int16 by order as they are."""

    def read(n: TflNode) -> Result:
        (a, c), first = together(n, 2)
        if n.quantized(0) and n.quantized(1) and not (a.dtype is DType.I16 and plain16):
            a, c = (rescale(n, v, float(s), I32, zero_in=z, left=8, **ALL32)
                    for v, (s, z) in zip((a, c), (n.scale(n.tensor(k)) for k in (0, 1)), strict=True))
        y = n.b.one(op, a, c)
        return [held(n.b.one("Not", y) if negated else y, first)]

    return read


def extreme(op: str) -> Callable[[TflNode], Result]:
    """MAXIMUM and MINIMUM compare integers as they are: the scales are equal."""

    def read(n: TflNode) -> Result:
        if n.quantized(0):
            same_scales(n, 2)
        (a, c), first = together(n, 2)
        return [held(n.b.one(op, a, c), first)]

    return read


def same_scales(n: TflNode, count: int) -> None:
    scales = {n.scale(t) for t in (*(n.tensor(i) for i in range(count)), n.outs[0])}
    if len(scales) > 1:
        n.unsupported(f"{n.op} of tensors with different scales")


def select(n: TflNode) -> Result:
    if n.quantized(1) and len({n.scale(t) for t in (n.tensor(1), n.tensor(2), n.outs[0])}) > 1:
        n.unsupported("SELECT of tensors with different scales")
    c, a = n.x(0), n.x(1)
    if n.op == "SELECT" and c.type.rank == 1 and a.type.rank > 1:  # a condition per row
        rows = reshape(n.b, c, [*c.shape, *[1] * (a.type.rank - 1)])
        return [n.b.one("Where", rows, a, n.x(2))]
    (c, a, b), first = together(n, 3)
    return [held(n.b.one("Where", c, a, b), first)]


# -- between floats and integers ----------------------------------------------------------------------
def quantize(n: TflNode) -> Result:
    (x,), first = together(n, 1)
    s, z = n.scale(n.outs[0])
    if x.dtype is F32:
        return [held(n.b.one("TflQuantize", x, n.b.const(s, F32), zero=z, to=n.out_dtype()), first)]
    s0, z0 = n.scale(n.tensor(0))
    real = float(np.float64(s0) / np.float64(s))
    return [held(rescale(n, x, real, n.out_dtype(), zero_in=z0, zero=z, **n.clamp(NONE)), first)]


def dequantize(n: TflNode) -> Result:
    (x,), first = together(n, 1)
    if x.dtype.is_float:
        return [held(n.b.one("Cast", x, to=n.out_dtype()), first)]
    q = n.quant(n.tensor(0))
    if q.scale.size > 1:
        x = n.x(0)
        shape = [-1 if k == q.axis else 1 for k in range(x.type.rank)]
        wide = n.b.one("Sub", n.b.one("Cast", x, to=I32), n.b.const(q.zero.reshape(shape), I32))
        return [n.b.one("Mul", n.b.one("Cast", wide, to=F32), n.b.const(q.scale.reshape(shape), F32))]
    scale, zero = n.scale(n.tensor(0))
    return [held(n.b.one("Mul", n.b.one("Cast", minus(n, x, zero), to=F32), n.b.const(scale, F32)), first)]


def cast(n: TflNode) -> Result:
    (x,), first = together(n, 1)
    to = n.out_dtype()
    return [held(cast_to(n.b, x, to), first)]


READERS = {
    "ADD": sum_of(1), "SUB": sum_of(-1), "ADD_N": sum_of_all, "MUL": product, "DIV": quotient, "POW": binary("Pow"),
    "FLOOR_DIV": floor_quotient, "FLOOR_MOD": floor_rest, "ATAN2": angle, "BITWISE_XOR": binary("BitwiseXor"),
    "RIGHT_SHIFT": right_shift, "MAXIMUM": extreme("Max"), "MINIMUM": extreme("Min"),
    "SQUARED_DIFFERENCE": squared_difference, "EQUAL": compared("Equal", plain16=False),
    "NOT_EQUAL": compared("Equal", negated=True, plain16=False), "LESS": compared("Less"),
    "LESS_EQUAL": compared("LessOrEqual"), "GREATER": compared("Greater"),
    "GREATER_EQUAL": compared("GreaterOrEqual"), "LOGICAL_AND": binary("And"), "LOGICAL_OR": binary("Or"),
    "SELECT": select, "SELECT_V2": select, "QUANTIZE": quantize, "DEQUANTIZE": dequantize, "CAST": cast,
}  # fmt: skip
