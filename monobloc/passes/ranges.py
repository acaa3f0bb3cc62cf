"""Value ranges remove what they prove idle: clips, checks of indices, casts, requantizations.

```
clip(x, lo, hi) = x                     where x lies between them; one bound at a time
relu(x) = x, abs(x) = x                 where x is never negative
max(x, c) = x, min(x, c) = x            where c never wins
where(c, a, b) = a                      where c is always true
cast(cast(x)) = cast(x)                 where the inner one keeps every value
quantize(dequantize(q, s, z), s, z) = q
quantize(clip(x, lo, hi)) = quantize(x) where quantizing saturates at the same bounds
x[i]                                    without check, or without wrapping, where i proves it
```

What one module proves holds for all that are linked with it: ranges flow over the borders of modules.
Everything here is exact to the bit; NaN passes through clips, so it is in nobody's way there.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from monobloc.ir.graph import Graph, Node, Value
from monobloc.ir.symbolic import is_open
from monobloc.ir.types import DType
from monobloc.ops import opdef
from monobloc.ops.build import Builder
from monobloc.ops.indexing import INDEX_RANGE
from monobloc.passes import PassContext
from monobloc.passes.intervals import Range, Ranges, every, holds
from monobloc.passes.rewrite import made_by, only_use, sweep_dead

F32 = DType.F32
EXACT_SCALES = (1e-30, 1e30)  # scales whose products with integers neither overflow nor vanish


class RangesPass:
    name = "ranges"

    def run(self, g: Graph, ctx: PassContext) -> bool:
        ranges = Ranges()
        changed = False
        for node in list(g.nodes):  # operands first: what is proven of them is final
            if _mark_indices(node, ranges):
                ctx.reason(node, self.name, f"indices are in {node.attrs[INDEX_RANGE]}: no check where they fit")
                changed = True
            for rule in RULES.get(node.op, ()):
                g.release([node])  # the first node that a rule makes takes over the name
                new = rule(node, ranges, Builder(g, before=node, locs=node.locs, name=node.name))
                if new is None:
                    g.reserve(node)
                    continue
                value, why = new
                ctx.reason(node, self.name, why)
                g.replace(node.outputs[0], value)
                changed = True
                break
        if changed:
            sweep_dead(g)
        return changed


# -- indices that are data ------------------------------------------------------------------------------
# operator: which input holds the indices
INDEXED = {"Gather": 1, "GatherElements": 1, "GatherND": 1, "ScatterElements": 1, "ScatterND": 1, "RoiAlign": 2}


def _mark_indices(node: Node, ranges: Ranges) -> bool:
    """Tell the operator what is proven of its indices, where that saves it something."""
    if node.op not in INDEXED or INDEX_RANGE in node.attrs:
        return False
    indices = node.used[INDEXED[node.op]]
    if indices.const is not None or any(map(is_open, node.used[0].shape)):
        return False
    r, size = ranges.of(indices), max(node.used[0].shape, default=0)
    if r.lo < -size or (r.lo < 0 and r.hi >= size):
        return False
    node.attrs[INDEX_RANGE] = [int(r.lo), int(r.hi)]
    return True


# -- rules: the value to use in place of a node's, and why ------------------------------------------------
Found = tuple[Value, str] | None


def _drop_clip(n: Node, r: Ranges, b: Builder) -> Found:
    x, lo, hi = [*n.inputs, None, None][:3]
    assert x is not None
    at = r.of(x)
    low = lo is not None and _max_of(r, lo) > at.lo
    high = hi is not None and _min_of(r, hi) < at.hi
    if not low and not high:
        return x, f"removed: its input is in {at}"
    if (lo is None or low) and (hi is None or high):
        return None
    gone = "lower" if lo is not None and not low else "upper"
    return b.one("Clip", x, lo if low else None, hi if high else None), f"no {gone} bound: its input is in {at}"


def _max_of(r: Ranges, bound: Value) -> float:
    return r.of(bound).hi  # a bound that is NaN does not bound


def _min_of(r: Ranges, bound: Value) -> float:
    return r.of(bound).lo


def _drop_relu(n: Node, r: Ranges, b: Builder) -> Found:
    x = n.used[0]
    return (x, f"removed: its input is in {r.of(x)}") if r.of(x).lo >= 0 else None


def _drop_abs(n: Node, r: Ranges, b: Builder) -> Found:
    x = n.used[0]
    at = r.of(x)  # the sign of a zero is lost in it
    return (x, f"removed: its input is in {at}") if at.lo > 0 or (at.lo == 0 and x.dtype.is_int) else None


def _drop_extreme(n: Node, r: Ranges, b: Builder) -> Found:
    """The one operand that always wins; equal zeros may have different signs."""
    for x in n.used:
        others = [v for v in n.used if v is not x]
        if x.shape == n.outputs[0].shape and others and all(_wins(n.op, r.of(x), r.of(v), x.dtype) for v in others):
            return x, f"removed: %{x.name} in {r.of(x)} is never {'below' if n.op == 'Max' else 'above'} the others"
    return None


def _wins(op: str, x: Range, other: Range, d: DType) -> bool:
    if other.nan:
        return False
    near, far = (x.lo, other.hi) if op == "Max" else (-x.hi, -other.lo)
    return near > far or (near == far and (near != 0 or not d.is_float))


def _decide_where(n: Node, r: Ranges, b: Builder) -> Found:
    c, x, y = n.used
    at = r.of(c)
    if at.lo != at.hi:
        return None
    taken = x if at.lo else y
    if taken.shape != n.outputs[0].shape:
        taken = b.one("Expand", taken, shape=list(n.outputs[0].shape))
    return taken, f"removed: its condition is always {'true' if at.lo else 'false'}"


def _decide_compare(n: Node, r: Ranges, b: Builder) -> Found:
    """A comparison whose answer is known, where it is one element: larger ones are decided by their readers."""
    at = r.of(n.outputs[0])
    if at.lo != at.hi or n.outputs[0].type.size > 64:
        return None
    return b.const(np.full(n.outputs[0].shape, bool(at.lo))), f"removed: always {'true' if at.lo else 'false'}"


def _merge_casts(n: Node, r: Ranges, b: Builder) -> Found:
    inner = made_by(n.used[0], "Cast")
    if inner is None:
        return None
    x, between, to = inner.used[0], inner.attrs["to"], n.attrs["to"]
    at = r.of(x)
    if not holds(between, x.dtype, at) or to.is_code:  # codes saturate, even where they come from
        return None
    # the value between is the value of x: what remains is one conversion of that value
    if x.dtype.is_float and not (to.is_float or to is DType.BOOL):
        return None
    if between.is_float and to.is_int and not holds(to, x.dtype, at):
        return None  # floats that do not fit convert otherwise than integers
    why = f"reads %{x.name} past '{inner.name}', which loses nothing"
    return (x, f"removed: with '{inner.name}' it loses nothing") if to is x.dtype else (b.one("Cast", x, to=to), why)


# -- quantization -----------------------------------------------------------------------------------------
MOVES = ("Reshape", "Transpose")


def _requantize(n: Node, r: Ranges, b: Builder) -> Found:
    """quantize(dequantize(q)) = q with equal scale, zero point and type; also through moves of elements"""
    moves: list[Node] = []  # one that others read too would be done twice
    v = n.used[0]
    while (m := made_by(v, *MOVES)) is not None and n.used[1].type.size == 1 and (not moves or only_use(b.graph, v)):
        moves.append(m)
        v = m.used[0]
    d = made_by(v, "DequantizeLinear")
    if d is None or d.used[0].dtype is not n.outputs[0].dtype or not _same_scales(n, d):
        return None
    q = d.used[0]
    for m in reversed(moves):
        q = b.emit(m.op, [q], m.attrs)[0]
    return q, f"removed: '{d.name}' has the same scale and zero point"


def _same_scales(n: Node, d: Node) -> bool:
    """One scale that is exact in f32, one zero point (none is zero), per the same axis and block."""
    (s, z), (t, y) = (([*m.inputs, None][1], [*m.inputs, None][2]) for m in (n, d))
    if s is None or t is None or s.const is None or t.const is None or {s.dtype, t.dtype, d.outputs[0].dtype} != {F32}:
        return False
    if s.shape != t.shape or not np.array_equal(s.const.array, t.const.array):
        return False
    if not all(EXACT_SCALES[0] < x < EXACT_SCALES[1] for x in np.abs(s.const.array).ravel()):
        return False
    if s.type.rank and any(n.attrs[k] != d.attrs[k] for k in ("axis", "block_size")):
        return False
    one, other = (_zero_points(v) for v in (z, y))
    return one is not None and other is not None and bool(np.all(one == other))


def _zero_points(v: Value | None) -> np.ndarray | None:
    """As integers; None where they are not known."""
    if v is None:
        return np.zeros((), np.int64)
    return None if v.const is None else v.const.array.astype(np.int64)


def _absorb_clip(n: Node, r: Ranges, b: Builder) -> Found:
    """quantize(clip(x, lo, hi)) = quantize(x): saturating does the same"""
    x, scale = n.used[0], n.used[1]
    c = made_by(x, "Clip", "Relu")
    if c is None or not only_use(b.graph, x) or scale.type.size != 1 or any(v.const is None for v in n.used[1:]):
        return None
    lo, hi = ([*c.inputs, None, None][1:3]) if c.op == "Clip" else (b.const(0, x.dtype), None)
    if any(v is not None and v.const is None for v in (lo, hi)):
        return None
    limits = every(n.outputs[0].dtype)
    low = lo is None or _quantized(n, lo) == limits.lo
    high = hi is None or _quantized(n, hi) == limits.hi
    if not low or not high:
        return None
    new = b.emit(n.op, [c.used[0], *n.inputs[1:]], n.attrs)[0]
    return new, f"saturates where '{c.name}' clips, which is gone"


def _quantized(n: Node, x: Value) -> float:
    """What the node makes of one constant; NaN of what is no number, and of scales that are not positive."""
    assert x.const is not None and n.used[1].const is not None
    value, scale = x.const.array.reshape(()), n.used[1].const.array.reshape(())
    if not np.isfinite(value) or not scale > 0:
        return math.nan
    rest = [None if v is None or v.const is None else v.const.array.reshape(()) for v in n.inputs[2:]]
    with np.errstate(all="ignore"):
        return float(opdef(n).ref(n.attrs, value, scale, *rest))


Rule = Callable[[Node, Ranges, Builder], Found]
RULES: dict[str, Sequence[Rule]] = {
    "Clip": [_drop_clip],
    "Relu": [_drop_relu],
    "Abs": [_drop_abs],
    "Max": [_drop_extreme],
    "Min": [_drop_extreme],
    "Where": [_decide_where],
    "Cast": [_merge_casts],
    "QuantizeLinear": [_requantize, _absorb_clip],
    **dict.fromkeys(("Less", "LessOrEqual", "Greater", "GreaterOrEqual", "Equal", "Not"), [_decide_compare]),
}
