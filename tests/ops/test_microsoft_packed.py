"""Weights of few bits in experts and products (`com.microsoft`): read, interpreted, compiled, and compared with
onnxruntime."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_microsoft import F, agree, compiled, f32, near, node, remember, runtime, some
from test_o2_onnx import Array, ours

from monobloc.errors import MonoblocError
from monobloc.frontend.importer import load_onnx

RNG = np.random.default_rng(31)
print("seed 31")
EXPERTS, HIDDEN, INNER, TOKENS = 4, 32, 64, 3


def layer(rows: int, size: int, bits: int, block: int, dtype: Any = F) -> list[Array]:
    """Weights, scales and biases"""
    scales = (RNG.random((EXPERTS, rows, size // block) if block else (EXPERTS, rows)) / 50 + 0.002).astype(dtype)
    return [some(np.uint8, EXPERTS, rows, size * bits // 8), scales, f32(EXPERTS, rows).astype(dtype)]


def experts(bits: int, block: int, rows: int = INNER, dtype: Any = F) -> list[Any]:
    x, router = f32(TOKENS, HIDDEN).astype(dtype), f32(TOKENS, EXPERTS).astype(dtype)
    return [x, router, *layer(rows, HIDDEN, bits, block, dtype), *layer(HIDDEN, INNER, bits, block, dtype)]


EXACT = (1e-4, 1e-4, 0)


def agree_experts(ins: list[Any], **attrs: Any) -> None:
    """All but the tokens are constants. To onnxruntime the scales are none: else it rounds activations to bytes."""
    const = [k for k, x in enumerate(ins) if k > 1 and k != 14 and x is not None]
    model, feeds = node("QMoE", ins, const=const, **attrs)
    [want] = runtime(*node("QMoE", ins, const=[k for k in const if k not in (3, 6)], **attrs))
    [got] = ours(model, feeds)
    near("QMoE", got, want, *EXACT)
    remember(__name__, model, feeds, [want], EXACT)


@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("block", [0, 16, 32])
def test_quantized_experts(bits: int, block: int) -> None:
    attrs = {"expert_weight_bits": bits, **({"block_size": block} if block else {})}
    agree_experts(experts(bits, block), k=2, **attrs)
    per = 8 // bits
    zeros = [some(np.uint8, EXPERTS, *((rows, max(size // block // per, 1)) if block else (rows // per,)))
             for rows, size in ((INNER, HIDDEN), (HIDDEN, INNER))]
    ins = [*experts(bits, block), *[None] * 3, *zeros]
    agree_experts(ins, normalize_routing_weights=1, k=3, activation_type="silu", **attrs)


def test_activations_of_quantized_experts() -> None:
    for kind in ("relu", "gelu", "silu", "identity"):
        agree_experts(experts(4, 0), k=1, activation_type=kind)
    for more in ({}, {"swiglu_limit": 0.5, "activation_alpha": 1.7, "activation_beta": 1.0}):
        agree_experts(experts(4, 32, 2 * INNER), k=2, activation_type="swiglu", swiglu_fusion=1, block_size=32, **more)
    ins = [*experts(4, 32), *[None] * 6, np.abs(f32(TOKENS, EXPERTS))]
    for normal in (0, 1):
        agree_experts(ins, k=2, block_size=32, normalize_routing_weights=normal)
    agree_experts(experts(4, 32, dtype=np.float16), k=2, block_size=32)


@pytest.mark.parametrize("op", ["MoE", "QMoE"])
def test_gates_beside_values(op: str) -> None:
    """In turns, one behind the other, or in a layer of their own: onnxruntime's CPU kernels have the first alone."""
    ins = experts(8, 0, 2 * INNER)
    if op == "MoE":
        ins = [*ins[:2], f32(EXPERTS, 2 * INNER, HIDDEN), ins[4], f32(EXPERTS, HIDDEN, INNER), ins[7]]
    first = slice(2, 4 if op == "MoE" else 5)
    turns, halves = ([v[:, k::2] for v in ins[first]] for k in (0, 1))
    behind = [*ins[:2], *(np.concatenate(v, 1) for v in zip(turns, halves, strict=True)), *ins[first.stop :]]
    apart = [*ins[:2], *turns, *ins[first.stop :], *halves]
    attrs = {"k": 2, "activation_type": "swiglu", **({"expert_weight_bits": 8} if op == "QMoE" else {})}
    want = ours(*node(op, ins, swiglu_fusion=1, **attrs))[0]
    for form, fusion in ((behind, 2), (apart, 0)):
        np.testing.assert_allclose(ours(*node(op, form, swiglu_fusion=fusion, **attrs))[0], want, rtol=1e-4, atol=1e-4)


def test_experts_that_are_refused() -> None:
    ins = experts(4, 0)
    for attrs, message in (
        ({"expert_weight_bits": 3}, "weights of 3 bits"), ({"quant_type": "fp8"}, "`quant_type` = fp8"),
        ({"weights_prepacked": 1}, "packed for one machine"), ({"block_size": 32}, "has scales"),
        ({"fc2_expert_weight_bits": 8}, "`fc2_expert_weight_bits` = 8"), ({"k": 5}, "chooses 5 of 4"),
        ({"activation_type": "swiglu"}, "no third layer"),
    ):
        with pytest.raises(MonoblocError, match=message):
            load_onnx(node("QMoE", ins, **attrs)[0])


