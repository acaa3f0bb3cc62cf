"""Link time and peak memory, of many modules and of a large one: the tables and the plot of docs/incremental.md.

    python bench/scale.py [--counts 10,100,1000] [--modes none,thin,full] [--plot docs/scale.svg]
    python bench/scale.py --model resnet50.onnx [--modes none,thin,full]

Generates that many small models of a few shapes with weights of their own and builds one image of all of them with
an empty cache; reading the models is a part of it. A large model is built in one step, and in two. Memory is what the
process and all it starts hold together, pages of files included, read from /proc every 20 ms; processes of one program
share its pages, so of them the one with most counts. Work is CPU time of all, which other programs do not disturb.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

WIDTHS = (24, 32, 40, 48)
_RSS = re.compile(r"^Rss(\w+):\s+(\d+) kB", re.M)
Row = tuple[int, str, float, float, int, int]  # modules, mode, seconds, work, peak bytes, image bytes


def model(k: int, path: Path) -> None:
    """Three products with activations; weights differ from model to model, shapes repeat."""
    rng, n = np.random.default_rng(k), WIDTHS[k % len(WIDTHS)]
    weights = {f"w{i}": (rng.standard_normal((n, n)) / 6).astype(np.float32) for i in range(3)}
    nodes = [helper.make_node("MatMul", ["x", "w0"], ["a"]), helper.make_node("Relu", ["a"], ["b"]),
             helper.make_node("MatMul", ["b", "w1"], ["c"]), helper.make_node("Tanh", ["c"], ["d"]),
             helper.make_node("MatMul", ["d", "w2"], ["y"])]
    ports = [[helper.make_tensor_value_info(p, TensorProto.FLOAT, [4, n])] for p in "xy"]
    graph = helper.make_graph(nodes, f"m{k}", *ports, [numpy_helper.from_array(w, s) for s, w in weights.items()])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)


def models(count: int, folder: Path) -> list[Path]:
    for k in range(count):
        model(k, folder / f"m{k}.onnx")
    return [folder / f"m{k}.onnx" for k in range(count)]


def measure(command: list[str]) -> tuple[float, float, int]:
    """Seconds, seconds of CPU time, and the peak of what the process and its children hold together."""
    begin, before, peak = time.perf_counter(), os.times(), 0
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as p:
        while p.poll() is None:
            peak = max(peak, resident(p.pid))
            time.sleep(0.02)
        assert p.stderr is not None
        told = p.stderr.read().decode()
    if p.returncode:
        sys.exit(told)
    after = os.times()
    work = after.children_user + after.children_system - before.children_user - before.children_system
    return time.perf_counter() - begin, work, peak


def resident(pid: int) -> int:
    """Memory of their own of a process and all below it, and the pages of files once for each program."""
    own, files = 0, {}  # type: int, dict[str, int]
    for program, anonymous, file in _tree(pid, ""):
        own += anonymous
        files[program] = max(file, files.get(program, 0))
    return own + sum(files.values())


def _tree(pid: int, parent: str) -> Iterator[tuple[str, int, int]]:
    """A child that still runs its parent's program is about to start another, and has no memory of its own yet."""
    try:
        program = os.readlink(f"/proc/{pid}/exe")
        held = dict(_RSS.findall(Path(f"/proc/{pid}/status").read_text()))
        below = [int(c) for t in Path(f"/proc/{pid}/task").iterdir() for c in (t / "children").read_text().split()]
    except (OSError, ValueError):
        return
    if program != parent:
        anonymous, file, shared = (int(held.get(k, 0)) << 10 for k in ("Anon", "File", "Shmem"))
        yield program, anonymous + shared, file
    for child in below:
        yield from _tree(child, program)


def rows(counts: list[int], modes: list[str], folder: Path) -> list[Row]:
    out = []
    for count in counts:
        found = models(count, folder)
        for mode in modes:
            image = folder / f"all.{mode}.so"
            line = [sys.executable, "-m", "monobloc", "build", *map(str, found), "-o", str(image), "--lto", mode]
            seconds, work, peak = measure([*line, "--cache", str(folder / f"fresh.{count}.{mode}")])
            out.append((count, mode, seconds, work, peak, image.stat().st_size))
            print(table(out[-1:]).splitlines()[-1], flush=True)
    return out


