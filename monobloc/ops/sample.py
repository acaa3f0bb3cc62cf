"""GridSample: elements read at real coordinates that are data.

Per output position and axis a coordinate becomes a few integer positions with weights; the element is
the weighted sum over their product. Whatever the coordinate is (NaN too), every position read lies
inside: padding decides what a position outside counts, and the position itself is moved in.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from monobloc.errors import ModelError
from monobloc.ir.expr import Expr, Fn, all_of, call, cast, floormod, idx, lift, select
from monobloc.ir.graph import Node, Value
from monobloc.ir.types import DType, TensorType
from monobloc.ops import Case, OpDef, Tol
from monobloc.ops.contract import NAN, Edge, f32
from monobloc.ops.movement import clamp
from monobloc.ops.shape import only

Array = np.ndarray
FAR = float(1 << 30)  # coordinates are limited to what an integer holds
TAPS = {"nearest": (0,), "linear": (0, 1), "cubic": (-1, 0, 1, 2)}
CUBIC_A = -0.75


def work_type(d: DType) -> DType:
    return DType.F64 if d is DType.F64 else DType.F32


# -- numpy ------------------------------------------------------------------------------------------------
def _coordinate(g: Array, n: int, corners: bool) -> Array:
    """where -1..1 lies on an axis of n"""
    return (g + 1) / 2 * (n - 1) if corners else ((g + 1) * n - 1) / 2


def _mirror(x: Array, n: int, corners: bool) -> Array:
    """reflection at the first and last element's centre (corners) or outer edge, as often as needed"""
    low, span = (0.0, n - 1) if corners else (-0.5, n)
    if span == 0:
        return np.zeros_like(x)
    t = np.mod(x - low, 2 * span)
    return np.minimum(t, 2 * span - t) + low


def _mirror_index(i: Array, n: int, corners: bool) -> Array:
    period = 2 * (n - 1) if corners else 2 * n
    if period == 0:
        return np.zeros_like(i)
    t = np.mod(i, period)
    return np.minimum(t, period - t if corners else period - 1 - t)


def _cubic_weights(t: Any) -> list[Any]:
    """of the elements -1, 0, 1, 2 away from the floor, at fraction t"""
    a, s = CUBIC_A, 1 - t
    return [
        ((a * (t + 1) - 5 * a) * (t + 1) + 8 * a) * (t + 1) - 4 * a,
        ((a + 2) * t - (a + 3)) * t * t + 1,
        ((a + 2) * s - (a + 3)) * s * s + 1,
        ((a * (s + 1) - 5 * a) * (s + 1) + 8 * a) * (s + 1) - 4 * a,
    ]


def weights_of(mode: str, t: Any) -> list[Any]:
    if mode == "nearest":
        return [t * 0 + 1]
    return [1 - t, t] if mode == "linear" else _cubic_weights(t)


def border(n: int, corners: bool) -> tuple[float, float]:
    """the span of an axis; a coordinate outside of it becomes the first or last centre"""
    return (0.0, n - 1.0) if corners else (-0.5, n - 0.5)


