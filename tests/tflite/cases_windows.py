"""Windows that are folded, read and written, and rows that are looked up."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from tfl_files import Scalar, byte, i32
from tfl_single import F32, F64, I8, I16, I32, I64, U8, U32, U64, Case, Q

FOLDS = ("ADD", "MUL", "MINIMUM", "MAXIMUM", "ALL", "ANY")


def longs(*v: int) -> np.ndarray:
    return np.array(v, I64)


def every() -> Iterator[Case]:
    yield from folded()
    yield from spread()
    yield from gathered()
    yield from scattered()
    yield from looked_up()
    yield from bits()


def folded() -> Iterator[Case]:
    """REDUCE_WINDOW"""
    window = (longs(2, 3), longs(1, 2), longs(2, 1))
    for number, fold in enumerate(FOLDS, 1):
        for t in (F32, I8, U8, I16, I32, I64):
            x = Q((5, 9), t, low=-3, high=3) if t is F32 else Q((5, 9), t)
            start = np.array(1 if t is U8 or number > 2 else -2, t)
            yield Case(f"reduce_window {fold} {np.dtype(t).name}", "REDUCE_WINDOW", (x, start, *window), Q((3, 4), t),
                       {0: i32(number)})
    for fold, width, stride in (("ADD", 37, 1), ("MAXIMUM", 37, 3), ("ADD", 64, 1)):
        x, count = Q((2, 70), I32), (70 - width) // stride + 1
        yield Case(f"reduce_window {fold} of {width}", "REDUCE_WINDOW",
                   (x, np.array(5, I32), longs(1, width), longs(1, stride), longs(1, 1)), Q((2, count), I32),
                   {0: i32(FOLDS.index(fold) + 1)})
    yield Case("reduce_window long apart", "REDUCE_WINDOW",
               (Q((50, 3), F32), np.array(0, F32), longs(11, 1), longs(2, 1), longs(3, 1)), Q((10, 3), F32),
               {0: i32(1)})


def spread() -> Iterator[Case]:
    """STABLEHLO_REDUCE_WINDOW"""
    for op, t in (("STABLEHLO_ADD", F32), ("STABLEHLO_MULTIPLY", I32), ("STABLEHLO_MAXIMUM", I8), ("MINIMUM", I16),
                  ("LOGICAL_AND", bool), ("LOGICAL_OR", bool), ("ADD", I64), ("STABLEHLO_MAXIMUM", F64)):
        options = {0: longs(2, 3), 1: longs(2, 1), 2: longs(2, 1), 3: longs(1, 2), 4: longs(1, 2, -1, 3), 5: i32(1)}
        start = np.array(op == "LOGICAL_AND" if t is bool else 3, t)
        yield Case(f"stablehlo REDUCE_WINDOW {op} {np.dtype(t).name}", "STABLEHLO_REDUCE_WINDOW",
                   (Q((4, 6), t), start), Q((5, 4), t), options, body=op)
    whole = {0: longs(1, 20), 1: longs(1, 1), 2: longs(1, 1), 3: longs(1, 1), 4: longs(0, 0, 19, 0), 5: i32(1)}
    yield Case("stablehlo REDUCE_WINDOW running sum", "STABLEHLO_REDUCE_WINDOW",
               (Q((3, 20), I32), np.array(0, I32)), Q((3, 20), I32), whole, body="STABLEHLO_ADD")


def gather(offset: Any, collapsed: Any, of: Any, vectors: int, sizes: Any) -> dict[int, Any]:
    return {0: longs(*offset), 1: longs(*collapsed), 2: longs(*of), 3: Scalar("q", vectors), 4: longs(*sizes)}


def gathered() -> Iterator[Case]:
    for t in (F32, I8, I64):
        x, at = Q((4, 5, 6), t), Q((3, 2), I32, low=-2, high=7)
        yield Case(f"stablehlo GATHER windows {np.dtype(t).name}", "STABLEHLO_GATHER", (x, at), Q((3, 2, 3, 6), t),
                   gather((1, 2, 3), (), (0, 1), 1, (2, 3, 6)))
        yield Case(f"stablehlo GATHER turned {np.dtype(t).name}", "STABLEHLO_GATHER", (x, at), Q((2, 3, 4), t),
                   gather((0, 2), (1,), (2, 1), 1, (2, 1, 4)))
    x = Q((6, 4), F32)
    yield Case("stablehlo GATHER rows", "STABLEHLO_GATHER", (x, Q((2, 3, 1), I64, low=0, high=5)), Q((2, 3, 4), F32),
               gather((2,), (0,), (0,), 2, (1, 4)))
    yield Case("stablehlo GATHER vectors first", "STABLEHLO_GATHER", (x, Q((2, 5), I32, low=0, high=5)), Q((5,), F32),
               gather((), (0, 1), (1, 0), 0, (1, 1)))
    yield Case("stablehlo GATHER at constants", "STABLEHLO_GATHER", (x, np.array([[1], [9], [-4]], I32)),
               Q((3, 2, 4), F32), gather((1, 2), (), (0,), 1, (2, 4)))


def scatter(within: Any, inserted: Any, of: Any, vectors: int) -> dict[int, Any]:
    return {1: longs(*within), 2: longs(*inserted), 3: longs(*of), 4: Scalar("q", vectors), 6: i32(1)}


def scattered() -> Iterator[Case]:
    for op in ("", "STABLEHLO_ADD", "STABLEHLO_MULTIPLY", "STABLEHLO_MAXIMUM", "STABLEHLO_MINIMUM"):
        for t in (F32, I32, I8):
            x, at = Q((5, 6, 3), t), Q((4, 2), I32, low=0, high=6)
            yield Case(f"stablehlo SCATTER {op or 'writes'} {np.dtype(t).name}", "STABLEHLO_SCATTER",
                       (x, at, Q((4, 2, 3), t)), Q((5, 6, 3), t), scatter((1, 2), (0,), (0, 1), 1), body=op)
    x = Q((5, 6), F32)
    yield Case("stablehlo SCATTER rows", "STABLEHLO_SCATTER", (x, Q((3, 1), I64, low=0, high=6), Q((3, 6), F32)), x,
               scatter((1,), (0,), (0,), 1), body="STABLEHLO_ADD")
    yield Case("stablehlo SCATTER windows first", "STABLEHLO_SCATTER",
               (x, Q((2, 4), I32, low=0, high=3), Q((2, 4, 3), F32)), x, scatter((0, 2), (), (1, 0), 0), body="")
    yield Case("stablehlo SCATTER entries", "STABLEHLO_SCATTER", (x, Q((7, 2), I32, low=0, high=4), Q((7,), F32)), x,
               scatter((), (0, 1), (0, 1), 1), body="STABLEHLO_ADD")


def looked_up() -> Iterator[Case]:
    keys, asked = np.array([-7, 0, 3, 12, 40], I32), Q((9,), I32, low=-1, high=4)
    for t in (F32, I8, I64):
        yield Case(f"hashtable_lookup {np.dtype(t).name}", "HASHTABLE_LOOKUP", (asked, keys, Q((5, 3), t)),
                   (Q((9, 3), t), Q((9,), U8)))
    yield Case("hashtable_lookup of numbers", "HASHTABLE_LOOKUP", (asked, keys, Q((5,), I32)),
               (Q((9,), I32), Q((9,), U8)))
    at = np.array([[0, 0], [0, 2], [2, 1], [2, 3], [2, 0]], I32)
    for number, how in enumerate(("sum", "mean", "sqrtn")):
        ids, weights = Q((5,), I32, low=0, high=6), Q((5,), F32, low=1, high=4)
        yield Case(f"embedding_lookup_sparse {how}", "EMBEDDING_LOOKUP_SPARSE",
                   (ids, at, np.array([4, 4], I32), weights, Q((7, 3, 2), F32)), Q((4, 3, 2), F32), {0: byte(number)})
    three = np.array([[0, 1, 0], [0, 1, 2], [1, 0, 1], [1, 2, 3], [1, 2, 0]], I32)
    yield Case("embedding_lookup_sparse rank 3", "EMBEDDING_LOOKUP_SPARSE",
               (Q((5,), I32, low=0, high=6), three, np.array([2, 3, 4], I32), Q((5,), F32, low=1, high=4),
                Q((7, 3), F32)), Q((2, 3, 3), F32), {0: byte(1)})


def bits() -> Iterator[Case]:
    for number, size in ((0, 3), (1, 2), (1, 3), (2, 2)):
        for t in (I32, U32, I64, U64):
            yield Case(f"stablehlo RNG {number} {size} {np.dtype(t).name}", "STABLEHLO_RNG_BIT_GENERATOR",
                       (Q((size,), U64),), (Q((size,), U64), Q((3, 7), t)), {0: byte(number)})
    full = np.array([12345, (1 << 64) - 2], U64)  # the counter begins anew
    yield Case("stablehlo RNG wraps", "STABLEHLO_RNG_BIT_GENERATOR", (full,), (Q((2,), U64), Q((9,), U32)),
               {0: byte(2)})
