"""Weights that a model stores as halves or small integers stay so: who reads them widens them.

A weight-only quantized model holds integers and computes `(q - zero) * scale` before it uses them. Folded,
that would be a float constant, four times as large. Three kinds of readers can do better:

    x @ ((q - z) * s) = (x @ (q - z)) * s                one scale per column, or for all
    x @ ((q - z) * s) = (x * s) @ (q - z)                one scale per row
    conv(x, (q - z) * s) = conv(x, q - z) * s            one scale per output channel, or for all
    gather((q - z) * s, i) = gather(q - z, i) * gather(s, i)

The kernels read `q - z` as it is stored and widen it where they load it; the scale is an epilogue. If one
reader of a weight is of another kind, the weight is computed now, once for all. The scale meets a sum
instead of its terms, which is another rounding: `strict` folds all that has a scale.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from monobloc.ir.graph import Const, Graph, Node, Value
from monobloc.ir.types import DType, TensorType
from monobloc.ops.build import Builder
from monobloc.passes import PassContext
from monobloc.passes.constants import fold_constant_nodes
from monobloc.passes.contraction import ELEMENTS
from monobloc.passes.rewrite import sweep_dead

Array = np.ndarray
STORED = tuple(d for d in ELEMENTS if d is not DType.F32)


@dataclass(frozen=True)
class Stored:
    """A float32 weight as (q - zero) * scale; both broadcast to q, whose rank they have."""

    q: Array
    scale: Array | None = None
    zero: Array | None = None
    source: tuple[Const, tuple[int, ...]] | None = None  # q is this constant, its axes in this order

    @property
    def centered(self) -> Array:
        """q - zero in the smallest type that holds it."""
        if self.q.dtype.kind not in "iu":
            return self.q
        d = self.q.astype(np.int32) - (0 if self.zero is None else self.zero)
        low, high = (int(d.min()), int(d.max())) if d.size else (0, 0)
        fits = [t for t in (np.int8, np.uint8, np.int16) if np.iinfo(t).min <= low and high <= np.iinfo(t).max]
        return d.astype(fits[0])

    @property
    def const(self) -> Const:
        """`centered`; where that is the model's constant, with its axes permuted at most, it says so."""
        if self.zero is not None or self.source is None:
            return Const(np.ascontiguousarray(self.centered))
        const, order = self.source
        if order == tuple(range(len(order))) and self.centered.dtype == const.array.dtype:
            return const
        return Const(np.ascontiguousarray(self.centered), source=self.source)


class Narrow:
    name = "narrow"

    def run(self, g: Graph, ctx: PassContext) -> bool:
        changed = False
        for node in list(g.nodes):
            stored = of_constant(node)
            if stored is None or (ctx.numerics == "strict" and node.op != "Cast"):
                continue
            sinks = readers(g, node.outputs[0], stored, ctx.numerics == "strict")
            if sinks is None:
                ctx.reason(node, self.name, "computed at compile time: not all who read it can widen it")
                continue
            known: dict[tuple[Value, str], Value] = {}
            for user, v, s in sinks:
                _rewrite(g, user, v, s, known)
                ctx.reason(user, self.name, f"reads %{v.name} as {DType.of(s.centered.dtype).value}, as it is stored")
            changed = True
        if changed:
            sweep_dead(g)
        return fold_constant_nodes(g, ctx) or changed


# -- what is a stored weight ---------------------------------------------------------------------------
def of_constant(n: Node) -> Stored | None:
    """A node that widens a constant: a cast of it, or its dequantization by tensor or axis."""
    v = n.inputs[0] if n.op in ("Cast", "DequantizeLinear") else None
    if v is None or v.const is None or v.dtype not in STORED or n.outputs[0].dtype is not DType.F32:
        return None
    if n.op == "Cast":
        return Stored(v.const.array, source=(v.const, tuple(range(v.type.rank))))
    scale, zero = [*n.inputs, None][1:3]
    if n.attrs["block_size"] or scale is None or scale.const is None or scale.dtype is not DType.F32:
        return None
    if zero is not None and zero.const is None:
        return None

    def spread(p: Value) -> Array:
        assert p.const is not None and v is not None
        shape = [1] * v.type.rank
        if p.type.rank:
            shape[n.attrs["axis"]] = -1
        return p.const.array.reshape(shape)

    shift = None if zero is None else spread(zero).astype(np.int32)
    if shift is not None and not shift.any():
        shift = None
    return Stored(v.const.array, spread(scale), shift, (v.const, tuple(range(v.type.rank))))


