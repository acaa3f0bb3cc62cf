"""Single ONNX nodes of the contraction, reduction, pooling, normalization, quantization and recurrent
families: read, interpreted, and compared with what onnxruntime or ONNX's reference says.

This is where `from_onnx` is held to account: older opsets, inputs that became attributes, auto_pad,
flattening, optional inputs. The models' inputs are graph inputs, except those named `c_...`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from monobloc.errors import MonoblocError
from monobloc.frontend.importer import load_onnx
from monobloc.ir.interp import interpret

SEED = 77
RNG = np.random.default_rng(SEED)
print(f"seed {SEED}")
Array = np.ndarray


def f32(*shape: int) -> Array:
    return RNG.standard_normal(shape).astype(np.float32)


def one_node(
    op: str,
    opset: int,
    inputs: Sequence[Array | None],
    attrs: dict[str, Any],
    outputs: int = 1,
    const: Sequence[int] = (),
) -> tuple[onnx.ModelProto, dict[str, Array]]:
    """A model of a single node; the inputs numbered in `const` are initializers."""
    names = ["" if x is None else f"x{k}" for k, x in enumerate(inputs)]
    outs = [f"y{k}" for k in range(outputs)]
    present = [(k, n, np.asarray(x)) for k, (n, x) in enumerate(zip(names, inputs, strict=True)) if x is not None]
    infos = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)
        for k, n, x in present
        if k not in const
    ]
    graph = helper.make_graph(
        [helper.make_node(op, names, outs, name="node", **attrs)],
        "g",
        infos,
        [helper.make_empty_tensor_value_info(o) for o in outs],
        [numpy_helper.from_array(x, n) for k, n, x in present if k in const],
    )
    version = {k: v for k, v in ((7, 3), (13, 7), (18, 8), (22, 10))}
    ir = next((v for k, v in version.items() if opset <= k), 11)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=max(ir, 4))
    return model, {n: x for k, n, x in present if k not in const}


def ours(model: onnx.ModelProto, feeds: dict[str, Array]) -> list[Array]:
    out = interpret(load_onnx(model).graph, feeds)
    return [out[o.name] for o in model.graph.output]


def runtime(model: onnx.ModelProto, feeds: dict[str, Array]) -> list[Array]:
    options = ort.SessionOptions()
    options.log_severity_level = 4
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return list(session.run(None, feeds))


def reference(model: onnx.ModelProto, feeds: dict[str, Array]) -> list[Array]:
    with np.errstate(all="ignore"):
        return list(ReferenceEvaluator(model).run(None, feeds))


def agree(model: onnx.ModelProto, feeds: dict[str, Array], oracle: Any = runtime, rtol: float = 1e-4) -> None:
    for got, want in zip(ours(model, feeds), oracle(model, feeds), strict=True):
        want = np.asarray(want)
        assert got.dtype == want.dtype and got.shape == want.shape, f"{got.dtype}{got.shape} {want.dtype}{want.shape}"
        if want.dtype.kind in "biu":
            np.testing.assert_array_equal(got, want)
        else:
            np.testing.assert_allclose(got.astype(np.float64), want.astype(np.float64), rtol=rtol, atol=1e-5)


# -- reductions ---------------------------------------------------------------------------------------
REDUCTIONS = ["Sum", "Mean", "Max", "Min", "Prod", "L1", "L2", "LogSum", "LogSumExp", "SumSquare"]


@pytest.mark.parametrize("name", REDUCTIONS)
@pytest.mark.parametrize("opset", [11, 18])
def test_reductions(name: str, opset: int) -> None:
    x = RNG.uniform(0.5, 1.5, (3, 4, 5)).astype(np.float32)
    as_input = opset >= 18
    for axes in ([1], [-1, 0], None):
        for keep in (0, 1):
            attrs: dict[str, Any] = {"keepdims": keep}
            ins: list[Array | None] = [x]
            if axes is not None and as_input:
                ins.append(np.array(axes, np.int64))
            elif axes is not None:
                attrs["axes"] = axes
            agree(*one_node("Reduce" + name, opset, ins, attrs, const=[1]))


@pytest.mark.parametrize("name", REDUCTIONS)
def test_reduction_over_no_axes(name: str) -> None:
    """noop_with_empty_axes: no reduction, but the operator's own function still applies"""
    model, feeds = one_node("Reduce" + name, 18, [f32(2, 3)], {"noop_with_empty_axes": 1, "keepdims": 1})
    x = feeds["x0"].astype(np.float64)
    with np.errstate(invalid="ignore"):
        want = {"L1": np.abs(x), "L2": np.abs(x), "LogSum": np.log(x), "SumSquare": x * x}.get(name, x)
    np.testing.assert_allclose(ours(model, feeds)[0], want, rtol=1e-5)


