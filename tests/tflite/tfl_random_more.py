"""Random single operators that work element by element, move, reduce, or change types."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from tfl_files import byte, i32
from tfl_random import flag, real, scale, whole, zero
from tfl_single import F32, I8, I16, I32, I64, U8, Case, Q

Rng = np.random.Generator
SMALL = (I8, U8, I16)


def one_of(rng: Rng, *xs: Any) -> Any:
    return xs[int(rng.integers(len(xs)))]


def shape_of(rng: Rng, low: int = 1, high: int = 4, top: int = 7) -> tuple[int, ...]:
    return tuple(whole(rng, 1, top) for _ in range(whole(rng, low, high)))


def some_type(rng: Rng, *more: Any) -> Any:
    return one_of(rng, F32, I8, I8, U8, I16, *more)


def like(rng: Rng, t: Any, shape: tuple[int, ...], **bounds: float) -> Q:
    """A tensor of a type, with a scale if its integers stand for real numbers"""
    if t in SMALL:
        return Q(shape, t, scale(rng), zero(rng, t), **bounds)
    near = {"low": -50, "high": 50} if t in (I32, I64) else {}
    return Q(shape, t, **{**near, **bounds})


def same(q: Q, shape: tuple[int, ...]) -> Q:
    return Q(shape, q.dtype, q.scale, q.zero)


def scaled(rng: Rng, q: Q, shape: tuple[int, ...], by: float = 1.0) -> Q:
    return same(q, shape) if q.scale is None else Q(shape, q.dtype, scale(rng) * by, zero(rng, q.dtype))


# -- element by element -------------------------------------------------------------------------------
def pair(rng: Rng, name: str) -> Case:
    t = some_type(rng, I32, I64)
    shape = shape_of(rng, 1, 5)
    other = tuple(1 if rng.random() < 0.3 else d for d in shape)[whole(rng, 0, len(shape) - 1) :]
    op = one_of(rng, "ADD", "SUB", "MUL", "DIV", "MAXIMUM", "MINIMUM", "SQUARED_DIFFERENCE", "FLOOR_DIV", "FLOOR_MOD",
                "EQUAL", "NOT_EQUAL", "LESS", "LESS_EQUAL", "GREATER", "GREATER_EQUAL")
    options = {0: byte(one_of(rng, 0, 1, 3))} if op in ("ADD", "SUB", "MUL", "DIV") else {}
    a, b = like(rng, t, shape), like(rng, t, other)
    if op in ("MAXIMUM", "MINIMUM"):
        b = same(a, other)
    if op in ("DIV", "FLOOR_DIV", "FLOOR_MOD"):
        b = Q(other, t, b.scale, 0 if t in SMALL else 0, low=1, high=90)
    out = Q(shape, bool) if "EQUAL" in op or op in ("LESS", "GREATER") else scaled(rng, a, shape, 2)
    if op in ("MAXIMUM", "MINIMUM"):
        out = same(a, shape)
    if op == "MUL" and t is I16:
        out = Q(shape, t, scale(rng) * 200)
    sides = (b, a) if other != shape and op in ("ADD", "MUL", "SUB") and rng.random() < 0.3 else (a, b)
    return Case(name, op, sides, out, options)


UNARY = ("ABS", "NEG", "SQRT", "RSQRT", "LOG", "EXP", "LOGISTIC", "TANH", "RELU", "RELU6", "RELU_N1_TO_1",
         "RELU_0_TO_1", "HARD_SWISH", "LEAKY_RELU", "ELU", "GELU", "FLOOR", "CEIL", "ROUND", "SQUARE", "SIGN", "SIN",
         "COS", "ZEROS_LIKE")  # fmt: skip


def unary(rng: Rng, name: str) -> Case:
    op, t, shape = one_of(rng, *UNARY), some_type(rng), shape_of(rng, top=9)
    x, options = like(rng, t, shape), {}
    if op in ("SQRT", "RSQRT", "LOG"):
        x = Q(shape, t, x.scale, x.zero, low=x.zero + 1 if t in SMALL else 0.1)
        if t in SMALL and x.zero >= np.iinfo(t).max:
            x = Q(shape, t, x.scale, 0, low=1)
    if op == "EXP":
        x = Q(shape, t, None if x.scale is None else x.scale / (500 if t is I16 else 2), x.zero)
    out = scaled(rng, x, shape)
    if op in ("LOGISTIC", "TANH") and t in SMALL:
        bits = {I8: 8, U8: 8, I16: 16}[t]
        low = {I8: -128, U8: 0, I16: 0}[t] if op == "LOGISTIC" else {I8: 0, U8: 128, I16: 0}[t]
        step = 2.0 ** (-bits if op == "LOGISTIC" and t is not I16 else 1 - bits)
        out = Q(shape, t, step, low)
        x = Q(shape, t, x.scale / (100 if t is I16 else 1), x.zero)
    if op == "LEAKY_RELU":
        options = {0: real(float(rng.uniform(-0.5, 1.5)))}
    if op == "GELU":
        options = {0: flag(whole(rng, 0, 1))}
    return Case(name, op, (x,), out, options)


def softmax(rng: Rng, name: str) -> Case:
    t, shape, op = some_type(rng), shape_of(rng, 1, 4, 12), one_of(rng, "SOFTMAX", "SOFTMAX", "LOG_SOFTMAX")
    x = like(rng, t, shape)
    if t is F32:
        return Case(name, op, (x,), Q(shape, t), {0: real(float(rng.uniform(0.2, 3)))} if op == "SOFTMAX" else {})
    if op == "LOG_SOFTMAX":
        t = I8 if t is I16 else t
        return Case(name, op, (like(rng, t, shape),), Q(shape, t, 1 / 16, 127 if t is I8 else 255))
    out = Q(shape, I16, 2.0**-15) if t is I16 else Q(shape, t, 1 / 256, -128 if t is I8 else 0)
    x = Q(shape, t, x.scale / (50 if t is I16 else 1), x.zero)
    return Case(name, op, (x,), out, {0: real(float(rng.uniform(0.2, 3)))})


def prelu(rng: Rng, name: str) -> Case:
    t, shape = one_of(rng, F32, I8, U8), shape_of(rng, 3, 4)
    slopes = tuple(one_of(rng, 1, d) for d in shape[1:])
    x = like(rng, t, shape)
    alpha = like(rng, t, slopes)
    data: Any = rng.standard_normal(slopes).astype(F32)
    if t is not F32:
        data = rng.integers(np.iinfo(t).min, np.iinfo(t).max, slopes).astype(t), alpha.scale, alpha.zero
    return Case(name, "PRELU", (x, data), scaled(rng, x, shape))


def norm(rng: Rng, name: str) -> Case:
    t, shape = one_of(rng, F32, I8, U8), shape_of(rng, 1, 4, 9)
    out = Q(shape, t) if t is F32 else Q(shape, t, 1 / 128, 0 if t is I8 else 128)
    if t is F32 and len(shape) == 4 and rng.random() < 0.5:
        options = {0: i32(whole(rng, 0, 5)), 1: real(float(rng.uniform(0.5, 2))), 2: real(float(rng.uniform(0.1, 2))),
                   3: real(float(rng.uniform(0.2, 1.2)))}
        return Case(name, "LOCAL_RESPONSE_NORMALIZATION", (Q(shape, t),), out, options)
    return Case(name, "L2_NORMALIZATION", (like(rng, t, shape),), out, {0: byte(0)})


def select(rng: Rng, name: str) -> Case:
    t, shape = some_type(rng, I32, I64), shape_of(rng)
    a = like(rng, t, shape)
    if rng.random() < 0.4:
        rows = (shape[0],) if rng.random() < 0.5 else shape
        return Case(name, "SELECT", (Q(rows, bool), a, same(a, shape)), same(a, shape))
    mask = tuple(1 if rng.random() < 0.4 else d for d in shape)
    other = tuple(1 if rng.random() < 0.3 else d for d in shape)
    return Case(name, "SELECT_V2", (Q(mask, bool), a, same(a, other)), same(a, shape))


# -- types --------------------------------------------------------------------------------------------
def requantize(rng: Rng, name: str) -> Case:
    shape, kinds = shape_of(rng, 1, 3, 20), (F32, I8, U8, I16)
    t, to = one_of(rng, *kinds), one_of(rng, *kinds, I32)
    if to is F32:
        t = I8 if t is F32 else t
        return Case(name, "DEQUANTIZE", (like(rng, t, shape),), Q(shape, F32))
    out = Q(shape, to, scale(rng), zero(rng, to)) if to is not I32 else Q(shape, I32, scale(rng) / 100, 0)
    return Case(name, "QUANTIZE", (like(rng, t, shape),), out)


def cast(rng: Rng, name: str) -> Case:
    kinds = (F32, I8, U8, I16, I32, I64, bool, np.float16, np.uint16, np.uint32, np.float64)
    t, to, shape = one_of(rng, *kinds), one_of(rng, *kinds), shape_of(rng, 1, 3, 20)
    bounds = {"low": 0, "high": 100} if np.dtype(t).kind == "f" else {}
    return Case(name, "CAST", (Q(shape, t, **bounds),), Q(shape, to), {})


# -- movement -----------------------------------------------------------------------------------------
def cut(rng: Rng, name: str) -> Case:
    """STRIDED_SLICE with all its masks"""
    shape = [whole(rng, 1, 7) for _ in range(whole(rng, 1, 4))]
    begin, end = ([whole(rng, -9, 9) for _ in shape] for _ in range(2))
    step = [whole(rng, 1, 3) * (1 if rng.random() < 0.6 else -1) for _ in shape]
    first, last, new, shrink = (whole(rng, 0, (1 << len(shape)) - 1) if k < 2 or rng.random() < 0.3 else 0
                                for k in range(4))
    new &= ~shrink
    index: list[Any] = []
    for k, (b, e, s) in enumerate(zip(begin, end, step, strict=True)):
        axis = sum(not new >> j & 1 for j in range(k))
        if new >> k & 1:
            index.append(None)
        elif shrink >> k & 1:
            begin[k] = whole(rng, -shape[axis], shape[axis] - 1)
            step[k] = 1
            end[k] = begin[k] + 1
            first, last = first & ~(1 << k), last & ~(1 << k)
            index.append(begin[k])
        else:
            index.append(slice(None if first >> k & 1 else b, None if last >> k & 1 else e, s))
    out = np.zeros(shape)[tuple(index)].shape
    t = some_type(rng, I32)
    x = like(rng, t, tuple(shape))
    ends = (np.array(v, I32) for v in (begin, end, step))
    return Case(name, "STRIDED_SLICE", (x, *ends), same(x, out),
                {k: i32(v) for k, v in enumerate((first, last, 0, new, shrink))})


def simple(rng: Rng, name: str) -> Case:
    """Operators that only move: one type, one scale"""
    t = some_type(rng, I32, I64, bool)
    shape = shape_of(rng)
    x, rank = like(rng, t, shape), len(shape)
    a = whole(rng, 0, rank - 1)
    signed = a - rank if rng.random() < 0.5 else a
    op = one_of(rng, "SLICE", "TRANSPOSE", "TILE", "REVERSE_V2", "EXPAND_DIMS", "BROADCAST_TO", "PACK", "UNPACK",
                "SPLIT", "SPLIT_V", "GATHER", "GATHER_ND", "RESHAPE", "SQUEEZE")

    def case(ins: tuple[Any, ...], out: Any, options: dict[int, Any] | None = None) -> Case:
        return Case(name, op, ins, out, options or {})

    def ints(*v: Any) -> np.ndarray:
        return np.array(v, one_of(rng, I32, I32, I64) if op in ("SLICE", "TILE") else I32)

    if op == "SLICE":
        at = [whole(rng, 0, d - 1) for d in shape]
        size = [whole(rng, 1, d - b) for d, b in zip(shape, at, strict=True)]
        told = [-1 if b + s == d and rng.random() < 0.5 else s for d, b, s in zip(shape, at, size, strict=True)]
        kind = one_of(rng, I32, I64)
        return case((x, np.array(at, kind), np.array(told, kind)), same(x, tuple(size)))
    if op == "TRANSPOSE":
        p = [int(k) for k in rng.permutation(rank)]
        return case((x, ints(*p)), same(x, tuple(shape[k] for k in p)))
    if op == "TILE":
        m = [whole(rng, 1, 3) for _ in shape]
        return case((x, ints(*m)), same(x, tuple(d * k for d, k in zip(shape, m, strict=True))))
    if op == "REVERSE_V2":
        return case((x, ints(signed)), x)
    if op == "EXPAND_DIMS":
        a = whole(rng, 0, rank)
        return case((x, ints(a)), same(x, (*shape[:a], 1, *shape[a:])))
    if op == "BROADCAST_TO":
        thin = tuple(1 if rng.random() < 0.5 else d for d in shape)[whole(rng, 0, rank - 1) :]
        return case((same(x, thin), ints(*shape)), x)
    if op == "PACK":
        n, a = whole(rng, 1, 4), whole(rng, 0, rank)
        return case((x,) * n, same(x, (*shape[:a], n, *shape[a:])), {0: i32(n), 1: i32(a)})
    if op == "UNPACK":
        parts = (same(x, shape[:a] + shape[a + 1 :]),) * shape[a]
        return case((x,), parts, {0: i32(shape[a]), 1: i32(signed)})
    if op == "SPLIT":
        n = one_of(rng, *[k for k in range(1, shape[a] + 1) if shape[a] % k == 0])
        part = same(x, (*shape[:a], shape[a] // n, *shape[a + 1 :]))
        return case((np.array(signed, I32), x), (part,) * n, {0: i32(n)})
    if op == "SPLIT_V":
        marks = sorted(whole(rng, 0, shape[a]) for _ in range(whole(rng, 0, 2)))
        sizes = [e - b for b, e in zip([0, *marks], [*marks, shape[a]], strict=True)]
        sizes = [s for s in sizes if s] or [shape[a]]
        outs = tuple(same(x, (*shape[:a], s, *shape[a + 1 :])) for s in sizes)
        told = [*sizes[:-1], -1] if rng.random() < 0.3 else sizes
        return case((x, np.array(told, I32), np.array(signed, I32)), outs, {0: i32(len(sizes))})
    if op == "GATHER":
        at = shape_of(rng, 0, 2, 4)
        where = Q(at, I32, low=0, high=shape[a] - 1)
        return case((x, where), same(x, (*shape[:a], *at, *shape[a + 1 :])), {0: i32(signed)})
    if op == "GATHER_ND":
        depth, rows = whole(rng, 1, rank), shape_of(rng, 1, 2, 4)
        where = Q((*rows, depth), I32, low=0, high=min(shape[:depth]) - 1)
        return case((x, where), same(x, rows + shape[depth:]))
    if op == "RESHAPE":
        out = tuple(int(k) for k in rng.permutation(shape)) if rng.random() < 0.5 else (1, *shape)
        return case((x, ints(*out)), same(x, out), {0: np.array(out, I32)})
    wide = (*shape[:a], 1, *shape[a:])
    return case((same(x, wide),), x, {0: np.array([a], I32)})


def pad(rng: Rng, name: str) -> Case:
    t, shape = some_type(rng, I32), shape_of(rng, 1, 4)
    x, op = like(rng, t, shape), one_of(rng, "PAD", "PADV2", "MIRROR_PAD")
    mode = whole(rng, 0, 1)
    most = [d - (mode == 0) if op == "MIRROR_PAD" else 3 for d in shape]
    pads = np.array([[whole(rng, 0, min(m, 3)), whole(rng, 0, min(m, 3))] for m in most],
                    I32 if rng.random() < 0.7 else I64)
    out = same(x, tuple(d + int(p.sum()) for d, p in zip(shape, pads, strict=True)))
    if op == "PADV2":
        v = np.array([whole(rng, 1, 9)], t)
        return Case(name, op, (x, pads, (v, x.scale, x.zero) if x.scale else v), out)
    return Case(name, op, (x, pads), out, {0: byte(mode)} if op == "MIRROR_PAD" else {})


def joined(rng: Rng, name: str) -> Case:
    t, shape = some_type(rng, I32, bool), shape_of(rng)
    a, n = whole(rng, 0, len(shape) - 1), whole(rng, 1, 4)
    first = like(rng, t, shape)
    parts = [first]
    for _ in range(n - 1):
        s = (*shape[:a], whole(rng, 1, 5), *shape[a + 1 :])
        parts.append(scaled(rng, first, s) if t is U8 else same(first, s))
    total = (*shape[:a], sum(p.shape[a] for p in parts), *shape[a + 1 :])
    out = scaled(rng, first, total) if t is U8 else same(first, total)
    axis = a - len(shape) if rng.random() < 0.5 else a
    return Case(name, "CONCATENATION", tuple(parts), out, {0: i32(axis), 1: byte(0)})


def blocks(rng: Rng, name: str) -> Case:
    t = some_type(rng, I32)
    op = one_of(rng, "SPACE_TO_DEPTH", "DEPTH_TO_SPACE", "SPACE_TO_BATCH_ND", "BATCH_TO_SPACE_ND")
    n, h, w, c = whole(rng, 1, 2), whole(rng, 1, 4), whole(rng, 1, 4), whole(rng, 1, 5)
    k, m = whole(rng, 1, 3), whole(rng, 1, 3)
    if op == "SPACE_TO_DEPTH":
        x = like(rng, t, (n, h * k, w * k, c))
        return Case(name, op, (x,), same(x, (n, h, w, c * k * k)), {0: i32(k)})
    if op == "DEPTH_TO_SPACE":
        x = like(rng, t, (n, h, w, c * k * k))
        return Case(name, op, (x,), same(x, (n, h * k, w * k, c)), {0: i32(k)})
    cut = [[whole(rng, 0, 1), whole(rng, 0, 1)] for _ in range(2)]
    if op == "SPACE_TO_BATCH_ND":
        size = [h * k + 2, w * m + 2]
        cut = [[p, -(d + p) % b] for (p, _), d, b in zip(cut, size, (k, m), strict=True)]
        x = like(rng, t, (n, *size, c))
        out = [(d + sum(p)) // b for d, p, b in zip(size, cut, (k, m), strict=True)]
        return Case(name, op, (x, np.array([k, m], I32), np.array(cut, I32)), same(x, (n * k * m, *out, c)))
    h, w = h + 2, w + 2
    x = like(rng, t, (n * k * m, h, w, c))
    out = [d * b - sum(p) for d, b, p in zip((h, w), (k, m), cut, strict=True)]
    return Case(name, op, (x, np.array([k, m], I32), np.array(cut, I32)), same(x, (n, *out, c)))


# -- reductions ---------------------------------------------------------------------------------------
def reduced(rng: Rng, name: str) -> Case:
    t, shape = some_type(rng, I32, I64), shape_of(rng, top=9)
    op = one_of(rng, "MEAN", "SUM", "REDUCE_MAX", "REDUCE_MIN", "REDUCE_PROD")
    rank, keep = len(shape), whole(rng, 0, 1)
    axes = sorted({whole(rng, 0, rank - 1) for _ in range(whole(rng, 1, rank))})
    out = tuple(1 if k in axes else d for k, d in enumerate(shape) if keep or k not in axes)
    x = like(rng, t, shape)
    y = same(x, out) if op in ("REDUCE_MAX", "REDUCE_MIN") else scaled(rng, x, out)
    told = [a - rank if rng.random() < 0.3 else a for a in axes]
    return Case(name, op, (x, np.array(told, I32)), y, {0: flag(keep)}, optimized=op == "SUM" and t in (I8, I16),
                atol=1e-3 if op == "REDUCE_PROD" else 1e-5, rtol=1e-4 if op == "REDUCE_PROD" else 1e-5)


def chosen(rng: Rng, name: str) -> Case:
    t, shape = some_type(rng, I32), shape_of(rng, 1, 4, 9)
    a, x = whole(rng, 0, len(shape) - 1), like(rng, t, shape)
    if rng.random() < 0.6:
        to = one_of(rng, I32, I64)
        op, out = one_of(rng, "ARG_MAX", "ARG_MIN"), shape[:a] + shape[a + 1 :]
        return Case(name, op, (x, np.array(a, I32)), Q(out, to), {0: byte(2 if to is I32 else 4)})
    k = whole(rng, 1, shape[-1])
    out = (*shape[:-1], k)
    return Case(name, "TOPK_V2", (x, np.array(k, I32)), (same(x, out), Q(out, I32)))


def counted(rng: Rng, name: str) -> Case:
    t, shape = one_of(rng, F32, I32, I64), shape_of(rng)
    a = whole(rng, -len(shape), len(shape) - 1)
    x, flags = Q(shape, t, low=-50, high=50), {k: flag(whole(rng, 0, 1)) for k in (0, 1)}
    return Case(name, "CUMSUM", (x, np.array(a, I32)), Q(shape, t), flags, atol=1e-4)


def resized(rng: Rng, name: str) -> Case:
    t = some_type(rng)
    size, to = (whole(rng, 1, 7), whole(rng, 1, 7)), (whole(rng, 1, 12), whole(rng, 1, 12))
    n, c = whole(rng, 1, 2), whole(rng, 1, 9)
    op, how = one_of(rng, "RESIZE_BILINEAR", "RESIZE_NEAREST_NEIGHBOR"), whole(rng, 0, 2)
    x, first = like(rng, t, (n, *size, c)), 2 if op == "RESIZE_BILINEAR" else 0
    return Case(name, op, (x, np.array(to, I32)), same(x, (n, *to, c)),
                {first: flag(how == 1), first + 1: flag(how == 2)}, atol=1e-4)


KINDS: tuple[Callable[[Rng, str], Case], ...] = (
    pair, unary, pair, unary, softmax, prelu, norm, select, requantize, cast, cut, simple, simple, simple, pad, joined,
    blocks, reduced, reduced, chosen, counted, resized,
)  # fmt: skip
