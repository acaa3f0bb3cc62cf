"""`--from TENSOR`: the program starts inside the graph.

The tensor becomes an input; what only computed it is gone, and so are inputs that nothing reads any
more: the application does that part itself.
"""

from __future__ import annotations

from collections.abc import Sequence

from monobloc.errors import ModelError
from monobloc.ir.graph import Graph
from monobloc.link.order import canonical_order


def start_from(g: Graph, names: Sequence[str]) -> None:
    """Make the named tensors inputs of `g`; ModelError for names no node makes."""
    made = {name: v for n in g.nodes for v in n.outputs for name in (v.name, v.origin)}
    for name in names:
        if name not in made:
            raise ModelError(f"`--from {name}`: no node makes this tensor",
                             hints=["`monobloc inspect MODEL` lists the tensors"])
        v = made[name]
        start = g.add_input(f"{v.name}.from", v.type)
        start.origin = v.origin or v.name
        g.replace(v, start)
    canonical_order(g)
    leaving = g.output_values
    g.inputs = [v for v in g.inputs if v.users or v in leaving]
