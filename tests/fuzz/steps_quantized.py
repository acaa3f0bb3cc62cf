"""Steps of quantized models: DequantizeLinear, an operator, QuantizeLinear, as quantizers write them.

Scales are powers of two, as a rule, so that sums of products of integers are exact in float32: then an integer kernel
and float32 must agree to the bit, ties included. Other scales are kept where no value lies near a tie.
"""

from __future__ import annotations

import ml_dtypes
import numpy as np
from builder import Builder
from sizes import long_shape, size
from steps import chance, number, some

POWERS = (2.0**-7, 2.0**-6, 2.0**-5, 2.0**-4)
NEAR, SHARE = 1e-3, 1e-6  # of a step of quantization, and of the number of steps, from a tie
SURE = 256.0  # sums of multiples of 2^-14 up to here are exact
EIGHT = (np.int8, np.uint8)
SIXTEEN = (np.int16, np.uint16)


def start(b: Builder) -> str:
    """A quantized input, or floats that the model quantizes"""
    rank = int(some(b, 2, 3, 4, 4))
    shape = (number(b, 1, 2), int(some(b, 3, 4, 8, 16, 17)), *(number(b, 2, 9) for _ in range(rank - 2)))
    shape = long_shape(b, rank, 1) if chance(b, 0.3) else shape
    if chance(b):
        return dequantized(b, b.input(_integers(b, shape, _type(b))))
    return requantized(b, b.input(b.random(shape)), True)


def quantized(b: Builder) -> str:
    """One operator between what was dequantized and a QuantizeLinear"""
    x = b.pick(exact=True, low=2)
    if not x or b.values[x].size > 20000 or 0 in b.values[x].shape:
        return ""
    kinds = (_conv, _conv, _matmul, _matmul, _gemm, _binary, _binary, _unary, _pool, _mean, _moved, _joined)
    y = some(b, *kinds)(b, x)  # type: ignore[operator]
    return requantized(b, y, chance(b, 0.9)) if y else ""


