"""Functions of one input.

A function of 8 bits is a table of 256 values, made while the model is read, as LiteRT's own kernels make theirs. One
of 16 bits is a table of 513, between whose entries its kernels interpolate; LOGISTIC and TANH of 16 bits share one
table of the logistic function.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from monobloc.frontend.tflite.arithmetic import held, rescale, together
from monobloc.frontend.tflite.node import Result, TflNode
from monobloc.frontend.tflite.scaling import (
    NONE,
    RELU,
    RELU6,
    RELU_N1_TO_1,
    hard_swish_table,
    multiplier,
    power_of_two,
    quantized_clamp,
    table,
    table16,
)
from monobloc.ir.graph import Value
from monobloc.ir.types import DType
from monobloc.ops.quant import limits
from monobloc.ops.tfl import np_scale
from monobloc.ops.tfl16 import LOGISTIC_TABLE
from monobloc.ops.tfl_fixed import inverse_root

F32, I8, U8, I16, I32 = DType.F32, DType.I8, DType.U8, DType.I16, DType.I32
Curve = Callable[[np.ndarray], np.ndarray]  # of float32


def _in64(f: Curve) -> Curve:
    """Computed in float64 and rounded once"""

    def g(x: np.ndarray) -> np.ndarray:
        with np.errstate(all="ignore"):
            return f(x.astype(np.float64)).astype(np.float32)

    return g


def _logistic(x: np.ndarray) -> np.ndarray:
    one = np.float32(1)
    with np.errstate(over="ignore"):
        return (one / (one + np.exp(-x.astype(np.float64)).astype(np.float32))).astype(np.float32)


def _erf(x: np.ndarray) -> np.ndarray:
    return np.array([math.erf(v) for v in x.ravel()]).reshape(x.shape)


def gelu_of(x: np.ndarray, approximate: bool) -> np.ndarray:
    inner = np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)) if approximate else _erf(x * math.sqrt(0.5))
    return np.asarray(x * 0.5 * (1 + inner))


def gelu32(approximate: bool) -> Curve:
    """In float32 at every step, as tables of 16 bits have it"""

    def f(x: np.ndarray) -> np.ndarray:
        one, half = np.float32(1), x * np.float32(0.5)
        if approximate:
            inner = np.float32(math.sqrt(2 / math.pi)) * (x + np.float32(0.044715) * x * x * x)
            return np.asarray(half * (one + _tanh32(inner)))
        inner = x * np.float32(-math.sqrt(0.5))
        return np.asarray(half * np.array([math.erfc(float(v)) for v in inner.ravel()], np.float32).reshape(x.shape))

    return f


def _tanh32(x: np.ndarray) -> np.ndarray:
    """By exp(x) - 1, as C libraries have it, each step rounded"""
    size, one, two = np.abs(x), np.float32(1), np.float32(2)
    with np.errstate(over="ignore"):
        grown, shrunk = (np.expm1((s * size).astype(np.float64)).astype(np.float32) for s in (two, -two))
    return np.asarray(np.copysign(np.where(size >= one, one - two / (grown + two), -shrunk / (shrunk + two)), x))


# -- functions with a form in integers ----------------------------------------------------------------
def by_table(n: TflNode, x: Value, f: Curve, kinds: tuple[DType, ...]) -> Value:
    """f of a quantized input by its table"""
    if x.dtype not in kinds or n.out_dtype() is not x.dtype:
        n.unsupported(f"{n.op} of quantized {x.dtype.value} to {n.out_dtype().value}")
    (s0, z0), (s, z) = n.scale(n.tensor(0)), n.scale(n.outs[0])
    if x.dtype is not I16:
        values = table(f, s0, z0, s, z, np.iinfo(x.dtype.numpy))
        return n.b.one("TflTable", x, n.b.const(values))
    return n.b.one("TflTable16", x, n.b.const(table16(f, s0, z0, s, z)))


def curve(op: str, f: Curve, kinds: tuple[DType, ...]) -> Callable[[TflNode], Result]:
    def read(n: TflNode) -> Result:
        (x,), first = together(n, 1)
        if not n.quantized():
            return [held(n.b.one(op, x), first)]
        if x.dtype is I16 and op in ("Sigmoid", "Tanh"):
            return [held(_curve16(n, x, op), first)]
        return [held(by_table(n, x, f, kinds), first)]

    return read


def _curve16(n: TflNode, x: Value, op: str) -> Value:
    """The input is brought to 1 / 12288, which the table counts in; a scale of 2^-12 is 3 of it exactly."""
    (s0, z0), (s, z) = n.scale(n.tensor(0)), n.scale(n.outs[0])
    if z0 or z or float(s) != 2.0**-15 or n.out_dtype() is not I16:
        n.unsupported(f"{n.op} of int16 to {n.out_dtype().value} with the scale {s} and zero points {z0} and {z}")
    real, shift = float(s0) * 4096.0 * 3.0, 0
    power = power_of_two(s0)
    if power == -12 or (op == "Tanh" and power == -11):
        factor = 3 << (power + 12)
    else:
        while real <= 32767.0 / 2 and shift <= 30:
            real, shift = real * 2, shift + 1
        factor = int(real)
    attrs = {"factor": factor, "shift": shift, "tanh": int(op == "Tanh")}
    return n.b.one("TflCurve16", x, n.b.const(LOGISTIC_TABLE), **attrs)


def _keeps(n: TflNode, x: Value, *kinds: DType) -> None:
    """Integers of some types become ones of the same."""
    if x.dtype not in kinds or n.out_dtype() is not x.dtype:
        n.unsupported(f"{n.op} of quantized {x.dtype.value} to {n.out_dtype().value}")


def root(n: TflNode) -> Result:
    """SQRT; of quantized integers in float32, what is behind the point is dropped"""
    (x,), first = together(n, 1)
    if not n.quantized():
        return [held(n.b.one("Sqrt", x), first)]
    _keeps(n, x, I8, I16)
    b, (s0, z0), (s, z) = n.b, n.scale(n.tensor(0)), n.scale(n.outs[0])
    above = b.one("Max", b.one("Sub", b.one("Cast", x, to=I32), b.const(z0, I32)), b.const(0, I32))
    real = b.one("Sqrt", b.one("Mul", b.one("Cast", above, to=F32), b.const(s0, F32)))
    return [held(_shifted(n, b.one("Cast", b.one("Div", real, b.const(s, F32)), to=I32), z, x.dtype), first)]


def rsqrt(n: TflNode) -> Result:
    (x,), first = together(n, 1)
    if not n.quantized():
        return [held(n.b.one("Reciprocal", n.b.one("Sqrt", x)), first)]
    (s0, z0), (s, z) = n.scale(n.tensor(0)), n.scale(n.outs[0])
    if x.dtype is I16 and not n.micro:
        top = np.float32(32767) * s
        return [held(by_table(n, x, lambda v: _rsqrt(v, top), (I16,)), first)]
    _keeps(n, x, I8)
    values, (m, e) = [], multiplier(1.0 / float(np.sqrt(s0) * s))
    for v in range(-128, 128):
        if v <= z0:  # what is not positive is the largest there is
            values.append(127)
            continue
        root, shift = inverse_root(v - z0)
        fine = np_scale(np.array(1), np.array(root), np.array(shift + 20))
        values.append(int(np.clip(np_scale(fine, np.array(m), np.array(e - 20)) + z, -128, 127)))
    return [held(n.b.one("TflTable", x, n.b.const(np.array(values, np.int8))), first)]


def _rsqrt(x: np.ndarray, top: np.float32) -> np.ndarray:
    with np.errstate(all="ignore"):
        return np.where(x <= 0, top, np.float32(1) / np.sqrt(x, dtype=np.float32)).astype(np.float32)


def logarithm(n: TflNode) -> Result:
    """Of what is not positive: the least that the result can be"""
    (x,), first = together(n, 1)
    if not n.quantized():
        return [held(n.b.one("Log", x), first)]
    s, z = n.scale(n.outs[0])
    least = np.float32(limits(x.dtype)[0] - z) * s

    def f(v: np.ndarray) -> np.ndarray:
        with np.errstate(all="ignore"):
            return np.where(v <= 0, least, np.log(v.astype(np.float64))).astype(np.float32)

    return [held(by_table(n, x, f, (I8, I16)), first)]


def absolute(n: TflNode) -> Result:
    (x,), first = together(n, 1)
    if not n.quantized():
        return [held(n.b.one("Abs", x), first)]
    _keeps(n, x, I8, I16)
    (s0, z0), (s, z) = n.scale(n.tensor(0)), n.scale(n.outs[0])
    size = n.b.one("Abs", n.b.one("Sub", n.b.one("Cast", x, to=I32), n.b.const(z0, I32)))
    if s0 == s:
        return [held(_shifted(n, size, z, x.dtype), first)]
    return [held(rescale(n, size, float(s0 / s), x.dtype, zero=z, **n.clamp(NONE)), first)]


def _shifted(n: TflNode, v: Value, zero: int, to: DType) -> Value:
    lo, hi = (n.b.const(k, I32) for k in limits(to))
    return n.b.one("Cast", n.b.one("Clip", n.b.one("Add", v, n.b.const(zero, I32)), lo, hi), to=to)


def negative(n: TflNode) -> Result:
    (x,), first = together(n, 1)
    if not n.quantized():
        return [held(n.b.one("Neg", x), first)]
    if x.dtype not in (I8, I16) or n.scale(n.tensor(0))[0] != n.scale(n.outs[0])[0]:
        n.unsupported(f"{n.op} of quantized {x.dtype.value}, or one that changes the scale,")
    return [held(n.b.one("Neg", x), first)]  # zero points are left out, as LiteRT does


def relu(activation: int) -> Callable[[TflNode], Result]:
    def read(n: TflNode) -> Result:
        (x,), first = together(n, 1)
        if not n.quantized():
            return [held(n.activate(x, activation), first)]
        (s0, z0), (s, z) = n.scale(n.tensor(0)), n.scale(n.outs[0])
        if n.micro and activation == RELU6:  # is only cut
            lo, hi = (n.b.const(v, x.dtype) for v in quantized_clamp(RELU6, s0, z0, np.iinfo(x.dtype.numpy)))
            return [held(n.b.one("Clip", x, lo, hi), first)]
        y = rescale(n, x, float(s0 / s), n.out_dtype(), zero_in=z0, zero=z, **n.clamp(activation))
        return [held(y, first)]

    return read


def relu_0_to_1(n: TflNode) -> Result:
    (x,), first = together(n, 1)
    if not n.quantized():
        return [held(n.b.one("Clip", x, n.b.const(0, x.dtype), n.b.const(1, x.dtype)), first)]
    (s0, z0), (s, z) = n.scale(n.tensor(0)), n.scale(n.outs[0])
    lo, hi = limits(n.out_dtype())
    top = min(hi, z + int(np.floor(np.float64(np.float32(1) / s) + 0.5)))
    return [held(rescale(n, x, float(s0 / s), n.out_dtype(), zero_in=z0, zero=z, lo=max(lo, z), hi=top), first)]


def leaky_relu(n: TflNode) -> Result:
    (x,), first = together(n, 1)
    alpha = np.float32(n.options.real(0))
    if not n.quantized():
        return [held(n.b.one("LeakyRelu", x, alpha=float(alpha)), first)]
    (s0, z0), (s, z) = n.scale(n.tensor(0)), n.scale(n.outs[0])
    both = {"zero_in": z0, "zero": z, **n.clamp(NONE)}
    low = rescale(n, x, float(s0 * alpha / s), n.out_dtype(), **both)
    high = rescale(n, x, float(s0 / s), n.out_dtype(), **both)
    below = n.b.one("Less", x, n.b.const(z0, x.dtype))
    return [held(n.b.one("Where", below, low, high), first)]


def prelu(n: TflNode) -> Result:
    (x, slope), first = together(n, 2)
    if not n.quantized():
        return [held(n.b.one("PRelu", x, slope), first)]
    if x.dtype not in (I8, U8) or slope.dtype is not x.dtype:
        n.unsupported(f"PRELU of quantized {x.dtype.value} with slopes of {slope.dtype.value}")
    (s0, z0), (s1, z1), (s, z) = (n.scale(t) for t in (n.tensor(0), n.tensor(1), n.outs[0]))
    v, a = (n.b.one("Sub", n.b.one("Cast", w, to=I32), n.b.const(k, I32)) for w, k in ((x, z0), (slope, z1)))
    high = rescale(n, v, float(s0 / s), x.dtype, zero=z, **n.clamp(NONE))
    low = rescale(n, n.b.one("Mul", v, a), float(s0 * s1 / s), x.dtype, zero=z, **n.clamp(NONE))
    return [held(n.b.one("Where", n.b.one("Less", v, n.b.const(0, I32)), low, high), first)]


def hard_swish(n: TflNode) -> Result:
    (x,), first = together(n, 1)
    if not n.quantized():
        return [held(n.b.one("HardSwish", x), first)]
    if x.dtype is I16 or n.out_dtype() is not x.dtype:
        n.unsupported(f"{n.op} of {x.dtype.value} to {n.out_dtype().value}")
    values = hard_swish_table(*n.scale(n.tensor(0)), *n.scale(n.outs[0]), np.iinfo(x.dtype.numpy))
    return [held(n.b.one("TflTable", x, n.b.const(values)), first)]


def elu(n: TflNode) -> Result:
    (x,), first = together(n, 1)
    if not n.quantized():
        return [held(n.b.one("Elu", x, alpha=1.0), first)]
    return [held(by_table(n, x, _in64(lambda v: np.where(v < 0, np.expm1(v), v)), (I8,)), first)]


def gelu(n: TflNode) -> Result:
    (x,), first = together(n, 1)
    approximate = n.options.flag(0)
    if not n.quantized():
        return [held(n.b.one("Gelu", x, approximate="tanh" if approximate else "none"), first)]
    f = gelu32(approximate) if x.dtype is I16 else _in64(lambda v: gelu_of(v, approximate))
    return [held(by_table(n, x, f, (I8, U8, I16)), first)]


# -- functions of floats ------------------------------------------------------------------------------
def unary(op: str) -> Callable[[TflNode], Result]:
    def read(n: TflNode) -> Result:
        if n.quantized():
            n.unsupported(f"{n.op} of quantized {n.x(0).dtype.value}")
        (x,), first = together(n, 1)
        return [held(n.b.one(op, x), first)]

    return read


def square(n: TflNode) -> Result:
    (x,), first = together(n, 1)
    if n.quantized():
        n.unsupported("SQUARE of quantized integers")
    return [held(n.b.one("Mul", x, x), first)]


def fake_quant(n: TflNode) -> Result:
    """Floats at the places that integers of so many bits have; the range is moved so that 0 is one of them."""
    (x,), first = together(n, 1)
    low, high, bits = np.float32(n.options.real(0)), np.float32(n.options.real(1)), n.options.whole(2)
    if not 2 <= bits <= 16 or not low <= 0 <= high or low == high:
        n.fail(f"has the range {low} to {high} in {bits} bits")
    q_low, q_high = np.float32(int(n.options.flag(3))), np.float32((1 << bits) - 1)
    scale = (high - low) / (q_high - q_low)
    point = q_low - low / scale
    point = q_low if point < q_low else q_high if point > q_high else np.float32(np.floor(point + np.float32(0.5)))
    least, most, inverse = (q_low - point) * scale, (q_high - point) * scale, np.float32(1) / scale
    b = n.b
    inside = b.one("Clip", x, b.const(least, F32), b.const(most, F32))
    steps = b.one("Mul", b.one("Sub", inside, b.const(least, F32)), b.const(inverse, F32))
    whole = b.one("Floor", b.one("Add", steps, b.const(0.5, F32)))
    return [held(b.one("Add", b.one("Mul", whole, b.const(scale, F32)), b.const(least, F32)), first)]


READERS = {
    "ABS": absolute, "NEG": negative, "EXP": curve("Exp", _in64(np.exp), (I8, I16)), "LOG": logarithm,
    "SQRT": root, "RSQRT": rsqrt, "SIN": unary("Sin"), "COS": unary("Cos"), "FLOOR": unary("Floor"),
    "CEIL": unary("Ceil"), "ROUND": unary("Round"), "SIGN": unary("Sign"), "SQUARE": square, "RELU": relu(RELU),
    "RELU6": relu(RELU6), "RELU_N1_TO_1": relu(RELU_N1_TO_1), "RELU_0_TO_1": relu_0_to_1, "LEAKY_RELU": leaky_relu,
    "LOGISTIC": curve("Sigmoid", _logistic, (I8, U8)), "TANH": curve("Tanh", _in64(np.tanh), (I8, U8)),
    "HARD_SWISH": hard_swish, "PRELU": prelu, "ELU": elu, "GELU": gelu, "FAKE_QUANT": fake_quant,
    "LOGICAL_NOT": unary("Not"),
}  # fmt: skip
