"""Common subexpressions: nodes with the same operator, inputs and attributes are one node.

Constants are equal when their contents are, wherever they come from, so the common part of two models
that read one input is computed once. Operands of what commutes to the bit may be in either order.
"""

from __future__ import annotations

from monobloc.ir.graph import Graph, Node, Value
from monobloc.ir.text import _attr
from monobloc.passes import PassContext

COMMUTATIVE = ("Add", "Mul", "Equal", "And", "Or", "Xor", "BitwiseAnd", "BitwiseOr", "BitwiseXor")
OF_INTEGERS = ("Max", "Min")  # equal floats may be zeros of different signs


class Cse:
    name = "cse"

    def run(self, g: Graph, ctx: PassContext) -> bool:
        seen: dict[tuple[object, ...], Node] = {}
        numbers: dict[object, int] = {}  # of operands, in order of appearance: what can be sorted
        dead: set[Node] = set()
        for node in g.nodes:
            operands = [numbers.setdefault(_value_key(v), len(numbers)) for v in node.inputs]
            if _commutes(node):
                operands.sort()
            key = (node.op, tuple(operands), len(node.outputs),
                   tuple((k, _attr(v, "")) for k, v in sorted(node.attrs.items())))
            first = seen.setdefault(key, node)
            if first is not node:
                for old, new in zip(node.outputs, first.outputs, strict=True):
                    g.replace(old, new)
                dead.add(node)
                ctx.reason(node, self.name, f"removed: computes the same as '{first.name}'")
        g.remove_all(dead)
        return bool(dead)


def _commutes(node: Node) -> bool:
    return node.op in COMMUTATIVE or (node.op in OF_INTEGERS and not node.outputs[0].dtype.is_float)


def _value_key(v: Value | None) -> object:
    if v is None:
        return None
    return (v.const.key, v.type) if v.const is not None else id(v)
