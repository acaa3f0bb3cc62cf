"""Sizes at which code generation chooses another way, and those beside them: what a model has to have to cross each.

Few axes of a value are long at once, so that models stay small and quick.
"""

from __future__ import annotations

from builder import Builder
from steps import SMALL, chance, number, some

from monobloc.codegen.contraction import OPEN_COLUMN_ROWS, OPEN_ROWS
from monobloc.codegen.loops import LANES, STRIP, TURN
from monobloc.kernels.tiles import MAX_MR
from monobloc.ops.nbits import MANY, PART
from monobloc.ops.spectral import SHORT

OPEN = (11, 19)  # in models with open axes they stand for these, and for no other
ELEMENTS = 12_000  # of a value; the work for which threads are woken (codegen/unit.py) is some operators on it
AXES: dict[str, tuple[int, ...]] = {
    "vectors of 128, 256 and 512 bits": (4, 8, 16),
    "squares of a transposition, and their number in a vector": (TURN, 2 * TURN),
    "outer loops that are dealt out to two threads": (8,),
    "sums by lanes along memory, whole ones and a rest": (LANES, 2 * LANES, 3 * LANES),
    "strips": (STRIP, 2 * STRIP),
    "tiles: rows of one and two vectors, of open sizes; panels of one to four vectors": (
        OPEN_COLUMN_ROWS, OPEN_ROWS, MAX_MR, 16, 32, 48, 64),
    "panels taken together: eight and twelve of one vector": (128, 192),
    "rows of packed bits, and the part of a column that is unpacked": (MANY, PART),
    "a transform that is no matrix": (SHORT,),
}
THRESHOLDS = tuple(sorted({t for group in AXES.values() for t in group}))


def neighbours(t: int) -> tuple[int, ...]:
    return tuple(n for n in (t - 1, t, t + 1, 2 * t + 1) if n not in OPEN)


def near(b: Builder, most: int = 2 * PART) -> int:
    """A size beside a threshold, `most` at most; each threshold is as likely."""
    fit = [t for t in THRESHOLDS if t + 1 <= most]
    if not fit:
        return number(b, 1, max(1, most))
    t = int(some(b, *fit))
    return int(some(b, *(n for n in neighbours(t) if n <= most)))


def size(b: Builder, rest: int = 1, most: int = 2 * PART, p: float = 0.3) -> int:
    """One more axis of a value with `rest` elements: mostly short, else beside a threshold."""
    room = min(most, ELEMENTS // max(1, rest))
    return near(b, room) if chance(b, p) and room > THRESHOLDS[0] else min(int(some(b, *SMALL)), max(1, room))


def long_shape(b: Builder, rank: int, fixed: int = 0) -> tuple[int, ...]:
    """One or two axes beside thresholds, the others of a few; the first `fixed` ones are never long."""
    shape = [number(b, 1, 3) for _ in range(rank)]
    free = [int(k) for k in b.rng.permutation(range(fixed, rank))]
    for k in free[: int(some(b, 1, 2, 2))]:
        rest = 1
        for j, d in enumerate(shape):
            rest *= d if j != k else 1
        shape[k] = near(b, min(2 * PART, ELEMENTS // rest))
    return tuple(shape)


__all__ = ["AXES", "ELEMENTS", "OPEN", "THRESHOLDS", "long_shape", "near", "neighbours", "size"]
