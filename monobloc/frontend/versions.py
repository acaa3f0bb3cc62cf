"""A model that is compiled for several sizes: one import for each, which must agree in their interface.

Shapes decide what a graph is: which branch is taken, how often a loop runs, what folds away. So every
combination of the sizes given is imported for itself, and the graphs are versions of one program. Equal
weights are one by their content from here on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from monobloc.errors import ErrorList, ModelError, MonoblocError, UnsupportedError
from monobloc.frontend.importing import Choices, Imported
from monobloc.ir.dims import MAX_VERSIONS, open_dims, points, told
from monobloc.ir.graph import Graph


def load_versions(load: Callable[[Choices], Imported], choices: Choices) -> Imported:
    """The model at all combinations of the sizes that a run may choose, the largest first."""
    dims = open_dims(choices.dims)
    if not dims:
        return load(choices)
    every = points(dims)
    if len(every) > MAX_VERSIONS:
        raise UnsupportedError(
            f"the sizes of {' and '.join(f'`{d.name}`' for d in dims)} are {len(every)} combinations, "
            f"and an image holds at most {MAX_VERSIONS} versions of a model",
            hints=["give fewer sizes, as in `--dim NAME=1,4,16`"])
    made = [_at(load, choices, at) for at in every]
    for m, at in zip(made, every, strict=True):
        m.graph.dims, m.graph.at = dims, at
    _check_ports([m.graph for m in made])
    return replace(made[0], more=tuple(m.graph for m in made[1:]))


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
