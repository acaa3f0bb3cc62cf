"""What onnxruntime's optimizer fuses, one node each: read, interpreted, compiled, and compared with onnxruntime."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_microsoft import F, agree, compiled, f32, node, runtime, some
from test_o2_onnx import Array, ours

from monobloc.errors import MonoblocError
from monobloc.frontend.importer import load_onnx

RNG = np.random.default_rng(99)
print("seed 99")


# -- contractions ---------------------------------------------------------------------------------------
def test_fused_conv() -> None:
    x, w, bias, z = f32(1, 4, 6, 5), f32(8, 2, 3, 3), f32(8), f32(1, 8, 6, 5)
    same = {"pads": [1, 1, 1, 1], "group": 2}
    for more in (
        {"activation": "Relu"}, {"activation": "LeakyRelu", "activation_params": [0.1]}, {"activation": "Tanh"}, {},
        {"activation": "Clip", "activation_params": [-0.5, 1.5]}, {"activation": "Sigmoid"},
        {"activation": "HardSigmoid", "activation_params": [0.3, 0.4]},
    ):
        agree("FusedConv", [x, w, bias], const=[1, 2], **same, **more)
    agree("FusedConv", [x, w, bias, z], const=[1, 2], activation="Relu", **same)
    model, _ = node("FusedConv", [x, w], const=[1], activation="Swoosh", **same)
    with pytest.raises(MonoblocError, match="the activation `Swoosh`"):
        load_onnx(model)


def test_channels_last_is_a_transposed_convolution() -> None:
    """onnxruntime's CPU kernels of these take halves only."""
    x, w, z = f32(1, 6, 5, 4), f32(3, 4, 2, 2), f32(1, 5, 4, 3)
    model, feeds = node("NhwcFusedConv", [x, w, None, z], const=[1], activation="Relu")
    plain, given = node("FusedConv", [x.transpose(0, 3, 1, 2), w, None, z.transpose(0, 3, 1, 2)], activation="Relu")
    np.testing.assert_allclose(ours(model, feeds)[0], ours(plain, given)[0].transpose(0, 2, 3, 1), rtol=1e-5)
    agree("NhwcMaxPool", [some(np.uint8, 1, 6, 5, 4)], off=0, kernel_shape=[2, 2], strides=[2, 1])


def test_fused_matmul() -> None:
    for a, b, attrs in (
        ((2, 3, 4), (2, 4, 5), {"alpha": 0.5}),
        ((2, 4, 3), (2, 5, 4), {"transA": 1, "transB": 1}),
        ((3, 2, 4), (2, 4, 5), {"transBatchA": 1}),
        ((2, 3, 4), (4, 2, 5), {"transBatchB": 1}),
        ((4, 2, 3), (2, 5, 4), {"transBatchA": 1, "transA": 1, "transB": 1}),
        ((4,), (4, 5), {"alpha": 2.0}),
    ):
        agree("FusedMatMul", [f32(*a), f32(*b)], **attrs)
    agree("TransposeMatMul", [f32(2, 4, 3), f32(2, 4, 5)], transA=1)


def test_fused_gemm() -> None:
    for more in (
        {"activation": "Relu"}, {"activation": "LeakyRelu", "activation_alpha": 0.2}, {"activation": "Sigmoid"},
        {"activation": "Elu", "activation_alpha": 0.7}, {"activation": "HardSigmoid", "activation_alpha": 0.2,
         "activation_beta": 0.3}, {"activation": "Selu", "activation_alpha": 1.5, "activation_gamma": 1.1},
        {"activation": "ThresholdedRelu", "activation_alpha": 0.4}, {"activation": "Softplus"},
    ):
        agree("FusedGemm", [f32(3, 4), f32(5, 4), f32(5)], alpha=0.5, beta=2.0, transB=1, **more)


