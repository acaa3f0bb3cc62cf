"""A chain of products and activations, every layer of a width, and so with a kernel, of its own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

Change = Callable[[list[onnx.NodeProto], dict[str, np.ndarray]], None]


def chain(path: Path, layers: int, width: int = 12, change: Change = lambda nodes, weights: None) -> Path:
    """Writes it: `width` is that of the input, each layer adds one."""
    rng = np.random.default_rng(5)
    nodes, weights, last = [], {}, "x"
    for k in range(layers):
        weights[f"w{k}"] = (rng.standard_normal((width + k, width + 1 + k)) / 5).astype(np.float32)
        nodes.append(helper.make_node("MatMul", [last, f"w{k}"], [f"m{k}"], f"product{k}"))
        nodes.append(helper.make_node("Tanh", [f"m{k}"], [f"t{k}"], f"act{k}"))
        last = f"t{k}"
    change(nodes, weights)
    graph = helper.make_graph(
        nodes, "chain", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, width])],
        [helper.make_tensor_value_info(last, TensorProto.FLOAT, [2, width + layers])],
        [numpy_helper.from_array(w, n) for n, w in weights.items()],
    )  # fmt: skip
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path
