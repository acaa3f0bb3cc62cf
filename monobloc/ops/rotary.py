"""Rotary embeddings and the attention of decoders that uses them: RotaryEmbedding and GroupQueryAttention."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from monobloc.ir.graph import Value
from monobloc.ir.types import DType
from monobloc.ops import OpDef
from monobloc.ops.attention import Masks, attend, attended, heads, joined, refuse, rows_at, written
from monobloc.ops.build import cast_to, read_as
from monobloc.ops.fused import slice_last
from monobloc.ops.kv_cache import kept

I64 = DType.I64


def rotated(b: Any, n: Any, x: Value, positions: Value, cos: Value, sin: Value, interleaved: bool) -> Value:
    """[B, N, S, H] turned by the angles of [B, S] positions"""
    if cos.type.rank != 2 or sin.shape != cos.shape:
        n.fail(f"has cosines {cos.type} and sines {sin.type}", hint="both are [positions, angles]")
    shape = [positions.shape[0], 1, positions.shape[1], cos.shape[1]]
    angles = [b.one("Reshape", read_as(b, n, "Gather", [t, positions], axis=0), shape=shape) for t in (cos, sin)]
    return turned(b, n, x, angles, interleaved)


def turned(b: Any, n: Any, x: Value, angles: Sequence[Value], interleaved: bool) -> Value:
    """[B, N, S, H] turned by angles of which cosines and sines are [B, 1, S, H / 2], pairs of elements as points; what
    is beyond the angles' width stays."""
    c, s = angles
    half, whole = c.shape[3], x.shape[3]
    if 2 * half > whole:
        n.fail(f"there are {half} angles for heads of {whole}")
    rest = slice_last(b, n, x, 2 * half, whole) if 2 * half < whole else None
    x = slice_last(b, n, x, 0, 2 * half) if rest is not None else x
    if interleaved:
        pairs = b.one("Reshape", x, shape=[*x.shape[:3], half, 2])
        re, im = (b.one("Reshape", slice_last(b, n, pairs, k, k + 1), shape=[*x.shape[:3], half]) for k in (0, 1))
    else:
        re, im = (slice_last(b, n, x, k * half, (k + 1) * half) for k in (0, 1))
    points = [
        b.one("Sub", b.one("Mul", re, c), b.one("Mul", im, s)),
        b.one("Add", b.one("Mul", re, s), b.one("Mul", im, c)),
    ]
    if interleaved:
        points = [b.one("Reshape", t, shape=[*t.shape, 1]) for t in points]
        x = b.one("Reshape", b.one("Concat", *points, axis=4), shape=list(x.shape))
    else:
        x = b.one("Concat", *points, axis=3)
    return x if rest is None else b.one("Concat", x, rest, axis=3)


