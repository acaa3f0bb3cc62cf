"""What the packer places: blocks, each a staircase of pieces in the time x address plane.

A block is everything that must move together: one buffer, or a storage with its views, or a chain
of buffers computed in place. Time is in half steps, so that an in-place input ends (at 2s, read)
before the output of the same step begins (at 2s+1, written). Two blocks collide exactly if some
piece of one meets some piece of the other in time and in address, so all the packer has to know
about a pair is which differences of their offsets are forbidden: a few open intervals.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from monobloc.plan.model import Buffer, align_up

if TYPE_CHECKING:
    from numpy.typing import NDArray

Columns: TypeAlias = "tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]"

CROWDED = 64  # from here on arrays are faster than lists


@dataclass(frozen=True, slots=True)
class Piece:
    """bytes [lo, hi) of the block during half steps `first` to `last`, inclusive"""

    first: int
    last: int
    lo: int
    hi: int


@dataclass(frozen=True)
class Block:
    """Pieces with one common offset. A `pinned` block owns all its bytes for all time."""

    pieces: tuple[Piece, ...]
    align: int
    pinned: bool = False
    region: int = 0

    @property
    def bytes(self) -> int:
        return max((p.hi for p in self.pieces), default=0)

    @property
    def first(self) -> int:
        return min(p.first for p in self.pieces)

    @property
    def last(self) -> int:
        return max(p.last for p in self.pieces)

    @property
    def grounded(self) -> bool:
        """true if no piece floats above the block's offset: nothing fits under one"""
        return all(p.lo == 0 for p in self.pieces)


@dataclass(frozen=True)
class Packing:
    """A packing problem without the pinned blocks, which lie below `floor`.

    Sizes are rounded up to the smallest alignment. `meets[x]` lists (y, lo, hi): the difference
    offset(x) - offset(y) must not lie strictly between lo and hi.
    """

    blocks: tuple[Block, ...]
    sizes: tuple[int, ...]
    aligns: tuple[int, ...]
    meets: tuple[tuple[tuple[int, int, int], ...], ...]
    crowded: Mapping[int, Columns]  # the long ones of `meets`, by columns
    floor: int
    bound: int


def rectangle(buffer: Buffer) -> Block:
    piece = Piece(2 * buffer.first, 2 * buffer.last + 1, 0, buffer.bytes)
    return Block((piece,), buffer.align, buffer.pinned)


def joined(pieces: Sequence[Piece]) -> tuple[Piece, ...]:
    """The same area in fewer pieces: neighbours in address, then in time, become one."""
    by_time = sorted(pieces, key=lambda p: (p.first, p.last, p.lo))
    wide: list[Piece] = []
    for _, group in groupby(by_time, key=lambda p: (p.first, p.last)):
        run: list[Piece] = []
        for p in group:
            if run and run[-1].hi == p.lo:
                run[-1] = Piece(p.first, p.last, run[-1].lo, p.hi)
            else:
                run.append(p)
        wide += run
    by_place = sorted(wide, key=lambda p: (p.lo, p.hi, p.first))
    long: list[Piece] = []
    for p in by_place:
        q = long[-1] if long else None
        if q and (q.lo, q.hi) == (p.lo, p.hi) and q.last + 1 >= p.first:
            long[-1] = Piece(q.first, max(q.last, p.last), q.lo, q.hi)
        else:
            long.append(p)
    return tuple(sorted(long, key=lambda p: (p.first, p.last, p.lo)))


def place_pinned(blocks: Sequence[Block]) -> tuple[dict[int, int], int]:
    """Offsets of the pinned blocks and the first byte above them.

    They meet every other block, so the bottom is as good a place as any; the most aligned come
    first, so that no padding is needed before the others.
    """
    pinned = [i for i, b in enumerate(blocks) if b.pinned]
    offset, top = {}, 0
    for i in sorted(pinned, key=lambda i: (-blocks[i].align, i)):
        offset[i] = align_up(top, blocks[i].align)
        top = offset[i] + blocks[i].bytes
    return offset, top


def packing(blocks: Sequence[Block], floor: int) -> Packing:
    """The problem of placing `blocks`, none of them pinned, at or above `floor`."""
    meets: list[list[tuple[int, int, int]]] = [[] for _ in blocks]
    simple = [b.bytes if len(b.pieces) == 1 and b.grounded else 0 for b in blocks]
    for x, y in _neighbours(blocks):
        if simple[x] and simple[y]:
            meets[x].append((y, -simple[x], simple[y]))
            meets[y].append((x, -simple[y], simple[x]))
            continue
        for lo, hi in _forbidden(blocks[x], blocks[y]):
            meets[x].append((y, lo, hi))
            meets[y].append((x, -hi, -lo))
    grain = min((b.align for b in blocks), default=1)
    return Packing(
        blocks=tuple(blocks),
        sizes=tuple(align_up(b.bytes, grain) for b in blocks),
        aligns=tuple(b.align for b in blocks),
        meets=tuple(map(tuple, meets)),
        crowded={x: _columns(m) for x, m in enumerate(meets) if len(m) >= CROWDED},
        floor=floor,
        bound=align_up(floor, grain) + peak_bytes(blocks, grain) if blocks else floor,
    )


def _columns(meets: list[tuple[int, int, int]]) -> Columns:
    table = np.array(meets, dtype=np.int64)
    return table[:, 0].copy(), table[:, 1].copy(), table[:, 2].copy()


def _neighbours(blocks: Sequence[Block]) -> Iterator[tuple[int, int]]:
    """pairs of blocks whose lifetimes meet"""
    first, last = [b.first for b in blocks], [b.last for b in blocks]
    active: list[int] = []
    for x in sorted(range(len(blocks)), key=lambda i: (first[i], i)):
        now = first[x]
        active = [y for y in active if last[y] >= now]
        for y in active:
            yield y, x
        active.append(x)


def _forbidden(x: Block, y: Block) -> list[tuple[int, int]]:
    """open intervals in which offset(x) - offset(y) must not lie, joined where they overlap"""
    spans = sorted(
        (q.lo - p.hi, q.hi - p.lo)
        for p in x.pieces
        for q in y.pieces
        if p.first <= q.last and q.first <= p.last
    )
    result: list[tuple[int, int]] = []
    for lo, hi in spans:
        if result and lo < result[-1][1]:
            result[-1] = result[-1][0], max(hi, result[-1][1])
        else:
            result.append((lo, hi))
    return result


def profile(block: Block, grain: int) -> list[tuple[int, int, int]]:
    """(first, last, bytes): how many bytes the block takes, in units of `grain`, and when"""
    cuts = sorted({p.first for p in block.pieces} | {p.last + 1 for p in block.pieces})
    result = []
    for first, end in pairwise(cuts):
        size, top = 0, 0
        for lo, hi in sorted(
            (p.lo // grain * grain, align_up(p.hi, grain))
            for p in block.pieces
            if p.first <= first and end - 1 <= p.last
        ):
            size += max(0, hi - max(lo, top))
            top = max(top, hi)
        if size:
            result.append((first, end - 1, size))
    return result


def peak_bytes(blocks: Sequence[Block], grain: int) -> int:
    """The largest sum of bytes alive at once.

    All offsets are multiples of `grain`, so what is left of a block's last unit is lost to others.
    """
    change: dict[int, int] = {}
    for block in blocks:
        for first, last, size in profile(block, grain):
            change[first] = change.get(first, 0) + size
            change[last + 1] = change.get(last + 1, 0) - size
    live = top = 0
    for moment in sorted(change):
        live += change[moment]
        top = max(top, live)
    return top
