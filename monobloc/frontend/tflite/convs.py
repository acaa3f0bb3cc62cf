"""CONV_2D, DEPTHWISE_CONV_2D, TRANSPOSE_CONV and FULLY_CONNECTED, in floats and integers.

Integers: an exact sum, the bias, and one scaling per channel, in this order. Convolutions scale in fixed point and
FULLY_CONNECTED in float64, as LiteRT's reference kernels do. Sums of int16 are made in 64 bits. Floats with int8
weights (`hybrid`) quantize their input while they run.
"""

from __future__ import annotations

import numpy as np

from monobloc.frontend.tflite.hybrid import asymmetric, rows_times, symmetric
from monobloc.frontend.tflite.node import Held, Result, TflNode
from monobloc.frontend.tflite.scaling import multipliers, reduced
from monobloc.ir.graph import Value
from monobloc.ir.types import DType
from monobloc.ops.build import cast_to
from monobloc.ops.movement import slice_of, transpose
from monobloc.ops.shape import reshape
from monobloc.ops.window import Attrs, extent, split_pads

F32, I8, I16, I32, I64, U8 = DType.F32, DType.I8, DType.I16, DType.I32, DType.I64, DType.U8
SAME, VALID = 0, 1


def window_of(n: TflNode, spatial: tuple[int, ...], kernel: tuple[int, ...], at: tuple[int, int, int],
              dilation_slots: tuple[int, int] | None) -> Attrs:
    """The window's attributes; `at` are the slots of padding, stride_w and stride_h."""
    padding, w, h = (n.options.whole(at[0], "b"), n.options.whole(at[1]), n.options.whole(at[2]))
    strides = [h, w]
    dilations = [1, 1]
    if dilation_slots is not None:
        dilations = [n.options.whole(dilation_slots[1], default=1), n.options.whole(dilation_slots[0], default=1)]
    if min(*strides, *dilations, *kernel) < 1:
        n.fail(f"has the strides {strides}, dilations {dilations} and kernel {list(kernel)}, which must be positive")
    if padding not in (SAME, VALID):
        n.fail(f"has the padding {padding}, which must be 0 (same) or 1 (valid)")
    totals = [0, 0]
    if padding == SAME:
        totals = [max((-(-d // s) - 1) * s + extent(k, r) - d, 0)
                  for d, s, k, r in zip(spatial, strides, kernel, dilations, strict=True)]
    return {"kernel_shape": list(kernel), "strides": strides, "pads": split_pads(totals, "SAME_UPPER"),
            "dilations": dilations}


def conv(n: TflNode) -> Result:
    """Weights [out, h, w, in of a group]"""
    w = n.x(1)
    if w.type.rank != 4:
        n.fail(f"has weights of {w.type}, which must have rank 4")
    x = n.first(0)
    attrs = window_of(n, x.shape[2:], w.shape[1:3], (0, 1, 2), (4, 5))
    if not w.shape[3] or x.shape[1] % w.shape[3]:
        n.fail(f"has weights of {w.type}, which do not divide the channels of {x.type}")
    attrs["group"] = x.shape[1] // w.shape[3]
    return _convolved(n, x, transpose(n.b, w, (0, 3, 1, 2)), attrs, n.options.whole(3, "b"), 0)


def depthwise(n: TflNode) -> Result:
    """Weights [1, h, w, in * multiplier]"""
    w = n.x(1)
    if w.type.rank != 4 or w.shape[0] != 1:
        n.fail(f"has weights of {w.type}, which must be [1, h, w, channels]")
    x = n.first(0)
    attrs = window_of(n, x.shape[2:], w.shape[1:3], (0, 1, 2), (5, 6))
    attrs["group"] = x.shape[1]
    return _convolved(n, x, transpose(n.b, w, (3, 0, 1, 2)), attrs, n.options.whole(4, "b"), 3)


def _convolved(n: TflNode, x: Value, w: Value, attrs: Attrs, activation: int, axis: int) -> Result:
    bias = n.x(2) if n.has(2) else None
    if x.dtype is F32 and w.dtype is F32:
        return [Held(first=n.activate(n.b.one("Conv", x, w, bias, **attrs), activation))]
    if x.dtype is F32 and w.dtype is I8:
        return [Held(first=n.activate(_hybrid_conv(n, x, w, bias, attrs), activation))]
    _check_integers(n, x, w)
    if x.dtype is I16 and holds(w, (1, 2, 3), sums_of(bias)):
        total = n.b.one("Cast", n.b.one("ConvInteger", x, w, None, None, **attrs), to=sums_of(bias))
    elif x.dtype is I16:
        wide = [n.b.one("Cast", v, to=sums_of(bias)) for v in (x, w)]
        total = n.b.one("Conv", *wide, None, **attrs)
    else:
        total = n.b.one("ConvInteger", x, w, _zero(n, 0, x), _zero(n, 1, w), **attrs)
    return [Held(first=scaled(n, total, bias, activation, (-1, 1, 1)))]


def sums_of(bias: Value | None) -> DType:
    """What sums of int16 are made in: they have the bias's type, without one 64 bits"""
    return I32 if bias is not None and bias.dtype is I32 else I64


def holds(w: Value, axes: tuple[int, ...], sums: DType) -> bool:
    """Whether int32 has the sums over these axes of int16 times such weights, that are to be in `sums`"""
    if w.const is None:
        return False
    return sums is I32 or int(np.abs(w.const.array.astype(np.int64)).sum(axes).max(initial=0)) < 1 << 16


def _check_integers(n: TflNode, x: Value, w: Value) -> None:
    out = n.out_dtype()
    if (x.dtype, w.dtype, out) not in ((I8, I8, I8), (U8, U8, U8), (I16, I8, I16)):
        n.unsupported(f"{n.op} of {x.dtype.value} with weights of {w.dtype.value} to {out.value}")


def _zero(n: TflNode, i: int, v: Value) -> Value | None:
    """A zero point, where it is not 0"""
    q = n.quant(n.tensor(i))
    if not q.zero.any():
        return None
    if np.unique(q.zero).size > 1:
        n.unsupported(f"{n.tensor(i).what} with a zero point per channel")
    return n.b.const(q.zero[0], v.dtype)


def scaled(n: TflNode, total: Value, bias: Value | None, activation: int, shape: tuple[int, ...]) -> Value:
    """An integer sum, its bias added, in the output's scale. `shape` is that of a value per channel."""
    b, d = n.b, total.dtype
    if bias is not None:
        if bias.dtype not in (I32, I64):
            n.unsupported(f"a bias of {bias.dtype.value}")
        total = b.one("Add", total, reshape(b, cast_to(b, bias, d), list(shape)))
    scale, zero = n.scale(n.outs[0])
    real = factors(n, scale)
    per = [] if real.size == 1 else list(shape)
    if n.op == "FULLY_CONNECTED" and d is I32 and not n.micro:
        attrs = {"zero": zero, "to": n.out_dtype(), **n.clamp(activation)}
        return b.emit("TflRound", [total, b.const(real.reshape(per), DType.F64)], attrs)[0]
    m, s = multipliers(real)
    if d is I64:
        m, s = (m, s - 16) if n.op == "FULLY_CONNECTED" and not n.micro else (reduced(m), s)
    values = [b.const(v.reshape(per), I32) for v in (m, s)]
    attrs = {"zero_in": 0, "left": 0, "zero": zero, "to": n.out_dtype(), **n.clamp(activation)}
    return b.emit("TflRescale", [total, *values], attrs)[0]


def factors(n: TflNode, out: np.float32) -> np.ndarray:
    """The real factor per channel, or one: per tensor it is rounded to float32 on the way."""
    x, _ = n.scale(n.tensor(0))
    w = n.quant(n.tensor(1)).scale
    rounded = n.micro if n.op == "FULLY_CONNECTED" else n.out_dtype() is U8
    if w.size == 1 and rounded:
        return np.array([np.float64(np.float32(x * w[0])) / np.float64(out)])
    return np.float64(x) * w.astype(np.float64) / np.float64(out)


def _hybrid_conv(n: TflNode, x: Value, w: Value, bias: Value | None, attrs: Attrs) -> Value:
    """The range of a whole image: symmetric where the weights have one scale, else with a zero point"""
    if x.shape[0] != 1:
        inner = [(0, 1, d) for d in x.shape[1:]]
        parts = [_hybrid_conv(n, slice_of(n.b, x, [(k, 1, 1), *inner]), w, bias, attrs) for k in range(x.shape[0])]
        return n.b.emit("Concat", parts, {"axis": 0})[0]
    per, every = n.quant(n.tensor(1)).scale, [0, 1, 2, 3]
    if per.size == 1 and n.op == "CONV_2D":
        q, scale = symmetric(n.b, x, every)
        total = n.b.one("ConvInteger", q, w, None, None, **attrs)
    else:
        q, scale, offset = asymmetric(n.b, x, every)
        total = n.b.one("ConvInteger", q, w, reshape(n.b, offset, []), None, **attrs)
    return _hybrid_sums(n, total, scale, bias)


def _hybrid_sums(n: TflNode, total: Value, scale: Value, bias: Value | None) -> Value:
    """What sums of integers stand for, by the scale of each image and those of the weights"""
    per = n.quant(n.tensor(1)).scale
    weights = n.b.const(per.reshape([-1, 1, 1] if per.size > 1 else []), F32)
    y = n.b.one("Mul", n.b.one("Mul", n.b.one("Cast", total, to=F32), weights), scale)
    return y if bias is None else n.b.one("Add", y, reshape(n.b, bias, [-1, 1, 1]))


# -- transposed -------------------------------------------------------------------------------------
def transpose_conv(n: TflNode) -> Result:
    """Inputs: the output's shape, weights [out, h, w, in], x, bias"""
    w = n.x(1)
    out = n.ints(0, "the output's shape") if n.x(0).const is not None else list(n.outs[0].shape)
    if len(out) != 4 or w.type.rank != 4:
        n.fail(f"has the output shape {out} and weights of {w.type}")
    x = n.first(2)
    attrs = spread(n, x, w, out[1:3], [n.options.whole(2), n.options.whole(1)], n.options.whole(0, "b"))
    weights, bias = transpose(n.b, w, (3, 0, 1, 2)), n.x(3) if n.has(3) else None
    activation = n.options.whole(3, "b")
    if x.dtype is F32 and w.dtype is F32:
        return [Held(first=n.activate(n.b.one("ConvTranspose", x, weights, bias, **attrs), activation))]
    if x.dtype is F32 and w.dtype is I8:
        return [Held(first=n.activate(_hybrid_spread(n, x, weights, bias, attrs), activation))]
    _check_integers(n, x, w)
    d = sums_of(bias) if x.dtype is I16 else I32
    values = [centred(n, v, i, d) for v, i in ((x, 2), (weights, 1))]
    total = n.b.one("ConvTranspose", *values, None, **attrs)
    n.ins = [n.ins[2], n.ins[1], n.ins[0]]  # for the factors: x, weights
    return [Held(first=scaled(n, total, bias, activation, (-1, 1, 1)))]


def _hybrid_spread(n: TflNode, x: Value, w: Value, bias: Value | None, attrs: Attrs) -> Value:
    """The range of each image, with a zero point"""
    q, scale, offset = asymmetric(n.b, x, [1, 2, 3])
    left = n.b.one("Sub", *(n.b.one("Cast", v, to=I32) for v in (q, offset)))
    total = n.b.one("ConvTranspose", left, n.b.one("Cast", w, to=I32), None, **attrs)
    return _hybrid_sums(n, total, scale, bias)


def spread(n: TflNode, x: Value, w: Value, out: list[int], strides: list[int], padding: int) -> Attrs:
    """The window of a transposed convolution of weights [out, h, w, in] that gives images of the size `out`"""
    if min(strides) < 1 or padding not in (SAME, VALID):
        n.fail(f"has the strides {strides} and the padding {padding}")
    kernel = list(w.shape[1:3])
    full = [(d - 1) * s + k for d, s, k in zip(x.shape[2:], strides, kernel, strict=True)]
    totals = [0, 0]
    if padding == SAME:
        totals = [max((-(-o // s) - 1) * s + k - o, 0) for o, s, k in zip(out, strides, kernel, strict=True)]
    begin = [t // 2 for t in totals]
    end = [f - p - o for f, p, o in zip(full, begin, out, strict=True)]
    return {"kernel_shape": kernel, "strides": strides, "pads": begin + [max(e, 0) for e in end],
            "dilations": [1, 1], "group": 1, "output_padding": [max(-e, 0) for e in end]}


def centred(n: TflNode, v: Value, i: int, d: DType) -> Value:
    """v - its zero point, in `d`"""
    wide, zero = n.b.one("Cast", v, to=d), _zero(n, i, v)
    return wide if zero is None else n.b.one("Sub", wide, n.b.one("Cast", zero, to=d))


# -- matrices ---------------------------------------------------------------------------------------
def fully_connected(n: TflNode) -> Result:
    """x [..., k] times weights [n, k]"""
    x, w = n.x(0), n.x(1)
    if w.type.rank != 2 or not w.shape[1] or x.type.size % w.shape[1]:
        n.fail(f"multiplies {x.type} with weights of {w.type}")
    if n.options.whole(1, "b"):
        n.unsupported("a shuffled order of weights")
    rows = reshape(n.b, x, [x.type.size // w.shape[1], w.shape[1]])
    bias = n.x(2) if n.has(2) else None
    activation = n.options.whole(0, "b")
    y = _product(n, rows, w, bias, activation)
    keep = n.options.flag(2)
    return [reshape(n.b, y, [*x.shape[:-1], w.shape[0]] if keep else list(y.shape))]


def _product(n: TflNode, x: Value, w: Value, bias: Value | None, activation: int) -> Value:
    b, turned = n.b, transpose(n.b, w, (1, 0))
    if x.dtype is F32 and w.dtype is F32:
        y = b.one("MatMul", x, turned)
        return n.activate(y if bias is None else b.one("Add", y, reshape(b, bias, [-1])), activation)
    if x.dtype is F32 and w.dtype is I8:
        return n.activate(_hybrid_product(n, x, turned, bias), activation)
    _check_integers(n, x, w)
    if x.dtype is I16 and holds(turned, (0,), sums_of(bias)):
        total = b.one("Cast", b.one("MatMulInteger", x, turned, None, None), to=sums_of(bias))
    elif x.dtype is I16:
        total = b.one("MatMul", *(b.one("Cast", v, to=sums_of(bias)) for v in (x, turned)))
    else:
        total = b.one("MatMulInteger", x, turned, _zero(n, 0, x), _zero(n, 1, w))
    return scaled(n, total, bias, activation, (-1,))


def _hybrid_product(n: TflNode, x: Value, w: Value, bias: Value | None) -> Value:
    y = rows_times(n.b, x, w, n.quant(n.tensor(1)).scale, n.options.flag(3))
    return y if bias is None else n.b.one("Add", y, reshape(n.b, bias, [-1]))


READERS = {
    "CONV_2D": conv, "DEPTHWISE_CONV_2D": depthwise, "TRANSPOSE_CONV": transpose_conv,
    "FULLY_CONNECTED": fully_connected,
}  # fmt: skip
