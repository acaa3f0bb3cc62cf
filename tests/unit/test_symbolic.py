"""Sizes that stay open: polynomials that must agree with integers at every point for which they are."""

from __future__ import annotations

import random
from itertools import product
from typing import Any

import numpy as np
import pytest

from monobloc.errors import ModelError
from monobloc.ir.cover import TooMany, cover
from monobloc.ir.dims import Dim
from monobloc.ir.expr import I64, Num, bounds, floordiv, floormod
from monobloc.ir.graph import Graph
from monobloc.ir.symbolic import (
    Space,
    closed,
    guess,
    is_open,
    lower,
    parse_size,
    surely_less,
    upper,
)
from monobloc.ir.text import parse_graph, print_graph

POINTS = np.array(list(product(range(1, 8), range(2, 6))), np.int64)


def _space() -> Space:
    return Space(("dim0", "dim1"), POINTS)


def _random(rng: random.Random, leaves: list[Any], depth: int) -> Any:
    """An expression of integers or sizes, the same for the same seed."""
    if depth == 0:
        return rng.choice(leaves)
    kind = rng.choice(["+", "-", "*", "//", "%", "neg", "max", "if"])
    a, b = _random(rng, leaves, depth - 1), _random(rng, leaves, depth - 1)
    if kind in ("//", "%"):
        k = rng.choice([1, 2, 3, 8, b])
        if k <= 0:
            return a
        return a // k if kind == "//" else a % k
    return {"+": lambda: a + b, "-": lambda: a - b, "*": lambda: a * b, "neg": lambda: -a, "max": lambda: max(a, b),
            "if": lambda: a if a < b else b + 1}[kind]()


def test_every_expression_agrees_with_integers() -> None:
    """At all points for which it is, also where a question made it so; the text reads back and means the same."""
    for seed in range(400):
        space = _space()
        leaves = [space.symbol("dim0"), space.symbol("dim1"), 1, 2, 5, 12]
        found = _random(random.Random(seed), leaves, 3)
        for point in space.points:
            plain = [int(point[0]), int(point[1]), 1, 2, 5, 12]
            want = _random(random.Random(seed), plain, 3)
            at = Space((), point[None, :0], fixed={"dim0": int(point[0]), "dim1": int(point[1])})
            assert parse_size(str(found), at) == want, (seed, point, str(found))
        values = [_random(random.Random(seed), [int(a), int(b), 1, 2, 5, 12], 3) for a, b in space.points]
        assert (lower(found), upper(found)) == (min(values), max(values)), seed


def test_questions_are_decided_or_guarded() -> None:
    space = _space()
    n, m = space.symbol("dim0"), space.symbol("dim1")
    assert n > 0 and n * m >= n and n + 1 != n and not n > 7 and m != 1
    assert space.conditions == []
    assert n != 3 or n == 3
    assert len(space.conditions) == 1 and len(space.points) < len(POINTS)
    before = list(space.conditions)
    assert not surely_less(n, m) and guess(n) in range(1, 8) and closed((n, m, 4))[2] == 4
    assert space.conditions == before, "these ask nothing"
    assert list(range(n)) == list(range(guess(n))) and not is_open(int(n))
    assert set(space.points[:, 0]) == {guess(n)}, "whoever takes an integer is told just that one"


def test_cover_leaves_no_point_out() -> None:
    seen: dict[tuple[int, int], int] = {}

    def make(space: Space) -> str:
        n, m = space.symbol("dim0"), space.symbol("dim1")
        return "one" if n == 1 else "wide" if n * m > 12 else "other"

    for made, space in cover(("dim0", "dim1"), POINTS, make, 9):
        for row in range(len(space.points)):
            at = {**space.fixed, **dict(zip(space.symbols, map(int, space.points[row]), strict=True))}
            n, m = at["dim0"], at["dim1"]
            assert made == ("one" if n == 1 else "wide" if n * m > 12 else "other")
            seen[n, m] = seen.get((n, m), 0) + 1
    assert seen == {(int(n), int(m)): 1 for n, m in POINTS}
    with pytest.raises(TooMany) as e:
        cover(("dim0", "dim1"), POINTS, lambda s: list(range(s.symbol("dim0"))), 3)
    assert any("dim0" in c for c in e.value.conditions)


def test_spaces_do_not_mix() -> None:
    """Equal texts of two spaces are two numbers: what is remembered of one must not answer for the other."""
    a, b = _space(), _space()
    one, other = Num(a.symbol("dim0"), I64), Num(b.symbol("dim0"), I64)
    assert one != other and one == Num(a.symbol("dim0"), I64)
    assert bounds(other)[1].space is b  # type: ignore[attr-defined]


def test_index_arithmetic_of_open_reshapes_melts() -> None:
    from monobloc.ir.expr import Var

    space = _space()
    n, m = space.symbol("dim0"), space.symbol("dim1")
    i, j = Var("i", n), Var("j", m)
    flat = i * m + j
    assert floordiv(flat, m) is i and floormod(flat, m) is j and space.conditions == []


def test_text_keeps_sizes_open() -> None:
    g = Graph("g")
    g.dims, g.at = (Dim("n", (1, 2, 3, 4)), Dim("t", (1, 5))), {"t": 5}
    text = ('graph "g" {\n  dim "n" "1..4" = open\n  dim "t" "1,5" = 5\n  when "(dim0-1) != 0"\n'
            '  in %x : f32[(dim0),5,(dim0*3+1)]\n'
            '  %y : f32[(dim0*15+5)] = Reshape(%x) {shape=[(dim0*15+5)]} "r"\n  out "y" = %y\n}')
    again = parse_graph(text)
    assert print_graph(again) == text
    assert again.at == {"t": 5} and again.space is not None and again.space.points[:, 0].tolist() == [2, 3, 4]
    with pytest.raises(ModelError, match="no size"):
        parse_graph(text.replace("dim0*3", "dim7*3"))
