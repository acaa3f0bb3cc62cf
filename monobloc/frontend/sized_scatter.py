"""Writes at places of which data decide how many there are.

What is not there is written too, behind the end: into one entry more that the tensor is given, and that is cut off
again. A place outside of the tensor is outside of that, so it ends the run as ever.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from monobloc.frontend.extents import Extents, value_of
from monobloc.frontend.node import OnnxNode
from monobloc.frontend.sized_folds import Found
from monobloc.ir.graph import Value
from monobloc.ir.types import DType
from monobloc.ops import OpDef
from monobloc.ops.movement import slice_of
from monobloc.ops.shape import axis_of
from monobloc.ops.sized import Ragged


def scatter_elements(e: Extents, op: OpDef, n: OnnxNode) -> Found:
    """Places along one axis. Where the tensor's own size is data, it keeps it, and those are places in it."""
    x, at, updates = n.inputs[:3]
    sizes, v = e.sizes(x), value_of(x)  # type: ignore[arg-type]
    axis = axis_of(n.attrs.get("axis", 0), v.type.rank, n.op)
    index, values = _together(e, at, updates, range(v.type.rank))
    room = v.shape[axis]
    index = _behind(e, index, sizes[axis], room)
    for a, count in _counts(e, at, updates, range(v.type.rank)).items():
        index = e.one("Where", _there(e, index, a, count), index, e.const(room))
    return [e.tensor(_written(e, op, n, v, axis, index, values), sizes)]


def scatter_nd(e: Extents, op: OpDef, n: OnnxNode) -> Found:
    """Tuples of indices: what is not there has a first one behind the end"""
    x, at, updates = n.inputs[:3]
    sizes, v = e.sizes(x), value_of(x)  # type: ignore[arg-type]
    last = value_of(at).type.rank - 1  # type: ignore[arg-type]
    if any(a >= last for a in _given(at, updates)) or isinstance(x, Ragged) and set(x.counts) != {0}:
        return None
    counts = _counts(e, at, updates, range(last))
    index, values = _together(e, at, updates, range(last))
    first = _behind(e, _part(e, index, last, 0, 1), sizes[0], v.shape[0])
    for a, count in counts.items():
        first = e.one("Where", _there(e, first, a, count), first, e.const(v.shape[0]))
    rest = [_part(e, e.size(index), last, 1, index.shape[-1] - 1)] if index.shape[-1] > 1 else []
    index = e.b.emit("Concat", [first, *rest], {"axis": last})[0] if rest else first
    return [e.tensor(_written(e, op, n, v, 0, index, values), sizes)]


def _counts(e: Extents, at: Any, updates: Any, axes: Sequence[int]) -> dict[int, Value]:
    """How many there are of places, and so of what is written, along axes where data decide that"""
    given = _given(at, updates)
    sizes = {a: (e.sizes(at)[a], e.sizes(updates)[a]) for a in axes if a in given}
    return {a: s[0] if e.same(*s) else e.size(e.b.one("SameSize", *s)) for a, s in sizes.items()}


def _given(*tensors: Any) -> set[int]:
    """The axes along which data decide"""
    return {a for t in tensors if isinstance(t, Ragged) for a in t.counts}


def _together(e: Extents, at: Any, updates: Any, axes: Sequence[int]) -> tuple[Value, Value]:
    """Places and what is written, in the same room"""
    a, u = value_of(at), value_of(updates)
    for k in axes:
        room = min(a.shape[k], u.shape[k])
        a, u = (v if v.shape[k] == room else e.fit(v, k, room) for v in (a, u))
    return a, u


def _there(e: Extents, v: Value, axis: int, count: Value) -> Value:
    return e.one("Less", e.iota(v.shape[axis], axis, v.type.rank), count)


def _part(e: Extents, v: Value, axis: int, first: int, count: int) -> Value:
    return slice_of(e.b, v, [(first, 1, count) if k == axis else (0, 1, d) for k, d in enumerate(v.shape)])


def _behind(e: Extents, at: Value, size: Value, room: int) -> Value:
    """Places counted from the front; those outside of the size are outside of the room and one entry more, too"""
    at = e.cast(at, DType.I64)
    at = e.one("Where", e.one("Less", at, e.const(0)), e.one("Add", at, size), at)
    inside = e.one("And", e.one("Less", at, size), e.one("GreaterOrEqual", at, e.const(0)))
    return e.one("Where", inside, at, e.const(room + 1))


def _written(e: Extents, op: OpDef, n: OnnxNode, x: Value, axis: int, at: Value, values: Value) -> Value:
    longer = e.fit(x, axis, x.shape[axis] + 1)
    made = op.from_onnx(e.b, replace(n, inputs=[longer, at, values]))[0]
    assert isinstance(made, Value)
    return _part(e, made, axis, 0, x.shape[axis])


SCATTERS = {"ScatterElements": scatter_elements, "ScatterND": scatter_nd}
