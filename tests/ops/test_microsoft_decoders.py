"""What decoders of language models are made of (`com.microsoft`): read, interpreted, compiled, and compared with
onnxruntime."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from test_microsoft import F, agree, compiled, f32, near, node, remember, runtime
from test_o2_onnx import Array, ours

from monobloc.errors import MonoblocError
from monobloc.frontend.importer import load_onnx

RNG = np.random.default_rng(77)
print("seed 77")
HALF = np.float16


# -- residual streams -------------------------------------------------------------------------------------
@pytest.mark.parametrize("dtype", [F, HALF])
def test_streams(dtype: Any) -> None:
    x, flat = f32(2, 3, 4, 8).astype(dtype), f32(2, 3, 32).astype(dtype)
    agree("BranchwiseRMSNorm", [x])
    for shape in ((32,), (4, 8), (8,)):
        agree("BranchwiseRMSNorm", [x, f32(*shape)], epsilon=1e-3)
        agree("BranchwiseRMSNorm", [flat, f32(*shape).astype(dtype)], num_branches=4)
    for shape in ((2, 3, 4), (2, 3, 4, 1), (2, 3, 4, 8)):
        mix = f32(*shape)
        agree("HyperConnectionPreMix", [x, mix], reduction_scale=0.25)
        agree("HyperConnectionPostMix", [x, f32(2, 3, 8).astype(dtype), mix])
        agree("HyperConnectionPostMix", [flat, f32(2, 3, 8).astype(dtype), mix, f32(2, 3, 4, 4)], num_branches=4)
    agree("HyperConnectionPreMix", [flat, f32(2, 3, 32)], num_branches=4)


@pytest.mark.parametrize("dtype", [F, HALF])
def test_engram_gate(dtype: Any) -> None:
    ins = [f32(*s).astype(dtype) for s in ((2, 3, 4, 8), (2, 3, 4, 8), (2, 3, 8), (4, 8), (4, 8), (4, 8))]
    agree("EngramGate", ins, 2, epsilon=1e-4)
    agree("EngramGate", ins[:5])


def test_streams_that_do_not_fit() -> None:
    for op, ins, attrs, message in (
        ("BranchwiseRMSNorm", [f32(2, 9)], {"num_branches": 2}, "does not part into 2 branches"),
        ("BranchwiseRMSNorm", [f32(2, 3, 4), f32(5)], {}, "does not fit 3 branches of 4"),
        ("HyperConnectionPreMix", [f32(2, 3, 4), f32(2, 5)], {}, "do not fit streams"),
        ("HyperConnectionPostMix", [f32(2, 3, 4), f32(2, 5), f32(2, 3)], {}, "a block's"),
        ("EngramGate", [f32(1, 2, 3, 4), f32(1, 2, 3, 4), f32(1, 2, 5), f32(3, 4), f32(3, 4)], {}, "fit together"),
    ):
        with pytest.raises(MonoblocError, match=message):
            load_onnx(node(op, ins, **attrs)[0])


# -- n-grams ----------------------------------------------------------------------------------------------
def test_no_ngram_repeats() -> None:
    ids = np.int64([[1, 2, 3, 1, 2, 3, 1, 2], [5, 5, 5, 5, 0, 5, 4, 5]])
    for size in (1, 2, 3, 4, 8, 9):
        agree("NGramRepeatBlock", [ids, f32(2, 6)], ngram_size=size)
    agree("NGramRepeatBlock", [ids, F([[np.nan, np.inf, -np.inf, 0, 1, 2]] * 2)], ngram_size=2)
    with pytest.raises(MonoblocError, match="has n-grams of 0"):
        load_onnx(node("NGramRepeatBlock", [ids, f32(2, 6)], ngram_size=0)[0])


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_hashes_of_ngrams(dtype: Any) -> None:
    ids = RNG.integers(-3, 9, (2, 7)).astype(dtype)
    by, vocab = dtype([7, -11, 123456789]), dtype([97, 101, 103, 107])
    attrs = {"max_ngram_size": 3, "n_head_per_ngram": 2, "pad_id": 5}
    past, offsets = RNG.integers(0, 9, (2, 2)).astype(dtype), dtype([0, 100, 200, 300])
    segments = np.int32([[0, 0, 1, 1, 1, 2, 0], [3, 3, 3, 3, 3, 3, 4]])
    agree("NGramHashMapping", [ids, by, vocab], 2, off=0, **attrs)
    agree("NGramHashMapping", [ids, by, vocab, past, offsets], 2, off=0, **attrs)
    for reset in (0, 1):
        agree("NGramHashMapping", [ids, by, vocab, past, None, dtype(3)], 2, off=0, reset_on_eos=reset, **attrs)
        agree("NGramHashMapping", [ids, by, vocab, None, None, dtype(3), segments], off=0, reset_on_eos=reset, **attrs)
    agree("NGramHashMapping", [ids, by, vocab, past, None, None, segments], off=0, **attrs)
    agree("NGramHashMapping", [ids[:, :1], by, vocab, past, None, dtype(3), segments[:, :1]], 2, off=0, **attrs)


def test_hashes_that_do_not_fit() -> None:
    ids, attrs = np.int64([[1, 2]]), {"max_ngram_size": 2, "n_head_per_ngram": 1, "pad_id": 0}
    for by, vocab, message in (([1], [7], "n-grams of up to 2"), ([1, 2], [7, 8], "for 1 heads")):
        with pytest.raises(MonoblocError, match=message):
            load_onnx(node("NGramHashMapping", [ids, np.int64(by), np.int64(vocab)], **attrs)[0])


# -- rotary embeddings --------------------------------------------------------------------------------------
@pytest.mark.parametrize("interleaved", [0, 1])
@pytest.mark.parametrize("layout", [0, 1])
def test_rotary_embedding_of_three_positions(interleaved: int, layout: int) -> None:
    cos, sin, at = f32(16, 8), f32(16, 8), RNG.integers(0, 16, (3, 2, 5))
    more = {"interleaved": interleaved, "mrope_layout": layout}
    for sections in ([4, 2, 2], [8, 0, 0], [2, 3, 3]):
        agree("MRotaryEmbedding", [f32(2, 3, 5, 16), at, cos, sin], mrope_section=sections, **more)
    agree("MRotaryEmbedding", [f32(2, 5, 48), at, cos, sin], num_heads=3, mrope_section=[3, 3, 2], **more)
    part = [f32(2, 5, 48), at, cos[:, :4], sin[:, :4]]
    agree("MRotaryEmbedding", part, mrope_section=[2, 1, 1], num_heads=3, rotary_embedding_dim=8, scale=1.5, **more)
    model, _ = node("MRotaryEmbedding", [f32(2, 5, 48), at, cos, sin], mrope_section=[3, 3, 3])
    with pytest.raises(MonoblocError, match="into sections of"):
        load_onnx(model)


# -- attention with a state -------------------------------------------------------------------------------
@pytest.mark.parametrize("rule", ["linear", "gated", "delta", "gated_delta"])
def test_linear_attention(rule: str) -> None:
    b, t, h, width, size = 2, 5, 3, 4, 6
    q, k, v = f32(b, t, h * width), f32(b, t, h * width), f32(b, t, h * size)
    beta = RNG.random((b, t, h)).astype(F)
    heads = {"q_num_heads": h, "kv_num_heads": h, "update_rule": rule}
    for decay in (-RNG.random((b, t, h)).astype(F), -RNG.random((b, t, h * width)).astype(F)):
        agree("LinearAttention", [q, k, v, f32(b, h, width, size), decay, beta], 2, **heads)
    agree("LinearAttention", [q, k, v, None, decay, beta[:, :, :1]], 2, scale=0.3, **heads)
    for queries, keys in ((6, 3), (1, 3), (1, 1)):
        ins = [f32(b, t, queries * width), f32(b, t, keys * width), v, f32(b, h, width, size), decay, beta]
        agree("LinearAttention", ins, 2, **heads | {"q_num_heads": queries})
    if rule != "linear":
        with pytest.raises(MonoblocError, match="needs"):
            load_onnx(node("LinearAttention", [q, k, v], **heads)[0])


@pytest.mark.parametrize("dtype", [F, HALF])
def test_gated_delta_net(dtype: Any) -> None:
    b, t, width, size = 2, 5, 4, 6
    q, k, v = (f32(b * t, *s).astype(dtype) for s in ((2, width), (2, width), (4, size)))
    state, beta = f32(b, 4, size, width), RNG.random((b * t, 4)).astype(dtype)
    decay, per_key = (-RNG.random((b * t, 4, *s)).astype(dtype) for s in ((), (width,)))
    agree("GatedDeltaNet", [q, k, v, None, decay, beta, state], 2, qk_l2_norm=1)
    agree("GatedDeltaNet", [q, k, v, None, per_key, beta, state], 2, beta_activation="sigmoid", qk_l2_norm=1, scale=0.2)
    packed = np.concatenate([x.reshape(b * t, -1) for x in (q, k, v)], 1)
    agree("GatedDeltaNet", [packed, None, None, None, decay, beta, state], 2, qk_l2_norm=1)
    apart = [x.reshape(b, t, *x.shape[1:]) for x in (q, k, v)]
    agree("GatedDeltaNet", [*apart, None, decay.reshape(b, t, 4), beta.reshape(b, t, 4), state], 2, qk_l2_norm=1)
    for gate in ("softplus", "sigmoid", "kda"):
        for bias in (f32(4), *([f32(4, width)] if gate != "softplus" else [])):
            d = per_key if bias.ndim == 2 else decay
            agree("GatedDeltaNet", [q, k, v, None, d, beta, state, f32(4), bias], 2, gate_activation=gate, qk_l2_norm=1)
    for ins, message in (([q, k, v, np.int32([0, 3, 10]), decay, beta, state], "cu_seqlens"), ([q, k, v], "initial")):
        with pytest.raises(MonoblocError, match=message):
            load_onnx(node("GatedDeltaNet", ins, 2)[0])


@pytest.mark.parametrize("dtype", [F, HALF])
def test_gates_of_linear_attention(dtype: Any) -> None:
    agree("LinearAttentionGate", [f32(2, 3, 4).astype(dtype), f32(4), f32(4), f32(2, 3, 4).astype(dtype)], 2)
    agree("LinearAttentionGate", [f32(2, 3, 4).astype(dtype) * 30, f32(4), f32(4)])


def test_causal_convolution() -> None:
    x, w, bias = f32(2, 4, 5), f32(4, 1, 3), f32(4)
    agree("CausalConvWithState", [x, w], 2, const=[1])
    for kind in ("none", "silu", "swish"):
        agree("CausalConvWithState", [x, w, bias, f32(2, 4, 2)], 2, const=[1, 2], activation=kind)
    agree("CausalConvWithState", [x, w, None, f32(2, 4, 4)], 2, const=[1], dilation=2)
    agree("CausalConvWithState", [x[:, :, :1], w, bias, f32(2, 4, 2)], 2, const=[1])
    agree("CausalConvWithState", [x, f32(4, 1, 1)], 2, const=[1])
    agree("CausalConvWithState", [f32(2, 5, 4), w, bias, f32(2, 2, 4)], 2, const=[1], channels_last=1)
    agree("CausalConvWithState", [f32(2, 5, 2, 2), w, bias, f32(2, 2, 2, 2)], 2, const=[1], channels_last=1)
    for attrs, message in (({"ndim": 2}, "`ndim` = 2"), ({"state_window": 2}, "`state_window` = 2")):
        with pytest.raises(MonoblocError, match=message):
            load_onnx(node("CausalConvWithState", [x, w], 2, **attrs)[0])


# -- attention by blocks ------------------------------------------------------------------------------------
ROWS, COLUMNS = np.int32([[0, 1, 3, 5, 8], [0, 1, 3, 6, 9]]), np.int32([[0, 0, 1, 1, 2, 1, 2, 3, -1],
                                                                       [0, 0, 1, 0, 1, 2, 0, 2, 3]])


def in_place(model: onnx.ModelProto, feeds: dict[str, Array]) -> list[Array]:
    """onnxruntime, with caches that are inputs and outputs at once, which it insists on"""
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    values = {k: ort.OrtValue.ortvalue_from_numpy(v.copy()) for k, v in feeds.items()}
    bound = session.io_binding()
    for name, value in values.items():
        bound.bind_ortvalue_input(name, value)
    bound.bind_output("y0")
    for name, cache in (("y1", "x3"), ("y2", "x4")):
        bound.bind_ortvalue_output(name, values[cache])
    session.run_with_iobinding(bound)
    return [v.numpy().copy() for v in bound.get_outputs()]


@pytest.mark.parametrize(("steps", "before"), [(20, 0), (33, 0), (1, 37), (1, 15)])
def test_sparse_attention(steps: int, before: int) -> None:
    """Four heads of queries, two of keys, two layouts"""
    batch, size, total = 2, 16, steps + before
    q, k, v = (f32(batch, steps, heads * size) for heads in (4, 2, 2))
    cache = [f32(batch, 2, 64, size), f32(batch, 2, 64, size)]
    rest = [ROWS, COLUMNS, np.int32([total]), np.full(batch, total, np.int32)]
    attrs = {"num_heads": 4, "kv_num_heads": 2, "sparse_block_size": 16}
    packed = [np.concatenate([q, k, v], 2), None, None]
    for ins, more in (([q, k, v, *cache, *rest], {}), ([*packed, *cache, *rest], {"scale": 0.1}),
                      ([q, k, v, *cache, *rest, f32(64, 8), f32(64, 8)], {"do_rotary": 1})):
        model, feeds = node("SparseAttention", ins, 3, const=[5, 6], **attrs, **more)
        got, want = ours(model, feeds), in_place(model, feeds)
        for g, w in zip(got, want, strict=True):
            part = (slice(None), slice(None), slice(0, total)) if w.ndim == 4 else ()
            near("SparseAttention", g[part], w[part], 1e-4, 1e-5, 0)
        remember(__name__, model, feeds, got, (1e-4, 1e-5, 0))
    with pytest.raises(MonoblocError, match="layouts of 4 blocks of 8 for caches of 64"):
        load_onnx(node("SparseAttention", ins, 3, const=[5, 6], **attrs | {"sparse_block_size": 8})[0])


# -- caches of bytes ------------------------------------------------------------------------------------------
@pytest.mark.parametrize("bits", [8, 4])
@pytest.mark.parametrize("kind", ["PER_TENSOR", "PER_CHANNEL"])
def test_caches_of_bytes(bits: int, kind: str) -> None:
    """Four heads of queries, two of keys; a prompt, and a step behind a cache, and half-precision queries"""
    heads = {"num_heads": 4, "kv_num_heads": 2, "kv_cache_bit_width": bits, "k_quant_type": kind, "v_quant_type": kind}
    for steps, past, dtype in ((4, 0, F), (1, 3, F), (1, 3, HALF)):
        q, k, v = (f32(2, steps, h * 16).astype(dtype) for h in (4, 2, 2))
        stored = [RNG.integers(0, 256, (2, 2, past, 2 * bits)).astype(np.uint8).view(np.int8 if bits == 8 else np.uint8)
                  for _ in range(2)]
        shape = (1, 2, 1, 16) if kind == "PER_CHANNEL" else (1,)
        scales = [(RNG.random(shape) / 20 + 0.01).astype(F) for _ in range(2)]
        rest = [np.full(2, steps + past - 1, np.int32), np.int32(steps + past), *[None] * 5, *scales]
        agree("GroupQueryAttention", [q, k, v, *stored, *rest], 3, const=[6], **heads)
    refused = ({"k_quant_type": "PER_ROW"}, "of the kind PER_ROW"), ({"kv_cache_bit_width": 12 - bits}, "for 2 heads")
    for more, message in refused:
        with pytest.raises(MonoblocError, match=message):
            load_onnx(node("GroupQueryAttention", [q, k, v, *stored, *rest], 3, const=[6], **heads | more)[0])


def test_chunks_that_are_filled_up() -> None:
    """Of three tokens of each sample one, two and none count."""
    q, k, v = (f32(3, 3, h * 16) for h in (4, 2, 2))
    cache = [f32(3, 2, 9, 16), f32(3, 2, 9, 16)]
    given, total = np.int32([1, 2, 0]), np.int32([5, 2, 4])
    ins = [q, k, v, *cache, total - 1, np.int32(9), f32(16, 8), f32(16, 8), *[None] * 7, given]
    model, feeds = node("GroupQueryAttention", ins, 3, const=[6], num_heads=4, kv_num_heads=2, do_rotary=1)
    got, want = ours(model, feeds), runtime(model, feeds)
    for s in range(3):
        np.testing.assert_allclose(got[0][s, : given[s]], want[0][s, : given[s]], rtol=1e-4, atol=1e-5)
        for g, w in zip(got[1:], want[1:], strict=True):
            np.testing.assert_allclose(g[s, :, : total[s]], w[s, :, : total[s]], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("capacity", [4, 7])
def test_caches_of_a_window(capacity: int) -> None:
    """A window of four keys: a prompt longer than it, then tokens one by one, each with what the last one left"""
    attrs = {"num_heads": 4, "kv_num_heads": 2, "local_window_size": 4, "sliding_window_cache": 1, "do_rotary": 1}
    cache, total, tables = [np.zeros((1, 2, capacity, 16), F)] * 2, 0, [f32(32, 8), f32(32, 8)]
    for steps in (3, 6, *[1] * 9, 2):
        total += steps
        q, k, v = (f32(1, steps, h * 16) for h in (4, 2, 2))
        model, feeds = node("GroupQueryAttention", [q, k, v, *cache, np.int32([total - 1]), np.int32(total), *tables],
                            3, const=[6], **attrs)
        got, want = ours(model, feeds), runtime(model, feeds)
        step = capacity - 4 + 1
        held = total if total <= capacity else total - step * -(-(total - capacity) // step)
        np.testing.assert_allclose(got[0], want[0], rtol=1e-4, atol=1e-5)
        for g, w in zip(got[1:], want[1:], strict=True):
            np.testing.assert_allclose(g[:, :, :held], w[:, :, :held], rtol=1e-5, atol=1e-6)
        cache = got[1:]
    ins = [q, k, v, *cache, np.int32([total - 1]), np.int32(total), *tables]
    with pytest.raises(MonoblocError, match="for a window of 9"):
        load_onnx(node("GroupQueryAttention", ins, 3, const=[6], **attrs | {"local_window_size": 9})[0])


# -- one token after the other --------------------------------------------------------------------------------
@pytest.mark.parametrize("op", ["MultiHeadAttention", "DecoderMaskedMultiHeadAttention"])
def test_caches_of_fixed_length(op: str) -> None:
    """Keys behind the past's are not looked at, and what comes out as present is what went in but for the new ones."""
    masked = op.startswith("Decoder")
    q, k, v, past, at = f32(2, 1, 32), f32(2, 1, 32), f32(2, 1, 32), [f32(2, 2, 8, 16), f32(2, 2, 8, 16)], np.int32([5])
    attrs = {"num_heads": 2, **({"past_present_share_buffer": 1} if masked else {})}
    mask, added, bias = np.int32([[1, 1, 0, 1, 1, 1], [1] * 6]), f32(1, 2, 1, 6), f32(96)
    turns = np.int32([[[0, 1, 1, 0, 1, 7, 7, 7], [1, 0, 0, 1, 1, 7, 7, 7]]])
    none = [None] * 4
    for m, a, c, beams in (none, (mask, added, None, None), (None, None, bias, None), (*none[1:], turns)):
        if masked:
            ins = [q, k, v, m, a, *past, at, np.int32([2]) if beams is not None else None, beams, c]
        elif beams is None:
            ins = [q, k, v, c, m, a, *past, at]
        else:
            continue
        model, feeds = node(op, ins, 3, const=[8] if beams is not None else [], **attrs)
        got, want = ours(model, feeds), runtime(model, feeds)
        np.testing.assert_allclose(got[0], want[0], rtol=1e-4, atol=1e-5)
        for g, w, p in zip(got[1:], want[1:], past, strict=True):
            np.testing.assert_array_equal(g[:, :, :6], w[:, :, :6])
            np.testing.assert_array_equal(g[:, :, 6:], p[:, :, 6:])
        remember(__name__, model, feeds, got, (1e-4, 1e-5, 0))


