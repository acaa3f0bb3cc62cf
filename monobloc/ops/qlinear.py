"""The quantized operators that onnxruntime's quantizer writes (`com.microsoft`): bytes in, bytes out.

Each is the operator of real numbers between a DequantizeLinear and a QuantizeLinear, and is read as those three.
They become one loop nest, and scales and zero points that cancel are seen by the passes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from monobloc.ir.graph import Value
from monobloc.ir.types import DType
from monobloc.ops import OpDef, opdef
from monobloc.ops.build import channels_first, channels_last, read_as, reading
from monobloc.ops.quant import limits
from monobloc.ops.reduce import normalized_axes

F32, I64 = DType.F32, DType.I64


# -- bytes and numbers --------------------------------------------------------------------------------
def scalar(b: Any, n: Any, v: Value | None, what: str) -> Value | None:
    """A scale or zero point of a whole tensor; None stays None."""
    if v is None or v.type.rank == 0:
        return v
    if v.type.size != 1:
        n.unsupported(f"{what} of {list(v.shape)}, one per tensor is needed: more of them")
    return b.one("Reshape", v, shape=[])


def real(b: Any, n: Any, x: Value, scale: Value, zero: Value | None) -> Value:
    """(x - zero) * scale"""
    scale, zero = scalar(b, n, scale, "a scale"), scalar(b, n, zero, "a zero point")  # type: ignore[assignment]
    return b.one("DequantizeLinear", x, scale, zero, axis=0, block_size=0, to=F32)


def stored(b: Any, n: Any, y: Value, scale: Value, zero: Value | None, to: DType) -> Value:
    """round(y / scale) + zero, saturated"""
    scale, zero = scalar(b, n, scale, "a scale"), scalar(b, n, zero, "a zero point")  # type: ignore[assignment]
    zero = b.const(0, to) if zero is None else zero
    return b.one("QuantizeLinear", y, scale, zero, axis=0, block_size=0, to=to)


# -- operators ----------------------------------------------------------------------------------------
class Quantized(OpDef):
    """Base of operators of one input: X, its scale and zero point, Y's scale and zero point."""

    domain = "com.microsoft"

    def from_onnx(self, b: Any, n: Any) -> Sequence[Value | None]:
        x, scale, zero, y_scale, y_zero = n.inputs[0], n.inputs[1], n.input(2), n.inputs[3], n.input(4)
        return [stored(b, n, self.between(b, n, real(b, n, x, scale, zero)), y_scale, y_zero, x.dtype)]

    def between(self, b: Any, n: Any, x: Value) -> Value:
        """The operator of real numbers"""
        raise NotImplementedError(self.name)


class QLinearSigmoid(Quantized):
    name = "QLinearSigmoid"

    def between(self, b: Any, n: Any, x: Value) -> Value:
        return b.one("Sigmoid", x)


class QLinearLeakyRelu(Quantized):
    name = "QLinearLeakyRelu"

    def between(self, b: Any, n: Any, x: Value) -> Value:
        return read_as(b, n, "LeakyRelu", [x], **n.attrs)


class QLinearSoftmax(Quantized):
    """In integers, as onnxruntime has it: exponentials out of a table, a quotient rounded half up, and 1 / Y's scale
    cut to an integer. `opset` says what a row is: before 13 it is everything from the axis on."""

    name = "QLinearSoftmax"

    def from_onnx(self, b: Any, n: Any) -> Sequence[Value | None]:
        x, zero = n.inputs[0], n.input(4)
        opset = int(n.attrs["opset"])
        axis, = normalized_axes([int(n.attrs.get("axis", -1 if opset >= 13 else 1))], x.type.rank)
        axes = [axis] if opset >= 13 else list(range(axis, x.type.rank))
        scale, y_scale = (float(n.const(k, what).item()) for k, what in ((1, "X's scale"), (3, "Y's scale")))
        lo, hi = limits(x.dtype)
        table = softmax_table(scale, math.prod(x.shape[k] for k in axes))
        wide = b.one("Cast", x, to=I64)
        top = b.one("ReduceMax", wide, axes=axes, keepdims=1)
        e = b.one("Gather", b.const(table), b.one("Add", b.one("Sub", wide, top), b.const(len(table) - 1, I64)), axis=0)
        total = b.one("ReduceSum", e, axes=axes, keepdims=1)
        half = b.one("Div", total, b.const(2, I64))
        factor = int(np.float32(1) / np.float32(y_scale))
        y = b.one("Add", b.one("Mul", e, b.const(factor, I64)), half)
        y = b.one("Div", y, b.one("Max", total, b.const(1, I64)))
        y = b.one("Add", y, b.const(0 if zero is None else int(n.const(4, "Y's zero point").item()), I64))
        return [b.one("Cast", b.one("Min", b.one("Max", y, b.const(lo, I64)), b.const(hi, I64)), to=x.dtype)]