@pytest.mark.parametrize("name", ["Sum", "Prod", "L1", "L2", "LogSum", "LogSumExp", "SumSquare", "Max", "Min"])
def test_reduction_of_nothing(name: str) -> None:
    model, feeds = one_node("Reduce" + name, 20, [np.zeros((2, 0, 4), np.float32), np.int64([1])], {}, const=[1])
    agree(model, feeds, reference)


@pytest.mark.parametrize("name", ["GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool"])
def test_global_pools(name: str) -> None:
    for shape in ((2, 3, 5), (1, 4, 3, 6), (1, 2, 2, 3, 4)):
        agree(*one_node(name, 13, [f32(*shape)], {"p": 3} if "Lp" in name else {}))


# -- softmax ------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", ["Softmax", "LogSoftmax", "Hardmax"])
@pytest.mark.parametrize("opset", [7, 11, 12, 13, 21])
def test_softmax_axes(name: str, opset: int) -> None:
    """Before opset 13 everything from the axis on is one row."""
    x = f32(2, 3, 4)
    for axis in (None, 0, 1, 2, *((-1, -2) if opset >= 11 else ())):
        agree(*one_node(name, opset, [x], {} if axis is None else {"axis": axis}))


# -- windows ------------------------------------------------------------------------------------------
def windows() -> Iterator[Any]:
    yield {"kernel_shape": [3, 3], "strides": [2, 2], "auto_pad": "SAME_UPPER"}
    yield {"kernel_shape": [2, 3], "strides": [1, 2], "auto_pad": "SAME_LOWER"}
    yield {"kernel_shape": [3, 2], "strides": [2, 1], "auto_pad": "VALID"}
    yield {"kernel_shape": [3, 3], "pads": [1, 0, 2, 1], "strides": [2, 3]}


@pytest.mark.parametrize("attrs", list(windows()))
def test_windows(attrs: dict[str, Any]) -> None:
    x = f32(1, 2, 8, 9)
    agree(*one_node("Conv", 11, [x, f32(3, 2, *attrs["kernel_shape"]), f32(3)], attrs))
    for more in ({}, {"ceil_mode": 1}):
        agree(*one_node("MaxPool", 12, [x], attrs | more, outputs=2))
        agree(*one_node("MaxPool", 12, [x], attrs | more | {"storage_order": 1}, outputs=2))
        if more and "auto_pad" in attrs and attrs["auto_pad"] != "VALID":
            continue
        for include in (0, 1):
            agree(*one_node("AveragePool", 19, [x], attrs | more | {"count_include_pad": include}))
    agree(*one_node("LpPool", 18, [x], attrs | {"p": 3}))


def test_average_pool_overhang() -> None:
    """What ceil_mode adds behind the end padding is not counted."""
    attrs = {"kernel_shape": [7], "strides": [3], "pads": [0, 3], "ceil_mode": 1, "count_include_pad": 1}
    model, feeds = one_node("AveragePool", 19, [np.arange(1, 10, dtype=np.float32).reshape(1, 1, 9)], attrs)
    np.testing.assert_allclose(ours(model, feeds)[0].ravel(), [4, 39 / 7, 4], rtol=1e-6)


def test_max_pool_keeps_nan() -> None:
    x = f32(1, 1, 4, 4)
    x[0, 0, 1, 1] = np.nan
    y, at = ours(*one_node("MaxPool", 12, [x], {"kernel_shape": [2, 2], "strides": [2, 2]}, outputs=2))
    assert np.isnan(y[0, 0, 0, 0]) and not np.isnan(y[0, 0, 1, 1]) and at[0, 0, 0, 0] == 5


def test_dilated_average_pool() -> None:
    attrs = {"kernel_shape": [3, 2], "dilations": [2, 3], "pads": [1, 1, 0, 1]}
    for include in (0, 1):
        agree(*one_node("AveragePool", 19, [f32(1, 2, 8, 9)], attrs | {"count_include_pad": include}))


