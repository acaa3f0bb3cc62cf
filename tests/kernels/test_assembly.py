"""Every tile of the table keeps its sums in registers, natively and through both LTO pipelines."""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from monobloc.kernels import tiles
from tests.kernels import harness

EPILOGUE = """
MB_INLINE mb_vf epi_v(const void *p, mb_vf a, mb_ix ix) {
  return mb_max(0.f, mb_add(a, mb_ld(a, (const float *)p + ix.n))); }
MB_INLINE float epi_s(const void *p, float a, mb_ix ix) {
  return mb_max(0.f, mb_add(a, mb_ld(a, (const float *)p + ix.n))); }
"""
# Tiles of few lanes on 16 registers hold one or two values back at a loop's edge.
X86_STACK = r"^\s+v?\w+.*%[xyz]mm\d+.*\(%r[sb]p|^\s+v?\w+.*\(%r[sb]p[^)]*\).*%[xyz]mm"


@dataclass(frozen=True)
class Isa:
    vl: int
    nvreg: int
    triple: str
    march: str
    stack: str
    allowed: int = 0


ISAS = [
    Isa(16, 32, "x86_64-linux-none", "x86-64-v4", X86_STACK),
    Isa(8, 16, "x86_64-linux-none", "x86-64-v3", X86_STACK),
    Isa(4, 16, "x86_64-linux-none", "x86-64-v2", X86_STACK, allowed=4),
    Isa(4, 32, "aarch64-linux-none", "armv8-a", r"^\s+(ldr|str|ldp|stp)\s+q.*\[sp"),
]


def source(isa: Isa) -> tuple[str, list[str]]:
    """A GEMM and a 3x3 convolution for each number of vectors, with its highest tile."""
    text, names = ['#include "mb/gemm.h"', '#include "mb/conv.h"', EPILOGUE], []
    for nv in (1, 2, 3, 8):
        mr = tiles.max_mr(nv, isa.vl, isa.nvreg)
        n, k = 2 * nv * isa.vl, 96
        panel = {"nv": nv, "pf": nv % 2}
        g = tiles.gemm_desc(3 * mr, n, k, isa.vl, isa.nvreg) | panel | {"ku": 1, "rb": 1}
        g |= {
            "mr1": mr,
            "n1": 3,
            "mr2": 0,
            "n2": 0,
            "b_panel": k * n // 2,
            "b_row": n // 2,
        }
        text.append(f"static const mb_gemm g{nv} = {tiles.c_initializer(g)};")
        text.append(f"MB_GEMM(gemm{nv}, g{nv}, epi)")
        args = "const float *a, const float *b, float *c, const float *e"
        text.append(f'__attribute__((visibility("default"))) void rg{nv}({args}) {{ gemm{nv}(e, a, b, c, 0, 0, 1); }}')
        names.append(f"gemm{nv}_tile1")
        if mr == 1:
            continue
        x = (1, 9, 4 * mr, 24)
        geo = tiles.Geometry(x, n, (9, 4 * mr), (3, 3), pads=(1, 1))
        c = tiles.conv_desc(geo, isa.vl, isa.nvreg) | panel
        c |= {"narrow": 0, "r1": 1, "c1": mr, "n1": 4, "r2": 0, "c2": 0, "n2": 0}
        c |= {"w_panel": 216 * n // 2, "w_row": n // 2}
        text.append(f"static const mb_conv c{nv} = {tiles.c_initializer(c)};")
        text.append(f"MB_CONV(conv{nv}, c{nv}, epi)")
        text.append(
            f'__attribute__((visibility("default"))) void rc{nv}({args}, float *s) {{'
            f" conv{nv}(e, a, b, c, 0, s, 0, 1); }}"
        )
        names.append(f"conv{nv}_tile1")
    return "\n".join(text), names


def compile_to(isa: Isa, folder: Path, *how: str) -> tuple[Path, list[str]]:
    text, names = source(isa)
    c, out = folder / "k.c", folder / "k.out"
    c.write_text(text)
    flags = [f for f in harness.FLAGS if not f.startswith("--target")]
    lanes = [f"--target={isa.triple}", f"-march={isa.march}", f"-DMB_VL={isa.vl}"]
    lanes += [f"-DMB_NVREG={isa.nvreg}"] + ["-mprefer-vector-width=512"] * (isa.vl == 16)
    subprocess.run([harness.ZIG, "clang", *flags, *lanes, *how, c, "-o", out], check=True)
    return out, names


def check(assembly: str, names: list[str], isa: Isa) -> None:
    for name in names:
        found = re.search(rf"^{name}(?:\.\w+)*:(.*?)^\.Lfunc_end", assembly, re.DOTALL | re.MULTILINE)
        assert found, f"{name} is not a function of its own"
        hits = re.findall(isa.stack, found.group(1), re.MULTILINE)
        assert len(hits) <= isa.allowed, f"{isa.march} {name}: {len(hits)} vector stack accesses"
        assert not re.search(r"\bcallq?\b|\bblr?\b", found.group(1)), f"{name} calls something"
    assert not re.search(r"callq?\s+\*|\bblr\b", assembly), "an indirect call is left"


@pytest.mark.parametrize("isa", ISAS, ids=lambda i: i.march)
def test_native_tiles_stay_in_registers(isa: Isa, tmp_path: Path) -> None:
    out, names = compile_to(isa, tmp_path, "-S")
    check(out.read_text(), names, isa)


@pytest.mark.parametrize("mode", ["thin", "full"])
@pytest.mark.parametrize("isa", ISAS[:2], ids=lambda i: i.march)
def test_lto_tiles_stay_in_registers(isa: Isa, mode: str, tmp_path: Path) -> None:
    obj, names = compile_to(isa, tmp_path, "-c", "-flto=thin", "-funified-lto")
    asm = tmp_path / "lto.s"
    level = ["--lto-O3", "--lto-CGO3"]
    link = [
        "ld.lld",
        "-shared",
        f"--lto={mode}",
        *level,
        "--lto-emit-asm",
        obj,
        "-o",
        asm,
    ]
    subprocess.run([harness.ZIG, *link], check=True)
    written = [p for p in sorted(tmp_path.glob("lto.s*")) if p.stat().st_size]
    check("\n".join(p.read_text() for p in written), names, isa)
