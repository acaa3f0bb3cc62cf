"""mb/narrow.h: every half and byte widened, floats rounded to halves, and kernels that read and write them."""

from __future__ import annotations

import ctypes
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from monobloc.kernels import packing, tiles
from tests.kernels import harness
from tests.kernels.convolutions import compiled

SEED = 20240701
TYPES = {"F16": np.float16, "BF16": ml_dtypes.bfloat16, "I8": np.int8, "I16": np.int16, "U8": np.uint8}
HALVES = ("F16", "BF16")
BUILDS = [(16, ()), (8, ()), (8, ("-mno-f16c",)), (4, ())]
NUMBER = {"F32": 0, "F16": 1, "BF16": 2, "I8": 3, "I16": 4, "U8": 5}


def conversions() -> str:
    text = ['#include "mb/narrow.h"']
    for t in TYPES:
        text.append(f"void widen_{t}(const void *x, float *y, long n) {{"
                    f" for (long i = 0; i < n; i += MB_VL) mb_store(y + i, mb_get_v(MB_T_{t}, x, i)); }}")
        text.append(f"void widen1_{t}(const void *x, float *y, long n) {{"
                    f" for (long i = 0; i < n; i++) y[i] = mb_get(MB_T_{t}, x, i); }}")
    for t in HALVES:
        text.append(f"void narrow_{t}(const float *x, void *y, long n) {{"
                    f" for (long i = 0; i < n; i += MB_VL) mb_put_v(MB_T_{t}, y, i, mb_load(x + i)); }}")
        text.append(f"void narrow1_{t}(const float *x, void *y, long n) {{"
                    f" for (long i = 0; i < n; i++) mb_put(MB_T_{t}, y, i, x[i]); }}")
        text.append(f"void round_{t}(const float *x, float *y, long n) {{"
                    f" for (long i = 0; i < n; i += MB_VL) mb_store(y + i, mb_round_{t.lower()}(mb_load(x + i))); }}")
    return "\n".join(text)


def same(got: np.ndarray, want: np.ndarray) -> bool:
    """Equal bits, but that any NaN is as good as another."""
    g, w = got.astype(np.float32), want.astype(np.float32)
    return bool(((g.view(np.uint32) == w.view(np.uint32)) | (np.isnan(g) & np.isnan(w))).all())