def weights_only(b: Builder) -> str:
    """Floats by weights of 4 or 8 bits, a scale for each tensor, column or block"""
    x = b.pick(low=2)
    if not x or b.values[x].size > 20000 or 0 in b.values[x].shape:
        return ""
    k, n = b.values[x].shape[-1], size(b, b.values[x].size // b.values[x].shape[-1], p=0.4)
    dtype = some(b, np.int8, np.uint8, ml_dtypes.int4, ml_dtypes.uint4)
    low, high = (-8, 8) if dtype is ml_dtypes.int4 else (0, 16) if dtype is ml_dtypes.uint4 else (0, 100)
    w = b.constant(b.rng.integers(low, high, (k, n)).astype(dtype))
    how = str(some(b, "tensor", "column", "block"))
    block = int(some(b, *(d for d in (1, 2, 4, 8, 16) if k % d == 0)))
    shape = {"tensor": (), "column": (n,), "block": (k // block, n)}[how]
    scale = b.constant((b.rng.random(shape) * 0.02 + 0.01).astype(np.float32))
    zero = [b.constant(b.rng.integers(0, 7, shape).astype(dtype))] if chance(b) else []
    attrs = {"tensor": {}, "column": {"axis": 1}, "block": {"axis": 0, "block_size": block}}[how]
    return b.one("MatMul", x, b.one("DequantizeLinear", w, scale, *zero, **attrs))


# -- ends -----------------------------------------------------------------------------------------------
def dequantized(b: Builder, q: str, axis: int | None = None) -> str:
    """Of a weight with an axis: a scale, and perhaps a zero point, for each channel"""
    dtype = b.values[q].dtype
    shape = () if axis is None else (b.values[q].shape[axis],)
    scale = b.rng.choice(np.float32(POWERS), shape) if shape else np.float32(some(b, *POWERS))
    zero = [] if chance(b, 0.3) else [b.constant(_zeros(b, dtype, shape))]
    attrs = {} if axis is None else {"axis": axis}
    return b.one("DequantizeLinear", q, b.constant(np.asarray(scale)), *zero, exact=True, **attrs)


def requantized(b: Builder, y: str, exactly: bool) -> str:
    """QuantizeLinear, and floats again; by a power of two, or by any scale"""
    scale = np.float32(some(b, *POWERS, 1.0) if exactly and b.exact[y] else b.rng.random() * 0.2 + 0.01)
    sure = exactly and b.exact[y] and np.abs(b.values[y]).max(initial=0) < SURE
    if not sure and near_a_tie(b.values[y] / scale):
        return ""
    dtype = np.dtype(_type(b))
    zero = b.constant(_zeros(b, dtype, ()))
    s = b.constant(scale)
    was, b.exact[y] = b.exact[y], True
    q = b.one("QuantizeLinear", y, s, zero, exact=True)
    b.exact[y] = was
    return b.one("DequantizeLinear", q, s, zero, exact=bool(np.log2(scale) % 1 == 0)) if q else ""


def near_a_tie(steps: np.ndarray) -> bool:
    with np.errstate(invalid="ignore"):
        return bool((np.abs(np.abs(steps - np.floor(steps)) - 0.5) < np.maximum(NEAR, SHARE * np.abs(steps))).any())


def _type(b: Builder) -> object:
    return some(b, *EIGHT, *EIGHT, *EIGHT, *SIXTEEN)


def _zeros(b: Builder, dtype: np.dtype, shape: tuple[int, ...]) -> np.ndarray:
    middle = 1 << (8 * dtype.itemsize - 1) if dtype.kind == "u" else 0
    if shape or chance(b, 0.6):
        return np.full(shape, middle, dtype)
    return (middle + b.rng.integers(-100, 101, shape)).astype(dtype)


def _integers(b: Builder, shape: tuple[int, ...], dtype: object) -> np.ndarray:
    info = np.iinfo(dtype)  # type: ignore[call-overload]
    low, high = max(info.min, -300), min(info.max, 300)
    return b.rng.integers(low, high + 1, shape).astype(dtype)


# -- between --------------------------------------------------------------------------------------------
def _weight(b: Builder, shape: tuple[int, ...], axis: int) -> str:
    return dequantized(b, b.constant(_integers(b, shape, some(b, np.int8, np.int8, np.uint8))),
                       axis if chance(b) else None)


def _bias(b: Builder, n: int) -> list[str]:
    if chance(b, 0.3):
        return []
    return [b.one("DequantizeLinear", b.constant(b.rng.integers(-900, 900, n).astype(np.int32)),
                  b.constant(np.float32(2.0**-10)), exact=True)]


def _conv(b: Builder, x: str) -> str:
    shape = b.values[x].shape
    if len(shape) < 3:
        return ""
    c = shape[1]
    group = int(some(b, 1, c))
    m = group * int(some(b, 1, 1, 2)) if group > 1 else size(b, b.values[x].size // c, 192, p=0.4)
    kernel = [number(b, 1, min(3, d)) for d in shape[2:]]
    w = _weight(b, (m, c // group, *kernel), 0)
    attrs: dict[str, object] = {"pads": [number(b, 0, 1) for _ in kernel * 2]} if chance(b) else {}
    if chance(b, 0.3):
        attrs["strides"] = [number(b, 1, 2) for _ in kernel]
    if chance(b, 0.3):
        attrs["dilations"] = [max(1, (d - 1) // max(1, k - 1)) for d, k in zip(shape[2:], kernel, strict=True)]
    y = b.one("Conv", x, w, *_bias(b, m), group=group, exact=True, **attrs)
    return b.one("Relu", y, exact=True) if y and chance(b, 0.3) else y


def _matmul(b: Builder, x: str) -> str:
    k = b.values[x].shape[-1]
    n = size(b, b.values[x].size // k, p=0.4)
    if chance(b, 0.8):
        return b.one("MatMul", x, _weight(b, (k, n), 1), exact=True)
    return b.one("MatMul", x, dequantized(b, b.input(_integers(b, (k, n), _type(b)))), exact=True)


def _gemm(b: Builder, x: str) -> str:
    if b.values[x].ndim != 2:
        return ""
    k = b.values[x].shape[1]
    n = size(b, b.values[x].shape[0], p=0.4)
    turned = number(b, 0, 1)
    w = _weight(b, (n, k) if turned else (k, n), 1 - turned)
    return b.one("Gemm", x, w, *_bias(b, n), transB=turned, exact=True)


def _binary(b: Builder, x: str) -> str:
    same = [n for n, v in b.values.items() if v.shape == b.values[x].shape and v.dtype == np.float32 and b.exact[n]]
    y = str(some(b, *same))
    return b.one(str(some(b, "Add", "Mul", "Sub", "Max", "Min")), x, y, exact=True)


def _unary(b: Builder, x: str) -> str:
    kind = str(some(b, "Relu", "LeakyRelu", "Sigmoid", "Tanh", "HardSigmoid", "Softmax", "Clip", "HardSwish"))
    if kind == "Clip":
        return b.one(kind, x, b.constant(np.float32(0)), b.constant(np.float32(6)), exact=True)
    return b.one(kind, x, exact=True if kind == "Relu" else None)


def _pool(b: Builder, x: str) -> str:
    if b.values[x].ndim < 3:
        return ""
    kernel = [number(b, 1, min(3, d)) for d in b.values[x].shape[2:]]
    kind = str(some(b, "MaxPool", "AveragePool", "GlobalAveragePool"))
    if kind == "GlobalAveragePool":
        return b.one(kind, x)
    return b.one(kind, x, kernel_shape=kernel, exact=True if kind == "MaxPool" else None)


def _mean(b: Builder, x: str) -> str:
    return b.one("ReduceMean", x, b.ints(number(b, 1, b.values[x].ndim - 1)), keepdims=1)


def _moved(b: Builder, x: str) -> str:
    shape = b.values[x].shape
    if chance(b):
        return b.one("Transpose", x, perm=[int(k) for k in b.rng.permutation(len(shape))], exact=True)
    return b.one("Reshape", x, b.ints(shape[0], -1), exact=True)


def _joined(b: Builder, x: str) -> str:
    same = [n for n, v in b.values.items() if v.shape == b.values[x].shape and v.dtype == np.float32 and b.exact[n]]
    return b.one("Concat", x, str(some(b, *same)), axis=number(b, 0, 1), exact=True)


__all__ = ["quantized", "start", "weights_only"]
