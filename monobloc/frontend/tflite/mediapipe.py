"""Custom operators of MediaPipe's models.

Of the face mesh with attention: landmarks give a matrix that turns, scales and moves an eye or a mouth into a small
image, features are sampled by it, and what was found there is moved back. Only their second versions, which that
model has; matrices are [1, 4, 4] and move x and y only.
"""

from __future__ import annotations

import struct

import numpy as np

from monobloc.frontend.tflite.arithmetic import arc
from monobloc.frontend.tflite.convs import SAME, VALID, spread
from monobloc.frontend.tflite.flexbuffer import lists, numbers
from monobloc.frontend.tflite.node import Held, Result, TflNode
from monobloc.ir.graph import Value
from monobloc.ir.types import DType
from monobloc.ops.movement import slice_of, transpose
from monobloc.ops.shape import reshape

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


# -- the face mesh with attention ---------------------------------------------------------------------
def _options(n: TflNode, *names: str) -> list[float]:
    found = numbers(n.custom)
    if missing := [k for k in names if k not in found]:
        n.fail(f"has no option {', '.join(missing)}")
    return [float(found[k]) for k in names]


def _moves(n: TflNode, i: int) -> tuple[Value, Value]:
    """Of a matrix: what x and y are multiplied by, [2, 2] by rows, and what is added, [1, 2]"""
    m = n.x(i)
    if m.shape != (1, 4, 4) or m.dtype is not DType.F32:
        n.unsupported(f"{n.op} by a matrix of {m.type}")
    both = reshape(n.b, slice_of(n.b, m, [(0, 1, 1), (0, 1, 2), (0, 1, 4)]), [2, 4])
    times, plus = (slice_of(n.b, both, [(0, 1, 2), (at, 1, count)]) for at, count in ((0, 2), (3, 1)))
    return times, reshape(n.b, plus, [1, 2])


def _moved(n: TflNode, points: Value, times: Value, plus: Value) -> Value:
    return n.b.one("Add", n.b.one("MatMul", points, transpose(n.b, times, (1, 0))), plus)


def matrix_of_landmarks(n: TflNode) -> Result:
    """The box round some landmarks, turned so that the line between two of them has a given direction"""
    b, x = n.b, n.x(0)
    if x.type.rank != 3 or x.shape[0] != 1 or x.shape[2] != 3 or x.dtype is not DType.F32:
        n.unsupported(f"{n.op} of {x.type}")
    left, right, target, sx, sy, height, width = _options(
        n, "left_rotation_idx", "right_rotation_idx", "target_rotation_radians", "scale_x", "scale_y", "output_height",
        "output_width")
    some = lists(n.custom).get("subset_idxs", [])
    if not some or any(not 0 <= k < x.shape[1] for k in (*some, left, right)) or min(height, width, sx, sy) <= 0:
        n.fail(f"chooses {len(some)} landmarks of {x.shape[1]} for an image of {height:g} x {width:g}")

    def real(v: float) -> Value:
        return b.const(v, DType.F32)

    def column(rows: Value, k: int) -> Value:
        return slice_of(b, rows, [(0, 1, rows.shape[0]), (k, 1, 1)])

    rows = b.one("Gather", reshape(b, x, list(x.shape[1:])), b.const(np.array([int(left), int(right), *some])), axis=0)
    ends = [slice_of(b, rows, [(k, 1, 1), (0, 1, 2)]) for k in (0, 1)]
    line, points = b.one("Sub", ends[1], ends[0]), slice_of(b, rows, [(2, 1, len(some)), (0, 1, 2)])
    angle = b.one("Sub", real(target), arc(b, column(line, 1), column(line, 0)))
    cos, sin = b.one("Cos", angle), b.one("Sin", angle)  # [1, 1], as all that follows
    back = b.one("Neg", sin)
    turn = b.emit("Concat", [cos, sin, back, cos], {"axis": 0})[0]  # its transpose turns by the angle
    turned = b.one("MatMul", points, reshape(b, turn, [2, 2]))
    high, low = (b.emit(op, [turned], {"axes": [0], "keepdims": 1})[0] for op in ("ReduceMax", "ReduceMin"))
    middle = b.one("Mul", b.one("Add", high, low), real(0.5))
    cx, cy = (column(b.one("MatMul", middle, transpose(b, reshape(b, turn, [2, 2]), (1, 0))), k) for k in (0, 1))
    size = b.one("Mul", b.one("Sub", high, low), b.const(np.array([[sx / width, sy / height]]), DType.F32))
    wide, tall = column(size, 0), column(size, 1)
    parts = [[b.one("Mul", cos, wide), b.one("Mul", sin, tall)], [b.one("Mul", back, wide), b.one("Mul", cos, tall)]]
    zero, one = (b.const(np.array([[v]]), DType.F32) for v in (0, 1))
    out: list[Value] = []
    for row, center in zip(parts, (cx, cy), strict=True):
        shifts = [b.one("Mul", v, real(-d / 2)) for v, d in zip(row, (width, height), strict=True)]
        out += [*row, zero, b.one("Add", center, b.one("Add", *shifts))]
    out += [zero, zero, one, zero, zero, zero, zero, one]
    return [reshape(b, b.emit("Concat", out, {"axis": 0})[0], [1, 4, 4])]


