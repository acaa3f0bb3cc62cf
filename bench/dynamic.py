"""One image for many sizes, beside images that were built for one size each.

    python bench/dynamic.py ../shared/models/minilm_l6_int8.onnx --dim batch=1..4 --dim sequence=1..128 \\
        --at batch=1,sequence=32 --at batch=4,sequence=128 [--write docs/benchmarks.md]

For every point: the CPU time of a run of both, which take turns, as medians and their ratio, and whether the answers
agree. CPU time, since a run of milliseconds on a busy machine is mostly waiting. Beside them the file, the weights and
the memory of the one image, and of the largest of the others.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from page import write_section

import monobloc
from monobloc.bench_run import ours
from monobloc.feeds import random_feeds
from monobloc.ir.dims import Sizes
from monobloc.loader import CompiledModel
from monobloc.options import parse_dims

TITLE = "## One image for many sizes"


def feeds_at(m: CompiledModel, at: dict[str, int]) -> dict[str, np.ndarray]:
    """Random inputs at a point."""
    whole = random_feeds(m.inputs, 0)
    out = {}
    for s in m.inputs:
        cut = tuple(slice(at.get(name)) for name in s.axes)
        x = np.ascontiguousarray(whole[s.name][cut])
        out[s.name] = x % 2 if x.dtype.kind in "iu" else x  # integers are often indices, and of small tables too
    return out


def row(one: CompiledModel, path: Path, at: dict[str, int], seconds: float) -> str:
    """A line of the table: both latencies at one point."""
    alone = monobloc.compile(path, dim=at)
    feeds = feeds_at(one, at)
    got, want = one.run(feeds), alone.run(feeds)
    for name, y in want.items():
        np.testing.assert_allclose(got[name], y, rtol=1e-3, atol=1e-4, err_msg=f"{name} at {at}")
    a, b = cpu_times([ours(one, feeds, 1).run, ours(alone, feeds, 1).run], seconds)
    point = " ".join(f"{k}={v}" for k, v in at.items())
    return f"| {point} | {a * 1e6:,.0f} | {b * 1e6:,.0f} | {a / b:.2f} |"


def cpu_times(runs: Sequence[Callable[[], object]], seconds: float) -> list[float]:
    """Medians of the CPU time of a run, in turns."""
    found: list[list[float]] = [[] for _ in runs]
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(found[0]) < 5:
        for run, times in zip(runs, found, strict=True):
            start = time.thread_time()
            run()
            times.append(time.thread_time() - start)
    return [statistics.median(times) for times in found]


def table(path: Path, dims: dict[str, Sizes], points: Sequence[dict[str, int]], seconds: float) -> list[str]:
    one = monobloc.compile(path, dim={k: v if isinstance(v, tuple) else (v,) for k, v in dims.items()})
    largest = monobloc.compile(path, dim={k: v[-1] if isinstance(v, tuple) else v for k, v in dims.items()})
    rows = [row(one, path, at, seconds) for at in points]
    sizes = [f"| {what} | {m.path.stat().st_size:,} | {m.weights_bytes:,} | {m.arena_bytes:,} |"
             for what, m in (("all sizes", one), ("the largest only", largest))]
    return [f"{path.stem}, " + ", ".join(f"{k} {v[0]} to {v[-1]}" for k, v in dims.items() if isinstance(v, tuple)), "",
            "| at | one image, us | its own image, us | ratio |", "|---|---|---|---|", *rows, "",
            "| image | bytes | weights | arena |", "|---|---|---|---|", *sizes]


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("model", type=Path)
    p.add_argument("--dim", action="append", default=[])
    p.add_argument("--at", action="append", default=[], help="name=size,name=size")
    p.add_argument("--seconds", type=float, default=3.0)
    p.add_argument("--write", type=Path)
    a = p.parse_args()
    points = [{k: int(v) for k, v in (pair.split("=") for pair in text.split(","))} for text in a.at]
    lines = table(a.model, parse_dims(a.dim), points, a.seconds)
    print("\n".join(lines))
    if a.write:
        write_section(a.write, TITLE, "\n".join(lines))


if __name__ == "__main__":
    main()
