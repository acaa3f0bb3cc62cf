"""Operators that decide sizes, where those sizes are data: Slice, Split, Range, Expand, Reshape, Tile, Pad, ...

Each gives a tensor with room for the most and says how much of it is there (`ops.sized.Ragged`). How much that is
for a Slice, a Split or a Reshape follows from what they read; for the others from intervals of the numbers that
decide it, or from what the user says of these (`Limits`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from monobloc.frontend.extents import Extents, Tensor
from monobloc.frontend.limits import Limits
from monobloc.frontend.node import OnnxNode
from monobloc.frontend.sized_resize import resize
from monobloc.ir.graph import Value
from monobloc.ir.symbolic import whole
from monobloc.ir.types import DType
from monobloc.ops.build import Builder
from monobloc.ops.movement import PAD_MODES, slice_of, slice_range
from monobloc.ops.shape import axes_of, axis_of, reshape
from monobloc.ops.sized import Ragged

Result = Sequence[Tensor | None]
FAR = (1 << 63) - 1
MOST_SPREAD = 1 << 20  # elements of a tensor of which several sizes are bounded by how many there are in all


@dataclass(frozen=True)
class Reader:
    """How a node is read some of whose operands at `places` (or whose tensor) are data."""

    places: Sequence[int]
    read: Callable[[Extents, OnnxNode], Result | None]


def sized_shape(b: Builder, n: OnnxNode, limits: Limits) -> Result | None:
    """The outputs of a node whose result has sizes that are data; None where it has none"""
    found = READERS.get(n.op) if n.domain == "" else None
    if found is None:
        return None
    given: Sequence[Any] = n.inputs
    ragged = any(isinstance(v, Ragged) for v in given)
    if not ragged and not any(isinstance(v, Value) and v.const is None for k in found.places for v in given[k: k + 1]):
        return None
    if any(isinstance(v, (Value, Ragged)) and v.dtype is DType.CHAR for v in given):
        return None
    return found.read(Extents(b, n, limits), n)


def _elements(e: Extents, n: OnnxNode, where: str | int) -> list[Value] | None:
    """Integers of an attribute or an input; None where they are absent"""
    if isinstance(where, str):
        found = n.ints(where, None)
        return None if found is None else [e.const(k) for k in found]
    v: Any = n.input(where)
    if v is None:
        return None
    if not isinstance(v, Value):
        n.unsupported(f"input {where} of {v.type}")
    return e.elements(v)


def _tensor(n: OnnxNode, k: int = 0) -> Any:
    return n.inputs[k]


# -- Slice and Split -----------------------------------------------------------------------------------
def _slice(e: Extents, n: OnnxNode) -> Result:
    places = ("starts", "ends", "axes", "steps") if n.opset < 10 else (1, 2, 3, 4)
    starts, ends, axes, steps = (_elements(e, n, k) for k in places)
    x, rank = _tensor(n), e.value(_tensor(n)).type.rank
    if starts is None or ends is None:
        n.fail("needs starts and ends")
    steps = steps or [e.const(1)] * len(starts)
    axes = axes or [e.const(k) for k in range(len(starts))]
    if not len(starts) == len(ends) == len(axes) == len(steps):
        n.fail(f"has {len(starts)} starts, {len(ends)} ends, {len(axes)} axes and {len(steps)} steps")
    for axis, what in _per_axis(e, n, axes, list(zip(starts, ends, steps, strict=True)), rank):
        x = sliced(e, x, axis, *what)
    return [x]


def _per_axis(
    e: Extents, n: OnnxNode, axes: Sequence[Value], what: Sequence[tuple[Value, ...]], rank: int
) -> list[tuple[int, tuple[Value, ...]]]:
    """What is asked for along each axis; which axes those are may be data, too"""
    if all(a.const is not None for a in axes):
        places = axes_of([e.known(a) or 0 for a in axes], rank, n.op)
        return list(zip(places, what, strict=True))
    axes = [e.bounded(a, rank - 1, -rank) for a in axes]
    out = []
    for k in range(rank):
        chosen: tuple[Value, ...] = (e.const(0), e.const(FAR), e.const(1))
        for a, given in zip(axes, what, strict=True):
            here = e.one("Or", e.one("Equal", a, e.const(k)), e.one("Equal", a, e.const(k - rank)))
            chosen = tuple(e.one("Where", here, new, old) for new, old in zip(given, chosen, strict=True))
        out.append((k, chosen))
    return out


def sliced(e: Extents, x: Tensor, axis: int, start: Value, end: Value, step: Value) -> Tensor:
    """x[start:end:step] along an axis"""
    v, size = e.value(x), e.sizes(x)[axis]
    d, by, first = v.shape[axis], e.known(step), e.known(start)
    if all(k.const is not None for k in (start, end, step, size)):
        if by == 0:
            e.n.fail("has a step of 0")
        cut = slice_range(first or 0, e.known(end) or 0, by or 1, d)
        v = slice_of(e.b, v, [cut if k == axis else (0, 1, m) for k, m in enumerate(v.shape)])
        return e.tensor(v, {k: c for k, c in enumerate(e.sizes(x)) if k != axis})
    if d == 0:
        return x
    at_first, count = e.b.emit("SliceExtent", [size, start, end, step], outputs=2)
    room = d if by is None else -(-d // abs(by)) if by else e.n.fail("has a step of 0")
    count = e.limits.size(count, room)
    if by is not None and by > 0:
        far = min(d, e.most_difference(end, start) if _forward(e, start, end) else d)
        far = min(far, -first) if first is not None and first < 0 else far  # no more than the last ones
        fewer = max(1, whole(far) if by == 1 else math.ceil(far / by))
        if fewer < room:
            room, count = fewer, e.bounded(count, fewer)
    if by == 1 and first is not None and first >= 0:
        cut = (min(first, d), 1, max(d - first, 0))
        v = slice_of(e.b, v, [cut if k == axis else (0, 1, m) for k, m in enumerate(v.shape)])
        room = min(room, v.shape[axis])
        v = e.fit(v, axis, room)
    else:
        at = e.add(at_first, e.mul(e.iota(room), step))
        v = e.picked(v, axis, at)
    return e.tensor(v, {**dict(enumerate(e.sizes(x))), axis: e.limits.size(count, room)})


def _forward(e: Extents, start: Value, end: Value) -> bool:
    """Whether no more is taken than end - start: unless the start counts from the front and the end from behind"""
    first, last = e.limits.likely.of(start), e.limits.likely.of(end)
    return last.lo >= 0 or first.hi < 0 or (e.constant_difference(end, start) or -1) >= 0


def _split(e: Extents, n: OnnxNode) -> Result:
    x = _tensor(n)
    axis = axis_of(n.attrs.get("axis", 0), e.value(x).type.rank, "Split")
    place = "split" if n.opset < 13 and n.input(1) is None else 1  # in opset 1 an input or an attribute
    total, parts = e.sizes(x)[axis], _elements(e, n, place)
    if parts is None:
        count = n.attrs.get("num_outputs", n.n_outputs)
        if total.const is None and n.opset < 18:
            n.unsupported("equal parts of a size that data decide")
        each = e.div(e.add(total, e.const(count - 1)), e.const(count))
        parts = [e.one("Max", e.min(each, e.sub(total, e.mul(each, e.const(k)))), e.const(0)) for k in range(count)]
    if len(parts) < n.n_outputs:
        n.fail(f"splits into {len(parts)} parts for {n.n_outputs} outputs")
    room = e.value(x).shape[axis]
    parts = [e.bounded(p, room) for p in parts]
    ends, end = [], e.const(0)
    for p in parts:
        end = e.add(end, p)
        ends.append(end)
    wrong = e.bounded(e.sub(ends[-1], total), 0)  # 0 in every run that goes on
    out = []
    for k, end in enumerate(ends[: n.n_outputs]):
        start = e.const(0) if k == 0 else ends[k - 1]
        part = sliced(e, x, axis, start, e.one("Add", end, wrong) if wrong.const is None else end, e.const(1))
        out.append(_of_size(e, part, axis, parts[k]))
    return out


def _of_size(e: Extents, t: Tensor, axis: int, size: Value) -> Tensor:
    """A tensor that surely has this size along an axis, however it was found"""
    k = e.known(size)
    if k is None or not isinstance(t, Ragged) or axis not in t.counts:
        return t
    counts = {a: c for a, c in t.counts.items() if a != axis}
    return e.tensor(e.after(e.fit(t.value, axis, k), e.bounded(t.counts[axis], k, k), k), counts)


# -- made of nothing -----------------------------------------------------------------------------------
def _range(e: Extents, n: OnnxNode) -> Result:
    start, limit, delta = (e.element(v, 0) for v in n.inputs if v is not None)
    dtype = start.dtype
    rows = None
    if not dtype.is_float:
        same, by = e.constant_difference(e.size(limit), e.size(start)), e.known(delta)
        if same is not None and by:
            rows = max(0, -(-same // by))
    if rows is None:
        room = e.room(start, start, limit, delta, most=_most_of_range(e, start, limit, delta))
        count = e.limits.size(e.b.one("RangeExtent", start, limit, delta, most=room), room)
    else:
        room, count = rows, e.const(rows)
    steps = e.b.const(np.arange(room).astype(dtype.numpy))
    return [e.tensor(e.b.one("Add", e.b.one("Mul", steps, delta), start), [count])]


def _most_of_range(e: Extents, start: Value, limit: Value, delta: Value) -> float:
    a, z = (e.limits.likely.of(v) for v in (start, limit))
    d = e.limits.sure.of(delta)  # what is said of it says nothing of its sign
    whole = not start.dtype.is_float
    far = e.most_difference(e.size(limit), e.size(start)) if whole else z.hi - a.lo
    back = e.most_difference(e.size(start), e.size(limit)) if whole else a.hi - z.lo
    up = far / d.lo if d.lo > 0 else far if whole and d.hi > 0 else math.inf if d.hi > 0 else 0
    down = back / -d.hi if d.hi < 0 else back if whole and d.lo < 0 else math.inf if d.lo < 0 else 0
    most = max(up, down, 0)
    return math.inf if math.isnan(most) or math.isinf(most) else math.ceil(most)


def _constant_of_shape(e: Extents, n: OnnxNode) -> Result:
    value = np.asarray(n.attrs.get("value", np.zeros(1, np.float32)))
    if value.size != 1:
        n.fail(f"needs a value of one element, got {value.size}")
    counts = [_count(e, s) for s in _elements(e, n, 0) or []]
    rooms = [e.room(c) for c in counts]
    return [e.tensor(e.b.one("Expand", e.b.const(value.reshape([1] * len(rooms))), shape=rooms), counts)]


def _count(e: Extents, size: Value) -> Value:
    """A size from data, which is not negative and has room"""
    return e.bounded(size, e.room(size))


def _one_hot(e: Extents, n: OnnxNode) -> Result:
    at, values = _tensor(n, 0), _tensor(n, 2)
    depth = _count(e, e.scalar(_tensor(n, 1)))
    v, room = e.value(at), e.room(depth)
    axis = axis_of(n.attrs.get("axis", -1), v.type.rank + 1, "OneHot")
    index = e.size(v)
    index = e.b.one("Where", e.b.one("Less", index, e.const(0)), e.b.one("Add", index, depth), index)
    index = reshape(e.b, index, [*v.shape[:axis], 1, *v.shape[axis:]])
    hit = e.b.one("Equal", index, e.iota(room, axis, v.type.rank + 1))
    off, on = (reshape(e.b, slice_of(e.b, values, [(k, 1, 1)]), []) for k in (0, 1))
    sizes = e.sizes(at)
    return [e.tensor(e.b.one("Where", hit, on, off), [*sizes[:axis], depth, *sizes[axis:]])]


# -- repeated ------------------------------------------------------------------------------------------
def broadcast(e: Extents, tensors: Sequence[Tensor]) -> tuple[list[Value], list[Value]]:
    """Tensors in the room of what they broadcast to, and its sizes"""
    rank = max((e.value(t).type.rank for t in tensors), default=0)
    values, sizes = [e.value(t) for t in tensors], [e.sizes(t) for t in tensors]
    common: list[Value] = []
    for axis in range(rank):
        here = [(j, axis - rank + len(s)) for j, s in enumerate(sizes) if axis - rank + len(s) >= 0]
        size, fixed = _common(e, [sizes[j][k] for j, k in here])
        room = e.known(fixed) if fixed.const is not None else max(values[j].shape[k] for j, k in here)
        assert room is not None
        for j, k in here:
            values[j] = _spread(e, values[j], k, sizes[j][k], size, room)
        if size.const is None and fixed.const is not None:
            j, k = next((j, k) for j, k in here if values[j].shape[k] == room)
            values[j] = e.after(values[j], size, room)
        common.append(fixed)
    return values, common


def _common(e: Extents, sizes: Sequence[Value]) -> tuple[Value, Value]:
    """What sizes broadcast to, which ends the run where they do not; and the same, as a number where it is known"""
    distinct: list[Value] = []
    for s in sizes:
        if e.known(s) != 1 and not any(e.same(s, o) for o in distinct):
            distinct.append(s)
    if len(distinct) < 2:
        found = distinct[0] if distinct else e.const(1)
        return found, found
    size = e.b.one("CommonSize", *distinct)
    fixed = next((s for s in distinct if s.const is not None), None)
    if fixed is None:
        e.limits.size(size, int(max(e.most(s) for s in distinct)))
    return size, fixed if fixed is not None else size


def _spread(e: Extents, v: Value, axis: int, have: Value, size: Value, room: int) -> Value:
    """A tensor in the room of what it broadcasts to, along one axis"""
    if e.known(have) == 1 or v.shape[axis] == 1:
        return v
    if e.same(have, size) or e.limits.sure.of(have).lo > 1:
        return e.fit(v, axis, room)
    one = e.one("Equal", have, e.const(1))
    return e.picked(v, axis, e.b.one("Where", one, e.const(0), e.iota(room)))


def _expand(e: Extents, n: OnnxNode) -> Result:
    x = _tensor(n)
    shape = [_count(e, s) if s.const is None else s for s in _elements(e, n, 1) or []]
    rooms = [e.room(s) for s in shape]
    like = e.tensor(e.b.one("Expand", e.b.const(np.zeros([1] * len(rooms), np.bool_)), shape=rooms), shape)
    (v, _), sizes = broadcast(e, [x, like])
    full = [e.known(s) if s.const is not None else None for s in sizes]
    rank = v.type.rank
    skip = len(sizes) - rank
    where = [k for k, d in enumerate(full) if d is None]
    to = [d if d is not None else max(v.shape[k - skip] if k >= skip else 1, _room_of(e, like, k - len(sizes)))
          for k, d in enumerate(full)]
    out = v if list(v.shape) == to else e.b.one("Expand", v, shape=to)
    return [e.tensor(out, sizes)] if where else [out]


def _room_of(e: Extents, t: Tensor, axis: int) -> int:
    v = e.value(t)
    return v.shape[axis] if -axis <= v.type.rank else 1


def _tile(e: Extents, n: OnnxNode) -> Result:
    x = _tensor(n)
    repeats = [_count(e, r) for r in _elements(e, n, 1) or []]
    v, sizes = e.value(x), e.sizes(x)
    if len(repeats) != v.type.rank:
        n.fail(f"has {len(repeats)} repeats for a tensor of rank {v.type.rank}")
    for axis, r in enumerate(repeats):
        most = e.room(r)
        if e.known(r) == 1:
            continue
        if sizes[axis].const is not None:
            v = e.b.one("Tile", v, repeats=[most if k == axis else 1 for k in range(v.type.rank)])
        else:
            v = e.picked(v, axis, e.mod(e.iota(most * v.shape[axis]), sizes[axis]))
        sizes[axis] = e.mul(sizes[axis], r)
    return [e.tensor(v, [e.limits.size(s, v.shape[k]) for k, s in enumerate(sizes)])]


# -- padded --------------------------------------------------------------------------------------------
def _pad(e: Extents, n: OnnxNode) -> Result:
    x, mode = _tensor(n), n.attrs.get("mode", "constant")
    rank = e.value(x).type.rank
    if mode not in PAD_MODES:
        n.fail(f"has the unknown mode {mode!r}, must be one of {', '.join(PAD_MODES)}")
    pads = _elements(e, n, 1 if n.opset >= 11 else "pads" if n.opset >= 2 else "paddings")
    if pads is None:
        n.fail("needs pads")
    axes = list(range(rank)) if n.input(3) is None else axes_of(n.const(3, "axes").ravel().tolist(), rank, "Pad")
    if len(pads) != 2 * len(axes):
        n.fail(f"has {len(pads)} pads for {len(axes)} axes")
    value = _fill(e, n)
    for axis, low, high in zip(axes, pads[: len(axes)], pads[len(axes) :], strict=True):
        if e.known(low) != 0 or e.known(high) != 0:
            x = _padded(e, x, axis, low, high, mode, value)
    return [x]


def _fill(e: Extents, n: OnnxNode) -> Value:
    dtype = _tensor(n).dtype
    if n.opset < 11:
        return e.b.const(n.attrs.get("value", 0.0), dtype)
    given = n.input(2)
    return e.b.const(0, dtype) if given is None else reshape(e.b, given, [])


def _padded(e: Extents, x: Tensor, axis: int, low: Value, high: Value, mode: str, value: Value) -> Tensor:
    """One axis; pads below 0 take off"""
    v, size = e.value(x), e.sizes(x)[axis]
    total = e.add(e.add(size, low), high)
    count = e.bounded(total, e.room(total, low, high))
    room, d = e.room(count), v.shape[axis]
    if d == 0 and mode != "constant":
        e.n.unsupported(f"mode {mode} of an axis of size 0")
    at, last = e.sub(e.iota(room), low), e.sub(size, e.const(1))
    if mode == "wrap":
        at = e.mod(at, size)
    elif mode == "reflect":
        period = e.mul(last, e.const(2))
        at = e.mod(at, period)
        at = e.min(at, e.sub(period, at))
    elif mode == "edge":
        at = e.one("Max", e.one("Min", at, last), e.const(0))
    out = e.picked(v, axis, at)
    if mode == "constant":
        there = e.one("And", e.one("GreaterOrEqual", at, e.const(0)), e.one("Less", at, size))
        there = reshape(e.b, there, [room if k == axis else 1 for k in range(v.type.rank)])
        out = e.b.one("Where", there, out, value)
    return e.tensor(out, {**dict(enumerate(e.sizes(x))), axis: count})


# -- seen otherwise ------------------------------------------------------------------------------------
def _reshape(e: Extents, n: OnnxNode) -> Result:
    asked = _elements(e, n, 1)
    if asked is None:
        n.unsupported("a Reshape of opset 1 of a size that data decide")
    return [reshaped(e, _tensor(n), asked, bool(n.attrs.get("allowzero", 0)))]


def _flatten(e: Extents, n: OnnxNode) -> Result:
    x, axis = _tensor(n), n.attrs.get("axis", 1)
    sizes = e.sizes(x)
    if not -len(sizes) <= axis <= len(sizes):
        n.fail(f"has axis {axis} of a tensor of rank {len(sizes)}")
    axis += len(sizes) if axis < 0 else 0
    return [reshaped(e, x, [e.total(sizes[:axis]), e.total(sizes[axis:])], True)]


def reshaped(e: Extents, x: Tensor, asked: Sequence[Value], allowzero: bool) -> Tensor:
    """A tensor of other sizes, 0 and -1 among them as ONNX means them"""
    have, v = e.sizes(x), e.value(x)
    to = [have[k] if e.known(a) == 0 and not allowzero and k < len(have) else a for k, a in enumerate(asked)]
    settled = _settled(e, have, to)
    if settled is None:
        settled = _asked(e, v, have, to, allowzero)
        only = _only(e, v, have, to)
        if only is not None:
            v, settled = e.after(v, settled[only[0]], only[1]), list(to)
            settled[only[0]] = e.const(only[1])
    lead = 0
    while lead < min(len(have), len(settled)) and e.same(have[lead], settled[lead]):
        lead += 1
    inner_x, inner_y = have[lead:], settled[lead:]
    if all(s.const is not None for s in (*inner_x[1:], *inner_y[1:])):  # what is open is outermost: dense as it is
        behind = math.prod(e.known(s) or 0 for s in inner_y[1:])
        rest = math.prod(v.shape[lead:])
        if not inner_y or (behind and rest % behind == 0):
            rooms = [*v.shape[:lead], *([rest // behind] if inner_y else []), *(e.known(s) or 0 for s in inner_y[1:])]
            if math.prod(rooms) == v.type.size:
                return e.tensor(reshape(e.b, v, rooms), settled)
    return _anew(e, v, have, settled)


def _settled(e: Extents, have: Sequence[Value], to: Sequence[Value]) -> list[Value] | None:
    """The sizes where it is known that they fit: factors of both sides cancel"""
    left, right, number = list(have), [], 1
    for s in to:
        if e.known(s) == -1:
            continue
        twin = next((k for k, o in enumerate(left) if o.const is None and e.same(o, s)), None)
        if twin is not None:
            del left[twin]
        elif s.const is None:
            right.append(s)
        else:
            number *= e.known(s) or 0
    free = [k for k, s in enumerate(to) if e.known(s) == -1]
    most, open_ = math.prod(e.known(s) or 0 for s in left if s.const is not None), [s for s in left if s.const is None]
    if right or len(free) > 1 or number <= 0 or most % number:
        return None
    if not free:
        return list(to) if not open_ and most == number else None
    rest = e.mul(e.total(open_), e.const(most // number))
    return [rest if k in free else s for k, s in enumerate(to)]


def _only(e: Extents, v: Value, have: Sequence[Value], to: Sequence[Value]) -> tuple[int, int] | None:
    """The one size that data decide, and the only number that it can be in a run that goes on"""
    open_ = [k for k, s in enumerate(to) if s.const is None]
    fixed = math.prod(e.known(s) or 0 for s in to if s.const is not None)
    if len(open_) != 1 or fixed <= 0 or not v.type.size or any(s.const is None for s in have):
        return None
    return (open_[0], v.type.size // fixed) if v.type.size % fixed == 0 else None


def _asked(e: Extents, v: Value, have: Sequence[Value], to: Sequence[Value], allowzero: bool) -> list[Value]:
    """The sizes as the run finds them"""
    fixed = math.prod(max(e.known(s) or 1, 1) for s in to if s.const is not None)
    cap: float = v.type.size // fixed if v.type.size else math.inf  # of no elements every size may be
    told = [cap if e.known(s) == -1 or s.const is None and e.limits.likely.of(s).lo < 0 else
            min(cap, e.most(s)) if s.const is None else max(e.known(s) or 0, 0) for s in to]
    if math.inf in told:
        e.endless(*(s for s in to if s.const is None))
    most = [int(m) for m in told]
    if not allowzero:  # a size that is asked for as 0 is that of the tensor
        most = [max(m, v.shape[k]) if k < v.type.rank and s.const is None else m
                for k, (m, s) in enumerate(zip(most, to, strict=True))]
    if math.prod(most) > max(MOST_SPREAD, v.type.size):
        e.endless(*(s for s in to if s.const is None))
    attrs = {"rank": len(have), "allowzero": int(allowzero), "most": most}
    found = e.b.emit("ReshapeExtents", [*have, *to], attrs, outputs=len(to))
    found = [e.limits.size(f, m) for f, m in zip(found, most, strict=True)]
    return [f if s.const is None or (e.known(s) or 0) <= 0 else s for f, s in zip(found, to, strict=True)]


def _anew(e: Extents, v: Value, have: Sequence[Value], to: Sequence[Value]) -> Tensor:
    """Element by element: its place in order, and where that is in the room"""
    rooms = [e.known(s) if s.const is not None else e.room(s) for s in to]
    rank = len(rooms)
    place: Value = e.const(0)
    for axis, size in enumerate(to):
        place = e.add(e.mul(place, size), e.iota(rooms[axis] or 0, axis, rank))
    at: Value = e.const(0)
    stride = 1
    for axis in reversed(range(len(have))):
        at = e.add(at, e.mul(e.mod(place, have[axis]), e.const(stride)))
        place, stride = e.div(place, have[axis]), stride * v.shape[axis]
    flat = reshape(e.b, v, [v.type.size])
    return e.tensor(e.picked(flat, 0, at) if rank else reshape(e.b, e.picked(flat, 0, e.const(0)), []), to)


READERS: dict[str, Reader] = {
    "Slice": Reader((1, 2, 3, 4), _slice), "Split": Reader((1,), _split), "Range": Reader((0, 1, 2), _range),
    "ConstantOfShape": Reader((0,), _constant_of_shape), "OneHot": Reader((1,), _one_hot),
    "Expand": Reader((1,), _expand), "Tile": Reader((1,), _tile), "Pad": Reader((1,), _pad),
    "Reshape": Reader((1,), _reshape), "Flatten": Reader((), _flatten),
    "Resize": Reader((2, 3), resize),
}
