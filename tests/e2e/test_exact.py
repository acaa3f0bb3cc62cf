"""`numerics="strict"` of quantized graphs: every result is the exact rational one, rounded once, half to even.

The oracle is Python's Fraction: scales are the float32 numbers that they are, sums and quotients are not rounded.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import helper, numpy_helper

import monobloc

SEED = 7171
RNG = np.random.default_rng(SEED)
print(f"seed {SEED}")
Array = np.ndarray
F = np.float32


def model_of(nodes: Sequence[onnx.NodeProto], inputs: dict[str, Array], outputs: list[str], **consts: Any) -> bytes:
    infos = [helper.make_tensor_value_info(k, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)
             for k, x in inputs.items()]
    outs = [helper.make_empty_tensor_value_info(o) for o in outputs]
    held = [numpy_helper.from_array(np.asarray(v), k) for k, v in consts.items()]
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    g = helper.make_graph(nodes, "g", infos, outs, held)
    return helper.make_model(g, opset_imports=opsets, ir_version=10).SerializeToString()


def node(op: str, ins: str, out: str, **attrs: Any) -> onnx.NodeProto:
    return helper.make_node(op, ["" if i == "_" else i for i in ins.split()], [out], **attrs)


def rounded(total: Fraction, scale: Any, zero: Any) -> int:
    info = np.iinfo(zero.dtype)
    return min(max(round(total / Fraction(float(scale))) + int(zero), info.min), info.max)


def exact(shape: tuple[int, ...], dtype: Any, f: Callable[..., int]) -> Array:
    out = np.empty(shape, dtype)
    for i in np.ndindex(shape):
        out[i] = f(*i)
    return out


def ratio(x: Any) -> Fraction:
    return Fraction(float(x))


def check(model: bytes, feeds: dict[str, Array], want: Array, cache: Path) -> None:
    m = monobloc.compile(model, lto="none", numerics="strict", cache=cache)
    got = next(iter(m.run(feeds).values()))
    assert got.dtype == want.dtype
    np.testing.assert_array_equal(got, want, err_msg=f"seed {SEED}")


# one factor is a tie in float32 and just above one in truth: 1/3 as a float32 times 3 is not 1
THIRD = F(1) / F(3)


def test_what_float32_takes_for_a_tie(cache: Path) -> None:
    x = np.arange(-9, 10, dtype=np.int8).reshape(19, 1)
    consts = {"sx": THIRD, "zx": np.int8(0), "w": np.ones((1, 1), np.int8), "sw": F(3), "sy": F(2)}
    nodes = [node("QLinearMatMul", "x sx zx w sw zx sy zx", "y")]
    model = model_of(nodes, {"x": x}, ["y"], **consts)
    want = exact((19, 1), np.int8, lambda i, j: rounded(int(x[i, j]) * ratio(THIRD) * 3, F(2), np.int8(0)))
    check(model, {"x": x}, want, cache)
    default = monobloc.compile(model, lto="none", cache=cache).run({"x": x})["y"]
    assert (default != want).any(), "default numerics agree: the test would not see a difference"


@pytest.mark.parametrize("form", ["qdq", "qlinear"])
def test_convolution(form: str, cache: Path) -> None:
    """Per channel, with a bias and a Relu: 600 terms a sum, more than a float32 holds"""
    x = RNG.integers(0, 256, (1, 24, 6, 6)).astype(np.uint8)
    w = RNG.integers(-128, 128, (3, 24, 5, 5)).astype(np.int8)
    sx, sw, sy = F(0.0213), RNG.uniform(0.001, 0.01, 3).astype(F), F(1.37)
    zx, zy, bias = np.uint8(131), np.uint8(9), RNG.integers(-(2**20), 2**20, 3).astype(np.int32)
    bias_scale = (sw * sx).astype(F)
    consts = {"w": w, "sx": sx, "zx": zx, "sw": sw, "zw": np.zeros(3, np.int8), "sy": sy, "zy": zy, "bias": bias}
    if form == "qdq":
        consts["sb"] = bias_scale
        nodes = [node("DequantizeLinear", "x sx zx", "a"), node("DequantizeLinear", "w sw zw", "b", axis=0),
                 node("DequantizeLinear", "bias sb", "c", axis=0), node("Conv", "a b c", "d"), node("Relu", "d", "e"),
                 node("QuantizeLinear", "e sy zy", "y")]
    else:
        nodes = [node("QLinearConv", "x sx zx w sw zw sy zy bias", "y")]
    wide = x.astype(np.int64) - int(zx)

    def at(_: int, c: int, i: int, j: int) -> int:
        acc = int((wide[0, :, i : i + 5, j : j + 5] * w[c].astype(np.int64)).sum())
        unit = ratio(sx) * ratio(sw[c])
        shift = int(bias[c]) * (ratio(bias_scale[c]) if form == "qdq" else unit)
        value = acc * unit + shift
        return rounded(max(value, Fraction(0)) if form == "qdq" else value, sy, zy)

    check(model_of(nodes, {"x": x}, ["y"], **consts), {"x": x}, exact((1, 3, 2, 2), np.uint8, at), cache)


def test_products_and_sums(cache: Path) -> None:
    """A matrix product with a float bias, and a residual of another scale clipped"""
    x, w = RNG.integers(-128, 128, (4, 40)).astype(np.int8), RNG.integers(-128, 128, (40, 5)).astype(np.int8)
    r = RNG.integers(0, 256, (4, 5)).astype(np.uint8)
    sx, sw, sr, sy = F(0.013), RNG.uniform(0.001, 0.01, 5).astype(F), F(0.31), F(0.177)
    bias = RNG.uniform(-3, 3, 5).astype(F)
    consts = {"w": w, "sx": sx, "z": np.int8(4), "sw": sw, "zw": np.zeros(5, np.int8), "bias": bias, "sr": sr,
              "zr": np.uint8(77), "sy": sy, "zy": np.int8(-11), "lo": F(-9.5), "hi": F(11.25)}
    nodes = [node("DequantizeLinear", "x sx z", "a"), node("DequantizeLinear", "w sw zw", "b", axis=1),
             node("MatMul", "a b", "c"), node("Add", "c bias", "d"), node("DequantizeLinear", "r sr zr", "e"),
             node("Add", "d e", "f"), node("Clip", "f lo hi", "g"), node("QuantizeLinear", "g sy zy", "y")]
    acc = (x.astype(np.int64) - 4) @ w.astype(np.int64)

    def at(i: int, j: int) -> int:
        value = int(acc[i, j]) * ratio(sx) * ratio(sw[j]) + ratio(bias[j]) + (int(r[i, j]) - 77) * ratio(sr)
        return rounded(min(max(value, ratio(F(-9.5))), ratio(F(11.25))), sy, np.int8(-11))

    model = model_of(nodes, {"x": x, "r": r}, ["y"], **consts)
    check(model, {"x": x, "r": r}, exact((4, 5), np.int8, at), cache)


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16, np.uint16])
def test_elementwise(dtype: Any, cache: Path) -> None:
    """Add, Sub and requantization of bytes and of 16 bits; Mul of bytes"""
    info = np.iinfo(dtype)
    a, b = (RNG.integers(info.min, info.max + 1, (3, 50)).astype(dtype) for _ in range(2))
    z = np.array([info.min // 2 + 3, info.max // 2 - 5, info.max // 2 + 1], dtype)
    scales = F(0.0123), F(0.377), F(0.5)
    wide_a, wide_b = a.astype(int) - int(z[0]), b.astype(int) - int(z[1])
    sa, sb = ratio(scales[0]), ratio(scales[1])
    ways: dict[str, Callable[[int, int], Fraction]] = {
        "Add": lambda i, j: int(wide_a[i, j]) * sa + int(wide_b[i, j]) * sb,
        "Sub": lambda i, j: int(wide_a[i, j]) * sa - int(wide_b[i, j]) * sb,
        "Mul": lambda i, j: int(wide_a[i, j]) * sa * int(wide_b[i, j]) * sb,
    }
    for op, value in ways.items():
        if op == "Mul" and info.bits > 8:
            continue
        nodes = [node("DequantizeLinear", "a sa za", "p"), node("DequantizeLinear", "b sb zb", "q"),
                 node(op, "p q", "r"), node("QuantizeLinear", "r sy zy", "y")]
        consts = {"sa": scales[0], "za": z[0], "sb": scales[1], "zb": z[1], "sy": scales[2], "zy": z[2]}
        model = model_of(nodes, {"a": a, "b": b}, ["y"], **consts)
        want = exact((3, 50), dtype, lambda i, j, v=value: rounded(v(i, j), scales[2], z[2]))
        check(model, {"a": a, "b": b}, want, cache)


def test_means(cache: Path) -> None:
    x = RNG.integers(0, 256, (1, 3, 6, 6)).astype(np.uint8)
    sx, sy, zx, zy = F(0.113), F(0.0571), np.uint8(7), np.int8(-20)
    consts = {"sx": sx, "zx": zx, "sy": sy, "zy": zy}
    wide = x.astype(int) - 7
    pools: dict[str, tuple[dict[str, Any], tuple[int, ...], Callable[..., Fraction]]] = {
        "GlobalAveragePool": ({}, (1, 3, 1, 1), lambda n, c, i, j: Fraction(int(wide[0, c].sum()), 36)),
        "AveragePool": (
            {"kernel_shape": [3, 3], "strides": [3, 3]}, (1, 3, 2, 2),
            lambda n, c, i, j: Fraction(int(wide[0, c, 3 * i : 3 * i + 3, 3 * j : 3 * j + 3].sum()), 9),
        ),
    }
    for op, (attrs, shape, value) in pools.items():
        nodes = [node("DequantizeLinear", "x sx zx", "a"), node(op, "a", "b", **attrs),
                 node("QuantizeLinear", "b sy zy", "y")]
        want = exact(shape, np.int8, lambda *i, v=value: rounded(v(*i) * ratio(sx), sy, zy))
        check(model_of(nodes, {"x": x}, ["y"], **consts), {"x": x}, want, cache)


def test_means_of_means_and_of_sums_that_are_no_bytes(cache: Path) -> None:
    """The second sum may not fit int32, so it is one of floats."""
    x = RNG.integers(0, 256, (1, 3, 6, 6)).astype(np.uint8)
    consts = {"sx": F(0.5), "zx": np.uint8(0), "sy": F(0.25), "zy": np.uint8(0),
              "w": np.full((1, 8, 3, 3), 127, np.int8),
              "sw": F(2**-7), "zw": np.int8(0), "sz": F(64)}
    ends = [node("DequantizeLinear", "x sx zx", "a"), node("QuantizeLinear", "b sy zy", "y")]
    axes = {"rows": np.int64([3]), "columns": np.int64([2])}
    nodes = [ends[0], node("ReduceMean", "a rows", "m"), node("ReduceMean", "m columns", "b"), ends[1]]
    want = exact((1, 3, 1, 1), np.uint8, lambda n, c, i, j: rounded(
        Fraction(int(x[n, c].astype(int).sum()), 36) / 2, F(0.25), np.uint8(0)))
    check(model_of(nodes, {"x": x}, ["y"], **consts, **axes), {"x": x}, want, cache)
    large = np.full((1, 8, 66, 66), 255, np.uint8)
    nodes = [ends[0], node("DequantizeLinear", "w sw zw", "v"), node("Conv", "a v", "c"),
             node("GlobalAveragePool", "c", "b"), node("QuantizeLinear", "b sz zy", "y")]
    value = rounded(Fraction(72 * 255 * 127, 2 * 128), F(64), np.uint8(0))
    check(model_of(nodes, {"x": large}, ["y"], **consts), {"x": large}, np.full((1, 1, 1, 1), value, np.uint8), cache)


@pytest.mark.parametrize("numerics", ["default", "strict"])
def test_activations_of_16_bits(numerics: Any, cache: Path) -> None:
    """Weights of 8 bits: as onnxruntime, whose float32 sums may round to the step beside"""
    x = RNG.integers(-(2**15), 2**15, (1, 4, 8, 8)).astype(np.int16)
    w = RNG.integers(-128, 128, (6, 4, 3, 3)).astype(np.int8)
    consts = {"w": w, "sx": F(3e-4), "zx": np.int16(0), "sw": RNG.uniform(0.001, 0.01, 6).astype(F),
              "zw": np.zeros(6, np.int8), "sy": F(2e-3), "zy": np.int16(100)}
    nodes = [node("DequantizeLinear", "x sx zx", "a"), node("DequantizeLinear", "w sw zw", "b", axis=0),
             node("Conv", "a b", "c"), node("Relu", "c", "d"), node("QuantizeLinear", "d sy zy", "y")]
    model = model_of(nodes, {"x": x}, ["y"], **consts)
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    want = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"]).run(None, {"x": x})[0]
    got = monobloc.compile(model, lto="none", numerics=numerics, cache=cache).run({"x": x})["y"]
    assert got.dtype == np.int16 and np.abs(got.astype(int) - want).max() <= 1