def large(model: Path, modes: list[str], folder: Path) -> None:
    """Peaks of a build of one model, and of both stages, each with an empty cache."""
    print("| step | LTO | work, s | peak MiB | image MiB | ratio |\n|---|---|---:|---:|---:|---:|")
    made, image = folder / "model.o", folder / "model.so"
    steps = [(step, mode) for mode in modes for step in ("build", "link")]
    for k, (step, mode) in enumerate([("compile", ""), *steps]):
        line = [sys.executable, "-m", "monobloc", step, str(made if step == "link" else model),
                "-o", str(made if step == "compile" else image), "--cache", str(folder / f"fresh.{k}")]
        _, work, peak = measure([*line, "--lto", mode] if mode else line)
        size = (image if mode else made).stat().st_size
        print(f"| {step} | {mode} | {work:.1f} | {peak / 2**20:.0f} | {size / 2**20:.0f} | {peak / size:.1f} |",
              flush=True)
        shutil.rmtree(folder / f"fresh.{k}")


def table(found: list[Row]) -> str:
    head = "| modules | LTO | seconds | work, s | ms per module | peak MiB | image MiB |\n"
    return f"{head}|---:|---|---:|---:|---:|---:|---:|\n" + "".join(
        f"| {n} | {mode} | {s:.1f} | {work:.1f} | {1000 * work / n:.0f} | {peak / 2**20:.0f} | {size / 2**20:.1f} |\n"
        for n, mode, s, work, peak, size in found)


COLOURS = {"none": "#4477aa", "thin": "#228833", "full": "#cc3311"}


def plot(found: list[Row]) -> str:
    """Two panels, both axes logarithmic: a straight line of slope one is linear."""
    out = ['<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 760 320" font-family="sans-serif" font-size="12">',
           '<rect width="760" height="320" fill="white"/>']
    out += _panel(60, "CPU time, s", [(n, mode, work) for n, mode, _, work, _, _ in found])
    out += _panel(440, "peak memory, MiB", [(n, mode, peak / 2**20) for n, mode, _, _, peak, _ in found])
    return "\n".join([*out, "</svg>", ""])


def _panel(left: int, title: str, points: list[tuple[int, str, float]]) -> list[str]:
    xs, ys = np.log10([n for n, _, _ in points]), np.log10([v for *_, v in points])
    low, high = np.floor(ys.min()), np.ceil(ys.max())

    def at(n: float, v: float) -> tuple[float, float]:
        x = left + 280 * (np.log10(n) - xs.min()) / max(xs.max() - xs.min(), 1e-9)
        return round(x, 1), round(270 - 230 * (np.log10(v) - low) / max(high - low, 1e-9), 1)

    out = [f'<text x="{left}" y="20" font-weight="bold">{title}</text>']
    for power in range(int(low), int(high) + 1):
        y = at(10 ** xs.min(), 10.0**power)[1]
        out.append(f'<line x1="{left}" x2="{left + 280}" y1="{y}" y2="{y}" stroke="#ddd"/>')
        out.append(f'<text x="{left - 6}" y="{y + 4}" text-anchor="end">{10.0**power:g}</text>')
    for n in sorted({n for n, _, _ in points}):
        out.append(f'<text x="{at(n, 10.0**low)[0]}" y="290" text-anchor="middle">{n}</text>')
    out.append(f'<text x="{left + 140}" y="310" text-anchor="middle">modules</text>')
    for k, mode in enumerate(dict.fromkeys(m for _, m, _ in points)):
        line = [at(n, v) for n, m, v in points if m == mode]
        path = " ".join(f"{x},{y}" for x, y in line)
        out.append(f'<polyline points="{path}" fill="none" stroke="{COLOURS[mode]}" stroke-width="2"/>')
        out += [f'<circle cx="{x}" cy="{y}" r="3" fill="{COLOURS[mode]}"/>' for x, y in line]
        out.append(f'<text x="{left + 12}" y="{50 + 16 * k}" fill="{COLOURS[mode]}">{mode}</text>')
    return out


def main() -> None:
    p = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    p.add_argument("--counts", default="10,100,1000")
    p.add_argument("--modes", default="none,thin,full")
    p.add_argument("--plot", type=Path)
    p.add_argument("--model", type=Path, help="measure this one in place of many small ones")
    a = p.parse_args()
    with tempfile.TemporaryDirectory(prefix="monobloc-scale-") as tmp:
        if a.model:
            large(a.model, a.modes.split(","), Path(tmp))
            return
        found = rows([int(n) for n in a.counts.split(",")], a.modes.split(","), Path(tmp))
    print(table(found))
    if a.plot:
        a.plot.write_text(plot(found), encoding="utf-8")


if __name__ == "__main__":
    main()
