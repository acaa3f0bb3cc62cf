"""Cutting a graph into parts that compile separately and link back to the whole.

A part is a graph whose inputs are inputs of the model and tensors of earlier parts, and whose outputs
are outputs of the model and tensors that later parts read. Cut tensors keep their names: that is how
they meet again. Nodes keep theirs too, so the merged graph is the whole one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from monobloc.errors import ModelError
from monobloc.ir.graph import Graph, Node, Value
from monobloc.ir.text import print_graph
from monobloc.link.objects import Module, PartInfo
from monobloc.link.versions import refuse


def split_at(m: Module, tensors: Sequence[str]) -> list[Module]:
    """Cut so that each named tensor is the last one computed by its part; names are the model's."""
    refuse(m, "cutting into parts")
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
    refuse(m, "cutting into parts")
    g = m.graph
    total = sum(map(_weight, g.nodes)) or 1
    groups: list[list[Node]] = [[] for _ in range(count)]
    done = 0
    for node in g.nodes:
        groups[min(count - 1, done * count // total)].append(node)
        done += _weight(node)
    return _parts(m, [group for group in groups if group])


def _weight(n: Node) -> int:
    return sum(v.type.size for v in [*n.outputs, *n.used] if v.const is not None or v.producer is n) + 1


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
    where = {n: k for k, group in enumerate(groups) for n in group}
    cut = [print_graph(m.graph), *(",".join(n.name for n in group) for group in groups)]
    model = hashlib.sha256("\n".join(cut).encode()).hexdigest()
    return [_part(m, k, group, where, len(groups), model) for k, group in enumerate(groups)]


def _part(m: Module, k: int, nodes: Sequence[Node], where: dict[Node, int], count: int, model: str) -> Module:
    g, last = m.graph, k == count - 1
    out = Graph(g.name)
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
    info = PartInfo(k, count, tuple(inputs), tuple((name, v.name) for name, v in leaving),
                    tuple(v.name for v in g.inputs), tuple(name for name, _ in g.outputs), model)
    return Module(out, m.prefix, m.title, m.origin, info)
