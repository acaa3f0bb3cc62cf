"""Grouping: which nodes become one loop nest, or one kernel call with its epilogue.

Two steps. First every contraction takes the chain of elementwise nodes that follow it, as far as
each is the only reader of the one before: they run on the accumulators and cost no memory traffic. What an
integer product's epilogue reads besides is read as it is quantized.
Then every remaining tensor expression is taken into its only reader, when reading it there does not
compute anything expensive twice. A group has one result, so groups never form cycles.

After this pass every node is a contraction, a routine, a view, an expression, or a `Fused` group.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from monobloc.ir.expr import Expr, Load, Op, Reduce, children, free_vars, walk
from monobloc.ir.functions import EXPENSIVE_FNS, VECTOR_FNS
from monobloc.ir.graph import Graph, Node, Value
from monobloc.ir.symbolic import guess, same_shape
from monobloc.ir.types import DType
from monobloc.ops import opdef
from monobloc.ops.compose import compose, index_vars, node_functions, reader
from monobloc.passes import PassContext
from monobloc.passes.contraction import BYTES, FLOATS, INTEGER_OPS, SHORTS, is_contraction
from monobloc.passes.rewrite import made_by, only_use

MAX_GROUP = 48
MAX_READS = 64  # operands of a fused node: who reads a Concat of thousands would choose among them for every element
CHEAP_OPS = 6
EXACT_OPS = ("Add", "Sub", "Mul", "TflRescale")  # of int32


class Fuse:
    name = "fuse"

    def run(self, g: Graph, ctx: PassContext) -> bool:
        split = split_dequantized(g)
        groups = Groups(g)
        for node in reversed(g.nodes):
            if is_contraction(node):
                groups.take_epilogue(node, ctx)
        for node in g.nodes:
            groups.take_producers(node, ctx)
        return groups.build() or split


class Groups:
    """Which group each node is in; a group is a list of nodes with the result last."""

    def __init__(self, g: Graph) -> None:
        self.g = g
        self.of: dict[Node, list[Node]] = {n: [n] for n in g.nodes}
        self.position = {n: k for k, n in enumerate(g.nodes)}

    # -- contraction and epilogue --
    def take_epilogue(self, root: Node, ctx: PassContext) -> None:
        group, v = self.of[root], root.outputs[0]
        while only_use(self.g, v) and len(group) < MAX_GROUP:
            user = v.users[0]
            why = integer_obstacle(user, v) if root.op in INTEGER_OPS else epilogue_obstacle(user, v)
            if why or len(self.of[user]) > 1 or user in group:
                ctx.reason(root, "fuse", f"the epilogue ends before {user}: {why or 'it belongs to another group'}")
                break
            group.append(user)
            self.of[user] = group
            if root.op in INTEGER_OPS:
                self._take_dequantized(group, user, v)
            ctx.reason(user, "fuse", f"runs in the epilogue of '{root.name}'")
            v = user.outputs[0]

    def _take_dequantized(self, group: list[Node], user: Node, v: Value) -> None:
        """The other operands of an epilogue's node are widened in registers, where they have been quantized."""
        for x in user.used:
            d = quantized_of(x) if x is not v and x.shape == v.shape and only_use(self.g, x) else None
            if d is not None and len(self.of[d]) == 1 and self.of[d] is not group:
                group.append(d)
                self.of[d] = group

    # -- loops --
    def take_producers(self, node: Node, ctx: PassContext) -> None:
        """Merge the groups of `node`'s producers into its own where that is no loss."""
        if not fusible(node) or is_contraction(self.of[node][0]):
            return
        for v in list(dict.fromkeys(node.used)):
            p = v.producer
            if p is None or not fusible(p) or is_contraction(self.of[p][0]) or self.of[p] is self.of[node]:
                continue
            why = self._obstacle(p, node, v)
            if why:
                ctx.reason(p, "fuse", f"not fused into '{node.name}': {why}")
                continue
            merged = self.of[p] + self.of[node]
            for n in merged:
                self.of[n] = merged
            ctx.reason(p, "fuse", f"fused into '{node.name}'")

    def _obstacle(self, p: Node, node: Node, v: Value) -> str:
        if not only_use(self.g, v):
            return f"its result is read {self.g.uses(v)} times"
        if size(self.of[p]) + size(self.of[node]) > MAX_GROUP:
            return "the group would be too large"
        reads = reads_per_element(node, v)
        cost = costs([n for n in self.of[p] if n is not node])
        if has_fold(self.of[p]) and not hoistable(node, v):
            return "a reduction would be computed again for every element"
        if p.op == "Concat" and (reads > 1.01 or has_fold([node])):
            return "a sum over it would choose between its parts for every term: they are written side by side"
        if reads > 1.01 and (cost is None or cost * (reads - 1) > CHEAP_OPS * 2):
            return f"every element would be computed {reads:.3g} times"
        if not clean_addresses(p, node, v):
            return "addresses would need divisions"
        return ""

    # -- result --
    def build(self) -> bool:
        """Replace every group of several nodes by one `Fused` node."""
        seen: set[int] = set()
        changed = False
        for node in list(self.g.nodes):
            group = self.of[node]
            if id(group) in seen or (len(group) == 1 and not is_contraction(node)):
                continue  # a contraction is always a group: its weights will be packed
            seen.add(id(group))
            first = [n for n in group if is_contraction(n)]
            rest = sorted((n for n in group if n not in first), key=self.position.__getitem__)
            fuse_group(self.g, first + rest)
            changed = True
        if changed:
            self.g.sort()
        return changed


