"""All sizes that a run may choose, covered by as few versions as the compiler's decisions need.

What is compiled for a space holds for those of its points that satisfy the guards met on the way. The rest is compiled
again, until no point is left; a space is always a box of points, since its text says each dimension's sizes alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import TypeVar

import numpy as np

from monobloc.ir.symbolic import Space

T = TypeVar("T")


def cover(symbols: Sequence[str], points: np.ndarray, make: Callable[[Space], T], most: int) -> list[tuple[T, Space]]:
    """What is made for spaces that have all the points between them, in the order in which a run tries them."""
    out: list[tuple[T, Space]] = []
    rest = points
    while len(rest):
        if len(out) == most:
            raise TooMany([s for _, s in out])
        here = _box(rest)
        part = rest[here]
        same = {s: int(part[0, k]) for k, s in enumerate(symbols) if (part[:, k] == part[0, k]).all()}
        left = [k for k, s in enumerate(symbols) if s not in same]
        space = Space([symbols[k] for k in left], part[:, left], fixed=same)
        out.append((make(space), space))
        rest = np.delete(rest, np.flatnonzero(here)[space.rows], axis=0)
    return out


def _box(points: np.ndarray) -> np.ndarray:
    """Which of the points are a box with all of its points, as large as fixing single dimensions makes one."""
    here = np.ones(len(points), bool)
    while prod(len(np.unique(points[here, k])) for k in range(points.shape[1])) != here.sum():
        slabs = [(k, v, n) for k in range(points.shape[1])
                 for v, n in zip(*np.unique(points[here, k], return_counts=True), strict=True) if n < here.sum()]
        axis, value, _ = max(slabs, key=lambda s: (s[2], -s[0], s[1]))
        here &= points[:, axis] == value
    return here


class TooMany(Exception):
    """More versions would be needed than there may be."""

    def __init__(self, spaces: Sequence[Space]) -> None:
        super().__init__("too many versions")
        self.conditions = list(dict.fromkeys(c for s in spaces for c in s.conditions))
