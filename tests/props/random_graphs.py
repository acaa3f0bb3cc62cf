"""Random small graphs: chains of operators, and every operator's cases between moves that change nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from monobloc.ir.graph import Graph, Value
from monobloc.ir.types import DType, TensorType
from monobloc.ops import Case, OpDef, registry
from monobloc.ops.build import Builder
from monobloc.ops.movement import slice_of

UNARY = ("Relu", "Tanh", "Sigmoid", "Neg", "Abs", "HardSwish", "Erf", "Softplus", "Exp", "Sqrt", "Floor", "Sign")
BINARY = ("Add", "Sub", "Mul", "Max", "Min", "Add", "Mul")
REDUCE = ("ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin", "ReduceL2")
LIMIT = 4096  # elements


class Maker:
    """A graph under construction; values that a later step may take are in `pool`."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.g = Graph(f"g{seed}")
        self.b = Builder(self.g)
        self.pool: list[Value] = []
        self.feeds: dict[str, np.ndarray] = {}

    def pick(self, rank: int | None = None) -> Value:
        """A value of the pool, later ones more often, so that chains grow long."""
        fit = [v for v in self.pool if rank is None or v.type.rank == rank]
        return fit[-1 - min(int(self.rng.exponential(1.5)), len(fit) - 1)] if fit else self.input(rank)

    def one_of(self, *items: Any) -> Any:
        return items[int(self.rng.integers(len(items)))]

    def input(self, rank: int | None = None) -> Value:
        r = int(self.rng.integers(0, 5)) if rank is None else rank
        shape = tuple(int(self.one_of(1, 2, 3, 4, 5, 8, 17)) for _ in range(r))
        return self.feed(self.floats(shape))

    def feed(self, x: np.ndarray) -> Value:
        v = self.g.add_input(f"x{len(self.feeds)}", TensorType(DType.of(x.dtype), x.shape))
        self.feeds[v.name] = x
        return v

    def floats(self, shape: Sequence[int]) -> np.ndarray:
        return self.rng.standard_normal(tuple(shape)).astype(np.float32)

    def emit(self, op: str, *ins: Value | None, **attrs: Any) -> Value:
        return self.b.emit(op, ins, attrs)[0]

    def slice(self, x: Value, axis: int, first: int, step: int, count: int) -> Value:
        at = [(first, step, count) if k == axis else (0, 1, d) for k, d in enumerate(x.shape)]
        return slice_of(self.b, x, at)


Step = Callable[[Maker], Value]


def unary(m: Maker) -> Value:
    op, x = m.one_of(*UNARY), m.pick()
    if op == "Sqrt":
        x = m.emit("Abs", x)
    if op == "Exp":
        x = m.emit("Tanh", x)
    return m.emit(op, x)


def binary(m: Maker) -> Value:
    x = m.pick()
    shape = tuple(d if m.rng.random() < 0.6 else 1 for d in x.shape)[int(m.rng.integers(0, x.type.rank + 1)) :]
    y = m.one_of(m.b.const(m.floats(shape)), m.b.const(m.floats(x.shape)), m.pick())
    try:
        pair = (x, y) if m.rng.random() < 0.5 else (y, x)
        return m.emit(m.one_of(*BINARY), *pair)
    except Exception:  # shapes that do not broadcast
        return m.emit("Add", x, x)


def reduction(m: Maker) -> Value:
    x = m.pick()
    axes = sorted(int(a) for a in m.rng.permutation(x.type.rank)[: int(m.rng.integers(1, 3))])
    return m.emit(m.one_of(*REDUCE), x, axes=axes, keepdims=int(m.rng.integers(2)))


def normal(m: Maker) -> Value:
    x = m.pick(int(m.one_of(2, 3)))
    if m.rng.random() < 0.5:
        return m.emit("Softmax", x, axis=int(m.rng.integers(x.type.rank)))
    scale, shift = m.b.const(m.floats(x.shape[-1:])), m.b.const(m.floats(x.shape[-1:]))
    return m.emit("LayerNormalization", x, scale, shift, axis=x.type.rank - 1, epsilon=1e-3)


