"""Constants that are stored small: several integers in a byte, or only the elements that are not zero."""

from __future__ import annotations

import math

import numpy as np

from monobloc.errors import ModelError
from monobloc.frontend.tflite.flatbuffer import Table
from monobloc.frontend.tflite.schema import SMALL, Tensor

Array = np.ndarray
DENSE, SPARSE = 0, 1
MAX_EMPTY = 1 << 22  # a sparse constant of more elements holds one in 256 at least
VECTORS = {1: "i4", 2: "u2", 3: "u1"}  # how the numbers of a sparse axis are stored


def unpacked(t: Tensor) -> Array:
    """Integers of 4 or 2 bits as bytes; the first lies in the lowest bits."""
    bits, signed = SMALL[t.type]
    data = np.frombuffer(t.data or b"", np.uint8)
    count, per = int(np.prod(t.shape, dtype=np.int64)), 8 // bits
    if data.size != -(-count // per):
        raise ModelError(f"{t.what} is {t.text} and has {data.size} bytes of data")
    parts = (data[:, None] >> (np.arange(per) * bits).astype(np.uint8)) & ((1 << bits) - 1)
    flat = parts.ravel()[:count].astype(np.int8)
    out = np.where(flat >= 1 << (bits - 1), flat - (1 << bits), flat).astype(np.int8) if signed else flat.view(np.uint8)
    return np.asarray(out).reshape(t.shape)


def densified(t: Tensor, values: Array) -> Array:
    """All elements of a sparse constant: its axes are walked in the order that the file says, blocks as axes of their
    own; a dense axis has every index, a sparse one those that are listed between two places of its segments."""
    s = t.sparsity
    assert s is not None
    if math.prod(t.shape) > max(MAX_EMPTY, 256 * values.size):
        raise ModelError(f"{t.what} is {t.text} and holds {values.size} elements only, too few for a sparse constant")
    order, blocks = s.ints(0), s.ints(1)
    axes = list(s.tables(2))
    rank = len(t.shape)
    fits = len(axes) == len(order) == rank + len(blocks) and sorted(order) == list(range(len(order)))
    if not fits or any(not 0 <= b < rank for b in blocks):
        raise ModelError(f"{t.what} is damaged: its {len(axes)} axes are walked in the order {order}")
    block = {axis: axes[order.index(rank + k)].whole(1) for k, axis in enumerate(blocks)}
    if len(block) < len(blocks) or any(b < 1 or t.shape[k] % b for k, b in block.items()):
        raise ModelError(f"{t.what} is damaged: blocks of {block} do not fit {list(t.shape)}")
    sizes = [block[blocks[k - rank]] if k >= rank else t.shape[k] // block.get(k, 1) for k in order]
    places = np.zeros((1, len(axes)), np.int64)
    positions = np.zeros(1, np.int64)
    for level, a in enumerate(axes):
        places, positions = _walked(t, a, sizes[level], places, positions, level)
    if positions.size != values.size or (positions != np.arange(values.size)).any():
        raise ModelError(f"{t.what} is damaged: it holds {values.size} elements for {positions.size} places")
    out = np.zeros(t.shape, values.dtype)
    index = []
    for k in range(rank):
        at = places[:, order.index(k)]
        index.append(at * block[k] + places[:, order.index(rank + blocks.index(k))] if k in block else at)
    out[tuple(index)] = values
    return out


def _walked(t: Tensor, axis: Table, size: int, places: Array, positions: Array, level: int) -> tuple[Array, Array]:
    """One axis further: index tuples, and the position of each among all that are listed"""
    if axis.whole(0, "b") == DENSE:
        if size * len(places) > int(np.prod(t.shape, dtype=np.int64)):
            raise ModelError(f"{t.what} is damaged: it lists more elements than it has")
        new = np.repeat(places, size, 0)
        new[:, level] = np.tile(np.arange(size), len(places))
        return new, (positions[:, None] * size + np.arange(size)).ravel()
    segments, indices = _numbers(t, axis, 2), _numbers(t, axis, 4)
    if positions.size and (positions.max() + 1 >= segments.size):
        raise ModelError(f"{t.what} is damaged: it has {segments.size} segments")
    first, last = segments[positions], segments[positions + 1]
    counts = last - first
    if (counts < 0).any() or (last > indices.size).any() or (first < 0).any() or counts.sum() > indices.size:
        raise ModelError(f"{t.what} is damaged: its segments leave its {indices.size} indices")
    new = np.repeat(places, counts, 0)
    at = np.repeat(first - np.cumsum(counts) + counts, counts) + np.arange(counts.sum())
    new[:, level] = indices[at]
    if ((new[:, level] < 0) | (new[:, level] >= size)).any():
        raise ModelError(f"{t.what} is damaged: it lists an index outside of an axis of {size}")
    return new, at


def _numbers(t: Tensor, axis: Table, slot: int) -> Array:
    kind, table = VECTORS.get(axis.whole(slot, "B")), axis.table(slot + 1)
    found = None if kind is None or table is None else table.array(0, kind)
    if found is None:
        raise ModelError(f"{t.what} is damaged: a sparse axis lacks its numbers")
    return found.astype(np.int64)