class GridSample(OpDef):
    """x sampled at grid[..., :] (last axis: innermost coordinate first, -1..1 spans the axis).

    mode nearest, linear, cubic; padding_mode zeros, border, reflection; align_corners
    """

    name = "GridSample"
    example = {"mode": "nearest", "padding_mode": "zeros", "align_corners": 0}
    edges = (
        Edge("NaN",
             "stays in the image; a coordinate that is NaN reads a place of the image or padding, and nothing else",
             (f32([[NAN, 1]]).reshape(1, 1, 1, 2), f32([[-0.5, 0], [0.5, 0]]).reshape(1, 1, 2, 2)),
             (f32(NAN, 1).reshape(1, 1, 1, 2),)),
    )
    tol = Tol(1e-4, 1e-4)

    def from_onnx(self, b: Any, n: Any) -> Sequence[Value | None]:
        a = n.attrs
        mode = {"bilinear": "linear", "bicubic": "cubic"}.get(a.get("mode", "linear"), a.get("mode", "linear"))
        padding = a.get("padding_mode", "zeros")
        if mode not in TAPS or padding not in ("zeros", "border", "reflection"):
            n.fail(f"has the unknown mode {mode!r} or padding {padding!r}")
        attrs = {"mode": mode, "padding_mode": padding, "align_corners": a.get("align_corners", 0)}
        x, grid = n.inputs
        work = x.dtype if x.dtype.is_float else _integer_work(x.dtype, mode)
        if work is x.dtype:
            return b.emit("GridSample", [x, grid], attrs)
        y = b.emit("GridSample", [b.one("Cast", x, to=work), grid], attrs)[0]
        return b.emit("Cast", [y], {"to": x.dtype})

    def infer(self, ins: Sequence[Value | None], attrs: dict[str, Any]) -> list[TensorType]:
        x, grid = only(ins[0], self.name), only(ins[1], self.name)
        dims = x.type.rank - 2
        fits = dims >= 1 and grid.type.rank == dims + 2 and grid.shape[-1] == dims and grid.shape[0] == x.shape[0]
        if not fits:
            raise ModelError(f"GridSample of shape {list(x.shape)} has a grid of shape {list(grid.shape)}")
        if not x.dtype.is_float and (x.dtype is DType.BOOL or attrs["mode"] != "nearest") or not grid.dtype.is_float:
            raise ModelError(f"GridSample of {x.dtype.value} at coordinates of {grid.dtype.value}")
        if 0 in x.shape[2:]:
            raise ModelError(f"GridSample of an empty tensor of shape {list(x.shape)}")
        return [TensorType(x.dtype, (*x.shape[:2], *grid.shape[1:-1]))]

    def ref(self, attrs: dict[str, Any], *xs: Array | None) -> Array:
        x, grid = xs
        assert x is not None and grid is not None
        corners, padding, mode = bool(attrs["align_corners"]), attrs["padding_mode"], attrs["mode"]
        g = grid if grid.dtype in (np.float32, np.float64) else grid.astype(np.float32)
        positions, weights = [], []
        for k, n in enumerate(x.shape[2:]):
            c = _coordinate(g[..., -1 - k], n, corners)
            c = np.rint(c) if mode == "nearest" else c
            if padding == "border":
                start, end = border(n, corners)
                c = np.where(c < start, 0, np.where(c > end, n - 1, c))
            elif padding == "reflection":
                c = np.where(np.isfinite(c), _mirror(c, n, corners), c)
            c = np.clip(np.where(np.isnan(c), 0 if padding == "border" else -FAR, c), -FAR, FAR)
            low = np.floor(c)
            positions.append([low.astype(np.int64) + t for t in TAPS[mode]])
            weights.append(weights_of(mode, (c - low).astype(np.float64)))
        return self._sum(x, positions, weights, padding, corners)

    def _sum(self, x: Array, at: list[list[Array]], w: list[list[Array]], padding: str, corners: bool) -> Array:
        data = np.moveaxis(x if x.dtype.kind in "iu" else x.astype(np.float64), 1, -1)
        batch = np.arange(x.shape[0]).reshape([-1] + [1] * (at[0][0].ndim - 1))
        total: Any = data.dtype.type(0)
        for taps in itertools.product(*[range(len(p)) for p in at]):
            here, weight = [], np.ones(at[0][0].shape)
            for k, t in enumerate(taps):
                i, n = at[k][t], x.shape[2 + k]
                weight = weight * w[k][t]
                if padding == "zeros":
                    weight = np.where((i >= 0) & (i < n), weight, 0.0)
                here.append(np.clip(_mirror_index(i, n, corners) if padding == "reflection" else i, 0, n - 1))
            picked = data[(batch, *here)]
            term = picked if data.dtype.kind in "iu" else picked * weight[..., None]
            total = total + np.where(weight[..., None] != 0, term, data.dtype.type(0))
        return np.moveaxis(total, -1, 1).astype(x.dtype)

    def expr(self, n: Node, *xs: Fn | None) -> Fn:
        x, grid = xs
        assert x is not None and grid is not None
        dims, out = n.used[0].shape[2:], n.outputs[0].dtype
        mode, padding, corners = n.attrs["mode"], n.attrs["padding_mode"], bool(n.attrs["align_corners"])
        work = work_type(out) if out.is_float else out
        real = work_type(n.used[1].dtype)

        def axis(k: int, i: Sequence[Expr]) -> list[tuple[Expr, Expr, Expr]]:
            """(position, inside, weight) per tap"""
            c = cast(grid(i[0], *i[2:], idx(len(dims) - 1 - k)), real)
            c = _coordinate_expr(c, dims[k], mode, padding, corners)
            low = call("floor", c)
            base, weights = cast(low, DType.I64), weights_of(mode, cast(c - low, real if not out.is_float else work))
            taps = [base + t for t in TAPS[mode]]
            inside = [all_of((p.ge(0), p.lt(dims[k]))) for p in taps]
            return list(zip([_inside(p, dims[k], padding, corners) for p in taps], inside, weights, strict=True))

        def at(*i: Expr) -> Expr:
            total: Expr | None = None
            for taps in itertools.product(*[axis(k, i) for k in range(len(dims))]):
                e = cast(x(*i[:2], *[p for p, _, _ in taps]), work)
                for _, _, w in taps if mode != "nearest" else ():
                    e = e * w
                if padding == "zeros":
                    e = select(all_of(ok for _, ok, _ in taps), e, lift(0, work))
                total = e if total is None else total + e
            assert total is not None
            return cast(total, out)

        return at

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        x = rng.standard_normal((2, 3, 4, 5)).astype(np.float32)
        grid = rng.uniform(-1.6, 1.6, (2, 3, 6, 2)).astype(np.float32)
        for mode, padding, corners in itertools.product(TAPS, ("zeros", "border", "reflection"), (0, 1)):
            attrs = {"mode": mode, "padding_mode": padding, "align_corners": corners}
            yield Case((x, grid), attrs, f"{mode}_{padding}_{corners}")
        far = grid.copy()
        far[0, 0, :3] = [[np.nan, 0], [np.inf, -np.inf], [1e30, 7]]
        for padding in ("zeros", "border"):
            yield Case((x, far), {"mode": "linear", "padding_mode": padding, "align_corners": 0}, f"far_{padding}")
        cube = rng.standard_normal((1, 2, 3, 2, 4)).astype(np.float32)
        volume = rng.uniform(-1.2, 1.2, (1, 2, 2, 3, 3)).astype(np.float32)
        yield Case((cube, volume), {"mode": "linear", "padding_mode": "border", "align_corners": 1}, "volume")
        yield Case((rng.integers(-(1 << 62), 1 << 62, (2, 3, 4, 5)), grid),
                   {"mode": "nearest", "padding_mode": "zeros", "align_corners": 1}, "i64")
        one = x[:, :, :1]
        yield Case((one, grid), {"mode": "cubic", "padding_mode": "reflection", "align_corners": 1}, "size1")


