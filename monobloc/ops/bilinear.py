"""Operators that read an image between its elements: DeformConv and RoiAlign.

DeformConv is two steps, so that its sum is a matrix product: `DeformSample` reads every tap of every
position once per input channel, then the weights meet the taps as in any convolution.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from monobloc.errors import ModelError
from monobloc.ir.expr import Expr, Fn, all_of, call, cast, floordiv, floormod, idx, lift, reduce, select
from monobloc.ir.graph import Node, Value
from monobloc.ir.types import DType, TensorType
from monobloc.ops import Case, OpDef, Tol
from monobloc.ops.contract import NAN, Edge, f32, i64
from monobloc.ops.conv import conv_attrs, conv_shape
from monobloc.ops.indexing import checked, index_dtype
from monobloc.ops.movement import clamp
from monobloc.ops.pool import window
from monobloc.ops.sample import FAR, work_type
from monobloc.ops.shape import only

Array = np.ndarray


def limited(c: Expr) -> Expr:
    """A coordinate that an integer can hold; NaN is like one far below."""
    c = select(c.ge(-FAR), c, lift(-FAR, c.dtype))
    return select(c.le(FAR), c, lift(FAR, c.dtype))


def np_limited(c: Array) -> Array:
    return np.clip(np.where(np.isnan(c), -FAR, c), -FAR, FAR)


class DeformSample(OpDef):
    """[n, c, taps, rows, columns]: x at each tap's position plus its offset, times its mask; 0 outside."""

    name = "DeformSample"
    internal = True
    tol = Tol(1e-4, 1e-4)

    def infer(self, ins: Sequence[Value | None], attrs: dict[str, Any]) -> list[TensorType]:
        x, offset = only(ins[0], "DeformConv"), only(ins[1], "DeformConv")
        kh, kw = attrs["kernel_shape"]
        return [TensorType(x.dtype, (*x.shape[:2], kh * kw, *offset.shape[2:]))]

    def ref(self, attrs: dict[str, Any], *xs: Array | None) -> Array:
        x, offset, mask = [*xs, None][:3]
        assert x is not None and offset is not None
        (kh, kw), groups = attrs["kernel_shape"], attrs["offset_group"]
        n, c, h, w = x.shape
        oh, ow = offset.shape[2:]
        off = offset.astype(np.float64).reshape(n, groups, kh * kw, 2, oh, ow)
        tap = np.arange(kh * kw)[:, None, None]
        base = []
        for axis, (at, size) in enumerate(((tap // kw, oh), (tap % kw, ow))):
            steps = np.arange(size).reshape((1, -1, 1) if axis == 0 else (1, 1, -1)) * attrs["strides"][axis]
            base.append(at * attrs["dilations"][axis] + steps - attrs["pads"][axis])
        pos = [np.repeat(np_limited(off[:, :, :, k] + base[k]), c // groups, 1) for k in range(2)]
        low = [np.floor(p).astype(np.int64) for p in pos]
        b, ch = np.arange(n).reshape(-1, 1, 1, 1, 1), np.arange(c).reshape(1, -1, 1, 1, 1)
        total: Any = 0.0
        for dy, dx in itertools.product((0, 1), (0, 1)):
            i, j = low[0] + dy, low[1] + dx
            ok = (i >= 0) & (i < h) & (j >= 0) & (j < w)
            weight = (1 - np.abs(pos[0] - i)) * (1 - np.abs(pos[1] - j))
            data = x.astype(np.float64)[b, ch, np.clip(i, 0, h - 1), np.clip(j, 0, w - 1)]
            total = total + np.where(ok, data * weight, 0)
        if mask is not None:
            m = mask.astype(np.float64).reshape(n, groups, kh * kw, oh, ow)
            total = total * np.repeat(m, c // groups, 1)
        return np.asarray(total).astype(x.dtype)

    def expr(self, n: Node, *xs: Fn | None) -> Fn:
        x, offset, mask = [*xs, None][:3]
        v = n.used[0]
        assert x is not None and offset is not None
        a, work, (h, w) = n.attrs, work_type(v.dtype), v.shape[2:]
        kh, kw = a["kernel_shape"]
        share = v.shape[1] // a["offset_group"]

        def at(*i: Expr) -> Expr:
            b, c, t, *spot = i
            group = floordiv(c, share) * (kh * kw) + t
            taps = []
            for k, (tap, size) in enumerate(((floordiv(t, kw), h), (floormod(t, kw), w))):
                place = tap * a["dilations"][k] + spot[k] * a["strides"][k] - a["pads"][k]
                pos = limited(cast(place, work) + cast(offset(b, group * 2 + k, *spot), work))
                taps.append(_taps(pos, size))
            e = _weighted(lambda i, j: cast(x(b, c, i, j), work), taps, work)
            return cast(e if mask is None else e * cast(mask(b, group, *spot), work), v.dtype)

        return at

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        x = rng.standard_normal((2, 4, 5, 6)).astype(np.float32)
        attrs = window([3, 2], [1, 2], [1, 0, 1, 1], [1, 1]) | {"offset_group": 2}
        offset = rng.uniform(-2, 2, (2, 2 * 6 * 2, 5, 3)).astype(np.float32)
        mask = rng.uniform(0, 1, (2, 2 * 6, 5, 3)).astype(np.float32)
        yield Case((x, offset), attrs, "plain")
        yield Case((x, offset, mask), attrs, "mask")
        far = offset.copy()
        far[0, :3] = np.array([np.nan, np.inf, -1e30], np.float32)[:, None, None]
        yield Case((x, far, mask), attrs, "far")


def _taps(pos: Expr, n: int) -> list[tuple[Expr, Expr, Expr]]:
    """(position moved inside, whether it was inside, weight) of the two neighbours"""
    low = call("floor", pos)
    base, t = cast(low, DType.I64), pos - low
    weights: tuple[Any, Any] = (1 - t, t)
    return [(clamp(p, n), all_of((p.ge(0), p.lt(n))), w) for p, w in zip((base, base + 1), weights, strict=True)]


def _weighted(read: Any, taps: list[list[tuple[Expr, Expr, Expr]]], work: DType) -> Expr:
    total: Expr | None = None
    for (i, iok, iw), (j, jok, jw) in itertools.product(*taps):
        e = select(all_of((iok, jok)), read(i, j) * (iw * jw), lift(0, work))
        total = e if total is None else total + e
    assert total is not None
    return total


class DeformConv(OpDef):
    """Vanishes: DeformSample and a product of matrices"""

    name = "DeformConv"

    def from_onnx(self, b: Any, n: Any) -> Sequence[Value | None]:
        x, w, offset, bias, mask = [*n.inputs, None, None][:5]
        attrs = conv_attrs(n, x, w)
        if x.type.rank != 4:
            n.unsupported(f"DeformConv of {x.type.rank - 2} spatial axes")
        out = conv_shape("DeformConv", x, w, bias, attrs)
        groups, og, taps = attrs["group"], int(n.attrs.get("offset_group", 1)), int(np.prod(w.shape[2:]))
        for what, v, count in (("offset", offset, 2 * taps * og), ("mask", mask, taps * og)):
            if v is not None and v.shape != (x.shape[0], count, *out[2:]):
                n.fail(f"{what} is {list(v.shape)}, but must be {[x.shape[0], count, *out[2:]]}")
        if og < 1 or x.shape[1] % og:
            n.fail(f"{x.shape[1]} channels do not divide into {og} offset groups")
        given = [x, offset] if mask is None else [x, offset, mask]
        cols = b.emit("DeformSample", given, {k: v for k, v in attrs.items() if k != "group"} | {"offset_group": og})[0]
        depth, spots = w.shape[1] * taps, out[2] * out[3]
        cols = b.one("Reshape", cols, shape=[x.shape[0], groups, depth, spots])
        y = b.one("MatMul", b.one("Reshape", w, shape=[groups, w.shape[0] // groups, depth]), cols)
        y = b.one("Reshape", y, shape=list(out))
        return [y if bias is None else b.one("Add", y, b.one("Reshape", bias, shape=[-1, 1, 1]))]


class RoiAlign(OpDef):
    """[rois, channels, rows, columns]: each cell the mean (or maximum) of samples, spread evenly over it"""

    name = "RoiAlign"
    example = {"size": [1, 1], "samples": 1, "scale": 1.0, "half_pixel": 0, "mode": "avg"}
    edges = (
        Edge("indices", "a batch that is none makes the run fail",
             (np.ones((1, 1, 2, 2), np.float32), f32([0, 0, 1, 1]), i64(1)), ()),
        Edge("NaN", "stays in the image", (np.full((1, 1, 2, 2), NAN, np.float32), f32([0, 0, 1, 1]), i64(0)),
             (f32(NAN).reshape(1, 1, 1, 1),)),
    )
    tol = Tol(1e-4, 1e-4)

    def from_onnx(self, b: Any, n: Any) -> Sequence[Value | None]:
        a = n.attrs
        samples = int(a.get("sampling_ratio", 0))
        if samples < 1:
            n.unsupported("RoiAlign with a number of samples that depends on the region (sampling_ratio=0)")
        shift = n.opset >= 16 and a.get("coordinate_transformation_mode", "half_pixel") == "half_pixel"
        attrs = {
            "size": [int(a.get("output_height", 1)), int(a.get("output_width", 1))], "samples": samples,
            "scale": float(a.get("spatial_scale", 1.0)), "half_pixel": int(shift), "mode": a.get("mode", "avg"),
        }  # fmt: skip
        if attrs["mode"] not in ("avg", "max"):
            n.fail(f"has the unknown mode {attrs['mode']!r}")
        return b.emit("RoiAlign", n.inputs, attrs)

    def infer(self, ins: Sequence[Value | None], attrs: dict[str, Any]) -> list[TensorType]:
        x, rois, at = (only(v, self.name) for v in ins)
        index_dtype(at, self.name)
        if x.type.rank != 4 or rois.type.rank != 2 or rois.shape[1] != 4 or at.shape != rois.shape[:1]:
            raise ModelError(f"RoiAlign of {x.type} with regions {rois.type} in images {at.type}")
        if 0 in x.shape:
            raise ModelError(f"RoiAlign of an empty tensor of shape {list(x.shape)}")
        return [TensorType(x.dtype, (rois.shape[0], x.shape[1], *attrs["size"]))]

    def ref(self, attrs: dict[str, Any], *xs: Array | None) -> Array:
        x, rois, at = xs
        assert x is not None and rois is not None and at is not None
        s, taps = attrs["samples"], []
        for k, n in enumerate(x.shape[2:]):
            ends = (rois[:, j].astype(np.float64) for j in (1 - k, 3 - k))
            low, high = (e * attrs["scale"] - 0.5 * attrs["half_pixel"] for e in ends)
            size = high - low if attrs["half_pixel"] else np.maximum(high - low, 1.0)
            cell, sample = np.arange(attrs["size"][k]), np.arange(s)
            steps = cell[:, None] + (sample[None, :] + 0.5) / s
            pos = low[:, None, None] + steps * (size / attrs["size"][k])[:, None, None]
            ok = (pos >= -1) & (pos <= n)
            pos = np.where(ok, np.clip(pos, 0, n - 1), 0)
            first = np.floor(pos).astype(np.int64)
            t = pos - first
            taps.append([(first, ok * (1 - t)), (np.minimum(first + 1, n - 1), ok * t)])
        parts = []
        for (i, wi), (j, wj) in itertools.product(*taps):  # [rois, cells, samples] of both axes
            i, wi = i[:, :, None, :, None], wi[:, :, None, :, None]
            j, wj = j[:, None, :, None, :], wj[:, None, :, None, :]
            data = np.moveaxis(x.astype(np.float64), 1, -1)[at.reshape(-1, 1, 1, 1, 1), i, j]
            parts.append(data * (wi * wj)[..., None])
        y = np.max(parts, 0).max((3, 4)) if attrs["mode"] == "max" else np.sum(parts, 0).mean((3, 4))
        return np.moveaxis(y, -1, 1).astype(x.dtype)

    def expr(self, n: Node, *xs: Fn | None) -> Fn:
        x, rois, at = xs
        assert x is not None and rois is not None and at is not None
        v, a = n.used[0], n.attrs
        work, s = work_type(v.dtype), a["samples"]
        image = checked(at, n.used[2], v.shape[0], a)

        def axis(k: int, roi: Expr, cell: Expr, sample: Expr) -> list[tuple[Expr, Expr]]:
            n = v.shape[2 + k]
            low, high = (cast(rois(roi, idx(j)), work) * a["scale"] - 0.5 * a["half_pixel"] for j in (1 - k, 3 - k))
            size = high - low if a["half_pixel"] else call("max", lift(1.0, work), high - low)
            step = cast(cell, work) + (cast(sample, work) + 0.5) * (1 / s)
            raw = low + step * (size * (1 / a["size"][k]))
            ok = all_of((raw.ge(-1), raw.le(n)))
            pos = select(ok, call("min", lift(n - 1, work), call("max", lift(0, work), raw)), lift(0, work))
            low_at = call("floor", pos)
            first, t, none = cast(low_at, DType.I64), pos - low_at, lift(0, work)
            taps = ((clamp(first, n), 1 - t), (clamp(first + 1, n), t))
            return [(p, select(ok, w, none)) for p, w in taps]

        def value(*i: Expr) -> Expr:
            roi, c, *cell = i

            def one(*sample: Expr) -> Expr:
                parts = [
                    cast(x(image(roi), c, p, q), work) * (u * w)
                    for (p, u), (q, w) in itertools.product(*(axis(k, roi, cell[k], sample[k]) for k in range(2)))
                ]
                total = parts[0]
                for e in parts[1:]:
                    total = call("max", total, e) if a["mode"] == "max" else total + e
                return total

            e = reduce("max" if a["mode"] == "max" else "sum", (s, s), one)
            return cast(e if a["mode"] == "max" else e * (1 / (s * s)), v.dtype)

        return value

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        x = rng.standard_normal((2, 3, 7, 6)).astype(np.float32)
        corner = rng.uniform(-1, 4, (4, 2))
        rois = np.concatenate([corner, corner + rng.uniform(0, 5, (4, 2))], 1).astype(np.float32)
        at = np.array([0, 1, 1, 0])
        for mode, half in itertools.product(("avg", "max"), (0, 1)):
            attrs = {"size": [3, 2], "samples": 2, "scale": 0.75, "half_pixel": half, "mode": mode}
            yield Case((x, rois, at), attrs, f"{mode}_{half}")
