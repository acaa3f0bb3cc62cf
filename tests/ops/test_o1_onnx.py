"""Single ONNX nodes of the shape, movement, indexing and resizing families: read, interpreted, and
compared with what onnxruntime says. Older opsets, inputs that became attributes, and hard cases.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_o2_onnx import Array, agree, one_node, reference

from monobloc.errors import ModelError, MonoblocError
from monobloc.frontend.importer import load_onnx
from monobloc.ir.interp import interpret
from monobloc.link.image import link_modules
from monobloc.link.objects import Module
from monobloc.link.request import Request
from monobloc.loader import CompiledModel
from monobloc.options import Options

SEED = 411
RNG = np.random.default_rng(SEED)
print(f"seed {SEED}")


def f32(*shape: int) -> Array:
    return RNG.standard_normal(shape).astype(np.float32)


def i64(*values: Any) -> Array:
    return np.array(values, np.int64)


def node(op: str, opset: int, ins: list[Array | None], outputs: int = 1, oracle: Any = None, **attrs: Any) -> None:
    """The first input is the model's, the others are constants."""
    model, feeds = one_node(op, opset, ins, attrs, outputs, const=range(1, len(ins)))
    agree(model, feeds, *([oracle] if oracle else []))


def ops_of(op: str, opset: int, ins: list[Array | None], outputs: int = 1, **attrs: Any) -> list[str]:
    """operators that are left of a node"""
    model, _ = one_node(op, opset, ins, attrs, outputs, const=range(1, len(ins)))
    return [n.op for n in load_onnx(model).graph.nodes]


def refused(op: str, opset: int, ins: list[Array | None], error: type[MonoblocError], text: str, **attrs: Any) -> None:
    model, _ = one_node(op, opset, ins, attrs, const=range(1, len(ins)))
    with pytest.raises(error, match=text):
        load_onnx(model)


# -- shape ------------------------------------------------------------------------------------------------
def test_reshape_family_is_one_view() -> None:
    x = f32(2, 1, 3, 4)
    node("Reshape", 7, [x, i64(0, -1, 4)])
    node("Reshape", 14, [f32(0, 3), i64(3, 0)], allowzero=1)
    for axis in (0, 2, 4, -1):
        node("Flatten", 11, [x], axis=axis)
    node("Squeeze", 11, [x], axes=[-3])
    node("Squeeze", 13, [x, i64(1)])
    node("Squeeze", 13, [x])
    node("Unsqueeze", 11, [x], axes=[0, 5])
    node("Unsqueeze", 13, [x, i64(-1, 2)])
    assert ops_of("Unsqueeze", 13, [x, i64(0)]) == ["Reshape"]
    assert ops_of("Reshape", 13, [x, i64(2, 1, 3, 4)]) == []


def test_shapes_are_constants() -> None:
    x = f32(2, 3, 4)
    node("Shape", 13, [x])
    for start, end in ((1, 3), (-2, 99), (-99, -1), (2, 1)):
        node("Shape", 15, [x], start=start, end=end)
    node("Size", 13, [x])
    assert ops_of("Shape", 13, [x]) == []


def test_wrong_shapes_are_told() -> None:
    x = f32(2, 3)
    refused("Reshape", 13, [x, i64(4, -1)], ModelError, r"\[2, 3\] does not fit into the shape \[4, -1\]")
    refused("Reshape", 13, [x, i64(1, 2, 0)], ModelError, "copies size 2 of a tensor of rank 2")
    refused("Squeeze", 13, [x, i64(1)], ModelError, "has the size 3")
    refused("Unsqueeze", 13, [x, i64(1, 1)], ModelError, "names an axis twice")
    refused("Transpose", 13, [x], ModelError, "names an axis twice", perm=[0, 0])
    refused("Concat", 13, [x, f32(3, 3)], ModelError, r"\[2, 3\] and \[3, 3\], which differ elsewhere", axis=1)
    refused("Expand", 13, [x, i64(2, 4)], ModelError, r"\[2, 3\] and \[2, 4\] do not broadcast")
    refused("Split", 13, [x, i64(1, 1)], ModelError, r"axis of size 3 into \[1, 1\]", axis=1)
    refused("Gather", 13, [x, i64(0, 2)], ModelError, "index 2 of an axis of size 2")
    refused("TopK", 13, [x, i64(4)], ModelError, "4 of 3 elements")


