"""Resize and Upsample: every mode becomes index and weight tables, made while the model is read.

Interpolation is separable: along one axis an output element is a weighted sum of `taps` elements.
Coordinate modes, rounding, cubic coefficients, borders, `exclude_outside` and antialiasing only
decide what the tables hold. An axis of nearest mode whose table is `(i * mul + add) // div` (all
whole factors are) keeps these three numbers instead, so that the index melts into a consumer's loop.

Of a size that a run chooses and that is scaled by a whole factor, a table for the largest serves all: no position
depends on the size but where it is moved into the axis, which happens where it is read.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from monobloc.errors import ModelError
from monobloc.ir.expr import BOOL, Expr, Fn, Num, call, cast, floordiv, idx, lift, reduce, select
from monobloc.ir.graph import Node, Value
from monobloc.ir.symbolic import factor, is_open, lower, upper, whole
from monobloc.ir.types import DType, TensorType
from monobloc.ops import Case, OpDef, Tol
from monobloc.ops.contract import NAN, Edge, f32
from monobloc.ops.movement import clamp
from monobloc.ops.shape import axes_of, only

Array = np.ndarray
NEAREST_MODES = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil", "simple")
COORDINATES = (
    "half_pixel",
    "half_pixel_symmetric",
    "pytorch_half_pixel",
    "align_corners",
    "asymmetric",
    "tf_half_pixel_for_nn",
    "tf_crop_and_resize",
)
UNROLL = 4  # up to so many taps are written out instead of folded


@dataclass(frozen=True)
class Rule:
    """How one axis is resized."""

    n_in: int
    n_out: int
    scale: float
    mode: str
    coordinates: str
    nearest: str = "round_prefer_floor"
    cubic_a: float = -0.75
    exclude_outside: bool = False
    antialias: bool = False
    roi: tuple[float, float] = (0.0, 1.0)

    @property
    def is_identity(self) -> bool:
        return self.n_in == self.n_out and self.scale == 1 and self.coordinates != "tf_crop_and_resize"


# -- tables -----------------------------------------------------------------------------------------------
def source_coordinates(r: Rule, dtype: type = np.float64) -> Array:
    """Where each output position lies on the input axis."""
    x: Array = np.arange(r.n_out, dtype=dtype)
    scale, half = dtype(r.scale), dtype(0.5)
    if r.coordinates == "asymmetric":
        return x / scale
    if r.coordinates == "tf_half_pixel_for_nn":
        return (x + half) / scale
    if r.coordinates == "align_corners":
        return x * 0 if r.n_out == 1 else x * dtype(r.n_in - 1) / dtype(r.n_out - 1)
    if r.coordinates == "tf_crop_and_resize":
        start, end = r.roi
        if r.n_out == 1:
            return x * 0 + dtype((start + end) * (r.n_in - 1) / 2)
        return dtype(start * (r.n_in - 1)) + x * dtype((end - start) * (r.n_in - 1) / (r.n_out - 1))
    centre = (x + half) / scale - half
    if r.coordinates == "pytorch_half_pixel" and r.n_out == 1:
        return x * 0
    if r.coordinates == "half_pixel_symmetric":
        return centre + dtype(r.n_in / 2 * (1 - r.n_out / (r.scale * r.n_in)))
    return centre


def nearest_table(r: Rule) -> Array:
    """Input position per output position; in float32, where runtimes decide what a tie is."""
    x = source_coordinates(r, np.float32)
    half = np.float32(0.5)
    kind = ("ceil" if r.scale < 1 else "floor") if r.nearest == "simple" else r.nearest
    at = {
        "floor": np.floor(x),
        "ceil": np.ceil(x),
        "round_prefer_floor": np.ceil(x - half),
        "round_prefer_ceil": np.floor(x + half),
    }[kind]
    return np.clip(at, 0, r.n_in - 1).astype(np.int32)


def _cubic(x: Array, a: float) -> Array:
    x = np.abs(x)
    near = ((a + 2) * x - (a + 3)) * x * x + 1
    far = ((a * x - 5 * a) * x + 8 * a) * x - 4 * a
    return np.where(x <= 1, near, np.where(x < 2, far, 0.0))


def weight_table(r: Rule) -> tuple[Array, Array]:
    """(positions, weights), each [n_out, taps], of linear or cubic interpolation."""
    x = source_coordinates(r)
    left = np.ceil(x) - 1  # the offset from it is in (0, 1]
    shrink = min(r.scale, 1.0) if r.antialias else 1.0
    reach = 1 if r.mode == "linear" else 2
    first = math.floor(-reach / shrink) + 1
    steps = np.arange(first, 2 - first)
    offset = steps[None, :] - (x - left)[:, None]
    w = np.clip(1 - np.abs(offset * shrink), 0, 1) if r.mode == "linear" else _cubic(offset * shrink, r.cubic_a)
    at = (left[:, None] + steps[None, :]).astype(np.int64)
    if r.exclude_outside:
        w = np.where((at < 0) | (at >= r.n_in), 0.0, w)
    if r.exclude_outside or r.antialias:
        w = w / w.sum(1, keepdims=True)
    return np.clip(at, 0, r.n_in - 1).astype(np.int32), w


def closed_rule(r: Rule) -> Rule:
    """A rule whose tables serve every size that this one's axis may have; where none does, for one size."""
    if not is_open(r.n_in) and not is_open(r.n_out):
        return r
    alone = r.coordinates in ("half_pixel", "asymmetric", "tf_half_pixel_for_nn") or (
        r.coordinates == "pytorch_half_pixel" and lower(r.n_out) > 1)
    if alone and not r.exclude_outside and not r.antialias:
        return replace(r, n_in=upper(r.n_in), n_out=upper(r.n_out))
    return replace(r, n_in=int(r.n_in), n_out=int(r.n_out))


