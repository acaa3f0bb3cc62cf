"""mb/dwconv.h against float64: edges, strides, dilations, channel tails, multipliers."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from monobloc.kernels import packing, tiles
from tests.kernels import harness, test_conv

SEED = 20240603


@dataclass(frozen=True)
class Case:
    h: int
    w: int
    c: int
    kernel: tuple[int, int] = (3, 3)
    strides: tuple[int, int] = (1, 1)
    dilations: tuple[int, int] = (1, 1)
    pads: tuple[int, int, int, int] = (1, 1, 1, 1)
    mult: int = 1
    batch: int = 1
    split: int = -1

    def conv(self) -> test_conv.Case:
        return test_conv.Case(
            h=self.h,
            w=self.w,
            ic=self.c,
            oc=self.c * self.mult,
            kernel=self.kernel,
            strides=self.strides,
            dilations=self.dilations,
            pads=self.pads,
            groups=self.c,
            batch=self.batch,
        )


def cases(vl: int) -> list[Case]:
    return [
        Case(7, 7, 2 * vl),
        Case(7, 7, 3 * vl + 3, split=1),
        Case(5, 28, vl + vl // 2, batch=2),
        Case(6, 57, vl),
        Case(9, 14, 2 * vl + 1, strides=(2, 2)),
        Case(9, 56, 2 * vl, strides=(2, 2), pads=(0, 0, 1, 1)),
        Case(4, 43, vl, kernel=(5, 5), pads=(2, 2, 2, 2)),
        Case(8, 31, vl, kernel=(5, 5), strides=(2, 2), pads=(1, 2, 2, 1)),
        Case(8, 50, vl + 1, kernel=(7, 7), pads=(3, 3, 3, 3)),
        Case(6, 40, vl, kernel=(3, 3), dilations=(2, 3), pads=(2, 3, 2, 3)),
        Case(6, 40, vl - 1),
        Case(6, 12, 3),
        Case(6, 12, 5, mult=3),
        Case(3, 60, vl, kernel=(1, 11), pads=(0, 5, 0, 5)),
        Case(1, 1, vl),
        Case(2, 3, vl, kernel=(3, 3), pads=(2, 2, 2, 2)),
        Case(4, 60, vl, kernel=(1, 3), pads=(0, 20, 0, 20)),
        Case(60, 1, vl, kernel=(3, 1), pads=(1, 0, 1, 0)),
    ]


def descriptor(c: Case, vl: int) -> dict[str, int]:
    d = tiles.dwconv_desc(
        (c.batch, c.h, c.w, c.c),
        c.conv().out,
        c.kernel,
        vl,
        harness.MARCH[vl][1],
        multiplier=c.mult,
        strides=c.strides,
        dilations=c.dilations,
        pads=c.pads[:2],
    )
    d |= {"epi_loop": c.w % 2}
    return d | ({"split": c.split} if c.split >= 0 else {})


def source(vl: int) -> str:
    text = ['#include "mb/dwconv.h"', test_conv.EPILOGUE]
    for i, c in enumerate(cases(vl)):
        oh, ow = c.conv().out
        text.append(f"static const mb_dwconv d{i} = {tiles.c_initializer(descriptor(c, vl))};")
        text.append(f"MB_DWCONV(dw{i}, d{i}, epi)")
        text.append(
            f"void run{i}(const float *x, const float *w, float *y, const float *bias,"
            f" const float *res, int tid, int nt) {{ ctx_t k = {{bias, res, {oh}, {ow},"
            f" {c.c * c.mult}}}; dw{i}(&k, x, w, y, tid, nt); }}"
        )
    return "\n".join(text)


def run_case(lib: ctypes.CDLL, i: int, c: Case, vl: int, at_end: bool, nt: int) -> np.ndarray:
    rng = np.random.default_rng(SEED + i)
    f32, conv = np.float32, c.conv()
    x = rng.standard_normal((c.batch, c.h, c.w, c.c), f32)
    w = rng.standard_normal((conv.oc, 1, *c.kernel), f32)
    y_shape = (c.batch, *conv.out, conv.oc)
    bias, res = rng.standard_normal(conv.oc, f32), rng.standard_normal(y_shape, f32)
    arrays = (x, packing.pack_dwconv_w(w), np.full(y_shape, 7e7, f32), bias, res)
    g = [harness.Guarded(v, at_end) for v in arrays]
    for tid in range(nt):
        getattr(lib, f"run{i}")(*(v.pointer for v in g), tid, nt)
    want = np.clip(test_conv.reference(x, w, conv) + bias + res, 0, 6)
    scale = test_conv.reference(np.abs(x), np.abs(w), conv)
    err = np.abs(g[2].array - want) / (2e-6 * (scale + np.abs(bias) + np.abs(res)) + 1e-6)
    assert err.max() < 1, f"vl {vl} {c}: error {err.max()} of the bound"
    assert all(v.canaries_intact() for v in g), f"vl {vl} {c}: wrote outside"
    return g[2].array.copy()


@pytest.mark.parametrize("vl", [16, 8, 4])
def test_dwconv(vl: int, tmp_path: Path) -> None:
    if not harness.cpu_has(vl):
        pytest.skip(f"this CPU has no vectors of {vl} floats")
    lib = harness.compile_shared(source(vl), tmp_path, vl)
    for i, c in enumerate(cases(vl)):
        one = run_case(lib, i, c, vl, True, 1)
        for nt in (2, 3):
            many = run_case(lib, i, c, vl, nt == 2, nt)
            assert one.tobytes() == many.tobytes(), f"vl {vl} {c}: differs with {nt} threads"
