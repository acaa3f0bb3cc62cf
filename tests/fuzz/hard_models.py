"""Models that are hard for a planner, for fusion or for the interface, each built by one function."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np
from builder import Builder

CASES: dict[str, Callable[[Builder], tuple[str, ...]]] = {}


def case(f: Callable[[Builder], tuple[str, ...]]) -> Callable[[Builder], tuple[str, ...]]:
    CASES[f.__name__] = f
    return f


def weights(b: Builder, *shape: int) -> str:
    return b.constant(b.random(shape) * np.float32(np.prod(shape[1:]) ** -0.5))


def same(b: Builder, x: str, oc: int, k: int = 3, group: int = 1) -> str:
    """A convolution that keeps the size."""
    w = weights(b, oc, b.values[x].shape[1] // group, k, k)
    return b.one("Conv", x, w, group=group, pads=[k // 2] * 4)


# -- the interface ------------------------------------------------------------------------------------
@case
def output_is_input(b: Builder) -> tuple[str, ...]:
    return (b.input(b.random((2, 3))),)


@case
def output_is_constant(b: Builder) -> tuple[str, ...]:
    return b.constant(b.random((4,))), b.one("Relu", b.input(b.random((2, 3))))


@case
def inputs_nobody_reads(b: Builder) -> tuple[str, ...]:
    b.input(b.random((3, 4)))
    b.input(b.random((0,)))
    return (b.one("Relu", b.constant(b.random((3,)))),)


@case
def outputs_that_are_views_of_each_other(b: Builder) -> tuple[str, ...]:
    y = b.one("Relu", b.input(b.random((2, 3, 4))))
    r = b.one("Reshape", y, b.ints(6, 4))
    t = b.one("Transpose", r, perm=[1, 0])
    s = b.one("Slice", y, b.ints(0), b.ints(2), b.ints(2))
    return y, r, t, s, b.one("Reshape", r, b.ints(24)), b.one("Identity", y)


@case
def inner_values_are_outputs(b: Builder) -> tuple[str, ...]:
    y = same(b, b.input(b.random((1, 4, 6, 6))), 8, 1)
    r = b.one("Relu", y)
    t = b.one("Transpose", r, perm=[0, 2, 3, 1])
    q = b.one("Reshape", t, b.ints(36, 8))
    return y, r, t, q, b.one("MaxPool", r, kernel_shape=[2, 2], strides=[2, 2]), b.one("Softmax", q)


# -- shape of the graph -------------------------------------------------------------------------------
@case
def wide_fan_out(b: Builder) -> tuple[str, ...]:
    x = b.input(b.random((1, 8, 9, 9)))
    return (b.one("Concat", *(same(b, x, k % 5 + 1) for k in range(64)), axis=1),)


@case
def wide_fan_in(b: Builder) -> tuple[str, ...]:
    x = b.input(b.random((1, 8, 9, 9)))
    ys = [b.one("Sigmoid", b.one("Mul", x, b.constant(np.float32(k)))) for k in range(64)]
    return b.one("Sum", *ys), b.one("Max", *ys)


@case
def long_chain(b: Builder) -> tuple[str, ...]:
    x = y = b.input(b.random((3, 1000)))
    for k in range(200):
        other = x if k % 2 else b.constant(np.float32(0.01 * k))
        y = b.one(("Sigmoid", "Neg", "Tanh", "Abs", "Relu")[k % 5], y) if k % 3 else b.one("Add", y, other)
    return (y,)


@case
def deep_residual(b: Builder) -> tuple[str, ...]:
    y = b.input(b.random((1, 16, 8, 8)))
    for _ in range(20):
        z = same(b, b.one("Relu", same(b, y, 16)), 16, 1)
        y = b.one("Relu", b.one("Mul", b.one("Add", z, y), b.constant(np.float32(0.7))))
    return (y,)


@case
def dense_blocks(b: Builder) -> tuple[str, ...]:
    y = b.input(b.random((1, 4, 7, 7)))
    for _ in range(10):
        y = b.one("Concat", y, same(b, b.one("Relu", y), 4), axis=1)
    return (y,)


@case
def diamonds_in_place(b: Builder) -> tuple[str, ...]:
    a = b.one("Relu", b.input(b.random((64, 64))))
    e = b.one("Add", b.one("Sigmoid", a), b.one("Transpose", a, perm=[1, 0]))
    f = b.one("Add", e, b.one("Transpose", e, perm=[1, 0]))
    g = b.one("Sub", f, b.one("MatMul", f, weights(b, 64, 64)))
    return (b.one("Add", g, b.one("Slice", g, b.ints(-1), b.ints(-100), b.ints(0), b.ints(-1))),)


# -- concatenation ------------------------------------------------------------------------------------
@case
def concat_of_everything(b: Builder) -> tuple[str, ...]:
    x, w = b.input(b.random((2, 3, 4))), b.constant(b.random((2, 3, 4)))
    r = b.one("Relu", x)
    outs = [r]
    for axis in range(3):
        c = b.one("Concat", x, r, w, r, x, axis=axis)
        outs.append(b.one("Concat", c, c, axis=axis))
        outs.append(b.one("Tanh", b.one("Concat", c, b.one("Concat", r, c, axis=axis), axis=axis)))
    return tuple(outs)


@case
def concat_of_slices(b: Builder) -> tuple[str, ...]:
    r = b.one("Relu", b.input(b.random((2, 8, 5))))
    p = [b.one("Slice", r, b.ints(k), b.ints(k + 2), b.ints(1)) for k in (6, 4, 2, 0)]
    c = b.one("Concat", *p, axis=1)
    return c, b.one("Concat", *(b.one("Neg", z) for z in p), *p, axis=1), b.one("Add", c, r)


@case
def channel_shuffle(b: Builder) -> tuple[str, ...]:
    y = same(b, b.input(b.random((1, 8, 5, 5))), 8, group=2)
    y = b.one("Transpose", b.one("Reshape", y, b.ints(1, 2, 4, 5, 5)), perm=[0, 2, 1, 3, 4])
    return (same(b, b.one("Reshape", y, b.ints(1, 8, 5, 5)), 8, group=8),)


@case
def split_convolve_concat(b: Builder) -> tuple[str, ...]:
    y = same(b, b.input(b.random((1, 8, 5, 5))), 8, 1)
    p, q = b.op("Split", y, b.ints(3, 5), outs=2, axis=1)
    return b.one("Concat", p, same(b, q, 5), axis=1), b.one("Concat", q, p, axis=1)


@case
def one_pixel_joins_a_row(b: Builder) -> tuple[str, ...]:
    """One pixel's channels lie side by side, in a row of pixels they do not."""
    x = b.input(b.random((1, 8, 1, 1)))
    y, e = b.one("Relu", x), b.one("Sigmoid", x)
    row = b.one("Relu", b.input(b.random((1, 8, 1, 3))))
    kernels = [b.one("Conv", y, w, group=g) for w, g in (
        (weights(b, 4, 8, 1, 1), 1), (weights(b, 8, 1, 1, 1), 8), (weights(b, 8, 4, 1, 1), 2))]
    made = b.one("Conv", x, weights(b, 8, 8, 1, 1))
    added = b.one("Add", b.one("Conv", x, weights(b, 8, 8, 1, 1)), e)
    joined = [b.one("Concat", v, row, axis=3) for v in (y, made, e)]
    return *kernels, added, *joined


