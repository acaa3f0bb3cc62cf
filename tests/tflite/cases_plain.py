"""Operators that move, select, sort and count; and functions of floats."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from tfl_files import Scalar, byte, i32
from tfl_single import F32, I8, I16, I32, I64, U8, Case, Q


def f(*shape: int) -> Q:
    return Q(shape, F32)


def noise(*shape: int) -> np.ndarray:
    return np.random.default_rng(list(shape)).standard_normal(shape).astype(F32)


def real(v: float) -> Scalar:
    return Scalar("f", v)


def ints(*v: Any, dtype: Any = I32) -> np.ndarray:
    return np.array(v if len(v) != 1 or isinstance(v[0], int) else v[0], dtype)


def scalar(v: Any, dtype: Any = I32) -> np.ndarray:
    return np.array(v, dtype)


def every() -> Iterator[Case]:
    yield from by_index()
    yield from written()
    yield from ordered()
    yield from shaped()
    yield from functions()
    yield from two()
    yield from norms()


def by_index() -> Iterator[Case]:
    at = Q((2, 3), I32, low=0, high=3)
    yield Case("gather of the run", "GATHER", (f(2, 4, 5), at), f(2, 2, 3, 5), {0: i32(1)})
    yield Case("gather in batches", "GATHER", (f(2, 4, 5), at), f(2, 3, 5), {0: i32(1), 1: i32(1)})
    yield Case("gather behind batches", "GATHER", (f(2, 5, 4), at), f(2, 5, 3), {0: i32(2), 1: i32(1)})
    yield Case("gather constant", "GATHER", (f(2, 4, 5), ints(3, 1)), f(2, 2, 5), {0: i32(1)})
    yield Case("gather of int8", "GATHER", (Q((4, 5), I8, 0.1, 3), ints(3, 1)), Q((2, 5), I8, 0.1, 3), {0: i32(0)})
    pairs = Q((3, 2), I32, low=0, high=1)
    yield Case("gather_nd", "GATHER_ND", (f(2, 3, 4), pairs), f(3, 4))
    yield Case("gather_nd of int64", "GATHER_ND", (f(2, 3, 4), Q((5, 1), I64, low=0, high=1)), f(5, 3, 4))
    table = noise(7, 4)
    yield Case("embedding", "EMBEDDING_LOOKUP", (Q((5,), I32, low=0, high=6), table), f(5, 4))
    rows = (noise(7, 4) * 60).clip(-127, 127).astype(I8)
    yield Case("embedding of int8", "EMBEDDING_LOOKUP", (Q((5,), I32, low=0, high=6), (rows, 0.02, 0)), f(5, 4))
    on, off = scalar(2.5, F32), scalar(-1, F32)
    for axis in (-1, 0, 1):
        out = f(*np.insert([2, 3], axis if axis >= 0 else 2, 4))
        place = (Q((2, 3), I32, low=-2, high=5), scalar(4), on, off)
        yield Case(f"one_hot {axis}", "ONE_HOT", place, out, {0: i32(axis)})
    yield Case("reverse", "REVERSE_V2", (f(2, 3, 4), ints(1, 2)), f(2, 3, 4))
    yield Case("reverse sequence", "REVERSE_SEQUENCE", (f(4, 3, 2), Q((3,), I32, low=0, high=4)), f(4, 3, 2),
               {0: i32(0), 1: i32(1)})
    yield Case("reverse sequence last", "REVERSE_SEQUENCE", (f(3, 2, 5), Q((3,), I64, low=1, high=5)), f(3, 2, 5),
               {0: i32(2), 1: i32(0)})


def written() -> Iterator[Case]:
    yield Case("scatter", "SCATTER_ND", (Q((4, 1), I32, low=0, high=4), f(4, 3), ints(5, 3)), f(5, 3))
    whole = Q((4, 2), I32, low=0, high=2), Q((4,), I32)
    yield Case("scatter whole", "SCATTER_ND", (*whole, ints(3, 3)), Q((3, 3), I32))
    places = np.array([[0, 1], [2, 0], [2, 3]], I32)
    dense = (places, ints(3, 4), f(3), scalar(0.5, F32))
    yield Case("sparse to dense", "SPARSE_TO_DENSE", dense, f(3, 4), {0: Scalar("B", 1)})
    yield Case("sparse row", "SPARSE_TO_DENSE", (ints(1, 3), ints([5]), scalar(7), scalar(-1)), Q((5,), I32),
               {0: Scalar("B", 1)})
    yield Case("segments", "SEGMENT_SUM", (f(5, 2), ints(0, 0, 1, 2, 2)), f(3, 2))
    for op in ("SUM", "PROD", "MAX", "MIN"):
        ids = Q((5,), I32, low=-1, high=3)
        yield Case(f"segments {op}", f"UNSORTED_SEGMENT_{op}", (f(5, 2), ids, scalar(4)), f(4, 2))
    ids = Q((2, 3), I32, low=0, high=2)
    yield Case("segments of two axes", "UNSORTED_SEGMENT_SUM", (f(2, 3), ids, scalar(3)), f(3))
    for lo, hi in ((0, 1), (-4, 9)):
        start = Q((3,), I32, low=lo, high=hi)
        yield Case(f"update {lo}", "DYNAMIC_UPDATE_SLICE", (f(4, 5, 3), f(2, 3, 1), start), f(4, 5, 3))
    yield Case("diagonal", "MATRIX_DIAG", (f(2, 3),), f(2, 3, 3))
    for shape in ((2, 3, 3), (3, 4), (4, 3)):
        d = (*shape[:-2], min(shape[-2:]))
        yield Case(f"set diagonal {shape}", "MATRIX_SET_DIAG", (f(*shape), f(*d)), f(*shape))


def ordered() -> Iterator[Case]:
    yield Case("topk", "TOPK_V2", (f(3, 9), scalar(4)), (f(3, 4), Q((3, 4), I32)))
    yield Case("topk of int8", "TOPK_V2", (Q((3, 9), I8, 0.1, 0), scalar(4)), (Q((3, 4), I8, 0.1, 0), Q((3, 4), I32)))
    for e in (0, 1):
        for r in (0, 1):
            flags = {0: Scalar("B", e), 1: Scalar("B", r)}
            yield Case(f"cumsum {e}{r}", "CUMSUM", (f(2, 4, 3), scalar(1)), f(2, 4, 3), flags)
    yield Case("cumsum of int32", "CUMSUM", (Q((2, 4), I32, low=-99, high=99), scalar(-1)), Q((2, 4), I32))
    edges = {0: np.array([-1, 0.5, 0.5, 2], F32)}
    yield Case("bucketize", "BUCKETIZE", (f(3, 9),), Q((3, 9), I32), edges)
    yield Case("bucketize of int32", "BUCKETIZE", (Q((9,), I32, low=-3, high=3),), Q((9,), I32), edges)
    yield Case("arg_max of int8", "ARG_MAX", (Q((3, 9), I8, 0.1, 0), scalar(1)), Q((3,), I32), {0: byte(2)})
    yield Case("arg_min", "ARG_MIN", (f(3, 9), scalar(0)), Q((9,), I64), {0: byte(4)})


def shaped() -> Iterator[Case]:
    yield Case("zeros", "ZEROS_LIKE", (f(2, 3),), f(2, 3))
    yield Case("rank", "RANK", (f(2, 3),), Q((), I32))
    yield Case("as integers", "BITCAST", (f(2, 3),), Q((2, 3), I32))
    for mode in (0, 1):
        pads = np.array([[1, 1], [0, 0], [1, 2]], I32)
        yield Case(f"mirror {mode}", "MIRROR_PAD", (f(2, 1, 3), pads), f(4, 1, 6), {0: byte(mode)})
    pads = np.array([[0, 0], [2, 0], [1, 2], [0, 0]], I32)
    x, y = (Q(s, I8, 0.1, 3) for s in ((1, 4, 3, 2), (1, 6, 6, 2)))
    yield Case("mirror of int8", "MIRROR_PAD", (x, pads), y, {0: byte(1)})

    def cut(name: str, shape: tuple[int, ...], b: list[int], e: list[int], s: list[int], **masks: int) -> Case:
        keys = ("begin", "end", "ellipsis", "new", "shrink")
        return Case(name, "STRIDED_SLICE", (f(2, 3, 4, 5), ints(b), ints(e), ints(s)), f(*shape),
                    {k: i32(masks.get(n, 0)) for k, n in enumerate(keys)})

    yield cut("slice with ellipsis", (2, 3, 4, 2), [0, 1], [0, 3], [1, 1], ellipsis=1)
    yield cut("slice with new axes", (1, 2, 3, 1, 4, 5), [0, 0, 0, 0], [0, 2, 3, 0], [1] * 4, new=9)
    yield cut("slice with all", (1, 3, 4, 2), [0, 1, 0, 4], [0, 0, 0, 0], [1, 1, 1, -2], new=1, shrink=2, ellipsis=4)
    yield cut("slice backwards", (1, 3, 4, 5), [1, 2], [0, -4], [-1, -1])
    yield Case("select rows", "SELECT", (Q((3,), bool), f(3, 2), f(3, 2)), f(3, 2))
    yield Case("select broadcast", "SELECT_V2", (Q((3, 1), bool), f(3, 2), f(2)), f(3, 2))
    for op in ("REDUCE_ANY", "REDUCE_ALL"):
        yield Case(op, op, (Q((4, 3), bool), ints([1])), Q((4,), bool), {0: Scalar("B", 0)})


def functions() -> Iterator[Case]:
    for op in ("ABS", "NEG", "EXP", "SIN", "COS", "FLOOR", "CEIL", "ROUND", "SIGN", "SQUARE", "RELU", "RELU6",
               "RELU_N1_TO_1", "RELU_0_TO_1", "LOGISTIC", "TANH", "HARD_SWISH", "ELU"):
        yield Case(f"{op} of floats", op, (f(5, 33),), f(5, 33))
    above = Q((5, 33), F32, low=0.1, high=40)
    for op in ("LOG", "SQRT", "RSQRT"):
        yield Case(f"{op} of floats", op, (above,), f(5, 33))
    for flag in (0, 1):
        yield Case(f"gelu {flag}", "GELU", (f(5, 33),), f(5, 33), {0: Scalar("B", flag)})
    yield Case("prelu of floats", "PRELU", (f(2, 3, 4, 5), noise(1, 1, 5)), f(2, 3, 4, 5))
    for bits in (8, 5):
        options = {0: real(-2.3), 1: real(3.1), 2: i32(bits)}
        yield Case(f"fake_quant {bits}", "FAKE_QUANT", (f(5, 33),), f(5, 33), options)


def two() -> Iterator[Case]:
    for op in ("DIV", "POW", "MAXIMUM", "MINIMUM", "SQUARED_DIFFERENCE", "ATAN2", "FLOOR_DIV", "FLOOR_MOD"):
        divides = op in ("DIV", "FLOOR_DIV", "FLOOR_MOD", "POW")
        right = Q((3, 7), F32, low=0.25, high=4) if divides else f(3, 7)
        left = Q((3, 7), F32, low=0.25, high=4) if op == "POW" else f(3, 7)
        yield Case(f"{op} of floats", op, (left, right), f(3, 7), {0: byte(0)} if op == "DIV" else {})
    signed = np.array([-3.5, -2, 2, 3.5, -0.5, 0.5, 7], F32)
    for op in ("FLOOR_DIV", "FLOOR_MOD"):
        yield Case(f"{op} of both signs", op, (f(3, 7), signed), f(3, 7))
        whole = np.array([-3, -2, 2, 3, -1, 1, 7], I32)
        yield Case(f"{op} of int32", op, (Q((3, 7), I32, low=-50, high=50), whole), Q((3, 7), I32))
    for t in (I8, I16, I32, U8):
        name = np.dtype(t).name
        yield Case(f"shift {name}", "RIGHT_SHIFT", (Q((40,), t), Q((40,), t, low=0, high=9)), Q((40,), t))
        yield Case(f"xor {name}", "BITWISE_XOR", (Q((40,), t), Q((40,), t)), Q((40,), t))
    low, by = np.array([-128, -128, 127, -5, 5, -7, 7], I8), np.array([3, -3, 5, 2, -2, 100, -100], I8)
    ends = Q((4, 7), I8, 0.1, 0, low=-128, high=-120), (by, 0.1, 0)
    yield Case("FLOOR_DIV of the least int8", "FLOOR_DIV", ends, Q((4, 7), I8, 0.1, 0))
    ends = (low, 0.1, 0), Q((4, 7), I8, 0.1, 0, low=1)
    yield Case("FLOOR_DIV by int8", "FLOOR_DIV", ends, Q((4, 7), I8, 0.1, 0))
    yield Case("sum of three", "ADD_N", (f(3, 7), f(3, 7), f(3, 7)), f(3, 7))
    for op in ("EQUAL", "NOT_EQUAL", "LESS", "LESS_EQUAL", "GREATER", "GREATER_EQUAL"):
        small = Q((3, 30), I32, low=0, high=4)
        yield Case(f"{op} of int32", op, (small, small), Q((3, 30), bool))


def norms() -> Iterator[Case]:
    yield Case("l2 norm", "L2_NORMALIZATION", (f(3, 9),), f(3, 9), {0: byte(0)})
    pool = {0: byte(0), 1: i32(2), 2: i32(1), 3: i32(3), 4: i32(2), 5: byte(0)}
    yield Case("l2 pool", "L2_POOL_2D", (f(1, 6, 7, 3),), f(1, 6, 4, 3), pool)
    options = {0: i32(2), 1: real(1.5), 2: real(0.3), 3: real(0.6)}
    yield Case("local response", "LOCAL_RESPONSE_NORMALIZATION", (f(1, 3, 4, 9),), f(1, 3, 4, 9), options)
    none = options | {0: i32(0)}
    yield Case("local response of nothing", "LOCAL_RESPONSE_NORMALIZATION", (f(1, 3, 4, 9),), f(1, 3, 4, 9), none)
    yield Case("log softmax of floats", "LOG_SOFTMAX", (f(3, 9),), f(3, 9))
    yield Case("softmax of floats", "SOFTMAX", (f(3, 9),), f(3, 9), {0: real(0.5)})
    yield Case("product of a row", "REDUCE_PROD", (f(3, 4), ints([1])), f(3), {0: Scalar("B", 0)})
