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
    "shape": ("""g (float[2,n] x) => (int64[2] y, int64[2] z, float[2,n] e) {
        y = Shape(x)  z = Mul(y, three)  e = Exp(x) }""", {"three": np.int64(3)}),
}


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
