"""Places: what needs no memory of its own, and that no two living buffers meet."""

from __future__ import annotations

import numpy as np

from monobloc.codegen.lower import Lowered, lower
from monobloc.ir.graph import Graph, Value
from monobloc.ir.types import DType, TensorType
from monobloc.ops.build import Builder
from monobloc.passes import PassContext
from monobloc.targets import resolve


def graph(*shapes: tuple[int, ...]) -> tuple[Graph, Builder, list[Value]]:
    g = Graph("g")
    return g, Builder(g), [g.add_input(f"x{k}", TensorType(DType.F32, s)) for k, s in enumerate(shapes)]


def lowered(g: Graph, **outputs: Value) -> Lowered:
    g.outputs = list(outputs.items())
    return lower(g, PassContext(resolve()), "m", "m")


def layers(low: Lowered) -> int:
    return "".join(low.files.values()).count("MB_LAYER int layer_")


def conv(b: Builder, x: Value, weights: np.ndarray, group: int = 1) -> Value:
    k = weights.shape[-1]
    attrs = {"group": group, "pads": [k // 2] * 4, "strides": [1, 1], "dilations": [1, 1], "kernel_shape": [k, k]}
    return b.one("Conv", x, b.const(weights.astype(np.float32)), None, **attrs)


def test_reshapes_between_layers_are_views() -> None:
    g, b, (x,) = graph((4, 6))
    y = b.one("Reshape", b.one("Softmax", x, axis=1), shape=[2, 12])
    low = lowered(g, y=b.one("Softmax", y, axis=1))
    assert [n.op for n in low.placement.views] == ["Reshape"] and layers(low) == 2


def test_inputs_of_a_concat_are_written_into_it() -> None:
    g, b, (x,) = graph((1, 16, 8, 8))
    rng = np.random.default_rng(1)
    parts = [conv(b, x, rng.standard_normal((16, 16, 1, 1))) for _ in range(2)]
    joined = b.emit("Concat", parts, {"axis": 1})[0]
    low = lowered(g, y=conv(b, joined, rng.standard_normal((4, 32, 1, 1))))
    storage = {v.name: s for v, s in low.placement.storage.items()}
    whole = low.graph.nodes[[n.op for n in low.graph.nodes].index("Concat")]
    assert len({storage[v.name].base for v in [*whole.used, *whole.outputs]}) == 1
    assert whole in low.placement.views


def test_elementwise_layers_run_in_place() -> None:
    """One buffer for layers that each read what they overwrite, for the last time."""
    g, b, (x,) = graph((1000,))
    first = b.one("Exp", x)
    total = b.one("ReduceSum", first, axes=[0], keepdims=1)
    second = b.one("Sigmoid", first)
    most = b.one("ReduceMax", second, axes=[0], keepdims=1)
    low = lowered(g, total=total, most=most, y=b.one("Neg", second))
    assert low.placement.arena < 3.2 * 4000, "input, output and one buffer between them"


def test_buffers_alive_at_once_do_not_meet() -> None:
    g, b, (x,) = graph((1, 8, 16, 16))
    rng = np.random.default_rng(2)
    y = x
    for _ in range(4):
        inner = b.one("Relu", conv(b, y, rng.standard_normal((8, 8, 3, 3))))
        y = b.one("Add", conv(b, inner, np.ones((8, 8, 1, 1))), y)
    p = lowered(g, y=y).placement
    spans = [(at, at + v.type.bytes, first, last, v.name) for v, at, first, last in p.buffers]
    for i, (a0, a1, f0, l0, n0) in enumerate(spans):
        assert a0 >= 0 and a1 <= p.arena
        for b0, b1, f1, l1, n1 in spans[i + 1 :]:
            disjoint = a1 <= b0 or b1 <= a0 or l0 < f1 or l1 < f0
            shared = a0 == b0 and (l0 == f1 or l1 == f0)  # in place
            assert disjoint or shared, f"{n0} and {n1} meet"


def test_epilogues_read_views_of_lower_rank() -> None:
    """A number, or a row, that is another buffer seen differently, added inside a convolution and a product."""
    g, b, (x, z) = graph((2, 4, 5, 3), (8, 4))
    one = b.one("Reshape", b.one("ReduceMin", z, axes=[0, 1], keepdims=1), shape=[1])
    row = b.one("Reshape", b.one("ReduceMax", z, axes=[0], keepdims=1), shape=[4, 1, 1])
    y = b.one("Add", one, conv(b, x, np.ones((4, 1, 1, 1)), group=4))
    y2 = b.one("Add", conv(b, x, np.ones((4, 4, 1, 1))), row)
    number = b.one("Reshape", one, shape=[])
    y3 = b.one("Add", b.one("MatMul", z, b.const(np.ones((4, 5), np.float32))), number)
    low = lowered(g, y=y, y2=y2, y3=y3, one=b.one("HardSwish", one))
    assert layers(low) >= 3
