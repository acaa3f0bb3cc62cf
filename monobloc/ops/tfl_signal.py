"""The audio front end of TFLite Micro in whole numbers: Fourier transforms, filter banks, roots, logarithms and gains.

Every bit is that of its kernels. The C is csrc/include/mb/tflsignal.h; what else the front end has (windows, frames,
delays) is made of other operators in `frontend/tflite/signal.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from monobloc.errors import ModelError
from monobloc.ir.graph import Node, Value
from monobloc.ir.types import DType, TensorType
from monobloc.ops import EXACT, Case, OpDef

Array = np.ndarray
Attrs = dict[str, Any]
I16, I32, U32, U64 = DType.I16, DType.I32, DType.U32, DType.U64
GAINS = 125  # entries of a table of gains: four for each power of two but the first


class Signal(OpDef):
    """Base: whole numbers in and out, every bit right"""

    internal = True
    tol = EXACT

    def each(self, n: Node, c: Any, before: str, element: str) -> str:
        """`element` for every element i of the result y and of the inputs a, b, ..."""
        ins = "".join(f"const {v.dtype.c} *{name} = {c.ptr(v)};\n" for name, v in zip("abcdefg", n.used, strict=False))
        y = n.outputs[0]
        loop = f"for (long i = 0; i < {y.type.size}; i++) y[i] = {element};\n"
        return f"{ins}{before}{y.dtype.c} *y = {c.ptr(y)};\n{loop}"

    def check(self, ins: Sequence[Value | None], *types: DType) -> list[Value]:
        used = [v for v in ins if v is not None]
        if [v.dtype for v in used] != list(types):
            raise ModelError(f"{self.name} of {', '.join(str(v.type) for v in used)}")
        return used


# -- transforms ---------------------------------------------------------------------------------------
def pairs(angles: Sequence[float], dtype: DType) -> Array:
    """[n, 2]: cosines and sines, the largest number for 1"""
    top = (1 << (8 * dtype.size - 1)) - 1
    return np.array([[math.floor(0.5 + top * f(a)) for f in (math.cos, math.sin)] for a in angles], dtype.numpy)


def tables(length: int, inverse: bool, dtype: DType) -> tuple[Array, Array]:
    """The roots of unity of half the length, and a quarter of those between them"""
    n, sign = length // 2, 1 if inverse else -1
    whole = pairs([sign * 2 * math.pi * k / n for k in range(n)], dtype)
    return whole, pairs([sign * math.pi * ((k + 1) / n + 0.5) for k in range(n // 2)], dtype)


class TflRfft(Signal):
    """Inputs x [rows, taken], turns [n, 2], half [n / 2, 2]: 2n real numbers to n + 1 complex ones, or `inverse`"""

    name = "TflRfft"

    def infer(self, ins: Sequence[Value | None], attrs: Attrs) -> list[TensorType]:
        x, turns, half = (v for v in ins if v is not None)
        n = turns.shape[0]
        if x.dtype not in (I16, I32) or x.type.rank != 2 or n < 2 or n & (n - 1) or half.shape != (n // 2, 2):
            raise ModelError(f"{self.name} of {x.type} with {turns.type} and {half.type}")
        if attrs["inverse"] and x.shape[1] != 2 * n + 2 or x.shape[1] > 2 * n + 2 * attrs["inverse"]:
            raise ModelError(f"{self.name} of {x.type} to the length {2 * n}")
        return [TensorType(x.dtype, (x.shape[0], 2 * n if attrs["inverse"] else 2 * n + 2))]

    def ref(self, attrs: Attrs, *xs: Array | None) -> Array:
        x, turns, half = (v for v in xs if v is not None)
        f = _Fixed(x.dtype)
        t, h = (v.astype(np.int64) @ np.array([1, 1j]) for v in (turns, half))
        n, k = len(t), np.arange(1, len(t) // 2 + 1)
        if attrs["inverse"]:
            z = x.reshape(len(x), -1, 2).astype(np.int64) @ np.array([1, 1j])
            work = np.zeros((len(x), n), complex)
            work[:, 0] = f.part(f.wrap(z[:, 0].real + z[:, n].real + 1j * (z[:, 0].real - z[:, n].real)), 2)
            total, turned = f.halves(z[:, k], z[:, n - k], h)
            work[:, n - k] = f.wrap(np.conj(f.wrap(total - turned)))
            work[:, k] = f.wrap(total + turned)
            y = f.fft(work, t, 1)
        else:
            padded = np.zeros((len(x), 2 * n), np.int64)
            padded[:, : x.shape[1]] = x
            work = f.fft(padded.reshape(len(x), n, 2) @ np.array([1, 1j]), t, -1)
            first = f.part(work[:, 0], 2)
            y = np.zeros((len(x), n + 1), complex)
            y[:, 0], y[:, n] = (f.wrap(first.real + s * first.imag) for s in (1, -1))
            total, turned = f.halves(work[:, k], work[:, n - k], h)
            y[:, n - k] = f.half(np.conj(total - turned))
            y[:, k] = f.half(total + turned)
        return np.stack([y.real, y.imag], -1).reshape(len(x), -1).astype(np.int64).astype(x.dtype)

    def routine(self, n: Node, c: Any) -> str:
        x, turns, half = n.used
        t, size, (y,) = x.dtype.c, turns.shape[0], n.outputs
        pair, taken, inverse = f"mb_{t}_pair", x.shape[1], n.attrs["inverse"]
        work = c.scratch(size * 2 * x.dtype.size)
        call = (f"mb_{t}_irfft({size}, (const {pair} *)(x + r * {taken}), " if inverse else
                f"mb_{t}_rfft({size}, x + r * {taken}, {taken}, ")
        return f"""\
