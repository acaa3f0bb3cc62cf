"""TFLite's integer operators whose result depends on a whole row: soft maxima, lengths, products.

All are in fixed point of 32 bits (`tfl_fixed`). Exponentials come from tables, by how far below the row's largest an
element lies.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import numpy as np

from monobloc.errors import ModelError
from monobloc.ir.expr import Expr, Num, call, cast
from monobloc.ir.graph import Node, Value
from monobloc.ir.types import DType, TensorType
from monobloc.ops import Case, OpDef
from monobloc.ops.elementwise import Elementwise, broadcast_shapes
from monobloc.ops.quant import limits
from monobloc.ops.tfl import np_scale
from monobloc.ops.tfl_fixed import exp32, high32, inverse_root, log32, reciprocal_of, right32

Array = np.ndarray
Attrs = dict[str, Any]
I8, U8, I16, I32 = DType.I8, DType.U8, DType.I16, DType.I32


def exponentials(m: int, s: int, least: int) -> Array:
    """exp by how far below the largest, from 255 on down to 0, in 5 integer bits; 0 below `least`"""
    far = np.arange(-255, 1)
    scaled = np_scale(far, np.array(m), np.array(s))
    return np.array([exp32(int(v), 5) if d >= least else 0 for d, v in zip(far, scaled, strict=True)], np.int32)


class Rows(OpDef):
    """Base: rows of the last axis of 8-bit integers, one after the other"""

    internal = True
    kinds: ClassVar[tuple[DType, ...]] = (I8, U8)

    def out(self, attrs: Attrs, x: Value) -> TensorType:
        return TensorType(x.dtype, x.shape)

    def infer(self, ins: Sequence[Value | None], attrs: Attrs) -> list[TensorType]:
        x = ins[0]
        assert x is not None
        if x.dtype not in self.kinds or not x.type.rank:
            raise ModelError(f"{self.name} of {x.type}")
        return [self.out(attrs, x)]

    def row(self, attrs: Attrs, x: Array, *more: Array) -> Array:
        """Of Python integers: one row"""
        raise NotImplementedError(self.name)

    def ref(self, attrs: Attrs, *xs: Array | None) -> Array:
        x, *more = (v for v in xs if v is not None)
        flat = x.reshape(-1, x.shape[-1])
        made = [self.row(attrs, r, *more) for r in flat]
        kind = attrs["to"].numpy if "to" in attrs else x.dtype
        rest = x.shape[:-1] if made and np.ndim(made[0]) == 0 else x.shape
        return np.array(made, dtype=kind).reshape(rest)

    def body(self, n: Node, size: int) -> str:
        """C: what is done with the row `x` of `size`; y is where it goes"""
        raise NotImplementedError(self.name)

    def routine(self, n: Node, c: Any) -> str:
        x, y = n.used[0], n.outputs[0]
        size = x.shape[-1]
        rest = "".join(f"const {v.dtype.c} *t{k} = {c.ptr(v)};\n" for k, v in enumerate(n.used[1:]))
        count = x.type.size // max(size, 1)
        step = y.type.size // max(count, 1)
        return f"""\
