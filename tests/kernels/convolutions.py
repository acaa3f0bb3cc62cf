"""What the tests of the kernels have in common: cases of convolutions, exact answers, guarded runs by several threads.

A kernel's test compiles all its cases into one shared object with a function `run{i}` for each, whose last
arguments are the thread's number and how many there are.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from monobloc.kernels.tiles import Geometry
from tests.kernels import harness


@dataclass(frozen=True)
class Conv:
    """A convolution; channels are those of all groups."""

    h: int
    w: int
    ic: int
    oc: int
    kernel: tuple[int, int] = (3, 3)
    strides: tuple[int, int] = (1, 1)
    dilations: tuple[int, int] = (1, 1)
    pads: tuple[int, int, int, int] = (0, 0, 0, 0)  # top, left, bottom, right
    groups: int = 1
    batch: int = 1
    nchw: bool = False  # how x lies
    split: int = -1  # -1: as the descriptor says
    bh: int = 0  # 0: as the descriptor says

    @property
    def out(self) -> tuple[int, int]:
        (kh, kw), (sh, sw), (dh, dw), p = self.kernel, self.strides, self.dilations, self.pads
        oh = (self.h + p[0] + p[2] - (kh - 1) * dh - 1) // sh + 1
        return oh, (self.w + p[1] + p[3] - (kw - 1) * dw - 1) // sw + 1

    @property
    def geometry(self) -> Geometry:
        return Geometry((self.batch, self.h, self.w, self.ic), self.oc, self.out, self.kernel, self.groups,
                        self.strides, self.dilations, self.pads[:2])

    def chosen(self, d: dict[str, int]) -> dict[str, int]:
        """A descriptor with what the case wants of it."""
        return d | ({"split": self.split} if self.split >= 0 else {}) | ({"bh": self.bh} if self.bh else {})


def reference(x: np.ndarray, w: np.ndarray, c: Conv) -> np.ndarray:
    """NHWC convolution, tap by tap, in the type of x: float64 or int64."""
    (kh, kw), (sh, sw), (dh, dw), p = c.kernel, c.strides, c.dilations, c.pads
    oh, ow = c.out
    padded = np.pad(x, ((0, 0), (p[0], p[2]), (p[1], p[3]), (0, 0)))
    og, ig = c.oc // c.groups, c.ic // c.groups
    y = np.zeros((c.batch, oh, ow, c.oc), x.dtype)
    for g in range(c.groups):
        for r in range(kh):
            for s in range(kw):
                rows = slice(r * dh, r * dh + (oh - 1) * sh + 1, sh)
                cols = slice(s * dw, s * dw + (ow - 1) * sw + 1, sw)
                taps = padded[:, rows, cols, g * ig : (g + 1) * ig]
                y[..., g * og : (g + 1) * og] += taps @ w[g * og : (g + 1) * og, :, r, s].T
    return y


def compiled(text: str, folder: Path, vl: int, extra: tuple[str, ...] = ()) -> ctypes.CDLL:
    """The shared object, or a skip where this CPU cannot run it."""
    if not harness.cpu_has(vl):
        pytest.skip(f"this CPU has no vectors of {vl} floats")
    return harness.compile_shared(text, folder, vl, extra)


def run(
    lib: ctypes.CDLL, i: int, arrays: Sequence[np.ndarray], y: int, at_end: bool, nt: int, what: str,
    aliases: Mapping[int, int] | None = None,
) -> np.ndarray:
    """`run{i}` on guarded memory, one thread after the other; what `arrays[y]` is then.

    `aliases`: arguments that get the memory of another one."""
    g = [harness.Guarded(v, at_end) for v in arrays]
    pointers = [g[(aliases or {}).get(k, k)].pointer for k in range(len(g))]
    for tid in range(nt):
        getattr(lib, f"run{i}")(*pointers, tid, nt)
    assert all(v.canaries_intact() for v in g), f"{what}: wrote outside"
    return g[y].array.copy()


def check_close(got: np.ndarray, want: np.ndarray, scale: np.ndarray, what: str) -> None:
    """`scale`: the sum of the terms' absolute values, of which rounding may be off by a little."""
    err = np.abs(got - want) / (2e-6 * scale + 1e-6)
    assert err.max() < 1, f"{what}: error {err.max()} of the bound"


RunCase = Callable[[ctypes.CDLL, int, Any, int, bool, int], np.ndarray]


def check_threads(lib: ctypes.CDLL, cases: Sequence[Any], vl: int, run_case: RunCase) -> None:
    """Every case, alone and by two and three threads: the same bytes."""
    for i, c in enumerate(cases):
        one = run_case(lib, i, c, vl, True, 1)
        for nt in (2, 3):
            many = run_case(lib, i, c, vl, nt == 2, nt)
            assert one.tobytes() == many.tobytes(), f"vl {vl} {c}: differs with {nt} threads"
