"""BATCH_MATMUL and the convolutions over three axes.

Products of two tensors of the run: floats, integers of 8 and 16 bits, and floats with int8 (`hybrid`), whose rows are
quantized while they run.
"""

from __future__ import annotations

import numpy as np

from monobloc.frontend.tflite.convs import SAME, VALID, _zero, centred, scaled
from monobloc.frontend.tflite.hybrid import rows_times
from monobloc.frontend.tflite.node import Result, TflNode
from monobloc.frontend.tflite.scaling import NONE, multiplier, reduced
from monobloc.ir.graph import Value
from monobloc.ir.types import DType
from monobloc.ops.movement import transpose
from monobloc.ops.window import Attrs, extent, split_pads

F32, I8, I16, I32, I64 = DType.F32, DType.I8, DType.I16, DType.I32, DType.I64


def batch_matmul(n: TflNode) -> Result:
    x, y = n.x(0), n.x(1)
    if min(x.type.rank, y.type.rank) < 2:
        n.fail(f"multiplies {x.type} and {y.type}")
    x, y = (transpose(n.b, v, [*range(v.type.rank - 2), v.type.rank - 1, v.type.rank - 2]) if n.options.flag(k) else v
            for k, v in enumerate((x, y)))
    kinds = (x.dtype, y.dtype, n.out_dtype())
    if kinds == (F32, F32, F32):
        return [n.b.one("MatMul", x, y)]
    if kinds == (F32, I8, F32):
        return [rows_times(n.b, x, y, n.quant(n.tensor(1)).scale, n.options.flag(2))]
    if kinds == (I8, I8, I32):
        return [n.b.one("MatMulInteger", x, y, None, None)]
    if kinds == (I8, I8, I8):
        total = n.b.one("MatMulInteger", x, y, _zero(n, 0, x), _zero(n, 1, y))
        return [_rescaled(n, total)]
    if kinds in ((I16, I16, I16), (I16, I8, I16)):
        return [_rescaled(n, n.b.one("MatMul", *(n.b.one("Cast", v, to=I64) for v in (x, y))))]
    n.unsupported(f"{n.op} of {x.dtype.value} and {y.dtype.value} to {n.out_dtype().value}")


def _rescaled(n: TflNode, total: Value) -> Value:
    (sx, _), (sy, _), (s, z) = (n.scale(t) for t in (n.tensor(0), n.tensor(1), n.outs[0]))
    m, shift = multiplier(float(np.float64(np.float32(sx * sy)) / np.float64(s)))
    m = int(reduced(np.array(m))) if total.dtype is I64 else m
    given = {"zero_in": 0, "left": 0, "zero": z, "to": n.out_dtype(), **n.clamp(NONE)}
    return n.b.emit("TflRescale", [total, n.b.const(m, I32), n.b.const(shift, I32)], given)[0]


# -- three axes ---------------------------------------------------------------------------------------
def _window(n: TflNode, spatial: tuple[int, ...], kernel: tuple[int, ...]) -> tuple[Attrs, list[int]]:
    """The attributes without pads, and the total padding per axis of `same`"""
    padding = n.options.whole(0, "b")
    strides = [n.options.whole(k) for k in (1, 3, 2)]
    dilations = [n.options.whole(k, default=1) for k in (5, 7, 6)]
    if min(*strides, *dilations, *kernel) < 1 or padding not in (SAME, VALID):
        n.fail(f"has the strides {strides}, dilations {dilations}, kernel {list(kernel)} and padding {padding}")
    totals = [0, 0, 0]
    if padding == SAME:
        totals = [max((-(-d // s) - 1) * s + extent(k, r) - d, 0)
                  for d, s, k, r in zip(spatial, strides, kernel, dilations, strict=True)]
    return {"kernel_shape": list(kernel), "strides": strides, "dilations": dilations, "group": 1}, totals


FIRST, LAST = (0, 4, 1, 2, 3), (0, 2, 3, 4, 1)  # of channels, among five axes


def conv_3d(n: TflNode) -> Result:
    """Weights [d, h, w, in, out]"""
    x, w = transpose(n.b, n.x(0), FIRST), n.x(1)
    attrs, totals = _window(n, x.shape[2:], w.shape[:3])
    attrs["pads"] = split_pads(totals, "SAME_UPPER")
    return _finished(n, "Conv", x, transpose(n.b, w, (4, 3, 0, 1, 2)), attrs, 0, 1)


def conv_3d_transpose(n: TflNode) -> Result:
    """Inputs: the result's shape, weights [d, h, w, out, in], x"""
    w, x, out = n.x(1), transpose(n.b, n.x(2), FIRST), n.ints(0, "the result's shape")
    if len(out) != 5:
        n.fail(f"has the result's shape {out}")
    attrs, totals = _window(n, tuple(out[1:4]), w.shape[:3])
    begin = [t // 2 for t in totals]
    full = [(d - 1) * s + extent(k, r) for d, s, k, r in
            zip(x.shape[2:], attrs["strides"], w.shape[:3], attrs["dilations"], strict=True)]
    end = [f - p - o for f, p, o in zip(full, begin, out[1:4], strict=True)]
    attrs |= {"pads": begin + [max(e, 0) for e in end], "output_padding": [max(-e, 0) for e in end]}
    return _finished(n, "ConvTranspose", x, transpose(n.b, w, (4, 3, 0, 1, 2)), attrs, 2, 1)


def _finished(n: TflNode, op: str, x: Value, w: Value, attrs: Attrs, ix: int, iw: int) -> Result:
    bias, activation = n.x(ix + 1 if ix else 2) if n.has(ix + 1 if ix else 2) else None, n.options.whole(4, "b")
    if x.dtype is F32 and w.dtype is F32:
        y = n.activate(n.b.one(op, x, w, bias, **attrs), activation)
        return [transpose(n.b, y, LAST)]
    if (x.dtype, w.dtype, n.out_dtype()) not in ((I8, I8, I8), (I16, I8, I16)):
        n.unsupported(f"{n.op} of {x.dtype.value} with weights of {w.dtype.value}")
    total = n.b.one(op, *(centred(n, v, i, I64 if x.dtype is I16 else I32) for v, i in ((x, ix), (w, iw))), None,
                    **attrs)
    n.ins = [n.ins[ix], n.ins[iw]]  # for the factors
    return [transpose(n.b, scaled(n, total, bias, activation, (-1, 1, 1, 1)), LAST)]


READERS = {"BATCH_MATMUL": batch_matmul, "CONV_3D": conv_3d, "CONV_3D_TRANSPOSE": conv_3d_transpose}
