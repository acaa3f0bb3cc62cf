"""Transposed convolutions become convolutions: one per phase of the stride, then interleaved.

With stride s, kernel tap k reaches output o from input i when i * s + k = o + p. Write o + p = q * s + r:
then k = r + s * j and i = q - j, so phase r of the output is an ordinary convolution of x with every
s-th tap, flipped. All phases of all axes are output channels of one convolution; a depth-to-space
interleaves them and a slice takes the padding off. Elementwise nodes that follow move in front of the
interleaving, where they run in the convolution's epilogue.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from monobloc.ir.graph import Graph, Node, Value
from monobloc.ops import opdef
from monobloc.ops.build import Builder
from monobloc.passes import PassContext
from monobloc.passes.contraction import FLOATS
from monobloc.passes.rewrite import only_use, sweep_dead


class Decompose:
    name = "decompose"

    def run(self, g: Graph, ctx: PassContext) -> bool:
        if ctx.stage == "object":
            return False  # the phases' weights are padded: no permutation of the stored ones
        changed = False
        for node in list(g.nodes):
            if node.op == "ConvTranspose" and fits(node):
                self._lower(g, node, ctx)
                changed = True
        if changed:
            sweep_dead(g)
        return changed

    def _lower(self, g: Graph, node: Node, ctx: PassContext) -> None:
        tail = movable_tail(g, node)
        last = tail[-1] if tail else node
        b = Builder(g, before=last, locs=node.locs, name=node.name)
        y = phases(b, node)
        for n in tail:
            y = repeat_on_phases(b, n, y, node)
        out = interleave(b, y, node)
        g.replace(last.outputs[0], out)
        ctx.reason(node, self.name, f"transposed convolution as a convolution of {y.shape[1]} channels, interleaved")


def fits(n: Node) -> bool:
    """Float with constant weights, and regular."""
    x, w = n.inputs[:2]
    assert x is not None and w is not None
    floats = x.dtype in FLOATS and w.dtype in FLOATS
    return w.const is not None and floats and regular(n) and (len(n.inputs) < 3 or n.inputs[2] is None)


def regular(n: Node) -> bool:
    """One group, no dilation, one or two spatial axes."""
    x = n.inputs[0]
    assert x is not None
    plain = n.attrs.get("group", 1) == 1 and all(d == 1 for d in n.attrs["dilations"])
    return plain and x.type.rank in (3, 4) and x.type.size > 0


def _taps(kernel: int, stride: int) -> int:
    return -(-kernel // stride)


def phases(b: Builder, n: Node) -> Value:
    """The convolution: [N, OC * phases, Q...], Q covering all of the output and its padding."""
    x, w = n.inputs[:2]
    assert x is not None and w is not None and w.const is not None
    weights = phase_weights(n, w.const.array, np.zeros((), w.dtype.numpy))
    return b.emit("Conv", [x, b.const(weights, name=w.name), None], phase_attrs(n))[0]


def phase_weights(n: Node, w: np.ndarray, zero: np.ndarray) -> np.ndarray:
    """The weights of all phases: taps that are not there are `zero`, a number or one per output channel."""
    strides, kernel = n.attrs["strides"], n.attrs["kernel_shape"]
    rank = len(strides)
    taps = [_taps(k, s) for k, s in zip(kernel, strides)]
    wide = np.empty((*w.shape[:2], *[t * s for t, s in zip(taps, strides)]), w.dtype)
    wide[...] = zero.reshape(-1, *[1] * rank)
    wide[tuple([slice(None)] * 2 + [slice(0, k) for k in kernel])] = w
    split = wide.reshape(*w.shape[:2], *[v for t, s in zip(taps, strides) for v in (t, s)])
    # [IC, OC, J0, r0, J1, r1] -> [OC, r0, r1, IC, J0, J1], taps flipped
    j_axes, r_axes = [2 + 2 * k for k in range(rank)], [3 + 2 * k for k in range(rank)]
    flipped = np.flip(split, tuple(j_axes)).transpose(1, *r_axes, 0, *j_axes)
    return np.ascontiguousarray(flipped.reshape(-1, w.shape[0], *taps))


def phase_attrs(n: Node) -> dict[str, Any]:
    """The window of the convolution that makes all phases."""
    strides, x = n.attrs["strides"], n.inputs[0]
    assert x is not None
    taps = [_taps(k, s) for k, s in zip(n.attrs["kernel_shape"], strides)]
    ends = [-(-(o + p) // s) for o, p, s in zip(n.outputs[0].shape[2:], n.attrs["pads"], strides)]
    pads = [t - 1 for t in taps] + [max(0, e - d) for e, d in zip(ends, x.shape[2:])]
    ones = [1] * len(strides)
    return {"strides": ones, "dilations": ones, "group": 1, "kernel_shape": taps, "pads": pads}


def movable_tail(g: Graph, n: Node) -> list[Node]:
    """Elementwise nodes behind the result that work per channel: they commute with the interleaving."""
    out: list[Node] = []
    v = n.outputs[0]
    while only_use(g, v):
        user = v.users[0]
        if not opdef(user).elementwise or user.outputs[0].type != v.type:
            break
        if any(x is not v and not _per_channel(x, v) for x in user.used):
            break
        out.append(user)
        v = user.outputs[0]
    return out


def _per_channel(x: Value, v: Value) -> bool:
    if x.const is None:
        return False
    shape = (1,) * (v.type.rank - x.type.rank) + x.shape
    return all(d == 1 for k, d in enumerate(shape) if k != 1)


def repeat_on_phases(b: Builder, n: Node, y: Value, conv: Node) -> Value:
    """An elementwise node on the phases: constants per channel are repeated for every phase."""
    count = int(np.prod(conv.attrs["strides"]))
    ins: list[Value | None] = []
    for x in n.inputs:
        if x is None or x.const is None:
            ins.append(y if x is not None else None)
        elif x.type.size == 1:
            ins.append(x)
        else:
            ins.append(b.const(np.repeat(x.const.array.reshape(-1), count).reshape(-1, *[1] * (y.type.rank - 2))))
    return b.emit(n.op, ins, n.attrs, name=n.name)[0]


def interleave(b: Builder, y: Value, n: Node) -> Value:
    """[N, OC * r0 * r1, Q0, Q1] -> [N, OC, Q0 * r0, Q1 * r1], then without the padding."""
    strides, out = n.attrs["strides"], n.outputs[0].shape
    rank, channels = len(strides), out[1]
    q = y.shape[2:]
    if any(s != 1 for s in strides):
        y = b.one("Reshape", y, shape=[y.shape[0], channels, *strides, *q])
        order: Sequence[int] = [v for k in range(rank) for v in (2 + rank + k, 2 + k)]
        y = b.one("Transpose", y, perm=[0, 1, *order])
        y = b.one("Reshape", y, shape=[y.shape[0], channels, *[a * s for a, s in zip(q, strides)]])
    starts = n.attrs["pads"][:rank]
    ends = [p + d for p, d in zip(starts, out[2:])]
    if any(starts) or list(y.shape[2:]) != ends:
        y = b.one("Slice", y, starts=[0, 0, *starts], steps=[1] * (2 + rank), sizes=[*y.shape[:2], *out[2:]])
    return y
