"""`--persist`: state that the program keeps itself.

A streaming model has an input that is to hold what an output gave in the run before. Persisted, both leave
the interface: the value stays in the arena, `reset` makes it zero, and nobody copies it in and out.
Names are those of the models before `--connect` makes one of them, where state may also be what another
model's output was, and an output that feeds another model may be state besides.
"""

from __future__ import annotations

from collections.abc import Sequence

from monobloc.errors import Diagnostics, LinkError
from monobloc.ir.graph import Value
from monobloc.ir.symbolic import same_shape
from monobloc.link.bind import input_names, owner
from monobloc.link.objects import Module
from monobloc.ops.sized import sizes_of

Pair = tuple[str, str]  # input, and the output it takes its next value from; "": the one that fits


def parse_persist(texts: Sequence[str]) -> list[Pair]:
    """`h=h_out` or `h`"""
    out = []
    for text in texts:
        name, eq, source = text.partition("=")
        if not name or (eq and not source):
            raise LinkError(f"`--persist {text}` names no state",
                            hints=["write `--persist INPUT=OUTPUT`, or `--persist INPUT` where one output fits"])
        out.append((name, source))
    return out


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


def _maker(modules: Sequence[Module], reader: Module, source: str) -> Module | None:
    """The other model whose output is named."""
    if source.removeprefix(f"{reader.title}.") in dict(reader.graph.outputs):
        return None
    return next((m for m in modules if any(source == f"{m.title}.{n}" for n, _ in m.graph.outputs)), None)


def _output(m: Module, v: Value, source: str, flag: str, problems: Diagnostics) -> str | None:
    """The output's name, if there is one of the input's type."""
    outputs = dict(m.graph.outputs)
    told = [f"the input is {v.type}", f"outputs: {', '.join(f'{n} {x.type}' for n, x in outputs.items())}"]
    fits = [n for n, x in outputs.items()
            if x.dtype == v.dtype and same_shape(x.shape, v.shape) and sizes_of(x) is None]
    if source and source in fits:
        return source
    if not source and len(fits) == 1:
        return fits[0]
    if source and source in outputs:
        problems.report(LinkError(f"`{flag}`: `{source}` is {outputs[source].type}", notes=told))
    elif source:
        problems.report(LinkError(f"`{flag}`: {m.title} has no output `{source}`", notes=told))
    else:
        what = "no output is of its type" if not fits else f"{' and '.join(f'`{n}`' for n in fits)} are of its type"
        hints = [f"say which: `--persist {v.origin or v.name}={fits[0]}`"] if fits else []
        problems.report(LinkError(f"`{flag}`: {what}", notes=told, hints=hints))
    return None
