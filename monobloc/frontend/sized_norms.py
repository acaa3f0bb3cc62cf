"""Normalizations along axes whose size data decide: the mean and the variance are of what is there.

They are written as the sums that they are; where only axes of a fixed size are averaged over, the operator itself
works entry by entry (`frontend/ragged.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from monobloc.frontend.extents import Extents, Tensor
from monobloc.frontend.node import OnnxNode
from monobloc.frontend.sized_folds import Found, mean, wide
from monobloc.frontend.sized_shapes import broadcast
from monobloc.ir.graph import Value
from monobloc.ir.types import DType
from monobloc.ops import OpDef
from monobloc.ops.shape import axis_of
from monobloc.ops.sized import Ragged


def _standard(e: Extents, x: Ragged, axes: Sequence[int], epsilon: float, centred: bool = True,
              ) -> tuple[Value, Value | None, Value]:
    """(normalized, mean, one over the deviation), wide"""
    kind = wide(x)
    v, middle = e.cast(x.value, kind), None
    if centred:
        middle = mean(e, x, axes)
        v = e.b.one("Sub", v, middle)
    square = mean(e, Ragged(e.b.one("Mul", v, v), x.counts), axes)
    root = e.b.one("Sqrt", e.b.one("Add", square, e.b.const(epsilon, kind)))
    inverse = e.b.one("Div", e.b.const(1, kind), root)
    return e.b.one("Mul", v, inverse), middle, inverse


def _affine(e: Extents, x: Ragged, y: Value, scale: Tensor, bias: Tensor | None) -> Tensor:
    """Times the scale, plus the bias, which broadcast to what they are of"""
    given = [e.tensor(y, e.sizes(x)), *(_cast(e, v, wide(x)) for v in (scale, bias) if v is not None)]
    (v, factor, *more), sizes = broadcast(e, given)
    v = e.b.one("Mul", v, factor)
    for shift in more:
        v = e.b.one("Add", v, shift)
    return e.tensor(e.cast(v, x.dtype), sizes)


def _cast(e: Extents, t: Tensor, to: DType) -> Tensor:
    return Ragged(e.cast(t.value, to), t.counts) if isinstance(t, Ragged) else e.cast(t, to)


def _fits(e: Extents, x: Ragged, p: Tensor | None) -> bool:
    """Whether a scale or a bias surely broadcasts to what it is of"""
    if p is None:
        return True
    have, of = e.sizes(p), e.sizes(x)
    return len(have) <= len(of) and all(e.known(s) == 1 or e.same(s, o) for s, o in zip(have[::-1], of[::-1]))


def layer_norm(e: Extents, op: OpDef, n: OnnxNode) -> Found:
    given: list[Any] = [*n.inputs, None, None]
    x, scale, bias = given[:3]
    if not isinstance(x, Ragged) or not all(_fits(e, x, p) for p in (scale, bias)):
        return None
    rank, centred = x.value.type.rank, n.op == "LayerNormalization"
    axes = range(axis_of(n.attrs.get("axis", -1), rank, n.op), rank)
    if not any(a in x.counts for a in axes) and n.n_outputs == 1 and isinstance(scale, Value):
        return None  # entry by entry
    if int(n.attrs.get("stash_type", 1)) != 1:
        n.unsupported(f"{n.op} with stash_type {n.attrs['stash_type']}")
    y, middle, inverse = _standard(e, x, axes, float(n.attrs.get("epsilon", 1e-5)), centred)
    kept = [e.const(1) if a in axes else s for a, s in enumerate(e.sizes(x))]
    more = [None if v is None else e.tensor(v, kept) for v in (middle, inverse)]
    return [_affine(e, x, y, scale, bias), *more][: n.n_outputs]


def by_channels(e: Extents, op: OpDef, n: OnnxNode) -> Found:
    """By the mean and the variance of each channel, or of groups of them"""
    x: Any = n.inputs[0]
    rest: Sequence[Any] = n.inputs[1:]
    if (not isinstance(x, Ragged) or 1 in x.counts or any(isinstance(v, Ragged) for v in rest)
            or not any(a > 1 for a in x.counts)):
        return None
    batch, channels, *space = x.value.shape
    groups = int(n.attrs.get("num_groups", channels))
    if groups < 1 or channels % groups:
        n.fail(f"{n.op} of {x.value.type} in {groups} groups: the channels do not divide")
    apart = e.b.one("Reshape", x.value, shape=[batch, groups, channels // groups, *space])
    counts = {a + (a > 1): c for a, c in x.counts.items()}
    y, *_ = _standard(e, Ragged(apart, counts), range(2, apart.type.rank), float(n.attrs.get("epsilon", 1e-5)))
    y = e.b.one("Reshape", y, shape=[batch, channels, *space])
    return [_affine(e, x, y, *(_per_channel(e, v, channels, len(space)) for v in rest[:2]))]


def _per_channel(e: Extents, p: Value, channels: int, space: int) -> Value:
    """A parameter of each channel, or one of each group as opset 18 has it"""
    each = channels // p.type.size
    spread = e.b.one("Expand", e.b.one("Reshape", p, shape=[p.type.size, 1]), shape=[p.type.size, each])
    return e.b.one("Reshape", spread, shape=[channels, *[1] * space])


def mean_variance(e: Extents, op: OpDef, n: OnnxNode) -> Found:
    x: Any = n.inputs[0]
    axes = [axis_of(a, x.value.type.rank, n.op) for a in n.ints("axes", [0, 2, 3])]
    v = e.b.one("Sub", e.cast(x.value, wide(x)), mean(e, x, axes))
    spread = e.b.one("Sqrt", mean(e, Ragged(e.b.one("Mul", v, v), x.counts), axes))
    y = e.b.one("Div", v, e.b.one("Add", spread, e.b.const(1e-9, wide(x))))
    return [e.tensor(e.cast(y, x.dtype), e.sizes(x))]


def by_length(e: Extents, op: OpDef, n: OnnxNode) -> Found:
    """Zeros add nothing to a length."""
    x: Any = n.inputs[0]
    made = op.from_onnx(e.b, replace(n, inputs=[e.masked(x, 0)]))[0]
    return [None if made is None else e.tensor(made, e.sizes(x))]


NORMS = {
    "LayerNormalization": layer_norm, "RMSNormalization": layer_norm, "InstanceNormalization": by_channels,
    "GroupNormalization": by_channels, "MeanVarianceNormalization": mean_variance, "LpNormalization": by_length,
}  # fmt: skip
