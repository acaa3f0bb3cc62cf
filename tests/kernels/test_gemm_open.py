"""mb/gemm.h where a run chooses the rows: what few of them ask the memory for, panels that tiles of other widths share,
and how few columns are read."""

from __future__ import annotations

import ctypes
import re
import subprocess
from pathlib import Path

import numpy as np
import pytest

from monobloc.kernels import packing, tiles
from tests.kernels import harness

ROWS, PANELS, DEPTH, GROUPS, AHEAD = 2, 3, 40, 4, 16  # AHEAD: steps of the sum

# Every address that is asked for is written down.
JOINED = """
static const char *asked[65536]; static long count;
static void note(const void *p) { asked[count++] = (const char *)p; }
#define __builtin_prefetch(P, RW, WHERE) note(P)
#include "mb/gemm.h"
MB_INLINE mb_gemm at(const void *ctx) { (void)ctx; return (mb_gemm)%s; }
MB_INLINE mb_vf epi_v(const void *p, mb_vf a, mb_ix ix) { (void)p; (void)ix; return a; }
MB_INLINE float epi_s(const void *p, float a, mb_ix ix) { (void)p; (void)ix; return a; }
MB_GEMM_JOINED_LEAF(joined, at, epi, %d, 1, %d, 1, MB_PF_STREAM)
static mb_gemm_leaf *const leaves[] = {0, 0, joined};
static const mb_gemm_few few[] = {{0}, {0}, {%d, 1, 2, joined, joined}};
MB_GEMM_OPEN(product, at, 2, leaves, leaves, MB_GEMM_FEW(few, at, %d))
long run(const float *a, const float *b, float *c) { product(0, a, b, c, 0, 0, 1); return count; }
const char **addresses(void) { return asked; }
"""


