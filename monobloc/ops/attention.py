"""Attention as onnxruntime's optimizer writes it (`com.microsoft`): softmax(Q K' * scale + masks) V over heads.

All forms become the same few operators: heads apart, what is remembered joined, one product, masks added or
selected, Softmax, another product. Shapes here: Q is [B, N, S, H], K and V [B, N, T, H], masks broadcast to
[B, N, S, T].
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from monobloc.ir.graph import Value
from monobloc.ir.types import DType
from monobloc.ops import OpDef
from monobloc.ops.build import read_as
from monobloc.ops.fused import plus, slice_last
from monobloc.ops.movement import slice_of
from monobloc.ops.qlinear import product, scalar, scaled

F32, I64 = DType.F32, DType.I64


# -- heads --------------------------------------------------------------------------------------------
def heads(b: Any, n: Any, x: Value, count: int) -> Value:
    """[B, S, N*H] as [B, N, S, H]"""
    if count < 1 or x.type.rank != 3 or x.shape[2] % count:
        n.fail(f"{x.type} does not part into {count} heads")
    x = b.one("Reshape", x, shape=[x.shape[0], x.shape[1], count, x.shape[2] // count])
    return b.one("Transpose", x, perm=[0, 2, 1, 3])


def joined(b: Any, x: Value) -> Value:
    """[B, N, S, H] as [B, S, N*H]"""
    x = b.one("Transpose", x, perm=[0, 2, 1, 3])
    return b.one("Reshape", x, shape=[x.shape[0], x.shape[1], x.shape[2] * x.shape[3]])


def remembered(b: Any, past: Value | None, new: Value) -> Value:
    """What is new behind what was"""
    return new if past is None or not past.type.size else b.one("Concat", past, new, axis=2)


def written(b: Any, n: Any, past: Value | None, new: Value, before: Value, length: int) -> Value:
    """The cache with the new elements behind those before, of fixed length"""
    missing = length - (0 if past is None else past.shape[2])
    cache = past
    if missing:
        fill = b.const(np.zeros((1, 1, 1, 1), new.dtype.numpy))
        more = b.one("Expand", fill, shape=[*new.shape[:2], missing, new.shape[3]])
        cache = more if past is None or not past.type.size else b.one("Concat", past, more, axis=2)
    assert cache is not None
    if new.shape[2] == length and before.const is not None and not before.const.array.any():
        return new
    return read_as(b, n, "TensorScatter", [cache, new, before], 24, axis=2)


def gathered(b: Any, x: Value, at: Value) -> Any:
    """[B, N, L, H] of [B, N, T, H] by the numbers [B, L] of rows among those of all samples"""
    batch, count, length, size = x.shape
    flat = b.one("Reshape", b.one("Transpose", x, perm=[0, 2, 1, 3]), shape=[batch * length, count, size])
    return b.one("Transpose", b.one("Gather", flat, at, axis=0), perm=[0, 2, 1, 3])


def rows_at(b: Any, x: Value, at: Value) -> Any:
    """The same by numbers of rows in each sample"""
    first = b.counted(x.shape[0], step=x.shape[2], shape=[x.shape[0], 1])
    return gathered(b, x, b.one("Add", at, first))


# -- the core -----------------------------------------------------------------------------------------
@dataclass
class Masks:
    """What changes the scores before the softmax, in order"""

    added: list[Value] = field(default_factory=list)
    kept: Value | None = None  # where it is false nothing is seen
    softcap: float = 0.0
    sink: Value | None = None  # per head, joins the denominator


def attend(b: Any, n: Any, q: Value, k: Value, v: Value, scale: float, masks: Masks) -> Value:
    """[B, N, S, Hv]; K and V may have fewer heads, each for a group of Q's"""
    return attended(b, n, q, k, v, scale, masks)[0]


