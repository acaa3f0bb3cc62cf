"""Single TFLite operators as test cases, LiteRT's answers to them, and all of a family in one image.

What LiteRT 2.3's reference kernels answered is kept: integers as hashes in `litert_answers.json`, floats in
`litert_floats.npz`, so that LiteRT need not be installed. With it installed, `python tests/tflite/tfl_record.py`
asks it again and writes both anew; `--new` asks only what has no answer yet.
What TFLite Micro's kernels answered is in `tflm_answers.json`, integers only, which
`tfl_record.py --micro` writes with the package `tflite-micro`; it stands for operators that LiteRT does not have.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from tfl_files import Net

from monobloc.frontend.importing import Choices
from monobloc.frontend.tflite import load_tflite
from monobloc.ir.graph import Graph
from monobloc.link.clone import clone
from monobloc.link.image import link_modules
from monobloc.link.objects import Module
from monobloc.link.request import Request
from monobloc.loader import CompiledModel
from monobloc.options import Options

HASHES, FLOATS, MICRO = (Path(__file__).with_name(n) for n in (
    "litert_answers.json", "litert_floats.npz", "tflm_answers.json"))
F32, F64, F16, I8, U8, I16, I32, I64 = (np.float32, np.float64, np.float16, np.int8, np.uint8, np.int16, np.int32,
                                        np.int64)
U32, U64 = np.uint32, np.uint64


@dataclass(frozen=True)
class Q:
    """A tensor: shape, type, scale, zero point. `low` and `high` bound what it is fed; `state`: it is a variable."""

    shape: tuple[int, ...]
    dtype: Any
    scale: Any = None
    zero: int = 0
    low: float | None = None
    high: float | None = None
    state: bool = False


@dataclass(frozen=True)
class Stored:
    """A constant that is stored small: `int4` or `sparse`"""

    how: str
    array: np.ndarray
    scale: Any = None
    more: tuple[Any, ...] = ()


@dataclass(frozen=True)
class Case:
    """One operator. Inputs are tensors that are fed, constants with or without a scale, or None.

    Stateful operators run `steps` times. `custom` are the options of a custom operator.
    """

    name: str
    op: str
    ins: tuple[Any, ...]
    out: Q | tuple[Q, ...]
    options: dict[int, Any] = field(default_factory=dict)
    steps: int = 1
    custom: bytes = b""
    between: tuple[Q, ...] = ()  # tensors of intermediate results, which carry scales only
    optimized: bool = False  # LiteRT's reference kernel is wrong, its other one is asked
    micro: bool = False  # TFLite Micro alone has it
    body: str | None = None  # the operator of a second graph, which takes two numbers; "" is none
    rtol: float = 1e-5
    atol: float = 1e-5

    @property
    def outs(self) -> tuple[Q, ...]:
        return (self.out,) if isinstance(self.out, Q) else self.out

    def rng(self) -> np.random.Generator:
        return np.random.default_rng(list(self.name.encode()))

    def model(self) -> tuple[bytes, list[dict[str, np.ndarray]]]:
        """The file, and what is fed in each step"""
        net, ids, fed = Net(), [], {}
        for k, x in enumerate(self.ins):
            if x is None:
                ids.append(-1)
            elif isinstance(x, Q):
                ids.append(net.tensor(f"x{k}", x.shape, x.dtype, x.scale, x.zero, x.state))
                fed |= {} if x.state else {ids[-1]: (f"x{k}", x)}
            elif isinstance(x, Stored):
                ids.append(getattr(net, x.how)(f"c{k}", x.array, x.scale, *x.more))
            else:
                data, *rest = x if isinstance(x, tuple) else (x,)
                ids.append(net.const(f"c{k}", data, *rest))
        between = [net.tensor(f"i{k}", q.shape, q.dtype, q.scale, q.zero) for k, q in enumerate(self.between)]
        ys = [net.tensor(f"y{k}", q.shape, q.dtype, q.scale, q.zero) for k, q in enumerate(self.outs)]
        net.op(self.op, ids, ys, self.options, self.custom, between)
        rng = self.rng()
        others = [] if self.body is None else [two_numbers(net, self.body, self.outs[0].dtype)]
        feeds = [{n: numbers(rng, q) for n, q in fed.values()} for _ in range(self.steps)]
        return net.file(list(fed), ys, others=others), feeds


def two_numbers(net: Net, op: str, dtype: Any) -> dict[int, Any]:
    """A graph of one operator that takes two numbers, or one that gives back the second"""
    g = net.beside()
    a, b, y = (g.tensor(t, (), dtype) for t in ("a", "b", "y"))
    if op:
        g.op(op, [a, b], [y])
    return g.graph([a, b], [y if op else b])


def numbers(rng: np.random.Generator, q: Q) -> np.ndarray:
    if q.dtype is bool:
        return rng.integers(0, 2, q.shape).astype(bool)
    if np.dtype(q.dtype).kind == "f":
        low, high = (-6.25 if q.low is None else q.low), (6.25 if q.high is None else q.high)
        return (rng.integers(int(low * 64), int(high * 64), q.shape) / 64).astype(q.dtype)
    info = np.iinfo(q.dtype)
    low, high = (info.min if q.low is None else int(q.low)), (info.max if q.high is None else int(q.high))
    wide = np.uint64 if q.dtype is U64 else np.int64
    return rng.integers(low, high, q.shape, wide, endpoint=True).astype(q.dtype)


# -- answers ------------------------------------------------------------------------------------------
def digest(y: np.ndarray) -> str:
    return hashlib.sha256(f"{y.dtype}{y.shape}".encode() + np.ascontiguousarray(y).tobytes()).hexdigest()[:16]


@lru_cache(maxsize=1)
def kept() -> tuple[dict[str, str], dict[str, np.ndarray]]:
    with np.load(FLOATS) as z:
        return json.loads(MICRO.read_text()) | json.loads(HASHES.read_text()), dict(z)


def key_of(case: Case, step: int, k: int) -> str:
    return case.name if (step, k) == (0, 0) else f"{case.name} [{step}.{k}]"


def wrong(case: Case, step: int, k: int, got: np.ndarray) -> str:
    """What is wrong with output k of a step, or nothing"""
    hashes, floats = kept()
    key = key_of(case, step, k)
    if got.dtype.kind != "f":
        return "" if digest(got) == hashes[key] else f"{key}: {got.dtype}{list(got.shape)} {got.ravel()[:8]}"
    want = floats[key]
    if got.shape != want.shape or got.dtype != want.dtype:
        return f"{key}: {got.dtype}{list(got.shape)} instead of {want.dtype}{list(want.shape)}"
    near = np.isclose(got, want, case.rtol, case.atol, equal_nan=True)
    return "" if near.all() else f"{key}: {got[~near][:6]} instead of {want[~near][:6]}"


# -- ours ---------------------------------------------------------------------------------------------
def graph_of(cases: Sequence[Case], micro: bool = False) -> tuple[Graph, list[dict[str, np.ndarray]]]:
    """All cases as one graph, and what is fed in each step"""
    g, feeds = Graph("cases"), [dict[str, np.ndarray]() for _ in range(max(c.steps for c in cases))]
    for c, case in enumerate(cases):
        data, given = case.model()
        source = load_tflite(data, Choices(micro=micro)).graph
        prefix, local = f"c{c}.", {}
        for v in source.inputs:
            local[v] = g.add_input(prefix + v.name, v.type)
            local[v].state = v.state and prefix + v.state
        clone(g, source, local, {}, prefix)
        g.outputs += [(prefix + name, local[v]) for name, v in source.outputs]
        for step, one in enumerate(feeds):
            one |= {prefix + name: x for name, x in given[min(step, case.steps - 1)].items()}
    return g, feeds


def compiled(cases: Sequence[Case], folder: Path, cache: Path, lto: str = "none", **options: Any) -> list[str]:
    """What is wrong with the answers of one image that holds all cases"""
    g, feeds = graph_of(cases)
    out = folder / f"cases_{lto}.so"
    link_modules([Module(g, "cases", "cases")], Request(out, "shared", Options(lto=lto, cache=cache, **options)))
    m, found = CompiledModel(out), []
    for step, one in enumerate(feeds):
        got = m.run(one)
        found += [wrong(case, step, k, got[f"c{c}.y{k}"]) for c, case in enumerate(cases) if step < case.steps
                  for k in range(len(case.outs))]
    return [w for w in found if w]
