"""Random programs of operators on tensors whose sizes six numbers of the run decide."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

MOST = 5  # of each number
Tensor = tuple[str, int]  # name, rank


class Program:
    """x [4,6] through a few operators; n [6] says sizes."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng, self.nodes, self.weights = rng, [], []  # type: ignore[var-annotated]
        self.numbers = [self.op("Slice", ["n", self.const([k]), self.const([k + 1])]) for k in range(6)]
        self.made: list[Tensor] = [("x", 2)]
        for _ in range(rng.integers(2, 7)):
            self.step()

    def const(self, a: Any) -> str:
        self.weights.append(numpy_helper.from_array(np.array(a, np.int64), f"c{len(self.weights)}"))
        return str(self.weights[-1].name)

    def op(self, kind: str, ins: Sequence[str], outs: int = 1, take: int = 0, **attrs: Any) -> str:
        names = [f"v{len(self.nodes)}_{k}" for k in range(outs)]
        self.nodes.append(helper.make_node(kind, ins, names, **attrs))
        return names[take]

    def size(self, v: str, axis: int) -> str:
        return self.op("Slice", [self.op("Shape", [v]), self.const([axis]), self.const([axis + 1])])

    def chance(self, p: float) -> bool:
        return bool(self.rng.random() < p)

    def step(self) -> None:
        v, rank = self.made[int(self.rng.integers(len(self.made))) if self.chance(0.4) else -1]
        kind = MAKERS[int(self.rng.integers(len(MAKERS)))]
        if rank:
            self.made.append(kind(self, v, rank, int(self.rng.integers(rank))))

    def model(self) -> onnx.ModelProto | None:
        """Of the last tensor and one in the middle, and what they need"""
        outs = list(dict.fromkeys(o for o, _ in (self.made[-1], self.made[len(self.made) // 2]) if o != "x"))
        needed, kept = set(outs), []
        for node in reversed(self.nodes):
            if needed & set(node.output):
                kept.append(node)
                needed |= set(node.input)
        ins = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [4, 6]),
               helper.make_tensor_value_info("n", TensorProto.INT64, [6])]
        ports = [helper.make_tensor_value_info(o, TensorProto.FLOAT, None) for o in outs]
        graph = helper.make_graph(kept[::-1], "g", ins, ports, self.weights)
        made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        return made if outs else None


def _numbers(p: Program) -> tuple[str, str]:
    a, b = p.rng.integers(6, size=2)
    return p.numbers[a], p.numbers[b]


def _per_axis(p: Program, rank: int, axis: int, number: str, rest: int) -> str:
    return p.op("Concat", [number if k == axis else p.const([rest]) for k in range(rank)], axis=0)


def _first(p: Program, v: str, rank: int, axis: int) -> Tensor:
    return p.op("Slice", [v, p.const([0]), _numbers(p)[0], p.const([axis])]), rank


def _window(p: Program, v: str, rank: int, axis: int) -> Tensor:
    a, b = _numbers(p)
    end = p.op("Add", [a, b]) if p.chance(0.5) else p.const([1 << 62])
    return p.op("Slice", [v, a, end, p.const([axis]), p.const([int(p.rng.integers(1, 3))])]), rank


def _backwards(p: Program, v: str, rank: int, axis: int) -> Tensor:
    end = p.op("Neg", [_numbers(p)[0]]) if p.chance(0.5) else p.const([-99])
    return p.op("Slice", [v, p.const([int(p.rng.choice([-1, 3]))]), end, p.const([axis]), p.const([-1])]), rank


def _transposed(p: Program, v: str, rank: int, axis: int) -> Tensor:
    return p.op("Transpose", [v], perm=[int(k) for k in p.rng.permutation(rank)]), rank


def _reshaped(p: Program, v: str, rank: int, axis: int) -> Tensor:
    by = p.op("Concat", [_numbers(p)[0], p.const([-1])], axis=0) if p.chance(0.3) else p.const(
        [-1, int(p.rng.integers(1, 4))])
    return (p.op("Reshape", [v, by]), 2) if p.chance(0.7) else (p.op("Reshape", [v, p.const([-1])]), 1)


def _joined(p: Program, v: str, rank: int, axis: int) -> Tensor:
    alike = [name for name, r in p.made if r == rank]
    parts = [v, alike[int(p.rng.integers(len(alike)))], v][: int(p.rng.integers(2, 4))]
    return p.op("Concat", parts, axis=axis), rank


def _with_another(p: Program, v: str, rank: int, axis: int) -> Tensor:
    w, other = p.made[int(p.rng.integers(len(p.made)))]
    if p.chance(0.3):
        return p.op("Where", [p.op("Greater", [v, w]), v, w]), max(rank, other)
    return p.op(str(p.rng.choice(["Add", "Mul", "Sub"])), [v, w]), max(rank, other)


def _folded(p: Program, v: str, rank: int, axis: int) -> Tensor:
    kind = str(p.rng.choice(["ReduceSum", "ReduceMax", "ReduceMin", "ReduceL2", "ArgMax", "Softmax", "CumSum"]))
    if kind == "ReduceSum":
        return p.op(kind, [v, p.const([axis])], keepdims=1), rank
    if kind == "ArgMax":
        return p.op("Cast", [p.op(kind, [v], axis=axis, keepdims=1)], to=1), rank
    if kind == "CumSum":
        return p.op(kind, [v, p.const(axis)], reverse=int(p.rng.integers(2)), exclusive=int(p.rng.integers(2))), rank
    return p.op(kind, [v], **({"axis": axis} if kind == "Softmax" else {"axes": [axis], "keepdims": 1})), rank


def _picked(p: Program, v: str, rank: int, axis: int) -> Tensor:
    at = p.op("Concat", list(_numbers(p)), axis=0) if p.chance(0.5) else p.const([int(p.rng.integers(-1, 2)), 0])
    return p.op("Gather", [v, at], axis=axis), rank


def _best(p: Program, v: str, rank: int, axis: int) -> Tensor:
    k = p.const([1]) if p.chance(0.5) else _numbers(p)[0]
    return p.op("TopK", [v, k], 2, axis=axis, largest=int(p.rng.integers(2))), rank


def _tiled(p: Program, v: str, rank: int, axis: int) -> Tensor:
    return p.op("Tile", [v, _per_axis(p, rank, axis, _numbers(p)[0], 1)]), rank


def _padded(p: Program, v: str, rank: int, axis: int) -> Tensor:
    a, b = _numbers(p)
    pads = p.op("Concat", [_per_axis(p, rank, axis, a, 0), _per_axis(p, rank, axis, b, 0)], axis=0)
    return p.op("Pad", [v, pads], mode=str(p.rng.choice(["constant", "edge"]))), rank


def _expanded(p: Program, v: str, rank: int, axis: int) -> Tensor:
    shape = p.op("Concat", [_numbers(p)[0], *(p.const([1]) for _ in range(rank))], axis=0)
    return (p.op("Expand", [v, shape]), rank + 1) if rank < 3 else (v, rank)


def _multiplied(p: Program, v: str, rank: int, axis: int) -> Tensor:
    if rank != 2:
        return v, rank
    turned = p.op("Transpose", [v], perm=[1, 0])
    return p.op("MatMul", [turned, v] if p.chance(0.5) else [v, turned]), 2


def _split(p: Program, v: str, rank: int, axis: int) -> Tensor:
    a = _numbers(p)[0]
    sizes = p.op("Concat", [a, p.op("Sub", [p.size(v, axis), a])], axis=0)
    return p.op("Split", [v, sizes], 2, take=int(p.rng.integers(2)), axis=axis), rank


def _by_place(p: Program, v: str, rank: int, axis: int) -> Tensor:
    """Times 0, 1, 2, ... along an axis, a Range of as many as there are"""
    limit = p.op("Reshape", [p.size(v, axis), p.const(np.zeros(0))])
    steps = p.op("Cast", [p.op("Range", [p.const(0), limit, p.const(1)])], to=1)
    return p.op("Mul", [v, p.op("Reshape", [steps, p.const([-1] + [1] * (rank - 1 - axis))])]), rank


MAKERS: Sequence[Callable[[Program, str, int, int], Tensor]] = (
    _first, _first, _window, _backwards, _transposed, _reshaped, _joined, _with_another, _folded, _picked, _best,
    _tiled, _padded, _expanded, _multiplied, _split, _by_place,
)  # fmt: skip
