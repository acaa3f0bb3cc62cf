"""Control nodes whose decisions constants take, and regions that hold no more than they need.

    if true then a else b  =  a                                 also where a link binds an input
    a loop that never runs  =  what it starts with
    a captured constant  =  a constant of the region
    a carried value that stays as it is  =  what it starts with, captured
    outputs that nobody reads, captured values that no region reads: gone, with all that only they needed

What a condition depends on is computed here, where it is only constants: the other passes then never see the branch
that is not taken.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from monobloc.ir.graph import Const, Graph, Node, Value
from monobloc.ops import opdef
from monobloc.ops.build import evaluate
from monobloc.ops.control import is_control, ports
from monobloc.passes import PassContext
from monobloc.passes.rewrite import sweep_dead

FEW = 1 << 10  # elements of what a condition is computed from


class Control:
    name = "control"

    def run(self, g: Graph, ctx: PassContext) -> bool:
        changed = False
        for node in list(g.nodes):
            if not is_control(node) or node not in g.nodes:
                continue
            if _decided(g, node, ctx):
                changed = True
                continue
            changed |= _steady(g, node, ctx)
            changed |= _fewer_outputs(g, node, ctx)
            changed |= _fewer_inputs(g, node)
        if changed:
            sweep_dead(g)
        return changed


# -- decisions ----------------------------------------------------------------------------------------
def known(v: Value | None) -> np.ndarray | None:
    """What a small value is, where only constants decide it."""
    return None if v is None else _known(v, {})


def _known(v: Value, found: dict[Value, np.ndarray | None]) -> np.ndarray | None:
    if v not in found:
        found[v] = None if v.type.size > FEW else v.const.array if v.const is not None else _computed(v, found)
    return found[v]


def _computed(v: Value, found: dict[Value, np.ndarray | None]) -> np.ndarray | None:
    n = v.producer
    if n is None or n.body is not None or is_control(n) or not n.used:
        return None
    given: list[Value | None] = []
    for x in n.inputs:
        a = None if x is None else _known(x, found)
        if x is not None and a is None:
            return None
        given.append(None if a is None or x is None else Value(x.name, x.type, const=Const(a)))
    return evaluate(opdef(n), given, n.attrs, [x.type for x in n.outputs])[n.outputs.index(v)]


def _decided(g: Graph, node: Node, ctx: PassContext) -> bool:
    """Replace a control node whose decision is known."""
    if node.op == "If":
        condition = known(node.inputs[0])
        if condition is None:
            return False
        taken = node.attrs["then" if condition.ravel()[0] else "else"]
        word = "true" if condition.ravel()[0] else "false"
        ctx.reason(node, Control.name, f"its condition is {word}: one branch is left")
        _inline(g, node, taken, node.inputs[1:])
        return True
    trips, condition = known(node.inputs[0]), known(node.inputs[1])
    most = node.attrs["most"] if trips is None else int(trips.ravel()[0])
    if condition is not None and condition.ravel()[0] and node.inputs[1] is not None:
        g.set_input(node, 1, None)
    if (condition is None or condition.ravel()[0]) and (trips is None or most > 0):
        return False
    ctx.reason(node, Control.name, "removed: the loop never runs")
    p = ports(node)
    for old, new in zip(p.last, p.first, strict=True):
        g.replace(old, new)
    for old in (*p.stacked, *([p.count] if p.count is not None else [])):
        g.replace(old, g.constant(old.name, np.zeros(old.shape, old.dtype.numpy)))
    return True


def _inline(g: Graph, node: Node, region: Graph, given: Sequence[Value | None]) -> None:
    """The region's nodes run in place of the node."""
    nodes, outputs = list(region.nodes), [v for _, v in region.outputs]
    for inner, outer in zip(region.inputs, given, strict=True):
        assert outer is not None
        region.replace(inner, outer)
        outputs = [outer if v is inner else v for v in outputs]
    g.adopt(nodes, node)
    region.nodes = []
    for old, new in zip(node.outputs, outputs, strict=True):
        g.replace(old, new)


