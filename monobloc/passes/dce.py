"""Dead code: nodes none of whose outputs is read, with all that only they needed."""

from __future__ import annotations

from monobloc.ir.graph import Graph, Node, Value
from monobloc.passes import PassContext


class Dce:
    name = "dce"

    def run(self, g: Graph, ctx: PassContext) -> bool:
        live: set[Value] = g.output_values
        dead: set[Node] = set()
        for node in reversed(g.nodes):
            if any(v in live for v in node.outputs):
                live.update(node.used)
            else:
                dead.add(node)
                ctx.reason(node, self.name, "removed: nothing reads its outputs")
        if dead:
            g.remove_all(dead)
        return bool(dead)