def quantized_of(v: Value) -> Node | None:
    """The DequantizeLinear of a computed tensor by one scale that makes `v`"""
    d = made_by(v, "DequantizeLinear")
    if d is None or d.attrs["block_size"] or d.attrs["to"] is not DType.F32:
        return None
    x, scale, zero = [*d.inputs, None][:3]
    small = x is not None and x.const is None and x.dtype in (*BYTES, *SHORTS)
    one = scale is not None and scale.const is not None and scale.type.rank == 0
    return d if small and one and (zero is None or zero.const is not None) else None


def split_dequantized(g: Graph) -> bool:
    """Who computes as many elements as were dequantized has a DequantizeLinear of its own: bytes are read instead."""
    changed = False
    for node in list(g.nodes):
        d = quantized_of(node.outputs[0])
        if d is None or only_use(g, d.outputs[0]):
            continue
        v = d.outputs[0]
        for user in dict.fromkeys(v.users):
            if opdef(user).elementwise and same_shape(user.outputs[0].shape, v.shape) and not only_use(g, v):
                own = g.make(d.op, d.inputs, [v.type], d.attrs, name=d.name, locs=d.locs, before=user)
                for k, x in enumerate(user.inputs):
                    if x is v:
                        g.set_input(user, k, own.outputs[0])
                changed = True
    return changed


def fuse_group(g: Graph, nodes: Sequence[Node]) -> Node:
    """One `Fused` node in place of `nodes` (in order, the result last)."""
    inside = set(nodes)
    body = Graph(nodes[-1].name)
    env: dict[Value, Value] = {}
    outer: list[Value] = []
    # a kernel reads its operands from memory, single numbers too
    operands = nodes[0].inputs[:2] if is_contraction(nodes[0]) else []

    def inner(v: Value | None) -> Value | None:
        if v is None:
            return None
        if v not in env:
            if v.const is not None and v.type.size == 1 and v not in operands:
                env[v] = body.const_value(v.name, v.type, v.const)
            else:
                env[v] = body.add_input(v.name, v.type)
                outer.append(v)
        return env[v]

    for n in nodes:
        made = body.make(n.op, [inner(v) for v in n.inputs], [v.type for v in n.outputs], n.attrs,
                         name=n.name, out_names=[v.name for v in n.outputs], locs=n.locs)
        env.update(zip(n.outputs, made.outputs, strict=True))
    result = nodes[-1].outputs[0]
    body.outputs = [("out", env[result])]
    locs = tuple(dict.fromkeys(loc for n in nodes for loc in n.locs))
    root = nodes[0] if is_contraction(nodes[0]) else nodes[-1]
    name = root.name
    g.release(nodes)
    fused = g.make("Fused", outer, [result.type], {"body": body}, name=name, locs=locs,
                   out_names=[result.name], before=nodes[-1])
    fused.outputs[0].origin = result.origin
    g.replace(result, fused.outputs[0])
    g.remove_all(inside)
    return fused


def size(group: Sequence[Node]) -> int:
    """Nodes; one of many operands counts for several, since its expression is as deep as they are many."""
    return sum(max(1, len(n.inputs) - 3) for n in group)


# -- what may be fused --------------------------------------------------------------------------------
def fusible(n: Node) -> bool:
    """Whether a node is a tensor expression of one result (not a part-wise one like Concat)."""
    d = opdef(n)
    return (d.has_expr and not d.has_routine and len(n.outputs) == 1 and len(n.inputs) <= MAX_READS
            and not getattr(d, "parts", None))


def epilogue_obstacle(n: Node, v: Value) -> str:
    """Why an elementwise node cannot run on the accumulators that hold `v`; empty if it can."""
    d = opdef(n)
    if not d.elementwise:
        return "it is not elementwise"
    out = n.outputs[0].type
    if (out.shape, out.layout) != (v.shape, v.type.layout) or out.dtype not in FLOATS:
        return "its shape or type differs"
    if any(x.dtype not in FLOATS for x in n.used):
        return "it mixes types"
    if any(not epilogue_readable(x, v) for x in n.used if x is not v):
        return "an operand is not laid along the channels"
    fns = expression_fns(n)
    if not fns <= VECTOR_FNS:
        return f"no vector form of {', '.join(sorted(fns - VECTOR_FNS))}"
    return ""