# -- movement ---------------------------------------------------------------------------------------------
def test_slice_of_every_opset() -> None:
    x = f32(5, 6, 7)
    node("Slice", 9, [x], starts=[1, -3], ends=[4, 1000], axes=[0, 2])
    node("Slice", 13, [x, i64(-1, 4), i64(-100, -7), i64(0, 1), i64(-1, -2)])
    node("Slice", 13, [x, i64(-9223372036854775808), i64(9223372036854775807), i64(1), i64(3)])
    node("Slice", 13, [x, i64(4), i64(2), i64(-1)])  # empty
    node("Slice", 13, [x, i64(9), i64(-99), i64(0), i64(-4)])
    node("Slice", 13, [x, i64(-99, 3), i64(-99, 9223372036854775807), i64(0, 2), i64(-1, -1)])  # the front, all before
    node("Slice", 13, [x, i64(4), i64(2147483647), i64(2), i64(-2)])
    assert ops_of("Slice", 13, [x, i64(0), i64(99), i64(1)]) == []


def test_split_is_slices() -> None:
    x = f32(2, 7)
    node("Split", 11, [x], 3, axis=1, split=[2, 0, 5])
    node("Split", 13, [x, i64(2, 5)], 2, axis=-1)
    node("Split", 18, [x], 3, axis=1, num_outputs=3)
    assert ops_of("Split", 13, [x, i64(2, 5)], 2, axis=1) == ["Slice", "Slice"]


def test_pad_cuts_more_than_there_is() -> None:
    """Cut beyond the far end: that much of the other side's padding goes too."""
    for pads in ((0, -1, 0, 2), (0, 2, 0, -1), (1, -3, 0, 5)):
        node("Pad", 18, [f32(3, 0), i64(*pads), np.array(0.5, np.float32)])


def test_pad_of_every_opset() -> None:
    x = f32(2, 3, 4)
    node("Pad", 10, [x], pads=[0, 1, 2, 1, 0, 3], value=1.5)
    node("Pad", 10, [x], pads=[0, 1, 2, 1, 0, 3], mode="edge")
    node("Pad", 13, [x, i64(0, -1, 2, 1, 0, -3), np.float32(2)])
    node("Pad", 13, [x, i64(0, 1, 3, 0, 2, 2)], mode="reflect")
    node("Pad", 18, [x, i64(1, 2, 2, -1), None, i64(-1, 0)])
    node("Pad", 19, [x, i64(1, 3, 2, 4), None, i64(1, 2)], mode="wrap")


def test_blocks() -> None:
    x = f32(2, 12, 3, 2)
    for mode in ("DCR", "CRD"):
        node("DepthToSpace", 13, [x], blocksize=2, mode=mode)
    node("SpaceToDepth", 13, [f32(2, 3, 4, 6)], blocksize=2)
    assert ops_of("DepthToSpace", 13, [x], blocksize=2) == ["Reshape", "Transpose", "Reshape"]


def test_zero_sizes_and_scalars() -> None:
    """a size of 0 and no axes at all are shapes like any other"""
    node("Concat", 13, [f32(0, 3), f32(2, 3)], axis=0)
    assert ops_of("Concat", 13, [f32(2, 0), f32(2, 3)], axis=1) == []
    node("Transpose", 13, [f32(3, 0, 2)], perm=[2, 0, 1])
    node("Reshape", 13, [np.float32(3), i64(1, 1)])
    node("Reshape", 13, [f32(1, 1), np.zeros(0, np.int64)])
    node("Gather", 13, [f32(3, 2), np.zeros((0, 2), np.int64)])
    node("Gather", 13, [f32(3), np.int64(-1)])
    node("Expand", 13, [np.float32(2), i64(2, 0)])
    node("Tile", 13, [f32(2, 3), i64(0, 2)])


