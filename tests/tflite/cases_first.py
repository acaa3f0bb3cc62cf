"""The operators of convolutional networks in integers of 8 and 16 bits."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from tfl_files import Scalar, byte, i32
from tfl_single import F32, I8, I16, U8, Case, Q


def every() -> Iterator[Case]:
    rng = np.random.default_rng(5)
    for t in (I8, U8):
        yield from eight_bits(t, 5 if t is I8 else 130, rng)
    w, b, scales = weights(rng, I8, 6, 3, 3, 4), bias(rng, 6), rng.integers(20, 60, 6).astype(F32) / 2048
    window = {0: byte(0), 1: i32(2), 2: i32(2), 3: byte(1)}
    per = (w, scales, 0), (b, scales * F32(0.05), 0)
    x = Q((1, 9, 9, 4), I8, 0.05, 3)
    yield Case("conv per channel", "CONV_2D", (x, *per), Q((1, 5, 5, 6), I8, 0.5, -4), window)
    f = weights(rng, I8, 6, 40)
    full = Q((60, 40), I8, 0.05, 3), (f, scales, 0), (b, scales * F32(0.05), 0)
    yield Case("product per channel", "FULLY_CONNECTED", full, Q((60, 6), I8, 0.7, -4), {0: byte(1)})
    wide = Q((60, 40), I16, 0.0003), (f, 0.02, 0), (b.astype(np.int64), 0.000006, 0)
    yield Case("product of int16", "FULLY_CONNECTED", wide, Q((60, 6), I16, 0.0009), {0: byte(1)})
    yield Case("add of int16", "ADD", (Q((40, 9), I16, 0.0003), Q((40, 9), I16, 0.00021)), Q((40, 9), I16, 0.0005))
    yield Case("mul of int16", "MUL", (Q((40, 9), I16, 0.0003), Q((40, 9), I16, 0.00021)), Q((40, 9), I16, 0.0005))
    up = np.array([1, 8, 8, 3], np.int32), (weights(rng, I8, 3, 3, 3, 2), np.full(3, 0.02, F32), 0)
    yield Case("transposed", "TRANSPOSE_CONV", (*up, Q((1, 4, 4, 2), I8, 0.05, 3)), Q((1, 8, 8, 3), I8, 0.2, 4),
               {0: byte(0), 1: i32(2), 2: i32(2)})


def weights(rng: np.random.Generator, t: Any, *shape: int) -> np.ndarray:
    return rng.integers(np.iinfo(t).min + 1, np.iinfo(t).max + 1, shape).astype(t)


def bias(rng: np.random.Generator, n: int) -> np.ndarray:
    return rng.integers(-900, 900, n).astype(np.int32)


def eight_bits(t: Any, z: int, rng: np.random.Generator) -> Iterator[Case]:
    low, kind = int(np.iinfo(t).min), np.dtype(t).name
    shape, image, rows = (2, 50, 3), (1, 9, 8, 5), (4, 99)

    def q(s: tuple[int, ...], scale: float = 0.05, zero: int = z) -> Q:
        return Q(s, t, scale, zero)

    def case(name: str, op: str, ins: tuple[Any, ...], out: Q, **options: Any) -> Case:
        return Case(f"{name} {kind}", op, ins, out, {int(k[1:]): v for k, v in options.items()})

    for act in (0, 1, 3):
        yield case(f"add {act}", "ADD", (q(shape), q(shape, 0.021)), q(shape, 0.06), _0=byte(act))
    yield case("sub", "SUB", (q(shape), q((3,), 0.021)), q(shape, 0.06))
    yield case("mul", "MUL", (q(shape), q(shape, 0.021)), q(shape, 0.06), _0=byte(1))
    pool = {"_1": i32(2), "_2": i32(2), "_3": i32(3), "_4": i32(3)}
    for op, act in (("AVERAGE_POOL_2D", 1), ("MAX_POOL_2D", 3)):
        yield case(op, op, (q(image),), q((1, 5, 4, 5)), **pool, _5=byte(act))
    middle = low + 128
    for op, scale, zero in (("LOGISTIC", 1 / 256, low), ("TANH", 1 / 128, middle)):
        yield case(op, op, (q((1, 999)),), q((1, 999), scale, zero))
    yield case("softmax", "SOFTMAX", (q((40, 37), 0.08),), q((40, 37), 1 / 256, low), _0=Scalar("f", 1.0))
    for op in ("RELU", "RELU6", "HARD_SWISH"):
        yield case(op, op, (q(rows, 0.08),), q(rows, 0.05, z - 2))
    yield case("leaky", "LEAKY_RELU", (q(rows, 0.08),), q(rows, 0.05, z - 2), _0=Scalar("f", 0.3))
    yield case("quantize", "QUANTIZE", (Q(rows, F32, None),), q(rows, 0.03))
    yield case("requantize", "QUANTIZE", (q(rows),), q(rows, 0.03, z + 7))
    yield case("dequantize", "DEQUANTIZE", (q(rows),), Q(rows, F32, None))
    pads = np.array([[0, 0], [1, 2], [0, 1], [0, 0]], np.int32)
    yield case("pad", "PAD", (q((1, 3, 4, 2)), pads), q((1, 6, 5, 2)))
    yield case("mean", "MEAN", (q((2, 7, 6, 5)), np.array([1, 2], np.int32)), q((2, 5), 0.03, z - 3))
    yield case("mean of rows", "MEAN", (q((3, 40)), np.array([1], np.int32)), q((3,), 0.03, z - 3))
    yield case("largest", "REDUCE_MAX", (q((3, 40)), np.array([1], np.int32)), q((3,)))
    yield case("nearest", "RESIZE_NEAREST_NEIGHBOR", (q((1, 5, 4, 3)), np.array([7, 8], np.int32)), q((1, 7, 8, 3)))
    blocks = np.array([2, 2], np.int32), np.array([[0, 1], [2, 0]], np.int32)
    yield case("blocks", "SPACE_TO_BATCH_ND", (q((1, 5, 4, 3)), *blocks), q((4, 3, 3, 3)))
    zw = 0 if t is I8 else 120
    x, window = q((1, 9, 9, 4)), {"_0": byte(0), "_1": i32(2), "_2": i32(2)}
    conv = (weights(rng, t, 6, 3, 3, 4), 0.02, zw), (bias(rng, 6), 0.001, 0)
    yield case("conv", "CONV_2D", (x, *conv), q((1, 5, 5, 6), 0.5), **window, _3=byte(0))
    deep = (weights(rng, t, 1, 3, 3, 8), 0.02, zw), (bias(rng, 8), 0.001, 0)
    yield case("depthwise", "DEPTHWISE_CONV_2D", (x, *deep), q((1, 5, 5, 8), 0.3), **window, _3=i32(2), _4=byte(1))
    flat = (weights(rng, t, 6, 40), 0.02, zw), (bias(rng, 6), 0.001, 0)
    yield case("product", "FULLY_CONNECTED", (q((60, 40)), *flat), q((60, 6), 0.7), _0=byte(0))
