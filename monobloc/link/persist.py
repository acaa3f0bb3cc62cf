"""`--persist`: state that the program keeps itself.

A streaming model has an input that is to hold what an output gave in the run before. Persisted, both leave
the interface: the value stays in the arena, `reset` makes it zero, and nobody copies it in and out.
Names are those of the models before `--connect` makes one of them, where state may also be what another
model's output was, and an output that feeds another model may be state besides. State may grow from run to
run: what that means for a program of several sizes is in `codegen/growth.py`.
"""

from __future__ import annotations

from collections.abc import Sequence

from monobloc.errors import Diagnostics, LinkError
from monobloc.ir.dims import Dim, is_dim, named, symbols_of
from monobloc.ir.graph import Graph, Value
from monobloc.ir.symbolic import same_number, same_shape
from monobloc.link.bind import input_names, owner
from monobloc.link.objects import Module
from monobloc.ops.sized import sizes_of
from monobloc.wildcards import filled, match

Pair = tuple[str, str]  # input, and the output it takes its next value from; "": the one that fits


def parse_persist(texts: Sequence[str]) -> list[Pair]:
    """`h=h_out`, `h`, or of many alike `past.*=present.*`"""
    out = []
    for text in texts:
        name, eq, source = text.partition("=")
        if not name or (eq and not source):
            raise LinkError(f"`--persist {text}` names no state",
                            hints=["write `--persist INPUT=OUTPUT`, or `--persist INPUT` where one output fits"])
        out.append((name, source))
    return out


def matching(modules: Sequence[Module], pairs: Sequence[Pair]) -> tuple[Pair, ...]:
    """`past.*=present.*` for every input that it fits; what `*` stands for is the same on both sides."""
    out: list[Pair] = []
    for name, source in pairs:
        found = [x for m in modules for own in input_names(m.graph) if "*" in name
                 and (x := match(name, own) or match(name, f"{m.title}.{own}"))]
        out += [(x[0], filled(source, x.groups())) for x in found] or [(name, source)]
    return tuple(out)


def hold_state(modules: Sequence[Module], pairs: Sequence[Pair], connected: bool = False) -> None:
    """Mark the inputs that are state; everything that is wrong is told at once.

    `connected`: models are going to be, so that an output of another one, `model.output`, may be meant.
    """
    problems = Diagnostics()
    taken: dict[tuple[str, str], str] = {}
    said: dict[Value, str] = {}
    for name, source in pairs:
        flag = f"--persist {name}={source}" if source else f"--persist {name}"
        found = owner(modules, name, flag, "input", input_names, problems)
        if found is None:
            continue
        m, own = found
        v = next(v for v in m.graph.inputs if (v.origin or v.name) == own)
        maker = (_maker(modules, m, source) if connected else None) or m
        out = _output(maker, v, source.removeprefix(f"{maker.title}."), flag, problems)
        if out is None:
            continue
        if (maker.prefix, out) in taken:
            problems.report(LinkError(f"`{flag}`: `{out}` is the state of `{taken[maker.prefix, out]}` already"))
        taken[maker.prefix, out] = own
        state = out if maker is m else f"{maker.title}.{out}"
        if said.setdefault(v, state) != state:
            problems.report(LinkError(f"`{flag}`: the input keeps `{said[v]}` already"))
        v.state = state
    problems.checkpoint()


def _grows(g: Graph, v: Value, x: Value) -> bool:
    """Whether the output may be the input, grown: of the same size but in axes that are dimensions of the input."""
    return v in g.inputs and v.type.rank == x.type.rank and all(
        same_number(n, to) or _dims_of(g, n) for n, to in zip(v.shape, x.shape, strict=True))


def _dims_of(g: Graph, n: int) -> list[Dim]:
    """The dimensions that a size may be."""
    return [d for s, d in zip(symbols_of(g.dims), g.dims, strict=True) if is_dim(g.fixed, n, s)]


def growing(g: Graph) -> list[Dim]:
    """The dimensions that are the length of state, as far as one version tells; nobody sets them."""
    outputs = dict(g.outputs)
    found = [d for v in g.inputs if v.state in outputs
             for n, to in zip(v.shape, outputs[v.state].shape, strict=True) if not same_number(n, to)
             for d in _dims_of(g, n)[:1]]
    return list(dict.fromkeys(found))


def _maker(modules: Sequence[Module], reader: Module, source: str) -> Module | None:
    """The other model whose output is named."""
    if source.removeprefix(f"{reader.title}.") in dict(reader.graph.outputs):
        return None
    return next((m for m in modules if any(source == f"{m.title}.{n}" for n, _ in m.graph.outputs)), None)


def _output(m: Module, v: Value, source: str, flag: str, problems: Diagnostics) -> str | None:
    """The output's name, if there is one of the input's type."""
    outputs = dict(m.graph.outputs)
    types = ", ".join(f"{n} {x.type}" for n, x in outputs.items())
    told = [named(x, m.graph.dims) for x in (f"the input is {v.type}", f"outputs: {types}")]
    fits = [n for n, x in outputs.items() if x.dtype == v.dtype and sizes_of(x) is None
            and (same_shape(x.shape, v.shape) or source == n and _grows(m.graph, v, x))]
    if source and source in fits:
        return source
    if not source and len(fits) == 1:
        return fits[0]
    if source and source in outputs:
        found = named(str(outputs[source].type), m.graph.dims)
        problems.report(LinkError(f"`{flag}`: `{source}` is {found}", notes=told))
    elif source:
        problems.report(LinkError(f"`{flag}`: {m.title} has no output `{source}`", notes=told))
    else:
        what = "no output is of its type" if not fits else f"{' and '.join(f'`{n}`' for n in fits)} are of its type"
        fits = fits or [n for n, x in outputs.items() if x.dtype == v.dtype and _grows(m.graph, v, x)]
        hints = [f"say which: `--persist {v.origin or v.name}={fits[0]}`"] if fits else []
        problems.report(LinkError(f"`{flag}`: {what}", notes=told, hints=hints))
    return None
