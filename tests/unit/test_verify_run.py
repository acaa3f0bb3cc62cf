"""When two answers agree: tolerances, large outputs, models that amplify rounding."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest
from onnx import parser

from monobloc import verify_run
from monobloc.feeds import index_limits, random_feeds
from monobloc.frontend.importer import load_onnx
from monobloc.loader import TensorSpec

F32 = np.float32


def one(got: np.ndarray, want: np.ndarray) -> verify_run.Difference:
    return verify_run.compare("y", got, want)


def test_small_elements_among_large_ones_may_be_off_by_the_rounding_of_these() -> None:
    want = np.array([4000, 0.168], F32)
    assert one(want + np.array([0, 0.006], F32), want).ok
    assert not one(want + np.array([0, 0.03], F32), want).ok
    small = np.array([4, 0.168], F32)
    assert not one(small + np.array([0, 0.006], F32), small).ok


def test_infinite_elements_allow_nothing_more() -> None:
    want = np.array([np.inf, 0.1], F32)
    assert not one(np.array([np.inf, 0.11], F32), want).ok


def chaotic(feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Large numbers that cancel: the answer is mostly rounding."""
    x = feeds["x"].astype(np.float64)
    return {"y": ((x - F32(0.7)) * 1e5).astype(F32)}


@pytest.mark.parametrize(("error", "ok"), [(0.01, True), (1.0, False)])
def test_what_rounding_of_inputs_does_to_the_oracle_is_no_error_of_ours(error: float, ok: bool) -> None:
    feeds = {"x": np.full(8, 0.7, F32)}
    want = chaotic(feeds)
    found = verify_run.compare_all({"y": want["y"] + F32(error)}, want, None, None)
    assert not found[0].ok
    (d,) = verify_run.with_amplification(found, feeds, want, chaotic)
    assert d.ok is ok and d.is_rounding is ok
    assert d.amplified > 0


def test_an_oracle_that_does_not_amplify_excuses_nothing() -> None:
    feeds = {"x": np.ones(8, F32)}
    found = verify_run.compare_all({"y": feeds["x"] * F32(1.01)}, {"y": feeds["x"]}, None, None)
    (d,) = verify_run.with_amplification(found, feeds, {"y": feeds["x"]}, lambda f: {"y": f["x"]})
    assert not d.ok


def test_strings_and_sizes_that_rounding_changes_are_told_as_they_are() -> None:
    """The oracle's own names and numbers of rows change with the last bit; a wrong one of ours is wrong."""
    def oracle(feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        above = feeds["x"] > F32(0.7)
        return {"label": np.where(above, "a", "b").astype(object), "rows": feeds["x"][above], **chaotic(feeds)}

    feeds = {"x": np.full(8, 0.7, F32)}
    want = oracle(feeds)
    got = {"label": np.full(8, "c", object), "rows": np.zeros(2, F32), "y": want["y"] + F32(0.01)}
    found = verify_run.with_amplification(verify_run.compare_all(got, want, None, None), feeds, want, oracle)
    assert {d.name: d.ok for d in found} == {"label": False, "rows": False, "y": True}


def test_random_indices_stay_inside_their_tables() -> None:
    m = parser.parse_model("""<ir_version: 8, opset_import: ["" : 18]>
        g (int64[64] a, int64[64] b, int64[64] c) => (float[64,2] y, int64[64] z)
        <float[3,2] t = {1, 2, 3, 4, 5, 6}, float[99,2] u> {
            a32 = Cast <to: int = 6> (a)  p = Gather(t, a32)  q = Gather(t, b)  y = Add(p, q)  z = Abs(c) }""")
    g = load_onnx(m).graph
    assert index_limits(g) == {"a": 3, "b": 3}
    feeds = random_feeds([TensorSpec(n, np.dtype(np.int64), (64,)) for n in "abc"], 0, index_limits(g))
    assert feeds["a"].max() == 2 and feeds["b"].max() == 2 and feeds["c"].max() > 2