def _integer_work(d: DType, mode: str) -> DType:
    """What sampling of integers or booleans computes in: what lies nearest needs no arithmetic"""
    if mode == "nearest":
        return DType.U8 if d is DType.BOOL else d
    return DType.F64


def _coordinate_expr(g: Expr, n: int, mode: str, padding: str, corners: bool) -> Expr:
    """the coordinate on an axis of n, padded and limited"""
    c: Any = _product((g + 1) * 0.5, n - 1) if corners else (_product(g + 1, n) - 1) * 0.5
    if mode == "nearest":
        c = call("round", c)
    if padding == "reflection":
        start, span = (0.0, n - 1) if corners else (-0.5, n)
        if span == 0:
            return c * 0
        t = call("mod", c - start, lift(2 * span, c.dtype))
        c = call("min", t, lift(2 * span, c.dtype) - t) + start
    low, high = border(n, corners) if padding == "border" else (-FAR, FAR)
    first, last = (0, n - 1) if padding == "border" else (low, high)
    c = select(c.ge(low), c, lift(first, c.dtype))  # NaN is like a coordinate far below
    return select(c.le(high), c, lift(last, c.dtype))


def _product(e: Expr, k: int) -> Expr:
    return e * float(k)


def _inside(p: Expr, n: int, padding: str, corners: bool) -> Expr:
    """a position moved into [0, n)"""
    if padding != "reflection":
        return clamp(p, n)
    period = 2 * (n - 1) if corners else 2 * n
    if period == 0:
        return idx(0)
    t = floormod(p, period)
    return clamp(call("imin", t, (period if corners else period - 1) - t), n)
