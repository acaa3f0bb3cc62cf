"""mb/conv.h against float64: padding, strides, dilations, groups, layouts, odd sizes."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from monobloc.kernels import packing, tiles
from tests.kernels import harness

SEED = 20240602


@dataclass(frozen=True)
class Case:
    h: int
    w: int
    ic: int
    oc: int
    kernel: tuple[int, int] = (3, 3)
    strides: tuple[int, int] = (1, 1)
    dilations: tuple[int, int] = (1, 1)
    pads: tuple[int, int, int, int] = (0, 0, 0, 0)
    groups: int = 1
    batch: int = 1
    nchw: bool = False
    plain: bool = False
    split: int = -1
    bh: int = 0

    @property
    def out(self) -> tuple[int, int]:
        (kh, kw), (sh, sw), (dh, dw), p = (
            self.kernel,
            self.strides,
            self.dilations,
            self.pads,
        )
        oh = (self.h + p[0] + p[2] - (kh - 1) * dh - 1) // sh + 1
        return oh, (self.w + p[1] + p[3] - (kw - 1) * dw - 1) // sw + 1


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
    ]
    return out + [Case(**{**vars(c), "plain": True}) for c in out if c.groups == 1 or c.ic == 10 or c.oc > 16]


def descriptor(c: Case, vl: int) -> dict[str, int]:
    d = tiles.conv_desc(
        (c.batch, c.h, c.w, c.ic),
        c.oc,
        c.out,
        c.kernel,
        vl,
        harness.MARCH[vl][1],
        groups=c.groups,
        strides=c.strides,
        dilations=c.dilations,
        pads=c.pads[:2],
        x_strides=(c.h * c.w * c.ic, c.w, 1, c.h * c.w) if c.nchw else None,
        plain=c.plain,
    )
    d |= {"pf": 1, "epi_loop": c.h % 2} if not c.plain else {}
    d |= {"split": c.split} if c.split >= 0 else {}
    return d | ({"bh": c.bh} if c.bh else {})


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


def reference(x: np.ndarray, w: np.ndarray, c: Case) -> np.ndarray:
    """NHWC convolution, tap by tap, in float64."""
    (kh, kw), (sh, sw), (dh, dw), p = c.kernel, c.strides, c.dilations, c.pads
    oh, ow = c.out
    padded = np.pad(x.astype(np.float64), ((0, 0), (p[0], p[2]), (p[1], p[3]), (0, 0)))
    og, ig = c.oc // c.groups, c.ic // c.groups
    y = np.zeros((c.batch, oh, ow, c.oc))
    for g in range(c.groups):
        for r in range(kh):
            for s in range(kw):
                rows = slice(r * dh, r * dh + (oh - 1) * sh + 1, sh)
                cols = slice(s * dw, s * dw + (ow - 1) * sw + 1, sw)
                taps = padded[:, rows, cols, g * ig : (g + 1) * ig]
                y[..., g * og : (g + 1) * og] += taps @ w[g * og : (g + 1) * og, :, r, s].T
    return y


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
    g = [harness.Guarded(v, at_end) for v in arrays]
    for tid in range(nt):
        getattr(lib, f"run{i}")(*(v.pointer for v in g), tid, nt)
    want = np.clip(reference(x, w, c) + bias + res, 0, 6)
    bound = 2e-6 * (reference(np.abs(x), np.abs(w), c) + np.abs(bias) + np.abs(res)) + 1e-6
    err = np.abs(g[2].array - want) / bound
    assert err.max() < 1, f"vl {vl} {c}: error {err.max()} of the bound"
    assert all(v.canaries_intact() for v in g), f"vl {vl} {c}: wrote outside"
    return g[2].array.copy()


@pytest.mark.parametrize("vl", [16, 8, 4])
def test_conv(vl: int, tmp_path: Path) -> None:
    if not harness.cpu_has(vl):
        pytest.skip(f"this CPU has no vectors of {vl} floats")
    lib = harness.compile_shared(source(vl), tmp_path, vl)
    for i, c in enumerate(cases(vl)):
        one = run_case(lib, i, c, vl, True, 1)
        for nt in (2, 3):
            many = run_case(lib, i, c, vl, nt == 2, nt)
            assert one.tobytes() == many.tobytes(), f"vl {vl} {c}: differs with {nt} threads"
