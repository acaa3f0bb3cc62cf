"""What a linker keeps of a model's head that the application never reads.

    python bench/twoheads.py [--write docs/benchmarks.md]

The model: a layer of 64, a head of 4 that the application reads, and a head of 4096 with 1 MB of weights that it
does not. As plain C it is what generators of portable C write: loops over static arrays. `buffers` takes its
outputs as pointers to the application's arrays; `arena` keeps all values in one array and has an accessor for
each, which is the interface Monobloc has, so that both build from one application. Everything is linked as one program
with `--gc-sections`, and its answer is compared with numpy's.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from page import write_section

from monobloc.driver import build, compile_source, compile_to_object, user_cache
from monobloc.object import elf, sysroot, toolchain
from monobloc.object.toolchain import CompileJob, LinkJob
from monobloc.options import Options
from monobloc.targets import resolve

SEED, IN, SMALL, BIG = 5, 64, 4, 4096
TITLE = "## Dead outputs"
ESCAPES = "const void *volatile escaped;"


@dataclass(frozen=True)
class Row:
    """One linked program."""

    how: str
    application: str
    escaping: bool
    flash: int  # code and constants
    bss: int
    kept: bool

    def cells(self) -> str:
        return f"{self.flash:,} | {self.bss:,} | {'**kept**' if self.kept else 'gone'}"


# -- the model, as ONNX and as C ----------------------------------------------------------------------------
def weights() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(SEED)
    sizes = {"w": (IN, IN), "s": (IN, SMALL), "g": (IN, BIG)}
    return {n: rng.standard_normal(shape, np.float32) / np.float32(8) for n, shape in sizes.items()}


def answer(w: dict[str, np.ndarray]) -> np.ndarray:
    return np.maximum((np.arange(IN, dtype=np.float32) / IN) @ w["w"], 0) @ w["s"]


def write_onnx(path: Path, w: dict[str, np.ndarray]) -> None:
    nodes = [helper.make_node("MatMul", ["x", "w"], ["m"]), helper.make_node("Relu", ["m"], ["h"]),
             helper.make_node("MatMul", ["h", "s"], ["small"]), helper.make_node("MatMul", ["h", "g"], ["big"])]
    sizes = {"x": IN, "small": SMALL, "big": BIG}
    x, *outs = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [1, d]) for n, d in sizes.items())
    graph = helper.make_graph(nodes, "twoheads", [x], outs, [numpy_helper.from_array(a, n) for n, a in w.items()])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), path)


def layer(name: str, n: int, act: str = "{}") -> str:
    value = act.format("a")
    return (f"static void {name}_layer(const float *x, float *y) {{\n  for (int j = 0; j < {n}; j++) {{\n"
            f"    float a = 0;\n    for (int i = 0; i < {IN}; i++) a += x[i] * {name}[i * {n} + j];\n"
            f"    y[j] = {value};\n  }}\n}}\n")


def model_c(style: str, w: dict[str, np.ndarray]) -> str:
    numbers = {n: ",".join(f"{v:.9e}f" for v in a.ravel()) for n, a in w.items()}
    consts = "".join(f"static const float {n}[] = {{{text}}};\n" for n, text in numbers.items())
    layers = layer("w", IN, "{0} > 0 ? {0} : 0") + layer("s", SMALL) + layer("g", BIG)
    if style == "buffers":
        return consts + layers + ("void twoheads(const float *x, float *small, float *big) {\n"
                                  f"  float h[{IN}];\n  w_layer(x, h);\n  s_layer(h, small);\n  g_layer(h, big);\n}}\n")
    at = {"x": 0, "h": IN, "small": 2 * IN, "big": 2 * IN + SMALL}
    ports = "".join(f"{'' if n == 'x' else 'const '}float *twoheads_{'in' if n == 'x' else 'out'}_{n}(void) "
                    f"{{ return arena + {at[n]}; }}\n" for n in ("x", "small", "big"))
    run = "".join(f"  {f}_layer(arena + {at[a]}, arena + {at[b]});\n" for f, a, b in
                  (("w", "x", "h"), ("s", "h", "small"), ("g", "h", "big")))
    return (consts + layers + f"static float arena[{at['big'] + BIG}];\n" + ports
            + f"int twoheads_run(void) {{\n{run}  return 0;\n}}\n")


def app_c(style: str, escaping: bool) -> str:
    """Reads one head. What escapes: of `buffers`, all three; of the others, what the application asks for anyway."""
    show = f'for (int i = 0; i < {SMALL}; i++) printf("%.6f\\n", y[i]);'
    head = f'#include <stdio.h>\n{ESCAPES if escaping else ""}\n'
    if style == "buffers":
        leak = "escaped = x; escaped = y; escaped = z;" if escaping else ""
        return (f"{head}void twoheads(const float *, float *, float *);\nstatic float x[{IN}], y[{SMALL}], z[{BIG}];\n"
                f"int main(void) {{\n  for (int i = 0; i < {IN}; i++) x[i] = (float)i / {IN};\n  {leak}\n"
                f"  twoheads(x, y, z);\n  {show}\n  return 0;\n}}\n")
    leak = "escaped = x; escaped = y;" if escaping else ""
    return (f'{head}#include "twoheads.h"\nint main(void) {{\n  float *x = twoheads_in_x();\n'
            f"  const float *y = twoheads_out_small();\n  for (int i = 0; i < {IN}; i++) x[i] = (float)i / {IN};\n"
            f"  {leak}\n  if (twoheads_run()) return 1;\n  {show}\n  return 0;\n}}\n")


# -- builds -------------------------------------------------------------------------------------------------
def with_gcc(flag: str, sources: Sequence[Path], out: Path) -> None:
    sections = ["-ffunction-sections", "-fdata-sections", "-Wl,--gc-sections"]
    subprocess.run(["gcc", flag, "-flto", *sections, *map(str, sources), "-o", str(out)], check=True)


def with_clang(lto: toolchain.Lto, sources: Sequence[Path], out: Path) -> None:
    target = resolve("x86_64-linux")
    libc = sysroot.libc_for(target, None)
    made = [out.with_name(f"{out.name}.{k}.o") for k in range(len(sources))]
    toolchain.compile_all([CompileJob(s, m, target, "bitcode", hosted=True, libc=libc)
                           for s, m in zip(sources, made, strict=True)])
    toolchain.link(LinkJob("exe", tuple(made), out, target, lto=lto, libc=libc))


def measure(how: str, application: str, escaping: bool, out: Path, w: dict[str, np.ndarray]) -> Row:
    got = np.array(subprocess.run([str(out)], check=True, capture_output=True, text=True).stdout.split(), np.float32)
    np.testing.assert_allclose(got, answer(w), rtol=1e-4, atol=1e-4)
    data = out.read_bytes()
    kept = w["g"][IN // 2, :16].tobytes() in data  # these lie together in every order of the weights
    sections = [s for s in elf.sections(data) if s.flags & elf.SHF_ALLOC]
    flash = sum(s.size for s in sections if s.name.startswith((".text", ".rodata", ".lrodata", ".data.rel.ro")))
    return Row(how, application, escaping, flash, sum(s.size for s in sections if s.name == ".bss"), kept)


def plain_c(folder: Path, w: dict[str, np.ndarray]) -> Iterator[Row]:
    tools = {f"GCC {f} -flto": (with_gcc, f) for f in ("-Os", "-O3")} if shutil.which("gcc") else {}
    tools |= {f"clang -O3 -flto={m}": (with_clang, m) for m in ("thin", "full")}
    for style in ("buffers", "arena"):
        (folder / f"{style}.c").write_text(model_c(style, w))
        for how, (make, flag) in tools.items():
            for escaping in (False, True):
                app = folder / f"app_{style}.c"
                app.write_text(app_c(style, escaping))
                make(flag, [app, folder / f"{style}.c"], folder / "plain")
                yield measure(how, f"C, {style}", escaping, folder / "plain", w)


def with_monobloc(folder: Path, w: dict[str, np.ndarray]) -> Iterator[Row]:
    for lto in ("none", "thin", "full"):
        o = Options(target=resolve("x86_64-linux"), lto=lto, cache=user_cache())  # type: ignore[arg-type]
        for kind in ("C", "C++", "fat object", "native object"):
            for escaping in (False, True):
                app = folder / ("app.cpp" if kind == "C++" else "app.c")
                app.write_text(app_c("arena", escaping))
                if "object" in kind:
                    app = as_object(kind, app, o)
                build([folder / "twoheads.o", app], folder / "ours", "exe", o)
                yield measure(f"Monobloc {lto}", kind, escaping, folder / "ours", w)


def as_object(kind: str, app: Path, o: Options) -> Path:
    made = app.with_suffix(".o")
    if kind == "fat object":
        compile_source(app, made, o)
    else:
        subprocess.run(["gcc", "-O2", "-ffunction-sections", "-c", str(app), "-o", str(made)], check=True)
    return made


# -- the page -----------------------------------------------------------------------------------------------
def section(rows: Sequence[Row]) -> str:
    gcc = subprocess.run(["gcc", "-dumpfullversion"], capture_output=True, text=True).stdout.strip()
    pairs = zip((r for r in rows if not r.escaping), (r for r in rows if r.escaping), strict=True)
    text = (
        "Written by `bench/twoheads.py --write`. A model with two heads, of which the application reads the small one; "
        f"the other has {4 * IN * BIG:,} bytes of weights and an output of {4 * BIG:,}. `buffers`: the application "
        "passes its own arrays for all three, as generators of portable C ask for; their addresses are private to it, "
        "or escape to code the compiler does not see. `arena`: all values in one array and an accessor for each, the "
        "interface Monobloc has; the addresses of the input and of the output that is read are private or escape. "
        f"x86-64, GCC {gcc}, {toolchain.tool_version()}, `--gc-sections`; bytes of code and constants in the program, "
        "of `.bss`, and whether the unread head is there."
    )
    return "\n".join([
        textwrap.fill(text, 118, break_on_hyphens=False), "",
        "| linked by | application | private | .bss | head | escape | .bss | head |",
        "|---|---|---:|---:|---|---:|---:|---|",
        *(f"| {one.how} | {one.application} | {one.cells()} | {two.cells()} |" for one, two in pairs),
    ])


def main() -> int:
    p = argparse.ArgumentParser(description="what a linker keeps of a head that nobody reads")
    p.add_argument("--write", type=Path, help="put the table into this page")
    a = p.parse_args()
    w, rows = weights(), []
    with tempfile.TemporaryDirectory() as tmp:
        folder = Path(tmp)
        write_onnx(folder / "twoheads.onnx", w)
        compile_to_object(folder / "twoheads.onnx", folder / "twoheads.o", Options(target=resolve("x86_64-linux")))
        for row in (*plain_c(folder, w), *with_monobloc(folder, w)):
            rows.append(row)
    print(section(rows))
    if a.write:
        write_section(a.write, TITLE, section(rows))
    return int(any(r.kept for r in rows if r.how.startswith("Monobloc")))


if __name__ == "__main__":
    sys.exit(main())
