"""Common subexpressions: nodes with the same operator, inputs and attributes are one node."""

from __future__ import annotations

from monobloc.ir.graph import Graph, Node, Value
from monobloc.ir.text import _attr
from monobloc.passes import PassContext


class Cse:
    name = "cse"

    def run(self, g: Graph, ctx: PassContext) -> bool:
        seen: dict[tuple[object, ...], Node] = {}
        dead: set[Node] = set()
        for node in g.nodes:
            key = (node.op, tuple(_value_key(v) for v in node.inputs), len(node.outputs),
                   tuple((k, _attr(v, "")) for k, v in sorted(node.attrs.items())))
            first = seen.setdefault(key, node)
            if first is not node:
                for old, new in zip(node.outputs, first.outputs, strict=True):
                    g.replace(old, new)
                dead.add(node)
                ctx.reason(node, self.name, f"removed: computes the same as '{first.name}'")
        g.remove_all(dead)
        return bool(dead)


def _value_key(v: Value | None) -> object:
    if v is None:
        return None
    return (v.const.key, v.type) if v.const is not None and v.type.size <= 4096 else id(v)
