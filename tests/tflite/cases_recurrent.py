"""Recurrent operators: three steps each, so that what they keep is seen."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from tfl_files import Scalar, byte, i32
from tfl_single import F32, I8, I16, I32, Case, Q

B, T, K, H, P = 2, 3, 5, 6, 4  # batch, steps, input, cell, projection


def flag(v: int) -> Scalar:
    return Scalar("B", v)


def real(seed: int, *shape: int) -> np.ndarray:
    return (np.random.default_rng([seed, *shape]).standard_normal(shape) / 2).astype(F32)


def small(seed: int, *shape: int) -> tuple[np.ndarray, float, int]:
    return np.random.default_rng([seed, *shape]).integers(-127, 128, shape).astype(I8), 0.004 + seed / 4000, 0


def state(*shape: int) -> Q:
    return Q(shape, F32, state=True)


def every() -> Iterator[Case]:
    yield from plain()
    yield from filters()
    yield from lstms()
    yield from integers()


def plain() -> Iterator[Case]:
    for kind, w in (("", real), ("hybrid ", small)):
        ways = (0, 1) if w is small else (0,)
        for k in ways:
            one = w(1, H, K), w(2, H, H), real(3, H)
            yield Case(f"{kind}rnn {k}", "RNN", (Q((B, K), F32), *one, state(B, H)), Q((B, H), F32),
                       {0: byte(1), 1: flag(k)}, 3)
            for major in (0, 1):
                x, y = ((T, B, K), (T, B, H)) if major else ((B, T, K), (B, T, H))
                yield Case(f"{kind}sequence of rnn {k}{major}", "UNIDIRECTIONAL_SEQUENCE_RNN",
                           (Q(x, F32), *one, state(B, H)), Q(y, F32), {0: flag(major), 1: byte(4), 2: flag(k)}, 3)
            other = w(4, H, K), w(5, H, H), real(6, H)
            both = (Q((B, T, K), F32), *one, state(B, H), *other, state(B, H), None, None, None)
            yield Case(f"{kind}rnn both ways {k}", "BIDIRECTIONAL_SEQUENCE_RNN", both,
                       (Q((B, T, H), F32), Q((B, T, H), F32)), {0: flag(0), 1: byte(1), 2: flag(0), 3: flag(k)}, 3)
            yield Case(f"{kind}rnn both ways together {k}", "BIDIRECTIONAL_SEQUENCE_RNN", both, Q((B, T, 2 * H), F32),
                       {0: flag(0), 1: byte(1), 2: flag(1), 3: flag(k)}, 3)


def filters() -> Iterator[Case]:
    rank, memory = 2, 7
    for kind, w in (("", real), ("hybrid ", small)):
        for k in (0, 1) if w is small else (0,):
            ins = Q((B, K), F32), w(1, H, K), w(2, H, memory), real(3, H // rank), state(B, memory * H)
            options = {0: i32(rank), 1: byte(1), 2: flag(k)}
            yield Case(f"{kind}svdf {k}", "SVDF", ins, Q((B, H // rank), F32), options, 9)
    rng = np.random.default_rng(4)
    over = rng.integers(-30000, 30000, (H, memory)).astype(I16)
    bias = rng.integers(-3000, 3000, H // rank).astype(I32)
    ins = (Q((B, K), I8, 0.05, 3), small(1, H, K), (over, 0.0001, 0), (bias, 0.0001 * 0.0002, 0),
           Q((B, memory * H), I16, 0.0002, state=True))
    yield Case("svdf int8", "SVDF", ins, Q((B, H // rank), I8, 0.02, -128), {0: i32(rank), 1: byte(1)}, 9)


def lstms() -> Iterator[Case]:
    """Inputs by their numbers, absent ones None"""
    for kind, w in (("", real), ("hybrid ", small)):
        for k in (0, 1) if w is small else (0,):
            for what, extra in (("plain", ""), ("peepholes", "p"), ("coupled", "pc"), ("projected", "j"),
                                ("normalized", "n"), ("all", "pjn"), ("all coupled", "pcjn")):
                ins = inputs(w, extra)
                out = Q((B, T, P if "j" in extra else H), F32)
                options = {0: byte(4), 1: Scalar("f", 0.9 if "p" in extra else 0.0), 3: flag(0), 4: flag(k)}
                options |= {2: Scalar("f", 0.3)} if "j" in extra else {}
                yield Case(f"{kind}lstm {what} {k}", "UNIDIRECTIONAL_SEQUENCE_LSTM", (Q((B, T, K), F32), *ins), out,
                           options, 3, atol=2e-5)
    ins = inputs(real, "p")
    yield Case("lstm step", "LSTM", (Q((B, K), F32), *ins[:19]), Q((B, H), F32), {0: byte(4), 1: Scalar("f", 0.9)}, 3)
    yield Case("lstm time first", "UNIDIRECTIONAL_SEQUENCE_LSTM", (Q((T, B, K), F32), *inputs(real, "")),
               Q((T, B, H), F32), {0: byte(4), 3: flag(1)}, 3)
    for what, merged in (("apart", 0), ("together", 1)):
        there, back = inputs(real, "p"), inputs(real, "p", 50)
        x = (T, B, K) if merged else (B, T, K)  # LiteRT mixes up batches of merged results that come first
        ins = (Q(x, F32), *there[:17], *back[:17], *there[17:19], *back[17:19], *[None] * 9)
        outs = Q((T, B, 2 * H), F32) if merged else (Q((B, T, H), F32), Q((B, T, H), F32))
        yield Case(f"lstm both ways {what}", "BIDIRECTIONAL_SEQUENCE_LSTM", ins, outs,
                   {0: byte(4), 3: flag(merged), 4: flag(merged)}, 3)


def inputs(w: Any, extra: str, seed: int = 0) -> tuple[Any, ...]:
    """Inputs 1 to 23 of an LSTM: p peepholes, c coupled gates, j a projection, n normalized gates"""
    size, coupled = P if "j" in extra else H, "c" in extra
    weights: list[Any] = [w(seed + k, H, K) for k in range(4)]
    recurrent: list[Any] = [w(seed + 4 + k, H, size) for k in range(4)]
    peepholes: list[Any] = [w(seed + 8 + k, H) if "p" in extra else None for k in range(3)]
    bias: list[Any] = [real(seed + 11 + k, H) for k in range(4)]
    norms: list[Any] = [real(seed + 15 + k, H) + F32(1) if "n" in extra else None for k in range(4)]
    if coupled:
        weights[0] = recurrent[0] = peepholes[0] = bias[0] = norms[0] = None
    projection = (w(seed + 19, P, H), real(seed + 20, P)) if "j" in extra else (None, None)
    return (*weights, *recurrent, *peepholes, *bias, *projection, state(B, size), state(B, H), *norms)


def integers() -> Iterator[Case]:
    rng = np.random.default_rng(8)
    bias = [(rng.integers(-3000, 3000, H).astype(I32), 0.0002, 0) for _ in range(4)]
    ins = (Q((B, T, K), I8, 0.05, 3), *(small(k, H, K) for k in range(4)), *(small(4 + k, H, H) for k in range(4)),
           None, None, None, *bias, None, None, Q((B, H), I8, 0.007, -5, state=True),
           Q((B, H), I16, 2.0**-12, state=True), None, None, None, None)
    between = (*(Q((1,), I16, 2.0**-12) for _ in range(4)), Q((1,), I8, 0.007, -5))
    out, options = Q((B, T, H), I8, 0.007, -5), {0: byte(4), 3: flag(0)}
    yield Case("lstm int8", "UNIDIRECTIONAL_SEQUENCE_LSTM", ins, out, options, 3, between=between)
    for what, extra in (("peepholes", "p"), ("coupled", "c"), ("coupled peepholes", "pc"), ("projected", "j"),
                        ("normalized", "n"), ("all", "pjn"), ("all coupled", "pcjn")):
        yield integer(f"lstm int8 {what}", extra, rng)


def integer(name: str, extra: str, rng: np.random.Generator) -> Case:
    """p peepholes, c coupled gates, j a projection, n normalized gates; every scale is another"""
    size, coupled = P if "j" in extra else H, "c" in extra
    scale = float(rng.uniform(0.005, 0.02))
    sh, zh = (float(rng.uniform(0.005, 0.02)), int(rng.integers(-60, 60))) if "j" in extra else (scale, -5)

    def wide(*shape: int) -> tuple[np.ndarray, float, int]:
        return rng.integers(-32767, 32768, shape).astype(I16), float(rng.uniform(1e-5, 4e-5)), 0

    def biases(n: int, top: int, step: float) -> tuple[np.ndarray, float, int]:
        return rng.integers(-top, top, n).astype(I32), step, 0

    weights: list[Any] = [small(k, H, K) for k in range(4)]
    recurrent: list[Any] = [small(4 + k, H, size) for k in range(4)]
    peepholes: list[Any] = [wide(H) if "p" in extra else None for _ in range(3)]
    bias: list[Any] = [biases(H, 30000 if "n" in extra else 3000, 0.0002) for _ in range(4)]
    norms: list[Any] = [wide(H) if "n" in extra else None for _ in range(4)]
    if coupled:
        weights[0] = recurrent[0] = peepholes[0] = bias[0] = norms[0] = None
    projection = (small(9, P, H), biases(P, 900, 0.0001)) if "j" in extra else (None, None)
    ins = (Q((B, T, K), I8, 0.05, 3), *weights, *recurrent, *peepholes, *bias, *projection,
           Q((B, size), I8, sh, zh, state=True), Q((B, H), I16, 2.0**-12, state=True), *norms)
    units = rng.uniform(0.0002, 0.002, 4) if "n" in extra else [2.0**-12] * 4
    between = (*(Q((1,), I16, float(s)) for s in units), Q((1,), I8, scale, -5))
    options = {0: byte(4), 1: Scalar("f", 0.9 if "p" in extra else 0.0), 3: flag(0)}
    options |= {2: Scalar("f", 0.3)} if "jn" in extra else {}
    return Case(name, "UNIDIRECTIONAL_SEQUENCE_LSTM", ins, Q((B, T, size), I8, sh, zh), options, 3, between=between)
