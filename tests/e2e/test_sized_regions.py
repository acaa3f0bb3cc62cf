"""Boxes of which data decide how many there are, and writes at as many places: against onnxruntime."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from border import build
from control_models import text
from sized_models import OPTIONS, RNG, Feeds, Model, agree, f32, ints, same, want

from monobloc.errors import MonoblocError


def corners(count: int, reach: float = 6) -> np.ndarray:
    low = np.abs(f32(count, 2)) * reach / 2
    return np.concatenate([low, low + np.abs(f32(count, 2)) * reach / 2 + 0.1], 1).astype(np.float32)


def detections() -> Model:
    """What a detector does last: those that are sure enough, then one of those that overlap"""
    def feeds(shift: float) -> Feeds:
        return {"boxes": corners(14), "scores": (RNG.uniform(size=14) + shift).astype(np.float32)}

    return Model("""g (float[14,4] boxes, float[14] scores) => (float[K,4] b, float[K] s, int64[K] at) {
        sure = Greater(scores, half)  where = NonZero(sure)  i = Squeeze(where, zero)
        some = Gather<axis = 0>(boxes, i)  theirs = Gather<axis = 0>(scores, i)
        b3 = Unsqueeze(some, zero)  s3 = Unsqueeze(theirs, front)
        kept = NonMaxSuppression(b3, s3, limit, overlap)  at = Gather<axis = 1>(kept, two)
        b = Gather<axis = 0>(some, at)  s = Gather<axis = 0>(theirs, at) }""",
                 [feeds(s) for s in (0, 0.1, -0.3, 1, -1)], half=np.float32(0.5), zero=ints(0), front=ints(0, 1),
                 limit=ints(10), overlap=np.float32([0.4]), two=np.int64(2))


def suppressed() -> Model:
    """Several classes, a least score, and scores that are infinite"""
    rows = f32(1, 2, 9)
    rows[0, 0, 1], rows[0, 1, 2] = -np.inf, np.inf
    return Model("""g (float[1,9,4] boxes, float[1,2,9] scores, int64[1] n) => (int64[K,3] y, int64[M,3] z) {
        b = Slice(boxes, zero, n, one)  s = Slice(scores, zero, n, two)
        y = NonMaxSuppression(b, s, limit, overlap)  z = NonMaxSuppression(b, s, two, overlap, least) }""",
                 [{"boxes": corners(9)[None], "scores": rows, "n": ints(n)} for n in (9, 5, 1, 2)],
                 zero=ints(0), one=ints(1), two=ints(2), limit=ints(9), overlap=np.float32([0.3]),
                 least=np.float32([0.1]))


def regions() -> Model:
    return Model("""g (float[2,3,9,8] x, float[6,4] rois, int64[6] at, float[6,5] five, int64[1] n)
                    => (float[K,3,2,3] y, float[K,3,2,2] z, float[K,3,2,2] p) {
        r = Slice(rois, zero, n)  i = Slice(at, zero, n)  f = Slice(five, zero, n)
        y = RoiAlign<output_height = 2, output_width = 3, sampling_ratio = 2>(x, r, i)
        z = RoiAlign<output_height = 2, output_width = 2, spatial_scale = 0.5>(x, r, i)
        p = MaxRoiPool<pooled_shape = [2, 2]>(x, f) }""",
                 [{"x": f32(2, 3, 9, 8), "rois": corners(6), "at": RNG.integers(0, 2, 6), "n": ints(n),
                   "five": np.concatenate([RNG.integers(0, 2, (6, 1)).astype(np.float32), corners(6)], 1)}
                  for n in (6, 4, 1)], zero=ints(0))


def scattered() -> Model:
    """Writes along an axis and by tuples, at places counted from either end"""
    outs = {"a": "[5,3]", "b": "[5,3]", "c": "[5,3]", "d": "[5,3]", "e": "[5,3]"}
    return Model(f"""g (float[5,3] x, int64[4,3] at, float[4,3] v, int64[4,1] rows, int64[4,2] pairs, float[4] w,
                       int64[1] n) => ({", ".join(f"float{s} {k}" for k, s in outs.items())}) {{
        i = Slice(at, zero, n)  u = Slice(v, zero, n)  r = Slice(rows, zero, n)  p = Slice(pairs, zero, n)
        s = Slice(w, zero, n)
        a = ScatterElements<reduction = "add">(x, i, u)  b = ScatterElements<reduction = "max">(x, i, u)
        c = ScatterND<reduction = "add">(x, r, u)  d = ScatterND(x, p, s)
        it = Slice(at, zero, n, one)  ut = Slice(v, zero, n, one)  ic = Clip(it, low, high)
        e = ScatterElements<axis = 1, reduction = "mul">(x, ic, ut) }}""",
                 [{"x": f32(5, 3), "at": RNG.integers(-5, 5, (4, 3)), "v": f32(4, 3), "n": ints(n), "w": f32(4),
                   "rows": RNG.integers(-5, 5, (4, 1)), "pairs": np.array([[0, 1], [-1, 2], [3, -3], [2, 0]])}
                  for n in (3, 0, 1, 2)], zero=ints(0), one=ints(1), low=np.int64(-3), high=np.int64(2))


def looked_up() -> Model:
    """In each row or column, of rows that data decide"""
    return Model("""g (float[5,4] x, int64[5,1] c, int64[3,4] r, int64[3,2] p, int64[5,1] q, int64[1] n) => (
                       float[K,1] y, float[3,4] z, float[3] a, float[K,4] b, float[3,4] d, float[K,4] e) {
        s = Slice(x, zero, n)  i = Slice(c, zero, n)  y = GatherElements<axis = 1>(s, i)
        z = GatherElements<axis = 0>(s, r)  t = Slice(q, zero, n)
        a = GatherND(s, p)  b = GatherND(s, t)  p0 = Slice(p, zero, one, one)  d = GatherND(s, p0)
        e = GatherND(x, t) }""",
                 [{"x": f32(5, 4), "c": RNG.integers(-4, 4, (5, 1)), "r": RNG.integers(-n, n, (3, 4)), "n": ints(n),
                   "p": np.stack([RNG.integers(-n, n, 3), RNG.integers(-4, 4, 3)], 1),
                   "q": RNG.integers(-n, n, (5, 1))}
                  for n in (5, 2, 1)], zero=ints(0), one=ints(1))


def summed() -> Model:
    """By letters: of axes that data size, together or with others"""
    return Model("""g (float[5,4] x, float[5,4] w, float[4,3] m, int64[1] n) => (
                       float[4] a, float[K,L] b, float[4] c, float[K,3] d, float[K,4] e, float f, float[K] h) {
        s = Slice(x, zero, n)  t = Slice(w, zero, n)
        a = Einsum<equation = "ij->j">(s)  b = Einsum<equation = "ij,kj->ik">(s, t)
        c = Einsum<equation = "ij,ij->j">(s, t)  d = Einsum<equation = "ij,jk">(s, m)
        e = Einsum<equation = "...j,...j->...j">(s, t)  f = Einsum<equation = "ij,ij->">(s, t)
        q = Einsum<equation = "ij,kj->ik">(s, s)  h = Einsum<equation = "ii->i">(q) }""",
                 [{"x": f32(5, 4), "w": f32(5, 4), "m": f32(4, 3), "n": ints(n)} for n in (5, 2, 0)], zero=ints(0))


def levels() -> Model:
    """Rows that come from two places, put together in their order, as detectors have it: into as many zeros"""
    return Model("""g (float[6,3] x, int64[1] n) => (float[K,3,2] y) {
        r = Slice(x, zero, n)  first = Gather<axis = 1>(r, at)  low = Less(first, none)  high = Not(low)
        li0 = NonZero(low)  hi0 = NonZero(high)  li = Squeeze(li0, zero)  hi = Squeeze(hi0, zero)
        la = Gather(r, li)  ha = Gather(r, hi)  lu = Unsqueeze(la, two)  hu = Unsqueeze(ha, two)
        lw = Concat<axis = 2>(lu, lu)  hw = Concat<axis = 2>(hu, hu)
        rs = Shape(first)  ls = Shape(lw)  rows0 = Gather(rs, at)  wide0 = Gather(ls, o)  deep0 = Gather(ls, t)
        rows = Unsqueeze(rows0, zero)  wide = Unsqueeze(wide0, zero)  deep = Unsqueeze(deep0, zero)
        shape = Concat<axis = 0>(rows, wide, deep)  y0 = ConstantOfShape(shape)
        lc = Unsqueeze(li, onetwo)  hc = Unsqueeze(hi, onetwo)  hs = Shape(hw)
        le = Expand(lc, ls)  he = Expand(hc, hs)  y1 = ScatterElements(y0, le, lw)
        y = ScatterElements(y1, he, hw) }""",
                 [{"x": f32(6, 3), "n": ints(n)} for n in (6, 3, 1)], zero=ints(0), at=np.int64(0), o=np.int64(1),
                 t=np.int64(2), two=ints(2), onetwo=ints(1, 2), none=np.float32(0))


CASES: list[Callable[[], Model]] = [detections, suppressed, regions, scattered, levels, looked_up, summed]


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.__name__)
def test_as_many_as_there_are_take_part(case: Callable[[], Model], tmp_path: Path) -> None:
    agree(case(), tmp_path)


@pytest.mark.parametrize("index, ok", [(4, True), (5, False), (-5, True), (-6, False)])
def test_a_place_outside_is_an_error_as_ever(index: int, ok: bool, tmp_path: Path) -> None:
    m = text("""g (float[5] x, int64[2] at, float[2] v, int64[1] n) => (float[5] y) {
        i = Slice(at, zero, n)  u = Slice(v, zero, n)  y = ScatterElements(x, i, u) }""", zero=ints(0))
    linked = build({"m": m}, tmp_path, OPTIONS)
    feeds = {"x": f32(5), "at": ints(index, 99), "v": f32(2)}
    np.testing.assert_array_equal(linked(**feeds, n=ints(0))["y"], feeds["x"])
    if ok:
        linked(**feeds, n=ints(1))
    else:
        with pytest.raises(MonoblocError, match="index"):
            linked(**feeds, n=ints(1))


@pytest.mark.parametrize(("index", "ok"), [((2, 0), True), ((3, 0), False), ((-3, -2), True), ((-4, 1), False),
                                           ((0, 2), False), ((0, -3), False)])
def test_tuples_are_of_what_is_there(index: tuple[int, int], ok: bool, tmp_path: Path) -> None:
    m = text("""g (float[5,2] x, int64[1,2] at, int64[1] n) => (float[1] y) {
        s = Slice(x, zero, n)  y = GatherND(s, at) }""", zero=ints(0))
    linked = build({"m": m}, tmp_path, OPTIONS)
    feeds = {"x": f32(5, 2), "at": np.int64([index]), "n": ints(3)}
    if ok:
        np.testing.assert_array_equal(linked(**feeds)["y"], feeds["x"][:3][index][None])
    else:
        with pytest.raises(MonoblocError, match="index"):
            linked(**feeds)


WRITES = {
    "elements": "i = Squeeze(n, zero)  u = Compress(x, b)  y = ScatterElements(x, i, u)",
    "tuples": "i = Transpose<perm = [1, 0]>(n)  u = Compress(x, b)  y = ScatterND(x, i, u)",
    "all of them": "i = Squeeze(n, zero)  y = ScatterElements(x, i, x)",
}


@pytest.mark.parametrize("body", WRITES.values(), ids=WRITES)
def test_more_or_fewer_than_there_are_places_are_an_error(body: str, tmp_path: Path) -> None:
    m = text(f"g (float[6] x, bool[6] a, bool[6] b) => (float[6] y) {{ n = NonZero(a)  {body} }}", zero=ints(0))
    linked = build({"m": m}, tmp_path, OPTIONS)
    full = {"x": f32(6), "a": np.ones(6, bool), "b": np.ones(6, bool)}
    same(linked(**full), want(m, full), full)
    with pytest.raises(MonoblocError, match="size"):
        linked(**{**full, "a": np.arange(6) < 2})
    if "u =" in body:
        with pytest.raises(MonoblocError, match="size"):
            linked(**{**full, "b": np.arange(6) == 0})


def test_a_score_of_each_box(tmp_path: Path) -> None:
    m = text("""g (float[1,6,4] boxes, float[1,1,6] scores, int64[1] n) => (int64[N,3] y) {
        s = Slice(boxes, zero, n, one)  t = Slice(scores, zero, one, two)  y = NonMaxSuppression(s, t, most) }""",
             zero=ints(0), one=ints(1), two=ints(2), most=np.int64(9))
    linked = build({"m": m}, tmp_path, OPTIONS)
    feeds = {"boxes": np.abs(f32(1, 6, 4)), "scores": f32(1, 1, 6)}
    same(linked(**feeds, n=ints(1)), want(m, {**feeds, "n": ints(1)}), "one")
    with pytest.raises(MonoblocError, match="size"):
        linked(**feeds, n=ints(4))
