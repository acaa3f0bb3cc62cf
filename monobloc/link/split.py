"""Cutting a graph into parts that compile separately and link back to the whole.

A part is a graph whose inputs are inputs of the model and tensors of earlier parts, and whose outputs
are outputs of the model and tensors that later parts read. Cut tensors keep their names: that is how
they meet again. Nodes keep theirs too, so the merged graph is the whole one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from monobloc.errors import ModelError, UnsupportedError
from monobloc.ir.dims import told
from monobloc.ir.graph import Graph, Node, Value
from monobloc.ir.symbolic import guess
from monobloc.ir.text import print_graph
from monobloc.link.objects import Module, PartInfo


def split_at(m: Module, tensors: Sequence[str]) -> list[Module]:
    """Cut so that each named tensor is the last one computed by its part; names are the model's."""
    g = m.graph
    by_name = {name: v for v in g.values() for name in (v.name, v.origin) if v.producer is not None}
    unknown = [t for t in tensors if t not in by_name]
    if unknown:
        raise ModelError(f"cannot split at `{unknown[0]}`: no node makes it",
                         hints=["`monobloc inspect MODEL` lists the tensors"])
    groups: list[list[Node]] = []
    taken: set[Node] = set()
    for t in tensors:
        needed = _ancestors(by_name[t]) - taken
        groups.append([n for n in g.nodes if n in needed])
        taken |= needed
    groups.append([n for n in g.nodes if n not in taken])
    return _parts(m, [group for group in groups if group])


def split_into(m: Module, count: int) -> list[Module]:
    """Cut the node order into `count` runs of about equal weight (elements made, and weights read)."""
    if count < 1:
        raise ModelError(f"cannot split into {count} parts")
    g = m.graph
    total = sum(map(_weight, g.nodes)) or 1
    groups: list[list[Node]] = [[] for _ in range(count)]
    done = 0
    for node in g.nodes:
        groups[min(count - 1, done * count // total)].append(node)
        done += _weight(node)
    return _parts(m, [group for group in groups if group])


def _weight(n: Node) -> int:
    return sum(guess(v.type.size) for v in [*n.outputs, *n.used] if v.const is not None or v.producer is n) + 1


def _ancestors(v: Value) -> set[Node]:
    """Nodes that a value needs."""
    out: set[Node] = set()
    stack = [v.producer] if v.producer else []
    while stack:
        n = stack.pop()
        if n in out:
            continue
        out.add(n)
        stack += [x.producer for x in n.used if x.producer is not None]
    return out


def _parts(m: Module, groups: Sequence[Sequence[Node]]) -> list[Module]:
    """The parts, each with all versions of it: these are cut where the first is."""
    every = [groups, *(_same_cut(g, groups) for g in m.more)]
    cut = [text for g, parts in zip(m.graphs, every, strict=True)
           for text in (print_graph(g), *(",".join(n.name for n in group) for group in parts))]
    model = hashlib.sha256("\n".join(cut).encode()).hexdigest()
    out = []
    for k in range(len(groups)):
        made = [_Cut(g, parts).part(k, model) for g, parts in zip(m.graphs, every, strict=True)]
        (graph, info), more = made[0], made[1:]
        for other, met in more:
            if met != info or _ports(other) != _ports(graph):
                raise _cut_differs(m, k, graph, other)
        out.append(Module(graph, m.prefix, m.title, m.origin, info, more=tuple(g for g, _ in more)))
    return out


def _same_cut(g: Graph, groups: Sequence[Sequence[Node]]) -> list[list[Node]]:
    """Another version's nodes where those of their names are; what only it has goes with what it reads."""
    known = {n.name: k for k, group in enumerate(groups) for n in group}
    where: dict[Node, int] = {}
    for n in g.nodes:
        reads = max((where[v.producer] for v in n.used if v.producer is not None), default=0)
        where[n] = max(known.get(n.name, 0), reads)
    return [[n for n in g.nodes if where[n] == k] for k in range(len(groups))]


def _ports(g: Graph) -> list[tuple[str, str, int]]:
    return [(n, v.dtype.value, v.type.rank) for n, v in (*((v.name, v) for v in g.inputs), *g.outputs)]


def _cut_differs(m: Module, k: int, a: Graph, b: Graph) -> UnsupportedError:
    mine, others = ([n for n, *_ in _ports(g)] for g in (a, b))
    notes = [f"at {told(g.at) or 'the other sizes'}: {', '.join(n for n in x if n not in y) or 'no other tensor'}"
             for g, x, y in ((a, mine, others), (b, others, mine))]
    return UnsupportedError(f"part {k + 1} of `{m.title}` would read and make other tensors at other sizes",
                            notes=notes, hints=["cut at a tensor that every size computes: `--split-at TENSOR`"])


class _Cut:
    """One version of a model, and which part each of its nodes is in."""

    def __init__(self, g: Graph, groups: Sequence[Sequence[Node]]) -> None:
        self.g, self.groups = g, groups
        self.where = {n: k for k, group in enumerate(groups) for n in group}

    def part(self, k: int, model: str) -> tuple[Graph, PartInfo]:
        g, where, nodes, last = self.g, self.where, self.groups[k], k == len(self.groups) - 1
        out = Graph(g.name)
        out.dims, out.at, out.space = g.dims, g.at, g.space
        env: dict[Value, Value] = {}
        inputs: list[str] = []

        def use(v: Value) -> Value:
            if v not in env:
                if v.const is not None:
                    env[v] = out.const_value(v.name, v.type, v.const)
                    env[v].origin = v.origin
                else:
                    env[v] = out.add_input(v.name, v.type)
                    env[v].origin = v.origin if v.producer is None else v.name
                    if v.producer is None:
                        inputs.append(v.name)
            return env[v]

        for n in nodes:
            ins = [None if v is None else use(v) for v in n.inputs]
            made = out.make(n.op, ins, [v.type for v in n.outputs], n.attrs, name=n.name, locs=n.locs,
                            out_names=[v.name for v in n.outputs])
            for old, new in zip(n.outputs, made.outputs, strict=True):
                new.origin = old.origin
                env[old] = new
        crossing = [v for n in nodes for v in n.outputs if any(where[u] > k for u in v.users)]
        # outputs of the model that no node makes (inputs, constants) leave with the last part
        leaving = [(name, v) for name, v in g.outputs if (where[v.producer] == k if v.producer else last)]
        out.outputs = [(v.name, env[v]) for v in crossing]
        out.outputs += [(f"out:{name}", use(v)) for name, v in leaving]
        for v in g.inputs if last else ():
            if not v.users:  # nothing reads it, but it is in the model's interface
                use(v)
        names = tuple(v.name for v in g.inputs), tuple(name for name, _ in g.outputs)
        given = tuple(inputs), tuple((name, v.name) for name, v in leaving)
        return out, PartInfo(k, len(self.groups), *given, *names, model)
