"""Packing and whole plans: valid, near the bound, and exact where it says so."""

from __future__ import annotations

import dataclasses
import itertools
import random
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plan_shapes import SHAPES, inception, random_dag

from monobloc.errors import InternalError
from monobloc.plan import (
    Budget,
    Buffer,
    InPlace,
    Program,
    Step,
    Value,
    View,
    align_up,
    assign_offsets,
    make_plan,
    natural_align,
    planner,
    verify,
)
from monobloc.plan.blocks import Block, packing, rectangle
from monobloc.plan.offsets import Packed
from monobloc.plan.pack import heuristics, place
from monobloc.plan.pack_exact import branch_and_bound
from monobloc.plan.pack_repair import repair


@st.composite
def buffers(draw: st.DrawFn, most: int) -> list[Buffer]:
    result = []
    for i in range(draw(st.integers(1, most))):
        first = draw(st.integers(0, 6))
        last = draw(st.integers(first, 8))
        align = draw(st.sampled_from((16, 16, 64)))
        result.append(Buffer(i, draw(st.integers(1, 200)), first, last, align))
    return result


def meet(a: Buffer, b: Buffer) -> bool:
    return a.pinned or b.pinned or (a.first <= b.last and b.first <= a.last)


def best_arena(items: list[Buffer]) -> int:
    """Tries every order of placing each buffer at the lowest free place: contains an optimum."""
    best = 1 << 60
    for order in itertools.permutations(items):
        offset: dict[object, int] = {}
        for b in order:
            at = 0
            for p in sorted((p for p in order if p.id in offset), key=lambda p: offset[p.id]):
                if meet(b, p) and offset[p.id] < at + b.bytes and at < offset[p.id] + p.bytes:
                    at = align_up(offset[p.id] + p.bytes, b.align)
            offset[b.id] = at
        best = min(best, max(align_up(offset[b.id] + b.bytes, 16) for b in items))
    return best


@settings(max_examples=60, deadline=None, derandomize=True, print_blob=True)
@given(buffers(6))
def test_proven_equals_brute_force(items: list[Buffer]) -> None:
    items = [dataclasses.replace(b, align=min(b.align, 64)) for b in items] + [
        Buffer("grain", 1, 0, 0, 16)
    ]
    found = assign_offsets(items)
    assert found.optimal
    assert align_up(found.arena, 16) == best_arena(items)


@settings(max_examples=60, deadline=None, derandomize=True, print_blob=True)
@given(buffers(6))
def test_branch_and_bound_alone_equals_brute_force(items: list[Buffer]) -> None:
    items = [*items, Buffer("grain", 1, 0, 0, 16)]
    problem = packing([rectangle(b) for b in items], 0)
    start, _ = heuristics(problem, 10**6)
    worse = dataclasses.replace(start, arena=start.arena * 2)
    best, complete = branch_and_bound(problem, worse, 10**6)
    assert complete
    assert best.arena == best_arena(items)


@settings(max_examples=100, deadline=None, derandomize=True, print_blob=True)
@given(buffers(25), st.booleans())
def test_buffers_never_collide(items: list[Buffer], pin: bool) -> None:
    items[0] = dataclasses.replace(items[0], pinned=pin)
    found = assign_offsets(items, Budget(pack_nodes=300, pack_visits=3000))
    for a, b in itertools.combinations(items, 2):
        lo, hi = found.offset[a.id], found.offset[b.id]
        assert not meet(a, b) or lo + a.bytes <= hi or hi + b.bytes <= lo
    assert all(found.offset[b.id] % b.align == 0 for b in items)
    assert found.bound <= found.arena


@settings(max_examples=150, deadline=None, derandomize=True, print_blob=True)
@given(seed=st.integers(0, 10**6), steps=st.integers(1, 40))
def test_plans_of_random_graphs_hold(seed: int, steps: int) -> None:
    program = random_dag(seed, steps)
    budget = Budget(order_evaluations=3000, pack_nodes=300, pack_visits=3000)
    plan = make_plan(program, budget)  # verifies
    assert plan.bound <= plan.arena <= 1.25 * plan.bound, f"seed {seed}"
    assert plan == make_plan(program, budget)


def test_the_crowded_part_is_solved_first() -> None:
    """the peak of a long network is a small puzzle, which first fit alone does not solve"""
    plan = make_plan(inception(36), Budget(pack_visits=100_000))
    assert plan.arena <= 1.001 * plan.bound


@pytest.mark.parametrize("name", SHAPES)
def test_networks_reach_the_bound(name: str) -> None:
    plan = make_plan(SHAPES[name]())
    assert plan.arena <= 1.05 * plan.bound
    assert plan.order_optimal