# -- elementwise ----------------------------------------------------------------------------------------
def test_gelus() -> None:
    x = np.concatenate([f32(4, 8) * 3, F([[0, -0.0, 30, -30, np.inf, -np.inf, 1e-3, 5]])])
    agree("Gelu", [x])
    agree("BiasGelu", [x, f32(8)])
    agree("FastGelu", [x], atol=1e-4)
    agree("FastGelu", [x, f32(8)], atol=1e-4)
    for alpha in (1.702, 1.0):
        agree("QuickGelu", [x[:4]], alpha=alpha)
        agree("ScaledSiLU", [x[:4]], alpha=alpha)
    for dtype in (F, np.float16):
        agree("ScaledSiLU", [x[:4].astype(dtype), F(0.7)])
    agree("QuickGelu", [x[:4]])


def test_what_onnxruntime_has_no_cpu_kernel_for() -> None:
    x, bias, skip = f32(2, 3, 8), f32(8), f32(2, 3, 8)
    np.testing.assert_allclose(one("BiasAdd", [x, bias, skip]), x + bias + skip, rtol=1e-6)
    half = (x + bias)[..., :4] * gelu((x + bias)[..., 4:])
    np.testing.assert_allclose(one("BiasSplitGelu", [x, bias]), half, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(one("BiasDropout", [x, bias, skip]), x + bias + skip, rtol=1e-6)
    w = f32(8, 5)
    np.testing.assert_allclose(one("GemmFastGelu", [x, w]), gelu(x @ w), rtol=1e-2, atol=1e-2)
    e = np.exp(x + bias - (x + bias).max(-1, keepdims=True))
    got = one("BiasSoftmax", [x, bias], axis=2, is_inner_broadcast=0)
    np.testing.assert_allclose(got, e / e.sum(-1, keepdims=True), rtol=1e-5)
    assert one("IsAllFinite", [x, bias]) and not one("IsAllFinite", [x, F([np.inf])])
    assert one("IsAllFinite", [f32(0, 3)]) and not one("IsAllFinite", [f32(0, 3), F([np.nan])])
    assert one("IsAllFinite", [x, F([np.inf])], isnan_only=1) and not one("IsAllFinite", [F([np.nan])], isnan_only=1)
    model, _ = node("BiasDropout", [x, bias, None, F(0.5), np.array(True)], const=[3, 4])
    with pytest.raises(MonoblocError, match="Dropout in training mode"):
        load_onnx(model)


def test_what_is_fused_for_gpus() -> None:
    """onnxruntime has no CPU kernel of these: what their definitions say"""
    x, up = f32(2, 3, 8) * 2, f32(2, 3, 8) * 2
    want = x / (1 + np.exp(-1.5 * x)) * (up + 0.5)
    more = {"activation_alpha": 1.5, "activation_beta": 0.5}
    np.testing.assert_allclose(one("SwiGLU", [x, up], **more), want, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(one("SwiGLU", [np.concatenate([x, up], -1)], **more), want, rtol=1e-4, atol=1e-5)
    g = np.minimum(x, 1)
    np.testing.assert_allclose(one("SwiGLU", [x, up], limit=1.0), g / (1 + np.exp(-g)) * np.clip(up, -1, 1), rtol=1e-4)
    a, b = some(np.uint8, 3, 4), some(np.uint8, 4)
    got = one("MulInteger", [a, np.uint8(9), b, np.uint8(200)])
    np.testing.assert_array_equal(got, (a.astype(np.int32) - 9) * (b.astype(np.int32) - 200))
    bytes_ = some(np.int8, 3, 4)
    got = one("ReduceSumInteger", [bytes_], axes=[1], keepdims=0)
    assert got.dtype == np.int32
    np.testing.assert_array_equal(got, bytes_.astype(np.int32).sum(1))
    y = one("Rfft", [x], signal_ndim=1)
    np.testing.assert_allclose(y.view(np.complex64)[..., 0], np.fft.rfft(x), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(one("Irfft", [y], signal_ndim=1), x, rtol=1e-4, atol=1e-5)
    p, q = (v.view(np.complex64)[..., 0] for v in (y, y[:, ::-1].copy()))
    got = one("ComplexMul", [y, y[:, ::-1]]).view(np.complex64)[..., 0]
    np.testing.assert_allclose(got, p * q, rtol=1e-4, atol=1e-4)
    got = one("ComplexMulConj", [y, y[:, ::-1]]).view(np.complex64)[..., 0]
    np.testing.assert_allclose(got, p * q.conj(), rtol=1e-4, atol=1e-4)
    emb, parts = f32(2, 3, 8), [f32(2, h, 3, 8).astype(np.float16) for h in (4, 4, 2, 2)]
    model, feeds = node("GemmaRotaryEmbedding", [emb, *parts], 2)
    for got, (v, turned) in zip(ours(model, feeds), (parts[:2], parts[2:]), strict=True):
        np.testing.assert_allclose(got, v * np.cos(emb)[:, None] + turned * np.sin(emb)[:, None], rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize("both", [0, 1])
def test_biases_of_distances(both: int) -> None:
    """Against PyTorch's T5, whose table is [buckets, heads]"""
    torch = pytest.importorskip("torch")
    table, size = f32(16, 3), np.int64(40)
    at = torch.arange(40)[None, :] - torch.arange(40)[:, None]
    count, first = (8, (at > 0) * 8) if both else (16, torch.zeros_like(at))
    far = at.abs() if both else -torch.clamp(at, max=0)
    share = torch.log(far.float() / (count // 2)) / np.log(20 / (count // 2))
    large = count // 2 + (share * (count - count // 2)).long()
    where = first + torch.where(far < count // 2, far, torch.clamp(large, max=count - 1))
    want = table[where.numpy()].transpose(2, 0, 1)[None]
    stored = np.ascontiguousarray(table.T).reshape(16, 3)
    got = one("RelativePositionBias", [stored, size, size], const=[1, 2], max_distance=20, is_bidirectional=both)
    np.testing.assert_array_equal(got, want)


def test_gated_biases_of_distances() -> None:
    q, query_bias, w, bias, eco, rel = f32(2, 5, 8), f32(8), f32(4, 6), f32(6), f32(1, 2, 1, 1), f32(1, 2, 5, 5)
    parts = ((q + query_bias).reshape(2, 5, 2, 4).transpose(0, 2, 1, 3) @ w + bias).reshape(2, 2, 5, 2, 3).sum(-1)
    u, r = (1 / (1 + np.exp(-parts[..., k, None])) for k in (0, 1))
    got = one("GatedRelativePositionBias", [q, query_bias, rel, w, bias, eco], num_heads=2)
    np.testing.assert_allclose(got, (u * (r * eco - 1) + 2) * rel, rtol=1e-4, atol=1e-5)


def test_generators_are_refused_by_name() -> None:
    model, _ = node("MurmurHash3", [np.int32([1])])
    model.graph.node[0].op_type = "Sampling"
    with pytest.raises(MonoblocError, match="com.microsoft::Sampling is not supported") as e:
        load_onnx(model)
    assert "compile the decoder alone" in str(e.value)


def one(op: str, ins: list[Array | None], **attrs: Any) -> Array:
    return ours(*node(op, ins, **attrs))[0]


def gelu(x: Array) -> Array:
    from math import erf

    return x * 0.5 * (1 + np.vectorize(erf)(x / np.sqrt(2)))


def test_others() -> None:
    for metric in ("euclidean", "sqeuclidean"):
        agree("CDist", [f32(5, 7), f32(4, 7)], metric=metric, atol=1e-4)
    agree("Inverse", [f32(2, 4, 4) + 3 * np.eye(4, dtype=F)], rtol=1e-3)
    agree("Inverse", [(f32(3, 3) + 3 * np.eye(3)).astype(np.float64)])
    agree("ExpandDims", [f32(2, 3), np.array(-1, np.int32)], const=[1])
    agree("Trilu", [f32(2, 4, 5), np.array(1, np.int64)], const=[1], upper=0)
    for k in (-9, -1, 0, 2):  # a diagonal that is data
        agree("Trilu", [f32(2, 4, 5), np.array(k, np.int64)], upper=k % 2)
    agree("Pad", [f32(3, 4), np.int64([0, 1, 2, 0]), np.array([2], F)], const=[1, 2])
    agree("Range", [np.float32(1), np.float32(9), np.float32(2)], const=[0, 1, 2])
    agree("Range", [np.int32(1), np.int32(9)], const=[0, 1])
    agree("GatherND", [f32(3, 4, 5), np.int64([[0, 1], [2, 3]])])
    for mode in ("bilinear", "nearest"):
        grid = RNG.uniform(-1.2, 1.2, (1, 3, 3, 2)).astype(F)
        agree("GridSample", [f32(1, 2, 4, 5), grid], mode=mode, align_corners=1)


def test_hashes() -> None:
    for dtype in (np.int32, np.uint32, np.int64, np.uint64, np.float32, np.float64):
        x = (RNG.standard_normal((3, 4)) * 1000).astype(np.int64).astype(dtype)
        for more in ({}, {"positive": 0}, {"seed": 77}):
            agree("MurmurHash3", [x], off=0, **more)
    model, _ = node("MurmurHash3", [np.array([["", "a"], ["abcd", "é and more than eight"]], object)], const=[0])
    np.testing.assert_array_equal(ours(model, {})[0], runtime(model, {})[0])


def test_regions_are_cropped_and_resized() -> None:
    x, rois, at = f32(2, 3, 5, 6), F([[0, 0, 1, 1], [0.2, 0.1, 0.7, 1.3], [0.9, 0.8, 0.1, 0.2]]), np.int32([0, 1, 1])
    for mode in ("bilinear", "nearest"):
        for size in ([3, 4], [1, 1]):
            agree("CropAndResize", [x, rois, at, np.int32(size)], const=[3], mode=mode, extrapolation_value=-2.0)


def test_unfold_unique_and_dynamic_pads() -> None:
    agree("UnfoldTensor", [f32(2, 7)], dim=1, size=3, step=2)
    agree("UnfoldTensor", [f32(7, 2, 3)], dim=-3, size=2)
    agree("Unique", [F([3, 1, 3, 2, 1])], 3, const=[0])
    for pads in ([1, 1, 1, 1], [0, 1, 1, 0]):
        agree("ConvTransposeWithDynamicPads", [f32(1, 2, 4, 4), f32(2, 3, 3, 3), np.int64(pads), f32(3)], const=[1, 2],
              strides=[2, 2])
    model, _ = node("UnfoldTensor", [f32(2, 7)], dim=1, size=8)
    with pytest.raises(MonoblocError, match="windows of 8 every 1 along axis 1"):
        load_onnx(model)


def test_unique_of_data() -> None:
    model, feeds = node("Unique", [F([3, 1, 3, 2, 1])], 3)
    for got, want in zip(ours(model, feeds), runtime(model, feeds), strict=True):
        assert got.dtype == want.dtype and np.array_equal(got.reshape(-1)[: want.size], want)


# -- normalizations -------------------------------------------------------------------------------------
def test_skip_layer_normalization() -> None:
    x, skip, gamma, beta, bias = f32(2, 3, 16), f32(2, 3, 16), f32(16), f32(16), f32(16)
    agree("SkipLayerNormalization", [x, skip, gamma, beta, bias], epsilon=1e-5)
    agree("SkipLayerNormalization", [x, f32(3, 16), gamma])
    agree("SkipLayerNormalization", [x, f32(1, 3, 16), gamma, None, bias])
    agree("SkipSimplifiedLayerNormalization", [x, skip, gamma, bias], epsilon=1e-5)
    for op in ("SkipLayerNormalization", "SkipSimplifiedLayerNormalization"):
        model, feeds = node(op, [x, skip, gamma], 4)
        for k in (2, 1):  # onnxruntime leaves the statistics out
            model.graph.node[0].output[k] = ""
            del model.graph.output[k]
        np.testing.assert_allclose(ours(model, feeds)[-1], x + skip, rtol=1e-6)


def test_normalizations_by_their_older_names() -> None:
    x, gamma = f32(2, 3, 16), f32(16)
    for axis in (-1, 2):
        agree("SimplifiedLayerNormalization", [x, gamma], domain="", axis=axis, epsilon=1e-5)
    agree("SimplifiedLayerNormalization", [x, f32(3, 16)], 2, domain="", axis=1)
    agree("LayerNormalization", [x, gamma, f32(16)], domain="", version=12)
    half = [v.astype(np.float16) for v in (x, gamma)]
    agree("SimplifiedLayerNormalization", half, domain="")


def test_embeddings() -> None:
    ids, kinds = RNG.integers(0, 9, (2, 5)).astype(np.int32), RNG.integers(0, 2, (2, 5)).astype(np.int32)
    tables = [f32(9, 16), f32(8, 16), f32(2, 16)]
    norm, mask = [f32(16), f32(16)], np.int32([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]])
    agree("EmbedLayerNormalization", [ids, kinds, *tables, *norm, mask], 3, epsilon=1e-5)
    agree("EmbedLayerNormalization", [ids, None, *tables[:2], None, *norm], 2)
    at = RNG.integers(0, 8, (2, 5)).astype(np.int32)
    agree("EmbedLayerNormalization", [ids, kinds, *tables, *norm, mask, at], 2)


def test_embeddings_of_bytes() -> None:
    ids, kinds = np.int32([[1, 2, 0], [8, 8, 3]]), np.int32([[0, 1, 0], [1, 1, 0]])
    for dtype in (np.uint8, np.int8):
        tables = [some(dtype, *s) for s in ((9, 16), (8, 16), (2, 16), (16,), (16,))]
        scales, zeros = [F(s) for s in (0.1, 0.2, 0.05, 0.01, 0.02)], [dtype(z) for z in (3, 9, 120, 100, 13)]
        ins = [ids, kinds, *tables, np.int32([[1, 1, 0], [1, 1, 1]]), *scales, *zeros]
        agree("QEmbedLayerNormalization", ins, 2, const=range(2, 18), epsilon=1e-5)
        ins[1] = ins[4] = ins[10] = ins[15] = None
        agree("QEmbedLayerNormalization", ins, 2, const=[k for k in range(2, 18) if ins[k] is not None])


def test_gates() -> None:
    agree("GatedAdd", [f32(2, 3, 8), f32(2, 3, 8), f32(2, 3, 1)])
    for activation in ("silu", "swish", "sigmoid"):
        agree("GatedRMSNorm", [f32(2, 3, 8), f32(4), f32(2, 3, 8)], activation=activation, epsilon=1e-5)
    agree("GatedRMSNorm", [v.astype(np.float16) for v in (f32(2, 8), f32(8), f32(2, 8))])
    model, _ = node("GatedAdd", [f32(2, 8), f32(2, 8), f32(2, 4), f32(4, 1)])
    with pytest.raises(MonoblocError, match="weights of its gate"):
        load_onnx(model)


@pytest.mark.parametrize(("experts", "k", "tokens"), [(8, 2, 13), (6, 1, 1), (5, 2, 40)])
def test_tokens_sorted_by_expert(experts: int, k: int, tokens: int) -> None:
    """As many products as were chosen, where these are half of the experts or fewer"""
    hidden, inner = 24, 40
    ins = [f32(tokens, hidden), f32(tokens, experts), f32(experts, inner, hidden), f32(experts, inner),
           f32(experts, hidden, inner), f32(experts, hidden)]
    agree("MoE", ins, const=[2, 3, 4, 5], activation_type="gelu", k=k, normalize_routing_weights=1)
    agree("MoE", [*ins[:3], None, ins[4]], const=[2, 4], activation_type="silu", k=k)
    ins[2:4] = f32(experts, 2 * inner, hidden), f32(experts, 2 * inner)
    agree("MoE", ins, const=[2, 3, 4, 5], activation_type="swiglu", swiglu_fusion=1, k=k)
    g = load_onnx(node("MoE", ins, const=[2, 3, 4, 5], activation_type="swiglu", swiglu_fusion=1, k=k)[0]).graph
    assert [n.op for n in g.nodes].count("GroupedProduct") == 2


def test_mixtures_of_experts() -> None:
    tokens, hidden, inner, experts = 3, 8, 6, 4
    x, router = f32(tokens, hidden), f32(tokens, experts)
    first = [f32(experts, inner, hidden), f32(experts, inner)]
    second = [f32(experts, hidden, inner), f32(experts, hidden)]
    for kind in ("relu", "silu", "gelu", "identity"):
        for k, normed in ((1, 0), (2, 1)):
            agree("MoE", [x, router, *first, *second], const=[2, 3, 4, 5], activation_type=kind, k=k,
                  normalize_routing_weights=normed)
    agree("MoE", [x.reshape(1, tokens, hidden), router, first[0], None, second[0]], const=[2, 4], k=4)
    fused = [f32(experts, 2 * inner, hidden), f32(experts, 2 * inner)]
    for more in ({}, {"activation_alpha": 1.702, "activation_beta": 1.0, "swiglu_limit": 0.7}):
        agree("MoE", [x, router, *fused, *second], const=[2, 3, 4, 5], activation_type="swiglu", swiglu_fusion=1, k=2,
              **more)
    model, _ = node("MoE", [x, router, *first, *second], k=5)
    with pytest.raises(MonoblocError, match="chooses 5 of 4 experts"):
        load_onnx(model)
    model, _ = node("MoE", [x, router, *first, *second, first[0]])
    with pytest.raises(MonoblocError, match="a third layer"):
        load_onnx(model)
    model, _ = node("MoE", [x, f32(tokens, experts + 1), *first, *second])
    with pytest.raises(MonoblocError, match=r"a router of f32\[3,5\]\n.*\[tokens, experts\]"):
        load_onnx(model)
    model, _ = node("MoE", [x, router, *first, *second], activation_type="elu")
    with pytest.raises(MonoblocError, match="activation 'elu' .*\n.*there are relu, gelu"):
        load_onnx(model)


def test_group_norm() -> None:
    """onnxruntime's kernel is for GPUs: against GroupNormalization of channels first."""
    x, gamma, beta, skip = f32(2, 5, 4, 8), f32(8), f32(8), f32(2, 8)
    first = np.ascontiguousarray(x.transpose(0, 3, 1, 2))
    plain = node("GroupNormalization", [first, gamma, beta], domain="", num_groups=2, epsilon=1e-5)
    want = ours(*plain)[0].transpose(0, 2, 3, 1)
    np.testing.assert_allclose(one("GroupNorm", [x, gamma, beta], groups=2, activation=0), want, rtol=1e-5, atol=1e-6)
    got = one("GroupNorm", [x, gamma, beta], groups=2, activation=1)
    np.testing.assert_allclose(got, want / (1 + np.exp(-want)), rtol=1e-4, atol=1e-5)
    y, total = ours(*node("SkipGroupNorm", [x, gamma, beta, skip, f32(8) * 0], 2, groups=2, activation=0))
    np.testing.assert_allclose(total, x + skip[:, None, None], rtol=1e-6)


# -- attention ------------------------------------------------------------------------------------------
def test_attention() -> None:
    x, w, bias = f32(2, 5, 8), f32(8, 24), f32(24)
    plain = [x, w, bias]
    agree("Attention", plain, num_heads=2)
    agree("Attention", plain, num_heads=2, unidirectional=1, scale=0.3)
    agree("Attention", [x, f32(8, 28), f32(28)], num_heads=2, qkv_hidden_sizes=[8, 8, 12])
    for mask in (np.int32([5, 3]), np.int32([5, 4, 0, 1]), np.int32([[1, 1, 1, 0, 0], [1] * 5]),
                 RNG.integers(0, 2, (2, 5, 5)).astype(np.int32)):
        agree("Attention", [*plain, mask], num_heads=2)
    past = f32(2, 2, 2, 3, 4)
    agree("Attention", [*plain, None, past], 2, num_heads=2)
    agree("Attention", [*plain, np.ones((2, 8), np.int32), past], 2, num_heads=2, unidirectional=1)
    agree("Attention", [*plain, None, None, f32(1, 2, 5, 5)], num_heads=2)


def test_quantized_attention() -> None:
    x, w, bias = some(np.uint8, 2, 5, 8), some(np.int8, 8, 24), f32(24)
    one_scale = [F(0.02), F(0.01)]
    agree("QAttention", [x, w, bias, *one_scale, None, np.uint8(128), np.int8(0)], num_heads=2, const=[1])
    per = [F(0.02), RNG.uniform(0.005, 0.01, 24).astype(F), np.int32([5, 2]), np.uint8(120), np.zeros(24, np.int8)]
    agree("QAttention", [x, w, bias, *per], num_heads=2, unidirectional=1, const=[1, 3, 4, 6, 7])
    agree("QAttention", [x, w, bias, *one_scale, None, np.uint8(128), np.int8(0), f32(2, 2, 2, 3, 4)], 2, num_heads=2)


def test_multi_head_attention() -> None:
    q, k, v = f32(2, 5, 8), f32(2, 7, 8), f32(2, 7, 12)
    agree("MultiHeadAttention", [q, k, v], num_heads=2)
    agree("MultiHeadAttention", [q, k, v, f32(28)], num_heads=2, scale=0.4)
    agree("MultiHeadAttention", [q, k, v, None, RNG.integers(0, 2, (2, 7)).astype(np.int32)], num_heads=2)
    agree("MultiHeadAttention", [q, k, v, None, None, f32(2, 1, 5, 7)], num_heads=2)
    agree("MultiHeadAttention", [q, f32(2, 2, 7, 4), f32(2, 2, 7, 4)], num_heads=2)
    packed = f32(2, 7, 2, 2, 4)  # which onnxruntime has on GPUs only
    apart = [packed[:, :, :, j].reshape(2, 7, 8) for j in (0, 1)]
    want = one("MultiHeadAttention", [q, *apart], num_heads=2)
    np.testing.assert_allclose(one("MultiHeadAttention", [q, packed], num_heads=2), want, rtol=1e-6)
    packed = f32(2, 5, 2, 3, 4)
    apart = [packed[:, :, :, j].reshape(2, 5, 8) for j in (0, 1, 2)]
    want = one("MultiHeadAttention", apart, num_heads=2)
    np.testing.assert_allclose(one("MultiHeadAttention", [packed], num_heads=2), want, rtol=1e-6)
    same = f32(2, 5, 8), f32(2, 5, 8)
    agree("MultiHeadAttention", [q, *same, None, None, None, f32(2, 2, 3, 4), f32(2, 2, 3, 4)], 3, num_heads=2)
    agree("MultiHeadAttention", [q, *same], num_heads=2, unidirectional=1)


def test_rotary_embedding() -> None:
    cos, sin = f32(16, 4), f32(16, 4)
    for interleaved in (0, 1):
        more = {"interleaved": interleaved}
        agree("RotaryEmbedding", [f32(2, 3, 16), np.int64([4]), cos, sin], **more)
        agree("RotaryEmbedding", [f32(2, 2, 3, 8), np.int64([[0, 5, 2], [7, 8, 9]]), cos, sin], **more)
        part = [f32(2, 3, 16), np.int64([[0, 1, 2], [3, 4, 5]]), cos[:, :2], sin[:, :2]]
        agree("RotaryEmbedding", part, rotary_embedding_dim=4, num_heads=2, **more)


@pytest.mark.parametrize("packed", [0, 1])
@pytest.mark.parametrize("past", [0, 3])
def test_group_query_attention(packed: int, past: int) -> None:
    """Four heads of queries, two of keys; a prompt, and steps behind a cache."""
    steps, size = (4, 16) if not past else (1, 16)
    total, batch = past + steps, 2
    q, k, v = f32(batch, steps, 4 * size), f32(batch, steps, 2 * size), f32(batch, steps, 2 * size)
    qkv = [np.concatenate([q, k, v], -1), None, None] if packed else [q, k, v]
    cache = [f32(batch, 2, past, size), f32(batch, 2, past, size)]
    lengths = [np.full(batch, total - 1, np.int32), np.int32(total)]
    heads = {"num_heads": 4, "kv_num_heads": 2}
    tables = [f32(16, size // 2), f32(16, size // 2)]
    agree("GroupQueryAttention", [*qkv, *cache, *lengths], 3, const=[6], **heads)
    for turn in (0, 1):
        more = {"do_rotary": 1, "rotary_interleaved": turn}
        agree("GroupQueryAttention", [*qkv, *cache, *lengths, *tables], 3, const=[6], **heads, **more)
    for more in ({"softcap": 2.0}, {"local_window_size": 2}, {"scale": 0.2}, {"smooth_softmax": 1}):
        agree("GroupQueryAttention", [*qkv, *cache, *lengths], 3, const=[6], **heads, **more)
    bias = [None, None, None, f32(1, 4, steps, total)]
    agree("GroupQueryAttention", [*qkv, *cache, *lengths, *bias], 3, const=[6], **heads)


def test_scores_that_attention_gives() -> None:
    q, k, v, mask = f32(2, 5, 8), f32(2, 6, 8), f32(2, 6, 8), np.int32([[1, 1, 1, 0, 1, 1], [1] * 6])
    bias = f32(2, 2, 5, 6)
    for ins, more in (([q, k, v], {}), ([q, k, v, None, mask, bias], {}), ([q, k, v], {"unidirectional": 1})):
        model, feeds = node("MultiHeadAttention", ins, 4, num_heads=2, **more)
        for j in (2, 1):
            model.graph.node[0].output[j] = ""
            del model.graph.output[j]
        model.graph.output[1].type.tensor_type.elem_type = 1  # which onnxruntime does not infer
        for got, want in zip(ours(model, feeds)[-2:], runtime(model, feeds), strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-4, atol=2e-3)
    empty = f32(1, 2, 0, 16)
    ins = [f32(1, 4, 64), f32(1, 4, 32), f32(1, 4, 32), empty, empty, np.int32([3]), np.int32(4)]
    for kind in (1, 2):
        for more in ({}, {"softcap": 2.0}, {"local_window_size": 2}, {"smooth_softmax": 1}):
            agree("GroupQueryAttention", ins, 4, const=[6], num_heads=4, kv_num_heads=2, qk_output=kind, **more)
    with pytest.raises(MonoblocError, match="qk_output 3"):
        load_onnx(node("GroupQueryAttention", ins, 4, const=[6], num_heads=4, kv_num_heads=2, qk_output=3)[0])


def test_a_cache_of_fixed_length(tmp_path: Path, cache: Path) -> None:
    """Where the total length is known at run time only, the cache has its own: keys are written in place."""
    steps, size, held = 1, 16, 6
    q, k, v = f32(1, steps, 4 * size), f32(1, steps, 2 * size), f32(1, steps, 2 * size)
    past = [f32(1, 2, held, size), f32(1, 2, held, size)]
    ins = [q, k, v, *past, np.int32([3]), np.int32(4)]
    model, feeds = node("GroupQueryAttention", ins, 3, num_heads=4, kv_num_heads=2)
    whole = [q, k, v, *(p[:, :, :3] for p in past), np.int32([3]), np.int32(4)]
    wants = ours(*node("GroupQueryAttention", whole, 3, const=[6], num_heads=4, kv_num_heads=2))
    got = ours(model, feeds)
    np.testing.assert_allclose(got[0], wants[0], rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(got[1][:, :, :4], wants[1])
    np.testing.assert_array_equal(got[1][:, :, 4:], past[0][:, :, 4:])


def test_compiled(tmp_path: Path, cache: Path) -> None:
    compiled(__name__, tmp_path, cache)
