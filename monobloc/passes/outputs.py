"""Every exported tensor gets a value of its own, made by a node.

An output that is an input, a constant, or the same value as another output is copied: each has its
own buffer in the interface.
"""

from __future__ import annotations

from monobloc.ir.graph import Graph, Value
from monobloc.ops.sized import sizes_of
from monobloc.passes import PassContext


class Outputs:
    name = "outputs"

    def run(self, g: Graph, ctx: PassContext) -> bool:
        seen: set[Value] = set()
        changed = False
        out: list[tuple[str, Value]] = []
        for name, v in g.outputs:
            if v in seen and sizes_of(v) is not None and v.producer is not None:  # its sizes are beside it
                p = v.producer
                v = g.make(p.op, p.inputs, [x.type for x in p.outputs], p.attrs, name=name, locs=p.locs).outputs[0]
                changed = True
            elif v.producer is None or v in seen:
                node = g.make("Copy", [v], [v.type], name=name or "output")
                ctx.reason(node, self.name, f"output '{name}' is also an input, a constant or another output: copied")
                v = node.outputs[0]
                changed = True
            seen.add(v)
            out.append((name, v))
        g.outputs = out
        return changed
