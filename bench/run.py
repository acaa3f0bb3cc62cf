"""Latency of whole models beside onnxruntime: one thread each, calls interleaved, medians.

    python bench/run.py [MODEL.onnx ...] [--seconds 4] [--filter NAME] [--write docs/benchmarks.md]

Without arguments: the models in examples/, tests/models/ and the zoo beside the repository, where there is
one. Both sides are called from Python with numpy arrays in and out, so both pay for that. Short bursts of
the two alternate: a burst of ours, one of theirs; what disturbs the machine disturbs both. `ratio` is
ours / theirs, of medians; below 1 Monobloc is faster. Inputs come from `MODEL.npz` beside the model (arrays
`in_NAME`), or are random.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnxruntime

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT)]
from monobloc.driver import build, user_cache  # noqa: E402
from monobloc.errors import MonoblocError  # noqa: E402
from monobloc.loader import CompiledModel  # noqa: E402
from monobloc.options import Options  # noqa: E402

BURST_SECONDS = 0.05
NUMPY_OF = {
    "tensor(float)": np.float32, "tensor(double)": np.float64, "tensor(int64)": np.int64,
    "tensor(int32)": np.int32, "tensor(uint8)": np.uint8, "tensor(int8)": np.int8, "tensor(bool)": np.bool_,
    "tensor(float16)": np.float16,
}  # fmt: skip


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    name: str
    ours: float  # seconds
    theirs: float
    executable: int  # bytes
    weights: int
    arena: int
    error: float  # largest difference, relative to the largest value of its output


def feeds_of(model: Path, session: onnxruntime.InferenceSession) -> dict[str, np.ndarray]:
    """Example inputs beside the model, else random ones; unknown sizes are 1."""
    stored = model.with_suffix(".npz")
    if stored.is_file():
        z = np.load(stored)
        found = {k[3:]: z[k] for k in z.files if k.startswith("in_")}
        ranks = {i.name: len(i.shape) for i in session.get_inputs()}
        found = {k: v[0] if v.ndim == ranks.get(k, -1) + 1 else v for k, v in found.items() if k in ranks}  # a step
        if len(found) == len(ranks):
            return found
    rng = np.random.default_rng(0)
    return {i.name: _random(rng, i) for i in session.get_inputs()}


def _random(rng: np.random.Generator, i: onnxruntime.NodeArg) -> np.ndarray:
    shape = [d if isinstance(d, int) else 1 for d in i.shape]
    dtype = np.dtype(NUMPY_OF[i.type])
    return (rng.standard_normal(shape) if dtype.kind == "f" else rng.integers(0, 2, shape)).astype(dtype)


def session_of(model: Path) -> onnxruntime.InferenceSession:
    o = onnxruntime.SessionOptions()
    o.intra_op_num_threads, o.inter_op_num_threads, o.log_severity_level = 1, 1, 4
    return onnxruntime.InferenceSession(str(model), o, providers=["CPUExecutionProvider"])


def interleaved(a: Callable[[], object], b: Callable[[], object], seconds: float) -> tuple[float, float]:
    """Median seconds of both, from alternating bursts."""
    reps = [max(1, int(BURST_SECONDS / max(_once(f), 1e-7))) for f in (a, b)]
    times: tuple[list[float], list[float]] = ([], [])
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(times[0]) < 5:
        for f, n, out in zip((a, b), reps, times, strict=True):
            out += [_timed(f) for _ in range(n)]
    return statistics.median(times[0]), statistics.median(times[1])


def _timed(f: Callable[[], object]) -> float:
    start = time.perf_counter()
    f()
    return time.perf_counter() - start


def _once(f: Callable[[], object]) -> float:
    f()
    return min(_timed(f), _timed(f))


def largest_error(got: Mapping[str, np.ndarray], want: Mapping[str, np.ndarray]) -> float:
    worst = 0.0
    for name, w in want.items():
        if w.size:
            d = np.abs(got[name].astype(np.float64) - w.astype(np.float64)).max()
            worst = max(worst, float(d / max(np.abs(w.astype(np.float64)).max(), 1e-30)))
    return worst


def measure(model: Path, seconds: float, folder: Path) -> Row:
    session = session_of(model)
    feeds = feeds_of(model, session)
    o = Options(shapes={k: v.shape for k, v in feeds.items()}, cache=user_cache())
    exe = build([model], folder / model.stem, "exe", o).path
    ours = CompiledModel(build([model], folder / f"{model.stem}.so", "shared", o).path)
    names = [x.name for x in session.get_outputs()]
    error = largest_error(ours.run(feeds), dict(zip(names, session.run(None, feeds), strict=True)))
    t, u = interleaved(lambda: ours.run(feeds), lambda: session.run(None, feeds), seconds)
    return Row(model.stem, t, u, exe.stat().st_size, ours.weights_bytes, ours.arena_bytes, error)


# -- the table ----------------------------------------------------------------------------------------
def size(n: int) -> str:
    return f"{n / 2**20:.1f} MiB" if n >= 2**20 else f"{n / 2**10:.1f} KiB"


def milliseconds(s: float) -> str:
    return f"{s * 1e3:.3f}" if s < 0.01 else f"{s * 1e3:.1f}"


def cells(r: Row) -> list[str]:
    return [r.name, milliseconds(r.ours), milliseconds(r.theirs), f"{r.ours / r.theirs:.2f}", size(r.executable),
            size(r.weights), size(r.arena), f"{r.error:.0e}"]  # fmt: skip


HEAD = ["model", "Monobloc ms", "onnxruntime ms", "ratio", "executable", "weights", "arena", "error"]


def table(rows: Iterable[Row]) -> str:
    lines = [HEAD, ["---", *["---:"] * (len(HEAD) - 1)], *map(cells, rows)]
    return "\n".join("| " + " | ".join(x) + " |" for x in lines)


def page(rows: list[Row]) -> str:
    cpu = Options().target
    return f"""# Benchmarks

