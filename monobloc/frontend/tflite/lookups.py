"""Rows of tables by what stands beside them: HASHTABLE_LOOKUP and EMBEDDING_LOOKUP_SPARSE."""

from __future__ import annotations

import numpy as np

from monobloc.frontend.tflite.node import Reader, Result, TflNode
from monobloc.ir.graph import Value
from monobloc.ir.types import DType
from monobloc.ops.movement import slice_of
from monobloc.ops.shape import reshape

F32, I32 = DType.F32, DType.I32
SUM, MEAN = 0, 1  # how rows become one; what is left is the root of the weights' squares


def keyed(n: TflNode) -> Result:
    """The row that has a key, zeros where none has; and which of them were there"""
    asked, keys, rows = n.x(0), n.x(1), n.x(2)
    if asked.dtype is not I32 or keys.dtype is not I32 or (asked.type.rank, keys.type.rank) != (1, 1):
        n.fail(f"looks for {asked.type} in {keys.type}")
    if not rows.type.rank or rows.shape[0] != keys.shape[0] or not keys.shape[0]:
        n.fail(f"has the keys {keys.type} of {rows.type}")
    if keys.const is not None and (np.diff(keys.const.array.astype(np.int64)) <= 0).any():
        n.fail("has keys that do not rise, so that LiteRT finds some of them only")
    same = n.b.one("Equal", reshape(n.b, asked, [*asked.shape, 1]), keys)
    hits = n.b.emit("ReduceMax", [n.b.one("Cast", same, to=DType.U8)], {"axes": [1], "keepdims": 0})[0]
    at = n.b.one("ArgMax", n.b.one("Cast", same, to=I32), axis=1, keepdims=0, select_last_index=0)
    found = n.b.one("Gather", rows, at, axis=0)
    there = n.b.one("Cast", reshape(n.b, hits, [*asked.shape, *[1] * (rows.type.rank - 1)]), to=DType.BOOL)
    return [n.b.one("Where", there, found, n.b.const(0, rows.dtype)), hits]


def weighted(n: TflNode) -> Result:
    """Rows that have one index but for its last number become their weighted sum, mean, or sum over the root of the
    weights' squares."""
    ids, at, weights, table = n.x(0), n.x(1), n.x(3), n.x(4)
    dense = n.ints(2, "the shape")
    count = ids.shape[0] if ids.type.rank == 1 else -1
    if (ids.dtype, at.dtype, weights.dtype, table.dtype) != (I32, I32, F32, F32) or table.type.rank < 2:
        n.fail(f"reads {table.type} at {ids.type} with {weights.type}")
    if at.shape != (count, len(dense)) or weights.shape != (count,) or min(dense, default=0) < 0:
        n.fail(f"puts {ids.type} and {weights.type} at {at.type} of the shape {dense}")
    outer, inner = dense[:-1], list(table.shape[1:])
    at = slice_of(n.b, at, [(0, 1, count), (0, 1, len(outer))])
    ones = [1] * len(inner)
    rows = n.b.one("Mul", n.b.one("Gather", table, ids, axis=0), reshape(n.b, weights, [count, *ones]))
    made, combiner = _added(n, [*outer, *inner], at, rows), n.options.whole(0, "b")
    if combiner == SUM:
        return [made]
    by = weights if combiner == MEAN else n.b.one("Mul", weights, weights)
    total = reshape(n.b, _added(n, outer, at, by), [*outer, *ones])
    total = total if combiner == MEAN else n.b.one("Sqrt", total)
    seen = _added(n, outer, at, n.b.const(np.ones(count, np.int32)))
    seen = n.b.one("Greater", reshape(n.b, seen, [*outer, *ones]), n.b.const(0, I32))
    return [n.b.one("Where", seen, n.b.one("Div", made, total), made)]


def _added(n: TflNode, shape: list[int], at: Value, rows: Value) -> Value:
    """Rows into zeros, where what meets is added"""
    zeros = n.b.one("Expand", n.b.const(0, rows.dtype), shape=shape)
    return n.b.one("ScatterND", zeros, at, rows, reduction="add")


READERS: dict[str, Reader] = {"HASHTABLE_LOOKUP": keyed, "EMBEDDING_LOOKUP_SPARSE": weighted}
