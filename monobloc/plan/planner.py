"""The whole memory plan: order, in-place choices, offsets, and the check of all three."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from monobloc.plan.atoms import Atoms, Candidate, resolve
from monobloc.plan.inplace import Layout, equal_size, layout
from monobloc.plan.model import USUAL, Budget, Id, Plan, Program
from monobloc.plan.offsets import NEAR, Packed, pack
from monobloc.plan.order import Order, order_atoms
from monobloc.plan.verify import verify

QUICK = 6  # choices are compared with this part of the budget; the winner gets all of it
MANY_PAIRS = 400_000  # packing takes seconds from here on


@dataclass(frozen=True)
class _Trial:
    order: Order
    layout: Layout
    packed: Packed


def make_plan(program: Program, budget: Budget = USUAL) -> Plan:
    """A verified plan. The given order stays unless another one makes the arena smaller."""
    atoms = resolve(program)
    given = tuple(range(len(program.steps)))
    found = order_atoms(atoms, budget)
    quick = replace(
        budget, pack_nodes=budget.pack_nodes // QUICK, pack_visits=budget.pack_visits // QUICK
    )
    best = _trial(atoms, found, quick)
    if found.order != given and _worth_more(best.packed):
        other = _trial(atoms, Order(given, 0, proven=False), quick)
        if other.packed.arena < best.packed.arena:
            best = other
    if _worth_more(best.packed) and not best.packed.optimal:
        best = replace(best, packed=_smaller(best.packed, pack(best.layout.blocks, budget)))
    plan = _plan(atoms, best)
    verify(program, plan)
    return plan


def _trial(atoms: Atoms, order: Order, budget: Budget) -> _Trial:
    """Pack with all in-place pairs; with fewer only if those did not reach the bound."""
    choices: tuple[Callable[[Candidate], bool], ...] = (
        lambda c: True,
        equal_size,
        lambda c: False,
    )
    best: _Trial | None = None
    seen: set[tuple[object, ...]] = set()
    for wanted in choices:
        lay = layout(atoms, order.order, wanted)
        if lay.in_place in seen:
            continue
        seen.add(lay.in_place)
        trial = _Trial(order, lay, pack(lay.blocks, budget))
        if best is None or trial.packed.arena < best.packed.arena:
            best = trial
        if not _worth_more(best.packed):
            break
    assert best is not None
    return best


def _smaller(old: Packed, new: Packed) -> Packed:
    return new if new.arena < old.arena or new.optimal else old


def _worth_more(packed: Packed) -> bool:
    """whether packing another way could save something, at an acceptable price"""
    gap = packed.arena - packed.bound
    return gap > packed.bound // NEAR and packed.pairs < MANY_PAIRS


def _plan(atoms: Atoms, trial: _Trial) -> Plan:
    steps, lay, packed = atoms.program.steps, trial.layout, trial.packed
    offset: dict[Id, int] = {}
    for v in atoms.program.values:
        storage, inside = atoms.place[v.id]
        block, shift = lay.storage[storage]
        offset[v.id] = packed.offset[block] + shift + inside
    return Plan(
        order=tuple(steps[i].id for i in trial.order.order),
        offset=offset,
        scratch={steps[i].id: packed.offset[block] for i, block in lay.scratch.items()},
        arena=packed.arena,
        bound=packed.bound,
        order_optimal=trial.order.proven,
        pack_optimal=packed.optimal,
        in_place=lay.in_place,
        stretches=packed.stretches,
    )
