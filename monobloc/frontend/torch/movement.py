"""Operators that move elements: shapes, orders of axes, parts, and what is put together."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from monobloc.frontend.torch.node import AtenNode, Reader, Results
from monobloc.frontend.torch.tensors import dtype_of
from monobloc.ir.graph import Value
from monobloc.ir.symbolic import is_open
from monobloc.ir.types import DType
from monobloc.ops.elementwise import broadcast_shapes
from monobloc.ops.indexing import gather_const
from monobloc.ops.movement import ENDLESS, pad, slice_of, slice_range


# -- shapes -------------------------------------------------------------------------------------------
def view(n: AtenNode) -> Results:
    return n.reshape(n.x(), n.ints("size" if "size" in n.args else "shape"))


def flatten(n: AtenNode) -> Results:
    x, rank = n.x(), max(n.x().type.rank, 1)
    first, last = n.axis("start_dim"), n.axis("end_dim")
    shape = list(x.shape) or [1]
    return n.reshape(x, [*shape[:first], math.prod(shape[first : last + 1]), *shape[last + 1 : rank]])


def unflatten(n: AtenNode) -> Results:
    x, axis, sizes = n.x(), n.axis(), n.ints("sizes")
    if -1 in sizes:
        rest = -math.prod(sizes)
        sizes = [x.shape[axis] // rest if s == -1 else s for s in sizes]
    return n.reshape(x, [*x.shape[:axis], *sizes, *x.shape[axis + 1 :]])


def unsqueeze(n: AtenNode) -> Results:
    x = n.x()
    at = n.axis("dim", x.type.rank + 1)
    return n.reshape(x, [*x.shape[:at], 1, *x.shape[at:]])


def squeeze(n: AtenNode) -> Results:
    x = n.x()
    axes = set(n.axes()) if "dim" in n.args else set(range(x.type.rank))
    return n.reshape(x, [d for k, d in enumerate(x.shape) if not (k in axes and d == 1)])


def permute(n: AtenNode) -> Results:
    x = n.x()
    return n.transpose(x, [n.axis_of(a, x.type.rank) for a in n.ints("dims")])


def swapped(n: AtenNode) -> Results:
    x = n.x()
    return n.swap(x, n.axis("dim0"), n.axis("dim1")) if x.type.rank else x


def turned(n: AtenNode) -> Results:
    return n.swap(n.x()) if n.x().type.rank > 1 else n.x()


def expand(n: AtenNode) -> Results:
    x, size = n.x(), n.ints("size")
    front = len(size) - x.type.rank
    return n.expand(x, [x.shape[k - front] if d == -1 else d for k, d in enumerate(size)])


def repeat(n: AtenNode) -> Results:
    x, times = n.x(), n.ints("repeats" if "repeats" in n.args else "dims")
    rank = max(x.type.rank, len(times))
    times = [1] * (rank - len(times)) + times
    x = n.reshape(x, [1] * (rank - x.type.rank) + list(x.shape))
    return x if all(t == 1 for t in times) else n.one("Tile", x, repeats=times)


def repeat_interleave(n: AtenNode) -> Results:
    x, times = n.x(), n["repeats"]
    if n.get("dim") is None:
        x = n.reshape(x, [-1])
    axis = n.axis("dim", x.type.rank) if n.get("dim") is not None else 0
    wide = n.reshape(x, [*x.shape[: axis + 1], 1, *x.shape[axis + 1 :]])
    wide = n.expand(wide, [*x.shape[: axis + 1], times, *x.shape[axis + 1 :]])
    return n.reshape(wide, [*x.shape[:axis], x.shape[axis] * times, *x.shape[axis + 1 :]])


def as_strided(n: AtenNode) -> Results:
    """Of a tensor that is dense in memory: its elements by number"""
    x, size, stride = n.x(), n.ints("size"), n.ints("stride")
    traced = n.metas["self"]
    if not traced.is_contiguous() or not all(isinstance(d, int) for d in traced.shape):
        n.unsupported("as_strided of a tensor that is not dense in memory")
    at = np.full(size, n.get("storage_offset") or 0, np.int64)
    for k, (d, s) in enumerate(zip(size, stride, strict=True)):
        at = at + (np.arange(d) * s).reshape([-1 if j == k else 1 for j in range(len(size))])
    return gather_const(n.b, n.reshape(x, [-1]), at, 0)


# -- parts --------------------------------------------------------------------------------------------
def select(n: AtenNode) -> Results:
    x, axis, at = n.x(), n.axis(), n["index"]
    if isinstance(at, Value):
        return n.one("Gather", x, n.reshape(n.cast(at, DType.I64), []), axis=axis)
    d = x.shape[axis]
    if not -d <= at < d:
        n.fail(f"takes element {at} of axis {axis} of {x.type}")
    y = n.cut(x, axis, at + d if at < 0 else at, 1)
    return n.reshape(y, [*x.shape[:axis], *x.shape[axis + 1 :]])


def bounds(n: AtenNode, d: int) -> tuple[int, int, int]:
    """(first, count, step) of start:end:step on an axis of size d, where PyTorch's ends are limited to it"""
    start, end = n.get("start") or 0, n.get("end")
    first, step, count = slice_range(start, ENDLESS[1] if end is None else end, n.get("step", 1), d)
    return (first, count, step) if count != 0 else (0, 0, 1)


