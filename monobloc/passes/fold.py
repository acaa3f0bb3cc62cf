"""Constants meet: scales into weights, shifts into shifts.

    conv(x, w) * s  = conv(x, w * s)          s per output channel
    (y + c) * s     = y * s + c * s           only when y * s folds further
    (y + c) + d     = y + (c + d)
    (y * c) * d     = y * (c * d)

Sums and products of constants are rounded once more here than in the model: within the tolerance of
`default` numerics, not done in `strict`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from monobloc.ir.graph import Graph, Node, Value
from monobloc.ir.symbolic import is_open
from monobloc.ir.types import DType
from monobloc.ops.build import Builder
from monobloc.passes import PassContext
from monobloc.passes.constants import fold_constant_nodes
from monobloc.passes.rewrite import Rule, apply_rules, made_by, only_use


class Fold:
    name = "fold"

    def run(self, g: Graph, ctx: PassContext) -> bool:
        changed = fold_constant_nodes(g, ctx)
        if ctx.numerics != "strict":
            rules = RULES if ctx.stage == "image" else OBJECT_RULES
            changed |= apply_rules(g, rules, ctx, self.name)
        return changed


def _channel_scale(y: Node, s: Value) -> np.ndarray | None:
    """`s` as one factor per output channel of a contraction, if it is that."""
    if s.const is None or not np.isfinite(s.const.array).all():
        return None  # a sum by an infinity is one infinity, a sum of infinities is NaN
    out = y.outputs[0]
    axis = out.type.rank - 1 if y.op == "MatMul" else 1
    if is_open(out.shape[axis]):
        return None  # as many as there are weights, which are no constants then
    shape = (1,) * (out.type.rank - s.type.rank) + s.shape
    if len(shape) != out.type.rank or any(d != 1 for k, d in enumerate(shape) if k != axis):
        return None
    return np.broadcast_to(s.const.array.reshape(-1), (out.shape[axis],))


def _scaled_weights(y: Node, k: np.ndarray) -> np.ndarray | None:
    w = y.inputs[1]
    if w is None or w.const is None or w.dtype is not DType.F32:
        return None
    a = w.const.array.astype(np.float64)
    if y.op == "MatMul":
        return np.asarray(a * k, np.float32) if w.type.rank >= 2 else None
    if y.op == "ConvTranspose":  # [IC, OC/g, ...]
        if y.attrs.get("group", 1) != 1:
            return None
        return np.asarray(a * k.reshape(1, -1, *[1] * (a.ndim - 2)), np.float32)
    return np.asarray(a * k.reshape(-1, *[1] * (a.ndim - 1)), np.float32)


CONTRACTIONS = ("Conv", "ConvTranspose", "MatMul")


def scale_weights(n: Node, b: Builder) -> Sequence[Value] | None:
    """conv(x, w) * s = conv(x, w * s)"""
    x, s = n.inputs
    y = made_by(x, *CONTRACTIONS)
    if y is None or s is None or x is None or not only_use(b.graph, x) or n.outputs[0].shape != x.shape:
        return None
    k = _channel_scale(y, s)
    w = None if k is None else _scaled_weights(y, k)
    if w is None or not np.isfinite(w).all():
        return None
    old = y.inputs[1]
    assert old is not None
    b.graph.release([y])  # it is dead after this, and its replacement is called like it
    b.locs = tuple(dict.fromkeys([*y.locs, *n.locs]))
    return b.emit(y.op, [y.inputs[0], b.const(w, name=old.name)], y.attrs, name=y.name)


def distribute(n: Node, b: Builder) -> Sequence[Value] | None:
    """(conv(x, w) + c) * s = conv(x, w * s) + c * s"""
    x, s = n.inputs
    add = made_by(x, "Add")
    if add is None or x is None or s is None or s.const is None or not only_use(b.graph, x):
        return None
    y, c = add.inputs
    conv = made_by(y, *CONTRACTIONS)
    if c is None or c.const is None or y is None or conv is None or not only_use(b.graph, y):
        return None
    if _channel_scale(conv, s) is None or n.outputs[0].shape != y.shape or c.type.size > s.type.size * 4096:
        return None
    return [b.one("Add", b.one("Mul", y, s), b.one("Mul", c, s))]


def merge_constants(n: Node, b: Builder) -> Sequence[Value] | None:
    """(y + c) + d = y + (c + d), (y * c) * d = y * (c * d)"""
    x, d = n.inputs
    inner = made_by(x, n.op)
    if inner is None or x is None or d is None or d.const is None or not only_use(b.graph, x):
        return None
    y, c = inner.inputs
    if c is None or c.const is None or y is None or not d.dtype.is_float:
        return None
    joint = b.one(n.op, c, d)
    if joint.type.size > max(c.type.size, d.type.size):
        return None
    if joint.const is not None and not np.isfinite(joint.const.array).all():
        return None  # 0 by two large numbers is 0, by an infinity NaN
    return [b.one(n.op, y, joint)]


RULES: dict[str, Sequence[Rule]] = {"Mul": [scale_weights, distribute, merge_constants], "Add": [merge_constants]}
# an object stores logical weights: scaled ones would be stored a second time
OBJECT_RULES: dict[str, Sequence[Rule]] = {"Mul": [merge_constants], "Add": [merge_constants]}
