"""Pooling, resampling, and reading an image at coordinates that are data."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch

from monobloc.frontend.torch.movement import windows
from monobloc.frontend.torch.node import AtenNode, Reader, Results
from monobloc.ir.graph import Value
from monobloc.ir.symbolic import factor, is_open
from monobloc.ir.types import DType
from monobloc.ops.indexing import gather_const


def batched(n: AtenNode, rank: int) -> tuple[Value, bool]:
    """An image with its batch, and whether it had none"""
    x = n.x("self" if "self" in n.args else "input")
    one = x.type.rank == rank + 1
    return (n.reshape(x, [1, *x.shape]) if one else x), one


def unbatched(n: AtenNode, y: Value, one: bool) -> Value:
    return n.reshape(y, y.shape[1:]) if one else y


def window(n: AtenNode, rank: int) -> dict[str, Any]:
    kernel = n.ints("kernel_size", rank)
    pads = n.ints("padding", rank)
    return {"kernel_shape": kernel, "strides": n.ints("stride", rank) or kernel, "pads": pads + pads,
            "ceil_mode": int(bool(n.get("ceil_mode")))}


# -- pooling ------------------------------------------------------------------------------------------
def avg_pool(rank: int) -> Reader:
    def read(n: AtenNode) -> Results:
        x, one = batched(n, rank)
        attrs, by = window(n, rank), n.get("divisor_override")
        y = n.onnx("AveragePool", x, count_include_pad=int(n["count_include_pad"]) if by is None else 1, **attrs)[0]
        if by is not None:
            if attrs["ceil_mode"]:
                n.unsupported("average pooling with both a divisor and ceil_mode")
            y = n.one("Mul", y, n.scalar(float(np.prod(attrs["kernel_shape"])) / by, y.dtype))
        return unbatched(n, y, one)

    return read


def max_pool(rank: int, places: bool) -> Reader:
    def read(n: AtenNode) -> Results:
        x, one = batched(n, rank)
        attrs = window(n, rank) | {"dilations": n.ints("dilation", rank)}
        if not places or 1 not in n.needed:
            y = unbatched(n, n.onnx("MaxPool", x, **attrs)[0], one)
            return [y, None] if places else y
        y, at = n.onnx("MaxPool", x, outputs=2, **attrs)
        image = int(np.prod(x.shape[2:]))  # places are counted within one image
        at = n.one("Mod", at, n.scalar(image, DType.I64), fmod=0)
        return [unbatched(n, v, one) for v in (y, at)]

    return read


def cells(size: int, out: int) -> list[tuple[int, int]]:
    """What adaptive pooling folds: (first, end) of each of `out` cells of an axis"""
    return [(k * size // out, -(-(k + 1) * size // out)) for k in range(out)]


def adaptive_avg_pool(rank: int) -> Reader:
    def read(n: AtenNode) -> Results:
        x, one = batched(n, rank)
        out = _targets(n, x, rank)
        if all(o == 1 for o in out):
            y = n.fold("ReduceMean", x, list(range(2, x.type.rank)), True)
        elif all(d % o == 0 for d, o in zip(x.shape[2:], out, strict=True)):
            kernel = [d // o for d, o in zip(x.shape[2:], out, strict=True)]
            y = n.onnx("AveragePool", x, kernel_shape=kernel, strides=kernel)[0]
        else:
            y = x
            for k, o in enumerate(out):
                y = _averaged(n, y, 2 + k, o)
        return unbatched(n, y, one)

    return read


def _targets(n: AtenNode, x: Value, rank: int) -> list[int]:
    given = n.ints("output_size", rank)
    return [d if o is None else o for o, d in zip(given, x.shape[2:], strict=True)]


def _averaged(n: AtenNode, x: Value, axis: int, out: int) -> Value:
    """Cells that overlap: a product with the matrix of their weights"""
    size = x.shape[axis]
    weights = np.zeros((size, out))
    for k, (first, end) in enumerate(cells(size, out)):
        weights[first:end, k] = 1 / (end - first)
    return along(n, x, axis, weights)


def along(n: AtenNode, x: Value, axis: int, weights: np.ndarray) -> Value:
    """The product with a matrix along one axis"""
    last = x.type.rank - 1
    y = n.onnx("MatMul", n.swap(x, axis, last) if axis != last else x, n.b.const(weights, x.dtype))[0]
    return n.swap(y, axis, last) if axis != last else y


def adaptive_max_pool(rank: int) -> Reader:
    def read(n: AtenNode) -> Results:
        x, one = batched(n, rank)
        out = _targets(n, x, rank)
        if 1 in n.needed:
            n.unsupported("the places of adaptive max pooling")
        y = x
        for k, o in enumerate(out):
            axis = 2 + k
            rows = [n.fold("ReduceMax", n.cut(y, axis, a, b - a), [axis], True) for a, b in cells(x.shape[axis], o)]
            y = n.b.emit("Concat", rows, {"axis": axis})[0] if len(rows) > 1 else rows[0]
        return [unbatched(n, y, one), None]

    return read


# -- resampling ---------------------------------------------------------------------------------------
def scales_of(n: AtenNode, x: Value) -> tuple[list[int], list[float | None]]:
    """(sizes, the factors that coordinates are computed with where they are given) of the spatial axes"""
    spatial, factors = x.shape[2:], n.get("scale_factors")
    size = n.get("output_size")
    if "scale_factors" not in n.args:
        factors = [n.get(k) for k in ("scales_d", "scales_h", "scales_w", "scales") if k in n.args] or None
        return list(size), factors or [None] * len(spatial)
    if size is not None:
        return list(size), [None] * len(spatial)
    return [_times(d, f) for d, f in zip(spatial, factors, strict=True)], list(factors)


def _times(d: int, f: float) -> int:
    """Rounded down; open sizes stay open where the factor is a whole number, or a half, a quarter, ..."""
    if is_open(d) and float(f).is_integer():
        return d * int(f)
    if is_open(d) and math.frexp(f)[0] == 0.5:
        return d // int(1 / f)
    return int(d * f)


def upsample(mode: str) -> Reader:
    def read(n: AtenNode) -> Results:
        x = n.x("input" if "input" in n.args else "self")
        sizes, factors = scales_of(n, x)
        aligned = bool(n.get("align_corners"))
        kind = "align_corners" if aligned else "half_pixel"
        attrs: dict[str, Any] = {"mode": mode, "coordinate_transformation_mode": kind, "cubic_coeff_a": -0.75}
        if aligned or all(f is None for f in factors) or _whole_sizes(x, sizes, factors):
            return n.onnx("Resize", x, None, None, n.b.ints([*x.shape[:2], *sizes]), **attrs)[0]
        scales = n.b.const([1.0, 1.0, *(float(f or 1) for f in factors)], DType.F32)
        y = n.onnx("Resize", x, None, scales, **attrs)[0]
        if list(y.shape[2:]) != sizes:
            n.unsupported(f"resizing {x.type} by {factors} to {sizes}")
        return y

    return read


def antialiased(kind: str) -> Reader:
    """A product with the matrix of weights along each axis, which PyTorch says itself: what it makes of unit vectors"""
    op = getattr(torch.ops.aten, f"_upsample_{kind}2d_aa")

    def read(n: AtenNode) -> Results:
        x = n.x("input" if "input" in n.args else "self")
        sizes, factors = scales_of(n, x)
        for k, (size, scale) in enumerate(zip(sizes, factors, strict=True)):
            d = int(x.shape[2 + k])
            units = torch.eye(d, dtype=torch.float64)[None, None]
            weights = op(units, [int(size), d], bool(n["align_corners"]), scale, None)[0, 0].T
            x = along(n, x, 2 + k, weights.numpy())
        return x

    return read


def _whole_sizes(x: Value, sizes: list[int], factors: list[float | None]) -> bool:
    """Whether the factors are exactly what the sizes say"""
    return all(f is None or (factor(s, d) == f or factor(d, s) == 1 / f if is_open(d) else s == d * f)
               for d, s, f in zip(x.shape[2:], sizes, factors, strict=True))


def nearest(exact: bool) -> Reader:
    """PyTorch rounds coordinates in float32: it says itself which element is the nearest."""

    def read(n: AtenNode) -> Results:
        x = n.x("input" if "input" in n.args else "self")
        sizes, factors = scales_of(n, x)
        op = torch.ops.aten._upsample_nearest_exact1d if exact else torch.ops.aten.upsample_nearest1d
        if all(factor(s, d) for d, s in zip(x.shape[2:], sizes, strict=True)) and _whole_sizes(x, sizes, factors):
            return n.onnx("Resize", x, None, None, n.b.ints([*x.shape[:2], *sizes]), mode="nearest",
                          coordinate_transformation_mode="asymmetric", nearest_mode="floor")[0]
        for k, (size, scale) in enumerate(zip(sizes, factors, strict=True)):  # each size has places of its own
            places = torch.arange(int(x.shape[2 + k]), dtype=torch.float64).reshape(1, 1, -1)
            at = op(places, [int(size)], scale).reshape(-1).numpy().astype(np.int64)
            x = gather_const(n.b, x, at, 2 + k)
        return x

    return read


def grid_sample(n: AtenNode) -> Results:
    mode = ("linear", "nearest", "cubic")[n["interpolation_mode"]]
    padding = ("zeros", "border", "reflection")[n["padding_mode"]]
    return n.onnx("GridSample", n.x("input"), n.x("grid"), mode=mode, padding_mode=padding,
                  align_corners=int(n["align_corners"]))[0]


def col2im(n: AtenNode) -> Results:
    x, one = batched(n, 1)
    pads = n.ints("padding", 2)
    y = n.onnx("Col2Im", x, n.b.ints(n.ints("output_size")), n.b.ints(n.ints("kernel_size", 2)),
               dilations=n.ints("dilation", 2), pads=pads + pads, strides=n.ints("stride", 2))[0]
    return unbatched(n, y, one)


def im2col(n: AtenNode) -> Results:
    """Windows of an image as columns"""
    x, one = batched(n, 2)
    kernel, dilation, pad, stride = (n.ints(k, 2) for k in ("kernel_size", "dilation", "padding", "stride"))
    low = [0, 0, *pad]
    if any(pad):
        x = n.onnx("Pad", x, n.b.ints(low + low), mode="constant")[0]
    y = x
    for k in (1, 0):  # [n, c, h, ow, kw], then [n, c, oh, kh, ow, kw]
        y = windows(n, y, 2 + k, stride[k], np.arange(kernel[k]) * dilation[k])
    rows, columns = y.shape[2], y.shape[4]
    y = n.transpose(y, [0, 1, 3, 5, 2, 4])
    return unbatched(n, n.reshape(y, [*x.shape[:1], x.shape[1] * kernel[0] * kernel[1], rows * columns]), one)


READERS: dict[str, Reader] = {
    "avg_pool1d.default": avg_pool(1), "avg_pool2d.default": avg_pool(2), "avg_pool3d.default": avg_pool(3),
    "max_pool2d_with_indices.default": max_pool(2, True), "max_pool3d_with_indices.default": max_pool(3, True),
    "max_pool2d.default": max_pool(2, False), "max_pool3d.default": max_pool(3, False),
    "max_pool1d.default": max_pool(1, False), "max_pool1d_with_indices.default": max_pool(1, True),
    "adaptive_avg_pool1d.default": adaptive_avg_pool(1), "_adaptive_avg_pool2d.default": adaptive_avg_pool(2),
    "adaptive_avg_pool2d.default": adaptive_avg_pool(2), "_adaptive_avg_pool3d.default": adaptive_avg_pool(3),
    "adaptive_avg_pool3d.default": adaptive_avg_pool(3), "adaptive_max_pool1d.default": adaptive_max_pool(1),
    "adaptive_max_pool2d.default": adaptive_max_pool(2), "adaptive_max_pool3d.default": adaptive_max_pool(3),
    **{f"upsample_{k}.{o}": upsample(m) for k, m in (("linear1d", "linear"), ("bilinear2d", "linear"),
       ("trilinear3d", "linear"), ("bicubic2d", "cubic")) for o in ("vec", "default")},
    **{f"_upsample_{k}2d_aa.{o}": antialiased(k) for k in ("bilinear", "bicubic") for o in ("vec", "default")},
    **{f"upsample_nearest{d}d.{o}": nearest(False) for d in (1, 2, 3) for o in ("vec", "default")},
    **{f"_upsample_nearest_exact{d}d.{o}": nearest(True) for d in (1, 2, 3) for o in ("vec", "default")},
    "grid_sampler_2d.default": grid_sample, "grid_sampler_3d.default": grid_sample, "col2im.default": col2im,
    "im2col.default": im2col,
}  # fmt: skip
