"""Choices of boxes: NON_MAX_SUPPRESSION_V4 and V5, and the custom operator TFLite_Detection_PostProcess."""

from __future__ import annotations

import numpy as np

from monobloc.frontend.tflite.arithmetic import minus
from monobloc.frontend.tflite.flexbuffer import numbers
from monobloc.frontend.tflite.node import Result, TflNode
from monobloc.ir.graph import Value
from monobloc.ir.types import DType
from monobloc.ops.movement import slice_of
from monobloc.ops.shape import reshape

F32 = DType.F32
MOST = 1 << 16


def suppression(n: TflNode) -> Result:
    most = n.ints(2, "the number of boxes")[0]
    if not 0 <= most <= MOST:
        n.fail(f"chooses {most} boxes")
    given = [reshape(n.b, n.x(k), []) for k in (3, 4)]
    sigma = reshape(n.b, n.x(5), []) if n.op.endswith("5") else n.b.const(0, F32)
    at, scores, found = n.b.emit("TflSuppress", [n.x(0), n.x(1), *given, sigma], {"most": most}, 3)
    return [at, scores, found] if n.op.endswith("5") else [at, found]


def detection(n: TflNode) -> Result:
    """Boxes are given as what they differ by from anchors; both are [y, x, height, width]."""
    o = numbers(n.custom)
    needed = ("max_detections", "max_classes_per_detection", "num_classes", "y_scale", "x_scale", "h_scale", "w_scale")
    if missing := [k for k in needed if k not in o]:
        n.fail(f"has no option {', '.join(missing)}")
    most, per, classes = (int(o[k]) for k in needed[:3])
    codes, scores, anchors = (_real(n, k) for k in range(3))
    if codes.type.rank != 3 or codes.shape[0] != 1 or scores.type.rank != 3 or anchors.shape != (codes.shape[1], 4):
        n.unsupported(f"{n.op} of {codes.type} and {scores.type} with anchors of {anchors.type}")
    skip = scores.shape[2] - classes
    if not 0 < most <= MOST or not 0 < per <= classes or skip not in (0, 1) or scores.shape[1] != codes.shape[1]:
        n.fail(f"chooses {most} boxes of {per} classes each, of {classes} classes of {scores.type}")
    boxes = _decoded(n, reshape(n.b, codes, [codes.shape[1], 4]), anchors, [float(o[k]) for k in needed[3:]])
    attrs = {"most": most, "per": per, "skip": skip, "regular": int(bool(o.get("use_regular_nms", 0))),
             "least": float(o.get("nms_score_threshold", 0)), "limit": float(o.get("nms_iou_threshold", 0)),
             "each": min(max(int(o.get("detections_per_class", 100)), 1), codes.shape[1])}
    return n.b.emit("TflDetect", [boxes, reshape(n.b, scores, list(scores.shape[1:]))], attrs, 4)


def _real(n: TflNode, i: int) -> Value:
    x = n.x(i)
    if not n.quantized(i):
        return x
    s, z = n.scale(n.tensor(i))
    return n.b.one("Mul", n.b.one("Cast", minus(n, x, z), to=F32), n.b.const(s, F32))


def _decoded(n: TflNode, codes: Value, anchors: Value, scales: list[float]) -> Value:
    b, count = n.b, codes.shape[0]
    scaled = b.one("Div", codes, b.const(np.array(scales), F32))

    def half(v: Value, k: int) -> Value:
        return slice_of(b, v, [(0, 1, count), (2 * k, 1, 2)])

    middle = b.one("Add", b.one("Mul", half(scaled, 0), half(anchors, 1)), half(anchors, 0))
    size = b.one("Mul", b.one("Mul", b.one("Exp", half(scaled, 1)), b.const(0.5, F32)), half(anchors, 1))
    return b.emit("Concat", [b.one("Sub", middle, size), b.one("Add", middle, size)], {"axis": 1})[0]


READERS = {
    "NON_MAX_SUPPRESSION_V4": suppression, "NON_MAX_SUPPRESSION_V5": suppression,
    "TFLite_Detection_PostProcess": detection,
}  # fmt: skip
