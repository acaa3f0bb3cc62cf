"""mb/conv.h against float64: padding, strides, dilations, groups, layouts, odd sizes."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from monobloc.kernels import packing, tiles
from tests.kernels import harness
from tests.kernels.convolutions import Conv, check_close, check_threads, compiled, reference, run

SEED = 20240602


@dataclass(frozen=True)
class Case(Conv):
    plain: bool = False


def cases(vl: int) -> list[Case]:
    same = (1, 1, 1, 1)
    out = [
        Case(7, 7, 5, 2 * vl, pads=same),
        Case(7, 7, 4, 3 * vl + 1, pads=same, split=1),
        Case(14, 14, 3, vl, pads=same, bh=1),
        Case(6, 33, 3, 2 * vl + vl // 2, pads=same, bh=2),
        Case(9, 30, 2, vl - 1, pads=(2, 0, 0, 1)),
        Case(5, 5, 3, vl + 3, kernel=(5, 5), pads=(2, 2, 2, 2), batch=2),
        Case(12, 12, 3, 2 * vl, kernel=(7, 7), strides=(2, 2), pads=(3, 3, 3, 3)),
        Case(
            12,
            12,
            3,
            2 * vl,
            kernel=(7, 7),
            strides=(2, 2),
            pads=(3, 3, 3, 3),
            nchw=True,
        ),
        Case(11, 13, 1, vl, pads=same, nchw=True, bh=3),
        Case(11, 13, 6, 2 * vl),
        Case(8, 20, 6, 2 * vl, kernel=(1, 1), strides=(2, 2)),
        Case(8, 40, 4, 2 * vl, kernel=(1, 1), batch=2),
        Case(13, 15, 4, vl + 2, dilations=(2, 3), pads=(2, 3, 2, 3)),
        Case(13, 15, 4, vl + 2, dilations=(2, 1)),
        Case(9, 9, 4 * 3, 3 * 2 * vl, groups=3, pads=same),
        Case(9, 9, 6, 6 * 2, groups=6, pads=same, batch=2),
        Case(9, 9, 2 * 5, 2 * (vl + 5), groups=2),
        Case(1, 50, 3, vl, kernel=(1, 5), pads=(0, 2, 0, 2)),
        Case(50, 1, 3, 4 * vl + 1, kernel=(5, 1), pads=(2, 0, 2, 0), split=1),
        Case(4, 4, 3, vl, kernel=(4, 4)),
        Case(3, 3, 2, vl + 1, kernel=(2, 2), strides=(3, 3), pads=(2, 2, 2, 2)),
        Case(10, 10, 3, 10, pads=same, strides=(2, 1)),
        *strongly_dilated(vl),
    ]
    return out + [Case(**{**vars(c), "plain": True}) for c in out if c.groups == 1 or c.ic == 10 or c.oc > 16]


def strongly_dilated(vl: int) -> list[Case]:
    """Most of their taps meet only padding, and most rows between two taps are no tap's."""
    far, most = (9, 9), (12, 10, 12, 10)
    return [
        Case(17, 33, 3, 2 * vl + 1, dilations=far, pads=(9, 9, 9, 9)),
        Case(17, 33, 3, vl, dilations=far, pads=(9, 9, 9, 9), bh=3),
        Case(7, 5, 4, 3 * vl, dilations=(6, 4), pads=(6, 4, 6, 4), bh=2),
        Case(7, 5, 4, 3 * vl, dilations=(6, 4), pads=(6, 4, 6, 4), split=1, batch=2),
        Case(15, 21, 2 * 3, 2 * vl, dilations=far, pads=most, strides=(2, 3), groups=2),
        Case(15, 21, 3, vl, kernel=(4, 2), dilations=(5, 16), pads=most, strides=(3, 1), nchw=True),
        Case(40, 40, 2, vl, dilations=(17, 13)),
        Case(4, 4, 2, vl, kernel=(2, 2), dilations=(11, 11), pads=(11, 11, 11, 11)),
    ]