@pytest.mark.parametrize("vl", [16, 8, 4])
def test_panels_side_by_side_are_asked_for_before_their_turn(vl: int, tmp_path: Path) -> None:
    """All lines but the first ones: also where the panels of a group end, and others begin elsewhere."""
    if not harness.cpu_has(vl):
        pytest.skip(f"this machine has no vectors of {vl} floats")
    n = GROUPS * PANELS * vl
    registers = harness.MARCH[vl][1]
    d = tiles.gemm_desc(ROWS, n, DEPTH, vl, registers, chosen=tiles.gemm_tiles(ROWS, n, DEPTH, vl, registers, nv=1))
    d |= {"mr1": ROWS, "n1": 1, "mr2": 0, "n2": 0, "pf": tiles.PF_STREAM, "pf_dist": PANELS * AHEAD * vl}
    lib = harness.compile_shared(JOINED % (tiles.c_initializer(d), ROWS, PANELS, PANELS, ROWS), tmp_path, vl)
    rng = np.random.default_rng(1)
    a = rng.standard_normal((ROWS, DEPTH), np.float32)
    b = harness.aligned(rng.standard_normal((GROUPS * PANELS, DEPTH, vl), np.float32))
    c = np.zeros((ROWS, n), np.float32)
    lib.run.restype, lib.addresses.restype = ctypes.c_long, ctypes.POINTER(ctypes.c_size_t)
    count = lib.run(*(ctypes.c_void_p(x.ctypes.data) for x in (a, b, c)))
    np.testing.assert_allclose(c, a @ b.transpose(1, 0, 2).reshape(DEPTH, n), rtol=1e-4, atol=1e-4)

    first: dict[int, int] = {}  # of a line, the group during which it is asked for
    for i, p in enumerate(lib.addresses()[:count]):
        first.setdefault(p // 64, i * GROUPS // count)
    late = []
    for group, p, k in np.ndindex(GROUPS, PANELS, DEPTH):
        line = (b.ctypes.data + 4 * vl * ((group * PANELS + p) * DEPTH + k)) // 64
        wanted = group - 1 if k < AHEAD else group
        if wanted >= 0 and first.get(line, GROUPS) > wanted:
            late.append((group, p, k))
    assert not late, late[:5]


# Tiles of any width take what was packed for another one, here of bytes.
SHARED = """
#include "mb/gemm.h"
MB_INLINE mb_gemm at(const void *ctx) { (void)ctx; return (mb_gemm)%s; }
MB_INLINE mb_vf epi_v(const void *p, mb_vf a, mb_ix ix) { return a + mb_load((const float *)p + ix.n); }
MB_INLINE float epi_s(const void *p, float a, mb_ix ix) { return a + ((const float *)p)[ix.n]; }
MB_GEMM_JOINED_LEAF(high, at, epi, %d, 1, %d, %d, %d)
MB_GEMM_JOINED_LEAF(low, at, epi, %d, 1, %d, %d, %d)
static const mb_gemm_few few[] = {%s{%d, %d, %d, high, low}};
static mb_gemm_leaf *const none[9];
MB_GEMM_OPEN(product, at, 8, none, none, MB_GEMM_FEW(few, at, %d))
void run(const float *a, const void *b, float *c, const float *bias, int tid, int nt) {
  product(bias, a, b, c, 0, tid, nt);
}
"""


@pytest.mark.parametrize("rows, panels, parts", [(2, 2, 1), (6, 3, 4), (10, 1, 2), (13, 3, 4)])
@pytest.mark.parametrize("vl, threads", [(16, 1), (16, 3), (8, 2), (4, 1)])
def test_tiles_of_other_widths_share_panels(
    vl: int, threads: int, rows: int, panels: int, parts: int, tmp_path: Path
) -> None:
    """Right, and to the bit what a tile for each panel gives, parted among threads or not."""
    if not harness.cpu_has(vl):
        pytest.skip(f"this machine has no vectors of {vl} floats")
    n, k, nv, registers = 48 * 4 * vl, 37, 4, harness.MARCH[vl][1]
    width, int8 = panels * nv // parts, 3
    most = min(8, tiles.max_mr(width, vl, registers))
    high, _, low, _ = tiles.cover(rows, most)
    own = tiles.gemm_tiles(rows, n, k, vl, registers, b_type=int8, nv=nv)
    d = tiles.gemm_desc(rows, n, k, vl, registers, types=(int8, 0), nv=nv, chosen=own | {"pf_dist": 1024})
    pf = tiles.PF_STREAM if rows <= most else tiles.PF_NEXT
    how = (panels, parts, pf)
    text = SHARED % (tiles.c_initializer(d), high, *how, low or high, *how, "{0}, " * rows, panels, parts, most, rows)
    lib = harness.compile_shared(text, tmp_path, vl)
    rng = np.random.default_rng(1)
    a, bias = rng.standard_normal((rows, k), np.float32), rng.standard_normal(n, np.float32)
    b = rng.integers(-127, 128, (k, n), np.int8)
    packed, c = packing.pack_gemm_b(b, nv, vl), np.zeros((rows, n), np.float32)
    for tid in range(threads):
        lib.run(*(ctypes.c_void_p(x.ctypes.data) for x in (a, packed, c, bias)), tid, threads)
    np.testing.assert_allclose(c, a @ b.astype(np.float32) + bias, rtol=1e-4, atol=1e-2)

    # one row, one vector after the other, each sum in the order of k
    want = np.zeros((rows, n), np.float64)
    for step in range(k):
        want = (want + a[:, step, None].astype(np.float64) * b[step]).astype(np.float32).astype(np.float64)
    if vl > 4:  # where a step of the sum is rounded once
        np.testing.assert_array_equal(c, (want.astype(np.float32) + bias).astype(np.float32))


@pytest.mark.parametrize("march, vl", [("x86-64-v4", 16), ("x86-64-v3", 8)])
def test_few_columns_are_one_load(march: str, vl: int, tmp_path: Path) -> None:
    """Where the run chooses their number, too."""
    c, out = tmp_path / "few.c", tmp_path / "few.s"
    c.write_text('#include "mb/base.h"\nmb_vf few(const float *p, int n) { return mb_load_n(p, n); }\n')
    flags = [f for f in harness.FLAGS if f != "-Wextra"]
    subprocess.run([harness.ZIG, "clang", *flags, f"-march={march}", f"-DMB_VL={vl}", "-S", c, "-o", out], check=True)
    text = out.read_text()
    assert re.search(r"vmovups.*\{%k|vmaskmovps", text), text
    assert not re.search(r"^\s+j\w+\s", text, re.MULTILINE), text
