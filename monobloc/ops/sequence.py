"""Sequences and optionals: resolved while a model is read, where how many items there are is known.

A sequence is the list of its values, an optional is its value or `ABSENT`; neither exists in the graph. So none of
these operators makes code, but where an index that is data picks one of several tensors of one type.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from monobloc.ir.graph import Value
from monobloc.ir.types import DType
from monobloc.ops import OpDef
from monobloc.ops.movement import slice_of
from monobloc.ops.reduce import normalized_axes
from monobloc.ops.shape import reshape


@dataclass(frozen=True, eq=False)
class Items:
    """A sequence: its values in order, and the element type they have"""

    values: tuple[Value, ...]
    dtype: DType

    @property
    def type(self) -> str:
        return f"a sequence of {len(self.values)} tensors of {self.dtype.value}"


class Absent:
    """An optional without a value"""

    type = "an optional without a value"


ABSENT = Absent()
Bundle = Items | Absent


class SequenceOp(OpDef):
    """Base: read while the model is, never a node."""

    bundles: ClassVar[bool] = True
    codes = True
    strings = "own"

    def items(self, n: Any, k: int = 0) -> Items:
        v = n.inputs[k]
        if not isinstance(v, Items):
            n.fail(f"input {k} is {getattr(v, 'type', 'absent')}, not a sequence")
        return v

    def place(self, n: Any, k: int, count: int, end: int) -> int:
        """The position that input k says, from the end where it is negative; without it, `end`"""
        if n.input(k) is None:
            return end
        at = int(n.const(k, "position").reshape(-1)[0])
        if not -count <= at < count:
            n.fail(f"the position {at} is outside of a sequence of {count} items")
        return at % count if count else 0


class SequenceEmpty(SequenceOp):
    name = "SequenceEmpty"

    def from_onnx(self, b: Any, n: Any) -> Sequence[Any]:
        return [Items((), n.dtype_attr("dtype", DType.F32))]


class SequenceConstruct(SequenceOp):
    name = "SequenceConstruct"

    def from_onnx(self, b: Any, n: Any) -> Sequence[Any]:
        return [Items(tuple(n.inputs), n.inputs[0].dtype)]


class SequenceInsert(SequenceOp):
    name = "SequenceInsert"

    def from_onnx(self, b: Any, n: Any) -> Sequence[Any]:
        s, v = self.items(n), n.inputs[1]
        if v.dtype is not s.dtype:
            n.fail(f"puts {v.type} into {s.type}")
        count = len(s.values)
        at = count if n.input(2) is None else int(n.const(2, "position").reshape(-1)[0])
        if not -count <= at <= count:
            n.fail(f"the position {at} is outside of a sequence of {count} items")
        at = at + count if at < 0 else at
        return [Items((*s.values[:at], v, *s.values[at:]), s.dtype)]


class SequenceErase(SequenceOp):
    name = "SequenceErase"

    def from_onnx(self, b: Any, n: Any) -> Sequence[Any]:
        s = self.items(n)
        if not s.values:
            n.fail("takes an item from a sequence without any")
        at = self.place(n, 1, len(s.values), len(s.values) - 1)
        return [Items((*s.values[:at], *s.values[at + 1 :]), s.dtype)]


class SequenceAt(SequenceOp):
    """An index that is data picks a row of all items, which then must have one type"""

    name = "SequenceAt"

    def from_onnx(self, b: Any, n: Any) -> Sequence[Any]:
        s, at = self.items(n), n.inputs[1]
        if at.const is None and s.values and len({v.type for v in s.values}) == 1:
            rows = [reshape(b, v, [1, *v.shape]) for v in s.values]
            return [b.one("Gather", concat(b, rows, 0), reshape(b, at, []), axis=0)]
        if not s.values:
            n.fail("reads an item of a sequence without any")
        return [s.values[self.place(n, 1, len(s.values), 0)]]


class SequenceLength(SequenceOp):
    name = "SequenceLength"

    def from_onnx(self, b: Any, n: Any) -> Sequence[Any]:
        return [b.const(len(self.items(n).values), DType.I64)]


class ConcatFromSequence(SequenceOp):
    name = "ConcatFromSequence"

    def from_onnx(self, b: Any, n: Any) -> Sequence[Any]:
        s, stacks = self.items(n), bool(n.attrs.get("new_axis", 0))
        if not s.values:
            n.fail("joins the items of a sequence without any")
        if s.dtype is DType.CHAR:
            n.unsupported("ConcatFromSequence of strings")
        if "axis" not in n.attrs:
            n.fail("the attribute `axis` is missing")
        axis = normalized_axes([int(n.attrs["axis"])], s.values[0].type.rank + stacks)[0]
        parts = [reshape(b, v, [*v.shape[:axis], 1, *v.shape[axis:]]) for v in s.values] if stacks else s.values
        return [concat(b, parts, axis)]


def concat(b: Any, parts: Sequence[Value], axis: int) -> Value:
    return parts[0] if len(parts) == 1 else b.emit("Concat", list(parts), {"axis": axis})[0]


class SplitToSequence(SequenceOp):
    """`split`: the size of all parts, or of each; without it parts have size 1, and keepdims 0 drops their axis"""

    name = "SplitToSequence"

    def from_onnx(self, b: Any, n: Any) -> Sequence[Any]:
        x = n.inputs[0]
        if x.dtype is DType.CHAR:
            n.unsupported("SplitToSequence of strings")
        axis = normalized_axes([int(n.attrs.get("axis", 0))], x.type.rank)[0]
        parts, start = [], 0
        for size in self.sizes(n, x.shape[axis]):
            cut = [(start, 1, size) if a == axis else (0, 1, d) for a, d in enumerate(x.shape)]
            part, start = slice_of(b, x, cut), start + size
            drops = n.input(1) is None and not n.attrs.get("keepdims", 1)
            parts.append(reshape(b, part, [d for a, d in enumerate(part.shape) if a != axis]) if drops else part)
        return [Items(tuple(parts), x.dtype)]

    def sizes(self, n: Any, whole: int) -> list[int]:
        if n.input(1) is None:
            return [1] * whole
        split = n.const(1, "split")
        if split.ndim == 0:
            if int(split) < 1:
                n.fail(f"splits into parts of size {int(split)}")
            return [min(int(split), whole - k) for k in range(0, whole, int(split))]
        sizes = [int(s) for s in split]
        if min(sizes, default=0) < 0 or sum(sizes) != whole:
            n.fail(f"splits an axis of size {whole} into {sizes}")
        return sizes


class OptionalOf(SequenceOp):
    """With an input, that; without one an optional of the type that its attribute says"""

    name = "Optional"

    def from_onnx(self, b: Any, n: Any) -> Sequence[Any]:
        return [ABSENT if n.input(0) is None else n.inputs[0]]


class OptionalHasElement(SequenceOp):
    name = "OptionalHasElement"

    def from_onnx(self, b: Any, n: Any) -> Sequence[Any]:
        return [b.const(not (n.input(0) is None or isinstance(n.inputs[0], Absent)), DType.BOOL)]


class OptionalGetElement(SequenceOp):
    name = "OptionalGetElement"

    def from_onnx(self, b: Any, n: Any) -> Sequence[Any]:
        if isinstance(n.inputs[0], Absent):
            n.fail("reads an optional without a value")
        return [n.inputs[0]]
