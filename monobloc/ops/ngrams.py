"""N-grams of token numbers (`com.microsoft`): none repeats while decoding, and their hashes are rows of embeddings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from monobloc.ir.graph import Value
from monobloc.ir.types import DType
from monobloc.ops import OpDef
from monobloc.ops.build import read_as
from monobloc.ops.movement import slice_of

I32, I64 = DType.I32, DType.I64


def columns(b: Any, x: Value, first: int, count: int) -> Value:
    """Some of the columns of a matrix"""
    return slice_of(b, x, [(0, 1, x.shape[0]), (first, 1, count)])


class NGramRepeatBlock(OpDef):
    """-inf for every token that would complete an n-gram that is there already"""

    name = "NGramRepeatBlock"
    domain = "com.microsoft"

    def from_onnx(self, b: Any, n: Any) -> Sequence[Value | None]:
        ids, scores = n.inputs
        size = int(n.attrs["ngram_size"])
        if size < 1 or ids.type.rank != 2 or scores.type.rank != 2 or ids.shape[0] != scores.shape[0]:
            n.fail(f"has n-grams of {size} of tokens {ids.type}, for scores {scores.type}",
                   hint="an n-gram has at least one token, tokens are [batch, sequence], scores [batch, vocabulary]")
        windows = ids.shape[1] - size + 1
        if windows < 1:
            return [scores]
        match = self._matches(b, ids, size, windows)
        at = b.one("Where", match, columns(b, ids, size - 1, windows), b.const(0, I64))
        none = b.one("Expand", b.const(0, I32), shape=list(scores.shape))
        hits = read_as(b, n, "ScatterElements", [none, at, b.one("Cast", match, to=I32)], 18, axis=1, reduction="max")
        return [b.one("Where", b.one("Equal", hits, b.const(0, I32)), scores, b.const(-np.inf, scores.dtype))]

    def _matches(self, b: Any, ids: Value, size: int, windows: int) -> Any:
        """[batch, windows]: whether a window begins with the last tokens"""
        batch, steps = ids.shape
        match = b.one("Expand", b.const(np.ones((1, 1), bool)), shape=[batch, windows])
        for k in range(size - 1):
            last = columns(b, ids, steps - size + 1 + k, 1)
            match = b.one("And", match, b.one("Equal", columns(b, ids, k, windows), last))
        return match


class NGramHashMapping(OpDef):
    """For n of 2 and more the last n tokens, each times a number, joined by XOR, modulo the size of each head's table.

    Before the first token are those of `past_ids`, or padding. Tokens of what came before the last end of a text
    (`eos_token_id`), and of other segments, count as padding.
    """

    name = "NGramHashMapping"
    domain = "com.microsoft"

    def from_onnx(self, b: Any, n: Any) -> Sequence[Value | None]:
        ids, by, vocab, past, offsets, eos, segments = [*n.inputs, *[None] * 7][:7]
        most, per = int(n.attrs["max_ngram_size"]), int(n.attrs["n_head_per_ngram"])
        heads = (most - 1) * per
        if most < 2 or per < 1 or ids.type.rank != 2 or by.type.rank != 1 or by.shape[0] < most:
            n.fail(f"has n-grams of up to {most}, {per} heads for each, of tokens {ids.type} and multipliers {by.type}",
                   hint="tokens are [batch, sequence]; n-grams have 2 tokens or more, and a multiplier for each")
        if vocab.shape != (heads,) or offsets is not None and offsets.shape != (heads,):
            n.fail(f"has sizes {vocab.type} and offsets {offsets and offsets.type} for {heads} heads")
        if segments is not None and segments.shape != ids.shape:
            n.fail(f"has segments {segments.type} for tokens {ids.type}")
        batch, steps = ids.shape
        fill = b.const(int(n.attrs["pad_id"]), ids.dtype) if eos is None else b.one("Reshape", eos, shape=[])
        if past is None:
            past = b.one("Expand", fill, shape=[batch, most - 1])
        all_ids = b.one("Concat", past, ids, axis=1)
        shifted = self._shifted(b, n, all_ids, steps, most, fill, eos, segments)
        parts, mix = [], None
        for k, v in enumerate(shifted):
            term = b.one("Mul", v, slice_of(b, by, [(k, 1, 1)]))
            mix = term if mix is None else b.one("BitwiseXor", mix, term)
            parts += [mix] if k else []
        parts = [b.one("Reshape", m, shape=[batch, steps, 1]) for m in parts]
        spread = [b.one("Expand", m, shape=[batch, steps, per]) for m in parts]
        y = read_as(b, n, "Mod", [b.one("Concat", *spread, axis=2), vocab])
        y = y if offsets is None else b.one("Add", y, offsets)
        return [y, columns(b, all_ids, steps, most - 1)][: n.n_outputs]

    def _shifted(
        self, b: Any, n: Any, ids: Value, steps: int, most: int, fill: Value, eos: Value | None, segments: Value | None
    ) -> list[Value]:
        """Each token, the one before it, and so on; padding where something ends between them"""
        cut: Any = None
        out: list[Value] = []
        for k in range(most):
            token = columns(b, ids, most - 1 - k, steps)
            if k:
                if eos is not None and n.attrs.get("reset_on_eos", 0):
                    cut = either(b, cut, b.one("Equal", token, fill))
                if segments is not None:
                    cut = either(b, cut, self._begins(b, segments, k - 1))
            out.append(token if cut is None else b.one("Where", cut, fill, token))
        return out

    def _begins(self, b: Any, segments: Value, back: int) -> Any:
        """Whether a segment begins so many tokens back"""
        batch, steps = segments.shape
        count = max(steps - 1 - back, 0)
        no = b.one("Expand", b.const(np.zeros((1, 1), bool)), shape=[batch, steps - count])
        if not count:
            return no
        new = b.one("Equal", columns(b, segments, 0, count), columns(b, segments, 1, count))
        return b.one("Concat", no, b.one("Not", new), axis=1)


def either(b: Any, x: Value | None, y: Value) -> Any:
    return y if x is None else b.one("Or", x, y)
