"""Models that are computed while they are built.

Each node is run by onnxruntime on its own as soon as it is added, so a generator may try anything: what
onnxruntime refuses is left out, every shape is known, and the wanted answer of every value is there
when the model is done. A value remembers whether its bits depend on the order of roundings; only
others may feed operators that turn a small difference into a large one.

A wild model also has values that are special (NaN, infinities, the limits of integers) and asks a second oracle:
ONNX's reference evaluator. Where the two differ the node is left out of the model, so that whole models have one
right answer, and is kept as `disputed`: a model of its own, of which either answer is right.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from tolerance import differs

from monobloc.ir.dims import Sizes
from monobloc.ops import onnx_names
from monobloc.options import Options

LARGE, MANY = 1e4, 1 << 21
BF16 = np.dtype(ml_dtypes.bfloat16)
SPECIAL = (np.nan, np.inf, -np.inf, 0.0, -0.0, 0.5, -0.5, 2.5, 1.0)  # none whose sums cancel to noise
_PADDING = "zeros of the padding may meet weights, and by an infinite one are NaN (docs/numerics.md)"
_CLAMPS = "onnxruntime limits what goes into sigmoid and tanh, which loses NaN"
LEFT_OPEN = {  # what oracles need not agree on where operands (of Conv: weights) are not finite
    "Conv": _PADDING, "ConvTranspose": _PADDING, "Det": "elimination and expansion differ",
    "LSTM": _CLAMPS, "GRU": _CLAMPS, "RNN": _CLAMPS,
    "Resize": "a pixel whose weight is 0 is not read; 0 times NaN is NaN in one oracle, and elsewhere in the other",
}
SLOW = 50_000  # elements beyond which the second oracle, which is Python, is not asked


@lru_cache(maxsize=1)
def broken() -> frozenset[str]:
    """Operators that promise something of what is not finite, which an oracle does otherwise."""
    return frozenset(name for (domain, name), op in onnx_names().items() if not domain
                     and any(e.but for e in op.edges if e.topic in ("NaN", "infinities")))


def is_float(dtype: np.dtype[Any]) -> bool:
    return dtype.kind == "f" or dtype == BF16


def reads(node: onnx.NodeProto) -> Iterator[str]:
    """What a node reads, its branches and bodies among it."""
    yield from filter(None, node.input)
    for a in node.attribute:
        made = {x.name for x in a.g.input} | {o for n in a.g.node for o in n.output}
        outs = (x.name for x in a.g.output)
        yield from (i for n in a.g.node for i in reads(n) if i not in made)
        yield from (o for o in outs if o not in made)


class Builder:
    """A graph under construction; `rng` decides everything random."""

    def __init__(self, seed: int, opset: int = 18, wild: bool = False) -> None:
        self.wild = wild
        self.disputed: list[tuple[Builder, dict[str, np.ndarray]]] = []  # and what the second oracle says
        self.rng = np.random.default_rng(seed)
        self.seed, self.opset = seed, opset
        self.nodes: list[onnx.NodeProto] = []
        self.values: dict[str, np.ndarray] = {}
        self.exact: dict[str, bool] = {}
        self.inputs: list[str] = []
        self.constants: list[str] = []
        self.outputs: list[str] = []
        self.options = ort.SessionOptions()
        self.options.log_severity_level = 4
        self.options.intra_op_num_threads = 1
        self.options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL

    # -- leaves --
    def input(self, array: np.ndarray) -> str:
        return self._leaf(self.inputs, "x", array)

    def constant(self, array: np.ndarray) -> str:
        return self._leaf(self.constants, "w", array)

    def _leaf(self, kind: list[str], letter: str, array: np.ndarray) -> str:
        name = f"{letter}{len(kind)}"
        kind.append(name)
        self.values[name], self.exact[name] = np.asarray(array), True
        return name

    def ints(self, *numbers: int) -> str:
        return self.constant(np.array(numbers, np.int64))

    def random(self, shape: tuple[int, ...], dtype: Any = np.float32) -> np.ndarray:
        x = self._random(shape, np.dtype(dtype))
        if not self.wild or self.rng.random() < 0.6 or x.dtype.kind == "b":
            return x
        info = np.iinfo(x.dtype) if x.dtype.kind in "iu" else None
        odd = SPECIAL if info is None else (info.min, info.max, 0, 1, info.max if x.dtype.kind == "u" else -1)
        with np.errstate(over="ignore"):
            return np.where(self.rng.random(shape) < 0.2, self.rng.choice(np.array(odd, x.dtype), shape), x)

    def _random(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray:
        if is_float(dtype):
            return self.rng.standard_normal(shape).astype(dtype)
        if dtype.kind == "b":
            return self.rng.random(shape) < 0.5
        low = -9 if dtype.kind == "i" else 0
        return self.rng.integers(low, 10, shape).astype(dtype)

    def leaf(self, shape: tuple[int, ...], dtype: Any = np.float32) -> str:
        """An input or a constant."""
        return (self.constant if self.rng.random() < 0.5 else self.input)(self.random(shape, dtype))

    # -- nodes --
    def op(self, kind: str, *ins: str, outs: int = 1, exact: bool | None = None, **attrs: Any) -> list[str]:
        """Add a node; no names if onnxruntime refuses it or its answer is unfit (NaN, huge, too many)."""
        names = [f"t{len(self.nodes)}_{k}" for k in range(outs)]
        node = helper.make_node(kind, list(ins), names, name=f"{kind}_{len(self.nodes)}", **attrs)
        return self.add(node, exact)

    def add(self, node: onnx.NodeProto, exact: bool | None = None) -> list[str]:
        kind, ins, names = node.op_type, node.input, list(node.output)
        used = list(dict.fromkeys(reads(node)))
        watched = [i for i in (ins[1:2] if kind == "Conv" else ins) if i and (kind in LEFT_OPEN or kind in broken())]
        if self.wild and not all(map(self.finite, watched)):
            return []
        got = self.answer(node, used, names, self.values)
        if got is None or any(unfit(y, self.wild) for y in got):
            return []
        if kind == "Loop" and any(y.shape == (0,) for y in got):
            return []  # rows that no iteration made, of which onnxruntime does not always know the rank
        if self.wild and (second := self._second(node, used, names)) is not None:
            other = [n for n, y in zip(names, got, strict=True) if differs(np.asarray(second[n]), y)]
            if other:
                self.disputed.append((self._alone(node, used, dict(zip(names, got, strict=True))), second))
                return []
        if not self.fits(node, used, names, got):
            return []
        self.nodes.append(node)
        known = all(self.exact[i] for i in used)
        for n, y in zip(names, got, strict=True):
            self.values[n] = y
            self.exact[n] = (known and not is_float(y.dtype)) if exact is None else exact and known
        return names

    def finite(self, name: str) -> bool:
        return not is_float(self.values[name].dtype) or bool(np.isfinite(self.values[name]).all())

    def fits(self, node: onnx.NodeProto, used: list[str], names: list[str], first: list[np.ndarray]) -> bool:
        """Whether a node may join the model, whose answer is `first`: here always."""
        return True

    def one(self, kind: str, *ins: str, **more: Any) -> str:
        return (self.op(kind, *ins, **more) or [""])[0]

    def answer(self, node: onnx.NodeProto, used: list[str], names: list[str],
               values: Mapping[str, np.ndarray]) -> list[np.ndarray] | None:
        """What onnxruntime computes; of bfloat16, which it hardly has, in float32, rounded once."""
        given = {i: values[i] for i in used}
        to = next((a.i for a in node.attribute if a.name == "to"), TensorProto.BFLOAT16)
        if node.op_type == "Cast" and to == TensorProto.BFLOAT16:
            return [given[used[0]].astype(BF16)]
        wide = {i: x.astype(np.float32) if x.dtype == BF16 else x for i, x in given.items()}
        got = self._run(node, wide, names)
        if got is None or not any(x.dtype == BF16 for x in given.values()) or to != TensorProto.BFLOAT16:
            return got
        return [y.astype(BF16) if y.dtype == np.float32 else y for y in got]

    def _run(self, node: onnx.NodeProto, given: Mapping[str, np.ndarray], names: list[str]) -> list[np.ndarray] | None:
        """Types of less than a byte can only be constants."""
        fixed = {i: x for i, x in given.items() if x.dtype.kind == "V"}
        graph = helper.make_graph(
            [node], "g", [_info(i, x) for i, x in given.items() if i not in fixed],
            [helper.make_empty_tensor_value_info(n) for n in names],
            [numpy_helper.from_array(x, i) for i, x in fixed.items()],
        )
        try:
            s = ort.InferenceSession(self.proto(graph).SerializeToString(), self.options)
            return list(s.run(names, {i: x for i, x in given.items() if i not in fixed}))
        except Exception:  # noqa: BLE001 - whatever it refuses is left out
            return None

    def _second(self, node: onnx.NodeProto, used: list[str], names: list[str]) -> dict[str, np.ndarray] | None:
        """What ONNX's reference says; None if it cannot, or would take long."""
        if sum(self.values[i].size for i in used) > SLOW or any(self.values[i].dtype.kind == "V" for i in used):
            return None
        graph = helper.make_graph([node], "g", [self.info(i) for i in used],
                                  [helper.make_empty_tensor_value_info(n) for n in names])
        try:
            with np.errstate(all="ignore"):
                got = ReferenceEvaluator(self.proto(graph)).run(None, {i: self.values[i] for i in used})
            return {n: np.asarray(y) for n, y in zip(names, got, strict=True)}
        except Exception:  # noqa: BLE001 - whatever it cannot do
            return None

    def _alone(self, node: onnx.NodeProto, used: list[str], made: dict[str, np.ndarray]) -> Builder:
        """A model of one node; what is constant here is constant there."""
        return self.part([node], used, made)

    def part(self, nodes: list[onnx.NodeProto], used: list[str], made: dict[str, np.ndarray]) -> Builder:
        """Some nodes as a model of their own: all that they use and do not make is given."""
        b = self._empty()
        b.nodes, b.outputs = list(nodes), list(made)
        b.constants = [i for i in used if i in self.constants]
        b.inputs = [i for i in used if i not in self.constants]
        b.values = {i: self.values[i] for i in used} | made
        b.exact = dict.fromkeys(b.values, True)
        return b

    def differs(self, got: np.ndarray, want: np.ndarray) -> str:
        """What is wrong with an answer, if anything"""
        return differs(got, want)

    def faults(self, o: Options) -> list[str]:
        """What is wrong with a program of this model that its answers do not tell"""
        return []

    @property
    def dims(self) -> Mapping[str, Sizes]:
        """Dimensions that a run chooses"""
        return {}

    def _empty(self) -> Builder:
        return Builder(self.seed, self.opset)

    def __getstate__(self) -> dict[str, Any]:
        return {k: v for k, v in self.__dict__.items() if k != "options"}

    def info(self, name: str) -> onnx.ValueInfoProto:
        return _info(name, self.values[name])

    def proto(self, graph: onnx.GraphProto) -> onnx.ModelProto:
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)], ir_version=10)

    # -- the whole --
    def model(self) -> onnx.ModelProto:
        """The model; its outputs are `outputs`, or the values that nothing reads."""
        read = {i for n in self.nodes for i in reads(n)}
        self.outputs = self.outputs or [o for n in self.nodes for o in n.output if o not in read]
        graph = helper.make_graph(
            self.nodes, f"seed{self.seed}", [self.info(i) for i in self.inputs], [self.info(o) for o in self.outputs],
            initializer=[numpy_helper.from_array(self.values[c], c) for c in self.constants],
        )
        return self.proto(graph)

    def feeds(self) -> dict[str, np.ndarray]:
        return {i: self.values[i] for i in self.inputs}

    def runs(self) -> list[tuple[dict[str, np.ndarray], Mapping[str, np.ndarray]]]:
        """Inputs and the right values, of each size that the model is to be run at."""
        return [(self.feeds(), self.values)]

    def pick(self, dtype: str = "f", rank: int | None = None, exact: bool = False, low: int = 0) -> str:
        """A value of this kind, later ones more often; empty if there is none."""
        fit = [
            n for n, v in self.values.items()
            if v.dtype == np.dtype(dtype) and (rank is None or v.ndim == rank) and (self.exact[n] or not exact)
            and v.ndim >= low and n not in self.constants
        ]
        if not fit:
            return ""
        k = len(fit) - 1 - min(len(fit) - 1, int(self.rng.exponential(3)))
        return fit[k]


def _info(name: str, x: np.ndarray) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)


def unfit(y: np.ndarray, wild: bool = False) -> bool:
    if not isinstance(y, np.ndarray) or y.size > MANY or not (y.dtype.kind in "fiub" or y.dtype == BF16):
        return True
    if wild:
        return False
    if is_float(y.dtype) and y.size:
        y = y.astype(np.float64)
        return not np.isfinite(y).all() or np.abs(y).max() > LARGE
    return bool(y.dtype.kind in "iu" and y.size and np.abs(y.astype(np.float64)).max() > 1e6)


__all__ = ["BF16", "Builder", "TensorProto", "is_float", "reads", "unfit"]
