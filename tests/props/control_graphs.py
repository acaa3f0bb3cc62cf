"""Random graphs with choices and loops, in one another, which read what is round them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from random_graphs import LIMIT, STEPS, Maker

from monobloc.ir.graph import Graph, Value
from monobloc.ir.types import DType, TensorType
from monobloc.ops.build import Builder
from monobloc.ops.control import UNBOUND, Loop, OpenRegion, close

DEPTH = 2


def controlled(seed: int) -> Maker:
    m = Maker(seed)
    m.pool += [m.input() for _ in range(int(m.rng.integers(1, 4)))]
    _steps(m, 3)
    for _ in range(int(m.rng.integers(1, 3))):
        _control(m, m.g, 0)
        _steps(m, 2)
    ends = [v for v in m.pool if not v.users and v.producer is not None]
    m.g.outputs = [(f"y{k}", v) for k, v in enumerate(dict.fromkeys(ends or m.pool[-1:]))]
    return m


def _steps(m: Maker, most: int) -> None:
    for _ in range(int(m.rng.integers(1, most + 1))):
        v = m.one_of(*STEPS)(m)
        if 0 < v.type.size <= LIMIT and v.type.rank <= 5:
            m.pool.append(v)


def _control(m: Maker, main: Graph, depth: int) -> None:
    outs = _loop(m, main, depth) if m.rng.random() < 0.5 else _choice(m, main, depth)
    m.pool += [v for v in outs if 0 < v.type.size <= LIMIT and v.type.rank <= 5]


def _region(m: Maker, name: str, make: Callable[[], list[Value]]) -> OpenRegion:
    """What `make` gives, made inside"""
    g, b, pool = m.g, m.b, list(m.pool)
    region = OpenRegion(name, g)
    m.g, m.b = region, Builder(region)
    outs = make()
    region.outputs = [(f"out{k}", v) for k, v in enumerate(outs)]
    m.g, m.b, m.pool = g, b, pool
    return region


def _inner(m: Maker, main: Graph, depth: int) -> None:
    """Steps that read no new inputs: a region has none."""
    before = len(m.pool)
    for _ in range(int(m.rng.integers(1, 4))):
        v = m.emit(m.one_of("Tanh", "Relu", "Neg", "Sigmoid"), m.pick())
        w = m.one_of(*m.pool)
        same = [u for u in m.pool if u.shape == v.shape and u.dtype is v.dtype]
        m.pool += [v, m.emit(m.one_of("Add", "Mul", "Max"), v, m.one_of(*same) if same else v)]
        if w.type.rank:
            m.pool.append(m.slice(w, 0, int(m.rng.integers(0, w.shape[0])), 1, 1))
    if depth < DEPTH and m.rng.random() < 0.4:
        _control(m, main, depth + 1)
    assert len(m.pool) > before


def _of_type(m: Maker, t: TensorType) -> Value:
    """A value of this type: one that there is, or one made from another"""
    same = [v for v in m.pool if (v.dtype, v.shape) == (t.dtype, t.shape)]
    if same and m.rng.random() < 0.8:
        return m.one_of(*same[-3:])
    v = m.pick()
    number = m.emit("ReduceMean", v, axes=list(range(v.type.rank)), keepdims=False) if v.type.rank else v
    return m.emit("Add", m.emit("Tanh", number), m.b.const(m.floats(t.shape)))


def _fed(m: Maker, main: Graph, x: np.ndarray) -> Value:
    """An input of the whole graph, wherever it is read"""
    g, m.g = m.g, main
    v = m.feed(x)
    m.g = g
    return v


def _choice(m: Maker, main: Graph, depth: int) -> list[Value]:
    condition = _fed(m, main, np.array(m.rng.random() < 0.5))
    types: list[TensorType] = []

    def branch() -> list[Value]:
        _inner(m, main, depth)
        if not types:
            types.extend(v.type for v in (m.pick(), m.pick())[: int(m.rng.integers(1, 3))])
        return [_of_type(m, t) for t in types]

    regions = [_region(m, name, branch) for name in ("yes", "no")]
    given = close(regions)
    return list(m.g.make("If", [condition, *given], types, {"then": regions[0], "else": regions[1]}, name="if").outputs)


def _loop(m: Maker, main: Graph, depth: int) -> list[Value]:
    first = [m.pick() for _ in range(int(m.rng.integers(1, 3)))]
    most = int(m.rng.integers(0, 5))
    trips = _fed(m, main, np.array(int(m.rng.integers(-1, 4)))) if m.rng.random() < 0.5 else None
    rows = trips is None and m.rng.random() < 0.7

    def body() -> list[Value]:
        m.g.inputs += [m.g.value("i", TensorType(DType.I64, ()))]
        now = [m.g.add_input(f"{v.name}.now", v.type) for v in first]
        m.pool += now
        _inner(m, main, depth)
        return [*(_of_type(m, v.type) for v in first), *([m.pick()] if rows else [])]

    region = _region(m, "loop", body)
    given = close([region])
    attrs = {"do": region, "carried": len(first), "test": False, "most": UNBOUND if trips is not None else most,
             "counted": False, "bounded": False}
    inputs = [trips, None, *first, *given]
    return list(m.g.make("Loop", inputs, Loop().infer(inputs, attrs), attrs, name="loop").outputs)
