"""Models of open sizes that feed each other, and what onnxruntime makes of the chain."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

Feeds = Mapping[str, np.ndarray]


def save(path: Path, nodes: Sequence[onnx.NodeProto], inputs: Mapping[str, Sequence[int | str]], outs: Sequence[str],
         weights: Mapping[str, np.ndarray]) -> None:
    ports = [helper.make_tensor_value_info(n, TensorProto.FLOAT, list(s)) for n, s in inputs.items()]
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in outs]
    g = helper.make_graph(list(nodes), path.stem, ports, ends,
                          [numpy_helper.from_array(v, n) for n, v in weights.items()])
    onnx.save(helper.make_model(g, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)


def wide(*shape: int, seed: int = 0) -> np.ndarray:
    return (np.random.default_rng(seed).standard_normal(shape) / np.sqrt(shape[0])).astype(np.float32)


def backbone(path: Path, batch: str = "n") -> None:
    """features [n, t, 16] of x [n, t, 12], all of them as `rows` [n*t, 16], and a softmax along t"""
    node = helper.make_node
    nodes = [node("MatMul", ["x", "w"], ["h"]), node("Tanh", ["h"], ["features"]),
             node("Reshape", ["features", "flat"], ["rows"]), node("Softmax", ["h"], ["p"], axis=1)]
    save(path, nodes, {"x": [batch, "t", 12]}, ["features", "rows", "p"],
         {"w": wide(12, 16), "flat": np.array([-1, 16])})


def head(path: Path, batch: str = "n", steps: str = "t", scale: bool = False) -> None:
    """y = mean over t of softmax(features v); with `scale` an input [n, 1] besides"""
    node = helper.make_node
    nodes = [node("MatMul", ["features", "v"], ["s"]), node("Softmax", ["s"], ["q"], axis=-1),
             node("ReduceMean", ["q"], ["m"], axes=[1], keepdims=0),
             node("Mul", ["m", "scale"], ["y"]) if scale else node("Neg", ["m"], ["y"])]
    save(path, nodes, {"features": [batch, steps, 16], **({"scale": [batch, 1]} if scale else {})}, ["y"],
         {"v": wide(16, 20, seed=1)})


def list_head(path: Path) -> None:
    """z = relu(rows u), each row beside the mean of all"""
    node = helper.make_node
    nodes = [node("MatMul", ["rows", "u"], ["s"]), node("Relu", ["s"], ["r"]),
             node("ReduceMean", ["r"], ["m"], axes=[0], keepdims=1), node("Sub", ["r", "m"], ["z"])]
    save(path, nodes, {"rows": ["count", 16]}, ["z"], {"u": wide(16, 9, seed=2)})


def run(path: Path, feeds: Feeds) -> dict[str, np.ndarray]:
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    names = [o.name for o in session.get_outputs()]
    return dict(zip(names, session.run(names, dict(feeds)), strict=True))


def x_of(n: int, t: int) -> np.ndarray:
    return np.random.default_rng([n, t]).standard_normal((n, t, 12)).astype(np.float32)
