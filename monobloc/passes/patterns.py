"""What exporters spelled out becomes the operator again.

    LayerNormalization   (x - mean(x)) / sqrt(mean((x - mean(x))^2) + eps) [* scale [+ shift]]
    Gelu                 x * 0.5 * (1 + erf(x / sqrt(2))), in its usual orders
    HardSwish            x * clip(x + 3, 0, 6) / 6, x * hardsigmoid(x; 1/6, 1/2)
    Silu stays x * sigmoid(x): it fuses as it is.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from monobloc.ir.graph import Graph, Node, Value
from monobloc.ops.build import Builder
from monobloc.passes import PassContext
from monobloc.passes.rewrite import Rule, apply_rules, made_by


class Patterns:
    name = "patterns"

    def run(self, g: Graph, ctx: PassContext) -> bool:
        return apply_rules(g, RULES, ctx, self.name)


def scalar(v: Value | None) -> float | None:
    """The number of a constant of one element."""
    if v is None or v.const is None or v.type.size != 1:
        return None
    return float(v.const.array.reshape(-1)[0])


def near(v: Value | None, want: float) -> bool:
    got = scalar(v)
    return got is not None and math.isclose(got, want, rel_tol=1e-5)


def other(n: Node, v: Value) -> Value | None:
    """The other operand of a binary node."""
    a, b = n.inputs
    return b if a is v else a if b is v else None


def layer_norm(n: Node, b: Builder) -> Sequence[Value] | None:
    """(x - mean) / sqrt(mean((x - mean)^2) + eps) = LayerNormalization(x)"""
    d, root = made_by(n.inputs[0], "Sub"), made_by(n.inputs[1], "Sqrt")
    if d is None or root is None:
        return None
    x, mean = d.inputs[0], made_by(d.inputs[1], "ReduceMean")
    plus = made_by(root.inputs[0], "Add")
    if x is None or mean is None or plus is None or mean.inputs[0] is not x:
        return None
    var, eps = made_by(plus.inputs[0], "ReduceMean"), scalar(plus.inputs[1])
    if var is None or eps is None or var.attrs.get("axes") != mean.attrs.get("axes"):
        return None
    square = made_by(var.inputs[0], "Pow", "Mul")
    if square is None or square.inputs[0] is not d.outputs[0]:
        return None
    if not (near(square.inputs[1], 2) if square.op == "Pow" else square.inputs[1] is d.outputs[0]):
        return None
    axes = [a % x.type.rank for a in mean.attrs.get("axes", [])]
    first = x.type.rank - len(axes)
    if not axes or axes != list(range(first, x.type.rank)) or not mean.attrs.get("keepdims", 1):
        return None
    ones = b.const(np.ones(x.shape[first:], x.dtype.numpy))
    return [b.one("LayerNormalization", x, ones, None, axis=first, epsilon=eps)]


def norm_scale(n: Node, b: Builder) -> Sequence[Value] | None:
    """layernorm(x; 1) * s = layernorm(x; s), layernorm(x; s) + t = layernorm(x; s, t)"""
    norm = made_by(n.inputs[0], "LayerNormalization")
    c = n.inputs[1]
    if norm is None or c is None or c.const is None or len(norm.outputs) > 1:
        return None
    x, scale, shift = [*norm.inputs, None][:3]
    assert x is not None and scale is not None and scale.const is not None
    if c.shape != scale.shape or b.graph.uses(norm.outputs[0]) != 1:
        return None
    if n.op == "Mul" and shift is None and bool((scale.const.array == 1).all()):
        return [b.one("LayerNormalization", x, c, None, **norm.attrs)]
    if n.op == "Add" and shift is None:
        return [b.one("LayerNormalization", x, scale, c, **norm.attrs)]
    return None


def gelu(n: Node, b: Builder) -> Sequence[Value] | None:
    """x * 0.5 * (1 + erf(x / sqrt(2))) = Gelu(x)"""
    factors, one_plus = _product(n), None
    for f in factors:
        add = made_by(f, "Add")
        if add is not None and near(add.inputs[1], 1) and made_by(add.inputs[0], "Erf"):
            one_plus = add
    if one_plus is None or len(factors) != 3:
        return None
    rest = [f for f in factors if f is not one_plus.outputs[0]]
    half = [f for f in rest if near(f, 0.5)]
    x = [f for f in rest if not near(f, 0.5)]
    if len(half) != 1 or len(x) != 1:
        return None
    inner = made_by(made_by(one_plus.inputs[0], "Erf").inputs[0], "Div", "Mul")  # type: ignore[union-attr]
    if inner is None or other(inner, x[0]) is None:
        return None
    if not near(other(inner, x[0]), math.sqrt(2) if inner.op == "Div" else math.sqrt(0.5)):
        return None
    return [b.one("Gelu", x[0], approximate="none")]


def _product(n: Node) -> list[Value]:
    """Factors of a product of three: (a * b) * c in any association."""
    out: list[Value] = []
    for v in n.used:
        inner = made_by(v, "Mul")
        out += inner.used if inner is not None and len(out) + 3 > 2 and _is_half(inner) else [v]
    return out


def _is_half(n: Node) -> bool:
    return any(near(v, 0.5) for v in n.used) or any(
        (a := made_by(v, "Add")) is not None and near(a.inputs[1], 1) for v in n.used
    )


def hard_swish(n: Node, b: Builder) -> Sequence[Value] | None:
    """x * hardsigmoid(x; 1/6, 1/2) = HardSwish(x)"""
    for v in n.used:
        gate = made_by(v, "HardSigmoid")
        x = other(n, v)
        if gate is not None and gate.inputs[0] is x and x is not None:
            if math.isclose(gate.attrs["alpha"], 1 / 6, rel_tol=1e-4) and gate.attrs["beta"] == 0.5:
                return [b.one("HardSwish", x)]
    return None


RULES: dict[str, Sequence[Rule]] = {
    "Div": [layer_norm],
    "Mul": [norm_scale, gelu, hard_swish],
    "Add": [norm_scale],
}
