"""Convolutions and products in their rarer forms: hybrid, int16, int4, sparse, three axes; and resizing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from tfl_files import Scalar, byte, i32
from tfl_single import F16, F32, I8, I16, I32, I64, U8, Case, Q, Stored


def flag(v: int) -> Scalar:
    return Scalar("B", v)


def noise(*shape: int, top: int = 127) -> np.ndarray:
    return np.random.default_rng([top, *shape]).integers(-top, top + 1, shape)


def real(*shape: int) -> np.ndarray:
    return np.asarray(noise(*shape) / 100).astype(F32)


def scales(n: int) -> np.ndarray:
    return (np.random.default_rng(n).integers(20, 60, n) / 2048).astype(F32)


def every() -> Iterator[Case]:
    yield from matrices()
    yield from hybrid()
    yield from wide()
    yield from stored()
    yield from deep()
    yield from resized()
    yield from others()
    yield from ties()


def matrices() -> Iterator[Case]:
    def case(name: str, x: Q, y: Any, out: Q, a: int = 0, b: int = 0, asymmetric: int = 0) -> Case:
        return Case(f"matrices {name}", "BATCH_MATMUL", (x, y), out, {0: flag(a), 1: flag(b), 2: flag(asymmetric)})

    f, q = (lambda *s: Q(s, F32)), (lambda t, z, *s: Q(s, t, 0.05, z))
    yield case("of floats", f(2, 3, 5), f(2, 5, 4), f(2, 3, 4))
    yield case("of floats turned", f(1, 2, 5, 3), f(3, 1, 4, 5), f(3, 2, 3, 4), 1, 1)
    yield case("int8", q(I8, 3, 2, 9, 20), q(I8, -7, 2, 20, 8), Q((2, 9, 8), I8, 0.9, 4))
    yield case("int8 turned", q(I8, 3, 2, 20, 9), q(I8, -7, 8, 20), Q((2, 9, 8), I8, 0.9, 4), 1, 1)
    yield case("int8 constant", q(I8, 3, 2, 9, 20), (noise(20, 8).astype(I8), 0.02, 0), Q((2, 9, 8), I8, 0.4, 4))
    yield case("int16", q(I16, 0, 2, 9, 20), q(I16, 0, 2, 20, 8), Q((2, 9, 8), I16, 99.0))
    for k in (0, 1):
        yield case(f"hybrid {k}", f(2, 6, 20), (noise(20, 8).astype(I8), 0.02, 0), f(2, 6, 8), 0, 0, k)


def hybrid() -> Iterator[Case]:
    w, b = (noise(6, 3, 3, 4).astype(I8), 0.02, 0), real(6)
    per = (noise(6, 3, 3, 4).astype(I8), scales(6), 0)
    window = {0: byte(0), 1: i32(2), 2: i32(2), 3: byte(0)}
    for n in (1, 2):
        x, y = Q((n, 9, 9, 4), F32), Q((n, 5, 5, 6), F32)
        yield Case(f"hybrid conv {n}", "CONV_2D", (x, w, b), y, window)
        yield Case(f"hybrid conv per channel {n}", "CONV_2D", (x, per, b), y, window)
    deep = (noise(1, 3, 3, 8).astype(I8), scales(8), 0, 3)
    yield Case("hybrid depthwise", "DEPTHWISE_CONV_2D", (Q((2, 9, 9, 4), F32), deep, real(8)), Q((2, 5, 5, 8), F32),
               {0: byte(0), 1: i32(2), 2: i32(2), 3: i32(2)})
    for k in (0, 1):
        full = (noise(6, 40).astype(I8), 0.02, 0), real(6)
        yield Case(f"hybrid product {k}", "FULLY_CONNECTED", (Q((7, 40), F32), *full), Q((7, 6), F32), {3: flag(k)})


def wide() -> Iterator[Case]:
    window = {0: byte(0), 1: i32(2), 2: i32(2), 3: byte(1)}
    x, y = Q((1, 9, 9, 4), I16, 0.0004), Q((1, 5, 5, 6), I16, 0.002)
    w = noise(6, 3, 3, 4).astype(I8)
    for kind, t in (("int64", I64), ("int32", I32)):
        b = noise(6, top=30000).astype(t)
        given = x, (w, scales(6), 0), (b, scales(6) * F32(0.0004), 0)
        yield Case(f"conv int16 {kind}", "CONV_2D", given, y, window | {6: byte(4 if t is I64 else 2)})
    b = noise(8, top=30000).astype(I64), scales(8) * F32(0.0004), 0
    deep = (noise(1, 3, 3, 8).astype(I8), scales(8), 0, 3)
    yield Case("depthwise int16", "DEPTHWISE_CONV_2D", (x, deep, b), Q((1, 5, 5, 8), I16, 0.001),
               {0: byte(0), 1: i32(2), 2: i32(2), 3: i32(2), 4: byte(0)})
    b = noise(3, top=30000).astype(I64), scales(3) * F32(0.0004), 0
    up = np.array([1, 8, 8, 3], I32), (noise(3, 3, 3, 2).astype(I8), scales(3), 0), Q((1, 4, 4, 2), I16, 0.0004), b
    steps = {0: byte(0), 1: i32(2), 2: i32(2)}
    for batch, some in ((1, scales(3)), (2, 0.02)):
        ends = (np.float32([1, -2, 3]),) if batch == 1 else ()
        w = noise(3, 3, 3, 2).astype(I8), some, 0
        mixed = (np.array([batch, 8, 8, 3], I32), w, Q((batch, 4, 4, 2), F32), *ends)
        yield Case(f"transposed hybrid {batch}", "TRANSPOSE_CONV", mixed, Q((batch, 8, 8, 3), F32), steps, atol=1e-4)
    yield Case("transposed int16", "TRANSPOSE_CONV", up, Q((1, 8, 8, 3), I16, 0.002), steps)
    pool = {0: byte(0), 1: i32(2), 2: i32(2), 3: i32(3), 4: i32(3), 5: byte(0)}
    for op in ("AVERAGE_POOL_2D", "MAX_POOL_2D"):
        yield Case(f"{op} int16", op, (x,), Q((1, 5, 5, 4), I16, 0.0004), pool)
    for kind, t in (("int64", I64), ("int32", I32)):
        w, b, typed = noise(6, 40).astype(I8), noise(6, top=30000).astype(t), {4: byte(4 if t is I64 else 2)}
        full = Q((7, 40), I16, 0.0004), (w, scales(6), 0), (b, scales(6) * F32(0.0004), 0)
        yield Case(f"product int16 per channel {kind}", "FULLY_CONNECTED", full, Q((7, 6), I16, 0.002), typed)
        full = Q((7, 40), I16, 0.0004), (w, 0.02, 0), (b, 0.000008, 0)
        yield Case(f"product int16 {kind}", "FULLY_CONNECTED", full, Q((7, 6), I16, 0.002), typed)
    yield Case("pad int16", "PAD", (x, np.array([[0, 0], [1, 2], [0, 1], [0, 0]], I32)), Q((1, 12, 10, 4), I16, 0.0004))
    yield Case("concatenation int16", "CONCATENATION", (x, x), Q((1, 9, 9, 8), I16, 0.0004), {0: i32(-1)})


def stored() -> Iterator[Case]:
    small = noise(6, 40, top=7)
    b = noise(6, top=900).astype(I32)
    x = Q((7, 40), I8, 0.05, 3)
    four = Stored("int4", small, 0.02)
    yield Case("product int4", "FULLY_CONNECTED", (x, four, (b, 0.001, 0)), Q((7, 6), I8, 0.2, -4), {0: byte(0)})
    four = Stored("int4", noise(6, 3, 3, 3, top=7), scales(6))
    per = four, (b, scales(6) * F32(0.05), 0)
    yield Case("conv int4", "CONV_2D", (Q((1, 9, 9, 3), I8, 0.05, 3), *per), Q((1, 5, 5, 6), I8, 0.1, -4),
               {0: byte(0), 1: i32(2), 2: i32(2), 3: byte(0)})
    thin = real(6, 40) * (noise(6, 40) > 60)
    for block in (0, 4):
        runs = thin if not block else np.where(np.repeat(noise(6, 10) > 20, 4, 1), real(6, 40), 0).astype(F32)
        yield Case(f"densify {block}", "DENSIFY", (Stored("sparse", runs, None, (block,)),), Q((6, 40), F32))
        given = Q((7, 40), F32), Stored("sparse", runs, None, (block,)), real(6)
        yield Case(f"sparse product {block}", "FULLY_CONNECTED", given, Q((7, 6), F32), {0: byte(0)})


def ties() -> Iterator[Case]:
    """Scales that are powers of two put many results halfway between two integers."""
    sx, sw, sy = 2.0**-4, 2.0**-6, 2.0**-2
    for t in (I8, U8):
        name, z = np.dtype(t).name, 3 if t is I8 else 130

        def w(*shape: int, t: Any = t) -> tuple[Any, ...]:
            zero = 0 if t is I8 else 120
            return ((noise(*shape, top=100) + zero).astype(t), sw, zero)

        def case(what: str, op: str, ins: tuple[Any, ...], shape: tuple[int, ...], o: Any, t: Any = t) -> Case:
            return Case(f"ties {what} {np.dtype(t).name}", op, ins, Q(shape, t, sy, 130 if t is U8 else 3), o)

        x, b = Q((1, 16, 16, 12), t, sx, z), (noise(6, top=900).astype(I32), sx * sw, 0)
        window = {0: byte(0), 1: i32(1), 2: i32(1), 3: byte(0)}
        yield case("conv", "CONV_2D", (x, w(6, 3, 3, 12), b), (1, 16, 16, 6), window)
        b12 = (noise(12, top=900).astype(I32), sx * sw, 0)
        yield case("depthwise", "DEPTHWISE_CONV_2D", (x, w(1, 3, 3, 12), b12), (1, 16, 16, 12), window | {3: i32(1)})
        yield case("product", "FULLY_CONNECTED", (Q((400, 12), t, sx, z), w(6, 12), b), (400, 6), {0: byte(0)})
        up = np.array([1, 32, 32, 6], I32), w(6, 3, 3, 12), x
        yield case("transposed", "TRANSPOSE_CONV", up, (1, 32, 32, 6), {0: byte(0), 1: i32(2), 2: i32(2)})
        rows = Q((300, 7), t, sx, z)
        yield case("add", "ADD", (rows, rows), (300, 7), {0: byte(0)})
        yield case("mul", "MUL", (rows, Q((300, 7), t, sw, z)), (300, 7), {0: byte(0)})
        yield case("mean", "MEAN", (rows, np.array([1], I32)), (300,), {0: flag(0)})
        yield case("relu", "RELU", (rows,), (300, 7), {})
        pool = {0: byte(0), 1: i32(2), 2: i32(2), 3: i32(2), 4: i32(2), 5: byte(0)}
        yield Case(f"ties mean of window {name}", "AVERAGE_POOL_2D", (x,), Q((1, 8, 8, 12), t, sx, z), pool)
    pair = Q((99, 12), I8, sx, 3), Q((12, 40), I8, sw, -2)
    yield Case("ties matrices", "BATCH_MATMUL", pair, Q((99, 40), I8, sy, 3))
    full = Q((400, 12), I16, sx), ((noise(6, 12)).astype(I8), sw, 0), (noise(6, top=900).astype(I64), sx * sw, 0)
    yield Case("ties product int16", "FULLY_CONNECTED", full, Q((400, 6), I16, sy * 16), {0: byte(0)})
    x = Q((1, 16, 16, 12), I16, sx)
    b = noise(6, top=900).astype(I64), np.full(6, sx * sw), 0
    conv = x, (noise(6, 3, 3, 12).astype(I8), np.full(6, sw), 0), b
    yield Case("ties conv int16", "CONV_2D", conv, Q((1, 16, 16, 6), I16, sy * 64),
               {0: byte(0), 1: i32(1), 2: i32(1), 3: byte(0)})


def deep() -> Iterator[Case]:
    for padding in (0, 1):
        size = (3, 4, 3) if not padding else (2, 4, 2)
        options = {0: byte(padding), 1: i32(2), 2: i32(2), 3: i32(2), 4: byte(1)}
        yield Case(f"three axes {padding}", "CONV_3D", (Q((1, 5, 8, 5, 2), F32), real(2, 2, 2, 2, 3), real(3)),
                   Q((1, *size, 3), F32), options)
    shape = np.array([1, 6, 8, 6, 3], I32)
    yield Case("three axes transposed", "CONV_3D_TRANSPOSE", (shape, real(2, 3, 2, 3, 2), Q((1, 3, 4, 3, 2), F32)),
               Q((1, 6, 8, 6, 3), F32), {0: byte(0), 1: i32(2), 2: i32(2), 3: i32(2), 4: byte(0)})


def resized() -> Iterator[Case]:
    for t, z in ((I8, 3), (U8, 130), (I16, 0), (F32, 0)):
        scale = None if t is F32 else 0.05
        for corners, centers in ((0, 0), (1, 0), (0, 1)):
            for to in ((7, 8), (3, 2)):
                name = f"bilinear {np.dtype(t).name} {corners}{centers} {to[0]}"
                yield Case(name, "RESIZE_BILINEAR", (Q((1, 5, 4, 3), t, scale, z), np.array(to, I32)),
                           Q((1, *to, 3), t, scale, z), {2: flag(corners), 3: flag(centers)})
                if to[0] == 7:
                    yield Case(name.replace("bi", ""), "RESIZE_NEAREST_NEIGHBOR",
                               (Q((1, 5, 4, 3), t, scale, z), np.array(to, I32)), Q((1, *to, 3), t, scale, z),
                               {0: flag(corners), 1: flag(centers)})
    yield Case("bilinear uint8 of many", "RESIZE_BILINEAR", (Q((1, 5, 6, 400), U8, 0.05, 171), np.array([4, 7], I32)),
               Q((1, 4, 7, 400), U8, 0.05, 171), {2: flag(1), 3: flag(0)})  # where a product that is not rounded shows


def others() -> Iterator[Case]:
    parts = Q((2, 3, 4), U8, 0.05, 130), Q((2, 2, 4), U8, 0.03, 100)
    yield Case("concatenation uint8", "CONCATENATION", parts, Q((2, 5, 4), U8, 0.04, 120), {0: i32(1)})
    yield Case("dequantize int16", "DEQUANTIZE", (Q((3, 9), I16, 0.001),), Q((3, 9), F32))
    yield Case("dequantize halves", "DEQUANTIZE", (noise(3, 9).astype(F16),), Q((3, 9), F32))
    for t in (I8, U8, I16):
        yield Case(f"quantize to {np.dtype(t).name}", "QUANTIZE", (Q((3, 50), F32),), Q((3, 50), t, 0.0125, 0))
    yield Case("requantize int16 to int8", "QUANTIZE", (Q((3, 50), I16, 0.0002),), Q((3, 50), I8, 0.05, -3))
    yield Case("requantize int8 to int16", "QUANTIZE", (Q((3, 50), I8, 0.05, -3),), Q((3, 50), I16, 0.0002))
    yield Case("requantize int8 to uint8", "QUANTIZE", (Q((3, 50), I8, 0.05, -3),), Q((3, 50), U8, 0.05, 125))
    yield Case("requantize int16 to int32", "QUANTIZE", (Q((3, 50), I16, 0.05),), Q((3, 50), I32, 0.0002, 0))
    for to in (I32, I64, U8, bool, F16):
        yield Case(f"cast to {np.dtype(to).name}", "CAST", (Q((3, 9), F32, low=0),), Q((3, 9), to), {})
