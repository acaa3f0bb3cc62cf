"""Quantized models: integer kernels give what onnxruntime gives without its own fusions, weights stay bytes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import monobloc
from monobloc.driver import import_model
from monobloc.options import Options
from monobloc.passes import PassContext, run_passes
from monobloc.passes.contraction import is_contraction, parts
from monobloc.targets import resolve

SEED = 5
U8, I8, F32, I32 = TensorProto.UINT8, TensorProto.INT8, TensorProto.FLOAT, TensorProto.INT32


class Net:
    """A small model under construction."""

    def __init__(self) -> None:
        self.rng = np.random.default_rng(SEED)
        self.nodes: list[onnx.NodeProto] = []
        self.weights: dict[str, np.ndarray] = {}

    def const(self, a: Any, dtype: Any = np.float32) -> str:
        name = f"c{len(self.weights)}"
        self.weights[name] = np.asarray(a, dtype)
        return name

    def op(self, kind: str, *ins: str, **attrs: Any) -> str:
        name = f"{kind.lower()}{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(ins), [name], name, **attrs))
        return name

    def quantize(self, x: str, scale: float, zero: int, kind: Any) -> str:
        """x through bytes and back"""
        s, z = self.const(scale), self.const(zero, kind)
        return self.op("DequantizeLinear", self.op("QuantizeLinear", x, s, z), s, z)

    def weight(self, shape: tuple[int, ...], kind: Any, axis: int | None) -> tuple[str, Any]:
        info = np.iinfo(kind)
        w = self.const(self.rng.integers(info.min, info.max + 1, shape), kind)
        n = 1 if axis is None else shape[axis]
        scale = self.rng.uniform(0.002, 0.01, n).astype(np.float32)
        zero = np.zeros(n, kind) if kind is np.int8 else np.full(n, 120, kind)
        s, z = (self.const(v if axis is not None else v[0], v.dtype) for v in (scale, zero))
        return self.op("DequantizeLinear", w, s, z, axis=axis or 0), scale

    def model(self, inputs: dict[str, tuple[int, list[int]]], out: str, kind: int) -> bytes:
        ins = [helper.make_tensor_value_info(n, k, s) for n, (k, s) in inputs.items()]
        y = helper.make_tensor_value_info(out, kind, None)
        graph = helper.make_graph(self.nodes, "g", ins, [y], [numpy_helper.from_array(w, n) for n, w in
                                                              self.weights.items()])
        m = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
        return onnx.shape_inference.infer_shapes(m).SerializeToString()


def qdq_conv(signed: bool) -> bytes:
    """conv, bias, relu, residual, conv in groups: what a quantizer writes"""
    n, kind = Net(), np.int8 if signed else np.uint8
    x = n.quantize("x", 0.03, 3 if signed else 130, kind)
    w, sw = n.weight((20, 6, 3, 3), np.int8, 0)
    bias = n.const(n.rng.integers(-900, 900, 20), np.int32)
    s = n.const(np.float32(0.03) * sw)
    y = n.op("Conv", x, w, n.op("DequantizeLinear", bias, s, axis=0), pads=[1, 1, 1, 1])
    y = n.quantize(n.op("Relu", y), 0.02, -128 if signed else 0, kind)
    w2, _ = n.weight((20, 10, 1, 1), np.int8, 0)
    z = n.op("Conv", y, w2, n.const(n.rng.standard_normal(20)), group=2)
    z = n.quantize(n.op("Add", n.quantize(z, 0.04, 1, kind), y), 0.05, 2, kind)
    w3, _ = n.weight((3, 20, 3, 3), np.int8, None)
    return n.model({"x": (F32, [1, 6, 9, 11])}, n.op("Conv", z, w3, strides=[2, 2], dilations=[1, 2]), F32)


def depthwise(channels: int, dynamic: bool, kind: Any) -> bytes:
    """QDQ, or ConvInteger by a zero point that comes when it runs"""
    n = Net()
    where = {"pads": [1, 2, 1, 0], "strides": [1, 2], "group": channels}
    if dynamic:
        n.nodes.append(helper.make_node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"], "dynamic"))
        info = np.iinfo(kind)
        w = n.const(n.rng.integers(info.min, info.max + 1, (channels, 1, 3, 3)), kind)
        zw = n.const(0 if kind is np.int8 else 130, kind)
        y = n.op("Mul", n.op("Cast", n.op("ConvInteger", "q", w, "z", zw, **where), to=F32), "s")
    else:
        w, _ = n.weight((channels, 1, 3, 3), np.int8, 0)
        y = n.op("Conv", n.quantize("x", 0.03, 3, kind), w, n.const(n.rng.standard_normal(channels)), **where)
        y = n.quantize(n.op("Relu", y), 0.01, -128, kind)
    return n.model({"x": (F32, [2, channels, 7, 11])}, y, F32)


def qdq_dense() -> bytes:
    n = Net()
    x = n.quantize("x", 0.03, 120, np.uint8)
    w, _ = n.weight((37, 40), np.int8, 1)
    y = n.quantize(n.op("Relu", n.op("MatMul", x, w)), 0.06, 0, np.uint8)
    w2, _ = n.weight((10, 40), np.int8, 0)
    y = n.op("Reshape", y, n.const([6, 40], np.int64))
    return n.model({"x": (F32, [2, 3, 37])}, n.op("Gemm", y, w2, n.const(n.rng.standard_normal(10)), transB=1), F32)


def qoperator(kind: Any) -> bytes:
    n = Net()
    info = np.iinfo(kind)
    x, zx = ("x", n.const(7, kind))
    w = n.const(n.rng.integers(info.min, info.max + 1, (18, 5, 3, 3)), kind)
    zw = n.const(0 if kind is np.int8 else 117, kind)
    bias = n.const(n.rng.integers(-900, 900, 18), np.int32)
    y = n.op("QLinearConv", x, n.const(0.02), zx, w, n.const(0.01), zw, n.const(0.5), n.const(9, kind), bias,
             pads=[1, 0, 1, 2], strides=[1, 2])
    y = n.op("Reshape", y, n.const([18, -1], np.int64))
    m = n.const(n.rng.integers(info.min, info.max + 1, (7 * 5, 12)), kind)
    y = n.op("QLinearMatMul", y, n.const(0.5), n.const(9, kind), m, n.const(0.02), zw, n.const(4.0), n.const(1, kind))
    return n.model({"x": (U8 if kind is np.uint8 else I8, [1, 5, 7, 10])}, y, U8 if kind is np.uint8 else I8)


def dynamic(kind: Any) -> bytes:
    """DynamicQuantizeLinear, MatMulInteger, scales: what dynamic quantization writes"""
    n = Net()
    info = np.iinfo(kind)
    n.nodes.append(helper.make_node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"], "dynamic"))
    w = n.const(n.rng.integers(info.min, info.max + 1, (50, 33)), kind)
    zw = n.const(0 if kind is np.int8 else 131, kind)
    y = n.op("Cast", n.op("MatMulInteger", "q", w, "z", zw), to=F32)
    y = n.op("Mul", y, n.op("Mul", "s", n.const(0.01)))
    y = n.op("Relu", n.op("Add", y, n.const(n.rng.standard_normal(33))))
    return n.model({"x": (F32, [4, 50])}, y, F32)


def shorts(kind: Any) -> bytes:
    """Values of 16 bits and weights of 8; scales are powers of two, so that float32 is exact as well"""
    n, middle = Net(), 0 if kind is np.int16 else 32768

    def weight(*shape: int, zero: int = 0) -> str:
        w = n.const(n.rng.integers(-128, 128, shape), np.int8)
        return n.op("DequantizeLinear", w, n.const(2.0**-6), n.const(zero, np.int8))

    x = n.quantize("x", 2.0**-6, middle + 9, kind)
    bias = n.op("DequantizeLinear", n.const(n.rng.integers(-900, 900, 20), np.int32), n.const(2.0**-12))
    y = n.op("Relu", n.op("Conv", x, weight(20, 6, 3, 3), bias, pads=[1, 1, 1, 1]))
    y = n.quantize(y, 2.0**-3, middle - 5, kind)
    z = n.op("Conv", y, weight(20, 1, 3, 3, zero=3), group=20, pads=[1, 0, 1, 2], strides=[1, 2])
    z = n.quantize(n.op("Relu", z), 1.0, middle + 7, kind)
    z = n.op("MatMul", z, weight(6, 5))
    return n.model({"x": (F32, [1, 6, 9, 11])}, n.op("QuantizeLinear", z, n.const(2.0), n.const(middle, kind)),
                   helper.np_dtype_to_tensor_dtype(np.dtype(kind)))


def zero_points_of_channels() -> bytes:
    """That differ by more than fits into a signed byte"""
    n = Net()
    x = n.quantize("x", 2.0**-6, 120, np.uint8)

    def weights(*shape: int, axis: int = 0) -> str:
        w, zero = (n.const(n.rng.integers(0, 256, s), np.uint8) for s in (shape, shape[axis]))
        return n.op("DequantizeLinear", w, n.const(np.full(shape[axis], 2.0**-6)), zero, axis=axis)

    y = n.op("Conv", x, weights(18, 6, 3, 3), pads=[1, 1, 1, 1])
    z = n.op("Conv", x, weights(6, 1, 3, 3), pads=[1, 1, 1, 1], group=6)
    m = n.op("MatMul", x, weights(11, 11, axis=1))
    return n.model({"x": (F32, [1, 6, 9, 11])}, n.op("Concat", y, n.op("Relu", z), m, axis=1), F32)


def transposed(kind: Any) -> bytes:
    """Transposed convolutions, of two axes with a scale per channel and of one"""
    n, middle = Net(), np.iinfo(kind).max // 2
    x = n.quantize("x", 2.0**-6, middle - 7, kind)
    w, zero = n.const(n.rng.integers(-120, 120, (6, 5, 3, 4)), np.int8), n.const(n.rng.integers(-7, 8, 5), np.int8)
    scales = 2.0 ** n.rng.integers(-9, -5, 5)
    bias = n.op("DequantizeLinear", n.const(n.rng.integers(-900, 900, 5), np.int32), n.const(2.0**-6 * scales),
                axis=0)
    weights = n.op("DequantizeLinear", w, n.const(scales), zero, axis=1)
    y = n.op("ConvTranspose", x, weights, bias, strides=[2, 3], pads=[1, 0, 0, 2], output_padding=[1, 0])
    y = n.quantize(n.op("Relu", y), 2.0**-3, middle, kind)
    y = n.op("Reshape", y, n.const([1, 5, -1], np.int64))
    w = n.const(n.rng.integers(0, 256, (5, 2, 2)), np.uint8)
    weights = n.op("DequantizeLinear", w, n.const(2.0**-6), n.const(99, np.uint8))
    return n.model({"x": (F32, [1, 6, 7, 9])}, n.op("ConvTranspose", y, weights, strides=[2]), F32)


def computed(kind: Any) -> bytes:
    """A product of two matrices that come when it runs, of one batch and of several"""
    n, middle = Net(), np.iinfo(kind).max // 2
    z, s = n.const(middle, kind), n.const(0.01)
    y = n.op("Transpose", "x", perm=[0, 2, 1])
    y = n.op("QLinearMatMul", "x", s, z, y, s, n.const(3, kind), n.const(0.5), z)
    y = n.op("QLinearMatMul", y, n.const(0.5), z, "x", s, z, n.const(9.0), z)
    code = helper.np_dtype_to_tensor_dtype(np.dtype(kind))
    return n.model({"x": (code, [2, 33, 70])}, y, code)


MODELS: dict[str, tuple[Callable[[], bytes], float]] = {
    "qdq_conv_u8": (lambda: qdq_conv(False), 1), "qdq_conv_s8": (lambda: qdq_conv(True), 1),
    "qdq_dense": (qdq_dense, 1), "qoperator_u8": (lambda: qoperator(np.uint8), 0),
    "qoperator_s8": (lambda: qoperator(np.int8), 0), "dynamic_s8": (lambda: dynamic(np.int8), 1e-5),
    "depthwise": (lambda: depthwise(21, False, np.int8), 1),
    "depthwise_few": (lambda: depthwise(3, True, np.int8), 1e-5),
    "depthwise_u8": (lambda: depthwise(40, True, np.uint8), 1e-5),
    "dynamic_u8": (lambda: dynamic(np.uint8), 1e-5),
    "shorts_s16": (lambda: shorts(np.int16), 0), "shorts_u16": (lambda: shorts(np.uint16), 0),
    "transposed_u8": (lambda: transposed(np.uint8), 0), "transposed_s16": (lambda: transposed(np.int16), 0),
    "computed_u8": (lambda: computed(np.uint8), 0), "computed_s8": (lambda: computed(np.int8), 0),
    "zero_points_of_channels": (zero_points_of_channels, 0),
}  # fmt: skip


def expected(model: bytes, x: np.ndarray) -> np.ndarray:
    """Without onnxruntime's fusions: what the graph says."""
    o = onnxruntime.SessionOptions()
    o.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return np.asarray(onnxruntime.InferenceSession(model, o, providers=["CPUExecutionProvider"]).run(None, {"x": x})[0])


