"""Pools, norms, soft maxima and reductions."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from monobloc.frontend.tflite.arithmetic import held, minus, same_scales, together
from monobloc.frontend.tflite.convs import window_of
from monobloc.frontend.tflite.movement import AXIS_FIRST
from monobloc.frontend.tflite.node import Held, Result, TflNode
from monobloc.frontend.tflite.scaling import NONE, multiplier, reduced, table16
from monobloc.ir.graph import Value
from monobloc.ir.types import DType
from monobloc.ops.movement import slice_of, transpose
from monobloc.ops.quant import limits
from monobloc.ops.shape import reshape
from monobloc.ops.tfl import np_scale
from monobloc.ops.tfl_rows import exponentials

F32, I8, U8, I16 = DType.F32, DType.I8, DType.U8, DType.I16


def _pooled(n: TflNode) -> tuple[Value, dict[str, object], int]:
    x = n.first(0)
    kernel = (n.options.whole(4), n.options.whole(3))
    attrs = window_of(n, x.shape[2:], kernel, (0, 1, 2), None)
    return x, attrs | {"ceil_mode": 0}, n.options.whole(5, "b")


def average_pool(n: TflNode) -> Result:
    x, attrs, activation = _pooled(n)
    if not n.quantized():
        y = n.b.emit("AveragePool", [x], attrs | {"count_include_pad": 0})[0]
        return [Held(first=n.activate(y, activation))]
    if n.scale(n.tensor(0)) != n.scale(n.outs[0]):
        n.unsupported("AVERAGE_POOL_2D that changes the scale")
    return [Held(first=n.b.emit("TflAveragePool", [x], attrs | n.clamp(activation))[0])]


def max_pool(n: TflNode) -> Result:
    x, attrs, activation = _pooled(n)
    y = n.b.emit("MaxPool", [x], attrs | {"storage_order": 0})[0]
    if not n.quantized():
        return [Held(first=n.activate(y, activation))]
    same_scales(n, 1)
    if activation != NONE:
        bounds = n.clamp(activation)
        y = n.b.one("Clip", y, n.b.const(bounds["lo"], y.dtype), n.b.const(bounds["hi"], y.dtype))
    return [Held(first=y)]


# -- norms ------------------------------------------------------------------------------------------
def l2_pool(n: TflNode) -> Result:
    x, attrs, activation = _pooled(n)
    if x.dtype is not F32:
        n.unsupported(f"{n.op} of {x.dtype.value}")
    y = n.b.emit("AveragePool", [n.b.one("Mul", x, x)], attrs | {"count_include_pad": 0})[0]
    return [Held(first=n.activate(n.b.one("Sqrt", y), activation))]


def l2_norm(n: TflNode) -> Result:
    """Of rows; the length of a row of floats is at least 1e-6"""
    x, activation = n.x(0), n.options.whole(0, "b")
    if not n.quantized():
        total = n.b.emit("ReduceSum", [n.b.one("Mul", x, x)], {"axes": [x.type.rank - 1], "keepdims": 1})[0]
        length = n.b.one("Max", n.b.one("Sqrt", total), n.b.const(1e-6, F32))
        return [n.activate(n.b.one("Div", x, length), activation)]
    zero, (s, z) = n.scale(n.tensor(0))[1], n.scale(n.outs[0])
    if x.dtype not in (I8, U8) or float(s) != 1 / 128 or z != (0 if x.dtype is I8 else 128) or activation != NONE:
        n.unsupported(f"{n.op} of quantized {x.dtype.value} to the scale {s}")
    return [n.b.one("TflL2Norm", x, zero=zero, middle=z)]


def local_response(n: TflNode) -> Result:
    x, radius = n.first(0), n.options.whole(0)
    bias, alpha, beta = (n.options.real(k) for k in (1, 2, 3))
    if radius < 0 or x.dtype is not F32:
        n.fail(f"has the radius {radius} over {x.type}")
    if not radius:  # a sum of nothing
        with np.errstate(all="ignore"):
            return [Held(first=n.b.one("Mul", x, n.b.const(np.float64(bias) ** -beta, F32)))]
    size = 2 * radius  # as many before as the radius, one less behind; ONNX has it the other way round
    turned = [(d - 1, -1, d) if k == 1 else (0, 1, d) for k, d in enumerate(x.shape)]
    y = n.b.one("LRN", slice_of(n.b, x, turned), size=size, alpha=alpha * size, beta=beta, bias=bias)
    return [Held(first=slice_of(n.b, y, turned))]


# -- soft maxima ------------------------------------------------------------------------------------
def softmax(n: TflNode) -> Result:
    x, beta = n.x(0), np.float32(n.options.real(0))
    if not n.quantized():
        x = x if beta == 1 else n.b.one("Mul", x, n.b.const(beta, F32))
        return [n.b.one("Softmax", x, axis=x.type.rank - 1)]
    (s0, z0), (s, z) = n.scale(n.tensor(0)), n.scale(n.outs[0])
    if x.dtype is I16 and n.out_dtype() is I16 and not z0 and not z:
        return [_softmax16(n, x, s0 * beta)]
    lo = limits(n.out_dtype())[0] if n.out_dtype().is_int else 0
    unit = 2.0 ** -(8 * n.out_dtype().size)
    if (x.dtype, n.out_dtype()) not in ((I8, I8), (U8, U8), (I8, I16)) or z != lo or abs(s - unit) > unit / 1000:
        n.unsupported(f"SOFTMAX of {x.dtype.value} to {n.out_dtype().value} with the scale {s} and zero point {z}")
    m, shift, least = scaled_difference(s0 * beta)
    return [n.b.one("TflSoftmaxFixed", x, n.b.const(exponentials(m, shift, least)), to=n.out_dtype())]


def _softmax16(n: TflNode, x: Value, scale: np.float32) -> Value:
    """Tables of exp over [-10, 0] and of 1 / (1 + x) over [0, 1]"""
    def over(v: np.ndarray) -> np.ndarray:
        return np.asarray(1 / (1 + v))

    kind: Any = np.float32 if n.micro else np.float64
    fine = kind(2 / 65535)
    exp = table16(np.exp, kind(10 / 65535), 32767, fine, 0)
    one = table16(over, kind(1 / 65535), -32768, fine, 0)
    m, s = multiplier(float(np.float64(scale) / (10.0 / 65535.0)))
    return n.b.one("TflSoftmax16", x, n.b.const(exp), n.b.const(one), m=m, s=s)


def scaled_difference(scale: np.float32) -> tuple[int, int, int]:
    """(multiplier, exponent) to 5 integer bits, and how far below the largest an element still counts"""
    m, shift = multiplier(min(float(scale) * (1 << 26), (1 << 31) - 1.0))
    radius = math.floor(31 * (1 << 26) / (1 << shift)) if shift >= 0 else 31 << 26
    return m, shift, -min(radius, 255)


def log_softmax(n: TflNode) -> Result:
    x = n.x(0)
    if not n.quantized():
        return [n.b.one("LogSoftmax", x, axis=x.type.rank - 1)]
    (s0, _), (s, z) = n.scale(n.tensor(0)), n.scale(n.outs[0])
    if x.dtype not in (I8, U8) or n.out_dtype() is not x.dtype or (float(s), z) != (1 / 16, limits(x.dtype)[1]):
        n.unsupported(f"LOG_SOFTMAX of {x.dtype.value} to {n.out_dtype().value} with the scale {s} and zero point {z}")
    m, shift, least = scaled_difference(s0)
    far = np_scale(np.arange(-255, 1), np.array(m), np.array(shift))
    real = (1 << shift) / m if shift >= 0 else 1.0 / m
    rm, rs = multiplier(real)
    tables = [n.b.const(v) for v in (exponentials(m, shift, least), far)]
    return [n.b.one("TflLogSoftmax", x, *tables, rm=rm, rs=rs, least=least)]


# -- reductions -------------------------------------------------------------------------------------
def _integer_mean(n: TflNode, x: Value, attrs: dict[str, object]) -> Value:
    """MEAN and SUM: the exact sum, scaled; the count divides the multiplier. SUM of signed integers rounds once."""
    if x.dtype not in (I8, U8, I16):
        n.unsupported(f"{n.op} of quantized {x.dtype.value}")
    (s0, z0), (s, z) = n.scale(n.tensor(0)), n.scale(n.outs[0])
    total = n.b.emit("ReduceSum", [minus(n, x, z0)], attrs)[0]
    m, shift = multiplier(float(np.float64(s0) / np.float64(s)))
    if n.op == "MEAN":
        count = x.type.size // max(total.type.size, 1)
        more = min(count.bit_length() - 1, 32, 31 + shift)
        m, shift = (m << more) // count, shift - more
    elif x.dtype is not U8:
        total, shift = n.b.one("Cast", total, to=DType.I64), shift - 16  # products of 64 bits, multipliers of 31
    scales = [n.b.const(k, DType.I32) for k in (m, shift)]
    given = {"zero_in": 0, "left": 0, "zero": z, "to": n.out_dtype(), **n.clamp(NONE)}
    return n.b.emit("TflRescale", [total, *scales], given)[0]


def _integer_product(n: TflNode, x: Value, axes: list[int], keep: bool) -> Value:
    """One number after the other, each product scaled by the n-th part of the whole factor"""
    if x.dtype not in (I8, I16):
        n.unsupported(f"{n.op} of quantized {x.dtype.value}")
    (s0, z0), (s, z) = n.scale(n.tensor(0)), n.scale(n.outs[0])
    rest = [k for k in range(x.type.rank) if k not in axes]
    count = math.prod(x.shape[k] for k in axes)
    rows = reshape(n.b, transpose(n.b, x, [*rest, *axes]), [*(x.shape[k] for k in rest), count])
    m, shift = multiplier(float(s0) / float(s) ** (1 / max(count, 1)))
    y = n.b.one("TflProduct", rows, m=int(reduced(np.array(m))), s=shift, zero_in=z0, zero=z)
    return reshape(n.b, y, [1 if k in axes else d for k, d in enumerate(x.shape) if keep or k not in axes])


def reduction(op: str, ordered: bool = False) -> Callable[[TflNode], Result]:
    """`ordered`: integers are compared as they are"""

    def read(n: TflNode) -> Result:
        if n.quantized() and ordered:
            same_scales(n, 1)
        (x,), first = together(n, 1)
        axes = sorted({n.axis(a, x.type.rank) for a in n.ints(1, "the axes")} if x.type.rank else ())
        keep = n.options.flag(0)
        if n.op == "REDUCE_PROD" and n.quantized():
            return [_integer_product(n, n.x(0), axes, keep)]
        if first and not keep and 3 not in axes and not {1, 2} <= set(axes):
            x, first = n.x(0), False  # what is left would lie in another order
        at = sorted(AXIS_FIRST[a] for a in axes) if first else axes
        attrs = {"axes": at, "keepdims": int(keep)}
        y = _integer_mean(n, x, attrs) if n.quantized() and not ordered else _reduced(n, op, x, attrs)
        return [held(y, first and keep)]

    return read


def _reduced(n: TflNode, op: str, x: Value, attrs: dict[str, object]) -> Value:
    if x.dtype is DType.BOOL:
        wide = n.b.one("Cast", x, to=U8)
        return n.b.one("Cast", n.b.emit(op, [wide], attrs)[0], to=DType.BOOL)
    return n.b.emit(op, [x], attrs)[0]


def extreme_at(op: str) -> Callable[[TflNode], Result]:
    def read(n: TflNode) -> Result:
        x = n.x(0)
        axis = n.axis(n.ints(1, "the axis")[0], x.type.rank)
        y = n.b.one(op, x, axis=axis, keepdims=0, select_last_index=0)
        return [y if y.dtype is n.out_dtype() else n.b.one("Cast", y, to=n.out_dtype())]

    return read


READERS = {
    "AVERAGE_POOL_2D": average_pool, "MAX_POOL_2D": max_pool, "L2_POOL_2D": l2_pool, "L2_NORMALIZATION": l2_norm,
    "LOCAL_RESPONSE_NORMALIZATION": local_response, "SOFTMAX": softmax, "LOG_SOFTMAX": log_softmax,
    "MEAN": reduction("ReduceMean"), "SUM": reduction("ReduceSum"), "REDUCE_PROD": reduction("ReduceProd"),
    "REDUCE_MAX": reduction("ReduceMax", True), "REDUCE_MIN": reduction("ReduceMin", True),
    "REDUCE_ANY": reduction("ReduceMax"), "REDUCE_ALL": reduction("ReduceMin"),
    "ARG_MAX": extreme_at("ArgMax"), "ARG_MIN": extreme_at("ArgMin"),
}  # fmt: skip
