"""Operators that read regions of images: RoiAlign, whose samples lie between pixels, and MaxRoiPool.

Where the number of samples depends on the size of a region, it is a routine: regions are data, and so is where its
loops end. It visits only the samples that lie in the image, so that no region, however large, takes longer than the
image has pixels.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from monobloc.errors import ModelError
from monobloc.ir.expr import Expr, Fn, all_of, call, cast, idx, lift, reduce, select
from monobloc.ir.graph import Node, Value
from monobloc.ir.types import DType, TensorType
from monobloc.ops import EXACT, Case, OpDef, Tol
from monobloc.ops.build import cast_to
from monobloc.ops.contract import NAN, NAN_LOST, Edge, f32, i32, i64
from monobloc.ops.indexing import checked, checked_c, index_dtype
from monobloc.ops.movement import clamp
from monobloc.ops.sample import work_type
from monobloc.ops.shape import only

Array = np.ndarray


def _aligned(ins: Sequence[Value | None], attrs: dict[str, Any]) -> TensorType:
    """The type of regions read from images, each from the image that an index names"""
    x, rois, at = (only(v, "RoiAlign") for v in ins)
    index_dtype(at, "RoiAlign")
    if x.type.rank != 4 or rois.type.rank != 2 or rois.shape[1] != 4 or at.shape != rois.shape[:1]:
        raise ModelError(f"RoiAlign of {x.type} with regions {rois.type} in images {at.type}")
    if 0 in x.shape:
        raise ModelError(f"RoiAlign of an empty tensor of shape {list(x.shape)}")
    return TensorType(x.dtype, (rois.shape[0], x.shape[1], *attrs["size"]))


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
        if samples < 0:
            n.fail(f"has a sampling_ratio of {samples}")
        shift = n.opset >= 16 and a.get("coordinate_transformation_mode", "half_pixel") == "half_pixel"
        attrs = {
            "size": [int(a.get("output_height", 1)), int(a.get("output_width", 1))], "samples": samples,
            "scale": float(a.get("spatial_scale", 1.0)), "half_pixel": int(shift), "mode": a.get("mode", "avg"),
        }  # fmt: skip
        if attrs["mode"] not in ("avg", "max"):
            n.fail(f"has the unknown mode {attrs['mode']!r}")
        if samples:
            return b.emit("RoiAlign", n.inputs, attrs)
        x, rois, at = n.inputs
        wide = work_type(x.dtype)
        y = b.one("RoiAlignAdaptive", cast_to(b, x, wide), cast_to(b, rois, wide), at, **attrs)
        return [cast_to(b, y, x.dtype)]

    def infer(self, ins: Sequence[Value | None], attrs: dict[str, Any]) -> list[TensorType]:
        return [_aligned(ins, attrs)]

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


Taps = list[tuple[int, float]]


class RoiAlignAdaptive(OpDef):
    """RoiAlign with as many samples in each cell as it has pixels, rounded up, along either axis"""

    name = "RoiAlignAdaptive"
    internal = True
    splits = True
    tol = Tol(1e-4, 1e-4)

    def infer(self, ins: Sequence[Value | None], attrs: dict[str, Any]) -> list[TensorType]:
        return [_aligned(ins, attrs)]

    def ref(self, attrs: dict[str, Any], *xs: Array | None) -> Array:
        x, rois, at = xs
        assert x is not None and rois is not None and at is not None
        out = np.zeros((len(rois), x.shape[1], *attrs["size"]), x.dtype)
        for r, (roi, image) in enumerate(zip(rois, at, strict=True)):
            rows, columns = (_samples(roi[1 - k], roi[3 - k], x.shape[2 + k], k, attrs) for k in range(2))
            for p, q in np.ndindex(*attrs["size"]):
                out[r, :, p, q] = _cell(x[image].astype(np.float64), rows[p], columns[q], attrs["mode"] == "max")
        return out

    def routine(self, n: Node, c: Any) -> str:
        x, rois, at = n.used
        t, (images, channels, height, width), (ph, pw) = x.dtype.c, x.shape, n.attrs["size"]
        best = n.attrs["mode"] == "max"
        (row_of, rows), (column_of, columns) = (
            _samples_c(a, 1 - k, x.shape[2 + k], n.attrs["size"][k], n.attrs) for k, a in enumerate("hw"))
        taps = ", ".join(f"p[{a} * {width} + {b}] * ({u} * {w})" for a, u in (("h0", "(1 - ht)"), ("h1", "ht"))
                         for b, w in (("w0", "(1 - wt)"), ("w1", "wt")))
        join = "all = all >= s[k] || all != all ? all : s[k];" if best else "all += s[k];"
        end = "y[to] = !(count > 0) || (seen < count && all < 0) ? 0 : all;" if best else (
            "y[to] = count > 0 ? all / count : 0;")
        return f"""\