def input_of(model: bytes) -> np.ndarray:
    t = onnx.load_from_string(model).graph.input[0].type.tensor_type
    shape, kind = [d.dim_value for d in t.shape.dim], helper.tensor_dtype_to_np_dtype(t.elem_type)
    rng = np.random.default_rng(SEED + 1)
    if kind.kind == "f":
        return rng.standard_normal(shape).astype(np.float32) * 2
    return rng.integers(np.iinfo(kind).min, np.iinfo(kind).max + 1, shape).astype(kind)


@pytest.mark.parametrize("cpu", [None, "x86-64-v3"])
@pytest.mark.parametrize("name", MODELS)
def test_equals_onnxruntime(name: str, cpu: str | None, cache: Path) -> None:
    make, steps = MODELS[name]
    if cpu and resolve().arch != "x86_64":
        pytest.skip(f"{cpu} does not run here")
    model = make()
    x = input_of(model)
    got = monobloc.compile(model, lto="none", cpu=cpu, cache=cache)(x)
    want = expected(model, x)
    assert got.dtype == want.dtype
    if steps == 0:
        assert np.array_equal(got, want)
        return
    error = np.abs(got.astype(np.float64) - want).max() / np.abs(want).max()
    # a value that lies between two integers may become either: one step of bytes
    assert error <= (0.02 if steps == 1 else steps), error


