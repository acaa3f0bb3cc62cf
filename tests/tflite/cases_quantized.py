"""Operators of integers that stand for real numbers, besides those of convolutional networks."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from tfl_files import Scalar, byte
from tfl_single import I8, I16, I32, U8, Case, Q


def every() -> Iterator[Case]:
    yield from curves()
    yield from curves16()
    yield from two()


def curves() -> Iterator[Case]:
    for flag in (0, 1):
        for scale, out in ((1 / 4096, 1 / 4096), (0.0000614, 0.0025), (0.000382, 0.0002)):
            x, y = Q((2, 900), I16, scale), Q((2, 900), I16, out)
            yield Case(f"gelu {flag} int16 {scale:.6f}", "GELU", (x,), y, {0: Scalar("B", flag)})
    whole = np.arange(-128, 128).astype(I8)
    for t in (I8, U8):
        z, name = (5, "int8") if t is I8 else (130, "uint8")
        low = int(np.iinfo(t).min)
        x, every = Q((2, 300), t, 0.05, z), (whole if t is I8 else whole.view(U8))
        slopes = every[40:47].reshape(1, 1, 7), 0.01, z - 3
        yield Case(f"prelu {name}", "PRELU", (Q((1, 4, 5, 7), t, 0.05, z), slopes), Q((1, 4, 5, 7), t, 0.04, z + 1))
        for flag in (0, 1):
            yield Case(f"gelu {flag} {name}", "GELU", (x,), Q((2, 300), t, 0.03, z - 2), {0: Scalar("B", flag)})
        yield Case(f"relu_n1_to_1 {name}", "RELU_N1_TO_1", (x,), Q((2, 300), t, 0.02, z - 2))
        yield Case(f"relu_0_to_1 {name}", "RELU_0_TO_1", (x,), Q((2, 300), t, 0.02, z - 2))
        for size, scale in ((37, 0.08), (9, 0.002)):
            y = Q((30, size), t, 1 / 16, low + 255)
            yield Case(f"log softmax {size} {name}", "LOG_SOFTMAX", (Q((30, size), t, scale, z),), y)
        yield Case(f"l2 norm {name}", "L2_NORMALIZATION", (Q((30, 13), t, 0.05, z),),
                   Q((30, 13), t, 1 / 128, low + 128),
                   {0: byte(0)})
    x = Q((2, 300), I8, 0.05, 5)
    yield Case("abs int8", "ABS", (x,), Q((2, 300), I8, 0.05, -7))
    yield Case("abs int8 scaled", "ABS", (x,), Q((2, 300), I8, 0.03, -7))
    yield Case("neg int8", "NEG", (x,), Q((2, 300), I8, 0.05, 5))
    for s, z in ((0.05, 3), (0.013, -77)):
        above = Q((2, 300), I8, s, z, low=z)
        yield Case(f"sqrt int8 {z}", "SQRT", (above,), Q((2, 300), I8, 0.021, -9))
    yield Case("sqrt int16", "SQRT", (Q((2, 900), I16, 0.0002, low=0),), Q((2, 900), I16, 0.00009))
    yield Case("neg int16", "NEG", (Q((2, 300), I16, 0.002),), Q((2, 300), I16, 0.002))
    yield Case("exp int8", "EXP", (Q((2, 300), I8, 0.02, 5),), Q((2, 300), I8, 0.04, -100))
    yield Case("log int8", "LOG", (x,), Q((2, 300), I8, 0.02, 3))
    yield Case("elu int8", "ELU", (x,), Q((2, 300), I8, 0.04, -90))
    positive = Q((2, 300), I8, 0.05, -120, low=-120)
    yield Case("rsqrt int8", "RSQRT", (positive,), Q((2, 300), I8, 0.02, -110))
    yield Case("softmax int8 to int16", "SOFTMAX", (Q((40, 37), I8, 0.08, 5),), Q((40, 37), I16, 1 / 65536, -32768),
               {0: Scalar("f", 1.0)})


def curves16() -> Iterator[Case]:
    for name, scale in (("exact", 2.0**-12), ("fine", 0.00013), ("coarse", 0.003)):
        x = Q((2, 900), I16, scale)
        for op in ("LOGISTIC", "TANH"):
            yield Case(f"{op} int16 {name}", op, (x,), Q((2, 900), I16, 2.0**-15))
    yield Case("TANH int16 double", "TANH", (Q((2, 900), I16, 2.0**-11),), Q((2, 900), I16, 2.0**-15))
    for size in (1, 9, 300):
        yield Case(f"softmax int16 {size}", "SOFTMAX", (Q((20, size), I16, 0.0004),), Q((20, size), I16, 2.0**-15),
                   {0: Scalar("f", 0.7)})
    x = Q((2, 900), I16, 0.0002)
    yield Case("abs int16", "ABS", (x,), Q((2, 900), I16, 0.0002))
    yield Case("abs int16 scaled", "ABS", (x,), Q((2, 900), I16, 0.0003))
    yield Case("leaky int16", "LEAKY_RELU", (x,), Q((2, 900), I16, 0.0003), {0: Scalar("f", 0.3)})
    yield Case("relu int16", "RELU", (x,), Q((2, 900), I16, 0.0003))
    yield Case("relu6 int16", "RELU6", (x,), Q((2, 900), I16, 0.0003))
    yield Case("exp int16", "EXP", (Q((2, 900), I16, 0.0001),), Q((2, 900), I16, 0.001))
    yield Case("log int16", "LOG", (x,), Q((2, 900), I16, 0.0001))
    yield Case("rsqrt int16", "RSQRT", (Q((2, 900), I16, 0.0002, low=0),), Q((2, 900), I16, 0.002))


def two() -> Iterator[Case]:
    for t in (I8, U8, I16):
        z, name = {I8: (5, "int8"), U8: (130, "uint8"), I16: (0, "int16")}[t]
        step = 0.0002 if t is I16 else 0.05
        a, b = Q((3, 70), t, step, z), Q((3, 70), t, step * 0.7, max(z - 9, 0))
        for op in ("EQUAL", "NOT_EQUAL", "LESS", "LESS_EQUAL", "GREATER", "GREATER_EQUAL"):
            yield Case(f"{op} {name}", op, (a, b), Q((3, 70), bool))
        for op in ("MAXIMUM", "MINIMUM"):
            yield Case(f"{op} {name}", op, (a, Q((70,), t, step, z)), a)
        for op in ("SUM", "MEAN"):
            out = Q((3,), t, step * 2, z and z - 3)
            yield Case(f"{op} of a row {name}", op, (a, np.array([1], I32)), out, {0: Scalar("B", 0)},
                       optimized=op == "SUM" and t is not U8)
        if t is not U8:  # scales whose ratio needs a shift, where one rounding differs from two
            yield Case(f"SUM rounds once {name}", "SUM", (Q((90, 7), t, 0.0414686, z), np.array([1], I32)),
                       Q((90,), t, 0.0967753, z), {0: Scalar("B", 0)}, optimized=True)
        yield Case(f"select {name}", "SELECT_V2", (Q((3, 1), bool), a, a), a)
    a, b = Q((3, 70), I8, 0.05, 5), Q((70,), I8, 0.03, -9)
    yield Case("squared difference int8", "SQUARED_DIFFERENCE", (a, b), Q((3, 70), I8, 0.5, -100))
    a = Q((3, 70), U8, 0.05, 130), Q((3, 70), U8, 0.03, 7, low=20)
    yield Case("div uint8", "DIV", a, Q((3, 70), U8, 0.02, 120), {0: byte(0)})
    far = Q((3, 70), U8, 0.05, 130, low=150)
    for t, z in ((I8, 5), (I16, 0)):
        parts = Q((3, 70), t, 0.05, z, low=20), Q((3, 70), t, 0.03, z, low=20)
        yield Case(f"div {np.dtype(t).name}", "DIV", parts, Q((3, 70), t, 0.02, 0), {0: byte(0)})
    yield Case("div uint8 by less", "DIV", (far, Q((70,), U8, 0.03, 120, high=119)),
               Q((3, 70), U8, 0.2, 120), {0: byte(0)})
    for t in (I8, I16):
        row, step = Q((40, 3), t, 0.02, 0), 0.00002 if t is I16 else 0.005
        name = f"product of a row {np.dtype(t).name}"
        yield Case(name, "REDUCE_PROD", (row, np.array([1], I32)), Q((40,), t, step, 0), {0: Scalar("B", 0)})
    for op in ("ADD", "SUB"):
        parts = Q((40, 9), I16, 2.0**-12), Q((40, 9), I16, 2.0**-11)
        flags = {0: byte(0), 1: Scalar("B", 1)}
        yield Case(f"{op} int16 by powers of two", op, parts, Q((40, 9), I16, 2.0**-11), flags)
