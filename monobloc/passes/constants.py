"""What depends on constants only is computed while compiling.

The importer does that for the constants of a model. Here it is done for those that a link brings: inputs
that are bound, and outputs of one model that are inputs of another. Weights that are stored as halves or
small integers and widened by the model wait for `narrow`, which knows who can read them as they are.
"""

from __future__ import annotations

from monobloc.ir.graph import Graph, Node
from monobloc.ir.symbolic import is_open
from monobloc.ir.types import DType
from monobloc.ops import opdef, sized
from monobloc.ops.build import evaluate
from monobloc.passes import PassContext
from monobloc.passes.rewrite import sweep_dead


class Constants:
    name = "constants"

    def run(self, g: Graph, ctx: PassContext) -> bool:
        return fold_constant_nodes(g, ctx, widen=False)


WIDENING = ("Cast", "DequantizeLinear")
FEW_BYTES = 1 << 10


def fold_constant_nodes(g: Graph, ctx: PassContext, widen: bool = True) -> bool:
    """Nodes whose inputs are all constant are computed now (what the importer left is computed too).

    `widen`: those too that make a large constant out of a small one."""
    changed = False
    for node in g.nodes:
        if _computable(node):
            if (not widen and _widens(node)) or any(is_open(d) for v in node.outputs for d in v.shape):
                continue
            types = [v.type for v in node.outputs]
            for v, y in zip(node.outputs, evaluate(opdef(node), node.inputs, node.attrs, types), strict=True):
                g.replace(v, g.constant(v.name, y))
            ctx.reason(node, "constants", "computed at compile time: its inputs are constants")
            changed = True
    if changed:
        sweep_dead(g)
    return changed


def _computable(node: Node) -> bool:
    """Constants go in, and what comes out is all that there is to know: no choice, no size that data decide"""
    plain = node.body is None and not node.regions and node.op != sized.OP
    return plain and bool(node.used) and all(v.const is not None for v in node.used)


def _widens(node: Node) -> bool:
    """Whether it makes more than a few floats of something smaller."""
    grown, stored = (sum(v.type.bytes for v in values) for values in (node.outputs, node.used))
    floats = node.outputs[0].dtype is DType.F32 or (node.op == "DequantizeLinear" and node.outputs[0].dtype.is_float)
    return node.op in WIDENING and floats and grown > max(stored, FEW_BYTES)
