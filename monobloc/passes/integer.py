"""Quantized products become integer products.

    conv(dq(x), dq(w), dq(b))     = (convInteger(x, w) + b) * (scale of x * scale of w)
    QLinearConv(x, w, b)          = quantize((convInteger(x, w) + b) * (scales of x and w / scale of y))
    quantize(relu(t * c), s)      = quantize(relu(t * (c / s)), 1)
    move(dq(x, s))                = dq(move(x), s)
    quantize(move(x))             = move(quantize(x))

and the same for matrix products. What stands behind an integer product is elementwise: it fuses as the
kernel's epilogue. Constant weights become signed bytes; `packable` marks products that the integer kernel
computes. Objects keep their weights as they are, so there only bytes are moved: the products of dequantized
operands run in the kernels of floats.

Operands are bytes, or x has 16 bits and int32 holds the largest sum that these weights can make. All sums are
exact. In `strict` only what is exact to the bit is rewritten.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from monobloc.ir.graph import Graph, Node, Value
from monobloc.ir.symbolic import guess, is_open
from monobloc.ir.types import DType
from monobloc.ops.build import Builder
from monobloc.ops.quant import limits
from monobloc.passes import PassContext
from monobloc.passes.contraction import BYTES, INTEGER_OPS, PACKABLE, SHORTS
from monobloc.passes.decompose import interleave, phase_attrs, phase_weights, regular
from monobloc.passes.rewrite import Rule, apply_rules, made_by, only_use

F32, I32 = DType.F32, DType.I32
INTEGERS = (*BYTES, *SHORTS)
EXACT_IN_F32 = 1 << 24
MAX_TERMS = (1 << 31) // (255 * 128) - 1  # products of bytes that an int32 holds for sure
WHOLE_MOVES = ("Reshape", "Transpose", "Slice", "Squeeze", "Unsqueeze", "Flatten")
MOVES = (*WHOLE_MOVES, "MaxPool")


class Integer:
    name = "integer"

    def run(self, g: Graph, ctx: PassContext) -> bool:
        if ctx.stage != "image":
            return apply_rules(g, MOVING, ctx, self.name)
        changed = apply_rules(g, EXACT if ctx.numerics == "strict" else EXACT | CLOSE, ctx, self.name)
        for node in list(g.nodes):
            if node.op in INTEGER_OPS:
                changed |= _prepare(g, node, ctx)
        return changed


# -- what is read -----------------------------------------------------------------------------------
@dataclass(frozen=True)
class Quantized:
    """A tensor of bytes and what they stand for."""

    value: Value
    scale: np.ndarray
    zero: Value | None
    axis: int  # of scales and zero points, where there are several


def dequantized(v: Value | None, kinds: Sequence[DType] = BYTES) -> Quantized | None:
    """The bytes behind a DequantizeLinear of constant scale."""
    d = made_by(v, "DequantizeLinear")
    if d is None or d.attrs["block_size"] or d.attrs["to"] is not F32:
        return None
    x, scale, zero = [*d.inputs, None][:3]
    if x is None or x.dtype not in kinds or scale is None or scale.const is None or scale.dtype is not F32:
        return None
    if zero is not None and zero.const is None:
        return None
    return Quantized(x, scale.const.array, zero, d.attrs["axis"])


def _per_tensor_or(q: Quantized, axis: int) -> bool:
    return q.scale.ndim == 0 or q.axis == axis


# -- rules --------------------------------------------------------------------------------------------
def conv_of_dequantized(n: Node, b: Builder) -> Sequence[Value] | None:
    """conv(dq(x), dq(w), bias) = scales * (convInteger(x, w) + bias)"""
    x, w, bias = dequantized(n.inputs[0], INTEGERS), dequantized(n.inputs[1]), [*n.inputs, None][2]
    if x is None or w is None or w.value.const is None or x.scale.ndim or not _per_tensor_or(w, 0):
        return None
    if not _holds(x, w, tuple(range(1, w.value.type.rank)), bias):
        return None
    acc = b.one("ConvInteger", x.value, w.value, x.zero, w.zero, **n.attrs)
    shape = [-1] + [1] * (acc.type.rank - 2)
    return _scaled(b, acc, x.scale * w.scale, shape, bias)


def matmul_of_dequantized(n: Node, b: Builder) -> Sequence[Value] | None:
    """matmul(dq(x), dq(w)) = scales * matmulInteger(x, w); of a Gemm, alpha is one of the scales"""
    x, w = dequantized(n.inputs[0], INTEGERS), dequantized(n.inputs[1])
    if x is None or w is None or w.value.const is None or x.scale.ndim or w.value.type.rank != 2:
        return None
    a = {"transA": 0, "transB": 0, "alpha": 1.0, "beta": 1.0} | n.attrs
    if a["transA"] or not _per_tensor_or(w, 0 if a["transB"] else 1):
        return None
    bias = [*n.inputs, None][2] if n.op == "Gemm" and a["beta"] else None
    if x.value.type.rank < 2 or not _holds(x, w, (1 if a["transB"] else 0,), bias):
        return None
    weights = b.one("Transpose", w.value, perm=[1, 0]) if a["transB"] else w.value
    acc = b.one("MatMulInteger", x.value, weights, x.zero, w.zero)
    if bias is not None and a["beta"] != 1:
        bias = b.one("Mul", bias, b.const(a["beta"], F32))
    return _scaled(b, acc, np.float32(a["alpha"]) * x.scale * w.scale, [-1], bias)


def one_matrix(n: Node, b: Builder) -> Sequence[Value] | None:
    """matmul(x, dq(w)) of weights [1, ..., 1, k, n] is that of a matrix"""
    w = dequantized(n.inputs[1])
    x, spare = n.inputs[0], 0 if w is None else w.value.type.rank - 2
    if x is None or w is None or w.value.const is None or spare <= 0 or set(w.value.shape[:spare]) != {1}:
        return None
    if w.scale.ndim and w.axis < spare:
        return None
    matrix = b.one("Reshape", w.value, shape=list(w.value.shape[spare:]))
    attrs = {**made_by(n.inputs[1], "DequantizeLinear").attrs, "axis": max(0, w.axis - spare)}  # type: ignore[union-attr]
    y = b.one("MatMul", x, b.emit("DequantizeLinear", [matrix, b.const(w.scale), w.zero], attrs)[0])
    return [y if y.type.rank == n.outputs[0].type.rank else b.one("Reshape", y, shape=list(n.outputs[0].shape))]


def conv_transpose_of_dequantized(n: Node, b: Builder) -> Sequence[Value] | None:
    """convTranspose(dq(x), dq(w)) = interleave(scales * convInteger(x, phases of w))"""
    x, w, bias = dequantized(n.inputs[0], INTEGERS), dequantized(n.inputs[1]), [*n.inputs, None][2]
    if x is None or w is None or w.value.const is None or x.scale.ndim or not _per_tensor_or(w, 1) or not regular(n):
        return None
    added = None if bias is None else _constant(bias)
    if (bias is not None and added is None) or not _holds(x, w, (0, *range(2, w.value.type.rank)), bias):
        return None
    count = math.prod(n.attrs["strides"])

    def every(a: np.ndarray) -> np.ndarray:
        return np.repeat(a, count) if a.size > 1 else a.reshape(())

    stored = w.value.const.array
    zero = np.zeros((), stored.dtype) if w.zero is None or w.zero.const is None else w.zero.const.array
    shift = b.const(every(zero)) if zero.any() else None
    acc = b.one("ConvInteger", x.value, b.const(phase_weights(n, stored, zero)), x.zero, shift, **phase_attrs(n))
    more = None if added is None else b.const(np.repeat(added, count))
    y = _scaled(b, acc, x.scale * every(w.scale), [-1] + [1] * (acc.type.rank - 2), more)
    return [interleave(b, y[0], n)]


def _constant(bias: Value) -> np.ndarray | None:
    """What is added, in float32"""
    if bias.const is not None:
        return bias.const.array
    q = dequantized(bias, (I32,))
    if q is None or q.value.const is None or not _no_zero(q.zero):
        return None
    return np.asarray(q.value.const.array.astype(np.float32) * q.scale, np.float32)


def _holds(x: Quantized, w: Quantized, axes: tuple[int, ...], bias: Value | None) -> bool:
    """Whether int32 holds every sum over these axes of the weights. Of 16 bits a kernel must be there, too: floats
    have one."""
    if x.value.dtype in BYTES:
        return math.prod(w.value.shape[k] for k in axes) <= MAX_TERMS
    if w.value.type.rank > 4:
        return False
    lo, hi = limits(x.value.dtype)
    zero = 0 if x.zero is None or x.zero.const is None else int(x.zero.const.array.reshape(()))
    most = int(np.abs(_centered(w)).sum(axes, dtype=np.int64).max(initial=0))
    q = dequantized(bias, (I32,))
    more = 0 if q is None or q.value.const is None else int(np.abs(q.value.const.array.astype(np.int64)).max(initial=0))
    return most * max(hi - zero, zero - lo) + more < 1 << 31


def _centered(w: Quantized) -> np.ndarray:
    """Weights less their zero points"""
    assert w.value.const is not None
    shape = [1] * w.value.type.rank
    if w.zero is None or w.zero.const is None:
        return w.value.const.array.astype(np.int16)
    if w.zero.type.rank:
        shape[w.axis] = -1
    return w.value.const.array.astype(np.int16) - w.zero.const.array.astype(np.int16).reshape(shape)


def _scaled(b: Builder, acc: Value, scale: np.ndarray, shape: list[int], bias: Value | None) -> list[Value]:
    """(acc + bias) * scale, where the bias is int32 of the same scale; else acc * scale + bias."""
    q = dequantized(bias, (I32,))
    fits = q is not None and _no_zero(q.zero) and bool(np.all(np.isclose(q.scale, scale, rtol=1e-5, atol=0)))
    if q is not None and fits:
        acc = b.one("Add", acc, _along(b, q.value, shape))
    y = b.one("Mul", b.one("Cast", acc, to=F32), b.const(np.asarray(scale, np.float32).reshape(_shape(scale, shape))))
    if bias is not None and not fits:
        y = b.one("Add", y, _along(b, bias, shape))
    return [y]


def _along(b: Builder, v: Value, shape: list[int]) -> Value:
    """A vector along the channels; other shapes broadcast as they are."""
    if v.type.rank != 1 or len(shape) == 1:
        return v
    return b.one("Reshape", v, shape=[v.type.size, *shape[1:]])


def _shape(scale: np.ndarray, shape: list[int]) -> list[int]:
    return shape if scale.size > 1 else []


def _no_zero(v: Value | None) -> bool:
    return v is None or (v.const is not None and not v.const.array.any())


def qlinear_conv(n: Node, b: Builder) -> Sequence[Value] | None:
    """QLinearConv(x, w, bias) = quantize(scales * (convInteger(x, w) + bias))"""
    x, sx, zx, w, sw, zw, sy, zy, bias = [*n.inputs, None][:9]
    factor = _factor(sx, sw, sy)
    if factor is None or x is None or w is None:
        return None
    acc = b.one("ConvInteger", x, w, zx, zw, **n.attrs)
    shape = [-1] + [1] * (acc.type.rank - 2)
    acc = acc if bias is None else b.one("Add", acc, _along(b, bias, shape))
    return _requantized(b, acc, factor.reshape(_shape(factor, shape)), zy)


def qlinear_matmul(n: Node, b: Builder) -> Sequence[Value] | None:
    """QLinearMatMul(x, w) = quantize(scales * matmulInteger(x, w))"""
    x, sx, zx, w, sw, zw, sy, zy = n.inputs
    factor = _factor(sx, sw, sy)
    if factor is None or x is None or w is None or (sw is not None and sw.type.rank > 1 and sw.type.size > 1):
        return None
    acc = b.one("MatMulInteger", x, w, zx, zw)
    return _requantized(b, acc, factor.reshape(_shape(factor, [-1])), zy)


def _factor(sx: Value | None, sw: Value | None, sy: Value | None) -> np.ndarray | None:
    """scale of x * scale of w / scale of y, where all are constant, and those of x and y one number."""
    scales = [None if s is None or s.const is None else s.const.array.astype(np.float32).reshape(-1)
              for s in (sx, sw, sy)]
    x, w, y = scales
    if x is None or w is None or y is None or x.size > 1 or y.size > 1:
        return None
    return np.asarray(x * w / y)


def _requantized(b: Builder, acc: Value, factor: np.ndarray, zero: Value | None) -> list[Value] | None:
    if zero is None or zero.type.size != 1:
        return None
    y = b.one("Mul", b.one("Cast", acc, to=F32), b.const(factor.astype(np.float32)))
    point = zero if zero.type.rank == 0 else b.one("Reshape", zero, shape=[])
    attrs = {"axis": 0, "block_size": 0, "to": zero.dtype}
    return b.emit("QuantizeLinear", [y, b.const(1, F32), point], attrs)


def merge_scales(n: Node, b: Builder) -> Sequence[Value] | None:
    """quantize(relu(t * c), s) = quantize(relu(t * (c / s)), 1)"""
    v, s = n.inputs[:2]
    if s is None or s.const is None or s.type.rank or s.dtype is not F32 or not s.const.array > 0:
        return None
    relu = made_by(v, "Relu")
    m = made_by(relu.inputs[0] if relu is not None else v, "Mul")
    if m is None or v is None or float(s.const.array) == 1 or not only_use(b.graph, v):
        return None
    t, c = m.inputs
    cast = made_by(t, "Cast")
    if cast is None or cast.inputs[0].dtype is not I32 or c is None or c.const is None:  # type: ignore[union-attr]
        return None
    if not only_use(b.graph, m.outputs[0]):
        return None
    y = b.one("Mul", t, b.const(np.asarray(c.const.array / s.const.array, np.float32)))
    y = b.one("Relu", y) if relu is not None else y
    return b.emit("QuantizeLinear", [y, b.const(1, F32), *n.inputs[2:]], n.attrs)


def move_bytes(n: Node, b: Builder) -> Sequence[Value] | None:
    """move(dq(x, s, z)) = dq(move(x), s, z)"""
    x = dequantized(n.inputs[0], INTEGERS)
    if x is None or x.scale.ndim or not x.scale > 0 or len(n.outputs) > 1 or len(n.used) > 1:
        return None
    d = n.inputs[0].producer  # type: ignore[union-attr]
    if d is None or (x.value.const is not None and not only_use(b.graph, d.outputs[0])):
        return None  # constants would be there twice
    y = b.one(n.op, x.value, **n.attrs)
    return b.emit("DequantizeLinear", [y, *d.inputs[1:]], d.attrs)


def quantize_before_moves(n: Node, b: Builder) -> Sequence[Value] | None:
    """quantize(relu(move(x))) = move(quantize(relu(x))), where that makes hardly more of them"""
    v = n.inputs[0]
    scale, zero = [*n.inputs, None][1:3]
    if scale is None or scale.type.rank or (zero is not None and zero.type.rank) or n.attrs["block_size"]:
        return None
    relu = made_by(v, "Relu")
    moved = v if relu is None else relu.inputs[0]
    m = made_by(moved, *WHOLE_MOVES)
    if m is None or not all(x is not None and only_use(b.graph, x) for x in (v, moved)) or len(m.used) > 1:
        return None
    x = m.inputs[0]
    if x is None or x.producer is None or guess(x.type.size) > guess(moved.type.size) * 1.5:  # type: ignore[union-attr]
        return None
    y = x if relu is None else b.one("Relu", x)
    q = b.emit("QuantizeLinear", [y, scale, zero], n.attrs)[0]
    return b.emit(m.op, [q], m.attrs)


MOVING: dict[str, Sequence[Rule]] = dict.fromkeys(MOVES, [move_bytes])
EXACT: dict[str, Sequence[Rule]] = {
    "QLinearConv": [qlinear_conv],
    "QLinearMatMul": [qlinear_matmul],
    **MOVING,
}
CLOSE: dict[str, Sequence[Rule]] = {
    "Conv": [conv_of_dequantized],
    "MatMul": [one_matrix, matmul_of_dequantized],
    "Gemm": [matmul_of_dequantized],
    "ConvTranspose": [conv_transpose_of_dequantized],
    "QuantizeLinear": [merge_scales, quantize_before_moves],
}


# -- weights ------------------------------------------------------------------------------------------
def _prepare(g: Graph, node: Node, ctx: PassContext) -> bool:
    """Weights as signed bytes, their zero point gone where they stay bytes without it."""
    if _both_computed(node):
        _multiply_floats(g, node)
        return True
    why = _obstacle(node)
    if why:
        ctx.reason(node, Integer.name, f"loops: {why}")
        return False
    found = signed_weights(node)
    if found is None:
        _take_zeros_off(g, node)
        return True
    data, zero = found
    w = node.inputs[1]
    assert w is not None and w.const is not None
    b = Builder(g, before=node, locs=node.locs, name=node.name)
    if w.dtype is not DType.I8 or data is not w.const.array:
        g.set_input(node, 1, b.const(data, name=f"{w.name}.signed"))
    point = b.const(np.asarray(zero, np.int8)) if zero else None
    inputs = [*node.inputs, None, None][:4]
    if inputs[3] is not point:
        g.release([node])
        new = b.emit(node.op, [node.inputs[0], node.inputs[1], inputs[2], point], node.attrs | {PACKABLE: True})
        g.replace(node.outputs[0], new[0])
        g.remove_all({node})
    else:
        node.attrs[PACKABLE] = True
    return True


def _obstacle(node: Node) -> str:
    x, w, zx, zw = [*node.inputs, None, None][:4]
    assert x is not None and w is not None
    if w.const is None:
        return "both operands are computed"
    if x.dtype not in INTEGERS or w.dtype not in BYTES or not x.type.size or not w.type.size:
        return "operands are no bytes"
    if zx is not None and zx.type.size != 1:
        return "x has a zero point for every row"
    if zw is not None and zw.const is None:
        return "the zero point of the weights is computed"
    if node.op == "MatMulInteger":
        return "" if all(d == 1 for d in w.shape[:-2]) else "there is a matrix of weights for every batch"
    return "" if x.type.rank in (3, 4) else f"a convolution over {x.type.rank - 2} axes"


def _both_computed(node: Node) -> bool:
    """Matrices of bytes that come when it runs, of which float32 has every sum exactly"""
    x, w, *zeros = [*node.inputs, None, None][:4]
    assert x is not None and w is not None
    if node.op != "MatMulInteger" or w.const is not None or not {x.dtype, w.dtype} <= set(BYTES):
        return False
    if not x.type.size or not w.type.size or any(z is not None and z.type.size != 1 for z in zeros):
        return False
    return not is_open(x.shape[-1]) and x.shape[-1] * math.prod(map(_span, (x, w), zeros)) <= EXACT_IN_F32


def _span(v: Value, zero: Value | None) -> int:
    """How far its elements may be from the zero point"""
    lo, hi = limits(v.dtype)
    if zero is not None and zero.const is None:
        return hi - lo
    z = 0 if zero is None or zero.const is None else int(zero.const.array.reshape(()))
    return max(hi - z, z - lo)


def _multiply_floats(g: Graph, node: Node) -> None:
    """product(x, w) = int(float(x - zx) @ float(w - zw)): a kernel of packed bytes wants its weights before it runs"""
    b = Builder(g, before=node, locs=node.locs, name=node.name)
    x, w, zx, zw = [*node.inputs, None, None][:4]
    g.release([node])

    def real(v: Value | None, zero: Value | None) -> Value:
        wide = b.one("Cast", v, to=F32)
        if zero is None:
            return wide
        return b.one("Sub", wide, b.one("Reshape", b.one("Cast", zero, to=F32), shape=[]))

    y = b.one("MatMul", real(x, zx), real(w, zw))
    acc = node.outputs[0]
    for user in list(dict.fromkeys(acc.users)):
        if user.op == "Cast" and user.attrs["to"] is F32:
            g.replace(user.outputs[0], y)
    g.replace(acc, b.one("Cast", y, to=I32))
    g.remove(node)


def _take_zeros_off(g: Graph, node: Node) -> None:
    """product(x, w - zeros) = product(x, w) - zeros * product(x, ones), with a zero point per channel"""
    x, w, zx, zw = node.inputs
    assert w is not None and w.const is not None and zw is not None and zw.const is not None
    b = Builder(g, before=node, locs=node.locs, name=node.name)
    shift = 128 if w.dtype is DType.U8 else 0
    shape, ones = list(w.shape), [*w.shape[:-1], 1]
    if node.op == "ConvInteger":  # one sum for all channels, in groups one for each
        ones = [1 if node.attrs["group"] == 1 else shape[0], *shape[1:]]
    g.release([node])
    whole, sums = (b.one(node.op, x, b.const(data), zx, None, **node.attrs, **{PACKABLE: True}) for data in (
        (w.const.array.astype(np.int16) - shift).astype(np.int8), np.ones(ones, np.int8)))
    zeros = (zw.const.array.astype(np.int32) - shift).reshape([-1] + [1] * (w.type.rank - 2))
    if node.op == "MatMulInteger":
        zeros = zeros.reshape(-1)
    g.replace(node.outputs[0], b.one("Sub", whole, b.one("Mul", sums, b.const(zeros))))
    g.remove_all({node})


def signed_weights(node: Node) -> tuple[np.ndarray, int] | None:
    """(weights, zero point) as int8; None where zero points of channels differ and do not fit."""
    w, zw = [*node.inputs, None, None][1:4:2]
    assert w is not None and w.const is not None
    data = w.const.array
    if zw is None or zw.const is None or not zw.const.array.any():
        zero: np.ndarray = np.zeros((), np.int16)
    else:
        zero = zw.const.array.astype(np.int16).reshape(-1)
        zero = zero.reshape(()) if zero.size == 1 else zero
    if data.dtype == np.int8 and not zero.any():
        return data, 0
    lined = zero.reshape([-1] + [1] * (data.ndim - 1)) if zero.ndim and node.op == "ConvInteger" else zero
    plain = data.astype(np.int16) - lined
    if plain.min() >= -128 and plain.max() <= 127:
        return plain.astype(np.int8), 0
    if zero.ndim:
        return None
    shift = 128 if data.dtype == np.uint8 else 0
    return (data.astype(np.int16) - shift).astype(np.int8), int(zero) - shift


