"""Offsets by heuristics: first and best fit in many orders, then a seeded local search.

All of them place blocks one after the other at the lowest free place (or the tightest gap), so a
solution is a permutation. Local search improves one the way a person would: what sticks out at the
top should have been placed earlier, so it moves forward and everything is placed again.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from monobloc.plan.blocks import Columns, Packing, profile
from monobloc.plan.model import align_up

if TYPE_CHECKING:
    from numpy.typing import NDArray

SURE_ORDERS = 2  # tried even if the budget is too small for the size of the problem


@dataclass(frozen=True)
class Placement:
    """Offsets of all blocks, or of none if `arena` says that a limit was reached."""

    offset: tuple[int, ...]
    arena: int


def place(packing: Packing, order: Sequence[int], limit: int, tight: bool = False) -> Placement:
    """Place blocks in this order; give up as soon as one would end at or above `limit`."""
    offset = [-1] * len(packing.blocks)
    mirror = np.full(len(packing.blocks) if packing.crowded else 0, -1, dtype=np.int64)
    fit = best_gap if tight else lowest_gap
    arena = packing.floor
    for x in order:
        align = packing.aligns[x]
        start = align_up(packing.floor, align)
        if x in packing.crowded:
            at = _in_crowd(packing.crowded[x], mirror, start, align, tight)
        else:
            spans = sorted(
                [
                    (offset[y] + lo, offset[y] + hi)
                    for y, lo, hi in packing.meets[x]
                    if offset[y] >= 0
                ]
            )
            at = fit(spans, start, align)
        offset[x] = at
        if packing.crowded:
            mirror[x] = at
        arena = max(arena, at + packing.sizes[x])
        if arena >= limit:
            return Placement((), arena)
    return Placement(tuple(offset), arena)


def _in_crowd(
    meets: Columns, offset: NDArray[np.int64], start: int, align: int, tight: bool
) -> int:
    """`lowest_gap` or `best_gap` on arrays"""
    others, lo, hi = meets
    there = offset[others]
    placed = there >= 0
    there = there[placed]
    lo, hi = there + lo[placed], there + hi[placed]
    order = np.argsort(lo, kind="stable")
    lo, hi = lo[order], hi[order]
    ends = np.maximum.accumulate(np.concatenate((np.array([start]), hi)))
    at = -(-ends // align) * align  # where it could go, having passed 0, 1, 2, ... spans
    gap = lo - at[:-1]
    fits = np.flatnonzero(gap >= 0)
    if not len(fits):
        return int(at[-1])
    return int(at[fits[np.argmin(gap[fits])] if tight else fits[0]])


def lowest_gap(spans: list[tuple[int, int]], start: int, align: int) -> int:
    at = start
    for lo, hi in spans:
        if hi > at:
            if lo >= at:
                break
            at = -(-hi // align) * align
    return at


def best_gap(spans: list[tuple[int, int]], start: int, align: int) -> int:
    """the smallest gap that holds the block; `lo` is the highest offset that fits under a span"""
    at, best, slack = start, -1, -1
    for lo, hi in spans:
        if hi <= at:
            continue
        if lo >= at and (best < 0 or lo - at < slack):
            best, slack = at, lo - at
        at = max(at, -(-hi // align) * align)
    return at if best < 0 else best


def heuristics(packing: Packing, visits: int) -> tuple[Placement, tuple[int, ...]]:
    """The best placement of several orders, and the order that gave it."""
    best: Placement | None = None
    chosen: tuple[int, ...] = ()
    cost = effort(packing)
    for number, order in enumerate(_orders(packing)):
        if number >= SURE_ORDERS and visits <= 0:
            break
        for tight in (False, True):
            visits -= cost
            limit = best.arena if best else 1 << 62
            found = place(packing, order, limit, tight)
            if found.offset or not packing.blocks:
                best, chosen = found, order
            if best and best.arena <= packing.bound:
                return best, chosen
    assert best is not None
    return best, chosen


def _orders(packing: Packing) -> list[tuple[int, ...]]:
    """each with ties broken by position, so that nothing depends on more than the input"""
    blocks, sizes = packing.blocks, packing.sizes
    everyone = range(len(blocks))
    length = [b.last - b.first + 1 for b in blocks]
    crowd = crowds(packing)
    keys: list[Callable[[int], tuple[int, ...]]] = [
        lambda i: (-sizes[i], -length[i]),
        lambda i: (-crowd[i], -sizes[i]),
        lambda i: (-sizes[i] * length[i],),
        lambda i: (-length[i], -sizes[i]),
        lambda i: (-crowd[i], -length[i]),
        lambda i: (blocks[i].first, -sizes[i]),
        lambda i: (-blocks[i].last, -sizes[i]),
        lambda i: (-sum(sizes[y] for y, _, _ in packing.meets[i]), -sizes[i]),
    ]
    return [_sorted_by(key, everyone) for key in keys]


def _sorted_by(key: Callable[[int], tuple[int, ...]], items: Iterable[int]) -> tuple[int, ...]:
    return tuple(sorted(items, key=lambda i: (*key(i), i)))


def crowds(packing: Packing) -> list[int]:
    """for each block the largest sum of bytes alive at a moment of its life"""
    change: dict[int, int] = {}
    for block in packing.blocks:
        for first, last, size in profile(block, 1):
            change[first] = change.get(first, 0) + size
            change[last + 1] = change.get(last + 1, 0) - size
    moments = sorted(change)
    live, sums = 0, []
    for moment in moments:
        live += change[moment]
        sums.append(live)
    index = {moment: i for i, moment in enumerate(moments)}
    return [max(sums[index[b.first] : index[b.last + 1]], default=0) for b in packing.blocks]


def effort(packing: Packing) -> int:
    """what placing all blocks once costs, in visits"""
    return sum(map(len, packing.meets)) + 4 * len(packing.blocks)


def by_offset(placement: Placement) -> tuple[int, ...]:
    """an order in which first fit gives this placement, or one pushed further down"""
    return tuple(sorted(range(len(placement.offset)), key=lambda x: (placement.offset[x], x)))


def local_search(
    packing: Packing, best: Placement, order: Sequence[int], visits: int, seed: int
) -> Placement:
    """Move blocks that end at the top forward in the order, keep what is not worse."""
    rng = random.Random(seed)
    current, arena = list(order), best.arena
    cost = effort(packing)
    where = best
    stale = 0
    while visits > 0 and best.arena > packing.bound and len(order) > 1:
        visits -= cost
        trial = _moved(packing, where, current, rng)
        found = place(packing, trial, arena + 1 + arena // 64 * (stale > 40))
        stale += 1
        if found.offset:
            current, arena, where = trial, found.arena, found
            if found.arena < best.arena:
                best, stale = found, 0
        if stale > 60:
            current, arena, where, stale = list(order), best.arena, best, 0
            _shuffle_some(current, rng)
    return best


def _moved(packing: Packing, where: Placement, order: list[int], rng: random.Random) -> list[int]:
    position = {x: i for i, x in enumerate(order)}
    top = [
        x for x in order if where.offset[x] + packing.sizes[x] >= where.arena and position[x] > 0
    ]
    result = list(order)
    x = rng.choice(top) if top and rng.random() < 0.75 else rng.choice(order)
    if rng.random() < 0.3 and packing.meets[x]:
        x = rng.choice(packing.meets[x])[0]
    result.remove(x)
    result.insert(rng.randrange(max(1, position[x])), x)
    return result


def _shuffle_some(order: list[int], rng: random.Random) -> None:
    for _ in range(1 + len(order) // 8):
        i, j = rng.randrange(len(order)), rng.randrange(len(order))
        order[i], order[j] = order[j], order[i]
