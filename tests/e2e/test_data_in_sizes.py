"""Sizes that data decide in models of several sizes: the true shape of each output, as onnxruntime has it."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from control_models import text

from monobloc.driver import build, compile_to_object, link
from monobloc.frontend import Choices, load_model
from monobloc.loader import CompiledModel
from monobloc.options import Options

SEED = 61
print(f"seed {SEED}")
RNG = np.random.default_rng(SEED)
Feeds = dict[str, np.ndarray]
Made = tuple[onnx.ModelProto, Callable[..., Feeds]]


def _sparse(*shape: int) -> np.ndarray:
    return (RNG.integers(-1, 2, shape) * RNG.standard_normal(shape)).astype(np.float32)


def nonzero() -> Made:
    """What is there of a list of any length, its values, how many there are, and an output of a size that is set"""
    return text("""g (float[n,4] x) => (int64[2,N] where, float[N] y, int64[1] count, float[n,4] e) {
        where = NonZero(x)  t = Transpose<perm = [1, 0]>(where)  v = GatherND(x, t)  y = Exp(v)
        s = Shape(v)  count = Identity(s)  e = Exp(x) }"""), lambda n: {"x": _sparse(n, 4)}


def kept() -> Made:
    """The k largest of each row, k an input; and the rows of which a flag is set"""
    return text("""g (float[n,6] x, int64[1] k, bool[n] c) => (float[n,K] top, int64[n,K] at, float[M,6] rows) {
        top, at = TopK(x, k)  rows = Compress<axis = 0>(x, c) }"""), lambda n: {
            "x": _sparse(n, 6), "k": RNG.integers(1, 7, 1), "c": RNG.random(n) < 0.5}


def detector() -> Made:
    """Boxes and scores of a batch, NonMaxSuppression, and the boxes that are left"""
    def feeds(n: int) -> Feeds:
        corner = RNG.random((n, 9, 2)).astype(np.float32)
        boxes = np.concatenate([corner, corner + RNG.random((n, 9, 2)).astype(np.float32)], 2)
        return {"boxes": boxes, "scores": RNG.random((n, 2, 9)).astype(np.float32)}

    return text("""g (float[n,9,4] boxes, float[n,2,9] scores) => (int64[N,3] picked, float[N,4] left) {
        picked = NonMaxSuppression(boxes, scores, most, iou, low)
        batch = Gather<axis = 1>(picked, zero)  row = Gather<axis = 1>(picked, two)
        at = Concat<axis = 1>(batch, row)  left = GatherND(boxes, at) }""",
                most=np.int64(4), iou=np.float32(0.4), low=np.float32(0.2), zero=np.array([0]),
                two=np.array([2])), feeds


def cut() -> Made:
    """A slice between two inputs of an axis of any length, and softmax along it"""
    return text("""g (float[2,n] x, int64[1] a, int64[1] b) => (float[2,N] y) {
        s = Slice(x, a, b, axis)  y = Softmax<axis = 1>(s) }""", axis=np.array([1])), lambda n: {
            "x": _sparse(2, n), "a": RNG.integers(0, n, 1), "b": np.array([n])}


MODELS: dict[str, Callable[[], Made]] = {f.__name__: f for f in (nonzero, kept, detector, cut)}
SIZES = (1, 2, 3, 4, 5, 6, 7)


def _check(m: CompiledModel, session: onnxruntime.InferenceSession, feeds: Feeds) -> None:
    names = [o.name for o in session.get_outputs()]
    got = m.run(feeds)
    for name, want in zip(names, session.run(names, feeds), strict=True):
        assert got[name].shape == want.shape, (name, feeds)
        np.testing.assert_allclose(got[name], want, rtol=1e-5, atol=1e-6, err_msg=f"{name} of {feeds}")


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize(("sizes", "lto"), [(SIZES, "none"), ((2, 5), "thin"), ((2, 5, 6, 7), "full")])
def test_every_size_is_right(name: str, sizes: tuple[int, ...], lto: str, tmp_path: Path, cache: Path) -> None:
    model, feeds = MODELS[name]()
    path = tmp_path / f"{name}.onnx"
    onnx.save(model, path)
    o = Options(lto=lto, dims={"n": sizes}, cache=cache)  # type: ignore[arg-type]
    build([path], tmp_path / "m.so", "shared", o)
    m, session = CompiledModel(tmp_path / "m.so"), onnxruntime.InferenceSession(str(path))
    for n in (*sizes, *sizes[::-1], *sizes):
        _check(m, session, feeds(n))
    if sizes == SIZES:
        versions = load_model(path, Choices(dims={"n": sizes})).graphs
        assert len(versions) < len(sizes) and versions[0].space is not None, "nothing stayed open"


def test_objects_and_executables(tmp_path: Path, cache: Path) -> None:
    model, feeds = nonzero()
    path = tmp_path / "nonzero.onnx"
    onnx.save(model, path)
    o = Options(lto="none", dims={"n": SIZES}, cache=cache)
    compile_to_object(path, tmp_path / "m.o", o)
    session = onnxruntime.InferenceSession(str(path))
    for graph_lto in (True, False):
        link([tmp_path / "m.o"], tmp_path / "m.so", "shared", Options(lto="none", graph_lto=graph_lto, cache=cache))
        m = CompiledModel(tmp_path / "m.so")
        for n in (3, 1, 7):
            _check(m, session, feeds(n))
    build([path], tmp_path / "m", "exe", o)
    for n in (1, 4, 7):
        x = feeds(n)["x"]
        np.save(tmp_path / "x.npy", x)
        subprocess.run([str(tmp_path / "m"), str(tmp_path / "x.npy"), "-o", f"where={tmp_path / 'y.npy'}"], check=True)
        np.testing.assert_array_equal(np.load(tmp_path / "y.npy"), np.array(np.nonzero(x)))
