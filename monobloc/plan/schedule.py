"""The order problem on integers, and what one step costs in one state.

A state is the set of steps already run, a bit mask: which atoms are alive follows from it, whatever
the order was that led there. That is what makes memoizing over states exact.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from monobloc.plan.atoms import NOBODY, Atoms, Candidate


@dataclass(frozen=True)
class Reuse:
    """In-place at a step: if all `atoms` die there, `freed` and `taken` bytes share memory."""

    atoms: tuple[int, ...]
    output: int  # a negative number that names the output
    freed: int
    taken: int


@dataclass(frozen=True)
class Schedule:
    """Steps 0..n-1 with their memory; a whole program, or a part of one between two fixed states.

    `base` bytes are alive at the start. Atoms that outlive the part are in nobody's `uses`.
    """

    before: tuple[int, ...]  # mask of predecessors
    after: tuple[tuple[int, ...], ...]  # direct successors
    alloc: tuple[int, ...]  # bytes that come alive with the step, scratch included
    keep: tuple[int, ...]  # those of them that stay alive
    uses: tuple[tuple[int, ...], ...]  # atoms that may die at the step
    reuse: tuple[tuple[Reuse, ...], ...]
    users: tuple[int, ...]  # mask of users of each atom
    size: tuple[int, ...]  # bytes of each atom
    born: tuple[int, ...]  # step that defines each atom; NOBODY: alive at the start
    base: int

    def __len__(self) -> int:
        return len(self.before)

    def run(self, step: int, done: int, live: int) -> tuple[int, int]:
        """(largest bytes while `step` runs in state `done` with `live` bytes, live bytes after)"""
        left = ~(done | 1 << step)
        users, size = self.users, self.size
        freed = 0
        for atom in self.uses[step]:
            if not users[atom] & left:
                freed += size[atom]
        high = live + self.alloc[step]
        if freed and self.reuse[step]:
            high -= self._saved(self.reuse[step], left)
        return high, live + self.keep[step] - freed

    def _saved(self, reuse: tuple[Reuse, ...], left: int) -> int:
        """bytes saved by in-place: each input serves one output, each output has one input"""
        freed = taken = 0
        used: set[int] = set()
        for option in reuse:
            if option.atoms[0] in used or option.output in used:
                continue
            if all(not self.users[a] & left for a in option.atoms):
                used |= {option.atoms[0], option.output}
                freed += option.freed
                taken += option.taken
        return min(freed, taken)

    def peak(self, order: Iterable[int]) -> int:
        """the largest number of bytes alive at once"""
        done, live, top = 0, self.base, self.base
        for step in order:
            high, live = self.run(step, done, live)
            done |= 1 << step
            top = max(top, high)
        return top

    def highs(self, order: Iterable[int]) -> list[int]:
        """bytes alive while each step of `order` runs"""
        done, live, result = 0, self.base, []
        for step in order:
            high, live = self.run(step, done, live)
            done |= 1 << step
            result.append(high)
        return result

    def floor(self) -> int:
        """A bound for any order: what must be alive while a step runs, whatever ran before.

        That is what the step touches, and what an ancestor defines and a descendant reads.
        """
        everything = (1 << len(self)) - 1
        above, below = self.closures()
        fixed = self.base - sum(z for z, b in zip(self.size, self.born, strict=True) if b == NOBODY)
        across = [fixed] * len(self)
        for size, born, users in zip(self.size, self.born, self.users, strict=True):
            reach = 0
            for user in bits(users):
                reach |= above[user]
            reach &= (everything if born == NOBODY else below[born]) & ~users
            for step in bits(reach):
                across[step] += size
        result = self.base
        for step in range(len(self)):
            touched = sum(self.size[a] for a in self.uses[step])
            # an atom with readers both here and below is certain to outlive the step
            done = everything & ~below[step]
            high, _ = self.run(step, done, touched + across[step])
            result = max(result, high)
        return result

    def closures(self) -> tuple[list[int], list[int]]:
        """masks of all ancestors and of all descendants of each step"""
        above = [0] * len(self)
        below = [0] * len(self)
        order = self.topological()
        for step in order:
            for after in self.after[step]:
                above[after] |= above[step] | 1 << step
        for step in reversed(order):
            for after in self.after[step]:
                below[step] |= below[after] | 1 << after
        return above, below

    def topological(self) -> list[int]:
        """some valid order"""
        missing = [mask.bit_count() for mask in self.before]
        order = [s for s, count in enumerate(missing) if not count]
        for step in order:
            for after in self.after[step]:
                missing[after] -= 1
                if not missing[after]:
                    order.append(after)
        return order

    def part(self, steps: Sequence[int], done: int, live: int) -> Schedule:
        """The sub-problem of `steps`, all runnable from state `done`, which has `live` bytes."""
        index = {step: i for i, step in enumerate(steps)}
        mask = sum(1 << s for s in steps)
        outside = ~(mask | done)
        atoms: dict[int, int] = {}
        for step in steps:
            for atom in self.uses[step]:
                if not self.users[atom] & outside:
                    atoms.setdefault(atom, len(atoms))
        return Schedule(
            before=tuple(_renumber(self.before[s] & mask, index) for s in steps),
            after=tuple(tuple(index[t] for t in self.after[s] if t in index) for s in steps),
            alloc=tuple(self.alloc[s] for s in steps),
            keep=tuple(self.keep[s] for s in steps),
            uses=tuple(tuple(atoms[a] for a in self.uses[s] if a in atoms) for s in steps),
            reuse=tuple(_kept_reuse(self.reuse[s], atoms) for s in steps),
            users=tuple(_renumber(self.users[a] & mask, index) for a in atoms),
            size=tuple(self.size[a] for a in atoms),
            born=tuple(index.get(self.born[a], NOBODY) for a in atoms),
            base=live,
        )


def bits(mask: int) -> Iterator[int]:
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low


def _renumber(mask: int, index: dict[int, int]) -> int:
    return sum(1 << index[bit] for bit in bits(mask))


def _kept_reuse(reuse: tuple[Reuse, ...], atoms: dict[int, int]) -> tuple[Reuse, ...]:
    """the options whose input can die inside the part"""
    return tuple(
        Reuse(tuple(atoms[a] for a in r.atoms), r.output, r.freed, r.taken)
        for r in reuse
        if all(a in atoms for a in r.atoms)
    )


def schedule_of(atoms: Atoms) -> Schedule:
    """The order problem of a whole program. Pinned storages count in `base` and nowhere else."""
    steps = atoms.program.steps
    alloc = [s.scratch_bytes for s in steps]
    keep = [0] * len(steps)
    uses: list[list[int]] = [[] for _ in steps]
    users: list[int] = []
    size: list[int] = []
    born: list[int] = []
    base = sum(b for b, p in zip(atoms.storage_bytes, atoms.storage_pinned, strict=True) if p)
    number: dict[int, int] = {}
    for a, atom in enumerate(atoms.atoms):
        if atoms.storage_pinned[atom.storage]:
            continue
        if atom.born != NOBODY:
            alloc[atom.born] += atom.bytes
        elif atom.kept or atom.users:
            base += atom.bytes
        if not atom.kept and not atom.users:
            continue
        if atom.born != NOBODY:
            keep[atom.born] += atom.bytes
        if not atom.kept:
            number[a] = len(users)
            users.append(sum(1 << u for u in atom.users))
            size.append(atom.bytes)
            born.append(atom.born)
            for u in atom.users:
                uses[u].append(number[a])
    return Schedule(
        before=tuple(sum(1 << p for p in ps) for ps in atoms.before),
        after=_successors(atoms.before),
        alloc=tuple(alloc),
        keep=tuple(keep),
        uses=tuple(map(tuple, uses)),
        reuse=_reuses(atoms, number),
        users=tuple(users),
        size=tuple(size),
        born=tuple(born),
        base=base,
    )


def _successors(before: tuple[tuple[int, ...], ...]) -> tuple[tuple[int, ...], ...]:
    after: list[list[int]] = [[] for _ in before]
    for step, sources in enumerate(before):
        for source in sources:
            after[source].append(step)
    return tuple(map(tuple, after))


def _reuses(atoms: Atoms, number: dict[int, int]) -> tuple[tuple[Reuse, ...], ...]:
    result: list[list[Reuse]] = [[] for _ in atoms.program.steps]
    for c in sorted(atoms.candidates, key=Candidate.preference):
        if all(a in number for a in c.inputs) and not _pinned(atoms, c.outputs):
            inputs = tuple(number[a] for a in c.inputs)
            result[c.step].append(Reuse(inputs, -1 - c.outputs[0], c.input_bytes, c.output_bytes))
    return tuple(map(tuple, result))


def _pinned(atoms: Atoms, which: tuple[int, ...]) -> bool:
    return atoms.storage_pinned[atoms.atoms[which[0]].storage]