def test_max_unpool() -> None:
    x = np.float32([[[[1, 2], [3, 4]]]])
    at = np.int64([[[[5, 7], [13, 15]]]])
    agree(*one_node("MaxUnpool", 11, [x, at], {"kernel_shape": [2, 2], "strides": [2, 2]}))
    shape = np.int64([1, 1, 5, 5])
    # onnxruntime counts the indices in output_shape; ONNX's own tests and reference, without it
    model, feeds = one_node("MaxUnpool", 11, [x, at, shape], {"kernel_shape": [2, 2], "strides": [2, 2]}, const=[2])
    agree(model, feeds, reference)


@pytest.mark.parametrize(
    "attrs",
    [
        {"strides": [2, 3]},
        {"strides": [2, 2], "output_padding": [1, 1], "pads": [1, 0, 1, 2]},
        {"strides": [3, 2], "output_shape": [10, 8]},
        {"strides": [3, 2], "output_shape": [10, 8], "auto_pad": "SAME_UPPER"},
        {"strides": [2, 2], "auto_pad": "SAME_UPPER"},
        {"strides": [2, 2], "auto_pad": "SAME_LOWER"},
        {"dilations": [2, 1], "auto_pad": "VALID"},
    ],
)
def test_conv_transpose(attrs: dict[str, Any]) -> None:
    agree(*one_node("ConvTranspose", 11, [f32(1, 4, 3, 4), f32(4, 3, 3, 3), f32(3)], attrs))
    agree(*one_node("ConvTranspose", 11, [f32(2, 4, 3, 4), f32(4, 3, 3, 3)], attrs | {"group": 2}))


# -- products -----------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("a", "b"),
    [
        ((4,), (4,)),
        ((4,), (4, 5)),
        ((3, 4), (4,)),
        ((4,), (2, 3, 4, 5)),
        ((2, 3, 5, 4), (4,)),
        ((2, 1, 3, 4), (5, 4, 2)),
    ],
)
def test_matmul_ranks(a: tuple[int, ...], b: tuple[int, ...]) -> None:
    agree(*one_node("MatMul", 13, [f32(*a), f32(*b)], {}))
    ints = [RNG.integers(0, 9, s).astype(np.int32) for s in (a, b)]
    agree(*one_node("MatMul", 13, ints, {}))


def test_gemm_forms() -> None:
    for ta, tb, c in ((0, 0, (5,)), (1, 0, (3, 5)), (0, 1, (3, 1)), (1, 1, ()), (0, 0, None)):
        a, b = f32(4, 3) if ta else f32(3, 4), f32(5, 4) if tb else f32(4, 5)
        ins = [a, b, *([] if c is None else [f32(*c)])]
        agree(*one_node("Gemm", 13, ins, {"transA": ta, "transB": tb, "alpha": 0.5, "beta": 2.0}))
        agree(*one_node("Gemm", 9 if c is not None else 11, ins, {"transA": ta, "transB": tb}))


@pytest.mark.parametrize("size", [1, 5, 6, 12])
def test_determinants_of_any_size(size: int) -> None:
    agree(*one_node("Det", 22, [f32(3, size, size)], {}))


EINSUMS = [
    ("ij,jk->ik", (3, 4), (4, 5)),
    ("ij,jk", (3, 4), (4, 5)),
    ("bij,bjk->bik", (2, 3, 4), (2, 4, 5)),
    ("...ij,...jk->...ik", (2, 1, 3, 4), (5, 4, 2)),
    ("bhid,bhjd->bhij", (2, 3, 4, 5), (2, 3, 6, 5)),
    ("bhij,bhjd->bihd", (2, 3, 4, 5), (2, 3, 5, 6)),
    ("i,j->ij", (3,), (4,)),
    ("ij->ji", (3, 4)),
    ("ij->", (3, 4)),
    ("ii->i", (4, 4)),
    ("ii", (4, 4)),
    ("...ii->...i", (2, 4, 4)),
    ("ij,ij->", (3, 4), (3, 4)),
    ("ijk,j->ik", (2, 3, 4), (3,)),
    ("i,i,i->i", (4,), (4,), (4,)),
    ("ab,bc,cd->da", (2, 3), (3, 4), (4, 5)),
    ("a b , b c -> a c", (2, 3), (3, 4)),
    ("bij,kj->bki", (2, 3, 4), (5, 4)),
    ("ij,kl->", (2, 3), (4, 5)),
]


