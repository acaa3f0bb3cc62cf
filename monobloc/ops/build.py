"""Builder: appends nodes with inferred types, and computes at once what depends on constants only.

Folding here is what makes shape arithmetic vanish while a model is read: every shape is known, so
`Shape` is a constant, and what is computed from it is too. A constant is not folded when that would
make it much bigger: it stays a node on constants, which the link decides on. So does a dequantized weight of any size:
integer kernels want it as it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from monobloc.errors import ModelError
from monobloc.ir.graph import Const, Graph, Node, Value
from monobloc.ir.symbolic import integers, is_open, lower, upper
from monobloc.ir.types import DType, TensorType
from monobloc.ops import OpDef, onnx_reader, opdef

SIZE_TYPES = (DType.I32, DType.I64, DType.U32, DType.U64)
FOLD_ALWAYS_BYTES = 1 << 16
MAX_ELEMENTS = 1 << 40
EXACT_FLOATS = 1 << 24  # integers below are float32
MAX_OPEN_ELEMENTS = 16  # of a constant with sizes among them, which a run computes


class Builder:
    """Appends to `graph`; `before` makes it insert instead. `locs` are put on every new node."""

    def __init__(self, graph: Graph, *, before: Node | None = None, locs: tuple[str, ...] = (), name: str = "") -> None:
        self.graph, self.before, self.locs, self.name = graph, before, locs, name

    def const(self, array: Any, dtype: DType | None = None, name: str = "") -> Value:
        if is_open(array) and dtype in (None, DType.I64):
            array, dtype = integers(array, np.int64), None
        data = np.asarray(array) if dtype is None else np.asarray(array, dtype.numpy)
        return self.graph.constant(name or (self.name or "c") + ".const", data)

    def ints(self, values: Sequence[int]) -> Value:
        return self.const(integers(list(values), np.int64))

    def counted(self, count: int, start: int = 0, step: int = 1, *, shape: Sequence[int] = (),
                dtype: DType = DType.I64) -> Value:
        """start, start + step, ...: a constant, or where a run chooses sizes what it counts"""
        if not any(map(is_open, (count, start, step))):
            return self.const((start + np.arange(count) * step).reshape(tuple(shape) or -1), dtype)
        made = cast_to(self, self.one("Iota", start=start, delta=step, size=count), dtype)
        return self.one("Reshape", made, shape=list(shape)) if shape else made

    def emit(
        self,
        op: str,
        inputs: Sequence[Value | None],
        attrs: dict[str, Any] | None = None,
        outputs: int = 1,
        name: str = "",
    ) -> list[Value]:
        """A node of a known operator: its `outputs` values, or constants in their place."""
        d = opdef(op)
        attrs = dict(attrs or {})
        if any(v is not None and v.const is not None and v.const.has_open for v in inputs):
            return self._of_sizes(d, inputs, attrs, outputs, name or self.name or op.lower())
        types = d.infer(inputs, attrs)[:outputs]
        for t in types:
            if t.size > MAX_ELEMENTS or any(s < 0 for s in t.shape):
                raise ModelError(f"{op} gives a tensor of {t}, which is too large to address")
        sized = any(map(is_open, attrs.values()))  # as Iota starts with one
        if op != "DequantizeLinear" and not sized and folds(inputs, types):
            return self._fold(d, inputs, attrs, types, name or self.name or op.lower())
        node = self.graph.make(
            op, inputs, types, attrs, name=name or self.name or op.lower(), locs=self.locs, before=self.before
        )
        return node.outputs

    def one(self, op: str, *inputs: Value | None, **attrs: Any) -> Value:
        return self.emit(op, inputs, attrs)[0]

    def _of_sizes(
        self, d: OpDef, inputs: Sequence[Value | None], attrs: dict[str, Any], outputs: int, name: str
    ) -> list[Value]:
        """Sizes among the inputs: computed as they are where all inputs are constant and the operator can, or in a run
        where it only computes with them, else this is for just the sizes they have at the hint."""
        types = d.infer(inputs, attrs)[:outputs]
        known = folds(inputs, types)
        if known:
            arrays = [None if v is None or v.const is None else v.const.array for v in inputs]
            try:
                made = arrays[:1] if _keeps_sizes(d, attrs, arrays) else _divided(*arrays) if (
                    d.name == "Div" and types[0].dtype.is_int) else d.run(attrs, arrays, outputs)
                return [self.graph.const_value(name, t, Const(integers(np.asarray(y).tolist(), t.dtype.numpy).reshape(
                    t.shape))) for y, t in zip(made, types, strict=True)]
            except (TypeError, ValueError, AttributeError, KeyError):
                pass
        computes = (d.elementwise or d.counts) and not known  # what is known may decide shapes yet
        found = self.in_run if computes else lambda v: plain(self.graph, v)
        return self.emit(d.name, [found(v) for v in inputs], attrs, outputs, name)

    def in_run(self, v: Value | None) -> Value | None:
        """A constant with sizes among its elements as a value that a run computes; where they are many, `plain`."""
        if v is None or v.const is None or not v.const.has_open or v.type.size > MAX_OPEN_ELEMENTS:
            return plain(self.graph, v)
        parts = [self.one("Iota", start=x, delta=0, size=1) if is_open(x) else self.const(np.array([x], np.int64))
                 for x in v.const.array.flat]
        out = parts[0] if len(parts) == 1 else self.one("Concat", *parts, axis=0)
        out = out if v.type.rank == 1 else self.one("Reshape", out, shape=list(v.shape))
        return cast_to(self, out, v.dtype)

    def _fold(
        self, d: OpDef, inputs: Sequence[Value | None], attrs: dict[str, Any], types: list[TensorType], name: str
    ) -> list[Value]:
        out = [self.graph.constant(name, y) for y in evaluate(d, inputs, attrs, types)]
        if d.name == "Transpose":  # remembered, so that an object can store one of the two forms
            assert inputs[0] is not None and inputs[0].const is not None and out[0].const is not None
            out[0].const.source = (inputs[0].const, tuple(attrs["perm"]))
        return out


def _keeps_sizes(d: OpDef, attrs: dict[str, Any], arrays: Sequence[Any]) -> bool:
    """Whether it only gives sizes another type, which holds them."""
    if d.name != "Cast" or attrs["to"] in SIZE_TYPES:
        return d.name == "Cast"
    return attrs["to"] in (DType.F32, DType.F64) and all(upper(x) < EXACT_FLOATS for x in arrays[0].flat)


def _divided(a: Any, b: Any) -> list[Any]:
    """Integers, which round to zero; ValueError where that is not rounding down."""
    if any(lower(x) < 0 for x in a.flat) or any(lower(x) < 1 for x in b.flat):
        raise ValueError("a quotient of what may be negative")
    return [a.astype(object) // b.astype(object)]


def plain(g: Graph, v: Value | None) -> Value | None:
    """A constant without sizes among its elements: what they are at the hint."""
    if v is None or v.const is None or not v.const.has_open:
        return v
    return g.constant(v.name, np.array([int(x) for x in v.const.array.flat], v.dtype.numpy).reshape(v.shape))


def folds(inputs: Sequence[Value | None], types: Sequence[TensorType]) -> bool:
    """Whether a node is computed now: all its inputs are constant and its outputs not much larger."""
    used = [v for v in inputs if v is not None]
    if any(v.const is None for v in used) or (not used and not types):
        return False
    if any(is_open(d) for t in types for d in t.shape):
        return False
    total_in = sum(v.type.bytes for v in used)
    total_out = sum(t.bytes for t in types)
    return total_out <= max(FOLD_ALWAYS_BYTES, total_in)


def evaluate(
    d: OpDef, inputs: Sequence[Value | None], attrs: dict[str, Any], types: Sequence[TensorType]
) -> list[np.ndarray]:
    """The reference result on constant inputs, checked against the inferred types."""
    arrays = [None if v is None or v.const is None else v.const.array for v in inputs]
    with np.errstate(all="ignore"):
        out = d.run(attrs, arrays, len(types))
    for y, t in zip(out, types, strict=True):
        assert y.shape == t.shape, f"{d.name}: reference gives {y.shape}, inference {t.shape}"
    return [np.ascontiguousarray(y.astype(t.dtype.numpy, copy=False)).reshape(t.shape) for y, t in zip(out, types)]


# -- what many operators are read with -----------------------------------------------------------------
def cast_to(b: Any, x: Value, to: DType) -> Value:
    """In this type, which it may have already"""
    y: Value = x if x.dtype is to else b.one("Cast", x, to=to)
    return y


def reading(n: Any, op: str, inputs: Sequence[Value | None], opset: int = 13, **attrs: Any) -> Any:
    """The ONNX node `n` as one of ONNX's own `op` with other inputs and attributes"""
    return replace(
        n, op=op, domain="", opset=opset, inputs=list(inputs), attrs=attrs, n_outputs=1, signature=None
    )


def read_as(b: Any, n: Any, op: str, inputs: Sequence[Value | None], opset: int = 13, **attrs: Any) -> Value:
    """What ONNX's own `op` makes of these inputs in the place of `n`"""
    reader = onnx_reader("", op)
    assert reader is not None
    out = reader.from_onnx(b, reading(n, op, inputs, opset, **attrs))[0]
    assert out is not None
    return out


def channels_first(b: Any, x: Value) -> Value:
    return b.one("Transpose", x, perm=[0, x.type.rank - 1, *range(1, x.type.rank - 1)])


def channels_last(b: Any, x: Value) -> Value:
    return b.one("Transpose", x, perm=[0, *range(2, x.type.rank), 1])
