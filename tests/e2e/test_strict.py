"""`numerics="strict"`: products are not contracted with sums, and sums run in the stated order."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import monobloc

SEED = 11


def _matmul_model(w: np.ndarray) -> bytes:
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [3, w.shape[0]])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [3, w.shape[1]])
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"])]
    graph = helper.make_graph(nodes, "g", [x], [y], [numpy_helper.from_array(w, "w")])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]).SerializeToString()


def test_strict_products_are_rounded_before_they_are_added(cache: Path) -> None:
    """Bit for bit what a plain loop over k in float32 gives; one that fuses differs somewhere."""
    rng = np.random.default_rng(SEED)
    w, x = rng.standard_normal((40, 33), np.float32), rng.standard_normal((3, 40), np.float32)
    want = np.zeros((3, 33), np.float32)
    for k in range(40):
        want = want + x[:, k : k + 1] * w[k]
    model = _matmul_model(w)
    onnx.checker.check_model(onnx.load_from_string(model))
    strict = monobloc.compile(model, lto="none", numerics="strict", cache=cache)(x)
    default = monobloc.compile(model, lto="none", cache=cache)(x)
    assert strict.tobytes() == want.tobytes(), f"seed {SEED}"
    np.testing.assert_allclose(default, want, rtol=1e-4, atol=1e-5)
    assert default.tobytes() != want.tobytes(), "default numerics fuse: the test would not see a difference"
