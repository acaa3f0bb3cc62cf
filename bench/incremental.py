"""What an edit costs: a model of fifty layers with an application, built clean and after small changes.

    python bench/incremental.py [--lto none,thin,full] [--rounds 3]

Every build is the command `monobloc build model.onnx app.c` in a process of its own. A clean one starts with an
empty cache; each change is built on top of a copy of the cache that the clean build left. Rounds are interleaved and
medians taken. `work` is the CPU time of the build and all it started, which other programs do not disturb.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

CHANGES = ("clean", "nothing", "weight", "operator", "application")
APP = """#include <stdio.h>
#include "net.h"
int main(void) {
  for (int i = 0; i < NET_IN_X_SIZE; i++) net_in_x()[i] = (float)(i % %d) / 7;
  int status = net_run();
  printf("%%f\\n", net_out_y()[0]);
  return status;
}
"""


def network(path: Path, weight: bool = False, operator: bool = False) -> None:
    """Fifty convolutions in five stages, pointwise and 3x3, nearly all of shapes of their own."""
    rng, nodes, weights = np.random.default_rng(3), [], {}
    last, channels, size = "x", 3, 64
    for k in range(50):
        kernel, stride = (3, 2) if k % 10 == 0 and k < 40 else (1 + 2 * (k % 2), 1)
        size //= stride
        wide = 16 + 2 * k
        scale = np.float32(1 / np.sqrt(channels * kernel * kernel))
        weights[f"w{k}"] = rng.standard_normal((wide, channels, kernel, kernel)).astype(np.float32) * scale
        weights[f"b{k}"] = rng.standard_normal(wide).astype(np.float32) / 10
        nodes.append(helper.make_node("Conv", [last, f"w{k}", f"b{k}"], [f"c{k}"], f"conv{k}",
                                      pads=[kernel // 2] * 4, strides=[stride, stride]))
        kind = "HardSigmoid" if operator and k == 25 else "Relu"
        nodes.append(helper.make_node(kind, [f"c{k}"], [f"r{k}"], f"act{k}"))
        last, channels = f"r{k}", wide
    nodes.append(helper.make_node("GlobalAveragePool", [last], ["y"], "pool"))
    if weight:
        weights["w25"] = weights["w25"] * np.float32(1.01)
    graph = helper.make_graph(
        nodes, "net", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 64, 64])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, channels, 1, 1])],
        [numpy_helper.from_array(w, n) for n, w in weights.items()],
    )  # fmt: skip
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)


def build(folder: Path, lto: str, change: str) -> tuple[float, float, str]:
    """Seconds, seconds of CPU time, and what was compiled."""
    network(folder / "net.onnx", change == "weight", change == "operator")
    (folder / "app.c").write_text(APP.replace("%d", "12" if change == "application" else "11").replace("%%", "%"))
    cache, kept = folder / "cache", folder / f"kept.{lto}"
    shutil.rmtree(cache, ignore_errors=True)
    if change != "clean":
        shutil.copytree(kept, cache)
    line = [sys.executable, "-m", "monobloc", "build", "net.onnx", "app.c", "-o", "app", "--lto", lto,
            "--cache", "cache"]  # fmt: skip
    before, begin = os.times(), time.perf_counter()
    env = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}  # as installed: compiled Python
    env |= {"PYTHONPYCACHEPREFIX": str(folder / "pyc")}
    told = subprocess.run(line, cwd=folder, env=env, check=True, stdout=subprocess.PIPE, text=True).stdout
    seconds, after = time.perf_counter() - begin, os.times()
    if change == "clean":
        shutil.rmtree(kept, ignore_errors=True)
        shutil.copytree(cache, kept)
    done = told.partition("compiled ")[2].partition(" partitions")[0]
    work = after.children_user + after.children_system - before.children_user - before.children_system
    return seconds, work, done


def main() -> None:
    p = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    p.add_argument("--lto", default="none,thin,full")
    p.add_argument("--rounds", type=int, default=3)
    a = p.parse_args()
    print("| LTO | change | partitions compiled | seconds | of clean | work, s | of clean |")
    print("|---|---|---:|---:|---:|---:|---:|")
    with tempfile.TemporaryDirectory(prefix="monobloc-incremental-") as tmp:
        build(Path(tmp), "none", "clean")  # leaves compiled Python
        for lto in a.lto.split(","):
            found = {c: [] for c in CHANGES}  # type: dict[str, list[tuple[float, float, str]]]
            for _ in range(a.rounds):
                for c in CHANGES:
                    found[c].append(build(Path(tmp), lto, c))
            whole = [statistics.median(r[k] for r in found["clean"]) for k in (0, 1)]
            for c in CHANGES:
                s, w = (statistics.median(r[k] for r in found[c]) for k in (0, 1))
                print(f"| {lto} | {c} | {found[c][0][2]} | {s:.2f} | {100 * s / whole[0]:.0f} % | {w:.2f} | "
                      f"{100 * w / whole[1]:.0f} % |", flush=True)


if __name__ == "__main__":
    main()
