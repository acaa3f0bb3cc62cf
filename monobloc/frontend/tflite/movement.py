"""Operators that only move elements. Scales pass through, so integers are moved as they are."""

from __future__ import annotations

import numpy as np

from monobloc.frontend.tflite.arithmetic import held, same_scales, together
from monobloc.frontend.tflite.node import Held, Result, TflNode
from monobloc.ir.graph import Value
from monobloc.ir.types import DType
from monobloc.ops.indexing import gather_const
from monobloc.ops.movement import pad, slice_of, transpose
from monobloc.ops.shape import reshape

AXIS_FIRST = {0: 0, 1: 2, 2: 3, 3: 1}  # where an axis of [n, h, w, c] is in [n, c, h, w]
ORDER_FIRST = (0, 3, 1, 2)


def reshaped(n: TflNode) -> Result:
    x = n.x(0)
    shape = n.options.array(0, "i4")
    to = n.ints(1, "the shape") if n.has(1) and n.x(1).const is not None else None
    to = [int(d) for d in shape] if to is None and shape is not None else to
    return [reshape(n.b, x, list(n.outs[0].shape) if to is None else to)]


def squeeze(n: TflNode) -> Result:
    x = n.x(0)
    axes = {n.axis(a, x.type.rank) for a in n.options.ints(0)} or {k for k, d in enumerate(x.shape) if d == 1}
    if any(x.shape[a] != 1 for a in axes):
        n.fail(f"removes the axes {sorted(axes)} of {x.type}")
    return [reshape(n.b, x, [d for k, d in enumerate(x.shape) if k not in axes])]


def expand_dims(n: TflNode) -> Result:
    x = n.x(0)
    at = n.axis(n.ints(1, "the axis")[0], x.type.rank + 1)
    return [reshape(n.b, x, [*x.shape[:at], 1, *x.shape[at:]])]


def transposed(n: TflNode) -> Result:
    perm, x = n.ints(1, "the order of axes"), n.x(0)
    if sorted(perm) != list(range(x.type.rank)):
        n.fail(f"gives {x.type} the order of axes {perm}")
    return [transpose(n.b, x, perm)]


# -- parts ------------------------------------------------------------------------------------------
def strided_slice(n: TflNode) -> Result:
    """Begin, end and step per axis; bit k of a mask changes what axis k means, as in NumPy."""
    x = n.x(0)
    begin, end, step = (n.ints(k, what) for k, what in ((1, "the begin"), (2, "the end"), (3, "the step")))
    masks = [n.options.whole(k) for k in range(5)]
    if n.options.flag(5):
        end = [p + q for p, q in zip(begin, end, strict=True)]
    added: list[int] = []
    if masks[2] or masks[3]:
        begin, end, step, masks, added = _spread(n, x, begin, end, step, masks)
    if not len(begin) == len(end) == len(step) <= x.type.rank or 0 in step:
        n.fail(f"slices {x.type} from {begin} to {end} by {step}")
    at, shape = [], []
    for k, d in enumerate(x.shape):
        first, count, by = _range(begin, end, step, masks, k, d) if k < len(begin) else (0, d, 1)
        if k < len(begin) and masks[4] >> k & 1:
            count = 1
            if not 0 <= first < d:
                n.fail(f"takes element {begin[k]} of axis {k} of {x.type}")
        else:
            shape.append(count)
        at.append((first, by, count))
    for k in added:
        shape.insert(k, 1)
    return [reshape(n.b, slice_of(n.b, x, at), shape)]


def _spread(n: TflNode, x: Value, begin: list[int], end: list[int], step: list[int], masks: list[int]) -> tuple[
        list[int], list[int], list[int], list[int], list[int]]:
    """The same without an ellipsis and new axes, and where in the result the new axes stand"""
    given, bits = len(begin), [[m >> k & 1 for k in range(len(begin))] for m in masks]
    if sum(bits[2]) > 1 or not given == len(end) == len(step):
        n.fail(f"slices {x.type} from {begin} to {end} by {step} with {sum(bits[2])} ellipses")
    taken = [k for k in range(given) if not bits[3][k] or bits[2][k]]
    more = x.type.rank - (len(taken) - sum(bits[2]))
    if more < 0:
        n.fail(f"slices {x.type} from {begin} to {end} by {step}")
    out: list[list[int]] = [[], [], [], [], [], []]
    added, made = [], 0
    for k in range(given):
        if bits[2][k]:  # all of the axes that nothing names
            for column, v in zip(out, (0, 0, 1, 1, 1, 0), strict=True):
                column.extend([v] * more)
            made += more
        elif bits[3][k]:
            added.append(made)
            made += 1
        else:
            for column, v in zip(out, (begin[k], end[k], step[k], bits[0][k], bits[1][k], bits[4][k]), strict=True):
                column.append(v)
            made += not bits[4][k]
    packed = [sum(v << k for k, v in enumerate(column)) for column in out[3:]]
    return out[0], out[1], out[2], [packed[0], packed[1], 0, 0, packed[2]], added