def sliced(n: AtenNode) -> Results:
    x, axis = n.x(), n.axis()
    first, count, step = bounds(n, x.shape[axis])
    return n.cut(x, axis, first, count, step)


def narrow(n: AtenNode) -> Results:
    x, axis = n.x(), n.axis()
    first = int(n.number("start")) if isinstance(n["start"], Value) else n["start"]
    return n.cut(x, axis, first + x.shape[axis] if first < 0 else first, n["length"])


def parts(n: AtenNode, x: Value, axis: int, sizes: Sequence[int]) -> list[Value]:
    out, first = [], 0
    for size in sizes:
        out.append(n.cut(x, axis, first, size))
        first += size
    return out


def split(n: AtenNode) -> Results:
    x, axis = n.x(), n.axis()
    name = next(k for k in ("split_sizes", "split_size", "sizes") if k in n.args)
    sizes = n[name]
    if isinstance(sizes, int):
        d = x.shape[axis]
        sizes = [min(sizes, d - k) for k in range(0, d, sizes)] if sizes else [0]
    return parts(n, x, axis, sizes)


def chunk(n: AtenNode) -> Results:
    x, axis, d = n.x(), n.axis(), n.x().shape[n.axis()]
    size = max(-(-d // n["chunks"]), 1)
    return parts(n, x, axis, [min(size, d - k) for k in range(0, d, size)])


def unbind(n: AtenNode) -> Results:
    x, axis = n.x(), n.axis()
    left = [*x.shape[:axis], *x.shape[axis + 1 :]]
    return [n.reshape(v, left) for v in parts(n, x, axis, [1] * x.shape[axis])]


def windows(n: AtenNode, x: Value, axis: int, step: int, taps: np.ndarray) -> Value:
    """An axis as two: windows that begin every `step` elements, and their `taps`"""
    count = (x.shape[axis] - int(taps[-1]) - 1) // step + 1
    if not is_open(count):
        return gather_const(n.b, x, np.arange(count)[:, None] * step + taps, axis)
    begins = n.reshape(n.b.emit("Iota", [], {"start": 0, "delta": step, "size": count})[0], [count, 1])
    return n.onnx("Gather", x, n.one("Add", begins, n.b.const(taps)), axis=axis)[0]


def unfold(n: AtenNode) -> Results:
    """Windows along one axis, as a last axis"""
    x, axis, size, step = n.x(), n.axis("dimension"), n["size"], n["step"]
    y = windows(n, x, axis, step, np.arange(size))
    perm = [k for k in range(y.type.rank) if k != axis + 1]
    return n.transpose(y, [*perm, axis + 1])


def diagonal(n: AtenNode) -> Results:
    x, a, b, offset = n.x(), n.axis("dim1"), n.axis("dim2"), n.get("offset", 0)
    rest = [k for k in range(x.type.rank) if k not in (a, b)]
    x = n.transpose(x, [*rest, a, b])
    rows, columns = x.shape[-2:]
    first = max(-offset, 0), max(offset, 0)
    count = max(min(rows - first[0], columns - first[1]), 0)
    flat = n.reshape(x, [*x.shape[:-2], rows * columns])
    start, step = first[0] * columns + first[1], columns + 1
    if is_open(count) or is_open(step):
        at = n.b.emit("Iota", [], {"start": start, "delta": step, "size": count})[0]
        return n.onnx("Gather", flat, at, axis=flat.type.rank - 1)[0]
    at = start + np.arange(count) * step
    return gather_const(n.b, flat, at, flat.type.rank - 1)


def flip(n: AtenNode) -> Results:
    x, axes = n.x(), set(n.axes("dims")) if n["dims"] else set()
    return slice_of(n.b, x, [(d - 1, -1, d) if k in axes and d else (0, 1, d) for k, d in enumerate(x.shape)])


def roll(n: AtenNode) -> Results:
    x, shifts, dims = n.x(), n.ints("shifts"), n.ints("dims")
    shape = x.shape
    if not dims:
        x, dims = n.reshape(x, [-1]), [0]
    for shift, dim in zip(shifts, dims, strict=True):
        axis = n.axis_of(dim, x.type.rank)
        d = x.shape[axis]
        cut = d - shift % d if d else 0
        if cut not in (0, d):
            x = n.b.emit("Concat", [n.cut(x, axis, cut, d - cut), n.cut(x, axis, 0, cut)], {"axis": axis})[0]
    return n.reshape(x, shape)


def triangle(upper: int) -> Reader:
    def read(n: AtenNode) -> Results:
        return n.onnx("Trilu", n.x(), n.b.const(np.int64(n.get("diagonal", 0))), upper=upper)[0]

    return read


# -- together -----------------------------------------------------------------------------------------
def joined(n: AtenNode, values: Sequence[Value], axis: int) -> Value:
    return values[0] if len(values) == 1 else n.b.emit("Concat", list(values), {"axis": axis})[0]


def cat(n: AtenNode) -> Results:
    """Empty tensors of rank 1 join anything, as PyTorch has it for old code"""
    values = [n.cast(v, n.out) for v in n.values("tensors")]
    real = [v for v in values if v.shape != (0,)] or values[:1]
    return joined(n, real, n.axis("dim", real[0].type.rank))


def stack(n: AtenNode) -> Results:
    values = [n.cast(v, n.out) for v in n.values("tensors")]
    axis = n.axis("dim", values[0].type.rank + 1)
    shape = values[0].shape
    return joined(n, [n.reshape(v, [*shape[:axis], 1, *shape[axis:]]) for v in values], axis)


def constant_pad(n: AtenNode) -> Results:
    """Pads are given from the last axis on; negative ones cut."""
    x = n.x()
    low, high = pads_of(n, x)
    cut = [(max(-a, 0), 1, d + min(a, 0) + min(b, 0)) for d, a, b in zip(x.shape, low, high, strict=True)]
    x = slice_of(n.b, x, cut)
    low, high = [max(a, 0) for a in low], [max(b, 0) for b in high]
    return padded(n, x, low, high, "constant", n.scalar(n.get("value") or 0, x.dtype))


def pads_of(n: AtenNode, x: Value) -> tuple[list[int], list[int]]:
    given = n.ints("pad" if "pad" in n.args else "padding")
    low, high = [0] * x.type.rank, [0] * x.type.rank
    for k in range(len(given) // 2):
        low[-1 - k], high[-1 - k] = given[2 * k], given[2 * k + 1]
    return low, high


def padded(n: AtenNode, x: Value, low: list[int], high: list[int], mode: str, fill: Value | None = None) -> Value:
    return x if not any(low) and not any(high) else pad(n.b, x, low, high, mode, fill)


def pad_mode(mode: str) -> Reader:
    def read(n: AtenNode) -> Results:
        x = n.x()
        return padded(n, x, *pads_of(n, x), mode)

    return read


def pad_any(n: AtenNode) -> Results:
    mode = n.get("mode") or "constant"
    if mode == "constant":
        return constant_pad(n)
    known = {"reflect": "reflect", "replicate": "edge", "circular": "wrap"}
    if mode not in known:
        n.unsupported(f"padding in mode {mode}")
    return padded(n, n.x(), *pads_of(n, n.x()), known[mode])


def slice_scatter(n: AtenNode) -> Results:
    """`src` in the place of a slice"""
    x, axis = n.x(), n.axis()
    first, count, step = bounds(n, x.shape[axis])
    src = n.expand(n.cast(n.x("src"), x.dtype), [count if k == axis else d for k, d in enumerate(x.shape)])
    return put(n, x, src, axis, first, count, step)


def select_scatter(n: AtenNode) -> Results:
    x, axis, at = n.x(), n.axis(), n["index"]
    src = n.reshape(n.cast(n.x("src"), x.dtype), [*x.shape[:axis], 1, *x.shape[axis + 1 :]])
    return put(n, x, src, axis, at + x.shape[axis] if at < 0 else at, 1)


def put(n: AtenNode, x: Value, src: Value, axis: int, first: int, count: int, step: int = 1) -> Value:
    """`src` at so many places of an axis: put together of what stands before, between and after"""
    d = x.shape[axis]
    if not count:
        return x
    if step == 1:
        around = [n.cut(x, axis, 0, first), src, n.cut(x, axis, first + count, d - first - count)]
        return joined(n, [v for v in around if v.shape[axis]], axis)
    source = np.full(d, -1)
    source[first : first + count * step : step] = d + np.arange(count)
    order = np.where(source < 0, np.arange(d), source)
    return gather_const(n.b, joined(n, [x, src], axis), order, axis)


def copied(n: AtenNode) -> Results:
    """The other's elements in one's own type and shape"""
    x = n.x()
    return n.expand(n.cast(n.x("src"), x.dtype), x.shape)


# -- pixels and channels ------------------------------------------------------------------------------
def pixel_shuffle(n: AtenNode) -> Results:
    x, r = n.x(), n["upscale_factor"]
    *batch, c, h, w = x.shape
    y = n.reshape(x, [*batch, c // (r * r), r, r, h, w])
    k = len(batch)
    y = n.transpose(y, [*range(k), k, k + 3, k + 1, k + 4, k + 2])
    return n.reshape(y, [*batch, c // (r * r), h * r, w * r])


def pixel_unshuffle(n: AtenNode) -> Results:
    x, r = n.x(), n["downscale_factor"]
    *batch, c, h, w = x.shape
    y = n.reshape(x, [*batch, c, h // r, r, w // r, r])
    k = len(batch)
    y = n.transpose(y, [*range(k), k, k + 2, k + 4, k + 1, k + 3])
    return n.reshape(y, [*batch, c * r * r, h // r, w // r])


def channel_shuffle(n: AtenNode) -> Results:
    x, groups = n.x(), n["groups"]
    b, c, *rest = x.shape
    y = n.reshape(x, [b, groups, c // groups, *rest])
    return n.reshape(n.swap(y, 1, 2), [b, c, *rest])


def meshgrid(n: AtenNode) -> Results:
    values = n.values("tensors")
    sizes = [v.type.size for v in values]
    order = list(range(len(sizes)))
    if n.get("indexing") == "xy" and len(order) > 1:
        order[0], order[1] = 1, 0
    shape = [sizes[k] for k in order]
    out = []
    for k, v in enumerate(values):
        at = order.index(k)
        out.append(n.expand(n.reshape(v, [-1 if j == at else 1 for j in range(len(sizes))]), shape))
    return out


def broadcast_tensors(n: AtenNode) -> Results:
    values = n.values("tensors")
    shape = list(broadcast_shapes(*[v.shape for v in values]))
    return [n.expand(v, shape) for v in values]


def one_hot(n: AtenNode) -> Results:
    x, classes = n.x(), n["num_classes"]
    if classes <= 0:
        n.unsupported("one_hot with a number of classes that is data")
    return n.one("OneHot", x, n.b.ints([0, 1]), axis=x.type.rank, depth=classes)


def type_as(n: AtenNode) -> Results:
    return n.cast(n.x(), dtype_of(n.metas["other"].dtype))


READERS: dict[str, Reader] = {
    "view.default": view, "_unsafe_view.default": view, "reshape.default": view, "view_copy.default": view,
    "_reshape_alias.default": view, "flatten.using_ints": flatten, "unflatten.int": unflatten,
    "unsqueeze.default": unsqueeze, "squeeze.default": squeeze, "squeeze.dim": squeeze, "squeeze.dims": squeeze,
    "permute.default": permute, "transpose.int": swapped, "t.default": turned, "expand.default": expand,
    "broadcast_to.default": expand, "repeat.default": repeat, "tile.default": repeat,
    "repeat_interleave.self_int": repeat_interleave, "as_strided.default": as_strided, "select.int": select,
    "slice.Tensor": sliced, "narrow.default": narrow, "split.Tensor": split, "split_with_sizes.default": split,
    "split.sizes": split, "chunk.default": chunk, "unbind.int": unbind, "unfold.default": unfold,
    "diagonal.default": diagonal, "flip.default": flip, "roll.default": roll, "tril.default": triangle(0),
    "triu.default": triangle(1), "cat.default": cat, "concat.default": cat, "stack.default": stack,
    "constant_pad_nd.default": constant_pad, "reflection_pad1d.default": pad_mode("reflect"),
    "reflection_pad2d.default": pad_mode("reflect"), "reflection_pad3d.default": pad_mode("reflect"),
    "replication_pad1d.default": pad_mode("edge"), "replication_pad2d.default": pad_mode("edge"),
    "replication_pad3d.default": pad_mode("edge"), "pad.default": pad_any, "slice_scatter.default": slice_scatter,
    "select_scatter.default": select_scatter, "copy.default": copied, "pixel_shuffle.default": pixel_shuffle,
    "pixel_unshuffle.default": pixel_unshuffle, "channel_shuffle.default": channel_shuffle,
    "meshgrid.indexing": meshgrid, "meshgrid.default": meshgrid, "broadcast_tensors.default": broadcast_tensors,
    "one_hot.default": one_hot, "type_as.default": type_as,
}  # fmt: skip
