"""DeformConv, a convolution that reads its image between the elements, where other data say.

DeformConv is two steps, so that its sum is a matrix product: `DeformSample` reads every tap of every
position once per input channel, then the weights meet the taps as in any convolution.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from monobloc.ir.expr import Expr, Fn, all_of, call, cast, floordiv, floormod, lift, select
from monobloc.ir.graph import Node, Value
from monobloc.ir.types import DType, TensorType
from monobloc.ops import Case, OpDef, Tol
from monobloc.ops.conv import conv_attrs, conv_shape
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