@pytest.mark.parametrize("case", EINSUMS, ids=lambda c: c[0].replace(" ", "_"))
def test_einsum(case: tuple[Any, ...]) -> None:
    agree(*one_node("Einsum", 12, [f32(*s) for s in case[1:]], {"equation": case[0]}), reference)


# -- normalizations -----------------------------------------------------------------------------------
def test_normalizations() -> None:
    x, c = f32(2, 6, 4, 5), [f32(6) for _ in range(3)]
    var = RNG.uniform(0.5, 2, 6).astype(np.float32)
    for opset in (7, 9, 14, 15):
        agree(*one_node("BatchNormalization", opset, [x, *c, var], {"epsilon": 1e-3}))
    agree(*one_node("InstanceNormalization", 6, [x, *c[:2]], {}))
    agree(*one_node("GroupNormalization", 21, [x, *c[:2]], {"num_groups": 3}), reference)
    agree(*one_node("GroupNormalization", 18, [x, f32(3), f32(3)], {"num_groups": 3}), reference)
    agree(*one_node("LRN", 13, [x], {"size": 5, "alpha": 0.2, "beta": 0.5, "bias": 2.0}))
    for axis in (0, 1, -1):
        for p in (1, 2):
            agree(*one_node("LpNormalization", 1, [x], {"axis": axis, "p": p}))
    agree(*one_node("MeanVarianceNormalization", 13, [x], {}))
    agree(*one_node("MeanVarianceNormalization", 13, [x], {"axes": [2, 3]}))


@pytest.mark.parametrize("axis", [-1, 1, 0])
def test_layer_normalization(axis: int) -> None:
    x = f32(2, 3, 4)
    p = [f32(*x.shape[axis:]) for _ in range(2)]
    agree(*one_node("LayerNormalization", 17, [x, *p], {"axis": axis}, outputs=3))
    agree(*one_node("LayerNormalization", 17, [x, p[0]], {"axis": axis}))
    agree(*one_node("RMSNormalization", 23, [x, p[0]], {"axis": axis}), reference)


# -- quantization -------------------------------------------------------------------------------------
def test_quantize() -> None:
    x = f32(2, 3, 4) * 5
    for zero in (np.uint8(100), np.int8(-3)):
        agree(*one_node("QuantizeLinear", 13, [x, np.float32(0.03), zero], {}))
    agree(*one_node("QuantizeLinear", 10, [x, np.float32(0.03)], {}))
    per = np.float32([0.1, 0.02, 0.003]), np.uint8([1, 200, 3])
    agree(*one_node("QuantizeLinear", 13, [x, *per], {}))
    agree(*one_node("QuantizeLinear", 13, [x, *per], {"axis": -2}))
    scales = RNG.uniform(0.01, 0.1, (2, 3, 2)).astype(np.float32)
    agree(*one_node("QuantizeLinear", 21, [x, scales], {"axis": 2, "block_size": 2, "output_dtype": 3}))
    agree(*one_node("QuantizeLinear", 21, [x, np.float32(0.01)], {"output_dtype": 5}))


def test_dequantize() -> None:
    x = RNG.integers(0, 256, (2, 3, 4)).astype(np.uint8)
    agree(*one_node("DequantizeLinear", 10, [x, np.float32(0.03), np.uint8(9)], {}))
    agree(*one_node("DequantizeLinear", 13, [x, np.float32([0.1, 0.2, 0.3]), np.uint8([1, 2, 3])], {"axis": 1}))
    scales = RNG.uniform(0.01, 0.1, (2, 3, 2)).astype(np.float32)
    agree(*one_node("DequantizeLinear", 21, [x, scales], {"axis": 2, "block_size": 2}))


@pytest.mark.parametrize("kind", ["mixed", "positive", "negative", "zero"])
def test_dynamic_quantize(kind: str) -> None:
    x = f32(3, 4) * 7
    x = {"mixed": x, "positive": np.abs(x) + 1, "negative": -np.abs(x) - 1, "zero": x * 0}[kind]
    agree(*one_node("DynamicQuantizeLinear", 11, [x], {}, outputs=3))


