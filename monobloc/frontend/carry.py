"""What goes round a loop in a size that data decide.

A loop's carried values lie in one place for all iterations. One that grows (a list of tokens, one more
in each iteration) has room for what it starts with and all that iterations add; how much of it is there is
carried beside it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from monobloc.frontend.extents import Extents, Tensor, value_of
from monobloc.frontend.limits import Limits
from monobloc.ir.graph import Value
from monobloc.ir.types import DType, TensorType
from monobloc.ops.build import Builder
from monobloc.ops.control import OpenRegion
from monobloc.ops.sized import Ragged

Rooms = Mapping[int, int]  # by axes whose size data decide


def rooms_of(t: Tensor) -> dict[int, int]:
    return {a: t.value.shape[a] for a in t.counts} if isinstance(t, Ragged) else {}


def grown(before: Sequence[Tensor], after: Sequence[Any]) -> list[dict[int, int]]:
    """By how much the room of each gets larger along axes where its size changes; nothing where all stays, or where
    no room can help"""
    out = []
    for a, z in zip(before, after, strict=False):
        x, y, have = value_of(a), value_of(z), rooms_of(a)
        alike = x.dtype is y.dtype and x.type.rank == y.type.rank
        axes = {k for k in range(x.type.rank) if alike and (x.shape[k] != y.shape[k] or k in rooms_of(z))}
        axes -= {k for k in have if alike and y.shape[k] <= x.shape[k]}
        out.append({k: y.shape[k] - x.shape[k] for k in sorted(axes)})
    return out


def roomy(t: Tensor, more: Rooms, iterations: int) -> dict[int, int]:
    """Room for what a value starts with and what is added in so many iterations"""
    shape = value_of(t).shape
    return {**rooms_of(t), **{a: shape[a] + max(g, 0) * iterations for a, g in more.items()}}


def inside(region: OpenRegion, limits: Limits, t: Tensor, rooms: Rooms) -> Tensor:
    """What an iteration sees of it"""
    v = value_of(t)
    shape = tuple(rooms.get(a, d) for a, d in enumerate(v.shape))
    x = region.add_input(f"{v.name}.now", replace(v.type.with_layout(None), shape=shape))
    counts = {a: region.add_input(f"{v.name}.count{a}", TensorType(DType.I64, ())) for a in sorted(rooms)}
    return Ragged(x, {a: limits.size(c, rooms[a]) for a, c in counts.items()}) if rooms else x


def parts(b: Builder, limits: Limits, t: Tensor, rooms: Rooms) -> list[Value]:
    """A value in this room, and how much of it is there along each axis: a run that has more ends"""
    e, v = Extents(b, None, limits), value_of(t)
    sizes = e.sizes(t)
    for a, room in rooms.items():
        v = e.fit(v, a, room)
    return [v, *(e.bounded(sizes[a], rooms[a]) for a in sorted(rooms))]


def whole(made: Iterator[Any], rooms: Rooms) -> Tensor:
    """The value that these parts are"""
    v = next(made)
    return Ragged(v, {a: next(made) for a in sorted(rooms)}) if rooms else v
