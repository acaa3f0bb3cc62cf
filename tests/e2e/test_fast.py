"""`--numerics fast`: what is without NaN keeps every bit; a NaN may lose against a number, by default never."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import parser

from monobloc import driver

SEED = 17
print(f"seed {SEED}")
NAN = np.float32(np.nan)
MODEL = """<ir_version: 8, opset_import: ["" : 13]>
g (float[1,2,6,37] x, float[1,2,6,37] z) => (float[1,2,3,18] pool, float[1,2,6,37] most, float[1,2,6,37] least,
                                             float[1,2,6,1] rows, float[1,1,6,37] columns, float[1,2,6,37] clip,
                                             double[1,2,6,37] wide, float16[1,2,6,37] half)
    <float one = {1}>
{
    pool = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (x)
    most = Max(x, z)
    least = Min(x, z)
    rows = ReduceMax <axes = [3]> (x)
    columns = ReduceMin <axes = [1]> (x)
    r = Relu(x)
    clip = Clip(r, , one)
    a = Cast <to = 11> (x)
    b = Cast <to = 11> (z)
    wide = Max(a, b)
    c = Cast <to = 10> (x)
    d = Cast <to = 10> (z)
    half = Min(c, d)
}"""


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> dict[str, driver.CompiledModel]:
    cache = tmp_path_factory.mktemp("cache")
    m = parser.parse_model(MODEL)
    return {n: driver.compile(m, numerics=n, lto="none", cache=cache) for n in ("default", "fast")}


def feeds() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(SEED)
    return {n: rng.standard_normal((1, 2, 6, 37)).astype(np.float32) for n in "xz"}


def test_without_nan_every_bit_is_the_same(compiled: dict[str, driver.CompiledModel]) -> None:
    given = feeds()
    given["x"][0, 0, 0, :3] = np.inf, -np.inf, -0.0
    default, fast = (compiled[n].run(given) for n in ("default", "fast"))
    assert {k: v.tobytes() for k, v in default.items()} == {k: v.tobytes() for k, v in fast.items()}


def test_nan_stays_by_default_and_may_lose_in_fast(compiled: dict[str, driver.CompiledModel]) -> None:
    given = feeds()
    given["x"][0, 0, 0, 0] = NAN
    default, fast = (compiled[n].run(given) for n in ("default", "fast"))
    assert all(np.isnan(y.astype(np.float64)).any() for y in default.values())
    assert sum(int(np.isnan(y.astype(np.float64)).sum()) for y in fast.values()) < \
        sum(int(np.isnan(y.astype(np.float64)).sum()) for y in default.values())
    for name, y in fast.items():  # what a NaN does not reach is not touched
        sure = ~np.isnan(default[name].astype(np.float64))
        assert np.array_equal(y[sure], default[name][sure])


def test_fast_is_another_image(compiled: dict[str, driver.CompiledModel]) -> None:
    assert Path(compiled["default"].path).read_bytes() != Path(compiled["fast"].path).read_bytes()
