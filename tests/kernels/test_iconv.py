"""mb/iconv.h against numpy's integers: both forms, signs, zero points, padding, strides, groups, odd sizes."""

from __future__ import annotations

import ctypes
import platform
import shutil
import subprocess
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

from monobloc.kernels import integer, tiles
from tests.kernels import harness
from tests.kernels.convolutions import Conv, compiled, reference, run

SEED = 20250711


@dataclass(frozen=True)
class Case(Conv):
    signed: bool = False
    zx: int = 0
    given: bool = False
    zw: int = 0
    form: int = integer.QUADS
    narrow: bool = False  # y is bytes
    wide: bool = False  # x is int16, y not wider
    gather: bool = False  # as in images too large for a block

    def operands(self, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """x, w, bias, and a y of other values."""
        rng = np.random.default_rng(seed)
        kind = self.kinds[0]
        info = np.iinfo(kind)
        x = rng.integers(info.min, info.max + 1, (self.batch, self.h, self.w, self.ic)).astype(kind)
        w = rng.integers(-128, 128, (self.oc, self.ic // self.groups, *self.kernel)).astype(np.int8)
        x.reshape(-1)[:7], w.reshape(-1)[:5] = info.max, -128
        bias = rng.integers(-(2**20), 2**20, self.oc).astype(np.int32)
        return x, w, bias, np.full((self.batch, *self.out, self.oc), 77, self.kinds[1])

    @property
    def kinds(self) -> tuple[np.dtype, np.dtype]:
        """Types of x and y"""
        x = np.dtype(np.int8 if self.signed else np.uint8)
        if self.wide:
            x = np.dtype(np.int16 if self.signed else np.uint16)
        return x, np.dtype((np.int16 if self.wide else np.int8) if self.narrow else np.int32)

    @property
    def numbers(self) -> integer.Numbers:
        sizes = (k.itemsize for k in self.kinds)
        return integer.Numbers(*sizes, x_signed=self.signed, zx=None if self.given else self.zx, zw=self.zw)

    def wanted(self, x: np.ndarray, w: np.ndarray, bias: np.ndarray) -> np.ndarray:
        y = reference(x.astype(np.int64) - self.zx, w.astype(np.int64) - self.zw, self) + bias
        return y.astype(self.kinds[1])


def cases(vl: int) -> list[Case]:
    same = (1, 1, 1, 1)
    out = [
        Case(7, 7, 5, 2 * vl, pads=same, zx=113),
        Case(7, 7, 4, 3 * vl + 1, pads=same, split=1, signed=True, zx=-3, narrow=True),
        Case(14, 14, 3, vl, pads=same, bh=1, given=True, zx=200),
        Case(6, 33, 3, 2 * vl + vl // 2, pads=same, bh=2, signed=True, given=True, zx=-128),
        Case(9, 30, 2, vl - 1, pads=(2, 0, 0, 1), zx=255, narrow=True),
        Case(12, 12, 3, 2 * vl, kernel=(7, 7), strides=(2, 2), pads=(3, 3, 3, 3), nchw=True, zx=7),
        Case(11, 13, 1, vl, pads=same, nchw=True, bh=3, zx=128),
        Case(13, 15, 4, vl + 2, dilations=(2, 3), pads=(2, 3, 2, 3), signed=True, zx=5),
        Case(9, 9, 4 * 3, 3 * 2 * vl, groups=3, pads=same, zx=9),
        Case(9, 9, 2 * 5, 2 * (vl + 5), groups=2, batch=2, narrow=True),
        Case(1, 50, 3, vl, kernel=(1, 5), pads=(0, 2, 0, 2), zx=1),
        Case(29, 1, 67, 4 * vl + 3, kernel=(1, 1), zx=17),  # a matrix product
        Case(1, 1, 130, 10, kernel=(1, 1), signed=True, zx=17),
        Case(3, 3, 2, vl + 1, kernel=(2, 2), strides=(3, 3), pads=(2, 2, 2, 2), zx=3),
    ]
    out += strongly_dilated(vl)
    pairs = [replace(c, form=integer.PAIRS, zw=i % 3) for i, c in enumerate(out)]
    return [*out, *pairs, *(replace(c, wide=True, zx=c.zx * 127 + (not c.signed)) for c in pairs)]


def strongly_dilated(vl: int) -> list[Case]:
    """Rows of taps so far apart that a block gathers them."""
    return [
        Case(37, 11, 5, vl + 2, dilations=(18, 2), pads=(18, 2, 18, 2), bh=2, zx=201, gather=True),
        Case(50, 1, 7, 2 * vl, kernel=(3, 1), dilations=(16, 1), pads=(16, 0, 16, 0), bh=3, signed=True, zx=-9,
             gather=True),
        Case(30, 21, 6, vl, groups=2, dilations=(9, 9), strides=(2, 1), pads=(9, 9, 9, 9), given=True, bh=4, zx=77,
             gather=True),
    ]


def test_strong_dilations_gather_their_rows() -> None:
    large = Case(65, 65, 64, 64, dilations=(18, 18), pads=(18, 18, 18, 18))
    assert descriptor(large, 8, 16)["gather"] and not descriptor(replace(large, dilations=(1, 1)), 8, 16)["gather"]


def forms(flag: str, vl: int) -> list[int]:
    """What a machine is for; that of the smallest vectors shows that quads are right without an instruction, too."""
    return [integer.QUADS] if flag else [integer.PAIRS, integer.QUADS] if vl == 4 else [integer.PAIRS]


def descriptor(c: Case, vl: int, nvreg: int) -> dict[str, int]:
    strides = (c.h * c.w * c.ic, c.w, 1, c.h * c.w) if c.nchw else None
    d = integer.iconv_desc(c.geometry, vl, nvreg, form=c.form, x_strides=strides, numbers=c.numbers)
    return c.chosen(d | {"epi_loop": c.h % 2} | ({"gather": 1} if c.gather else {}))


EPILOGUE = "\n".join(
    f"MB_INLINE {t} epi_{s}(const void *p, {t} acc, mb_ix ix) {{"
    f" return mb_add(acc, mb_ld(acc, (const int32_t *)p + ix.n)); }}"
    for t, s in (("mb_vi", "v"), ("int32_t", "s"))
)


def source(vl: int, nvreg: int, wanted: list[int]) -> str:
    text = ['#include "mb/iconv.h"', EPILOGUE]
    for i, c in enumerate(cases(vl)):
        if c.form not in wanted:
            continue
        text.append(f"static const mb_iconv d{i} = {tiles.c_initializer(descriptor(c, vl, nvreg))};")
        text.append(f"MB_ICONV(conv{i}, d{i}, epi)")
        text.append(f"long scratch{i}(void) {{ return mb_iconv_scratch(&d{i}); }}")
        text.append(
            f"void run{i}(const void *x, const void *w, const void *zx, void *y, const int32_t *bias,"
            f" void *scratch, int tid, int nt) {{ conv{i}(bias, x, w, zx, y, scratch, tid, nt); }}"
        )
    return "\n".join(text)


def operands(i: int, c: Case, d: dict[str, int], vl: int) -> tuple[list[np.ndarray], np.ndarray]:
    """x, w, zx, y, bias as the kernel takes them, and what y must be."""
    x, w, bias, y = c.operands(SEED + i)
    packed = integer.pack_iconv_w(w, c.groups, c.dilations[1] != 1, c.form, d["nv"], vl, c.zw, c.kinds[0].itemsize)
    stored = np.ascontiguousarray(x.transpose(0, 3, 1, 2)) if c.nchw else x
    return [stored, packed, np.array([c.zx], x.dtype), y, bias], c.wanted(x, w, bias)


def run_case(lib: ctypes.CDLL, i: int, c: Case, vl: int, at_end: bool, nt: int) -> None:
    d = descriptor(c, vl, harness.MARCH[vl][1])
    arrays, want = operands(i, c, d, vl)
    size = integer.iconv_scratch(d)
    assert size == getattr(lib, f"scratch{i}")(), f"vl {vl} {c}: scratch sizes differ"
    got = run(lib, i, [*arrays, np.full(size * nt, 0x5A, np.uint8)], 3, at_end, nt, f"vl {vl} {c}")
    assert np.array_equal(got, want), f"vl {vl} {c}: {np.count_nonzero(got != want)} differ"


VNNI = [(16, ("-mavx512vnni",), "avx512_vnni"), (8, ("-mavxvnni",), "avx_vnni")]
MACHINES = [*VNNI, (16, (), ""), (8, (), ""), (4, (), "")]


@pytest.mark.parametrize(("vl", "extra", "flag"), MACHINES)
def test_iconv(vl: int, extra: tuple[str, ...], flag: str, tmp_path: Path) -> None:
    if flag and flag not in Path("/proc/cpuinfo").read_text().split():
        pytest.skip(f"this CPU has no {flag}")
    lib = compiled(source(vl, harness.MARCH[vl][1], forms(flag, vl)), tmp_path, vl, extra)
    for i, c in enumerate(cases(vl)):
        if c.form in forms(flag, vl):
            run_case(lib, i, c, vl, True, 1)
            run_case(lib, i, c, vl, i % 2 == 0, 2)


MAIN = """
int main(void) { int bad = 0;
#define CHECK(I) { run##I(x##I, w##I, z##I, y, b##I, scratch, 0, 1); \\
  for (long i = 0; i < sizeof want##I; i++) bad |= y[i] != ((const unsigned char *)want##I)[i]; }
"""


@pytest.mark.parametrize("march", ["armv8-a", "armv8.2-a+dotprod"])
def test_iconv_on_arm(march: str, tmp_path: Path) -> None:
    """The same integers from NEON, with and without its dot product; in an emulator."""
    if platform.machine() != "aarch64" and shutil.which("qemu-aarch64") is None:
        pytest.skip("no qemu-aarch64")
    vl, text = 4, []
    wanted = [integer.QUADS if "dotprod" in march else integer.PAIRS]
    chosen = [(i, c) for i, c in enumerate(cases(vl)) if c.form in wanted]
    for i, c in chosen:
        arrays, want = operands(i, c, descriptor(c, vl, 32), vl)
        for name, a in zip(("x", "w", "z", "", "b", "want"), [*arrays, want], strict=True):
            if name:
                values = ",".join(map(str, a.reshape(-1).tolist()))
                kind = f"{'u' if a.dtype.kind == 'u' else ''}int{8 * a.itemsize}_t"
                text.append(f"static const {kind} {name}{i}[] = {{{values}}};")
    calls = "".join(f"CHECK({i})" for i, _ in chosen)
    main = f"static unsigned char y[1 << 16]; static char scratch[1 << 18];\n{MAIN}{calls} return bad; }}\n"
    start = 'void _start(void) { register long x0 __asm__("x0") = main(), x8 __asm__("x8") = 93;' \
        ' __asm__ volatile("svc 0" :: "r"(x0), "r"(x8)); for (;;) ; }'
    c_file, exe = tmp_path / "t.c", tmp_path / "t"
    c_file.write_text(source(vl, 32, wanted) + "\n" + "\n".join(text) + harness.MEM + main + start)
    flags = [f for f in harness.FLAGS if not str(f).startswith(("--target", "-W", "-fPIC"))]
    obj = tmp_path / "t.o"
    subprocess.run([harness.ZIG, "clang", "--target=aarch64-linux-none", *flags, f"-march={march}", "-DMB_VL=4",
                    "-DMB_NVREG=32", "-c", c_file, "-o", obj], check=True)
    subprocess.run([harness.ZIG, "ld.lld", obj, "-o", exe], check=True)
    runner = [] if platform.machine() == "aarch64" else ["qemu-aarch64"]
    assert subprocess.run([*runner, exe], check=False).returncode == 0
