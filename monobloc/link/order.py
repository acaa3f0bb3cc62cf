"""One order of nodes for one graph: what keeps images the same however a graph came together."""

from __future__ import annotations

from monobloc.ir.graph import Graph, Node


def canonical_order(g: Graph) -> None:
    """Nodes in the order in which a walk from the outputs, operands first, finishes them."""
    order: list[Node] = []
    done: set[Node] = set()
    for _, v in g.outputs:
        stack = [v.producer] if v.producer is not None else []
        while stack:
            n = stack[-1]
            todo = [x.producer for x in n.used if x.producer is not None and x.producer not in done]
            if n in done or not todo:
                stack.pop()
                if n not in done:
                    done.add(n)
                    order.append(n)
            else:
                stack.append(todo[0])
    g.remove_all({n for n in g.nodes if n not in done})
    g.nodes = order