def _further(n: Node, v: Value, s: Stored) -> Stored | None:
    """What a node makes of a stored weight, if that is one too."""
    if n.op == "Transpose":
        perm = n.attrs["perm"]
        scale, zero = (None if a is None else a.transpose(perm) for a in (s.scale, s.zero))
        source = None if s.source is None else (s.source[0], tuple(s.source[1][p] for p in perm))
        return Stored(s.q.transpose(perm), scale, zero, source)
    if n.op not in ("Mul", "Sub") or n.inputs[0] is not v or n.outputs[0].shape != v.shape:
        return None
    other = n.inputs[1]
    if other is None or other.const is None or other.dtype is not DType.F32:
        return None
    a = other.const.array.reshape([1] * (v.type.rank - other.type.rank) + list(other.shape))
    if n.op == "Mul":
        return replace(s, scale=a if s.scale is None else a * s.scale)
    whole = s.scale is None and s.zero is None and s.q.dtype.kind in "iu"
    if whole and (np.abs(a) <= 255).all() and (a == np.rint(a)).all():
        return replace(s, zero=a.astype(np.int32))
    return None


# -- who can read it ------------------------------------------------------------------------------------
Reader = tuple[Node, Value, Stored]


def readers(g: Graph, v: Value, s: Stored, exact: bool) -> list[Reader] | None:
    """All who read `v` in the end, with what they read; None if one of them needs floats."""
    if v in g.output_values:
        return None
    out: list[Reader] = []
    for user in dict.fromkeys(v.users):
        further = _further(user, v, s)
        if further is not None:
            more = readers(g, user.outputs[0], further, exact)
            if more is None:
                return None
            out += more
        elif _can_read(user, v, s) and not (exact and s.scale is not None):
            out.append((user, v, s))
        else:
            return None
    return out


def _can_read(n: Node, v: Value, s: Stored) -> bool:
    if n.inputs.count(v) != 1 or n.outputs[0].dtype is not DType.F32 or v.type.size == 0:
        return False
    if n.op == "Gather":
        return n.inputs[0] is v and n.attrs["axis"] == 0 and v.type.rank >= 1
    if n.op not in ("MatMul", "Conv") or n.inputs[1] is not v or len(n.used) != 2:
        return False
    if n.op == "MatMul":
        return s.scale is None or s.scale.shape[-2] == 1 or _per_row(s.scale)
    return v.type.rank in (3, 4) and (s.scale is None or s.scale.size == s.scale.shape[0])


def _per_row(scale: Array) -> bool:
    """Whether it scales terms of the sum alike in every matrix, so that the left operand may be scaled instead"""
    return bool(scale.size == scale.shape[-2] > 1)


def _rewrite(g: Graph, n: Node, v: Value, s: Stored, known: dict[tuple[Value, str], Value]) -> None:
    """Node `n` reads the stored weight, and its result is scaled."""
    g.release([n])  # its replacement is called like it
    b = Builder(g, before=n, locs=n.locs, name=n.name)

    def constant(what: str, a: Array) -> Value:
        if (v, what) not in known:
            known[v, what] = g.constant(f"{v.name}.{what}", np.ascontiguousarray(a))
        return known[v, what]

    if (v, "stored") not in known:
        data = s.const
        t = TensorType(DType.of(data.array.dtype), v.shape)
        known[v, "stored"] = g.const_value(f"{v.name}.stored", t, data)
    w = known[v, "stored"]
    x = n.inputs[0]
    if n.op == "Gather":
        y = b.one("Cast", b.emit("Gather", [w, n.inputs[1]], n.attrs)[0], to=DType.F32)
        if s.scale is not None:
            scale = constant("scale", s.scale)
            rows = scale.shape[0] == v.shape[0]
            y = b.one("Mul", y, b.emit("Gather", [scale, n.inputs[1]], n.attrs)[0] if rows else _row(b, scale))
    elif n.op == "MatMul":
        per_row = s.scale is not None and _per_row(s.scale)
        if s.scale is not None and per_row:
            x = b.one("Mul", x, constant("scale", s.scale.reshape(-1)))
        y = b.emit("MatMul", [x, w], n.attrs | {"to": DType.F32})[0]
        if s.scale is not None and not per_row:
            y = b.one("Mul", y, constant("scale", s.scale if s.scale.ndim > 2 else s.scale.reshape(-1)))
    else:
        y = b.emit("Conv", [x, w], n.attrs | {"to": DType.F32})[0]
        if s.scale is not None:
            y = b.one("Mul", y, constant("scale", s.scale.reshape(-1, *[1] * (v.type.rank - 2))))
    g.replace(n.outputs[0], y)
    g.remove(n)


def _row(b: Builder, scale: Value) -> Value:
    """One scale for all rows: [1, ...] without its first axis"""
    return b.one("Reshape", scale, shape=list(scale.shape[1:]))