def test_integer_products() -> None:
    a, b = (RNG.integers(0, 256, s).astype(np.uint8) for s in ((4, 6), (6, 5)))
    agree(*one_node("MatMulInteger", 10, [a, b], {}))
    agree(*one_node("MatMulInteger", 10, [a, b, np.uint8(3), np.uint8(7)], {}))
    agree(*one_node("MatMulInteger", 10, [a, b.view(np.int8), np.uint8(3), np.int8([1, 2, 3, 4, 5])], {}))
    x, w = (RNG.integers(0, 256, s).astype(np.uint8) for s in ((1, 4, 6, 5), (4, 2, 3, 3)))
    for attrs in ({"pads": [1, 1, 1, 1], "group": 2}, {"auto_pad": "SAME_UPPER", "strides": [2, 2], "group": 2}):
        agree(*one_node("ConvInteger", 10, [x, w, np.uint8(3)], attrs), runtime)
        s = [np.float32(v) for v in (0.02, 0.015, 0.9)]
        z = [np.uint8(v) for v in (120, 130, 100)]
        bias = RNG.integers(-900, 900, 4).astype(np.int32)
        q = [x, s[0], z[0], w, s[1], z[1], s[2], z[2]]
        agree(*one_node("QLinearConv", 10, q, attrs))
        agree(*one_node("QLinearConv", 10, [*q, bias], attrs, const=[8]))
    s3 = [np.float32(v) for v in (0.0066, 0.00705, 0.0107)]
    q = [a, s3[0], np.uint8(113), b, s3[1], np.uint8(114), s3[2], np.uint8(118)]
    agree(*one_node("QLinearMatMul", 10, q, {}))


# -- recurrent ----------------------------------------------------------------------------------------
GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}


def layer(op: str, t: int, b: int, i: int, h: int, dirs: int, given: str) -> list[Array | None]:
    """Inputs of a recurrent layer; `given` names the optional ones: b(ias), l(engths), h, c, p(eepholes)."""
    g = GATES[op]
    ins: list[Array | None] = [f32(t, b, i), f32(dirs, g * h, i) * 0.5, f32(dirs, g * h, h) * 0.5]
    ins.append(f32(dirs, 2 * g * h) if "b" in given else None)
    ins.append(RNG.integers(1, t + 1, b).astype(np.int32) if "l" in given else None)
    ins.append(f32(dirs, b, h) if "h" in given else None)
    if op == "LSTM":
        ins.append(f32(dirs, b, h) if "c" in given else None)
        ins.append(f32(dirs, 3 * h) if "p" in given else None)
    return ins


@pytest.mark.parametrize("op", ["LSTM", "GRU", "RNN"])
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("given", ["", "b", "bh", "bl", "bhcp", "blhcp"])
def test_recurrent(op: str, direction: str, given: str) -> None:
    dirs = 2 if direction == "bidirectional" else 1
    ins = layer(op, 5, 3, 4, 6, dirs, given)
    attrs = {"direction": direction, "hidden_size": 6}
    for more in ({}, {"clip": 0.3}, *([{"linear_before_reset": 1}] if op == "GRU" else [])):
        agree(*one_node(op, 14, ins, attrs | more, outputs=3 if op == "LSTM" else 2, const=[1, 2, 3]))


def test_recurrent_with_weights_at_run_time() -> None:
    agree(*one_node("GRU", 14, layer("GRU", 4, 1, 3, 5, 1, "b"), {"hidden_size": 5, "linear_before_reset": 1}))


@pytest.mark.parametrize("op", ["LSTM", "GRU", "RNN"])
def test_recurrent_batch_first(op: str) -> None:
    ins = layer(op, 5, 2, 4, 6, 1, "bhc")
    ins[0] = f32(2, 5, 4)
    for k in range(5, 7 if op == "LSTM" else 6):
        ins[k] = f32(2, 1, 6)
    outputs = 3 if op == "LSTM" else 2
    agree(*one_node(op, 14, ins, {"layout": 1, "hidden_size": 6}, outputs, const=[1, 2, 3]), reference)


ACTIVATIONS = {
    "Affine": ([0.5], [0.1]), "LeakyRelu": ([0.2], None), "ThresholdedRelu": ([0.1], None),
    "ScaledTanh": ([0.7], [1.3]), "HardSigmoid": ([0.3], [0.4]), "Elu": ([0.8], None), "Relu": (None, None),
    "Softsign": (None, None), "Softplus": (None, None), "Sigmoid": (None, None), "Tanh": (None, None),
}  # fmt: skip


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_recurrent_activations(name: str) -> None:
    alpha, beta = ACTIVATIONS[name]
    attrs: dict[str, Any] = {"hidden_size": 4, "activations": [name]}
    attrs |= {"activation_alpha": alpha} if alpha else {}
    attrs |= {"activation_beta": beta} if beta else {}
    agree(*one_node("RNN", 14, layer("RNN", 3, 1, 4, 4, 1, "b"), attrs, 2, const=[1, 2, 3]))