@pytest.mark.parametrize("name", MODELS)
def test_every_product_is_an_integer_kernel_and_its_weights_are_bytes(name: str) -> None:
    g = import_model(MODELS[name][0](), Options()).graph
    ctx = PassContext(resolve())
    run_passes(g, ctx)
    if name.startswith("computed"):
        assert [parts(n).root.op for n in g.nodes if is_contraction(n)] == ["MatMul"] * 2  # float32 is exact
        return
    products = [parts(n) for n in g.nodes if is_contraction(n)]
    assert products and all(c.is_integer and c.w.dtype.size == 1 for c in products), [c.root.op for c in products]
    assert not any(n.op in ("Conv", "MatMul", "ConvTranspose") for n in g.nodes)


def test_code_of_objects_runs_in_the_kernels_of_floats() -> None:
    """Packed bytes are no permutation of the weights, which are in an object once; loops would be slow."""
    g = import_model(qdq_conv(True), Options()).graph
    run_passes(g, PassContext(resolve(), stage="object"))
    assert [parts(n).root.op for n in g.nodes if is_contraction(n)] == ["Conv"] * 3


@pytest.mark.parametrize("name", ["qoperator_u8", "qoperator_s8"])
def test_strict_differs_from_onnxruntime_where_that_rounds_twice(name: str, cache: Path) -> None:
    """The exact results are in test_exact.py; onnxruntime scales in float32, which moves few of them, by one step."""
    model = MODELS[name][0]()
    x = input_of(model)
    got = monobloc.compile(model, numerics="strict", lto="none", cache=cache)(x)
    off = np.abs(got.astype(int) - expected(model, x))
    assert off.max() <= 1 and (off > 0).mean() < 0.02, off.sum()


@pytest.mark.parametrize("name", ["qdq_conv_s8", "dynamic_u8"])
def test_threads_change_nothing(name: str, cache: Path) -> None:
    model = MODELS[name][0]()
    x = input_of(model)
    one, two = (monobloc.compile(model, lto="none", threads=t, cache=cache)(x) for t in (1, 2))
    assert one.tobytes() == two.tobytes()
