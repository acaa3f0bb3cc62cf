"""Random single operators with windows and products: sizes, attributes, types and scales of all kinds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from tfl_files import Scalar, byte, i32
from tfl_single import F32, I8, I16, I32, I64, U8, Case, Q, Stored

Rng = np.random.Generator


def flag(v: int) -> Scalar:
    return Scalar("B", v)


def real(v: float) -> Scalar:
    return Scalar("f", v)


def whole(rng: Rng, low: int, high: int) -> int:
    return int(rng.integers(low, high + 1))


def zero(rng: Rng, t: Any) -> int:
    return 0 if t is I16 else whole(rng, 0, 255) + (-128 if t is I8 else 0)


def scale(rng: Rng) -> float:
    """Every third is a power of two, which puts results halfway between integers"""
    return 2.0 ** whole(rng, -7, -3) if rng.random() < 1 / 3 else float(rng.uniform(0.005, 0.1))


def kind_of(rng: Rng) -> Any:
    """Of what goes in; float32 has weights of its own type or of bytes"""
    return (I8, I8, U8, I16, F32)[whole(rng, 0, 4)]


def weights(rng: Rng, x: Q, shape: tuple[int, ...], channels: int, axis: int, several: float = 0.6) -> tuple[Any, Any]:
    """(weights, bias) of what x is fed to; floats have weights of floats, or of bytes"""
    t = x.dtype
    if t is F32 and rng.random() < 0.4:
        return rng.standard_normal(shape).astype(F32), rng.standard_normal(channels).astype(F32)
    kind = U8 if t is U8 else I8
    many = t is not U8 and rng.random() < several
    scales = np.array([scale(rng) for _ in range(channels if many else 1)], F32)
    if kind is I8 and axis == 0 and t is not I16 and rng.random() < 0.15:
        w: Any = Stored("int4", rng.integers(-7, 8, shape), scales)
    else:
        info = np.iinfo(kind)
        w = (rng.integers(info.min + 1, info.max + 1, shape).astype(kind), scales, zero(rng, t) if t is U8 else 0, axis)
    if t is F32:
        return w, rng.standard_normal(channels).astype(F32)
    return w, (rng.integers(-900, 900, channels).astype(I64 if t is I16 else I32), scales * F32(x.scale), 0)


def fed(rng: Rng, t: Any, shape: tuple[int, ...]) -> Q:
    return Q(shape, t) if t is F32 else Q(shape, t, scale(rng), zero(rng, t))


def result(rng: Rng, t: Any, shape: tuple[int, ...], by: float) -> Q:
    return Q(shape, t) if t is F32 else Q(shape, t, scale(rng) * by * (15 if t is I16 else 1), zero(rng, t))


def window(rng: Rng) -> tuple[dict[int, Any], int, tuple[int, int], tuple[int, int]]:
    """(options, padding, strides, kernel)"""
    padding, strides = whole(rng, 0, 1), (whole(rng, 1, 3), whole(rng, 1, 2))
    kernel = whole(rng, 1, 4), whole(rng, 1, 3)
    return {0: byte(padding), 1: i32(strides[1]), 2: i32(strides[0])}, padding, strides, kernel


def extents(size: tuple[int, ...], padding: int, strides: tuple[int, ...], kernel: tuple[int, ...]) -> list[int]:
    return [-(-d // s) if padding == 0 else (d - k) // s + 1 for d, s, k in zip(size, strides, kernel, strict=True)]


def dilated(rng: Rng, slot: int, kernel: tuple[int, int]) -> tuple[dict[int, Any], tuple[int, int]]:
    """(options, the window that a dilated kernel covers)"""
    if rng.random() < 0.6:
        return {}, kernel
    d = whole(rng, 1, 3), whole(rng, 1, 2)
    return {slot: i32(d[1]), slot + 1: i32(d[0])}, ((kernel[0] - 1) * d[0] + 1, (kernel[1] - 1) * d[1] + 1)


def conv(rng: Rng, name: str) -> Case:
    t, (options, padding, strides, kernel) = kind_of(rng), window(rng)
    spread, covers = dilated(rng, 4, kernel)
    n, size, c, o = whole(rng, 1, 2), (whole(rng, 4, 9), whole(rng, 4, 9)), whole(rng, 1, 19), whole(rng, 1, 21)
    groups = 2 if t in (I8, F32) and rng.random() < 0.2 else 1
    x = fed(rng, t, (n, *size, c * groups))
    w, b = weights(rng, x, (o * groups, *kernel, c), o * groups, 0)
    y = extents(size, padding, strides, covers)
    return Case(name, "CONV_2D", (x, w, b), result(rng, t, (n, *y, o * groups), 5),
                options | {3: byte((0, 1, 3)[whole(rng, 0, 2)])} | spread, atol=1e-3)


def depthwise(rng: Rng, name: str) -> Case:
    t, (options, padding, strides, kernel) = kind_of(rng), window(rng)
    spread, covers = dilated(rng, 5, kernel)
    size, c, times = (whole(rng, 4, 9), whole(rng, 4, 9)), whole(rng, 1, 19), whole(rng, 1, 2)
    x = fed(rng, t, (1, *size, c))
    w, b = weights(rng, x, (1, *kernel, c * times), c * times, 3, 1.0 if t is F32 else 0.6)
    y = extents(size, padding, strides, covers)
    return Case(name, "DEPTHWISE_CONV_2D", (x, w, b), result(rng, t, (1, *y, c * times), 3),
                options | {3: i32(times), 4: byte((0, 1, 3)[whole(rng, 0, 2)])} | spread, atol=1e-3)


def product(rng: Rng, name: str) -> Case:
    t, rows, k, o = kind_of(rng), whole(rng, 1, 9), whole(rng, 1, 70), whole(rng, 1, 40)
    keep = rng.random() < 0.3
    lead = (2, rows) if keep else (rows,)
    x, y = fed(rng, t, (*lead, k)), (*lead, o)
    w, b = weights(rng, x, (o, k), o, 0)
    return Case(name, "FULLY_CONNECTED", (x, w, b if rng.random() < 0.8 else None), result(rng, t, y, 5),
                {0: byte(whole(rng, 0, 1)), 2: flag(int(keep)), 3: flag(whole(rng, 0, 1))}, atol=1e-3)


def pool(rng: Rng, name: str) -> Case:
    t, (options, padding, strides, kernel) = kind_of(rng), window(rng)
    size, c = (whole(rng, 4, 9), whole(rng, 4, 9)), whole(rng, 1, 19)
    y = extents(size, padding, strides, kernel)
    x = fed(rng, t, (whole(rng, 1, 2), *size, c))
    ops = ("AVERAGE_POOL_2D", "MAX_POOL_2D", "L2_POOL_2D")
    return Case(name, ops[whole(rng, 0, 2 if t is F32 else 1)], (x,), Q((x.shape[0], *y, c), t, x.scale, x.zero),
                options | {3: i32(kernel[1]), 4: i32(kernel[0]), 5: byte((0, 1, 3)[whole(rng, 0, 2)])})


def transposed(rng: Rng, name: str) -> Case:
    t, c, o = kind_of(rng), whole(rng, 1, 9), whole(rng, 1, 9)
    padding, strides = whole(rng, 0, 1), (whole(rng, 1, 3), whole(rng, 1, 3))
    kernel = whole(rng, 1, 4), whole(rng, 1, 4)
    n, size = whole(rng, 1, 2), (whole(rng, 2, 5), whole(rng, 2, 5))
    x = fed(rng, t, (n, *size, c))
    w, b = weights(rng, x, (o, *kernel, c), o, 0)
    y = [d * s if padding == 0 else (d - 1) * s + k for d, s, k in zip(size, strides, kernel, strict=True)]
    ends = (b,) if rng.random() < 0.7 else ()
    return Case(name, "TRANSPOSE_CONV", (np.array([n, *y, o], I32), w, x, *ends),
                result(rng, t, (n, *y, o), 4), {0: byte(padding), 1: i32(strides[1]), 2: i32(strides[0])}, atol=1e-3)


def matrices(rng: Rng, name: str) -> Case:
    t = (I8, I16, F32)[whole(rng, 0, 2)]
    m, k, n, turned = whole(rng, 1, 9), whole(rng, 1, 40), whole(rng, 1, 20), (whole(rng, 0, 1), whole(rng, 0, 1))
    batch = tuple(whole(rng, 1, 3) for _ in range(whole(rng, 0, 2)))
    other = tuple(1 if rng.random() < 0.3 else d for d in batch)
    x = fed(rng, t, (*batch, *((k, m) if turned[0] else (m, k))))
    y = fed(rng, t, (*other, *((n, k) if turned[1] else (k, n))))
    return Case(name, "BATCH_MATMUL", (x, y), result(rng, t, (*batch, m, n), 9),
                {0: flag(turned[0]), 1: flag(turned[1])}, atol=2e-3)


def deep(rng: Rng, name: str) -> Case:
    """Three axes, of floats: LiteRT has no others"""
    c, o, padding = whole(rng, 1, 5), whole(rng, 1, 6), whole(rng, 0, 1)
    kernel, strides = (tuple(whole(rng, 1, top) for _ in range(3)) for top in (3, 2))
    size = tuple(whole(rng, 3, 6) for _ in range(3))
    options = {0: byte(padding), 1: i32(strides[0]), 2: i32(strides[2]), 3: i32(strides[1]), 4: byte(whole(rng, 0, 1))}
    w, b = rng.standard_normal((*kernel, c, o)).astype(F32), rng.standard_normal(o).astype(F32)
    if rng.random() < 0.5:
        y = extents(size, padding, strides, kernel)
        return Case(name, "CONV_3D", (Q((1, *size, c), F32), w, b), Q((1, *y, o), F32), options, atol=1e-3)
    y = [d * s if padding == 0 else (d - 1) * s + k for d, s, k in zip(size, strides, kernel, strict=True)]
    w = np.swapaxes(w, 3, 4).copy()
    return Case(name, "CONV_3D_TRANSPOSE", (np.array([1, *y, o], I32), w, Q((1, *size, c), F32), b), Q((1, *y, o), F32),
                options, atol=1e-3)


KINDS: tuple[Callable[[Rng, str], Case], ...] = (
    conv, conv, depthwise, depthwise, product, product, pool, transposed, matrices, deep)
