"""Pools, reductions and softmax."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from monobloc.frontend.tflite.arithmetic import held, minus, same_scales, together
from monobloc.frontend.tflite.convs import window_of
from monobloc.frontend.tflite.movement import AXIS_FIRST
from monobloc.frontend.tflite.node import Held, Result, TflNode
from monobloc.frontend.tflite.scaling import NONE, multiplier
from monobloc.ir.graph import Value
from monobloc.ir.types import DType

F32, I8, U8 = DType.F32, DType.I8, DType.U8


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


def softmax(n: TflNode) -> Result:
    x, beta = n.x(0), np.float32(n.options.real(0))
    if not n.quantized():
        x = x if beta == 1 else n.b.one("Mul", x, n.b.const(beta, F32))
        return [n.b.one("Softmax", x, axis=x.type.rank - 1)]
    if x.dtype not in (I8, U8) or n.out_dtype() is not x.dtype:
        n.unsupported(f"SOFTMAX of {x.dtype.value} to {n.out_dtype().value}")
    (s0, _), (s, z) = n.scale(n.tensor(0)), n.scale(n.outs[0])
    steps = (np.float32(-s0 * beta) * np.arange(256).astype(np.float32)).astype(np.float32)
    table = np.exp(steps.astype(np.float64)).astype(np.float32)[::-1].copy()
    return [n.b.one("TflSoftmax", x, n.b.const(table), scale=float(s), zero=z)]


def log_softmax(n: TflNode) -> Result:
    if n.quantized():
        n.unsupported("LOG_SOFTMAX of quantized integers")
    return [n.b.one("LogSoftmax", n.x(0), axis=n.x(0).type.rank - 1)]


def _integer_mean(n: TflNode, x: Value, attrs: dict[str, object]) -> Value:
    """MEAN and SUM: the exact sum, scaled; the count divides the multiplier."""
    if (n.op, x.dtype) not in (("MEAN", I8), ("MEAN", U8), ("SUM", U8)):
        n.unsupported(f"{n.op} of quantized {x.dtype.value}")
    (s0, z0), (s, z) = n.scale(n.tensor(0)), n.scale(n.outs[0])
    total = n.b.emit("ReduceSum", [minus(n, x, z0)], attrs)[0]
    m, shift = multiplier(float(np.float64(s0) / np.float64(s)))
    if n.op == "MEAN":
        count = x.type.size // max(total.type.size, 1)
        more = min(count.bit_length() - 1, 32, 31 + shift)
        m, shift = (m << more) // count, shift - more
    scales = [n.b.const(k, DType.I32) for k in (m, shift)]
    given = {"zero_in": 0, "left": 0, "zero": z, "once": 0, "to": n.out_dtype(), **n.clamp(NONE)}
    return n.b.emit("TflRescale", [total, *scales], given)[0]


def reduction(op: str, ordered: bool = False) -> Callable[[TflNode], Result]:
    """`ordered`: integers are compared as they are"""

    def read(n: TflNode) -> Result:
        if n.quantized() and ordered:
            same_scales(n, 1)
        (x,), first = together(n, 1)
        axes = sorted({n.axis(a, x.type.rank) for a in n.ints(1, "the axes")})
        keep = n.options.flag(0)
        if first and not keep and 3 not in axes and not {1, 2} <= set(axes):
            x, first = n.x(0), False  # what is left would lie in another order
        at = sorted(AXIS_FIRST[a] for a in axes) if first else axes
        attrs = {"axes": at, "keepdims": int(keep)}
        y = _integer_mean(n, x, attrs) if n.quantized() and not ordered else n.b.emit(op, [x], attrs)[0]
        return [held(y, first and keep)]

    return read


def extreme_at(op: str) -> Callable[[TflNode], Result]:
    def read(n: TflNode) -> Result:
        x = n.x(0)
        axis = n.axis(n.ints(1, "the axis")[0], x.type.rank)
        y = n.b.one(op, x, axis=axis, keepdims=0, select_last_index=0)
        return [y if y.dtype is n.out_dtype() else n.b.one("Cast", y, to=n.out_dtype())]

    return read


READERS = {
    "AVERAGE_POOL_2D": average_pool, "MAX_POOL_2D": max_pool, "SOFTMAX": softmax, "LOG_SOFTMAX": log_softmax,
    "MEAN": reduction("ReduceMean"), "SUM": reduction("ReduceSum"), "REDUCE_PROD": reduction("ReduceProd"),
    "REDUCE_MAX": reduction("ReduceMax", True), "REDUCE_MIN": reduction("ReduceMin", True),
    "ARG_MAX": extreme_at("ArgMax"), "ARG_MIN": extreme_at("ArgMin"),
}  # fmt: skip
