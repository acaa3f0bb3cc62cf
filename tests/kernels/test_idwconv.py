"""mb/idwconv.h against numpy's integers: signs, zero points, padding, strides, dilations, odd channels; guarded."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from monobloc.kernels import integer, tiles
from tests.kernels import harness
from tests.kernels.test_iconv import EPILOGUE

SEED = 20250712


@dataclass(frozen=True)
class Case:
    h: int
    w: int
    c: int
    kernel: tuple[int, int] = (3, 3)
    strides: tuple[int, int] = (1, 1)
    dilations: tuple[int, int] = (1, 1)
    pads: tuple[int, int, int, int] = (1, 1, 1, 1)
    signed: bool = False
    zx: int = 0
    given: bool = False
    zw: int = 0
    narrow: bool = False

    @property
    def out(self) -> tuple[int, int]:
        (kh, kw), (sh, sw), (dh, dw), p = self.kernel, self.strides, self.dilations, self.pads
        oh = (self.h + p[0] + p[2] - (kh - 1) * dh - 1) // sh + 1
        return oh, (self.w + p[1] + p[3] - (kw - 1) * dw - 1) // sw + 1


def cases(vl: int) -> list[Case]:
    return [
        Case(5, 23, 2 * vl, zx=113),
        Case(4, 5, 3 * vl + 3, signed=True, zx=-128, narrow=True),
        Case(9, 17, vl + 1, strides=(2, 2), given=True, zx=255, zw=-127),
        Case(7, 12, vl - 1, kernel=(5, 3), pads=(2, 0, 2, 2), zx=9, narrow=True),
        Case(11, 13, vl, dilations=(2, 3), pads=(2, 3, 2, 3), signed=True, given=True, zx=5, zw=3),
        Case(1, 30, vl, kernel=(1, 5), pads=(0, 4, 0, 0), zx=1),
    ]


def descriptor(c: Case) -> dict[str, int]:
    return integer.idwconv_desc(
        (2, c.h, c.w, c.c), c.out, c.kernel, strides=c.strides, dilations=c.dilations, pads=c.pads[:2],
        y_size=1 if c.narrow else 4, x_signed=c.signed, zx=None if c.given else c.zx, zw=c.zw)  # fmt: skip


def source(vl: int) -> str:
    text = ['#include "mb/idwconv.h"', EPILOGUE]
    for i, c in enumerate(cases(vl)):
        text.append(f"static const mb_idwconv d{i} = {tiles.c_initializer(descriptor(c))};")
        text.append(f"MB_IDWCONV(conv{i}, d{i}, epi)")
        text.append(
            f"void run{i}(const void *x, const void *w, const void *zx, void *y, const int32_t *bias,"
            f" int tid, int nt) {{ conv{i}(bias, x, w, zx, y, tid, nt); }}"
        )
    return "\n".join(text)


def reference(x: np.ndarray, w: np.ndarray, c: Case) -> np.ndarray:
    (kh, kw), (sh, sw), (dh, dw), p = c.kernel, c.strides, c.dilations, c.pads
    oh, ow = c.out
    padded = np.pad(x.astype(np.int64) - c.zx, ((0, 0), (p[0], p[2]), (p[1], p[3]), (0, 0)))
    y = np.zeros((2, oh, ow, c.c), np.int64)
    for r in range(kh):
        for s in range(kw):
            rows = slice(r * dh, r * dh + (oh - 1) * sh + 1, sh)
            cols = slice(s * dw, s * dw + (ow - 1) * sw + 1, sw)
            y += padded[:, rows, cols] * (w[:, 0, r, s].astype(np.int64) - c.zw)
    return y


def run_case(lib: ctypes.CDLL, i: int, c: Case, at_end: bool, nt: int) -> None:
    rng = np.random.default_rng(SEED + i)
    kind = np.int8 if c.signed else np.uint8
    info = np.iinfo(kind)
    x = rng.integers(info.min, info.max + 1, (2, c.h, c.w, c.c)).astype(kind)
    w = rng.integers(-128, 128, (c.c, 1, *c.kernel)).astype(np.int8)
    bias = rng.integers(-(2**20), 2**20, c.c).astype(np.int32)
    y_kind = np.int8 if c.narrow else np.int32
    y = np.full((2, *c.out, c.c), 77, y_kind)
    g = [harness.Guarded(v, at_end) for v in (x, integer.pack_idwconv_w(w), np.array([c.zx], kind), y, bias)]
    for tid in range(nt):
        getattr(lib, f"run{i}")(*(v.pointer for v in g), tid, nt)
    assert np.array_equal(g[3].array, (reference(x, w, c) + bias).astype(y_kind)), c
    assert all(v.canaries_intact() for v in g), f"{c}: wrote outside"


@pytest.mark.parametrize("vl", [16, 8, 4])
def test_idwconv(vl: int, tmp_path: Path) -> None:
    if not harness.cpu_has(vl):
        pytest.skip(f"this CPU has no vectors of {vl} floats")
    lib = harness.compile_shared(source(vl), tmp_path, vl)
    for i, c in enumerate(cases(vl)):
        run_case(lib, i, c, True, 1)
        run_case(lib, i, c, False, 3)
