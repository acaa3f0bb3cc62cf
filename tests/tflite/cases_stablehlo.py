"""The StableHLO operators that LiteRT has kernels of."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from tfl_single import F32, I16, I32, I64, Case, Q


def every() -> Iterator[Case]:
    for t in (F32, I32, I16):
        x = Q((3, 5), t)
        for op in ("ADD", "MULTIPLY", "MAXIMUM", "MINIMUM"):
            yield Case(f"stablehlo {op} {np.dtype(t).name}", f"STABLEHLO_{op}", (x, x), x)
    for t in (bool, I32):
        x = Q((3, 5), t)
        yield Case(f"stablehlo AND {np.dtype(t).name}", "STABLEHLO_AND", (x, x), x)
    by = np.array([0, 1, 5, 31, 30, 4, 2, 7], I32)  # LiteRT leaves the others to the machine
    yield Case("stablehlo SHIFT_LEFT", "STABLEHLO_SHIFT_LEFT", (Q((8,), I32), by), Q((8,), I32))
    for t in (F32, I32):
        x, y, value = Q((3, 4), t), Q((5, 10), t), np.array(7, t)
        yield Case(f"dilate {np.dtype(t).name}", "DILATE", (x, np.array([2, 3], I32), value), y)
        edges = {0: np.array([1, -1], I64), 1: np.array([-2, 3], I64), 2: np.array([0, 2], I64)}
        padded = Q((2, 12), t)
        yield Case(f"stablehlo PAD {np.dtype(t).name}", "STABLEHLO_PAD", (x, value), padded, edges)