def softmax_table(scale: float, row: int) -> np.ndarray:
    """exp(scale * (k - 255)) at k, as integers of which a row's sum fits into 32 bits"""
    one = min((2**32 - 1) / max(row, 1), float(2**23 - 1))
    return np.rint(one * np.exp((np.arange(256) - 255) * scale)).astype(np.int64)


class QLinearReduceMean(Quantized):
    name = "QLinearReduceMean"

    def between(self, b: Any, n: Any, x: Value) -> Value:
        axes = normalized_axes(n.ints("axes", range(x.type.rank)), x.type.rank)
        return b.one("ReduceMean", x, axes=axes, keepdims=int(bool(n.attrs.get("keepdims", 1))))


class QLinearAveragePool(Quantized):
    name = "QLinearAveragePool"

    def between(self, b: Any, n: Any, x: Value) -> Value:
        last = bool(n.attrs.get("channels_last", 0))
        attrs = {k: v for k, v in n.attrs.items() if k != "channels_last"}
        x = channels_first(b, x) if last else x
        y = whole_windows(b, x, read_as(b, n, "AveragePool", [x], **attrs))
        return channels_last(b, y) if last else y


def whole_windows(b: Any, x: Value, y: Value) -> Value:
    """Where padding counts, onnxruntime counts all of a window, what lies behind the padding too"""
    a = y.producer.attrs if y.producer is not None else {}
    if not a.get("ceil_mode") or not a["count_include_pad"]:
        return y
    rank = x.type.rank - 2
    begin, end = a["pads"][:rank], a["pads"][rank:]
    sizes = zip(x.shape[2:], y.shape[2:], a["kernel_shape"], a["strides"], a["dilations"], begin, end, strict=True)
    over = [e + max(0, (out - 1) * s + (k - 1) * d + 1 - (size + p + e)) for size, out, k, s, d, p, e in sizes]
    wide = b.one("Pad", x, None, pads=[0, 0, *begin, 0, 0, *over], mode="constant")
    return b.one("AveragePool", wide, **a | {"pads": [0] * 2 * rank, "ceil_mode": 0})


class QLinearGlobalAveragePool(Quantized):
    name = "QLinearGlobalAveragePool"

    def between(self, b: Any, n: Any, x: Value) -> Value:
        first = 1 if n.attrs.get("channels_last", 0) else 2
        return b.one("ReduceMean", x, axes=list(range(first, x.type.rank + first - 2)), keepdims=1)


class QLinearAdd(OpDef):
    """A + B and A * B: each operand and the result with a scale and zero point of its own"""

    name = "QLinearAdd"
    domain = "com.microsoft"
    aliases = ("QLinearMul",)

    def from_onnx(self, b: Any, n: Any) -> Sequence[Value | None]:
        v = [*n.inputs, None][:8]
        x, y = real(b, n, v[0], v[1], v[2]), real(b, n, v[3], v[4], v[5])
        return [stored(b, n, b.one(n.op.removeprefix("QLinear"), x, y), v[6], v[7], v[0].dtype)]


class QLinearConcat(OpDef):
    """Inputs: Y's scale and zero point, then tensor, scale and zero point of each part"""

    name = "QLinearConcat"
    domain = "com.microsoft"

    def from_onnx(self, b: Any, n: Any) -> Sequence[Value | None]:
        scale, zero, parts = n.inputs[0], n.inputs[1], n.inputs[2:]
        if not parts or len(parts) % 3:
            n.fail(f"has {len(parts)} inputs behind its scale and zero point, which are no triples")
        each = [
            stored(b, n, real(b, n, *parts[k : k + 3]), scale, zero, zero.dtype) for k in range(0, len(parts), 3)
        ]
        return [read_as(b, n, "Concat", each, axis=n.attrs["axis"])]


class QLinearWhere(OpDef):
    name = "QLinearWhere"
    domain = "com.microsoft"

    def from_onnx(self, b: Any, n: Any) -> Sequence[Value | None]:
        condition, *v = n.inputs
        scale, zero = v[6:8]
        x, y = (stored(b, n, real(b, n, *v[k : k + 3]), scale, zero, zero.dtype) for k in (0, 3))
        return [b.one("Where", condition, x, y)]


# -- products -------------------------------------------------------------------------------------------
def product(b: Any, n: Any, x: Value, y: Value, zx: Value | None, zy: Value | None) -> Value:
    """The integer product of matrices, exact, in int32"""
    return read_as(b, n, "MatMulInteger", [x, y, zx, zy])