def test_decoding_over_another_layer() -> None:
    q, kv = f32(2, 1, 32), [f32(2, 2, 7, 16), f32(2, 2, 7, 16)]
    agree("DecoderMaskedMultiHeadAttention", [q, *kv], num_heads=2)
    agree("DecoderMaskedMultiHeadAttention", [q, *kv, np.int32([[1] * 5 + [0] * 2] * 2)], num_heads=2)
    for ins, attrs, message in (([q], {}, "in one tensor"), ([q, *kv], {"output_qk": 1}, "`output_qk` = 1")):
        with pytest.raises(MonoblocError, match=message):
            load_onnx(node("DecoderMaskedMultiHeadAttention", ins, num_heads=2, **attrs)[0])


# -- what does not fit ----------------------------------------------------------------------------------------
Q, KV, CACHE = f32(1, 2, 64), f32(1, 2, 32), f32(1, 2, 3, 16)
LENGTHS = [np.int32([4]), np.int32(5)]


@pytest.mark.parametrize(("op", "ins", "attrs", "message"), [
    ("MultiHeadAttention", [Q, Q, Q], {"num_heads": 0}, "into 0 heads"),
    ("MultiHeadAttention", [Q, Q, Q, F(1)], {"num_heads": 4}, "has the bias f32"),
    ("GroupQueryAttention", [Q, KV, KV, CACHE, CACHE, *LENGTHS], {"do_rotary": 1}, "needs cos_cache and sin_cache"),
    ("GroupQueryAttention", [Q, KV, KV, CACHE, CACHE, *LENGTHS, f32(9, 8), f32(8)], {"do_rotary": 1}, "and sines f32"),
    ("GroupQueryAttention", [Q, KV, KV, CACHE[0], CACHE[0], *LENGTHS], {}, "has caches f32"),
    ("LinearAttention", [KV, KV, KV, None, KV, KV[0]], {"q_num_heads": 2, "kv_num_heads": 2}, "and beta f32"),
    ("NGramHashMapping", [np.int64([[1, 2]]), np.int64([1, 2]), np.int64([7]), None, None, None, np.int32([1, 2])],
     {"max_ngram_size": 2, "n_head_per_ngram": 1, "pad_id": 0}, "has segments i32"),
])
def test_what_does_not_fit(op: str, ins: list[Any], attrs: dict[str, int], message: str) -> None:
    attrs = attrs | ({"num_heads": 4, "kv_num_heads": 2} if op.startswith("Group") else {})
    with pytest.raises(MonoblocError, match=f"{op} 'node': .*{message}"):
        load_onnx(node(op, ins, **attrs)[0])


def test_compiled(tmp_path: Path, cache: Path) -> None:
    compiled(__name__, tmp_path, cache)
