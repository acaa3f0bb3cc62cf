"""RESIZE_NEAREST_NEIGHBOR and RESIZE_BILINEAR, and blocks of a batch.

Sizes are known, so positions and weights are constants: a resize is two gathers per axis and a weighted sum.
"""

from __future__ import annotations

import numpy as np

from monobloc.frontend.tflite.arithmetic import same_scales
from monobloc.frontend.tflite.hybrid import product
from monobloc.frontend.tflite.node import Result, TflNode
from monobloc.ir.graph import Value
from monobloc.ir.types import DType
from monobloc.ops.movement import pad, slice_of, transpose
from monobloc.ops.shape import reshape

MOST = 1 << 16  # rows or columns of an image


def _sizes(n: TflNode) -> tuple[Value, list[int]]:
    x, to = n.x(0), n.ints(1, "the size")
    if x.type.rank != 4 or len(to) != 2 or not 1 <= min(to) <= max(to) <= MOST or not x.type.size:
        n.fail(f"resizes {x.type} to {to}")
    return x, to


def _places(size: int, out: int, corners: bool, centers: bool) -> np.ndarray:
    """Where each element of the result lies in the input, in float32 as TFLite computes it"""
    scale = np.float32(size - 1) / np.float32(out - 1) if corners and out > 1 else np.float32(size) / np.float32(out)
    at = np.arange(out).astype(np.float32)
    half = np.float32(0.5)
    return (at + half) * scale - half if centers else at * scale


def nearest(n: TflNode) -> Result:
    x, to = _sizes(n)
    corners, centers = n.options.flag(0), n.options.flag(1)
    if n.quantized():
        same_scales(n, 1)
    for axis, out in zip((1, 2), to, strict=True):
        at = _places(x.shape[axis], out, corners, centers) + np.float32(0.5 if centers else 0)
        whole = np.floor(at + np.float32(0.5)) if corners else np.floor(at)
        x = _taken(n, x, axis, np.clip(whole.astype(np.int64), 0, x.shape[axis] - 1))
    return [x]


def bilinear(n: TflNode) -> Result:
    x, to = _sizes(n)
    if n.quantized():
        same_scales(n, 1)
    if x.dtype in (DType.I8, DType.I16):
        return [_in_steps(n, x, to)]
    if x.dtype is DType.U8:
        return [_four_at_once(n, x, to)]
    if not x.dtype.is_float:
        n.unsupported(f"{n.op} of {x.dtype.value}")
    for axis, out in zip((1, 2), to, strict=True):
        top = x.shape[axis] - 1
        at = _places(x.shape[axis], out, n.options.flag(2), n.options.flag(3))
        low = np.floor(at)
        share = (at - low).astype(np.float32).reshape([-1 if k == axis else 1 for k in range(4)])
        first, second = (np.clip(v.astype(np.int64), 0, top) for v in (low, low + 1))
        parts = [n.b.one("Mul", _taken(n, x, axis, v), n.b.const(w, x.dtype))
                 for v, w in ((first, 1 - share), (second, share))]
        x = n.b.one("Add", *parts)
    return [x]


