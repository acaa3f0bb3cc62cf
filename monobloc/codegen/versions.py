"""Several versions of a program, at several sizes, become one program with one interface.

Each version is optimized, planned and written as if it were alone, with three things in common: inputs and
outputs lie at the same places, with room for the largest of each; what lives within a run is one piece of
memory, as large as the largest version needs; and weights are packed alike where any version can live with
it, so that they are stored once. Before all else in memory stand the run's dimensions, which the interface
looks at to choose the version.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from monobloc.codegen.interface import Interface, Port
from monobloc.codegen.lower import Lowered, generate
from monobloc.codegen.lower import lower as lower_one
from monobloc.codegen.place import Bank
from monobloc.codegen.regions import ram_regions
from monobloc.codegen.sizes import Sizes, Version, check_names, room_of
from monobloc.errors import UnsupportedError
from monobloc.ir.dims import Dim, told
from monobloc.ir.graph import Graph
from monobloc.ops.sized import sizes_of
from monobloc.passes import Dump, PassContext, run_passes


def lower_all(
    graphs: Iterable[Graph], ctx: PassContext, prefix: str, title: str, dump: Dump | None = None, profile: bool = False
) -> Lowered:
    """All versions of a program (which are changed on the way); one of fixed sizes has one."""
    every = list(graphs)
    if not every[0].dims:
        return lower_one(every[0], ctx, prefix, title, dump, profile)
    if ram_regions(ctx.regions):
        raise UnsupportedError(f"`{title}` takes several sizes, which memory regions do not hold yet",
                               hints=["give each dimension one size, or leave the regions out"])
    if sized := [n for g in every for n, v in g.outputs if sizes_of(v) is not None]:
        raise UnsupportedError(f"the size of output `{sized[0]}` of `{title}` is data, and the model takes several "
                               "sizes; both at once are not supported", hints=["give each dimension one size"])
    check_names(prefix, every[0].dims, [n for n, _ in every[0].outputs])
    room = room_of(every)
    made = []
    for k, g in enumerate(every):
        own = replace(ctx, why=[], times=[])
        run_passes(g, own, dump=_dump_of(dump, k))
        made.append(generate(g, own, version_prefix(prefix, k), title, profile, room))
    return replace(made[0], interface=_interface(made, prefix, every[0].dims), more=tuple(made[1:]))


def version_prefix(prefix: str, k: int) -> str:
    """What the code of a version is called by"""
    return f"{prefix}_v{k}"


def _dump_of(dump: Dump | None, k: int) -> Dump | None:
    return dump if dump is None or not k else lambda stem, g: dump(f"v{k}.{stem}", g)


# -- what they have in common ---------------------------------------------------------------------------
def _interface(made: Sequence[Lowered], prefix: str, dims: tuple[Dim, ...]) -> Interface:
    first = made[0].interface
    _check_alike(made)
    versions = tuple(
        Version(x.graph.at, x.unit.parts, *(tuple(p.type.shape for p in ports) for ports in _ports(x.interface)))
        for x in made)
    inputs, outputs = (tuple(map(_largest, zip(*(_ports(x.interface)[k] for x in made), strict=True))) for k in (0, 1))
    weights = {v.const.key: v.type.bytes for x in made for v in x.unit.weights.values() if v.const is not None}
    return replace(
        first, prefix=prefix, inputs=inputs, outputs=outputs, parts=tuple(p for v in versions for p in v.parts),
        arena=max(x.interface.arena for x in made), banks=_banks([x.interface.banks for x in made]),
        weights_bytes=sum(weights.values()), sizes=Sizes(dims, versions),
    )


def _ports(i: Interface) -> tuple[tuple[Port, ...], tuple[Port, ...]]:
    return i.inputs, i.outputs


def _largest(ports: tuple[Port, ...]) -> Port:
    return max(ports, key=lambda p: p.bytes)


def _banks(every: Sequence[tuple[Bank, ...]]) -> tuple[Bank, ...]:
    """Each as large as the largest version needs."""
    return tuple(replace(b[0], bytes=max(x.bytes for x in b)) for b in zip(*every, strict=True))


def _check_alike(made: Sequence[Lowered]) -> None:
    """Ports lie at the same places in all versions, and state is of one type."""
    first = made[0].interface
    for x in made[1:]:
        i = x.interface
        if [(a.type, b.type) for a, b in i.states] != [(a.type, b.type) for a, b in first.states]:
            names = ", ".join(f"`{a.name}`" for a, _ in i.states)
            raise UnsupportedError(f"the state {names} of `{i.title}` has another size at {told(x.graph.at)}",
                                   hints=["state lasts from run to run: give its dimensions one size"])
        places = [[(p.name, p.offset, p.bank) for p in (*j.inputs, *j.outputs, *sum(j.states, ()))] for j in (i, first)]
        if places[0] != places[1]:
            raise UnsupportedError(f"outputs of `{i.title}` are one tensor at {told(x.graph.at)}, and not at "
                                   f"{told(made[0].graph.at)}", hints=["keep one of them: `--keep-output NAME`"])