def _range(begin: list[int], end: list[int], step: list[int], masks: list[int], k: int, d: int) -> tuple[int, int, int]:
    """(first, count, step)"""
    start = None if masks[0] >> k & 1 else begin[k]
    stop = None if masks[1] >> k & 1 else end[k]
    if masks[4] >> k & 1:  # one element, counted from the end when negative
        return begin[k] + (d if begin[k] < 0 else 0), 1, 1
    found = range(*slice(start, stop, step[k]).indices(d))
    return found.start, len(found), step[k]


def sliced(n: TflNode) -> Result:
    x = n.x(0)
    begin, size = n.ints(1, "the begin"), n.ints(2, "the size")
    if len(begin) != x.type.rank or len(size) != x.type.rank:
        n.fail(f"slices {x.type} from {begin} with the size {size}")
    counts = [d - p if s == -1 else s for d, p, s in zip(x.shape, begin, size, strict=True)]
    if any(p < 0 or c < 0 or p + c > d for p, c, d in zip(begin, counts, x.shape, strict=True)):
        n.fail(f"slices {x.type} from {begin} with the size {size}")
    return [slice_of(n.b, x, [(p, 1, c) for p, c in zip(begin, counts, strict=True)])]


def _cut(n: TflNode, x: Value, axis: int, sizes: list[int]) -> list[Value]:
    if sum(sizes) != x.shape[axis] or min(sizes, default=0) < 0:
        n.fail(f"parts axis {axis} of {x.type} into {sizes}")
    out, first = [], 0
    for size in sizes:
        out.append(slice_of(n.b, x, [(first, 1, size) if k == axis else (0, 1, d) for k, d in enumerate(x.shape)]))
        first += size
    return out