@settings(max_examples=20, deadline=None, derandomize=True, print_blob=True)
@given(seed=st.integers(0, 10**6))
def test_crowds_are_placed_as_small_sets_are(seed: int) -> None:
    """the arrays used for many neighbours must give what the lists give"""
    rng = random.Random(seed)
    blocks = []
    for i in range(150):
        first = rng.randrange(20)
        size, align = rng.randrange(1, 999), rng.choice((16, 64))
        blocks.append(rectangle(Buffer(i, size, first, first + rng.randrange(15), align)))
    problem = packing(blocks, 48)
    assert len(problem.crowded) > 50
    order = rng.sample(range(150), 150)
    for tight in (False, True):
        lists = place(dataclasses.replace(problem, crowded={}), order, 10**9, tight)
        assert place(problem, order, 10**9, tight) == lists, f"seed {seed}"


def test_repair_improves_a_random_order_and_stays_valid() -> None:
    rng = random.Random(2)
    blocks = []
    for i in range(400):
        last = i + rng.choice((3, 5, 8, 13))
        blocks.append(rectangle(Buffer(i, rng.randrange(100, 5000), i, last, 64)))
    problem = packing(blocks, 0)
    start = place(problem, rng.sample(range(400), 400), 10**9)
    better = repair(problem, start, 300_000, seed=0)
    for x, meets in enumerate(problem.meets):
        for y, lo, hi in meets:
            assert not lo < better.offset[x] - better.offset[y] < hi
    assert problem.bound <= better.arena < 0.95 * start.arena
    for x, meets in enumerate(problem.meets):
        for y, lo, hi in meets:
            assert not lo < better.offset[x] - better.offset[y] < hi


def small() -> Program:
    """x -> a -> relu in place -> y, with a side reader of x"""
    values = (Value("x", 640), Value("a", 640), Value("r", 640), Value("y", 64, output=True))
    steps = (
        Step("conv", ("a",), ("x",), 128),
        Step("relu", ("r",), ("a",)),
        Step("sum", ("y",), ("r",)),
    )
    return Program(values, steps, (InPlace("relu", "a", "r"),))


def test_in_place_is_taken() -> None:
    plan = make_plan(small())
    assert plan.in_place == (InPlace("relu", "a", "r"),)
    assert plan.offset["a"] == plan.offset["r"]
    assert plan.arena == 640 + 640 + 128


def test_in_place_is_refused_while_the_input_is_needed() -> None:
    program = small()
    late = dataclasses.replace(program.steps[2], uses=("r", "a"))
    program = dataclasses.replace(program, steps=(*program.steps[:2], late))
    assert make_plan(program).in_place == ()


def test_intermediates_may_grow_into_their_pinned_output() -> None:
    program = small()
    values = tuple(dataclasses.replace(v, pinned=v.id in "xr") for v in program.values)
    plan = make_plan(dataclasses.replace(program, values=values))
    assert plan.offset["a"] == plan.offset["r"]
    assert plan.arena == 640 + 640 + 128


def test_in_place_does_not_write_over_the_rest_of_a_sliced_input() -> None:
    """`h` is the front of `x` and dies, but `wide` would reach into the back, still needed"""
    values = (
        Value("x", 1280),
        Value("h", 640),
        Value("back", 640),
        Value("wide", 1280),
        Value("y", 64, output=True),
    )
    steps = (
        Step("x", ("x",), ()),
        Step("slice", ("h",), ("x",)),
        Step("slice2", ("back",), ("x",)),
        Step("wide", ("wide",), ("h",)),
        Step("y", ("y",), ("wide", "back")),
    )
    views = (View("h", "x", 0), View("back", "x", 640))
    offer = (InPlace("wide", "h", "wide"),)
    assert make_plan(Program(values, steps, offer, views)).in_place == ()
    shorter = (*values[:3], Value("wide", 640), values[4])
    plan = make_plan(Program(shorter, steps, offer, views))
    assert plan.in_place == offer
    assert plan.offset["wide"] == plan.offset["x"]


def test_an_input_nobody_reads_still_has_its_own_place() -> None:
    """it is filled before the first step, together with the others"""
    values = (Value("a", 640), Value("b", 640), Value("c", 640), Value("y", 64, output=True))
    plan = make_plan(Program(values, (Step("s", ("y",), ("b",)),)))
    assert sorted(plan.offset[v] for v in "abc") == [0, 640, 1280]


def test_in_place_is_refused_at_an_unaligned_slice() -> None:
    values = (Value("x", 640), Value("h", 320), Value("r", 320), Value("y", 64, output=True))
    steps = (
        Step("x", ("x",), ()),
        Step("slice", ("h",), ("x",)),
        Step("relu", ("r",), ("h",)),
        Step("y", ("y",), ("r",)),
    )
    offer = (InPlace("relu", "h", "r"),)
    for offset, taken in ((0, offer), (64, offer), (100, ())):
        plan = make_plan(Program(values, steps, offer, (View("h", "x", offset),)))
        assert plan.in_place == taken, f"offset {offset}"


