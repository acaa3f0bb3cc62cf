"""Open sizes among the numbers that a model computes with: a mean by the length, positions, a shape as output."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from control_models import text

from monobloc.driver import build
from monobloc.frontend import Choices, load_model
from monobloc.loader import CompiledModel
from monobloc.options import Options

SIZES = range(1, 100)  # more than an image has versions

MODELS = {
    "mean": ("""g (float[2,n] x) => (float[2,1] y) {
        s = Shape(x)  t = Gather(s, one)  f = Cast<to = 1>(t)  sum = ReduceSum(x, axis)  y = Div(sum, f) }""",
             {"one": np.int64(1), "axis": np.array([1])}),
    "positions": ("""g (float[2,n] x) => (float[2,n] y, bool[n] late) {
        s = Shape(x)  t = Gather(s, one)  f = Cast<to = 1>(t)  r = Range(zero, t, step)  p = Cast<to = 1>(r)
        q = Div(p, f)  y = Add(x, q)  half = Div(t, two)  late = GreaterOrEqual(r, half) }""",
                  {"one": np.int64(1), "zero": np.int64(0), "step": np.int64(1), "two": np.int64(2)}),
    "ranges": ("""g (float[2,n] x) => (float[2,n] y, float[2,n] z) {
        s = Shape(x)  t = Gather(s, one)  f = Cast<to = 1>(t)  i = Cast<to = 6>(t)
        r = Range(fzero, f, fone)  y = Mul(x, r)  q = Range(izero, i, ione)  p = Cast<to = 1>(q)  z = Add(x, p) }""",
               {"one": np.int64(1), "fzero": np.float32(0), "fone": np.float32(1), "izero": np.int32(0),
                "ione": np.int32(1)}),
    "shape": ("""g (float[2,n] x) => (int64[2] y, int64[2] z, float[2,n] e) {
        y = Shape(x)  z = Mul(y, three)  e = Exp(x) }""", {"three": np.int64(3)}),
}


def test_shape_arithmetic_in_floats(tmp_path: Path, cache: Path) -> None:
    """As exporters write sizes that are scaled: a size each has its version where a fraction decides it."""
    path, few = tmp_path / "scaled.onnx", (4, 6, 8, 12)
    onnx.save(text("""g (float[1,2,n] x) => (float[1,2,k] y, float[m,q] z) {
        s = Shape(x)  t = Gather(s, two)  f = Cast<to = 1>(t)  h = Mul(f, factor)  fl = Floor(h)  k = Cast<to = 7>(fl)
        k1 = Unsqueeze(k, zero)  sizes = Concat<axis = 0>(lead, k1)
        y = Resize<mode = "nearest", coordinate_transformation_mode = "asymmetric", nearest_mode = "floor">(
            x, , , sizes)
        d = Div(f, half)  up = Ceil(d)  i = Cast<to = 7>(up)  i1 = Unsqueeze(i, zero)
        flat = Concat<axis = 0>(i1, rest)  z = Reshape(x, flat) }""",
                   two=np.int64(2), factor=np.float32(1.5), half=np.float32(2), zero=np.array([0]),
                   lead=np.array([1, 2]), rest=np.array([-1])), path)
    build([path], tmp_path / "m.so", "shared", Options(lto="none", dims={"n": few}, cache=cache))
    m, session = CompiledModel(tmp_path / "m.so"), onnxruntime.InferenceSession(str(path))
    for n in few:
        x = np.random.default_rng(n).standard_normal((1, 2, n)).astype(np.float32)
        for got, want in zip(m.run({"x": x}).values(), session.run(None, {"x": x}), strict=True):
            np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("lto", ["none", "thin"])
def test_every_size_is_right(name: str, lto: str, tmp_path: Path, cache: Path) -> None:
    source, weights = MODELS[name]
    path = tmp_path / f"{name}.onnx"
    onnx.save(text(source, **weights), path)
    assert len(load_model(path, Choices(dims={"n": SIZES})).graphs) <= 3
    o = Options(lto=lto, dims={"n": tuple(SIZES)}, cache=cache)  # type: ignore[arg-type]
    build([path], tmp_path / "m.so", "shared", o)
    m, session = CompiledModel(tmp_path / "m.so"), onnxruntime.InferenceSession(str(path))
    names = [o.name for o in session.get_outputs()]
    for n in SIZES:
        x = np.random.default_rng(n).standard_normal((2, n)).astype(np.float32)
        got = m.run({"x": x})
        for name, want in zip(names, session.run(names, {"x": x}), strict=True):
            assert got[name].shape == want.shape
            np.testing.assert_allclose(got[name], want, rtol=1e-5, atol=1e-6, err_msg=f"{name} of {n}")