def _in_steps(n: TflNode, x: Value, to: list[int]) -> Value:
    """Signed integers: places and shares in 1024ths, the sum exact, rounded half away from zero once"""
    wide = DType.I32 if x.dtype is DType.I8 else DType.I64
    kind, y = x.dtype, n.b.one("Cast", x, to=wide)
    corners, centers = n.options.flag(2), n.options.flag(3)
    for axis, out in zip((1, 2), to, strict=True):
        size = x.shape[axis]
        scale = (1024 * size + out // 2) // out
        if corners and out > 1:
            scale = (1024 * (size - 1) + (out - 1) // 2) // (out - 1)
        at = np.arange(out) * scale + (scale // 2 - 512 if centers else 0)
        low = np.maximum(np.trunc(at / 1024).astype(np.int64), 0)
        high = np.minimum(np.trunc((at + 1023) / 1024).astype(np.int64), size - 1)
        share = (at - 1024 * low).reshape([-1 if k == axis else 1 for k in range(4)])
        parts = [n.b.one("Mul", _taken(n, y, axis, v), n.b.const(w, wide))
                 for v, w in ((low, 1024 - share), (high, share))]
        y = n.b.one("Add", *parts)
    half = n.b.one("Where", n.b.one("Greater", y, n.b.const(0, wide)), n.b.const(1 << 19, wide),
                   n.b.const(-(1 << 19), wide))
    return n.b.one("Cast", n.b.one("Div", n.b.one("Add", y, half), n.b.const(1 << 20, wide)), to=kind)


def _four_at_once(n: TflNode, x: Value, to: list[int]) -> Value:
    """uint8: four products in float32, each rounded, summed in order, rounded half up"""
    corners, centers = n.options.flag(2), n.options.flag(3)
    at = [_places(x.shape[axis], out, corners, centers) for axis, out in zip((1, 2), to, strict=True)]
    low = [np.maximum(np.floor(v).astype(np.int64), 0) for v in at]
    high = [np.minimum(np.ceil(v).astype(np.int64), x.shape[k + 1] - 1) for k, v in enumerate(at)]
    one = np.float32(1)
    dy = (at[0] - low[0].astype(np.float32)).astype(np.float32).reshape(1, -1, 1, 1)
    dx = (at[1] - low[1].astype(np.float32)).astype(np.float32).reshape(1, 1, -1, 1)
    total: Value | None = None
    for rows, columns, wy, wx in ((low, low, one - dy, one - dx), (high, low, dy, one - dx),
                                  (low, high, one - dy, dx), (high, high, dy, dx)):
        part = n.b.one("Cast", _taken(n, _taken(n, x, 1, rows[0]), 2, columns[1]), to=DType.F32)
        for share in (wy, wx):
            part = product(n.b, part, n.b.const(share))
        total = part if total is None else n.b.one("Add", total, part)
    assert total is not None
    return n.b.one("Cast", n.b.one("Add", total, n.b.const(0.5, DType.F32)), to=DType.U8)


def _taken(n: TflNode, x: Value, axis: int, at: np.ndarray) -> Value:
    same = at.size == x.shape[axis] and (at == np.arange(at.size)).all()
    return x if same else n.b.one("Gather", x, n.b.ints([int(k) for k in at]), axis=axis)


# -- blocks of a batch --------------------------------------------------------------------------------
def space_to_batch(n: TflNode) -> Result:
    x, block, pads = n.x(0), n.ints(1, "the blocks"), np.asarray(n.const(2, "the padding"))
    rank, count = x.type.rank, len(block)
    if pads.shape != (count, 2) or (pads < 0).any() or rank < count + 1 or min(block) < 1:
        n.fail(f"makes blocks of {block} with the padding {pads.tolist()} of {x.type}")
    fill = n.b.const(n.scale(n.tensor(0))[1], x.dtype) if n.quantized() and not n.micro else None
    rest = [0] * (rank - count - 1)
    x = pad(n.b, x, [0, *map(int, pads[:, 0]), *rest], [0, *map(int, pads[:, 1]), *rest], "constant", fill)
    if any(x.shape[1 + k] % s for k, s in enumerate(block)):
        n.fail(f"makes blocks of {block} of {x.type}")
    halves = [d for k, s in enumerate(block) for d in (x.shape[1 + k] // s, s)]
    split = [x.shape[0], *halves, *x.shape[1 + count :]]
    spaces, steps = [1 + 2 * k for k in range(count)], [2 + 2 * k for k in range(count)]
    y = transpose(n.b, reshape(n.b, x, split), [*steps, 0, *spaces, *range(1 + 2 * count, len(split))])
    batch = x.shape[0] * int(np.prod(block))
    return [reshape(n.b, y, [batch, *(x.shape[1 + k] // s for k, s in enumerate(block)), *x.shape[1 + count :]])]


def batch_to_space(n: TflNode) -> Result:
    x, block, crops = n.x(0), n.ints(1, "the blocks"), np.asarray(n.const(2, "the crops"))
    rank, count = x.type.rank, len(block)
    if crops.shape != (count, 2) or (crops < 0).any() or rank < count + 1 or x.shape[0] % int(np.prod(block)):
        n.fail(f"joins blocks of {block} with the crops {crops.tolist()} of {x.type}")
    batch = x.shape[0] // int(np.prod(block))
    split = reshape(n.b, x, [*block, batch, *x.shape[1:]])
    order = [count, *(a for k in range(count) for a in (count + 1 + k, k)), *range(2 * count + 1, rank + count)]
    joined = [batch, *(x.shape[1 + k] * s for k, s in enumerate(block)), *x.shape[1 + count :]]
    y = reshape(n.b, transpose(n.b, split, order), joined)
    at = [(0, 1, d) for d in joined]
    for k, (p, q) in enumerate(crops.tolist()):
        if p + q > joined[1 + k]:
            n.fail(f"crops {p} and {q} off {joined[1 + k]}")
        at[1 + k] = (p, 1, joined[1 + k] - p - q)
    return [slice_of(n.b, y, at)]


READERS = {
    "RESIZE_NEAREST_NEIGHBOR": nearest, "RESIZE_BILINEAR": bilinear, "SPACE_TO_BATCH_ND": space_to_batch,
    "BATCH_TO_SPACE_ND": batch_to_space,
}  # fmt: skip
