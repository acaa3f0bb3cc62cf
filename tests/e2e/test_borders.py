"""A border between models leaves no trace: two that are connected are the one model that holds both."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import pytest
from border import Port, build, model
from onnx import helper

from monobloc.options import Options

node = helper.make_node
SEED = 8
print(f"seed {SEED}")
OPTIONS = Options(lto="none")
RNG = np.random.default_rng(SEED)
CONV = {"w": RNG.standard_normal((16, 8, 3, 3)).astype(np.float32) / 9}
NORM = {k: RNG.uniform(0.5, 2, 16).astype(np.float32) for k in "stmv"}
STEM = {"k": RNG.standard_normal((8, 3, 3, 3)).astype(np.float32)}
SCALES = {"by": np.array([0.02, 0.03, 0.04], np.float32).reshape(3, 1, 1), "less": np.float32(0.5)}
EXPORTED = {"p": RNG.standard_normal((16, 16, 1, 1)).astype(np.float32)}


@dataclass(frozen=True)
class Half:
    """Nodes from the tensor `x` to the tensor `y`, with weights."""

    nodes: Callable[[str, str], list[onnx.NodeProto]]
    weights: dict[str, np.ndarray]


@dataclass(frozen=True)
class Pair:
    """Two halves, the first one's input, the border, and the second one's output."""

    first: Half
    second: Half
    x: Port
    border: Port
    y: Port

    def connected(self) -> dict[str, onnx.ModelProto]:
        (b, *_), (x, *_), (y, *_) = self.border, self.x, self.y
        return {"a": model(self.first.nodes(x, b), [self.x], [self.border], **self.first.weights),
                "b": model(self.second.nodes("in", y), [("in", *self.border[1:])], [self.y], **self.second.weights)}

    def whole(self) -> onnx.ModelProto:
        nodes = [*self.first.nodes(self.x[0], self.border[0]), *self.second.nodes(self.border[0], self.y[0])]
        return model(nodes, [self.x], [self.y], **self.first.weights, **self.second.weights)


def conv(x: str, y: str) -> list[onnx.NodeProto]:
    return [node("Conv", [x, "w"], [y], pads=[1, 1, 1, 1])]


def norm_relu(x: str, y: str) -> list[onnx.NodeProto]:
    return [node("BatchNormalization", [x, *"stmv"], ["n"]), node("Relu", ["n"], [y])]


def preprocess(x: str, y: str) -> list[onnx.NodeProto]:
    """Bytes of pixels, channels last, become scaled channels."""
    return [node("Cast", [x], ["f"], to=1), node("Transpose", ["f"], ["t"], perm=[0, 3, 1, 2]),
            node("Mul", ["t", "by"], ["m"]), node("Sub", ["m", "less"], [y])]


def stem(x: str, y: str) -> list[onnx.NodeProto]:
    return [node("Conv", [x, "k"], ["c"], pads=[1, 1, 1, 1], strides=[2, 2]), node("Relu", ["c"], [y])]


def conv_relu(x: str, y: str) -> list[onnx.NodeProto]:
    return [node("Conv", [x, "w"], ["cc"], pads=[1, 1, 1, 1]), node("Relu", ["cc"], [y])]


def pointwise(x: str, y: str) -> list[onnx.NodeProto]:
    return [node("Conv", [x, "p"], ["pc"]), node("Sigmoid", ["pc"], [y])]


PAIRS = {
    "conv | batch norm, relu": Pair(Half(conv, CONV), Half(norm_relu, NORM), ("x", "f32", [1, 8, 10, 10]),
                                    ("mid", "f32", [1, 16, 10, 10]), ("y", "f32", [1, 16, 10, 10])),
    "cast, transpose, scale | conv": Pair(Half(preprocess, SCALES), Half(stem, STEM), ("x", "u8", [1, 12, 12, 3]),
                                          ("mid", "f32", [1, 3, 12, 12]), ("y", "f32", [1, 8, 6, 6])),
    "conv, relu | conv": Pair(Half(conv_relu, CONV), Half(pointwise, EXPORTED), ("x", "f32", [1, 8, 10, 10]),
                              ("mid", "f32", [1, 16, 10, 10]), ("y", "f32", [1, 16, 10, 10])),
}


@pytest.mark.parametrize("pair", PAIRS.values(), ids=PAIRS)
def test_connected_models_are_the_whole_model(pair: Pair, tmp_path: Path) -> None:
    both = build(pair.connected(), tmp_path, OPTIONS, f"b.in=a.{pair.border[0]}")
    whole = build({"pipeline": pair.whole()}, tmp_path, OPTIONS)
    assert both.ops == whole.ops and len(both.low.graph.nodes) == len(whole.low.graph.nodes)
    assert both.low.placement.arena == whole.low.placement.arena
    assert both.low.weights_bytes == whole.low.weights_bytes
    assert both.path.stat().st_size == whole.path.stat().st_size
    shape, kind = tuple(pair.x[2]), np.uint8 if pair.x[1] == "u8" else np.float32
    x = RNG.integers(0, 255, shape).astype(kind) if kind is np.uint8 else RNG.standard_normal(shape).astype(kind)
    assert both(x=x)["y"].tobytes() == whole(x=x)["y"].tobytes()


def test_no_conversion_stays_between_two_convolutions(tmp_path: Path) -> None:
    both = build(PAIRS["conv, relu | conv"].connected(), tmp_path, OPTIONS, "b.in=a.mid")
    between = [n for n in both.low.graph.nodes if n.body is not None and n.body.nodes[0].op == "Conv"]
    assert len(between) == 2 and between[1].inputs[0] is between[0].outputs[0]
    assert between[0].outputs[0].type.layout == (0, 2, 3, 1)


def test_a_normalization_runs_in_the_convolution_of_the_other_model(tmp_path: Path) -> None:
    both = build(PAIRS["conv | batch norm, relu"].connected(), tmp_path, OPTIONS, "b.in=a.mid")
    (group,) = (n for n in both.low.graph.nodes if n.body is not None and n.body.nodes[0].op == "Conv")
    assert [m.op for m in group.body.nodes] == ["Conv", "Add", "Relu"]  # the scale is in the weights


# -- kernels ------------------------------------------------------------------------------------------
def symbols(path: Path) -> set[str]:
    """Names of functions in an image that kept them."""
    if shutil.which("nm") is None:
        pytest.skip("nm is not installed")
    told = subprocess.run(["nm", "--defined-only", path], capture_output=True, text=True, check=True).stdout
    return {line.split()[-1] for line in told.splitlines() if line.split()[-2] in "tT"}


@pytest.mark.parametrize("lto", ["none", "thin", "full"])
def test_an_image_holds_only_the_kernels_that_it_calls(lto: str, tmp_path: Path) -> None:
    """One family, one type: no other kernel, no quantized path, no half-float helper is left."""
    pair = PAIRS["conv | batch norm, relu"]
    made = build({"m": pair.whole()}, tmp_path, Options(lto=lto, debug=True))  # type: ignore[arg-type]
    names = symbols(made.path)
    assert any("conv" in n for n in names)
    assert not [n for n in names if re.search(r"gemm|dwconv|lstm|gru|half|f16|bf16|quant|mb_exp|mb_tanh", n)]


def test_a_product_brings_its_kernel_and_no_convolution(tmp_path: Path) -> None:
    product = model([node("MatMul", ["x", "w"], ["y"])], [("x", "f32", [4, 32])], [("y", "f32", [4, 32])],
                    w=RNG.standard_normal((32, 32)).astype(np.float32))
    names = symbols(build({"m": product}, tmp_path, Options(lto="none", debug=True)).path)
    assert any("gemm" in n for n in names) and not any("conv" in n for n in names)
