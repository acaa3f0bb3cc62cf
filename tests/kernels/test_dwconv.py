"""mb/dwconv.h against float64: edges, strides, dilations, channel tails, multipliers."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from monobloc.kernels import packing, tiles
from tests.kernels import harness
from tests.kernels.convolutions import Conv, check_close, check_threads, compiled, reference, run
from tests.kernels.test_conv import EPILOGUE

SEED = 20240603


def case(h: int, w: int, c: int, mult: int = 1, pads: tuple[int, int, int, int] = (1, 1, 1, 1), **more: Any) -> Conv:
    return Conv(h, w, c, c * mult, pads=pads, groups=c, **more)


def cases(vl: int) -> list[Conv]:
    return [
        case(7, 7, 2 * vl),
        case(7, 7, 3 * vl + 3, split=1),
        case(5, 28, vl + vl // 2, batch=2),
        case(6, 57, vl),
        case(9, 14, 2 * vl + 1, strides=(2, 2)),
        case(9, 56, 2 * vl, strides=(2, 2), pads=(0, 0, 1, 1)),
        case(4, 43, vl, kernel=(5, 5), pads=(2, 2, 2, 2)),
        case(8, 31, vl, kernel=(5, 5), strides=(2, 2), pads=(1, 2, 2, 1)),
        case(8, 50, vl + 1, kernel=(7, 7), pads=(3, 3, 3, 3)),
        case(6, 40, vl, kernel=(3, 3), dilations=(2, 3), pads=(2, 3, 2, 3)),
        case(6, 40, vl - 1),
        case(6, 12, 3),
        case(6, 12, 5, mult=3),
        case(3, 60, vl, kernel=(1, 11), pads=(0, 5, 0, 5)),
        case(1, 1, vl),
        case(2, 3, vl, kernel=(3, 3), pads=(2, 2, 2, 2)),
        case(4, 60, vl, kernel=(1, 3), pads=(0, 20, 0, 20)),
        case(60, 1, vl, kernel=(3, 1), pads=(1, 0, 1, 0)),
    ]


def descriptor(c: Conv, vl: int) -> dict[str, int]:
    d = tiles.dwconv_desc(c.geometry, vl, harness.MARCH[vl][1])
    return c.chosen(d | {"epi_loop": c.w % 2})


def source(vl: int) -> str:
    text = ['#include "mb/dwconv.h"', EPILOGUE]
    for i, c in enumerate(cases(vl)):
        oh, ow = c.out
        text.append(f"static const mb_dwconv d{i} = {tiles.c_initializer(descriptor(c, vl))};")
        text.append(f"MB_DWCONV(dw{i}, d{i}, epi)")
        text.append(
            f"void run{i}(const float *x, const float *w, float *y, const float *bias,"
            f" const float *res, int tid, int nt) {{ ctx_t k = {{bias, res, {oh}, {ow},"
            f" {c.oc}}}; dw{i}(&k, x, w, y, tid, nt); }}"
        )
    return "\n".join(text)


def run_case(lib: ctypes.CDLL, i: int, c: Conv, vl: int, at_end: bool, nt: int) -> np.ndarray:
    rng = np.random.default_rng(SEED + i)
    f32 = np.float32
    x = rng.standard_normal((c.batch, c.h, c.w, c.ic), f32)
    w = rng.standard_normal((c.oc, 1, *c.kernel), f32)
    y_shape = (c.batch, *c.out, c.oc)
    bias, res = rng.standard_normal(c.oc, f32), rng.standard_normal(y_shape, f32)
    arrays = (x, packing.pack_dwconv_w(w), np.full(y_shape, 7e7, f32), bias, res)
    got = run(lib, i, arrays, 2, at_end, nt, f"vl {vl} {c}")
    want = np.clip(reference(x.astype(np.float64), w, c) + bias + res, 0, 6)
    scale = reference(np.abs(x.astype(np.float64)), np.abs(w), c) + np.abs(bias) + np.abs(res)
    check_close(got, want, scale, f"vl {vl} {c}")
    return got


@pytest.mark.parametrize("vl", [16, 8, 4])
def test_dwconv(vl: int, tmp_path: Path) -> None:
    check_threads(compiled(source(vl), tmp_path, vl), cases(vl), vl, run_case)
