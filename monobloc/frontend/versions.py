"""A model that is compiled for several sizes: several imports, which must agree in their interface.

Shapes decide what a graph is: which branch is taken, how often a loop runs, what folds away. So every
combination of a set's sizes is imported for itself, and the graphs are versions of one program. A range
stays open: its size is a symbol, and the model is imported once more only for those sizes at which the
import would have gone another way. Equal weights are one by their content from here on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import product
from math import prod

import numpy as np

from monobloc.errors import ErrorList, ModelError, MonoblocError, UnsupportedError
from monobloc.frontend.importing import Choices, Imported
from monobloc.ir.cover import TooMany, cover
from monobloc.ir.dims import MAX_OPEN, MAX_VERSIONS, SHOWN, Dim, named, open_dims, symbols_of, told
from monobloc.ir.graph import Graph
from monobloc.ir.symbolic import MAX_POINTS, Space


def load_versions(load: Callable[[Choices], Imported], choices: Choices) -> Imported:
    """The model at all combinations of the sizes that a run may choose, the largest first."""
    dims = open_dims(choices.dims)
    if not dims:
        return load(choices)
    symbols = symbols_of(dims)

    def make(space: Space) -> Imported:
        space.bound({s: d.sizes for s, d in zip(symbols, dims, strict=True)})
        found = _at(load, choices, {d.name: space.symbol(s) for d, s in zip(dims, symbols, strict=True)})
        found.graph.dims = dims
        found.graph.at = {d.name: space.fixed[s] for d, s in zip(dims, symbols, strict=True) if s in space.fixed}
        found.graph.space = space if space.symbols else None
        return found

    made = [m for rows in regions(dims) for m in _versions(make, symbols, rows, dims)]
    if len(made) > MAX_VERSIONS:
        raise _too_many(dims, len(made), [])
    _check_ports([m.graph for m in made])
    return replace(made[0], more=tuple(m.graph for m in made[1:]))


def regions(dims: Sequence[Dim]) -> list[np.ndarray]:
    """The points of all ranges, for each combination of the sets' sizes; a row has a size of every dimension."""
    sets = [d.sizes[::-1] if not d.is_range else (None,) for d in dims]
    if prod(len(s) for s in sets) > MAX_VERSIONS or prod(len(d.sizes) for d in dims if d.is_range) > MAX_POINTS:
        raise _too_many(dims, prod(len(d.sizes) for d in dims), [])
    return [np.array(list(product(*(d.sizes if s is None else (s,) for d, s in zip(dims, at, strict=True)))), np.int64)
            for at in product(*sets)]


def _versions(
    make: Callable[[Space], Imported], symbols: Sequence[str], rows: np.ndarray, dims: Sequence[Dim]
) -> list[Imported]:
    """Of one region; where its sizes have to be told apart too often, one for each."""
    try:
        return [m for m, _ in cover(symbols, rows, make, MAX_OPEN)]
    except TooMany as e:
        if len(rows) > MAX_VERSIONS:
            raise _too_many(dims, len(rows), e.conditions) from None
    return [make(Space((), row[None, :0], fixed=dict(zip(symbols, row.tolist(), strict=True)))) for row in rows[::-1]]


def _too_many(dims: Sequence[Dim], count: int, conditions: Sequence[str]) -> UnsupportedError:
    told = [f"it is told apart whether {named(c, dims)}" for c in conditions[:SHOWN]]
    return UnsupportedError(
        f"the sizes of {' and '.join(f'`{d.name}`' for d in dims)} are {count} combinations, "
        f"and an image holds at most {MAX_VERSIONS} versions of a model",
        notes=told, hints=["give fewer sizes, as in `--dim NAME=1,4,16`"])


def _at(load: Callable[[Choices], Imported], choices: Choices, at: dict[str, int]) -> Imported:
    try:
        return load(replace(choices, dims={**choices.dims, **at}))
    except MonoblocError as e:
        for one in e.errors if isinstance(e, ErrorList) else [e]:
            one.notes = (*one.notes, f"met with {told(at)}")
        raise


def _check_ports(graphs: Sequence[Graph]) -> None:
    """One interface: the same names, element types and ranks, whatever the sizes."""
    first = _ports(graphs[0])
    for g in graphs[1:]:
        if (met := _ports(g)) != first:
            notes = [f"{a} with {told(graphs[0].at)}, {b} with {told(g.at)}"
                     for a, b in zip(first, met, strict=False) if a != b]
            raise ModelError("the model's inputs and outputs are not of one kind at all of its sizes",
                             notes=notes or ["their number differs"])


def _ports(g: Graph) -> list[str]:
    ports = [*((v.origin or v.name, v) for v in g.inputs), *g.outputs]
    return [f"`{name}` is {v.dtype.value} of rank {v.type.rank}" for name, v in ports]