def test_recurrent_input_forget() -> None:
    ins = layer("LSTM", 4, 2, 3, 5, 1, "bp")
    agree(*one_node("LSTM", 14, ins, {"hidden_size": 5, "input_forget": 1}, 3, const=[1, 2, 3, 7]))


# -- errors -------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("op", "inputs", "attrs", "text"),
    [
        ("MatMul", [f32(2, 3), f32(4, 5)], {}, "inner sizes differ: 3 of f32[2,3] and 4 of f32[4,5]"),
        ("Conv", [f32(1, 3, 8, 8), f32(4, 2, 3, 3)], {}, "need 2 channels, input is f32[1,3,8,8]"),
        ("Conv", [f32(1, 2, 2, 2), f32(4, 2, 3, 3)], {}, "window of 3 does not fit into axis 2 of 2"),
        ("Conv", [f32(1, 2, 8, 8), f32(4, 2, 3, 3)], {"strides": [1]}, "`strides` has 1 entries"),
        ("MaxPool", [f32(1, 2, 8, 8)], {"kernel_shape": [3]}, "`kernel_shape` has 1 entries"),
        ("ReduceSum", [f32(2, 3), np.int64([2])], {}, "axis 2 is out of range for a tensor of rank 2"),
        ("Gemm", [f32(2, 3), f32(3, 4), f32(5)], {}, "do not broadcast"),
        ("LSTM", [f32(4, 1, 3), f32(1, 8, 3), f32(1, 8, 2)], {"hidden_size": 3}, "need [1, 12, 3]"),
        ("Einsum", [f32(2, 3), f32(4, 5)], {"equation": "ij,jk->ik"}, "3 and 4"),
        ("GroupNormalization", [f32(1, 5, 4), f32(5), f32(5)], {"num_groups": 2}, "do not divide"),
    ],
)
def test_errors_name_both_values(op: str, inputs: list[Array], attrs: dict[str, Any], text: str) -> None:
    model, _ = one_node(op, 21, inputs, attrs, const=[1] if op == "ReduceSum" else [])
    with pytest.raises(MonoblocError) as e:
        load_onnx(model)
    assert text in str(e.value) and "node" in str(e.value)


def test_training_mode_uses_the_statistics_of_the_batch() -> None:
    x, p = f32(3, 2, 4), [np.float32([0.5, 2]), np.float32([1, -1]), np.float32([0, 1]), np.float32([1, 4])]
    attrs = {"training_mode": 1, "momentum": 0.7}
    agree(*one_node("BatchNormalization", 15, [x, *p], attrs, outputs=3), oracle=reference)


@pytest.mark.parametrize(("op", "more", "attrs"), [
    ("Conv", [(4, 3, 2, 2)], {}), ("Conv", [(3, 1, 2, 2)], {"group": 3}),
    ("ConvTranspose", [(3, 4, 2, 2)], {"strides": [2, 2]}),
    ("MaxPool", [], {"kernel_shape": [2, 2]}), ("AveragePool", [], {"kernel_shape": [2, 2]}),
    ("LpPool", [], {"kernel_shape": [2, 2]}), ("GlobalMaxPool", [], {}), ("LRN", [], {"size": 3}),
    ("InstanceNormalization", [(3,), (3,)], {}), ("GroupNormalization", [(3,), (3,)], {"num_groups": 3}),
    ("BatchNormalization", [(3,), (3,), (3,), (3,)], {}), ("DepthToSpace", [], {"blocksize": 1}),
    ("LayerNormalization", [(5,)], {}), ("Softmax", [], {"axis": 1}), ("Flatten", [], {}),
])
def test_a_batch_of_nothing(op: str, more: list[tuple[int, ...]], attrs: dict[str, Any]) -> None:
    """References and shapes of what has no elements: sizes cannot be left for numpy to find."""
    x = np.zeros((0, 3, 4, 5), np.float32)
    for outputs in (1, 2) if op == "MaxPool" else (1,):
        model, feeds = one_node(op, 21, [x, *(f32(*s) for s in more)], attrs, outputs, const=range(1, 5))
        assert all(y.size == 0 and y.shape[0] == 0 for y in ours(model, feeds))