def tables(r: Rule) -> tuple[Array, Array | None]:
    """Positions and weights (none: nearest); a first position of -1 marks what lies outside a crop."""
    at, w = (nearest_table(r)[:, None], None) if r.mode == "nearest" else weight_table(r)
    if r.coordinates == "tf_crop_and_resize":
        x = source_coordinates(r)
        at[(x < 0) | (x > r.n_in - 1), 0] = -1
    return at, w


def affine(at: Array, r: Rule) -> list[int] | None:
    """[mul, add, div] with table = clip((i * mul + add) // div), when there are such"""
    g = math.gcd(r.n_in, r.n_out)
    p, q = r.n_in // g, r.n_out // g
    i = np.arange(r.n_out, dtype=np.int64)
    for add in (0, 2 * q - 1, q, q - 1, p - q, p + q - 1, p, p - 1):
        if (np.clip((i * 2 * p + add) // (2 * q), 0, r.n_in - 1) == at).all():
            common = math.gcd(2 * p, 2 * q)
            return [2 * p // common, add // common, 2 * q // common]
    return None


# -- the operator -----------------------------------------------------------------------------------------
class Resize(OpDef):
    """Weighted sums along `axes`, which get `sizes` elements.

    Inputs x, then positions [size, taps] and weights [size, taps] per axis; both are absent where
    `rules` has [mul, add, div], the weights alone in nearest mode. `extrapolation` is the value where a
    first position is -1 (none: no position is).
    """

    name = "Resize"
    example = {"axes": [0], "sizes": [4], "rules": [[1, 0, 2]], "extrapolation": None}
    edges = (
        Edge("NaN", "stays in the pixels that read it", (f32(NAN, 1),), (f32(NAN, NAN, 1, 1),)),
    )
    aliases = ("Upsample",)
    tol = Tol(1e-5, 1e-5)

    def from_onnx(self, b: Any, n: Any) -> Sequence[Value | None]:
        x, rules = n.inputs[0], read_rules(n)
        shape = [r.n_out for r in rules]
        if 0 in shape or 0 in x.shape:
            if x.type.size == 0 and 0 not in shape:
                n.fail(f"makes {shape} of an empty tensor of shape {list(x.shape)}")
            return [b.const(np.zeros(shape, x.dtype.numpy))]
        if 0 not in shape and len(rules) and rules[0].mode != "nearest" and x.dtype is DType.BOOL:
            n.fail("interpolates booleans")
        todo = [(axis, r) for axis, r in enumerate(rules) if not r.is_identity]
        groups = [[t] for t in todo] if any(r.antialias for r in rules) else [todo] if todo else []
        outside = float(n.attrs.get("extrapolation_value", 0.0))
        crop = any(r.coordinates == "tf_crop_and_resize" for r in rules)
        for group in groups:
            x = resample(b, x, group, outside if crop else None)
        return [x]

    def infer(self, ins: Sequence[Value | None], attrs: dict[str, Any]) -> list[TensorType]:
        x = only(ins[0], "Resize")
        shape = list(x.shape)
        for k, (axis, size) in enumerate(zip(attrs["axes"], attrs["sizes"], strict=True)):
            shape[axis] = size
            for v in ins[1 + 2 * k : 3 + 2 * k]:
                if v is not None and (v.type.rank != 2 or v.shape[0] < upper(size)):
                    raise ModelError(f"Resize to {size} elements has a table of shape {list(v.shape)}")
        return [TensorType(x.dtype, tuple(shape))]

    def ref(self, attrs: dict[str, Any], *xs: Array | None) -> Array:
        x = xs[0]
        assert x is not None
        y = x.astype(np.float64) if any(w is not None for w in xs[2::2]) else x
        outside = np.zeros([1] * x.ndim, bool)
        for axis, size, rule, at, w in _per_axis(attrs, xs):
            n = y.shape[axis]
            if at is None:
                at = ((np.arange(size) * rule[0] + rule[1]) // rule[2]).clip(0)[:, None]
            at, w = np.minimum(at[:size], n - 1), w if w is None else w[:size]
            row = [1] * x.ndim
            row[axis] = size
            outside = outside | (at[:, 0] < 0).reshape(row)
            taps = [np.take(y, np.maximum(at[:, t], 0), axis) for t in range(at.shape[1])]
            y = taps[0] if w is None else sum(p * w[:, t].reshape(row) for t, p in enumerate(taps))
        if attrs["extrapolation"] is not None:
            y = np.where(outside, attrs["extrapolation"], y)
        return y.astype(x.dtype)

    def expr(self, n: Node, *xs: Fn | None) -> Fn:
        x, shape, dtype = xs[0], n.used[0].shape, n.outputs[0].dtype
        assert x is not None
        axes = [_Axis(axis, shape[axis], rule, at, w, n.inputs[1 + 2 * k] if at else None)
                for k, (axis, _, rule, at, w) in enumerate(_per_axis(n.attrs, xs))]  # fmt: skip
        weighted = any(a.weights is not None for a in axes)
        work = (DType.F64 if dtype is DType.F64 else DType.F32) if weighted else dtype
        crop = n.attrs["extrapolation"]

        def at(*i: Expr) -> Expr:
            y = cast(_sum_taps(x, list(i), axes, i, work), dtype)
            if crop is None:
                return y
            outside: Expr = Num(False, BOOL)
            for a in axes:
                if a.positions is not None:
                    outside = call("lor", outside, cast(a.positions(i[a.axis], idx(0)), DType.I64).lt(0))
            return select(outside, lift(crop, dtype), y)

        return at

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        x = rng.standard_normal((1, 2, 5, 4)).astype(np.float32)
        for name, kw in _CASES.items():
            rules = [Rule(n, out, scale=out / n, **kw) for n, out in zip(x.shape[2:], (7, 12), strict=True)]
            yield _case(x, rules, name)
        yield _case(x, [Rule(5, 10, 2.0, "nearest", "asymmetric", "floor")] * 1, "double")
        yield _case(x, [Rule(5, 3, 0.6, "cubic", "half_pixel", antialias=True)], "antialias")
        yield _case(x.astype(np.float16), [Rule(5, 8, 1.6, "linear", "half_pixel")], "half")
        yield _case((x * 50).astype(np.int32), [Rule(5, 8, 1.6, "linear", "half_pixel")], "int")


_CASES: dict[str, dict[str, Any]] = {
    "nearest": {"mode": "nearest", "coordinates": "half_pixel"},
    "nearest_ceil": {"mode": "nearest", "coordinates": "tf_half_pixel_for_nn", "nearest": "ceil"},
    "linear": {"mode": "linear", "coordinates": "half_pixel"},
    "corners": {"mode": "linear", "coordinates": "align_corners"},
    "cubic": {"mode": "cubic", "coordinates": "asymmetric", "exclude_outside": True},
    "crop": {"mode": "linear", "coordinates": "tf_crop_and_resize", "roi": (-0.2, 0.9)},
    "crop_nearest": {"mode": "nearest", "coordinates": "tf_crop_and_resize", "roi": (0.6, 1.4)},
}


def _case(x: Array, rules: Sequence[Rule], name: str) -> Case:
    """a case that resizes the axes from 2 on"""
    crop = any(r.coordinates == "tf_crop_and_resize" for r in rules)
    attrs, tabs = node_parts(list(enumerate(rules, 2)), 0.25 if crop else None, x.dtype)
    return Case((x, *tabs), attrs, name)


def _per_axis(attrs: dict[str, Any], xs: Sequence[Any]) -> list[tuple[int, int, Any, Any, Any]]:
    """(axis, size, rule, positions, weights) of each axis"""
    count = len(attrs["axes"])
    rest = [*xs[1:], *[None] * (2 * count)][: 2 * count]
    at, w = rest[0::2], rest[1::2]
    return list(zip(attrs["axes"], attrs["sizes"], attrs["rules"], at, w, strict=True))


@dataclass(frozen=True)
class _Axis:
    axis: int
    n: int
    rule: Any
    positions: Fn | None
    weights: Fn | None
    table: Value | None

    @property
    def taps(self) -> int:
        return self.table.shape[1] if self.table is not None else 1

    def position(self, i: Expr, tap: Expr) -> Expr:
        if self.positions is None:
            mul, add, div = self.rule
            return clamp(floordiv(i * mul + add, div), self.n)
        return clamp(cast(self.positions(i, tap), DType.I64), self.n)


def _sum_taps(x: Fn, index: list[Expr], axes: Sequence[_Axis], i: Sequence[Expr], work: DType) -> Expr:
    """the weighted sum over the taps of `axes`, the last one innermost"""
    if not axes:
        return cast(x(*index), work)
    a, rest = axes[0], axes[1:]

    def term(tap: Expr) -> Expr:
        at = [*index]
        at[a.axis] = a.position(i[a.axis], tap)
        inner = _sum_taps(x, at, rest, i, work)
        return inner if a.weights is None else inner * cast(a.weights(i[a.axis], tap), work)

    if a.taps > UNROLL:
        return reduce("sum", [a.taps], lambda t: term(t))
    out = term(idx(0))
    for t in range(1, a.taps):
        out = out + term(idx(t))
    return out


def node_parts(axes: Sequence[tuple[int, Rule]], outside: float | None, dtype: Any) -> tuple[dict[str, Any], list[Any]]:
    """attributes, and positions and weights per axis, of one Resize"""
    real = np.float64 if np.dtype(dtype) == np.float64 else np.float32
    rules, out = [], []
    for r in (closed_rule(r) for _, r in axes):
        at, w = tables(r)
        rule = affine(at[:, 0], r) if w is None and (outside is None or at.min() >= 0) else None
        rules.append(rule)
        out += [None if rule else at, None if w is None else w.astype(real)]
    while out and out[-1] is None:
        out.pop()
    attrs = {"axes": [a for a, _ in axes], "sizes": [r.n_out for _, r in axes], "rules": rules}
    return attrs | {"extrapolation": outside}, out


def resample(b: Any, x: Value, axes: Sequence[tuple[int, Rule]], outside: float | None) -> Value:
    """one Resize node"""
    attrs, tabs = node_parts(axes, outside, x.dtype.numpy)
    out: Value = b.emit("Resize", [x, *[None if t is None else b.const(t) for t in tabs]], attrs)[0]
    return out


# -- reading ----------------------------------------------------------------------------------------------
def read_rules(n: Any) -> list[Rule]:
    """One rule per axis of the input, from any opset of Resize and Upsample."""
    x, a = n.inputs[0], n.attrs
    mode = {"bilinear": "linear", "bicubic": "cubic"}.get(a.get("mode", "nearest"), a.get("mode", "nearest"))
    old = n.op == "Upsample" or n.opset < 11
    coordinates = "asymmetric" if old else a.get("coordinate_transformation_mode", "half_pixel")
    nearest = "simple" if old else a.get("nearest_mode", "round_prefer_floor")
    if mode not in ("nearest", "linear", "cubic") or coordinates not in COORDINATES or nearest not in NEAREST_MODES:
        n.fail(f"has the unknown mode {mode!r}, {coordinates!r} or {nearest!r}")
    rank = x.type.rank
    axes = axes_of(a.get("axes", range(rank)), rank, "Resize")
    sizes, scales = _targets(n, old, axes)
    rois = _rois(n, axes, rank) if coordinates == "tf_crop_and_resize" else [(0.0, 1.0)] * rank
    common = {
        "mode": mode,
        "coordinates": coordinates,
        "nearest": nearest,
        "cubic_a": float(a.get("cubic_coeff_a", -0.75)),
        "exclude_outside": bool(a.get("exclude_outside", 0)) and mode == "cubic",
        "antialias": bool(a.get("antialias", 0)) and mode != "nearest",
    }
    out = [Rule(d, d, 1.0, mode, "half_pixel") for d in x.shape]
    for axis, size, scale in zip(axes, sizes, scales, strict=True):
        r = Rule(x.shape[axis], size, scale, roi=rois[axis], **common)
        whole = coordinates == "tf_crop_and_resize" and size == x.shape[axis] and r.roi == (0.0, 1.0)
        out[axis] = out[axis] if whole else r
    return out


def _targets(n: Any, old: bool, axes: Sequence[int]) -> tuple[list[int], list[float]]:
    """sizes and scales of the resized axes"""
    x = n.inputs[0]
    dims = [x.shape[a] for a in axes]
    at = 1 if old else 2
    if n.op == "Upsample" and n.opset < 2:
        scales = np.array([1, 1, n.attrs.get("height_scale", 1), n.attrs.get("width_scale", 1)], np.float32)
    elif n.op == "Upsample" and n.opset < 9:
        scales = np.asarray(n.attrs["scales"] if "scales" in n.attrs else n.fail("needs scales"), np.float32)
    elif n.input(at) is not None and n.input(at).type.size:
        scales = np.asarray(n.const(at, "scales"), np.float32).ravel()
    elif n.input(3) is not None:
        return _from_sizes(n, [whole(v) for v in n.const(3, "sizes").ravel()], dims)
    else:
        n.fail("needs scales or sizes")
    if len(scales) != len(dims) or not (np.isfinite(scales) & (scales > 0)).all():
        n.fail(f"has the scales {scales.tolist()} for {len(dims)} axes")
    sizes = [_scaled(d, float(s)) for d, s in zip(dims, scales, strict=True)]
    return sizes, [float(s) for s in scales]


def _scaled(d: int, s: float) -> int:
    """floor(d * s) in float32, as runtimes compute it; whole factors and halves are exact."""
    if is_open(d) and s.is_integer():
        return d * int(s)
    if is_open(d) and math.frexp(s)[0] == 0.5 and s < 1:
        return d // int(1 / s)
    return int(np.floor(np.float32(d) * np.float32(s)))


def _from_sizes(n: Any, sizes: list[int], dims: Sequence[int]) -> tuple[list[int], list[float]]:
    if len(sizes) != len(dims) or min(sizes, default=0) < 0:
        n.fail(f"has the sizes {sizes} for {len(dims)} axes")
    scales = [float(factor(s, d) or s / d) if d else 1.0 for s, d in zip(sizes, dims, strict=True)]
    policy = n.attrs.get("keep_aspect_ratio_policy", "stretch")
    if policy == "stretch":
        return sizes, scales
    if policy not in ("not_larger", "not_smaller"):
        n.fail(f"has the unknown keep_aspect_ratio_policy {policy!r}")
    scale = (min if policy == "not_larger" else max)(scales)
    return [math.floor(scale * d + 0.5) for d in dims], [scale] * len(dims)


def _rois(n: Any, axes: Sequence[int], rank: int) -> list[tuple[float, float]]:
    roi = [float(v) for v in n.const(1, "roi").ravel()] if n.input(1) is not None else []
    if len(roi) != 2 * len(axes):
        n.fail(f"has {len(roi)} numbers of a region for {len(axes)} axes")
    out = [(0.0, 1.0)] * rank
    for k, axis in enumerate(axes):
        out[axis] = (roi[k], roi[k + len(axes)])
    return out
