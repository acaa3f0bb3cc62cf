"""Views resolved: storages cut into atoms, each with one birth and one set of readers.

A view shares bytes with its base, so neither size nor lifetime can be counted per value. The idea:
resolve every view to a root, the *storage*, and cut the storage at all the borders of its values.
Each piece, an *atom*, is born with the first step that writes it and dies with the last reader of
any value that covers it. Atoms share no bytes, so order search and packing need no idea of views.
Every view is defined by a step, even if that step does no work: a value without one is an input.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise

from monobloc.errors import InternalError
from monobloc.plan.model import Id, InPlace, Program, Value

NOBODY = -1


@dataclass(frozen=True, slots=True)
class Atom:
    """bytes [lo, hi) of a storage; `born` and `users` are positions in `Program.steps`"""

    storage: int
    lo: int
    hi: int
    born: int
    users: tuple[int, ...]
    kept: bool  # alive to the end

    @property
    def bytes(self) -> int:
        return self.hi - self.lo


@dataclass(frozen=True)
class Candidate:
    """An in-place pair that is legal in any order in which all of `inputs` die at `step`."""

    pair: InPlace
    step: int
    inputs: tuple[int, ...]  # atoms of the input
    outputs: tuple[int, ...]  # atoms of the output, all born here
    input_bytes: int
    output_bytes: int

    def preference(self) -> tuple[int, int]:
        """among several at one step: the lowest shares most and wastes least"""
        sizes = self.input_bytes, self.output_bytes
        return -min(sizes), max(sizes)


@dataclass(frozen=True)
class Atoms:
    """A program with its views resolved."""

    program: Program
    atoms: tuple[Atom, ...]
    of_value: dict[Id, tuple[int, ...]]
    place: dict[Id, tuple[int, int]]  # value -> (storage, offset in it)
    storage_bytes: tuple[int, ...]
    storage_align: tuple[int, ...]
    storage_pinned: tuple[bool, ...]
    storage_region: tuple[int, ...]
    before: tuple[tuple[int, ...], ...]  # direct predecessors of each step
    candidates: tuple[Candidate, ...]


def resolve(program: Program) -> Atoms:
    """Storages, atoms, dependences, in-place candidates of a program; checks that it is sound."""
    values = {v.id: v for v in program.values}
    place, roots = _places(program, values)
    born, users = _births(program, values), _users(program)
    cuts: list[set[int]] = [{0, root.bytes} for root in roots]
    members: list[list[Value]] = [[] for _ in roots]
    for v in program.values:
        storage, offset = place[v.id]
        cuts[storage] |= {offset, offset + v.bytes}
        members[storage].append(v)
        if offset < 0 or offset + v.bytes > roots[storage].bytes:
            raise InternalError(f"plan: view `{v.id}` reaches outside of `{roots[storage].id}`")
    atoms: list[Atom] = []
    of_value: dict[Id, list[int]] = {v.id: [] for v in program.values}
    for storage, borders in enumerate(cuts):
        _cut(storage, sorted(borders), members[storage], place, born, users, atoms, of_value)
    result = Atoms(
        program=program,
        atoms=tuple(atoms),
        of_value={k: tuple(a) for k, a in of_value.items()},
        place=place,
        storage_bytes=tuple(r.bytes for r in roots),
        storage_align=tuple(
            max(_own_align(m, r, place) for m in ms) for r, ms in zip(roots, members, strict=True)
        ),
        storage_pinned=tuple(any(m.pinned for m in ms) for ms in members),
        storage_region=tuple(r.region for r in roots),
        before=_dependences(program, born),
        candidates=(),
    )
    found = tuple(c for p in program.in_place if (c := _candidate(result, p)) is not None)
    return replace(result, candidates=found)


def _own_align(member: Value, root: Value, place: dict[Id, tuple[int, int]]) -> int:
    """what a member asks of its root: nothing if its offset does not keep the alignment anyway"""
    offset = place[member.id][1]
    return member.align if offset % member.align == 0 else root.align


def _places(
    program: Program, values: dict[Id, Value]
) -> tuple[dict[Id, tuple[int, int]], list[Value]]:
    view_of = {v.value: v for v in program.views}
    roots: list[Value] = []
    index: dict[Id, int] = {}
    place: dict[Id, tuple[int, int]] = {}
    for v in program.values:
        at, offset, hops = v.id, 0, 0
        while at in view_of:
            offset += view_of[at].offset
            at = view_of[at].base
            hops += 1
            if hops > len(view_of):
                raise InternalError(f"plan: views of `{v.id}` form a cycle")
        if at not in values:
            raise InternalError(f"plan: `{v.id}` is a view of `{at}`, which is not a value")
        if at not in index:
            index[at] = len(roots)
            roots.append(values[at])
        place[v.id] = index[at], offset
    return place, roots


def _births(program: Program, values: dict[Id, Value]) -> dict[Id, int]:
    born: dict[Id, int] = {}
    for position, step in enumerate(program.steps):
        for name in step.uses:
            if name not in values:
                raise InternalError(f"plan: step `{step.id}` uses `{name}`, which is not a value")
        for name in step.defines:
            if name not in values:
                raise InternalError(f"plan: step `{step.id}` defines `{name}`, not a value")
            if name in born:
                first = program.steps[born[name]].id
                raise InternalError(f"plan: `{name}` is defined by `{first}` and by `{step.id}`")
            born[name] = position
    return born


def _users(program: Program) -> dict[Id, list[int]]:
    users: dict[Id, list[int]] = {}
    for position, step in enumerate(program.steps):
        for name in dict.fromkeys(step.uses):
            users.setdefault(name, []).append(position)
    return users


def _dependences(program: Program, born: dict[Id, int]) -> tuple[tuple[int, ...], ...]:
    position = {step.id: i for i, step in enumerate(program.steps)}
    result = []
    for i, step in enumerate(program.steps):
        before = {born[name] for name in step.uses if name in born}
        before |= {position[name] for name in step.after}
        if any(p >= i for p in before):
            raise InternalError(f"plan: step `{step.id}` runs before something it needs")
        result.append(tuple(sorted(before)))
    return tuple(result)


def _cut(
    storage: int,
    borders: list[int],
    members: list[Value],
    place: dict[Id, tuple[int, int]],
    born: dict[Id, int],
    users: dict[Id, list[int]],
    atoms: list[Atom],
    of_value: dict[Id, list[int]],
) -> None:
    """Append the atoms of one storage; equal neighbours stay apart, the packer joins them."""
    for lo, hi in pairwise(borders):
        covering = [m for m in members if place[m.id][1] <= lo and hi <= place[m.id][1] + m.bytes]
        births = [born.get(m.id, NOBODY) for m in covering]
        # A step that writes a value over others it covers (a concat over its parts) reads them.
        touched = {b for b in births if b != NOBODY} | {
            u for m in covering for u in users.get(m.id, ())
        }
        first = min(births, default=NOBODY)
        touched.discard(first)
        for m in covering:
            of_value[m.id].append(len(atoms))
        kept = any(m.output or m.pinned for m in covering)
        atoms.append(Atom(storage, lo, hi, first, tuple(sorted(touched)), kept))


def _candidate(atoms: Atoms, pair: InPlace) -> Candidate | None:
    """The parts of legality that no order can change; None if it is never legal."""
    steps = atoms.program.steps
    at = next((i for i, s in enumerate(steps) if pair.output in s.defines), NOBODY)
    if at == NOBODY or steps[at].id != pair.step or pair.input not in steps[at].uses:
        return None
    inputs, outputs = atoms.of_value[pair.input], atoms.of_value[pair.output]
    if not inputs or not outputs or atoms.place[pair.input][0] == atoms.place[pair.output][0]:
        return None
    others = {a for name in steps[at].uses if name != pair.input for a in atoms.of_value[name]}
    if any(a in others or atoms.atoms[a].kept for a in inputs):
        return None
    if any(atoms.atoms[a].born != at for a in outputs):
        return None
    size_in = sum(atoms.atoms[a].bytes for a in inputs)
    size_out = sum(atoms.atoms[a].bytes for a in outputs)
    return Candidate(pair, at, inputs, outputs, size_in, size_out)
