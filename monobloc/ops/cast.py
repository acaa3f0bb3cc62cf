"""Conversions of elements: to another type by value (Cast), and the same bits seen as another type (BitCast).

Types of at most 8 bits that C does not have are codes, bytes that are moved as they are; here is where they are made
and read (`ir/codes.py` in numpy, `mb/codes.h` in C).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from monobloc.ir.codes import ROUND_MODES, encode
from monobloc.ir.expr import BOOL, Expr, Fn, call, cast, lift
from monobloc.ir.graph import Node, Value
from monobloc.ir.types import DType, TensorType
from monobloc.ops import EXACT, Case
from monobloc.ops.contract import INF, NAN, Edge, f16, f32, i8, i32
from monobloc.ops.elementwise import Array, Elementwise


class Cast(Elementwise):
    """to `to`; float to integer truncates, out of range and NaN give what `cast` in the C math says.

    saturate 0: numbers too large for 8-bit floats become infinity or NaN; round_mode: of powers of two (f8e8m0)
    """

    name = "Cast"
    tol = EXACT
    edges = (
        Edge("NaN", "to an integer is the lowest int32 (int64 for wide types), cut to its width; to a bool it is true",
             (f32(NAN),), (i32(-(2**31)),), {"to": DType.I32}),
        Edge("infinities", "as NaN", (f32(INF, -INF),), (i32(-(2**31), -(2**31)),), {"to": DType.I32}),
        Edge("overflow", "integers are cut to their width", (f32(300, -129),), (i8(44, 127),), {"to": DType.I8}),
        Edge("overflow", "floats become infinite", (f32(1e6, -1e6),), (f16(INF, -INF),), {"to": DType.F16}),
        Edge("ties", "from float to float go to the even number", (f32(2049, 2051),), (f16(2048, 2052),),
             {"to": DType.F16}),
        Edge("-0.0", "is a false bool", (f32(-0.0),), (np.array([False]),), {"to": DType.BOOL}),
        Edge("other", "from float to integer numbers are cut towards 0", (f32(-1.7, 1.7),), (i32(-1, 1),),
             {"to": DType.I32}),
    )
    aliases = ("CastLike",)
    codes = True

    def from_onnx(self, b: Any, n: Any) -> Sequence[Value | None]:
        to = n.inputs[1].dtype if n.op == "CastLike" else n.dtype_attr("to")
        x = n.inputs[0]
        if to is DType.CHAR:
            n.unsupported("a Cast to strings")
        rounding = n.attrs.get("round_mode", "up")
        if rounding not in ROUND_MODES:
            n.fail(f"has the unknown round_mode {rounding!r}")
        attrs: dict[str, Any] = {"to": to}
        if to.is_code and to.value_type is DType.F32 and not n.attrs.get("saturate", 1):
            attrs["saturate"] = 0
        if to is DType.F8E8M0 and rounding != "up":
            attrs["round_mode"] = rounding
        return [x] if x.dtype is to else b.emit("Cast", [x], attrs)

    def infer(self, ins: Sequence[Value | None], attrs: dict[str, Any]) -> list[TensorType]:
        return [TensorType(attrs["to"], ins[0].shape)]  # type: ignore[union-attr]

    def ref(self, attrs: dict[str, Any], *xs: Array | None) -> Array:
        x, to = xs[0], attrs["to"]
        assert x is not None
        source = DType.of(x.dtype)
        x = x.astype(source.value_type.numpy)
        if to.is_code:
            return encode(x, to, attrs.get("saturate", 1), attrs.get("round_mode", "up"))
        return x != 0 if to is BOOL else x.astype(to.numpy)

    def scalar(self, attrs: dict[str, Any], *xs: Expr) -> Expr:
        to, saturate, rounding = attrs["to"], attrs.get("saturate", 1), attrs.get("round_mode", "up")
        if saturate and rounding == "up":
            return cast(xs[0], to)
        how = [lift(saturate, DType.I32)]
        if to is DType.F8E8M0:
            how.append(lift(ROUND_MODES.index(rounding), DType.I32))
        return call("encode", xs[0], *how, dtype=to)

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        x = (rng.standard_normal((4, 5)) * 20).astype(np.float32)
        for to in (DType.I32, DType.I64, DType.BOOL, DType.F64, DType.F16, DType.U8):
            yield Case((np.abs(x) if to is DType.U8 else x,), {"to": to}, to.value)
        yield Case((rng.integers(-9, 9, 7),), {"to": DType.F32}, "from_i64")
        for d in (d for d in DType if d.is_code):
            yield from _code_cases(rng, d)


def _code_cases(rng: np.random.Generator, d: DType) -> Iterator[Case]:
    """Every code, and floats of every size and kind"""
    every = np.arange(1 << d.bits).astype(np.uint8).view(d.numpy)
    for to in dict.fromkeys((DType.F32, DType.F16, d.value_type)):
        yield Case((every,), {"to": to}, f"{d.value}_{to.value}")
    special = [0, -0.0, np.nan, -np.nan, np.inf, -np.inf, 448, 464, 465, 240, 248, 57344, 61440, 61441, 0.25, 5, 2.5]
    sizes = rng.standard_normal(99) * 2.0 ** rng.integers(-30, 20, 99)
    numbers = np.concatenate([special, sizes, every.astype(np.float64) * 1.0625])
    if not d.value_type.is_float:
        numbers = numbers[np.abs(numbers) < 2**31]
    if d is DType.F8E8M0:
        numbers = np.abs(numbers)
    modes = ROUND_MODES if d is DType.F8E8M0 else ROUND_MODES[:1]
    for kind, saturate, mode in [(np.float64, 1, "up"), *((np.float32, k, m) for k in (1, 0) for m in modes)]:
        attrs = {"to": d, "saturate": saturate, "round_mode": mode}
        with np.errstate(all="ignore"):
            x = numbers.astype(kind)
        if saturate or d.value_type.is_float:
            yield Case((x,), attrs, f"{np.dtype(kind).name}_{d.value}_{saturate}_{mode}")
    yield Case((rng.integers(-99, 99, 50),), {"to": d}, f"i64_{d.value}")
    yield Case((np.array([True, False]),), {"to": d}, f"bool_{d.value}")


class Rounded(Elementwise):
    """The same half, rounded: inside a group it may be held more exactly than its type (`passes/rounded.py`)"""

    name = "Rounded"
    internal = True
    tol = EXACT
    example = {}

    def ref(self, attrs: dict[str, Any], *xs: Array | None) -> Array:
        assert xs[0] is not None
        return xs[0]

    def expr(self, n: Node, *xs: Fn | None) -> Fn:
        x, half = xs[0], n.outputs[0].dtype  # a kernel's sum is a float32
        assert x is not None
        return lambda *i: call("cast", x(*i), dtype=half)

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        yield Case((rng.standard_normal((4, 5)).astype(np.float16),), {}, "half")


class BitCast(Elementwise):
    """The same bits as another type of the same size"""

    name = "BitCast"
    tol = EXACT
    example = {"to": DType.I32}
    edges = (
        Edge("NaN", "is its bits", (f32(NAN),), (i32(0x7FC00000),)),
    )
    since = 26
    codes = True

    def from_onnx(self, b: Any, n: Any) -> Sequence[Value | None]:
        x, to = n.inputs[0], n.dtype_attr("to")
        if x.dtype.bits != to.bits:
            n.fail(f"cannot see {x.dtype.value} as {to.value}: their sizes differ")
        return [x] if x.dtype is to else b.emit("BitCast", [x], {"to": to})

    def infer(self, ins: Sequence[Value | None], attrs: dict[str, Any]) -> list[TensorType]:
        return [TensorType(attrs["to"], ins[0].shape)]  # type: ignore[union-attr]

    def ref(self, attrs: dict[str, Any], *xs: Array | None) -> Array:
        return np.ascontiguousarray(xs[0]).view(attrs["to"].numpy).reshape(xs[0].shape)  # type: ignore

    def scalar(self, attrs: dict[str, Any], *xs: Expr) -> Expr:
        return call("bitcast", xs[0], dtype=attrs["to"])

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        x = rng.standard_normal((3, 5))
        codes = rng.integers(0, 16, 20).astype(np.uint8)
        yield Case((codes.view(DType.F8E5M2.numpy),), {"to": DType.U8}, "from_code")
        yield Case((codes.view(DType.U4.numpy),), {"to": DType.F4E2M1}, "codes")
        for a, to in ((np.float32, DType.I32), (np.float64, DType.U64), (np.float16, DType.I16)):
            yield Case((x.astype(a),), {"to": to}, to.value)
        yield Case((rng.integers(0, 30000, 9).astype(np.int16),), {"to": DType.F16}, "to_f16")
