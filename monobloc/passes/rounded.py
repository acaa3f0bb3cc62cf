"""`strict`: halves are rounded after every operator, as their types say.

Inside a fused group a half keeps float32's precision, since nothing rounds it before it is stored. Here rounding
becomes a part of the graph, a node behind every operator that computes halves, which runs wherever it is fused. What
only moves elements needs none, and a routine stores what it makes.
"""

from __future__ import annotations

from monobloc.ir.graph import Graph, Node
from monobloc.ir.types import HALVES
from monobloc.ops import opdef
from monobloc.passes import PassContext


class Rounded:
    name = "rounded"

    def run(self, g: Graph, ctx: PassContext) -> bool:
        if ctx.numerics != "strict":
            return False
        nodes = [n for n in g.nodes if _computes(n)]
        for node in nodes:
            _round(g, node)
            ctx.reason(node, self.name, "is rounded before it is read")
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
