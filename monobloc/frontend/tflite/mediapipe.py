"""Custom operators of MediaPipe's models: their options are plain C structures."""

from __future__ import annotations

import struct

from monobloc.frontend.tflite.convs import SAME, VALID, spread
from monobloc.frontend.tflite.node import Held, Result, TflNode
from monobloc.ir.types import DType
from monobloc.ops.movement import transpose

OPTIONS = struct.Struct("<3i")  # TfLiteTransposeConvParams: the padding, strides of columns and rows
PADDINGS = {1: SAME, 2: VALID}  # kTfLitePaddingSame, kTfLitePaddingValid


def transposed_with_bias(n: TflNode) -> Result:
    """Inputs: x, weights [out, h, w, in], bias; the output's size follows from the padding."""
    if len(n.custom) < OPTIONS.size:
        n.fail(f"has options of {len(n.custom)} bytes, which must be at least {OPTIONS.size}")
    padding, sw, sh = OPTIONS.unpack(n.custom[: OPTIONS.size])
    x, w, bias = n.first(0), n.x(1), n.x(2)
    if w.type.rank != 4 or x.dtype is not DType.F32 or w.dtype is not DType.F32 or w.shape[3] != x.shape[1]:
        n.unsupported(f"{n.op} of {x.type} with weights of {w.type}")
    if padding not in PADDINGS or min(sw, sh) < 1:
        n.fail(f"has the padding {padding} and the strides {[sh, sw]}")
    more = [k - s if PADDINGS[padding] == VALID else 0 for k, s in zip(w.shape[1:3], (sh, sw), strict=True)]
    out = [d * s + max(m, 0) for d, s, m in zip(x.shape[2:], (sh, sw), more, strict=True)]
    attrs = spread(n, x, w, out, [sh, sw], PADDINGS[padding])
    return [Held(first=n.b.one("ConvTranspose", x, transpose(n.b, w, (3, 0, 1, 2)), bias, **attrs))]


READERS = {"Convolution2DTransposeBias": transposed_with_bias}
