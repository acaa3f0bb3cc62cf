"""Modules of one link become programs: parts meet by tensor name, models by `--connect` (`connect`).

A Program is a graph with a prefix. Parts of one model merge into the graph they were cut from: values
and nodes keep their names, and nodes are put into an order that depends on the graph alone, so parts
linked and the whole model give the same image, byte for byte.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from monobloc.errors import LinkError
from monobloc.ir.graph import Graph, Value
from monobloc.ir.symbolic import same_shape
from monobloc.ir.text import copy_graph
from monobloc.link import header
from monobloc.link.bind import Fixed, specialize
from monobloc.link.clone import clone
from monobloc.link.connect import connect_models, whole_name
from monobloc.link.objects import Module, PartInfo
from monobloc.link.order import canonical_order
from monobloc.link.persist import hold_state, matching
from monobloc.link.versions import each_version


def programs(
    modules: Sequence[Module], connect: Sequence[tuple[str, str]] = (), name: str = "",
    fixed: Fixed = Fixed(),  # noqa: B008
) -> list[Module]:
    """Merge parts, fix what the link line fixes, merge connected models: one module per program is left."""
    def step(models: list[Module]) -> list[Module]:
        pairs = matching(models, fixed.persist)
        made = specialize(models, replace(fixed, persist=pairs))
        _refuse_equal(made)
        hold_state(made, pairs, bool(connect))
        return made

    merged = each_version([_merge_parts(group) for group in _by_program(modules)], step)
    if connect:
        merged = connect_models(merged, connect, whole_name(name))
    check_prefixes(merged)
    for g in (g for m in merged for g in m.graphs):
        canonical_order(g)
    return sorted(merged, key=lambda m: m.prefix)  # the order of the command line never changes an image


def _by_program(modules: Sequence[Module]) -> list[list[Module]]:
    groups: dict[object, list[Module]] = {}
    for k, m in enumerate(modules):
        groups.setdefault(m.prefix if m.part is not None else k, []).append(m)
    return list(groups.values())


OTHER_NAME = "compile one of them with `--name OTHER`"


def check_prefixes(modules: Sequence[Module]) -> None:
    """No name of one model's interface may be another's too: neither symbols nor macros."""
    _refuse_equal(modules)
    macros: dict[str, Module] = {}
    owner: dict[str, Module] = {}
    for m in modules:
        other = macros.setdefault(m.prefix.upper(), m)
        if other is not m:
            raise LinkError(f"the prefixes `{other.prefix}` and `{m.prefix}` differ in nothing but case, so their "
                            f"headers' macros are the same: {other.origin} and {m.origin}", hints=[OTHER_NAME])
        for symbol in header.symbols(m):
            if (other := owner.setdefault(symbol, m)) is not m:
                raise LinkError(f"`{symbol}` would be a function of two models, `{other.title}` and `{m.title}`",
                                notes=[f"{other.origin} and {m.origin}"], hints=[OTHER_NAME])


def _refuse_equal(modules: Sequence[Module]) -> None:
    seen: dict[str, str] = {}
    for m in modules:
        if m.prefix in seen:
            raise LinkError(f"two models have the prefix `{m.prefix}`: {seen[m.prefix]} and {m.origin}",
                            hints=[OTHER_NAME])
        seen[m.prefix] = m.origin


# -- parts of one model -------------------------------------------------------------------------------
def _merge_parts(parts: Sequence[Module]) -> Module:
    first = parts[0]
    if first.part is None:
        return first
    ordered = sorted(parts, key=lambda m: _part(m).index)
    _same_model(ordered)
    have, want = [_part(m).index for m in ordered], list(range(first.part.count))
    if have != want:
        missing = sorted(set(want) - set(have))
        twice = [f"part {k + 1}: {', '.join(m.origin for m in ordered if _part(m).index == k)}"
                 for k in sorted(set(have)) if have.count(k) > 1]
        raise LinkError(f"parts of `{first.title}` are missing or twice: have {have}, need {want}", notes=twice,
                        hints=[f"link part {k} of {len(want)} too" for k in missing])
    graphs = [_joined([replace(m, graph=m.graphs[k], more=()) for m in ordered]) for k in range(len(first.graphs))]
    return Module(graphs[0], first.prefix, first.title, first.origin, more=tuple(graphs[1:]))


def _joined(parts: Sequence[Module]) -> Graph:
    """One version of the model, in the space of its first part."""
    first, info = parts[0].graph, _part(parts[0])
    g = Graph(first.name)
    g.dims, g.at, g.space = first.dims, first.at, first.space
    env: dict[str, Value] = {}
    for m in parts:
        _append(g, m if g.space is None else replace(m, graph=copy_graph(m.graph, lambda _: first.space)), env)
    outputs = {name: env[v] for m in parts for name, v in _part(m).model_outputs}
    for n in info.all_inputs:
        if n not in env:
            raise LinkError(f"no part of `{parts[0].title}` has its input `{n}`")
    inputs = {v.name: v for v in g.inputs}
    g.inputs = [inputs[n] for n in info.all_inputs]
    g.outputs = [(n, outputs[n]) for n in info.all_outputs]
    return g


def _part(m: Module) -> PartInfo:
    assert m.part is not None
    return m.part


def _same_model(parts: Sequence[Module]) -> None:
    """All parts were cut from one model, at once."""
    first = parts[0]
    a = _part(first)
    for m in parts[1:]:
        b = _part(m)
        facts = {"parts": (a.count, b.count), "inputs": (a.all_inputs, b.all_inputs),
                 "outputs": (a.all_outputs, b.all_outputs)}
        if a.model == b.model and all(x == y for x, y in facts.values()):
            continue
        notes = [f"{kind}: {_told(x)} in {first.origin}, {_told(y)} in {m.origin}"
                 for kind, (x, y) in facts.items() if x != y]
        notes += _borders(first, m)
        raise LinkError(f"{first.origin} and {m.origin} were cut from different models, or one model in different ways",
                        notes=notes or [f"weights, operators or sizes of `{m.title}` differ"],
                        hints=["compile the parts again, all with one call of `monobloc compile`"])


def _told(fact: object) -> str:
    return ", ".join(map(str, fact)) if isinstance(fact, tuple) else str(fact)


def _borders(a: Module, b: Module) -> list[str]:
    """Tensors that both parts name but not with one type."""
    types: list[dict[str, str]] = [{v.name: str(v.type) for v in m.graph.values() if v.const is None} for m in (a, b)]
    return [f"`{n}`: {t} in {a.origin}, {types[1][n]} in {b.origin}" for n, t in types[0].items()
            if types[1].get(n, t) != t]


def _append(g: Graph, m: Module, env: dict[str, Value]) -> None:
    """Add a part's nodes; its imports are values that earlier parts made."""
    assert m.part is not None
    local: dict[Value, Value] = {}
    for v in m.graph.inputs:
        if v.name not in env:
            if v.name not in m.part.model_inputs:
                raise LinkError(f"{m.origin}: tensor `{v.name}` is made by no earlier part of `{m.title}`")
            env[v.name] = g.add_input(v.name, v.type)
            env[v.name].origin = v.origin
        met = env[v.name]
        if met.dtype != v.dtype or not same_shape(met.shape, v.shape):
            raise LinkError(f"{m.origin}: tensor `{v.name}` is {v.type} here and {met.type} where it is made")
        local[v] = met
    clone(g, m.graph, local, env)
    for _, v in m.graph.outputs:
        env.setdefault(v.name, local[v])