def integer_obstacle(n: Node, v: Value) -> str:
    """The same for the sums of an integer product: int32, then float, then smaller integers, and round again."""
    out, scaled = n.outputs[0], n.op in ("QuantizeLinear", "DequantizeLinear")
    if scaled and (n.inputs[0] is not v or n.attrs["block_size"]):
        return "it is quantized by more than this"
    if not scaled and not opdef(n).elementwise:
        return "it is not elementwise"
    small = (*BYTES, *SHORTS)
    kinds = (DType.F32, DType.I32, *small)
    if out.shape != v.shape or any(x.dtype not in kinds for x in [*n.used, out]):
        return "its shape or type differs"
    if n.op == "Cast":
        narrows = v.dtype is DType.F32 or out.dtype in small
        return "it cuts numbers short" if narrows else ""
    if not scaled and any(x.dtype is not DType.F32 for x in n.used) and (v.dtype in small or n.op not in EXACT_OPS):
        return f"no vector form of {n.op} of integers"
    if any(x.type.size > 1 and x.type.rank > v.type.rank for x in n.used if x is not v):
        return "an operand is not laid along the channels"
    missing = expression_fns(n) - VECTOR_FNS - {"cast", "tfl_scale"}
    return f"no vector form of {', '.join(sorted(missing))}" if missing else ""


def epilogue_readable(x: Value, v: Value) -> bool:
    """An operand is a number, one value per channel or per row, or a tensor of the same shape."""
    return x.type.size == 1 or x.type.rank <= v.type.rank


def expression_fns(n: Node) -> set[str]:
    e = _element(n)
    return {x.fn for x in walk(e) if isinstance(x, Op) and x.dtype is not DType.I64 and not _rounds(x)}


def _rounds(x: Op) -> bool:
    """From float to float."""
    return x.fn in ("cast", "unrounded") and x.dtype in FLOATS and x.args[0].dtype in FLOATS


def _element(n: Node) -> Expr:
    return compose(n)[0](*index_vars(n.outputs[0].type))


def has_fold(nodes: Sequence[Node]) -> bool:
    return any(isinstance(x, Reduce) for n in nodes for x in walk(_element(n)))


def costs(nodes: Sequence[Node]) -> int | None:
    """Scalar operations per element; None when one of them is expensive."""
    total = 0
    for n in nodes:
        for x in walk(_element(n)):
            if isinstance(x, Op) and x.dtype is not DType.I64:
                if x.fn in EXPENSIVE_FNS:
                    return None
                total += 1
    return total


def reads_per_element(n: Node, v: Value) -> float:
    """How often, on average, one element of `v` is read to compute all of `n`'s output."""
    if v.type.size == 0:
        return 0
    e = _element(n)
    loops: dict[Expr, int] = {x: guess(x.extent) for x in free_vars(e)}
    total = _count_reads(e, v, 1, loops, guess(n.outputs[0].type.size))
    return total / guess(v.type.size)


def _count_reads(e: Expr, v: Value, folded: int, loops: dict[Expr, int], whole: int) -> float:
    """Loads of `v` under `e`, each weighed by the loops round it."""
    if isinstance(e, Load):
        here = float(whole * folded) if e.source is v else 0.0
        return here + sum(_count_reads(c, v, folded, loops, whole) for c in e.index)
    if isinstance(e, Reduce):
        size = folded * math.prod(guess(x.extent) for x in e.vars)
        # a fold that depends on fewer loop indices is computed once per value of those
        needed = math.prod(loops[x] for x in free_vars(e) if x in loops)
        return sum(_count_reads(c, v, size, loops, min(whole, needed)) for c in children(e))
    return sum(_count_reads(c, v, folded, loops, whole) for c in children(e))


def hoistable(n: Node, v: Value) -> bool:
    """Whether elements of `v` are read once, or repeatedly only along trailing axes."""
    if not opdef(n).elementwise:
        return False
    out = n.outputs[0].shape
    mine = (1,) * (len(out) - v.type.rank) + v.shape
    differ = [k for k, (a, b) in enumerate(zip(mine, out)) if a != b]
    return not differ or all(d == 1 for d in mine[differ[0] :])


def clean_addresses(p: Node, node: Node, v: Value) -> bool:
    """Whether composing two nodes leaves no division in an address that was not there before."""
    if opdef(node).elementwise and same_shape(node.outputs[0].shape, v.shape):
        return True
    e = _composed(p, node, v)
    return not any(isinstance(x, Op) and x.fn in ("floordiv", "floormod") for x in walk(e))


def _composed(p: Node, node: Node, v: Value) -> Expr:
    inner = node_functions(p, reader)[0]
    f = node_functions(node, lambda x: inner if x is v else reader(x))[0]
    return f(*index_vars(node.outputs[0].type))