const {t} *x = {c.ptr(x)};
const {pair} *turns = (const {pair} *){c.ptr(turns)}, *half = (const {pair} *){c.ptr(half)};
for (long r = 0; r < {x.shape[0]}; r++)
  {call}turns, half, ({pair} *){work}, ({pair} *)({c.ptr(y)} + r * {y.shape[1]}));
"""

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        for length, taken, dtype in ((16, 16, I16), (32, 20, I16), (64, 64, I32), (4, 3, I32)):
            for inverse in (0, 1):
                info = np.iinfo(dtype.numpy)
                x = rng.integers(info.min, info.max, (2, length + 2 if inverse else taken), endpoint=True)
                yield Case((x.astype(dtype.numpy), *tables(length, bool(inverse), dtype)), {"inverse": inverse},
                           f"{dtype.value}_{length}_{inverse}")


class _Fixed:
    """Arithmetic of complex numbers in whole numbers of one type; doubles are exact for both"""

    def __init__(self, dtype: Any) -> None:
        self.dtype, self.bits = dtype, 8 * np.dtype(dtype).itemsize - 1

    def both(self, f: Callable[[Array], Array], z: Array) -> Array:
        return f(z.real.astype(np.int64)) + 1j * f(z.imag.astype(np.int64))

    def wrap(self, z: Array) -> Array:
        return self.both(lambda v: v.astype(self.dtype).astype(np.int64), np.asarray(z, complex))

    def cut(self, v: Array) -> Array:
        return ((v + (1 << (self.bits - 1))) >> self.bits).astype(self.dtype).astype(np.int64)

    def part(self, z: Array, k: int) -> Array:
        return self.both(lambda v: self.cut(v * (((1 << self.bits) - 1) // k)), z)

    def half(self, z: Array) -> Array:
        return self.wrap(self.both(lambda v: v >> 1, z))

    def times(self, a: Array, b: Array) -> Array:
        p, q, r, s = (v.astype(np.int64) for v in (a.real, a.imag, b.real, b.imag))
        return self.cut(p * r - q * s) + 1j * self.cut(p * s + q * r)

    def halves(self, near: Array, far: Array, h: Array) -> tuple[Array, Array]:
        """The sum of both halves, and their difference turned"""
        a, b = self.part(near, 2), self.part(self.wrap(np.conj(far)), 2)
        return self.wrap(a + b), self.times(self.wrap(a - b), h)

    def fft(self, x: Array, t: Array, sign: int) -> Array:
        n = x.shape[1]
        if n == 1:
            return x
        f = 2 if n % 4 else 4
        m, step = n // f, len(t) // n
        parts = [self.part(self.fft(x[:, k::f], t, sign), f) for k in range(f)]
        a, *rest = [p if k == 0 else self.times(p, t[k * step * np.arange(m)]) for k, p in enumerate(parts)]
        if f == 2:
            return np.concatenate([self.wrap(a + rest[0]), self.wrap(a - rest[0])], 1)
        b, c, d = rest
        even, odd, total = self.wrap(a + c), self.wrap(a - c), self.wrap(b + d)
        turned = self.wrap(sign * 1j * self.wrap(b - d))
        ys = (even + total, odd + turned, even - total, odd - turned)
        return np.concatenate([self.wrap(y) for y in ys], 1)


class TflAutoScale(Signal):
    """Numbers with as many bits to the left as the largest has room for, and that many. The lowest number has no
    opposite: as the largest so far it is itself, below all that follow."""

    name = "TflAutoScale"

    def infer(self, ins: Sequence[Value | None], attrs: Attrs) -> list[TensorType]:
        x, = self.check(ins, I16)
        return [x.type, TensorType(I32, ())]

    def ref(self, attrs: Attrs, *xs: Array | None) -> list[Array]:
        x = xs[0]
        assert x is not None
        most = 0
        for v in x.ravel().tolist():
            most = v if v > most else _signed(-v, 16) if -v > most else most
        bits = max(15 - most.bit_length(), 0) if most > 0 else 0
        return [(x.astype(np.int32) << bits).astype(np.int16), np.array(bits, np.int32)]

    def routine(self, n: Node, c: Any) -> str:
        bits = f"const int32_t bits = *{c.ptr(n.outputs[1])} = mb_tfl_room(a, {n.used[0].type.size});\n"
        return self.each(n, c, bits, "(int16_t)(a[i] * (1 << bits))")

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        low = -(1 << 15)
        for k, x in enumerate(([0, 0], [1, -1], [300, -77], [low, low], [low, 0, 1], [9, low, -7, -9, -3], [16383])):
            yield Case((np.array(x, np.int16),), {}, f"{k}")


# -- filters --------------------------------------------------------------------------------------------
class TflFilterBank(Signal):
    """Inputs x u32 [n], weights and what is left of them i16, and for each channel and one before them where its
    numbers, its weights and how many there are: what is left of a channel's weights counts for the next one."""

    name = "TflFilterBank"

    def infer(self, ins: Sequence[Value | None], attrs: Attrs) -> list[TensorType]:
        self.check(ins, U32, *[I16] * 5)
        return [TensorType(U64, (ins[3].shape[0] - 1,))]  # type: ignore[union-attr]

    def ref(self, attrs: Attrs, *xs: Array | None) -> Array:
        x, weights, rest, first, at, widths = (v for v in xs if v is not None)
        out, carried = [], np.uint64(0)
        with np.errstate(over="ignore"):
            for f, w, count in zip(first, at, widths, strict=True):
                part = x[f : f + count].astype(np.uint64)
                own, left = (v[w : w + count].astype(np.int64).astype(np.uint64) * part for v in (weights, rest))
                out.append(carried + own.sum(dtype=np.uint64))
                carried = left.sum(dtype=np.uint64)
        return np.array(out[1:], np.uint64)

    def routine(self, n: Node, c: Any) -> str:
        x, weights, rest, first, at, widths = (c.ptr(v) for v in n.used)
        return f"""\
const uint32_t *x = {x};
const int16_t *weights = {weights}, *rest = {rest}, *first = {first}, *at = {at}, *widths = {widths};
uint64_t *y = {c.ptr(n.outputs[0])}, own = 0, left = 0;
for (long i = 0; i < {n.used[3].shape[0]}; i++) {{
  for (long j = 0; j < widths[i]; j++) {{
    own += (uint64_t)(int64_t)weights[at[i] + j] * x[first[i] + j];
    left += (uint64_t)(int64_t)rest[at[i] + j] * x[first[i] + j];
  }}
  if (i) y[i - 1] = own;
  own = left, left = 0;
}}
"""

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        x = rng.integers(0, 1 << 32, 20).astype(np.uint32)
        weights, rest = (rng.integers(-(1 << 15), 1 << 15, 16).astype(np.int16) for _ in range(2))
        where = (np.array(v, np.int16) for v in ([0, 3, 8, 12], [0, 4, 8, 12], [3, 4, 4, 0]))
        yield Case((x, weights, rest, *where), {})


