"""Convolutions whose height and width a run chooses become products.

The convolution kernels are made for one size: their tiles cover rows of pixels exactly. A product of open sizes has
a kernel. So the weights of an output channel are a row, what a window covers is a column, and the pixels of the
result are the columns in a row: `[OC, taps * IC] x [N, taps * IC, OH * OW]`, which lies in memory as the result of the
convolution does. A kernel of one tap needs nothing else. Others need every tap's pixels side by side, `taps` times
the image; where that is more than WINDOWS bytes, it is the sum of the products of the kernel's rows, or of its taps,
which need it one after the other. Convolutions in several groups stay loop nests.
Elementwise nodes that follow move in front of the reshaping, into the product's epilogue.
"""

from __future__ import annotations

from itertools import islice, product
from math import prod

import numpy as np

from monobloc.ir.graph import Graph, Node, Value
from monobloc.ir.symbolic import closed, is_open
from monobloc.ir.types import DType
from monobloc.ops.build import Builder
from monobloc.passes import PassContext
from monobloc.passes.decompose import movable_tail
from monobloc.passes.rewrite import sweep_dead

WINDOWS = 8 << 20


class OpenConv:
    name = "open_conv"

    def run(self, g: Graph, ctx: PassContext) -> bool:
        if not g.dims or ctx.stage == "object":
            return False  # an object's weights stay as they are
        todo = [n for n in g.nodes if n.op == "Conv" and fits(n) and (has_open_pixels(n) or _agreed(n, ctx))]
        for node in todo:
            self._lower(g, node, ctx)
        if todo:
            sweep_dead(g)
        return bool(todo)

    def _lower(self, g: Graph, node: Node, ctx: PassContext) -> None:
        tail = movable_tail(g, node)
        last = tail[-1] if tail else node
        b = Builder(g, before=last, locs=node.locs, name=node.name)
        x, w = node.used[:2]
        assert w.const is not None
        at_once = ctx.agreed.setdefault((self.name, w.const.key), taps_at_once(node))
        taps_last = w.const.array.transpose(0, *range(2, w.type.rank), 1).reshape(w.shape[0], -1, w.shape[1])
        x, y = padded(b, x, node), None
        for first in range(0, taps_last.shape[1], at_once):
            rows = np.ascontiguousarray(taps_last[:, first : first + at_once]).reshape(w.shape[0], -1)
            part = b.one("MatMul", b.const(rows, name=w.name), columns(b, x, node, first, at_once))
            y = part if y is None else b.one("Add", part, y)
        assert y is not None
        for n in tail:
            ins = [None if v is None else y if v.const is None else per_row(b, v) for v in n.inputs]
            y = b.emit(n.op, ins, n.attrs, name=n.name)[0]
        g.replace(last.outputs[0], b.one("Reshape", y, shape=list(last.outputs[0].shape)))
        ctx.reason(node, self.name, "convolution of a size that a run chooses as a product")


def _agreed(n: Node, ctx: PassContext) -> bool:
    """Whether another version reads the same weights as a product: they are stored once."""
    w = n.used[1]
    return w.const is not None and (OpenConv.name, w.const.key) in ctx.agreed


def has_open_pixels(n: Node) -> bool:
    return any(map(is_open, (*n.used[0].shape[2:], *n.outputs[0].shape[2:])))


def fits(n: Node) -> bool:
    """Float, constant weights, one group, no bias."""
    x, w = n.used[:2]
    if len(n.used) > 2 or n.attrs.get("group", 1) != 1:
        return False
    return w.const is not None and {x.dtype, w.dtype, n.outputs[0].dtype} == {DType.F32} and x.type.rank in (3, 4)


def taps_at_once(n: Node) -> int:
    """All, those of a row, or one: what has room."""
    x, kernel = n.used[0], n.attrs["kernel_shape"]
    image = 4 * prod(closed((*x.shape[:2], *n.outputs[0].shape[2:])))
    return next((taps for taps in (prod(kernel), kernel[-1]) if taps * image <= WINDOWS), 1)


def padded(b: Builder, x: Value, n: Node) -> Value:
    pads, rank = n.attrs["pads"], x.type.rank - 2
    if not any(pads):
        return x
    return b.one("Pad", x, None, pads=[0, 0, *pads[:rank], 0, 0, *pads[rank:]], mode="constant")


def columns(b: Builder, x: Value, n: Node, first: int, count: int) -> Value:
    """[N, taps * IC, pixels of the result], of `count` taps"""
    out, a = n.outputs[0].shape, n.attrs
    sizes = [*x.shape[:2], *out[2:]]
    parts = []
    for tap in islice(product(*map(range, a["kernel_shape"])), first, first + count):
        starts = [0, 0, *(t * d for t, d in zip(tap, a["dilations"], strict=True))]
        whole = not any(starts) and all(s == 1 for s in a["strides"]) and prod(a["kernel_shape"]) == 1
        parts.append(x if whole else b.one("Slice", x, starts=starts, steps=[1, 1, *a["strides"]], sizes=sizes))
    joined = b.emit("Concat", parts, {"axis": 1})[0] if len(parts) > 1 else parts[0]
    return b.one("Reshape", joined, shape=[out[0], len(parts) * x.shape[1], prod(out[2:])])


def per_row(b: Builder, v: Value) -> Value:
    """A constant per channel, of what has one axis of pixels"""
    assert v.const is not None
    return v if v.type.size == 1 and v.type.rank < 3 else b.const(v.const.array.reshape(-1, 1), name=v.name)
