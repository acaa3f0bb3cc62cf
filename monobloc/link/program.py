"""Modules of one link become programs: parts meet by tensor name, models by `--connect`.

A Program is a graph with a prefix. Parts of one model merge into the graph they were cut from: values
and nodes keep their names, and nodes are put into an order that depends on the graph alone, so parts
linked and the whole model give the same image, byte for byte.
"""

from __future__ import annotations

from collections.abc import Sequence

from monobloc.errors import LinkError
from monobloc.ir.graph import Graph, Node, Value
from monobloc.link.objects import Module


def programs(modules: Sequence[Module], connect: Sequence[tuple[str, str]] = (), name: str = "") -> list[Module]:
    """Merge parts, then connected models; what is left is one module per program."""
    merged = [_merge_parts(group) for group in _by_program(modules)]
    if connect:
        merged = connect_models(merged, connect, name or "pipeline")
    for m in merged:
        canonical_order(m.graph)
    return sorted(merged, key=lambda m: m.prefix)  # the order of the command line never changes an image


def _by_program(modules: Sequence[Module]) -> list[list[Module]]:
    groups: dict[object, list[Module]] = {}
    for k, m in enumerate(modules):
        groups.setdefault(m.prefix if m.part is not None else k, []).append(m)
    return list(groups.values())


def canonical_order(g: Graph) -> None:
    """Nodes in the order in which a walk from the outputs, operands first, finishes them."""
    order: list[Node] = []
    done: set[Node] = set()
    for _, v in g.outputs:
        stack = [v.producer] if v.producer is not None else []
        while stack:
            n = stack[-1]
            todo = [x.producer for x in n.used if x.producer is not None and x.producer not in done]
            if n in done or not todo:
                stack.pop()
                if n not in done:
                    done.add(n)
                    order.append(n)
            else:
                stack.append(todo[0])
    g.remove_all({n for n in g.nodes if n not in done})
    g.nodes = order


# -- parts of one model -------------------------------------------------------------------------------
def _merge_parts(parts: Sequence[Module]) -> Module:
    first = parts[0]
    if first.part is None:
        return first
    ordered = sorted(parts, key=lambda m: m.part.index)  # type: ignore[union-attr]
    have, want = [m.part.index for m in ordered], list(range(first.part.count))  # type: ignore[union-attr]
    if have != want:
        missing = sorted(set(want) - set(have))
        raise LinkError(f"parts of `{first.title}` are missing or twice: have {have}, need {want}",
                        hints=[f"link part {k} of {len(want)} too" for k in missing])
    g = Graph(first.graph.name)
    env: dict[str, Value] = {}
    for m in ordered:
        _append(g, m, env)
    outputs = {name: env[v] for m in ordered for name, v in m.part.model_outputs}  # type: ignore[union-attr]
    for n in first.part.all_inputs:
        if n not in env:
            raise LinkError(f"no part of `{first.title}` has its input `{n}`")
    inputs = {v.name: v for v in g.inputs}
    g.inputs = [inputs[n] for n in first.part.all_inputs]
    g.outputs = [(n, outputs[n]) for n in first.part.all_outputs]
    return Module(g, first.prefix, first.title, first.origin)


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
        if (met.dtype, met.shape) != (v.dtype, v.shape):
            raise LinkError(f"{m.origin}: tensor `{v.name}` is {v.type} here and {met.type} where it is made")
        local[v] = met
    clone(g, m.graph, local, env)
    for _, v in m.graph.outputs:
        env.setdefault(v.name, local[v])


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


# -- models that feed each other ------------------------------------------------------------------------
def parse_connections(texts: Sequence[str]) -> list[tuple[str, str]]:
    """`head.x=backbone.features`: an input and the output that feeds it."""
    out = []
    for text in texts:
        left, eq, right = text.partition("=")
        if not eq or "." not in left or "." not in right:
            hint = "write `--connect head.x=backbone.features`"
            raise LinkError(f"`--connect {text}` connects nothing", hints=[hint])
        out.append((left, right))
    return out


def connect_models(modules: Sequence[Module], connect: Sequence[tuple[str, str]], name: str) -> list[Module]:
    """One program of all connected models; the others stay as they are."""
    ports_in = {f"{m.title}.{v.origin or v.name}": (m, v) for m in modules for v in m.graph.inputs}
    ports_out = {f"{m.title}.{n}": (m, v) for m in modules for n, v in m.graph.outputs}
    feeds: dict[Value, tuple[Module, Value, str]] = {}
    joined: dict[Module, None] = {}
    for left, right in connect:
        if left not in ports_in or right not in ports_out:
            bad, kind, known = (left, "input", ports_in) if left not in ports_in else (right, "output", ports_out)
            raise LinkError(f"`--connect {left}={right}`: there is no {kind} `{bad}`",
                            notes=[f"{kind}s: {', '.join(known)}"])
        (m, v), (source, x) = ports_in[left], ports_out[right]
        if (v.dtype, v.shape) != (x.dtype, x.shape):
            raise LinkError(f"`{left}` is {v.type}, `{right}` is {x.type}: they do not connect")
        feeds[v] = (source, x, right)
        joined |= {m: None, source: None}
    order = _order(list(joined), feeds)
    g = Graph(name)
    local: dict[Value, Value] = {}
    for m in order:
        local.update(_add_model(g, m, feeds, local))
    used = {right for _, right in connect}
    for m in order:
        for out, v in m.graph.outputs:
            if f"{m.title}.{out}" not in used:
                taken = {n for n, _ in g.outputs}
                g.outputs.append((out if out not in taken else f"{m.title}.{out}", local[v]))
    rest = [m for m in modules if m not in joined]
    return [Module(g, name, name, ", ".join(m.origin for m in order)), *rest]


def _order(joined: list[Module], feeds: dict[Value, tuple[Module, Value, str]]) -> list[Module]:
    """Producers before consumers; a cycle is an error that shows it."""
    out: list[Module] = []
    while len(out) < len(joined):
        ready = [m for m in joined if m not in out
                 and all(feeds[v][0] in out for v in m.graph.inputs if v in feeds)]
        if not ready:
            stuck = [m.title for m in joined if m not in out]
            raise LinkError(f"the connections form a cycle: {' -> '.join([*stuck, stuck[0]])}")
        out.append(ready[0])
    return out


def _add_model(
    g: Graph, m: Module, feeds: dict[Value, tuple[Module, Value, str]], done: dict[Value, Value]
) -> dict[Value, Value]:
    local: dict[Value, Value] = {}
    taken = {v.origin for v in g.inputs}
    for v in m.graph.inputs:
        if v in feeds:
            local[v] = done[feeds[v][1]]
            continue
        origin = v.origin or v.name
        local[v] = g.add_input(f"{m.title}.{v.name}", v.type)
        local[v].origin = origin if origin not in taken else f"{m.title}.{origin}"
    clone(g, m.graph, local, {}, prefix=f"{m.title}.")
    return local
