"""Operators that read and write at indices that are data."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from monobloc.frontend.sized_folds import highest, lowest
from monobloc.frontend.torch.node import AtenNode, Reader, Results
from monobloc.frontend.torch.sized import SCATTER_KINDS, ragged_rows
from monobloc.frontend.torch.sized import index as sized_index
from monobloc.frontend.torch.sized import index_put as sized_index_put
from monobloc.ir.graph import Value
from monobloc.ir.types import DType
from monobloc.ops.elementwise import broadcast_shapes

BOOL, I64 = DType.BOOL, DType.I64


def whole(n: AtenNode, v: Value) -> Value:
    """Indices as int64"""
    return v if v.dtype in (DType.I32, I64) else n.cast(v, I64)


# -- reading ------------------------------------------------------------------------------------------
def embedding(n: AtenNode) -> Results:
    return n.onnx("Gather", n.x("weight"), whole(n, n.x("indices")), axis=0)[0]


def index_select(n: AtenNode) -> Results:
    x, at = n.x(), whole(n, n.x("index"))
    if not x.type.rank:
        return x
    return n.onnx("Gather", x, n.reshape(at, [at.type.size]), axis=n.axis())[0]


def gather(n: AtenNode) -> Results:
    x, at = n.x(), whole(n, n.x("index"))
    if not x.type.rank:
        return n.expand(x, at.shape)
    return n.onnx("GatherElements", x, at, axis=n.axis())[0]


def take(n: AtenNode) -> Results:
    return n.onnx("Gather", n.reshape(n.x(), [-1]), whole(n, n.x("index")), axis=0)[0]


def advanced(n: AtenNode, x: Value) -> tuple[list[int], list[Value]]:
    """x[indices]: the axes that are indexed and their indices. Masks that are constant become indices."""
    axes: list[int] = []
    found: list[Value] = []
    axis = 0
    for v in n["indices"]:
        if v is None:
            axis += 1
        elif v.dtype in (BOOL, DType.U8):
            if v.const is None:
                n.unsupported("indexing by a mask that is data, whose result has no fixed size,",
                              hints=["write it with `torch.where`"])
            for at in np.nonzero(v.const.array):
                axes.append(axis)
                found.append(n.b.ints(at.tolist()))
                axis += 1
        else:
            axes.append(axis)
            found.append(whole(n, v))
            axis += 1
    return axes, found


def as_tuples(n: AtenNode, found: Sequence[Value]) -> Value:
    """Indices of several axes, broadcast, as tuples in a last axis"""
    shape = list(broadcast_shapes(*[v.shape for v in found]))
    wide = [n.reshape(n.expand(n.cast(v, I64), shape), [*shape, 1]) for v in found]
    return n.b.emit("Concat", wide, {"axis": len(shape)})[0] if len(wide) > 1 else wide[0]


def index(n: AtenNode) -> Results:
    x, given = n.x(), n["indices"]
    some = [v for v in given if v is not None]
    if len(some) == 1 and some[0].dtype is BOOL and some[0].const is None:
        return ragged_rows(n, x, some[0]) if given[0] is not None else sized_index(n)
    axes, found = advanced(n, x)
    if not axes:
        return x
    if len(axes) == 1:
        return n.onnx("Gather", x, found[0], axis=axes[0])[0]
    rest = [k for k in range(x.type.rank) if k not in axes]
    x = n.transpose(x, [*axes, *rest])
    at = as_tuples(n, found)
    y = n.onnx("GatherND", x, at, batch_dims=0)[0]
    together = axes == list(range(axes[0], axes[0] + len(axes)))
    if not together or not axes[0]:
        return y
    rank, front = at.type.rank - 1, axes[0]  # what is indexed goes where the first index stood
    return n.transpose(y, [*range(rank, rank + front), *range(rank), *range(rank + front, y.type.rank)])


def embedding_bag(n: AtenNode) -> Results:
    """Rows of a table, folded in bags. Bags of one size that is known are an axis; others are summed where each row
    belongs, as the offsets say."""
    w, at, offsets = n.x("weight"), whole(n, n.x("indices")), n.x("offsets")
    starts = offsets if not n.get("include_last_offset") else n.cut(offsets, 0, 0, offsets.type.size - 1)
    ends = np.diff([*starts.const.array, at.type.size]) if starts.const is not None else np.zeros(0)
    padding, weights = n.get("padding_idx", -1), n.get("per_sample_weights")
    kind = ("ReduceSum", "ReduceMean", "ReduceMax")[n["mode"]]
    rows = n.onnx("Gather", w, at, axis=0)[0]
    if weights is not None:
        rows = n.one("Mul", rows, n.reshape(weights, [at.type.size, 1]))
    if len(set(ends.tolist())) == 1 and ends[0] > 0 and padding in (-1, None):
        return [n.fold(kind, n.reshape(rows, [len(ends), int(ends[0]), rows.shape[1]]), [1]), None, None, None]
    return [_bags(n, kind, rows, at, starts, padding), None, None, None]


def _bags(n: AtenNode, kind: str, rows: Value, at: Value, starts: Value, padding: int | None) -> Value:
    """Which bag a row belongs to is how many begin at or before it; an empty bag is zero."""
    count, bags = at.type.size, starts.type.size
    marks = n.onnx("ScatterND", n.expand(n.scalar(0, I64), [count + 1]), n.reshape(n.cast(starts, I64), [bags, 1]),
                   n.expand(n.scalar(1, I64), [bags]), reduction="add")[0]
    bag = n.one("Sub", n.one("CumSum", n.cut(marks, 0, 0, count), axis=0, exclusive=0, reverse=0), n.scalar(1, I64))
    neutral = n.scalar(-np.inf if kind == "ReduceMax" else 0, rows.dtype)
    real = n.expand(n.scalar(True, BOOL), [count, 1])
    if padding not in (-1, None):
        real = n.reshape(n.one("Not", n.one("Equal", n.cast(at, I64), n.scalar(padding, I64))), [count, 1])
        rows = n.one("Where", real, rows, neutral)

    def joined(v: Value, start: Value, reduction: str) -> Value:
        room = n.expand(start, [bags, *v.shape[1:]])
        return n.onnx("ScatterND", room, n.reshape(bag, [count, 1]), v, reduction=reduction)[0]

    y = joined(rows, neutral, "max" if kind == "ReduceMax" else "add")
    if kind == "ReduceSum":
        return y
    held = joined(n.cast(real, rows.dtype), n.scalar(0, rows.dtype), "add")
    if kind == "ReduceMean":
        return n.one("Div", y, n.one("Max", held, n.scalar(1, rows.dtype)))
    return n.one("Where", n.one("Equal", held, n.scalar(0, rows.dtype)), n.scalar(0, rows.dtype), y)


# -- writing ------------------------------------------------------------------------------------------
def index_put(n: AtenNode) -> Results:
    x, values = n.x(), n.x("values")
    given = n["indices"]
    masks = [v for v in given if v is not None and v.dtype is BOOL and v.const is None]
    if masks:
        return _masked_put(n, x, given, n.cast(values, x.dtype))
    axes, found = advanced(n, x)
    if not axes:
        return n.expand(n.cast(values, x.dtype), x.shape)
    rest = [k for k in range(x.type.rank) if k not in axes]
    perm = [*axes, *rest]
    turned, at = n.transpose(x, perm), as_tuples(n, found)
    updates = n.cast(values, x.dtype)
    rank, front = at.type.rank - 1, axes[0]
    together = axes == list(range(axes[0], axes[0] + len(axes)))
    shape = [*at.shape[:-1], *(x.shape[k] for k in rest)]
    if together and front:  # values have the indexed axes where the first index stood
        seen = [*(x.shape[k] for k in range(front)), *at.shape[:-1], *(x.shape[k] for k in rest[front:])]
        updates = n.expand(updates, seen)
        updates = n.transpose(updates, [*range(front, front + rank), *range(front), *range(front + rank, len(seen))])
    else:
        updates = n.expand(updates, shape)
    y = n.onnx("ScatterND", turned, at, updates, reduction="add" if n.get("accumulate") else "none")[0]
    return n.transpose(y, np.argsort(perm).tolist())


def _masked_put(n: AtenNode, x: Value, given: Sequence[Value | None], values: Value) -> Value:
    """x[mask] = value: chosen by the mask"""
    mask = given[0]
    if len(given) == 1 and mask is not None and mask.type.rank == 1 and (values.type.size != 1 or n.get("accumulate")):
        return sized_index_put(n)  # type: ignore[no-any-return]
    if len(given) != 1 or mask is None or values.type.size != 1 or n.get("accumulate"):
        n.unsupported("writing several values by a mask that is data", hints=["write it with `torch.where`"])
    mask = n.reshape(mask, [*mask.shape, *[1] * (x.type.rank - mask.type.rank)])
    return n.one("Where", mask, n.reshape(values, []), x)


def scattered(reduction: str, source: str) -> Reader:
    def read(n: AtenNode) -> Results:
        x, at = n.x(), whole(n, n.x("index"))
        kind = reduction
        if "reduce" in n.args and n["reduce"] is not None:
            kind = SCATTER_KINDS.get(n["reduce"], "")
            if not kind or kind == "mean" and not x.dtype.is_float:
                n.unsupported(f"scatter of {x.type} with the reduction {n['reduce']}")
        src = n.scalar(n[source], x.dtype)
        if not x.type.rank:
            x, at, src = n.reshape(x, [1]), n.reshape(at, [1]), n.reshape(src, [1])
        if src.type.rank != at.type.rank or src.type.size == 1:
            src = n.expand(src, at.shape)
        for k, d in enumerate(at.shape):
            src = n.cut(src, k, 0, d)
        axis = n.axis() if n.x().type.rank else 0
        return n.reshape(_scatter(n, x, at, src, axis, kind), n.x().shape)

    return read


def _scatter(n: AtenNode, x: Value, at: Value, src: Value, axis: int, kind: str) -> Value:
    """What was there takes part, but for `include_self=False`"""
    def onto(x: Value, src: Value, reduction: str) -> Value:
        return n.onnx("ScatterElements", x, at, src, axis=axis, reduction=reduction)[0]

    alone = n.get("include_self", True) is False
    if alone:
        start = {"max": lowest(x.dtype), "min": highest(x.dtype), "mul": 1}.get(kind, 0)
        x = onto(x, n.expand(n.scalar(start, x.dtype), src.shape), "none")
    if kind != "mean":
        return onto(x, src, kind)
    ones = n.expand(n.scalar(1, x.dtype), x.shape)
    first = onto(ones, n.expand(n.scalar(0, x.dtype), src.shape), "none") if alone else ones
    count = onto(first, n.expand(n.scalar(1, x.dtype), src.shape), "add")
    return n.one("Div", onto(x, src, "add"), count)


def masked_scatter(n: AtenNode) -> Results:
    """The k-th element that the mask marks becomes the k-th of the source."""
    x, mask = n.x(), n.x("mask")
    shape = list(broadcast_shapes(x.shape, mask.shape))
    x, mask = n.expand(x, shape), n.expand(n.cast(mask, BOOL), shape)
    flat = n.cast(n.reshape(mask, [-1]), I64)
    place = n.one("CumSum", flat, axis=0, exclusive=1, reverse=0)
    source = n.reshape(n.x("source"), [-1])
    place = n.one("Min", place, n.scalar(source.type.size - 1, I64))
    picked = n.reshape(n.onnx("Gather", source, place, axis=0)[0], shape)
    return n.one("Where", mask, picked, x)


def index_write(reduction: str, source: str) -> Reader:
    """index_add, index_copy, index_fill: whole rows along an axis"""

    def read(n: AtenNode) -> Results:
        x, axis = n.x(), n.axis()
        at = n.reshape(whole(n, n.x("index")), [-1])
        src = n.scalar(n[source], x.dtype)
        if src.type.rank != x.type.rank:
            src = n.expand(src, [at.type.size if k == axis else d for k, d in enumerate(x.shape)])
        if n.get("alpha", 1) != 1:
            src = n.one("Mul", src, n.scalar(n["alpha"], x.dtype))
        return write_rows(n, x, at, src, axis, reduction)

    return read


def write_rows(n: AtenNode, x: Value, at: Value, src: Value, axis: int, reduction: str = "none") -> Value:
    """`src` in the places `at` of an axis"""
    perm = [axis, *(k for k in range(x.type.rank) if k != axis)]
    rows = n.reshape(at, [at.type.size, 1])
    y = n.onnx("ScatterND", n.transpose(x, perm), rows, n.transpose(src, perm), reduction=reduction)[0]
    return n.transpose(y, np.argsort(perm).tolist())


READERS: dict[str, Reader] = {
    "embedding.default": embedding, "index_select.default": index_select, "gather.default": gather,
    "take.default": take, "index.Tensor": index, "_unsafe_index.Tensor": index, "_embedding_bag.default": embedding_bag,
    "_embedding_bag_forward_only.default": embedding_bag, "index_put.default": index_put,
    "_unsafe_index_put.default": index_put, "scatter.src": scattered("none", "src"),
    "scatter.value": scattered("none", "value"), "scatter.reduce": scattered("none", "src"),
    "scatter.value_reduce": scattered("none", "value"), "scatter_add.default": scattered("add", "src"),
    "scatter_reduce.two": scattered("none", "src"), "masked_scatter.default": masked_scatter,
    "index_add.default": index_write("add", "source"), "index_copy.default": index_write("none", "source"),
    "index_fill.int_Scalar": index_write("none", "value"), "index_fill.int_Tensor": index_write("none", "value"),
}  # fmt: skip
