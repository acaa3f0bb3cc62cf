"""Operators of the domain com.microsoft: one node each, read, interpreted, and compared with onnxruntime.

What onnxruntime rounds in another order may differ in one step of a quantized result.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import compose, helper
from test_o2_onnx import Array, one_node, ours

from monobloc.errors import MonoblocError
from monobloc.frontend.importer import load_onnx
from monobloc.link.image import link_modules
from monobloc.link.objects import Module
from monobloc.link.request import Request
from monobloc.loader import CompiledModel
from monobloc.options import Options
from monobloc.passes import PassContext, run_passes

SEED = 4242
RNG = np.random.default_rng(SEED)
print(f"seed {SEED}")
F = np.float32
# per module of tests, (model, inputs, wanted outputs, tolerance) of every node that was compared
MADE: dict[str, list[Any]] = {}


def f32(*shape: int) -> Array:
    return RNG.standard_normal(shape).astype(np.float32)


def some(dtype: Any, *shape: int) -> Array:
    info = np.iinfo(dtype)
    return RNG.integers(info.min, info.max + 1, shape).astype(dtype)


def node(
    op: str, ins: Sequence[Array | None], outputs: int = 1, const: Sequence[int] = (), domain: str = "com.microsoft",
    version: int = 21, **attrs: Any,
) -> tuple[onnx.ModelProto, dict[str, Array]]:
    model, feeds = one_node(op, version, ins, attrs, outputs, const=const)
    model.graph.node[0].domain = domain
    if domain:
        model.opset_import.append(helper.make_opsetid(domain, 1))
    return model, feeds


def runtime(model: onnx.ModelProto, feeds: dict[str, Array]) -> list[Array]:
    """With one thread: with more, onnxruntime quantizes the states of an LSTM sample by sample."""
    options = ort.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = 4, 1
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return list(session.run(None, feeds))


def agree(
    op: str, ins: Sequence[Array | None], outputs: int = 1, const: Sequence[int] = (), rtol: float = 1e-4,
    atol: float = 1e-5, off: int = 1, **attrs: Any,
) -> None:
    """As onnxruntime: floats within a tolerance, quantized integers within `off` steps."""
    model, feeds = node(op, ins, outputs, const, **attrs)
    wants = runtime(model, feeds)
    for got, want in zip(ours(model, feeds), wants, strict=True):
        near(op, got, want, rtol, atol, off)
    remember(sys._getframe(1).f_globals["__name__"], model, feeds, wants, (rtol, atol, off))


def remember(module: str, *compared: Any) -> None:
    MADE.setdefault(module, []).append(compared)


def near(op: str, got: Array, want: Array, rtol: float, atol: float, off: int) -> None:
    types = f"{op}: {got.dtype}{got.shape} {want.dtype}{want.shape}"
    assert got.dtype == want.dtype and got.shape == want.shape, types
    if want.dtype.kind in "biu":
        rtol, atol = 0, off
    elif want.dtype.itemsize == 2:
        rtol, atol = 1e-2, 1e-2
    np.testing.assert_allclose(
        got.astype(np.float64), want.astype(np.float64), rtol=rtol, atol=atol, err_msg=op, equal_nan=True
    )


# -- quantized ------------------------------------------------------------------------------------------
BYTES = [np.uint8, np.int8]


@pytest.mark.parametrize("dtype", BYTES)
def test_quantized_arithmetic(dtype: Any) -> None:
    zero = [dtype(v) for v in (7, 100, 3)]
    a, b = some(dtype, 3, 4, 5), some(dtype, 4, 1)
    for op in ("QLinearAdd", "QLinearMul"):
        agree(op, [a, F(0.02), zero[0], b, F(0.05), zero[1], F(0.07), zero[2]])
        absent = node(op, [a, F(0.02), None, b, F(0.05), None, F(0.2), None], const=[1, 4, 6])
        none = [dtype(0)] * 3  # onnxruntime refuses absent zero points of these two
        agree(op, [a, F(0.02), none[0], b, F(0.05), none[1], F(0.2), none[2]], const=[1, 4, 6])
        present = node(op, [a, F(0.02), none[0], b, F(0.05), none[1], F(0.2), none[2]])
        np.testing.assert_array_equal(ours(*absent)[0], ours(*present)[0])


@pytest.mark.parametrize("dtype", BYTES)
def test_quantized_functions(dtype: Any) -> None:
    x, z = some(dtype, 2, 3, 7), dtype(9)
    agree("QLinearSigmoid", [x, F(0.05), z, F(1 / 256), dtype(0)], const=[1, 2, 3, 4])
    agree("QLinearLeakyRelu", [x, F(0.05), z, F(0.04), z], const=[1, 2, 3, 4], alpha=0.2)
    agree("QLinearLeakyRelu", [x, F(0.05), z, F(0.04), z], const=[1, 2, 3, 4])
    for opset, axis in ((13, -1), (13, 1), (12, 1), (11, 2)):
        for scale in (F(1 / 256), F(0.00392157)):  # 1 / the second is cut to 254
            for y_zero in {0, int(np.iinfo(dtype).min)}:
                agree("QLinearSoftmax", [x, F(0.05), z, scale, dtype(y_zero)], const=[1, 2, 3, 4], off=0,
                      opset=opset, axis=axis)


@pytest.mark.parametrize("dtype", BYTES)
@pytest.mark.parametrize("last", [0, 1])
def test_quantized_pools(dtype: Any, last: int) -> None:
    x, rest = some(dtype, 2, 6, 5, 4), [F(0.05), dtype(3), F(0.04), dtype(11)]
    agree("QLinearGlobalAveragePool", [x, *rest], const=[1, 2, 3, 4], channels_last=last)
    for more in ({"pads": [1, 1, 1, 1]}, {"pads": [1, 0, 0, 1], "count_include_pad": 1}, {"ceil_mode": 1},
                 {"pads": [1, 0, 1, 1], "count_include_pad": 1, "ceil_mode": 1}):
        agree(
            "QLinearAveragePool", [x, *rest], const=[1, 2, 3, 4], channels_last=last, kernel_shape=[2, 3],
            strides=[2, 2], **more,
        )


def test_quantized_mean() -> None:
    """onnxruntime has no kernel for it: the mean of what the bytes stand for."""
    x, rest = some(np.uint8, 2, 3, 4), [F(0.05), np.uint8(30), F(0.04), np.uint8(11)]
    model, feeds = node("QLinearReduceMean", [x, *rest], const=[1, 2, 3, 4], axes=[1, -1], keepdims=0)
    real = ((x.astype(int) - 30) * 0.05).mean((1, 2))
    np.testing.assert_array_equal(ours(model, feeds)[0], np.clip(np.rint(real / 0.04) + 11, 0, 255))


@pytest.mark.parametrize("dtype", BYTES)
def test_quantized_movement(dtype: Any) -> None:
    a, b = some(dtype, 2, 3), some(dtype, 2, 4)
    q = [F(0.05), dtype(3)]
    agree("QLinearConcat", [F(0.05), dtype(3), a, F(0.05), dtype(3), b, F(0.1), dtype(1)], axis=1)
    agree("QLinearWhere", [RNG.random((2, 3)) < 0.5, a, *q, some(dtype, 3), F(0.02), dtype(60), F(0.04), dtype(8)])


@pytest.mark.parametrize("dtype", BYTES)
def test_quantized_products(dtype: Any) -> None:
    a, b, c = some(np.uint8, 5, 6), some(dtype, 6, 4), RNG.integers(-900, 900, 4).astype(np.int32)
    sa, za, per = F(0.02), np.uint8(120), [RNG.uniform(0.01, 0.02, 4).astype(F), some(dtype, 4) // 8]
    one = [F(0.01), dtype(5)]
    agree("QGemm", [a, sa, za, b, *per, c, F(0.4), np.uint8(99)], const=[3, 4, 5, 6], transA=0)
    agree("QGemm", [a.T.copy(), sa, za, b.T.copy(), *one, c], const=[3, 4, 5, 6], transA=1, transB=1, alpha=0.5)
    agree("MatMulIntegerToFloat", [a, b, sa, one[0], za, one[1], f32(4)])
    agree("MatMulIntegerToFloat", [some(np.uint8, 2, 5, 6), b, sa, per[0], za, per[1]])
    agree("MatMulIntegerToFloat", [a, b, sa, one[0]], const=[1])
    agree("DynamicQuantizeMatMul", [f32(3, 5, 6), b, *one, f32(4)], const=[1, 2, 3])
    agree("DynamicQuantizeMatMul", [f32(5, 6), b, per[0], per[1]], const=[1, 2, 3])


def test_products_of_16_bits() -> None:
    agree("MatMulInteger16", [some(np.int16, 2, 5, 6), some(np.int16, 6, 4)], off=0)


@pytest.mark.parametrize("dtype", [np.uint8, np.int8, np.uint16, np.int16])
def test_quantize_and_dequantize(dtype: Any) -> None:
    agree("QuantizeLinear", [f32(3, 40), F(0.001), dtype(9)], off=0)
    per = [RNG.uniform(0.001, 0.02, 40).astype(F), some(dtype, 40)]
    agree("QuantizeLinear", [f32(3, 40), *per], off=0, axis=1)
    agree("DequantizeLinear", [some(dtype, 3, 40), F(0.02), dtype(9)])
    agree("DequantizeLinear", [some(dtype, 3, 40), *per], axis=1)


def test_convolution_of_channels_last() -> None:
    x, w = some(np.uint8, 1, 6, 5, 4), some(np.int8, 3, 4, 3, 3)
    rest = [w, F(0.01), np.int8(0), F(0.9), np.uint8(128), RNG.integers(-99, 99, 3).astype(np.int32)]
    agree("QLinearConv", [x, F(0.02), np.uint8(100), *rest], const=range(1, 9), channels_last=1, pads=[1, 1, 1, 1])


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("dtype", BYTES)
def test_quantized_lstm(direction: str, dtype: Any) -> None:
    dirs, hidden, size = 2 if direction == "bidirectional" else 1, 5, 6
    x, w, r = f32(4, 2, size), some(dtype, dirs, size, 4 * hidden), some(dtype, dirs, hidden, 4 * hidden)
    half = np.full(dirs, 128 if dtype is np.uint8 else 0, dtype)
    scales = [np.full(dirs, 0.004, F), half, np.full(dirs, 0.003, F), half]
    states = [f32(dirs, 2, hidden), f32(dirs, 2, hidden)]
    attrs = {"direction": direction, "hidden_size": hidden}
    const = [1, 2, 8, 9, 10, 11]
    close = {"rtol": 1e-3, "atol": 2e-4}
    plain = [x, w, r, f32(dirs, 8 * hidden), None, None, None, None, *scales]
    agree("DynamicQuantizeLSTM", plain, 3, const, **attrs, **close)
    agree(
        "DynamicQuantizeLSTM", [x, w, r, None, np.int32([4, 4]), *states, f32(dirs, 3 * hidden), *scales], 3,
        [4, *const], **attrs, **close, clip=2.0,
    )
    if dtype is np.int8:
        per = [RNG.uniform(0.002, 0.004, (dirs, 4 * hidden)).astype(F), np.zeros((dirs, 4 * hidden), dtype)] * 2
        agree("DynamicQuantizeLSTM", [x, w, r, None, None, None, None, None, *per], 3, const, **attrs, **close)


# -- weights of few bits --------------------------------------------------------------------------------
@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("block", [16, 32, 128])
def test_products_of_few_bits(bits: int, block: int) -> None:
    k, columns = 2 * block + 16, 5  # the last block is not full
    blocks = 3
    w = some(np.uint8, columns, blocks, block * bits // 8)
    scale, zeros = RNG.uniform(0.01, 0.1, (columns, blocks)).astype(F), some(np.uint8, columns, -(-blocks * bits // 8))
    attrs = {"K": k, "N": columns, "bits": bits, "block_size": block}
    const = range(1, 6)
    for m in (1, 6, 40):
        agree("MatMulNBits", [f32(m, k), w, scale], const=const, atol=1e-4, **attrs)
        agree("MatMulNBits", [f32(2, m, k), w, scale, zeros, None, f32(columns)], const=const, atol=1e-4, **attrs)
    if bits == 4:  # of one scale a row, as older exporters shape them; zero points that are no integers
        flat = [w, scale.reshape(-1), RNG.uniform(0, 15, columns * blocks).astype(F)]
        agree("MatMulNBits", [f32(3, k), *flat], const=const, atol=1e-4, **attrs)


def test_groups_of_rows_in_any_order() -> None:
    k, block, columns = 64, 32, 4
    w, scale = some(np.uint8, columns, 2, 16), RNG.uniform(0.01, 0.1, (columns, 2)).astype(F)
    groups = RNG.permutation(np.repeat([0, 1], 32)).astype(np.int32)
    attrs = {"K": k, "N": columns, "bits": 4, "block_size": block}
    agree("MatMulNBits", [f32(3, k), w, scale, None, groups], const=range(1, 5), atol=1e-4, **attrs)
    model, _ = node("MatMulNBits", [f32(3, k), w, scale, None, groups * 0], const=range(1, 5), **attrs)
    with pytest.raises(MonoblocError, match="g_idx"):
        load_onnx(model)


@pytest.mark.parametrize("bits", [4, 8])
def test_lookups_of_few_bits(bits: int) -> None:
    rows, k, block = 7, 96, 32
    data, scale = some(np.uint8, rows, k * bits // 8), RNG.uniform(0.01, 0.1, (rows, 3)).astype(F)
    ids = np.int64([[3, 0, 6], [1, 1, 2]])
    attrs = {"bits": bits, "block_size": block, "quantize_axis": 1}
    agree("GatherBlockQuantized", [data, ids, scale], const=[0, 2], **attrs)
    agree("GatherBlockQuantized", [data, ids, scale, some(np.uint8, rows, -(-3 * bits // 8))], const=[0, 2, 3], **attrs)


def test_weights_of_few_bits_stay_packed(tmp_path: Path, cache: Path) -> None:
    k, columns = 256, 1000
    w, scale = some(np.uint8, columns, k // 32, 16), RNG.uniform(0.01, 0.1, (columns, k // 32)).astype(np.float16)
    half = f32(1, k).astype(np.float16)
    model, feeds = node("MatMulNBits", [half, w, scale], const=[1, 2], K=k, N=columns, block_size=32)
    out = tmp_path / "packed.so"
    link_modules([Module(load_onnx(model).graph, "p", "p")], Request(out, "shared", Options(cache=cache)))
    assert out.stat().st_size < w.nbytes + scale.nbytes + (24 << 10)
    near("MatMulNBits", CompiledModel(out).run(feeds)["y0"], ours(model, feeds)[0], 1e-2, 1e-2, 0)


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("block", [16, 32, 128])
def test_accuracy_level_4_multiplies_bytes(bits: int, block: int, tmp_path: Path, cache: Path) -> None:
    """Rounded as onnxruntime rounds, once for all products of one x; `strict` and machines without bytes do not."""
    blocks, columns = 6, 40
    names = ("q", "k", "v") if block == 32 else ("q",)
    attrs = {"K": blocks * block, "N": columns, "bits": bits, "block_size": block, "accuracy_level": 4}
    for m in (1, 3, 7, 33):
        x = f32(m, blocks * block) * np.linspace(0.1, 2, m, dtype=F)[:, None]
        x[0, :block] = 0
        nodes, held = [], {}
        for name in names:
            held |= {f"w{name}": some(np.uint8, columns, blocks, block * bits // 8),
                     f"s{name}": RNG.uniform(0.01, 0.1, (columns, blocks)).astype(F)}
            ins = ["x", f"w{name}", f"s{name}"]
            if name != "k":
                held[f"z{name}"] = some(np.uint8, columns, -(-blocks * bits // 8))
                ins.append(f"z{name}")
            nodes.append(helper.make_node("MatMulNBits", ins, [name], domain="com.microsoft", **attrs))
        ports = [helper.make_tensor_value_info(n, 1, [m, columns]) for n in names]
        graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", 1, x.shape)], ports,
                                  [onnx.numpy_helper.from_array(v, k) for k, v in held.items()])
        opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
        wants = dict(zip(names, runtime(model, {"x": x}), strict=True))
        exact = dict(zip(names, ours(model, {"x": x}), strict=True))
        for numerics in ("default", "strict"):
            out = tmp_path / f"{m}{numerics}.so"
            options = Options(cache=cache, numerics=numerics)
            link_modules([Module(load_onnx(model).graph, "p", "p")], Request(out, "shared", options))
            got = CompiledModel(out).run({"x": x})
            rounds = options.target.byte_dot and numerics == "default"
            for name in names:
                want = wants[name] if rounds else exact[name]
                scale = np.abs(exact[name]).max()
                np.testing.assert_allclose(got[name], want, rtol=0, atol=2e-6 * scale, err_msg=f"{m} {numerics} {name}")
        g = load_onnx(model).graph
        run_passes(g, PassContext(Options().target))
        if Options().target.byte_dot:
            products = [n for n in g.nodes if n.op == "ByteBlockProduct"]
            assert len(products) == len(names) and len({n.inputs[0] for n in products}) == 1
        assert not any(np.allclose(wants[n], exact[n], rtol=0, atol=1e-5) for n in names), "onnxruntime does not round"


def test_accuracy_level_4_rounds_near_ties_as_onnxruntime(tmp_path: Path, cache: Path) -> None:
    """x / (a / 127), x * (1 / (a / 127)) and x * (127 / a) part at ties: about one row in 2,000 of random numbers."""
    rows, block, columns = 200, 32, 8
    largest = RNG.uniform(1, 100, (rows, 1)).astype(F)
    x = (largest * np.append(127, RNG.integers(-126, 126, block - 1) + 0.5) / 127).astype(F)
    w, scale = some(np.uint8, columns, 1, block // 2), RNG.uniform(0.01, 0.1, (columns, 1)).astype(F)
    attrs = {"K": block, "N": columns, "bits": 4, "block_size": block, "accuracy_level": 4}
    model, feeds = node("MatMulNBits", [x, w, scale], const=[1, 2], **attrs)
    if not Options().target.byte_dot:
        pytest.skip("this machine has no dot products of bytes")
    (want,) = runtime(model, feeds)
    out = tmp_path / "ties.so"
    link_modules([Module(load_onnx(model).graph, "p", "p")], Request(out, "shared", Options(cache=cache)))
    got = CompiledModel(out).run(feeds)["y0"]
    np.testing.assert_allclose(got, want, rtol=0, atol=4e-6 * np.abs(want).max())


def opsets_of(model: onnx.ModelProto) -> tuple[tuple[str, int], ...]:
    return tuple((o.domain, o.version) for o in model.opset_import)


def compiled(module: str, tmp_path: Path, cache: Path) -> None:
    """All nodes that the tests of a module compared, as one model of each opset through the whole compiler"""
    if module not in MADE:
        pytest.skip("no other test of this module ran here")
    for number, opsets in enumerate(sorted({opsets_of(m) for m, *_ in MADE[module]})):
        made = [x for x in MADE[module] if opsets_of(x[0]) == opsets]
        joined, feeds = None, {}
        for k, (model, given, _, _) in enumerate(made):
            part = compose.add_prefix(model, f"m{k}_")
            feeds |= {f"m{k}_{name}": x for name, x in given.items()}
            if joined is None:
                joined = part
                continue
            for field in ("node", "input", "output", "initializer"):
                getattr(joined.graph, field).extend(getattr(part.graph, field))
        out = tmp_path / f"m{number}.so"
        g = load_onnx(joined).graph
        link_modules([Module(g, "m", "m")], Request(out, "shared", Options(lto="none", cache=cache)))
        got = CompiledModel(out).run(feeds)
        for k, (model, _, wants, tolerance) in enumerate(made):
            for o, want in zip(model.graph.output, wants, strict=True):
                near(model.graph.node[0].op_type, got[f"m{k}_{o.name}"], want, *tolerance)


def test_compiled(tmp_path: Path, cache: Path) -> None:
    compiled(__name__, tmp_path, cache)


def test_schemas_are_those_of_onnxruntime() -> None:
    tool = Path(__file__).resolve().parents[2] / "tools" / "gen_schemas.py"
    made = subprocess.run([sys.executable, tool, "--check"], capture_output=True, text=True)
    assert made.returncode == 0, f"run: python tools/gen_schemas.py\n{made.stderr}"
