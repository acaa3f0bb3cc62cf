"""Order search: never worse than given, and as good as trying every order."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plan_shapes import SHAPES, Maker, random_dag

from monobloc.plan import Budget, Program, Value, lower_bound_over_orders, order_steps, search_peak
from monobloc.plan.atoms import resolve
from monobloc.plan.blocks import peak_bytes
from monobloc.plan.inplace import layout
from monobloc.plan.schedule import Schedule, schedule_of
from monobloc.plan.search import Found, beam, best_first, greedy


def every_order(schedule: Schedule, done: int = 0) -> Iterator[tuple[int, ...]]:
    if done == (1 << len(schedule)) - 1:
        yield ()
    for step, before in enumerate(schedule.before):
        if not done >> step & 1 and not before & ~done:
            for rest in every_order(schedule, done | 1 << step):
                yield (step, *rest)


def peak_by_hand(program: Program, order: tuple[int, ...]) -> int:
    """Bytes alive, counted anew for each step from the atoms' definition; no in-place, no masks."""
    atoms = resolve(program)
    position = {s: i for i, s in enumerate(order)}
    peak = 0
    for moment, step in enumerate(order):
        live = program.steps[step].scratch_bytes
        for atom in atoms.atoms:
            start = -1 if atom.born < 0 else position[atom.born]
            end = len(order) if atom.kept else max([start, *(position[u] for u in atom.users)])
            pinned = atoms.storage_pinned[atom.storage]
            live += atom.bytes if pinned or start <= moment <= end else 0
        peak = max(peak, live)
    return peak


@settings(max_examples=150, deadline=None, derandomize=True, print_blob=True)
@given(seed=st.integers(0, 10**6), steps=st.integers(6, 25))
def test_what_a_small_budget_proves_is_true(seed: int, steps: int) -> None:
    program = random_dag(seed, steps, reach=20)
    hasty, exact = order_steps(program, Budget(order_evaluations=30)), order_steps(program)
    assert exact.peak <= hasty.peak, f"seed {seed}"
    assert not hasty.proven or hasty.peak == exact.peak, f"seed {seed}"


@settings(max_examples=150, deadline=None, derandomize=True, print_blob=True)
@given(seed=st.integers(0, 10**6), steps=st.integers(1, 7))
def test_best_first_alone_equals_brute_force(seed: int, steps: int) -> None:
    """from the worst order, without the greedy schedules that usually find the optimum first"""
    schedule = schedule_of(resolve(random_dag(seed, steps)))
    orders = sorted(every_order(schedule), key=schedule.peak)
    known = Found(orders[-1], schedule.peak(orders[-1]), proven=False)
    found = best_first(schedule, 0, known, 10**6)
    assert found.proven
    assert schedule.peak(found.order) == found.peak == schedule.peak(orders[0]), f"seed {seed}"


@settings(max_examples=60, deadline=None, derandomize=True, print_blob=True)
@given(seed=st.integers(0, 10**6), steps=st.integers(1, 30), rule=st.integers(0, 3))
def test_peaks_kept_along_the_way_are_right(seed: int, steps: int, rule: int) -> None:
    """greedy and beam carry costs from state to state; `Schedule.peak` counts from the start"""
    schedule = schedule_of(resolve(random_dag(seed, steps, reach=20)))
    listed = greedy(schedule, 0, rule)
    assert listed.peak == schedule.peak(listed.order), f"seed {seed}"
    beamed = beam(schedule, 0, Found((), 1 << 60, proven=False), 4, 10**5)
    assert beamed.peak == schedule.peak(beamed.order), f"seed {seed}"


@settings(max_examples=100, deadline=None, derandomize=True, print_blob=True)
@given(seed=st.integers(0, 10**6), steps=st.integers(1, 12))
def test_peak_with_in_place_is_what_the_blocks_need(seed: int, steps: int) -> None:
    program = random_dag(seed, steps)
    values = tuple(Value(v.id, v.bytes, 1, output=v.output) for v in program.values)
    program = Program(values, program.steps, program.in_place)
    atoms = resolve(program)
    steps_in_order = range(len(program.steps))
    blocks = layout(atoms, steps_in_order).blocks
    blocks = tuple(b for b in blocks if b.last >= 0)  # without inputs that nobody reads
    assert peak_bytes(blocks, 1) == schedule_of(atoms).peak(steps_in_order), f"seed {seed}"


def without_in_place(program: Program) -> Program:
    return Program(program.values, program.steps, (), program.views)


@settings(max_examples=150, deadline=None, derandomize=True, print_blob=True)
@given(seed=st.integers(0, 10**6), steps=st.integers(1, 7))
def test_exact_equals_brute_force(seed: int, steps: int) -> None:
    program = random_dag(seed, steps)
    schedule = schedule_of(resolve(program))
    best = min(schedule.peak(o) for o in every_order(schedule))
    found = lower_bound_over_orders(program)
    assert (found.peak, found.proven) == (best, True), f"seed {seed}"
    assert schedule.peak(found.order) == best


@settings(max_examples=100, deadline=None, derandomize=True, print_blob=True)
@given(seed=st.integers(0, 10**6), steps=st.integers(1, 7))
def test_peak_equals_a_count_by_hand(seed: int, steps: int) -> None:
    program = without_in_place(random_dag(seed, steps))
    schedule = schedule_of(resolve(program))
    order = tuple(order_steps(program).order)
    assert schedule.peak(order) == peak_by_hand(program, order), f"seed {seed}"


@settings(max_examples=60, deadline=None, derandomize=True, print_blob=True)
@given(seed=st.integers(0, 10**6), steps=st.integers(1, 60))
def test_never_worse_than_the_given_order_and_never_below_the_floor(seed: int, steps: int) -> None:
    program = random_dag(seed, steps)
    schedule = schedule_of(resolve(program))
    found = order_steps(program, Budget(order_evaluations=3000))
    assert sorted(found.order) == list(range(len(program.steps)))
    assert schedule.floor() <= found.peak == schedule.peak(found.order), f"seed {seed}"
    assert found.peak <= schedule.peak(range(len(schedule))), f"seed {seed}"


@pytest.mark.parametrize("name", SHAPES)
def test_networks_are_solved_exactly(name: str) -> None:
    found = order_steps(SHAPES[name]())
    assert found.proven


def test_inception_is_better_in_another_order() -> None:
    program = SHAPES["inception"]()
    given = schedule_of(resolve(program)).peak(range(len(program.steps)))
    assert order_steps(program).peak < 0.9 * given


def test_search_with_a_clock_ends_and_is_not_worse() -> None:
    program = random_dag(3, 40)
    assert search_peak(program, seconds=0.2).peak <= order_steps(program).peak


def test_given_order_stays_if_nothing_is_gained() -> None:
    program = SHAPES["residual"]()
    assert order_steps(program).order == tuple(range(len(program.steps)))


def test_wide_graphs_end_within_the_budget() -> None:
    """a hundred branches: far more states than anybody can visit"""
    m = Maker()
    x = m.input(5000)
    ends = [m.step(100 + i, m.step(4000 - 7 * i, m.step(2000 + 13 * i, x))) for i in range(100)]
    program = m.done(m.step(64, *reversed(ends)))
    schedule = schedule_of(resolve(program))
    found = order_steps(program, Budget(order_evaluations=20_000))
    alive_at_last = 5000 + 64 + sum(101 + i for i in range(99)) + 4000 + 2000
    assert found.peak == alive_at_last < schedule.peak(range(len(schedule)))
