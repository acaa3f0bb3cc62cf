"""Products of half floats: their left operand is widened once, before the kernel.

A kernel sums in float32 and reads its left operand element by element, so widening there would be done again
for every panel of weights. Convolutions widen as they copy rows into scratch; a matrix product has no such
copy, so its operand becomes float32 in front of it, where the conversion joins what made it. Constant
weights stay halves: the kernel widens whole vectors of them as it loads them. The result is rounded
once, when it is stored.
"""

from __future__ import annotations

from monobloc.ir.graph import Graph, Node, Value
from monobloc.ir.types import HALVES, DType
from monobloc.ops.build import Builder
from monobloc.passes import PassContext


class Widen:
    name = "widen"

    def run(self, g: Graph, ctx: PassContext) -> bool:
        wide: dict[Value, Value] = {}
        changed = False
        for node in list(g.nodes):
            if node.op == "MatMul" and "to" not in node.attrs and node.outputs[0].dtype in HALVES:
                self._matmul(g, node, wide)
                ctx.reason(node, self.name, "sums in float32, and is rounded once when it is stored")
                changed = True
        if changed:
            g.sort()
        return changed

    def _matmul(self, g: Graph, node: Node, wide: dict[Value, Value]) -> None:
        node.attrs["to"] = node.outputs[0].dtype
        for i, v in enumerate(node.inputs):
            assert v is not None
            if i == 1 and v.const is not None:
                continue
            if v not in wide:
                b = Builder(g, before=node, locs=node.locs, name=f"{v.name}.wide")
                wide[v] = b.one("Cast", v, to=DType.F32)
            g.set_input(node, i, wide[v])
