"""What TFLite's integer kernels do and ONNX's operators do not; made by the TFLite front end.

Sums are ordinary integer convolutions and products. What follows them is here: fixed-point scaling with its own
rounding (`TflRescale`), functions of 8 bits as tables (`TflTable`), and means rounded half away from zero.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from monobloc.errors import ModelError
from monobloc.ir.expr import Expr, Fn, Num, call, cast, lift, reduce, select
from monobloc.ir.graph import Node, Value
from monobloc.ir.types import DType, TensorType
from monobloc.ops import Case, OpDef
from monobloc.ops.elementwise import Elementwise, broadcast_shapes
from monobloc.ops.pool import Pool, np_windows, window
from monobloc.ops.quant import limits
from monobloc.ops.window import inside, positions

Array = np.ndarray
Attrs = dict[str, Any]
F32, F64, I32, I64 = DType.F32, DType.F64, DType.I32, DType.I64


def np_scale(x: Array, multiplier: Array, shift: Array) -> Array:
    """`mb_tfl_scale` of csrc/include/mb/tfl.h"""
    m, s = np.asarray(multiplier).astype(np.int64), np.asarray(shift).astype(np.int64)
    left, right = np.maximum(s, 0), np.maximum(-s, 0)
    v = (x.astype(np.int64) << left).astype(np.int32).astype(np.int64)
    high = (v * m + (1 << 30)) >> 31
    mask = (np.int64(1) << right) - 1
    out: Array = (high >> right) + ((high & mask) > (mask >> 1) + (high < 0))
    return out.astype(np.int32)


def np_scale64(x: Array, multiplier: Array, shift: Array) -> Array:
    """`mb_tfl_scale64` of csrc/include/mb/tfl.h"""
    m, total = np.asarray(multiplier).astype(np.int64), 15 - np.asarray(shift).astype(np.int64)
    out: Array = (x.astype(np.int64) * m + (np.int64(1) << (total - 1))) >> total
    return out


def np_nearest(x: Array) -> Array:
    """Rounded half away from zero, in float64"""
    out: Array = np.copysign(np.floor(np.abs(x.astype(np.float64)) + 0.5), x)
    return out


def nearest(x: Expr) -> Expr:
    """The same; what is behind the point is looked at alone, since x + 0.5 may itself be rounded up"""
    whole, half = call("trunc", x), lift(0.5, x.dtype)
    rest = call("sub", x, whole)
    up, down = cast(rest.ge(half), x.dtype), cast(rest.le(call("neg", half)), x.dtype)
    return call("sub", call("add", whole, up), down)


class TflRescale(Elementwise):
    """clamp(scale((x - zero_in) << left) + zero, lo, hi) as `to`; scale is multiplier * 2^(shift - 31).

    Inputs x, multiplier, shift. x of 64 bits has a multiplier of 15 bits.
    """

    name = "TflRescale"
    internal = True
    mixed = True

    def infer(self, ins: Sequence[Value | None], attrs: Attrs) -> list[TensorType]:
        x, m, s = ins
        assert x is not None and m is not None and s is not None
        if not x.dtype.is_int or m.dtype is not I32 or s.dtype is not I32:
            raise ModelError(f"{self.name} of {x.type}, {m.type} and {s.type}")
        return [TensorType(attrs["to"], broadcast_shapes(x.shape, m.shape, s.shape))]

    def ref(self, attrs: Attrs, *xs: Array | None) -> Array:
        x, m, s = xs
        assert x is not None and m is not None and s is not None
        v = (x.astype(np.int64) - attrs["zero_in"]) << attrs["left"]
        scale = np_scale64 if x.dtype.itemsize == 8 else np_scale
        y = scale(v, m, s).astype(np.int64)
        return np.clip(y + attrs["zero"], attrs["lo"], attrs["hi"]).astype(attrs["to"].numpy)

    def scalar(self, attrs: Attrs, *xs: Expr) -> Expr:
        x, m, s = xs
        d = I64 if x.dtype is I64 else I32
        v = cast(x, d)
        if attrs["zero_in"]:
            v = call("sub", v, Num(attrs["zero_in"], d))
        if attrs["left"]:
            v = call("mul", v, Num(1 << attrs["left"], d))
        fn = "tfl_scale64" if d is I64 else "tfl_scale"
        v = call(fn, v, cast(m, d), cast(s, d), dtype=d)
        if attrs["zero"]:
            v = call("add", v, Num(attrs["zero"], d))
        lo, hi = limits(I32)
        if (attrs["lo"], attrs["hi"]) != (lo, hi) or d is I64:
            v = call("min", call("max", v, Num(attrs["lo"], d)), Num(attrs["hi"], d))
        return cast(v, attrs["to"])

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        x = rng.integers(-(2**20), 2**20, (3, 5)).astype(np.int32)
        m = rng.integers(2**30, 2**31, (5,)).astype(np.int32)
        s = np.array([-11, -3, 0, 2, -31], np.int32)
        plain = {"zero_in": 0, "left": 0, "zero": 0, "lo": -128, "hi": 127, "to": DType.I8}
        yield Case((x, m, s), plain, "per_channel")
        yield Case((x, m[0], s[0]), plain | {"zero": -7, "lo": -7, "hi": 100}, "relu")
        every = {"lo": -(2**31), "hi": 2**31 - 1, "to": I32}
        q = rng.integers(0, 256, (3, 5)).astype(np.uint8)
        yield Case((q, m[0], np.int32(0)), plain | {"zero_in": 128, "left": 20} | every, "shifted")
        ends = np.array([-(2**31), 2**31 - 1, 0, -1, 1], np.int32)
        yield Case((ends, m, np.zeros(5, np.int32)), plain | every, "ends")
        wide = rng.integers(-(2**40), 2**40, (3, 5))
        to16 = {"lo": -(2**15), "hi": 2**15 - 1, "to": DType.I16}
        yield Case((wide, (m >> 16).astype(np.int32), np.full(5, -11, np.int32)), plain | to16, "i64")


class TflRound(Elementwise):
    """clamp(round(x * factor) + zero, lo, hi) as `to`: the product in float64, half away from zero"""

    name = "TflRound"
    internal = True
    mixed = True

    def infer(self, ins: Sequence[Value | None], attrs: Attrs) -> list[TensorType]:
        x, factor = ins
        assert x is not None and factor is not None
        if not x.dtype.is_int or factor.dtype is not F64:
            raise ModelError(f"{self.name} of {x.type} and {factor.type}")
        return [TensorType(attrs["to"], broadcast_shapes(x.shape, factor.shape))]

    def ref(self, attrs: Attrs, *xs: Array | None) -> Array:
        x, factor = xs
        assert x is not None and factor is not None
        y = np_nearest(x.astype(np.float64) * factor) + attrs["zero"]
        return np.clip(y, attrs["lo"], attrs["hi"]).astype(attrs["to"].numpy)

    def scalar(self, attrs: Attrs, *xs: Expr) -> Expr:
        x, factor = xs
        y = call("add", nearest(call("mul", cast(x, F64), factor)), lift(attrs["zero"], F64))
        return cast(call("min", call("max", y, lift(attrs["lo"], F64)), lift(attrs["hi"], F64)), attrs["to"])

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        x = rng.integers(-(2**15), 2**15, (3, 5)).astype(np.int32)
        plain = {"zero": 3, "lo": -128, "hi": 127, "to": DType.I8}
        yield Case((x, rng.uniform(1e-3, 1e-2, 5)), plain, "per_channel")
        yield Case((np.arange(-20, 20).astype(np.int32), np.float64(0.25)), plain, "ties")


class TflTable(OpDef):
    """table[x - lowest x]: any function of 8 bits. Inputs x and the 256 values."""

    name = "TflTable"
    internal = True

    def infer(self, ins: Sequence[Value | None], attrs: Attrs) -> list[TensorType]:
        x, table = ins
        assert x is not None and table is not None
        if x.dtype not in (DType.I8, DType.U8) or table.shape != (256,):
            raise ModelError(f"{self.name} of {x.type} in {table.type}")
        return [TensorType(table.dtype, x.shape)]

    def ref(self, attrs: Attrs, *xs: Array | None) -> Array:
        x, table = xs
        assert x is not None and table is not None
        return table[x.astype(np.int64) - np.iinfo(x.dtype).min]

    def expr(self, n: Node, *xs: Fn | None) -> Fn:
        x, table = xs
        assert x is not None and table is not None
        lowest = limits(n.used[0].dtype)[0]

        def at(*i: Expr) -> Expr:
            place = cast(x(*i), I64) - lowest
            return table(call("index_inside", place, Num(256, I64), dtype=I64))

        return at

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        table = rng.permutation(256).astype(np.uint8)
        yield Case((rng.integers(0, 256, (4, 70)).astype(np.uint8), table), {}, "u8")
        yield Case((rng.integers(-128, 128, (4, 70)).astype(np.int8), table.view(np.int8)), {}, "i8")


class TflQuantize(Elementwise):
    """clamp(round(x / scale) + zero): half away from zero, where ONNX rounds half to even"""

    name = "TflQuantize"
    internal = True
    mixed = True

    def infer(self, ins: Sequence[Value | None], attrs: Attrs) -> list[TensorType]:
        x, scale = ins
        assert x is not None and scale is not None
        return [TensorType(attrs["to"], broadcast_shapes(x.shape, scale.shape))]

    def ref(self, attrs: Attrs, *xs: Array | None) -> Array:
        x, scale = xs
        assert x is not None and scale is not None
        y = np.nan_to_num(np_nearest(x.astype(np.float32) / scale), nan=0.0)
        lo, hi = limits(attrs["to"])
        return np.clip(y + attrs["zero"], lo, hi).astype(attrs["to"].numpy)

    def scalar(self, attrs: Attrs, *xs: Expr) -> Expr:
        x, scale = xs
        q = call("div", cast(x, F32), scale)
        q = select(call("isnan", q, dtype=DType.BOOL), lift(0, F32), q)
        lo, hi = limits(attrs["to"])
        y = call("add", nearest(q), lift(attrs["zero"], F32))
        return cast(call("min", call("max", y, lift(lo, F32)), lift(hi, F32)), attrs["to"])

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        x = np.concatenate([rng.uniform(-80, 80, 60), np.arange(-9, 9) / 4]).astype(np.float32)
        yield Case((x, np.float32(0.5)), {"zero": 3, "to": DType.I8}, "i8")
        yield Case((x, np.float32(0.01)), {"zero": 0, "to": DType.I16}, "i16")
        odd = np.array([0.49999997, -0.49999997, 1e30, -1e30, np.inf, np.nan], np.float32)
        yield Case((odd, np.float32(1)), {"zero": 9, "to": DType.U8}, "odd")


class TflAveragePool(Pool):
    """Mean of integers over the taps inside the tensor, rounded half away from zero, clamped to [lo, hi]"""

    name = "TflAveragePool"
    internal = True

    def ref(self, attrs: Attrs, *xs: Array | None) -> Array:
        x = xs[0]
        assert x is not None
        rank = x.ndim - 2
        taps, ok = np_windows(x.astype(np.int32), attrs, 0)
        total = taps.sum(tuple(range(2 + rank, 2 + 2 * rank)))
        count = ok.sum(tuple(range(rank, 2 * rank)))
        y = np.where(total > 0, (total + count // 2) // count, -((-total + count // 2) // count))
        return np.clip(y, attrs["lo"], attrs["hi"]).astype(x.dtype)

    def expr(self, n: Node, *xs: Fn | None) -> Fn:
        x, v, attrs = xs[0], n.inputs[0], n.attrs
        assert x is not None and v is not None
        spatial, kernel = v.shape[2:], attrs["kernel_shape"]

        def at(*i: Expr) -> Expr:
            def takes_part(*t: Expr) -> Expr:
                return inside(positions(attrs, i[2:], t), spatial)

            total = reduce("sum", kernel, lambda *t: cast(x(*i[:2], *positions(attrs, i[2:], t)), I32), takes_part)
            count: Expr = Num(math.prod(kernel), I32)
            half: Expr = Num(math.prod(kernel) // 2, I32)
            if any(attrs["pads"]):
                count = reduce("sum", kernel, lambda *t: Num(1, I32), takes_part)
                half = call("div", count, Num(2, I32))
            nudge = select(total.gt(0), half, call("neg", half))
            y = call("div", call("add", total, nudge), count)
            y = call("min", call("max", y, Num(attrs["lo"], I32)), Num(attrs["hi"], I32))
            return cast(y, v.dtype)

        return at

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        x = rng.integers(-128, 128, (2, 3, 7, 8)).astype(np.int8)
        plain = {"ceil_mode": 0, "lo": -128, "hi": 127}
        yield Case((x,), window([3, 2], [2, 1], [0] * 4, [1, 1]) | plain, "plain")
        yield Case((x,), window([3, 3], [2, 2], [1, 1, 0, 1], [1, 1]) | plain | {"lo": -3}, "padded")
        u = x.view(np.uint8)
        yield Case((u,), window([7, 8], [1, 1], [0] * 4, [1, 1]) | plain | {"lo": 0, "hi": 255}, "all_u8")
