"""Types of at most 8 bits that C does not have: rounding, what is too large, their form in files and in text."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from monobloc.errors import MonoblocError
from monobloc.frontend.external import ExternalFiles
from monobloc.frontend.importer import load_onnx
from monobloc.frontend.tensors import DTYPES, tensor
from monobloc.ir.codes import encode
from monobloc.ir.graph import Graph
from monobloc.ir.text import parse_graph, print_graph
from monobloc.ir.types import DType

SEED = 412
print(f"seed {SEED}")
CODES = [d for d in DType if d.is_code]
FLOATS = [d for d in CODES if d.value_type.is_float and d is not DType.F8E8M0]
ELEM = {v: k for k, v in DTYPES.items()}


def floats() -> np.ndarray:
    """Bits of every size, the special values, and numbers half-way between codes."""
    rng = np.random.default_rng(SEED)
    some = rng.integers(0, 1 << 32, 20000).astype(np.uint32).view(np.float32)
    near = rng.standard_normal(20000).astype(np.float32) * np.float32(2) ** rng.integers(-20, 20, 20000)
    halves = np.arange(-600, 600, dtype=np.float32) / 16
    return np.concatenate([some, near.astype(np.float32), halves, np.float32([0, -0.0, np.nan, np.inf, -np.inf])])


@pytest.mark.parametrize("d", FLOATS)
def test_floats_are_rounded_as_ml_dtypes_does(d: DType) -> None:
    x = floats()
    with np.errstate(all="ignore"):
        want = x.astype(d.numpy)  # NaN of the type without one included
    np.testing.assert_array_equal(d.codes(encode(x, d, saturate=False)), d.codes(want))


@pytest.mark.parametrize("d", FLOATS)
def test_what_is_too_large_becomes_the_largest(d: DType) -> None:
    x = floats()
    x = x[~np.isnan(x)]
    want = numpy_helper.saturate_cast(x, d.numpy)
    np.testing.assert_array_equal(d.codes(encode(x, d)), d.codes(want))


@pytest.mark.parametrize("d", FLOATS)
def test_doubles_are_rounded_once(d: DType) -> None:
    """Just above the middle of two codes: a float is the middle, and would go to the even one."""
    codes = np.arange(1 << d.bits).astype(np.uint8).view(d.numpy).astype(np.float64)
    values = np.unique(codes[np.isfinite(codes)])
    middle = (values[1:] + values[:-1]) / 2
    above = middle + np.abs(middle) * 2.0**-40
    np.testing.assert_array_equal(encode(above, d).astype(np.float64), values[1:])


@pytest.mark.parametrize("mode", ["up", "down", "nearest"])
def test_powers_of_two(mode: str) -> None:
    x = np.abs(floats())
    x = x[(x >= np.float32(2) ** -125) & (x < np.inf)]  # below, ONNX's own function knows no subnormals
    for saturate in (True, False):
        want = numpy_helper.to_float8e8m0(x, saturate, mode)
        got = DType.F8E8M0.codes(encode(x, DType.F8E8M0, saturate, mode))
        np.testing.assert_array_equal(got, want.view(np.uint8))


def test_powers_of_two_at_the_ends() -> None:
    """The table of ONNX's Cast."""
    x = np.float32([0, np.nan, np.inf, 3e38, 2.0**-127, 2.0**-128])
    assert DType.F8E8M0.codes(encode(x, DType.F8E8M0)).tolist() == [0, 255, 254, 254, 0, 0]
    assert DType.F8E8M0.codes(encode(x, DType.F8E8M0, False, "nearest")).tolist() == [255, 255, 255, 255, 0, 255]


@pytest.mark.parametrize("d", CODES)
@pytest.mark.parametrize("count", [0, 1, 5, 8])
def test_tensors_of_files(d: DType, count: int) -> None:
    """In raw_data and in the typed field, elements of 4 and 2 bits lie together in bytes."""
    rng = np.random.default_rng([SEED, count])
    codes = rng.integers(0, 1 << d.bits, count).astype(np.uint8)
    raw = numpy_helper.from_array(codes.view(d.numpy), "t")
    typed = TensorProto(data_type=raw.data_type, dims=raw.dims, int32_data=list(raw.raw_data))
    for t in (raw, typed):
        type, const = tensor(t, "t", ExternalFiles(None))
        assert (type.dtype, type.shape) == (d, (count,))
        np.testing.assert_array_equal(d.codes(const.array), codes)
        np.testing.assert_array_equal(d.codes(numpy_helper.to_array(t)), codes)


@pytest.mark.parametrize("count", [1, 5])
def test_a_tensor_cut_short(count: int) -> None:
    t = TensorProto(data_type=TensorProto.INT4, dims=[count], raw_data=bytes(count))
    if count > 1:
        with pytest.raises(MonoblocError, match=r"has 5 bytes of data for i4\[5\], which needs 3"):
            tensor(t, "t", ExternalFiles(None))


@pytest.mark.parametrize("d", CODES)
def test_text_says_every_code(d: DType) -> None:
    """NaN of any sign too."""
    g = Graph("codes")
    every = np.arange(1 << d.bits).astype(np.uint8)
    parts = [every[k : k + 64].view(d.numpy) for k in range(0, every.size, 64)]
    for k, part in enumerate(parts):
        g.outputs.append((f"y{k}", g.constant(f"c{k}", part)))
    again = parse_graph(print_graph(g))
    assert print_graph(again) == print_graph(g)
    for (_, v), part in zip(again.outputs, parts, strict=True):
        assert v.const is not None and v.dtype is d
        np.testing.assert_array_equal(d.codes(v.const.array), d.codes(part))


def single(op: str, d: DType, opset: int = 25, **attrs: object) -> onnx.ModelProto:
    x = helper.make_tensor_value_info("x", ELEM[d], [2, 3])
    y = helper.make_empty_tensor_value_info("y")
    g = helper.make_graph([helper.make_node(op, ["x"], ["y"], "n", **attrs)], "g", [x], [y])
    return helper.make_model(g, opset_imports=[helper.make_opsetid("", opset)])


def test_what_would_compute_with_codes_is_refused() -> None:
    with pytest.raises(MonoblocError, match=r"f8e5m2\[2,3\], refused by Relu"):
        load_onnx(single("Relu", DType.F8E5M2))
    scale = helper.make_tensor_value_info("s", TensorProto.FLOAT, [])
    m = single("QLinearMatMul", DType.F8E5M2, 21)
    m.graph.node[0].input[:] = ["x", "s", "x", "x", "s", "x", "s", "x"]
    m.graph.input.append(scale)
    with pytest.raises(MonoblocError, match=r"QLinearMatMul of f8e5m2\[2,3\] is not supported"):
        load_onnx(m)


def test_powers_of_two_have_no_zero_to_pad_with() -> None:
    m = single("Pad", DType.F8E8M0)
    m.graph.node[0].input.append("pads")
    m.graph.initializer.append(numpy_helper.from_array(np.array([0, 1, 0, 0]), "pads"))
    with pytest.raises(MonoblocError, match="pads a type without zero"):
        load_onnx(m)


def test_integer_casts_keep_the_low_bits() -> None:
    x = np.array([-9, -8, 7, 8, 15, 16, 200])
    assert encode(x, DType.I4).tolist() == x.astype(ml_dtypes.int4).tolist()
    assert encode(x, DType.U2).tolist() == x.astype(ml_dtypes.uint2).tolist()
