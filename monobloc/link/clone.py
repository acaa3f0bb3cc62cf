"""Copying one graph into another, which is how modules merge."""

from __future__ import annotations

from monobloc.ir.graph import Graph, Value


def clone(g: Graph, source: Graph, local: dict[Value, Value], env: dict[str, Value], prefix: str = "") -> None:
    """Copy a graph's nodes and constants into `g`; `local` maps its values, `env` collects names."""
    for v in source.constants():
        assert v.const is not None
        local[v] = g.const_value(prefix + v.name, v.type, v.const)
    for n in source.nodes:
        made = g.make(n.op, [None if v is None else local[v] for v in n.inputs], [v.type for v in n.outputs],
                      n.attrs, name=prefix + n.name, locs=n.locs, out_names=[prefix + v.name for v in n.outputs])
        for old, new in zip(n.outputs, made.outputs, strict=True):
            new.origin = old.origin
            local[old] = new
            if not prefix:
                env.setdefault(old.name, new)
