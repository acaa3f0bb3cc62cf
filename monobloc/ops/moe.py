"""Mixtures of experts (`com.microsoft`): two layers of every expert, of which a router chooses k for each token.

Where few of many experts are chosen, tokens are sorted by expert, and each expert multiplies its own (ops/grouped.py).
Else all experts side by side are two matrix products, where what the router does not choose counts for nothing: no more
than twice the work, and nothing to sort. Weights of few bits (QMoE) are multiplied as the model stores them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from monobloc.ir.graph import Value
from monobloc.ir.types import DType
from monobloc.ops import OpDef
from monobloc.ops.attention import refuse
from monobloc.ops.build import cast_to, read_as
from monobloc.ops.fused import gelu, silu, slice_last
from monobloc.ops.grouped import Groups, sort_by_group
from monobloc.ops.movement import slice_of
from monobloc.ops.nbits import planes

ACTIVATIONS = ("relu", "gelu", "silu", "identity", "swiglu")
F32 = DType.F32
Act = Callable[[list[Any]], Any]  # what stands between the layers, of [tokens, experts, rows]


def swiglu(b: Any, n: Any, limit: float | None, g: Value, v: Value) -> Any:
    """g * sigmoid(alpha * g) * (v + beta), both limited"""
    if limit is not None and np.isfinite(limit):
        top, low = b.const(limit, g.dtype), b.const(-limit, g.dtype)
        g, v = b.one("Min", g, top), b.one("Max", b.one("Min", v, top), low)
    alpha, beta = (b.const(n.attrs.get(f"activation_{a}", x), g.dtype) for a, x in (("alpha", 1.0), ("beta", 0.0)))
    return b.one("Mul", b.one("Mul", g, b.one("Sigmoid", b.one("Mul", g, alpha))), b.one("Add", v, beta))


class MoE(OpDef):
    """sum over the k experts with the highest routing weight of weight * (act(x W1' + b1) W2' + b2); swiglu has a third
    layer beside the first, or both in one"""

    name = "MoE"
    domain = "com.microsoft"
    weights: ClassVar[tuple[int, int, int]] = (2, 4, 6)  # inputs of the three layers
    biases: ClassVar[tuple[int, int, int]] = (3, 5, 7)

    def from_onnx(self, b: Any, n: Any) -> Sequence[Value | None]:
        x, router = n.inputs[:2]
        kind = n.attrs.get("activation_type", "relu")
        refuse(n, use_sparse_mixer=0, swiglu_limit_after_activation=0)
        fusion, apart = int(n.attrs.get("swiglu_fusion", 0)), n.input(self.weights[2]) is not None
        if kind not in ACTIVATIONS or (fusion not in (0, 1, 2) if kind == "swiglu" else fusion):
            n.unsupported(f"the activation {kind!r} with swiglu_fusion {fusion}",
                          hint=f"there are {', '.join(ACTIVATIONS)}, of which swiglu has swiglu_fusion 0, 1 or 2")
        if apart != (kind == "swiglu" and not fusion):
            which = "a" if apart else "no"
            n.unsupported(f"{which} third layer of the activation {kind!r} with swiglu_fusion {fusion}",
                          hint="swiglu has one where swiglu_fusion is 0, the others have none")
        (experts, rows, hidden), back = self.shape(n, 0), self.shape(n, 1)
        inner = rows // 2 if fusion else rows
        tokens = x.type.size // max(hidden, 1)
        if (x.shape[-1] != hidden or back != (experts, hidden, inner) or router.shape != (tokens, experts)
                or apart and self.shape(n, 2) != (experts, rows, hidden)):
            n.fail(f"{x.type} by experts {[experts, rows, hidden]} and {list(back)} and a router of {router.type}",
                   hint="needed are [experts, inner, hidden], where fused swiglu has 2 * inner, [experts, hidden, "
                        "inner], and [tokens, experts]; hidden is the last axis of the input")
        flat, layers = b.one("Reshape", x, shape=[tokens, hidden]), (0, 2) if apart else (0,)
        best, at = self._routed(b, n, router)
        act: Act = lambda hs: self._activated(b, n, hs, kind, fusion)  # noqa: E731
        compute = self._sorted if 2 * at.shape[1] <= experts else self._dense
        return [b.one("Reshape", compute(b, n, flat, best, at, layers, act), shape=list(x.shape))]

    # -- tokens sorted by expert --------------------------------------------------------------------
    def _sorted(self, b: Any, n: Any, x: Value, best: Value, at: Value, layers: Sequence[int], act: Act) -> Value:
        """A row for every token and expert of it"""
        (tokens, k), experts, to = at.shape, self.shape(n, 0)[0], x.dtype
        groups = sort_by_group(b, b.one("Reshape", at, shape=[tokens * k]), experts)
        x = b.one("Gather", cast_to(b, x, F32), b.one("Div", groups.order, b.const(k, DType.I64)), axis=0)
        hs = [self._of_group(b, n, x, layer, groups) for layer in layers]
        h = act([b.one("Reshape", h, shape=[tokens * k, 1, h.shape[1]]) for h in hs])
        y = self._of_group(b, n, b.one("Reshape", h, shape=[tokens * k, h.shape[2]]), 1, groups)
        y = b.one("Reshape", b.one("Gather", y, groups.back, axis=0), shape=[tokens, k, y.shape[1]])
        y = b.one("Mul", y, b.one("Reshape", cast_to(b, best, F32), shape=[tokens, k, 1]))
        return cast_to(b, b.one("ReduceSum", y, axes=[1], keepdims=0), to)

    def _of_group(self, b: Any, n: Any, x: Value, layer: int, groups: Groups) -> Any:
        """[rows, outputs of a layer]: by each row's expert"""
        y, bias = self.of_groups(b, n, x, layer, groups.ends), n.input(self.biases[layer])
        return y if bias is None else b.one("Add", y, cast_to(b, b.one("Gather", bias, groups.group, axis=0), F32))

    # -- all experts of all tokens ------------------------------------------------------------------
    def _dense(self, b: Any, n: Any, x: Value, best: Value, at: Value, layers: Sequence[int], act: Act) -> Value:
        (tokens, k), (experts, _, _) = at.shape, self.shape(n, 0)
        chosen = b.one("Equal", b.one("Reshape", at, shape=[tokens, k, 1]), b.const(np.arange(experts)))
        spread = b.one("Where", chosen, b.one("Reshape", best, shape=[tokens, k, 1]), b.const(0, best.dtype))
        gate = b.one("ReduceSum", spread, axes=[1], keepdims=0)
        h = act([self._first(b, n, x, layer) for layer in layers])
        h = b.one("Mul", h, b.one("Reshape", gate, shape=[tokens, experts, 1]))
        y = self.second(b, n, b.one("Reshape", h, shape=[tokens, experts * h.shape[2]]))
        bias = n.input(self.biases[1])
        return y if bias is None else b.one("Add", y, b.one("MatMul", gate, bias))

    def _first(self, b: Any, n: Any, x: Value, k: int) -> Any:
        """[tokens, experts, rows]: what a layer of all experts makes of all tokens"""
        experts, rows, _ = self.shape(n, k)
        h, bias = self.first(b, n, x, k), n.input(self.biases[k])
        h = h if bias is None else b.one("Add", h, b.one("Reshape", bias, shape=[experts * rows]))
        return b.one("Reshape", h, shape=[x.shape[0], experts, rows])

    # -- the layers ---------------------------------------------------------------------------------
    def of_groups(self, b: Any, n: Any, x: Value, layer: int, ends: Value) -> Any:
        w = b.one("Transpose", n.inputs[self.weights[layer]], perm=[0, 2, 1])
        return b.one("GroupedProduct", x, w, ends)

    def shape(self, n: Any, k: int) -> tuple[int, ...]:
        """Experts, rows and columns of a layer"""
        w = n.inputs[self.weights[k]]
        return tuple(w.shape) if w.type.rank == 3 else (0, 0, 0)

    def first(self, b: Any, n: Any, x: Value, k: int) -> Any:
        """[tokens, experts * rows]"""
        (experts, rows, size), w = self.shape(n, k), n.inputs[self.weights[k]]
        return b.one("MatMul", x, b.one("Transpose", b.one("Reshape", w, shape=[experts * rows, size]), perm=[1, 0]))

    def second(self, b: Any, n: Any, h: Value) -> Any:
        """[tokens, hidden]: the sum over experts"""
        (experts, rows, size), w = self.shape(n, 1), n.inputs[self.weights[1]]
        w = b.one("Reshape", b.one("Transpose", w, perm=[0, 2, 1]), shape=[experts * size, rows])
        return b.one("MatMul", h, w)

    # -- routing ------------------------------------------------------------------------------------
    def _routed(self, b: Any, n: Any, router: Value) -> tuple[Any, Any]:
        """[tokens, k]: the weights of the experts that the router chooses, and which they are"""
        experts, k = router.shape[1], int(n.attrs.get("k", 1))
        if not 0 < k <= experts:
            n.fail(f"chooses {k} of {experts} experts")
        best, at = b.emit("TopK", [self.shares(b, n, router)], {"axis": 1, "k": k, "largest": 1}, outputs=2)
        best = self.chosen(b, n, best, at)
        if n.attrs.get("normalize_routing_weights", 0):
            best = b.one("Div", best, b.one("ReduceSum", best, axes=[1], keepdims=1))
        return best, at

    def shares(self, b: Any, n: Any, router: Value) -> Any:
        return read_as(b, n, "Softmax", [router], 13, axis=-1)

    def chosen(self, b: Any, n: Any, best: Value, at: Value) -> Any:
        """The weights of what was chosen"""
        return best

    # -- activations --------------------------------------------------------------------------------
    def _activated(self, b: Any, n: Any, hs: list[Any], kind: str, fusion: int) -> Any:
        if kind == "swiglu":
            return swiglu(b, n, n.attrs.get("swiglu_limit"), *(hs if not fusion else self._halves(b, n, hs[0], fusion)))
        if kind == "gelu":
            return gelu(b, n, hs[0], "tanh")
        if kind == "silu":
            return silu(b, hs[0])
        return b.one("Relu", hs[0]) if kind == "relu" else hs[0]

    def _halves(self, b: Any, n: Any, h: Value, fusion: int) -> list[Value]:
        """Gates and values that are in turns (1), or one behind the other (2)"""
        tokens, experts, rows = h.shape
        if fusion == 2:
            return [slice_last(b, n, h, k * rows // 2, (k + 1) * rows // 2) for k in (0, 1)]
        return [slice_of(b, h, [(0, 1, tokens), (0, 1, experts), (first, 2, rows // 2)]) for first in (0, 1)]


class QMoE(MoE):
    """MoE with weights of 2, 4 or 8 bits, of which a row or a block of it has a scale"""

    name = "QMoE"
    weights = (2, 5, 8)
    biases = (4, 7, 10)
    scales: ClassVar[tuple[int, int, int]] = (3, 6, 9)
    zeros: ClassVar[tuple[int, int, int]] = (11, 12, 13)

    def from_onnx(self, b: Any, n: Any) -> Sequence[Value | None]:
        bits, block = self._bits(n), int(n.attrs.get("block_size", 0))
        refuse(n, quant_type="int", **{f"fc{k}_expert_weight_bits": bits for k in (1, 2, 3)})
        if bits not in (2, 4, 8) or block and (block < 16 or block & (block - 1)):
            n.unsupported(f"QMoE with weights of {bits} bits in blocks of {block}",
                          hint="there are weights of 2, 4 or 8 bits in blocks of 16, 32, 64, ... or of a row")
        if n.attrs.get("weights_prepacked", -1) == 1 or any(n.input(k) is not None for k in range(15, 21)):
            n.unsupported("QMoE with weights that are packed for one machine, or scales of activations",
                          hint="export the model without prepacking, weights as integers and activations as floats")
        to = n.inputs[0].dtype
        if to is F32:
            return super().from_onnx(b, n)
        wide = [None if v is None else cast_to(b, v, F32) if v.dtype is to else v for v in n.inputs]
        y, = super().from_onnx(b, replace(n, inputs=wide))
        return [b.one("Cast", y, to=to)]

    def _bits(self, n: Any) -> int:
        return int(n.attrs.get("expert_weight_bits", 4))

    def shape(self, n: Any, k: int) -> tuple[int, ...]:
        *outer, packed = super().shape(n, k)
        return (*outer, packed * 8 // self._bits(n))

    def of_groups(self, b: Any, n: Any, x: Value, layer: int, ends: Value) -> Any:
        parts, bits = self._blocks(b, n, layer), self._bits(n)
        blocks = parts[0].shape[2]
        x = planes(b, x, blocks, x.shape[1] // blocks, bits)
        return b.one("GroupedBlockProduct", x, ends, *parts, bits=bits)

    def first(self, b: Any, n: Any, x: Value, k: int) -> Any:
        experts, rows, _ = self.shape(n, k)
        parts = [v and b.one("Reshape", v, shape=[experts * rows, *v.shape[2:]]) for v in self._blocks(b, n, k)]
        return self._product(b, n, x, parts)

    def second(self, b: Any, n: Any, h: Value) -> Any:
        experts, rows, _ = self.shape(n, 1)
        parts = []
        for v in self._blocks(b, n, 1):
            if v is not None:
                v = b.one("Transpose", v, perm=[1, 0, *range(2, v.type.rank)])
                v = b.one("Reshape", v, shape=[rows, experts * v.shape[2], *v.shape[3:]])
            parts.append(v)
        return self._product(b, n, h, parts)

    def _product(self, b: Any, n: Any, x: Value, parts: list[Any]) -> Any:
        blocks = parts[0].shape[1]
        level = {"level": 4} if int(n.attrs.get("accuracy_level", 0)) == 4 else {}
        bits = self._bits(n)
        return b.one("BlockProduct", planes(b, x, blocks, x.shape[1] // blocks, bits), *parts, bits=bits, **level)

    def _blocks(self, b: Any, n: Any, k: int) -> list[Any]:
        """Weights [experts, rows, blocks, bytes], scales and zero points [experts, rows, blocks]"""
        experts, rows, size = self.shape(n, k)
        w, scale, zero = (n.input(part[k]) for part in (self.weights, self.scales, self.zeros))
        block = int(n.attrs.get("block_size", 0)) or size
        blocks = size // block
        shape = [experts, rows, blocks]
        if size % block or scale is None or scale.type.size != experts * rows * blocks:
            n.fail(f"layer {k + 1} has scales {scale and scale.type} for {experts} experts of {rows} rows, "
                   f"each {blocks} blocks of {block} of {size}",
                   hint="every block of a row has a scale, and rows are whole blocks")
        w = b.one("Reshape", w, shape=[*shape, w.shape[2] // blocks])
        return [w, b.one("Reshape", scale, shape=shape), zero and self._zeros(b, n, zero, shape, scale.dtype)]

    def _zeros(self, b: Any, n: Any, zero: Value, shape: list[int], to: DType) -> Any:
        """As numbers: packed along rows where a row is one block, else along its blocks"""
        bits, by_block = self._bits(n), zero.type.rank == 3
        zero = zero if bits == 8 else b.one("UnpackBits", zero, bits=bits)
        want = shape if by_block else shape[:2]
        if zero.type.rank < 2 or zero.shape[:-1] != tuple(want[:-1]) or zero.shape[-1] < want[-1]:
            n.fail(f"has zero points {list(zero.shape)} for experts, rows and blocks {shape}")
        return b.one("Reshape", b.one("Cast", slice_last(b, n, zero, 0, want[-1]), to=to), shape=shape)

    def shares(self, b: Any, n: Any, router: Value) -> Any:
        return router

    def chosen(self, b: Any, n: Any, best: Value, at: Value) -> Any:
        """The softmax of what was chosen, as onnxruntime has it, or the weights that are given for it"""
        weights = n.input(14)
        if weights is None:
            return read_as(b, n, "Softmax", [best], 13, axis=-1)
        if weights.shape != n.inputs[1].shape:
            n.fail(f"router_weights are {weights.type} beside router_probs {n.inputs[1].type}")
        return b.one("GatherElements", weights, at, axis=1)


class SwiGLU(OpDef):
    """The activation alone; gates and values may be the halves of one tensor"""

    name = "SwiGLU"
    domain = "com.microsoft"

    def from_onnx(self, b: Any, n: Any) -> Sequence[Value | None]:
        refuse(n, round_activation=0)
        x, to = n.inputs[0], n.inputs[0].dtype
        if n.input(1) is None and (not x.type.rank or x.shape[-1] % 2):
            n.fail(f"{x.type} is no gates and values side by side")
        half = x.shape[-1] // 2
        parts = n.inputs[:2] if n.input(1) is not None else [
            slice_last(b, n, x, k * half, (k + 1) * half) for k in (0, 1)]
        limit = float(n.attrs.get("limit", 0.0))
        y = swiglu(b, n, limit if limit > 0 else None, *(cast_to(b, v, F32) for v in parts))
        return [cast_to(b, y, to)]


class MoEGroupRouter(OpDef):
    """log(sigmoid) of the experts with the highest sigmoid + bias, chosen among those of the groups whose best add up
    to most; a number that no expert has for the others. Or both sums of all, to be chosen from elsewhere."""

    name = "MoEGroupRouter"
    domain = "com.microsoft"

    def from_onnx(self, b: Any, n: Any) -> Sequence[Value | None]:
        x, bias, to = n.inputs[0], n.inputs[1], n.inputs[0].dtype
        if n.input(2) is not None:
            n.unsupported("a projection inside of the router", hint="keep the product before it")
        if not x.type.rank or bias.shape != x.shape[-1:]:
            n.fail(f"has the bias {bias.type} for {x.type}")
        experts = x.shape[-1]
        tokens = x.type.size // max(experts, 1)
        shares = b.one("Sigmoid", cast_to(b, b.one("Reshape", x, shape=[tokens, experts]), F32))
        scores = b.one("Add", shares, bias)
        if n.n_outputs > 1:
            return [None, scores, shares][: n.n_outputs]
        top_k = int(n.attrs["top_k"])
        if not 0 < top_k <= experts:
            n.fail(f"chooses {top_k} of {experts} experts")
        inside = self._groups(b, n, scores)
        chosen = self._best(b, b.one("Where", inside, scores, b.const(-np.inf, F32)), top_k)
        chosen = b.one("And", chosen, inside)  # there may be fewer than top_k
        logs = b.one("Log", b.one("Max", shares, b.const(1e-20, F32)))
        y = b.one("Where", chosen, logs, b.const(n.attrs.get("router_sentinel", -10000.0), F32))
        return [cast_to(b, y, to)]

    def _groups(self, b: Any, n: Any, scores: Value) -> Any:
        """[tokens, experts]: which experts are in the best groups"""
        tokens, experts = scores.shape
        count, kept, best = (int(n.attrs.get(k, d)) for k, d in (("n_group", 1), ("topk_group", 1), ("group_topk", 2)))
        if count < 1 or experts % count or not 0 < kept <= count or best < 1:
            n.fail(f"keeps {kept} of {count} groups of {experts} experts, by the best {best} of each")
        size = experts // count
        parts = b.one("Reshape", scores, shape=[tokens, count, size])
        top, _ = b.emit("TopK", [parts], {"axis": 2, "k": min(best, size), "largest": 1}, outputs=2)
        groups = self._best(b, b.one("ReduceSum", top, axes=[2], keepdims=0), kept)
        wide = b.one("Expand", b.one("Reshape", groups, shape=[tokens, count, 1]), shape=[tokens, count, size])
        return b.one("Reshape", wide, shape=[tokens, experts])

    def _best(self, b: Any, x: Value, k: int) -> Any:
        """Which are the k largest of a row"""
        _, at = b.emit("TopK", [x], {"axis": 1, "k": k, "largest": 1}, outputs=2)
        hits = b.one("Equal", b.one("Reshape", at, shape=[x.shape[0], k, 1]), b.const(np.arange(x.shape[1])))
        return b.one("ReduceMax", hits, axes=[1], keepdims=0)
