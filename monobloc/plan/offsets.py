"""Offsets for a set of blocks or buffers: heuristics, local search, then branch and bound."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from monobloc.errors import InternalError
from monobloc.plan.blocks import Block, Packing, packing, place_pinned, rectangle
from monobloc.plan.model import DEFAULT_ALIGN, USUAL, Budget, Buffer, Id, Offsets, Stretch, align_up
from monobloc.plan.pack import (
    Placement,
    by_offset,
    crowds,
    effort,
    heuristics,
    local_search,
    place,
)
from monobloc.plan.pack_exact import branch_and_bound
from monobloc.plan.pack_repair import repair

EXACT_BLOCKS = 80
CORE_BLOCKS = 24
VISITS_PER_BLOCK = 20_000  # more finds nothing new in a small set
NEAR = 1000  # a thousandth above the bound is not worth more rounds
ROUNDS = 5  # of local search and repair in turn


@dataclass(frozen=True)
class Packed:
    """Offsets of blocks by position; `optimal` if no placement has a smaller arena."""

    offset: tuple[int, ...]
    arena: int
    bound: int
    optimal: bool
    pairs: int  # of blocks that are alive together: what another attempt would cost
    stretches: tuple[Stretch, ...] = ()  # one for each region, in the order in which they lie


def assign_offsets(buffers: Sequence[Buffer], budget: Budget = USUAL) -> Offsets:
    """The smallest arena found for buffers whose lifetimes are given."""
    packed = pack([rectangle(b) for b in buffers], budget)
    offset: dict[Id, int] = {b.id: o for b, o in zip(buffers, packed.offset, strict=True)}
    if len(offset) != len(buffers):
        raise InternalError("plan: two buffers have the same id")
    return Offsets(offset, packed.arena, packed.bound, packed.optimal)


def pack(blocks: Sequence[Block], budget: Budget) -> Packed:
    """Each region for itself, one behind the other."""
    regions = sorted({0, *(b.region for b in blocks)})
    if len(regions) == 1:
        return _pack_region(blocks, budget)
    offset = [0] * len(blocks)
    parts: list[Packed] = []
    stretches: list[Stretch] = []
    for region in regions:
        mine = [i for i, b in enumerate(blocks) if b.region == region]
        part = _pack_region([blocks[i] for i in mine], budget)
        base = align_up(stretches[-1].end, DEFAULT_ALIGN) if stretches else 0
        for i, at in zip(mine, part.offset, strict=True):
            offset[i] = base + at
        floor = part.stretches[0].floor
        stretches.append(Stretch(region, base, base + floor, base + part.arena))
        parts.append(part)
    bound = sum(p.bound for p in parts)
    optimal, pairs = all(p.optimal for p in parts), sum(p.pairs for p in parts)
    return Packed(tuple(offset), stretches[-1].end, bound, optimal, pairs, tuple(stretches))


def _pack_region(blocks: Sequence[Block], budget: Budget) -> Packed:
    """Pinned blocks go to the bottom, empty ones anywhere; the others are searched for."""
    fixed, floor = place_pinned(blocks)
    rest = [i for i, b in enumerate(blocks) if not b.pinned and b.bytes]
    offset = [fixed.get(i, 0) for i in range(len(blocks))]
    if not rest:
        whole = Stretch(0, 0, floor, floor)
        return Packed(tuple(offset), floor, floor, optimal=True, pairs=0, stretches=(whole,))
    problem = packing([blocks[i] for i in rest], floor)
    best, proven = _search(problem, budget)
    for i, at in zip(rest, best.offset, strict=True):
        offset[i] = at
    whole = Stretch(0, 0, floor, best.arena)
    return Packed(tuple(offset), best.arena, problem.bound, proven, effort(problem), (whole,))


def _search(problem: Packing, budget: Budget) -> tuple[Placement, bool]:
    """From cheap to dear, until one of them meets the bound or proves that nothing is better."""
    visits = min(budget.pack_visits, VISITS_PER_BLOCK * len(problem.blocks))
    share = visits // (2 * ROUNDS + 1)
    small = len(problem.blocks) <= EXACT_BLOCKS
    best, order = heuristics(problem, share)
    if not small and not _near(best, problem):
        best, order = _grown(problem, best, order, budget)
    for seed in range(ROUNDS):
        best = local_search(problem, best, order, share, seed)
        if seed == 0 and small:
            nodes = budget.pack_nodes * 20 // max(20, len(problem.blocks))
            best, proven = branch_and_bound(problem, best, nodes)
            if proven:
                return best, True
        if _near(best, problem):
            break
        best = repair(problem, best, share, seed)
        order = by_offset(best)
    return best, best.arena <= problem.bound


def _near(best: Placement, problem: Packing) -> bool:
    return best.arena - problem.bound <= problem.bound // NEAR


def _grown(
    problem: Packing, known: Placement, order: tuple[int, ...], budget: Budget
) -> tuple[Placement, tuple[int, ...]]:
    """Pack the most crowded blocks first, as well as possible, then twice as many, and so on.

    In a deep network few blocks are alive where it matters, and they make a small puzzle; solved
    with all the others around, it drowns. The cost of the parts adds up to twice the last one's.
    """
    crowd = crowds(problem)
    ranked = sorted(range(len(crowd)), key=lambda x: (-crowd[x], -problem.sizes[x], x))
    visits = budget.pack_visits // (2 * ROUNDS + 1)
    count, row = CORE_BLOCKS, list(ranked[:CORE_BLOCKS])
    while count < len(ranked) and 4 * effort(problem) < budget.pack_visits:
        part = packing([problem.blocks[x] for x in row], problem.floor)
        best = place(part, range(len(row)), 1 << 62)
        best = local_search(part, best, range(len(row)), visits // 2, seed=0)
        if count == CORE_BLOCKS:
            best, _ = branch_and_bound(part, best, budget.pack_nodes // 4)
        best = repair(part, best, visits // 2, seed=0)
        row = [row[i] for i in by_offset(best)] + ranked[count : 2 * count]
        count *= 2
    found = place(problem, row + ranked[len(row) :], known.arena)
    return (found, tuple(row)) if found.offset else (known, order)
