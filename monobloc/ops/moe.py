"""Mixtures of experts (`com.microsoft`): two layers of every expert, of which a router chooses k for each token.

All experts side by side are two matrix products, where what the router does not choose counts for nothing. That is
right for any choice and needs no weights to move; where few of many experts are chosen, it is more work than they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from monobloc.ir.graph import Value
from monobloc.ops import OpDef
from monobloc.ops.build import read_as
from monobloc.ops.fused import gelu, silu
from monobloc.ops.movement import slice_of

ACTIVATIONS = ("relu", "gelu", "silu", "identity", "swiglu")


class MoE(OpDef):
    """sum over the k experts with the highest routing weight of weight * (act(x W1' + b1) W2' + b2)"""

    name = "MoE"
    domain = "com.microsoft"

    def from_onnx(self, b: Any, n: Any) -> Sequence[Value | None]:
        x, router, w1, b1, w2, b2 = [*n.inputs, None][:6]
        if n.input(6) is not None or n.input(7) is not None or n.attrs.get("use_sparse_mixer", 0):
            n.unsupported("an MoE with a third layer, or a sparse mixer,")
        experts, rows, hidden = w1.shape if w1.type.rank == 3 else (0, 0, 0)
        kind = n.attrs.get("activation_type", "relu")
        if kind not in ACTIVATIONS or (kind == "swiglu") != (n.attrs.get("swiglu_fusion", 0) == 1):
            n.unsupported(f"the activation {kind!r} with swiglu_fusion {n.attrs.get('swiglu_fusion', 0)}",
                          hint=f"there are {', '.join(ACTIVATIONS)}, of which swiglu needs swiglu_fusion 1")
        inner = rows // 2 if kind == "swiglu" else rows
        tokens = x.type.size // max(hidden, 1)
        if x.shape[-1] != hidden or w2.shape != (experts, hidden, inner) or router.shape != (tokens, experts):
            n.fail(f"{x.type} by experts {w1.type} and {w2.type} and a router of {router.type}",
                   hint="needed are [experts, inner, hidden], where swiglu has 2 * inner, [experts, hidden, inner], "
                        "and [tokens, experts]; hidden is the last axis of the input")
        h = b.one("MatMul", b.one("Reshape", x, shape=[tokens, hidden]), self._turned(b, w1, [experts * rows, hidden]))
        if b1 is not None:
            h = b.one("Add", h, b.one("Reshape", b1, shape=[experts * rows]))
        h = self._activated(b, n, b.one("Reshape", h, shape=[tokens, experts, rows]), kind)
        gate = self._gate(b, n, router)
        h = b.one("Mul", h, b.one("Reshape", gate, shape=[tokens, experts, 1]))
        back = b.one("Reshape", b.one("Transpose", w2, perm=[0, 2, 1]), shape=[experts * inner, hidden])
        y = b.one("MatMul", b.one("Reshape", h, shape=[tokens, experts * inner]), back)
        y = y if b2 is None else b.one("Add", y, b.one("MatMul", gate, b2))
        return [b.one("Reshape", y, shape=list(x.shape))]

    def _turned(self, b: Any, w: Value, shape: list[int]) -> Any:
        return b.one("Transpose", b.one("Reshape", w, shape=shape), perm=[1, 0])

    def _gate(self, b: Any, n: Any, router: Value) -> Any:
        """[tokens, experts]: the softmax of the k highest, 0 for the others"""
        (tokens, experts), k = router.shape, int(n.attrs.get("k", 1))
        if not 0 < k <= experts:
            n.fail(f"chooses {k} of {experts} experts")
        shares = read_as(b, n, "Softmax", [router], 13, axis=-1)
        best, at = b.emit("TopK", [shares], {"axis": 1, "k": k, "largest": 1}, outputs=2)
        if n.attrs.get("normalize_routing_weights", 0):
            best = b.one("Div", best, b.one("ReduceSum", best, axes=[1], keepdims=1))
        chosen = b.one("Equal", b.one("Reshape", at, shape=[tokens, k, 1]), b.const(np.arange(experts)))
        spread = b.one("Where", chosen, b.one("Reshape", best, shape=[tokens, k, 1]), b.const(0, best.dtype))
        return b.one("ReduceSum", spread, axes=[1], keepdims=0)

    def _activated(self, b: Any, n: Any, h: Value, kind: str) -> Any:
        if kind == "swiglu":
            return self._swiglu(b, n, h)
        if kind == "gelu":
            return gelu(b, n, h, "tanh")
        if kind == "silu":
            return silu(b, h)
        return b.one("Relu", h) if kind == "relu" else h

    def _swiglu(self, b: Any, n: Any, h: Value) -> Any:
        """Gates and values in turns: g * sigmoid(alpha * g) * (v + beta), both limited"""
        (tokens, experts, rows), limit = h.shape, n.attrs.get("swiglu_limit")
        g, v = (slice_of(b, h, [(0, 1, tokens), (0, 1, experts), (first, 2, rows // 2)]) for first in (0, 1))
        if limit is not None and np.isfinite(limit):
            top, low = b.const(limit, h.dtype), b.const(-limit, h.dtype)
            g, v = b.one("Min", g, top), b.one("Max", b.one("Min", v, top), low)
        alpha, beta = (b.const(n.attrs.get(f"activation_{a}", d), h.dtype) for a, d in (("alpha", 1.0), ("beta", 0.0)))
        return b.one("Mul", b.one("Mul", g, b.one("Sigmoid", b.one("Mul", g, alpha))), b.one("Add", v, beta))
