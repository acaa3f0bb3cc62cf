"""Half models and weight-only quantized ones: kernels compute them, and weights stay as small as they are stored."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import pytest
from border import TYPES, build, model, module
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import monobloc
from monobloc.link.objects import compile_module
from monobloc.options import Options
from monobloc.targets import resolve, runs_here

node = helper.make_node
SEED = 31
print(f"seed {SEED}")
TYPES |= {"f16": TensorProto.FLOAT16, "bf16": TensorProto.BFLOAT16, "i8": TensorProto.INT8}
OPTIONS = Options(lto="none")
HALVES = {"f16": np.dtype(np.float16), "bf16": np.dtype(ml_dtypes.bfloat16)}
FEATURE = {"x86-64-v2": "sse4_2", "x86-64-v3": "avx2", "x86-64-v4": "avx512vl"}


def normal(*shape: int, scale: float = 0.2) -> np.ndarray:
    return np.random.default_rng([SEED, *shape]).standard_normal(shape).astype(np.float32) * np.float32(scale)


def convolutions(kind: str) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """Every kernel: many channels out, few, one by one, depthwise, transposed; then a product with bias."""
    d = HALVES[kind]
    pads = {"pads": [1, 1, 1, 1]}
    weights = {"w0": normal(24, 3, 3, 3), "b0": normal(24), "w1": normal(24, 1, 3, 3), "w2": normal(40, 24, 1, 1),
               "w3": normal(40, 16, 2, 2), "w4": normal(3, 16, 3, 3), "w5": normal(3 * 16 * 16, 48, scale=0.05),
               "b5": normal(48)}
    nodes = [node("Conv", ["x", "w0", "b0"], ["a0"], strides=[2, 2], **pads), node("Relu", ["a0"], ["a1"]),
             node("Conv", ["a1", "w1"], ["a2"], group=24, **pads), node("Conv", ["a2", "w2"], ["a3"]),
             node("Sigmoid", ["a3"], ["a4"]), node("ConvTranspose", ["a4", "w3"], ["a5"], strides=[2, 2]),
             node("MaxPool", ["a5"], ["a6"], kernel_shape=[1, 1]), node("Conv", ["a6", "w4"], ["a7"], **pads),
             node("Flatten", ["a7"], ["a8"]), node("Gemm", ["a8", "w5", "b5"], ["y"])]
    made = model(nodes, [("x", kind, [1, 3, 16, 16])], [("y", kind, [1, 48])],
                 **{k: v.astype(d) for k, v in weights.items()})
    made.opset_import[0].version = 22  # the first with bfloat16 for all of these
    return made, {k: v.astype(d).astype(np.float32) for k, v in weights.items()} | {"x": normal(1, 3, 16, 16, scale=1)}


def in_float(m: onnx.ModelProto, values: dict[str, np.ndarray]) -> np.ndarray:
    """The same graph on the same numbers, all float32."""
    wide = onnx.ModelProto()
    wide.CopyFrom(m)
    del wide.graph.initializer[:]
    for p in (*wide.graph.input, *wide.graph.output):
        p.type.tensor_type.elem_type = TensorProto.FLOAT
    wide.graph.initializer.extend(numpy_helper.from_array(v, k) for k, v in values.items() if k != "x")
    return np.asarray(ReferenceEvaluator(wide).run(None, {"x": values["x"]})[0])


@pytest.mark.parametrize("level", FEATURE)
@pytest.mark.parametrize("kind", HALVES)
def test_a_half_model_runs_in_kernels(kind: str, level: str, tmp_path: Path) -> None:
    m, values = convolutions(kind)
    made = build({"m": m}, tmp_path, replace(OPTIONS, target=resolve("x86_64-linux", level)))
    kernels = set(re.findall(r"^MB_(GEMM|CONV|CONV_NCHW|DWCONV)\(", made.c, re.MULTILINE))
    assert kernels == {"GEMM", "CONV", "CONV_NCHW", "DWCONV"}
    numbers = sum(v.size for k, v in values.items() if k != "x")
    assert made.low.weights_bytes < 2.3 * numbers
    if FEATURE[level] not in Path("/proc/cpuinfo").read_text(encoding="utf-8").split():
        pytest.skip(f"this CPU is no {level}")
    got = made(x=values["x"].astype(HALVES[kind]))["y"]
    x = values["x"].astype(HALVES[kind]).astype(np.float32)
    want = in_float(m, values | {"x": x})
    assert got.dtype == HALVES[kind]
    step = 2.0**-11 if kind == "f16" else 2.0**-8
    # seven values are stored on the way, each rounded once
    assert np.abs(got.astype(np.float32) - want).max() < 8 * step * max(1.0, np.abs(want).max())


def test_a_sum_beyond_the_largest_half_is_infinite_and_its_terms_are_not(tmp_path: Path) -> None:
    """4096 products of 100: float16 sums would be infinite on the way to a mean of 100."""
    w = np.full((4096, 16), 1 / 4096, np.float16)
    made = build({"m": model([node("MatMul", ["x", "w"], ["y"])], [("x", "f16", [1, 4096])], [("y", "f16", [1, 16])],
                             w=w)}, tmp_path, OPTIONS)
    assert (made(x=np.full((1, 4096), 100, np.float16))["y"] == 100).all()
    assert (made(x=np.full((1, 4096), 60000, np.float16))["y"] == 60000).all()
    x = np.full((1, 4096), 60000, np.float16)
    x[0, :3] = [np.inf, 1, np.nan]
    assert np.isnan(made(x=x)["y"]).all()


def weight_only(q: np.dtype, form: str) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """A lookup and two products on weights of integers; `form`: how the file says so."""
    rng = np.random.default_rng([SEED, 2])
    low, high = (-127, 128) if q == np.int8 else (0, 256)
    table, first, second = (rng.integers(low, high, s).astype(q) for s in ((300, 96), (96, 256), (200, 256)))
    scales = {k: (rng.random(s) * 0.02 + 0.001).astype(np.float32)
              for k, s in (("ts", (300, 1)), ("fs", (1, 256)), ("ss", (200, 1)))}
    zero = 0 if q == np.int8 else 128
    weights: dict[str, np.ndarray] = {"t": table, "f": first, "s": second}
    nodes = []
    for k, v in list(weights.items()):
        if form == "cast":
            nodes += [node("Cast", [k], [f"{k}c"], to=TensorProto.FLOAT)]
            nodes += [node("Sub", [f"{k}c", "z"], [f"{k}d"])] if zero else []
            nodes += [node("Mul", [f"{k}d" if zero else f"{k}c", f"{k}s"], [f"{k}w"])]
        else:
            axis = int(np.argmax(scales[f"{k}s"].shape))
            weights[f"{k}z"] = np.full(v.shape[axis], zero, q)
            nodes += [node("DequantizeLinear", [k, f"{k}s", f"{k}z"], [f"{k}w"], axis=axis)]
    stored = {k: v if form == "cast" else v.reshape(-1) for k, v in scales.items()} | {
        **weights, **({"z": np.array(zero, np.float32)} if form == "cast" and zero else {})}
    nodes += [node("Gather", ["tw", "i"], ["e"]), node("MatMul", ["e", "fw"], ["h"]), node("Relu", ["h"], ["r"]),
              node("Gemm", ["r", "sw"], ["y"], transB=1)]
    wide = {k: (weights[k].astype(np.float32) - zero) * scales[f"{k}s"] for k in "tfs"}
    return model(nodes, [("i", "i64", [5])], [("y", "f32", [5, 200])], **stored), wide


@pytest.mark.parametrize("form", ["cast", "dequantize"])
@pytest.mark.parametrize("q", ["int8", "uint8"])
def test_weights_of_bytes_stay_bytes(q: str, form: str, tmp_path: Path) -> None:
    m, wide = weight_only(np.dtype(q), form)
    made = build({"m": m}, tmp_path, OPTIONS)
    numbers = sum(v.size for v in wide.values())
    assert made.low.weights_bytes < 1.15 * numbers + 4096, made.low.weights_bytes / numbers
    i = np.array([0, 299, 7, -1, 150])
    want = np.maximum(wide["t"][i].astype(np.float64) @ wide["f"], 0) @ wide["s"].astype(np.float64).T
    np.testing.assert_allclose(made(i=i)["y"], want, rtol=2e-5, atol=2e-5 * np.abs(want).max())


@pytest.mark.parametrize("axis", [None, 0, 1, 2])
@pytest.mark.parametrize("cpu", ["x86-64-v2", "x86-64-v3", "x86-64-v4"])
def test_weights_of_a_batch_stay_bytes(cpu: str, axis: int | None, tmp_path: Path) -> None:
    """A scale for all, for each matrix, row or column; and of one matrix, however many axes it has"""
    rng = np.random.default_rng([SEED, 6])
    target = resolve("x86_64-linux", cpu)
    if not runs_here(target):
        pytest.skip(f"this machine does not run {cpu}")
    nodes, weights, wide = [], dict[str, np.ndarray](), {}
    for name, shape in (("p", (3, 40, 70)), ("q", (1, 40, 33))):
        w = rng.integers(-127, 128, shape).astype(np.int8)
        scale = (rng.random(() if axis is None else shape[axis]) * 0.02 + 0.001).astype(np.float32)
        weights |= {name: w, f"{name}s": np.asarray(scale)}
        nodes += [node("DequantizeLinear", [name, f"{name}s"], [f"{name}w"], axis=0 if axis is None else axis),
                  node("MatMul", ["x", f"{name}w"], [f"y{name}"])]
        spread = scale if axis is None else scale.reshape([-1 if k == axis else 1 for k in range(3)])
        wide[name] = w.astype(np.float64) * spread
    outs = [("yp", "f32", [3, 5, 70]), ("yq", "f32", [3, 5, 33])]
    made = build({"m": model(nodes, [("x", "f32", [3, 5, 40])], outs, **weights)}, tmp_path,
                 replace(OPTIONS, target=target))
    assert made.low.weights_bytes < 1.6 * sum(w.size for w in wide.values())  # columns are padded
    x = rng.standard_normal((3, 5, 40)).astype(np.float32)
    got = made(x=x)
    for name, w in wide.items():
        want = x.astype(np.float64) @ w
        np.testing.assert_allclose(got[f"y{name}"], want, rtol=2e-5, atol=2e-5 * np.abs(want).max())


@pytest.mark.parametrize("kind", ["f16", "i8"])
def test_a_tied_embedding_of_narrow_weights_is_stored_once(kind: str, tmp_path: Path) -> None:
    """Looked up and, transposed, multiplied with: the lookup reads the product's panels."""
    size, hidden = 9000, 32
    rng = np.random.default_rng([SEED, 3])
    table = rng.integers(-127, 128, (size, hidden)).astype(np.int8)
    scale = (rng.random((size, 1)) * 0.02 + 0.001).astype(np.float32)
    wide = (table * scale).astype(np.float16).astype(np.float32) if kind == "f16" else table * scale
    widening = [node("Cast", ["t"], ["c"], to=TensorProto.FLOAT), node("Mul", ["c", "s"], ["w"])]
    nodes = [*(widening if kind == "i8" else []), node("Gather", ["w", "i"], ["e"]),
             node("Transpose", ["w"], ["wt"], perm=[1, 0]), node("Tanh", ["e"], ["h"]),
             node("MatMul", ["h", "wt"], ["y"])]
    weights = {"t": table, "s": scale} if kind == "i8" else {"w": wide.astype(np.float16)}
    out = "f32" if kind == "i8" else "f16"
    m = model(nodes, [("i", "i64", [1])], [("y", out, [1, size])], **weights)
    made = build({"m": m}, tmp_path, OPTIONS)
    assert made.low.weights_bytes < 1.05 * sum(v.nbytes for v in weights.values()) + (size * 4 if kind == "i8" else 0)
    want = np.tanh(wide[[size - 3]]) @ wide.T
    got = made(i=np.array([-3]))["y"].astype(np.float32)
    np.testing.assert_allclose(got, want, rtol=2e-5 if kind == "i8" else 2e-3, atol=1e-3 if kind == "f16" else 1e-5)