def in_heads(b: Any, n: Any, x: Value, half: int) -> Value:
    """[B, N, S, H] of [B, S, N*H]; heads are as wide as their angles where `num_heads` does not say"""
    count = int(n.attrs.get("num_heads", 0))
    if x.type.rank == 4:
        return x
    if int(n.attrs.get("rotary_embedding_dim", 0)) and not count:
        n.fail("rotary_embedding_dim needs num_heads")
    return heads(b, n, x, count or x.shape[-1] // max(2 * half, 1))


class MicrosoftRotaryEmbedding(OpDef):
    """Of [B, S, N*H] or [B, N, S, H]; one position counts on from there"""

    name = "com.microsoft::RotaryEmbedding"

    def from_onnx(self, b: Any, n: Any) -> Sequence[Value | None]:
        x, positions, cos, sin = n.inputs
        refuse(n, is_packed_batching=0, scale=1.0)
        y = in_heads(b, n, x, cos.shape[1])
        if positions.type.size == 1 and positions.type.rank == 1:
            steps = b.counted(y.shape[2], shape=[1, y.shape[2]])
            positions = b.one("Expand", b.one("Add", positions, steps), shape=[y.shape[0], y.shape[2]])
        if positions.shape != (y.shape[0], y.shape[2]):
            n.fail(f"position ids are {positions.type}, must be [1] or {[y.shape[0], y.shape[2]]}")
        y = rotated(b, n, y, positions, cos, sin, bool(n.attrs.get("interleaved", 0)))
        return [joined(b, y) if x.type.rank == 3 else y]


class MRotaryEmbedding(OpDef):
    """Positions of three kinds, [3, B, S]: time, height and width each say a part of the angles"""

    name = "MRotaryEmbedding"
    domain = "com.microsoft"

    def from_onnx(self, b: Any, n: Any) -> Sequence[Value | None]:
        x, positions, cos, sin = n.inputs
        refuse(n, is_packed_batching=0)
        half, kinds = cos.shape[-1], n.ints("mrope_section")
        if len(kinds) != 3 or min(kinds) < 0 or sum(kinds) != half or cos.type.rank != 2 or sin.shape != cos.shape:
            n.fail(f"parts {cos.type} into sections of {kinds}", hint="three sections add up to the caches' width")
        y = in_heads(b, n, x, half)
        if y.type.rank != 4 or positions.shape != (3, y.shape[0], y.shape[2]):
            n.fail(f"position ids are {positions.type} for an input {x.type}", hint="they are [3, batch, sequence]")
        kind = self._kinds(n, kinds)
        at = b.one("Transpose", b.one("Gather", positions, b.const(kind), axis=0), perm=[1, 2, 0])
        at = b.one("Add", b.one("Mul", at, b.const(half, I64)), b.const(np.arange(half), I64))
        at = b.one("Reshape", at, shape=[y.shape[0], 1, y.shape[2], half])
        flat = (b.one("Reshape", t, shape=[t.type.size]) for t in (cos, sin))
        scale = b.const(n.attrs.get("scale", 1.0), x.dtype)
        angles = [b.one("Mul", b.one("Gather", t, at, axis=0), scale) for t in flat]
        y = turned(b, n, y, angles, bool(n.attrs.get("interleaved", 0)))
        return [joined(b, y) if x.type.rank == 3 else y]

    def _kinds(self, n: Any, kinds: list[int]) -> np.ndarray:
        """Which position says each angle"""
        if not n.attrs.get("mrope_layout", 0):
            return np.repeat(np.arange(3), kinds)
        out = np.zeros(sum(kinds), np.int64)
        for k in (1, 2):
            out[k : 3 * kinds[k] : 3] = k
        return out


class GroupQueryAttention(OpDef):
    """Of decoders: fewer heads of keys than of queries, a cache of keys and values, causal.

    The caches have a fixed length here: that of the past's, or of total_sequence_length where that is a constant
    and larger. `seqlens_k` + 1 is how many keys of a sample count, with the new ones; new ones are written behind
    the others.
    """

    name = "GroupQueryAttention"
    domain = "com.microsoft"

    def from_onnx(self, b: Any, n: Any) -> Sequence[Value | None]:
        ins = [*n.inputs, *[None] * 17][:17]
        self._refuse(n, ins)
        past_k, lengths = ins[3], ins[5]
        q, k, v = self._parts(b, n, *ins[:3])
        q, k = (self._normed(b, n, x, w, which) for x, w, which in ((q, ins[14], "q"), (k, ins[15], "k")))
        batch, steps = q.shape[0], q.shape[2]
        known = b.one("Add", b.one("Cast", lengths, to=I64), b.const(1, I64))
        known = b.one("Reshape", known, shape=[batch])
        before = b.one("Max", b.one("Sub", known, self._given(b, n, ins[16], batch, steps)), b.const(0, I64))
        if n.attrs.get("do_rotary", 0):
            at = ins[9] if ins[9] is not None else self._positions(b, before, batch, steps)
            q, k = self._turned(b, n, (q, k), at, ins[7], ins[8])
        if n.attrs.get("sliding_window_cache", 0):
            return self._sliding(b, n, ins, q, (k, v), known, before)
        total = ins[6].const
        held = 0 if past_k is None else past_k.shape[2]
        length = max(held, steps if total is None else int(total.array.reshape(())))
        ways = [kept(b, n, w, past, scale, k.shape) for w, past, scale in zip("kv", ins[3:5], ins[12:14], strict=True)]
        caches = [written(b, n, past, way.put(b, n, x), before, length)
                  for way, past, x in zip(ways, ins[3:5], (k, v), strict=True)]
        k, v = (way.get(b, cache, q.dtype) for way, cache in zip(ways, caches, strict=True))
        masks = self._masks(b, n, known, before, steps, length, ins)
        y, scores, shares = attended(b, n, q, k, v, float(n.attrs.get("scale", 0.0)), masks)
        if n.n_outputs > 3 and n.attrs.get("qk_output", 0) == 1:
            shares = b.one("Where", masks.kept, scores, b.const(0, scores.dtype))
        return [joined(b, y), *caches, shares][: n.n_outputs]

    def _sliding(
        self, b: Any, n: Any, ins: list[Value | None], q: Value, new: tuple[Value, Value], known: Value, before: Value
    ) -> Sequence[Value | None]:
        """With a cache that holds a window: attention looks at it and at the new keys behind it; then rows move up"""
        window, past = int(n.attrs.get("local_window_size", -1)), ins[3]
        if past is None or ins[4] is None or not 0 < window <= past.shape[2] or not n.attrs.get("causal", 1):
            n.fail(f"has a sliding cache {past and past.type} for a window of {window}",
                   hint="the window is at least 1 and no larger than the cache, and attention is causal")
        if ins[10] is not None or n.n_outputs > 3:
            n.unsupported("a bias or the output of scores with sliding_window_cache")
        assert past is not None
        batch, steps, length = q.shape[0], q.shape[2], past.shape[2]
        now, then = (b.one("Reshape", t, shape=[batch, 1]) for t in (known, before))
        first = b.one("Sub", then, resident(b, then, length, window))  # what stands in the cache's first row
        rows = b.one("Add", first, b.counted(length, shape=[1, length]))
        rows = b.one("Where", b.one("Less", rows, then), rows, b.const(1 << 40, I64))
        at = b.one("Concat", rows, self._positions(b, before, batch, steps), axis=1)
        key = b.one("Reshape", at, shape=[batch, 1, 1, length + steps])
        here = b.one("Reshape", self._positions(b, before, batch, steps), shape=[batch, 1, steps, 1])
        masks = self._masks(b, n, known, before, steps, length + steps, [*ins[:10], None, *ins[11:]])
        near = b.one("Greater", key, b.one("Sub", here, b.const(window, I64)))
        masks.kept = b.one("And", b.one("LessOrEqual", key, here), near)
        kept_first = b.one("Sub", now, resident(b, now, length, window))
        to = b.one("Add", kept_first, b.counted(length, shape=[1, length]))
        source = b.one("Where", b.one("Less", to, then), b.one("Sub", to, first),
                       b.one("Add", b.one("Sub", to, then), b.const(length, I64)))
        source = b.one("Min", source, b.const(length + steps - 1, I64))
        ways = [kept(b, n, w, p, s, new[0].shape) for w, p, s in zip("kv", ins[3:5], ins[12:14], strict=True)]
        lines = [b.one("Concat", p, way.put(b, n, x), axis=2) for way, p, x in zip(ways, ins[3:5], new, strict=True)]
        k, v = (way.get(b, line, q.dtype) for way, line in zip(ways, lines, strict=True))
        y = attend(b, n, q, k, v, float(n.attrs.get("scale", 0.0)), masks)
        return [joined(b, y), *(rows_at(b, line, source) for line in lines)][: n.n_outputs]

    def _given(self, b: Any, n: Any, lengths: Value | None, batch: int, steps: int) -> Any:
        """How many of the new tokens count: all, or those that `query_seqlens` says"""
        if lengths is None:
            return b.const(steps, I64)
        if lengths.shape != (batch,):
            n.fail(f"query_seqlens is {lengths.type}, must be [{batch}]")
        return b.one("Cast", lengths, to=I64)

    def _refuse(self, n: Any, ins: list[Value | None]) -> None:
        if n.n_outputs > 3 and n.attrs.get("qk_output", 0) not in (1, 2):
            n.fail(f"gives scores with qk_output {n.attrs.get('qk_output', 0)}, which must be 1 or 2")
        if ins[5] is None or ins[6] is None:
            n.fail("seqlens_k and total_sequence_length are needed")
        if any(past is not None and past.type.rank != 4 for past in ins[3:5]):
            n.fail(f"has caches {' and '.join(str(past and past.type) for past in ins[3:5])}",
                   hint="they are [batch, heads, length, size]")

    def _parts(self, b: Any, n: Any, query: Value, key: Value | None, value: Value | None) -> list[Value]:
        count, groups = int(n.attrs["num_heads"]), int(n.attrs["kv_num_heads"])
        if key is not None and value is not None:
            return [heads(b, n, query, count), heads(b, n, key, groups), heads(b, n, value, groups)]
        size = query.shape[-1] // (count + 2 * groups)
        cuts = [0, count * size, (count + groups) * size, (count + 2 * groups) * size]
        pieces = [slice_last(b, n, query, lo, hi) for lo, hi in zip(cuts, cuts[1:], strict=False)]
        return [heads(b, n, x, c) for x, c in zip(pieces, (count, groups, groups), strict=True)]

    def _normed(self, b: Any, n: Any, x: Value, weight: Value | None, which: str) -> Value:
        if weight is None:
            return x
        epsilon = float(n.attrs.get(f"{which}_norm_epsilon", n.attrs.get("qk_norm_epsilon", 1e-6)))
        return b.one("RMSNormalization", x, weight, axis=3, epsilon=epsilon)

    def _turned(
        self, b: Any, n: Any, parts: Sequence[Value], at: Value, cos: Value | None, sin: Value | None
    ) -> list[Value]:
        if cos is None or sin is None:
            n.fail("do_rotary needs cos_cache and sin_cache")
        assert cos is not None and sin is not None
        turn = bool(n.attrs.get("rotary_interleaved", 0))
        return [rotated(b, n, x, at, cos, sin, turn) for x in parts]

    def _positions(self, b: Any, before: Value, batch: int, steps: int) -> Value:
        """[B, S]: the new elements count on from what was before them"""
        return b.one("Add", b.one("Reshape", before, shape=[batch, 1]), b.counted(steps, shape=[1, steps]))

    def _masks(
        self, b: Any, n: Any, known: Value, before: Value, steps: int, length: int, ins: list[Value | None]
    ) -> Masks:
        masks = Masks(softcap=float(n.attrs.get("softcap", 0.0)), sink=ins[11])
        if masks.sink is None and n.attrs.get("smooth_softmax", 0) == 1:
            masks.sink = b.const(np.zeros(int(n.attrs["num_heads"]), ins[0].dtype.numpy))  # type: ignore[union-attr]
        batch = known.shape[0]
        key = b.counted(length, shape=[1, 1, 1, length])
        step = b.counted(steps, shape=[1, 1, steps, 1])
        here = b.one("Add", b.one("Reshape", before, shape=[batch, 1, 1, 1]), step)
        if n.attrs.get("causal", 1):
            masks.kept = b.one("LessOrEqual", key, here)
            window = int(n.attrs.get("local_window_size", -1))
            if window > 0:
                near = b.one("Greater", key, b.one("Sub", here, b.const(window, I64)))
                masks.kept = b.one("And", masks.kept, near)
        else:
            masks.kept = b.one("Less", key, b.one("Reshape", known, shape=[batch, 1, 1, 1]))
        if ins[10] is not None:
            masks.added.append(ins[10])
        return masks


def resident(b: Any, count: Value, length: int, window: int) -> Any:
    """How many of so many keys a cache of a window holds: when it is full, all that the window does not need leave"""
    step = length - window + 1
    over = b.one("Max", b.one("Sub", count, b.const(length, I64)), b.const(0, I64))
    gone = b.one("Div", b.one("Add", over, b.const(step - 1, I64)), b.const(step, I64))
    return b.one("Sub", count, b.one("Mul", gone, b.const(step, I64)))


class SparseAttention(GroupQueryAttention):
    """GroupQueryAttention of which each head sees some blocks of keys alone: those that its layout lists for the block
    of its query. Layouts are in compressed rows, and heads take them in turns."""

    name = "SparseAttention"

    def from_onnx(self, b: Any, n: Any) -> Sequence[Value | None]:
        past_k, past_v, totals = n.inputs[3], n.inputs[4], n.inputs[8]
        q, k, v = self._parts(b, n, *n.inputs[:3])
        batch, steps, length = q.shape[0], q.shape[2], past_k.shape[2]
        if past_k.type.rank != 4 or past_v.shape[:3] != past_k.shape[:3] or totals.shape != (batch,):
            n.fail(f"has caches {past_k.type} and {past_v.type}, and lengths {totals.type}")
        known = b.one("Cast", totals, to=I64)
        before = b.one("Max", b.one("Sub", known, b.const(steps, I64)), b.const(0, I64))
        if n.attrs.get("do_rotary", 0):
            at = self._positions(b, before, batch, steps)
            q, k = self._turned(b, n, (q, k), at, n.input(9), n.input(10))
        k, v = (written(b, n, past, x, before, length) for past, x in ((past_k, k), (past_v, v)))
        masks = self._masks(b, n, known, before, steps, length, [None] * 17)
        masks.kept = b.one("And", masks.kept, self._blocks(b, n, before, steps, length))
        return [joined(b, attend(b, n, q, k, v, float(n.attrs.get("scale", 0.0)), masks)), k, v][: n.n_outputs]

    def _blocks(self, b: Any, n: Any, before: Value, steps: int, length: int) -> Any:
        """[B, N, S, T]: whether the block of a key is listed for that of a query"""
        layouts, size = self._layouts(n), int(n.attrs["sparse_block_size"])
        keys = np.arange(length) // size
        if size < 1 or keys[-1] >= layouts.shape[2]:
            n.fail(f"has layouts of {layouts.shape[2]} blocks of {size} for caches of {length} keys")
        row = b.one("Div", self._positions(b, before, before.shape[0], steps), b.const(size, I64))
        seen = b.one("Gather", b.const(layouts), row, axis=1)
        seen = b.one("Gather", seen, b.const(keys), axis=3)
        seen = b.one("Gather", seen, b.const(np.arange(int(n.attrs["num_heads"])) % len(layouts)), axis=0)
        return b.one("Transpose", seen, perm=[1, 0, 2, 3])

    def _layouts(self, n: Any) -> np.ndarray:
        """[layouts, blocks, blocks]"""
        rows, columns = n.const(5), n.const(6)
        if rows.ndim != 2 or columns.ndim != 2 or len(rows) != len(columns) or not rows.size:
            n.fail(f"has rows {list(rows.shape)} and columns {list(columns.shape)} of layouts",
                   hint="they are [layouts, blocks + 1] and [layouts, entries]")
        out = np.zeros((len(rows), rows.shape[1] - 1, rows.shape[1] - 1), bool)
        for layout, row, column in zip(out, rows, columns, strict=True):
            for k, (first, end) in enumerate(zip(row, row[1:], strict=False)):
                layout[k, column[first:end]] = True
        return out


class GemmaRotaryEmbedding(OpDef):
    """Queries and keys, given as they are and turned by a quarter, by angles that every element has"""

    name = "GemmaRotaryEmbedding"
    domain = "com.microsoft"

    def from_onnx(self, b: Any, n: Any) -> Sequence[Value | None]:
        angles, *parts = n.inputs
        if angles.type.rank != 3 or any(x.type.rank != 4 for x in parts):
            n.fail(f"has angles {angles.type} for {', '.join(str(x.type) for x in parts)}",
                   hint="angles are [batch, sequence, size], the others [batch, heads, sequence, size]")
        wide = b.one("Reshape", angles, shape=[angles.shape[0], 1, *angles.shape[1:]])
        cos, sin = (b.one(f, wide) for f in ("Cos", "Sin"))
        cos, sin = (cast_to(b, t, parts[0].dtype) for t in (cos, sin))
        pairs = zip(parts[::2], parts[1::2], strict=True)
        return [b.one("Add", b.one("Mul", x, cos), b.one("Mul", y, sin)) for x, y in pairs][: n.n_outputs]
