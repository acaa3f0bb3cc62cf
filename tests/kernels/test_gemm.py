"""mb/gemm.h against float64: sizes equal to, below, above and not a multiple of tile and panel."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from monobloc.kernels import packing, tiles
from tests.kernels import harness
from tests.kernels.convolutions import check_close, check_threads, compiled, run

SEED = 20240601


@dataclass(frozen=True)
class Case:
    m: int
    n: int
    k: int
    batch: int = 1
    plain: bool = False
    shared_b: bool = True
    a_transposed: bool = False
    kc: int = 0
    rb: int = 0
    inplace: bool = False
    epi_loop: bool = False


def cases(vl: int) -> list[Case]:
    sizes = [
        (1, 1, 1),
        (1, 3, 7),
        (2, vl, 5),
        (3, vl + 1, 4),
        (5, vl - 1, 9),
        (14, 2 * vl, 16),
    ]
    sizes += [
        (15, 2 * vl + 3, 17),
        (28, 3 * vl, 8),
        (29, 3 * vl + vl // 2, 3),
        (49, 5 * vl + 1, 10),
    ]
    sizes += [(64, 7 * vl, 33), (37, 10, 21)]
    out = [Case(*s, plain=i % 2 == 0) for i, s in enumerate(sizes)]
    out += [Case(*s, batch=3, plain=p, shared_b=p) for s in sizes[4:6] for p in (False, True)]
    out += [Case(*s, a_transposed=True) for s in sizes[5:7]]
    out += [Case(*s, kc=5) for s in sizes[3::3]] + [Case(*s, rb=2, batch=2) for s in sizes[5::3]]
    return out + [Case(*s, inplace=True, epi_loop=i % 3 > 0) for i, s in enumerate(sizes)]


def descriptor(c: Case, vl: int) -> dict[str, int]:
    nvreg = harness.MARCH[vl][1]
    a = (c.m * c.k, 1, c.m) if c.a_transposed else None
    d = tiles.gemm_desc(c.m, c.n, c.k, vl, nvreg, batch=c.batch, a=a, b=(c.n, 1) if c.plain else None)
    size = c.k * (c.n if c.plain else tiles.packed_columns(c.n, d["nv"], vl))
    d |= {"b_batch": 0 if c.shared_b else size, "pf": 0 if c.plain else 1}
    d |= {"kc": c.kc, "ku": 1} if c.kc else {}
    d |= {"epi_loop": int(c.epi_loop)}
    return d | ({"rb": c.rb} if c.rb else {})


def source(vl: int) -> str:
    text = [
        '#include "mb/gemm.h"',
        "typedef struct { const float *bias, *res; long n, m; } ctx_t;",
    ]
    for t, suffix in (("mb_vf", "v"), ("float", "s")):
        text.append(
            f"MB_INLINE {t} epi_{suffix}(const void *p, {t} acc, mb_ix ix) {{"
            " const ctx_t *c = p; acc = mb_add(acc, mb_ld(acc, c->bias + ix.n));"
            " acc = mb_add(acc, mb_ld(acc, c->res + (ix.b * c->m + ix.j) * c->n + ix.n));"
            " return mb_max(0.f, acc); }"
        )
    for i, c in enumerate(cases(vl)):
        text.append(f"static const mb_gemm d{i} = {tiles.c_initializer(descriptor(c, vl))};")
        text.append(f"MB_GEMM(gemm{i}, d{i}, epi)")
        text.append(
            f"void run{i}(const float *a, const float *b, float *c, const float *bias,"
            " const float *res, int tid, int nt) {"
            f" ctx_t x = {{bias, res, {c.n}, {c.m}}}; gemm{i}(&x, a, b, c, 0, tid, nt); }}"
        )
    return "\n".join(text)


def run_case(lib: ctypes.CDLL, i: int, c: Case, vl: int, at_end: bool, nt: int) -> np.ndarray:
    rng = np.random.default_rng(SEED + i)
    f32 = np.float32
    a = rng.standard_normal((c.batch, c.m, c.k), f32)
    b = rng.standard_normal((1 if c.shared_b else c.batch, c.k, c.n), f32)
    bias, res = (
        rng.standard_normal(c.n, f32),
        rng.standard_normal((c.batch, c.m, c.n), f32),
    )
    packed = b if c.plain else packing.pack_gemm_b(b, descriptor(c, vl)["nv"], vl)
    stored = np.ascontiguousarray(a.transpose(0, 2, 1)) if c.a_transposed else a
    out = res.copy() if c.inplace else np.full((c.batch, c.m, c.n), 7e7, f32)
    arrays = (stored, packed, out, bias, res)
    got = run(lib, i, arrays, 2, at_end, nt, f"vl {vl} {c}", {4: 2} if c.inplace else None)
    want = np.maximum(a.astype(np.float64) @ b + bias + res, 0)
    scale = np.abs(a).astype(np.float64) @ np.abs(b) + np.abs(bias) + np.abs(res)
    check_close(got, want, scale, f"vl {vl} {c}")
    return got


@pytest.mark.parametrize("vl", [16, 8, 4])
def test_gemm(vl: int, tmp_path: Path) -> None:
    check_threads(compiled(source(vl), tmp_path, vl), cases(vl), vl, run_case)


def test_packed_columns_matches_packing() -> None:
    for vl in (4, 8, 16):
        for nv in (1, 2, 3):
            for n in range(1, 5 * vl):
                packed = packing.pack_gemm_b(np.ones((2, n), np.float32), nv, vl)
                assert packed.size == 2 * tiles.packed_columns(n, nv, vl)