typedef {t} T;
const T *x = {c.ptr(x)}, *rois = {c.ptr(rois)};
const {at.dtype.c} *at = {c.ptr(at)};
T *y = {c.ptr(n.outputs[0])};
for (long r = tid; r < {rois.shape[0]}; r += nt) {{
  long image = at[r];
  {checked_c("image", at, n.attrs, images)}
  {row_of}
  {column_of}
  const T count = h_n * w_n;
  for (long c = 0; c < {channels}; c++)
  for (long hc = 0; hc < {ph}; hc++)
  for (long wc = 0; wc < {pw}; wc++) {{
    const T *p = x + (image * {channels} + c) * {height * width};
    const long to = ((r * {channels} + c) * {ph} + hc) * {pw} + wc;
    T all = {"-__builtin_inf()" if best else "0"};
    T seen = 0;
    {rows}
    {columns}
      const T s[4] = {{{taps}}};
      for (int k = 0; k < 4; k++) {join}
      seen++;
    }}
    }}
    {end}
  }}
}}"""

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        x = rng.standard_normal((2, 3, 9, 8)).astype(np.float32)
        corner = rng.uniform(-3, 6, (6, 2))
        rois = np.concatenate([corner, corner + rng.uniform(0, 12, (6, 2))], 1).astype(np.float32)
        odd = f32([2, 2, 1, 1], [3, 3, 3, 3], [-20, -20, -9, -9], [-1e9, 0, 1e9, 4], [0, NAN, 3, 3], [0, 0, 1e38, 4])
        for mode, half in itertools.product(("avg", "max"), (0, 1)):
            attrs = {"size": [3, 2], "samples": 0, "scale": 0.75, "half_pixel": half, "mode": mode}
            yield Case((x, rois, i64(0, 1, -1, 0, 1, 1)), attrs, f"{mode}_{half}")
            yield Case((x, odd, i64(0, 1, 1, 0, 0, 1)), attrs, f"{mode}_{half}_odd")
        yield Case((x.astype(np.float64), rois.astype(np.float64), i64(0, 1, 1, 0, 1, 1)), attrs, "double")


def _extent(low: Any, high: Any, k: int, a: dict[str, Any]) -> tuple[Any, Any, Any]:
    """Where a region starts, a cell's size and the number of its samples: in the type of the region, since a step is
    what its rounding decides"""
    t = type(low)
    low, high = low * t(a["scale"]), high * t(a["scale"])
    if a["half_pixel"]:
        low, high = low - t(0.5), high - t(0.5)
    size = high - low
    if not a["half_pixel"] and not size > 1:
        size = t(1)
    cell = size / t(a["size"][k])
    count = np.ceil(cell)
    return low, cell, count if count >= 1 else t(0)


def _samples(low: Any, high: Any, size: int, k: int, a: dict[str, Any]) -> list[tuple[list[Taps], float]]:
    """For each cell its samples inside of an axis, each as two weighted pixels, and how many there are in all"""
    with np.errstate(all="ignore"):
        start, cell, count = map(float, _extent(low, high, k, a))
        out: list[tuple[list[Taps], float]] = []
        for c in range(a["size"][k]):
            origin, step = start + c * cell, np.float64(cell) / np.float64(count)
            first, last = (-1 - origin) / step - 1.5, (size - origin) / step + 1.5
            at = np.arange(0.0)
            if first < 1e9 and last > 0 and count:
                at = np.arange(max(first, 0) // 1, min(last, count))
            pos = origin + (at + 0.5) * step
            pos = np.clip(pos[(pos >= -1) & (pos <= size)], 0, size - 1)
            low_ = np.floor(pos).astype(np.int64)
            taps = zip(low_, np.minimum(low_ + 1, size - 1), pos - low_, strict=True)
            out.append(([[(int(i), 1 - t), (int(j), t)] for i, j, t in taps], count))
    return out


def _cell(x: Array, rows: tuple[list[Taps], float], columns: tuple[list[Taps], float], best: bool) -> Array:
    """One cell of all channels"""
    count = rows[1] * columns[1]
    parts = [x[:, i, j] * (u * w) for h, v in itertools.product(rows[0], columns[0])
             for (i, u), (j, w) in itertools.product(h, v)]
    if not count > 0 or not parts:
        return np.zeros(x.shape[0])
    if not best:
        return np.asarray(np.sum(parts, 0) / count)
    beyond = [np.zeros(x.shape[0])] if len(rows[0]) * len(columns[0]) < count else []
    return np.asarray(np.max([*parts, *beyond], 0))


def _samples_c(a: str, k: int, size: int, cells: int, attrs: dict[str, Any]) -> tuple[str, str]:
    """C along the axis called `a`, whose ends are the numbers k and k + 2 of a region: what each region needs, and the
    head of a loop over the samples of cell `{a}c`. Assignments of their own are not contracted."""
    half, scale, far = attrs["half_pixel"], f"(T){float(attrs['scale'])!r}", 10**9
    shift = f"{a}_low = {a}_low - (T)0.5; {a}_end = {a}_end - (T)0.5;" if half else ""
    least = "" if half else f"{a}_size = {a}_size > 1 ? {a}_size : 1;"
    region = f"""\
