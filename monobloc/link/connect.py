"""Models that feed each other become one program: `--connect head.x=backbone.features`.

A connection names an input on its left, and on its right what it reads: an output of another model,
or an input, which both then read together. `head=backbone` connects every input of `head` that has the
name of an output of `backbone`. Connections are checked all together, between tensors: two models may
feed each other as long as no tensor needs itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from monobloc.codegen.names import identifier
from monobloc.errors import Diagnostics, LinkError
from monobloc.ir.dims import Dim, named
from monobloc.ir.graph import Graph, Value
from monobloc.ir.symbolic import is_open, same_shape
from monobloc.ir.types import TensorType
from monobloc.link.clone import clone
from monobloc.link.objects import Module
from monobloc.link.spaces import Feed, joints
from monobloc.ops.sized import sizes_of


@dataclass(frozen=True)
class Port:
    """An input or output of a model, as a connection names it."""

    module: Module
    name: str
    value: Value
    is_input: bool

    def __str__(self) -> str:
        return f"{self.module.title}.{self.name}"

    @property
    def told(self) -> str:
        kind = "input" if self.is_input else "output"
        return f"`{self}` is {self.value.type}, an {kind} of {self.module.origin or self.module.title}"


Feeds = Mapping[Value, Port]  # what an input reads


def parse_connections(texts: Sequence[str]) -> list[tuple[str, str]]:
    """`head.x=backbone.features` or `head=backbone`: what reads, and what it reads."""
    out = []
    for text in texts:
        left, eq, right = (t.strip() for t in text.partition("="))
        if not (eq and left and right):
            raise LinkError(f"`--connect {text}` connects nothing",
                            hints=["write `--connect head.x=backbone.features` or `--connect head=backbone`"])
        out.append((left, right))
    return out


def whole_name(name: str | None) -> str:
    """What connected models are called together, where `--name` says it and where it does not."""
    return name or "pipeline"


def is_named(title: str, connect: Sequence[tuple[str, str]]) -> bool:
    """Whether a connection names the model or a port of it; titles may have dots of their own."""
    return any(text == title or text.startswith(f"{title}.") for pair in connect for text in pair)


def connect_models(modules: Sequence[Module], connect: Sequence[tuple[str, str]], name: str) -> list[Module]:
    """One program of all connected models; the others stay as they are."""
    feeds = _resolve(modules, connect)
    _refuse_cycle(modules, feeds)
    joined = {m for m in modules for v in m.graph.inputs if v in feeds} | {p.module for p in feeds.values()}
    order = _order(joined, feeds)
    rest = [m for m in modules if m not in joined]
    _refuse_lost_state(order, rest)
    graphs = []
    for joint in joints(order, _numbered(order, feeds)):
        if joint.dims or joint.modules[0] is not order[0]:
            feeds = _resolve(joint.modules, connect, joint.dims)
        graphs.append(joint.mark(_merge(joint.modules, feeds, name)))
    whole = Module(graphs[0], identifier(name), name, ", ".join(m.origin for m in order), more=tuple(graphs[1:]))
    return [whole, *rest]


def _numbered(order: Sequence[Module], feeds: Feeds) -> list[Feed]:
    """What reads what, by the numbers of models and inputs, which are the same in all versions."""
    return [Feed(k, n, order.index(p.module), p.name, p.is_input)
            for k, m in enumerate(order) for n, v in enumerate(m.graph.inputs) if (p := feeds.get(v))]


# -- names become tensors -------------------------------------------------------------------------------
class _Ports:
    """All ports of all models, by their full names."""

    def __init__(self, modules: Sequence[Module]) -> None:
        inputs = [Port(m, v.origin or v.name, v, True) for m in modules for v in m.graph.inputs]
        outputs = [Port(m, n, v, False) for m in modules for n, v in m.graph.outputs]
        self.inputs = {str(p): p for p in inputs}
        self.outputs = {str(p): p for p in outputs}
        self.models = {m.title: m for m in modules}

    def of(self, m: Module) -> tuple[dict[str, Port], dict[str, Port]]:
        """One model's inputs and outputs by their own names."""
        ins, outs = ({p.name: p for p in x.values() if p.module is m} for x in (self.inputs, self.outputs))
        return ins, outs


