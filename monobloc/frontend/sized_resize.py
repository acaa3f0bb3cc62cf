"""Resize by sizes or factors that are data, or of a tensor whose size is.

The tables that say which entries an entry comes from (`ops/resize.py`) are made while a model is read. Where a run
decides sizes, the run computes what they would hold, axis by axis: a position for `nearest`, two and a weight for
`linear`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from monobloc.frontend.extents import Extents, Tensor
from monobloc.frontend.node import OnnxNode
from monobloc.ir.graph import Value
from monobloc.ir.types import DType
from monobloc.ops.shape import axes_of, reshape

COORDINATES = ("half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric")
ROUNDED = {"floor": ("Floor", 0.0), "ceil": ("Ceil", 0.0), "round_prefer_floor": ("Ceil", -0.5),
           "round_prefer_ceil": ("Floor", 0.5)}


def resize(e: Extents, n: OnnxNode) -> Sequence[Tensor | None] | None:
    x: Any = n.inputs[0]
    mode, where = n.attrs.get("mode", "nearest"), n.attrs.get("coordinate_transformation_mode", "half_pixel")
    plain = not n.attrs.get("antialias", 0) and n.attrs.get("keep_aspect_ratio_policy", "stretch") == "stretch"
    if n.opset < 11 or mode not in ("nearest", "linear") or where not in COORDINATES or not plain:
        return None
    rank = e.value(x).type.rank
    axes = axes_of(n.attrs["axes"], rank, "Resize") if "axes" in n.attrs else list(range(rank))
    factors, sizes = _listed(n, 2), _listed(n, 3)
    given = sizes if sizes is not None else factors
    if given is None or given.type.size != len(axes):
        n.fail(f"needs factors or sizes of {len(axes)} axes")
    for k, axis in enumerate(axes):
        x = _along(e, n, x, axis, e.element(given, k), sizes is not None)
    return [x]


def _listed(n: OnnxNode, k: int) -> Value | None:
    v = n.input(k)
    return v if isinstance(v, Value) and v.type.size else None


def _along(e: Extents, n: OnnxNode, x: Tensor, axis: int, given: Value, is_size: bool) -> Tensor:
    """One axis"""
    size, v = e.sizes(x)[axis], e.value(x)
    if given.const is not None and (e.same(e.size(given), size) if is_size else given.const.array.ravel()[0] == 1):
        return x
    have = e.one("Cast", size, to=DType.F32)
    out = e.size(given) if is_size else e.one("Cast", e.one("Floor", e.one("Mul", have, given)), to=DType.I64)
    count = e.bounded(out, e.room(out, given))
    factor = e.one("Div", e.one("Cast", count, to=DType.F32), have) if is_size else given
    room = e.room(count)
    at = _coordinates(e, n.attrs.get("coordinate_transformation_mode", "half_pixel"), room, size, count, factor)
    last = e.sub(size, e.const(1))
    if n.attrs.get("mode", "nearest") == "nearest":
        y = e.picked(v, axis, e.min(_nearest(e, n, at), last))
    else:
        y = _between(e, v, axis, at, last)
    return e.tensor(y, {**dict(enumerate(e.sizes(x))), axis: count})


def _float(e: Extents, x: float) -> Value:
    return e.b.const(np.float32(x))


def _coordinates(e: Extents, mode: str, room: int, size: Value, count: Value, factor: Value) -> Value:
    """Where entries lie on the input's axis, in single precision, where runtimes decide what a tie is"""
    i = e.one("Cast", e.iota(room), to=DType.F32)
    if mode == "asymmetric":
        return e.one("Div", i, factor)
    if mode == "align_corners":
        ends = [e.one("Cast", e.sub(s, e.const(1)), to=DType.F32) for s in (size, count)]
        return e.one("Div", e.one("Mul", i, ends[0]), e.one("Max", ends[1], _float(e, 1)))
    centre = e.one("Sub", e.one("Div", e.one("Add", i, _float(e, 0.5)), factor), _float(e, 0.5))
    if mode == "half_pixel":
        return centre
    return e.one("Where", e.one("Equal", count, e.const(1)), _float(e, 0), centre)


def _nearest(e: Extents, n: OnnxNode, at: Value) -> Value:
    op, moved = ROUNDED[n.attrs.get("nearest_mode", "round_prefer_floor")]
    return e.one("Cast", e.one(op, e.one("Add", at, _float(e, moved)) if moved else at), to=DType.I64)


def _between(e: Extents, v: Value, axis: int, at: Value, last: Value) -> Value:
    """Of two neighbours by distance, in single precision at least"""
    work = DType.F64 if v.dtype is DType.F64 else DType.F32
    low = e.one("Floor", at)
    left = e.one("Cast", low, to=DType.I64)
    shape = [at.shape[0] if k == axis else 1 for k in range(v.type.rank)]
    weight = reshape(e.b, e.one("Cast", e.one("Sub", at, low), to=work), shape)
    parts = [e.picked(v, axis, e.min(p, last)) for p in (left, e.one("Add", left, e.const(1)))]
    a, z = (e.cast(p, work) for p in parts)
    one = e.b.const(np.ones((), work.numpy))
    y = e.one("Add", e.one("Mul", a, e.one("Sub", one, weight)), e.one("Mul", z, weight))
    return e.cast(y, v.dtype)