# -- indices ----------------------------------------------------------------------------------------------
def test_constant_indices_become_slices() -> None:
    x = f32(3, 5)
    assert ops_of("Gather", 13, [x, np.int64(-1)], axis=1) == ["Slice", "Reshape"]
    assert ops_of("Gather", 13, [x, i64(4, 2, 0)], axis=1) == ["Slice"]
    assert ops_of("Gather", 13, [x, i64(0, 1, 2)], axis=0) == []
    assert ops_of("Gather", 13, [x, i64(0, 1, 1)], axis=0) == ["Gather"]
    for at in (np.int64(-1), i64(4, 2, 0), i64(0, 1, 1), i64([0, -5], [3, 3])):
        node("Gather", 13, [x, at], axis=1)
    node("Compress", 11, [x, np.array([True, False, True])], axis=0)
    node("Compress", 11, [x, np.array([False, True, True, False])])


def test_negative_indices() -> None:
    x = f32(3, 4)
    node("Gather", 13, [x, i64(0, -1)])
    node("GatherND", 13, [x, i64([-1, -1], [0, -2])])
    node("GatherElements", 13, [x, i64([-1, 0, -3, 2])])
    node("ScatterElements", 18, [x, i64([-1, 0], [-4, 1]), f32(2, 2)], axis=1)
    node("ScatterND", 18, [x, i64([-1, -1], [0, -2]), f32(2)])
    node("OneHot", 11, [i64(1, -1, 9, -9), np.int64(4), np.float32([0, 1])], axis=0, oracle=reference)
    node("Scatter", 10, [x, i64([2, 0, 1]), f32(1, 3)], axis=0)


@pytest.mark.parametrize(
    ("op", "ins", "attrs"),
    [
        ("Gather", [f32(3, 4), i64(0, -3, 2)], {"axis": 0}),
        ("GatherND", [f32(3, 4), i64([2, -4], [-3, 3])], {}),
        ("GatherElements", [f32(3, 4), i64([2, -3, 0])], {"axis": 0}),
        ("ScatterElements", [f32(3, 4), i64([2, -3, 0]), f32(1, 3)], {"axis": 0}),
        ("ScatterND", [f32(3, 4), i64([2], [-3]), f32(2, 4)], {}),
    ],
)
def test_run_time_index_outside_is_an_error(op: str, ins: list[Array], attrs: dict[str, Any], tmp_path: Path) -> None:
    """neither read nor written; the run says so, and the next one is right again"""
    model, feeds = one_node(op, 18, ins, attrs)
    g = load_onnx(model).graph
    want = list(interpret(g, feeds).values())
    out = tmp_path / "m.so"
    link_modules([Module(g, "m", "m")], Request(out, "shared", Options(lto="none", cache=tmp_path / "cache")))
    compiled = CompiledModel(out)
    for bad in (3, -4, 1 << 40, -(1 << 63)):
        wrong = feeds["x1"].copy()
        wrong.flat[1 if op != "GatherND" else 2] = bad
        with pytest.raises(MonoblocError, match="index"):
            compiled.run({**feeds, "x1": wrong})
    for got, w in zip(compiled.run(feeds).values(), want, strict=True):
        np.testing.assert_array_equal(got, w)


def test_order() -> None:
    x = RNG.integers(-4, 5, (3, 9)).astype(np.float32)
    node("TopK", 9, [x], 2, k=4)
    node("TopK", 13, [x, i64(5)], 2, largest=0, axis=-1)
    node("TopK", 13, [x, i64(2)], 2, axis=0)
    for last in (0, 1):
        node("ArgMax", 13, [x], axis=-1, select_last_index=last, keepdims=0)
        node("ArgMin", 13, [x], axis=0, select_last_index=last)
    node("CumSum", 14, [f32(3, 5), np.int32(-1)], exclusive=1, reverse=1)


