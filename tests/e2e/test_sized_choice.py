"""Compress and Unique of lists of which data decide how long they are, against onnxruntime."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from sized_models import RNG, Model, agree, f32, ints


def filtered() -> Model:
    """One filter after another, a condition that is shorter, and rows of a table by a list that was filtered"""
    return Model("""g (float[7] x, bool[7] a, bool[7] b, float[7,3] rows) => (
        float[N] y, float[M,3] z, float[L] s, float[K] w) {
        p = Compress<axis = 0>(x, a)  keep = Compress<axis = 0>(b, a)  y = Compress(p, keep)
        some = Compress<axis = 0>(rows, a)  z = Compress<axis = 0>(some, keep)
        s = Compress<axis = -1>(x, keep)  flat = Compress(rows, keep)  w = Exp(flat) }""",
                 [{"x": f32(7), "a": RNG.random(7) < p, "b": RNG.random(7) < q, "rows": f32(7, 3)}
                  for p, q in ((0.5, 0.5), (1, 0.5), (0.7, 1), (0, 0.5), (0.5, 0), (1, 1))])


def along_columns() -> Model:
    """A fixed condition along one axis of what is as long as data say along the other, and along that one"""
    return Model("""g (float[6,4] x, bool[6] a, bool[4] c, bool[5] d) => (float[N,M] y, float[K,4] z) {
        p = Compress<axis = 0>(x, a)  y = Compress<axis = 1>(p, c)  n = Compress<axis = 0>(d, d)
        z = Compress<axis = 0>(p, n) }""",
                 [{"x": f32(6, 4), "a": np.arange(6) < k, "c": RNG.random(4) < 0.5, "d": RNG.random(5) < k / 6}
                  for k in (6, 5, 3)])


def distinct() -> Model:
    """Every output, sorted and as they come; of integers, of floats, of nothing"""
    return Model("""g (int64[9] x, bool[9] a, float[9] f) => (
        int64[N] y, int64[N] first, int64[M] back, int64[N] times, int64[N] u, int64[N] ut, float[K] z, float[L] g) {
        p = Compress(x, a)  q = Compress(f, a)
        y, first, back, times = Unique(p)  u, ui, ub, ut = Unique<sorted = 0>(p)  z = Unique<axis = 0>(q)
        g = Neg(q) }""",
                 [{"x": RNG.integers(-2, 3, 9), "a": RNG.random(9) < p, "f": RNG.integers(0, 4, 9).astype(np.float32)}
                  for p in (0.5, 0.6, 0.9, 1, 0.2)] +
                 [{"x": ints(*[3] * 9), "a": np.arange(9) < k, "f": f32(9)} for k in (1, 2, 9)])


CASES: list[Callable[[], Model]] = [filtered, along_columns, distinct]


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.__name__)
def test_what_is_not_there_is_not_chosen(case: Callable[[], Model], tmp_path: Path) -> None:
    agree(case(), tmp_path)
