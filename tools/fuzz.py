"""A fuzzer of models: random valid graphs against onnxruntime and ONNX's reference, through every mode of LTO.

    python tools/fuzz.py [--seed N] [--seconds 600] [--batch 24] [--keep FOLDER] [--lto none,thin,full]
                         [--family quantizer]

Graphs are made by tests/fuzz: by hand-written steps and from the OpDefs' own cases, types and attributes; batches take
turns with the default options, two threads, --numerics strict and --optimize size, and with the levels of the CPU that
run here, whose vectors are of another width.
What differs is reduced and kept as a minimal .onnx with its inputs, wanted outputs and seed; the exit code is 1 if
there is any.
A seed gives the same model as long as the generators stay as they are.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "fuzz")]

from trial import Finding, keep, models, reduced, trial  # noqa: E402

from monobloc.options import Options  # noqa: E402
from monobloc.targets import Target, cpus, resolve, runs_here  # noqa: E402

BUILDS: tuple[dict[str, Any], ...] = ({}, {"threads": 2}, {"numerics": "strict"}, {"optimize": "size"})  # in turns


def targets() -> list[Target]:
    """This machine, and lower levels of it"""
    host = resolve()
    lower = [resolve(host.name, cpu) for cpu in cpus(host.name) if cpu != host.cpu]
    return [host, *(t for t in lower if runs_here(t))]


def options(turn: int, cache: Path) -> Options:
    """Those of a batch"""
    there = targets()
    more: dict[str, Any] = BUILDS[turn % len(BUILDS)]
    return replace(Options(lto="none", cache=cache, target=there[turn % len(there)]), **more)


def arguments() -> argparse.Namespace:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--seed", type=int, default=0, help="the first one")
    p.add_argument("--seconds", type=float, default=600)
    p.add_argument("--batch", type=int, default=24, help="models per image")
    p.add_argument("--keep", type=Path, default=ROOT / "build" / "fuzz")
    p.add_argument("--lto", default="none,thin,full")
    p.add_argument("--family", default="", help="one of tests/fuzz/generators.py (default: all in turns)")
    return p.parse_args()


def main() -> int:
    a = arguments()
    end, seed, kinds = time.monotonic() + a.seconds, a.seed, dict[tuple[str, ...], Path]()
    tried = refused = dead = 0
    while time.monotonic() < end:
        folder = Path(tempfile.mkdtemp(prefix="monobloc-fuzz-"))
        o = options(seed // a.batch, folder / "cache")
        batch, died = models(range(seed, seed + a.batch), a.family)
        found, no = trial(batch, folder, o, a.lto.split(","))
        tried, refused, dead, seed = tried + len(batch), refused + len(no), dead + len(died), seed + a.batch
        for text in [*(f"refused: {text}" for text in no), *(f"an oracle died of seed {s}" for s in died)]:
            print(text)
        for f in found:
            note(f, folder, o, a.keep, kinds)
        shutil.rmtree(folder, ignore_errors=True)
        print(f"seeds to {seed}: {tried} models, {refused} refused, {dead} of which an oracle died, {len(kinds)} kinds "
              "of findings", flush=True)
    return bool(kinds)


def note(f: Finding, folder: Path, o: Options, where: Path, kinds: dict[tuple[str, ...], Path]) -> None:
    """Reduce a finding, and keep it if it is the first of its kind."""
    small = reduced(f, folder / "reduce", o)
    if small.kind not in kinds:
        kinds[small.kind] = keep(small, where, o)
        print(f"FOUND {kinds[small.kind]}: {small.why[:300]}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
