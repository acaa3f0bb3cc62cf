"""Convolutions lose the taps that meet nothing but padding, and no more: random shapes, before and after."""

from __future__ import annotations

import numpy as np

from monobloc.ir.graph import Graph
from monobloc.ir.interp import interpret
from monobloc.ir.types import DType, TensorType
from monobloc.ir.verify import verify
from monobloc.ops.build import Builder
from monobloc.passes import PassContext
from monobloc.passes.canonicalize import Canonicalize
from monobloc.targets import resolve

SEED = 31
print(f"seed {SEED}")


def convolution(rng: np.random.Generator) -> tuple[Graph, int]:
    """A Conv, and how many taps of it meet the image."""
    size, kernel = rng.integers(1, 7, 2), rng.integers(1, 5, 2)
    dilations, strides = rng.integers(1, 8, 2), rng.integers(1, 4, 2)
    extent = (kernel - 1) * dilations + 1
    pads = [int(p) for p in rng.integers(0, 12, 4)]
    for k in range(2):  # at least one output
        pads[2 + k] = max(pads[2 + k], int(extent[k] - size[k] - pads[k]))
    g = Graph("g")
    x = g.add_input("x", TensorType(DType.F32, (1, 2, *map(int, size))))
    w = rng.standard_normal((3, 2, *map(int, kernel))).astype(np.float32)
    attrs = {"kernel_shape": kernel.tolist(), "dilations": dilations.tolist(), "strides": strides.tolist(),
             "pads": pads, "group": 1}
    b = Builder(g)
    y = b.one("Conv", x, b.const(w), **attrs)
    g.outputs.append(("y", y))
    meeting = 1
    for k in range(2):
        at = np.arange(y.shape[2 + k])[:, None] * strides[k] + np.arange(kernel[k]) * dilations[k] - pads[k]
        meeting *= int(((at >= 0) & (at < size[k])).any(0).sum())
    return g, meeting


def test_trimmed_convolutions_give_the_same() -> None:
    rng, trimmed = np.random.default_rng(SEED), 0
    for _ in range(300):
        g, meeting = convolution(rng)
        x = rng.standard_normal(g.inputs[0].shape).astype(np.float32)
        want = interpret(g, {"x": x})["y"]
        trimmed += Canonicalize().run(g, PassContext(resolve("x86_64-linux", "x86-64-v3")))
        verify(g)
        np.testing.assert_allclose(interpret(g, {"x": x})["y"], want, rtol=1e-5, atol=1e-5)
        (conv,) = [n for n in g.nodes if n.op == "Conv"]
        assert conv.inputs[1] is not None and np.prod(conv.inputs[1].shape[2:]) >= meeting
    assert trimmed > 50
