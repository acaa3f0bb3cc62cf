"""Steps over long axes: copies, folds, products and windows of sizes at which code is generated another way.

Weights are as large as makes kernels keep them in another cache, stream them, or take panels together.
"""

from __future__ import annotations

import numpy as np
from builder import Builder
from sizes import ELEMENTS, long_shape, near
from steps import chance, number, some

TYPES = ("float32", "float32", "float16", "float16", "float64", "int64", "int64", "int32", "int8", "uint8", "bool")
WEIGHTS = 150_000  # elements of a weight at most: a little more than half of L2 holds


def start(b: Builder) -> str:
    """Three long values, one of floats for sure"""
    b.input(b.random(long_shape(b, number(b, 1, 3)), np.dtype(str(some(b, *TYPES)))))
    b.input(b.random(long_shape(b, 2), np.dtype(str(some(b, *TYPES)))))
    return b.input(b.random(long_shape(b, int(some(b, 1, 2, 2, 3, 3, 4)))))


def of_any_type(b: Builder) -> str:
    return b.pick(str(some(b, *dict.fromkeys(v.dtype.name for n, v in b.values.items() if n not in b.constants))))


def spread(b: Builder) -> str:
    """Expand or Tile along axes of one element, some of them at once"""
    x = of_any_type(b)
    if not x or not 0 < b.values[x].size <= 2000 or b.values[x].ndim > 4:
        return ""
    shape, ones = list(b.values[x].shape), 0
    if 1 not in shape or chance(b, 0.3):
        at = number(b, 0, len(shape))
        x = b.one("Unsqueeze", x, b.ints(at), exact=True)
        shape.insert(at, 1)
    to = list(shape)
    for k in b.rng.permutation([k for k, d in enumerate(shape) if d == 1]).tolist():
        if ones < 2 and chance(b, 0.8):
            to[k], ones = near(b, ELEMENTS // max(1, int(np.prod(to)))), ones + 1
    if chance(b, 0.3):
        return b.one("Tile", x, b.ints(*(t // s for t, s in zip(to, shape, strict=True))), exact=True)
    return b.one("Expand", x, b.ints(*to), exact=True)


def turned(b: Builder) -> str:
    """A Transpose, behind a Reshape that makes two long axes of one, or one of all"""
    x = of_any_type(b)
    if not x or b.values[x].ndim < 1 or 0 in b.values[x].shape:
        return ""
    shape, n = b.values[x].shape, b.values[x].size
    factors = [d for d in range(2, n) if n % d == 0]
    if factors and (len(shape) < 2 or chance(b, 0.4)):
        d = int(some(b, *factors))
        x = b.one("Reshape", x, b.ints(d, n // d), exact=True)
        shape = (d, n // d)
    return b.one("Transpose", x, perm=[int(k) for k in b.rng.permutation(len(shape))], exact=True)


def grown(b: Builder) -> str:
    """A Pad or Concat to a size beside a threshold; or a Slice that leaves one"""
    x = b.pick(low=1)
    if not x or 0 in b.values[x].shape:
        return ""
    shape = b.values[x].shape
    axis = number(b, 0, len(shape) - 1)
    d, rest = shape[axis], b.values[x].size // shape[axis]
    to = near(b, ELEMENTS // rest)
    if to <= d:
        first = number(b, 0, d - to)
        return b.one("Slice", x, b.ints(first), b.ints(first + to), b.ints(axis), exact=True)
    if chance(b):
        pads = [0] * 2 * len(shape)
        pads[axis] = number(b, 0, to - d)
        pads[axis + len(shape)] = to - d - pads[axis]
        return b.one("Pad", x, b.ints(*pads), exact=True)
    return b.one("Concat", x, b.leaf((*shape[:axis], to - d, *shape[axis + 1:])), axis=axis, exact=True)


def looked_up(b: Builder) -> str:
    """Rows or columns of a table, as many as are beside a threshold"""
    x = of_any_type(b)
    if not x or b.values[x].ndim < 1 or 0 in b.values[x].shape:
        return ""
    axis = number(b, 0, b.values[x].ndim - 1)
    n = b.values[x].shape[axis]
    index = b.rng.integers(-n, n, near(b, ELEMENTS // (b.values[x].size // n)))
    return b.one("Gather", x, b.constant(index) if chance(b) else b.input(index), axis=axis, exact=True)


# -- products -----------------------------------------------------------------------------------------
def product(b: Builder) -> str:
    """Weights that rest in L1 or L2, or stream; rows, columns and terms beside thresholds"""
    how = number(b, 0, 2)
    x = b.pick(low=1)
    if how == 0:
        x = b.input(b.random((int(some(b, 1, 1, 2, 3, 4)), near(b, 257))))
    elif how == 1:
        x = b.input(b.random((near(b, 129), near(b, 257))))
    if not x or not b.values[x].size:
        return ""
    k = b.values[x].shape[-1]
    rows = b.values[x].size // k
    n = near(b, min(WEIGHTS // k, max(8, 4 * ELEMENTS // rows), 1025))
    scale = np.float32(1 / np.sqrt(k))
    if chance(b, 0.3):
        y = b.one("MatMul", x, b.one("Transpose", b.leaf((n, k)), perm=[1, 0], exact=True))
    else:
        w = b.random((k, n)) * scale
        y = b.one("MatMul", x, b.constant(w) if chance(b, 0.8) else b.input(w))
    if y and chance(b):
        y = b.one("Add", y, b.constant(b.random((n,))))
    return b.one(str(some(b, "Relu", "Tanh", "Sigmoid")), y) if y and chance(b) else y


def wide_conv(b: Builder) -> str:
    """Channels beside thresholds, images of many or few pixels, taps far apart"""
    side = int(some(b, 1, 2))
    c = int(some(b, 3, near(b, 192), near(b, 192)))
    spatial = [near(b, 65) for _ in range(side)] if c <= 8 else [number(b, 1, 17) for _ in range(side)]
    while c * int(np.prod(spatial)) > 2 * ELEMENTS:
        spatial[0] = max(1, spatial[0] // 2)
    x = b.pick(rank=2 + side) if chance(b, 0.4) else ""
    if not x or b.values[x].size > 2 * ELEMENTS or 0 in b.values[x].shape:
        x = b.input(b.random((1, c, *spatial)))
    c, spatial = b.values[x].shape[1], list(b.values[x].shape[2:])
    kernel = [int(some(b, 1, 3, 3, 5)) if d >= 5 else number(b, 1, d) for d in spatial]
    m = near(b, min(257, WEIGHTS // max(1, c * int(np.prod(kernel)))))
    attrs = _taps(b, spatial, kernel)
    w = weights(b, m, c, *kernel)
    y = b.one("Conv", x, w, *([b.constant(b.random((m,)))] if chance(b, 0.7) else []), **attrs)
    return b.one("Relu", y) if y and chance(b, 0.3) else y


def depthwise(b: Builder) -> str:
    """Channels in vectors and a rest, rows of one tile and of many"""
    x = b.pick(rank=4)
    if not x or not 0 < b.values[x].size <= ELEMENTS or chance(b):
        c = near(b, 129)
        x = b.input(b.random((1, c, number(b, 1, 5), near(b, max(5, ELEMENTS // c // 5)))))
    c, *spatial = b.values[x].shape[1:]
    kernel = [number(b, 1, min(5, d)) for d in spatial]
    times = int(some(b, 1, 1, 2))
    return b.one("Conv", x, weights(b, c * times, 1, *kernel), group=c, **_taps(b, spatial, kernel))


def weights(b: Builder, *shape: int) -> str:
    """Finite ones: what others make of padding is left open"""
    return b.constant((b.rng.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))).astype(np.float32))


def _taps(b: Builder, spatial: list[int], kernel: list[int]) -> dict[str, object]:
    attrs: dict[str, object] = {"kernel_shape": kernel}
    if chance(b, 0.5):
        attrs["pads"] = [k // 2 for k in kernel] * 2
    if chance(b, 0.3):
        attrs["strides"] = [number(b, 1, 2) for _ in spatial]
    if chance(b, 0.3):
        attrs["dilations"] = [max(1, int(some(b, 1, 2, (d - 1) // max(1, k - 1)))) for d, k in
                              zip(spatial, kernel, strict=True)]
    return attrs


# -- many nodes ---------------------------------------------------------------------------------------
def many(b: Builder) -> str:
    """More operands than one node takes, or a longer chain than one group"""
    x = b.pick(low=1)
    if not x or not 0 < b.values[x].size <= 3000:
        return ""
    if chance(b):
        kind = str(some(b, "Sum", "Max", "Concat"))
        ins = [str(some(b, x, b.leaf(b.values[x].shape[-1:])) if kind != "Concat" else x)
               for _ in range(int(some(b, 31, 32, 33, 65)))]
        return b.one(kind, *ins, **({"axis": b.values[x].ndim - 1} if kind == "Concat" else {}))
    for k in range(int(some(b, 47, 48, 49, 97))):
        x = b.one(("Neg", "Tanh", "Abs", "Sin")[k % 4], x) or x
    return x


__all__ = ["depthwise", "grown", "looked_up", "many", "product", "spread", "start", "turned", "wide_conv"]