@case
def one_step_joins_a_sequence(b: Builder) -> tuple[str, ...]:
    y = b.one("Conv", b.input(b.random((1, 8, 1))), weights(b, 4, 8, 1))
    return (b.one("Concat", b.one("Conv", b.input(b.random((1, 8, 3))), weights(b, 4, 8, 1)), y, axis=2),)


@case
def pooled_gate_is_joined(b: Builder) -> tuple[str, ...]:
    y = b.one("GlobalAveragePool", b.input(b.random((1, 8, 5, 5))))
    z = same(b, y, 8, 1)
    s = b.one("Sigmoid", z)
    return b.one("Concat", s, y, axis=2), b.one("Concat", s, z, axis=3), b.one("Concat", z, y, axis=1)


@case
def column_of_a_product_is_joined(b: Builder) -> tuple[str, ...]:
    x = b.input(b.random((5, 8)))
    y = b.one("MatMul", x, weights(b, 8, 1))
    row = b.one("Transpose", y, perm=[1, 0])
    return (b.one("Concat", y, b.one("MatMul", x, weights(b, 8, 3)), axis=1),
            b.one("MatMul", row, b.input(b.random((5, 2)))), b.one("MatMul", y, b.input(b.random((1, 2)))))


# -- sizes --------------------------------------------------------------------------------------------
@case
def zero_sizes(b: Builder) -> tuple[str, ...]:
    x, y = b.input(b.random((0, 3))), b.input(b.random((2, 3)))
    return (b.one("Relu", x), b.one("Concat", x, y, axis=0), b.one("MatMul", x, b.constant(b.random((3, 4)))),
            b.one("MatMul", b.constant(b.random((3, 0))), x), b.one("ReduceSum", x, b.ints(0), keepdims=0),
            b.one("Reshape", x, b.ints(3, 0), allowzero=1), b.one("Slice", y, b.ints(2), b.ints(2), b.ints(1)))


@case
def scalars(b: Builder) -> tuple[str, ...]:
    x, y = b.input(b.random(())), b.input(b.random((1,)))
    return (b.one("Relu", x), b.one("Add", x, y), b.one("Reshape", x, b.ints(1, 1)), b.one("Unsqueeze", x, b.ints(0)),
            b.one("ReduceSum", x), b.one("Squeeze", y), b.one("Shape", x), b.one("Expand", x, b.ints(2, 3)))