T {a}_low = rois[r * 4 + {k}] * {scale}, {a}_end = rois[r * 4 + {k + 2}] * {scale};
  {shift}
  T {a}_size = {a}_end - {a}_low;
  {least}
  const T {a}_cell = {a}_size / (T){cells};
  T {a}_n = mb_ceil({a}_cell);
  {a}_n = {a}_n >= 1 ? {a}_n : 0;
  const double {a}_step = (double){a}_cell / (double){a}_n;"""
    loop = f"""\
const double {a}_from = (double){a}_low + {a}c * (double){a}_cell;
    const double {a}_first = (-1 - {a}_from) / {a}_step - 1.5, {a}_last = ({size} - {a}_from) / {a}_step + 1.5;
    const int {a}_any = {a}_n > 0 && {a}_first < {far} && {a}_last > 0;
    const double {a}_most = {a}_last + 1 < {a}_n ? {a}_last + 1 : {a}_n;
    const long {a}_stop = !{a}_any ? 0 : {a}_most < {far} ? (long){a}_most : {far};
    for (long {a}_s = {a}_any && {a}_first > 0 ? (long){a}_first : 0; {a}_s < {a}_stop; {a}_s++) {{
      double {a}_at = {a}_from + ({a}_s + 0.5) * {a}_step;
      if (!({a}_at >= -1 && {a}_at <= {size})) continue;
      {a}_at = {a}_at > 0 ? {a}_at : 0;
      {a}_at = {a}_at < {size - 1} ? {a}_at : {size - 1};
      const long {a}0 = (long){a}_at, {a}1 = {a}0 < {size - 1} ? {a}0 + 1 : {a}0;
      const T {a}t = {a}_at - {a}0;"""
    return region, loop


class CropAndResize(OpDef):
    """Regions, of corners between 0 and 1, resized so that their corners are the crops'; beyond the image a number"""

    name = "CropAndResize"
    domain = "com.microsoft"
    example = {"size": [1, 2], "mode": "bilinear", "outside": 5.0}
    edges = (
        Edge("indices", "a batch that is none makes the run fail",
             (np.ones((1, 1, 2, 2), np.float32), f32([0, 0, 1, 1]), i32(1)), ()),
        Edge("NaN", "a region of NaN lies beyond the image", (np.ones((1, 1, 2, 2), np.float32), f32([NAN, 0, 1, 1]),
             i32(0)), (f32(5, 5).reshape(1, 1, 1, 2),)),
    )
    tol = Tol(1e-4, 1e-4)

    def from_onnx(self, b: Any, n: Any) -> Sequence[Value | None]:
        size, mode = n.ints(3), n.attrs.get("mode", "bilinear")
        if mode not in ("bilinear", "nearest") or len(size) != 2 or min(size) < 1:
            n.fail(f"has the crop size {size} and the mode {mode!r}, must be bilinear or nearest")
        outside = float(n.attrs.get("extrapolation_value", 0.0))
        return b.emit(self.name, n.inputs[:3], {"size": size, "mode": mode, "outside": outside})

    def infer(self, ins: Sequence[Value | None], attrs: dict[str, Any]) -> list[TensorType]:
        return [_aligned(ins, attrs)]

    def ref(self, attrs: dict[str, Any], *xs: Array | None) -> Array:
        x, rois, at = xs
        assert x is not None and rois is not None and at is not None
        ends = rois.astype(work_type(DType.of(rois.dtype)).numpy)  # whose rounding decides ties
        axes = []
        for k, (cells, n) in enumerate(zip(attrs["size"], x.shape[2:], strict=True)):
            low, high = ends[:, k], ends[:, 2 + k]
            step = (high - low) * (n - 1) / ends.dtype.type(max(cells - 1, 1))
            pos = low[:, None] * (n - 1) + np.arange(cells, dtype=ends.dtype) * step[:, None]
            pos = pos if cells > 1 else (low + high)[:, None] * (0.5 * (n - 1))
            ok = (pos >= 0) & (pos <= n - 1)
            axes.append((np.where(ok, pos, 0), ok))
        ok = axes[0][1][:, :, None] & axes[1][1][:, None, :]
        parts: Any = 0.0
        for (i, u), (j, w) in itertools.product(*(self._ends(pos, attrs["mode"]) for pos, _ in axes)):
            i, j, weight = i[:, :, None], j[:, None, :], u[:, :, None] * w[:, None, :]
            data = np.moveaxis(x.astype(np.float64), 1, -1)[at.reshape(-1, 1, 1), i, j]
            parts = parts + np.where(weight[..., None] == 0, 0, data * weight[..., None])
        return np.moveaxis(np.where(ok[..., None], parts, attrs["outside"]), -1, 1).astype(x.dtype)

    def _ends(self, pos: Array, mode: str) -> list[tuple[Array, Array]]:
        """Pixels and their weights"""
        low = np.floor(pos + 0.5 * (mode == "nearest")).astype(np.int64)
        return [(low, np.ones(pos.shape))] if mode == "nearest" else [
            (low, 1 - (pos - low)), (np.ceil(pos).astype(np.int64), pos - low)]

    def expr(self, n: Node, *xs: Fn | None) -> Fn:
        x, rois, at = xs
        assert x is not None and rois is not None and at is not None
        v, a = n.used[0], n.attrs
        work = work_type(v.dtype)
        image = checked(at, n.used[2], v.shape[0], a)

        def axis(k: int, roi: Expr, cell: Expr) -> tuple[Expr, list[tuple[Expr, Expr]]]:
            n, cells = v.shape[2 + k], a["size"][k]
            low, high = (cast(rois(roi, idx(j)), work) for j in (k, 2 + k))
            raw = (low + high) * (0.5 * (n - 1))
            if cells > 1:  # in the order of onnxruntime, so that ties are the same
                raw = low * (n - 1) + cast(cell, work) * call("div", (high - low) * (n - 1), lift(cells - 1, work))
            ok = all_of((raw.ge(0), raw.le(n - 1)))
            pos = select(ok, raw, lift(0, work))
            floor = call("floor", pos + 0.5 if a["mode"] == "nearest" else pos)
            first, t = clamp(cast(floor, DType.I64), n), pos - floor
            if a["mode"] == "nearest":
                return ok, [(first, lift(1, work))]
            return ok, [(first, 1 - t), (clamp(cast(call("ceil", pos), DType.I64), n), t)]

        def value(*i: Expr) -> Expr:
            roi, c, *cell = i
            (inside_h, rows), (inside_w, columns) = (axis(k, roi, cell[k]) for k in range(2))
            total = lift(0, work)
            for (p, u), (q, w) in itertools.product(rows, columns):
                weight = u * w
                total = total + select(weight.eq(0), lift(0, work), cast(x(image(roi), c, p, q), work) * weight)
            return cast(select(all_of((inside_h, inside_w)), total, lift(a["outside"], work)), v.dtype)

        return value

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        x = rng.standard_normal((2, 3, 7, 6)).astype(np.float32)
        rois = rng.uniform(-0.2, 1.2, (4, 4)).astype(np.float32)
        rois[0] = 0, 0, 1, 1
        at = np.array([0, 1, 1, 0], np.int32)
        for mode, size in (("bilinear", [3, 4]), ("nearest", [4, 3]), ("bilinear", [1, 2])):
            yield Case((x, rois, at), {"size": size, "mode": mode, "outside": 0.5}, f"{mode}_{size[0]}")


class MaxRoiPool(OpDef):
    """The largest element of each cell of a region, whose corners are rounded to pixels"""

    name = "MaxRoiPool"
    splits = True
    tol = EXACT
    example = {"pooled_shape": [1, 1], "spatial_scale": 1.0}
    edges = (
        Edge("NaN", "stays", (f32(1, NAN, 0, 2).reshape(1, 1, 2, 2), f32([0, 0, 0, 1, 1])),
             (f32(NAN).reshape(1, 1, 1, 1),)).differs("onnxruntime", "gives the largest number", NAN_LOST),
        Edge("indices", "an image that is none makes the run fail",
             (np.ones((1, 1, 2, 2), np.float32), f32([1, 0, 0, 1, 1]))),
        Edge("nothing", "a cell outside of the image is 0", (np.ones((1, 1, 2, 2), np.float32), f32([0, 7, 7, 9, 9])),
             (f32(0).reshape(1, 1, 1, 1),)),
    )

    def from_onnx(self, b: Any, n: Any) -> Sequence[Value | None]:
        x, rois = n.inputs
        size = n.ints("pooled_shape")
        if len(size) != 2 or min(size) < 1:
            n.fail(f"has the pooled_shape {size}, must be two positive sizes")
        attrs = {"pooled_shape": size, "spatial_scale": float(n.attrs.get("spatial_scale", 1.0))}
        wide = work_type(x.dtype)
        return [cast_to(b, b.one("MaxRoiPool", cast_to(b, x, wide), cast_to(b, rois, wide), **attrs), x.dtype)]

    def infer(self, ins: Sequence[Value | None], attrs: dict[str, Any]) -> list[TensorType]:
        x, rois = (only(v, self.name) for v in ins)
        if x.type.rank != 4 or 0 in x.shape or rois.type.rank != 2 or rois.shape[1] != 5:
            raise ModelError(f"MaxRoiPool of {x.type} with regions {rois.type}, which must be [regions, 5]")
        return [TensorType(x.dtype, (rois.shape[0], x.shape[1], *attrs["pooled_shape"]))]

    def ref(self, attrs: dict[str, Any], *xs: Array | None) -> Array:
        x, rois = xs
        assert x is not None and rois is not None
        t = rois.dtype.type
        out = np.zeros((len(rois), x.shape[1], *attrs["pooled_shape"]), x.dtype)
        for r, roi in enumerate(rois):
            ends = [math.copysign(math.floor(abs(v) + 0.5), v) for v in (roi[1:] * t(attrs["spatial_scale"])).tolist()]
            for p in np.ndindex(*attrs["pooled_shape"]):
                spans = []
                for k, size in enumerate(x.shape[2:]):
                    low, high = ends[1 - k], ends[3 - k]
                    cell = t(max(high - low + 1, 1)) / t(attrs["pooled_shape"][k])
                    edges = np.floor(t(p[k]) * cell), np.ceil(t(p[k] + 1) * cell)
                    spans.append(slice(*(int(min(max(float(e) + low, 0), size)) for e in edges)))
                part = x[int(roi[0]), :, spans[0], spans[1]].reshape(x.shape[1], -1)
                out[(r, slice(None), *p)] = part.max(1) if part.size else 0
        return out

    def routine(self, n: Node, c: Any) -> str:
        x, rois = n.used
        t, (images, channels, height, width), (ph, pw) = x.dtype.c, x.shape, n.attrs["pooled_shape"]
        scale = repr(float(n.attrs["spatial_scale"]))

        def axis(a: str, k: int, size: int, cells: int) -> tuple[str, str]:
            """The ends of a region in pixels, and those of a cell in the image"""
            ends = " ".join(f"T {a}{e} = roi[{j}] * (T){scale}; {a}{e} = {a}{e} < 0 ? mb_ceil({a}{e} - (T)0.5) : "
                            f"mb_floor({a}{e} + (T)0.5);" for e, j in (("_low", k), ("_end", k + 2)))
            bound = " ".join(
                f"double {a}{e} = {up}((T)({a}c{more}) * {a}_cell); {a}{e} = {a}{e} + {a}_low; "
                f"{a}{e} = {a}{e} > 0 ? {a}{e} : 0; {a}{e} = {a}{e} < {size} ? {a}{e} : {size};"
                for e, up, more in (("0", "mb_floor", ""), ("1", "mb_ceil", " + 1")))
            cell = f"T {a}_cell = {a}_end - {a}_low + 1; {a}_cell = ({a}_cell > 1 ? {a}_cell : 1) / {cells};"
            return f"{ends} {cell}", bound

        (row_of, rows), (column_of, columns) = axis("h", 2, height, ph), axis("w", 1, width, pw)
        return f"""\
typedef {t} T;
const T *x = {c.ptr(x)};
T *y = {c.ptr(n.outputs[0])};
for (long r = tid; r < {rois.shape[0]}; r += nt) {{
  const T *roi = (const T *){c.ptr(rois)} + r * 5;
  if (!(roi[0] >= 0 && roi[0] < {images})) return MB_E_INDEX;
  const long image = (long)roi[0];
  {row_of}
  {column_of}
  for (long c = 0; c < {channels}; c++)
  for (long hc = 0; hc < {ph}; hc++)
  for (long wc = 0; wc < {pw}; wc++) {{
    const T *p = x + (image * {channels} + c) * {height * width};
    {rows}
    {columns}
    T all = h0 < h1 && w0 < w1 ? p[(long)h0 * {width} + (long)w0] : 0;
    for (long i = h0; i < h1; i++)
    for (long j = w0; j < w1; j++) {{
      const T e = p[i * {width} + j];
      all = all >= e || all != all ? all : e;
    }}
    y[((r * {channels} + c) * {ph} + hc) * {pw} + wc] = all;
  }}
}}"""

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        x = rng.standard_normal((2, 3, 9, 8)).astype(np.float32)
        corner = rng.uniform(-3, 12, (6, 2))
        rois = np.concatenate([f32([0], [1], [1], [0], [0], [1]), corner, corner + rng.uniform(-2, 12, (6, 2))], 1)
        for scale in (1.0, 0.5, 0.3):
            yield Case((x, rois.astype(np.float32)), {"pooled_shape": [3, 2], "spatial_scale": scale}, f"by_{scale}")
        far = f32([0, -1e9, 0, 1e9, 4], [1, 0, 0, 1e30, 1e30], [1, 2.5, 1.5, 2.5, 1.5])
        yield Case((x, far), {"pooled_shape": [2, 2], "spatial_scale": 1.0}, "far")
        yield Case((x.astype(np.float64), rois), {"pooled_shape": [1, 4], "spatial_scale": 0.7}, "double")
