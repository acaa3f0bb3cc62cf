"""The pipeline program (`examples/pipeline`) by gcc and by Monobloc: where its bytes are, and how fast it is.

    python bench/pipeline.py [--optimize speed|size] [--rounds 9] [--runs 200] [--write]

gcc links the same objects' native code: `gcc -Os -ffunction-sections -Wl,--gc-sections`, models as `monobloc
compile` made them. Every way links the same shared libc and libstdc++ and is stripped. Sizes are those of
symbols and sections, `rest` is what is left of the file:

    weights      constants of the models
    model        layers, kernels, the C interface and the CPU check
    application, library     functions by the object they come from
    data         strings, tables, virtual tables
    unwind       what exceptions need
    rest         start files, dynamic linking, headers, padding

Times are of one frame, without reading its file: the median of medians of interleaved bursts. `--write`
puts the tables into docs/benchmarks.md. Needs gcc, g++ and make.
"""

from __future__ import annotations

import argparse
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from page import write_section

from monobloc.object import elf

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "benchmarks.md"
HEADING = "## A whole program"
MONOBLOC = f"{sys.executable} -m monobloc"
WAYS = {"gcc": "-Os", "gcc -O2": "-O2", "none": "-Os", "thin": "-Os", "full": "-Os"}  # and the application's level
KINDS = ("weights", "model", "application", "library", "data", "unwind", "rest")
MODEL = re.compile(r"layer_|\w+_k_|mb_|finder_|digits_|run_in|known|ins|outs|(in|out)\d+_")
UNWIND = (".eh_frame", ".eh_frame_hdr", ".gcc_except_table")
DATA = (".rodata", ".data", ".data.rel.ro", ".data.rel.ro.local")


@dataclass(frozen=True)
class Program:
    """One way's program, stripped, and its bytes by kind."""

    path: Path
    bytes: dict[str, int]

    @property
    def whole(self) -> int:
        return sum(self.bytes.values())

    @property
    def without_weights(self) -> int:
        return self.whole - self.bytes["weights"]


def run(*words: object, cwd: Path) -> str:
    done = subprocess.run([str(w) for w in words], cwd=cwd, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"error: {' '.join(map(str, words))}\n{done.stdout}{done.stderr}")
    return done.stdout


# -- building -----------------------------------------------------------------------------------------
def make(folder: Path, way: str, optimize: str) -> Program:
    """The example's own Makefile, from scratch."""
    home = folder / way
    keep_out = shutil.ignore_patterns("build", "*.o", "*.d", "*.a", "pipeline")
    shutil.copytree(ROOT / "examples" / "pipeline", home / "pipeline", ignore=keep_out)
    shutil.copy(ROOT / "examples" / "mnist8.onnx", home)
    folder = home / "pipeline"
    ours = (f"CC={MONOBLOC} cc", f"CXX={MONOBLOC} c++", f"AR={MONOBLOC} ar")
    # The level of a link is that of its models: `-Os` builds them for size, unless another follows.
    level = "" if optimize == "size" else " -O3"
    line = ("make", "-j2", f"MONOBLOC={MONOBLOC}", f"MODELFLAGS=--optimize {optimize}", f"CFLAGS={WAYS[way]} -Wall")
    line += ("CC=gcc", "CXX=g++") if way.startswith("gcc") else (*ours, f"LDFLAGS=-flto={way}{level}")
    run(*line, cwd=folder)
    run("strip", "-o", home / "app", "pipeline", cwd=folder)
    if not way.startswith("gcc"):  # once more, with names
        (folder / "pipeline").unlink()
        run(*line[:-1], f"{line[-1]} -g", cwd=folder)
    functions = names(folder, "*.o"), names(folder, "pix/*.o")
    return Program(home / "app", split(folder / "pipeline", home / "app", *functions))


def names(folder: Path, objects: str) -> set[str]:
    """Functions that objects define, models not."""
    paths = [p for p in sorted(folder.glob(objects)) if p.name not in ("finder.o", "digits.o")]
    return {s.name for p in paths for s in elf.symbols(p.read_bytes()) if s.type == elf.STT_FUNC and s.defined}


def split(linked: Path, stripped: Path, application: set[str], library: set[str]) -> dict[str, int]:
    data = linked.read_bytes()
    sections = {s.index: s for s in elf.sections(data)}
    out = dict.fromkeys(KINDS, 0)
    seen: set[tuple[int, int]] = set()
    for s in sorted(elf.symbols(data), key=lambda s: (s.value, -s.size)):
        home = sections.get(s.section)
        if home is None or not s.size or home.type == elf.SHT_NOBITS or (s.section, s.value) in seen:
            continue
        seen.add((s.section, s.value))  # folded functions and aliases count once
        name = s.name.partition(".")[0] or s.name
        if s.name.startswith("mb_w_"):
            out["weights"] += s.size
        elif MODEL.match(name):
            out["model"] += s.size
        elif s.type == elf.STT_FUNC and (name in library or name in application):
            out["library" if name in library else "application"] += s.size
    final = elf.sections(stripped.read_bytes())
    constants = sum(s.size for s in final if s.name in DATA)
    out["data"] = constants - out["weights"] - sum(_model_data(data, sections))
    out["unwind"] = sum(s.size for s in final if s.name in UNWIND)
    out["rest"] = stripped.stat().st_size - sum(out.values())
    return out


