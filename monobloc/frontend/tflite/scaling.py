"""TFLite's fixed-point arithmetic, as its reference kernels do it: multipliers, activation ranges, tables.

A real factor becomes a multiplier of 31 bits and a power of two. Applying it doubles, rounds the high half (half up
in magnitude), then shifts right and rounds half away from zero: two roundings, each of which shows in results.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from monobloc.ops.tfl_lstm import fit as fit16
from monobloc.ops.tfl_lstm import high as high16
from monobloc.ops.tfl_lstm import right

Array = np.ndarray


def round_away(x: float) -> int:
    """C's round(): half away from zero"""
    return int(math.floor(abs(x) + 0.5) * (1 if x >= 0 else -1))


def multiplier(real: float) -> tuple[int, int]:
    """(multiplier, exponent): real = multiplier * 2^(exponent - 31)"""
    if real == 0 or not math.isfinite(real):
        return 0, 0
    q, shift = math.frexp(real)
    fixed = round_away(q * (1 << 31))
    if fixed == 1 << 31:
        fixed, shift = fixed // 2, shift + 1
    return (0, 0) if shift < -31 else (fixed, shift)


def multipliers(reals: Array) -> tuple[Array, Array]:
    found = [multiplier(float(r)) for r in reals]
    return np.array([m for m, _ in found], np.int32), np.array([s for _, s in found], np.int32)


def reduced(m: Array) -> Array:
    """A multiplier of 15 bits, as the kernels with 64-bit sums use it"""
    wide = m.astype(np.int64)
    return np.where(wide < 0x7FFF0000, (wide + (1 << 15)) >> 16, 0x7FFF).astype(np.int32)


def power_of_two(x: np.float32) -> int | None:
    """log2 of x, where x is about a power of two"""
    log = math.log2(float(x)) if x > 0 else math.inf
    return round(log) if math.isfinite(log) and abs(log - round(log)) < 1e-3 else None


NONE, RELU, RELU_N1_TO_1, RELU6, TANH, SIGN_BIT = range(6)
CLAMPS: dict[int, tuple[float, float]] = {
    NONE: (-math.inf, math.inf), RELU: (0.0, math.inf), RELU_N1_TO_1: (-1.0, 1.0), RELU6: (0.0, 6.0),
}  # fmt: skip


def quantized_clamp(activation: int, scale: np.float32, zero: int, info: np.iinfo) -> tuple[int, int]:
    """The range of a fused activation in integers"""
    lo, hi = CLAMPS[activation]
    low, high = int(info.min), int(info.max)
    if math.isfinite(lo):
        low = max(low, zero + round_away(float(np.float32(lo) / scale)))
    if math.isfinite(hi):
        high = min(high, zero + round_away(float(np.float32(hi) / scale)))
    return low, high


def table(f: Callable[[Array], Array], scale: np.float32, zero: int, out_scale: np.float32, out_zero: int,
          info: np.iinfo) -> Array:
    """An 8-bit function of 8 bits, by value from the lowest on, computed in float32"""
    x = np.arange(info.min, info.max + 1, dtype=np.int64)
    real = (scale * (x - zero).astype(np.float32)).astype(np.float32)
    inverse = np.float32(1) / out_scale
    y = (f(real).astype(np.float32) * inverse).astype(np.float32)
    rounded = np.where(y >= 0, np.floor(y.astype(np.float64) + 0.5), np.ceil(y.astype(np.float64) - 0.5))
    out: Array = np.clip(np.trunc(rounded + out_zero), info.min, info.max).astype(info.dtype)
    return out


def _rounded(x: Array) -> Array:
    """Half away from zero"""
    out: Array = np.copysign(np.floor(np.abs(x) + x.dtype.type(0.5)), x)
    return out


def table16(f: Callable[[Array], Array], scale: Any, zero: int, out_scale: Any, out_zero: int) -> Array:
    """A function of 16 bits at every 128th place, and one more. Between two places a line is drawn; each value is
    moved by half of what the line misses in its middle. All is computed in the type of the scales."""
    kind = type(scale)
    lo, hi = (scale * kind(k - zero) for k in (-32768, 32767))
    out_lo, out_hi = (out_scale * kind(k - out_zero) for k in (-32768, 32767))
    step, inverse, at = (hi - lo) / kind(512), kind(65536) / (out_hi - out_lo), np.arange(512).astype(kind)
    here, there, middle, last = (
        f(p.astype(kind)).astype(kind) * inverse
        for p in (lo + at * step, lo + (at + kind(1)) * step, lo + at * step + step / kind(2), np.array([hi])))
    line = _rounded((there + _rounded(here)) / kind(2))
    values, last = _rounded(here) - _rounded((line - _rounded(middle)) / kind(2)), _rounded(last)
    out: Array = np.clip(np.concatenate([values, last]), -32768, 32767).astype(np.int16)
    return out


def hard_swish_table(scale: np.float32, zero: int, out_scale: np.float32, out_zero: int, info: np.iinfo) -> Array:
    """x * relu6(x + 3) / 6 of 8 bits, in the fixed point of 16 bits that TFLite's kernel computes it in"""
    fine = np.float32(scale * np.float32(1 / 128))
    ways = [multiplier(float(np.float32(fine / over))) for over in (out_scale, np.float32(3 / 32768))]
    (m, shift), (rm, rshift) = ((min((v + (1 << 15)) >> 16, (1 << 15) - 1), s) for v, s in ways)
    x = (np.arange(info.min, info.max + 1, dtype=np.int64) - zero) * 128
    y = high16(x, m)
    r = fit16(x << (rshift - 1)) if rshift > 0 else x
    r = high16(r, rm)
    r = fit16(r << 1) if rshift > 0 else right(r, -rshift)
    product = ((r + (1 << 15)) >> 1) * y
    z = np.where(product >= 0, product >> 15, -(-product >> 15))
    out: Array = np.clip(right(z, -shift) + out_zero, info.min, info.max).astype(info.dtype)
    return out
