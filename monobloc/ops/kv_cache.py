"""Caches of keys and values that hold bytes (`com.microsoft`): number = scale * (stored - its zero point).

8 bits are stored as they are; of 4 bits two are one byte, the first in the low half, each 8 more than it stands for.
What attention sees is what is stored, also of the new keys and values.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from monobloc.ir.graph import Value
from monobloc.ir.types import DType
from monobloc.ops.build import cast_to
from monobloc.ops.fused import slice_last

F32, I8, U8 = DType.F32, DType.I8, DType.U8


@dataclass(frozen=True)
class Kept:
    """How a cache is stored: as it is where there is no scale"""

    bits: int = 8
    scale: Value | None = None

    def put(self, b: Any, n: Any, x: Value) -> Any:
        """[B, N, S, H] as it is stored"""
        if self.scale is None:
            return x
        most = 1 << (self.bits - 1)
        q = b.one("Round", b.one("Div", cast_to(b, x, F32), self.scale))
        q = b.one("Clip", q, b.const(-most, F32), b.const(most - 1, F32))
        if self.bits == 8:
            return b.one("Cast", q, to=I8)
        q = b.one("Cast", b.one("Add", q, b.const(most, F32)), to=U8)
        pairs = b.one("Reshape", q, shape=[*q.shape[:3], q.shape[3] // 2, 2])
        low, high = (b.one("Reshape", slice_last(b, n, pairs, k, k + 1), shape=list(pairs.shape[:4])) for k in (0, 1))
        return b.one("Add", low, b.one("Mul", high, b.const(16, U8)))

    def get(self, b: Any, cache: Value, to: DType) -> Any:
        """The numbers of a cache"""
        if self.scale is None:
            return cache
        x = cache if self.bits == 8 else b.one("UnpackBits", cache, bits=4)
        x = b.one("Cast", x, to=F32)
        x = x if self.bits == 8 else b.one("Sub", x, b.const(8, F32))
        return cast_to(b, b.one("Mul", x, self.scale), to)


def kept(b: Any, n: Any, which: str, past: Value | None, scale: Value | None, shape: tuple[int, ...]) -> Kept:
    """What the attributes say of the cache of keys (k) or values (v), of heads and sizes `shape` [B, N, S, H]"""
    kind, bits = n.attrs.get(f"{which}_quant_type", "NONE"), int(n.attrs.get("kv_cache_bit_width", 8))
    if kind == "NONE":
        return Kept()
    if kind not in ("PER_TENSOR", "PER_CHANNEL") or bits not in (4, 8):
        n.unsupported(f"a cache of the kind {kind} in {bits} bits",
                      hint="there are PER_TENSOR and PER_CHANNEL, in 4 or 8 bits")
    _, count, _, size = shape
    stored = (I8, size) if bits == 8 else (U8, size // 2)
    fits = scale is not None and (scale.type.size == 1 if kind == "PER_TENSOR" else scale.type.size == count * size)
    if not fits or past is None or (past.dtype, past.shape[-1]) != stored or (bits == 4 and size % 2):
        n.fail(f"has the cache {past and past.type} and scales {scale and scale.type} for {count} heads of {size}",
               hint="8 bits are int8, 4 bits uint8 of half the size; a scale for all, or one for each head and element")
    assert scale is not None
    fit = [] if kind == "PER_TENSOR" else [1, count, 1, size]
    return Kept(bits, b.one("Reshape", cast_to(b, scale, F32), shape=fit))
