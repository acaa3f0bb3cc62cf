"""Operators on tensors whose size data decide (`ops.sized.Ragged`).

Such a tensor has room for the most, and an operator is emitted on the room. That is right where what lies behind
the entries that are there cannot get among them: where the operator works entry by entry along that axis. `RULES`
says for which operators that is so, and which axis of the result it then is; every other operator is an error that
names it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from monobloc.errors import UnsupportedError
from monobloc.frontend.node import OnnxNode
from monobloc.ir.graph import Value
from monobloc.ir.types import DType
from monobloc.ops import OpDef
from monobloc.ops.build import Builder
from monobloc.ops.shape import axis_of
from monobloc.ops.sized import Ragged

Rule = Callable[[OnnxNode, int, Ragged], int | None]  # the axis of the result, by node, position and tensor


def on_ragged(b: Builder, op: OpDef | None, n: OnnxNode) -> Sequence[Value | Ragged | None]:
    """The outputs of a node some of whose inputs are of a size that data decide."""
    inputs: Sequence[Any] = n.inputs
    given = [(k, v) for k, v in enumerate(inputs) if isinstance(v, Ragged)]
    first = given[0][1]
    if any(v.dtype is DType.CHAR for _, v in given) and n.op != "Identity":
        raise _refused(n)
    if n.op == "Shape" and n.domain == "":
        return [_shape(b, n, first)]
    rule = _elementwise if op is not None and op.elementwise and n.domain == "" else RULES.get(n.op)
    if op is None or rule is None or n.domain or any(v.count is not first.count for _, v in given):
        raise _refused(n)
    axes = {rule(n, k, v) for k, v in given}
    if len(axes) > 1 or None in axes:
        raise _refused(n)
    (axis,) = axes
    assert axis is not None
    room = [_safe(b, n, k, v) if isinstance(v, Ragged) else v for k, v in enumerate(inputs)]
    made = op.from_onnx(b, replace(n, inputs=room))
    return [v if v is None else Ragged(v, first.count, axis) for v in made]


def _refused(n: OnnxNode) -> UnsupportedError:
    types = ", ".join(str(v.type) for v in n.inputs if v is not None)
    return UnsupportedError(f"{n.op} of {types}, whose size data decide, is not supported",
                            hints=["let it be an output: `--keep-output NAME` of what it reads"])


def _shape(b: Builder, n: OnnxNode, r: Ragged) -> Value:
    """Sizes, one of which is data"""
    parts = [b.one("Reshape", r.count, shape=[1]) if k == r.axis else b.ints([d]) for k, d in enumerate(r.value.shape)]
    start, end = n.attrs.get("start", 0), n.attrs.get("end", len(parts))
    kept = parts[slice(start, end)]
    return kept[0] if len(kept) == 1 else b.emit("Concat", kept, {"axis": 0})[0]


def _safe(b: Builder, n: OnnxNode, k: int, r: Ragged) -> Value:
    """Indices that are not there are zero: no run fails for them"""
    if n.op not in ("Gather", "GatherND", "GatherElements") or k != 1:
        return r.value
    places = np.arange(r.value.shape[r.axis]).reshape([-1 if a == r.axis else 1 for a in range(r.value.type.rank)])
    there = b.one("Less", b.const(places.astype(np.int64)), r.count)
    return b.one("Where", there, r.value, b.const(np.zeros((), r.dtype.numpy)))


# -- rules ---------------------------------------------------------------------------------------------
def _elementwise(n: OnnxNode, k: int, r: Ragged) -> int | None:
    """Others have one entry along the axis, or are of the same size."""
    ranks = [_value(v).type.rank for v in n.inputs if v is not None]
    axis = r.axis + max(ranks) - r.value.type.rank
    for v in n.inputs:
        if v is None or isinstance(v, Ragged):
            continue
        at = axis - max(ranks) + v.type.rank
        if at >= 0 and v.shape[at] != 1:
            return None
    return axis


def _value(v: Any) -> Value:
    return v.value if isinstance(v, Ragged) else v


def _transpose(n: OnnxNode, k: int, r: Ragged) -> int | None:
    perm = n.attrs.get("perm") or list(reversed(range(r.value.type.rank)))
    return list(perm).index(r.axis)


def _unsqueeze(n: OnnxNode, k: int, r: Ragged) -> int | None:
    if k:
        return None
    axes = n.ints("axes") if n.opset < 13 else n.ints(1)
    rank = r.value.type.rank + len(axes)
    new = {axis_of(a, rank, n.op) for a in axes}
    return [a for a in range(rank) if a not in new][r.axis]


def _squeeze(n: OnnxNode, k: int, r: Ragged) -> int | None:
    axes = n.ints("axes", None) if n.opset < 13 else n.ints(1, None)
    if k or axes is None:
        return None
    gone = {axis_of(a, r.value.type.rank, n.op) for a in axes}
    return None if r.axis in gone else r.axis - sum(a < r.axis for a in gone)


def _gather(n: OnnxNode, k: int, r: Ragged) -> int | None:
    """Picked from, along another axis; or the indices"""
    x, at = (_value(v) for v in n.inputs[:2])
    axis = axis_of(n.attrs.get("axis", 0), x.type.rank, n.op)
    if k == 1:
        return axis + r.axis if not isinstance(n.inputs[0], Ragged) else None
    if axis == r.axis or isinstance(n.inputs[1], Ragged):
        return None
    return r.axis if r.axis < axis else r.axis + at.type.rank - 1


def _gather_nd(n: OnnxNode, k: int, r: Ragged) -> int | None:
    whole = k == 1 and not isinstance(n.inputs[0], Ragged) and not n.attrs.get("batch_dims", 0)
    return r.axis if whole and r.axis < r.value.type.rank - 1 else None


def _slice(n: OnnxNode, k: int, r: Ragged) -> int | None:
    if k:
        return None
    old = n.opset < 10
    starts = n.ints("starts") if old else n.ints(1)
    axes = n.ints("axes", None) if old else n.ints(3, None)
    axes = range(len(starts)) if axes is None else axes
    return None if r.axis in {axis_of(a, r.value.type.rank, n.op) for a in axes} else r.axis


def _along_axis(default: int) -> Rule:
    """One axis is worked along, and stays."""
    def rule(n: OnnxNode, k: int, r: Ragged) -> int | None:
        if n.op in ("Softmax", "LogSoftmax") and n.opset < 13:
            return None
        axis = axis_of(n.attrs.get("axis", default), r.value.type.rank, n.op)
        return None if k or axis == r.axis else r.axis

    return rule


def _concat(n: OnnxNode, k: int, r: Ragged) -> int | None:
    axis = axis_of(n.attrs["axis"], r.value.type.rank, n.op)
    alike = all(isinstance(v, Ragged) and v.axis == r.axis for v in n.inputs)
    return r.axis if alike and axis != r.axis else None


def _reduce(n: OnnxNode, k: int, r: Ragged) -> int | None:
    by_input = n.op == "ReduceSum" and n.opset >= 13 or n.opset >= 18
    axes = n.ints(1, None) if by_input else n.ints("axes", None)
    if k or axes is None:
        return None
    gone = {axis_of(a, r.value.type.rank, n.op) for a in axes}
    if not gone or r.axis in gone:
        return None
    return r.axis if n.attrs.get("keepdims", 1) else r.axis - sum(a < r.axis for a in gone)


def _arg(n: OnnxNode, k: int, r: Ragged) -> int | None:
    axis = axis_of(n.attrs.get("axis", 0), r.value.type.rank, n.op)
    if axis == r.axis:
        return None
    return r.axis if n.attrs.get("keepdims", 1) or axis > r.axis else r.axis - 1


def _matmul(n: OnnxNode, k: int, r: Ragged) -> int | None:
    """Rows of the first matrix"""
    return r.axis if k == 0 and r.axis == r.value.type.rank - 2 and _value(n.inputs[1]).type.rank == 2 else None


RULES: dict[str, Rule] = {
    "Identity": _elementwise, "Transpose": _transpose, "Unsqueeze": _unsqueeze, "Squeeze": _squeeze,
    "Gather": _gather,
    "GatherND": _gather_nd, "Slice": _slice, "Concat": _concat, "ArgMax": _arg, "ArgMin": _arg, "MatMul": _matmul,
    "Softmax": _along_axis(-1), "LogSoftmax": _along_axis(-1),
    **{f"Reduce{f}": _reduce
       for f in ("Sum", "Mean", "Max", "Min", "Prod", "L1", "L2", "SumSquare", "LogSum", "LogSumExp")},
}  # fmt: skip