class TflRoot(Signal):
    """Inputs x u64 and a number of bits: the rounded root of each, without so many of its lowest bits"""

    name = "TflRoot"

    def infer(self, ins: Sequence[Value | None], attrs: Attrs) -> list[TensorType]:
        x, _ = self.check(ins, U64, I32)
        return [TensorType(U32, x.shape)]

    def ref(self, attrs: Attrs, *xs: Array | None) -> Array:
        x, bits = (v for v in xs if v is not None)
        return np.array([_root(int(v)) >> int(bits.reshape(())) for v in x.ravel()], np.uint32).reshape(x.shape)

    def routine(self, n: Node, c: Any) -> str:
        return self.each(n, c, "", "(uint32_t)((uint64_t)mb_tfl_root(a[i]) >> (b[0] & 63))")

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        exact = [0, 1, 2, 3, 4, 12, 13, 65535**2, 2**32 - 1, 2**32, 2**64 - 1, (2**32 - 1) ** 2, (2**32 - 1) ** 2 - 1]
        yield Case((np.array([*exact, *rng.integers(0, 1 << 62, 20)], np.uint64), np.int32(0)), {})
        yield Case((rng.integers(0, 1 << 40, (3, 4)).astype(np.uint64), np.int32(3)), {}, "shifted")


def _root(x: int) -> int:
    root, most = math.isqrt(x), 0xFFFFFFFF if x >> 32 else 0xFFFF
    return root + (x - root * root > root and root != most)


