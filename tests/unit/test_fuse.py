"""Grouping: what becomes one loop nest or one kernel call, what must not, and that the reasons are told."""

from __future__ import annotations

import numpy as np

from monobloc.ir.graph import Graph, Node, Value
from monobloc.ir.types import DType, TensorType
from monobloc.ops.build import Builder
from monobloc.passes import PassContext, run_passes
from monobloc.passes.fuse import Fuse
from monobloc.targets import resolve


def graph(*shapes: tuple[int, ...]) -> tuple[Graph, Builder, list[Value]]:
    g = Graph("g")
    return g, Builder(g), [g.add_input(f"x{k}", TensorType(DType.F32, s)) for k, s in enumerate(shapes)]


def fused(g: Graph, **outputs: Value) -> tuple[list[list[str]], PassContext]:
    """Operators of every node that is left, in order."""
    g.outputs = list(outputs.items())
    ctx = PassContext(resolve())
    run_passes(g, ctx, [Fuse()])
    return [ops(n) for n in g.nodes], ctx


def ops(n: Node) -> list[str]:
    return [m.op for m in n.body.nodes] if n.body is not None else [n.op]


def test_a_chain_is_one_loop_nest() -> None:
    g, b, (x,) = graph((4, 5))
    y = b.one("Neg", b.one("Tanh", b.one("Mul", x, b.const(np.float32(2)))))
    assert fused(g, y=y)[0] == [["Mul", "Tanh", "Neg"]]


def test_what_leaves_or_is_read_twice_is_computed_once() -> None:
    g, b, (x,) = graph((4, 5))
    t = b.one("Tanh", x)
    groups, ctx = fused(g, t=t, y=b.one("Neg", t))
    assert groups == [["Tanh"], ["Neg"]]
    assert ("tanh", "fuse", "not fused into 'neg': its result is read 2 times") in ctx.why


def test_expensive_values_are_not_computed_for_every_reader() -> None:
    """An exponential that a broadcast reads five times stays; a sum is cheap enough."""
    for op, together in (("Exp", False), ("Relu", True)):
        g, b, (x, z) = graph((4, 1), (4, 5))
        groups, _ = fused(g, y=b.one("Add", z, b.one(op, x)))
        assert (len(groups) == 1) == together, op


def test_a_fold_is_not_computed_for_every_element() -> None:
    g, b, (x, z) = graph((6, 7), (5, 6, 7))
    total = b.one("ReduceSum", x, axes=[0], keepdims=0)
    groups, ctx = fused(g, y=b.one("Add", z, total))
    assert groups == [["ReduceSum"], ["Add"]]
    assert any("a reduction would be computed again" in why for _, _, why in ctx.why)


def test_what_is_joined_is_read_often_from_one_place() -> None:
    """A window over parts would choose between them at every tap; the parts can be written side by side."""
    g, b, (x, z) = graph((1, 8, 6, 6), (1, 8, 6, 6))
    joined = b.one("Concat", x, z, axis=1)
    window = {"kernel_shape": [3, 3], "strides": [2, 2], "dilations": [1, 1], "pads": [0] * 4, "ceil_mode": 0}
    y = b.emit("MaxPool", [joined], window | {"storage_order": 0})[0]
    assert fused(g, y=y)[0] == [["Concat"], ["MaxPool"]]
    g, b, (x, z) = graph((1, 8, 6, 6), (1, 8, 6, 6))
    assert fused(g, y=b.one("Relu", b.one("Concat", x, z, axis=1)))[0] == [["Concat", "Relu"]]


def test_a_fold_along_the_row_is_computed_before_it() -> None:
    g, b, (x,) = graph((6, 7))
    total = b.one("ReduceSum", x, axes=[1], keepdims=1)
    assert fused(g, y=b.one("Div", x, total))[0] == [["ReduceSum", "Div"]]


def product(b: Builder, x: Value, n: int = 16) -> Value:
    return b.one("MatMul", x, b.const(np.ones((x.shape[-1], n), np.float32)))


def test_epilogues() -> None:
    g, b, (x, z) = graph((4, 8), (4, 16))
    bias = b.const(np.ones(16, np.float32))
    y = b.one("Relu", b.one("Add", b.one("Add", product(b, x), bias), z))
    assert fused(g, y=y)[0] == [["MatMul", "Add", "Add", "Relu"]]


def test_an_epilogue_ends_where_another_result_is_needed() -> None:
    g, b, (x,) = graph((4, 8))
    m = product(b, x)
    groups, _ = fused(g, m=m, y=b.one("Relu", m))
    assert groups == [["MatMul"], ["Relu"]]
    g, b, (x,) = graph((4, 8))
    groups, ctx = fused(g, y=b.one("ReduceSum", b.one("Relu", product(b, x)), axes=[0], keepdims=0))
    assert groups == [["MatMul", "Relu"], ["ReduceSum"]]
    assert any("the epilogue ends before ReduceSum" in why for _, _, why in ctx.why)


def test_contractions_do_not_swallow_each_other() -> None:
    g, b, (x,) = graph((4, 8))
    y = b.one("Add", product(b, x), product(b, b.one("Tanh", x)))
    groups, _ = fused(g, y=y)
    assert sorted(map(len, groups)) == [1, 1, 2] and sum(group.count("MatMul") for group in groups) == 2


def test_groups_never_form_a_cycle() -> None:
    """y reads x through a contraction and directly: the elementwise parts cannot all be one group."""
    g, b, (x,) = graph((4, 8))
    t = b.one("Abs", x)
    y = b.one("Add", b.one("MatMul", t, b.const(np.ones((8, 8), np.float32))), b.one("Neg", t))
    groups, _ = fused(g, y=y)
    assert [group for group in groups if "MatMul" in group] and sum(map(len, groups)) == 4


def test_names_stay() -> None:
    """A group is known by its result, a kernel call by its contraction; all origins stay."""
    g = Graph("g")
    x = g.add_input("x", TensorType(DType.F32, (4, 8)))
    m = Builder(g, name="fc1", locs=("MatMul_0",)).one("MatMul", x, g.constant("w", np.ones((8, 8), np.float32)))
    y = Builder(g, name="act", locs=("Relu_1",)).one("Relu", m)
    fused(g, y=y)
    assert [(n.name, n.locs) for n in g.nodes] == [("fc1", ("MatMul_0", "Relu_1"))]
