"""One small program of two modules, made with seeded weights: what whole-program tests build.

`alpha` is a convolutional network (convolutions of two kinds, pooling, a residual, a head), `beta` a
network of matrix products with normalization, softmax and an integer input. Both hold layers large
enough to be divided among threads, and they share one weight by content.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

SEED = 20241
print(f"seed {SEED}")
OPSET = 17
Shape = tuple[int | str, ...]


def _weights(rng: np.random.Generator, **shapes: tuple[int, ...]) -> dict[str, np.ndarray]:
    """Scaled so that activations stay near one."""
    return {
        name: (rng.standard_normal(s) / np.sqrt(max(np.prod(s[1:]), 1))).astype(np.float32)
        for name, s in shapes.items()
    }


def _model(
    name: str,
    nodes: list[onnx.NodeProto],
    inputs: dict[str, tuple[int, Shape]],
    outputs: dict[str, Shape],
    weights: dict[str, np.ndarray],
) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes, name,
        [helper.make_tensor_value_info(n, t, s) for n, (t, s) in inputs.items()],
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in outputs.items()],
        [numpy_helper.from_array(w, n) for n, w in weights.items()],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)])
    model.ir_version = 8
    onnx.checker.check_model(model)
    return model


def common_weight() -> np.ndarray:
    """The weight that both models hold."""
    return (np.random.default_rng(SEED).standard_normal((32, 32)) / 6).astype(np.float32)


def alpha() -> onnx.ModelProto:
    rng = np.random.default_rng(SEED + 1)
    w = _weights(rng, w1=(16, 3, 3, 3), b1=(16,), wd=(16, 1, 3, 3), w2=(32, 16, 1, 1), w3=(32, 32, 3, 3), b3=(32,))
    w["head"] = common_weight()
    node = helper.make_node
    nodes = [
        node("Conv", ["x", "w1", "b1"], ["c1"], "stem/conv", pads=[1, 1, 1, 1], strides=[2, 2]),
        node("Relu", ["c1"], ["r1"], "stem/relu"),
        node("Conv", ["r1", "wd"], ["c2"], "block/depthwise", pads=[1, 1, 1, 1], group=16),
        node("Conv", ["c2", "w2"], ["c3"], "block/pointwise"),
        node("HardSwish", ["c3"], ["h3"], "block/act"),
        node("Conv", ["h3", "w3", "b3"], ["c4"], "block/conv", pads=[1, 1, 1, 1]),
        node("Add", ["c4", "h3"], ["a4"], "block/add"),
        node("MaxPool", ["a4"], ["p4"], "pool", kernel_shape=[2, 2], strides=[2, 2]),
        node("GlobalAveragePool", ["p4"], ["g"], "gap"),
        node("Flatten", ["g"], ["f"], "flat"),
        node("MatMul", ["f", "head"], ["m"], "head"),
        node("Softmax", ["m"], ["y"], "soft", axis=1),
        node("Transpose", ["p4"], ["features"], "last", perm=[0, 2, 3, 1]),
    ]
    return _model("alpha", nodes, {"x": (TensorProto.FLOAT, (1, 3, 32, 32))},
                  {"y": (1, 32), "features": (1, 8, 8, 32)}, w)


def beta() -> onnx.ModelProto:
    rng = np.random.default_rng(SEED + 2)
    w = _weights(rng, table=(50, 32), wq=(32, 32), wk=(32, 32), up=(32, 128), down=(128, 32), scale=(32,), bias=(32,))
    w["wv"] = common_weight()
    node = helper.make_node
    nodes = [
        node("Gather", ["table", "ids"], ["e"], "embed"),
        node("Add", ["e", "x"], ["s"], "plus"),
        node("LayerNormalization", ["s", "scale", "bias"], ["n"], "norm"),
        node("MatMul", ["n", "wq"], ["q"], "q"),
        node("MatMul", ["n", "wk"], ["k"], "k"),
        node("MatMul", ["n", "wv"], ["v"], "v"),
        node("Transpose", ["k"], ["kt"], "kt", perm=[0, 2, 1]),
        node("MatMul", ["q", "kt"], ["qk"], "scores"),
        node("Softmax", ["qk"], ["p"], "attend", axis=-1),
        node("MatMul", ["p", "v"], ["o"], "mix"),
        node("Add", ["o", "s"], ["t"], "residual"),
        node("MatMul", ["t", "up"], ["u"], "up"),
        node("Tanh", ["u"], ["ut"], "tanh"),
        node("MatMul", ["ut", "down"], ["y"], "down"),
    ]
    return _model("beta", nodes, {"ids": (TensorProto.INT64, (2, 24)), "x": (TensorProto.FLOAT, (2, 24, 32))},
                  {"y": (2, 24, 32)}, w)


def small() -> onnx.ModelProto:
    """A product and two outputs, of any number of rows: what compiles fast."""
    w = _weights(np.random.default_rng(SEED + 3), w=(16, 24))
    node = helper.make_node
    nodes = [
        node("MatMul", ["x", "w"], ["m"], "m"),
        node("Relu", ["m"], ["y"], "relu"),
        node("Tanh", ["m"], ["z"], "tanh"),
    ]
    outputs: dict[str, Shape] = {"y": ("rows", 24), "z": ("rows", 24)}
    return _model("small", nodes, {"x": (TensorProto.FLOAT, ("rows", 16))}, outputs, w)


def feeds(name: str, k: int = 0) -> dict[str, np.ndarray]:
    """The k-th input of a model."""
    rng = np.random.default_rng([SEED, k])
    if name == "alpha":
        return {"x": rng.standard_normal((1, 3, 32, 32), np.float32)}
    return {"ids": rng.integers(-50, 50, (2, 24)), "x": rng.standard_normal((2, 24, 32), np.float32)}


MODELS = {"alpha": alpha, "beta": beta}


def write_models(folder: Path) -> dict[str, Path]:
    folder.mkdir(parents=True, exist_ok=True)
    out = {}
    for name, make in MODELS.items():
        out[name] = folder / f"{name}.onnx"
        out[name].write_bytes(make().SerializeToString(deterministic=True))
    return out
