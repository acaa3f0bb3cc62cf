"""Windows that LiteRT's kernels do not look at: places without an axis of their own, and outside of the tensor."""

from __future__ import annotations

import numpy as np
import pytest
from cases_windows import gather, scatter
from tfl_files import Net, i32
from tfl_single import F32, I32, I64, two_numbers

import monobloc
from monobloc.errors import MonoblocError
from monobloc.frontend import load_model
from monobloc.frontend.tflite.importer import load_tflite
from monobloc.ir.interp import interpret


def written(body: str = "") -> bytes:
    n = Net()
    x, at, u, y = (n.tensor(*t) for t in (("x", (4, 3), F32), ("at", (5,), I32), ("u", (5, 2), F32),
                                          ("y", (4, 3), F32)))
    n.op("STABLEHLO_SCATTER", [x, at, u], [y], scatter((1,), (0,), (0,), 1))
    return n.file([x, at, u], [y], others=[two_numbers(n, body, F32)])


def test_places_outside_are_written_nowhere() -> None:
    x, u = np.zeros((4, 3), F32), np.arange(1, 11, dtype=F32).reshape(5, 2)
    feed = {"x": x, "at": np.array([-1, 4, 2, -(2**31), 2**31 - 1], I32), "u": u}
    want = x.copy()
    want[2, :2] = u[2]
    assert np.array_equal(interpret(load_model(written()).graph, feed)["y"], want)
    assert np.array_equal(monobloc.compile(written(), lto="none").run(feed)["y"], want)


def test_an_update_of_two_operators_is_told() -> None:
    with pytest.raises(MonoblocError, match="updates by SUB is not supported"):
        load_model(written("SUB"))


def test_places_may_be_numbers_of_their_own() -> None:
    n = Net()
    x, at, y = n.tensor("x", (6, 4), F32), n.tensor("at", (2, 3), I64), n.tensor("y", (2, 3, 4), F32)
    n.op("STABLEHLO_GATHER", [x, at], [y], gather((2,), (0,), (0,), 2, (1, 4)))
    feed = {"x": np.arange(24, dtype=F32).reshape(6, 4), "at": np.array([[0, 5, 9], [-3, 2, 1]], I64)}
    got = interpret(load_tflite(n.file([x, at], [y])).graph, feed)["y"]
    assert np.array_equal(got, feed["x"][np.clip(feed["at"], 0, 5)])


def test_a_long_window_takes_few_steps() -> None:
    n = Net()
    x, y = n.tensor("x", (1000,), F32), n.tensor("y", (1,), F32)
    window = [n.const(f"c{k}", np.array([v], I64)) for k, v in enumerate((1000, 1, 1))]
    n.op("REDUCE_WINDOW", [x, n.const("c", np.array(0, F32)), *window], [y], {0: i32(1)})
    g = load_tflite(n.file([x], [y])).graph
    assert len(g.nodes) < 60
    assert interpret(g, {"x": np.ones(1000, F32)})["y"] == 1000
