"""What goes round loops in a size that data decide, against onnxruntime."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from border import build
from sized_models import OPTIONS, Model, agree, f32, ints

from monobloc.errors import MonoblocError
from monobloc.frontend.importer import load_onnx
from monobloc.frontend.importing import Choices


def tokens() -> Model:
    """A list that grows by one, of which each iteration reads the last and the whole"""
    return Model("""g (int64 n, float[2,1] x) => (float[2,N] y, float[2] s, int64[2] k) {
        y = Loop(n, , x) <body = b (int64 i, bool c, float[2,a] p) => (bool d, float[2,b] q) {
            d = Identity(c)  one = Constant<value_ints = [-1]>()  far = Constant<value_ints = [9223372036854775807]>()
            ax = Constant<value_ints = [1]>()  last = Slice(p, one, far, ax)  mean = ReduceMean<axes = [1]>(p)
            more = Tanh(last)  next = Add(more, mean)  q = Concat<axis = 1>(p, next) }>
        s = ReduceSum<keepdims = 0>(y, ax1)  k = Shape(y) }""",
                 [{"n": np.array(n), "x": f32(2, 1)} for n in (0, 1, 3, 5)], {"n": (5,)}, ax1=ints(1))


def shorter() -> Model:
    return Model("""g (int64 n, float[6] x) => (float[N] y) {
        y = Loop(n, , x) <body = b (int64 i, bool c, float[a] p) => (bool d, float[b] q) {
            d = Identity(c)  z = Constant<value_ints = [1]>()  far = Constant<value_ints = [9223372036854775807]>()
            m = Mul(p, p)  q = Slice(m, z, far) }> }""", [{"n": np.array(n), "x": f32(6)} for n in (0, 1, 3, 7)],
                 {"n": (7,)})


def as_long_as_it_was() -> Model:
    return Model("""g (float[3,4] x, int64 n) => (int64[M,2] y, float[r] t) {
        nz = NonZero(x)  t0 = Transpose<perm = [1, 0]>(nz)
        y = Loop(n, , t0) <body = b (int64 i, bool c, int64[a,2] p) => (bool d, int64[b,2] q) {
            d = Identity(c)  q = Neg(p) }>
        tf = Cast<to = 1>(y)  t = ReduceSum<keepdims = 0>(tf, one) }""",
                 [{"n": np.array(n), "x": (f32(3, 4) > 0).astype(np.float32)} for n in (0, 1, 2)], one=ints(1))


def until_it_is_large() -> Model:
    """A constant bound of iterations, and an end that data decide"""
    return Model("""g (float[1] x) => (float[N] y) {
        y = Loop(m, , x) <body = b (int64 i, bool c, float[a] p) => (bool d, float[b] q) {
            z = Constant<value_ints = [-1]>()  far = Constant<value_ints = [9223372036854775807]>()
            z0 = Constant<value_ints = [0]>()  l = Slice(p, z, far)  l2 = Add(l, l)  q = Concat<axis = 0>(p, l2)
            lim = Constant<value = float {10.0}>()  e = Less(l2, lim)  d = Squeeze(e, z0) }> }""",
                 [{"x": np.float32([v])} for v in (1, 3, 20)], m=np.int64(4000))


def branches() -> Model:
    """Of an If, which differ along two axes, one of them by data"""
    return Model("""g (bool c, float[3,4] x, int64[1] n) => (float[M,N] y, float[N] s) {
        y = If(c) <then_branch = a () => (float[3,4] p) { p = Exp(x) },
                   else_branch = b () => (float[2,k] q) {
                       t = Concat<axis = 1>(x, x)  end = Concat<axis = 0>(two, n)  q = Slice(t, zz, end, ax) }>
        s = ReduceSum<keepdims = 0>(y, zero) }""",
                 [{"c": np.array(c), "x": f32(3, 4), "n": ints(n)} for c, n in ((True, 1), (False, 7), (False, 2))],
                 zz=ints(0, 0), ax=ints(0, 1), two=ints(2), zero=ints(0))


CASES: list[Callable[[], Model]] = [tokens, shorter, as_long_as_it_was, until_it_is_large, branches]


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.__name__)
def test_loops_carry_what_grows_and_shrinks(case: Callable[[], Model], tmp_path: Path) -> None:
    agree(case(), tmp_path)


def test_more_iterations_than_there_is_room_for_are_an_error(tmp_path: Path) -> None:
    m = tokens()
    linked = build({"m": m.proto}, tmp_path, replace(OPTIONS, max_values={"n": (2,)}))
    with pytest.raises(MonoblocError, match="size"):
        linked(n=np.array(3), x=f32(2, 1))


def test_what_grows_without_a_bound_is_told() -> None:
    told = r"f32\[2,1\] before an iteration and f32\[2,2\] .*\n.*--max-trips '#0\(Loop\)=N'"
    with pytest.raises(MonoblocError, match=told):
        load_onnx(tokens().proto)


def test_what_doubles_is_refused() -> None:
    m = Model("""g (int64 n, float[1] x) => (float[N] y) {
        y = Loop(n, , x) <body = b (int64 i, bool c, float[a] p) => (bool d, float[b] q) {
            d = Identity(c)  q = Concat<axis = 0>(p, p) }> }""", [], {"n": (5,)})
    with pytest.raises(MonoblocError, match="the carried value 0 grows by more from one iteration to the next"):
        load_onnx(m.proto, Choices(max_values=m.most))