Written by `bench/run.py --write`. One thread, {cpu.cpu}, {os.cpu_count()}-core server VM, shared with other
work; onnxruntime {onnxruntime.__version__}, one thread. Calls from Python with numpy arrays in and
out on both sides, in alternating bursts; medians. `ratio` is ours / theirs: below 1 Monobloc is faster. On such a
machine times double and ratios move by 10 % from run to run. `executable` is the whole static program, weights and
`main` included. `arena` is all the RAM a run uses beside its stack: inputs, outputs, intermediate values and scratch.
`error` is the largest difference to onnxruntime, relative to the largest value of the output.

{table(rows)}
"""


def default_models() -> list[Path]:
    zoo = ROOT.parent / "shared" / "models"
    found = sorted((ROOT / "examples").glob("*.onnx")) + sorted((ROOT / "tests" / "models").glob("*.onnx"))
    for card in sorted(zoo.glob("*.json")):
        facts = json.loads(card.read_text(encoding="utf-8"))
        if facts.get("format") == "onnx" and (zoo / facts["file"]).is_file():
            found.append(zoo / facts["file"])
    return found


def main() -> int:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("models", nargs="*", type=Path)
    p.add_argument("--seconds", type=float, default=4.0, help="of measuring per model")
    p.add_argument("--filter", default="", help="only models with this in their name")
    p.add_argument("--write", type=Path, help="also write the page")
    a = p.parse_args()
    rows = []
    with tempfile.TemporaryDirectory(prefix="monobloc-bench-") as tmp:
        for model in a.models or [m for m in default_models() if a.filter in m.stem]:
            try:
                rows.append(measure(model, a.seconds, Path(tmp)))
                print("  ".join(f"{h} {c}" if h != "model" else c for h, c in zip(HEAD, cells(rows[-1]))), flush=True)
            except MonoblocError as e:
                print(f"{model.stem}: skipped: {str(e).splitlines()[0]}", file=sys.stderr, flush=True)
    print("\n" + table(rows))
    if a.write:
        old = a.write.read_text(encoding="utf-8") if a.write.is_file() else ""
        others = old[old.find("\n## ") :] if "\n## " in old else ""  # other scripts' tables
        a.write.write_text(page(rows) + others, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