def attended(b: Any, n: Any, q: Value, k: Value, v: Value, scale: float, masks: Masks) -> tuple[Value, Value, Value]:
    """The same, with the scores [B, N, S, T] before their softmax and behind it"""
    batch, count, steps, size = q.shape
    groups, length = k.shape[1], k.shape[2]
    some = 0 not in (size, groups) and count % groups == 0
    if not some or k.shape[3] != size or v.shape[:3] != k.shape[:3] or k.shape[0] != batch:
        n.fail(f"queries {q.type}, keys {k.type} and values {v.type} do not fit together")
    scale = scale or 1 / float(np.sqrt(size))
    rows = b.one("Reshape", q, shape=[batch, groups, count // groups * steps, size])
    scores = read_as(b, n, "MatMul", [rows, b.one("Transpose", k, perm=[0, 1, 3, 2])])
    scores = b.one("Reshape", scores, shape=[batch, count, steps, length])
    scores = b.one("Mul", scores, b.const(scale, scores.dtype))
    scores = _masked(b, scores, masks)
    shares = _softmax(b, n, scores, masks)
    weights = b.one("Reshape", shares, shape=[batch, groups, count // groups * steps, length])
    out = read_as(b, n, "MatMul", [weights, v])
    return b.one("Reshape", out, shape=[batch, count, steps, v.shape[3]]), scores, shares


def _masked(b: Any, scores: Value, masks: Masks) -> Value:
    d = scores.dtype
    if masks.softcap:
        cap = b.const(masks.softcap, d)
        scores = b.one("Mul", cap, b.one("Tanh", b.one("Div", scores, cap)))
    scores = plus(b, scores, *masks.added)
    if masks.kept is not None:
        lowest = -65504.0 if d is DType.F16 else float(np.finfo(np.float32).min)
        scores = b.one("Where", masks.kept, scores, b.const(lowest, d))
    return scores


def _softmax(b: Any, n: Any, scores: Value, masks: Masks) -> Value:
    if masks.sink is None:
        return b.one("Softmax", scores, axis=3)
    sink = b.one("Reshape", masks.sink, shape=[1, masks.sink.type.size, 1, 1])
    sink = b.one("Expand", sink, shape=[*scores.shape[:3], 1])
    whole = b.one("Softmax", b.one("Concat", scores, sink, axis=3), axis=3)
    return slice_last(b, n, whole, 0, scores.shape[3])


def triangle(b: Any, steps: int, length: int, before: int) -> Any:
    """Which of `length` keys each of `steps` behind those `before` may see: those up to itself; the last one all, also
    where there are more, as onnxruntime has it"""
    queries, keys = b.counted(steps, before, shape=[steps, 1]), b.counted(length, shape=[1, length])
    last = b.one("Equal", queries, b.const(before + steps - 1, I64))
    return b.one("Or", b.one("LessOrEqual", keys, queries), last)


def padding(b: Any, n: Any, mask: Value, batch: int, length: int, filter_value: float, d: DType) -> Value:
    """A mask of keys as what is added to scores: a number of keys per sample, their end and start, or 1 and 0."""
    if mask.shape in ((batch,), (2 * batch,)):
        at = b.counted(length, shape=[1, length], dtype=DType.I32)
        end = b.one("Reshape", slice_first(b, n, mask, 0, batch), shape=[batch, 1])
        seen = b.one("Less", at, end)
        if mask.shape[0] == 2 * batch and mask.shape[0] != batch:
            start = b.one("Reshape", slice_first(b, n, mask, batch, 2 * batch), shape=[batch, 1])
            seen = b.one("And", seen, b.one("GreaterOrEqual", at, start))
        shape = [batch, 1, 1, length]
    elif mask.type.rank in (2, 3) and mask.shape[0] == batch and mask.shape[-1] == length:
        seen = b.one("Greater", mask, b.const(0, mask.dtype))
        shape = [batch, 1, mask.shape[1] if mask.type.rank == 3 else 1, length]
    else:
        n.unsupported(f"a mask of {list(mask.shape)} for {batch} samples of {length} keys")
    hidden = b.one("Where", seen, b.const(0, d), b.const(filter_value, d))
    return b.one("Reshape", hidden, shape=shape)


def encoder_masks(
    b: Any, n: Any, q: Value, k: Value, mask: Value | None, added: Value | None, past: Value | None = None
) -> Masks:
    """Those that Attention and MultiHeadAttention have"""
    masks, length = Masks(), k.shape[2]
    if mask is not None:
        filter_value = float(n.attrs.get("mask_filter_value", -10000.0))
        masks.added.append(padding(b, n, mask, q.shape[0], length, filter_value, q.dtype))
    masks.added += [] if added is None else [added]
    if n.attrs.get("unidirectional", 0):
        masks.kept = triangle(b, q.shape[2], length, 0 if past is None else past.shape[2])
    return masks


def slice_first(b: Any, n: Any, x: Value, begin: int, end: int) -> Value:
    return x if (begin, end) == (0, x.shape[0]) else read_as(b, n, "Slice", [x, b.ints([begin]), b.ints([end])])


def refuse(n: Any, **found: Any) -> None:
    """Attributes that only other machines' kernels know"""
    for name, normal in found.items():
        if n.attrs.get(name, normal) != normal:
            n.unsupported(f"`{name}` = {n.attrs[name]}")


# -- operators ----------------------------------------------------------------------------------------
class MicrosoftAttention(OpDef):
    """Projects its input to queries, keys and values itself; QAttention does that in integers"""

    name = "com.microsoft::Attention"
    aliases = ("com.microsoft::QAttention",)

    def from_onnx(self, b: Any, n: Any) -> Sequence[Value | None]:
        refuse(n, do_rotary=0, past_present_share_buffer=0)
        mask, past, bias = None, None, None
        if n.op == "QAttention":
            projected = self._integers(b, n)
            mask, past = n.input(5), n.input(8)
        else:
            mask, past, bias = n.input(3), n.input(4), n.input(5)
            projected = plus(b, read_as(b, n, "MatMul", n.inputs[:2]), n.input(2))
        sizes = n.ints("qkv_hidden_sizes", [projected.shape[-1] // 3] * 3)
        if projected.type.rank != 3 or sum(sizes) != projected.shape[2]:
            n.fail(f"weights make {projected.shape[-1]} columns of queries, keys and values, not {sum(sizes)}")
        at, parts = 0, []
        for s in sizes:
            parts.append(heads(b, n, slice_last(b, n, projected, at, at + s), int(n.attrs["num_heads"])))
            at += s
        return self._attention(b, n, parts, mask, past, bias)

    def _integers(self, b: Any, n: Any) -> Value:
        x, w, bias, sx, sw = n.inputs[:5]
        acc = product(b, n, x, w, scalar(b, n, n.input(6), "the input's zero point"), n.input(7))
        return plus(b, scaled(b, acc, scalar(b, n, sx, "the input's scale"), sw), bias)  # type: ignore[arg-type]

    def _attention(
        self, b: Any, n: Any, parts: list[Value], mask: Value | None, past: Value | None, bias: Value | None
    ) -> Sequence[Value | None]:
        q, *new = parts
        held: list[Value | None] = [None, None]
        if past is not None:
            shape = list(past.shape[1:])
            held = [b.one("Reshape", slice_first(b, n, past, k, k + 1), shape=shape) for k in (0, 1)]
        k, v = (remembered(b, p, x) for p, x in zip(held, new, strict=True))
        masks = encoder_masks(b, n, q, k, mask, bias, held[0])
        y = joined(b, attend(b, n, q, k, v, float(n.attrs.get("scale", 0.0)), masks))
        if n.n_outputs < 2:
            return [y]
        both = [b.one("Reshape", x, shape=[1, *x.shape]) for x in (k, v)]
        return [y, b.one("Concat", *both, axis=0)]


class MultiHeadAttention(OpDef):
    """Of queries, keys and values that are projected already, or packed together"""

    name = "MultiHeadAttention"
    domain = "com.microsoft"

    def from_onnx(self, b: Any, n: Any) -> Sequence[Value | None]:
        query, key, value, bias, mask, added, past_k, past_v, past_length, beams = [*n.inputs, *[None] * 10][:10]
        return self.decoded(b, n, [query, key, value, bias], [mask, added], [past_k, past_v], past_length, beams)

    def decoded(
        self, b: Any, n: Any, parts: list[Any], masks: list[Value | None], past: list[Value | None],
        past_length: Value | None, beams: Value | None,
    ) -> Sequence[Value | None]:
        """With a past that grows, or one of fixed length, of which `past_length` keys count"""
        query, key, value, bias = parts
        q, *new = self._parts(b, n, query, key, value, bias, int(n.attrs["num_heads"]))
        scale, (mask, added) = float(n.attrs.get("scale", 0.0)), masks
        if past_length is None:
            if beams is not None:
                n.fail("cache_indirection needs past_sequence_length")
            k, v = (remembered(b, p, x) for p, x in zip(past, new, strict=True))
            y, scores, _ = attended(b, n, q, k, v, scale, encoder_masks(b, n, q, k, mask, added, past[0]))
            return [joined(b, y), k, v, scores][: n.n_outputs]
        if past[0] is None or past[1] is None or past_length.type.size != 1:
            n.fail(f"past_sequence_length is {past_length.type}, and needs past keys and values")
        before = b.one("Expand", b.one("Reshape", b.one("Cast", past_length, to=I64), shape=[1]), shape=[q.shape[0]])
        k, v = present = [written(b, n, p, x, before, p.shape[2]) for p, x in zip(past, new, strict=True) if p]
        if beams is not None:
            k, v = (self._of_beams(b, n, x, beams, before) for x in (k, v))
        length = next((m.shape[-1] for m in masks if m is not None and m.type.rank > 1), k.shape[2])
        k, v = (slice_of(b, x, [*((0, 1, d) for d in x.shape[:2]), (0, 1, length), (0, 1, x.shape[3])]) for x in (k, v))
        seen = encoder_masks(b, n, q, k, mask, added)
        seen.kept = self._until(b, n, before, q.shape[2], length)
        y, scores, _ = attended(b, n, q, k, v, scale, seen)
        return [joined(b, y), *present, scores][: n.n_outputs]

    def _until(self, b: Any, n: Any, before: Value, steps: int, length: int) -> Any:
        """[B, 1, S, T]: keys up to the query's own, or up to the last"""
        last = b.counted(steps, shape=[steps, 1]) if n.attrs.get("unidirectional", 0) else b.const(steps - 1, I64)
        end = b.one("Add", b.one("Reshape", before, shape=[before.shape[0], 1, 1, 1]), last)
        return b.one("LessOrEqual", b.counted(length), end)

    def _of_beams(self, b: Any, n: Any, x: Value, beams: Value, before: Value) -> Any:
        """The cache of which `beams` [groups, beams, T] says for every beam and key which beam of its group has it"""
        batch, _, length, _ = x.shape
        if beams.type.rank != 3 or beams.shape[0] * beams.shape[1] != batch or beams.shape[2] < length:
            n.fail(f"cache_indirection is {beams.type} for a cache of {list(x.shape)}")
        groups, width, _ = beams.shape
        chosen = slice_of(b, beams, [(0, 1, groups), (0, 1, width), (0, 1, length)])
        chosen = b.one("Reshape", b.one("Cast", chosen, to=I64), shape=[batch, length])
        first = b.const(np.repeat(np.arange(groups) * width, width)[:, None], I64)
        own = b.one("GreaterOrEqual", b.counted(length), b.one("Reshape", before, shape=[batch, 1]))
        row = b.one("Where", own, b.counted(batch, shape=[batch, 1]), b.one("Add", chosen, first))
        at = b.one("Add", b.one("Mul", row, b.const(length, I64)), b.counted(length))
        return gathered(b, x, at)

    def _parts(
        self, b: Any, n: Any, query: Value, key: Value | None, value: Value | None, bias: Value | None, count: int
    ) -> list[Value]:
        """[B, N, S, H] each"""
        if key is None:
            parts = self._unpacked(b, n, query, 3)
        elif value is None:
            parts = [heads(b, n, query, count), *self._unpacked(b, n, key, 2)]
        else:
            parts = [v if v.type.rank == 4 else heads(b, n, v, count) for v in (query, key, value)]
        if bias is None:
            return parts
        if bias.type.rank != 1:
            n.fail(f"has the bias {bias.type}, which is not one for queries, keys and values, one behind the other")
        at, out = 0, []
        for x in parts:
            width = x.shape[1] * x.shape[3]
            piece = slice_first(b, n, bias, at, at + width)
            is_past = x is key or x is value  # of another layer, projected with its bias there
            out.append(x if is_past else b.one("Add", x, b.one("Reshape", piece, shape=[1, x.shape[1], 1, x.shape[3]])))
            at += width
        return out

    def _unpacked(self, b: Any, n: Any, x: Value, parts: int) -> list[Value]:
        """[B, S, N, parts, H]"""
        if x.type.rank != 5 or x.shape[3] != parts:
            n.fail(f"{x.type} is not [batch, sequence, heads, {parts}, size]")
        x = b.one("Transpose", x, perm=[3, 0, 2, 1, 4])
        return [b.one("Reshape", slice_first(b, n, x, k, k + 1), shape=list(x.shape[1:])) for k in range(parts)]


class DecoderMaskedMultiHeadAttention(MultiHeadAttention):
    """MultiHeadAttention of one token, with a cache of fixed length, or over keys and values of another layer"""

    name = "DecoderMaskedMultiHeadAttention"

    def from_onnx(self, b: Any, n: Any) -> Sequence[Value | None]:
        query, key, value, mask, added, past_k, past_v, past_length, width, beams, bias = [*n.inputs, *[None] * 11][:11]
        refuse(n, output_qk=0)
        if key is None or value is None:
            n.unsupported("queries, keys and values in one tensor")
        if width is not None and beams is not None and n.ints(8) != list(beams.shape[1:2]):
            n.fail(f"cache_indirection {beams.type} is for another beam_width than {n.const(8)}")
        return self.decoded(b, n, [query, key, value, bias], [mask, added], [past_k, past_v], past_length, beams)
