"""Random operators: their distributions, seeds, and what changes from run to run."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import parser

import monobloc
from monobloc.errors import MonoblocError
from monobloc.frontend.importer import load_onnx
from monobloc.frontend.importing import Choices
from monobloc.ir.interp import interpret
from monobloc.ir.text import parse_graph, print_graph

N = 20000


def text(body: str) -> onnx.ModelProto:
    return parser.parse_model(f'<ir_version: 10, opset_import: ["" : 22]>\n{body}')


def draws(node: str, feeds: dict[str, np.ndarray], runs: int = 1, inputs: str = "float[N] x") -> list[np.ndarray]:
    """What the reference says of run after run"""
    m = text(f"g ({inputs}) => (float y) {{ y = {node} }}")
    m.graph.output[0].CopyFrom(onnx.helper.make_empty_tensor_value_info("y"))
    g = load_onnx(m, Choices(shapes={k: x.shape for k, x in feeds.items()})).graph
    assert print_graph(parse_graph(print_graph(g))) == print_graph(g)
    state = next(v for v in g.inputs if v.state)
    return [interpret(g, {**feeds, str(state.origin): np.uint64(k)})["y"] for k in range(runs)]


X = np.zeros(N, np.float32)


@pytest.mark.parametrize(
    ("node", "mean", "deviation"),
    [
        ("RandomUniformLike<low = -2.0, high = 4.0>(x)", 1.0, 6 / 12**0.5),
        ("RandomNormalLike<mean = 3.0, scale = 2.0>(x)", 3.0, 2.0),
        (f"RandomNormal<shape = [{N}], dtype = 11>()", 0.0, 1.0),
        (f"RandomUniform<shape = [{N}], dtype = 10>()", 0.5, 12**-0.5),
    ],
)
def test_moments(node: str, mean: float, deviation: float) -> None:
    (y,) = draws(node, {"x": X})
    assert abs(float(y.mean(dtype=np.float64)) - mean) < 5 * deviation / N**0.5
    assert abs(float(y.std(dtype=np.float64)) / deviation - 1) < 0.03


def test_uniform_numbers_are_even() -> None:
    """Eight classes, chi squared with seven degrees of freedom; neighbours are independent."""
    (y,) = draws(f"RandomUniform<shape = [{N}]>()", {"x": X})
    assert y.min() >= 0 and y.max() < 1
    counts = np.histogram(y, 8, (0, 1))[0]
    assert ((counts - N / 8) ** 2 / (N / 8)).sum() < 24.3  # 0.1 %
    assert abs(np.corrcoef(y[1:], y[:-1])[0, 1]) < 4 / N**0.5


def test_chances() -> None:
    p = np.linspace(0, 1, N).astype(np.float32)
    (y,) = draws("Bernoulli<dtype = 9>(x)", {"x": p})
    assert y.dtype == np.bool_ and not y[:2].any()
    for part in range(4):
        want = p[part * N // 4 : (part + 1) * N // 4].mean()
        assert abs(y[part * N // 4 : (part + 1) * N // 4].mean() - want) < 5 * 0.5 / (N / 4) ** 0.5
    assert draws("Bernoulli(x)", {"x": np.ones(9, np.float32)})[0].tolist() == [1] * 9


def test_classes() -> None:
    shares = np.array([[0.1, 0.6, 0.3], [0.0, 0.0, 1.0]], np.float32)
    with np.errstate(divide="ignore"):
        (y,) = draws("Multinomial<sample_size = 20000, dtype = 7>(x)", {"x": np.log(shares) + 3}, inputs="float[2,3] x")
    assert y.dtype == np.int64 and y.shape == (2, 20000)
    for row, want in zip(y, shares, strict=True):
        np.testing.assert_allclose(np.bincount(row, minlength=3) / 20000, want, atol=0.02)


def test_seeds_and_runs() -> None:
    """Equal seeds are equal numbers, a run differs from the one before, and from node to node too."""
    a = draws("RandomUniformLike<seed = 3.0>(x)", {"x": X[:8]}, 2)
    assert (a[0] != a[1]).all()
    b = draws("RandomUniformLike<seed = 3.0>(x)", {"x": X[:8]}, 2)
    assert (a[0] == b[0]).all() and (a[1] == b[1]).all()
    assert (draws("RandomUniformLike<seed = 4.0>(x)", {"x": X[:8]})[0] != a[0]).all()
    m = text("g (float[8] x) => (float[8] y, float[8] z) { y = RandomUniformLike(x) z = RandomUniformLike(x) }")
    made = monobloc.compile(m, lto="none")
    assert [s.name for s in made.inputs] == ["x"] and [s.name for s in made.outputs] == ["y", "z"]
    first, second = made.run(), made.run()
    assert (first["y"] != first["z"]).all() and (first["y"] != second["y"]).all()
    made.reset()
    again = made.run()
    assert (again["y"] == first["y"]).all() and (again["z"] == first["z"]).all()
    other = monobloc.compile(m, lto="none").run()
    assert (other["y"] == first["y"]).all()


def test_inside_of_a_branch() -> None:
    m = text("""g (float[2] x, bool c) => (float[2] y) {
      y = If(c) <then_branch = t () => (float[2] a) { a = RandomUniformLike(x) },
                 else_branch = e () => (float[2] b) { b = Neg(x) }>
    }""")
    with pytest.raises(MonoblocError, match="RandomUniformLike in a body that runs by chance"):
        load_onnx(m)
