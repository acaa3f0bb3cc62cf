"""What attention adds for how far apart a query and a key are (`com.microsoft`): T5's buckets, and WavLM's gates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from monobloc.ir.graph import Value
from monobloc.ops import OpDef
from monobloc.ops.attention import heads
from monobloc.ops.build import read_as


def buckets(queries: int, keys: int, count: int, most: int, both: bool) -> np.ndarray:
    """[queries, keys]: which entry a distance has: small ones one each, large ones by their logarithm"""
    back = np.arange(queries)[:, None] - np.arange(keys)[None, :]
    first = np.zeros_like(back)
    if both:
        count //= 2
        first, back = (back < 0) * count, np.abs(back)
    back = np.maximum(back, 0)
    exact = max(count // 2, 1)
    with np.errstate(divide="ignore"):
        far = np.log(back.astype(np.float32) / exact) / np.float32(np.log(most / exact)) * (count - exact)
    far = exact + np.minimum(np.where(back < exact, 0, far), count).astype(int)
    return np.asarray(first + np.where(back < exact, back, np.minimum(far, count - 1)), np.int64)


class RelativePositionBias(OpDef):
    """[1, heads, queries, keys] out of a table that says [buckets, heads], and lies in memory as [heads, buckets]"""

    name = "RelativePositionBias"
    domain = "com.microsoft"

    def from_onnx(self, b: Any, n: Any) -> Sequence[Value | None]:
        table, most = n.inputs[0], int(n.attrs["max_distance"])
        queries, keys = (int(n.const(k).reshape(())) for k in (1, 2))
        both = bool(n.attrs.get("is_bidirectional", 0))
        if table.type.rank != 2 or min(queries, keys) < 0 or table.shape[0] < 2 << both or most * 2 <= table.shape[0]:
            n.fail(f"has the table {table.type} for {queries} queries, {keys} keys and distances up to {most}")
        at = b.const(buckets(queries, keys, table.shape[0], most, both))
        rows = b.one("Reshape", table, shape=[table.shape[1], table.shape[0]])
        return [b.one("Reshape", b.one("Gather", rows, at, axis=1), shape=[1, table.shape[1], queries, keys])]


class GatedRelativePositionBias(OpDef):
    """rel_pos * (u * (r * eco_a - 1) + 2), with gates u and r that each query says"""

    name = "GatedRelativePositionBias"
    domain = "com.microsoft"

    def from_onnx(self, b: Any, n: Any) -> Sequence[Value | None]:
        query, query_bias, bias, weight, gate_bias, eco = n.inputs[:6]
        if n.input(6) is not None or query.type.rank != 3:
            n.unsupported(f"tokens {query.type} without padding",
                          hint="give queries as [batch, sequence, heads * size]")
        q = heads(b, n, b.one("Add", query, query_bias), int(n.attrs["num_heads"]))
        if weight.type.rank != 2 or weight.shape[0] != q.shape[3] or weight.shape[1] % 2:
            n.fail(f"has the weights {weight.type} for heads of {q.shape[3]}")
        g = b.one("Add", read_as(b, n, "MatMul", [q, weight]), gate_bias)
        g = b.one("Reshape", g, shape=[*q.shape[:3], 2, weight.shape[1] // 2])
        g = b.one("Sigmoid", b.one("ReduceSum", g, axes=[4], keepdims=0))
        u, r = (b.one("Reshape", b.one("Slice", g, starts=[0, 0, 0, k], steps=[1] * 4, sizes=[*q.shape[:3], 1]),
                      shape=[*q.shape[:3], 1]) for k in (0, 1))
        one, two = (b.const(v, query.dtype) for v in (1, 2))
        by = b.one("Add", b.one("Mul", u, b.one("Sub", b.one("Mul", r, eco), one)), two)
        return [b.one("Mul", by, bias)]
