"""Quantization: real = scale * (integer - zero point).

Quantizing divides by the scale in the scale's own precision, rounds half to even, adds the zero point
and saturates. Scale and zero point are one pair, one per index of an axis, or one per block of an axis.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import ml_dtypes
import numpy as np

from monobloc.errors import ModelError
from monobloc.ir.codes import encode
from monobloc.ir.expr import Expr, Fn, Num, call, cast, lift
from monobloc.ir.graph import Node, Value
from monobloc.ir.types import DType, TensorType
from monobloc.ops import EXACT, Case, OpDef
from monobloc.ops.build import cast_to
from monobloc.ops.contract import INF, Edge, f32, i8
from monobloc.ops.reduce import normalized_axes, wide

Array = np.ndarray
Attrs = dict[str, Any]
F32, I32 = DType.F32, DType.I32
SMALL_INTEGERS = (DType.I4, DType.U4, DType.I2, DType.U2)
SMALL_FLOATS = (DType.F8E4M3FN, DType.F8E4M3FNUZ, DType.F8E5M2, DType.F8E5M2FNUZ, DType.F4E2M1)
QUANTIZED = (DType.I8, DType.U8, DType.I16, DType.U16, *SMALL_INTEGERS, *SMALL_FLOATS)


def limits(d: DType) -> tuple[int, int]:
    info = ml_dtypes.iinfo(d.numpy)  # type: ignore[no-untyped-call]
    return int(info.min), int(info.max)


def saturate(e: Expr, d: DType) -> Expr:
    """A float with an integer value, cut to the range of `d`."""
    lo, hi = limits(d)
    return cast(call("min", call("max", e, lift(lo, e.dtype)), lift(hi, e.dtype)), d)


def requantize(total: Expr, factor: Expr, zero: Expr, d: DType) -> Expr:
    """int32 -> round(total * factor) + zero, saturated"""
    rounded = call("round", call("mul", cast(total, F32), factor))
    return saturate(rounded if is_zero(zero) else call("add", rounded, cast(zero, F32)), d)


def is_zero(e: Expr) -> bool:
    return isinstance(e, Num) and e.value == 0


def np_requantize(total: Array, factor: Array, zero: Array) -> Array:
    y = np.rint(total.astype(np.float32) * np.asarray(factor, np.float32)) + zero.astype(np.float32)
    info = np.iinfo(zero.dtype)
    return np.clip(y, info.min, info.max).astype(zero.dtype)


class Scaled(OpDef):
    """Base: an input with scale and zero point per tensor, axis or block."""

    def from_onnx(self, b: Any, n: Any) -> Sequence[Value | None]:
        x, scale, zero = n.inputs[0], n.inputs[1], n.input(2)
        block = int(n.attrs.get("block_size", 0) or 0)
        axis = 0
        if scale.type.size == 1 and not block:
            scale = self._scalar(b, scale)
            zero = None if zero is None else self._scalar(b, zero)
        else:
            axis = normalized_axes([int(n.attrs.get("axis", 1))], x.type.rank)[0]
        attrs = {"axis": axis, "block_size": block, "to": self.target(n, scale, zero)}
        if zero is not None and zero.dtype in SMALL_FLOATS:
            if zero.const is not None and not zero.const.array.astype(np.float32).any():
                zero = None  # as ONNX wants it
        return self.emitted(b, n, [x, scale, zero], attrs)

    def emitted(self, b: Any, n: Any, ins: list[Value | None], attrs: Attrs) -> Sequence[Value | None]:
        raise NotImplementedError

    def _scalar(self, b: Any, v: Value) -> Value:
        return v if v.type.rank == 0 else b.one("Reshape", v, shape=[])

    def target(self, n: Any, scale: Value, zero: Value | None) -> DType:
        raise NotImplementedError

    def check(self, ins: Sequence[Value | None], attrs: Attrs) -> None:
        x, scale, zero = [*ins, None][:3]
        assert x is not None and scale is not None
        want: tuple[int, ...] = ()
        if attrs["block_size"]:
            want = tuple(
                -(-d // attrs["block_size"]) if a == attrs["axis"] else d for a, d in enumerate(x.shape)
            )
        elif scale.type.rank:
            want = (x.shape[attrs["axis"]],)
        if scale.shape != want:
            raise ModelError(f"{self.name} scale has shape {list(scale.shape)}, {x.type} needs {list(want)}")
        if zero is not None and zero.shape != scale.shape:
            raise ModelError(
                f"{self.name} scale has shape {list(scale.shape)}, its zero point {list(zero.shape)}"
            )

    def place(self, attrs: Attrs, v: Value | None, f: Fn | None) -> Fn | None:
        """Scale or zero point read with an index of the input."""
        if f is None or v is None:
            return None
        if attrs["block_size"]:
            a, size = attrs["axis"], attrs["block_size"]
            return lambda *i: f(*[x // size if k == a else x for k, x in enumerate(i)])
        return (lambda *i: f(i[attrs["axis"]])) if v.type.rank else (lambda *i: f())

    def np_place(self, attrs: Attrs, p: Array, x: Array) -> Array:
        if attrs["block_size"]:
            spread = np.repeat(p, attrs["block_size"], attrs["axis"])
            return spread[tuple(slice(d) for d in x.shape)]
        return p.reshape([-1 if a == attrs["axis"] else 1 for a in range(x.ndim)]) if p.ndim else p


class QuantizeLinear(Scaled):
    """saturate(round(x / scale) + zero); DynamicQuantizeLinear is this after a range measurement"""

    name = "QuantizeLinear"
    tol = EXACT
    example = {"axis": 0, "block_size": 0, "to": DType.I8}
    edges = (
        Edge("ties", "go to the even number", (f32(0.5, 1.5, -2.5, -0.5), f32(1)[0], i8(0)[0]), (i8(0, 2, -2, 0),)),
        Edge("overflow", "saturates", (f32(300, -300), f32(1)[0], i8(0)[0]), (i8(127, -128),)),
        Edge("infinities", "saturate", (f32(INF, -INF), f32(1)[0], i8(0)[0]), (i8(127, -128),)).differs(
            "onnx", "gives the lowest integer for inf", "ONNX's text says that results saturate"),
    )
    aliases = ("DynamicQuantizeLinear", "com.microsoft::QuantizeLinear")
    codes = True

    def from_onnx(self, b: Any, n: Any) -> Sequence[Value | None]:
        return self._dynamic(b, n) if n.op == "DynamicQuantizeLinear" else super().from_onnx(b, n)

    def target(self, n: Any, scale: Value, zero: Value | None) -> DType:
        named = n.dtype_attr("output_dtype") if n.attrs.get("output_dtype", 0) else None
        if zero is not None and named not in (None, zero.dtype):
            n.fail(f"output_dtype is {named.value}, the zero point is {zero.dtype.value}")
        d = zero.dtype if zero is not None else named or DType.U8
        if d not in QUANTIZED:
            n.unsupported(f"quantization to {d.value}")
        return d

    def emitted(self, b: Any, n: Any, ins: list[Value | None], attrs: Attrs) -> Sequence[Value | None]:
        """The type of the scale is that of the division, unless `precision` says otherwise."""
        if n.attrs.get("precision", 0):
            work = n.dtype_attr("precision")
            ins[:2] = [cast_to(b, v, work) for v in ins[:2] if v is not None]
        if attrs["to"] in SMALL_FLOATS and not n.attrs.get("saturate", 1):
            attrs["saturate"] = 0
        return b.emit(self.name, ins, attrs)

    def _dynamic(self, b: Any, n: Any) -> Sequence[Value | None]:
        """The range of x, widened to hold 0, becomes [0, 255]; a range of nothing has scale 1."""
        x = n.inputs[0]
        every = {"axes": list(range(x.type.rank)), "keepdims": 0}
        zero, top = b.const(0, F32), b.const(255, F32)
        low = b.one("Min", b.emit("ReduceMin", [x], every)[0], zero)
        high = b.one("Max", b.emit("ReduceMax", [x], every)[0], zero)
        span = b.one("Sub", high, low)
        scale = b.one("Where", b.one("Equal", span, zero), b.const(1, F32), b.one("Div", span, top))
        shift = b.one("Round", b.one("Neg", b.one("Div", low, scale)))
        point = b.one("Cast", b.one("Clip", shift, zero, top), to=DType.U8)
        y = b.one("QuantizeLinear", x, scale, point, axis=0, block_size=0, to=DType.U8)
        return [y, scale, point][: n.n_outputs]

    def infer(self, ins: Sequence[Value | None], attrs: Attrs) -> list[TensorType]:
        self.check(ins, attrs)
        return [TensorType(attrs["to"], ins[0].shape)]  # type: ignore[union-attr]

    def ref(self, attrs: Attrs, *xs: Array | None) -> Array:
        x, scale, zero = [*xs, None][:3]
        assert x is not None and scale is not None
        d: DType = attrs["to"]
        ratio = x.astype(scale.dtype) / self.np_place(attrs, scale, x)
        if d in SMALL_FLOATS:
            shift = 0 if zero is None else self.np_place(attrs, zero, x).astype(np.float32)
            return encode(ratio + shift, d, attrs.get("saturate", 1))
        y = np.rint(ratio.astype(np.float32))
        if zero is not None:
            y = y + self.np_place(attrs, zero, x).astype(np.float32)
        return np.nan_to_num(np.clip(y, *limits(d)), nan=limits(d)[0]).astype(d.numpy)

    def expr(self, n: Node, *xs: Fn | None) -> Fn:
        ins = [*n.inputs, None][:3]
        x, scale, zero = xs[0], *(self.place(n.attrs, v, f) for v, f in zip(ins[1:], [*xs[1:], None], strict=False))
        assert x is not None and scale is not None and ins[1] is not None
        work, to = ins[1].dtype, n.attrs["to"]

        def at(*i: Expr) -> Expr:
            ratio = call("div", cast(cast(x(*i), work), wide(work)), cast(scale(*i), wide(work)))
            # a half-precision quotient is rounded to half before it is rounded to an integer
            ratio = cast(cast(ratio, work), wide(work))
            if to in SMALL_FLOATS:
                ratio = ratio if zero is None else call("add", ratio, cast(zero(*i), ratio.dtype))
                return call("encode", ratio, lift(n.attrs.get("saturate", 1), I32), dtype=to)
            e = call("round", ratio)
            if zero is not None:
                e = call("add", e, cast(zero(*i), e.dtype))
            return saturate(e, to)

        return at

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        x = (rng.standard_normal((2, 3, 4)) * 3).astype(np.float32)
        plain = {"axis": 0, "block_size": 0, "to": DType.U8}
        yield Case((x, np.float32(0.02), np.uint8(128)), plain, "u8")
        yield Case((x, np.float32(0.02)), plain | {"to": DType.I8}, "no_zero")
        ties = np.array([0.08, 0.24, 0.4, -0.08, -0.24, -0.4, 1e9, -1e9, np.inf, -np.inf], np.float32)
        yield Case((ties, np.float32(0.16), np.int8(0)), plain | {"to": DType.I8}, "ties")
        per = np.array([0.1, 0.02, 0.003], np.float32), np.array([1, -2, 3], np.int16)
        yield Case((x, *per), plain | {"axis": 1, "to": DType.I16}, "per_axis")
        blocked = rng.uniform(0.01, 0.1, (2, 3, 2)).astype(np.float32), rng.integers(0, 200, (2, 3, 2)).astype(np.uint8)
        yield Case((x, *blocked), plain | {"axis": 2, "block_size": 2}, "blocked")
        yield Case((x.astype(np.float16), np.float16(0.02), np.int8(3)), plain | {"to": DType.I8}, "half")
        for d in SMALL_INTEGERS:
            zero = np.array([0, 1, 2]).astype(d.numpy)
            yield Case((x, per[0] * 20, zero), plain | {"axis": 1, "to": d}, d.value)
        for d in SMALL_FLOATS:
            yield Case((ties, np.float32(0.16)), plain | {"to": d}, d.value)
            half = ties.clip(-6e4, 6e4).astype(np.float16), np.float16(0.16)
            yield Case(half, plain | {"to": d, "saturate": 0}, f"half_{d.value}")


class DequantizeLinear(Scaled):
    """(x - zero) * scale"""

    name = "DequantizeLinear"
    example = {"axis": 0, "block_size": 0, "to": DType.F32}
    edges = (
        Edge("overflow", "the difference to the zero point does not wrap", (i8(-128), f32(1)[0], i8(127)[0]),
             (f32(-255),)),
    )
    aliases = ("com.microsoft::DequantizeLinear",)
    codes = True

    def target(self, n: Any, scale: Value, zero: Value | None) -> DType:
        named = n.dtype_attr("output_dtype") if n.attrs.get("output_dtype", 0) else None
        return named or scale.dtype

    def emitted(self, b: Any, n: Any, ins: list[Value | None], attrs: Attrs) -> Sequence[Value | None]:
        """Small integers that are constant are seen as bytes: that is what kernels of quantized products read."""
        if ins[0] is not None and ins[0].dtype in SMALL_INTEGERS and ins[0].const is not None:
            bytes_ = ins[0].dtype.value_type
            ins = [v if k == 1 or v is None else b.one("Cast", v, to=bytes_) for k, v in enumerate(ins)]
        return b.emit(self.name, ins, attrs)

    def infer(self, ins: Sequence[Value | None], attrs: Attrs) -> list[TensorType]:
        self.check(ins, attrs)
        x, _, zero = [*ins, None][:3]
        assert x is not None
        if zero is not None and zero.dtype is not x.dtype:
            raise ModelError(f"{self.name} input is {x.dtype.value}, its zero point {zero.dtype.value}")
        return [TensorType(attrs["to"], x.shape)]

    def ref(self, attrs: Attrs, *xs: Array | None) -> Array:
        x, scale, zero = [*xs, None][:3]
        assert x is not None and scale is not None
        d = x.astype(np.float32 if DType.of(x.dtype) in SMALL_FLOATS else np.int32)
        if zero is not None:
            d = d - self.np_place(attrs, zero, x).astype(d.dtype)
        work = np.float64 if scale.dtype == np.float64 else np.float32
        return (d.astype(work) * self.np_place(attrs, scale, x).astype(work)).astype(attrs["to"].numpy)

    def expr(self, n: Node, *xs: Fn | None) -> Fn:
        ins = [*n.inputs, None][:3]
        x, scale, zero = xs[0], *(self.place(n.attrs, v, f) for v, f in zip(ins[1:], [*xs[1:], None], strict=False))
        assert x is not None and scale is not None and ins[1] is not None
        work = wide(ins[1].dtype)

        held = F32 if ins[0] is not None and ins[0].dtype in SMALL_FLOATS else I32

        def at(*i: Expr) -> Expr:
            d = cast(x(*i), held)
            if zero is not None:
                z = cast(zero(*i), held)
                d = d if is_zero(z) else call("sub", d, z)
            return cast(call("mul", cast(d, work), cast(scale(*i), work)), n.attrs["to"])

        return at

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        plain = {"axis": 0, "block_size": 0, "to": F32}
        x = rng.integers(0, 256, (2, 3, 4)).astype(np.uint8)
        yield Case((x, np.float32(0.02), np.uint8(128)), plain, "u8")
        yield Case((x.view(np.int8), np.float32(0.02)), plain, "no_zero")
        scales, zeros = np.array([0.1, 0.02, 0.003], np.float32), np.array([1, 2, 3], np.uint8)
        yield Case((x, scales, zeros), plain | {"axis": 1}, "per_axis")
        yield Case((rng.integers(-(2**30), 2**30, (5,)).astype(np.int32), np.float32(1e-6)), plain, "i32")
        blocked = rng.uniform(0.01, 0.1, (2, 3, 2)).astype(np.float32), rng.integers(0, 200, (2, 3, 2)).astype(np.uint8)
        yield Case((x, *blocked), plain | {"axis": 2, "block_size": 2}, "blocked")
        yield Case((x, np.float16(0.02), np.uint8(7)), plain | {"to": DType.F16}, "half")
        for d in (*SMALL_INTEGERS, *SMALL_FLOATS):
            codes = rng.integers(0, 1 << d.bits, (2, 3, 4)).astype(np.uint8).view(d.numpy)
            yield Case((codes, scales, np.array([0, 1, 2]).astype(d.numpy)), plain | {"axis": 1}, d.value)
