"""Pooling: folds over a sliding window.

Taps outside the tensor do not take part (a guard of the fold), so no padding value is ever read. An
average divides by the number of taps that lie in the tensor, or, with `count_include_pad`, in the
padded tensor; the overhang that `ceil_mode` adds behind the end padding never counts.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import numpy as np

from monobloc.errors import ModelError
from monobloc.ir.expr import I64, Expr, Fn, Num, call, cast, idx, lift, reduce, select
from monobloc.ir.graph import Node, Value
from monobloc.ir.types import DType, TensorType
from monobloc.ops import EXACT, Case, OpDef
from monobloc.ops.contract import HALF_HOLDS, INF, NAN, NAN_LOST, Edge, f16, f32, i64
from monobloc.ops.movement import pad
from monobloc.ops.reduce import np_wide, wide
from monobloc.ops.window import auto_pad, inside, out_extents, positions, window_attrs

Array = np.ndarray
Attrs = dict[str, Any]


def np_windows(x: Array, attrs: Attrs, fill: Any) -> tuple[Array, Array]:
    """(taps, inside): shape [N, C, out..., kernel...]; taps outside the tensor read `fill`."""
    spatial = x.shape[2:]
    rank = len(spatial)
    outs = out_extents("window", spatial, attrs)
    grids = []
    for a in range(rank):
        taps = np.arange(attrs["kernel_shape"][a]) * attrs["dilations"][a] - attrs["pads"][a]
        grids.append(np.arange(outs[a])[:, None] * attrs["strides"][a] + taps[None, :])
    shape = [*outs, *attrs["kernel_shape"]]
    ok = np.ones(shape, bool)
    index = []
    for a, g in enumerate(grids):
        view = [1] * (2 * rank)
        view[a], view[rank + a] = g.shape
        ok = ok & ((g >= 0) & (g < spatial[a])).reshape(view)
        index.append(np.clip(g, 0, max(spatial[a] - 1, 0)).reshape(view))
    taps_of = x[(slice(None), slice(None), *index)]
    return np.where(ok, taps_of, fill), ok


class Pool(OpDef):
    """Base of the windowed folds."""

    extra: ClassVar[Attrs] = {}  # further integer attributes with their defaults

    def from_onnx(self, b: Any, n: Any) -> Sequence[Value | None]:
        x = n.inputs[0]
        if x.type.rank < 3:
            n.fail(f"{n.op} needs at least one spatial axis, got {x.type}")
        kernel = n.ints("kernel_shape", [])
        attrs = window_attrs(n, x.shape[2:], kernel)
        attrs["ceil_mode"] = int(n.attrs.get("ceil_mode", 0)) if auto_pad(n) in ("NOTSET", "VALID") else 0
        attrs |= {k: int(n.attrs.get(k, v)) for k, v in self.extra.items()}
        return b.emit(self.name, [x], attrs, outputs=n.n_outputs)

    def infer(self, ins: Sequence[Value | None], attrs: Attrs) -> list[TensorType]:
        x = ins[0]
        assert x is not None
        outs = out_extents(self.name, x.shape[2:], attrs)
        return [TensorType(x.dtype, (*x.shape[:2], *outs))]

    def window_cases(self, rng: np.random.Generator) -> Iterator[tuple[Array, Attrs, str]]:
        base = {**self.extra, "ceil_mode": 0}
        x1 = rng.standard_normal((1, 2, 9)).astype(np.float32)
        x2 = rng.standard_normal((2, 3, 7, 8)).astype(np.float32)
        x3 = rng.standard_normal((1, 2, 4, 5, 6)).astype(np.float32)
        yield x1, window([3], [2], [0, 0], [1]) | base, "1d"
        yield x2, window([2, 2], [2, 2], [0] * 4, [1, 1]) | base, "2x2"
        yield x2, window([3, 3], [2, 1], [1, 0, 1, 2], [1, 1]) | base, "padded"
        yield x2, window([3, 2], [1, 2], [1, 0, 1, 0], [2, 3]) | base, "dilated"
        yield x2, window([3, 3], [2, 2], [0, 1, 0, 1], [1, 1]) | base | {"ceil_mode": 1}, "ceil"
        yield x3, window([2, 3, 2], [1, 2, 2], [0, 1, 0, 1, 1, 0], [1, 1, 1]) | base, "3d"
        yield x2.astype(np.float16), window([3, 3], [2, 2], [1] * 4, [1, 1]) | base, "half"


def window(kernel: list[int], strides: list[int], pads: list[int], dilations: list[int]) -> Attrs:
    return {"kernel_shape": kernel, "strides": strides, "pads": pads, "dilations": dilations}


class MaxPool(Pool):
    """The second output is the flat index of the first largest element, per whole input tensor."""

    name = "MaxPool"
    tol = EXACT
    example = {"kernel_shape": [2], "strides": [2], "pads": [0, 0], "dilations": [1], "ceil_mode": 0,
               "storage_order": 0}
    edges = (
        Edge("NaN", "is larger than every number", (f32([[1, NAN, 2, 3]]),), (f32([[NAN, 3]]), i64([[1, 3]]))).differs(
            "onnx", "loses it", NAN_LOST).differs(
            "onnxruntime", "loses it", NAN_LOST),
        Edge("ties", "the index is that of the first", (f32([[5, 5, 2, 2]]),), (f32([[5, 2]]), i64([[0, 2]]))),
        Edge("infinities", "are the largest and smallest numbers", (f32([[-INF, -INF, 2, INF]]),),
             (f32([[-INF, INF]]), i64([[0, 3]]))),
    )
    extra: ClassVar[Attrs] = {"storage_order": 0}

    def infer(self, ins: Sequence[Value | None], attrs: Attrs) -> list[TensorType]:
        out = super().infer(ins, attrs)
        return [*out, TensorType(I64, out[0].shape)]

    def ref(self, attrs: Attrs, *xs: Array | None) -> list[Array]:
        x = xs[0]
        assert x is not None
        d = DType.of(x.dtype)
        low: Any = -np.inf if d.is_float else False if d is DType.BOOL else np.iinfo(x.dtype).min
        taps, ok = np_windows(np_wide(x), attrs, low)
        rank = x.ndim - 2
        taps_of = math.prod(taps.shape[2 + rank :])
        flat = taps.reshape(*taps.shape[: 2 + rank], taps_of)
        ok = np.broadcast_to(ok.reshape(*ok.shape[:rank], taps_of), flat.shape)
        top = flat.max(-1)
        hit = ok & ((flat == top[..., None]) | np.isnan(flat.astype(np.float64)))
        return [top.astype(x.dtype), self._flat_index(x.shape, attrs, hit.argmax(-1))]

    def _flat_index(self, shape: tuple[int, ...], attrs: Attrs, tap: Array) -> Array:
        spatial, kernel = shape[2:], attrs["kernel_shape"]
        taps = np.unravel_index(tap, kernel)
        outs = np.indices(tap.shape)
        coords = [
            outs[2 + a] * attrs["strides"][a] + t * attrs["dilations"][a] - attrs["pads"][a] for a, t in enumerate(taps)
        ]
        steps = spatial_steps(spatial, attrs["storage_order"])
        plane = sum(c * s for c, s in zip(coords, steps, strict=True))
        return ((outs[0] * shape[1] + outs[1]) * math.prod(spatial) + plane).astype(np.int64)

    def expr(self, n: Node, *xs: Fn | None) -> list[Fn]:
        x, v, attrs = xs[0], n.inputs[0], n.attrs
        assert x is not None and v is not None
        spatial, kernel = v.shape[2:], attrs["kernel_shape"]

        def fold(i: Sequence[Expr]) -> Expr:
            def tap(*t: Expr) -> Expr:
                return x(*i[:2], *positions(attrs, i[2:], t))

            return reduce("max", kernel, tap, lambda *t: inside(positions(attrs, i[2:], t), spatial))

        def where(*i: Expr) -> Expr:
            top = fold(i)

            none = idx(math.prod(kernel))

            def first(*t: Expr) -> Expr:
                e = x(*i[:2], *positions(attrs, i[2:], t))
                same = e.eq(top)
                if e.dtype.is_float:
                    same = call("lor", same, call("isnan", e, dtype=DType.BOOL))
                return select(same, row_major(t, kernel), none)

            # the first tap in row-major order; its coordinates are read back from its number
            number = reduce("min", kernel, first, lambda *t: inside(positions(attrs, i[2:], t), spatial))
            number = call("imin", number, none - 1)
            at = positions(attrs, i[2:], unravel(number, kernel))
            plane = idx(0)
            for c, s in zip(at, spatial_steps(spatial, attrs["storage_order"]), strict=True):
                plane = plane + c * s
            return (i[0] * v.shape[1] + i[1]) * math.prod(spatial) + plane

        return [lambda *i: fold(i), where][: len(n.outputs)]

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        for x, attrs, name in self.window_cases(rng):
            yield Case((x,), attrs, name)
        x = rng.integers(-3, 3, (2, 2, 6, 5)).astype(np.float32)
        for order in (0, 1):
            attrs = window([3, 2], [2, 1], [1, 0, 0, 1], [1, 1]) | {"ceil_mode": 0, "storage_order": order}
            yield Case((x,), attrs, f"ties_order{order}")
        yield Case((rng.integers(0, 255, (1, 2, 6, 6)).astype(np.uint8),), attrs, "u8")


def spatial_steps(spatial: Sequence[int], storage_order: int) -> list[int]:
    """Element steps of the spatial axes: row-major, or with the first axis fastest."""
    if storage_order:
        return [math.prod(spatial[:a]) for a in range(len(spatial))]
    return [math.prod(spatial[a + 1 :]) for a in range(len(spatial))]


def row_major(at: Sequence[Expr], shape: Sequence[int]) -> Expr:
    out = idx(0)
    for i, d in zip(at, shape, strict=True):
        out = out * d + i
    return out


def unravel(flat: Expr, shape: Sequence[int]) -> list[Expr]:
    out: list[Expr] = []
    for a, d in enumerate(shape):
        q = flat // math.prod(shape[a + 1 :])
        out.append(q % d if a else q)
    return out


def average_cases(taps: Iterator[tuple[Array, Attrs, str]], rng: np.random.Generator) -> Iterator[Case]:
    for x, attrs, name in taps:
        yield Case((x,), attrs, name)
        if any(attrs["pads"]):
            yield Case((x,), attrs | {"count_include_pad": 1}, name + "_include")
    x = np.arange(1, 10, dtype=np.float32).reshape(1, 1, 9)
    attrs = window([7], [3], [0, 3], [1]) | {"ceil_mode": 1, "count_include_pad": 1}
    yield Case((x,), attrs, "overhang")
    yield Case((x,), attrs | {"count_include_pad": 0}, "overhang_exclude")


class AveragePool(Pool):
    name = "AveragePool"
    example = {"kernel_shape": [2], "strides": [2], "pads": [0, 0], "dilations": [1], "ceil_mode": 0,
               "count_include_pad": 0}
    edges = (
        Edge("NaN", "stays in its windows", (f32([[1, NAN, 2, 3]]),), (f32([[NAN, 2.5]]),)).differs(
            "onnx", "leaves NaN out of the mean", "it marks padding with NaN inside"),
        Edge("infinities", "inf - inf is NaN; other windows are not touched", (f32([[INF, -INF, 2, 3]]),),
             (f32([[NAN, 2.5]]),)),
        Edge("overflow", "halves are summed in float32", (f16([[60000, 60000]]),), (f16([[60000]]),)),
    )
    extra: ClassVar[Attrs] = {"count_include_pad": 0}

    def ref(self, attrs: Attrs, *xs: Array | None) -> Array:
        x = xs[0]
        assert x is not None
        rank = x.ndim - 2
        taps, ok = np_windows(np_wide(x), attrs, 0)
        counts: Array = ok
        if attrs["count_include_pad"]:
            padded = np.zeros((1, 1, *[d + p for d, p in zip(x.shape[2:], total_pads(attrs), strict=True)]), bool)
            counts = np_windows(padded, attrs | {"pads": [0] * (2 * rank)} | {"ceil_mode": 1}, 0)[1]
            counts = counts[tuple(slice(d) for d in taps.shape[2 : 2 + rank])]
        axes = tuple(range(2 + rank, 2 + 2 * rank))
        total = counts.sum(tuple(range(rank, 2 * rank)))
        return (taps.sum(axes) / total).astype(x.dtype)

    def expr(self, n: Node, *xs: Fn | None) -> Fn:
        x, v, attrs = xs[0], n.inputs[0], n.attrs
        assert x is not None and v is not None
        spatial, kernel = v.shape[2:], attrs["kernel_shape"]

        def at(*i: Expr) -> Expr:
            def tap(*t: Expr) -> Expr:
                e = x(*i[:2], *positions(attrs, i[2:], t))
                return cast(e, wide(e.dtype))

            total = reduce("sum", kernel, tap, lambda *t: inside(positions(attrs, i[2:], t), spatial))
            count = window_count(attrs, i[2:], spatial)
            divisor = lift(int(count.value), total.dtype) if isinstance(count, Num) else cast(count, total.dtype)
            return cast(call("div", total, divisor), v.dtype)

        return at

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        return average_cases(self.window_cases(rng), rng)


def total_pads(attrs: Attrs) -> list[int]:
    rank = len(attrs["pads"]) // 2
    return [attrs["pads"][a] + attrs["pads"][rank + a] for a in range(rank)]


def window_count(attrs: Attrs, at: Sequence[Expr], spatial: Sequence[int]) -> Expr:
    """How many taps of the window at output `at` count, as an integer expression.

    Tap t of an axis lies at y0 + t*d; those with lo <= y0 + t*d < hi count, which is
    t from ceil((lo - y0) / d) to floor((hi - 1 - y0) / d), cut to [0, k).
    """
    rank, out = len(spatial), idx(1)
    for a in range(rank):
        k, s, d = attrs["kernel_shape"][a], attrs["strides"][a], attrs["dilations"][a]
        begin, end = attrs["pads"][a], attrs["pads"][rank + a]
        include = attrs["count_include_pad"]
        lo, hi = (-begin, spatial[a] + end) if include else (0, spatial[a])
        y0 = at[a] * s - begin
        first = idx(0) - (y0 - lo) // d
        last = (idx(hi - 1) - y0) // d
        out = out * (bounded("imin", last, k - 1) - bounded("imax", first, 0) + 1)
    return out


def bounded(fn: str, e: Expr, limit: int) -> Expr:
    """imin or imax with a constant, dropped where the range of `e` decides it"""
    if fn == "imin":
        if isinstance(e.le(limit), Num):
            return e if e.le(limit).value else idx(limit)  # type: ignore[attr-defined]
    elif isinstance(e.ge(limit), Num):
        return e if e.ge(limit).value else idx(limit)  # type: ignore[attr-defined]
    return call(fn, e, idx(limit))


class LpPool(Pool):
    """(sum |x|^p)^(1/p)"""

    name = "LpPool"
    example = {"kernel_shape": [2], "strides": [2], "pads": [0, 0], "dilations": [1], "ceil_mode": 0, "p": 2}
    edges = (
        Edge("NaN", "stays in its windows", (f32([[1, NAN, 3, 4]]),), (f32([[NAN, 5]]),)).differs(
            "onnx", "leaves NaN out of the sum", "it marks padding with NaN inside"),
        Edge("infinities", "give inf", (f32([[1, -INF, 3, 4]]),), (f32([[INF, 5]]),)),
        Edge("overflow", "halves are summed in float32", (f16([[300, 400]]),), (f16([[500]]),)).differs(
            "onnx", "gives inf", HALF_HOLDS),
    )
    aliases = ("GlobalLpPool",)
    extra: ClassVar[Attrs] = {"p": 2}

    def from_onnx(self, b: Any, n: Any) -> Sequence[Value | None]:
        p = n.attrs.get("p", 2)  # a float in opset 1
        if p < 1 or p != int(p):
            n.fail(f"p is {p}: there is no norm of that order")
        if n.op == "LpPool":
            return super().from_onnx(b, n)
        x = n.inputs[0]
        if x.type.rank < 3:
            n.fail(f"{n.op} needs at least one spatial axis, got {x.type}")
        rank = x.type.rank - 2
        whole = window(list(x.shape[2:]), [1] * rank, [0] * (2 * rank), [1] * rank)
        return b.emit("LpPool", [x], whole | {"ceil_mode": 0, "p": int(n.attrs.get("p", 2))})

    def ref(self, attrs: Attrs, *xs: Array | None) -> Array:
        x = xs[0]
        assert x is not None
        taps, _ = np_windows(np_wide(x), attrs, 0)
        axes = tuple(range(x.ndim, taps.ndim))
        return ((np.abs(taps) ** attrs["p"]).sum(axes) ** (1 / attrs["p"])).astype(x.dtype)

    def expr(self, n: Node, *xs: Fn | None) -> Fn:
        x, v, attrs, p = xs[0], n.inputs[0], n.attrs, n.attrs["p"]
        assert x is not None and v is not None
        spatial, kernel = v.shape[2:], attrs["kernel_shape"]

        def at(*i: Expr) -> Expr:
            def tap(*t: Expr) -> Expr:
                e = x(*i[:2], *positions(attrs, i[2:], t))
                return abs_power(cast(e, wide(e.dtype)), p)

            total = reduce("sum", kernel, tap, lambda *t: inside(positions(attrs, i[2:], t), spatial))
            return cast(root(total, p), v.dtype)

        return at

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        for p, (x, attrs, name) in zip(itertools.cycle((2, 1, 3)), self.window_cases(rng), strict=False):
            yield Case((x,), attrs | {"p": p}, f"{name}_p{p}")


def abs_power(x: Expr, p: float) -> Expr:
    if p == 2:
        return call("mul", x, x)
    return call("abs", x) if p == 1 else call("pow", call("abs", x), lift(p, x.dtype))


def root(x: Expr, p: float) -> Expr:
    if p == 2:
        return call("sqrt", x)
    return x if p == 1 else call("pow", x, lift(1 / p, x.dtype))


class MaxUnpool(OpDef):
    """Puts each element where `Indices` says (flat, in the whole output); zeros elsewhere.
    A larger `output_shape` only adds zeros behind: the indices count in the shape without it."""

    name = "MaxUnpool"
    moves = True
    example = {"shape": [1, 1, 4]}
    edges = (
        Edge("indices", "outside make the run fail", (f32([[1]]), i64([[4]])), ()),
    )

    def from_onnx(self, b: Any, n: Any) -> Sequence[Value | None]:
        x, where = n.inputs[:2]
        shape = [*x.shape[:2], *self._grown(n, x.shape[2:])]
        y = b.emit("MaxUnpool", [x, where], {"shape": shape})[0]
        if n.input(2) is None:
            return [y]
        wanted = [int(d) for d in n.const(2, "output_shape")]
        more = [w - d for w, d in zip(wanted, shape, strict=False)]
        if len(wanted) != len(shape) or min(more) < 0:
            n.fail(f"grows to {shape}, which does not fit into the output_shape {wanted}")
        return [pad(b, y, [0] * len(shape), more, "constant", None)]

    def _grown(self, n: Any, spatial: Sequence[int]) -> list[int]:
        rank = len(spatial)
        kernel, strides = n.ints("kernel_shape", []), n.ints("strides", [1] * rank)
        pads = n.ints("pads", [0] * (2 * rank))
        grown = [(d - 1) * s + k for d, s, k in zip(spatial, strides, kernel, strict=True)]
        return [g - pads[a] - pads[rank + a] for a, g in enumerate(grown)]

    def infer(self, ins: Sequence[Value | None], attrs: Attrs) -> list[TensorType]:
        x, where = ins
        assert x is not None and where is not None
        if where.dtype is not I64 or where.shape != x.shape:
            raise ModelError(f"MaxUnpool indices are {where.type}, must be i64{list(x.shape)} as the input")
        return [TensorType(x.dtype, tuple(attrs["shape"]))]

    def ref(self, attrs: Attrs, *xs: Array | None) -> Array:
        x, where = xs
        assert x is not None and where is not None
        out = np.zeros(math.prod(attrs["shape"]), x.dtype)
        out[where.reshape(-1)] = x.reshape(-1)
        return out.reshape(attrs["shape"])

    def routine(self, n: Node, c: Any) -> str:
        x, where = n.inputs
        assert x is not None and where is not None
        total, t = n.outputs[0].type.size, x.dtype.c
        return f"""
  const {t} *x = {c.ptr(x)};
  const int64_t *at = {c.ptr(where)};
  {t} *y = {c.ptr(n.outputs[0])};
  for (long i = 0; i < {total}; i++) y[i] = 0;
  for (long i = 0; i < {x.type.size}; i++) {{
    if (at[i] < 0 || at[i] >= {total}) return MB_E_INDEX;
    y[at[i]] = x[i];
  }}
"""

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        x = rng.standard_normal((1, 1, 2, 2)).astype(np.float32)
        yield Case((x, np.array([[[[5, 7], [13, 15]]]], np.int64)), {"shape": [1, 1, 4, 4]})


