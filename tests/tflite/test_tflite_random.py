"""Single operators with random attributes, sizes and scales, against LiteRT where it is installed: every bit."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tfl_ask import asked
from tfl_files import byte, i32
from tfl_single import I8, I16, I32, I64, U8, Case, Q, graph_of

from monobloc.link.image import link_modules
from monobloc.link.objects import Module
from monobloc.link.request import Request
from monobloc.loader import CompiledModel
from monobloc.options import Options

SEED = 2031
COUNT = 60


def some(rng: np.random.Generator, k: int) -> Case:
    kind = ("conv", "depthwise", "product", "pool", "pair", "slice", "transposed")[k % 7]
    t = (I8, I8, U8, I16)[int(rng.integers(4))]
    return {"conv": conv, "depthwise": depthwise, "product": product, "pool": pool, "pair": pair, "slice": cut,
            "transposed": transposed}[kind](rng, t, f"random {k} {kind} {np.dtype(t).name}")


def whole(rng: np.random.Generator, low: int, high: int) -> int:
    return int(rng.integers(low, high + 1))


def zero(rng: np.random.Generator, t: Any) -> int:
    return 0 if t is I16 else whole(rng, 0, 255) + (-128 if t is I8 else 0)


def scale(rng: np.random.Generator) -> float:
    """Every third is a power of two, which puts results halfway between integers"""
    return 2.0 ** whole(rng, -7, -3) if rng.random() < 1 / 3 else float(rng.uniform(0.005, 0.1))


def weights(rng: np.random.Generator, t: Any, shape: tuple[int, ...], channels: int, axis: int) -> tuple[Any, Any, Any]:
    """(weights, bias, scales)"""
    kind = U8 if t is U8 else I8
    info, several = np.iinfo(kind), t is not U8 and rng.random() < 0.6
    scales = np.array([scale(rng) for _ in range(channels if several else 1)], np.float32)
    w = rng.integers(info.min + 1, info.max + 1, shape).astype(kind), scales, zero(rng, t) if t is U8 else 0, axis
    b = rng.integers(-900, 900, channels).astype(I64 if t is I16 else I32), scales, 0
    return w, b, scales


def window(rng: np.random.Generator) -> tuple[dict[int, Any], int, tuple[int, int], tuple[int, int]]:
    """(options, padding, strides, kernel)"""
    padding, strides = whole(rng, 0, 1), (whole(rng, 1, 3), whole(rng, 1, 2))
    kernel = whole(rng, 1, 4), whole(rng, 1, 3)
    return {0: byte(padding), 1: i32(strides[1]), 2: i32(strides[0])}, padding, strides, kernel


def extents(size: tuple[int, int], padding: int, strides: tuple[int, int], kernel: tuple[int, int]) -> list[int]:
    return [-(-d // s) if padding == 0 else (d - k) // s + 1 for d, s, k in zip(size, strides, kernel, strict=True)]


def conv(rng: np.random.Generator, t: Any, name: str) -> Case:
    options, padding, strides, kernel = window(rng)
    size, c, o = (whole(rng, 4, 9), whole(rng, 4, 9)), whole(rng, 1, 19), whole(rng, 1, 21)
    w, b, _ = weights(rng, t, (o, *kernel, c), o, 0)
    y = extents(size, padding, strides, kernel)
    return Case(name, "CONV_2D", (Q((1, *size, c), t, scale(rng), zero(rng, t)), w, b),
                Q((1, *y, o), t, scale(rng) * (99 if t is I16 else 5), zero(rng, t)),
                options | {3: byte((0, 1, 3)[whole(rng, 0, 2)])})


def depthwise(rng: np.random.Generator, t: Any, name: str) -> Case:
    options, padding, strides, kernel = window(rng)
    size, c, times = (whole(rng, 4, 9), whole(rng, 4, 9)), whole(rng, 1, 19), whole(rng, 1, 2)
    w, b, _ = weights(rng, t, (1, *kernel, c * times), c * times, 3)
    y = extents(size, padding, strides, kernel)
    return Case(name, "DEPTHWISE_CONV_2D", (Q((1, *size, c), t, scale(rng), zero(rng, t)), w, b),
                Q((1, *y, c * times), t, scale(rng) * (60 if t is I16 else 3), zero(rng, t)),
                options | {3: i32(times), 4: byte((0, 1, 3)[whole(rng, 0, 2)])})


def product(rng: np.random.Generator, t: Any, name: str) -> Case:
    rows, k, o = whole(rng, 1, 9), whole(rng, 1, 70), whole(rng, 1, 40)
    w, b, _ = weights(rng, t, (o, k), o, 0)
    return Case(name, "FULLY_CONNECTED", (Q((rows, k), t, scale(rng), zero(rng, t)), w, b),
                Q((rows, o), t, scale(rng) * (60 if t is I16 else 5), zero(rng, t)), {0: byte(whole(rng, 0, 1))})


def pool(rng: np.random.Generator, t: Any, name: str) -> Case:
    options, padding, strides, kernel = window(rng)
    size, c = (whole(rng, 4, 9), whole(rng, 4, 9)), whole(rng, 1, 19)
    y = extents(size, padding, strides, kernel)
    s, z = scale(rng), zero(rng, t)
    return Case(name, ("AVERAGE_POOL_2D", "MAX_POOL_2D")[whole(rng, 0, 1)], (Q((1, *size, c), t, s, z),),
                Q((1, *y, c), t, s, z), options | {3: i32(kernel[1]), 4: i32(kernel[0]), 5: byte(0)})


def pair(rng: np.random.Generator, t: Any, name: str) -> Case:
    shape = tuple(whole(rng, 1, 9) for _ in range(whole(rng, 1, 4)))
    other = tuple(1 if rng.random() < 0.3 else d for d in shape)[whole(rng, 0, len(shape) - 1) :]
    op = ("ADD", "SUB", "MUL")[whole(rng, 0, 2)]
    odd = 1.01 if t is I16 else 1.0  # whose scales are no powers of two
    ins = Q(shape, t, scale(rng) * odd, zero(rng, t)), Q(other, t, scale(rng), zero(rng, t))
    return Case(name, op, ins, Q(shape, t, scale(rng) * 2, zero(rng, t)), {0: byte(whole(rng, 0, 1))})


def cut(rng: np.random.Generator, t: Any, name: str) -> Case:
    shape = [whole(rng, 1, 7) for _ in range(whole(rng, 1, 4))]
    begin, end = ([whole(rng, -9, 9) for _ in shape] for _ in range(2))
    step = [whole(rng, 1, 3) * (1 if rng.random() < 0.6 else -1) for _ in shape]
    masks = [whole(rng, 0, (1 << len(shape)) - 1) for _ in range(2)]
    at = [slice(None if masks[0] >> k & 1 else b, None if masks[1] >> k & 1 else e, s)
          for k, (b, e, s) in enumerate(zip(begin, end, step, strict=True))]
    out = np.zeros(shape)[tuple(at)].shape
    ends = (np.array(v, I32) for v in (begin, end, step))
    s, z = scale(rng), zero(rng, t)
    return Case(name, "STRIDED_SLICE", (Q(tuple(shape), t, s, z), *ends), Q(out, t, s, z),
                {0: i32(masks[0]), 1: i32(masks[1])})


def transposed(rng: np.random.Generator, t: Any, name: str) -> Case:
    stride, kernel, c, o = whole(rng, 1, 3), (whole(rng, 1, 4), whole(rng, 1, 4)), whole(rng, 1, 9), whole(rng, 1, 9)
    size = whole(rng, 2, 5), whole(rng, 2, 5)
    w, b, _ = weights(rng, t, (o, *kernel, c), o, 0)
    y = [d * stride for d in size]
    return Case(name, "TRANSPOSE_CONV",
                (np.array([1, *y, o], I32), w, Q((1, *size, c), t, scale(rng), zero(rng, t)), b),
                Q((1, *y, o), t, scale(rng) * (60 if t is I16 else 4), zero(rng, t)),
                {0: byte(0), 1: i32(stride), 2: i32(stride)})


@pytest.mark.skipif(find_spec("ai_edge_litert") is None, reason="LiteRT is not installed: pip install ai-edge-litert")
def test_every_bit_of_random_operators(tmp_path: Path, cache: Path) -> None:
    print(f"seed {SEED}")
    rng = np.random.default_rng(SEED)
    cases = [some(rng, k) for k in range(COUNT)]
    cases = [c for c in cases if all(c.outs[0].shape)]
    models = [c.model() for c in cases]
    answers = asked([(data, feeds[0]) for data, feeds in models])
    known = [c for c, a in zip(cases, answers, strict=True) if not isinstance(a, str)]
    assert len(known) > len(cases) * 3 // 4, [a for a in answers if isinstance(a, str)][:3]
    g, feeds = graph_of(known)
    out = tmp_path / "random.so"
    link_modules([Module(g, "random", "random")], Request(out, "shared", Options(lto="none", cache=cache)))
    got = CompiledModel(out).run(feeds[0])
    wants = [a[0] for a in answers if not isinstance(a, str)]
    bad = [c.name for k, (c, want) in enumerate(zip(known, wants, strict=True))
           if not np.array_equal(got[f"c{k}.y0"], want)]
    assert not bad
