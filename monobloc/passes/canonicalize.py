"""One way to write each thing, so that later passes have one thing to look for.

Biases become Adds, Gemm becomes MatMul, BatchNormalization becomes Mul and Add, everything that only
renames axes becomes Reshape, Split becomes Slices; what does nothing vanishes.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from monobloc.ir.graph import Graph, Node, Value
from monobloc.ir.symbolic import surely_less
from monobloc.ir.types import DType
from monobloc.ops.build import Builder
from monobloc.passes import PassContext
from monobloc.passes.rewrite import Rule, apply_rules, made_by


class Canonicalize:
    name = "canonicalize"

    def run(self, g: Graph, ctx: PassContext) -> bool:
        return apply_rules(g, RULES, ctx, self.name)


def _channels(b: Builder, v: Value, rank: int) -> Value:
    """[C] -> [C, 1, 1...] so that it broadcasts along axis 1 of a tensor of `rank`"""
    return b.one("Reshape", v, shape=[v.type.size] + [1] * (rank - 2))


def split_bias(n: Node, b: Builder) -> Sequence[Value] | None:
    """conv(x, w, bias) = conv(x, w) + bias"""
    if len(n.inputs) < 3 or n.inputs[2] is None:
        return None
    y = b.emit(n.op, n.inputs[:2], n.attrs)[0]
    return b.emit("Add", [y, _channels(b, n.inputs[2], y.type.rank)], name=f"{n.name}.bias")


def trim_kernel(n: Node, b: Builder) -> Sequence[Value] | None:
    """conv(x, w) without the outer taps of w that meet nothing but padding: strong dilations of small images"""
    x, w = n.inputs[0], n.inputs[1]
    assert x is not None and w is not None
    rank, pads = x.type.rank - 2, list(n.attrs["pads"])
    starts, sizes = [0] * w.type.rank, list(w.shape)
    for k in range(rank):
        d, s, size = n.attrs["dilations"][k], n.attrs["strides"][k], x.shape[2 + k]
        meets = [t for t in range(w.shape[2 + k]) if _meets(t * d - pads[k], s, n.outputs[0].shape[2 + k], size)]
        if not meets:
            return None
        before, after = meets[0], w.shape[2 + k] - 1 - meets[-1]
        if before * d > pads[k] or after * d > pads[rank + k]:
            continue
        pads[k], pads[rank + k] = pads[k] - before * d, pads[rank + k] - after * d
        starts[2 + k], sizes[2 + k] = before, w.shape[2 + k] - before - after
    if sizes == list(w.shape):
        return None
    cut = {"starts": starts, "steps": [1] * w.type.rank, "sizes": sizes}
    inner = b.emit("Slice", [w], cut, name=f"{n.name}.taps")[0]
    attrs = {**n.attrs, "pads": pads, **({"kernel_shape": sizes[2:]} if "kernel_shape" in n.attrs else {})}
    return b.emit(n.op, [x, inner, *n.inputs[2:]], attrs)


def _meets(first: int, step: int, count: int, size: int) -> bool:
    """Whether any of first, first + step, ... may lie in range(size)"""
    at = max(0, -(first // step))  # the first that is not negative
    return not surely_less(count, at + 1) and not surely_less(size, first + at * step + 1)


def lower_gemm(n: Node, b: Builder) -> Sequence[Value] | None:
    """gemm(a, b, c) = alpha * a' b' + beta * c"""
    a, w, c = [*n.inputs, None][:3]
    assert a is not None and w is not None
    if n.attrs.get("transA"):
        a = b.one("Transpose", a, perm=[1, 0])
    if n.attrs.get("transB"):
        w = b.one("Transpose", w, perm=[1, 0])
    y = b.one("MatMul", a, w)
    alpha, beta = n.attrs.get("alpha", 1.0), n.attrs.get("beta", 1.0)
    if alpha != 1:
        y = b.one("Mul", y, b.const(alpha, y.dtype))
    if c is None or beta == 0:
        return [y]
    if beta != 1:
        c = b.one("Mul", c, b.const(beta, c.dtype))
    return b.emit("Add", [y, c], name=f"{n.name}.bias")


def lower_batch_norm(n: Node, b: Builder) -> Sequence[Value] | None:
    """(x - mean) / sqrt(var + eps) * s + t = x * k + (t - mean * k), k = s / sqrt(var + eps)"""
    x, s, t, mean, var = n.inputs
    assert x is not None and s is not None and t is not None and mean is not None and var is not None
    if any(v.const is None for v in (s, t, mean, var)) or x.dtype is not DType.F32:
        return None
    f64 = [v.const.array.astype(np.float64) for v in (s, t, mean, var)]  # type: ignore[union-attr]
    with np.errstate(all="ignore"):  # of a negative variance: NaN
        k = f64[0] / np.sqrt(f64[3] + n.attrs.get("epsilon", 1e-5))
        shift = f64[1] - f64[2] * k
    rank = max(x.type.rank, 2)
    scale = _channels(b, b.const(k, x.dtype), rank)
    return [b.one("Add", b.one("Mul", x, scale), _channels(b, b.const(shift, x.dtype), rank))]


def to_reshape(n: Node, b: Builder) -> Sequence[Value] | None:
    """flatten, squeeze, unsqueeze and a transpose of axes of one element are reshapes"""
    if n.op == "Transpose":
        x = n.inputs[0]
        assert x is not None
        moved = [p for p in n.attrs["perm"] if x.shape[p] != 1]
        if moved != sorted(moved):
            return None
    return [b.one("Reshape", n.inputs[0], shape=list(n.outputs[0].shape))]


def merge_reshape(n: Node, b: Builder) -> Sequence[Value] | None:
    """reshape(reshape(x)) = reshape(x); to its own shape: nothing"""
    x = n.inputs[0]
    assert x is not None
    if x.shape == n.outputs[0].shape:
        return [x]
    inner = made_by(x, "Reshape")
    if inner is None:
        return None
    return [b.one("Reshape", inner.inputs[0], shape=list(n.outputs[0].shape))]


def merge_transpose(n: Node, b: Builder) -> Sequence[Value] | None:
    """transpose(transpose(x)) = transpose(x); the identity permutation: nothing"""
    x, perm = n.inputs[0], n.attrs["perm"]
    if list(perm) == list(range(len(perm))):
        return [x]  # type: ignore[list-item]
    inner = made_by(x, "Transpose")
    if inner is None:
        return None
    return [b.one("Transpose", inner.inputs[0], perm=[inner.attrs["perm"][p] for p in perm])]


def drop_same_shape(n: Node, b: Builder) -> Sequence[Value] | None:
    """expand, slice, pad, tile, concat or sum that changes nothing: nothing"""
    x = n.inputs[0]
    assert x is not None
    if x.shape != n.outputs[0].shape or (n.op in ("Concat", "Sum", "Max", "Min", "Mean") and len(n.used) > 1):
        return None
    if n.op == "Slice" and any(s < 0 for s in n.attrs["steps"]):
        return None
    if n.op == "Pad" and any(n.attrs["pads"]):
        return None
    return [x]


def drop_cast(n: Node, b: Builder) -> Sequence[Value] | None:
    """cast to its own type: nothing"""
    return [n.inputs[0]] if n.inputs[0].dtype is n.outputs[0].dtype else None  # type: ignore[union-attr,list-item]


def split_to_slices(n: Node, b: Builder) -> Sequence[Value] | None:
    """split(x) = slices of x"""
    x, axis, at = n.inputs[0], n.attrs["axis"], 0
    assert x is not None
    axis %= max(x.type.rank, 1)
    out = []
    for v in n.outputs:
        starts = [at if k == axis else 0 for k in range(x.type.rank)]
        out.append(b.one("Slice", x, starts=starts, steps=[1] * x.type.rank, sizes=list(v.shape)))
        at += v.shape[axis]
    return out


def exact_division(n: Node, b: Builder) -> Sequence[Value] | None:
    """x / c = x * (1 / c) where c is a power of two (exact)"""
    x, c = n.inputs
    assert x is not None and c is not None
    if c.const is None or not c.dtype.is_float or c.dtype not in (DType.F32, DType.F64):
        return None
    mantissa, exponent = np.frexp(c.const.array)
    if not (np.abs(mantissa) == 0.5).all() or not (np.abs(exponent) < 100).all():
        return None
    return [b.one("Mul", x, b.const((1 / c.const.array).astype(c.dtype.numpy)))]


def constant_second(n: Node, b: Builder) -> Sequence[Value] | None:
    """c + x = x + c, c * x = x * c"""
    x, y = n.inputs
    assert x is not None and y is not None
    return [b.one(n.op, y, x)] if x.const is not None and y.const is None else None


RULES: dict[str, Sequence[Rule]] = {
    "Conv": [split_bias, trim_kernel],
    "ConvInteger": [trim_kernel],
    "ConvTranspose": [split_bias],
    "Gemm": [lower_gemm],
    "BatchNormalization": [lower_batch_norm],
    "Flatten": [to_reshape],
    "Squeeze": [to_reshape],
    "Unsqueeze": [to_reshape],
    "Reshape": [merge_reshape],
    "Transpose": [merge_transpose, to_reshape],
    "Expand": [drop_same_shape],
    "Slice": [drop_same_shape],
    "Pad": [drop_same_shape],
    "Tile": [drop_same_shape],
    "Concat": [drop_same_shape],
    "Sum": [drop_same_shape],
    "Max": [drop_same_shape],
    "Min": [drop_same_shape],
    "Cast": [drop_cast],
    "Split": [split_to_slices],
    "Div": [exact_division],
    "Add": [constant_second],
    "Mul": [constant_second],
}
