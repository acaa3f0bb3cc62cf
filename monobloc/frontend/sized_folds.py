"""Operators that work along an axis whose size data decide.

What lies behind the entries that are there is given the value that changes nothing: 0 for a sum, the lowest for a
maximum. Positions that are data are checked against the size, not the room.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from monobloc.frontend.extents import Extents, Tensor
from monobloc.frontend.node import OnnxNode
from monobloc.ir.graph import Value
from monobloc.ir.types import DType
from monobloc.ops import OpDef
from monobloc.ops.einsum import parse
from monobloc.ops.movement import concat_axis
from monobloc.ops.shape import axes_of, axis_of
from monobloc.ops.sized import Ragged

Found = Sequence[Tensor | None] | None
Fold = Callable[[Extents, OpDef, OnnxNode], Found]


def lowest(d: DType) -> Any:
    return -np.inf if d.is_float else False if d is DType.BOOL else np.iinfo(d.numpy).min


def highest(d: DType) -> Any:
    return np.inf if d.is_float else True if d is DType.BOOL else np.iinfo(d.numpy).max


def _with(n: OnnxNode, *inputs: Any) -> OnnxNode:
    """The node with other first inputs"""
    return replace(n, inputs=[*inputs, *n.inputs[len(inputs) :]])


def _plain(n: OnnxNode, since: int = 1) -> bool:
    """Whether all inputs from one on have fixed sizes"""
    return not any(isinstance(v, Ragged) for v in n.inputs[since:])


# -- reductions ----------------------------------------------------------------------------------------
NEUTRAL: dict[str, Callable[[DType], Any]] = {
    **dict.fromkeys(("Sum", "Mean", "L1", "L2", "SumSquare", "LogSum"), lambda d: 0),
    "Prod": lambda d: 1, "Max": lowest, "Min": highest, "LogSumExp": lowest,
}


def _reduce(e: Extents, op: OpDef, n: OnnxNode) -> Found:
    x: Any = n.inputs[0]
    by_input = n.op == "ReduceSum" and n.opset >= 13 or n.opset >= 18
    axes = n.ints(1, None) if by_input else n.ints("axes", None)
    if not _plain(n):
        return None
    if not axes and n.attrs.get("noop_with_empty_axes", 0):
        return None
    rank = x.value.type.rank
    gone = sorted(axes_of(axes, rank, n.op)) if axes else list(range(rank))
    kind, hit, keep = n.op.removeprefix("Reduce"), [a for a in gone if a in x.counts], _keeps(n)
    made: Value | None
    if kind == "Mean" and hit:
        if not x.dtype.is_float:
            n.unsupported("the mean of integers along an axis whose size data decide")
        made = e.cast(mean(e, x, gone, keep), x.dtype)
    else:
        made = op.from_onnx(e.b, _with(n, e.masked(x, NEUTRAL[kind](x.dtype), hit)))[0]
    sizes = e.sizes(x)
    left = [e.const(1) if k in gone else s for k, s in enumerate(sizes) if keep or k not in gone]
    return [None if made is None else e.tensor(made, left)]


def _keeps(n: OnnxNode) -> bool:
    """As ONNX has it: any other number is no"""
    return bool(n.attrs.get("keepdims", 1) == 1)


def wide(x: Tensor) -> DType:
    """Of arithmetic on floats: single precision at least"""
    return DType.F64 if x.dtype is DType.F64 else DType.F32


def mean(e: Extents, x: Ragged, axes: Sequence[int], keep: bool = True) -> Value:
    """Of those that are there; wide, since a sum in single precision does not overflow"""
    total = e.b.one("ReduceSum", e.cast(e.masked(x, 0, axes), wide(x)), axes=list(axes), keepdims=int(keep))
    count = e.total([e.sizes(x)[a] for a in axes])
    return e.b.one("Div", total, e.b.one("Cast", count, to=wide(x)))


def _arg(e: Extents, op: OpDef, n: OnnxNode) -> Found:
    x: Any = n.inputs[0]
    axis = axis_of(n.attrs.get("axis", 0), x.value.type.rank, n.op)
    if axis in x.counts and n.attrs.get("select_last_index", 0):
        return None
    if axis in x.counts:  # of none there is no best
        x = Ragged(x.value, {**x.counts, axis: e.bounded(x.counts[axis], x.value.shape[axis], 1)})
    fill = (lowest if n.op == "ArgMax" else highest)(x.dtype)  # of equal ones the first is taken
    made = op.from_onnx(e.b, _with(n, e.masked(x, fill, [axis])))[0]
    left = [e.const(1) if k == axis else s for k, s in enumerate(e.sizes(x)) if _keeps(n) or k != axis]
    return [None if made is None else e.tensor(made, left)]


def _softmax(e: Extents, op: OpDef, n: OnnxNode) -> Found:
    x: Any = n.inputs[0]
    if n.opset < 13 and n.attrs.get("axis", 1) not in (-1, x.value.type.rank - 1):
        return None  # of a matrix, not along an axis
    axis = axis_of(n.attrs.get("axis", -1 if n.opset >= 13 else 1), x.value.type.rank, n.op)
    made = op.from_onnx(e.b, _with(n, e.masked(x, lowest(x.dtype), [axis])))[0]
    return [None if made is None else e.tensor(made, e.sizes(x))]


def _cumsum(e: Extents, op: OpDef, n: OnnxNode) -> Found:
    x: Any = n.inputs[0]
    if not _plain(n):
        return None
    made = op.from_onnx(e.b, _with(n, e.masked(x, 0)))[0]  # backwards it starts behind
    return [None if made is None else e.tensor(made, e.sizes(x))]


def _top_k(e: Extents, op: OpDef, n: OnnxNode) -> Found:
    x: Any = n.inputs[0]
    if n.opset < 10 or not _plain(n):
        return None
    axis = axis_of(n.attrs.get("axis", -1), x.value.type.rank, n.op)
    largest, sizes = n.attrs.get("largest", 1), e.sizes(x)
    room = x.value.shape[axis]
    count = e.bounded(e.scalar(_known(n, 1)), room, 0, sizes[axis])
    most = int(min(e.most(count), room))
    fill = lowest(x.dtype) if largest else np.nan if x.dtype.is_float else highest(x.dtype)
    attrs = {"axis": axis, "k": most, "largest": largest}
    found = e.b.emit("TopK", [e.masked(x, fill, [axis])], attrs, outputs=2)
    sizes[axis] = count
    return [e.tensor(v, sizes) for v in found]


def _known(n: OnnxNode, k: int) -> Value:
    v = n.inputs[k]
    assert v is not None
    return v


def _nonzero(e: Extents, op: OpDef, n: OnnxNode) -> Found:
    x: Any = n.inputs[0]
    return op.from_onnx(e.b, _with(n, e.masked(x, False if x.dtype is DType.BOOL else 0)))


def _by_range(e: Extents, op: OpDef, n: OnnxNode) -> Found:
    """DynamicQuantizeLinear: the range has 0 in it anyhow"""
    x: Any = n.inputs[0]
    made = op.from_onnx(e.b, _with(n, e.masked(x, 0)))
    return [e.tensor(v, e.sizes(x)) if v is not None and not k else v for k, v in enumerate(made)]


# -- joined and picked ---------------------------------------------------------------------------------
def _concat(e: Extents, op: OpDef, n: OnnxNode) -> Found:
    parts: Sequence[Any] = n.inputs
    axis = concat_axis(n, e.value(parts[0]).type.rank)
    values, common = _alike(e, parts, axis)
    out, size = values[0], e.sizes(parts[0])[axis]
    for part, v in zip(parts[1:], values[1:], strict=True):
        more = e.sizes(part)[axis]
        out = _joined(e, axis, out, size, v)
        size = e.limits.size(e.add(size, more), out.shape[axis])
    common[axis] = size
    return [e.tensor(out, common)]


def _joined(e: Extents, axis: int, a: Value, size: Value, z: Value) -> Value:
    """The second behind as much of the first as there is"""
    if size.const is not None:
        return e.b.emit("Concat", [e.fit(a, axis, e.known(size) or 0), z], {"axis": axis})[0]
    room, rank = a.shape[axis] + z.shape[axis], a.type.rank
    moved = e.picked(z, axis, e.sub(e.iota(room), size))
    first = e.b.one("Less", e.iota(room, axis, rank), size)
    return e.b.one("Where", first, e.fit(a, axis, room), moved)


def _alike(e: Extents, parts: Sequence[Tensor], axis: int) -> tuple[list[Value], list[Value]]:
    """Tensors of the same rooms along all axes but one, and their sizes there"""
    values, sizes = [e.value(p) for p in parts], [e.sizes(p) for p in parts]
    common = list(sizes[0])
    for k in range(len(common)):
        if k == axis:
            continue
        differ = [s[k] for s in sizes if not e.same(s[k], common[k])]
        if differ:  # the same in every run that goes on
            same = e.b.one("SameSize", *(s[k] for s in sizes))
            fixed = next((s[k] for s in sizes if s[k].const is not None), None)
            if fixed is not None:
                values[0] = e.after(values[0], same, e.known(fixed) or 0)
            common[k] = fixed or e.limits.size(same, min(v.shape[k] for v in values))
        room = min(v.shape[k] for v in values)
        values = [e.fit(v, k, room) for v in values]
    return values, common


def _gather(e: Extents, op: OpDef, n: OnnxNode) -> Found:
    x, at = (v for v in n.inputs[:2])
    vx = e.value(_some(x))
    axis = axis_of(n.attrs.get("axis", 0), vx.type.rank, n.op)
    sizes = e.sizes(_some(x))
    index = e.value(_some(at))
    if sizes[axis].const is None:
        index = _within(e, index, sizes[axis], e.const(vx.shape[axis]))
    if isinstance(at, Ragged):  # indices that are not there are zero: no run fails for them, even of an empty tensor
        index = e.masked(Ragged(index, at.counts), 0)
    made = op.from_onnx(e.b, _with(n, vx, index))[0]
    return [None if made is None else e.tensor(made, [*sizes[:axis], *e.sizes(_some(at)), *sizes[axis + 1 :]])]


def _gather_elements(e: Extents, op: OpDef, n: OnnxNode) -> Found:
    """Along an axis; of the others, index and tensor have as many"""
    x, at = (_some(v) for v in n.inputs)
    axis = axis_of(n.attrs.get("axis", 0), e.value(x).type.rank, n.op)
    sizes, index = e.sizes(x), e.value(at)
    if any(s.const is None and k != axis and not e.same(s, o) for k, (s, o) in enumerate(
            zip(sizes, e.sizes(at), strict=True))):
        return None
    if sizes[axis].const is None:
        index = _within(e, index, sizes[axis], e.const(e.value(x).shape[axis]))
    if isinstance(at, Ragged):
        index = e.masked(Ragged(index, at.counts), 0)
    made = op.from_onnx(e.b, _with(n, e.value(x), index))[0]
    return [None if made is None else e.tensor(made, e.sizes(at))]


def _gather_nd(e: Extents, op: OpDef, n: OnnxNode) -> Found:
    """By tuples of indices, each of its own axis"""
    x, at = (_some(v) for v in n.inputs)
    sizes, counted, index = e.sizes(x), e.sizes(at), e.value(at)
    width = e.known(counted[-1]) if counted else None
    if width is None or n.attrs.get("batch_dims", 0) or width > len(sizes):
        return None
    if any(s.const is None for s in sizes[:width]):
        size, room = (e.b.one("Concat", *(e.b.one("Reshape", v, shape=[1]) for v in values), axis=0) for values in (
            sizes[:width], [e.const(d) for d in e.value(x).shape[:width]]))
        index = _within(e, index, size, room)
    if isinstance(at, Ragged):
        index = e.masked(Ragged(index, at.counts), 0)
    made = op.from_onnx(e.b, _with(n, e.value(x), index))[0]
    return [None if made is None else e.tensor(made, [*counted[:-1], *sizes[width:]])]


def _some(v: Any) -> Tensor:
    assert isinstance(v, (Value, Ragged))
    return v


def _within(e: Extents, at: Value, size: Value, room: Value) -> Value:
    """Indices counted from the front; those outside of the size are outside of the room, too: they end the run"""
    from_behind = at.const is None or bool((at.const.array < 0).any())
    at = e.size(at)
    if from_behind:
        at = e.b.one("Where", e.b.one("Less", at, e.const(0)), e.b.one("Add", at, size), at)
    inside = e.b.one("And", e.b.one("Less", at, size), e.b.one("GreaterOrEqual", at, e.const(0)))
    return e.b.one("Where", inside, at, room)


# -- products ------------------------------------------------------------------------------------------
def _matmul(e: Extents, op: OpDef, n: OnnxNode) -> Found:
    a, z = (_some(v) for v in n.inputs)
    sa, sz = e.sizes(a), e.sizes(z)
    if len(sa) < 2 or len(sz) < 2:
        return None
    va, vz = e.value(a), e.value(z)
    inner = [sa[-1], sz[-2]]
    if any(s.const is None for s in inner):
        room = min(va.shape[-1], vz.shape[-2])
        size = inner[0] if e.same(*inner) else e.limits.size(e.b.one("SameSize", *inner), room)
        va = e.masked(e.tensor(e.fit(va, len(sa) - 1, room), {len(sa) - 1: size}), 0)
        vz = e.masked(e.tensor(e.fit(vz, len(sz) - 2, room), {len(sz) - 2: size}), 0)
        va, vz = e.fit(va, len(sa) - 1, room), e.fit(vz, len(sz) - 2, room)
    common = []
    for k in range(-max(len(sa), len(sz)), -2):  # batches
        sizes = [s[k] for s, v in ((sa, va), (sz, vz)) if -k <= len(s) and v.shape[k] != 1]
        rooms = {v.shape[k] for v in (va, vz) if -k <= v.type.rank} - {1}
        if len(rooms) > 1 or any(not e.same(s, sizes[0]) for s in sizes):
            return None
        common.append(sizes[0] if sizes else e.const(1))
    made = op.from_onnx(e.b, _with(n, va, vz))[0]
    return [None if made is None else e.tensor(made, [*common, sa[-2], sz[-1]])]


def _einsum(e: Extents, op: OpDef, n: OnnxNode) -> Found:
    """Every letter is one size; operands are zero behind the entries of those that are summed"""
    xs = [_some(v) for v in n.inputs]
    equation = parse(n.attrs["equation"], [e.value(x).type.rank for x in xs])
    values, sizes = [e.value(x) for x in xs], {}
    for letter in dict.fromkeys("".join(equation.terms)):
        places = [(k, a) for k, term in enumerate(equation.terms) for a, c in enumerate(term) if c == letter]
        found = [e.sizes(xs[k])[a] for k, a in places]
        sizes[letter] = found[0]
        if all(s.const is not None for s in found):
            continue
        room = min(values[k].shape[a] for k, a in places)
        for other in found[1:]:
            if not e.same(sizes[letter], other):
                sizes[letter] = e.limits.size(e.b.one("SameSize", sizes[letter], other), room)
        for k, a in places:
            values[k] = e.fit(values[k], a, room)
            if letter not in equation.out:
                values[k] = e.masked(Ragged(values[k], {a: sizes[letter]}), 0)
    made = op.from_onnx(e.b, _with(n, *values))[0]
    return [None if made is None else e.tensor(made, [sizes[c] for c in equation.out])]


def _gemm(e: Extents, op: OpDef, n: OnnxNode) -> Found:
    """Rows of the first matrix, where what is added is the same for all"""
    x: Any = n.inputs[0]
    rows = 1 if n.attrs.get("transA", 0) else 0
    if not isinstance(x, Ragged) or not _plain(n) or set(x.counts) != {rows}:
        return None
    c = n.input(2)
    if c is not None and c.type.rank == 2 and c.shape[0] != 1:
        return None
    made = op.from_onnx(e.b, _with(n, x.value))[0]
    return [None if made is None else e.tensor(made, {0: x.counts[rows]})]


# -- axes of one entry ---------------------------------------------------------------------------------
def _squeeze(e: Extents, op: OpDef, n: OnnxNode) -> Found:
    x: Any = n.inputs[0]
    axes = n.ints("axes", None) if n.opset < 13 else n.ints(1, None)
    if axes is None or not _plain(n):
        return None
    gone, v, sizes = set(axes_of(axes, x.value.type.rank, n.op)), x.value, e.sizes(x)
    for a in gone & set(x.counts):
        v = e.after(e.fit(v, a, 1), e.bounded(sizes[a], 1, 1), 1)
        sizes[a] = e.const(1)
    made = op.from_onnx(e.b, _with(n, v))[0]
    return [None if made is None else e.tensor(made, [s for k, s in enumerate(sizes) if k not in gone])]


FOLDS: dict[str, Fold] = {
    **{f"Reduce{kind}": _reduce for kind in NEUTRAL}, "ArgMax": _arg, "ArgMin": _arg,
    "Softmax": _softmax, "LogSoftmax": _softmax, "CumSum": _cumsum, "TopK": _top_k, "NonZero": _nonzero,
    "DynamicQuantizeLinear": _by_range,
    "Concat": _concat, "Gather": _gather, "GatherElements": _gather_elements,
    "GatherND": _gather_nd,
    "MatMul": _matmul, "Gemm": _gemm, "Einsum": _einsum, "Squeeze": _squeeze,
}
