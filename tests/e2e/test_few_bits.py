"""Weights of 4 bits, and of bytes in blocks, between DequantizeLinear and what reads them: packed in the image."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto as T
from onnx import helper, numpy_helper

import monobloc
from monobloc import driver
from monobloc.options import Options

SEED = 8080
RNG = np.random.default_rng(SEED)
print(f"seed {SEED}")
Array = np.ndarray
F = np.float32
SLACK = 24 << 10  # code, and pages that are not full
KINDS: dict[str, tuple[int, Any, int, int]] = {
    "i4": (T.INT4, ml_dtypes.int4, -8, 7), "u4": (T.UINT4, ml_dtypes.uint4, 0, 15),
    "i8": (T.INT8, np.int8, -128, 127), "u8": (T.UINT8, np.uint8, 0, 255),
}  # fmt: skip


def stored(name: str, kind: str, values: Array) -> onnx.TensorProto:
    return numpy_helper.from_array(values.astype(KINDS[kind][1]), name)


def dequantized(kind: str, shape: tuple[int, int], axis: int, block: int, zeros: bool) -> Any:
    """(the node, its constants)"""
    _, _, low, high = KINDS[kind]
    q = RNG.integers(low, high + 1, shape)
    per = list(shape)
    per[axis] = -(-shape[axis] // block) if block else shape[axis]
    scales = tuple(per) if block else (shape[axis],)
    held = [stored("q", kind, q), numpy_helper.from_array(RNG.uniform(0.01, 0.1, scales).astype(F), "s")]
    if zeros:
        held.append(stored("z", kind, RNG.integers(low, high + 1, scales)))
    attrs = {"axis": axis} | ({"block_size": block} if block else {})
    return helper.make_node("DequantizeLinear", ["q", "s", "z"][: len(held)], ["w"], **attrs), held


def model_of(nodes: list[onnx.NodeProto], held: list[onnx.TensorProto], x: Array) -> bytes:
    info = helper.make_tensor_value_info("x", helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)
    g = helper.make_graph(nodes, "g", [info], [helper.make_empty_tensor_value_info("y")], held)
    return helper.make_model(g, opset_imports=[helper.make_opsetid("", 21)], ir_version=10).SerializeToString()


def check(nodes: list[onnx.NodeProto], held: list[onnx.TensorProto], x: Array, tmp_path: Path, cache: Path) -> int:
    """As onnxruntime; gives the size of the image"""
    model = model_of(nodes, held, x)
    options = ort.SessionOptions()  # its optimizer would quantize x, too
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    want = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"]).run(None, {"x": x})[0]
    (tmp_path / "m.onnx").write_bytes(model)
    out = tmp_path / "m.so"
    driver.build([tmp_path / "m.onnx"], out, "shared", Options(lto="none", cache=cache))
    got = monobloc.load(out).run({"x": x})["y"]
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-3, err_msg=f"seed {SEED}")
    return out.stat().st_size


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("zeros", [False, True])
def test_products(kind: str, zeros: bool, tmp_path: Path, cache: Path) -> None:
    """Blocks along the sum; as the model has the matrix, and transposed"""
    k, n = 160, 250
    x = RNG.standard_normal((3, k)).astype(F)
    dq, held = dequantized(kind, (k, n), 0, 32, zeros)
    size = check([dq, helper.make_node("MatMul", ["x", "w"], ["y"])], held, x, tmp_path, cache)
    bits = 4 if kind[1] == "4" else 8
    assert size < k * n * bits // 8 + (5 * n * 5) + SLACK
    dq, held = dequantized(kind, (n, k), 1, 32, zeros)
    check([dq, helper.make_node("Gemm", ["x", "w"], ["y"], transB=1)], held, x, tmp_path, cache)


def test_rows_of_one_scale(tmp_path: Path, cache: Path) -> None:
    k, n = 256, 250
    x = RNG.standard_normal((2, k)).astype(F)
    dq, held = dequantized("i4", (k, n), 1, 0, False)
    product = helper.make_node("MatMul", ["x", "w"], ["y"])
    assert check([dq, product], held, x, tmp_path, cache) < k * n // 2 + SLACK
    dq, held = dequantized("u4", (k, n), 0, 0, True)  # a scale for each term of the sum: computed
    check([dq, product], held, x, tmp_path, cache)
    dq, held = dequantized("i4", (k, n), 1, 50, False)  # blocks of columns
    check([dq, product], held, x, tmp_path, cache)


def test_lookups(tmp_path: Path, cache: Path) -> None:
    rows, k = 500, 96
    ids = RNG.integers(0, rows, (2, 7))
    for kind, axis, block, zeros in (("u4", 1, 32, True), ("i4", 0, 0, False), ("i8", 1, 16, True)):
        dq, held = dequantized(kind, (rows, k), axis, block, zeros)
        size = check([dq, helper.make_node("Gather", ["w", "x"], ["y"])], held, ids, tmp_path, cache)
        assert size < rows * k * (4 if kind[1] == "4" else 8) // 8 + rows * 6 * 5 + SLACK


def test_a_weight_that_others_read_as_float_is_computed(tmp_path: Path, cache: Path) -> None:
    x = RNG.standard_normal((2, 64)).astype(F)
    dq, held = dequantized("i4", (64, 32), 0, 32, False)
    nodes = [dq, helper.make_node("MatMul", ["x", "w"], ["p"]), helper.make_node("ReduceSum", ["w"], ["s1"]),
             helper.make_node("Add", ["p", "s1"], ["y"])]
    check(nodes, held, x, tmp_path, cache)
    model = model_of(nodes[:1] + [helper.make_node("MatMul", ["x", "w"], ["y"])], held, x)
    strict = monobloc.compile(model, lto="none", numerics="strict", cache=cache)(x)
    np.testing.assert_allclose(strict, monobloc.compile(model, lto="none", cache=cache)(x), rtol=1e-4, atol=1e-3)
