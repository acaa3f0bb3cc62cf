"""STABLEHLO_RNG_BIT_GENERATOR: bits that are a function of the state, by Threefry 2x32 or Philox 4x32.

Both are of Salmon et al., "Parallel random numbers: as easy as 1, 2, 3": a counter goes in, and a few rounds of sums,
products and exclusive ors with a key make a block of bits of it. All blocks are made at once. Words have 32 bits.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from monobloc.frontend.tflite.node import Reader, Result, TflNode
from monobloc.ir.graph import Value
from monobloc.ir.types import DType
from monobloc.ops.build import Builder
from monobloc.ops.movement import slice_of
from monobloc.ops.shape import reshape

U32, U64 = DType.U32, DType.U64
KINDS = {0: "philox", 1: "philox", 2: "threefry"}  # the first is left to who runs the model
ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
PARITY = 0x1BD11BDA
FACTORS, STEPS = (0xD2511F53, 0xCD9E8D57), (0x9E3779B9, 0xBB67AE85)


@dataclass(frozen=True)
class Words:
    """Arithmetic modulo 2^32"""

    b: Builder

    def word(self, v: Value, high: bool = False) -> Value:
        """One half of numbers of 64 bits"""
        return self.b.one("Cast", self._shifted(v, 32, "RIGHT", U64) if high else v, to=U32)

    def add(self, x: Value, y: Value | int) -> Value:
        return self.b.one("Add", x, self.b.const(y, U32) if isinstance(y, int) else y)

    def xor(self, *vs: Value) -> Value:
        first, *more = vs
        for v in more:
            first = self.b.one("BitwiseXor", first, v)
        return first

    def turned(self, x: Value, by: int) -> Value:
        return self.b.one("BitwiseOr", self._shifted(x, by, "LEFT", U32), self._shifted(x, 32 - by, "RIGHT", U32))

    def product(self, x: Value, by: int) -> tuple[Value, Value]:
        """(low word, high word)"""
        wide = self.b.one("Mul", self.b.one("Cast", x, to=U64), self.b.const(by, U64))
        return self.word(wide), self.word(wide, high=True)

    def joined(self, low: Value, high: Value) -> Value:
        wide = [self.b.one("Cast", v, to=U64) for v in (low, high)]
        return self.b.one("BitwiseOr", wide[0], self._shifted(wide[1], 32, "LEFT", U64))

    def _shifted(self, x: Value, by: int, direction: str, dtype: DType) -> Value:
        return self.b.one("BitShift", x, self.b.const(by, dtype), direction=direction)


def threefry(w: Words, key: tuple[Value, Value], counter: tuple[Value, Value]) -> list[Value]:
    """Twenty rounds, with a part of the key after every fourth"""
    parity = w.b.const(PARITY, U32)
    keys = (*key, w.xor(*key, parity))
    a, z = (w.add(c, k) for c, k in zip(counter, key, strict=True))
    for step in range(1, 6):
        for by in ROTATIONS[(step - 1) % 2]:
            a = w.add(a, z)
            z = w.xor(w.turned(z, by), a)
        a, z = w.add(a, keys[step % 3]), w.add(z, w.add(keys[(step + 1) % 3], step))
    return [a, z]


def philox(w: Words, key: tuple[Value, Value], counter: tuple[Value, ...]) -> list[Value]:
    """Ten rounds"""
    c, (k, q) = list(counter), key
    for _ in range(10):
        (low, high), (less, more) = (w.product(c[i], f) for i, f in zip((0, 2), FACTORS, strict=True))
        c = [w.xor(more, c[1], k), less, w.xor(high, c[3], q), low]
        k, q = w.add(k, STEPS[0]), w.add(q, STEPS[1])
    return c


def bits(n: TflNode) -> Result:
    """The state is a key, a counter and for Philox two words more; behind it the counter is that of the next block."""
    state, dtype, shape = n.x(0), n.out_dtype(1), list(n.outs[1].shape)
    kind = KINDS.get(n.options.whole(0, "b"), "")
    if state.dtype is not U64 or state.shape not in ((2,), (3,)[: kind == "philox"]) or dtype.size < 4:
        n.unsupported(f"{kind or 'an unknown kind of'} bits of {dtype.value} by a state of {state.type}")
    w, count = Words(n.b), int(np.prod(shape)) * dtype.size // 4
    parts = [slice_of(n.b, state, [(k, 1, 1)]) for k in range(state.shape[0])]
    size = 2 if kind == "threefry" else 4
    blocks = -(-count // size)
    numbers = n.b.one("Add", parts[1], n.b.const(np.arange(blocks), U64))
    key, counter = ((w.word(v), w.word(v, high=True)) for v in (parts[0], numbers))
    if kind == "threefry":
        made = threefry(w, key, counter)
    else:
        made = philox(w, key, (*counter, w.word(parts[-1 if len(parts) == 3 else 0]),
                               w.word(parts[-1 if len(parts) == 3 else 0], high=True)))
    if dtype.size == 8:
        made = [w.joined(low, high) for low, high in zip(made[::2], made[1::2], strict=True)]
    columns = [reshape(n.b, n.b.one("Expand", v, shape=[blocks]), [blocks, 1]) for v in made]
    flat = columns[0] if len(columns) == 1 else n.b.emit("Concat", list(columns), {"axis": 1})[0]
    flat = slice_of(n.b, reshape(n.b, flat, [blocks * len(made)]), [(0, 1, count * 4 // dtype.size)])
    found = reshape(n.b, flat, shape)
    found = found if found.dtype is dtype else n.b.one("BitCast", found, to=dtype)
    after = [parts[0], n.b.one("Add", parts[1], n.b.const(blocks, U64)), *parts[2:]]
    return [n.b.emit("Concat", list(after), {"axis": 0})[0], found]


READERS: dict[str, Reader] = {"STABLEHLO_RNG_BIT_GENERATOR": bits}
