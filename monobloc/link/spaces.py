"""Connected models of several sizes in one space of sizes.

Problem: each model was compiled with dimensions of its own and told apart its own versions, and a program
has one set of dimensions. Idea: the size that an input reads decides the dimension that stands there, as
any size the other model has; all other dimensions are the program's, those of one name together. At each
point of the program every model then has one version, the first that takes it, and where all choose alike
is one version of the program. Its graphs are read again with what their symbols are there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from math import prod

import numpy as np

from monobloc.errors import LinkError
from monobloc.ir.dims import MAX_VERSIONS, Dim, symbols_of, told
from monobloc.ir.graph import Graph, Value
from monobloc.ir.symbolic import MAX_POINTS, Renamed, Space, conditions_at, is_open, values_at
from monobloc.ir.text import copy_graph
from monobloc.link.objects import Module

Rows = np.ndarray  # numbers of points
Columns = dict[str, np.ndarray]  # of a model's symbols, their sizes at points


@dataclass(frozen=True)
class Feed:
    """The input of a model, by its number, that reads a port of another one."""

    reader: int
    input: int
    source: int
    port: str
    is_input: bool

    def read(self, graphs: Sequence[Graph]) -> Value:
        """What is read, in these versions of the models."""
        g = graphs[self.source]
        return next(v for v in g.inputs if (v.origin or v.name) == self.port) if self.is_input else \
            dict(g.outputs)[self.port]


@dataclass(frozen=True)
class Joint:
    """One version of the program: a version of each model, in one space, and what the merged graph then carries."""

    modules: tuple[Module, ...]
    dims: tuple[Dim, ...] = ()
    at: Mapping[str, int] = field(default_factory=dict)
    space: Space | None = None

    def mark(self, g: Graph) -> Graph:
        """The merged graph, for these sizes."""
        g.dims, g.at, g.space = self.dims, dict(self.at), self.space
        return g


def joints(order: Sequence[Module], feeds: Sequence[Feed]) -> list[Joint]:
    """The versions of a program of these models, in the order in which a run tries them."""
    if not any(m.graph.dims for m in order):
        return [Joint(tuple(order))]
    made = _Meeting(order, feeds)
    out = [made.joint(rows, chosen) for rows, chosen in made.versions()]
    if len(out) > MAX_VERSIONS:
        raise LinkError(f"the connected models have {len(out)} versions together, and an image holds at most "
                        f"{MAX_VERSIONS}", hints=["give fewer sizes, as in `--dim NAME=1,4,16`"])
    return out


class _Meeting:
    """The models, what their dimensions are, and all points of the program."""

    def __init__(self, order: Sequence[Module], feeds: Sequence[Feed]) -> None:
        self.order = order
        self.by_feed = _decided(order, feeds)  # of (model, symbol): the feed and axis that decides it
        self.dims = _shared(order, self.by_feed)
        self.symbols = symbols_of(self.dims)
        self.name = {d.name: s for d, s in zip(self.dims, self.symbols, strict=True)}
        if prod(len(d.sizes) for d in self.dims) > MAX_POINTS:
            raise LinkError(f"the sizes of {' and '.join(f'`{d.name}`' for d in self.dims)} are more than {MAX_POINTS} "
                            "combinations", hints=["give fewer sizes, as in `--dim NAME=1,4,16`"])
        self.points = _product(self.dims)

    # -- which versions meet --
    def versions(self) -> Iterator[tuple[Rows, list[int]]]:
        """Points, and the version that each model has at them."""
        yield from self._choose(np.arange(len(self.points)), [], [])

    def _choose(self, rows: Rows, chosen: list[int], known: list[Columns]) -> Iterator[tuple[Rows, list[int]]]:
        """As `versions`, where the first models have chosen already; `known` are their symbols at `rows`."""
        k = len(chosen)
        if k == len(self.order):
            yield rows, chosen
            return
        m = self.order[k]
        columns = self._columns(k, rows, chosen, known)
        left = np.ones(len(rows), bool)
        for n, g in enumerate(m.graphs):
            here = left & _takes(g, columns, len(rows))
            left &= ~here
            if here.any():
                part = [{s: c[here] for s, c in x.items()} for x in (*known, columns)]
                yield from self._choose(rows[here], [*chosen, n], part)
        if left.any():
            raise self._untaken(m, columns, int(np.flatnonzero(left)[0]), rows)

    def _columns(self, k: int, rows: Rows, chosen: Sequence[int], known: Sequence[Columns]) -> Columns:
        """Sizes of a model's dimensions at these points."""
        out: Columns = {}
        graphs = [self.order[j].graphs[n] for j, n in enumerate(chosen)]
        for d, s in zip(self.order[k].graph.dims, symbols_of(self.order[k].graph.dims), strict=True):
            if (k, s) in self.by_feed:
                feed, axis = self.by_feed[k, s]
                out[s] = values_at(feed.read(graphs).shape[axis], known[feed.source], len(rows))
            else:
                out[s] = self.points[rows, self.symbols.index(self.name[d.name])]
        return out

    def _untaken(self, m: Module, columns: Columns, row: int, rows: Rows) -> LinkError:
        has = {d.name: int(columns[s][row]) for d, s in zip(m.graph.dims, symbols_of(m.graph.dims), strict=True)}
        there = {d.name: int(n) for d, n in zip(self.dims, self.points[rows[row]], strict=True)}
        takes = " ".join(f"{d.name}={d}" for d in m.graph.dims)
        where = f" where {told(there)}" if there else ""
        return LinkError(f"`{m.title}` would run with {told(has)}{where}, and it takes {takes}",
                         hints=["compile the models for sizes that fit: `--dim NAME=SIZES`"])

    # -- in one space --
    def joint(self, rows: Rows, chosen: Sequence[int]) -> Joint:
        part = self.points[rows]
        fixed = {s: int(part[0, k]) for k, s in enumerate(self.symbols) if (part[:, k] == part[0, k]).all()}
        left = [(s, d) for s, d in zip(self.symbols, self.dims, strict=True) if s not in fixed]
        space = Space([s for s, _ in left], _product([d for _, d in left]), fixed=fixed)
        graphs: list[Graph] = []
        for k, n in enumerate(chosen):
            graphs.append(_within(space, self.order[k].graphs[n], self._sizes(k, graphs, space)))
        modules = tuple(replace(m, graph=g, more=()) for m, g in zip(self.order, graphs, strict=True))
        at = {d.name: fixed[s] for s, d in zip(self.symbols, self.dims, strict=True) if s in fixed}
        return Joint(modules, self.dims, at, space if space.symbols else None)

    def _sizes(self, k: int, graphs: Sequence[Graph], space: Space) -> dict[str, int]:
        """What a model's symbols are in the space of all."""
        out: dict[str, int] = {}
        for d, s in zip(self.order[k].graph.dims, symbols_of(self.order[k].graph.dims), strict=True):
            if (k, s) in self.by_feed:
                feed, axis = self.by_feed[k, s]
                out[s] = feed.read(graphs).shape[axis]
            else:
                out[s] = space.symbol(self.name[d.name])
        return out