# -- resizing ---------------------------------------------------------------------------------------------
COORDINATES = ("half_pixel", "pytorch_half_pixel", "asymmetric", "align_corners", "half_pixel_symmetric")


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("coordinates", COORDINATES)
def test_resize_like_onnxruntime(mode: str, coordinates: str) -> None:
    x = f32(1, 2, 5, 6)
    for scale in ((1.5, 2.0), (0.6, 0.5), (3.0, 1.3), (0.25, 0.34)):
        scales = np.array([1, 1, *scale], np.float32)
        node("Resize", 19, [x, None, scales], mode=mode, coordinate_transformation_mode=coordinates)
    node("Resize", 19, [x, None, None, i64(1, 2, 7, 3)], mode=mode, coordinate_transformation_mode=coordinates)


@pytest.mark.parametrize("rounding", ["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"])
@pytest.mark.parametrize("coordinates", ["half_pixel", "asymmetric", "align_corners", "tf_half_pixel_for_nn"])
def test_resize_nearest_rounding(rounding: str, coordinates: str) -> None:
    """rounding and clamping agree to the element; axes of scale 1 are left alone"""
    x = f32(4, 4, 4, 4)
    opset = 11 if coordinates == "tf_half_pixel_for_nn" else 19
    for scale in (1.5, 2.0, 0.5, 0.75, 2.6, 0.8):
        scales = np.array([1, 1, scale, scale], np.float32)
        attrs = {"mode": "nearest", "coordinate_transformation_mode": coordinates, "nearest_mode": rounding}
        node("Resize", opset, [x, np.zeros(0, np.float32), scales], **attrs)


def test_resize_crop_and_ratio() -> None:
    x = f32(1, 1, 4, 5)
    roi = np.float32([0, 0, 0.2, -0.3, 1, 1, 0.7, 1.2])
    for mode in ("nearest", "linear"):
        attrs = {"mode": mode, "coordinate_transformation_mode": "tf_crop_and_resize", "extrapolation_value": 7.5}
        node("Resize", 13, [x, roi, None, i64(1, 1, 3, 6)], **attrs)
    for policy in ("not_larger", "not_smaller"):
        attrs = {"mode": "linear", "axes": [2, 3], "keep_aspect_ratio_policy": policy}
        node("Resize", 18, [x, None, None, i64(7, 6)], **attrs)
    node("Resize", 13, [x, None, np.float32([1, 1, 0.6, 2])], mode="cubic", exclude_outside=1, cubic_coeff_a=-0.5)


def test_upsample_and_old_resize() -> None:
    x = f32(1, 2, 3, 4)
    scales = np.float32([1, 1, 2, 3])
    for mode in ("nearest", "linear"):
        node("Upsample", 9, [x, scales], mode=mode)
        node("Upsample", 7, [x], mode=mode, scales=scales.tolist())
        node("Resize", 10, [x, np.float32([1, 1, 2.5, 1.5])], mode=mode)
    node("Resize", 10, [x, np.float32([1, 1, 0.7, 0.5])], mode="nearest")


def test_whole_factors_need_no_tables() -> None:
    """nearest by a whole factor is index arithmetic, which fuses"""
    x = f32(1, 2, 3, 4)
    for coordinates in ("half_pixel", "asymmetric"):
        for factor in (2.0, 4.0, 0.5):
            attrs = {"mode": "nearest", "coordinate_transformation_mode": coordinates, "nearest_mode": "floor"}
            ins = [f32(1, 2, 4, 8), None, np.float32([1, 1, factor, factor])]
            model, _ = one_node("Resize", 13, ins, attrs, const=[1, 2])
            (n,) = load_onnx(model).graph.nodes
            assert len(n.used) == 1 and None not in n.attrs["rules"]
    assert ops_of("Resize", 13, [x, None, np.float32([1, 1, 1, 1])], mode="cubic") == []
