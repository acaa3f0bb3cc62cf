"""Choices from tensors of which data decide how long they are: the entries that a condition keeps, and each value once.

An entry that is not there is not kept; among values it stands for the first one once more, which adds none.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from monobloc.frontend.extents import Extents
from monobloc.frontend.node import OnnxNode
from monobloc.frontend.sized_folds import Found
from monobloc.ops import OpDef
from monobloc.ops.movement import slice_of
from monobloc.ops.shape import axis_of
from monobloc.ops.sized import Ragged


def compress(e: Extents, op: OpDef, n: OnnxNode) -> Found:
    """Either of the two may be as long as data say"""
    x: Any = n.inputs[0]
    keep: Any = n.inputs[1]
    v, counts = e.value(x), dict(x.counts) if isinstance(x, Ragged) else {}
    if "axis" not in n.attrs and counts and v.type.rank > 1:
        return None
    axis = axis_of(n.attrs.get("axis", 0), v.type.rank, n.op)
    room = v.shape[axis] if "axis" in n.attrs else v.type.size
    kept = e.masked(keep, False)
    kept = e.fit(kept, 0, room) if kept.shape[0] > room else kept
    if axis in counts:
        kept = e.one("And", kept, e.one("Less", e.iota(kept.shape[0]), counts[axis]))
    found: Any = op.from_onnx(e.b, replace(n, inputs=[v, kept]))[0]
    return [e.tensor(e.value(found), {**counts, **(found.counts if isinstance(found, Ragged) else {})})]


def unique(e: Extents, op: OpDef, n: OnnxNode) -> Found:
    """Of a list, or of slices along an axis, in which zeros are where nothing is: as many in each"""
    x: Any = n.inputs[0]
    rank = x.value.type.rank
    axis = axis_of(n.attrs.get("axis", 0), rank, n.op)
    if "axis" not in n.attrs and rank > 1 or not x.value.type.size:
        return None
    others = {a: c for a, c in x.counts.items() if a != axis}
    v, size = e.masked(x, 0, list(others)), e.sizes(x)[axis]
    if axis in x.counts:
        first = slice_of(e.b, v, [(0, 1, 1 if a == axis else d) for a, d in enumerate(v.shape)])
        v = e.one("Where", e.there(x, axis), v, first)
    made: list[Any] = list(op.from_onnx(e.b, replace(n, inputs=[v])))
    count = e.min(made[0].counts[axis], size)  # of nothing it is nothing
    if len(made) == 4 and axis in x.counts:  # the first value's number without those that stand for it
        first = slice_of(e.b, made[2], [(0, 1, 1)])
        room = v.shape[axis]
        more = e.one("Where", e.one("Equal", e.iota(room), first), e.sub(e.const(room), size), e.const(0))
        made[3] = Ragged(e.one("Sub", made[3].value, more), made[3].counts)
    whole = e.tensor(e.value(made[0]), {**others, axis: count})
    return [whole, *(e.tensor(e.value(t), {0: size if k == 2 else count}) for k, t in enumerate(made[1:], 1))]


CHOICES = {"Compress": compress, "Unique": unique}