def _product(dims: Sequence[Dim]) -> np.ndarray:
    return np.array(list(product(*(d.sizes for d in dims))), np.int64)


def _decided(order: Sequence[Module], feeds: Sequence[Feed]) -> dict[tuple[int, str], tuple[Feed, int]]:
    """Dimensions that stand at an axis of a connected input: the size that is read decides them."""
    out: dict[tuple[int, str], tuple[Feed, int]] = {}
    for f in feeds:
        if f.source >= f.reader:
            continue  # models that feed each other: this one's sizes are known first
        m = order[f.reader]
        for axis in range(m.graph.inputs[f.input].type.rank):
            for d, s in zip(m.graph.dims, symbols_of(m.graph.dims), strict=True):
                if all(_stands(g, g.inputs[f.input].shape[axis], d, s) for g in m.graphs):
                    out.setdefault((f.reader, s), (f, axis))
    return out


def _stands(g: Graph, size: int, d: Dim, symbol: str) -> bool:
    """Whether a size is that dimension, in this version."""
    return str(size) == f"({symbol})" if is_open(size) else g.at.get(d.name) == size


def _shared(order: Sequence[Module], by_feed: Mapping[tuple[int, str], object]) -> tuple[Dim, ...]:
    """The program's dimensions: those that no connection decides, by name."""
    out: dict[str, tuple[Dim, Module]] = {}
    for k, m in enumerate(order):
        for d, s in zip(m.graph.dims, symbols_of(m.graph.dims), strict=True):
            if (k, s) in by_feed:
                continue
            other, owner = out.setdefault(d.name, (d, m))
            if other.sizes != d.sizes:
                raise LinkError(f"`{owner.title}` takes {d.name}={other}, `{m.title}` takes {d.name}={d}: a dimension "
                                "of one name is one in connected models",
                                hints=[f"compile both with `--dim {d.name}=SIZES` of the same sizes"])
    return tuple(d for d, _ in out.values())


def _takes(g: Graph, columns: Columns, count: int) -> np.ndarray:
    """At which points a version is for the sizes."""
    out = np.ones(count, bool)
    for d, s in zip(g.dims, symbols_of(g.dims), strict=True):
        out &= columns[s] == g.at[d.name] if d.name in g.at else np.isin(columns[s], d.sizes)
    return out if g.space is None else out & conditions_at(g.space, columns, count)


def _within(space: Space, g: Graph, sizes: Mapping[str, int]) -> Graph:
    """A version of a model with what its symbols are in another space, which is then only where it is for."""
    for d, s in zip(g.dims, symbols_of(g.dims), strict=True):
        if d.name in g.at and is_open(sizes[s]):
            space.restrict(f"{sizes[s] - g.at[d.name]} == 0")
    out = copy_graph(g, lambda _: Renamed(space, sizes))
    out.dims, out.at, out.space = (), {}, None
    return out
