"""STABLEHLO_GATHER and STABLEHLO_SCATTER: windows of a tensor, read or written at places that are data.

Both name an entry of the tensor for each entry of the other one (the result, or the updates): the window's start, which
is data, plus the place in the window, which is not. That is one index into the tensor laid out in a row. The last axes
stay together where windows have them whole, so that rows are copied and not their entries.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from monobloc.frontend.tflite.indexing import _scattered
from monobloc.frontend.tflite.node import Reader, Result, TflNode
from monobloc.ir.graph import Value
from monobloc.ir.types import DType
from monobloc.ops.movement import pad, slice_of, transpose
from monobloc.ops.shape import reshape

I32, I64 = DType.I32, DType.I64
BODIES = {"STABLEHLO_ADD": "add", "STABLEHLO_MULTIPLY": "mul", "STABLEHLO_MAXIMUM": "max", "STABLEHLO_MINIMUM": "min"}


@dataclass(frozen=True)
class Windows:
    """How entries of `shape`, the windows, lie in a tensor. `axes`: which of its axes each axis in `within` goes along;
    `starts` are vectors of places along the axes `of`, one for each index of the other axes."""

    shape: tuple[int, ...]
    within: tuple[int, ...]
    axes: tuple[int, ...]
    starts: Value
    of: tuple[int, ...]

    @property
    def outside(self) -> list[int]:
        return [k for k in range(len(self.shape)) if k not in self.within]

    def sizes(self, rank: int) -> list[int]:
        """of a window, along each axis of the tensor"""
        along = dict(zip(self.axes, self.within, strict=True))
        return [self.shape[along[d]] if d in along else 1 for d in range(rank)]

    def tail(self, x: Value) -> int:
        """How many last axes are the tensor's own, whole and in its order"""
        k, rank, own = 0, x.type.rank, dict(zip(self.within, self.axes, strict=True))
        while (k < min(rank, len(self.shape)) and own.get(len(self.shape) - 1 - k) == rank - 1 - k
               and self.shape[-1 - k] == x.shape[-1 - k] and rank - 1 - k not in self.of):
            k += 1
        return k

    def places(self, n: TflNode, x: Value, clipped: bool) -> list[tuple[Value, int]]:
        """Along each axis of the tensor before the tail, for each entry, as they broadcast; and the axis"""
        rank, tail = x.type.rank, self.tail(x)
        kept = len(self.shape) - tail
        sizes, found = self.sizes(rank), []
        for d in range(rank - tail):
            at: Value | None = None
            if d in self.of:
                at = self._start(n, self.of.index(d), kept)
                if clipped:
                    at = n.b.one("Clip", at, n.b.const(0, at.dtype), n.b.const(x.shape[d] - sizes[d], at.dtype))
            if d in self.axes:
                spot = self.within[self.axes.index(d)]
                steps = np.arange(sizes[d]).reshape([-1 if k == spot else 1 for k in range(kept)])
                step = n.b.const(steps, self.starts.dtype)
                at = step if at is None else n.b.one("Add", at, step)
            if at is not None:
                found.append((at, d))
        return found

    def _start(self, n: TflNode, k: int, kept: int) -> Value:
        rank = self.starts.type.rank
        one = slice_of(n.b, self.starts, [*((0, 1, s) for s in self.starts.shape[:-1]), (k, 1, 1)])
        assert one.type.rank == rank
        return reshape(n.b, one, [self.shape[d] if d in self.outside else 1 for d in range(kept)])


def gather(n: TflNode) -> Result:
    """Windows that would reach out of the tensor are moved until they do not."""
    x, rank = n.x(0), n.x(0).type.rank
    offset, collapsed, of, sizes = (_longs(n, k) for k in (0, 1, 2, 4))
    axes = tuple(d for d in range(rank) if d not in collapsed)
    starts = _starts(n, of)
    if (len(sizes) != rank or len(offset) != len(axes) or any(sizes[d] != 1 for d in collapsed)
            or any(not 0 <= s <= d for s, d in zip(sizes, x.shape, strict=True))):
        n.fail(f"reads windows of {list(sizes)} of {x.type}")
    whole = len(offset) + starts.type.rank - 1
    shape, outer = [0] * whole, iter(starts.shape[:-1])
    if list(offset) != sorted(set(offset)) or any(not 0 <= k < whole for k in offset):
        n.fail(f"puts windows along the axes {list(offset)} of {whole}")
    inner = iter(sizes[d] for d in axes)
    for k in range(whole):
        shape[k] = next(inner if k in offset else outer)
    w = Windows(tuple(shape), offset, axes, starts, of)
    flat, rows = _flat(n, x, w, clipped=True)[0], reshape(n.b, x, _rows(x, w))
    return [reshape(n.b, n.b.one("Gather", rows, flat, axis=0), shape)]