def _model_data(data: bytes, sections: dict[int, elf.Section]) -> list[int]:
    symbols = [s for s in elf.symbols(data) if s.type == elf.STT_OBJECT and s.section in sections]
    in_data = [s for s in symbols if sections[s.section].name in DATA and not s.name.startswith("mb_w_")]
    return [s.size for s in in_data if MODEL.match(s.name.partition(".")[0] or s.name)]


# -- measuring ----------------------------------------------------------------------------------------
def times(programs: dict[str, Program], folder: Path, rounds: int, runs: int) -> dict[str, float]:
    """Microseconds per frame."""
    page = folder / "gcc" / "pipeline" / "page.ppm"
    got: dict[str, list[float]] = {way: [] for way in programs}
    answers = set()
    for _ in range(rounds):
        for way, program in programs.items():
            *said, last = run(program.path, page, runs, cwd=folder).splitlines()
            answers.add("\n".join(said))
            got[way].append(float(last.split()[0]))
    if len(answers) != 1:
        sys.exit("error: the programs do not say the same")
    return {way: statistics.median(t) for way, t in got.items()}


def table(programs: dict[str, Program], took: dict[str, float]) -> list[str]:
    base = programs["gcc"]
    head = ("link", *KINDS, "whole", "to gcc", "without weights", "to gcc", "us per frame")
    rows = [f"| {' | '.join(head)} |", f"| --- |{' ---: |' * (len(head) - 1)}"]
    for way, p in programs.items():
        cells = [way, *(f"{p.bytes[k]:,}" for k in KINDS), f"{p.whole:,}", f"{p.whole / base.whole - 1:+.1%}",
                 f"{p.without_weights:,}", f"{p.without_weights / base.without_weights - 1:+.1%}", f"{took[way]:.0f}"]
        rows.append(f"| {' | '.join(cells)} |")
    return rows


def check(programs: dict[str, Program], optimize: str) -> list[str]:
    """Which of the goals are missed."""
    missed = []
    for way in ("thin", "full") if optimize == "size" else ():
        if programs[way].whole > 0.75 * programs["gcc"].whole:
            missed.append(f"{way}: {programs[way].whole} of {programs['gcc'].whole} bytes")
    for way in ("thin", "full"):
        if programs[way].bytes["model"] > 1.05 * programs["none"].bytes["model"]:
            missed.append(f"{way}: {programs[way].bytes['model']} of {programs['none'].bytes['model']} bytes of models")
    return missed


def main() -> int:
    p = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    p.add_argument("--optimize", choices=("speed", "size"), action="append", help="default: both")
    p.add_argument("--rounds", type=int, default=9)
    p.add_argument("--runs", type=int, default=200)
    p.add_argument("--write", action="store_true", help=f"into {PAGE.relative_to(ROOT)}")
    a = p.parse_args()
    text, missed = [], []
    for optimize in a.optimize or ("speed", "size"):
        with tempfile.TemporaryDirectory(prefix="monobloc-") as tmp:
            programs = {way: make(Path(tmp), way, optimize) for way in WAYS}
            took = times(programs, Path(tmp), a.rounds, a.runs)
        rows = table(programs, took)
        missed += [f"--optimize {optimize}, {m}" for m in check(programs, optimize)]
        text += ["", f"Models for {optimize}:", "", *rows]
        print("\n".join(text[-len(rows) - 3 :]), flush=True)
    if a.write:
        write_section(PAGE, HEADING, "\n".join([INTRODUCTION, *text]))
    for m in missed:
        print(f"missed: {m}", file=sys.stderr)
    return int(bool(missed))


INTRODUCTION = """\
`examples/pipeline/`: an image library of which a part is used, stages in C++, two models, postprocessing in C.
Written by `bench/pipeline.py --write`. Bytes by kind; `gcc` is `gcc -Os -ffunction-sections -Wl,--gc-sections`
over the same model objects' native code, the others are `monobloc cc -Os` by mode. All link the same shared
libc and libstdc++ and are stripped. The detector has an output that the program does not read: gcc keeps its
weights, so sizes are given without weights too. Functions that are inlined count where they are inlined.
Times hold the application's too, which gcc compiles in the first rows and clang in the others: much of the gap
is `gcc -Os` itself, so its program is there with `-O2` for the application, too."""


if __name__ == "__main__":
    sys.exit(main())
