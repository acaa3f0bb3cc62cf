"""Search over orders: best-first (exact) and beam, on states that are sets of finished steps.

Both lean on one fact that keeps the number of states small. A ready step that neither lifts the
peak above a level already unavoidable nor leaves more memory alive than before can run at once:
moving it to the front of any completion frees its inputs no later and raises nothing. (Every later
state then holds the same atoms or fewer, and every later in-place choice is still open.)
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from heapq import nsmallest
from typing import NamedTuple

from monobloc.plan.schedule import Schedule

BRANCHES = 16  # most steps that beam search tries from one state


class Trail(NamedTuple):
    """An order as a linked list, last step first: sharing makes a state cheap to extend."""

    step: int
    rest: Trail | None


class Ready(NamedTuple):
    """A step that could run now: what it adds to the live bytes meanwhile, and afterwards."""

    step: int
    rise: int
    net: int


class State(NamedTuple):
    done: int
    live: int
    peak: int
    ready: tuple[Ready, ...]
    trail: Trail | None


@dataclass
class Meter:
    """Counts evaluated steps, so that a search ends at the same place on every machine."""

    left: int

    def spend(self, amount: int) -> None:
        self.left -= amount


@dataclass(frozen=True)
class Found:
    """An order and its peak; `proven` if no order has a lower peak (or one below `floor`)."""

    order: tuple[int, ...]
    peak: int
    proven: bool


def start(schedule: Schedule, level: int, meter: Meter) -> State:
    ready = tuple(_ready(schedule, s, 0) for s, mask in enumerate(schedule.before) if not mask)
    return settle(schedule, State(0, schedule.base, schedule.base, ready, None), level, meter)


def _ready(schedule: Schedule, step: int, done: int) -> Ready:
    return Ready(step, *schedule.run(step, done, 0))


def advance(schedule: Schedule, state: State, chosen: Ready) -> State:
    """The state after a step. Only the last reader left of an atom changes its cost."""
    step, rise, net = chosen
    done = state.done | 1 << step
    left = ~done
    changed = {}
    for atom in schedule.uses[step]:
        readers = schedule.users[atom] & left
        if readers and not readers & (readers - 1):
            changed[readers.bit_length() - 1] = True
    ready = [r for r in state.ready if r is not chosen]
    if changed:
        ready = [_ready(schedule, r.step, done) if r.step in changed else r for r in ready]
    before = schedule.before
    for after in schedule.after[step]:
        if not before[after] & left:
            ready.append(_ready(schedule, after, done))
    peak = max(state.peak, state.live + rise)
    return State(done, state.live + net, peak, tuple(ready), Trail(step, state.trail))


def settle(schedule: Schedule, state: State, level: int, meter: Meter) -> State:
    """Run every step that costs nothing, given that a peak of `level` is unavoidable."""
    while True:
        meter.spend(1 + len(state.ready) // 16)
        room = max(level, state.peak) - state.live
        free = next((r for r in state.ready if r.net <= 0 and r.rise <= room), None)
        if free is None:
            return state
        state = advance(schedule, state, free)


def unroll(trail: Trail | None) -> tuple[int, ...]:
    order = []
    while trail is not None:
        order.append(trail.step)
        trail = trail.rest
    return tuple(reversed(order))


def best_first(schedule: Schedule, level: int, known: Found, budget: int) -> Found:
    """The order of lowest peak, exact if the budget of evaluations suffices.

    States leave the heap by peak, so the first complete one is optimal; among equal peaks the
    deepest comes first, which finds an order quickly wherever there is slack. A peak of at most
    `level` is as good as any other.
    """
    if known.peak <= level:
        return Found(known.order, known.peak, proven=True)
    full = (1 << len(schedule)) - 1
    meter = Meter(budget)
    first = start(schedule, level, meter)
    heap: list[tuple[int, int, int, int, State]] = [(max(first.peak, level), 0, 0, 0, first)]
    best = {first.done: heap[0][0]}  # lowest peak with which each state was reached
    count = 0
    while heap:
        peak, _, _, _, state = heapq.heappop(heap)
        if state.done == full:
            return Found(unroll(state.trail), state.peak, proven=True)
        if peak > best[state.done]:
            continue
        for choice in state.ready:
            if state.live + choice.rise >= known.peak:
                continue
            child = settle(schedule, advance(schedule, state, choice), level, meter)
            key = max(child.peak, level)
            if key >= known.peak or key >= best.get(child.done, known.peak):
                continue
            count += 1
            best[child.done] = key
            heapq.heappush(heap, (key, -child.done.bit_count(), child.live, count, child))
        if meter.left <= 0:
            return known
    return Found(known.order, known.peak, proven=True)


def beam(schedule: Schedule, level: int, known: Found, width: int, budget: int) -> Found:
    """The best order found when only `width` states survive at each number of finished steps."""
    full = (1 << len(schedule)) - 1
    meter = Meter(budget)
    first = start(schedule, level, meter)
    levels: dict[int, dict[int, State]] = {first.done.bit_count(): {first.done: first}}
    branches = BRANCHES
    for depth in range(len(schedule)):
        for state in sorted(levels.pop(depth, {}).values(), key=_promise)[:width]:
            for choice in _choices(state, branches):
                if state.live + choice.rise >= known.peak:
                    continue
                child = settle(schedule, advance(schedule, state, choice), level, meter)
                bucket = levels.setdefault(child.done.bit_count(), {})
                other = bucket.get(child.done)
                if other is None or child.peak < other.peak:
                    bucket[child.done] = child
        if meter.left <= 0:
            width = branches = 1  # finish this descent, widen nothing
    end = levels.get(len(schedule), {}).get(full)
    if end is None or end.peak >= known.peak:
        return known
    return Found(unroll(end.trail), end.peak, proven=end.peak <= level)


def _promise(state: State) -> tuple[int, int, int]:
    return state.peak, state.live, state.done


def _choices(state: State, most: int) -> Sequence[Ready]:
    """all that is ready, or the most promising if that is too much"""
    if len(state.ready) <= most:
        return state.ready
    room = state.peak - state.live
    return nsmallest(most, state.ready, key=lambda r: (max(r.rise, room), r.net, r.step))


def greedy(schedule: Schedule, level: int, rule: int) -> Found:
    """List scheduling: free steps first, then the one that a rule prefers.

    Rule 0 looks at what stays alive, 1 at the peak while running, 2 prefers the step that became
    ready last (depth first), 3 the one that became ready first (breadth first).
    """
    meter = Meter(0)
    state = start(schedule, level, meter)
    while state.ready:
        if rule == 0:
            choice = min(state.ready, key=lambda r: (r.net, r.rise, r.step))
        elif rule == 1:
            choice = _choices(state, 1)[0]
        else:
            choice = state.ready[-1 if rule == 2 else 0]
        state = settle(schedule, advance(schedule, state, choice), level, meter)
    return Found(unroll(state.trail), state.peak, proven=state.peak <= level)
