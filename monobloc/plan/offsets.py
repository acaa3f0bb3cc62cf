"""Offsets for a set of blocks or buffers: heuristics, local search, then branch and bound."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from monobloc.errors import InternalError
from monobloc.plan.blocks import Block, Packing, packing, place_pinned, rectangle
from monobloc.plan.model import USUAL, Budget, Buffer, Id, Offsets
from monobloc.plan.pack import Placement, by_offset, heuristics, local_search
from monobloc.plan.pack_exact import branch_and_bound
from monobloc.plan.pack_repair import repair

EXACT_BLOCKS = 80
NEAR = 1000  # a thousandth above the bound is not worth more rounds
ROUNDS = 5  # of local search and repair in turn


@dataclass(frozen=True)
class Packed:
    """Offsets of blocks by position; `optimal` if no placement has a smaller arena."""

    offset: tuple[int, ...]
    arena: int
    bound: int
    optimal: bool


def assign_offsets(buffers: Sequence[Buffer], budget: Budget = USUAL) -> Offsets:
    """The smallest arena found for buffers whose lifetimes are given."""
    packed = pack([rectangle(b) for b in buffers], budget)
    offset: dict[Id, int] = {b.id: o for b, o in zip(buffers, packed.offset, strict=True)}
    if len(offset) != len(buffers):
        raise InternalError("plan: two buffers have the same id")
    return Offsets(offset, packed.arena, packed.bound, packed.optimal)


def pack(blocks: Sequence[Block], budget: Budget) -> Packed:
    """Pinned blocks go to the bottom, empty ones anywhere; the others are searched for."""
    fixed, floor = place_pinned(blocks)
    rest = [i for i, b in enumerate(blocks) if not b.pinned and b.bytes]
    offset = [fixed.get(i, 0) for i in range(len(blocks))]
    if not rest:
        return Packed(tuple(offset), floor, floor, optimal=True)
    problem = packing([blocks[i] for i in rest], floor)
    best, proven = _search(problem, budget)
    for i, at in zip(rest, best.offset, strict=True):
        offset[i] = at
    return Packed(tuple(offset), best.arena, problem.bound, proven)


def _search(problem: Packing, budget: Budget) -> tuple[Placement, bool]:
    """From cheap to dear, until one of them meets the bound or proves that nothing is better."""
    share = budget.pack_visits // (2 * ROUNDS + 1)
    best, order = heuristics(problem, share)
    for seed in range(ROUNDS):
        best = local_search(problem, best, order, share, seed)
        if seed == 0 and len(problem.blocks) <= EXACT_BLOCKS:
            nodes = budget.pack_nodes * 20 // max(20, len(problem.blocks))
            best, proven = branch_and_bound(problem, best, nodes)
            if proven:
                return best, True
        if best.arena - problem.bound <= problem.bound // NEAR:
            break
        best = repair(problem, best, share, seed)
        order = by_offset(best)
    return best, best.arena <= problem.bound
