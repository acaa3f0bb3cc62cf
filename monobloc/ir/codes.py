"""What codes stand for, in numpy: conversion of arrays to types of at most 8 bits that C does not have.

Problem: numpy's conversions to these types (ml_dtypes) neither saturate nor round once from double, and know
one rounding to powers of two. Idea: make every input a float32 from which one rounding is right (rounded to odd
where it was wider), then cut, round and choose by the rules of ONNX's Cast. `csrc/include/mb/codes.h` is the
same in C.
"""

from __future__ import annotations

import ml_dtypes
import numpy as np

from monobloc.ir.types import DType

Array = np.ndarray
ROUND_MODES = ("up", "down", "nearest")  # of conversions to powers of two


def encode(x: Array, to: DType, saturate: bool = True, rounding: str = "up") -> Array:
    """Numbers as codes of `to`; `saturate` decides on what is too large, `rounding` on powers of two."""
    if to.value_type is not DType.F32:
        return _integers(x, to)
    f = single(x)
    if to is DType.F8E8M0:
        return _powers(f, saturate, rounding)
    with np.errstate(all="ignore"):
        out = f.astype(to.numpy)
    if saturate or to is DType.F4E2M1:
        top = np.float32(ml_dtypes.finfo(to.numpy).max)  # type: ignore[no-untyped-call]
        number = ~np.isnan(f)
        out = np.where(number, np.clip(f, -top, top), 0).astype(to.numpy)
        out = np.where(number, out.view(np.uint8), _nan(f, to)).astype(np.uint8).view(to.numpy)
    return out


def _nan(f: Array, to: DType) -> Array:
    """NaN keeps its sign where it has one; in the type without NaN it is -0, and +0 of the other sign."""
    plain, negative = {DType.F8E4M3FN: (0x7F, 0xFF), DType.F8E5M2: (0x7E, 0xFE), DType.F4E2M1: (8, 0)}.get(
        to, (0x80, 0x80)
    )
    return np.where(np.signbit(f), negative, plain).astype(np.uint8)


def _integers(x: Array, to: DType) -> Array:
    """The low bits, of floats those of the int32 that they become."""
    whole = x.astype(np.int32) if x.dtype.kind not in "iub" else x
    mask = whole.dtype.type((1 << to.bits) - 1) if whole.dtype.kind != "b" else True
    return np.ascontiguousarray((whole & mask).astype(np.uint8)).view(to.numpy).reshape(x.shape)


def single(x: Array) -> Array:
    """As float32; what does not fit is rounded to odd, so that rounding it again is right."""
    if x.dtype != np.float64 and x.dtype.kind not in "iu":
        return x.astype(np.float32)
    wide = x.astype(np.float64)
    f = wide.astype(np.float32)
    back = f.astype(np.float64)
    bits = f.view(np.uint32) - (np.abs(back) > np.abs(wide)).astype(np.uint32)
    exact = (back == wide) | np.isnan(wide)
    return np.where(exact, f.view(np.uint32), bits | 1).astype(np.uint32).view(np.float32)


def _powers(f: Array, saturate: bool, rounding: str) -> Array:
    """Powers of two from 2^-127, by size; what lies below is the least of them or NaN, as what lies above."""
    a = f.view(np.uint32) & 0x7FFFFFFF
    small = a < 0x800000
    low = np.where(small, 0, a >> 23)
    part = np.where(small, (a.astype(np.int64) - 0x400000) * 2, a & 0x7FFFFF)  # of the way to the next one
    up = {"up": part > 0, "down": np.zeros(f.shape, bool), "nearest": part >= 0x400000}[rounding]
    code = low + up
    code = np.where(code > 254, 254 if saturate else 255, code)
    code = np.where(a < 0x400000, 0 if saturate else 255, code)
    code = np.where(a == 0x7F800000, 254 if saturate else 255, code)
    code = np.where(np.isnan(f), 255, code)
    return code.astype(np.uint8).view(DType.F8E8M0.numpy)


def unpack(data: Array, count: int, bits: int) -> Array:
    """`count` codes of a file's bytes, which hold several each, the first in the lowest bits."""
    if bits == 8:
        return data
    each = 8 // bits
    spread = (data[:, None] >> (np.arange(each, dtype=np.uint8) * bits)) & np.uint8((1 << bits) - 1)
    return np.ascontiguousarray(spread.reshape(-1)[:count])