@case
def a_product_with_one_number(b: Builder) -> tuple[str, ...]:
    """Constants of one element are written into code, but kernels read theirs from memory."""
    x = b.input(b.random((1, 3, 1)))
    y = b.one("MatMul", x, b.constant(np.array([[-0.6]], np.float32)))
    p = b.one("Conv", b.input(b.random((1, 1, 4, 4))), b.constant(np.full((1, 1, 1, 1), 0.7, np.float32)))
    return b.one("Add", y, b.input(b.random(()))), b.one("Relu", p)


@case
def six_axes(b: Builder) -> tuple[str, ...]:
    x, w = b.input(b.random((2, 3, 2, 3, 2, 3))), b.input(b.random((2, 1, 2, 1, 2, 1)))
    return (b.one("Mul", x, w), b.one("Transpose", x, perm=[5, 3, 1, 0, 2, 4]), b.one("Softmax", x, axis=2),
            b.one("ReduceMean", x, b.ints(0, 2, 4), keepdims=0), b.one("ReduceMax", x, b.ints(1, 3, 5)),
            b.one("Slice", x, b.ints(-1, -1), b.ints(-9, -9), b.ints(1, 5), b.ints(-1, -2)))


@case
def four_megabytes(b: Builder) -> tuple[str, ...]:
    y = b.one("Add", b.input(b.random((1024, 1024))), b.input(b.random((1024, 1))))
    return b.one("Relu", b.one("Transpose", y, perm=[1, 0])), b.one("ReduceMax", y, b.ints(0))


@case
def products_of_all_sizes(b: Builder) -> tuple[str, ...]:
    outs: list[str] = []
    for m, k, n in ((1, 1, 1), (1, 7, 1), (7, 1, 1), (1, 1, 9), (1, 100, 17), (17, 100, 1), (5, 1, 33), (65, 3, 31),
                    (2, 257, 129), (1, 4096, 8), (6, 64, 16), (12, 64, 48), (13, 63, 47)):
        x, w = b.input(b.random((m, k))), b.random((k, n)) * np.float32(k**-0.5)
        outs.append(b.one("MatMul", x, b.constant(w)))
        outs.append(b.one("Add", b.one("MatMul", x, b.input(w)), b.constant(b.random((n,)))))
    return tuple(outs)


# -- what follows a kernel ----------------------------------------------------------------------------
@case
def epilogues_of_products(b: Builder) -> tuple[str, ...]:
    x, outs = b.input(b.random((5, 33))), []
    for s in ((), (1,), (17,), (5, 1), (5, 17), (1, 17), (1, 1), (1, 5, 17), (3, 1, 17), (2, 5, 1)):
        y = b.one("MatMul", x, weights(b, 33, 17))
        outs += [b.one("Relu", b.one("Add", y, b.leaf(s))), b.one("Sub", b.leaf(s), y)]
    return tuple(outs)


@case
def epilogues_of_convolutions(b: Builder) -> tuple[str, ...]:
    x, outs = b.input(b.random((2, 6, 5, 7))), []
    shapes = ((), (1,), (7,), (5, 1), (5, 7), (9, 1, 1), (9, 5, 7), (1, 9, 1, 1), (2, 1, 5, 7), (2, 9, 1, 7),
              (2, 9, 5, 1), (2, 1, 1, 1), (1, 1, 5, 1), (2, 9, 5, 7), (3, 1, 1, 1, 1), (1, 2, 9, 1, 1))
    for s in shapes:
        y = same(b, x, 9)
        low, high = b.constant(np.float32(-1)), b.constant(np.float32(1))
        outs.append(b.one("Clip", b.one("Mul", y, b.leaf(s)), low, high))
        outs.append(b.one("Div", b.leaf(s), b.one("Add", b.one("Abs", y), high)))
    return tuple(outs)


@case
def reductions_of_every_axis(b: Builder) -> tuple[str, ...]:
    x = b.input(b.random((3, 4, 5, 2)))
    y, outs = b.one("Transpose", b.one("Relu", x), perm=[0, 2, 3, 1]), []
    for axes in (a for r in range(1, 5) for a in itertools.combinations(range(4), r)):
        for kind, v in (("ReduceMean", y), ("ReduceMax", x), ("ReduceL2", y)):
            outs.append(b.one(kind, v, b.ints(*axes), keepdims=len(axes) % 2))
    return tuple(outs)


def built() -> list[tuple[str, Builder]]:
    """All cases, with their outputs set."""
    made = []
    for k, (name, f) in enumerate(CASES.items()):
        b = Builder(k)
        b.outputs = list(f(b))
        assert all(b.outputs), f"{name}: onnxruntime refuses a node"
        made.append((name, b))
    return made
