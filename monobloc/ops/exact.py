"""ExactQuantize: sums of integers times scales, divided by a scale and rounded once, half to even (`strict`)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from monobloc.errors import ModelError
from monobloc.ir.expr import Expr, Num, call, cast
from monobloc.ir.graph import Value
from monobloc.ir.types import DType, TensorType
from monobloc.ops import Case
from monobloc.ops.elementwise import Elementwise, broadcast_shapes
from monobloc.ops.quant import limits

Array = np.ndarray
Attrs = dict[str, Any]
I32, I64 = DType.I32, DType.I64
TERMS = 3


def np_exact_quantize(*xs: Any) -> Array:
    """`mb_exact_quantize` of csrc/include/mb/exact.h: pairs of k and p, then den, shift, zero, lo and hi"""
    *pairs, den, shift, zero, lo, hi = np.broadcast_arrays(*xs)
    out = np.empty(den.shape, np.int64)
    for i in np.ndindex(out.shape):
        total = sum(int(pairs[k][i]) * int(pairs[k + 1][i]) for k in range(0, len(pairs), 2))
        whole = round(Fraction(total, int(den[i]) << int(shift[i]))) + int(zero[i])
        out[i] = min(max(whole, int(lo[i])), int(hi[i]))
    return out


class ExactQuantize(Elementwise):
    """clamp(round(sum of k * p / (den * 2^shift)) + zero, lo, hi) as `to`. Inputs: up to three pairs of k and p"""

    name = "ExactQuantize"
    internal = True
    mixed = True

    def infer(self, ins: Sequence[Value | None], attrs: Attrs) -> list[TensorType]:
        values = [v for v in ins if v is not None]
        wrong = any(v.dtype is not (I64 if k % 2 else I32) for k, v in enumerate(values))
        if wrong or len(values) not in range(2, 2 * TERMS + 1, 2):
            raise ModelError(f"{self.name} takes pairs of int32 and int64")
        return [TensorType(attrs["to"], broadcast_shapes(*(v.shape for v in values)))]

    def ref(self, attrs: Attrs, *xs: Array | None) -> Array:
        numbers = [attrs[k] for k in ("den", "shift", "zero", "lo", "hi")]
        return np_exact_quantize(*(x for x in xs if x is not None), *numbers).astype(attrs["to"].numpy)

    def scalar(self, attrs: Attrs, *xs: Expr) -> Expr:
        terms = [cast(x, I64) for x in xs]
        terms += [Num(0, I64)] * (2 * TERMS - len(terms))
        numbers = [Num(attrs[k], I64) for k in ("den", "shift")] + [Num(attrs[k], I32) for k in ("zero", "lo", "hi")]
        return cast(call("exact_quantize", *terms, *numbers, dtype=I32), attrs["to"])

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        def at(d: DType, zero: int = 0) -> Attrs:
            lo, hi = limits(d)
            return {"zero": zero, "lo": lo, "hi": hi, "to": d}

        k = rng.integers(-(2**31), 2**31, (4, 5)).astype(np.int32)
        p = rng.integers(2**46, 2**48, 5)
        yield Case((k, p), at(DType.I8, 3) | {"den": 0xFFFFFF, "shift": 45}, "one_term")
        yield Case((k, p, k[0], p[::-1].copy()), at(DType.U8, 128) | {"den": 0x800001, "shift": 46}, "two_terms")
        small = rng.integers(-300, 300, (4, 5)).astype(np.int32)
        ties = at(DType.I16) | {"den": 1, "shift": 1}
        yield Case((small, np.int64(1), small[::-1].copy(), np.int64(3), small, np.int64(-2)), ties, "ties")
        ends = np.array([-(2**31), 2**31 - 1, 0, 1, -1], np.int32)
        yield Case((ends, np.int64(2**61)), at(DType.U16, 7) | {"den": 1, "shift": 0}, "saturates")
        yield Case((ends, np.int64(1)), at(DType.I8) | {"den": 3, "shift": 30}, "small")