const {x.dtype.c} *x = {c.ptr(x)};
{y.dtype.c} *y = {c.ptr(y)};
{rest}for (long o = 0; o < {count}; o++, x += {size}, y += {step}) {{
{self.body(n, size)}
}}"""


def _largest(x: Value, size: int) -> str:
    return f"""\
  int32_t top = {limits(x.dtype)[0]}, total = 0;
  for (long k = 0; k < {size}; k++) top = x[k] > top ? x[k] : top;
  const int32_t *e = t0 + 255 - top;
  for (long k = 0; k < {size}; k++) total += mb_tfl_right32(e[x[k]], 12);"""


class TflSoftmaxFixed(Rows):
    """Softmax of 8 bits in fixed point, to 8 or 16 bits (`to`). Inputs x and 256 exponentials."""

    name = "TflSoftmaxFixed"

    def out(self, attrs: Attrs, x: Value) -> TensorType:
        return TensorType(attrs["to"], x.shape)

    def row(self, attrs: Attrs, x: Array, *more: Array) -> Array:
        e = [int(more[0][255 + int(v) - int(x.max())]) for v in x]
        scale, over = reciprocal_of(sum(right32(v, 12) for v in e), 12)
        lo, hi = limits(attrs["to"])
        by = over + 31 - attrs["to"].size * 8
        return np.array([min(max(right32(high32(scale, v), by) + lo, lo), hi) if v else lo for v in e])

    def body(self, n: Node, size: int) -> str:
        to = n.attrs["to"]
        lo, hi = limits(to)
        return f"""{_largest(n.used[0], size)}
  int32_t zeros, scale = mb_tfl_reciprocal_of(total, &zeros);
  for (long k = 0; k < {size}; k++) {{
    int32_t q = mb_tfl_right32(mb_tfl_high32(scale, e[x[k]]), {12 + 31 - to.size * 8} - zeros) + ({lo});
    y[k] = ({to.c})(e[x[k]] == 0 ? {lo} : q > {hi} ? {hi} : q < {lo} ? {lo} : q);
  }}"""

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        table = exponentials(1432158208, 22, -100)
        x = rng.integers(-128, 128, (3, 37)).astype(np.int8)
        for to in (I8, I16):
            yield Case((x, table), {"to": to}, to.value)
        yield Case((x.view(np.uint8)[:, :1], table), {"to": U8}, "u8_single")


class TflLogSoftmax(Rows):
    """log(softmax) of 8 bits with 4 bits behind the point. Inputs x, 256 exponentials, and how far below the largest
    an element lies in 5 integer bits. `least`: elements lower than this are lost; rm, rs scale back."""

    name = "TflLogSoftmax"

    def row(self, attrs: Attrs, x: Array, *more: Array) -> Array:
        far = [int(v) - int(x.max()) for v in x]
        total = sum(right32(int(more[0][255 + d]), 12) for d in far)
        log = log32(total, 12, 5)
        back = int(np_scale(np.array(log - (1 << 31)), np.array(attrs["rm"]), np.array(attrs["rs"])))
        least, (lo, hi) = max(attrs["least"] - 1, back), limits(DType.of(x.dtype))
        q = [right32(int(more[1][255 + d]) - log, 22) + hi if d > least else lo for d in far]
        return np.clip(np.array(q), lo, hi)

    def body(self, n: Node, size: int) -> str:
        a, kind = n.attrs, n.used[0].dtype
        lo, hi = limits(kind)
        return f"""{_largest(n.used[0], size)}
  int32_t log = mb_tfl_log32(total, 12, 5);
  int32_t least = mb_tfl_scale((int32_t)((uint32_t)log + 0x80000000u), {a["rm"]}, {a["rs"]});
  least = least > {a["least"] - 1} ? least : {a["least"] - 1};
  for (long k = 0; k < {size}; k++) {{
    int32_t q = mb_tfl_right32(t1[255 + x[k] - top] - log, 22) + {hi};
    y[k] = ({kind.c})(x[k] - top <= least ? {lo} : q > {hi} ? {hi} : q < {lo} ? {lo} : q);
  }}"""

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        table = exponentials(1432158208, 22, -190)
        far = np_scale(np.arange(-255, 1), np.array(1432158208), np.array(22))
        attrs = {"rm": 1600000000, "rs": -22, "least": -190}
        yield Case((rng.integers(-128, 128, (3, 37)).astype(np.int8), table, far), attrs, "i8")
        yield Case((rng.integers(0, 256, (2, 5)).astype(np.uint8), table, far), attrs, "u8")


class TflL2Norm(Rows):
    """x / |x| of 8 bits with 7 bits behind the point; `zero` is that of x, `middle` that of the result. Where that is
    not 0, x gets the 7 bits before it is scaled."""

    name = "TflL2Norm"

    def row(self, attrs: Attrs, x: Array, *more: Array) -> Array:
        v = x.astype(np.int64) - attrs["zero"]
        m, s = inverse_root(int((v * v).sum()))
        left, s = (7, s) if attrs["middle"] else (0, s + 7)
        y = np_scale(v << left, np.array(m), np.array(s)) + attrs["middle"]
        return np.clip(y, *limits(DType.of(x.dtype)))

    def body(self, n: Node, size: int) -> str:
        a, kind = n.attrs, n.used[0].dtype
        lo, hi = limits(kind)
        plain = f"x[k] - ({a['zero']})"
        scaled = f"mb_tfl_scale(({plain}) * 128, m, s)" if a["middle"] else f"mb_tfl_scale({plain}, m, s + 7)"
        return f"""\
  int32_t total = 0, s;
  for (long k = 0; k < {size}; k++) total += (x[k] - ({a["zero"]})) * (x[k] - ({a["zero"]}));
  int32_t m = mb_tfl_inverse_root(total, &s);
  for (long k = 0; k < {size}; k++) {{
    int32_t q = {scaled} + {a["middle"]};
    y[k] = ({kind.c})(q > {hi} ? {hi} : q < {lo} ? {lo} : q);
  }}"""

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        x = rng.integers(-128, 128, (5, 37)).astype(np.int8)
        x[1], x[2, 1:] = 3, 3
        x[3] = np.where(np.arange(37) == 5, 4, 3)
        yield Case((x,), {"zero": 3, "middle": 0}, "i8")
        yield Case((x.view(np.uint8),), {"zero": 120, "middle": 128}, "u8")


class TflProduct(Rows):
    """The product of a row of integers, scaled at every step and at the end"""

    name = "TflProduct"
    kinds = (I8, I16)

    def out(self, attrs: Attrs, x: Value) -> TensorType:
        return TensorType(x.dtype, x.shape[:-1])

    def row(self, attrs: Attrs, x: Array, *more: Array) -> Array:
        def scaled(v: int) -> int:
            total = 15 - attrs["s"]
            y = (v * attrs["m"] + (1 << (total - 1))) >> total
            return (y + (1 << 31)) % (1 << 32) - (1 << 31)  # 32 bits are kept

        first, *rest = (int(v) - attrs["zero_in"] for v in x)
        for v in rest:
            first = scaled(first * v)
        return np.clip(np.array(scaled(first) + attrs["zero"]), *limits(DType.of(x.dtype)))

    def body(self, n: Node, size: int) -> str:
        a, kind = n.attrs, n.used[0].dtype
        lo, hi = limits(kind)
        return f"""\
  int64_t v = x[0] - ({a["zero_in"]});
  for (long k = 1; k < {size}; k++) v = (int32_t)mb_tfl_scale64(v * (x[k] - ({a["zero_in"]})), {a["m"]}, {a["s"]});
  v = (int32_t)mb_tfl_scale64(v, {a["m"]}, {a["s"]}) + ({a["zero"]});
  *y = ({kind.c})(v > {hi} ? {hi} : v < {lo} ? {lo} : v);"""

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        x = rng.integers(-128, 128, (5, 6)).astype(np.int8)
        yield Case((x,), {"m": 17000, "s": -6, "zero_in": 3, "zero": -5}, "i8")


def np_divide(x: Array, y: Array, m: Array, s: Array) -> Array:
    """`mb_tfl_divide` of csrc/include/mb/tfl.h"""

    def one(a: int, b: int, m: int, s: int) -> int:
        if b == 0:
            return 0
        a, b = (-a, -b) if b < 0 else (a, b)
        inverse, over = reciprocal_of(b, 31)
        room = 31 if a == 0 else 32 - (~a if a < 0 else a).bit_length() - 1
        right = over + room - s
        return 0 if right > 31 else right32(high32(high32(a << room, inverse), m), right)

    every = np.broadcast_arrays(*(np.asarray(v) for v in (x, y, m, s)))
    made = [one(*map(int, v)) for v in zip(*(p.ravel() for p in every), strict=True)]
    return np.array(made, np.int32).reshape(every[0].shape)


class TflDivide(Elementwise):
    """clamp((x - zx) / (y - zy) * m * 2^(s - 31) + zero): by a reciprocal; by 0 it is 0"""

    name = "TflDivide"
    internal = True

    def infer(self, ins: Sequence[Value | None], attrs: Attrs) -> list[TensorType]:
        x, y = ins
        assert x is not None and y is not None
        return [TensorType(x.dtype, broadcast_shapes(x.shape, y.shape))]

    def ref(self, attrs: Attrs, *xs: Array | None) -> Array:
        x, y = xs
        assert x is not None and y is not None
        a, b = x.astype(np.int64) - attrs["zx"], y.astype(np.int64) - attrs["zy"]
        q = np_divide(a, b, np.array(attrs["m"]), np.array(attrs["s"])).astype(np.int64)
        return np.clip(q + attrs["zero"], attrs["lo"], attrs["hi"]).astype(x.dtype)

    def scalar(self, attrs: Attrs, *xs: Expr) -> Expr:
        a, b = (call("sub", cast(x, I32), Num(attrs[z], I32)) for x, z in zip(xs, ("zx", "zy"), strict=True))
        q = call("tfl_divide", a, b, Num(attrs["m"], I32), Num(attrs["s"], I32))
        q = call("add", q, Num(attrs["zero"], I32))
        return cast(call("min", call("max", q, Num(attrs["lo"], I32)), Num(attrs["hi"], I32)), xs[0].dtype)

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        attrs = {"zx": 120, "zy": 7, "m": 1500000000, "s": 3, "zero": 3, "lo": 0, "hi": 255}
        x, y = (rng.integers(0, 256, (9, 21)).astype(np.uint8) for _ in range(2))
        x[0], y[1] = 120, 7
        yield Case((x, y), attrs, "u8")
        yield Case((x, y), attrs | {"s": -20}, "small")
