"""TfIdfVectorizer: how often sequences of integers or strings occur."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from monobloc.ir.graph import Value
from monobloc.ir.types import DType
from monobloc.ops import OpDef
from monobloc.ops.indexing import gather_const
from monobloc.ops.labels import found_at


class TfIdfVectorizer(OpDef):
    """Vanishes: windows of the input are compared with every gram, matches are counted per output"""

    name = "TfIdfVectorizer"
    strings = "own"

    def from_onnx(self, b: Any, n: Any) -> Sequence[Value | None]:
        x, a = n.inputs[0], n.attrs
        if "pool_int64s" not in a:
            return self._of_strings(b, n)
        if x.type.rank not in (1, 2) or not x.dtype.is_int:
            n.fail(f"counts in rows of integers, got {x.type}")
        grams = list(self._grams(n))
        columns = [c for _, found in grams for c, _ in found]
        size = max(a["ngram_indexes"]) + 1
        rows = x if x.type.rank == 2 else b.one("Reshape", x, shape=[1, *x.shape])
        counts = [v for length, found in grams if (v := self._counts(b, rows, length, found, a)) is not None]
        shape = [rows.shape[0], size] if x.type.rank == 2 else [size]
        if not counts:
            return [b.const(np.zeros(shape, np.float32))]
        one_per = np.zeros((len(columns), size), np.float32)
        one_per[np.arange(len(columns)), columns] = 1
        total = counts[0] if len(counts) == 1 else b.emit("Concat", counts, {"axis": 1})[0]
        y = b.one("MatMul", total, b.const(one_per))
        return [b.one("Reshape", self._weighted(b, n, y, size), shape=shape)]

    def _of_strings(self, b: Any, n: Any) -> Sequence[Value | None]:
        """Every string by its number among those of the pool; one that is not there has a number of its own."""
        words = list(dict.fromkeys(n.attrs.get("pool_strings", [])))
        if not words:
            n.fail("has neither `pool_int64s` nor `pool_strings`")
        if n.inputs[0].dtype is not DType.CHAR:
            n.fail(f"counts strings, got {n.inputs[0].type}")
        at = found_at(b, n.inputs[0], np.array(words, object))
        pool = [words.index(w) for w in n.attrs["pool_strings"]]
        attrs = {k: v for k, v in n.attrs.items() if k != "pool_strings"} | {"pool_int64s": pool}
        return self.from_onnx(b, replace(n, inputs=[at], attrs=attrs))

    def _weighted(self, b: Any, n: Any, y: Value, size: int) -> Value:
        mode, weights = n.attrs["mode"], n.attrs.get("weights")
        places = n.attrs["ngram_indexes"]
        if weights is not None and len(weights) != len(places):
            n.fail(f"has {len(weights)} weights for {len(places)} grams")
        if weights is not None:  # they are in the order of the pool
            by_output = dict(zip(places, weights, strict=True))
            if any(by_output[k] != w for k, w in zip(places, weights, strict=True)):
                n.unsupported("a TfIdfVectorizer with grams of different weights for one output")
            weights = [by_output.get(k, 0.0) for k in range(size)]
        if mode == "IDF":
            y = b.one("Cast", b.one("Greater", y, b.const(np.float32(0))), to=DType.F32)
        return y if weights is None or mode == "TF" else b.one("Mul", y, b.const(np.float32(weights)))

    def _grams(self, n: Any) -> Any:
        """(length, [(output, gram)]) of the lengths that count"""
        a = n.attrs
        pool, starts, at = a["pool_int64s"], [*a["ngram_counts"], len(a["pool_int64s"])], 0
        for length, (first, last) in enumerate(zip(starts, starts[1:], strict=False), 1):
            found = []
            for k in range(first, last - length + 1, length):
                found.append((a["ngram_indexes"][at], tuple(pool[k : k + length])))
                at += 1
            if len({g for _, g in found}) < len(found):
                n.unsupported("a TfIdfVectorizer that lists a gram twice")
            if found and a["min_gram_length"] <= length <= a["max_gram_length"]:
                yield length, found

    def _counts(self, b: Any, rows: Value, length: int, found: list[Any], a: dict[str, Any]) -> Value | None:
        """[rows, grams]: matches at any place, with any skip"""
        table = b.const(np.array([g for _, g in found], rows.dtype.numpy))
        total = b.const(np.zeros((rows.shape[0], len(found)), np.float32))
        for skip in range(1, a["max_skip_count"] + 2 if length > 1 else 2):
            places = rows.shape[1] - skip * (length - 1)
            if places < 1:
                break
            at = np.arange(places)[:, None] + skip * np.arange(length)[None, :]
            windows = gather_const(b, rows, at, 1)
            windows = b.one("Reshape", windows, shape=[rows.shape[0], places, 1, length])
            same = b.one("Cast", b.one("Equal", windows, table), to=DType.F32)
            hits = b.one("ReduceMin", same, axes=[3], keepdims=0)
            total = b.one("Add", total, b.one("ReduceSum", hits, axes=[1], keepdims=0))
        return total
