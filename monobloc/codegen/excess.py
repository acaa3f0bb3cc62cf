"""Halves that are kept as float32 between layers, as C's FLT_EVAL_METHOD lets a compiler keep more than a type has.

What a layer makes of halves is a float32, and rounding it to be stored is a loss and a conversion, which its reader
undoes; the usual runtimes of CPUs round nothing between layers. So a program for speed keeps all of them, which takes
no time (squeezenet: 1.00) and up to twice the arena. One for size keeps what costs nothing: its first plan has
a peak, below which bytes lie idle, and a half whose double size fits beside all that is alive with it stays float32;
the plan is made anew, and less is kept where the arena would grow by a byte. What
others see (inputs, outputs, state, kept values) and what routines and regions read are halves, always.

The choice must not depend on how many threads there are, since results may not: it is made for one, and so that
the scratch of more has room as well.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from monobloc.codegen.place import Placement, is_loops, place
from monobloc.codegen.sizes import Room
from monobloc.codegen.unit import scratch_bytes
from monobloc.ir.graph import Graph, Value
from monobloc.ir.symbolic import upper
from monobloc.ir.types import HALVES, DType
from monobloc.passes import PassContext
from monobloc.passes.contraction import is_contraction
from monobloc.passes.select import refit

NAME = "excess"
SHARES = (1.0, 0.75, 0.5, 0.25)  # of the idle bytes: packing may not find room for all that fits by numbers
THREADS = (1, 2, 4, 8, 16, 32, 64)


def keep_precision(g: Graph, ctx: PassContext, room: Room | None = None) -> None:
    """Mark the halves of a selected graph that are stored as float32."""
    if ctx.numerics == "strict" or not any(_is_plain(v) for n in g.nodes for v in n.outputs):
        return
    before = place(g, replace(ctx, why=[]), scratch_bytes(g, ctx.target, 1), room)
    groups = [_Group(tuple(x), before) for x in _sharing(before)]
    clusters = _clusters(g, before, groups)
    if ctx.optimize != "size":
        values = [v for c in clusters for v in c.values]
        _store(values, DType.F32, ctx)
        _explain(values, ctx, "nothing rounds it between layers")
    else:
        _keep_what_fits(g, ctx, room, before, clusters, _idle(before, groups))


def _keep_what_fits(g: Graph, ctx: PassContext, room: Room | None, before: Placement, clusters: Sequence[_Cluster],
                    idle: Sequence[int]) -> None:
    """As many as there is room for below the peak of the first plan"""
    quiet = replace(ctx, why=[])
    tried: list[Sequence[_Cluster]] = []
    for share in SHARES:
        chosen = _choose(clusters, [int(b * share) for b in idle])
        if not chosen or chosen in tried:
            continue
        tried.append(chosen)
        values = [v for c in chosen for v in c.values]
        _store(values, DType.F32, ctx)
        if _fits(place(g, quiet, scratch_bytes(g, ctx.target, 1), room), before):
            _explain(values, ctx, "there is room for it below the peak")
            return
        _store(values, None, ctx)


def _store(values: Sequence[Value], as_: DType | None, ctx: PassContext) -> None:
    for v in values:
        v.type = replace(v.type, stored=as_)
    for n in dict.fromkeys(u for v in values for u in v.users):
        refit(n, ctx.target)


def _fits(now: Placement, before: Placement) -> bool:
    """Whether no stretch of memory has grown."""
    room = {b.name: b.bytes for b in before.banks}
    return now.arena <= before.arena and all(b.bytes <= room.get(b.name, 0) for b in now.banks)


def _explain(values: Sequence[Value], ctx: PassContext, why: str) -> None:
    for v in values:
        if v.producer is not None:
            ctx.reason(v.producer, NAME, f"%{v.name} is kept as float32: {why}")


def _is_plain(v: Value) -> bool:
    """A half that only loops and kernels see, which read and write any type of float."""
    nodes = [*([v.producer] if v.producer else []), *v.users]
    return (v.dtype in HALVES and v.type.size > 0 and v.producer is not None
            and all(is_contraction(n) or is_loops(n) for n in nodes))


# -- what shares bytes ----------------------------------------------------------------------------------
Buffer = tuple[Value, int, int, int]  # of a placement: the value, its byte, first and last step


def _sharing(p: Placement) -> list[list[Buffer]]:
    """Buffers by what is written in place over another: those alive in one step that share bytes."""
    alive: list[list[Buffer]] = [[] for _ in p.order]
    for b in p.buffers:
        for step in alive[b[2] : b[3] + 1]:
            step.append(b)
    group: dict[Value, list[Buffer]] = {b[0]: [b] for b in p.buffers}
    for buffers in filter(None, alive):
        buffers.sort(key=lambda b: b[1])
        a = buffers[0]
        for b in buffers[1:]:
            if b[1] < _end(a) and group[a[0]] is not group[b[0]]:
                merged = group[a[0]] + group[b[0]]
                group |= dict.fromkeys((x[0] for x in merged), merged)
            a = max(a, b, key=_end)
    return list({id(x): x for x in group.values()}.values())


@dataclass(frozen=True)
class _Group:
    """Buffers that share bytes, in their plan."""

    buffers: tuple[Buffer, ...]
    plan: Placement

    @property
    def steps(self) -> range:
        return range(min(b[2] for b in self.buffers), max(b[3] for b in self.buffers) + 1)

    def working(self, t: int, without: Sequence[Buffer] = ()) -> int:
        """Bytes in a step, beside those that inputs and outputs have for all time"""
        return _span(b for b in self.buffers if b not in without and not self.plan.bank_at(b[1]).kept and _lives(b, t))

    def more(self, halves: Sequence[Buffer], t: int) -> int:
        """Bytes that it takes in a step to widen some of them, with which the others will not share any more."""
        return self.working(t, halves) + 2 * _span(b for b in halves if _lives(b, t)) - self.working(t)


def _lives(b: Buffer, t: int) -> bool:
    return b[2] <= t <= b[3]


def _span(buffers: Iterable[Buffer]) -> int:
    """Bytes that buffers which share some take in all"""
    alive = list(buffers)
    return max(map(_end, alive)) - min(b[1] for b in alive) if alive else 0


def _end(b: Buffer) -> int:
    return b[1] + upper(b[0].type.bytes)


# -- where there is room --------------------------------------------------------------------------------
@dataclass(frozen=True)
class _Cluster:
    """Values that are widened together, and the bytes that it takes, by step."""

    values: tuple[Value, ...]
    more: Mapping[int, int]


def _clusters(g: Graph, p: Placement, groups: Sequence[_Group]) -> list[_Cluster]:
    """Smallest first: most values find room so."""
    by_base: dict[int, list[Value]] = {}
    for v, s in p.storage.items():
        if isinstance(s.base, int):
            by_base.setdefault(s.base, []).append(v)
    seen = g.output_values | set(g.inputs)
    plain = {base for base, vs in by_base.items() if all(_is_plain(v) and v not in seen for v in vs)}
    out = []
    for group in groups:
        halves = [b for b in group.buffers if int(p.storage[b[0]].base) in plain]
        if halves:
            values = tuple(v for b in halves for v in by_base[int(p.storage[b[0]].base)])
            out.append(_Cluster(values, {t: group.more(halves, t) for t in group.steps}))
    return sorted(out, key=lambda c: max(c.more.values()))


def _idle(p: Placement, groups: Sequence[_Group]) -> list[int]:
    """Bytes by step that are not in use, with any number of threads."""
    scratch = [p.scratch_bytes.get(n, 0) for n in p.order]
    used = [sum(b.bytes for b in p.banks if b.kept)] * len(scratch)
    for group in groups:
        for t in group.steps:
            used[t] += group.working(t)
    out = [p.arena] * len(scratch)
    for threads in THREADS:
        need = [u + threads * s for u, s in zip(used, scratch, strict=True)]
        most = max(p.arena, *need)
        out = [min(b, most - x) for b, x in zip(out, need, strict=True)]
    return out


def _choose(clusters: Sequence[_Cluster], idle: list[int]) -> list[_Cluster]:
    """Those that fit into what is idle, in turn."""
    out = []
    for c in clusters:
        if all(idle[t] >= b for t, b in c.more.items() if b):
            out.append(c)
            for t, b in c.more.items():
                idle[t] -= b
    return out
