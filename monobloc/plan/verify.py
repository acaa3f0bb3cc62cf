"""Is a plan right? Run it on an imaginary arena and watch who overwrites whom.

Written without the planner's own notions (atoms, blocks, half steps): every byte of the arena
carries the name of the storage written there last. A step must find all it reads intact, and what
it writes must not touch what it reads, except for declared in-place pairs and views. Bytes between
two neighbouring borders behave alike, so one cell per stretch is enough.
"""

from __future__ import annotations

import numpy as np

from monobloc.errors import InternalError
from monobloc.plan.model import Id, Plan, Program, Step, Value

EMPTY = -1
GARBAGE = -2


def verify(program: Program, plan: Plan) -> None:
    """Raise InternalError unless the plan computes what the program says."""
    _Machine(program, plan).run()


class _Machine:
    def __init__(self, program: Program, plan: Plan) -> None:
        self.program, self.plan = program, plan
        self.values = {v.id: v for v in program.values}
        self.steps = {s.id: s for s in program.steps}
        self.base = {v.value: v for v in program.views}
        self.allowed = {(p.step, p.input, p.output) for p in plan.in_place}
        self.label = {v.id: i for i, v in enumerate(program.values)}
        borders = {0, plan.arena}
        for v in program.values:
            borders |= {plan.offset[v.id], plan.offset[v.id] + v.bytes}
        for name, at in plan.scratch.items():
            borders |= {at, at + self.steps[name].scratch_bytes}
        self.borders = np.array(sorted(borders), dtype=np.int64)
        self.cells = np.full(len(borders), EMPTY, dtype=np.int64)

    def run(self) -> None:
        self._check_shape()
        self._check_pinned()
        defined = {name for step in self.program.steps for name in step.defines}
        for v in self.program.values:
            if v.id not in defined:
                self._paint(v.id, self.root(v.id))
        done: set[Id] = set()
        for name in self.plan.order:
            self._step(self.steps[name], done, defined)
            done.add(name)
        for v in self.program.values:
            if v.output or v.pinned:
                self._check_intact(v, "the end")

    def root(self, name: Id) -> Id:
        while name in self.base:
            name = self.base[name].base
        return name

    def _cells(self, at: int, size: int) -> slice:
        lo, hi = np.searchsorted(self.borders, (at, at + size))
        return slice(int(lo), int(hi))

    def _range(self, name: Id) -> tuple[int, int]:
        return self.plan.offset[name], self.values[name].bytes

    def _paint(self, name: Id, label: Id) -> None:
        self.cells[self._cells(*self._range(name))] = self.label[label]

    def _check_shape(self) -> None:
        if sorted(map(str, self.plan.order)) != sorted(str(s.id) for s in self.program.steps):
            raise InternalError("plan: the order is not a permutation of the steps")
        if not set(self.plan.in_place) <= set(self.program.in_place):
            raise InternalError("plan: an in-place pair was not offered by the program")
        for v in self.program.values:
            at = self.plan.offset[v.id]
            if at < 0 or at + v.bytes > self.plan.arena:
                raise InternalError(
                    f"plan: `{v.id}` at {at} with {v.bytes} bytes leaves the arena of {self.plan.arena}"
                )
            view = self.base.get(v.id)
            if view is None and at % v.align:
                raise InternalError(f"plan: `{v.id}` at {at} is not aligned to {v.align}")
            if view and at != self.plan.offset[view.base] + view.offset:
                raise InternalError(f"plan: view `{v.id}` at {at} is not inside `{view.base}`")
        for s in self.program.steps:
            if s.scratch_bytes and self.plan.scratch[s.id] + s.scratch_bytes > self.plan.arena:
                raise InternalError(f"plan: scratch of step `{s.id}` leaves the arena")

    def _check_pinned(self) -> None:
        """A pinned storage shares bytes only with those that reach it by in-place pairs."""
        family = {v.id: self.root(v.id) for v in self.program.values}

        def head(name: Id) -> Id:
            while family[name] != name:
                name = family[name]
            return name

        for pair in self.plan.in_place:
            family[head(pair.input)] = head(pair.output)
        owner = np.full(len(self.cells), EMPTY, dtype=np.int64)
        for v in self.program.values:
            if v.pinned:
                cells = owner[self._cells(*self._range(v.id))]
                if np.any((cells != EMPTY) & (cells != self.label[head(v.id)])):
                    raise InternalError(f"plan: pinned `{v.id}` overlaps another pinned value")
                cells[:] = self.label[head(v.id)]
        for v in self.program.values:
            cells = owner[self._cells(*self._range(v.id))]
            if np.any((cells != EMPTY) & (cells != self.label[head(v.id)])):
                raise InternalError(f"plan: `{v.id}` overlaps a pinned value")
        for name, at in self.plan.scratch.items():
            if np.any(owner[self._cells(at, self.steps[name].scratch_bytes)] != EMPTY):
                raise InternalError(f"plan: scratch of `{name}` overlaps a pinned value")

    def _check_intact(self, value: Value, reader: str) -> None:
        cells = self.cells[self._cells(*self._range(value.id))]
        if np.any(cells != self.label[self.root(value.id)]):
            raise InternalError(f"plan: `{value.id}` is overwritten before {reader} reads it")

    def _step(self, step: Step, done: set[Id], defined: set[Id]) -> None:
        for other in step.after:
            if other not in done:
                raise InternalError(f"plan: step `{step.id}` runs before `{other}`")
        for name in step.uses:
            self._check_intact(self.values[name], f"step `{step.id}`")
        self._check_writes(step)
        if step.scratch_bytes:
            self.cells[self._cells(self.plan.scratch[step.id], step.scratch_bytes)] = GARBAGE
        for name in step.defines:
            self._paint(name, self.root(name))

    def _check_writes(self, step: Step) -> None:
        """outputs and scratch touch neither each other nor an input, unless that was declared"""
        areas: list[tuple[Id | None, int, int]] = [(n, *self._range(n)) for n in step.defines]
        if step.scratch_bytes:
            areas.append((None, self.plan.scratch[step.id], step.scratch_bytes))
        for i, (name, at, size) in enumerate(areas):
            for other, at2, size2 in areas[:i]:
                shared = (
                    name is not None and other is not None and self.root(name) == self.root(other)
                )
                if at < at2 + size2 and at2 < at + size and not shared:
                    raise InternalError(
                        f"plan: step `{step.id}` writes `{other}` and `{name}` over"
                    )
            for used in step.uses:
                at2, size2 = self._range(used)
                if at < at2 + size2 and at2 < at + size and not self._may(step, used, name):
                    what = "its scratch" if name is None else f"`{name}`"
                    raise InternalError(f"plan: step `{step.id}` writes {what} over `{used}`")

    def _may(self, step: Step, used: Id, name: Id | None) -> bool:
        if name is None:
            return False
        if self.root(used) == self.root(name):
            return True
        same = self.plan.offset[used] == self.plan.offset[name]
        return same and (step.id, used, name) in self.allowed
