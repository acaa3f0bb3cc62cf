"""Steps of integers, booleans, halves and doubles."""

from __future__ import annotations

import numpy as np
from builder import Builder
from steps import broadcast_partner, chance, number, some


def integers(b: Builder) -> str:
    dtype = some(b, "int64", "int32", "int8", "uint8", "uint16", "int16", "uint32", "uint64")
    x = b.pick(str(dtype)) or b.input(b.random((2, 3, 5), dtype))
    y = broadcast_partner(b, x, dtype)
    kind = str(some(b, "Add", "Sub", "Mul", "Max", "Min", "Div", "Mod", "Abs", "Sign", "BitwiseAnd", "BitwiseXor",
                    "BitShift", "BitwiseNot"))
    if kind in ("Div", "Mod"):
        z = b.random(b.values[x].shape[-1:], dtype)
        y = b.constant(np.where(z == 0, np.array(3, z.dtype), z))
    if kind in ("Abs", "Sign", "BitwiseNot"):
        return b.one(kind, x)
    if kind == "BitShift":
        return b.one(kind, x, b.constant(np.array(some(b, 0, 1, 3), dtype)), direction=str(some(b, "LEFT", "RIGHT")))
    return b.one(kind, x, y)


def doubles(b: Builder) -> str:
    dtype = some(b, "float64", "float16")
    x = b.pick(str(dtype)) or b.input(b.random((3, 4, 6), dtype))
    kind = number(b, 0, 4)
    if kind == 0:
        return b.one(str(some(b, "Add", "Mul", "Sub")), x, broadcast_partner(b, x, dtype))
    if kind == 1:
        return b.one(str(some(b, "Sigmoid", "Tanh", "Relu", "Abs", "Exp", "Erf", "Neg")), x)
    if kind == 2 and b.values[x].ndim > 1:
        return b.one("MatMul", x, b.leaf((b.values[x].shape[-1], 5), dtype))
    if kind == 3:
        return b.one("ReduceMean", x, keepdims=1)
    return b.one("Softmax", x, axis=-1)


def compare(b: Builder) -> str:
    x = b.pick(exact=True) if chance(b) else b.pick("int64")
    if not x:
        return ""
    y = broadcast_partner(b, x, b.values[x].dtype)
    if not b.exact[y]:
        return ""
    return b.one(str(some(b, "Greater", "Less", "Equal", "GreaterOrEqual", "LessOrEqual")), x, y, exact=True)


def logic(b: Builder) -> str:
    x = b.pick("bool") or b.input(b.random((4, 5), np.bool_))
    if chance(b, 0.3):
        return b.one("Not", x, exact=True)
    return b.one(str(some(b, "And", "Or", "Xor")), x, broadcast_partner(b, x, np.bool_), exact=True)


def cast(b: Builder) -> str:
    dtype = str(some(b, "float32", "int64", "bool", "int32", "uint8", "float64", "float16"))
    x = b.pick(dtype, exact=True)
    if not x:
        return ""
    if dtype == "float32":
        x = b.one("Clip", x, b.constant(np.float32(0)), b.constant(np.float32(100)), exact=True) or x
        if b.values[x].min(initial=0) < 0:
            return ""
    return b.one("Cast", x, to=int(some(b, 1, 6, 7, 9, 11, 10, 2)), exact=True)


def quantize(b: Builder) -> str:
    x = b.pick(exact=True)
    zero = b.constant(np.array(some(b, 0, 3, 128), np.uint8))
    scale = b.constant(np.float32(0.037))
    q = x and b.one("QuantizeLinear", x, scale, zero, exact=True)
    return b.one("DequantizeLinear", q, scale, zero, exact=True) if q else ""
