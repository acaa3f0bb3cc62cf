"""mb/gemm.h where a run chooses the rows: what few of them ask the memory for, and how few columns are read."""

from __future__ import annotations

import ctypes
import re
import subprocess
from pathlib import Path

import numpy as np
import pytest

from monobloc.kernels import tiles
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
MB_GEMM_JOINED_LEAF(joined, at, epi, %d, 1, %d, MB_PF_STREAM)
static mb_gemm_leaf *const leaves[] = {0, 0, joined};
static const int panels[] = {0, 0, %d};
MB_GEMM_OPEN(product, at, 2, leaves, leaves, MB_GEMM_JOINED(panels, leaves, %d))
long run(const float *a, const float *b, float *c) { product(0, a, b, c, 0, 0, 1); return count; }
const char **addresses(void) { return asked; }
"""


@pytest.mark.parametrize("vl", [16, 8, 4])
def test_panels_side_by_side_are_asked_for_before_their_turn(vl: int, tmp_path: Path) -> None:
    """All lines but the first ones: also where the panels of a group end, and others begin elsewhere."""
    if not harness.cpu_has(vl):
        pytest.skip(f"this machine has no vectors of {vl} floats")
    n = GROUPS * PANELS * vl
    d = tiles.gemm_desc(ROWS, n, DEPTH, vl, harness.MARCH[vl][1], nv=1)
    d |= {"mr1": ROWS, "n1": 1, "mr2": 0, "n2": 0, "pf": tiles.PF_STREAM, "pf_dist": PANELS * AHEAD * vl}
    lib = harness.compile_shared(JOINED % (tiles.c_initializer(d), ROWS, PANELS, PANELS, ROWS), tmp_path, vl)
    rng = np.random.default_rng(1)
    a, b = rng.standard_normal((ROWS, DEPTH), np.float32), rng.standard_normal((GROUPS * PANELS, DEPTH, vl), np.float32)
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
