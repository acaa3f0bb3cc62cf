"""Boxes: non-maximum suppression."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from monobloc.ir.graph import Value
from monobloc.ops import OpDef


class NonMaxSuppression(OpDef):
    """Vanishes: how many boxes stay is data, so its inputs must be constant"""

    name = "NonMaxSuppression"

    def from_onnx(self, b: Any, n: Any) -> Sequence[Value | None]:
        limit = int(np.ravel(n.const_or(2, 0, "max_output_boxes_per_class"))[0])
        overlap = float(np.ravel(n.const_or(3, 0.0, "iou_threshold"))[0])
        least = n.const_or(4, None, "score_threshold")
        boxes, scores = n.const(0, "boxes"), n.const(1, "scores")
        if boxes.ndim != 3 or scores.ndim != 3 or boxes.shape[2] != 4 or scores.shape[::2] != boxes.shape[:2]:
            n.fail(f"needs boxes [n,b,4] and scores [n,c,b], got {list(boxes.shape)} and {list(scores.shape)}")
        rows = []
        for k, image in enumerate(corners(boxes, bool(n.attrs.get("center_point_box", 0)))):
            for c, s in enumerate(scores[k]):
                some = np.arange(len(s)) if least is None else np.flatnonzero(s > np.ravel(least)[0])
                order = some[np.argsort(-s[some], kind="stable")]
                rows += [(k, c, i) for i in suppressed(image, order, limit, overlap)]
        return [b.const(np.array(rows, np.int64).reshape(-1, 3))]


def corners(boxes: np.ndarray, centers: bool) -> np.ndarray:
    """[..., (low y, low x, high y, high x)] of both ways to give a box"""
    if centers:
        at, half = boxes[..., 1::-1], boxes[..., 3:1:-1] / 2
        return np.concatenate([at - half, at + half], -1)
    a, z = boxes[..., :2], boxes[..., 2:]
    return np.concatenate([np.minimum(a, z), np.maximum(a, z)], -1)


def suppressed(boxes: np.ndarray, order: np.ndarray, limit: int, overlap: float) -> list[int]:
    """Greedily from the best score on: a box stays unless it overlaps one that stayed."""
    area = np.prod(boxes[:, 2:] - boxes[:, :2], axis=1)
    stay: list[int] = []
    for i in order:
        if len(stay) >= limit:
            break
        size = np.minimum(boxes[i, 2:], boxes[stay, 2:]) - np.maximum(boxes[i, :2], boxes[stay, :2])
        shared = np.where((size > 0).all(axis=1), np.prod(size, axis=1), 0)
        union = area[i] + area[stay] - shared
        sound = (shared > 0) & (area[i] > 0) & (area[stay] > 0) & (union > 0)
        if not (sound & (shared / np.where(union > 0, union, 1) > overlap)).any():
            stay.append(int(i))
    return stay