def moved_landmarks(n: TflNode) -> Result:
    """x and y of all landmarks by a matrix; z stays"""
    b, x = n.b, n.x(0)
    if x.type.rank != 3 or x.shape[0] != 1 or x.shape[2] not in (2, 3) or x.dtype is not DType.F32 or n.custom:
        n.unsupported(f"{n.op} of {x.type}" + (" with options" if n.custom else ""))
    count, rows = x.shape[1], reshape(b, x, list(x.shape[1:]))
    y = _moved(n, slice_of(b, rows, [(0, 1, count), (0, 1, 2)]), *_moves(n, 1))
    if x.shape[2] == 3:
        y = b.emit("Concat", [y, slice_of(b, rows, [(0, 1, count), (2, 1, 1)])], {"axis": 1})[0]
    return [reshape(b, y, list(x.shape))]


def sampled(n: TflNode) -> Result:
    """An image whose pixels' middles are moved by a matrix into another, and read there; 0 where they leave it"""
    b, x = n.b, n.first(0)
    height, width = (int(v) for v in _options(n, "output_height", "output_width"))
    top = [x.shape[3] - 1, x.shape[2] - 1]
    if x.shape[0] != 1 or x.dtype is not DType.F32 or min(*top, height, width) < 1 or height * width > 1 << 24:
        n.unsupported(f"{n.op} of {x.type} to {height} x {width}")
    times, plus = _moves(n, 1)
    middle = b.const(np.stack(np.meshgrid(np.arange(width), np.arange(height)), -1).reshape(-1, 2) + 0.5, DType.F32)
    at = b.one("Sub", _moved(n, middle, times, plus), b.const(0.5, DType.F32))
    grid = b.one("Sub", b.one("Mul", at, b.const(np.array([[2 / k for k in top]]), DType.F32)), b.const(1, DType.F32))
    y = b.one("GridSample", x, reshape(b, grid, [1, height, width, 2]), mode="linear", padding_mode="border",
              align_corners=1)
    inside = b.one("And", b.one("Not", b.one("Less", at, b.const(0, DType.F32))),
                   b.one("Not", b.one("Greater", at, b.const(np.array([top]), DType.F32))))
    cols = [slice_of(b, inside, [(0, 1, height * width), (k, 1, 1)]) for k in (0, 1)]
    both = reshape(b, b.one("And", *cols), [1, 1, height, width])
    return [Held(first=b.one("Where", both, y, b.const(0, DType.F32)))]


READERS = {
    "Convolution2DTransposeBias": transposed_with_bias, "Landmarks2TransformMatrix": matrix_of_landmarks,
    "TransformLandmarks": moved_landmarks, "TransformTensorBilinear": sampled,
}  # fmt: skip
