"""TFLite's functions of 16 bits: tables between whose entries a line is drawn.

`TflTable16` is any function by 513 values. `TflCurve16` is the logistic function and tanh, which share one table of the
former: tanh(x) = 2 * logistic(2x) - 1. `TflSoftmax16` has exponentials and the reciprocal of their sum from tables of
513 values.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from monobloc.errors import ModelError
from monobloc.ir.expr import Expr, Fn, Num, call, cast, select
from monobloc.ir.graph import Node, Value
from monobloc.ir.types import DType, TensorType
from monobloc.ops import Case, OpDef
from monobloc.ops.tfl import np_scale

Array = np.ndarray
Attrs = dict[str, Any]
I16, I32, I64 = DType.I16, DType.I32, DType.I64
PLACES = 256


# where TFLite's table has one more than the rounded function, which halves what lines between its values miss
ONE_MORE = (4, 8, 12, 14, 15, 16, 17, 19, 20, 21, 22, 25, 27, 28, 29, 30, 31, 33, 34, 35, 37, 39, 40, 41, 43, 44, 45,
            46, 49, 50, 54, 62, 63, 64, 66, 82, 86, 93, 100, 103, 112, 116, 135, 255)  # fmt: skip


def _logistic_table() -> Array:
    """logistic(k / 24) with 16 bits behind the point"""
    y = np.floor(65536 / (1 + np.exp(-np.arange(PLACES) / 24.0)) + 0.5)
    y[list(ONE_MORE)] += 1
    return y.astype(np.uint16)


LOGISTIC_TABLE = _logistic_table()


def np_table16(x: Array, table: Array) -> Array:
    v = x.astype(np.int64)
    at, t = (v >> 7) + 256, table.astype(np.int64)
    return (t[at] + (((t[at + 1] - t[at]) * (v & 127) + 64) >> 7)).astype(np.int16)


class TflTable16(OpDef):
    """table[256 + x / 128] and, between two entries, the line. Inputs x and the 513 values."""

    name = "TflTable16"
    internal = True

    def infer(self, ins: Sequence[Value | None], attrs: Attrs) -> list[TensorType]:
        x, table = ins
        assert x is not None and table is not None
        if x.dtype is not I16 or table.type != TensorType(I16, (513,)):
            raise ModelError(f"{self.name} of {x.type} in {table.type}")
        return [TensorType(I16, x.shape)]

    def ref(self, attrs: Attrs, *xs: Array | None) -> Array:
        x, table = xs
        assert x is not None and table is not None
        return np_table16(x, table)

    def expr(self, n: Node, *xs: Fn | None) -> Fn:
        x, table = xs
        assert x is not None and table is not None

        def at(*i: Expr) -> Expr:
            v = cast(x(*i), I64) + 32768
            here = call("floordiv", v, Num(128, I64), dtype=I64)

            def entry(k: int) -> Expr:
                return cast(table(call("index_inside", here + k, Num(513, I64), dtype=I64)), I32)

            rest = cast(v - here * 128, I32)
            slope = call("mul", call("sub", entry(1), entry(0)), rest)
            up = call("shr", call("add", slope, Num(64, I32)), Num(7, I32))
            return cast(call("add", entry(0), up), I16)

        return at

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        table = rng.integers(-32768, 32768, 513).astype(np.int16)
        x = np.concatenate([rng.integers(-32768, 32768, 190), [-32768, 32767, 0, -1, 127, 128]]).astype(np.int16)
        yield Case((x, table), {})


class TflCurve16(OpDef):
    """logistic or (`tanh`: 1) tanh of x * factor / 2^shift / 12288 with 15 bits. Inputs x and the table."""

    name = "TflCurve16"
    internal = True

    def infer(self, ins: Sequence[Value | None], attrs: Attrs) -> list[TensorType]:
        x, table = ins
        assert x is not None and table is not None
        if x.dtype is not I16 or table.type != TensorType(DType.U16, (PLACES,)):
            raise ModelError(f"{self.name} of {x.type} in {table.type}")
        return [TensorType(I16, x.shape)]

    def ref(self, attrs: Attrs, *xs: Array | None) -> Array:
        x, table = xs
        assert x is not None and table is not None
        half = 1 << (attrs["shift"] - 1) if attrs["shift"] else 0
        v = (x.astype(np.int64) * attrs["factor"] + half) >> attrs["shift"]
        bits, t = 8 if attrs["tanh"] else 9, table.astype(np.int64)
        size = np.abs(v)
        at, rest = np.minimum(size >> bits, 254), size & ((1 << bits) - 1)
        full = size >> bits >= 255
        y = (t[at] << bits) + rest * (t[at + 1] - t[at])
        if attrs["tanh"]:
            y = np.where(full, 0xFFFF << 8, y) - (1 << 23)
            return (np.where(v >= 0, y + 128, -y + 127) >> 8).astype(np.int16)
        y = np.where(full, 0x7FFF << 10, y)
        return (np.where(v >= 0, y + 512, (1 << 25) - y + 511) >> 10).astype(np.int16)

    def expr(self, n: Node, *xs: Fn | None) -> Fn:
        x, table = xs
        assert x is not None and table is not None
        a = n.attrs
        bits, half = 8 if a["tanh"] else 9, 1 << (a["shift"] - 1) if a["shift"] else 0

        def num(v: int) -> Expr:
            return Num(v, I32)

        def at(*i: Expr) -> Expr:
            v = call("shr", call("add", call("mul", cast(x(*i), I32), num(a["factor"])), num(half)), num(a["shift"]))
            size = call("abs", v)
            place, rest = call("shr", size, num(bits)), call("band", size, num((1 << bits) - 1))
            near = cast(call("min", place, num(254)), I64)

            def entry(k: int) -> Expr:
                return cast(table(call("index_inside", near + k, Num(PLACES, I64), dtype=I64)), I32)

            y = call("add", call("mul", entry(0), num(1 << bits)),
                     call("mul", rest, call("sub", entry(1), entry(0))))
            y = select(place.lt(255), y, num(0xFFFF << 8 if a["tanh"] else 0x7FFF << 10))
            if a["tanh"]:
                y = call("sub", y, num(1 << 23))
                up, down = call("add", y, num(128)), call("sub", num(127), y)
            else:
                up, down = call("add", y, num(512)), call("sub", num((1 << 25) + 511), y)
            return cast(call("shr", select(v.lt(0), down, up), num(8 if a["tanh"] else 10)), I16)

        return at

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        x = np.concatenate([rng.integers(-32768, 32768, 190), [-32768, 32767, 0, -1, 127, 128]]).astype(np.int16)
        for tanh in (0, 1):
            yield Case((x, LOGISTIC_TABLE), {"factor": 3, "shift": 0, "tanh": tanh}, f"{tanh}_exact")
            yield Case((x, LOGISTIC_TABLE), {"factor": 20011, "shift": 12, "tanh": tanh}, f"{tanh}_scaled")


class TflSoftmax16(OpDef):
    """Softmax of 16 bits over the last axis, 15 bits behind the point. Inputs x, exp's table, 1 / (1 + x)'s table."""

    name = "TflSoftmax16"
    internal = True

    def infer(self, ins: Sequence[Value | None], attrs: Attrs) -> list[TensorType]:
        x, *tables = ins
        assert x is not None
        if x.dtype is not I16 or not x.type.rank or any(t is None or t.shape != (513,) for t in tables):
            raise ModelError(f"{self.name} of {x.type}")
        return [TensorType(I16, x.shape)]

    def ref(self, attrs: Attrs, *xs: Array | None) -> Array:
        x, exp, over = xs
        assert x is not None and exp is not None and over is not None
        less = x.astype(np.int64) - x.max(-1, keepdims=True)
        far = np_scale(less, np.array(attrs["m"]), np.array(attrs["s"])).astype(np.int64)
        e = np_table16(np.clip(far + 32767, -32768, 32767), exp).astype(np.int64)
        total = e.sum(-1, keepdims=True)
        zeros = 32 - np.array([int(t).bit_length() for t in total.ravel()]).reshape(total.shape)
        lined = ((total << np.maximum(zeros - 1, 0)) + (1 << 13)) >> 14
        r = np_table16(np.clip(lined - (1 << 15) - (1 << 16), -32768, 32767), over).astype(np.int64)
        right = 31 - zeros
        return np.clip((e * r + (1 << (right - 1))) >> right, 0, 32767).astype(np.int16)

    def routine(self, n: Node, c: Any) -> str:
        x, exp, over = n.used
        size = x.shape[-1]
        return f"""\
