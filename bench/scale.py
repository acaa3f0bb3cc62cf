"""Link time and peak memory, of many modules and of a large one: the tables and the plot of docs/incremental.md.

    python bench/scale.py [--counts 10,100,1000] [--modes none,thin,full] [--kib 300] [--rows R.json] [--plot R.svg]
    python bench/scale.py --model resnet50.onnx [--modes none,thin,full]

Generates that many models of a few shapes with weights of their own and builds one image of all of them with an empty
cache; reading the models is a part of it. They are of three small products each, or with `--kib` convolutional nets
with about that much of weights. A large model is built in one step, and in two. Memory is what the process and all it
starts hold together, pages of files included, read from /proc every 20 ms; processes of one program share its pages,
so of them the one with most counts. Work is CPU time of all, which other programs do not disturb.

With `--rows` figures are added to a file, and tables and plot are of all in it: 1,000 modules take minutes.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

WIDTHS = (24, 32, 40, 48)
_RSS = re.compile(r"^Rss(\w+):\s+(\d+) kB", re.M)
MIB = 2**20


@dataclass(frozen=True)
class Row:
    """One build: of so many modules, with so many KiB of weights each (0: three small products)."""

    kib: int
    modules: int
    mode: str
    seconds: float
    work: float
    peak: int
    image: int


def products(k: int) -> onnx.GraphProto:
    """Three products with activations; weights differ from model to model, shapes repeat."""
    rng, n = np.random.default_rng(k), WIDTHS[k % len(WIDTHS)]
    weights = {f"w{i}": (rng.standard_normal((n, n)) / 6).astype(np.float32) for i in range(3)}
    nodes = [helper.make_node("MatMul", ["x", "w0"], ["a"]), helper.make_node("Relu", ["a"], ["b"]),
             helper.make_node("MatMul", ["b", "w1"], ["c"]), helper.make_node("Tanh", ["c"], ["d"]),
             helper.make_node("MatMul", ["d", "w2"], ["y"])]
    return _graph(k, nodes, weights, [4, n], [4, n])


def convolutions(k: int, kib: int) -> onnx.GraphProto:
    """A classifier of small pictures: three convolutions, mean, product; most weights are in the last two."""
    rng = np.random.default_rng(k)
    n = max(int((kib * 1024 / 4 / 18) ** 0.5) // 8 * 8 + 8 * (k % len(WIDTHS) - 1), 8)
    sizes = {"w0": (n, 3, 3, 3), "w1": (n, n, 3, 3), "w2": (n, n, 3, 3), "w3": (n, 10)}
    weights = {s: (rng.standard_normal(d) / np.prod(d[1:]) ** 0.5).astype(np.float32) for s, d in sizes.items()}
    nodes, last = [], "x"
    for i in range(3):
        nodes += [helper.make_node("Conv", [last, f"w{i}"], [f"c{i}"], pads=[1, 1, 1, 1], strides=[2, 2]),
                  helper.make_node("Relu", [f"c{i}"], [f"r{i}"])]
        last = f"r{i}"
    nodes += [helper.make_node("GlobalAveragePool", [last], ["m"]), helper.make_node("Flatten", ["m"], ["f"]),
              helper.make_node("MatMul", ["f", "w3"], ["y"])]
    return _graph(k, nodes, weights, [1, 3, 32, 32], [1, 10])


def _graph(k: int, nodes: list[onnx.NodeProto], weights: dict[str, np.ndarray], x: list[int],
           y: list[int]) -> onnx.GraphProto:
    inputs, outputs = ([helper.make_tensor_value_info(p, TensorProto.FLOAT, d)] for p, d in (("x", x), ("y", y)))
    tensors = [numpy_helper.from_array(w, s) for s, w in weights.items()]
    return helper.make_graph(nodes, f"m{k}", inputs, outputs, tensors)


def models(count: int, folder: Path, kib: int = 0) -> list[Path]:
    for k in range(count):
        graph = convolutions(k, kib) if kib else products(k)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        onnx.save(model, folder / f"m{k}.onnx")
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


def rows(counts: list[int], modes: list[str], kib: int, folder: Path) -> Iterator[Row]:
    for count in counts:
        found = models(count, folder, kib)
        for mode in modes:
            image, cache = folder / f"all.{mode}.so", folder / f"fresh.{count}.{mode}"
            line = [sys.executable, "-m", "monobloc", "build", *map(str, found), "-o", str(image), "--lto", mode]
            seconds, work, peak = measure([*line, "--cache", str(cache)])
            row = Row(kib, count, mode, seconds, work, peak, image.stat().st_size)
            print(table([row]).splitlines()[-1], flush=True)
            shutil.rmtree(cache)
            image.unlink()
            yield row


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


def table(found: Sequence[Row]) -> str:
    head = "| weights each | modules | LTO | seconds | work, s | ms per module | peak MiB | image MiB | ratio |\n"
    return f"{head}|---:|---:|---|{'---:|' * 6}\n" + "".join(
        f"| {_each(r.kib)} | {r.modules} | {r.mode} | {r.seconds:.1f} | {r.work:.1f} | "
        f"{1000 * r.work / r.modules:.0f} | {r.peak / MIB:.0f} | {r.image / MIB:.1f} | {r.peak / r.image:.1f} |\n"
        for r in found)


def growth(found: Sequence[Row]) -> str:
    """What a build takes whatever it builds, and what each module adds: a line through the first and the last row."""
    out = ["| weights each | LTO | floor MiB | peak per module, KiB | image per module, KiB | ratio of these |",
           "|---:|---|---:|---:|---:|---:|"]
    for kib, mode in dict.fromkeys((r.kib, r.mode) for r in found):
        mine = sorted((r for r in found if (r.kib, r.mode) == (kib, mode)), key=lambda r: r.modules)
        first, last = mine[0], mine[-1]
        if last.modules > first.modules:
            peak, image = ((b - a) / (last.modules - first.modules)
                           for a, b in ((first.peak, last.peak), (first.image, last.image)))
            out.append(f"| {_each(kib)} | {mode} | {(first.peak - first.modules * peak) / MIB:.0f} | "
                       f"{peak / 1024:.0f} | {image / 1024:.0f} | {peak / image:.1f} |")
    return "\n".join([*out, ""])


def _each(kib: int) -> str:
    return f"{kib} KiB" if kib else "small"


COLOURS = {"none": "#4477aa", "thin": "#228833", "full": "#cc3311"}


def plot(found: Sequence[Row]) -> str:
    """Two panels, both axes logarithmic: a straight line of slope one is linear. Large modules are dashed."""
    out = ['<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 760 330" font-family="sans-serif" font-size="12">',
           '<rect width="760" height="330" rx="6" fill="white"/>']
    lines = {(r.kib, r.mode): sorted((x for x in found if (x.kib, x.mode) == (r.kib, r.mode)), key=lambda x: x.modules)
             for r in found}
    out += _panel(60, "CPU time, s", {k: [(r.modules, r.work) for r in mine] for k, mine in lines.items()})
    memory = {k: [(r.modules, r.peak / MIB) for r in mine] for k, mine in lines.items()}
    largest = max(kib for kib, _ in lines)
    if largest:
        mine = lines.get((largest, "thin")) or next(v for k, v in lines.items() if k[0] == largest)
        memory[largest, "3 x image"] = [(r.modules, 3 * r.image / MIB) for r in mine]
    out += _panel(440, "peak memory, MiB", memory)
    return "\n".join([*out, "</svg>", ""])


def _panel(left: int, title: str, lines: dict[tuple[int, str], list[tuple[int, float]]]) -> list[str]:
    points = [p for line in lines.values() for p in line]
    xs, ys = np.log10([n for n, _ in points]), np.log10([v for _, v in points])
    low, high = np.floor(ys.min()), np.ceil(ys.max())

    def at(n: float, v: float) -> tuple[float, float]:
        x = left + 280 * (np.log10(n) - xs.min()) / max(xs.max() - xs.min(), 1e-9)
        return round(x, 1), round(270 - 230 * (np.log10(v) - low) / max(high - low, 1e-9), 1)

    out = [f'<text x="{left}" y="20" font-weight="bold">{title}</text>']
    for power in range(int(low), int(high) + 1):
        y = at(10 ** xs.min(), 10.0**power)[1]
        out.append(f'<line x1="{left}" x2="{left + 280}" y1="{y}" y2="{y}" stroke="#ddd"/>')
        out.append(f'<text x="{left - 6}" y="{y + 4}" text-anchor="end">{10.0**power:g}</text>')
    for n in sorted({n for n, _ in points}):
        out.append(f'<text x="{at(n, 10.0**low)[0]}" y="290" text-anchor="middle">{n}</text>')
    out.append(f'<text x="{left + 140}" y="312" text-anchor="middle">modules</text>')
    for k, ((kib, mode), line) in enumerate(lines.items()):
        out += _line([at(n, v) for n, v in line], COLOURS.get(mode, "#888"), bool(kib))
        out += _legend(left + 12, 46 + 16 * k, f"{mode}, {_each(kib)}", COLOURS.get(mode, "#888"), bool(kib))
    return out


def _line(points: list[tuple[float, float]], colour: str, dashed: bool) -> list[str]:
    path, dash = " ".join(f"{x},{y}" for x, y in points), ' stroke-dasharray="6 4"' if dashed else ""
    return [f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"{dash}/>',
            *(f'<circle cx="{x}" cy="{y}" r="3" fill="{colour}"/>' for x, y in points)]


def _legend(x: int, y: int, text: str, colour: str, dashed: bool) -> list[str]:
    return [*_line([(x, y - 4.0), (x + 24.0, y - 4.0)], colour, dashed)[:1],
            f'<text x="{x + 30}" y="{y}" fill="{colour}">{text}</text>']


def kept(path: Path | None) -> list[Row]:
    return [Row(**r) for r in json.loads(path.read_text())] if path is not None and path.is_file() else []


def joined(old: Sequence[Row], new: Sequence[Row]) -> list[Row]:
    """New rows in place of old ones of the same build, small modules first."""
    rows = {(r.kib, r.modules, r.mode): r for r in (*old, *new)}
    modes = list(COLOURS)
    return sorted(rows.values(), key=lambda r: (r.kib, r.modules, modes.index(r.mode)))


def main() -> None:
    p = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    p.add_argument("--counts", default="10,100,1000")
    p.add_argument("--modes", default="none,thin,full")
    p.add_argument("--kib", type=int, default=0, help="weights of each module, in KiB, of a convolutional net")
    p.add_argument("--rows", type=Path, help="figures are added to this file")
    p.add_argument("--plot", type=Path)
    p.add_argument("--model", type=Path, help="measure this one in place of many small ones")
    a = p.parse_args()
    found = kept(a.rows)
    with tempfile.TemporaryDirectory(prefix="monobloc-scale-") as tmp:
        if a.model:
            large(a.model, a.modes.split(","), Path(tmp))
            return
        for row in rows([int(n) for n in a.counts.split(",") if n], a.modes.split(","), a.kib, Path(tmp)):
            found = joined(found, [row])
            if a.rows:
                a.rows.write_text(json.dumps([asdict(r) for r in found], indent=1) + "\n", encoding="utf-8")
    print(table(found), growth(found), sep="\n")
    if a.plot:
        a.plot.write_text(plot(found), encoding="utf-8")


if __name__ == "__main__":
    main()
