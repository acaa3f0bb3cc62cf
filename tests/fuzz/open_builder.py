"""Models whose sizes a run chooses: each node is computed at several sizes, and joins if onnxruntime takes it at all.

Two axes are open. Where a shape has their numbers at the first sizes, which no step chooses for itself, it is theirs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
from builder import Builder, unfit
from onnx import helper
from sizes import OPEN, near
from steps import chance, number, some

from monobloc.ir.dims import Sizes

FIRST = dict(zip(("n", "s"), OPEN, strict=True))
MOST = ({"n": 12, "s": 24}, {"n": 12, "s": 24}, {"n": 33, "s": 24}, {"n": 12, "s": 130})


class OpenBuilder(Builder):
    def __init__(self, seed: int, opset: int = 18) -> None:
        super().__init__(seed, opset)
        most: dict[str, int] = some(self, *MOST)  # type: ignore[assignment]
        self.sizes = [{k: near(self, m) if chance(self) else number(self, 1, m) for k, m in most.items()}
                      for _ in range(3)]
        self.sizes[0]["n"] = 1  # an axis of one element is another program
        self.elsewhere: list[dict[str, np.ndarray]] = [{} for _ in self.sizes]
        ranged = [bool(self.rng.random() < 0.6) for _ in most]
        self.asked: Mapping[str, Sizes] = {
            k: range(1, m + 1) if r else tuple(sorted({FIRST[k], *(s[k] for s in self.sizes)}))
            for (k, m), r in zip(most.items(), ranged, strict=True)}

    def _leaf(self, kind: list[str], letter: str, array: np.ndarray) -> str:
        array = np.asarray(array)
        is_open = set(FIRST.values()) & set(array.shape)
        if is_open and kind is self.constants:
            raise ValueError("a constant has one size")
        name = super()._leaf(kind, letter, array)
        for values, sizes in zip(self.elsewhere, self.sizes, strict=True):
            shape = tuple(sizes[_symbol(d)] if _symbol(d) else d for d in array.shape)
            values[name] = self.random(shape, array.dtype) if is_open else array
        return name

    def fits(self, node: onnx.NodeProto, used: list[str], names: list[str], first: list[np.ndarray]) -> bool:
        made = [self.answer(node, used, names, values) for values in self.elsewhere]
        for got in made:
            if got is None or [_kind(y) for y in got] != [_kind(y) for y in first] or any(unfit(y) for y in got):
                return False
        for values, got in zip(self.elsewhere, made, strict=True):
            values.update(zip(names, got or (), strict=True))
        return True

    def part(self, nodes: list[onnx.NodeProto], used: list[str], made: dict[str, np.ndarray]) -> Builder:
        b = super().part(nodes, used, made)
        assert isinstance(b, OpenBuilder)
        b.elsewhere = [{i: values[i] for i in [*used, *made]} for values in self.elsewhere]
        b.sizes, b.asked = self.sizes, self.asked
        return b

    @property
    def dims(self) -> Mapping[str, Sizes]:
        shown = {_symbol(d) for i in self.inputs for d in self.values[i].shape}
        return {k: v for k, v in self.asked.items() if k in shown}

    def _empty(self) -> Builder:
        return OpenBuilder(self.seed, self.opset)

    def info(self, name: str) -> onnx.ValueInfoProto:
        v = self.values[name]
        dims: list[Any] = [_symbol(d) or d if name in self.inputs else None for d in v.shape]
        return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(v.dtype), dims)

    def runs(self) -> list[tuple[dict[str, np.ndarray], Mapping[str, np.ndarray]]]:
        return [({i: values[i] for i in self.inputs}, values) for values in (*self.elsewhere, self.values)]


def _kind(y: np.ndarray) -> tuple[np.dtype, int]:
    return y.dtype, y.ndim


def _symbol(size: int) -> str:
    return next((k for k, n in FIRST.items() if n == size), "")


__all__ = ["FIRST", "OpenBuilder"]