def move(m: Maker) -> Value:
    x = m.pick()
    r = x.type.rank
    if not r:
        return m.emit("Reshape", x, shape=[1, 1])
    axis = int(m.rng.integers(r))
    kind = m.one_of("Transpose", "Reshape", "Slice", "Concat", "Pad", "Tile")
    if kind == "Transpose":  # often two, which merge
        once = m.emit(kind, x, perm=[int(p) for p in m.rng.permutation(r)])
        return m.emit(kind, once, perm=[int(p) for p in m.rng.permutation(r)]) if m.rng.random() < 0.5 else once
    if kind == "Reshape":
        return m.emit(kind, x, shape=m.one_of([x.type.size], [1, *x.shape], [x.type.size // x.shape[-1], x.shape[-1]]))
    if kind == "Slice":
        first = int(m.rng.integers(x.shape[axis]))
        step = int(m.one_of(1, 1, 2, -1))
        return m.slice(x, axis, first, step, len(range(first, x.shape[axis] if step > 0 else -1, step)))
    if kind == "Concat":
        return m.b.emit(kind, m.one_of([x, x], [x, m.b.const(m.floats(x.shape)), x]), {"axis": axis})[0]
    if kind == "Pad":
        pads = [int(p) for p in m.rng.integers(0, 2, 2 * r)]
        return m.b.emit(kind, [x, m.b.const(np.float32(0.5))], {"pads": pads, "mode": "constant"})[0]
    return m.emit(kind, x, repeats=[2 if k == axis else 1 for k in range(r)])


def contraction(m: Maker) -> Value:
    if m.rng.random() < 0.5:
        x = m.pick(int(m.one_of(2, 3)))
        n = int(m.one_of(1, 3, 16, 19))
        return m.emit("MatMul", x, m.b.const(m.floats((x.shape[-1], n)) / np.float32(np.sqrt(x.shape[-1]))))
    x = m.pick(4)
    n, c, h, w = x.shape
    k = int(m.one_of(1, 3))
    depthwise = m.rng.random() < 0.3
    oc = c if depthwise else int(m.one_of(2, 8, 17))
    weights = m.floats((oc, 1 if depthwise else c, k, k)) / np.float32(np.sqrt(c * k * k))
    attrs = {"group": c if depthwise else 1, "pads": [k // 2] * 4, "strides": [int(m.one_of(1, 2))] * 2,
             "dilations": [1, 1], "kernel_shape": [k, k]}  # fmt: skip
    return m.emit("Conv", x, m.b.const(weights), None, **attrs)


STEPS: tuple[Step, ...] = (unary, unary, binary, binary, reduction, normal, move, move, contraction)


def chain(seed: int) -> Maker:
    """Several inputs and up to 14 steps; everything nobody reads is an output, and some values more."""
    m = Maker(seed)
    m.pool += [m.input() for _ in range(int(m.rng.integers(1, 4)))]
    for _ in range(int(m.rng.integers(3, 15))):
        v = m.one_of(*STEPS)(m)
        if 0 < v.type.size <= LIMIT and v.type.rank <= 5:
            m.pool.append(v)
    ends = [v for v in m.pool if not v.users] + [v for v in m.pool if v.users and m.rng.random() < 0.1]
    m.g.outputs = [(f"y{k}", v) for k, v in enumerate(dict.fromkeys(ends))]
    return m


# -- operators' own cases --------------------------------------------------------------------------------
def operators() -> list[OpDef]:
    return [op for op in registry().values() if op.name != "Fused" and (op.has_expr or op.has_routine)]


def neutral(m: Maker, v: Value) -> Value:
    """The same elements after a detour that a pass might take apart wrongly."""
    r = v.type.rank
    if not r or not v.type.size or v.const is not None:
        return v
    axis = int(m.rng.integers(r))
    kind = m.one_of("none", "concat", "reshape", "transpose", "slice")
    if kind == "concat":
        both = m.b.emit("Concat", [v, v], {"axis": axis})[0]
        return m.slice(both, axis, v.shape[axis], 1, v.shape[axis])
    if kind == "reshape":
        return m.emit("Reshape", m.emit("Reshape", v, shape=[v.type.size]), shape=list(v.shape))
    if kind == "transpose":
        perm = [int(p) for p in m.rng.permutation(r)]
        turned = m.emit("Transpose", v, perm=perm)
        if v.dtype.is_float:
            turned = m.emit("Neg", turned)
        back = m.emit("Transpose", turned, perm=[perm.index(k) for k in range(r)])
        return m.emit("Neg", back) if v.dtype.is_float else back
    if kind == "slice":
        n = v.shape[axis]
        twice = m.emit("Tile", v, repeats=[2 if k == axis else 1 for k in range(r)])
        return m.slice(twice, axis, 0, 1, n)
    return v


def from_case(seed: int, op: OpDef, case: Case) -> Maker:
    """One case of an operator, its inputs and outputs taken through detours."""
    m = Maker(seed)
    ins: list[Value | None] = []
    for k, x in enumerate(case.inputs):
        if x is None:
            ins.append(None)
        elif k and (op.contraction is not None or op.name == "BatchNormalization"):
            ins.append(m.b.const(np.asarray(x)))
        else:
            ins.append(neutral(m, m.feed(np.asarray(x))))
    node = m.g.make(op.name, ins, op.infer(ins, dict(case.attrs)), dict(case.attrs))
    m.g.outputs = [(f"y{k}", neutral(m, v)) for k, v in enumerate(node.outputs)]
    return m