const int16_t *x = {c.ptr(x)}, *exps = {c.ptr(exp)}, *over = {c.ptr(over)};
int16_t *y = {c.ptr(n.outputs[0])};
for (long o = 0; o < {x.type.size // max(size, 1)}; o++, x += {size}, y += {size}) {{
  int32_t top = -32768, total = 0;
  for (long k = 0; k < {size}; k++) top = x[k] > top ? x[k] : top;
  for (long k = 0; k < {size}; k++) {{
    int32_t far = mb_tfl_scale(x[k] - top, {n.attrs["m"]}, {n.attrs["s"]}) + 32767;
    y[k] = (int16_t)mb_tfl_table16(mb_tfl_fit16(far), exps);
    total += y[k];
  }}
  int32_t zeros = __builtin_clz((uint32_t)total);
  int32_t lined = (int32_t)((((int64_t)total << (zeros - 1)) + (1 << 13)) >> 14) - (1 << 15) - (1 << 16);
  int64_t r = mb_tfl_table16(mb_tfl_fit16(lined), over);
  int32_t right = 31 - zeros;
  for (long k = 0; k < {size}; k++) {{
    int64_t q = (y[k] * r + (1LL << (right - 1))) >> right;
    y[k] = (int16_t)(q < 0 ? 0 : q > 32767 ? 32767 : q);
  }}
}}"""

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        exp = np.clip(np.exp(np.linspace(-10, 0, 513)) * 32768, 0, 32767).astype(np.int16)
        over = np.clip(32768 / (1 + np.linspace(0, 1, 513)), 0, 32767).astype(np.int16)
        x = rng.integers(-9000, 9000, (3, 37)).astype(np.int16)
        yield Case((x, exp, over), {"m": 1500000000, "s": 1}, "rows")
        yield Case((x[:, :1], exp, over), {"m": 1500000000, "s": -3}, "single")
