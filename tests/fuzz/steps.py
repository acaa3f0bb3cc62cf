"""What all steps share: a step adds one node, or a small pattern, to a model under construction."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from builder import Builder

Step = Callable[[Builder], str]
SMALL = (1, 2, 3, 5, 7, 8, 13, 16, 17)


def some(b: Builder, *options: object) -> object:
    return options[int(b.rng.integers(len(options)))]


def number(b: Builder, low: int, high: int) -> int:
    return int(b.rng.integers(low, high + 1))


def chance(b: Builder, p: float = 0.5) -> bool:
    return bool(b.rng.random() < p)


def broadcast_partner(b: Builder, x: str, dtype: object = np.float32) -> str:
    """A value whose shape broadcasts with x's in some way."""
    shape = b.values[x].shape
    how = number(b, 0, 5)
    if how == 0:
        same = [n for n, v in b.values.items() if v.shape == shape and v.dtype == b.values[x].dtype]
        return same[number(b, 0, len(same) - 1)]
    if how == 1:
        return b.leaf((), dtype)
    if how == 2:
        return b.leaf(tuple(d if chance(b) else 1 for d in shape), dtype)
    if how == 3:
        return b.leaf(shape[number(b, 0, len(shape)):], dtype)
    if how == 4 and b.values[x].size < 4096 and len(shape) < 6:
        return b.leaf((number(b, 1, 3), *(d if chance(b) else 1 for d in shape)), dtype)
    if len(shape) >= 2:
        return b.leaf((shape[1], *(1,) * (len(shape) - 2)), dtype)
    return b.leaf(shape, dtype)


def anything(b: Builder) -> str:
    return b.pick(str(some(b, "float32", "float32", "float32", "int64", "bool", "int32")))