def scatter(n: TflNode) -> Result:
    """Entries of windows that would lie outside of the tensor are written nowhere."""
    x, updates, rank = n.x(0), n.x(2), n.x(0).type.rank
    within, inserted, of = (_longs(n, k) for k in (1, 2, 3))
    starts, body = _starts(n, of, slot=4), n.body(n.options.whole(6))
    axes = tuple(d for d in range(rank) if d not in inserted)
    if len(body) > 1 or any(o not in BODIES for o in body):
        n.unsupported(f"updates by {', '.join(body)}")
    w = Windows(updates.shape, within, axes, starts, of)
    if (updates.dtype is not x.dtype or len(within) != len(axes) or list(within) != sorted(set(within))
            or any(not 0 <= k < updates.type.rank for k in within)
            or starts.shape[:-1] != tuple(updates.shape[k] for k in w.outside)):
        n.fail(f"writes {updates.type} into {x.type} at {starts.type}")
    flat, inside = _flat(n, x, w, clipped=False)
    shape = _rows(x, w)
    if inside is not None:
        flat = n.b.one("Where", inside, flat, n.b.const(shape[0], flat.dtype))
    one_more = pad(n.b, reshape(n.b, x, shape), [0] * len(shape), [1, *[0] * (len(shape) - 1)], "constant", None)
    kept = updates.shape[: updates.type.rank - w.tail(x)]
    flat = reshape(n.b, n.b.one("Expand", flat, shape=list(kept)), [*kept, 1])
    made = _scattered(n, one_more, flat, updates, BODIES[body[0]] if body else "none")
    return [reshape(n.b, slice_of(n.b, made, [(0, 1, d) for d in shape]), list(x.shape))]


def _longs(n: TflNode, slot: int) -> tuple[int, ...]:
    found = n.options.array(slot, "i8")
    return () if found is None else tuple(int(k) for k in found)


def _starts(n: TflNode, of: Sequence[int], slot: int = 3) -> Value:
    """Starts of windows, a vector of them along the last axis"""
    at, axis, rank = n.x(1), n.options.whole(slot, "q"), n.x(0).type.rank
    if at.dtype not in (I32, I64) or not 0 <= axis <= at.type.rank:
        n.fail(f"has starts of {at.type} along axis {axis}")
    if axis == at.type.rank:
        at = reshape(n.b, at, [*at.shape, 1])
    at = transpose(n.b, at, [*(k for k in range(at.type.rank) if k != axis), axis])
    if at.shape[-1] != len(of) or len(set(of)) < len(of) or any(not 0 <= d < rank for d in of):
        n.fail(f"has starts of {at.type} along the axes {list(of)} of {n.x(0).type}")
    return at if at.dtype is I64 or prod(n.x(0).shape) < 1 << 31 else n.b.one("Cast", at, to=I64)


def _rows(x: Value, w: Windows) -> list[int]:
    """The tensor's shape with all axes before the tail as one"""
    head = x.type.rank - w.tail(x)
    return [prod(x.shape[:head]), *x.shape[head:]]


def _flat(n: TflNode, x: Value, w: Windows, clipped: bool) -> tuple[Value, Value | None]:
    """(indices of rows, which of them are inside), as they broadcast"""
    head = x.type.rank - w.tail(x)
    found: Value | None = None
    inside: Value | None = None
    for at, d in w.places(n, x, clipped):
        if not clipped and d in w.of:
            low = n.b.one("GreaterOrEqual", at, n.b.const(0, at.dtype))
            good = n.b.one("And", low, n.b.one("Less", at, n.b.const(x.shape[d], at.dtype)))
            inside = good if inside is None else n.b.one("And", inside, good)
        stride = prod(x.shape[d + 1 : head])
        at = at if stride == 1 else n.b.one("Mul", at, n.b.const(stride, at.dtype))
        found = at if found is None else n.b.one("Add", found, at)
    kept = list(w.shape[: len(w.shape) - w.tail(x)])
    if found is None:
        found = n.b.const(0, w.starts.dtype)
    return n.b.one("Expand", found, shape=kept), inside and n.b.one("Expand", inside, shape=kept)


READERS: dict[str, Reader] = {"STABLEHLO_GATHER": gather, "STABLEHLO_SCATTER": scatter}
