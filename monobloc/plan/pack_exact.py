"""Offsets by branch and bound, exact for small sets of blocks.

Any packing can be pushed down until each block rests on the floor or on a block it meets, and its
blocks can be listed by rising offset. So it suffices to place blocks in rising order of offset,
each as low as what is already there allows. Two cuts make it fast:

* at each moment, the blocks still to come stack up above what lies there already;
* if some block would fit wholly below the next offset, it would have been moved there: only
  blocks that start below the lowest possible end of any block can come next.

Valid for grounded blocks: nothing fits under a piece of such a block, so a block that lies higher
never stops one from being pushed down.
"""

from __future__ import annotations

from dataclasses import dataclass

from monobloc.plan.blocks import Packing, profile
from monobloc.plan.model import align_up
from monobloc.plan.pack import Placement


@dataclass
class _Search:
    packing: Packing
    moments: list[list[tuple[int, int]]]  # block -> (moment, bytes at it)
    heights: list[dict[int, int]]  # block -> what it keeps below each neighbour
    best: Placement
    nodes: int
    complete: bool = True


def branch_and_bound(packing: Packing, known: Placement, nodes: int) -> tuple[Placement, bool]:
    """(the best placement, whether no better one exists); `nodes` limits the work."""
    if known.arena <= packing.bound:
        return known, True
    if not all(b.grounded for b in packing.blocks):
        return known, False
    search = _Search(packing, _moments(packing), _heights(packing), known, nodes)
    count = len(packing.blocks)
    rest = [0] * (1 + max((m for ms in search.moments for m, _ in ms), default=0))
    for pairs in search.moments:
        for moment, size in pairs:
            rest[moment] += size
    lowest = [align_up(packing.floor, a) for a in packing.aligns]
    top = [packing.floor] * len(rest)
    _branch(search, list(range(count)), [-1] * count, lowest, top, rest, packing.floor, -1)
    return search.best, search.complete


def _moments(packing: Packing) -> list[list[tuple[int, int]]]:
    """Profiles on the moments that matter: those at which a block begins (all maxima are there)."""
    starts = sorted({p.first for b in packing.blocks for p in b.pieces})
    result = []
    for block in packing.blocks:
        pairs = []
        for first, last, size in profile(block, min(packing.aligns)):
            pairs += [(i, size) for i, start in enumerate(starts) if first <= start <= last]
        result.append(pairs)
    return result


def _heights(packing: Packing) -> list[dict[int, int]]:
    """heights[x][y]: how far above x's offset a block y above it must start"""
    return [{y: -lo for y, lo, _ in meets} for meets in packing.meets]


def _branch(
    search: _Search,
    left: list[int],
    offset: list[int],
    lowest: list[int],
    top: list[int],
    rest: list[int],
    arena: int,
    last: int,
) -> None:
    search.nodes -= 1
    if search.nodes < 0:
        search.complete = False
        return
    if not left:
        search.best = Placement(tuple(offset), arena)
        return
    packing, sizes = search.packing, search.packing.sizes
    low = offset[last] if last >= 0 else packing.floor
    ceiling = min(lowest[x] + sizes[x] for x in left)
    choices = [x for x in left if low <= lowest[x] < ceiling]
    for x in sorted(choices, key=lambda x: (lowest[x], -sizes[x], x)):
        if search.best.arena <= packing.bound or search.nodes < 0:
            return
        at = lowest[x]
        if at == low and x < last:
            continue  # the same two at one height in the other order
        _descend(search, x, at, left, offset, lowest, top, rest, arena, last)


def _descend(
    search: _Search,
    x: int,
    at: int,
    left: list[int],
    offset: list[int],
    lowest: list[int],
    top: list[int],
    rest: list[int],
    arena: int,
    last: int,
) -> None:
    packing = search.packing
    arena = max(arena, at + packing.sizes[x])
    if arena >= search.best.arena:
        return
    new_top, new_rest, new_lowest = list(top), list(rest), list(lowest)
    for moment, size in search.moments[x]:
        new_top[moment] = at + size
        new_rest[moment] -= size
    limit = search.best.arena
    for height, size in zip(new_top, new_rest, strict=True):
        if size and max(height, at) + size >= limit:
            return
    for y, height in search.heights[x].items():
        if offset[y] < 0:
            new_lowest[y] = max(new_lowest[y], align_up(at + height, packing.aligns[y]))
    offset[x] = at
    _branch(search, [y for y in left if y != x], offset, new_lowest, new_top, new_rest, arena, x)
    offset[x] = -1