def call(lib: ctypes.CDLL, name: str, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    getattr(lib, name)(ctypes.c_void_p(x.ctypes.data), ctypes.c_void_p(y.ctypes.data), ctypes.c_long(x.size))
    return y


@pytest.mark.parametrize(("vl", "extra"), BUILDS)
def test_conversions(vl: int, extra: tuple[str, ...], tmp_path: Path) -> None:
    lib = compiled(conversions(), tmp_path, vl, extra)
    bits = np.arange(1 << 16, dtype=np.uint16)
    for t, d in TYPES.items():
        x = bits.view(d) if np.dtype(d).itemsize == 2 else bits.astype(np.uint8).view(d)
        for name in (f"widen_{t}", f"widen1_{t}"):
            assert same(call(lib, name, x, np.zeros(x.size, np.float32)), x), (name, extra)
    every = np.concatenate([bits.view(TYPES[t]).astype(np.float32) for t in HALVES]).view(np.uint32)
    near = np.concatenate([every, every + 1, every - 1, every + (1 << 12), every + (1 << 15)])  # neighbours, ties
    rng = np.random.default_rng(SEED)
    x = np.concatenate([near, rng.integers(0, 1 << 32, 1 << 16, dtype=np.uint32)]).view(np.float32)
    with np.errstate(all="ignore"):
        for t in HALVES:
            want = x.astype(TYPES[t])
            for name in (f"narrow_{t}", f"narrow1_{t}"):
                assert same(call(lib, name, x, np.zeros(x.size, TYPES[t])), want), (name, extra)
            assert same(call(lib, f"round_{t}", x, np.zeros_like(x)), want), (t, extra)


# -- kernels: (types of x, w, y), with a bias so that the epilogue sees whole vectors and elements --------
EPILOGUE = "".join(
    f"MB_INLINE {t} epi_{s}(const void *p, {t} acc, mb_ix ix) {{"
    f" return mb_add(acc, mb_ld(acc, (const float *)p + ix.n)); }}\n" for t, s in (("mb_vf", "v"), ("float", "s"))
)
RUN = ("void run{i}(const void *x, const void *w, void *y, const float *bias, float *scratch) "
       "{{ {call}; (void)scratch; }}")


def values(rng: np.random.Generator, t: str, shape: tuple[int, ...]) -> np.ndarray:
    if t in ("F32", *HALVES):
        return rng.standard_normal(shape).astype(TYPES.get(t, np.float32))
    info = np.iinfo(TYPES[t])
    return rng.integers(info.min, info.max + 1, shape).astype(TYPES[t])


def check(
    lib: ctypes.CDLL, i: int, arrays: list[np.ndarray], want: np.ndarray, bound: np.ndarray, what: object
) -> None:
    for at_end in (True, False):
        g = [harness.Guarded(v, at_end) for v in arrays]
        getattr(lib, f"run{i}")(*(v.pointer for v in g))
        step = {2: 2.0**-8 if arrays[2].dtype != np.float16 else 2.0**-11}.get(arrays[2].itemsize, 0)
        err = np.abs(g[2].array.astype(np.float64) - want) / (bound * 2e-6 + step * np.abs(want) + 1e-6)
        assert err.max() < 1.01, f"{what}: error {err.max()} of the bound"
        assert all(v.canaries_intact() for v in g), f"{what}: wrote outside"


GEMMS = [((m, n, k), w, y, plain) for m, n, k in ((1, 7, 9), (5, 35, 11), (29, 24, 16)) for plain in (False, True)
         for w, y in (("F16", "F16"), ("BF16", "BF16"), ("I8", "F32"), ("I16", "F32"), ("U8", "F32"), ("F32", "BF16"))]


@pytest.mark.parametrize("vl", [16, 8, 4])
def test_gemm(vl: int, tmp_path: Path) -> None:
    descs, text = [], ['#include "mb/gemm.h"', EPILOGUE]
    for i, ((m, n, k), w, y, plain) in enumerate(GEMMS):
        descs.append(tiles.gemm_desc(m, n, k, vl, harness.MARCH[vl][1], b=(n, 1) if plain else None,
                                     types=(NUMBER[w], NUMBER[y])) | {"epi_loop": i % 2})
        text += [f"static const mb_gemm d{i} = {tiles.c_initializer(descs[i])};", f"MB_GEMM(k{i}, d{i}, epi)",
                 RUN.format(i=i, call=f"k{i}(bias, (const float *)x, w, y, 0, 0, 1)")]
    lib = compiled("\n".join(text), tmp_path, vl)
    rng = np.random.default_rng(SEED)
    for i, ((m, n, k), tw, ty, plain) in enumerate(GEMMS):
        x, w, bias = values(rng, "F32", (m, k)), values(rng, tw, (k, n)), values(rng, "F32", (n,))
        stored = w if plain else packing.pack_gemm_b(w, descs[i]["nv"], vl)
        assert stored.dtype == w.dtype
        y = np.zeros((m, n), TYPES.get(ty, np.float32))
        wide = w.astype(np.float64)
        arrays = [x, stored, y, bias, np.zeros(1, np.float32)]
        check(lib, i, arrays, x.astype(np.float64) @ wide + bias, np.abs(x) @ np.abs(wide) + 1, GEMMS[i])


CONVS = [(oc, groups, x, w, y, nchw) for oc, groups in ((37, 1), (6, 1), (20, 20))
         for x, w, y in (("F16", "F16", "F16"), ("BF16", "BF16", "BF16"), ("F32", "I8", "F32"), ("F16", "F16", "F32"))
         for nchw in ((False, True) if oc == 6 else (False,))]


@pytest.mark.parametrize("vl", [16, 8, 4])
def test_convolutions(vl: int, tmp_path: Path) -> None:
    """Implicit GEMM, few channels along rows, and depthwise; 20 channels in, 9 x 19 pixels, 3 x 3 taps, padded."""
    size, ic, out = (1, 9, 19), 20, (9, 19)
    row = EPILOGUE.replace("epi_", "row_").replace("mb_ld(acc, (const float *)p + ix.n)",
                                                   "mb_splat(acc, ((const float *)p)[ix.n])")
    headers = [f'#include "mb/{h}.h"' for h in ("conv", "conv_nchw", "dwconv")]
    descs, text = [], [*headers, EPILOGUE, row]
    for i, (oc, groups, tx, tw, ty, nchw) in enumerate(CONVS):
        kinds = NUMBER[tx], NUMBER[tw], NUMBER[ty]
        geo = tiles.Geometry((*size, ic), oc, out, (3, 3), groups, pads=(1, 1))
        machine = vl, harness.MARCH[vl][1]
        if groups > 1:
            d = tiles.dwconv_desc(geo, *machine, types=kinds)
        elif nchw:
            d = tiles.conv_nchw_desc(geo, *machine, types=kinds[::2])
        else:
            d = tiles.conv_desc(geo, *machine, types=kinds)
        kind, call = {True: ("dwconv", "x, w, y, 0, 1"), False: ("conv", "x, w, y, 0, scratch, 0, 1")}[groups > 1]
        if nchw:
            kind, call = "conv_nchw", "x, (const float *)w, y, scratch, 0, 1"
        descs.append(d)
        text += [f"static const mb_{kind} d{i} = {tiles.c_initializer(d)};",
                 f"MB_{kind.upper()}(k{i}, d{i}, {'row' if nchw else 'epi'})",
                 RUN.format(i=i, call=f"k{i}(bias, {call})")]
    lib = compiled("\n".join(text), tmp_path, vl)
    rng = np.random.default_rng(SEED)
    for i, (oc, groups, tx, tw, ty, nchw) in enumerate(CONVS):
        x, w = values(rng, tx, (*size, ic)), values(rng, tw, (oc, ic // groups, 3, 3))
        bias = values(rng, "F32", (oc,))
        stored = packing.pack_dwconv_w(w) if groups > 1 else w.astype(np.float32) if nchw else (
            packing.pack_conv_w(w, 1, descs[i]["nv"], vl))
        scratch = tiles.conv_nchw_scratch(descs[i], vl) if nchw else 0 if groups > 1 else tiles.conv_scratch(descs[i])
        image = np.ascontiguousarray(x.transpose(0, 3, 1, 2)) if nchw else x
        y = np.zeros((1, oc, *out) if nchw else (1, *out, oc), TYPES.get(ty, np.float32))
        wide = x.astype(np.float32), w.astype(np.float32)
        want, bound = _conv(*wide, groups) + bias, _conv(np.abs(wide[0]), np.abs(wide[1]), groups)
        if nchw:
            want, bound = want.transpose(0, 3, 1, 2), bound.transpose(0, 3, 1, 2)
        arrays = [image, stored, y, bias, np.full(max(1, scratch), np.nan, np.float32)]
        check(lib, i, arrays, want, bound + 1, CONVS[i])


def _conv(x: np.ndarray, w: np.ndarray, groups: int) -> np.ndarray:
    padded = np.pad(x.astype(np.float64), ((0, 0), (1, 1), (1, 1), (0, 0)))
    h, wide = x.shape[1:3]
    y = np.zeros((1, h, wide, w.shape[0]))
    for r in range(3):
        for s in range(3):
            taps = padded[:, r : r + h, s : s + wide]
            k = w[:, :, r, s].astype(np.float64)
            y += taps * k[:, 0] if groups > 1 else taps @ k.T
    return y
