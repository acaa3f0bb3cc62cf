"""Graphs with the memory behaviour of well-known networks, and random ones."""

from __future__ import annotations

import random

from monobloc.plan import Id, InPlace, Program, Step, Value, View, natural_align


class Maker:
    """Builds a program step by step; each value is named after the step that defines it."""

    def __init__(self, pinned: bool = True) -> None:
        self.values: list[Value] = []
        self.steps: list[Step] = []
        self.in_place: list[InPlace] = []
        self.views: list[View] = []
        self.pinned = pinned

    def input(self, size: int) -> str:
        name = f"in{len(self.values)}"
        self.values.append(Value(name, size, natural_align(size), pinned=self.pinned))
        return name

    def step(self, size: int, *uses: str, scratch: int = 0, in_place: bool = False) -> str:
        name = f"v{len(self.steps)}"
        self.values.append(Value(name, size, natural_align(size)))
        self.steps.append(Step(f"s{name}", (name,), uses, scratch))
        if in_place:
            self.in_place += [InPlace(f"s{name}", u, name) for u in uses]
        return name

    def concat(self, *parts: str, copy: bool = False) -> str:
        """a concat whose parts are written in place, unless `copy`"""
        size = {v.id: v.bytes for v in self.values}
        name = self.step(sum(size[p] for p in parts), *parts)
        if not copy:
            offset = 0
            for p in parts:
                self.views.append(View(p, name, offset))
                offset += size[p]
        return name

    def done(self, *outputs: str) -> Program:
        values = [
            Value(
                v.id,
                v.bytes,
                v.align,
                v.pinned or (v.id in outputs and self.pinned),
                v.id in outputs,
            )
            for v in self.values
        ]
        return Program(tuple(values), tuple(self.steps), tuple(self.in_place), tuple(self.views))


def chain(length: int = 30) -> Program:
    m = Maker()
    x = m.input(150528)
    for i in range(length):
        x = m.step(200704 >> min(i // 6, 4), x)
    return m.done(m.step(4000, x))


def residual(blocks: int = 16) -> Program:
    m = Maker()
    x = m.step(802816, m.input(602112), scratch=10000)
    for i in range(blocks):
        size = 802816 >> (i // 4)
        short = m.step(size, x) if i % 4 == 0 else x
        y = m.step(size // 4, x)
        y = m.step(size // 4, y)
        y = m.step(size, y)
        x = m.step(size, y, short, in_place=True)
    return m.done(m.step(4000, x))


def inception(blocks: int = 9) -> Program:
    m = Maker()
    x = m.step(600000, m.input(602112))
    for i in range(blocks):
        size = 150000 >> (i // 3)
        a = m.step(size, x)
        b = m.step(size * 3 // 2, m.step(size // 2, x))
        c = m.step(size // 2, m.step(size, m.step(size // 4, x)))
        d = m.step(size // 2, m.step(size * 2, x))
        x = m.concat(a, b, c, d, copy=True)
    return m.done(m.step(4000, x))


def unet(depth: int = 5) -> Program:
    m = Maker()
    x, skips = m.input(3 * 65536), []
    size = 16 * 65536
    for _ in range(depth):
        x = m.step(size, m.step(size, x))
        skips.append(x)
        x = m.step(size // 4, x)
        size //= 2
    x = m.step(size, m.step(size, x))
    for skip in reversed(skips):
        size *= 2
        x = m.concat(m.step(size, x), skip, copy=True)
        x = m.step(size, m.step(size, x))
    return m.done(m.step(65536, x))


def densenet(layers: int = 12, views: bool = True) -> Program:
    m = Maker()
    x = m.step(64 * 3136, m.input(602112))
    parts = [x]
    for _ in range(layers):
        joined = parts[0] if len(parts) == 1 else None
        joined = joined or m.concat(*parts, copy=True)
        parts.append(m.step(32 * 3136, m.step(128 * 3136, joined)))
    return m.done(m.step(4000, m.concat(*parts, copy=not views)))


def transformer(layers: int = 12, sequence: int = 128, width: int = 768) -> Program:
    m = Maker()
    row = sequence * width * 4
    x = m.step(row, m.input(sequence * 8))
    for _ in range(layers):
        q, k, v = (m.step(row, x) for _ in range(3))
        scores = m.step(12 * sequence * sequence * 4, q, k)
        scores = m.step(12 * sequence * sequence * 4, scores, in_place=True)
        y = m.step(row, m.step(row, scores, v))
        x = m.step(row, y, x, in_place=True)
        y = m.step(row, m.step(4 * row, x))
        x = m.step(row, y, x, in_place=True)
    return m.done(x)


def random_dag(seed: int, steps: int, reach: int = 6) -> Program:
    """random sizes, fan-in, second outputs, scratch, in-place offers and a few views"""
    rng = random.Random(seed)
    m = Maker(pinned=rng.random() < 0.5)
    names: list[str] = [m.input(rng.randrange(1, 5000)) for _ in range(rng.randrange(1, 3))]
    for _ in range(steps):
        uses = rng.sample(names[-reach:], min(len(names[-reach:]), rng.choice((1, 1, 2, 2, 3))))
        scratch = rng.choice((0, 0, 0, rng.randrange(3000)))
        size = rng.randrange(1, 5000)
        kind = rng.random()
        if kind < 0.15:
            size = next(v.bytes for v in m.values if v.id == uses[0])
            names.append(m.step(size, uses[0]))
            m.views.append(View(names[-1], uses[0]))
        else:
            names.append(m.step(size, *uses, scratch=scratch, in_place=kind < 0.6))
    used: set[Id] = {u for s in m.steps for u in s.uses}
    return m.done(*(n for n in names if n not in used or rng.random() < 0.1))


SHAPES = {
    "chain": chain,
    "residual": residual,
    "inception": inception,
    "unet": unet,
    "densenet": densenet,
    "transformer": transformer,
}