def test_an_object_stores_narrow_weights_once(tmp_path: Path) -> None:
    m, wide = weight_only(np.dtype("int8"), "dequantize")
    obj, native = compile_module(module(m, "m", OPTIONS), replace(OPTIONS, cache=tmp_path))
    numbers = sum(v.size for v in wide.values())
    assert sum(w.size for w in obj.weights.values()) < 1.1 * numbers + 4096
    assert native.weights_bytes < 1.1 * numbers + 4096


def test_strict_computes_with_the_models_own_weights(tmp_path: Path) -> None:
    """A scale on the sum rounds otherwise than a scale on each weight."""
    m, wide = weight_only(np.dtype("int8"), "cast")
    made = build({"m": m}, tmp_path, replace(OPTIONS, numerics="strict"))
    assert made.low.weights_bytes > 4 * sum(v.size for k, v in wide.items() if k != "t")


def test_a_half_product_that_becomes_float_keeps_its_fraction(tmp_path: Path) -> None:
    """A Cast in the epilogue of a product of halves changes the type, not the value."""
    nodes = [onnx.helper.make_node("MatMul", ["q", "k"], ["s"]), onnx.helper.make_node("Cast", ["s"], ["y"], to=1)]
    half, single = onnx.TensorProto.FLOAT16, onnx.TensorProto.FLOAT
    g = onnx.helper.make_graph(nodes, "g", [onnx.helper.make_tensor_value_info("q", half, [2, 3, 8]),
                                            onnx.helper.make_tensor_value_info("k", half, [2, 8, 5])],
                               [onnx.helper.make_tensor_value_info("y", single, [2, 3, 5])])
    m = onnx.helper.make_model(g, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)
    rng = np.random.default_rng(1)
    q, k = rng.standard_normal((2, 3, 8)).astype(np.float16), rng.standard_normal((2, 8, 5)).astype(np.float16)
    got = monobloc.compile(m, lto="none", cache=tmp_path).run({"q": q, "k": k})["y"]
    np.testing.assert_allclose(got, q.astype(np.float64) @ k.astype(np.float64), rtol=2e-3, atol=2e-3)
