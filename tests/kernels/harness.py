"""Compiles many kernel calls into one shared object and runs them on guarded memory.

Every array lies against an inaccessible page, once at its end and once at its start, so that a read
or write outside of it crashes; the rest of its pages is filled with canaries.
"""

from __future__ import annotations

import ctypes
import mmap
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import ziglang

ROOT = Path(__file__).resolve().parents[2]
INCLUDE = ROOT / "monobloc" / "csrc" / "include"
ZIG = Path(ziglang.__file__).parent / "zig"
PAGE = mmap.PAGESIZE
MARCH = {16: ("x86-64-v4", 32), 8: ("x86-64-v3", 16), 4: ("x86-64-v2", 16)}
FLAGS = [
    *(
        "--target=x86_64-linux-none",
        "-nostdinc",
        "-isystem",
        str(ZIG.parent / "lib" / "include"),
    ),
    *(
        "-ffreestanding",
        "-fno-stack-protector",
        "-std=gnu11",
        "-fPIC",
        "-O3",
        "-fno-math-errno",
    ),
    *(
        "-fno-trapping-math",
        "-ffp-contract=on",
        "-Wall",
        "-Wextra",
        "-Werror",
        "-Wno-psabi",
    ),
    *("-I", str(INCLUDE)),
]


def cpu_has(vl: int) -> bool:
    """Whether this machine can run code for vl lanes."""
    flags = Path("/proc/cpuinfo").read_text().split()
    return {16: "avx512vl", 8: "avx2", 4: "sse4_2"}[vl] in flags


def compile_shared(source: str, folder: Path, vl: int, extra: tuple[str, ...] = ()) -> ctypes.CDLL:
    march, nvreg = MARCH[vl]
    c, obj, so = (folder / f"k{vl}{ext}" for ext in (".c", ".o", ".so"))
    c.write_text(source + MEM)
    lanes = [f"-march={march}", f"-DMB_VL={vl}", f"-DMB_NVREG={nvreg}"]
    wide = ["-mprefer-vector-width=512"] if vl == 16 else []
    subprocess.run([ZIG, "clang", *FLAGS, *lanes, *wide, *extra, "-c", c, "-o", obj], check=True)
    subprocess.run([ZIG, "ld.lld", "-shared", "-z", "defs", obj, "-o", so], check=True)
    return ctypes.CDLL(str(so))


# Loops may be turned into calls of these; a shared object without libc brings its own.
MEM = """
void *memset(void *d, int c, __SIZE_TYPE__ n) {
  volatile unsigned char *p = d; for (__SIZE_TYPE__ i = 0; i < n; i++) p[i] = (unsigned char)c;
  return d; }
void *memcpy(void *d, const void *s, __SIZE_TYPE__ n) {
  volatile unsigned char *p = d; const unsigned char *q = s;
  for (__SIZE_TYPE__ i = 0; i < n; i++) p[i] = q[i];
  return d; }
"""


@dataclass
class Guarded:
    """One array that ends (or begins) exactly at an inaccessible page."""

    data: np.ndarray
    at_end: bool
    keep: list[object] = field(default_factory=list)
    array: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        size = max(4, self.data.nbytes)
        pages = -(-size // PAGE)
        area = mmap.mmap(-1, (pages + 2) * PAGE)
        base = ctypes.addressof(ctypes.c_char.from_buffer(area))
        libc = ctypes.CDLL(None, use_errno=True)
        for page in (0, pages + 1):
            if libc.mprotect(ctypes.c_void_p(base + page * PAGE), PAGE, 0):
                raise OSError(ctypes.get_errno(), "mprotect")
        start = PAGE + (pages * PAGE - size if self.at_end else 0)
        whole = np.frombuffer(area, np.uint8)
        self._gap = whole[PAGE : (pages + 1) * PAGE]
        self._gap[:] = 0xA5
        flat = whole[start : start + self.data.nbytes].view(self.data.dtype)
        self.array = flat.reshape(self.data.shape)
        self.array[...] = self.data
        self._lo, self._hi = start - PAGE, start - PAGE + self.data.nbytes
        self.keep += [area, whole]

    @property
    def pointer(self) -> ctypes.c_void_p:
        return ctypes.c_void_p(self.array.ctypes.data)

    def canaries_intact(self) -> bool:
        return bool((self._gap[: self._lo] == 0xA5).all() and (self._gap[self._hi :] == 0xA5).all())


def aligned(x: np.ndarray) -> np.ndarray:
    """A copy from the beginning of a line of the cache on, as weights and buffers lie in images"""
    room = np.zeros(x.nbytes + 64, np.uint8)
    start = -room.ctypes.data % 64
    out = room[start : start + x.nbytes].view(x.dtype).reshape(x.shape)
    out[...] = x
    return out


def log(text: str) -> None:
    print(text, file=sys.stderr)
