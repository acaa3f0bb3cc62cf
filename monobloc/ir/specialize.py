"""A graph of open sizes at one point: what it means there is what the graph of fixed sizes means."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from monobloc.ir.dims import symbols_of
from monobloc.ir.graph import Graph
from monobloc.ir.symbolic import Space, is_open
from monobloc.ir.text import copy_graph


def for_shapes(graphs: Iterable[Graph], shapes: Mapping[str, Sequence[int]]) -> Graph | None:
    """The version whose inputs have these shapes, by name, with no size open; None where none has."""
    for g in graphs:
        at = _sizes(g, shapes)
        if at is None:
            continue
        found = g if g.space is None or not g.space.symbols else at_sizes(g, at)
        if all(tuple(shapes[n]) == v.shape for v in found.inputs if (n := v.origin or v.name) in shapes):
            return found
    return None


def at_sizes(g: Graph, at: Mapping[str, int]) -> Graph:
    """The graph with a size for every symbol."""
    space = Space((), np.zeros((1, 0), np.int64), fixed=at)
    out = copy_graph(g, lambda _: space)
    out.at |= {d.name: at[s] for s, d in zip(symbols_of(g.dims), g.dims, strict=True) if s in at}
    out.space = None
    return out


def _sizes(g: Graph, shapes: Mapping[str, Sequence[int]]) -> dict[str, int] | None:
    """Every symbol's size in these shapes, if the graph is for them."""
    at = g.fixed
    if g.space is None:
        return at
    at |= g.space.fixed
    for v in g.inputs:
        for size, n in zip(v.shape, shapes.get(v.origin or v.name, ()), strict=False):
            if is_open(size) and str(size)[1:-1] in g.space.symbols:
                at[str(size)[1:-1]] = int(n)
    point = [at.get(s, -1) for s in g.space.symbols]
    return at if (g.space.points == point).all(axis=1).any() else None
