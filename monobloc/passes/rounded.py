"""Halves are rounded before what tells: a Cast, and in `strict` whoever reads what an operator makes.

Inside a fused group a half keeps float32's precision, since nothing rounds it before it is stored, and so may one that
is stored as float32 (`codegen/excess.py`). A Cast is where a model says which type a number has: what it reads is
rounded, wherever that was kept, and so is what it makes. So it sees the number that an output of its operand shows,
and no plan of memory decides which. Rounding is a part of the graph, a node before each such Cast (in `strict` behind
every operator that computes halves), which runs wherever it is fused. What only moves elements needs none, and a
routine stores what it makes.
"""

from __future__ import annotations

from monobloc.ir.graph import Graph, Node, Value
from monobloc.ir.types import HALVES
from monobloc.ops import opdef
from monobloc.ops.build import Builder
from monobloc.passes import PassContext

TELLS = ("Cast", "BitCast")  # what the type of a half is to


class Rounded:
    name = "rounded"

    def run(self, g: Graph, ctx: PassContext) -> bool:
        return _every_operator(g, ctx) if ctx.numerics == "strict" else _every_cast(g, ctx)


def _every_operator(g: Graph, ctx: PassContext) -> bool:
    nodes = [n for n in g.nodes if _computes(n)]
    for node in nodes:
        _round(g, node)
        ctx.reason(node, Rounded.name, "is rounded before it is read")
    if nodes:
        g.sort()
    return bool(nodes)


def _computes(n: Node) -> bool:
    """Whether a node makes halves by arithmetic, and could be fused with who reads them."""
    d = opdef(n)
    halves = any(v.dtype in HALVES for v in n.outputs)
    return halves and n.op not in ("Cast", "Rounded") and not (n.regions or d.moves or d.has_routine)


def _round(g: Graph, n: Node) -> None:
    for v in n.outputs:
        if v.dtype in HALVES:
            rounded = g.make("Rounded", [], [v.type], name=n.name, out_names=[v.name], locs=n.locs)
            g.replace(v, rounded.outputs[0])
            rounded.inputs.append(v)
            v.users.append(rounded)


def _every_cast(g: Graph, ctx: PassContext) -> bool:
    done: dict[Value, Value] = {}
    for n in [n for n in g.nodes if n.op in TELLS and _may_be_wide(n.used[0])]:
        v = n.used[0]
        if v not in done:
            done[v] = Builder(g, before=n, locs=n.locs, name=f"{v.name}.rounded").one("Rounded", v)
            ctx.reason(n, Rounded.name, f"reads %{v.name} rounded")
        g.set_input(n, 0, done[v])
    if done:
        g.sort()
    return bool(done)


def _may_be_wide(v: Value) -> bool:
    """Whether a half may be held more exactly than its type where it is read: arithmetic made what only moved since."""
    seen, left = {v}, [v]
    while left:
        x = left.pop()
        if x.dtype not in HALVES or x.producer is None:
            continue
        if _computes(x.producer):
            return True
        if opdef(x.producer).moves:
            left += [u for u in x.producer.used if u not in seen]
            seen.update(x.producer.used)
    return False
