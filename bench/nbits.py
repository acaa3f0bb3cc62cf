"""Products with weights of 4 and 8 bits beside onnxruntime's MatMulNBits: one thread, interleaved, medians.

    python bench/nbits.py [--seconds 1] [--write docs/benchmarks.md]

Accuracy level 0 leaves the activations in float, level 4 lets both sides round them to bytes. `error` is the largest
difference to onnxruntime at the same level, relative to the largest value.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

sys.path[:0] = [str(Path(__file__).resolve().parents[1])]
from page import write_section  # noqa: E402

from monobloc.bench_run import interleave, onnxruntime, ours  # noqa: E402
from monobloc.driver import build  # noqa: E402
from monobloc.loader import CompiledModel  # noqa: E402
from monobloc.options import Options  # noqa: E402
from monobloc.verify_run import ort_session  # noqa: E402

TITLE = "## Weights of few bits"
HEAD = ["| rows x columns x depth | bits | block | level | Monobloc us | onnxruntime us | ratio | error |",
        "|---|---:|---:|---:|---:|---:|---:|---:|"]
ROWS = (1, 4, 8, 32, 128)
FORMS = ((4, 32, 0), (4, 32, 4), (4, 128, 4), (8, 128, 0), (8, 128, 4))


def model(m: int, n: int, k: int, bits: int, block: int, level: int) -> onnx.ModelProto:
    rng = np.random.default_rng(0)
    held = {"b": rng.integers(0, 256, (n, k // block, block * bits // 8)).astype(np.uint8),
            "s": rng.uniform(0.01, 0.1, (n, k // block)).astype(np.float32)}
    node = helper.make_node("MatMulNBits", ["x", "b", "s"], ["y"], domain="com.microsoft", K=k, N=n, bits=bits,
                            block_size=block, accuracy_level=level)
    ports = [helper.make_tensor_value_info(v, TensorProto.FLOAT, [m, size]) for v, size in (("x", k), ("y", n))]
    weights = [numpy_helper.from_array(v, name) for name, v in held.items()]
    graph = helper.make_graph([node], "g", ports[:1], ports[1:], weights)
    return helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", 21),
                                                                  helper.make_opsetid("com.microsoft", 1)])


def row(folder: Path, m: int, n: int, k: int, form: tuple[int, int, int], seconds: float) -> str:
    path = folder / "m.onnx"
    onnx.save(model(m, n, k, *form), path)
    image = CompiledModel(build([path], folder / f"{m}-{form}.so", "shared", Options(cache=folder / "cache")).path)
    feeds = {"x": np.random.default_rng(m).standard_normal((m, k)).astype(np.float32)}
    want = ort_session(path, 1).run(None, feeds)[0]
    error = np.abs(image.run(feeds)["y"] - want).max() / np.abs(want).max()
    a, b = interleave([ours(image, feeds, 1), onnxruntime(path, feeds, 1)], seconds)
    bits, block, level = form
    return (f"| {m} x {n} x {k} | {bits} | {block} | {level} | {a.median * 1e6:,.0f} | {b.median * 1e6:,.0f} |"
            f" {a.median / b.median:.2f} | {error:.0e} |")


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--seconds", type=float, default=1.0)
    p.add_argument("--write", type=Path)
    a = p.parse_args()
    lines = list(HEAD)
    with tempfile.TemporaryDirectory(prefix="monobloc-bench-") as folder:
        for form in FORMS:
            for m in ROWS:
                lines.append(row(Path(folder), m, 1024, 1024, form, a.seconds))
                print(lines[-1], flush=True)
    t = Options().target
    note = f"Written by `bench/nbits.py --write`; one thread, {t.cpu} with {', '.join(t.features) or 'nothing more'}."
    if a.write:
        write_section(a.write, TITLE, "\n".join([note, "", *lines]))


if __name__ == "__main__":
    main()
