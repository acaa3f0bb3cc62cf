"""Outputs whose size data decide: room for the most, the true shape for whoever reads them, against onnxruntime."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from border import build
from control_models import text

from monobloc import driver
from monobloc.cli.settings import Usage, options
from monobloc.errors import MonoblocError
from monobloc.frontend.importer import load_onnx
from monobloc.frontend.importing import Choices
from monobloc.ir.interp import interpret
from monobloc.link.header import output_accessors
from monobloc.loader import CompiledModel
from monobloc.options import Options

SEED = 43
print(f"seed {SEED}")
RNG = np.random.default_rng(SEED)
OPTIONS = Options(lto="none")
Feeds = dict[str, np.ndarray]


def sparse(*shape: int) -> np.ndarray:
    return (RNG.integers(-1, 2, shape) * RNG.standard_normal(shape)).astype(np.float32)


def grids() -> list[Feeds]:
    return [{"x": sparse(3, 4)}, {"x": np.zeros((3, 4), np.float32)}, {"x": np.ones((3, 4), np.float32)}]


def nonzero() -> tuple[onnx.ModelProto, list[Feeds]]:
    return text("g (float[3,4] x) => (int64[2,N] y) { y = NonZero(x) }"), grids()


def picked() -> tuple[onnx.ModelProto, list[Feeds]]:
    """What detectors do with it: coordinates as rows, the values there, and arithmetic on both"""
    return text("""g (float[3,4] x) => (float[N] y, int64[N,2] t, int64[2] s, float[N,4] rows, float[N] m) {
        n = NonZero(x)  t = Transpose<perm = [1, 0]>(n)  v = GatherND(x, t)  e = Exp(v)  y = Add(e, v)
        s = Shape(t)  c = Gather<axis = 1>(t, zero)  next = Add(c, one)  rows = Gather<axis = 0>(long, next)
        m = ReduceSum<keepdims = 0>(rows, axis) }""",
                zero=np.int64(0), one=np.int64(1), long=RNG.standard_normal((4, 4)).astype(np.float32),
                axis=np.array([1], np.int64)), grids()


def compressed() -> tuple[onnx.ModelProto, list[Feeds]]:
    return text("""g (float[3,4] x, bool[4] c) => (float[3,N] y, float[M] z) {
        y = Compress<axis = 1>(x, c)  z = Compress(x, c) }"""), [
            {"x": sparse(3, 4), "c": np.array(c)} for c in ([True, False, True, True], [False] * 4, [True] * 4)]


def unique() -> tuple[onnx.ModelProto, list[Feeds]]:
    return text("""g (float[9] x, int64[7] k)
                => (float[N] y, int64[N] a, int64[9] b, int64[N] c, int64[M] z, int64[M] d) {
        y, a, b, c = Unique(x)  z, d, e, f = Unique<sorted = 0>(k) }"""), [
            {"x": RNG.integers(0, n, 9).astype(np.float32), "k": RNG.integers(0, n, 7)} for n in (1, 4, 100)]


def unique_slices() -> tuple[onnx.ModelProto, list[Feeds]]:
    """Along either axis, in the order of what they hold or that they come in"""
    return text("""g (float[7,2] x, int64[3,5] k)
                => (float[N,2] y, int64[N] a, int64[7] b, int64[N] d, int64[3,M] z, int64[M] e) {
        y, a, b, d = Unique<axis = 0>(x)  z, f, g, e = Unique<axis = 1, sorted = 0>(k) }"""), [
            {"x": RNG.integers(0, n, (7, 2)).astype(np.float32), "k": RNG.integers(0, n, (3, 5))} for n in (1, 2, 3)]


def best() -> tuple[onnx.ModelProto, list[Feeds]]:
    return text("""g (float[3,6] x, int64[1] k) => (float[3,K] y, int64[3,K] i) { y, i = TopK(x, k) }"""), [
        {"x": RNG.standard_normal((3, 6)).astype(np.float32), "k": np.array([k])} for k in (0, 1, 4, 6)]


def boxes() -> tuple[onnx.ModelProto, list[Feeds]]:
    return text("g (float[2,20,4] b, float[2,3,20] s) => (int64[N,3] y) { y = NonMaxSuppression(b, s, m, i, t) }",
                m=np.array([4]), i=np.array([0.3], np.float32), t=np.array([0.2], np.float32)), [
        {"b": RNG.uniform(0, 4, (2, 20, 4)).astype(np.float32),
         "s": (RNG.integers(0, 9, (2, 3, 20)) / high).astype(np.float32)} for high in (8, 40, 1)]


def while_rows() -> tuple[onnx.ModelProto, list[Feeds]]:
    """At most 100 rows, until a sum is large; the rows are worked on, and their number is not asked for twice"""
    return text("""g (float[4] x, bool c0) => (float[4] y, float[N,4] r, int64[N] k) {
        y, r0, k = Loop(n, c0, x) <body = b (int64 i, bool c, float[4] s)
                                       => (bool c2, float[4] s2, float[4] row, int64 j) {
            s2 = Add(s, s)  row = Identity(s2)  t = ReduceSum<keepdims = 0>(s2)  c2 = Less(t, limit)  j = Identity(i) }>
        r = Neg(r0) }""", n=np.int64(100), limit=np.float32(99)), [
            {"x": np.full(4, v, np.float32), "c0": np.array(c)} for v in (1, 7, 1000) for c in (True, False)]


def either() -> tuple[onnx.ModelProto, list[Feeds]]:
    """Branches of two sizes, one of them of a size that data decide"""
    return text("""g (bool c, float[3,4] x) => (float[3,N] y, int64[M,2] t) {
        y0, n = If(c) <then_branch = a () => (float[3,4] p, int64[2,K] p1) { p = Exp(x)  p1 = NonZero(x) },
                       else_branch = b () => (float[3,8] q, int64[2,1] q1) {
                           q = Concat<axis = 1>(x, x)  q1 = Identity(none) }>
        y = Neg(y0)  t = Transpose<perm = [1, 0]>(n) }""", none=np.array([[5], [6]])), [
            {**f, "c": np.array(c)} for f in grids() for c in (True, False)]


CASES: list[Callable[[], tuple[onnx.ModelProto, list[Feeds]]]] = [
    nonzero, picked, compressed, unique, unique_slices, best, boxes, while_rows, either,
]  # fmt: skip


def want(m: onnx.ModelProto, f: Feeds) -> Feeds:
    s = onnxruntime.InferenceSession(m.SerializeToString())
    return dict(zip([o.name for o in s.get_outputs()], s.run(None, f), strict=True))


def same(got: Feeds, right: Feeds) -> None:
    assert got.keys() == right.keys()
    for name, y in right.items():
        assert (got[name].shape, got[name].dtype) == (y.shape, y.dtype), name
        np.testing.assert_allclose(got[name], y, rtol=1e-5, atol=1e-6, err_msg=name)


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.__name__)
def test_outputs_have_the_shape_that_data_give_them(case: Callable, tmp_path: Path) -> None:
    m, feeds = case()
    linked = build({"m": m}, tmp_path, OPTIONS)
    model = CompiledModel(linked.path)
    g = load_onnx(m).graph
    for f in feeds:
        right = want(m, f)
        same(model.run(f), right)
        same(interpret(g, f), right)


def test_booleans_are_unique_too(tmp_path: Path) -> None:
    """onnxruntime has no kernel for them."""
    m = text("g (bool[4] x, bool[3,2] r) => (bool[N] y, bool[M,2] z) { y = Unique(x)  z = Unique<axis = 0>(r) }")
    linked = build({"m": m}, tmp_path, OPTIONS)
    for x in ([1, 0, 1, 1], [0] * 4):
        f = {"x": np.array(x, bool), "r": np.array([*x, 0, 1], bool).reshape(3, 2)}
        same(linked(**f), {"y": np.unique(f["x"]), "z": np.unique(f["r"], axis=0)})


@pytest.mark.parametrize("kind, dtype", [("float", np.float32), ("bool", np.bool_)])
def test_slices_of_nothing_keep_their_shape(kind: str, dtype: type) -> None:
    """As numpy has it: onnxruntime ends the process"""
    for shape, axis in (((0, 3), 0), ((3, 0), 0), ((0, 3), 1)):
        m = text(f"g ({kind}{list(shape)} x) => ({kind}[A,B] y, int64[N] a, int64[M] b, int64[N] c) "
                 f"{{ y, a, b, c = Unique<axis = {axis}>(x) }}")
        x = np.zeros(shape, dtype)
        y, *places = np.unique(x, True, True, True, axis=axis)
        same(interpret(load_onnx(m).graph, {"x": x}), {"y": y, **dict(zip("abc", map(np.ravel, places), strict=True))})


def test_an_executable_writes_the_true_shape(tmp_path: Path, cache: Path) -> None:
    m, (f, *_) = nonzero()
    onnx.save(m, tmp_path / "m.onnx")
    np.save(tmp_path / "x.npy", f["x"])
    driver.build([tmp_path / "m.onnx"], tmp_path / "m", "exe", replace(OPTIONS, cache=cache))
    subprocess.run([tmp_path / "m", tmp_path / "x.npy", "-o", tmp_path / "y.npy"], check=True, capture_output=True)
    np.testing.assert_array_equal(np.load(tmp_path / "y.npy"), np.stack(np.nonzero(f["x"])))


APP = """
#include "m.h"
int main(void) {
  for (int k = 0; k < 12; k++) m_in_x()[k] = k %% 3 == 0;
  if (m_out_y_dims()[1] != 0 || m_run()) return 1;
  return m_out_y_dims()[0] == 2 && m_out_y_dims()[1] == 4%s ? 0 : 2;
}
"""


@pytest.mark.parametrize("reads", ["", " && m_out_y()[3] == 2 && m_out_y()[4] == 0 && m_out_y()[7] == 1"])
def test_an_application_asks_for_the_sizes(reads: str, tmp_path: Path, cache: Path) -> None:
    """Dense in the size it has; the sizes alone keep the output alive"""
    m, _ = nonzero()
    onnx.save(m, tmp_path / "m.onnx")
    (tmp_path / "app.c").write_text(APP % reads)
    made = driver.build([tmp_path / "app.c", tmp_path / "m.onnx"], tmp_path / "app", "exe",
                        replace(OPTIONS, cache=cache))
    assert subprocess.run([tmp_path / "app"]).returncode == 0
    assert "const int64_t *m_out_y_dims(void); /* its sizes in the last run */" in made.programs[0].header


def test_one_value_as_two_outputs_has_its_size_twice(tmp_path: Path) -> None:
    m = text("g (float[3,4] x) => (int64[2,N] y, int64[2,N] z) { y = NonZero(x)  z = Identity(y) }")
    linked = build({"m": m}, tmp_path, OPTIONS)
    f = grids()[0]
    same(linked(**f), want(m, f))


def test_an_object_and_its_image_give_the_same_bytes(tmp_path: Path, cache: Path) -> None:
    o = replace(OPTIONS, cache=cache)
    onnx.save(picked()[0], tmp_path / "m.onnx")
    driver.build([tmp_path / "m.onnx"], tmp_path / "whole.so", "shared", replace(o, dump=tmp_path / "d"))
    driver.compile_to_object(tmp_path / "m.onnx", tmp_path / "m.o", o)
    driver.link([tmp_path / "m.o"], tmp_path / "m.so", "shared", replace(o, dump=tmp_path / "d2"))
    assert (tmp_path / "m.so").read_bytes() == (tmp_path / "whole.so").read_bytes()
    module = driver.module_of(tmp_path / "m.onnx", driver.import_model(tmp_path / "m.onnx", o), o)
    assert "m_out_y_dims" in output_accessors(module, "y")


def test_a_bound_input_gives_a_plain_shape(tmp_path: Path) -> None:
    x = grids()[0]["x"]
    g = load_onnx(nonzero()[0], Choices(bind={"x": x})).graph
    assert g.outputs[0][1].shape == (2, np.count_nonzero(x))


def test_more_than_there_is_is_an_error_code(tmp_path: Path) -> None:
    m, _ = best()
    linked = build({"m": m}, tmp_path, OPTIONS)
    for k in (7, -1):
        with pytest.raises(MonoblocError, match="size"):
            linked(x=np.zeros((3, 6), np.float32), k=np.array([k]))


def counted() -> onnx.ModelProto:
    return text("""g (int64 n, float[4] x) => (float[4] y, float[N,4] r) {
        y, r = Loop(n, , x) <body = b (int64 i, bool c, float[4] s) => (bool c2, float[4] s2, float[4] row) {
            s2 = Add(s, x)  row = Mul(s2, s2)  c2 = Identity(c) }> }""")


@pytest.mark.parametrize("trips", [{"": 5}, {"#0(Loop)": 5}])
def test_a_bound_of_iterations_gives_rows_room_and_more_are_an_error(trips: dict[str, int], tmp_path: Path) -> None:
    linked = build({"m": counted()}, tmp_path, replace(OPTIONS, max_trips=trips))
    for n in (0, 1, 5, -2):
        f = {"n": np.array(n), "x": sparse(4)}
        same(linked(**f), want(counted(), f))
    with pytest.raises(MonoblocError, match="size"):
        linked(n=np.array(6), x=sparse(4))


def test_without_a_bound_the_error_says_how_to_give_one() -> None:
    with pytest.raises(MonoblocError, match=r"--max-trips '#0\(Loop\)=N'"):
        load_onnx(counted())


def test_the_command_line_takes_bounds(tmp_path: Path) -> None:
    o = options({"max_trips": ["9", "a=b=3"]})
    assert o.max_trips == {"": 9, "a=b": 3}
    with pytest.raises(Usage, match="no number of iterations"):
        options({"max_trips": ["many"]})


# -- what is refused ------------------------------------------------------------------------------------
REFUSED = {
    "the largest": ("f = Cast<to = 1>(t)  s = Hardmax<axis = 0>(f)", "Hardmax of f32[<=12,2]"),
    "backwards": ("s = ReverseSequence<batch_axis = 1, time_axis = 0>(t, l)", "ReverseSequence of i64[<=12,2]"),
}


@pytest.mark.parametrize("body, told", REFUSED.values(), ids=REFUSED)
def test_what_would_read_behind_the_entries_is_refused_by_name(body: str, told: str) -> None:
    m = text(f"g (float[3,4] x, float[3,4] w, bool c) => (int64[a,2] s) {{ n = NonZero(x)  "
             f"t = Transpose<perm = [1, 0]>(n)  {body} }}", l=np.int64([3, 4]))
    with pytest.raises(MonoblocError) as e:
        load_onnx(m)
    assert told in str(e.value)


def test_models_do_not_connect_by_such_an_output(tmp_path: Path) -> None:
    b = text("g (int64[2,12] y) => (int64[2,12] z) { z = Neg(y) }")
    with pytest.raises(MonoblocError, match="size that data decide"):
        build({"a": nonzero()[0], "b": b}, tmp_path, OPTIONS, "b.y=a.y")


def test_several_sizes_and_sizes_of_data_together(tmp_path: Path, cache: Path) -> None:
    m = text("g (float[n,4] x) => (int64[2,N] y) { y = NonZero(x) }")
    onnx.save(m, tmp_path / "m.onnx")
    driver.build([tmp_path / "m.onnx"], tmp_path / "m.so", "shared", replace(OPTIONS, cache=cache, dims={"n": (1, 2)}))
    model = CompiledModel(tmp_path / "m.so")
    for n in (1, 2):
        same(model.run({"x": (x := sparse(n, 4))}), want(m, {"x": x}))
