"""One TFLite operator as its reader sees it: inputs are values, options are slots of a table.

TFLite's images are channels-last, the IR's convolutions channels-first. A tensor of rank 4 is therefore held in
either order, whichever it was made in, and the other is made when somebody asks: between convolutions nobody does.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

import numpy as np

from monobloc.errors import Loc, ModelError, UnsupportedError
from monobloc.frontend.tflite.flatbuffer import Data, Table
from monobloc.frontend.tflite.scaling import CLAMPS, NONE, RELU, quantized_clamp
from monobloc.frontend.tflite.schema import TYPES, Quantization, Tensor
from monobloc.ir.graph import Graph, Value
from monobloc.ir.types import DType, TensorType
from monobloc.ops.build import Builder
from monobloc.ops.movement import transpose
from monobloc.ops.quant import limits

TO_FIRST, TO_LAST = (0, 3, 1, 2), (0, 2, 3, 1)
EMPTY = Table(Data(memoryview(bytes([4, 0, 4, 0, 4, 0, 0, 0]))), 4)  # a table without fields


@dataclass
class Held:
    """A tensor in the file's order of axes, channels-first, or both"""

    last: Value | None = None
    first: Value | None = None

    @property
    def made(self) -> Value:
        """in the order it was made in"""
        found = self.first if self.first is not None else self.last
        assert found is not None
        return found


@dataclass
class States:
    """Variables by name: what they hold now, and the graph inputs that hold what they held before"""

    now: dict[str, Value] = field(default_factory=dict)
    before: dict[str, Value] = field(default_factory=dict)
    start: dict[str, np.ndarray] = field(default_factory=dict)  # of init graphs


@dataclass
class TflNode:
    """See the module's text."""

    op: str
    b: Builder
    loc: Loc
    held: list[Held | None]
    ins: list[Tensor | None]
    outs: list[Tensor]
    options: Table
    states: States
    graph: Graph
    resources: dict[int, str]  # names of variables by the tensor that holds their handle
    intermediates: list[Tensor | None] = field(default_factory=list)
    custom: bytes = b""  # options of a custom operator
    micro: bool = False  # whether TFLite Micro's integers are wanted
    call: Callable[[Graph, int, Sequence[Value]], list[Value]] = field(default=lambda *_: [])  # a subgraph's outputs
    passes: Callable[[int, int], bool] = field(default=lambda *_: False)  # whether its output k is its input k
    body: Callable[[int], list[str]] = field(default=lambda _: [])  # the names of its operators

    # -- inputs ---------------------------------------------------------------------------------------
    def has(self, i: int) -> bool:
        return i < len(self.held) and self.held[i] is not None

    def _held(self, i: int) -> Held:
        h = self.held[i] if i < len(self.held) else None
        if h is None:
            self.fail(f"input {i} is missing")
        return h

    def x(self, i: int) -> Value:
        """Input i in the file's order of axes"""
        return self.last(self._held(i))

    def first(self, i: int) -> Value:
        """Input i of rank 4, channels-first"""
        h = self._held(i)
        if h.first is None:
            x = self.x(i)
            if x.type.rank != 4:
                self.fail(f"input {i} is {x.type}, but must have rank 4")
            h.first = transpose(self.b, x, TO_FIRST)
        return h.first

    def last(self, h: Held) -> Value:
        if h.last is None:
            h.last = transpose(self.b, h.made, TO_LAST)
        return h.last

    def any_first(self) -> bool:
        """Whether some input was made channels-first"""
        return any(h is not None and h.first is not None and h.first.const is None for h in self.held)

    def const(self, i: int, what: str) -> np.ndarray:
        v = self.x(i)
        if v.const is None:
            self.unsupported(f"{what} (input {i}) that is known only at run time")
        return v.const.array

    def ints(self, i: int, what: str) -> list[int]:
        found = self.const(i, what)
        if found.dtype.kind not in "iu":
            self.fail(f"{what} (input {i}) holds {found.dtype}, not integers")
        return [int(k) for k in found.ravel()]

    def axis(self, a: int, rank: int) -> int:
        if not -rank <= a < rank:
            self.fail(f"axis {a} is out of range for a tensor of rank {rank}")
        return a % rank

    # -- types ----------------------------------------------------------------------------------------
    def tensor(self, i: int) -> Tensor:
        t = self.ins[i] if i < len(self.ins) else None
        if t is None:
            self.fail(f"input {i} is missing")
        return t

    def out_dtype(self, k: int = 0) -> DType:
        found = TYPES.get(self.outs[k].type)
        if found is None:
            self.unsupported(f"an output of type {self.outs[k].type_text}")
        return found

    def state_type(self, i: int) -> TensorType:
        """Of a variable tensor"""
        t = self.tensor(i)
        found = TYPES.get(t.type)
        if found is None:
            self.unsupported(f"{t.what} of type {t.type_text}")
        return TensorType(found, t.shape)

    def quantized(self, i: int = 0) -> bool:
        """Whether input i holds integers that stand for real numbers"""
        t = self.tensor(i)
        return TYPES.get(t.type) in (DType.I8, DType.U8, DType.I16) and t.quantization is not None

    def quant(self, t: Tensor) -> Quantization:
        if t.quantization is None:
            self.fail(f"{t.what} is {t.text} without a scale")
        return t.quantization

    def scale(self, t: Tensor) -> tuple[np.float32, int]:
        """(scale, zero point) of a tensor that has one of each"""
        q = self.quant(t)
        if q.scale.size != 1:
            self.unsupported(f"{t.what} with {q.scale.size} scales")
        if not (math.isfinite(q.scale[0]) and q.scale[0] > 0):
            self.fail(f"{t.what} has the scale {q.scale[0]}")
        dtype = TYPES.get(t.type)
        lo, hi = limits(dtype) if dtype is not None and dtype.is_int else (0, 0)
        if lo < hi and not lo <= q.zero[0] <= hi:
            self.fail(f"{t.what} is {t.text} with the zero point {q.zero[0]}, which is out of its range")
        return np.float32(q.scale[0]), int(q.zero[0])

    # -- activations ----------------------------------------------------------------------------------
    def clamp(self, activation: int, k: int = 0) -> dict[str, int]:
        """`lo` and `hi` of output k under a fused activation"""
        self._known(activation)
        scale, zero = self.scale(self.outs[k])
        lo, hi = quantized_clamp(activation, scale, zero, np.iinfo(self.out_dtype(k).numpy))
        return {"lo": lo, "hi": hi}

    def activate(self, v: Value, activation: int) -> Value:
        """A float result under a fused activation"""
        if activation == NONE:
            return v
        self._known(activation)
        if activation == RELU:
            return self.b.one("Relu", v)
        lo, hi = CLAMPS[activation]
        return self.b.one("Clip", v, self.b.const(lo, v.dtype), self.b.const(hi, v.dtype))

    def _known(self, activation: int) -> None:
        if activation not in CLAMPS:
            self.unsupported(f"the fused activation {activation}")

    # -- errors ---------------------------------------------------------------------------------------
    def fail(self, message: str) -> NoReturn:
        raise ModelError(message, loc=self.loc)

    def unsupported(self, message: str, hints: Sequence[str] = ()) -> NoReturn:
        raise UnsupportedError(f"{message} is not supported", loc=self.loc, hints=hints)


Result = Sequence[Held | Value | None]
Reader = Any  # (TflNode) -> Result