@pytest.mark.parametrize("dtype", [F, np.float16])
def test_routers_of_groups(dtype: Any) -> None:
    x, bias = f32(5, 12).astype(dtype), f32(12)
    for more in ({}, {"n_group": 4, "topk_group": 2}, {"n_group": 3, "topk_group": 2, "group_topk": 1},
                 {"n_group": 2, "group_topk": 9, "router_sentinel": -7.0}):
        agree("MoEGroupRouter", [x, bias], top_k=3, **more)
    for kept in (1, 2):  # the groups have 2 or 4 experts, of which 5 are chosen
        agree("MoEGroupRouter", [x, bias], top_k=5, n_group=6, topk_group=kept)
    agree("MoEGroupRouter", [x.reshape(1, 5, 12), bias], top_k=12)
    model, feeds = node("MoEGroupRouter", [x, bias], 3, top_k=2)
    model.graph.node[0].output[0] = ""
    del model.graph.output[0]
    for got, want in zip(ours(model, feeds), runtime(model, feeds), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5)
    for attrs, message in (({"top_k": 13}, "chooses 13 of 12"), ({"top_k": 1, "n_group": 5}, "of 5 groups")):
        with pytest.raises(MonoblocError, match=message):
            load_onnx(node("MoEGroupRouter", [x, bias], **attrs)[0])


# -- products ---------------------------------------------------------------------------------------------
@pytest.mark.parametrize("kind", [0, 1])
@pytest.mark.parametrize("block", [16, 64])
def test_weights_out_of_a_table(kind: int, block: int) -> None:
    for k, columns in ((32, 5), (10, 3), (7, 9)):  # the last blocks are not full, and the last byte is half empty
        q, most = some(np.uint8, (columns * k + 1) // 2), (RNG.random(-(-columns * k // block)) + 0.1).astype(F)
        attrs = {"K": k, "N": columns, "block_size": block, "quant_type": kind}
        agree("MatMulBnb4", [f32(2, 3, k), q, most], const=[1, 2], **attrs)
    attrs = {"K": 32, "N": 5, "block_size": 16, "quant_type": kind}
    q, most = some(np.uint8, 80), f32(10)
    for ins, more, message in (([f32(2, 31), q, most], {}, "is no product with"),
                               ([f32(2, 32), q, most], {"block_size": 24}, "`quant_type` = . in blocks of 24"),
                               ([f32(2, 5), q, most], {"transB": 0}, "which training alone has")):
        with pytest.raises(MonoblocError, match=message):
            load_onnx(node("MatMulBnb4", ins, const=[1, 2], **attrs | more)[0])


@pytest.mark.parametrize("kind", [0, 1])
def test_blocks_that_hold_their_scale(kind: int) -> None:
    for k, columns in ((64, 3), (40, 2), (32, 7)):
        blob = some(np.uint8, columns, -(-k // 32), 20 + kind)
        blob[:, :, :4] = RNG.uniform(0.01, 0.1, (*blob.shape[:2], 1)).astype(F).view(np.uint8)
        if kind:
            blob[:, :, 4] &= 15
        ins = [f32(2, 3, k), blob.ravel(), np.int64([k, columns])]
        agree("MatMulFpQ4", ins, const=[1, 2], blk_quant_type=kind)
    agree("MatMulFpQ4", [f32(0, 32), blob.ravel(), np.int64([32, 7])], const=[1, 2], blk_quant_type=kind)
    with pytest.raises(MonoblocError, match="`blk_quant_type` = 2"):
        load_onnx(node("MatMulFpQ4", ins, const=[1, 2], blk_quant_type=2)[0])
    for shape, message in (([64, 2], "are no product"), ([32, 2], "has 147 bytes")):
        with pytest.raises(MonoblocError, match=message if kind else message.replace("147", "140")):
            load_onnx(node("MatMulFpQ4", [f32(2, 32), blob.ravel(), np.int64(shape)], const=[1, 2],
                           blk_quant_type=kind)[0])


@pytest.mark.parametrize("kind", [0, 1, 2, 8, 20, 30])
def test_rows_of_blocks(kind: int) -> None:
    """Half-precision scales of a sensible size; an index outside is the first row."""
    width = {0: 128, 1: 64, 2: 18, 8: 34, 20: 18, 30: 64}[kind]
    rows = some(np.uint8, 5, 2, width)
    if kind in (2, 8, 20):
        rows[:, :, :2] = RNG.uniform(0.01, 0.1, (5, 2, 1)).astype(np.float16).view(np.uint8)
    else:
        real = {0: np.float32, 1: np.float16, 30: np.float32}[kind]
        x = RNG.standard_normal((5, 2, 32)).astype(real).view(np.uint8)
        rows = x.reshape(5, 2, 32, 4)[..., 2:].reshape(5, 2, 64) if kind == 30 else x.reshape(5, 2, width)
    data = np.ascontiguousarray(rows.reshape(5, -1))
    for at in (np.int64([[0, 4, 2], [-1, 5, 1]]), np.int32([3])):
        for to in (1, 10):
            agree("GatherPacked", [data, at], const=[0], K=64, packed_type=kind, output_dtype=to)
    for attrs, message in (({"K": 32}, "which need"), ({"packed_type": 14}, "the packed type 14")):
        with pytest.raises(MonoblocError, match=message):
            load_onnx(node("GatherPacked", [data, at], const=[0], **{"K": 64, "packed_type": kind, **attrs})[0])


def test_compiled(tmp_path: Path, cache: Path) -> None:
    compiled(__name__, tmp_path, cache)
