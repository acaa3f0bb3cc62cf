"""From an order to blocks: lifetimes of atoms, and which outputs take over their input's memory.

Taking over ends the input half a step earlier and starts the output half a step later, so it never
raises the number of bytes alive; but it ties two offsets together, which can cost the packer more
than it saves. The planner therefore packs with all legal pairs, with those of equal size, and with
none, and keeps the smallest.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from monobloc.plan.atoms import NOBODY, Atoms, Candidate
from monobloc.plan.blocks import Block, Piece, joined
from monobloc.plan.model import DEFAULT_ALIGN, InPlace

BEFORE = -1  # the half step in which inputs are filled


@dataclass(frozen=True)
class Layout:
    """Blocks of a program in a given order."""

    blocks: tuple[Block, ...]
    storage: tuple[tuple[int, int], ...]  # storage -> (block, offset in it)
    scratch: dict[int, int]  # step -> block
    in_place: tuple[InPlace, ...]


@dataclass
class _Group:
    """Storages that move together, each with its offset from a common origin (may be negative)."""

    shift: dict[int, int]


def equal_size(c: Candidate) -> bool:
    return c.input_bytes == c.output_bytes


def layout(
    atoms: Atoms, order: Sequence[int], wanted: Callable[[Candidate], bool] = lambda c: True
) -> Layout:
    """Blocks for this order, with every in-place pair that is `wanted` and legal."""
    position = {step: i for i, step in enumerate(order)}
    life = _lifetimes(atoms, position)
    groups = [_Group({s: 0}) for s in range(len(atoms.storage_bytes))]
    of_storage: list[list[int]] = [[] for _ in groups]
    for a, atom in enumerate(atoms.atoms):
        of_storage[atom.storage].append(a)
    chosen: list[InPlace] = []
    for c in sorted(
        filter(wanted, atoms.candidates), key=lambda c: (position[c.step], *c.preference())
    ):
        if _take_over(atoms, of_storage, groups, life, position, c):
            chosen.append(c.pair)
    return _blocks(atoms, of_storage, groups, life, position, tuple(chosen))


def _lifetimes(atoms: Atoms, position: dict[int, int]) -> list[tuple[int, int]]:
    """(first, last) half step of each atom"""
    end = 2 * len(position) + 1
    result = []
    for atom in atoms.atoms:
        first = BEFORE if atom.born == NOBODY else 2 * position[atom.born]
        last = first if atom.born == NOBODY else first + 1
        last = max([last] + [2 * position[u] + 1 for u in atom.users])
        result.append((first, end if atom.kept else last))
    return result


def _take_over(
    atoms: Atoms,
    of_storage: list[list[int]],
    groups: list[_Group],
    life: list[tuple[int, int]],
    position: dict[int, int],
    c: Candidate,
) -> bool:
    """Merge the output's group into the input's if nothing else collides; true if done."""
    moment = 2 * position[c.step]
    (into, in_offset), (out, out_offset) = atoms.place[c.pair.input], atoms.place[c.pair.output]
    first, second = groups[into], groups[out]
    if first is second or any(life[a][1] != moment + 1 for a in c.inputs):
        return False
    move = first.shift[into] + in_offset - second.shift[out] - out_offset
    merged = dict(first.shift) | {s: d + move for s, d in second.shift.items()}
    if not _fits(atoms, merged):
        return False
    trial = {a: (life[a][0], moment) for a in c.inputs}
    trial |= {a: (moment + 1, life[a][1]) for a in c.outputs}
    if _collide(atoms, of_storage, life, trial, merged, set(first.shift), set(second.shift)):
        return False
    for a, span in trial.items():
        life[a] = span
    first.shift = merged
    for s in second.shift:
        groups[s] = first
    return True


def _fits(atoms: Atoms, shift: dict[int, int]) -> bool:
    """alignments hold, and a pinned storage does not grow"""
    low = min(shift.values())
    if any((d - low) % atoms.storage_align[s] for s, d in shift.items()):
        return False
    pinned = [s for s in shift if atoms.storage_pinned[s]]
    if not pinned:
        return True
    if len(pinned) > 1:
        return False
    start = shift[pinned[0]]
    end = start + atoms.storage_bytes[pinned[0]]
    return low >= start and all(d + atoms.storage_bytes[s] <= end for s, d in shift.items())


def _collide(
    atoms: Atoms,
    of_storage: list[list[int]],
    life: list[tuple[int, int]],
    trial: dict[int, tuple[int, int]],
    shift: dict[int, int],
    left: set[int],
    right: set[int],
) -> bool:
    """whether some atom of the storages `left` meets one of `right` in time and in address"""

    def areas(storages: set[int]) -> list[tuple[int, int, int, int]]:
        return [
            (*trial.get(a, life[a]), atoms.atoms[a].lo + shift[s], atoms.atoms[a].hi + shift[s])
            for s in storages
            for a in of_storage[s]
        ]

    others = areas(right)
    return any(
        f <= g2 and g1 <= e and lo < hi2 and lo2 < hi
        for f, e, lo, hi in areas(left)
        for g1, g2, lo2, hi2 in others
    )


def _blocks(
    atoms: Atoms,
    of_storage: list[list[int]],
    groups: list[_Group],
    life: list[tuple[int, int]],
    position: dict[int, int],
    chosen: tuple[InPlace, ...],
) -> Layout:
    blocks: list[Block] = []
    number: dict[int, int] = {}  # first storage of a group -> block
    storage: list[tuple[int, int]] = []
    for s, group in enumerate(groups):
        leader, low = next(iter(group.shift)), min(group.shift.values())
        if leader not in number:
            number[leader] = len(blocks)
            blocks.append(_block(atoms, of_storage, group.shift, low, life))
        storage.append((number[leader], group.shift[s] - low))
    scratch: dict[int, int] = {}
    for i, step in enumerate(atoms.program.steps):
        if step.scratch_bytes:
            scratch[i] = len(blocks)
            piece = Piece(2 * position[i], 2 * position[i] + 1, 0, step.scratch_bytes)
            blocks.append(Block((piece,), DEFAULT_ALIGN))
    return Layout(tuple(blocks), tuple(storage), scratch, chosen)


def _block(
    atoms: Atoms,
    of_storage: list[list[int]],
    shift: dict[int, int],
    low: int,
    life: list[tuple[int, int]],
) -> Block:
    pieces = [
        Piece(*life[a], atoms.atoms[a].lo + d - low, atoms.atoms[a].hi + d - low)
        for s, d in shift.items()
        for a in of_storage[s]
    ]
    align = max(atoms.storage_align[s] for s in shift)
    pinned = any(atoms.storage_pinned[s] for s in shift)
    return Block(joined(pieces), align, pinned, atoms.storage_region[next(iter(shift))])
