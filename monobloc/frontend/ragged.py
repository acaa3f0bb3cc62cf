"""Operators on tensors whose size data decide (`ops.sized.Ragged`).

Such a tensor has room for the most, and an operator is emitted on the room. That is right where what lies behind
the entries that are there cannot get among them: where the operator works entry by entry along that axis. `RULES`
says for which operators that is so, and which axis of the result it then is. `sized_folds` masks what lies behind for
operators that work along the axis, `sized_shapes` is those that decide sizes themselves. Every other operator is an
error that names it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from monobloc.errors import UnsupportedError
from monobloc.frontend.extents import Extents, Tensor, value_of
from monobloc.frontend.limits import Limits
from monobloc.frontend.node import OnnxNode, graph_inputs_behind
from monobloc.frontend.sized_choice import CHOICES
from monobloc.frontend.sized_folds import FOLDS
from monobloc.frontend.sized_norms import NORMS
from monobloc.frontend.sized_regions import REGIONS
from monobloc.frontend.sized_scatter import SCATTERS
from monobloc.frontend.sized_shapes import broadcast, sized_shape
from monobloc.frontend.sized_windows import WINDOWS
from monobloc.ir.graph import Value
from monobloc.ir.types import DType
from monobloc.ops import OpDef
from monobloc.ops.build import Builder
from monobloc.ops.shape import axis_of
from monobloc.ops.sized import Ragged

# The axis of the result, by node, position, room and axis
Rule = Callable[[OnnxNode, int, Value, int], int | None]
NO_AXIS = -1
ALONG = {**FOLDS, **WINDOWS, **NORMS, **REGIONS, **SCATTERS, **CHOICES}


def on_ragged(b: Builder, op: OpDef | None, n: OnnxNode, limits: Limits) -> Sequence[Tensor | None]:
    """The outputs of a node some of whose inputs are of a size that data decide."""
    inputs: Sequence[Any] = n.inputs
    given = [(k, v) for k, v in enumerate(inputs) if isinstance(v, Ragged)]
    if any(v.dtype is DType.CHAR for _, v in given) and n.op != "Identity":
        raise _refused(n)
    e = Extents(b, n, limits)
    if n.op in ("Shape", "Size") and n.domain == "":
        return [_shape(e, n, given[0][1])]
    if op is None or n.domain:
        raise _refused(n)
    found = sized_shape(b, n, limits)
    if found is None and op.elementwise and n.op not in RULES:
        found = _elementwise(e, op, n)
    along = ALONG.get(n.op)
    if found is None and along is not None:
        found = along(e, op, n)
    if found is None and n.op in RULES:
        found = _entrywise(e, op, n, given)
    if found is None:
        raise _refused(n)
    return found


def _refused(n: OnnxNode) -> UnsupportedError:
    types = ", ".join(str(v.type) for v in n.inputs if v is not None)
    given: Sequence[Any] = n.inputs
    behind = dict.fromkeys(s for v in given if isinstance(v, Ragged) for c in v.counts.values()
                           for s in graph_inputs_behind(c))
    binds = [f"or fix what decides it: `{' '.join(f'--bind {s}=...' for s in behind)}`"] if behind else []
    return UnsupportedError(f"{n.op} of {types}, whose size data decide, is not supported",
                            hints=["let it be an output: `--keep-output NAME` of what it reads", *binds])


def _shape(e: Extents, n: OnnxNode, r: Ragged) -> Value:
    """Sizes, some of which are data"""
    parts = [e.b.one("Reshape", s, shape=[1]) if s.const is None else e.b.ints([e.known(s) or 0]) for s in e.sizes(r)]
    if n.op == "Size":
        return e.total(e.sizes(r))
    kept = parts[slice(n.attrs.get("start", 0), n.attrs.get("end", len(parts)))]
    return kept[0] if len(kept) == 1 else e.b.emit("Concat", kept, {"axis": 0})[0] if kept else e.b.ints([])


def _elementwise(e: Extents, op: OpDef, n: OnnxNode) -> list[Tensor | None]:
    """In the room of what the inputs broadcast to"""
    inputs: Sequence[Any] = n.inputs
    values, sizes = broadcast(e, [v for v in inputs if v is not None])
    rest = iter(values)
    made = op.from_onnx(e.b, replace(n, inputs=[None if v is None else next(rest) for v in inputs]))
    return [v if v is None else e.tensor(v, sizes) for v in made]


def _entrywise(e: Extents, op: OpDef, n: OnnxNode, given: Sequence[tuple[int, Ragged]]) -> list[Tensor | None] | None:
    """What lies behind stays behind."""
    counts: dict[int, Value] = {}
    for k, r in given:
        for axis, count in r.counts.items():
            to = RULES[n.op](n, k, r.value, axis)
            if to == NO_AXIS:
                continue
            if to is None or to in counts and not e.same(counts[to], count):
                return None
            counts[to] = count
    made = op.from_onnx(e.b, replace(n, inputs=[None if v is None else value_of(v) for v in n.inputs]))
    return [v if v is None else e.tensor(v, counts) for v in made]


# -- rules ---------------------------------------------------------------------------------------------
def _transpose(n: OnnxNode, k: int, v: Value, axis: int) -> int | None:
    perm = n.attrs.get("perm") or list(reversed(range(v.type.rank)))
    return list(perm).index(axis)


def _unsqueeze(n: OnnxNode, k: int, v: Value, axis: int) -> int | None:
    if k:
        return None
    axes = n.ints("axes") if n.opset < 13 else n.ints(1)
    rank = v.type.rank + len(axes)
    new = {axis_of(a, rank, n.op) for a in axes}
    return [a for a in range(rank) if a not in new][axis]


def _same(n: OnnxNode, k: int, v: Value, axis: int) -> int | None:
    return axis if k == 0 else None


def _cast_like(n: OnnxNode, k: int, v: Value, axis: int) -> int | None:
    """Of the second input only the type is asked for."""
    return axis if k == 0 else NO_AXIS


def _batch(n: OnnxNode, k: int, v: Value, axis: int) -> int | None:
    """Each entry along the first axis is worked on for itself."""
    return 0 if k == 0 and axis == 0 and v.type.rank > 2 else None


def _per_channel(n: OnnxNode, k: int, v: Value, axis: int) -> int | None:
    return axis if k == 0 and axis != 1 and n.n_outputs == 1 else None


def _scaled(n: OnnxNode, k: int, v: Value, axis: int) -> int | None:
    """By one scale, or by those of another axis"""
    scale = n.inputs[1]
    if k or scale is None or n.attrs.get("block_size", 0):
        return None
    channels = axis_of(n.attrs.get("axis", 1), v.type.rank, n.op) if scale.type.size > 1 else NO_AXIS
    return axis if axis != channels else None


def _rows(weights: int) -> Rule:
    """Of a product with a matrix whose input is at this place, by one zero point"""
    def rule(n: OnnxNode, k: int, v: Value, axis: int) -> int | None:
        w, given = n.inputs[weights], [*n.inputs, None, None, None]
        one = [given[p] for p in ((2,) if n.op == "MatMulInteger" else (1, 2))]
        fixed = w is not None and w.type.rank == 2 and all(p is None or p.type.size == 1 for p in one)
        return axis if k == 0 and fixed and axis < v.type.rank - 1 else None

    return rule


def _last_axes(default: int) -> Rule:
    """Entries of the axes before one are worked on for themselves."""
    def rule(n: OnnxNode, k: int, v: Value, axis: int) -> int | None:
        first = axis_of(n.attrs.get("axis", default), v.type.rank, n.op)
        return axis if k == 0 and axis < first and n.n_outputs == 1 else None

    return rule


RULES: dict[str, Rule] = {
    "Identity": _same, "CastLike": _cast_like, "Trilu": _same, "Transpose": _transpose,
    "Unsqueeze": _unsqueeze,
    "Dropout": lambda n, k, v, axis: axis if k == 0 and n.n_outputs == 1 else None,
    "LayerNormalization": _last_axes(-1), "RMSNormalization": _last_axes(-1),
    "QuantizeLinear": _scaled, "DequantizeLinear": _scaled, "MatMulInteger": _rows(1), "QLinearMatMul": _rows(3),
    "BatchNormalization": _per_channel, "LRN": _per_channel, "RandomNormalLike": _same, "RandomUniformLike": _same,
    **dict.fromkeys(("InstanceNormalization", "GroupNormalization", "DepthToSpace", "SpaceToDepth"), _batch),
}
