"""What two models have in common is computed once when they read one input: fine-tuned copies, one backbone."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from border import Linked, build, model
from onnx import helper

from monobloc.options import Options

node = helper.make_node
SEED = 31
print(f"seed {SEED}")
OPTIONS = Options(lto="none")


def tuned(head: int, norm: int = 0, swapped: bool = False) -> onnx.ModelProto:
    """A backbone with seeded weights, and a head of its own; `norm` tunes the last normalization too."""
    rng = np.random.default_rng(SEED)
    w = {"w1": rng.standard_normal((8, 3, 3, 3)), "w2": rng.standard_normal((16, 8, 3, 3)) / 6,
         "s": rng.uniform(0.5, 2, 16) + norm, "t": rng.standard_normal(16), "m": rng.standard_normal(16),
         "v": rng.uniform(0.5, 2, 16)}
    w["head"] = np.random.default_rng(head).standard_normal((16, 4))
    pair = ["g", "n"] if not swapped else ["n", "g"]
    nodes = [node("Conv", ["x", "w1"], ["c1"], pads=[1, 1, 1, 1], strides=[2, 2]), node("Relu", ["c1"], ["r1"]),
             node("Conv", ["r1", "w2"], ["c2"], pads=[1, 1, 1, 1]),
             node("BatchNormalization", ["c2", "s", "t", "m", "v"], ["n"]), node("Sigmoid", ["n"], ["g"]),
             node("Mul", pair, ["silu"]), node("GlobalAveragePool", ["silu"], ["p"]),
             node("Flatten", ["p"], ["f"]), node("MatMul", ["f", "head"], ["y"])]
    return model(nodes, [("x", "f32", [1, 3, 16, 16])], [("y", "f32", [1, 4])],
                 **{k: a.astype(np.float32) for k, a in w.items()})


def kernels(made: Linked) -> int:
    return sum(op in ("Conv", "MatMul") for op in made.ops)


@pytest.mark.parametrize("swapped", [False, True], ids=["same", "operands the other way"])
def test_a_frozen_backbone_is_computed_once(swapped: bool, tmp_path: Path) -> None:
    models = {"a": tuned(1), "b": tuned(2, swapped=swapped)}
    alone = {name: build({name: m}, tmp_path, OPTIONS) for name, m in models.items()}
    both = build(models, tmp_path, OPTIONS, "b.x=a.x")
    assert [kernels(alone["a"]), kernels(alone["b"]), kernels(both)] == [3, 3, 4]
    assert len(both.ops) == len(alone["a"].ops) + 1  # the other head
    assert both.low.weights_bytes < 0.6 * sum(m.low.weights_bytes for m in alone.values())
    x = np.random.default_rng(SEED).standard_normal((1, 3, 16, 16)).astype(np.float32)
    got = both(x=x)
    assert got["y"].tobytes() == alone["a"](x=x)["y"].tobytes()
    assert got["b.y"].tobytes() == alone["b"](x=x)["y"].tobytes()


def test_what_was_tuned_is_computed_twice(tmp_path: Path) -> None:
    models = {"a": tuned(1), "b": tuned(2, norm=1)}
    both = build(models, tmp_path, OPTIONS, "b.x=a.x")
    assert kernels(both) == 4, "both convolutions are shared, though their normalizations differ"
    x = np.random.default_rng(SEED).standard_normal((1, 3, 16, 16)).astype(np.float32)
    got = both(x=x)
    for name, out in (("a", "y"), ("b", "b.y")):
        want = build({name: models[name]}, tmp_path, OPTIONS)(x=x)["y"]
        np.testing.assert_allclose(got[out], want, rtol=1e-4, atol=1e-5)  # scales go into weights where they can
