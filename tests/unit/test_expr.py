"""Expressions: what is simplified while it is made means the same, and bounds hold."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from monobloc.ir.expr import (
    BOOL,
    I64,
    Expr,
    Load,
    Num,
    Op,
    Reduce,
    Var,
    all_of,
    bounds,
    call,
    compare,
    free_vars,
    idx,
    linear,
    reduce,
    select,
    substitute,
    walk,
)
from monobloc.ir.types import DType

A, B, C = Var("i", 4), Var("j", 6), Var("k", 5)
Plain = Callable[[int, int, int], int]  # the same arithmetic in Python, not simplified
POINTS = [(i, j, k) for i in range(4) for j in range(6) for k in range(5)]


def leaf() -> st.SearchStrategy[tuple[Expr, Plain]]:
    return st.one_of(
        st.just((A, lambda i, j, k: i)),
        st.just((B, lambda i, j, k: j)),
        st.just((C, lambda i, j, k: k)),
        st.integers(-7, 7).map(lambda n: (idx(n), lambda i, j, k: n)),
    )


def grown(inner: st.SearchStrategy[tuple[Expr, Plain]]) -> st.SearchStrategy[tuple[Expr, Plain]]:
    def both(ab: tuple, make: Callable, plain: Callable) -> tuple[Expr, Plain]:
        (a, f), (b, g) = ab
        return make(a, b), lambda i, j, k: plain(f(i, j, k), g(i, j, k))

    pair, number = st.tuples(inner, inner), st.integers(1, 12)
    return st.one_of(
        pair.map(lambda ab: both(ab, lambda a, b: a + b, lambda x, y: x + y)),
        pair.map(lambda ab: both(ab, lambda a, b: a - b, lambda x, y: x - y)),
        pair.map(lambda ab: both(ab, lambda a, b: call("imin", a, b), min)),
        pair.map(lambda ab: both(ab, lambda a, b: call("imax", a, b), max)),
        pair.map(lambda ab: both(ab, lambda a, b: select(a.lt(b), a + 1, b), lambda x, y: x + 1 if x < y else y)),
        st.tuples(inner, st.integers(-5, 5)).map(
            lambda t: (t[0][0] * t[1], lambda i, j, k: t[0][1](i, j, k) * t[1])),
        st.tuples(inner, number).map(lambda t: (t[0][0] // t[1], lambda i, j, k: t[0][1](i, j, k) // t[1])),
        st.tuples(inner, number).map(lambda t: (t[0][0] % t[1], lambda i, j, k: t[0][1](i, j, k) % t[1])),
    )  # fmt: skip


def evaluate(e: Expr, at: dict[Expr, int]) -> int:
    """Straight by the definition of each operation."""
    if isinstance(e, Num):
        return int(e.value)
    if isinstance(e, Var):
        return at[e]
    assert isinstance(e, Op)
    if e.fn == "select":
        return evaluate(e.args[1] if evaluate(e.args[0], at) else e.args[2], at)
    args = [evaluate(a, at) for a in e.args]
    return {
        "add": lambda: args[0] + args[1], "mul": lambda: args[0] * args[1], "floordiv": lambda: args[0] // args[1],
        "floormod": lambda: args[0] % args[1], "imin": lambda: min(args), "imax": lambda: max(args),
        "lt": lambda: args[0] < args[1],
    }[e.fn]()  # fmt: skip


@settings(max_examples=400, deadline=None, derandomize=True)
@given(st.recursive(leaf(), grown, max_leaves=12))
def test_simplified_means_the_same(made: tuple[Expr, Plain]) -> None:
    e, plain = made
    low, high = bounds(e)
    for i, j, k in POINTS:
        want = plain(i, j, k)
        assert evaluate(e, {A: i, B: j, C: k}) == want
        assert low <= want <= high, f"{want} outside of {low}..{high}"


@settings(max_examples=100, deadline=None, derandomize=True)
@given(st.recursive(leaf(), grown, max_leaves=8), st.recursive(leaf(), grown, max_leaves=4))
def test_substitution_means_the_same(made: tuple[Expr, Plain], put: tuple[Expr, Plain]) -> None:
    """An index replaced by an expression that stays within its range."""
    e, plain = made
    inner, f = put[0] % 4, lambda i, j, k: put[1](i, j, k) % 4
    new = substitute(e, {A: inner})
    for i, j, k in POINTS[::7]:
        assert evaluate(new, {A: i, B: j, C: k}) == plain(f(i, j, k), j, k)


def test_index_arithmetic_melts() -> None:
    """Flattened and taken apart again: the indices themselves."""
    flat = (A * 6 + B) * 5 + C
    assert flat // 30 == A and flat // 5 % 6 == B and flat % 5 == C
    assert flat // 5 == A * 6 + B
    zero = Num(0, I64)
    assert (A * 6 + B) % 6 == B and A % 4 == A and zero == B // 6
    assert (A * 4 + 2) // 2 == A * 2 + 1
    assert zero == A - A and linear(A * 3 - A * 3 + 7) == ({}, 7)


def test_comparisons_are_decided_by_ranges() -> None:
    assert A.lt(4) == Num(True, BOOL) and A.ge(4) == Num(False, BOOL) and B.le(-1) == Num(False, BOOL)
    assert isinstance(A.lt(3), Op)
    assert all_of([A.lt(4), B.lt(6)]) == Num(True, BOOL)
    assert all_of([A.lt(4), B.lt(3)]) == B.lt(3)
    assert compare("eq", idx(2), idx(2)) == Num(True, BOOL)
    assert select(A.lt(4), B, C) is B


def test_literals_are_told_apart() -> None:
    f = DType.F32
    nan = float("nan")
    assert Num(0.0, f) != Num(-0.0, f) and Num(1, I64) != Num(True, BOOL) and Num(nan, f) == Num(nan, f)


@pytest.mark.parametrize("extents", [(1,), (3, 1), (1, 1)])
def test_folds_have_no_loops_of_one_turn(extents: tuple[int, ...]) -> None:
    e = reduce("sum", extents, lambda *r: Load("x", r, DType.F32))
    loops = [x for x in walk(e) if isinstance(x, Reduce)]
    assert [len(x.vars) for x in loops] == ([1] if 3 in extents else [])


def test_free_variables_of_a_fold_are_those_outside() -> None:
    e = reduce("max", (7,), lambda r: Load("x", (A, r), DType.F32), guard=lambda r: (r + B).lt(9))
    assert free_vars(e) == {A, B}
