"""When two answers are the same: to the bit for integers and booleans, within rounding for floats."""

from __future__ import annotations

import numpy as np

RTOL, ATOL = 2e-4, 2e-4


def differs(got: np.ndarray, want: np.ndarray, of_halves: bool = False) -> str:
    """What is wrong with `got`, if anything; what was made `of_halves` is as exact as they are, whatever its type"""
    if got.dtype != want.dtype or got.shape != want.shape:
        return f"{got.dtype}{got.shape} instead of {want.dtype}{want.shape}"
    if want.dtype.kind in "biu":
        n = int((got != want).sum())
        return f"{n} of {want.size} elements differ" if n else ""
    half = of_halves or want.dtype.itemsize == 2
    g, w = got.astype(np.float64), want.astype(np.float64)
    same = (g == w) | (np.isnan(g) & np.isnan(w))
    finite = np.isfinite(w)  # others have no neighbours
    w = np.where(finite, w, 0)
    rtol, atol = (2e-2, 2e-2) if half else (RTOL, ATOL)
    tol = atol * max(1.0, float(np.abs(w).max(initial=0)) * 0.1) + rtol * np.abs(w)
    with np.errstate(invalid="ignore"):
        off = ~(same | (finite & (np.abs(g - w) <= tol)))
    if not off.any():
        return ""
    at = tuple(int(i[0]) for i in np.nonzero(off))
    first = f"{g[at]:.6g} instead of {float(want[at]):.6g}"
    return f"{int(off.sum())} of {want.size} elements differ, first at {at}: {first}"
