"""`strict`: quantized operators in exact integer arithmetic, rounded once, half to even.

    quantize(clip(sum of terms), s, z) = clamp(round(sum of k * (scale of k / s)) + z)

A term is an int32 that is exact and a scale, which is a float32 and so a fraction: of a dequantized value, of a
convolution or product of dequantized operands with a dequantized or constant bias, of a product of two bytes, of a
mean. Everything between DequantizeLinear and QuantizeLinear that is a sum of at most three such terms becomes one
ExactQuantize; Relu and Clip before it become its limits, since rounding keeps order. QLinearConv and QLinearMatMul
are the same. What is no such sum (Softmax, Sigmoid) stays in float32.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from monobloc.ir.graph import Graph, Node, Value
from monobloc.ir.types import DType
from monobloc.ops.build import Builder, cast_to
from monobloc.ops.exact import TERMS
from monobloc.ops.quant import limits
from monobloc.passes import PassContext
from monobloc.passes.contraction import BYTES
from monobloc.passes.integer import MAX_TERMS, Quantized
from monobloc.passes.integer import dequantized as quantized
from monobloc.passes.rewrite import Rule, apply_rules, made_by, sweep_dead

F32, I32, I64 = DType.F32, DType.I32, DType.I64
KINDS = (DType.I8, DType.U8, DType.I16, DType.U16)
BITS = 62  # of what is multiplied with an int32, so that three products fit into 128 bits
MAX_SHIFT = 98


class Exact:
    name = "exact"

    def run(self, g: Graph, ctx: PassContext) -> bool:
        changed = ctx.numerics == "strict" and apply_rules(g, RULES, ctx, self.name)
        if ctx.numerics == "strict":
            sweep_dead(g)  # of sums that came to nothing
        return changed


@dataclass(frozen=True)
class Term:
    """value * scale; the scale is an object array of fractions that broadcasts to the value."""

    value: Value  # int32
    scale: np.ndarray

    def __post_init__(self) -> None:
        object.__setattr__(self, "scale", np.asarray(self.scale, object))  # numpy unwraps results without axes

    def times(self, f: Fraction) -> Term:
        return Term(self.value, self.scale * f)


def fractions(a: np.ndarray) -> np.ndarray:
    """float32 numbers as they are"""
    flat = [Fraction(float(x)) for x in np.asarray(a, np.float64).ravel()]
    return np.array(flat, object).reshape(np.shape(a))


# -- what is a sum of terms ---------------------------------------------------------------------------
def terms(b: Builder, v: Value | None) -> list[Term] | None:
    """A float32 value as a sum of exact terms"""
    if v is None or v.dtype is not F32:
        return None
    if v.const is not None:
        return [Term(b.const(1, I32), fractions(v.const.array))] if np.isfinite(v.const.array).all() else None
    n = v.producer
    reader = None if n is None else READERS.get(n.op)
    return None if n is None or reader is None else reader(b, n)


def centered(b: Builder, x: Value, zero: Value | None) -> Value:
    """x - zero in int32"""
    wide = cast_to(b, x, I32)
    return wide if zero is None else b.one("Sub", wide, b.one("Cast", zero, to=I32))


def dequantized(v: Value | None, kinds: Sequence[DType]) -> Quantized | None:
    """As `integer` reads it; scales that are no numbers are no fractions."""
    r = quantized(v, kinds)
    return r if r is not None and np.isfinite(r.scale).all() else None


def _read(b: Builder, n: Node) -> list[Term] | None:
    r = dequantized(n.outputs[0], (*KINDS, I32))
    if r is None:
        return None
    if r.value.dtype is I32 and r.zero is not None and r.zero.const is not None and r.zero.const.array.any():
        return None
    shape = [1] * r.value.type.rank
    if r.scale.ndim:
        shape[r.axis] = -1
    zero = None if r.zero is None or r.value.dtype is I32 else r.zero
    if zero is not None and zero.type.rank:
        zero = b.one("Reshape", zero, shape=[zero.type.size if k == r.axis else 1 for k in range(len(shape))])
    return [Term(centered(b, r.value, zero), fractions(r.scale).reshape(shape if r.scale.ndim else ()))]


def _operands(n: Node, axis: int) -> tuple[Quantized, Quantized] | None:
    """Both operands of a product, weights scaled along `axis` at most"""
    x, w = dequantized(n.inputs[0], KINDS), dequantized(n.inputs[1], KINDS)
    if x is None or w is None or x.scale.ndim or (w.scale.ndim and w.axis != axis):
        return None
    return x, w


def _holds(x: DType, w: DType, count: int) -> bool:
    """Whether an int32 holds the sum of so many products for sure"""
    return count <= (MAX_TERMS if {x, w} <= set(BYTES) else (2**31 - 1) // (1 << (8 * (x.size + w.size))))


def _conv(b: Builder, n: Node) -> list[Term] | None:
    found = _operands(n, 0)
    if found is None or not {found[0].value.dtype, found[1].value.dtype} <= set(BYTES):
        return None
    x, w = found
    if not _holds(x.value.dtype, w.value.dtype, math.prod(w.value.shape[1:])):
        return None
    acc = b.one("ConvInteger", x.value, w.value, x.zero, w.zero, **n.attrs)
    shape = [-1] + [1] * (acc.type.rank - 2)
    scale = fractions(w.scale) * Fraction(float(x.scale))
    out = [Term(acc, np.reshape(scale, shape if w.scale.ndim else ()))]
    return _with_bias(b, out, [*n.inputs, None][2], shape)


def _with_bias(b: Builder, out: list[Term], bias: Value | None, shape: list[int]) -> list[Term] | None:
    if bias is None:
        return out
    more = terms(b, bias)
    if more is None or len(out) + len(more) > TERMS:
        return None
    if len(shape) == 1 or bias.type.rank != 1:
        return out + more
    size = [bias.type.size, *shape[1:]]
    return out + [Term(t.value if t.value.type.size == 1 else b.one("Reshape", t.value, shape=size),
                       t.scale if t.scale.size == 1 else t.scale.reshape(shape)) for t in more]


def _matmul(b: Builder, n: Node) -> list[Term] | None:
    a = {"transA": 0, "transB": 0, "alpha": 1.0, "beta": 1.0} | n.attrs
    rank = n.inputs[1].type.rank if n.inputs[1] is not None else 0
    found = _operands(n, 0 if a["transB"] else rank - 1)
    if found is None or a["transA"] or a["alpha"] != 1 or a["beta"] != 1 or rank < 2:
        return None
    x, w = found
    if not {x.value.dtype, w.value.dtype} <= set(BYTES) or x.value.type.rank < 2 or (w.scale.ndim and rank != 2):
        return None
    if not _holds(x.value.dtype, w.value.dtype, x.value.shape[-1]):
        return None
    weights = b.one("Transpose", w.value, perm=[1, 0]) if a["transB"] else w.value
    acc = b.one("MatMulInteger", x.value, weights, x.zero, w.zero)
    out = [Term(acc, fractions(w.scale) * Fraction(float(x.scale)))]
    return _with_bias(b, out, [*n.inputs, None][2] if n.op == "Gemm" else None, [-1])


def _sum(b: Builder, n: Node) -> list[Term] | None:
    x, y = terms(b, n.inputs[0]), terms(b, n.inputs[1])
    if x is None or y is None or len(x) + len(y) > TERMS:
        return None
    return x + [t.times(Fraction(-1 if n.op == "Sub" else 1)) for t in y]


def _product(b: Builder, n: Node) -> list[Term] | None:
    x, y = terms(b, n.inputs[0]), terms(b, n.inputs[1])
    reads = [v for v in n.inputs if made_by(v, "DequantizeLinear") is not None]
    fits = [v for v in reads if v is not None and v.producer.inputs[0].dtype in BYTES]  # type: ignore[union-attr]
    if x is None or y is None or len(x) != 1 or len(y) != 1 or len(fits) != 2 or x[0].scale.size * y[0].scale.size > 1:
        return None
    return [Term(b.one("Mul", x[0].value, y[0].value), x[0].scale.reshape(()) * y[0].scale.reshape(()))]


def _mean(b: Builder, n: Node) -> list[Term] | None:
    """The sum must fit int32: of stored integers it does, of products and other sums it may not."""
    axes, stored = n.attrs["axes"], made_by(n.inputs[0], "DequantizeLinear")
    if stored is None or stored.inputs[0] is None or stored.inputs[0].dtype.size > 2:
        return None
    x = terms(b, n.inputs[0])
    if x is None or len(x) != 1 or x[0].scale.size != 1:
        return None
    count = math.prod(x[0].value.shape[a] for a in axes)
    if not count or count > 1 << 14:
        return None
    total = b.one("ReduceSum", x[0].value, axes=axes, keepdims=n.attrs["keepdims"])
    return [Term(total, x[0].scale.reshape(()) * Fraction(1, count))]


def _average(b: Builder, n: Node) -> list[Term] | None:
    """Windows of equal size are a convolution with ones."""
    r = dequantized(n.inputs[0], BYTES)
    a = n.attrs
    if r is None or r.scale.ndim or a["ceil_mode"] or (any(a["pads"]) and not a["count_include_pad"]):
        return None
    channels, count = r.value.shape[1], math.prod(a["kernel_shape"])
    if count > MAX_TERMS:
        return None
    ones = b.const(np.ones((channels, 1, *a["kernel_shape"]), np.int8))
    window = {k: a[k] for k in ("kernel_shape", "strides", "pads", "dilations")}
    acc = b.one("ConvInteger", r.value, ones, r.zero, None, **window, group=channels)
    return [Term(acc, fractions(r.scale).reshape(()) * Fraction(1, count))]


READERS = {
    "DequantizeLinear": _read, "Conv": _conv, "MatMul": _matmul, "Gemm": _matmul, "Add": _sum, "Sub": _sum,
    "Mul": _product, "ReduceMean": _mean, "AveragePool": _average,
}  # fmt: skip


# -- rules ----------------------------------------------------------------------------------------------
def quantize_sum(n: Node, b: Builder) -> Sequence[Value] | None:
    """A sum of exact terms is rounded once"""
    v, scale, zero = [*n.inputs, None][:3]
    found = _target(n, scale, zero)
    if found is None:
        return None
    s, z = found
    same = dequantized(v, KINDS)
    if same is not None and not same.scale.ndim and Fraction(float(same.scale)) == s:
        return None  # the integers themselves, which `ranges` sees
    lo, hi = limits(n.attrs["to"])
    lo, hi, v = _clipped(v, s, z, lo, hi)
    parts = terms(b, v)
    return None if parts is None else _quantized(b, parts, s, z, lo, hi, n.attrs["to"], n.outputs[0].shape)


def qlinear_product(n: Node, b: Builder) -> Sequence[Value] | None:
    """QLinearConv and QLinearMatMul are rounded once"""
    x, sx, zx, w, sw, zw, sy, zy, bias = [*n.inputs, None][:9]
    scales = [None if v is None or v.const is None else v.const.array for v in (sx, sw, sy)]
    if x is None or w is None or zy is None or zy.const is None or zy.type.size != 1:
        return None
    if any(s is None or not np.isfinite(s).all() for s in scales) or scales[0].size > 1 or scales[2].size > 1:  # type: ignore
        return None
    if scales[1].ndim > 1 and scales[1].size > 1 or not scales[2].reshape(()) > 0:  # type: ignore[union-attr]
        return None
    if n.op == "QLinearConv":
        acc = b.one("ConvInteger", x, w, zx, zw, **n.attrs)
        shape = [-1] + [1] * (acc.type.rank - 2)
        acc = acc if bias is None else b.one("Add", acc, b.one("Reshape", bias, shape=[bias.type.size, *shape[1:]]))
    else:
        acc, shape = b.one("MatMulInteger", x, w, zx, zw), [-1]
    one = Fraction(float(scales[0].reshape(())))  # type: ignore[union-attr]
    scale = fractions(scales[1].reshape(shape if scales[1].size > 1 else ())) * one  # type: ignore[union-attr]
    s, z = Fraction(float(scales[2].reshape(()))), int(zy.const.array.reshape(()))  # type: ignore[union-attr]
    lo, hi = limits(zy.dtype)
    return _quantized(b, [Term(acc, np.asarray(scale, object))], s, z, lo, hi, zy.dtype, n.outputs[0].shape)


def _target(n: Node, scale: Value | None, zero: Value | None) -> tuple[Fraction, int] | None:
    """Scale and zero point of the result: constant, one of each"""
    if scale is None or scale.const is None or scale.type.rank or scale.dtype is not F32 or n.attrs["to"] not in KINDS:
        return None
    if zero is not None and zero.const is None or not 0 < float(scale.const.array) < math.inf:
        return None
    return Fraction(float(scale.const.array)), 0 if zero is None or zero.const is None else int(zero.const.array)


def _clipped(v: Value | None, s: Fraction, z: int, lo: int, hi: int) -> tuple[int, int, Value | None]:
    """Limits before rounding are limits behind it."""
    while (c := made_by(v, "Relu", "Clip")) is not None:
        low, high = ([*c.inputs, None, None][1:3]) if c.op == "Clip" else (None, None)
        known = [None if x is None or x.const is None else float(x.const.array.reshape(())) for x in (low, high)]
        if any(x is not None and x.const is None for x in (low, high)) or any(k is not None and k != k for k in known):
            break
        low_at, high_at = (0.0 if c.op == "Relu" else known[0]), known[1]
        if low_at is not None and math.isfinite(low_at):
            lo = min(max(lo, round(Fraction(low_at) / s) + z), hi)
        if high_at is not None and math.isfinite(high_at):
            hi = max(min(hi, round(Fraction(high_at) / s) + z), lo)
        v = c.inputs[0]
    return lo, hi, v


def _quantized(
    b: Builder, parts: list[Term], s: Fraction, z: int, lo: int, hi: int, to: DType, shape: tuple[int, ...]
) -> list[Value] | None:
    """The terms over one denominator and one power of two"""
    found = _common([t.scale / s for t in parts])
    if found is None:
        return None
    factors, den, shift = found
    inputs = [x for t, p in zip(parts, factors, strict=True) for x in (t.value, b.const(p))]
    y = b.one("ExactQuantize", *inputs, den=den, shift=shift, zero=z, lo=lo, hi=hi, to=to)
    return [y] if y.shape == shape else None


def _common(scales: list[np.ndarray]) -> tuple[list[np.ndarray], int, int] | None:
    """Integers p, den and shift with scale = p / (den * 2^shift); None where they get too large"""
    every = [f for a in scales for f in np.asarray(a, object).ravel()]
    odd, shift = 1, 0
    for f in every:
        twos = (f.denominator & -f.denominator).bit_length() - 1
        shift = max(shift, twos)
        odd = math.lcm(odd, f.denominator >> twos)
    unit = odd << shift
    factors = [[int(f * unit) for f in np.asarray(a, object).ravel()] for a in scales]
    common = math.gcd(odd, *(p for a in factors for p in a))
    odd, factors = odd // common, [[p // common for p in a] for a in factors]
    largest = max((abs(p).bit_length() for a in factors for p in a), default=0)
    if largest > BITS or odd.bit_length() > BITS or shift > MAX_SHIFT or odd.bit_length() + shift > 2 * BITS:
        return None
    return [np.array(p, np.int64).reshape(np.shape(s)) for p, s in zip(factors, scales, strict=True)], odd, shift


RULES: dict[str, Sequence[Rule]] = {
    "QuantizeLinear": [quantize_sum],
    "QLinearConv": [qlinear_product],
    "QLinearMatMul": [qlinear_product],
}
