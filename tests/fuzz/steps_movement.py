"""Steps of operators that only move elements."""

from __future__ import annotations

import numpy as np
from builder import Builder
from sizes import size
from steps import anything, chance, number, some


def concat(b: Builder) -> str:
    x = anything(b)
    if not x or not b.values[x].ndim:
        return ""
    v = b.values[x]
    axis = number(b, 0, v.ndim - 1)
    ins = [x]
    for _ in range(number(b, 0, 3)):
        fit = [n for n, y in b.values.items() if y.dtype == v.dtype and y.ndim == v.ndim
               and all(p == q for k, (p, q) in enumerate(zip(v.shape, y.shape, strict=True)) if k != axis)]
        how = number(b, 0, 2)
        more = number(b, 0, 4) if chance(b, 0.8) else size(b, v.size, 128)
        shape = tuple(more if k == axis else d for k, d in enumerate(v.shape))
        ins.append(b.leaf(shape, v.dtype) if how == 0 else fit[number(b, 0, len(fit) - 1)])
    b.rng.shuffle(ins)
    return b.one("Concat", *ins, axis=axis - v.ndim * number(b, 0, 1), exact=True)


def split(b: Builder) -> str:
    x = anything(b)
    if not x or not b.values[x].ndim:
        return ""
    axis = number(b, 0, b.values[x].ndim - 1)
    n = b.values[x].shape[axis]
    cut = number(b, 0, n)
    outs = b.op("Split", x, b.ints(cut, n - cut), outs=2, axis=axis, exact=True)
    return outs[0] if outs else ""


def slice_(b: Builder) -> str:
    x = anything(b)
    if not x or not b.values[x].ndim:
        return ""
    rank = b.values[x].ndim
    axes = [k for k in range(rank) if chance(b, 0.6)] or [0]
    steps = [int(some(b, 1, 1, 2, -1, -2, 3)) for _ in axes]
    starts, ends = [], []
    for a, s in zip(axes, steps, strict=True):
        n = b.values[x].shape[a]
        lo, hi = number(b, 0, max(0, n // 2)), number(b, (n + 1) // 2, n + 1)
        starts.append(lo if s > 0 else hi)
        ends.append(hi if s > 0 else lo - n - 1)
    return b.one("Slice", x, b.ints(*starts), b.ints(*ends), b.ints(*axes), b.ints(*steps), exact=True)


def transpose(b: Builder) -> str:
    x = anything(b)
    if not x:
        return ""
    rank = b.values[x].ndim
    perm = [int(p) for p in b.rng.permutation(rank)]
    if rank == 4 and chance(b):
        perm = list(some(b, (0, 2, 3, 1), (0, 3, 1, 2), (0, 1, 3, 2)))
    return b.one("Transpose", x, perm=perm, exact=True)


def reshape(b: Builder) -> str:
    x = anything(b)
    if not x:
        return ""
    left = b.values[x].size
    if left == 0 or chance(b, 0.2):
        return b.one("Flatten", x, axis=number(b, 0, b.values[x].ndim), exact=True)
    shape = []
    for _ in range(number(b, 0, 4)):
        d = int(some(b, *[d for d in range(1, min(left, 130) + 1) if left % d == 0]))
        shape.append(d)
        left //= d
    if left > 1 or not shape:
        shape.insert(number(b, 0, len(shape)), -1 if chance(b) else left)
    return b.one("Reshape", x, b.ints(*shape), exact=True)


def squeeze(b: Builder) -> str:
    x = anything(b)
    if not x:
        return ""
    rank = b.values[x].ndim
    if rank < 6 and chance(b):
        return b.one("Unsqueeze", x, b.ints(number(b, 0, rank)), exact=True)
    return b.one("Squeeze", x, exact=True)


def pad(b: Builder) -> str:
    x = b.pick(low=1)
    if not x:
        return ""
    rank = b.values[x].ndim
    mode = str(some(b, "constant", "reflect", "edge", "constant", "wrap"))
    low = -1 if mode == "constant" else 0
    pads = [number(b, low, 2) for _ in range(2 * rank)]
    if mode != "constant":
        pads = [min(p, d - 1) if chance(b) else 0 for p, d in zip(pads, b.values[x].shape * 2, strict=True)]
    return b.one("Pad", x, b.ints(*pads), *([b.constant(np.float32(0.25))] if mode == "constant" else []), mode=mode,
                 exact=True)


def expand(b: Builder) -> str:
    x = anything(b)
    if not x or b.values[x].size > 5000 or b.values[x].ndim > 5:
        return ""
    shape = list(b.values[x].shape)
    for k, d in enumerate(shape):
        if d == 1 and chance(b):
            shape[k] = size(b, int(np.prod(shape)), p=0.5)
    return b.one("Expand", x, b.ints(*([size(b, int(np.prod(shape)))] if chance(b, 0.3) else []), *shape), exact=True)


def tile(b: Builder) -> str:
    x = anything(b)
    if not x or b.values[x].size > 5000:
        return ""
    times = [number(b, 1, 2) for _ in b.values[x].shape]
    if times and chance(b, 0.3):
        times[number(b, 0, len(times) - 1)] = size(b, b.values[x].size * int(np.prod(times)))
    return b.one("Tile", x, b.ints(*times), exact=True)


def depth_space(b: Builder) -> str:
    x = b.pick(rank=4)
    if chance(b):
        return b.one("DepthToSpace", x, blocksize=2, mode=str(some(b, "DCR", "CRD")), exact=True)
    return b.one("SpaceToDepth", x, blocksize=2, exact=True)


def gather(b: Builder) -> str:
    x = anything(b)
    if not x or not b.values[x].ndim or b.values[x].ndim > 4:
        return ""
    axis = number(b, 0, b.values[x].ndim - 1)
    n = b.values[x].shape[axis]
    if not n:
        return ""
    shape = tuple(some(b, (), (3,), (2, 2), (1,), (0,), (size(b, b.values[x].size // n),)))
    index = b.rng.integers(-n, n, shape).astype(some(b, np.int64, np.int32))
    return b.one("Gather", x, b.constant(index) if chance(b) else b.input(index), axis=axis, exact=True)


def gather_elements(b: Builder) -> str:
    x = b.pick(low=1)
    if not x or 0 in b.values[x].shape:
        return ""
    shape, axis = b.values[x].shape, number(b, 0, b.values[x].ndim - 1)
    index = b.rng.integers(-shape[axis], shape[axis], shape).astype(np.int64)
    return b.one("GatherElements", x, b.constant(index) if chance(b) else b.input(index), axis=axis, exact=True)


def gather_nd(b: Builder) -> str:
    x = b.pick(low=2)
    if not x or 0 in b.values[x].shape:
        return ""
    shape = b.values[x].shape
    index = np.stack([b.rng.integers(-d, d, (3,)) for d in shape[:2]], -1)
    return b.one("GatherND", x, b.input(index), exact=True)


def scatter_nd(b: Builder) -> str:
    x = b.pick(low=2)
    if not x or 0 in b.values[x].shape:
        return ""
    shape = b.values[x].shape
    index = b.rng.permutation(shape[0])[: number(b, 1, shape[0])][:, None].astype(np.int64)
    return b.one("ScatterND", x, b.input(index), b.leaf((len(index), *shape[1:])), exact=True)
