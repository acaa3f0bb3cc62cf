"""mb/conv_nchw.h against float64: rows round the lane count, strides, dilations, padding."""

from __future__ import annotations

import ctypes
from pathlib import Path

import numpy as np
import pytest

from monobloc.kernels import tiles
from tests.kernels import harness
from tests.kernels.convolutions import check_close, check_threads, compiled, reference, run
from tests.kernels.test_conv import Case

SEED = 20240605


def cases(vl: int) -> list[Case]:
    """`plain` stands for a channels-last input here."""
    same = (1, 1, 1, 1)
    return [
        Case(5, 2 * vl, 3, 3, pads=same),
        Case(6, 3 * vl + 1, 2, 5, pads=same, bh=2),
        Case(4, 9 * vl + 7, 1, 1, pads=same, batch=2),
        Case(4, 2 * vl + 5, 3, 15, pads=same),
        Case(6, 5 * vl, 4, 2),
        Case(6, vl + 2, 4, 2),
        Case(9, 4 * vl + 3, 3, 3, strides=(2, 2), pads=same, bh=3),
        Case(9, 4 * vl + 3, 3, 3, strides=(2, 2)),
        Case(
            11,
            5 * vl,
            2,
            2,
            kernel=(3, 5),
            strides=(1, 3),
            dilations=(2, 2),
            pads=(2, 4, 2, 4),
        ),
        Case(5, vl - 1, 2, 3, pads=same),
        Case(5, 3, 2, 3, kernel=(1, 1)),
        Case(8, 3 * vl, 2, 2, kernel=(5, 5), pads=(4, 4, 0, 0)),
        Case(1, 6 * vl, 2, 4, kernel=(1, 9), pads=(0, 4, 0, 4)),
        Case(2, 2 * vl, 2, 1, kernel=(2, 2), pads=(3, 3, 3, 3)),
        Case(5, 2 * vl + 1, 3, 3, pads=same, plain=True),
        Case(7, 3 * vl, 5, 2, strides=(2, 2), pads=(2, 2, 1, 1), plain=True, bh=1),
    ]


def descriptor(c: Case, vl: int) -> dict[str, int]:
    strides = (c.h * c.w * c.ic, 1, c.w * c.ic, c.ic) if c.plain else None
    d = tiles.conv_nchw_desc(c.geometry, vl, harness.MARCH[vl][1], x_strides=strides)
    return c.chosen(d | {"epi_loop": c.oc % 2})


def source(vl: int) -> str:
    text = [
        '#include "mb/conv_nchw.h"',
        "typedef struct { const float *bias, *res; long c, h, w; } ctx_t;",
    ]
    for t, suffix in (("mb_vf", "v"), ("float", "s")):
        text.append(
            f"MB_INLINE {t} epi_{suffix}(const void *p, {t} acc, mb_ix ix) {{"
            " const ctx_t *c = p; acc = mb_add(acc, mb_splat(acc, c->bias[ix.n]));"
            " acc = mb_add(acc, mb_ld(acc, c->res + ((ix.b * c->c + ix.n) * c->h + ix.i) * c->w"
            " + ix.j)); return mb_min(6.f, mb_max(0.f, acc)); }"
        )
    for i, c in enumerate(cases(vl)):
        oh, ow = c.out
        text.append(f"static const mb_conv_nchw d{i} = {tiles.c_initializer(descriptor(c, vl))};")
        text.append(f"MB_CONV_NCHW(conv{i}, d{i}, epi)")
        text.append(f"long scratch{i}(void) {{ return mb_conv_nchw_scratch(&d{i}); }}")
        text.append(
            f"void run{i}(const float *x, const float *w, float *y, const float *bias,"
            " const float *res, float *scratch, int tid, int nt) {"
            f" ctx_t k = {{bias, res, {c.oc}, {oh}, {ow}}};"
            f" conv{i}(&k, x, w, y, scratch, tid, nt); }}"
        )
    return "\n".join(text)


def run_case(lib: ctypes.CDLL, i: int, c: Case, vl: int, at_end: bool, nt: int) -> np.ndarray:
    rng = np.random.default_rng(SEED + i)
    f32 = np.float32
    x = rng.standard_normal((c.batch, c.ic, c.h, c.w), f32)
    w = rng.standard_normal((c.oc, c.ic, *c.kernel), f32)
    y_shape = (c.batch, c.oc, *c.out)
    bias, res = rng.standard_normal(c.oc, f32), rng.standard_normal(y_shape, f32)
    size = tiles.conv_nchw_scratch(descriptor(c, vl), vl)
    assert size == getattr(lib, f"scratch{i}")(), f"vl {vl} {c}: scratch sizes differ"
    scratch = np.full(max(1, size * nt), np.nan, f32)
    stored = np.ascontiguousarray(x.transpose(0, 2, 3, 1)) if c.plain else x
    arrays = (stored, w, np.full(y_shape, 7e7, f32), bias, res, scratch)
    got = run(lib, i, arrays, 2, at_end, nt, f"vl {vl} {c}")

    def exact(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return reference(a.transpose(0, 2, 3, 1).astype(np.float64), b, c).transpose(0, 3, 1, 2)

    column = bias[:, None, None]
    want = np.clip(exact(x, w) + column + res, 0, 6)
    check_close(got, want, exact(np.abs(x), np.abs(w)) + np.abs(column) + np.abs(res), f"vl {vl} {c}")
    return got


@pytest.mark.parametrize("vl", [16, 8, 4])
def test_conv_nchw(vl: int, tmp_path: Path) -> None:
    check_threads(compiled(source(vl), tmp_path, vl), cases(vl), vl, run_case)
