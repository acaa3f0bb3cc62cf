"""Convolutions: Conv, its integer forms, and ConvTranspose.

Attributes are normalized when the model is read: `kernel_shape`, `strides`, `pads` (begin..., end...),
`dilations`, one entry per spatial axis (two for pads), and `group`. The expressions are the general
fallback for every rank and dtype: a fold over the group's channels and the kernel's taps.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from monobloc.errors import ModelError
from monobloc.ir.expr import Expr, Fn, both, call, cast, floordiv, floormod, idx, reduce
from monobloc.ir.graph import Node, Value
from monobloc.ir.types import DType, TensorType
from monobloc.ops import EXACT, Case, OpDef
from monobloc.ops.build import channels_first, channels_last
from monobloc.ops.contract import INF, NAN, Edge, f16, f32, i8, i32
from monobloc.ops.elementwise import same_dtype
from monobloc.ops.matmul import check_zero, minus, product_type, scale_reader, zero_reader
from monobloc.ops.pool import np_windows, window
from monobloc.ops.quant import np_requantize, requantize
from monobloc.ops.reduce import np_wide, wide
from monobloc.ops.window import auto_pad, extent, inside, out_extents, positions, split_pads, window_attrs

Array = np.ndarray
Attrs = dict[str, Any]
I32 = DType.I32


def conv_attrs(n: Any, x: Value, w: Value) -> Attrs:
    """Normalized attributes of a convolution node; the kernel's size is the weights'."""
    if x.type.rank < 3 or w.type.rank != x.type.rank:
        n.fail(f"{n.op} needs an input and weights of one rank of 3 or more, got {x.type} and {w.type}")
    kernel = n.ints("kernel_shape", list(w.shape[2:]))
    if tuple(kernel) != w.shape[2:]:
        n.fail(f"{n.op} kernel_shape is {kernel}, the weights are {w.type}")
    return window_attrs(n, x.shape[2:], kernel) | {"group": int(n.attrs.get("group", 1))}


def conv_shape(op: str, x: Value, w: Value, bias: Value | None, attrs: Attrs) -> tuple[int, ...]:
    """Output shape; ModelError when channels, groups, kernel or bias do not agree."""
    group = attrs["group"]
    if x.type.rank != w.type.rank or tuple(attrs["kernel_shape"]) != w.shape[2:]:
        raise ModelError(f"{op} kernel is {attrs['kernel_shape']}, the weights are {w.type}, the input {x.type}")
    if group < 1 or x.shape[1] != w.shape[1] * group:
        raise ModelError(
            f"{op} weights {w.type} in {group} groups need {w.shape[1] * max(group, 0)} channels, input is {x.type}"
        )
    if w.shape[0] % group:
        raise ModelError(f"{op} output channels {w.shape[0]} do not divide into {group} groups")
    if bias is not None and bias.shape != (w.shape[0],):
        raise ModelError(f"{op} bias has shape {list(bias.shape)}, the weights {w.type} need {[w.shape[0]]}")
    return (x.shape[0], w.shape[0], *out_extents(op, x.shape[2:], attrs))


def conv_fold(x: Fn, w: Fn, spatial: Sequence[int], weights: Sequence[int], attrs: Attrs, term: Fn) -> Fn:
    """Sum over a group's channels and taps of `term(x element, w element, index)`."""
    per_in, per_out = weights[1], weights[0] // attrs["group"]
    extents = [per_in, *attrs["kernel_shape"]]

    def at(*i: Expr) -> Expr:
        first = (i[1] // per_out) * per_in

        def body(c: Expr, *t: Expr) -> Expr:
            return term(x(i[0], first + c, *positions(attrs, i[2:], t)), w(i[1], c, *t), i)

        return reduce("sum", extents, body, lambda c, *t: inside(positions(attrs, i[2:], t), spatial))

    return at


def np_conv(x: Array, w: Array, attrs: Attrs) -> Array:
    """Convolution in the arrays' own dtype; taps outside the tensor count as 0."""
    taps, _ = np_windows(x, attrs, x.dtype.type(0))
    group, rank = attrs["group"], x.ndim - 2
    n, outs = x.shape[0], taps.shape[2 : 2 + rank]
    # [N, G, C/G, out, kernel] x [G, O/G, C/G, kernel] -> [N, G, O/G, out]
    t = taps.reshape(n, group, w.shape[1], math.prod(outs), math.prod(w.shape[2:]))
    k = w.reshape(group, w.shape[0] // group, w.shape[1], math.prod(w.shape[2:]))
    y = np.einsum("ngcpk,gock->ngop", t, k, optimize=True)
    return y.reshape(n, w.shape[0], *outs)


def channel(bias: Array, rank: int) -> Array:
    return bias.reshape([1, -1] + [1] * (rank - 2))


class Conv(OpDef):
    name = "Conv"
    example = {"kernel_shape": [2], "strides": [1], "pads": [0, 0], "dilations": [1], "group": 1}
    edges = (
        Edge("NaN", "stays in the windows that hold it, also against 0", (f32([[NAN, 1, 2]]), f32([[0, 1]])),
             (f32([[NAN, 2]]),)),
        Edge("infinities", "by 0 are NaN; other windows are not touched", (f32([[INF, 1, 2]]), f32([[0, 1]])),
             (f32([[NAN, 2]]),)),
        Edge("overflow", "halves are summed in float32", (f16([[200, 200]]), f16([[400, -400]])), (f16([[0]]),)),
    )
    contraction = "conv"

    def from_onnx(self, b: Any, n: Any) -> Sequence[Value | None]:
        x, w = n.inputs[:2]
        return b.emit("Conv", [x, w, n.input(2)], conv_attrs(n, x, w))

    def infer(self, ins: Sequence[Value | None], attrs: Attrs) -> list[TensorType]:
        x, w, bias = [*ins, None][:3]
        assert x is not None and w is not None
        return [TensorType(product_type("Conv", ins, attrs), conv_shape("Conv", x, w, bias, attrs))]

    def ref(self, attrs: Attrs, *xs: Array | None) -> Array:
        x, w, bias = [*xs, None][:3]
        assert x is not None and w is not None
        y = np_conv(np_wide(x), np_wide(w), attrs)
        to = attrs["to"].numpy if "to" in attrs else x.dtype
        return (y if bias is None else y + channel(np_wide(bias), x.ndim)).astype(to)

    def expr(self, n: Node, *xs: Fn | None) -> Fn:
        x, w, bias = [*xs, None][:3]
        vx, vw = n.inputs[:2]
        assert x is not None and w is not None and vx is not None and vw is not None
        total = conv_fold(x, w, vx.shape[2:], vw.shape, n.attrs, product)

        def at(*i: Expr) -> Expr:
            e = total(*i)
            return cast(e if bias is None else e + cast(bias(i[1]), e.dtype), n.outputs[0].dtype)

        return at

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        def f(*shape: int) -> Array:
            return rng.standard_normal(shape).astype(np.float32)

        one, x = [1, 1], f(2, 4, 7, 6)
        yield Case((x, f(5, 4, 3, 3)), window([3, 3], one, [1] * 4, one) | {"group": 1}, "3x3")
        yield Case((x, f(5, 4, 1, 1), f(5)), window(one, [2, 1], [0] * 4, one) | {"group": 1}, "1x1_stride")
        yield Case((x, f(6, 2, 3, 2), f(6)), window([3, 2], [2, 1], [0, 1, 2, 0], one) | {"group": 2}, "group")
        yield Case((x, f(8, 1, 3, 3)), window([3, 3], [2, 2], [1] * 4, one) | {"group": 4}, "depthwise")
        yield Case((x, f(2, 4, 3, 2)), window([3, 2], one, [2, 0, 2, 0], [2, 3]) | {"group": 1}, "dilated")
        yield Case((f(1, 2, 20), f(3, 2, 5), f(3)), window([5], [3], [2, 1], [1]) | {"group": 1}, "1d")
        x3, w3 = f(1, 2, 4, 5, 3), f(3, 2, 2, 3, 1)
        yield Case((x3, w3), window([2, 3, 1], [1, 2, 1], [1, 0, 0, 0, 1, 0], [1] * 3) | {"group": 1}, "3d")
        half = f(1, 8, 5, 5).astype(np.float16), f(2, 8, 3, 3).astype(np.float16)
        yield Case(half, window([3, 3], one, [1] * 4, one) | {"group": 1}, "half")


def product(x: Expr, w: Expr, i: Sequence[Expr]) -> Expr:
    return call("mul", cast(x, wide(x.dtype)), cast(w, wide(x.dtype)))


# -- integers ---------------------------------------------------------------------------------------
def integer_fold(n: Node, xs: Sequence[Fn | None], at: tuple[int, int, int, int]) -> Fn:
    """Exact int32 sum; `at` are the input numbers of x, its zero point, w, its zero point. Padding is
    the zero point, so it adds nothing."""
    ins, fs = [*n.inputs, None, None], [*xs, None, None]
    ix, izx, iw, izw = at
    x, w, vx, vw = fs[ix], fs[iw], ins[ix], ins[iw]
    assert x is not None and w is not None and vx is not None and vw is not None
    zx, zw = zero_reader(fs[izx], ins[izx], True), zero_reader(fs[izw], ins[izw], True)

    def term(a: Expr, b: Expr, i: Sequence[Expr]) -> Expr:
        left = minus(cast(a, I32), zx())
        return call("mul", left, minus(cast(b, I32), zw(i[1], idx(0))))

    return conv_fold(x, w, vx.shape[2:], vw.shape, n.attrs, term)


def np_integer(x: Array, zx: Array | None, w: Array, zw: Array | None, attrs: Attrs) -> Array:
    a = x.astype(np.int32) - (0 if zx is None else zx.astype(np.int32).reshape(()))
    b = w.astype(np.int32)
    if zw is not None:
        b = b - zw.astype(np.int32).reshape([-1] + [1] * (w.ndim - 1))
    return np_conv(a, b, attrs)


class ConvInteger(OpDef):
    name = "ConvInteger"
    tol = EXACT
    example = {"kernel_shape": [2], "strides": [1], "pads": [0, 0], "dilations": [1], "group": 1}
    edges = (
        Edge("overflow", "exact in int32, which wraps", (i8([[-128, -128]]), i8([[-128, -128]])), (i32([[32768]]),)),
    )

    def from_onnx(self, b: Any, n: Any) -> Sequence[Value | None]:
        x, w = n.inputs[:2]
        return b.emit("ConvInteger", [x, w, n.input(2), n.input(3)], conv_attrs(n, x, w))

    def infer(self, ins: Sequence[Value | None], attrs: Attrs) -> list[TensorType]:
        x, w, zx, zw = [*ins, None, None][:4]
        assert x is not None and w is not None
        check_zero(self.name, "input", zx, x, ())
        check_zero(self.name, "weight", zw, w, (w.shape[0],))
        return [TensorType(I32, conv_shape(self.name, x, w, None, attrs))]

    def ref(self, attrs: Attrs, *xs: Array | None) -> Array:
        x, w, zx, zw = [*xs, None, None][:4]
        assert x is not None and w is not None
        return np_integer(x, zx, w, zw, attrs)

    def expr(self, n: Node, *xs: Fn | None) -> Fn:
        return integer_fold(n, xs, (0, 2, 1, 3))

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        x = rng.integers(0, 256, (1, 2, 5, 4)).astype(np.uint8)
        w = rng.integers(0, 256, (3, 2, 3, 2)).astype(np.uint8)
        attrs = window([3, 2], [1, 1], [1, 0, 1, 1], [1, 1]) | {"group": 1}
        yield Case((x, w), attrs, "plain")
        yield Case((x, w, np.uint8(7)), attrs, "zero")
        yield Case((x, w.view(np.int8), np.uint8(7), np.array([1, -2, 3], np.int8)), attrs, "per_channel")


class QLinearConv(OpDef):
    """The integer convolution plus int32 bias, scaled in float32, rounded half to even, saturated"""

    name = "QLinearConv"
    tol = EXACT
    example = {"kernel_shape": [1], "strides": [1], "pads": [0, 0], "dilations": [1], "group": 1}
    edges = (
        Edge("ties", "go to the even number",
             (i8([[1, 3, -1]]), f32(0.5)[0], i8(0)[0], i8([[1]]), f32(1)[0], i8(0)[0], f32(1)[0], i8(0)[0]),
             (i8([[0, 2, 0]]),)),
        Edge("overflow", "saturates",
             (i8([[127, -128]]), f32(1)[0], i8(0)[0], i8([[2]]), f32(1)[0], i8(0)[0], f32(1)[0], i8(0)[0]),
             (i8([[127, -128]]),)),
    )
    aliases = ("com.microsoft::QLinearConv",)

    def from_onnx(self, b: Any, n: Any) -> Sequence[Value | None]:
        last = bool(n.attrs.get("channels_last", 0))
        x, w = channels_first(b, n.inputs[0]) if last else n.inputs[0], n.inputs[3]
        y = b.emit("QLinearConv", [x, *n.inputs[1:8], n.input(8)], conv_attrs(n, x, w))
        return [channels_last(b, y[0])] if last else y

    def infer(self, ins: Sequence[Value | None], attrs: Attrs) -> list[TensorType]:
        x, _, zx, w, sw, zw, _, zy, bias = [*ins, None][:9]
        assert x is not None and w is not None and zy is not None and sw is not None
        check_zero(self.name, "input", zx, x, ())
        check_zero(self.name, "weight", zw, w, (w.shape[0],))
        if sw.type.size not in (1, w.shape[0]):
            raise ModelError(f"{self.name} weight scale has {sw.type.size} elements for {w.type}")
        return [TensorType(zy.dtype, conv_shape(self.name, x, w, bias, attrs))]

    def ref(self, attrs: Attrs, *xs: Array | None) -> Array:
        x, sx, zx, w, sw, zw, sy, zy, bias = [*xs, None][:9]
        assert x is not None and w is not None and sx is not None and sw is not None
        assert sy is not None and zy is not None
        total = np_integer(x, zx, w, zw, attrs)
        if bias is not None:
            total = total + channel(bias, x.ndim)
        factor = sx.astype(np.float32).reshape(()) * sw.astype(np.float32).reshape(-1) / sy.reshape(())
        return np_requantize(total, channel(factor, x.ndim), zy.reshape(()))

    def expr(self, n: Node, *xs: Fn | None) -> Fn:
        total = integer_fold(n, xs, (0, 2, 3, 5))
        sx, sw, sy = (scale_reader(xs[k], n.inputs[k], True) for k in (1, 4, 6))
        zero, out = zero_reader(xs[7], n.inputs[7], True), n.outputs[0].dtype
        bias = xs[8] if len(xs) > 8 else None

        def at(*i: Expr) -> Expr:
            e = total(*i)
            e = e if bias is None else call("add", e, bias(i[1]))
            factor = call("div", call("mul", sx(), sw(i[1], idx(0))), sy())
            return requantize(e, factor, zero(), out)

        return at

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        x = rng.integers(0, 256, (1, 2, 5, 4)).astype(np.uint8)
        w = rng.integers(0, 256, (4, 1, 3, 2)).astype(np.uint8)
        attrs = window([3, 2], [1, 1], [1, 0, 1, 1], [1, 1]) | {"group": 2}
        f = np.float32
        yield Case((x, f(0.02), np.uint8(128), w, f(0.01), np.uint8(120), f(0.05), np.uint8(99)), attrs, "u8")
        per = rng.uniform(0.005, 0.02, 4).astype(f), np.zeros(4, np.int8)
        bias = rng.integers(-500, 500, 4).astype(np.int32)
        q = (x, f(0.02), np.uint8(128), w.view(np.int8), *per, f(0.05), np.uint8(99), bias)
        yield Case(q, attrs, "per_channel_bias")


# -- transposed -------------------------------------------------------------------------------------
def transposed_attrs(n: Any, x: Value, w: Value) -> Attrs:
    """Everything ONNX can say about the size of the output becomes `pads` and `output_padding`."""
    rank = x.type.rank - 2
    if rank < 1 or w.type.rank != x.type.rank:
        n.fail(f"{n.op} needs an input and weights of one rank of 3 or more, got {x.type} and {w.type}")
    kernel = n.ints("kernel_shape", list(w.shape[2:]))
    if tuple(kernel) != w.shape[2:]:
        n.fail(f"{n.op} kernel_shape is {kernel}, the weights are {w.type}")
    strides, dilations = n.ints("strides", [1] * rank), n.ints("dilations", [1] * rank)
    more = n.ints("output_padding", [0] * rank)
    full = [
        (d - 1) * s + extent(k, r) + o
        for d, s, k, r, o in zip(x.shape[2:], strides, kernel, dilations, more, strict=True)
    ]
    mode, want = auto_pad(n), n.ints("output_shape", [])
    if not want and mode in ("SAME_UPPER", "SAME_LOWER"):
        want = [d * s for d, s in zip(x.shape[2:], strides, strict=True)]
    if want:
        want = want[-rank:]
        pads = split_pads([f - d for f, d in zip(full, want, strict=True)], mode)
    else:
        pads = [0] * (2 * rank) if mode == "VALID" else n.ints("pads", [0] * (2 * rank))
    attrs = window(kernel, strides, pads, dilations)
    return attrs | {"output_padding": more, "group": int(n.attrs.get("group", 1))}


class ConvTranspose(OpDef):
    """out[y] = sum of x[i] * w[k] over i * stride + k * dilation - pad == y"""

    name = "ConvTranspose"
    example = {"kernel_shape": [2], "strides": [1], "pads": [0, 0], "dilations": [1], "group": 1, "output_padding": [0]}
    edges = (
        Edge("NaN", "stays in the outputs that it takes part in", (f32([[NAN, 1]]), f32([[1, 2]])),
             (f32([[NAN, NAN, 2]]),)),
        Edge("infinities", "by 0 are NaN; without strides, other outputs are not touched",
             (f32([[INF, 1]]), f32([[1, 0]])), (f32([[INF, NAN, 0]]),)),
    )
    contraction = "convtranspose"

    def from_onnx(self, b: Any, n: Any) -> Sequence[Value | None]:
        x, w = n.inputs[:2]
        return b.emit("ConvTranspose", [x, w, n.input(2)], transposed_attrs(n, x, w))

    def infer(self, ins: Sequence[Value | None], attrs: Attrs) -> list[TensorType]:
        x, w, bias = [*ins, None][:3]
        assert x is not None and w is not None
        group, rank = attrs["group"], x.type.rank - 2
        if group < 1 or x.shape[1] != w.shape[0] or w.shape[0] % group:
            raise ModelError(f"ConvTranspose channels of {x.type}, weights {w.type} and {group} groups do not agree")
        channels = w.shape[1] * group
        if bias is not None and bias.shape != (channels,):
            raise ModelError(f"ConvTranspose bias has shape {list(bias.shape)}, the weights {w.type} need {[channels]}")
        outs = []
        for a, d in enumerate(x.shape[2:]):
            span = extent(attrs["kernel_shape"][a], attrs["dilations"][a])
            size = (d - 1) * attrs["strides"][a] + span + attrs["output_padding"][a]
            outs.append(size - attrs["pads"][a] - attrs["pads"][rank + a])
        if any(d < 1 for d in outs) and x.type.size:
            raise ModelError(f"ConvTranspose of {x.type} with padding {attrs['pads']} gives no output: {outs}")
        return [TensorType(same_dtype("ConvTranspose", ins), (x.shape[0], channels, *outs))]

    def ref(self, attrs: Attrs, *xs: Array | None) -> Array:
        x, w, bias = [*xs, None][:3]
        assert x is not None and w is not None
        y = _np_transposed(np_wide(x), np_wide(w), attrs)
        return (y if bias is None else y + channel(np_wide(bias), x.ndim)).astype(x.dtype)

    def expr(self, n: Node, *xs: Fn | None) -> Fn:
        x, w, bias = [*xs, None][:3]
        vx, vw = n.inputs[:2]
        assert x is not None and w is not None and vx is not None and vw is not None
        attrs, spatial = n.attrs, vx.shape[2:]
        per_in, per_out = vw.shape[0] // attrs["group"], vw.shape[1]

        def places(i: Sequence[Expr], t: Sequence[Expr]) -> list[Expr]:
            return [
                y + p - idx(k) * d for y, k, d, p in zip(i, t, attrs["dilations"], attrs["pads"], strict=False)
            ]

        def at(*i: Expr) -> Expr:
            first = (i[1] // per_out) * per_in

            def term(c: Expr, *t: Expr) -> Expr:
                source = [floordiv(v, s) for v, s in zip(places(i[2:], t), attrs["strides"], strict=True)]
                return product(x(i[0], first + c, *source), w(first + c, i[1] % per_out, *t), i)

            def takes_part(c: Expr, *t: Expr) -> Expr:
                at_tap = places(i[2:], t)
                ok = inside(at_tap, [(d - 1) * s + 1 for d, s in zip(spatial, attrs["strides"], strict=True)])
                for v, s in zip(at_tap, attrs["strides"], strict=True):
                    ok = both(ok, floormod(v, s).eq(0))
                return ok

            e = reduce("sum", [per_in, *attrs["kernel_shape"]], term, takes_part)
            return cast(e if bias is None else e + cast(bias(i[1]), e.dtype), n.outputs[0].dtype)

        return at

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        def f(*shape: int) -> Array:
            return rng.standard_normal(shape).astype(np.float32)

        one, x = [1, 1], f(1, 4, 3, 4)
        none = {"group": 1, "output_padding": [0, 0]}
        yield Case((x, f(4, 3, 3, 3)), window([3, 3], one, [0] * 4, one) | none, "plain")
        yield Case((x, f(4, 3, 2, 2), f(3)), window([2, 2], [2, 2], [0] * 4, one) | none, "2x2_s2")
        odd = {"group": 2, "output_padding": [1, 0]}
        yield Case((x, f(4, 3, 3, 2), f(6)), window([3, 2], [2, 3], [1, 0, 0, 1], one) | odd, "group_output_padding")
        yield Case((x, f(4, 2, 2, 3)), window([2, 3], [1, 2], [1, 1, 0, 1], [2, 2]) | none, "dilated")
        flat = {"group": 1, "output_padding": [0]}
        yield Case((f(1, 2, 5), f(2, 3, 4)), window([4], [2], [1, 1], [1]) | flat, "1d")
        cube = {"group": 1, "output_padding": [0, 0, 0]}
        yield Case((f(1, 2, 2, 3, 2), f(2, 1, 2, 2, 3)), window([2, 2, 3], [1, 2, 2], [0] * 6, [1] * 3) | cube, "3d")
        wide_gap = {"group": 1, "output_padding": [2, 1]}
        yield Case((x, f(4, 1, 1, 1)), window(one, [3, 2], [0] * 4, one) | wide_gap, "gaps")


def _np_transposed(x: Array, w: Array, attrs: Attrs) -> Array:
    """Scatter every input element through the kernel, then cut the padding off."""
    group, rank = attrs["group"], x.ndim - 2
    strides, dilations, pads = attrs["strides"], attrs["dilations"], attrs["pads"]
    full = [
        (d - 1) * s + extent(k, r) + o
        for d, s, k, r, o in zip(
            x.shape[2:], strides, attrs["kernel_shape"], dilations, attrs["output_padding"], strict=True
        )
    ]
    # padding may be negative (a larger output asked for): leave room on both sides
    room = [max(0, -p) for p in pads]
    y = np.zeros((x.shape[0], w.shape[1] * group, *[f + room[a] + room[rank + a] for a, f in enumerate(full)]), x.dtype)
    xg = x.reshape(x.shape[0], group, x.shape[1] // group, *x.shape[2:])
    wg = w.reshape(group, w.shape[0] // group, *w.shape[1:])
    at: Any
    for tap in itertools.product(*[range(k) for k in w.shape[2:]]):
        at = (slice(None), slice(None), slice(None), *tap)
        part = np.einsum("ngc...,gco->ngo...", xg, wg[at])
        where = [
            slice(t * r + room[a], t * r + room[a] + (d - 1) * s + 1, s)
            for a, (t, r, d, s) in enumerate(zip(tap, dilations, x.shape[2:], strides, strict=True))
        ]
        y[(slice(None), slice(None), *where)] += part.reshape(x.shape[0], w.shape[1] * group, *x.shape[2:])
    cut = [slice(pads[a] + room[a], f + room[a] - pads[rank + a]) for a, f in enumerate(full)]
    return y[(slice(None), slice(None), *cut)]