def split(n: TflNode) -> Result:
    x, count = n.x(1), len(n.outs)
    axis = n.axis(n.ints(0, "the axis")[0], x.type.rank)
    if not count or x.shape[axis] % count:
        n.fail(f"parts axis {axis} of {x.type} into {count}")
    return list(_cut(n, x, axis, [x.shape[axis] // count] * count))


def split_v(n: TflNode) -> Result:
    x, sizes = n.x(0), n.ints(1, "the sizes")
    axis = n.axis(n.ints(2, "the axis")[0], x.type.rank)
    if sizes.count(-1) == 1:
        sizes = [x.shape[axis] - sum(s for s in sizes if s != -1) if s == -1 else s for s in sizes]
    return list(_cut(n, x, axis, sizes))


def unpack(n: TflNode) -> Result:
    x = n.x(0)
    axis = n.axis(n.options.whole(1), x.type.rank)
    left = [d for k, d in enumerate(x.shape) if k != axis]
    return [reshape(n.b, v, left) for v in _cut(n, x, axis, [1] * x.shape[axis])]


# -- together ---------------------------------------------------------------------------------------
def concatenation(n: TflNode) -> Result:
    values, first = together(n, len(n.ins))
    axis = n.axis(n.options.whole(0), values[0].type.rank)
    if n.quantized():
        values = [_to_scale_of_result(n, v, k) for k, v in enumerate(values)]
        if n.options.whole(1, "b"):
            n.unsupported("CONCATENATION of integers with a fused activation")
    at = AXIS_FIRST[axis] if first else axis
    y = n.b.emit("Concat", values, {"axis": at})[0] if len(values) > 1 else values[0]
    return [held(y if n.quantized() else n.activate(y, n.options.whole(1, "b")), first)]


def _to_scale_of_result(n: TflNode, v: Value, k: int) -> Value:
    """uint8 is brought to the result's scale, in float32 by a table; others have it"""
    (s0, z0), (s, z) = n.scale(n.tensor(k)), n.scale(n.outs[0])
    if (s0, z0) == (s, z):
        return v
    if v.dtype is not DType.U8:
        n.unsupported(f"CONCATENATION of {v.dtype.value} with different scales")
    factor = np.float32(s0 * (np.float32(1) / s))
    x = np.arange(256).astype(np.float32) * factor + np.float32(-z0) * factor
    table = np.clip(np.copysign(np.floor(np.abs(x) + np.float32(0.5)), x) + z, 0, 255).astype(np.uint8)
    return n.b.one("TflTable", v, n.b.const(table))


def pack(n: TflNode) -> Result:
    values = [n.x(i) for i in range(len(n.ins))]
    at = n.axis(n.options.whole(1), values[0].type.rank + 1)
    parts = [reshape(n.b, v, [*v.shape[:at], 1, *v.shape[at:]]) for v in values]
    return [n.b.emit("Concat", parts, {"axis": at})[0] if len(parts) > 1 else parts[0]]


def padded(n: TflNode) -> Result:
    (x,), first = together(n, 1) if n.held[0] is not None and n.held[0].first is not None else ([n.x(0)], False)
    low, high = _pads(n, x, first)
    fill: Value | None = None
    if n.op == "PADV2" and n.has(2):
        fill = reshape(n.b, n.x(2), [])
    elif n.quantized():
        fill = n.b.const(n.scale(n.tensor(0))[1], x.dtype)
    if n.quantized():
        same_scales(n, 1)
    return [held(pad(n.b, x, low, high, "constant", fill), first)]


def _pads(n: TflNode, x: Value, first: bool) -> tuple[list[int], list[int]]:
    at = np.asarray(n.const(1, "the padding"))
    if at.shape != (x.type.rank, 2) or (at < 0).any():
        n.fail(f"pads {x.type} by {at.tolist()}")
    order = ORDER_FIRST if first else range(x.type.rank)
    return [int(at[k, 0]) for k in order], [int(at[k, 1]) for k in order]


def mirror_pad(n: TflNode) -> Result:
    """Mode 0 leaves the border out of the mirror image, 1 repeats it."""
    x, mode = n.x(0), n.options.whole(0, "b")
    low, high = _pads(n, x, False)
    if mode not in (0, 1) or any(max(p, q) > d - 1 + mode for p, q, d in zip(low, high, x.shape, strict=True)):
        n.fail(f"mirrors {low} and {high} elements of {x.type} in mode {mode}")
    if mode == 0:
        return [pad(n.b, x, low, high, "reflect", None)]
    for k, (p, q) in enumerate(zip(low, high, strict=True)):
        if p or q:
            at = np.pad(np.arange(x.shape[k]), (p, q), "symmetric")
            x = gather_const(n.b, x, at, k)
    return [x]


# -- repeated ---------------------------------------------------------------------------------------
def tile(n: TflNode) -> Result:
    x = n.x(0)
    return [n.b.one("Tile", x, repeats=n.ints(1, "the repeats"))]


def broadcast_to(n: TflNode) -> Result:
    return [n.b.one("Expand", n.x(0), shape=n.ints(1, "the shape"))]


def fill(n: TflNode) -> Result:
    shape = n.ints(0, "the shape")
    if min(shape, default=0) < 0:
        n.fail(f"fills the shape {shape}")
    return [n.b.one("Expand", reshape(n.b, n.x(1), []), shape=shape)]


def shape_of(n: TflNode) -> Result:
    held_x = n._held(0)
    if held_x.last is None:
        shape = [held_x.made.shape[k] for k in (0, 2, 3, 1)]
    else:
        shape = list(held_x.last.shape)
    return [n.b.const(shape, n.out_dtype())]


def space_to_depth(n: TflNode) -> Result:
    return [Held(last=_blocks(n, True))]


def depth_to_space(n: TflNode) -> Result:
    return [Held(last=_blocks(n, False))]


def _blocks(n: TflNode, down: bool) -> Value:
    x, s = n.x(0), n.options.whole(0)
    if x.type.rank != 4 or s < 1 or (x.shape[1] % s or x.shape[2] % s if down else x.shape[3] % (s * s)):
        n.fail(f"with blocks of {s} does not fit {x.type}")
    batch, h, w, c = x.shape
    if down:
        y = transpose(n.b, reshape(n.b, x, [batch, h // s, s, w // s, s, c]), (0, 1, 3, 2, 4, 5))
        return reshape(n.b, y, [batch, h // s, w // s, s * s * c])
    y = transpose(n.b, reshape(n.b, x, [batch, h, w, s, s, c // (s * s)]), (0, 1, 3, 2, 4, 5))
    return reshape(n.b, y, [batch, h * s, w * s, c // (s * s)])


READERS = {
    "RESHAPE": reshaped, "SQUEEZE": squeeze, "EXPAND_DIMS": expand_dims, "TRANSPOSE": transposed,
    "STRIDED_SLICE": strided_slice, "SLICE": sliced, "SPLIT": split, "SPLIT_V": split_v, "UNPACK": unpack,
    "CONCATENATION": concatenation, "PACK": pack, "PAD": padded, "PADV2": padded, "MIRROR_PAD": mirror_pad,
    "TILE": tile, "BROADCAST_TO": broadcast_to, "FILL": fill, "SHAPE": shape_of,
    "SPACE_TO_DEPTH": space_to_depth, "DEPTH_TO_SPACE": depth_to_space,
}  # fmt: skip