def _resolve(
    modules: Sequence[Module], connect: Sequence[tuple[str, str]], dims: Sequence[Dim] = ()
) -> dict[Value, Port]:
    """What every connected input reads; everything that is wrong is told at once. `dims`: of the program, where the
    models' sizes are in one space."""
    ports, problems = _Ports(modules), Diagnostics()
    feeds: dict[Value, Port] = {}
    for left, right in connect:
        try:
            pairs = _pairs(ports, left, right)
        except LinkError as e:
            problems.report(e)
            continue
        for reader, source in pairs:
            met = feeds.setdefault(reader.value, source)
            if met.value is not source.value:
                problems.report(LinkError(f"`{reader}` is connected twice: to `{met}` and to `{source}`"))
            if reader.value.state:
                problems.report(LinkError(f"`{reader}` is fed by `{source}`, so it cannot be state: `--persist` keeps "
                                          f"`{reader.value.state}` in it"))
            for error in _misfits(reader, source, dims):
                problems.report(error)
    problems.checkpoint()
    return feeds


def _pairs(ports: _Ports, left: str, right: str) -> list[tuple[Port, Port]]:
    what = f"`--connect {left}={right}`"
    if left not in ports.inputs and left in ports.models:
        if right not in ports.models:
            ins, _ = ports.of(ports.models[left])
            raise LinkError(f"{what}: `{left}` is a model, and `{right}` is none",
                            notes=[_known(ports.models, "models")],
                            hints=[f"name an input too, as in `--connect {left}.{next(iter(ins), 'x')}={right}`"])
        return _by_name(ports, ports.models[left], ports.models[right])
    if left not in ports.inputs:
        raise LinkError(f"{what}: there is no input `{left}`", notes=[_known(ports.inputs, "inputs")])
    source = ports.outputs.get(right) or ports.inputs.get(right)
    if source is None:
        raise LinkError(f"{what}: there is no output `{right}`",
                        notes=[_known(ports.outputs, "outputs"), _known(ports.inputs, "inputs, to share one")])
    return [(ports.inputs[left], source)]


def _by_name(ports: _Ports, head: Module, body: Module) -> list[tuple[Port, Port]]:
    """`head=backbone`: inputs and outputs of one name."""
    (ins, _), (_, outs) = ports.of(head), ports.of(body)
    if pairs := [(p, outs[n]) for n, p in ins.items() if n in outs]:
        return pairs
    hint = f"`--connect {head.title}.{next(iter(ins), 'x')}={body.title}.{next(iter(outs), 'y')}`"
    raise LinkError(f"`--connect {head.title}={body.title}`: no input of `{head.title}` has the name of an output of "
                    f"`{body.title}`", notes=[_known(ins, f"inputs of {head.title}"),
                                              _known(outs, f"outputs of {body.title}")], hints=[hint])


def _known(names: Mapping[str, object], kind: str) -> str:
    return f"{kind}: {', '.join(names) or 'none'}"


def _misfits(reader: Port, source: Port, dims: Sequence[Dim]) -> Iterator[LinkError]:
    """Element type, shape and the order of axes must be those of the tensor that is read."""
    if sizes_of(source.value) is not None:
        yield LinkError(f"`{source}` has a size that data decide, and inputs have one size: they do not connect",
                        notes=[source.told])
    a, b = reader.value.type, source.value.type
    same = _fits(a, b, bool(dims))
    differ = [what for what, ok in (("types", a.dtype == b.dtype), ("shapes", same),
                                    ("layouts", a.order == b.order or not same)) if not ok]
    if differ:
        hints = ["`--shape` and `--dim` of `monobloc compile` decide a model's sizes"] if "shapes" in differ else []
        why = f"their {' and '.join(differ)} differ"
        left, right = (named(str(t), dims or p.module.graph.dims) for t, p in ((a, reader), (b, source)))
        yield LinkError(f"`{reader}` is {left}, `{source}` is {right}: they do not connect, {why}",
                        notes=[named(p.told, dims or p.module.graph.dims) for p in (reader, source)], hints=hints)


def _fits(a: TensorType, b: TensorType, one_space: bool) -> bool:
    """Whether shapes are the same; as far as that can be told, where some are open and not in one space."""
    if one_space or not any(map(is_open, (*a.shape, *b.shape))):
        return same_shape(a.shape, b.shape)
    return a.rank == b.rank and all(is_open(m) or is_open(n) or m == n for m, n in zip(a.shape, b.shape, strict=True))


# -- order ----------------------------------------------------------------------------------------------
def _needs(m: Module, v: Value) -> list[Value]:
    """The model's inputs that a value of it needs."""
    seen: dict[Value, None] = {v: None}
    stack = [v]
    while stack:
        x = stack.pop()
        for y in x.producer.used if x.producer is not None else ():
            if y not in seen:
                seen[y] = None
                stack.append(y)
    return [x for x in m.graph.inputs if x in seen]


