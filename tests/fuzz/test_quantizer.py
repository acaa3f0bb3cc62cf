"""What onnxruntime's quantizer writes, of random models: answers as onnxruntime's own nodes give them, by integers.

`python tools/fuzz.py --family quantizer` looks longer.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import onnx
import pytest

sys.path.insert(0, str(Path(__file__).parent))
from builder import Builder  # noqa: E402
from compare import check  # noqa: E402
from generators import random_model  # noqa: E402
from narrowness import MANY, widened  # noqa: E402
from quantizer import Quantized  # noqa: E402

from monobloc.driver import import_model  # noqa: E402
from monobloc.ir.graph import Graph  # noqa: E402
from monobloc.options import Options  # noqa: E402
from monobloc.passes import PassContext, pipeline, run_passes  # noqa: E402
from monobloc.passes.constants import fold_constant_nodes  # noqa: E402
from monobloc.passes.narrow import Narrow  # noqa: E402
from monobloc.targets import resolve  # noqa: E402

SEED, STEPS = 8000, 7
TARGET = resolve("x86_64-linux", "x86-64-v4")  # with kernels of bytes
print(f"seed {SEED}")


def models(first: int, count: int) -> list[tuple[str, Builder]]:
    return [("quantizer", random_model(SEED + k, "quantizer", STEPS)) for k in range(first, first + count)]


@pytest.mark.parametrize("first", [0, 12])
def test_equals_onnxruntime_without_fusions(first: int, tmp_path: Path, cache: Path) -> None:
    found = check(models(first, 12), tmp_path, Options(target=resolve("host"), lto="none", cache=cache))
    assert not found.bad + found.refused, "\n".join(found.bad + found.refused)
    assert found.compared > 24


def test_products_are_of_integers() -> None:
    bad = [f"{b.seed} ({b.how}): {why}" for _, b in models(0, 60) if isinstance(b, Quantized) for why in floats(b)]
    assert not bad, "\n".join(bad)


def test_weights_stay_narrow() -> None:
    made = [b for _, b in models(300, 60) if isinstance(b, Quantized)]
    bad = [f"{b.seed} ({b.how}): {why}" for b in made for why in b.faults(Options(target=TARGET))]
    assert not bad, "\n".join(bad)
    assert sum(any(b.values[c].size > MANY for c in b.constants) for b in made) > 10


def test_a_widened_weight_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    b = Builder(SEED)
    w, scale = b.constant(b.rng.integers(-9, 9, (30, 20)).astype(np.int8)), b.constant(np.float32(0.1))
    b.outputs = [b.one("MatMul", b.input(b.random((2, 30))), b.one("DequantizeLinear", w, scale))]
    assert not widened(b, Options(target=TARGET))
    monkeypatch.setattr(Narrow, "run", lambda self, g, ctx: fold_constant_nodes(g, ctx))
    (told,) = widened(b, Options(target=TARGET))
    assert "w0, int8[30, 20]" in told and "f32" in told


# -- what is left of integers -------------------------------------------------------------------------
def floats(b: Quantized) -> list[str]:
    """Products of integers and constant weights that are no kernels of integers"""
    g = logical(b)
    left = [n for n in g.nodes if n.op in ("MatMul", "Conv", "ConvTranspose")]
    products = [n for n in b.nodes if n.op_type in ("Conv", "ConvTranspose", "MatMul", "Gemm")]
    allowed = sum(not integer(b, n) for n in products) + sum(computed(b, n) for n in b.nodes)
    return [] if len(left) <= allowed else [f"{n.op} of floats" for n in left]


def logical(b: Quantized) -> Graph:
    """Before products get their kernels, which pack weights for the machine"""
    g = import_model(b.model(), Options()).graph
    run_passes(g, PassContext(resolve("host")), [p for p in pipeline() if p.name not in ("fuse", "layout", "select")])
    return g


def computed(b: Quantized, n: onnx.NodeProto) -> bool:
    """Two matrices of bytes that come when it runs: float32 has their sums exactly"""
    at = {"QLinearMatMul": 3, "QGemm": 3, "MatMulInteger": 1}.get(n.op_type)
    return at is not None and n.input[at] not in b.constants


def integer(b: Quantized, n: onnx.NodeProto) -> bool:
    """Both operands are stored as bytes, the second one as a constant matrix or filter"""
    made = {o: n for n in b.nodes for o in n.output}
    x, w = (made.get(i) for i in n.input[:2])
    if any(d is None or d.op_type != "DequantizeLinear" for d in (x, w)):
        return False
    stored, weights = b.values[x.input[0]], b.values[w.input[0]]  # type: ignore[union-attr]
    if n.op_type == "ConvTranspose":
        group = next((a.i for a in n.attribute if a.name == "group"), 1)
        return group == 1 and weights.ndim <= 4 and stored.dtype.itemsize == 1
    one = n.op_type == "MatMul" and set(weights.shape[:-2]) <= {1}
    plain = one or weights.ndim <= (2 if n.op_type in ("MatMul", "Gemm") else 5 if stored.dtype.itemsize == 1 else 4)
    return plain and w.input[0] in b.constants  # type: ignore[union-attr]
