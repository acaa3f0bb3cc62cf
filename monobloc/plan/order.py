"""The order of steps with the lowest peak of live bytes.

Finding it is NP-hard, but graphs of models are narrow: split where every step is either above or
below (nothing can cross there), solve each part exactly if the state space is small, by beam
search and greedy schedules if not, then solve windows around the peak exactly until none helps.
Work goes to the part with the highest peak only: the others do not decide anything.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from monobloc.plan.atoms import Atoms, resolve
from monobloc.plan.model import USUAL, Budget, Program
from monobloc.plan.schedule import Schedule, schedule_of
from monobloc.plan.search import Found, beam, best_first, greedy

EXACT_STEPS = 30
EXACT_EVALUATIONS = 4_000_000
WINDOWS = (12, 24)  # steps on each side of the peak


@dataclass(frozen=True)
class Order:
    """Positions in `Program.steps`; `proven` if no order has a lower peak."""

    order: tuple[int, ...]
    peak: int
    proven: bool


def order_steps(program: Program, budget: Budget = USUAL) -> Order:
    """An order never worse than the given one, and equal to it if that cannot be improved."""
    return order_atoms(resolve(program), budget)


def order_atoms(atoms: Atoms, budget: Budget) -> Order:
    schedule = schedule_of(atoms)
    found = best_order(schedule, budget.order_evaluations)
    return Order(found.order, found.peak, found.proven)


def best_order(schedule: Schedule, evaluations: int) -> Found:
    """The best order of a schedule for which 0, 1, 2, ... is valid."""
    parts = _split(schedule)
    level = max((p.schedule.floor() for p in parts), default=schedule.base)
    done = [_cheap(p.schedule, level) for p in parts]
    spent = [False] * len(parts)
    while parts:
        worst = max(range(len(parts)), key=lambda i: (done[i].peak, -i))
        if done[worst].peak <= level or spent[worst]:
            break
        spent[worst] = True
        done[worst] = _solve(parts[worst].schedule, level, done[worst], evaluations)
        if done[worst].proven:
            level = max(level, done[worst].peak)
    order = tuple(p.steps[s] for p, f in zip(parts, done, strict=True) for s in f.order)
    peak = max((f.peak for f in done), default=schedule.base)
    return Found(order, peak, proven=peak <= level)


@dataclass(frozen=True)
class _Part:
    steps: tuple[int, ...]
    schedule: Schedule


def _split(schedule: Schedule) -> list[_Part]:
    """Cut after each step that is above or below every other one; what crosses is fixed there."""
    above, below = schedule.closures()
    count = len(schedule)
    parts: list[_Part] = []
    done, live = 0, schedule.base
    rest = list(range(count))
    for cut in range(count):
        if above[cut].bit_count() + below[cut].bit_count() + 1 < count and cut != count - 1:
            continue
        inside = above[cut] | 1 << cut if cut != count - 1 else (1 << count) - 1
        steps = [s for s in rest if inside >> s & 1]
        rest = [s for s in rest if not inside >> s & 1]
        if not steps:
            continue
        parts.append(_Part(tuple(steps), schedule.part(steps, done, live)))
        for step in steps:
            _, live = schedule.run(step, done, live)
            done |= 1 << step
    return parts


def _cheap(schedule: Schedule, level: int) -> Found:
    """the given order, or a greedy one if that is better"""
    given = tuple(range(len(schedule)))
    peak = schedule.peak(given)
    best = Found(given, peak, proven=peak <= level)
    for weight in range(4):
        if best.proven:
            break
        other = greedy(schedule, level, weight)
        if other.peak < best.peak:
            best = other
    return best


def _solve(schedule: Schedule, level: int, known: Found, evaluations: int) -> Found:
    found = best_first(schedule, level, known, evaluations // 3)
    if found.proven:
        return found
    steps = len(schedule)
    ready = max(2, _average_ready(schedule, found.order))
    width = max(2, min(400, evaluations // (3 * steps * ready)))
    found = beam(schedule, level, found, width, evaluations // 3)
    return _windows(schedule, level, found, evaluations // 3)


def _average_ready(schedule: Schedule, order: tuple[int, ...]) -> int:
    """how many steps are ready at a time"""
    position = {s: i for i, s in enumerate(order)}
    waits = 0
    for step in order:
        mask, last = schedule.before[step], -1
        while mask:
            low = mask & -mask
            last = max(last, position[low.bit_length() - 1])
            mask ^= low
        waits += position[step] - last
    return waits // max(1, len(order))


def _windows(schedule: Schedule, level: int, known: Found, evaluations: int) -> Found:
    """Re-order around the peak, the rest held fixed, until no window lowers it."""
    order, each = list(known.order), max(200, evaluations // 12)
    rounds = 12
    while rounds > 0:
        rounds -= 1
        highs = schedule.highs(order)
        peak = max(highs)
        if peak <= level:
            return Found(tuple(order), peak, proven=True)
        better = _lower_one(schedule, level, order, highs.index(peak), each)
        if better is None:
            break
        order = better
    return Found(tuple(order), schedule.peak(order), proven=False)


def _lower_one(
    schedule: Schedule, level: int, order: list[int], at: int, evaluations: int
) -> list[int] | None:
    """the order with one window around position `at` improved, if any window helps"""
    for reach in WINDOWS:
        lo, hi = max(0, at - reach), min(len(order), at + reach + 1)
        done, live = 0, schedule.base
        for step in order[:lo]:
            _, live = schedule.run(step, done, live)
            done |= 1 << step
        steps = order[lo:hi]
        part = schedule.part(steps, done, live)
        given = tuple(range(len(part)))
        known = Found(given, part.peak(given), proven=False)
        found = best_first(part, max(level, part.floor()), known, evaluations)
        if found.peak < known.peak:
            return order[:lo] + [steps[s] for s in found.order] + order[hi:]
    return None


def lower_bound_over_orders(program: Program) -> Order:
    """The lowest peak any order has, proven by search up to about thirty steps; for reports."""
    schedule = schedule_of(resolve(program))
    small = len(schedule) <= EXACT_STEPS
    found = best_order(schedule, EXACT_EVALUATIONS if small else USUAL.order_evaluations)
    return Order(found.order, found.peak, found.proven)


def search_peak(program: Program, seconds: float) -> Order:
    """The lowest peak found within a time limit; for reports and benchmarks, never for builds."""
    schedule = schedule_of(resolve(program))
    end = time.monotonic() + seconds
    evaluations = 50_000
    found = best_order(schedule, evaluations)
    last = 0.0
    while not found.proven and time.monotonic() + 2 * last < end:
        evaluations *= 2
        began = time.monotonic()
        other = best_order(schedule, evaluations)
        last = time.monotonic() - began
        if other.peak < found.peak or other.proven:
            found = other
    return Order(found.order, found.peak, found.proven)