def _refuse_cycle(modules: Sequence[Module], feeds: Feeds) -> None:
    """No input may need itself; the way round is shown."""
    name = {v: f"{m.title}.{v.origin or v.name}" for m in modules for v in m.graph.inputs}
    needs: dict[Value, list[Value]] = {}

    def after(v: Value) -> list[Value]:
        source = feeds.get(v)
        if source is None:
            return []
        if source.is_input:
            return [source.value]
        if source.value not in needs:
            needs[source.value] = _needs(source.module, source.value)
        return needs[source.value]

    done: set[Value] = set()
    for root in feeds:
        path, rest = [root], [iter(after(root))]
        while path and root not in done:
            step = next((v for v in rest[-1] if v not in done), None)
            if step is None:
                done.add(path.pop())
                rest.pop()
            elif step in path:
                raise LinkError(f"the connections form a cycle: {_way([*path[path.index(step):], step], feeds, name)}")
            else:
                path.append(step)
                rest.append(iter(after(step)))


def _way(inputs: Sequence[Value], feeds: Feeds, name: Mapping[Value, str]) -> str:
    words = []
    for v in inputs[:-1]:
        words += [name[v]] if feeds[v].is_input else [name[v], str(feeds[v])]
    return " <- ".join([*words, name[inputs[-1]]])


def _order(joined: set[Module], feeds: Feeds) -> list[Module]:
    """Models that are read before those that read them, by title where that leaves a choice."""
    waits = {m: {feeds[v].module for v in m.graph.inputs if v in feeds} - {m} for m in joined}
    out: list[Module] = []
    left = sorted(joined, key=lambda m: m.title)
    while left:
        ready = (m for m in left if not waits[m] & set(left))
        first = next(ready, left[0])  # models that feed each other: the order of nodes follows later
        left.remove(first)
        out.append(first)
    return out


# -- one graph ------------------------------------------------------------------------------------------
def _merge(order: Sequence[Module], feeds: Feeds, name: str) -> Graph:
    g = Graph(name)
    local: dict[Value, Value] = {}
    late: list[tuple[Value, Value]] = []  # what stands for a value that comes later, and that value
    for m in order:
        taken = {v.origin for v in g.inputs}
        for v in m.graph.inputs:
            if v not in feeds:
                origin = v.origin or v.name
                local[v] = g.add_input(f"{m.title}.{v.name}", v.type)
                local[v].origin = origin if origin not in taken else f"{m.title}.{origin}"
                continue
            source = _source(feeds, v)
            local[v] = local.get(source) or g.value(f"{m.title}.{v.name}", v.type)
            if source not in local:
                late.append((local[v], source))
        clone(g, m.graph, local, {}, prefix=f"{m.title}.")
    names = _outputs(order, feeds)
    g.outputs = [(names[port], local[v]) for m in order for n, v in m.graph.outputs
                 if (port := f"{m.title}.{n}") in names]
    for m in order:
        for v in m.graph.inputs:
            if v.state:
                local[v].state = names[_state_port(m, v)]
    for placeholder, source in late:
        g.replace(placeholder, local[source])
    g.sort()
    return g


def _source(feeds: Feeds, v: Value) -> Value:
    """What an input reads in the end: an output, or an input that nothing feeds."""
    while v in feeds:
        v = feeds[v].value
    return v


def _outputs(order: Sequence[Module], feeds: Feeds) -> dict[str, str]:
    """All outputs that feed nothing or are state: the names they have then, their own where that is clear."""
    fed = {str(p) for p in feeds.values() if not p.is_input}
    fed -= {_state_port(m, v) for m in order for v in m.graph.inputs if v.state}
    out: dict[str, str] = {}
    for m in order:
        for name, _ in m.graph.outputs:
            if (port := f"{m.title}.{name}") not in fed:
                out[port] = name if name not in out.values() else port
    return out


# -- state ----------------------------------------------------------------------------------------------
def _state_port(m: Module, v: Value) -> str:
    """The output that an input's next value comes from, by its full name: its own model's, or another's."""
    return f"{m.title}.{v.state}" if v.state in dict(m.graph.outputs) else v.state


def _refuse_lost_state(joined: Sequence[Module], rest: Sequence[Module]) -> None:
    """State passes from model to model within one program only."""
    for program in (list(joined), *([m] for m in rest)):
        there = {f"{m.title}.{n}" for m in program for n, _ in m.graph.outputs}
        for m in program:
            for v in m.graph.inputs:
                if v.state and (source := _state_port(m, v)) not in there:
                    raise LinkError(f"`{m.title}.{v.origin or v.name}` cannot keep `{source}`: "
                                    "no connection joins the two models")
