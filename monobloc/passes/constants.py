"""What depends on constants only is computed while compiling.

The importer does that for the constants of a model. Here it is done for those that a link brings: inputs
that are bound, and outputs of one model that are inputs of another.
"""

from __future__ import annotations

from monobloc.ir.graph import Graph
from monobloc.ops import opdef
from monobloc.ops.build import evaluate
from monobloc.passes import PassContext
from monobloc.passes.rewrite import sweep_dead


class Constants:
    name = "constants"

    def run(self, g: Graph, ctx: PassContext) -> bool:
        return fold_constant_nodes(g, ctx)


def fold_constant_nodes(g: Graph, ctx: PassContext) -> bool:
    """Nodes whose inputs are all constant are computed now (what the importer left is computed too)."""
    changed = False
    for node in g.nodes:
        if node.body is None and node.used and all(v.const is not None for v in node.used):
            types = [v.type for v in node.outputs]
            for v, y in zip(node.outputs, evaluate(opdef(node), node.inputs, node.attrs, types), strict=True):
                g.replace(v, g.constant(v.name, y))
            ctx.reason(node, "constants", "computed at compile time: its inputs are constants")
            changed = True
    if changed:
        sweep_dead(g)
    return changed
