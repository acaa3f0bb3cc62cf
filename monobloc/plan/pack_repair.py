"""Offsets by repair: take out a few blocks around one that sticks out, put them back differently.

The cost of a move depends on the neighbours of what is moved, not on the size of the program, so
this works for thousands of blocks. A move is judged by how far its blocks reach above a target,
which lies between the bound and the best arena so far; when nothing reaches above it, the arena
shrank and the target follows. (Ruin and recreate, Schrimpf et al., 2000.)
"""

from __future__ import annotations

import random

from monobloc.plan.blocks import Packing
from monobloc.plan.model import align_up
from monobloc.plan.pack import Placement, best_gap, lowest_gap

PATIENCE = 400  # moves without a better arena before the target is brought closer
AMBITIONS = (0.0, 0.5, 0.85, 1.0)  # target between bound (0) and the best arena (1)


class _Repair:
    def __init__(self, packing: Packing, best: Placement, seed: int) -> None:
        self.packing, self.best = packing, best
        self.offset = list(best.offset)
        self.rng = random.Random(seed)
        self.grain = min(packing.aligns)
        self.neighbours = [sorted({y for y, _, _ in m}) for m in packing.meets]
        self.target = 0
        self.over: dict[int, None] = {}  # blocks above the target, in order of discovery

    def aim(self, ambition: float) -> None:
        """Start again from the best placement with a new target."""
        room = self.best.arena - self.grain - self.packing.bound
        self.target = self.packing.bound + int(max(0, room) * ambition)
        self.offset = list(self.best.offset)
        self._find_over()

    def _find_over(self) -> None:
        ends = zip(self.offset, self.packing.sizes, strict=True)
        self.over = {x: None for x, (at, size) in enumerate(ends) if at + size > self.target}

    def settle(self) -> bool:
        """If nothing reaches above the target, remember that; true if so."""
        if self.over:
            return False
        ends = zip(self.offset, self.packing.sizes, strict=True)
        self.best = Placement(tuple(self.offset), max(at + size for at, size in ends))
        return True

    def move(self) -> int:
        """One attempt; its cost in visits."""
        rng = self.rng
        out = self._ruin(rng.choice(list(self.over)[:64]))
        before = [self.offset[x] for x in out]
        old = self._excess(out)
        for x in out:
            self.offset[x] = -1
        for x in self._arranged(out):
            self.offset[x] = self._fit(x, tight=rng.random() < 0.3)
        new = self._excess(out)
        if new > old and rng.random() * old > 0.02 * new:
            for x, at in zip(out, before, strict=True):
                self.offset[x] = at
        else:
            self._update_over(out)
        return sum(len(self.packing.meets[x]) for x in out) + 8 * len(out)

    def _update_over(self, out: list[int]) -> None:
        for x in out:
            if self.offset[x] + self.packing.sizes[x] > self.target:
                self.over[x] = None
            else:
                self.over.pop(x, None)

    def _ruin(self, x: int) -> list[int]:
        """a few blocks connected to `x`: what lies in its way, and what lies in the way of that"""
        rng, size = self.rng, self.rng.randrange(2, 13)
        out = [x]
        while len(out) < size:
            near = self.neighbours[out[0] if rng.random() < 0.6 else rng.choice(out)]
            if near:
                y = rng.choice(near)
                if y not in out:
                    out.append(y)
                    continue
            size -= 1
        return out

    def _arranged(self, out: list[int]) -> list[int]:
        sizes, kind = self.packing.sizes, self.rng.random()
        order = list(out)
        if kind < 0.4:
            self.rng.shuffle(order)
        elif kind < 0.7:
            order.sort(key=lambda x: -sizes[x] * self.rng.uniform(0.5, 1.5))
        elif kind < 0.85:
            blocks = self.packing.blocks
            order.sort(key=lambda x: (blocks[x].first - blocks[x].last, x))
        return order

    def _excess(self, out: list[int]) -> int:
        sizes = self.packing.sizes
        return sum(max(0, self.offset[x] + sizes[x] - self.target) for x in out)

    def _fit(self, x: int, *, tight: bool) -> int:
        offset, align = self.offset, self.packing.aligns[x]
        spans = sorted(
            [
                (offset[y] + lo, offset[y] + hi)
                for y, lo, hi in self.packing.meets[x]
                if offset[y] >= 0
            ]
        )
        fit = best_gap if tight else lowest_gap
        return fit(spans, align_up(self.packing.floor, align), align)


def repair(packing: Packing, best: Placement, visits: int, seed: int) -> Placement:
    """The best placement found from `best` on, within a number of visits."""
    if best.arena <= packing.bound or len(packing.blocks) < 2:
        return best
    state = _Repair(packing, best, seed)
    level, idle = 0, 0
    state.aim(AMBITIONS[level])
    while visits > 0 and state.best.arena > packing.bound:
        visits -= state.move()
        idle += 1
        if state.settle():
            level, idle = max(0, level - 1), 0
        elif idle >= PATIENCE:
            level, idle = (level + 1) % len(AMBITIONS), 0
        else:
            continue
        state.aim(AMBITIONS[level])
    return state.best
