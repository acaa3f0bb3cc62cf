"""Which buffers go to which memory region.

A region takes what its `hold` names; "hot" takes the buffers with the most accesses per byte, as many as
fit. What fits is known only once they are packed, so the plan is made anew with the coldest of them left
out until it does. Accesses are counted from the loops that make them; caches are not modelled.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from monobloc import plan
from monobloc.errors import LinkError
from monobloc.ir.graph import Node, Value
from monobloc.ir.symbolic import guess
from monobloc.passes.contraction import is_contraction, parts
from monobloc.targets import Region

Heat = Mapping[plan.Id, float]


def accesses(node: Node, v: Value) -> float:
    """How often `node` reads an element of `v`, on average; an estimate."""
    if v.type.size == 0:
        return 0.0
    if is_contraction(node):
        c = parts(node)
        if v in (c.x, c.w):
            return max(1.0, guess(c.out.type.size * c.depth) / guess(v.type.size))
        return guess(c.out.type.size) / guess(v.type.size)
    return max(1.0, max(guess(y.type.size) for y in node.outputs) / guess(v.type.size))


def ram_regions(regions: Sequence[Region]) -> tuple[Region, ...]:
    return tuple(r for r in regions if r.kind == "ram")


def spread(
    program: plan.Program, made: plan.Plan, heat: Heat, named: Mapping[plan.Id, frozenset[str]],
    regions: Sequence[Region],
) -> plan.Plan:
    """The plan with values in their regions; region k of the list is number k + 1, 0 is the main RAM.

    `named` holds the names under which a user may know a value. LinkError if what a region must hold
    does not fit.
    """
    where = _required(program, named, regions)
    hot = [k for k, r in enumerate(regions, 1) if "hot" in r.hold]
    for k in hot:
        where |= _hottest(program, made, heat, where, k, regions[k - 1].size)
    while True:
        found = plan.make_plan(_with_regions(program, where))
        over = [s for s in found.stretches if s.region and _over(s, regions[s.region - 1])]
        if not over:
            return found
        for s in over:
            drop = _coldest(where, heat, s.region) if s.region in hot else None
            if drop is None:
                raise _too_small(program, where, s, regions[s.region - 1])
            del where[drop]


def _over(s: plan.Stretch, r: Region) -> bool:
    return r.size is not None and s.end - s.start > r.size


def _required(
    program: plan.Program, named: Mapping[plan.Id, frozenset[str]], regions: Sequence[Region]
) -> dict[plan.Id, int]:
    """What is named, and inputs and outputs where a region holds those."""
    where: dict[plan.Id, int] = {}
    for k, r in enumerate(regions, 1):
        for v in program.values:
            io = v.pinned and v.id in named and "io" in r.hold  # the run's dimensions have no name, and stay
            if v.id not in where and (named.get(v.id, frozenset()) & set(r.hold) or io):
                where[v.id] = k
    return where


def _hottest(
    program: plan.Program, made: plan.Plan, heat: Heat, where: Mapping[plan.Id, int], k: int, size: int | None
) -> dict[plan.Id, int]:
    """Values for region `k`, hottest first, as long as no step needs more of them than the region has."""
    life = _lives(program, made)
    alive = [0] * (len(program.steps) + 1)
    chosen: dict[plan.Id, int] = {}
    free = [v for v in program.values if v.id not in where and not v.pinned and v.bytes]
    for v in sorted(free, key=lambda v: -heat.get(v.id, 0.0)):
        first, last = life[v.id]
        room = plan.align_up(v.bytes, v.align)
        if size is None or all(alive[t] + room <= size for t in range(first, last + 1)):
            chosen[v.id] = k
            for t in range(first, last + 1):
                alive[t] += room
    return chosen


def _lives(program: plan.Program, made: plan.Plan) -> dict[plan.Id, tuple[int, int]]:
    position = {name: t for t, name in enumerate(made.order)}
    out: dict[plan.Id, tuple[int, int]] = {}
    for s in program.steps:
        t = position[s.id]
        for v in (*s.defines, *s.uses):
            first, last = out.get(v, (t, t))
            out[v] = min(first, t), max(last, t)
    return {v.id: out.get(v.id, (0, 0)) for v in program.values}


def _with_regions(program: plan.Program, where: Mapping[plan.Id, int]) -> plan.Program:
    values = tuple(replace(v, region=where.get(v.id, 0)) for v in program.values)
    same = tuple(p for p in program.in_place if where.get(p.input, 0) == where.get(p.output, 0))
    return replace(program, values=values, in_place=same)


def _coldest(where: Mapping[plan.Id, int], heat: Heat, k: int) -> plan.Id | None:
    mine = [v for v, at in where.items() if at == k and v in heat]
    return min(mine, key=lambda v: heat[v], default=None)


def _too_small(program: plan.Program, where: Mapping[plan.Id, int], s: plan.Stretch, r: Region) -> LinkError:
    held = sorted((v for v in program.values if where.get(v.id) == s.region), key=lambda v: -v.bytes)
    return LinkError(
        f"region `{r.name}` has {r.size} bytes, what it must hold takes {s.end - s.start}",
        notes=[f"{v.bytes} bytes: %{v.id}" for v in held[:8]],
        hints=["hold less of it there, or give its real size"],
    )