# -- what regions hold --------------------------------------------------------------------------------
def _steady(g: Graph, node: Node, ctx: PassContext) -> bool:
    """Carried values that no iteration changes."""
    if node.op != "Loop":
        return False
    p = ports(node)
    same = [k for k, (now, then) in enumerate(zip(p.now, p.then, strict=True)) if now is then]
    for k in same:
        ctx.reason(node, Control.name, f"carried value {k} never changes")
        g.replace(p.last[k], p.first[k])
    body, test = node.attrs["do"], int(node.attrs["test"])
    for k in reversed(same):
        inner, first = p.now[k], p.first[k]
        body.inputs.remove(inner)
        body.inputs.append(inner)
        body.outputs.pop(test + k)
        _take_input(node, 2 + k)
        node.inputs.append(first)
        first.users.append(node)
        node.outputs.pop(k)
        node.attrs["carried"] -= 1
    return bool(same)


def _take_input(node: Node, k: int) -> None:
    v = node.inputs.pop(k)
    if v is not None:
        v.users.remove(node)


def _fewer_outputs(g: Graph, node: Node, ctx: PassContext) -> bool:
    """Outputs that nobody reads go, but for carried values that another iteration needs."""
    leaving = g.output_values
    unread = [k for k, v in enumerate(node.outputs) if not v.users and v not in leaving]
    if node.op == "Loop" and unread:
        needed = _carried_need(node, [k for k in range(len(node.outputs)) if k not in unread])
        unread = [k for k in unread if k not in needed]
    if not unread or len(unread) == len(node.outputs):
        return False  # a node nobody needs is dead as a whole
    ctx.reason(node, Control.name, f"{len(unread)} of {len(node.outputs)} outputs are read by nothing: removed")
    carried = node.attrs.get("carried", 0)
    for k in reversed(unread):
        node.outputs.pop(k)
        if node.attrs.get("counted") and k == len(node.outputs):
            node.attrs["counted"] = False
            continue
        for region in node.regions:
            region.outputs.pop(k + int(node.attrs.get("test", False)))
            if k < carried:
                region.inputs.pop(1 + k)  # what reads it is dead now
        if k < carried:
            _take_input(node, 2 + k)
            node.attrs["carried"] -= 1
    for region in node.regions:
        sweep_dead(region)
    return True


def _carried_need(node: Node, read: Sequence[int]) -> set[int]:
    """Carried values that outputs which are read need, in some iteration"""
    p = ports(node)
    outs = [*p.then, *p.rows]
    needed = set(read)
    while True:
        live = {outs[k] for k in needed if k < len(outs)} | ({p.goes_on} if p.goes_on is not None else set())
        for n in reversed(node.attrs["do"].nodes):
            if any(v in live for v in n.outputs):
                live.update(n.used)
        more = {k for k, v in enumerate(p.now) if v in live} - needed
        if not more:
            return needed
        needed |= more


def _fewer_inputs(g: Graph, node: Node) -> bool:
    """Captured values that no region reads go, equal ones become one, constants the regions' own."""
    first = 1 if node.op == "If" else 2 + node.attrs["carried"]
    skip = 0 if node.op == "If" else 1 + node.attrs["carried"]
    changed = False
    for k in reversed(range(first, len(node.inputs))):
        outer = node.inputs[k]
        assert outer is not None
        at = skip + k - first
        same = node.inputs.index(outer, first)
        read = any(r.uses(r.inputs[at]) for r in node.regions)
        if read and outer.const is None and same == k:
            continue
        for r in node.regions:
            inner = r.inputs[at]
            if outer.const is not None and r.uses(inner):
                r.replace(inner, r.const_value(inner.name, inner.type, outer.const))
            elif same != k:
                r.replace(inner, r.inputs[skip + same - first])
            r.inputs.pop(at)
        _take_input(node, k)
        changed = True
    return changed