class TflLog(Signal):
    """Inputs x u32 and a table: scale * ln(x * 2^bits) in 16 bits, 0 for what is no more than 1"""

    name = "TflLog"

    def infer(self, ins: Sequence[Value | None], attrs: Attrs) -> list[TensorType]:
        x, _ = self.check(ins, U32, DType.U16)
        return [TensorType(I16, x.shape)]

    def ref(self, attrs: Attrs, *xs: Array | None) -> Array:
        x, table = (v for v in xs if v is not None)
        made = [_log((int(v) << attrs["bits"]) & 0xFFFFFFFF, attrs["scale"], table.tolist()) for v in x.ravel()]
        return np.array(made, np.int16).reshape(x.shape)

    def routine(self, n: Node, c: Any) -> str:
        return self.each(n, c, "", f"mb_tfl_log(a[i] << {n.attrs['bits']}, {n.attrs['scale'] & 0xFFFFFFFF}u, b)")

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        x = np.array([0, 1, 2, 3, 100, 65535, 65536, 2**32 - 1, *rng.integers(0, 1 << 32, 30)], np.uint32)
        for scale, bits in ((1600, 3), (65536, 0), (1, 8)):
            yield Case((x, log_table()), {"scale": scale, "bits": bits}, f"{scale}_{bits}")


@lru_cache(maxsize=1)
def log_table() -> Array:
    """65536 * (log2(1 + k / 128) - k / 128), rounded; behind the last once more 0"""
    made = [math.floor(65536 * (math.log2(1 + k / 128) - k / 128) + 0.5) for k in range(129)]
    return np.array([*made, 0], np.uint16)


def _log(x: int, scale: int, table: list[int]) -> int:
    if x <= 1:
        return 0
    whole = x.bit_length() - 1
    rest = x - (1 << whole)
    part = rest << (16 - whole) if whole < 16 else rest >> (whole - 16)
    k = part >> 9
    log2 = (whole << 16) + part + table[k] + ((table[k + 1] - table[k]) * (part - (k << 9)) >> 16)
    log = (45426 * log2 + 32768) >> 16
    return min(((scale * log + 32768) & 0xFFFFFFFF) >> 16, 32767)


class TflPcan(Signal):
    """Inputs x and noise u32, and a table of gains: each number by the gain for its noise, less one (or its square by
    four where it is small)"""

    name = "TflPcan"

    def infer(self, ins: Sequence[Value | None], attrs: Attrs) -> list[TensorType]:
        x, noise, table = self.check(ins, U32, U32, I16)
        if noise.shape != x.shape or table.type.rank != 1 or table.shape[0] < GAINS:
            raise ModelError(f"{self.name} of {x.type} and {noise.type} with {table.type}")
        return [x.type]

    def ref(self, attrs: Attrs, *xs: Array | None) -> Array:
        x, noise, table = (v for v in xs if v is not None)
        gains = [_gain(int(v), table.tolist()) & 0xFFFFFFFF for v in noise.ravel()]
        made = [_shrunk((int(v) * g >> attrs["shift"]) & 0xFFFFFFFF) for v, g in zip(x.ravel(), gains, strict=True)]
        return np.array(made, np.uint32).reshape(x.shape)

    def routine(self, n: Node, c: Any) -> str:
        return self.each(n, c, "", f"mb_tfl_pcan(a[i], b[i], {n.attrs['shift']}, c)")

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        x = np.array([0, 1, 2, 3, 5000, *rng.integers(0, 1 << 32, 40)], np.uint32)
        noise = np.array([0, 1, 2, 3, 2**32 - 1, *rng.integers(0, 1 << 32, 40) >> rng.integers(0, 32, 40)], np.uint32)
        table = rng.integers(-(1 << 15), 1 << 15, GAINS).astype(np.int16)
        for shift, t in ((6, np.abs(table // 2)), (0, table), (20, table)):
            yield Case((x, noise, t), {"shift": shift}, f"{shift}")


def _gain(x: int, table: list[int]) -> int:
    if x <= 2:
        return table[x]
    bits = x.bit_length()
    part = (x << (11 - bits) if bits < 11 else x >> (bits - 11)) & 0x3FF
    t = table[4 * bits - 6 :]
    y = _signed(_signed(((t[2] * part) >> 5) + (t[1] << 5), 32) * part, 32)
    return _signed((_signed(y + (1 << 14), 32) >> 15) + t[0], 16)


def _signed(x: int, bits: int) -> int:
    return (x + (1 << (bits - 1))) % (1 << bits) - (1 << (bits - 1))


def _shrunk(x: int) -> int:
    return (x * x) >> 20 if x < 2 << 12 else (x >> 6) - 64
