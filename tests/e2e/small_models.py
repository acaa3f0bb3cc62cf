"""Models of one layer, for tests that link many of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


def dense(path: Path, wide: int = 8, out: int = 8, x: str = "x", y: str = "y", seed: int = 0) -> np.ndarray:
    """y = relu(x w) of two rows; its weight."""
    w = np.random.default_rng([wide, out, seed]).standard_normal((wide, out)).astype(np.float32)
    nodes = [helper.make_node("MatMul", [x, "w"], ["h"]), helper.make_node("Relu", ["h"], [y])]
    _save(path, nodes, {x: [2, wide]}, {y: [2, out]}, {"w": w})
    return w


def exchange(path: Path) -> None:
    """Two inputs and two outputs that have nothing to do with each other: y1 = -x1, y2 = tanh(x2)."""
    nodes = [helper.make_node("Neg", ["x1"], ["y1"]), helper.make_node("Tanh", ["x2"], ["y2"])]
    _save(path, nodes, {"x1": [2, 8], "x2": [2, 8]}, {"y1": [2, 8], "y2": [2, 8]}, {})


def integers(path: Path) -> None:
    """y = x + x of two rows of eight int32."""
    ports = [helper.make_tensor_value_info(n, TensorProto.INT32, [2, 8]) for n in "xy"]
    graph = helper.make_graph([helper.make_node("Add", ["x", "x"], ["y"])], path.stem, ports[:1], ports[1:])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), path)


def _save(path: Path, nodes: list[onnx.NodeProto], inputs: dict[str, list[int]], outputs: dict[str, list[int]],
          weights: dict[str, np.ndarray]) -> None:
    ins, outs = ([helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in x.items()]
                 for x in (inputs, outputs))
    graph = helper.make_graph(nodes, path.stem, ins, outs, [numpy_helper.from_array(w, n) for n, w in weights.items()])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), path)
