"""Copying one graph into another, which is how modules merge."""

from __future__ import annotations

from typing import Any

from monobloc.ir.graph import Graph, Node, Value


def clone(g: Graph, source: Graph, local: dict[Value, Value], env: dict[str, Value], prefix: str = "") -> None:
    """Copy a graph's nodes and constants into `g`; `local` maps its values, `env` collects names."""
    for v in source.constants():
        assert v.const is not None
        local[v] = g.const_value(prefix + v.name, v.type, v.const)
    for n in source.nodes:
        made = g.make(n.op, [None if v is None else local[v] for v in n.inputs], [v.type for v in n.outputs],
                      _attrs(g, n, prefix), name=prefix + n.name, locs=n.locs,
                      out_names=[prefix + v.name for v in n.outputs])
        for old, new in zip(n.outputs, made.outputs, strict=True):
            new.origin = old.origin
            local[old] = new
            if not prefix:
                env.setdefault(old.name, new)


def _attrs(g: Graph, n: Node, prefix: str) -> dict[str, Any]:
    return {k: _region(g, x, prefix) if x in n.regions else x for k, x in n.attrs.items()} if n.regions else n.attrs


def _region(g: Graph, source: Graph, prefix: str) -> Graph:
    """A region's copy, within the graph that its node comes to."""
    out = Graph(source.name, g)
    local: dict[Value, Value] = {v: out.add_input(prefix + v.name, v.type) for v in source.inputs}
    clone(out, source, local, {}, prefix)
    out.outputs = [(name, local[v]) for name, v in source.outputs]
    return out
