"""Boxes of which data decide how many there are: which of them stay, and what lies in them.

A box that is not there has the lowest score there is and no score reaches, so it is never chosen; as a region it is
empty and lies in the first picture.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from monobloc.frontend.extents import Extents
from monobloc.frontend.node import OnnxNode
from monobloc.frontend.sized_folds import Found
from monobloc.ir.types import DType
from monobloc.ops import OpDef
from monobloc.ops.sized import Ragged


def suppression(e: Extents, op: OpDef, n: OnnxNode) -> Found:
    """Boxes and their scores, as many of both"""
    boxes: Any = n.inputs[0]
    scores: Any = n.inputs[1]
    counts = [(v.counts, axis) for v, axis in ((boxes, 1), (scores, 2)) if isinstance(v, Ragged)]
    if any(isinstance(v, Ragged) for v in n.inputs[2:]) or any(set(c) != {axis} for c, axis in counts):
        return None
    size, other = e.sizes(boxes)[1], e.sizes(scores)[2]
    if not e.same(size, other):
        size = e.size(e.b.one("SameSize", size, other))
    room = min(e.value(boxes).shape[1], e.value(scores).shape[2])
    v, s = e.fit(e.value(boxes), 1, room), e.fit(e.value(scores), 2, room)
    least = e.b.const(np.float32(-np.inf))
    s = e.one("Max", s, e.b.const(np.finfo(np.float32).min, DType.F32))  # those that are there are above it
    s = e.one("Where", e.one("Less", e.iota(room, 2, 3), size), s, least)
    inputs = [v, s, *n.inputs[2:4], *[None] * (4 - len(n.inputs)), n.input(4) or least]
    return op.from_onnx(e.b, replace(n, inputs=inputs))


def regions(e: Extents, op: OpDef, n: OnnxNode) -> Found:
    """One result per region"""
    given: list[Any] = list(n.inputs[1:])
    counts = [v.counts for v in given if isinstance(v, Ragged)]
    if isinstance(n.inputs[0], Ragged) or any(set(c) != {0} or not e.same(c[0], counts[0][0]) for c in counts):
        return None
    made = op.from_onnx(e.b, replace(n, inputs=[n.inputs[0], *(e.masked(v, 0) for v in given)]))[0]
    return [None if made is None else e.tensor(made, {0: counts[0][0]})]


REGIONS = {"NonMaxSuppression": suppression, "RoiAlign": regions, "MaxRoiPool": regions}
