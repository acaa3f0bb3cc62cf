"""Operators that decide sizes, where data decide those: Slice, Split, Range, Expand, Reshape, ...; and what works along
axes of such a size. Against onnxruntime."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from border import build
from control_models import text
from sized_models import FAR, OPTIONS, RNG, Feeds, Model, agree, f32, ints, same, want

from monobloc import driver
from monobloc.cli.settings import Usage, options
from monobloc.errors import MonoblocError
from monobloc.feeds import index_limits
from monobloc.frontend.importer import load_onnx
from monobloc.frontend.importing import Choices
from monobloc.ir.interp import interpret


def slices() -> Model:
    """Along one axis, several, backwards, from the end, beyond the end; and what follows"""
    m = "g (float[5,6,4] x, int64[1] a, int64[1] z, int64[1] s) => ({outs}) {{ {body} }}"
    body = """y0 = Slice(x, zero, z)  y1 = Slice(x, a, z, one)  y2 = Slice(x, a, z, two, s)
        az = Concat<axis = 0>(a, a)  zz = Concat<axis = 0>(z, z)  ax = Constant<value_ints = [2, 0]>()
        y3 = Slice(x, az, zz, ax)  a4 = Add(a, two)  y4 = Slice(x, a, a4, one)
        h = Exp(y1)  y5 = ReduceSum<keepdims = 0>(h, one)  y6 = Softmax<axis = 1>(y1)
        y7 = Transpose<perm = [1, 0, 2]>(y3)
        y8 = ReduceMax<axes = [0, 2]>(y3)  y9 = Shape(y3)"""
    kinds = ["float[a,6,4]", "float[5,b,4]", "float[5,6,c]", "float[d,6,e]", "float[5,f,4]", "float[5,4]",
             "float[5,g,4]", "float[6,h,i]", "float[1,6,1]", "int64[3]"]
    feeds = [{"x": f32(5, 6, 4), "a": ints(a), "z": ints(z), "s": ints(s)} for a, z, s in (
        (0, 6, 1), (1, 4, 2), (-3, -1, 1), (2, 3, 3), (-9, 99, 1), (3, FAR, -1), (3, -9, -2), (1, FAR, FAR), (0, 1, 1))]
    return Model(m.format(outs=", ".join(f"{t} y{k}" for k, t in enumerate(kinds)), body=body), feeds,
                 zero=ints(0), one=ints(1), two=ints(2))


def whole_slices() -> Model:
    """All four operands are data, the axes too"""
    def f(starts: Any, ends: Any, axes: Any, steps: Any) -> Feeds:
        return {"x": f32(4, 5), "s": ints(*starts), "e": ints(*ends), "a": ints(*axes), "t": ints(*steps)}

    return Model("""g (float[4,5] x, int64[2] s, int64[2] e, int64[2] a, int64[2] t) => (float[M,N] y) {
        y = Slice(x, s, e, a, t) }""", [
        f((0, 1), (3, 5), (0, 1), (1, 1)), f((1, 0), (9, 3), (1, 0), (2, 1)), f((-1, 3), (-9, 0), (-1, -2), (-2, -1)),
        f((0, 0), (0, 5), (0, 1), (1, 1))])


def splits() -> Model:
    return Model("""g (float[3,7] x, int64[3] s) => (float[3,a] y, float[3,b] z, float[3,c] w, float[3,7] j,
                                                 float[3,1] t) {
        y, z, w = Split<axis = 1>(x, s)  j0 = Concat<axis = 1>(w, z, y)  j = Identity(j0)
        t = ReduceMax<axes = [1]>(j0) }""",
                 [{"x": f32(3, 7), "s": ints(*s)} for s in ((1, 2, 4), (0, 7, 0), (3, 0, 4), (7, 0, 0))])


def ranges() -> Model:
    """By one number, by two whose difference is known, of floats, downwards; and masks made of them"""
    return Model("""g (int64 n, int64 p, float u, float[9] x)
        => (int64[a] y, int64[3] z, float[b] v, int64[c] d, float[a2] w, bool[e,f] m, float[a3] t,
            int64[2] k) {
        y = Range(zero, n, one)  p3 = Add(p, three)  z = Range(p, p3, one)  v = Range(f0, u, f1)
        minus = Neg(one)
        d = Range(n, zero, minus)  n1 = Reshape(n, one1)  s = Slice(x, zero1, n1)
        yf = Cast<to = 1>(y)  w = Mul(s, yf)
        c = Unsqueeze(y, one1)  m = LessOrEqual(y, c)  d1 = Sub(d, one)  t = Gather(x, d1)
        k = Shape(m) }""",
                 [{"n": np.array(n), "p": np.array(p), "u": np.array(u, np.float32), "x": f32(9)} for n, p, u in (
                     (5, 2, 1.2), (0, -4, -3), (9, 100, 4), (1, 0, 0.5))],
                 {"n": (9,), "u": (4,)}, zero=np.int64(0), one=np.int64(1), three=np.int64(3), f0=np.float32(0),
                 f1=np.float32(0.5), zero1=ints(0), one1=ints(1))


def expanded() -> Model:
    return Model("""g (float[3,1] x, int64[2] s, int64 n, float[2,3] w)
        => (float[a,b] y, float[c,d] z, float[e,3] t, float[f,g] u, float[2,h] v, float[i,j,k] q, float[l,m] p) {
        y = Expand(x, s)  z = ConstantOfShape<value = float[1] {2.5}>(s)  n1 = Reshape(n, one)
        r = Concat<axis = 0>(n1, one)  t = Tile(w, r)  u = Add(y, y)  v = MatMul(w, y)
        shape = Concat<axis = 0>(n1, one, three)  w1 = Slice(w, zero, one)  q = Expand(w1, shape)
        rr = Concat<axis = 0>(one, n1)  p = Tile(z, rr) }""",
                 [{"x": f32(3, 1), "s": ints(*s), "n": np.array(n), "w": f32(2, 3)} for s, n in (
                     ((3, 4), 2), ((1, 1), 1), ((3, 0), 3), ((1, 5), 0))],
                 {"s": (3, 5), "n": (3,)}, one=ints(1), three=ints(3), zero=ints(0))


def reshapes() -> Model:
    """By a list that is data, by one number, of what has a size that data decide, back and forth"""
    return Model("""g (float[4,6] x, int64[3] s, int64 n)
        => (float[a,b,c] y, float[d,e] z, float[f] w, float[g,2,3] v, float[6,h] u, float[i,j] t, float[k] r) {
        y = Reshape(x, s)  n1 = Reshape(n, one)  zs = Concat<axis = 0>(n1, minus)  z = Reshape(x, zs)
        p = Slice(x, zero, n1)  w = Reshape(p, minus)  vs = Constant<value_ints = [0, 2, 3]>()  v = Reshape(p, vs)
        pt = Transpose<perm = [1, 0]>(p)  us = Concat<axis = 0>(six, minus)  u = Reshape(pt, us)
        r = Reshape(pt, minus)  ts = Concat<axis = 0>(minus, n1)  t = Reshape(pt, ts) }""",
                 [{"x": f32(4, 6), "s": ints(*s), "n": np.array(n)} for s, n in (
                     ((2, 3, 4), 1), ((-1, 1, 8), 2), ((0, -1, 3), 4), ((24, 1, 1), 3))],
                 one=ints(1), minus=ints(-1), zero=ints(0), six=ints(6))


def pads() -> Model:
    modes = ("constant", "edge", "reflect")
    body = "  ".join(f'y{k} = Pad<mode = "{m}">(x, p, v)' for k, m in enumerate(modes))
    outs = ", ".join(f"float[a{k},b{k}] y{k}" for k in range(3))
    return Model(f"""g (float[3,4] x, int64[4] p, float v, int64[2] q) => ({outs},
        float[3,c] z, float[2,1] s) {{ {body}  z = Pad(x, q, v, one)
        l = ReduceSum(z, zero)  zz = Concat<axis = 0>(l, l)  s = ReduceSum(zz, one) }}""",
                 [{"x": f32(3, 4), "p": ints(*p), "v": np.array(7, np.float32), "q": ints(*q)} for p, q in (
                    ((0, 0, 0, 0), (1, 2)), ((1, 2, 2, 3), (0, 0)), ((2, 0, 0, 1), (3, -4)), ((0, 3, 1, 2), (-1, 0)))],
                 {"p": (3,), "q": (3,)}, opset=18, one=ints(1), zero=ints(0))


def hot() -> Model:
    return Model("""g (int64[2,3] i, int64 n) => (float[2,3,a] y, float[b,2,3] z) {
        y = OneHot(i, n, v)  z = OneHot<axis = 0>(i, n, v) }""",
                 [{"i": RNG.integers(-4, 5, (2, 3)), "n": np.array(n)} for n in (1, 3, 4)], {"n": (4,)},
                 v=np.float32([-1, 2]))


def along() -> Model:
    """What works along the axis: reductions, Softmax, TopK, CumSum, MatMul both ways, Gather and Concat"""
    return Model("""g (float[6,4] x, int64[1] n, int64[2] i, float[4,3] w)
        => (float[4] s, float mean, float[1,4] top, int64[4] arg, float[2,4] best, float[a,3] rows, float[4,4] gram,
            float[2,4] some, float[b,4] twice, float[c,4] sums, float[d,4] soft, float[e,f] square, int64[2,g] places,
            float[h,5] gemm, int32[1,4] whole) {
        y = Slice(x, zero, n)  s = ReduceSum<keepdims = 0>(y, zero)  mean = ReduceMean<keepdims = 0>(y)
        top = ReduceMax<axes = [0]>(y)  arg = ArgMax<axis = 0, keepdims = 0>(y)  best, bi = TopK<axis = 0>(y, two)
        rows = MatMul(y, w)  yt = Transpose<perm = [1, 0]>(y)  gram = MatMul(yt, y)  some = Gather(y, i)
        back = Slice(x, n, far)  twice = Concat<axis = 0>(back, y, y, back)  sums = CumSum<reverse = 1>(y, z0)
        l = Softmax<axis = 0>(y)  soft = Sub(l, mean)  square = MatMul(y, yt)  pos = Relu(y)  places = NonZero(pos)
        gemm = Gemm<transB = 1>(y, w5, b5)  yi = Cast<to = 6>(y)  whole = ReduceMax<axes = [0]>(yi) }""",
                 [{"x": f32(6, 4), "n": ints(n), "i": ints(*i), "w": f32(4, 3)} for n, i in (
                     (3, (-3, 2)), (6, (5, 0)), (2, (0, -1)))],
                 opset=17, zero=ints(0), two=ints(2), far=ints(FAR), z0=np.int64(0), w5=f32(5, 4), b5=f32(5))


def unlike() -> Model:
    """Sizes that are computed in two ways, and are the same, or one"""
    return Model("""g (float[5] x, int64[1] a, int64[1] b, float[3] w) => (
        float[A] y, float[3] z, float[B] k, float[1,C] j) {
        p = Slice(x, zero, a)  q = Slice(x, zero, b)  y = Add(p, q)  z1 = Slice(x, zero, one)
        z = Mul(w, z1)  c = Less(p, q)  k = Where(c, p, q)  p1 = Unsqueeze(p, zero)  q1 = Unsqueeze(q, zero)
        jj = Mul(p1, q1)  j = Relu(jj) }""",
                 [{"x": f32(5), "a": ints(a), "b": ints(b), "w": f32(3)} for a, b in ((3, 3), (1, 4), (5, 1), (0, 1))],
                 zero=ints(0), one=ints(1))


def windows() -> Model:
    """Convolutions, pooling and recurrences along time, as in speech synthesis: zeros are the padding they ask for"""
    return Model("""g (float[1,3,12] x, int64[1] n) => (float[1,4,a] y, float[1,2,b] up, float[1,3,c] top,
        float[1,3,d] mean, float[1,3,1] all, float[1,3,1] most, float[e,2,1,4] l, float[2,1,4] h, float[1,3,f] norm,
        float[1,3,i] each) {
        s = Slice(x, zero, n, two)  y0 = Conv<pads = [2, 2], dilations = [2]>(s, w, b)  y1 = Tanh(y0)
        y = Conv<pads = [1, 0], strides = [2]>(y1, w2, b)  up = ConvTranspose<pads = [1, 1], strides = [2]>(y1, wt)
        top = MaxPool<kernel_shape = [3], pads = [1, 1], strides = [2]>(s)  mean = AveragePool<kernel_shape = [2]>(s)
        all = GlobalAveragePool(s)  most = GlobalMaxPool(s)  t = Transpose<perm = [2, 0, 1]>(s)
        l, h = GRU<hidden_size = 4, direction = "bidirectional">(t, gw, gr)
        norm = BatchNormalization(s, three, three, three, three)  each = InstanceNormalization(s, three, three) }""",
                 [{"x": f32(1, 3, 12), "n": ints(n)} for n in (12, 7, 3, 2)],
                 zero=ints(0), two=ints(2), w=f32(4, 3, 3), w2=f32(4, 4, 3), b=f32(4), wt=f32(4, 2, 4),
                 gw=f32(2, 12, 3), gr=f32(2, 12, 4), three=np.abs(f32(3)))


def durations() -> Model:
    """Speech: each letter lasts as long as is computed, at most 4 steps; what follows has as many steps as that is"""
    return Model("""g (float[1,5,3] x) => (float[1,2,T] y, int64[1] length) {
        d0 = ReduceSum<keepdims = 0>(x, two)  d1 = Exp(d0)  d2 = Ceil(d1)  d = Clip(d2, f1, f4)
        l = ReduceSum<keepdims = 0>(d, one)  length = Cast<to = 7>(l)  most = ReduceMax<keepdims = 0>(length)
        t = Range(z, most, o)  tf = Cast<to = 1>(t)  row = Unsqueeze(tf, zero)  ends = CumSum(d, o)
        column = Unsqueeze(ends, two)  before = Less(row, column)  path = Cast<to = 1>(before)
        shifted0 = Slice(path, zero, m1, one)  shifted = Pad(shifted0, pads)  earlier = Sub(path, shifted)
        pt = Transpose<perm = [0, 2, 1]>(earlier)  steps = MatMul(pt, x)  c = Transpose<perm = [0, 2, 1]>(steps)
        h = Conv<pads = [1, 1]>(c, w)  y = Relu(h) }""",
                 [{"x": f32(1, 5, 3)} for _ in range(3)], two=ints(2), one=ints(1), zero=ints(0), m1=ints(-1),
                 f1=np.float32(1), f4=np.float32(4), z=np.int64(0), o=np.int64(1), w=f32(2, 3, 3),
                 pads=ints(0, 1, 0, 0, 0, 0))


def resized() -> Model:
    """By sizes and by factors that are data, and by constant ones what has a size that data decide"""
    ways = [(m, c, r) for m in ("nearest", "linear") for c in ("half_pixel", "asymmetric", "align_corners",
            "pytorch_half_pixel") for r in ("floor", "round_prefer_ceil")[: 2 if m == "nearest" else 1]]
    one = 'Resize<mode = "{}", coordinate_transformation_mode = "{}", nearest_mode = "{}">'
    body = "  ".join(f"a{k} = {one.format(*w)}(x, , , s)  b{k} = {one.format(*w)}(x, , f)" for k, w in enumerate(ways))
    outs = ", ".join(f"float[1,1,A{k},B{k}] a{k}, float[1,1,C{k},D{k}] b{k}" for k in range(len(ways)))
    return Model(f"""g (float[1,1,4,5] x, int64[4] s, float[4] f, int64[1] n) => ({outs}, float[1,1,4,E] e) {{ {body}
        cut = Slice(x, zero, n, three)  e = Resize<mode = "nearest", nearest_mode = "floor">(cut, , double) }}""",
                 [{"x": f32(1, 1, 4, 5), "s": ints(1, 1, h, w), "f": np.float32([1, 1, p, q]), "n": ints(n)}
                  for h, w, p, q, n in ((4, 5, 1, 1, 5), (7, 3, 2, 0.6, 3), (1, 9, 0.5, 2, 1), (2, 1, 1.5, 1.75, 2))],
                 {"s": (1, 1, 7, 9), "f": (1, 1, 2, 2)}, zero=ints(0), three=ints(3), double=np.float32([1, 1, 1, 2]))


CASES: list[Callable[[], Model]] = [
    slices, whole_slices, splits, ranges, expanded, reshapes, pads, hot, along, unlike, windows, durations, resized,
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.__name__)
def test_sizes_are_those_of_the_run(case: Callable[[], Model], tmp_path: Path) -> None:
    agree(case(), tmp_path)


BROKEN: dict[str, tuple[str, dict[str, Any], Feeds]] = {
    "a range longer than said": ("(int64 n) => (int64[N] y) { y = Range(zero, n, one) }", {"n": (4,)},
                                 {"n": np.array(5)}),
    "a negative size": ("(int64[1] s) => (float[N] y) { y = ConstantOfShape(s) }", {"s": (4,)}, {"s": ints(-1)}),
    "parts that are not the whole": (
        "(int64[2] s, float[4] x) => (float[A] y, float[B] z) { y, z = Split(x, s) }", {},
        {"s": ints(1, 2), "x": f32(4)}),
    "a step of 0": ("(int64[1] s, float[4] x) => (float[N] y) { y = Slice(x, z1, o1, z1, s) }", {},
                    {"s": ints(0), "x": f32(4)}),
    "no such axis": ("(int64[1] s, float[4] x) => (float[N] y) { y = Slice(x, z1, o1, s) }", {},
                     {"s": ints(1), "x": f32(4)}),
    "a shape of other elements": ("(int64[2] s, float[4] x) => (float[M,N] y) { y = Reshape(x, s) }", {},
                                  {"s": ints(3, 1), "x": f32(4)}),
    "a repeat beyond what was said": ("(int64[1] s, float[4] x) => (float[N] y) { y = Tile(x, s) }", {"s": (2,)},
                                      {"s": ints(3), "x": f32(4)}),
    "sizes that do not broadcast": ("""(int64[1] s, float[4] x) => (float[N] z) {
        a = Slice(x, z1, s)  z = Add(a, x) }""", {}, {"s": ints(3), "x": f32(4)}),
    "rows that do not fit columns": ("""(int64[1] s, float[4,4] x) => (float[N,4] z) {
        a = Slice(x, z1, s)  z = MatMul(x, a) }""", {}, {"s": ints(3), "x": f32(4, 4)}),
    "more of them than there are": ("""(int64[1] s, float[4] x) => (float[2] z, int64[2] i) {
        a = Slice(x, z1, s)  z, i = TopK(a, two) }""", {}, {"s": ints(1), "x": f32(4)}),
    "an index behind what is there": ("""(int64[1] s, float[4] x, int64 i) => (float z) {
        a = Slice(x, z1, s)  z = Gather(a, i) }""", {}, {"s": ints(2), "x": f32(4), "i": np.array(2)}),
    "an axis that is not one": ("""(int64[1] s, float[4] x) => (float y) {
        a = Slice(x, z1, s)  y = Squeeze(a, z1) }""", {}, {"s": ints(2), "x": f32(4)}),
}


def broken(body: str) -> onnx.ModelProto:
    return text(f"g {body}", zero=np.int64(0), one=np.int64(1), two=ints(2), z1=ints(0), o1=ints(1))


@pytest.mark.parametrize("body, most, feeds", BROKEN.values(), ids=BROKEN)
def test_what_does_not_fit_is_an_error_code(body: str, most: dict[str, Any], feeds: Feeds, tmp_path: Path) -> None:
    linked = build({"m": broken(body)}, tmp_path, replace(OPTIONS, max_values=most))
    with pytest.raises(MonoblocError, match="size|index"):
        linked(**feeds)


ENDLESS = ["(int64 n) => (int64[N] y) { y = Range(zero, n, one) }",
           "(int64[1] n) => (float[N] y) { y = ConstantOfShape(n) }",
           "(int64[1] n, float[1] x) => (float[N] y) { y = Expand(x, n) }",
           "(int64[1] n, float[2] x) => (float[N] y) { y = Tile(x, n) }",
           "(int64[2] n, float[2] x) => (float[N] y) { y = Pad(x, n) }",
           "(int64 n, float[2] x, int64[2] i) => (float[2,N] y) { y = OneHot(i, n, x) }"]


@pytest.mark.parametrize("body", ENDLESS)
def test_without_a_bound_the_error_says_how_to_give_one(body: str) -> None:
    with pytest.raises(MonoblocError, match="--max-value n=N"):
        load_onnx(broken(body))


def test_a_number_that_is_computed_has_a_bound_by_its_name() -> None:
    m = broken("""(float[4] x) => (int64[N] y) {
        s = ReduceMax<keepdims = 0>(x)  n = Cast<to = 7>(s)  y = Range(zero, n, one) }""")
    with pytest.raises(MonoblocError, match="--max-value n=N"):
        load_onnx(m)
    assert load_onnx(m, Choices(max_values={"n": (7,)})).graph.outputs[0][1].shape == (7,)


def test_a_bound_of_nothing_is_an_error() -> None:
    m = broken("(int64[1] s, float[4] x) => (float[N] y) { y = Tile(x, s) }")
    with pytest.raises(MonoblocError, match="no value 'size'.*\n.*there are: s, x, y"):
        load_onnx(m, Choices(max_values={"size": (3,), "s": (2,)}))


def test_bounds_of_another_number_of_elements_are_an_error() -> None:
    """They bound nothing, so a size has no bound either: both are told"""
    m = broken("(int64[1] s, float[4] x) => (float[N] y) { y = Tile(x, s) }")
    with pytest.raises(MonoblocError, match="(?s)nothing says how large.*'s' has 1 element, but 2 numbers"):
        load_onnx(m, Choices(max_values={"s": (3, 4)}))


def test_the_command_line_takes_bounds() -> None:
    assert options({"max_value": ["n=9", "a=b=3,4"]}).max_values == {"n": (9,), "a=b": (3, 4)}
    with pytest.raises(Usage, match="no most of a value"):
        options({"max_value": ["many"]})


def test_random_data_stay_within_the_bounds() -> None:
    m = broken("""(int64[1] a, int64 b, int64[1] k, float[4] x) => (float[N] y, int64[M] z, float[K] t, int64[K] i) {
        y = Tile(x, a)  z = Range(zero, b, one)  t, i = TopK(x, k) }""")
    g = load_onnx(m, Choices(max_values={"a": (2,), "b": (3,)})).graph
    assert index_limits(g) == {"a": 3, "b": 4, "k": 5}


def test_an_object_and_its_image_give_the_same_bytes(tmp_path: Path, cache: Path) -> None:
    m = expanded()
    o = replace(OPTIONS, cache=cache, max_values=m.most)
    onnx.save(m.proto, tmp_path / "m.onnx")
    driver.build([tmp_path / "m.onnx"], tmp_path / "whole.so", "shared", o)
    driver.compile_to_object(tmp_path / "m.onnx", tmp_path / "m.o", o)
    driver.link([tmp_path / "m.o"], tmp_path / "m.so", "shared", replace(o, max_values={}))
    assert (tmp_path / "m.so").read_bytes() == (tmp_path / "whole.so").read_bytes()


def test_a_shape_of_which_one_size_is_open_is_known() -> None:
    """It can be just one number; a run that says another ends"""
    m = broken("(int64[1] n, float[6] x) => (float[A,B] y) { s = Concat<axis = 0>(n, o1)  y = Reshape(x, s) }")
    g = load_onnx(m).graph
    assert g.outputs[0][1].shape == (6, 1) and g.outputs[0][1].producer.op != "Sized"
    x = np.arange(6, dtype=np.float32)
    np.testing.assert_array_equal(interpret(g, {"n": ints(6), "x": x})["y"].ravel(), x)
    with pytest.raises(MonoblocError):
        interpret(g, {"n": ints(5), "x": x})


def test_a_slice_of_known_length_has_room_for_no_more() -> None:
    """x[i:i+3]: what nobody knows is whether it is all there"""
    m = broken("""(int64[1] i, float[100] x) => (float[N] y, float[M] z) {
        three = Add(two, o1)  end = Add(i, three)  y = Slice(x, i, end)  z = Slice(x, z1, i) }""")
    assert [v.shape for _, v in load_onnx(m).graph.outputs] == [(3,), (100,)]


def test_the_first_opsets_forms_are_read_of_sizes_that_data_decide() -> None:
    """Parts that are an input already, an axis that has a default, pads of another name; nothing else runs these"""
    m = text("""g (float[2,4] x, float[2] s) => (float[2,A] y, float[2,B] z, float[2,4] j, float[2,C] p) {
        y, z = Split<axis = 1>(x, s)  j = Concat(z, y)  p = Pad<paddings = [0, 1, 0, 2], value = 7.0>(y) }""", 1)
    g = load_onnx(m).graph
    for k in range(5):
        x = f32(2, 4)
        got = interpret(g, {"x": x, "s": np.float32([k, 4 - k])})
        y, z = np.split(x, [k], 1)
        right = {"y": y, "z": z, "j": np.concatenate([z, y], 1), "p": np.pad(y, ((0, 0), (1, 2)), constant_values=7)}
        for name, a in right.items():
            np.testing.assert_array_equal(got[name], a, err_msg=f"{name} of {k}")


def test_axes_are_kept_by_the_number_1_alone() -> None:
    """As onnxruntime has it, along axes of known size and of a size that data decide"""
    m = text("""g (float[3,4] x, int64[1] n) => (float[3] s, float[3] t, int64[3] a, float[3,1] k) {
        y = Slice(x, zero, n, one)  s = ReduceMax<axes = [1], keepdims = 2>(y)
        t = ReduceMean<axes = [1], keepdims = 2>(y)  a = ArgMax<axis = 1, keepdims = 2>(y)
        k = ReduceMean<axes = [1], keepdims = 1>(y) }""", zero=ints(0), one=ints(1))
    g = load_onnx(m).graph
    for n in (1, 3):
        f = {"x": f32(3, 4), "n": ints(n)}
        same(interpret(g, f), want(m, f), f)
