"""Layouts: channels last round convolutions, plain at the border, as few conversions as there can be."""

from __future__ import annotations

import numpy as np

from monobloc.ir.graph import Graph, Value
from monobloc.ir.types import DType, TensorType
from monobloc.ops.build import Builder
from monobloc.passes import PassContext, run_passes
from monobloc.passes.fuse import Fuse
from monobloc.passes.layout import LayoutPass, channels_last, same_memory
from monobloc.targets import resolve

LAST = channels_last(4)


def graph(*shapes: tuple[int, ...]) -> tuple[Graph, Builder, list[Value]]:
    g = Graph("g")
    return g, Builder(g), [g.add_input(f"x{k}", TensorType(DType.F32, s)) for k, s in enumerate(shapes)]


def conv(b: Builder, x: Value, out: int = 32, k: int = 3) -> Value:
    attrs = {"group": 1, "pads": [k // 2] * 4, "strides": [1, 1], "dilations": [1, 1], "kernel_shape": [k, k]}
    w = np.ones((out, x.shape[1], k, k), np.float32)
    return b.one("Conv", x, b.const(w), None, **attrs)


def laid_out(g: Graph, **outputs: Value) -> tuple[list[str], PassContext]:
    g.outputs = list(outputs.items())
    ctx = PassContext(resolve())
    run_passes(g, ctx, [Fuse(), LayoutPass()])
    return [n.op if n.body is None else "+".join(m.op for m in n.body.nodes) for n in g.nodes], ctx


def test_between_convolutions_nothing_is_converted() -> None:
    """Pooling, arithmetic and concatenation take the convolutions' layout along; one way in, one way out."""
    g, b, (x,) = graph((1, 32, 16, 16))
    y = conv(b, x)
    pool = {"kernel_shape": [2, 2], "strides": [2, 2], "pads": [0] * 4, "dilations": [1, 1], "ceil_mode": 0}
    y = b.emit("MaxPool", [y], {**pool, "storage_order": 0})[0]
    y = b.emit("Concat", [conv(b, y), b.one("Tanh", conv(b, y))], {"axis": 1})[0]
    y = conv(b, y)
    kinds, _ = laid_out(g, y=y)
    assert kinds.count("Copy") <= 2 and kinds[-1] == "Copy"
    inner = [v for n in g.nodes for v in n.outputs if n.op != "Copy"]
    assert all(same_memory(v.type, v.type.layout, LAST) for v in inner), [str(v.type) for v in inner]


def test_the_border_is_plain() -> None:
    g, b, (x,) = graph((2, 32, 8, 8))
    laid_out(g, y=conv(b, x), z=b.one("Relu", conv(b, x)))
    assert all(v.type.layout is None for v in g.inputs)
    assert all(same_memory(v.type, v.type.layout, None) for _, v in g.outputs)


def test_one_conversion_serves_all_who_want_it() -> None:
    g, b, (x,) = graph((2, 32, 8, 8))
    y = conv(b, x)
    flat = [b.one("Reshape", y, shape=[2, 32 * 64]), b.one("Reshape", y, shape=[64, 64])]
    kinds, ctx = laid_out(g, a=b.one("Softmax", flat[0], axis=1), b=b.one("Softmax", flat[1], axis=1))
    assert kinds.count("Copy") <= 2  # what goes in, and one for both reshapes
    told = [why for _, by, why in ctx.why if by == "layout"]
    assert len(told) == kinds.count("Copy") and all("conversion" in why for why in told)


def test_layouts_that_are_the_same_memory_are_not_converted() -> None:
    """One channel, or one pixel: both orders put every element at the same place."""
    t = TensorType(DType.F32, (2, 1, 8, 8))
    assert same_memory(t, None, LAST) and not same_memory(TensorType(DType.F32, (2, 3, 8, 8)), None, LAST)
    g, b, (x,) = graph((1, 64, 1, 1))
    kinds, _ = laid_out(g, y=conv(b, b.one("Relu", x), 64, 1))
    assert "Copy" not in kinds


def test_products_stay_plain() -> None:
    g, b, (x,) = graph((2, 4, 8, 16))
    y = b.one("MatMul", x, b.const(np.ones((16, 16), np.float32)))
    kinds, _ = laid_out(g, y=b.one("Softmax", y, axis=3))
    assert "Copy" not in kinds and all(v.type.layout is None for n in g.nodes for v in n.outputs)


def test_strides_follow_the_layout() -> None:
    t = TensorType(DType.F32, (2, 3, 4, 5), LAST)
    assert t.strides == (60, 1, 15, 3) and str(t) == "f32[2,3,4,5]{0,2,3,1}"
    assert t.with_layout((0, 1, 2, 3)).layout is None