def test_strong_dilations_gather_their_rows() -> None:
    assert all(descriptor(c, 8)["gather"] for c in strongly_dilated(8) if any(c.pads))
    assert not any(descriptor(c, 8)["gather"] for c in cases(8) if c.dilations == (1, 1))


def descriptor(c: Case, vl: int) -> dict[str, int]:
    strides = (c.h * c.w * c.ic, c.w, 1, c.h * c.w) if c.nchw else None
    d = tiles.conv_desc(c.geometry, vl, harness.MARCH[vl][1], x_strides=strides, plain=c.plain)
    d |= {"pf": 1, "epi_loop": c.h % 2} if not c.plain else {}
    return c.chosen(d)


def epilogue() -> str:
    """Bias, residual and Relu6, once for vectors and once for elements."""
    text = ["typedef struct { const float *bias, *res; long h, w, n; } ctx_t;"]
    for t, suffix in (("mb_vf", "v"), ("float", "s")):
        text.append(
            f"MB_INLINE {t} epi_{suffix}(const void *p, {t} acc, mb_ix ix) {{"
            " const ctx_t *c = p; acc = mb_add(acc, mb_ld(acc, c->bias + ix.n));"
            " acc = mb_add(acc, mb_ld(acc, c->res + ((ix.b * c->h + ix.i) * c->w + ix.j) * c->n"
            " + ix.n)); return mb_min(6.f, mb_max(0.f, acc)); }"
        )
    return "\n".join(text)


EPILOGUE = epilogue()


def source(vl: int) -> str:
    text = ['#include "mb/conv.h"', EPILOGUE]
    for i, c in enumerate(cases(vl)):
        oh, ow = c.out
        text.append(f"static const mb_conv d{i} = {tiles.c_initializer(descriptor(c, vl))};")
        text.append(f"MB_CONV(conv{i}, d{i}, epi)")
        text.append(f"long scratch{i}(void) {{ return mb_conv_scratch(&d{i}); }}")
        text.append(
            f"void run{i}(const float *x, const float *w, float *y, const float *bias,"
            " const float *res, float *scratch, int tid, int nt) {"
            f" ctx_t k = {{bias, res, {oh}, {ow}, {c.oc}}};"
            f" conv{i}(&k, x, w, y, 0, scratch, tid, nt); }}"
        )
    return "\n".join(text)


def run_case(lib: ctypes.CDLL, i: int, c: Case, vl: int, at_end: bool, nt: int) -> np.ndarray:
    rng = np.random.default_rng(SEED + i)
    f32 = np.float32
    d = descriptor(c, vl)
    x = rng.standard_normal((c.batch, c.h, c.w, c.ic), f32)
    w = rng.standard_normal((c.oc, c.ic // c.groups, *c.kernel), f32)
    y_shape = (c.batch, *c.out, c.oc)
    bias, res = rng.standard_normal(c.oc, f32), rng.standard_normal(y_shape, f32)
    packed = packing.hwio(w) if c.plain else packing.pack_conv_w(w, c.groups, d["nv"], vl)
    stored = np.ascontiguousarray(x.transpose(0, 3, 1, 2)) if c.nchw else x
    size = tiles.conv_scratch(d)
    assert size == getattr(lib, f"scratch{i}")(), f"vl {vl} {c}: scratch sizes differ"
    scratch = np.full(max(1, size * nt), np.nan, f32)
    arrays = (stored, packed, np.full(y_shape, 7e7, f32), bias, res, scratch)
    got = run(lib, i, arrays, 2, at_end, nt, f"vl {vl} {c}")
    want = np.clip(reference(x.astype(np.float64), w, c) + bias + res, 0, 6)
    scale = reference(np.abs(x.astype(np.float64)), np.abs(w), c) + np.abs(bias) + np.abs(res)
    check_close(got, want, scale, f"vl {vl} {c}")
    return got


@pytest.mark.parametrize("vl", [16, 8, 4])
def test_conv(vl: int, tmp_path: Path) -> None:
    check_threads(compiled(source(vl), tmp_path, vl), cases(vl), vl, run_case)