def scaled(b: Any, acc: Value, *scales: Value) -> Value:
    """int32 times the product of scales"""
    factor = scales[0]
    for s in scales[1:]:
        factor = b.one("Mul", factor, s)
    return b.one("Mul", b.one("Cast", acc, to=F32), factor)


class QGemm(OpDef):
    """alpha * A' B' + C in integers, C of scale alpha * a_scale * b_scale; float where Y has no scale"""

    name = "QGemm"
    domain = "com.microsoft"

    def from_onnx(self, b: Any, n: Any) -> Sequence[Value | None]:
        x, sx, zx, w, sw, zw, c, sy, zy = [*n.inputs, *[None] * 9][:9]
        if x.type.rank != 2 or w.type.rank != 2:
            n.fail(f"needs matrices, got {x.type} and {w.type}")
        x = b.one("Transpose", x, perm=[1, 0]) if n.attrs.get("transA", 0) else x
        w = b.one("Transpose", w, perm=[1, 0]) if n.attrs.get("transB", 0) else w
        acc = product(b, n, x, w, scalar(b, n, zx, "A's zero point"), zw)
        acc = acc if c is None else b.one("Add", acc, c)
        sx = scalar(b, n, sx, "A's scale")
        alpha = float(n.attrs.get("alpha", 1.0))
        scales = [sx, sw] if alpha == 1 else [b.const(alpha, F32), sx, sw]
        y = scaled(b, acc, *scales)
        return [y if sy is None else stored(b, n, y, sy, zy, x.dtype if zy is None else zy.dtype)]


class MatMulIntegerToFloat(OpDef):
    """MatMulInteger, scaled to float, with a bias"""

    name = "MatMulIntegerToFloat"
    domain = "com.microsoft"

    def from_onnx(self, b: Any, n: Any) -> Sequence[Value | None]:
        x, w, sx, sw, zx, zw, bias = [*n.inputs, *[None] * 7][:7]
        zx = scalar(b, n, zx, "A's zero point")
        y = scaled(b, product(b, n, x, w, zx, zw), scalar(b, n, sx, "A's scale"), sw)  # type: ignore[arg-type]
        return [y if bias is None else b.one("Add", y, bias)]


class DynamicQuantizeMatMul(OpDef):
    """A is quantized by the range it has, then MatMulIntegerToFloat"""

    name = "DynamicQuantizeMatMul"
    domain = "com.microsoft"

    def from_onnx(self, b: Any, n: Any) -> Sequence[Value | None]:
        x, w, sw, zw, bias = [*n.inputs, *[None] * 5][:5]
        quantize = replace(reading(n, "DynamicQuantizeLinear", [x]), n_outputs=3)
        q, sx, zx = opdef("QuantizeLinear").from_onnx(b, quantize)
        assert q is not None and sx is not None
        y = scaled(b, product(b, n, q, w, zx, zw), sx, sw)
        return [y if bias is None else b.one("Add", y, bias)]


class MatMulInteger16(OpDef):
    """The product of matrices of int16 in int32, which wraps"""

    name = "MatMulInteger16"
    domain = "com.microsoft"

    def from_onnx(self, b: Any, n: Any) -> Sequence[Value | None]:
        if any(v.dtype is not DType.I16 for v in n.inputs):
            n.unsupported(f"{n.op} of {n.inputs[0].dtype.value} and {n.inputs[1].dtype.value}, not of int16 and int16,")
        return [read_as(b, n, "MatMul", [b.one("Cast", v, to=DType.I32) for v in n.inputs])]


class MulInteger(OpDef):
    """(A - A's zero point) * (B - B's zero point), in int32"""

    name = "MulInteger"
    domain = "com.microsoft"

    def from_onnx(self, b: Any, n: Any) -> Sequence[Value | None]:
        x, zx, y, zy = [*n.inputs, None][:4]
        parts = []
        for v, zero in ((x, zx), (y, zy)):
            wide = b.one("Cast", v, to=DType.I32)
            zero = scalar(b, n, zero, "a zero point")
            parts.append(wide if zero is None else b.one("Sub", wide, b.one("Cast", zero, to=DType.I32)))
        return [b.one("Mul", *parts)]


class ReduceSumInteger(OpDef):
    """ReduceSum of bytes, in int32"""

    name = "ReduceSumInteger"
    domain = "com.microsoft"

    def from_onnx(self, b: Any, n: Any) -> Sequence[Value | None]:
        x = n.inputs[0]
        axes = normalized_axes(n.ints("axes"), x.type.rank)
        keep = int(bool(n.attrs.get("keepdims", 1)))
        return [b.one("ReduceSum", b.one("Cast", x, to=DType.I32), axes=axes, keepdims=keep)]
