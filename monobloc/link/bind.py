"""What the link line says of single models: `--bind`, `--from`, `--keep-output`.

They are given at the link as at the import, for models that are compiled already. A name is a model's
own, `x`, where one model of the link has it, or `model.x`. A bound input becomes a constant: it leaves
the header and the memory, and the passes fold it through the graph, over the borders of models.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from monobloc.errors import Diagnostics, LinkError, ModelError
from monobloc.ir.graph import Graph, Value
from monobloc.ir.symbolic import is_open, same_number, same_shape
from monobloc.ir.text import copy_graph
from monobloc.ir.types import TensorType
from monobloc.link.objects import Module
from monobloc.link.start import start_from
from monobloc.options import Options
from monobloc.wildcards import expanded

Known = Callable[[Graph], Sequence[str]]


@dataclass(frozen=True)
class Fixed:
    """Values of inputs, tensors to start from, outputs to keep; by name."""

    bind: Mapping[str, np.ndarray] = field(default_factory=dict)
    start_from: tuple[str, ...] = ()
    keep_outputs: tuple[str, ...] = ()
    persist: tuple[tuple[str, str], ...] = ()  # inputs that are state, and the outputs they come from

    def __bool__(self) -> bool:
        return bool(self.bind or self.start_from or self.keep_outputs)

    @property
    def flags(self) -> tuple[tuple[str, object], ...]:
        return (("bind", self.bind), ("from", self.start_from), ("keep-output", self.keep_outputs),
                ("persist", self.persist))

    @staticmethod
    def of(o: Options) -> Fixed:
        return Fixed(o.bind, o.start_from, o.keep_outputs, o.persist)


# -- at the import: one model's share -----------------------------------------------------------------
def for_import(o: Options, whole: Options, title: str, alone: bool, titles: Sequence[str]) -> Options:
    """The options of one model that is imported: what names it, by its own names.

    A name without a model is this one's if it is the only one, or if only its own options hold it. `titles` are those
    of all models that are imported; a dimension without a model is one of each of them.
    """
    def own(name: str, shared: bool) -> str | None:
        model, dot, rest = name.partition(f"{title}.")
        if dot and not model:
            return rest
        return name if alone or not shared else None

    bind = {n: v for k, v in o.bind.items() if (n := own(k, k in whole.bind)) is not None}
    start = [n for k in o.start_from if (n := own(k, k in whole.start_from)) is not None]
    keep = [n for k in o.keep_outputs if (n := own(k, k in whole.keep_outputs)) is not None]
    keep += [n for _, source in o.persist if keep and source and "*" not in source
             and (n := own(source, True)) is not None and n not in keep]
    states = [(n, s) for name, source in o.persist if "*" in source
              and (n := own(name, True)) is not None and (s := own(source, True)) is not None]
    others = tuple(f"{t}." for t in titles if t != title)
    dims = {k: v for k, v in o.dims.items() if not k.startswith(others)}
    dims |= {k.removeprefix(f"{title}."): dims.pop(k) for k in list(dims) if k.startswith(f"{title}.")}
    return replace(o, bind=bind, start_from=tuple(start), keep_outputs=tuple(keep), dims=dims,
                   persist=tuple(states))


def for_object(o: Options, own: Options | None, titles: Sequence[str]) -> Options:
    """The whole's options with what an object's own entry in the project says of its models."""
    if own is None:
        return o
    bind = {f"{t}.{k}": v for t in titles for k, v in own.bind.items() if k not in o.bind}
    start, keep = (tuple(f"{t}.{k}" for t in titles for k in mine if k not in whole)
                   for mine, whole in ((own.start_from, o.start_from), (own.keep_outputs, o.keep_outputs)))
    return replace(o, bind={**o.bind, **bind}, start_from=(*o.start_from, *start),
                   keep_outputs=(*o.keep_outputs, *keep))


def left_for_link(o: Options, imported: Sequence[str], alone: bool) -> Options:
    """What no import has taken: `imported` are the titles of models."""
    def left(name: str) -> bool:
        return not alone and not any(name.startswith(f"{t}.") for t in imported)

    return replace(o, bind={k: v for k, v in o.bind.items() if left(k)},
                   start_from=tuple(filter(left, o.start_from)), keep_outputs=tuple(filter(left, o.keep_outputs)))


# -- at the link --------------------------------------------------------------------------------------
def specialize(modules: Sequence[Module], fixed: Fixed) -> list[Module]:
    """The models with what is said of them; everything that is wrong is told at once."""
    if not fixed:
        return list(modules)
    made = {m: replace(m, graph=copy_graph(m.graph)) for m in modules}
    problems = Diagnostics()

    def each(names: Sequence[str], flag: str, kind: str, known: Known) -> list[tuple[Module, str, str]]:
        found = [(name, owner(list(made.values()), name, f"--{flag} {name}", kind, known, problems)) for name in names]
        return [(*one, name) for name, one in found if one is not None]

    # as at the import: inputs are bound before a later start takes away what nothing needs
    early = [n for n in fixed.bind if any(n.removeprefix(f"{m.title}.") in input_names(m.graph) for m in modules)]
    late = [n for n in fixed.bind if n not in early]
    for m, own, name in each(early, "bind", "input", input_names):
        _bind(m, own, name, fixed.bind[name], problems)
    for m, own, _ in each(fixed.start_from, "from", "tensor", _tensors):
        start_from(m.graph, [own])
    for m, own, name in each(late, "bind", "input", input_names):
        _bind(m, own, name, fixed.bind[name], problems)
    kept: dict[Module, list[str]] = {}
    outputs = [n for m in modules for own, _ in m.graph.outputs for n in (own, f"{m.title}.{own}")]
    for m, own, _ in each(expanded(fixed.keep_outputs, outputs), "keep-output", "output or inner value", _keepable):
        kept.setdefault(m, []).append(own)
    problems.checkpoint()
    for m, names in kept.items():
        _keep(m.graph, [*names, *_next_values(m, fixed)])
    return list(made.values())


def owner(
    modules: Sequence[Module], name: str, said: str, kind: str, known: Known, problems: Diagnostics
) -> tuple[Module, str] | None:
    """The one model that a name is of, and its own name for it; none where that is told.

    `said` is the flag as it was given, `known` gives a graph's names of the kind that is meant.
    """
    found = [(m, own) for m in modules
             for own in dict.fromkeys((name, name.removeprefix(f"{m.title}."))) if own in known(m.graph)]
    qualified = [(m, own) for m, own in found if own != name]
    if len(qualified) == 1 or len(found) == 1:
        return (qualified or found)[0]
    every = [f"{m.title}.{n}" for m in modules for n in known(m.graph)]
    if found:
        problems.report(LinkError(f"`{said}`: several models have this {kind}",
                                  hints=[f"say which: {' or '.join(f'`{m.title}.{own}`' for m, own in found)}"]))
        return None
    near = difflib.get_close_matches(name, [*every, *(n for m in modules for n in known(m.graph))], 1)
    problems.report(LinkError(
        f"`{said}`: no model has this {kind}",
        notes=[f"there are: {', '.join(every[:20]) or 'none'}" + (", ..." if len(every) > 20 else "")],
        hints=[f"did you mean `{near[0]}`?"] if near else [],
    ))
    return None


def input_names(g: Graph) -> list[str]:
    return [v.origin or v.name for v in g.inputs]


def _tensors(g: Graph) -> list[str]:
    """What nodes make, by the model's names."""
    return list(dict.fromkeys(n for node in g.nodes for v in node.outputs for n in (v.origin or v.name, v.name)))


