"""From a graph to C: passes, places, text. The straight line in the middle of the compiler."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from monobloc.codegen.excess import keep_precision
from monobloc.codegen.interface import Interface, Port, header, implementation
from monobloc.codegen.place import Placement, place
from monobloc.codegen.sizes import Room
from monobloc.codegen.unit import Unit, UnitWriter, scratch_bytes
from monobloc.ir.graph import Graph, Value
from monobloc.ir.symbolic import closed
from monobloc.ops.sized import sizes_of
from monobloc.passes import Dump, PassContext, run_passes


@dataclass(frozen=True)
class Lowered:
    """Everything known of one program before a compiler runs."""

    graph: Graph
    context: PassContext
    placement: Placement
    unit: Unit
    interface: Interface
    more: tuple[Lowered, ...] = ()  # further versions, at other sizes; the interface is that of all

    @property
    def versions(self) -> tuple[Lowered, ...]:
        return (self, *self.more)

    @property
    def files(self) -> dict[str, str]:
        """C files for the target; the interface's own is for the baseline"""
        return {name: text for v in self.versions for name, text in v.unit.files.items()}

    @property
    def weights(self) -> dict[str, Value]:
        """Every constant that the code names, by its symbol"""
        return {symbol: v for x in self.versions for symbol, v in x.unit.weights.items()}

    @property
    def interface_file(self) -> str:
        return implementation(self.interface)

    @property
    def header(self) -> str:
        return header(self.interface)

    def bounded(self, stack: Mapping[str, int]) -> Lowered:
        """The same with the stack bound that a link has found, by prefix."""
        i = self.interface
        return replace(self, interface=replace(i, stack_bound=stack.get(i.prefix, i.stack_bound)))

    def sharing(self) -> Lowered:
        """The same with memory that lives within a run left to the program"""
        return replace(self, interface=replace(self.interface, shared=True))

    @property
    def weights_bytes(self) -> int:
        return self.interface.weights_bytes


def lower(
    g: Graph,
    ctx: PassContext,
    prefix: str,
    title: str,
    dump: Dump | None = None,
    profile: bool = False,
) -> Lowered:
    """Optimize, place and write a graph (which is changed on the way).

    `profile` adds a counter of clock ticks per layer, exported as `mb_<prefix>_part<k>_ticks`.
    """
    run_passes(g, ctx, dump=dump)
    keep_precision(g, ctx)
    return generate(g, ctx, prefix, title, profile)


def generate(
    g: Graph, ctx: PassContext, prefix: str, title: str, profile: bool = False, room: Room | None = None
) -> Lowered:
    """Place and write a graph that the passes are done with; `room`: of a version, for what all share."""
    scratch = scratch_bytes(g, ctx.target, ctx.threads)
    p = place(g, ctx, scratch, room)
    unit = UnitWriter(g, p, ctx.target, prefix, ctx.threads, profile, by_content=ctx.stage == "object").write()
    kept = {v.state: dict(g.outputs)[v.state] for v in g.inputs if v.state}
    interface = Interface(
        prefix=prefix,
        title=title,
        inputs=tuple(_port(v.origin or v.name, v, p) for v in g.inputs if not v.state),
        outputs=tuple(replace(_port(name, v, p), sizes=_sizes(v, p)) for name, v in g.outputs if name not in kept),
        states=tuple((_port(v.origin or v.name, v, p), _port(v.state, kept[v.state], p)) for v in g.inputs if v.state),
        arena=p.arena,
        weights_bytes=sum(v.type.bytes for v in unit.weights.values()),
        stack_bound=0,
        parts=unit.parts,
        target=ctx.target,
        threads=ctx.threads,
        banks=p.banks,
        strict=ctx.numerics == "strict",
    )
    return Lowered(g, ctx, p, unit, interface)


def _sizes(v: Value, p: Placement) -> Port | None:
    at = sizes_of(v)
    return None if at is None else _port("", at, p)


def _port(name: str, v: Value, p: Placement) -> Port:
    s = p.storage[v]
    at = p.offset[int(s.base)] + s.offset * s.dtype.size
    largest = replace(v.type, shape=closed(v.shape))
    return Port(name, largest, at, p.banks.index(p.bank_at(at)), open_shape=v.shape)
