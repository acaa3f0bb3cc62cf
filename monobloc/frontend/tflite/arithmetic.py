"""Elementwise operators: two inputs that broadcast, and functions of one.

Integers that stand for real numbers are brought to a common scale, computed, and scaled to the output's. A function
of 8 bits is a table, made while the model is read, as LiteRT's own kernels make theirs.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from monobloc.frontend.tflite.node import TO_FIRST, Held, Result, TflNode
from monobloc.frontend.tflite.scaling import NONE, RELU, RELU6, RELU_N1_TO_1, hard_swish_table, multiplier, table
from monobloc.ir.graph import Value
from monobloc.ir.types import DType
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
        (s0, z0), (s1, z1), (s, z) = (n.scale(t) for t in (n.tensor(0), n.tensor(1), n.outs[0]))
        small = a.dtype is not DType.I16
        if not small and n.options.flag(1, True) and all(np.frexp(x)[0] == 0.5 for x in (s0, s1, s)):
            n.unsupported(f"{n.op} of int16 whose scales are powers of two")
        left = 20 if small else 15
        twice = np.float64(np.float32(2) * max(s0, s1))
        parts = []
        for v, scale, zero in ((a, s0, z0), (c, s1, z1)):
            parts.append(rescale(n, v, float(np.float64(scale) / twice), I32, zero_in=zero, left=left, **ALL32))
        total = n.b.one("Add" if sign > 0 else "Sub", *parts)
        real = float(twice / np.float64(np.float32(1 << left) * s))
        return [held(rescale(n, total, real, n.out_dtype(), zero=z, **n.clamp(activation)), first)]

    return read


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
    return n.b.emit("TflRescale", [v, *scales], {"zero_in": 0, "left": 0, "zero": 0, "once": 0, **attrs, "to": to})[0]


def squared_difference(n: TflNode) -> Result:
    if n.quantized(0):
        n.unsupported("SQUARED_DIFFERENCE of quantized integers")
    (a, c), first = together(n, 2)
    d = n.b.one("Sub", a, c)
    return [held(n.b.one("Mul", d, d), first)]


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


def not_equal(n: TflNode) -> Result:
    (a, c), first = together(n, 2)
    return [held(n.b.one("Not", n.b.one("Equal", a, c)), first)]


def select(n: TflNode) -> Result:
    if n.quantized(1):
        n.tensor(0)
        if len({n.scale(t) for t in (n.tensor(1), n.tensor(2), n.outs[0])}) > 1:
            n.unsupported("SELECT of tensors with different scales")
    (c, a, b), first = together(n, 3)
    return [held(n.b.one("Where", c, a, b), first)]


# -- one input --------------------------------------------------------------------------------------
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


def rsqrt(n: TflNode) -> Result:
    (x,), first = together(n, 1)
    if n.quantized():
        n.unsupported("RSQRT of quantized integers")
    return [held(n.b.one("Reciprocal", n.b.one("Sqrt", x)), first)]


def relu(activation: int) -> Callable[[TflNode], Result]:
    def read(n: TflNode) -> Result:
        (x,), first = together(n, 1)
        if not n.quantized():
            return [held(n.activate(x, activation), first)]
        (s0, z0), (s, z) = n.scale(n.tensor(0)), n.scale(n.outs[0])
        y = rescale(n, x, float(s0 / s), n.out_dtype(), zero_in=z0, zero=z, **n.clamp(activation))
        return [held(y, first)]

    return read


def leaky_relu(n: TflNode) -> Result:
    (x,), first = together(n, 1)
    alpha = np.float32(n.options.real(0))
    if not n.quantized():
        return [held(n.b.one("LeakyRelu", x, alpha=float(alpha)), first)]
    (s0, z0), (s, z) = n.scale(n.tensor(0)), n.scale(n.outs[0])
    both = {"zero_in": z0, "zero": z, **n.clamp(NONE)}
    low = rescale(n, x, float(s0 * alpha / s), n.out_dtype(), **both)
    high = rescale(n, x, float(s0 / s), n.out_dtype(), **both)
    negative = n.b.one("Less", x, n.b.const(z0, x.dtype))
    return [held(n.b.one("Where", negative, low, high), first)]


def _sigmoid(x: np.ndarray) -> np.ndarray:
    one = np.float32(1)
    return (one / (one + np.exp(-x.astype(np.float64)).astype(np.float32))).astype(np.float32)


def _tanh(x: np.ndarray) -> np.ndarray:
    return np.tanh(x.astype(np.float64)).astype(np.float32)


def curve(op: str, f: Callable[[np.ndarray], np.ndarray]) -> Callable[[TflNode], Result]:
    """LOGISTIC and TANH"""

    def read(n: TflNode) -> Result:
        (x,), first = together(n, 1)
        if not n.quantized():
            return [held(n.b.one(op, x), first)]
        if x.dtype is DType.I16 or n.out_dtype() is not x.dtype:
            n.unsupported(f"{n.op} of {x.dtype.value} to {n.out_dtype().value}")
        (s0, z0), (s, z) = n.scale(n.tensor(0)), n.scale(n.outs[0])
        values = table(f, s0, z0, s, z, np.iinfo(x.dtype.numpy))
        return [held(n.b.one("TflTable", x, n.b.const(values)), first)]

    return read


def hard_swish(n: TflNode) -> Result:
    (x,), first = together(n, 1)
    if not n.quantized():
        return [held(n.b.one("HardSwish", x), first)]
    if x.dtype is DType.I16 or n.out_dtype() is not x.dtype:
        n.unsupported(f"{n.op} of {x.dtype.value} to {n.out_dtype().value}")
    values = hard_swish_table(*n.scale(n.tensor(0)), *n.scale(n.outs[0]), np.iinfo(x.dtype.numpy))
    return [held(n.b.one("TflTable", x, n.b.const(values)), first)]


def prelu(n: TflNode) -> Result:
    (x, slope), first = together(n, 2)
    if n.quantized():
        n.unsupported("PRELU of quantized integers")
    return [held(n.b.one("PRelu", x, slope), first)]


def elu(n: TflNode) -> Result:
    (x,), first = together(n, 1)
    if n.quantized():
        n.unsupported("ELU of quantized integers")
    return [held(n.b.one("Elu", x, alpha=1.0), first)]


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
        n.unsupported("DEQUANTIZE with a scale per channel")
    scale, zero = n.scale(n.tensor(0))
    return [held(n.b.one("Mul", n.b.one("Cast", minus(n, x, zero), to=F32), n.b.const(scale, F32)), first)]


def cast(n: TflNode) -> Result:
    (x,), first = together(n, 1)
    to = n.out_dtype()
    return [held(x if x.dtype is to else n.b.one("Cast", x, to=to), first)]


READERS = {
    "ADD": sum_of(1), "SUB": sum_of(-1), "MUL": product, "DIV": binary("Div", 0), "POW": binary("Pow"),
    "MAXIMUM": extreme("Max"), "MINIMUM": extreme("Min"), "SQUARED_DIFFERENCE": squared_difference,
    "EQUAL": binary("Equal"), "NOT_EQUAL": not_equal, "LESS": binary("Less"), "LESS_EQUAL": binary("LessOrEqual"),
    "GREATER": binary("Greater"), "GREATER_EQUAL": binary("GreaterOrEqual"), "LOGICAL_AND": binary("And"),
    "LOGICAL_OR": binary("Or"), "LOGICAL_NOT": unary("Not"), "SELECT": select, "SELECT_V2": select,
    "ABS": unary("Abs"), "NEG": unary("Neg"), "EXP": unary("Exp"), "LOG": unary("Log"), "SQRT": unary("Sqrt"),
    "SIN": unary("Sin"), "COS": unary("Cos"), "FLOOR": unary("Floor"), "CEIL": unary("Ceil"), "ROUND": unary("Round"),
    "SIGN": unary("Sign"), "SQUARE": square, "RSQRT": rsqrt, "RELU": relu(RELU), "RELU6": relu(RELU6),
    "RELU_N1_TO_1": relu(RELU_N1_TO_1), "LEAKY_RELU": leaky_relu, "LOGISTIC": curve("Sigmoid", _sigmoid),
    "TANH": curve("Tanh", _tanh), "HARD_SWISH": hard_swish, "PRELU": prelu, "ELU": elu, "QUANTIZE": quantize,
    "DEQUANTIZE": dequantize, "CAST": cast,
}  # fmt: skip
