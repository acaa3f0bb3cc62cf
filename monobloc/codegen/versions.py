"""Several versions of a program, at several sizes, become one program with one interface.

Each version is optimized, planned and written as if it were alone, with three things in common: inputs and
outputs lie at the same places, with room for the largest of each; what lives within a run is one piece of
memory, as large as the largest version needs; and weights are packed alike where any version can live with
it, so that they are stored once. Before all else in memory stand the run's dimensions, which the interface
looks at to choose the version.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

import numpy as np

from monobloc.codegen.excess import keep_precision
from monobloc.codegen.growth import growth_of
from monobloc.codegen.interface import Interface, Port, in_mem
from monobloc.codegen.lower import Lowered, generate
from monobloc.codegen.lower import lower as lower_one
from monobloc.codegen.place import ALIGN, Bank
from monobloc.codegen.sizes import Sizes, Version, check_names, room_of
from monobloc.errors import InternalError, UnsupportedError
from monobloc.ir.cover import TooMany, cover
from monobloc.ir.dims import MAX_OPEN, MAX_VERSIONS, SHOWN, Dim, named, symbols_of, told
from monobloc.ir.graph import Graph
from monobloc.ir.symbolic import Space, conditions_at
from monobloc.ir.text import copy_graph
from monobloc.passes import Dump, PassContext, run_passes
from monobloc.plan import align_up


def lower_all(
    graphs: Iterable[Graph], ctx: PassContext, prefix: str, title: str, dump: Dump | None = None, profile: bool = False
) -> Lowered:
    """All versions of a program (which are changed on the way); one of fixed sizes has one."""
    every = list(graphs)
    if not every[0].dims:
        return lower_one(every[0], ctx, prefix, title, dump, profile)
    _check_none_lost(every, title)
    check_names(prefix, every[0].dims, [n for n, _ in every[0].outputs])
    room = room_of(every)
    made: list[Lowered] = []

    def make(g: Graph) -> Lowered:
        own = replace(ctx, why=[], times=[])
        run_passes(g, own, dump=_dump_of(dump, len(made)))
        keep_precision(g, own, room)
        made.append(generate(g, own, version_prefix(prefix, len(made)), title, profile, room))
        return made[-1]

    for g in every:
        if g.space is None:
            make(g)
        else:
            _cover(g, make, made)
    return replace(made[0], interface=_interface(made, prefix, every[0].dims), more=tuple(made[1:]))


def _check_none_lost(graphs: Sequence[Graph], title: str) -> None:
    """Every size has a version: whoever asks an open size after the import narrows what the model is for."""
    dims, symbols = graphs[0].dims, symbols_of(graphs[0].dims)
    grid = np.meshgrid(*(np.array(d.sizes) for d in dims), indexing="ij")
    columns = {s: c.ravel() for s, c in zip(symbols, grid, strict=True)}
    left = np.ones(grid[0].size, bool)
    for g in graphs:
        here = conditions_at(g.space, columns, left.size) if g.space is not None else left.copy()
        for s, n in g.fixed.items():
            here &= columns[s] == n
        left &= ~here
    if left.any():
        lost = {d.name: int(columns[s][left][0]) for s, d in zip(symbols, dims, strict=True)}
        raise InternalError(f"`{title}` has no version for {told(lost)}",
                            notes=[c for g in graphs if g.space is not None for c in g.space.conditions])


def _cover(g: Graph, make: Callable[[Graph], Lowered], made: list[Lowered]) -> None:
    """A graph of open sizes, for as many spaces of them as its compilation has to tell apart; where those would
    be too many, for each of its sizes, if they are few."""
    assert g.space is not None

    def at(space: Space) -> Lowered:
        again = copy_graph(g, lambda _: space)
        again.at |= {d.name: space.fixed[s] for s, d in zip(symbols_of(g.dims), g.dims, strict=True)
                     if s in space.fixed}
        again.space = space
        return make(again)

    before = len(made)
    try:
        cover(g.space.symbols, g.space.points, at, MAX_OPEN)
    except TooMany as e:
        if len(g.space.points) > MAX_VERSIONS:
            raise UnsupportedError(
                f"`{g.name}` needs more than {MAX_OPEN} versions for sizes that stay open, and there are "
                f"{len(g.space.points)} sizes",
                notes=[f"it is told apart whether {named(c, g.dims)}" for c in e.conditions[:SHOWN]],
                hints=["give single sizes, as in `--dim NAME=1,4,16`"]) from None
        del made[before:]
        for row in g.space.points[::-1]:
            fixed = g.space.fixed | dict(zip(g.space.symbols, map(int, row), strict=True))
            at(Space((), row[None, :0], fixed=fixed))


def version_prefix(prefix: str, k: int) -> str:
    """What the code of a version is called by"""
    return f"{prefix}_v{k}"


def _dump_of(dump: Dump | None, k: int) -> Dump | None:
    return dump if dump is None or not k else lambda stem, g: dump(f"v{k}.{stem}", g)


# -- what they have in common ---------------------------------------------------------------------------
def _interface(made: Sequence[Lowered], prefix: str, dims: tuple[Dim, ...]) -> Interface:
    banks = _banks([x.interface.banks for x in made])
    every = [_placed(x.interface, banks) for x in made]
    _check_alike(made, every)
    first = every[0]
    at = [x.graph.fixed for x in made]
    growth = growth_of(first.title, [i.states for i in every], at, dims)
    versions = tuple(
        Version(fixed, tuple(x.graph.space.conditions if x.graph.space else ()), x.unit.parts,
                tuple(p.shape for p in i.inputs), tuple(p.shape for p in i.outputs), _data(i), g)
        for x, i, fixed, g in zip(made, every, at, growth, strict=True))
    inputs, outputs = (tuple(map(_largest, zip(*(_ports(i)[k] for i in every), strict=True))) for k in (0, 1))
    states = tuple(max(same, key=lambda pair: pair[0].bytes) for same in zip(*(i.states for i in every), strict=True))
    weights = {v.const.key: v.type.bytes for x in made for v in x.unit.weights.values() if v.const is not None}
    return replace(
        first, prefix=prefix, inputs=inputs, outputs=outputs, states=states,
        parts=tuple(p for v in versions for p in v.parts),
        arena=banks[-1].start + banks[-1].bytes, banks=banks,
        weights_bytes=sum(weights.values()), sizes=Sizes(dims, versions),
    )


def _ports(i: Interface) -> tuple[tuple[Port, ...], tuple[Port, ...]]:
    return i.inputs, i.outputs


def _data(i: Interface) -> dict[int, str]:
    """Where a version has the sizes of outputs that data decide."""
    return {k: in_mem(i, p.sizes) for k, p in enumerate(i.outputs) if p.sizes is not None}


def _largest(ports: tuple[Port, ...]) -> Port:
    """As all versions have it; sizes that data decide are elsewhere in each."""
    return replace(max(ports, key=lambda p: p.bytes), sizes=None)


def _banks(every: Sequence[tuple[Bank, ...]]) -> tuple[Bank, ...]:
    """Each as large as the largest version needs, one behind the other as in every version."""
    out: list[Bank] = []
    for same in zip(*every, strict=True):
        end = out[-1].start + out[-1].bytes if out else 0
        behind = bool(out) and out[-1].region == same[0].region  # in one region with the one before
        out.append(replace(same[0], start=end if behind else align_up(end, ALIGN), bytes=max(b.bytes for b in same)))
    return tuple(out)


def _placed(i: Interface, banks: Sequence[Bank]) -> Interface:
    """The interface with its ports where the program's banks lie."""
    def moved(p: Port) -> Port:
        sizes = None if p.sizes is None else moved(p.sizes)
        return replace(p, offset=p.offset - i.banks[p.bank].start + banks[p.bank].start, sizes=sizes)

    inputs, outputs = (tuple(map(moved, ports)) for ports in _ports(i))
    states = tuple((moved(a), moved(b)) for a, b in i.states)
    return replace(i, inputs=inputs, outputs=outputs, states=states, banks=tuple(banks))


def _check_alike(made: Sequence[Lowered], interfaces: Sequence[Interface]) -> None:
    """Ports lie at the same places in all versions."""
    first = interfaces[0]
    for x, i in zip(made, interfaces, strict=True):
        places = [[(p.name, p.offset, p.bank) for p in (*j.inputs, *j.outputs, *sum(j.states, ()))] for j in (i, first)]
        if places[0] != places[1]:
            raise UnsupportedError(f"outputs of `{i.title}` are one tensor at {told(x.graph.at)}, and not at "
                                   f"{told(made[0].graph.at)}", hints=["keep one of them: `--keep-output NAME`"])
