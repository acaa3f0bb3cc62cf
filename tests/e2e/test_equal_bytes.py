"""Constants with equal bytes are one symbol, but may be tensors of several shapes: none is read as the other."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import monobloc
from monobloc.frontend import Choices
from monobloc.frontend.importer import load_onnx
from monobloc.ir.graph import Graph
from monobloc.ir.text import copy_graph

SEED = 23
node = helper.make_node
F32 = onnx.TensorProto.FLOAT


def floats(*shape: int) -> np.ndarray:
    return np.random.default_rng(SEED).standard_normal(shape).astype(np.float32)


def model(nodes: list[onnx.NodeProto], x: tuple[int, ...], y: tuple[int, ...], **consts: np.ndarray) -> onnx.ModelProto:
    g = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", F32, x)],
                          [helper.make_tensor_value_info("y", F32, y)],
                          [numpy_helper.from_array(a, n) for n, a in consts.items()])
    return helper.make_model(g, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def window_mask() -> onnx.ModelProto:
    """Who is in one window with whom: a column less a row, too large to be folded while the model is read."""
    m = np.random.default_rng(SEED).integers(0, 9, (64, 49)).astype(np.float32)
    nodes = [node("Sub", ["row", "column"], ["d"]), node("Abs", ["d"], ["far"]), node("Sub", ["x", "far"], ["y"])]
    return model(nodes, (64, 49, 49), (64, 49, 49), row=m.reshape(64, 1, 49), column=m.reshape(64, 49, 1))


def convolutions(first: tuple[int, ...], second: tuple[int, ...]) -> onnx.ModelProto:
    """The same weights, as they are and as another shape"""
    w = floats(*first)
    pads = [[k // 2 for k in s[2:]] * 2 for s in (first, second)]
    nodes = [node("Conv", ["x", "v"], ["h"], pads=pads[0]), node("Conv", ["h", "w"], ["y"], pads=pads[1])]
    return model(nodes, (1, first[1], 6, 6), (1, second[0], 6, 6), v=w, w=w.reshape(second))


def products() -> onnx.ModelProto:
    w = floats(24, 40)
    nodes = [node("MatMul", ["x", "v"], ["h"]), node("MatMul", ["h", "w"], ["y"])]
    return model(nodes, (7, 24), (7, 24), v=w, w=w.reshape(40, 24))


MODELS = {
    "a column and a row": window_mask,
    "channels swapped": lambda: convolutions((16, 32, 1, 1), (32, 16, 1, 1)),
    "kernels turned": lambda: convolutions((16, 16, 3, 1), (16, 16, 1, 3)),
    "products": products,
}


@pytest.mark.parametrize("graph_lto", [True, False], ids=["graph LTO", "native code"])
@pytest.mark.parametrize("name", MODELS)
def test_equal_bytes_of_two_shapes(name: str, graph_lto: bool, tmp_path: Path) -> None:
    m = MODELS[name]()
    x = floats(*(d.dim_value for d in m.graph.input[0].type.tensor_type.shape.dim))
    (want,) = ReferenceEvaluator(m).run(None, {"x": x})
    path = tmp_path / "m.onnx"
    onnx.save(m, str(path))
    got = monobloc.compile(path, lto="none", graph_lto=graph_lto)(x)
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


def test_a_copied_graph_keeps_every_constant_its_shape() -> None:
    g: Graph = load_onnx(window_mask(), Choices()).graph
    for v in copy_graph(g).constants():
        assert v.const is not None and v.const.array.shape == v.shape
