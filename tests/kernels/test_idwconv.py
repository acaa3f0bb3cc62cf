"""mb/idwconv.h against numpy's integers: signs, zero points, padding, strides, dilations, odd channels; guarded."""

from __future__ import annotations

import ctypes
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from monobloc.kernels import integer, tiles
from tests.kernels.convolutions import compiled, run
from tests.kernels.test_iconv import EPILOGUE, Case

SEED = 20250712


def case(h: int, w: int, c: int, pads: tuple[int, int, int, int] = (1, 1, 1, 1), **more: Any) -> Case:
    return Case(h, w, c, c, pads=pads, groups=c, batch=2, **more)


def cases(vl: int) -> list[Case]:
    out = [
        case(5, 23, 2 * vl, zx=113),
        case(4, 5, 3 * vl + 3, signed=True, zx=-128, narrow=True),
        case(9, 17, vl + 1, strides=(2, 2), given=True, zx=255, zw=-127),
        case(7, 12, vl - 1, kernel=(5, 3), pads=(2, 0, 2, 2), zx=9, narrow=True),
        case(11, 13, vl, dilations=(2, 3), pads=(2, 3, 2, 3), signed=True, given=True, zx=5, zw=3),
        case(1, 30, vl, kernel=(1, 5), pads=(0, 4, 0, 0), zx=1),
        case(3, 37, vl // 2, signed=True, zx=-7, zw=2, narrow=True),
        case(4, 21, 1, zx=200, strides=(1, 2)),
        case(3, 19, 3, signed=True, given=True, zx=4, dilations=(1, 2), narrow=True),
    ]
    return out + [replace(c, wide=True, zx=c.zx * 127) for c in out]


def descriptor(c: Case) -> dict[str, int]:
    return integer.idwconv_desc(c.geometry, numbers=c.numbers)


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


def run_case(lib: ctypes.CDLL, i: int, c: Case, at_end: bool, nt: int) -> None:
    x, w, bias, y = c.operands(SEED + i)
    arrays = (x, integer.pack_idwconv_w(w), np.array([c.zx], x.dtype), y, bias)
    got = run(lib, i, arrays, 3, at_end, nt, str(c))
    assert np.array_equal(got, c.wanted(x, w, bias)), c


@pytest.mark.parametrize("vl", [16, 8, 4])
def test_idwconv(vl: int, tmp_path: Path) -> None:
    lib = compiled(source(vl), tmp_path, vl)
    for i, c in enumerate(cases(vl)):
        run_case(lib, i, c, True, 1)
        run_case(lib, i, c, False, 3)