def _keepable(g: Graph) -> list[str]:
    return list(dict.fromkeys([*(n for n, _ in g.outputs), *_tensors(g)]))


def _bind(m: Module, own: str, name: str, given: np.ndarray, problems: Diagnostics) -> None:
    g = m.graph
    v = next((v for v in g.inputs if (v.origin or v.name) == own), None)
    if v is None:
        problems.report(LinkError(f"`--bind {name}`: the input `{own}` of `{m.title}` is bound already"))
        return
    try:
        const = g.constant(f"{v.name}.bound", _as_type(name, given, v.type, m))
    except ModelError as e:
        problems.report(e)
        return
    g.inputs.remove(v)
    g.replace(v, const)


def _as_type(name: str, given: np.ndarray, t: TensorType, m: Module) -> np.ndarray:
    """The value in the input's type and shape, when that keeps it as it is."""
    what = f"`--bind {name}`"
    told = f"{given.dtype}[{','.join(map(str, given.shape))}]"
    out = t.dtype.hold(given)
    notes = [f"the input is {t}, in {m.origin or m.title}"]
    if out is None:
        raise ModelError(f"{what}: {t.dtype.value} cannot hold the given {told}", notes=notes)
    if out.size == 1 and same_number(t.size, 1):
        out = out.reshape(t.shape)
    if not same_shape(out.shape, t.shape):
        raise ModelError(f"{what}: the given {told} does not fit {t}", notes=notes,
                         hints=_hints_of_shape(t))
    return np.ascontiguousarray(out).reshape(out.shape)


def _hints_of_shape(t: TensorType) -> list[str]:
    if any(map(is_open, t.shape)):
        return ["a run chooses the input's size; give its dimensions one size with `--dim` of `monobloc compile`"]
    return [f"give {t.size} numbers in a .npy file of shape {list(t.shape)}"] if t.rank > 1 else []


def _next_values(m: Module, fixed: Fixed) -> list[str]:
    """Outputs that inputs of the model keep as state: they leave the interface, but not the graph."""
    ins, outs = set(input_names(m.graph)), dict(m.graph.outputs)
    return [out for name, source in fixed.persist if name.removeprefix(f"{m.title}.") in ins
            and (out := source.removeprefix(f"{m.title}.")) in outs]


def _keep(g: Graph, names: Sequence[str]) -> None:
    """Only these leave the graph: outputs by their names, or values that nodes make."""
    by_name: dict[str, Value] = {}
    for node in g.nodes:
        for v in node.outputs:
            by_name.setdefault(v.origin or v.name, v)
            by_name.setdefault(v.name, v)
    by_name |= dict(g.outputs)
    g.outputs = [(n, by_name[n]) for n in dict.fromkeys(names)]
    live = g.output_values
    for node in reversed(g.nodes):
        if any(v in live for v in node.outputs):
            live.update(node.used)
    g.remove_all({n for n in g.nodes if not any(v in live for v in n.outputs)})
    g.inputs = [v for v in g.inputs if v in live]