def test_a_pinned_output_does_not_grow_for_its_input() -> None:
    values = (Value("a", 1280), Value("y", 640, pinned=True))
    steps = (Step("a", ("a",), ()), Step("half", ("y",), ("a",)))
    assert make_plan(Program(values, steps, (InPlace("half", "a", "y"),))).in_place == ()


def test_every_plan_is_verified(monkeypatch: pytest.MonkeyPatch) -> None:
    def all_at_zero(blocks: Sequence[Block], budget: Budget) -> Packed:
        return Packed((0,) * len(blocks), 10**6, 10**6, optimal=True, pairs=0)

    monkeypatch.setattr(planner, "pack", all_at_zero)
    with pytest.raises(InternalError, match="overlaps another pinned"):
        make_plan(SHAPES["chain"]())


def test_concat_in_place_needs_no_copy_of_its_parts() -> None:
    values = (Value("a", 128), Value("b", 192), Value("c", 320, output=True))
    steps = (Step(1, ("a",), ()), Step(2, ("b",), ()), Step(3, ("c",), ("a", "b")))
    plan = make_plan(Program(values, steps, (), (View("a", "c", 0), View("b", "c", 128))))
    assert plan.arena == 320
    assert plan.offset["b"] == plan.offset["c"] + 128


def test_slices_free_what_nobody_reads() -> None:
    """once `x` is only read through its second half, the first half can be used again"""
    values = (Value("x", 1280), Value("h", 640), Value("t", 640), Value("y", 640, output=True))
    steps = (
        Step("x", ("x",), ()),
        Step("slice", ("h",), ("x",)),
        Step("t", ("t",), ("h",)),
        Step("y", ("y",), ("t", "h")),
    )
    plan = make_plan(Program(values, steps, (), (View("h", "x", 640),)))
    assert plan.offset["t"] == plan.offset["x"]
    assert plan.arena == 3 * 640


def test_the_verifier_sees_a_moved_value() -> None:
    """every value of a tight plan, moved onto its neighbour, must be noticed"""
    program = SHAPES["chain"](4)
    plan = make_plan(program)
    seen = 0
    for step in program.steps:
        moved = {**plan.offset, step.defines[0]: plan.offset[step.uses[0]]}
        with pytest.raises(InternalError):
            verify(program, dataclasses.replace(plan, offset=moved, arena=10**7))
        seen += 1
    assert seen == len(program.steps)


def test_the_verifier_sees_scratch_over_a_live_value() -> None:
    values = (Value("a", 640), Value("b", 640), Value("y", 64, output=True))
    steps = (
        Step("a", ("a",), ()),
        Step("b", ("b",), (), scratch_bytes=128, after=("a",)),
        Step("y", ("y",), ("a", "b")),
    )
    program = Program(values, steps)
    plan = make_plan(program)
    verify(program, plan)
    moved = dataclasses.replace(plan, scratch={"b": plan.offset["a"]})
    with pytest.raises(InternalError, match="`a` is overwritten"):
        verify(program, moved)


def test_the_verifier_sees_an_intermediate_in_a_pinned_value() -> None:
    """`y` is written last, but it is pinned: an intermediate must not lie there before"""
    values = (
        Value("x", 64, pinned=True),
        Value("a", 64),
        Value("b", 64),
        Value("y", 64, pinned=True),
    )
    steps = (Step(1, ("a",), ("x",)), Step(2, ("b",), ("a",)), Step(3, ("y",), ("b",)))
    program = Program(values, steps)
    plan = make_plan(program)
    moved = dataclasses.replace(plan, offset={**plan.offset, "a": plan.offset["y"]})
    with pytest.raises(InternalError, match="overlaps a pinned value"):
        verify(program, moved)


def test_the_verifier_sees_a_wrong_order() -> None:
    program = SHAPES["chain"](4)
    plan = make_plan(program)
    with pytest.raises(InternalError):
        verify(program, dataclasses.replace(plan, order=tuple(reversed(plan.order))))


def test_errors_name_the_culprit() -> None:
    with pytest.raises(InternalError, match=r"step `s` uses `nowhere`"):
        make_plan(Program((Value("a", 4),), (Step("s", ("a",), ("nowhere",)),)))
    with pytest.raises(InternalError, match=r"`a` reaches outside of `b`"):
        make_plan(Program((Value("a", 4), Value("b", 4)), (), (), (View("a", "b", 2),)))


def test_small_tensors_are_packed_closer() -> None:
    assert (natural_align(4), natural_align(255), natural_align(256)) == (16, 16, 64)
    assert assign_offsets([Buffer(i, 4, 0, 0, natural_align(4)) for i in range(8)]).arena == 128
