"""Operators that read and write at indices, sort, and count.

TFLite's indices do not count from the end; those of the run that are outside end the run with an error code. Results
whose size is data have the size that the file declares.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod

import numpy as np

from monobloc.frontend.tflite.node import Result, TflNode
from monobloc.ir.graph import Value
from monobloc.ir.types import DType
from monobloc.ops.build import cast_to
from monobloc.ops.indexing import gather_const, wrapped
from monobloc.ops.movement import pad, slice_of, transpose
from monobloc.ops.shape import reshape

F32, I32, I64 = DType.F32, DType.I32, DType.I64


def _indices(n: TflNode, i: int) -> Value:
    v = n.x(i)
    if v.dtype in (I32, I64):
        return v
    if not v.dtype.is_int:
        n.fail(f"has indices of {v.type}")
    return n.b.one("Cast", v, to=I32)


def _outside(at: np.ndarray, size: int) -> bool:
    return bool(((at < 0) | (at >= size)).any())


# -- reading ----------------------------------------------------------------------------------------
def gather(n: TflNode) -> Result:
    x, at = n.x(0), _indices(n, 1)
    batch, axis = n.axis(n.options.whole(1), at.type.rank + 1), n.axis(n.options.whole(0), x.type.rank)
    if batch > axis or at.shape[:batch] != x.shape[:batch]:
        n.fail(f"reads {x.type} along axis {axis} at {at.type} with {batch} batch axes")
    if at.const is not None and _outside(at.const.array, x.shape[axis]):
        n.fail(f"reads index {at.const.array.max()} of an axis of {x.shape[axis]}")
    if not batch:
        return [n.b.one("Gather", x, at, axis=axis) if at.const is None else gather_const(n.b, x, at.const.array, axis)]
    turned = transpose(n.b, x, [*range(batch), axis, *(k for k in range(batch, x.type.rank) if k != axis)])
    y = n.b.one("GatherND", turned, reshape(n.b, at, [*at.shape, 1]), batch_dims=batch)
    between, places = axis - batch, at.type.rank - batch
    order = [*range(batch), *range(batch + places, batch + places + between), *range(batch, batch + places)]
    return [transpose(n.b, y, [*order, *range(len(order), y.type.rank)])]


def gather_nd(n: TflNode) -> Result:
    return [n.b.one("GatherND", n.x(0), _indices(n, 1), batch_dims=0)]


def embedding(n: TflNode) -> Result:
    """Rows of a table by number; rows of integers become floats where the result is."""
    at, x = _indices(n, 0), n.x(1)
    if at.const is None:
        y = n.b.one("Gather", x, at, axis=0)
    else:
        y = gather_const(n.b, x, wrapped(at.const.array, x.shape[0], n.op), 0)
    if n.out_dtype() is y.dtype:
        return [y]
    scale = n.quant(n.tensor(1)).scale
    if n.out_dtype() is not F32 or y.dtype is not DType.I8:
        n.unsupported(f"EMBEDDING_LOOKUP of {y.dtype.value} to {n.out_dtype().value}")
    per: Value = n.b.const(scale[0], F32)
    if scale.size > 1:
        per = n.b.one("Gather", n.b.const(scale), at, axis=0)
        per = reshape(n.b, per, [*at.shape, *[1] * (y.type.rank - at.type.rank)])
    return [n.b.one("Mul", n.b.one("Cast", y, to=F32), per)]


def one_hot(n: TflNode) -> Result:
    """Indices outside of the depth, negative ones too, give a row of `off`."""
    at, depth = _indices(n, 0), n.ints(1, "the depth")[0]
    axis = n.axis(n.options.whole(0), at.type.rank + 1)
    if depth < 0:
        n.fail(f"has the depth {depth}")
    steps = n.b.const(np.arange(depth).reshape([-1] + [1] * (at.type.rank - axis)), at.dtype)
    hit = n.b.one("Equal", reshape(n.b, at, [*at.shape[:axis], 1, *at.shape[axis:]]), steps)
    return [n.b.one("Where", hit, *(reshape(n.b, n.x(k), []) for k in (2, 3)))]


def reverse(n: TflNode) -> Result:
    x = n.x(0)
    axes = {n.axis(a, x.type.rank) for a in n.ints(1, "the axes")}
    return [slice_of(n.b, x, [(d - 1, -1, d) if k in axes and d else (0, 1, d) for k, d in enumerate(x.shape)])]


def reverse_sequence(n: TflNode) -> Result:
    x, lens = n.x(0), _indices(n, 1)
    time, batch = (n.axis(n.options.whole(k), x.type.rank) for k in (0, 1))
    if time == batch or lens.shape != (x.shape[batch],):
        n.fail(f"turns {x.type} along axis {time} by lengths of {lens.type}")
    order = [batch, time, *(k for k in range(x.type.rank) if k not in (batch, time))]
    y = n.b.one("ReverseSequence", transpose(n.b, x, order), lens, time_axis=1, batch_axis=0)
    return [transpose(n.b, y, [order.index(k) for k in range(x.type.rank)])]


# -- order ------------------------------------------------------------------------------------------
def topk(n: TflNode) -> Result:
    x, k = n.x(0), n.ints(1, "how many")[0]
    if not x.type.rank or not 0 <= k <= x.shape[-1]:
        n.fail(f"takes {k} of {x.type}")
    values, at = n.b.emit("TopK", [x], {"axis": x.type.rank - 1, "k": k, "largest": 1}, outputs=2)
    return [values, n.b.one("Cast", at, to=n.out_dtype(1))]


def cumsum(n: TflNode) -> Result:
    x = n.x(0)
    attrs = {"axis": n.axis(n.ints(1, "the axis")[0], x.type.rank), "exclusive": int(n.options.flag(0)),
             "reverse": int(n.options.flag(1))}
    return [n.b.one("CumSum", x, **attrs)]


def bucketize(n: TflNode) -> Result:
    """How many boundaries an element reaches"""
    x, edges = n.x(0), n.options.array(0, "f4")
    if edges is None or (np.diff(edges) < 0).any():
        n.fail("has boundaries that do not rise")
    kind = x.dtype if x.dtype.is_float else F32
    wide = cast_to(n.b, x, kind)
    reached = n.b.one("GreaterOrEqual", reshape(n.b, wide, [*x.shape, 1]), n.b.const(edges, kind))
    counted = n.b.one("Cast", reached, to=I32)
    return [n.b.emit("ReduceSum", [counted], {"axes": [x.type.rank], "keepdims": 0})[0]]


def found(n: TflNode) -> Result:
    """WHERE of one input: the places of what is not zero"""
    if len(n.ins) != 1:
        n.unsupported(f"WHERE of {len(n.ins)} inputs")
    return [n.b.const(np.argwhere(n.const(0, "the condition")), n.out_dtype())]


def unique(n: TflNode) -> Result:
    x = n.const(0, "the elements").ravel()
    values, first, inverse = np.unique(x, return_index=True, return_inverse=True)
    order = np.argsort(first, kind="stable")
    return [n.b.const(values[order]), n.b.const(np.argsort(order, kind="stable")[inverse], n.out_dtype(1))]


# -- writing ----------------------------------------------------------------------------------------
def _filled(n: TflNode, shape: list[int], v: Value) -> Value:
    return n.b.one("Expand", reshape(n.b, v, []), shape=shape)


def _scattered(n: TflNode, x: Value, at: Value, updates: Value, reduction: str) -> Value:
    if x.dtype is DType.BOOL:
        wide = [n.b.one("Cast", v, to=I32) for v in (x, updates)]
        return n.b.one("Cast", n.b.one("ScatterND", wide[0], at, wide[1], reduction=reduction), to=DType.BOOL)
    return n.b.one("ScatterND", x, at, updates, reduction=reduction)


def scatter_nd(n: TflNode) -> Result:
    """Into zeros; what meets at a place is added."""
    at, updates, shape = _indices(n, 0), n.x(1), n.ints(2, "the shape")
    if at.const is not None and (at.const.array < 0).any():
        n.fail("writes at a negative index")
    return [_scattered(n, _filled(n, shape, n.b.const(0, updates.dtype)), at, updates, "add")]


def sparse_to_dense(n: TflNode) -> Result:
    at, shape, values = _indices(n, 0), n.ints(1, "the shape"), n.x(2)
    at = reshape(n.b, at, [at.type.size, 1] if at.type.rank < 2 else list(at.shape))
    if at.shape[1] != len(shape):
        n.fail(f"writes at {at.type} into the shape {shape}")
    if values.type.rank == 0:
        values = _filled(n, [at.shape[0]], values)
    return [_scattered(n, _filled(n, shape, n.x(3)), at, values, "none")]


def segments(op: str, reduction: str, start: Callable[[DType], float]) -> Callable[[TflNode], Result]:
    """Rows that have one number become one row. Rows with a negative number go to one that is cut off."""

    def read(n: TflNode) -> Result:
        x, at = n.x(0), _indices(n, 1)
        if x.shape[: at.type.rank] != at.shape:
            n.fail(f"gives {x.type} the segments {at.type}")
        count = n.ints(2, "the number of segments")[0] if op != "SEGMENT_SUM" else _rows(n, at)
        if count < 0:
            n.fail(f"makes {count} segments")
        inner = list(x.shape[at.type.rank :])
        rows = reshape(n.b, x, [at.type.size, *inner])
        at = n.b.one("Where", n.b.one("Less", at, n.b.const(0, at.dtype)), n.b.const(count, at.dtype), at)
        base = _filled(n, [count + 1, *inner], n.b.const(start(x.dtype), x.dtype))
        y = n.b.one("ScatterND", base, reshape(n.b, at, [at.type.size, 1]), rows, reduction=reduction)
        return [slice_of(n.b, y, [(0, 1, count), *((0, 1, d) for d in inner)])]

    return read


def _rows(n: TflNode, at: Value) -> int:
    if at.const is not None:
        return int(at.const.array.max(initial=-1)) + 1
    return n.outs[0].shape[0]


def _lowest(d: DType) -> float:
    return float(np.finfo(d.numpy).min) if d.is_float else int(np.iinfo(d.numpy).min)


def _highest(d: DType) -> float:
    return float(np.finfo(d.numpy).max) if d.is_float else int(np.iinfo(d.numpy).max)


def update_slice(n: TflNode) -> Result:
    """A tensor with a smaller one written into it; a start too near to the end is moved."""
    x, update, at = n.x(0), n.x(1), _indices(n, 2)
    if update.type.rank != x.type.rank or at.shape != (x.type.rank,):
        n.fail(f"writes {update.type} into {x.type} at {at.type}")
    return [n.b.one("UpdateSlice", x, update, at)]


# -- diagonals --------------------------------------------------------------------------------------
def matrix_diag(n: TflNode) -> Result:
    x = n.x(0)
    return [_with_diagonal(n, n.b.const(0, x.dtype), x, x.shape[-1], x.shape[-1])]


def matrix_set_diag(n: TflNode) -> Result:
    x, d = n.x(0), n.x(1)
    if x.type.rank < 2 or d.shape != (*x.shape[:-2], min(x.shape[-2:])):
        n.fail(f"writes the diagonal {d.type} into {x.type}")
    more = x.shape[-1] - d.shape[-1]
    d = pad(n.b, d, [0] * d.type.rank, [*[0] * (d.type.rank - 1), more], "constant", None) if more else d
    return [_with_diagonal(n, x, d, *x.shape[-2:])]


def _with_diagonal(n: TflNode, x: Value, d: Value, rows: int, columns: int) -> Value:
    eye = n.b.one("Equal", *(n.b.const(np.arange(k).reshape(s)) for k, s in ((rows, (-1, 1)), (columns, (1, -1)))))
    return n.b.one("Where", eye, reshape(n.b, d, [*d.shape[:-1], 1, d.shape[-1]]), x)


# -- shapes -----------------------------------------------------------------------------------------
def counted(n: TflNode) -> Result:
    """RANGE"""
    start, limit, step = (np.asarray(n.const(k, what)).ravel()[0] for k, what in
                          ((0, "the start"), (1, "the limit"), (2, "the step")))
    if not step or not np.isfinite([start, limit, step]).all() or abs(limit - start) / abs(step) > 1 << 30:
        n.fail(f"counts from {start} to {limit} by {step}")
    kind = np.float64 if n.out_dtype().is_float else np.int64
    size = max(int(np.ceil((kind(limit) - kind(start)) / kind(step))), 0)
    return [n.b.const(start + np.arange(size) * step, n.out_dtype())]


def rank_of(n: TflNode) -> Result:
    return [n.b.const(n._held(0).made.type.rank, n.out_dtype())]


def zeros_like(n: TflNode) -> Result:
    x = n.x(0)
    return [_filled(n, list(x.shape), n.b.const(0, x.dtype))]


def broadcast_args(n: TflNode) -> Result:
    a, b = (tuple(n.ints(k, "a shape")) for k in (0, 1))
    try:
        return [n.b.const(list(np.broadcast_shapes(a, b)), n.out_dtype())]
    except ValueError:
        n.fail(f"has shapes {list(a)} and {list(b)} that do not broadcast")


def bitcast(n: TflNode) -> Result:
    """The same bytes as another type; a smaller one has one more axis, a larger one less."""
    x, to = n.x(0), n.out_dtype()
    if prod(x.shape) * x.dtype.size != prod(n.outs[0].shape) * to.size or x.dtype.size != to.size:
        n.unsupported(f"BITCAST of {x.dtype.value} to {to.value}")
    return [x if x.dtype is to else n.b.one("BitCast", x, to=to)]


def dense(n: TflNode) -> Result:
    """DENSIFY: constants are read densely to begin with"""
    return [n.x(0)]


READERS = {
    "DENSIFY": dense, "GATHER": gather, "GATHER_ND": gather_nd, "EMBEDDING_LOOKUP": embedding, "ONE_HOT": one_hot,
    "REVERSE_V2": reverse,
    "REVERSE_SEQUENCE": reverse_sequence, "TOPK_V2": topk, "CUMSUM": cumsum, "BUCKETIZE": bucketize, "WHERE": found,
    "UNIQUE": unique, "SCATTER_ND": scatter_nd, "SPARSE_TO_DENSE": sparse_to_dense,
    "SEGMENT_SUM": segments("SEGMENT_SUM", "add", lambda _: 0),
    "UNSORTED_SEGMENT_SUM": segments("UNSORTED_SEGMENT_SUM", "add", lambda _: 0),
    "UNSORTED_SEGMENT_PROD": segments("UNSORTED_SEGMENT_PROD", "mul", lambda _: 1),
    "UNSORTED_SEGMENT_MAX": segments("UNSORTED_SEGMENT_MAX", "max", _lowest),
    "UNSORTED_SEGMENT_MIN": segments("UNSORTED_SEGMENT_MIN", "min", _highest),
    "DYNAMIC_UPDATE_SLICE": update_slice, "MATRIX_DIAG": matrix_diag, "MATRIX_SET_DIAG": matrix_set_diag,
    "RANGE": counted, "RANK": rank_of, "ZEROS_LIKE": zeros_like, "BROADCAST_ARGS": broadcast_args, "BITCAST": bitcast,
}  # fmt: skip
