"""Interval analysis: between which two numbers all elements of a tensor lie, and whether one may be NaN.

Integers are exact: what may wrap has every value of its type. Floats are conservative: results of
arithmetic are widened by more than any order of evaluation, contraction or approximation can move them,
but for signs, which rounding never changes. What is not listed here has every value of its type.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from monobloc.ir.graph import Node, Value
from monobloc.ir.symbolic import is_open
from monobloc.ir.types import DType

Number = int | float
SLACK = {DType.F64: 2.0**-45, DType.F32: 2.0**-18, DType.F16: 2.0**-8, DType.BF16: 2.0**-5}
TINY = {DType.F64: 2.0**-1000, DType.F32: 2.0**-120, DType.F16: 2.0**-12, DType.BF16: 2.0**-120}
TOP = {DType.F64: math.inf, DType.F32: 3e38, DType.F16: 6e4, DType.BF16: 3e38}  # beyond, results may be infinite
DIGITS = {DType.F64: 53, DType.F32: 24, DType.F16: 11, DType.BF16: 8}
SCAN_BYTES = 1 << 16  # larger constants are weights, whose bytes nobody needs to read for this


@dataclass(frozen=True)
class Range:
    """Every element that is a number is in [lo, hi]; `nan`: an element may be no number."""

    lo: Number
    hi: Number
    nan: bool = False

    def within(self, lo: Number, hi: Number) -> bool:
        return not self.nan and lo <= self.lo and self.hi <= hi

    def __or__(self, o: Range) -> Range:
        return Range(min(self.lo, o.lo), max(self.hi, o.hi), self.nan or o.nan)

    def __str__(self) -> str:
        return f"[{self.lo}, {self.hi}]" + (" or NaN" if self.nan else "")


def every(d: DType) -> Range:
    """All values of a type."""
    if d.is_float or d.is_opaque:  # of codes and letters nobody asks
        return Range(-math.inf, math.inf, True)
    if d is DType.BOOL:
        return Range(0, 1)
    info = np.iinfo(d.numpy)
    return Range(int(info.min), int(info.max))


def of_array(a: np.ndarray, d: DType) -> Range:
    if a.size == 0 or d.is_opaque:
        return every(d)
    if not d.is_float:
        return Range(int(a.min()), int(a.max()))
    wide = a.astype(np.float64)
    numbers = wide[~np.isnan(wide)]
    if numbers.size == 0:
        return every(d)
    return Range(float(numbers.min()), float(numbers.max()), numbers.size < wide.size)


class Ranges:
    """The range of every value that was asked for, found from the nodes that make them."""

    def __init__(self) -> None:
        self.known: dict[Value, Range] = {}

    def of(self, v: Value) -> Range:
        if v not in self.known:
            self.known[v] = self._find(v)
        return self.known[v]

    def _find(self, v: Value) -> Range:
        if v.const is not None:
            return of_array(v.const.array, v.dtype) if v.type.bytes <= SCAN_BYTES else every(v.dtype)
        n = v.producer
        rule = None if n is None else RULES.get(n.op)
        if n is None or rule is None:
            return every(v.dtype)
        found = rule(n, n.outputs.index(v), self)
        return every(v.dtype) if found is None else found

    def ins(self, n: Node) -> list[Range]:
        return [self.of(v) for v in n.used]


# -- arithmetic ---------------------------------------------------------------------------------------
def rounded(lo: float, hi: float, nan: bool, d: DType) -> Range:
    """The range of a computed float: a little wider, infinite where it overflows, with the sign of the exact result."""
    if math.isnan(lo) or math.isnan(hi):
        return every(d)
    low = lo if math.isinf(lo) else lo - abs(lo) * SLACK[d] - TINY[d]
    high = hi if math.isinf(hi) else hi + abs(hi) * SLACK[d] + TINY[d]
    low, high = low if low > -TOP[d] else -math.inf, high if high < TOP[d] else math.inf
    return Range(max(low, 0.0) if lo >= 0 else low, min(high, 0.0) if hi <= 0 else high, nan)


def fitted(lo: Number, hi: Number, d: DType) -> Range:
    """An integer result: what does not fit wraps, and then it may be anything."""
    whole = every(d)
    return Range(lo, hi) if whole.lo <= lo and hi <= whole.hi else whole


def _corners(f: Callable[[Any, Any], Any], a: Range, b: Range) -> tuple[Number, Number]:
    at = [f(x, y) for x in (a.lo, a.hi) for y in (b.lo, b.hi)]
    return (math.nan, math.nan) if any(math.isnan(x) for x in at) else (min(at), max(at))


def _add(a: Range, b: Range, d: DType) -> Range:
    if not d.is_float:
        return fitted(a.lo + b.lo, a.hi + b.hi, d)
    opposite = (a.hi == math.inf and b.lo == -math.inf) or (a.lo == -math.inf and b.hi == math.inf)
    return rounded(float(a.lo + b.lo), float(a.hi + b.hi), a.nan or b.nan or opposite, d)


def _neg(a: Range, d: DType) -> Range:
    return Range(-a.hi, -a.lo, a.nan) if d.is_float else fitted(-a.hi, -a.lo, d)


def _mul(a: Range, b: Range, d: DType) -> Range:
    if not d.is_float:
        return fitted(*_corners(lambda x, y: x * y, a, b), d)
    endless = any(math.isinf(x) for x in (a.lo, a.hi, b.lo, b.hi))
    lo, hi = _corners(lambda x, y: 0.0 if x == 0 or y == 0 else float(x) * float(y), a, b)
    return rounded(float(lo), float(hi), a.nan or b.nan or endless, d)


def _div(a: Range, b: Range, d: DType) -> Range:
    if b.lo <= 0 or (d.is_float and any(math.isinf(x) for x in (a.lo, a.hi, b.hi))):
        return every(d)
    if d.is_float:
        lo, hi = _corners(lambda x, y: float(x) / float(y), a, b)
        return rounded(float(lo), float(hi), a.nan or b.nan, d)
    return fitted(*_corners(lambda x, y: abs(x) // y * (-1 if x < 0 else 1), a, b), d)


def _sub(a: Range, b: Range, d: DType) -> Range:
    if not d.is_float:
        return fitted(a.lo - b.hi, a.hi - b.lo, d)
    return _add(a, _neg(b, d), d)


# -- rules: (node, which output, ranges) -> the range, or None for every value ----------------------------
Rule = Callable[[Node, int, Ranges], Range | None]


def _binary(f: Callable[[Range, Range, DType], Range]) -> Rule:
    def rule(n: Node, k: int, r: Ranges) -> Range:
        out, *rest = r.ins(n)
        for x in rest:
            out = f(out, x, n.outputs[0].dtype)
        return out

    return rule


def _same(n: Node, k: int, r: Ranges) -> Range:
    """What moves elements or picks some of them."""
    return r.of(n.used[0])


def _all(n: Node, k: int, r: Ranges) -> Range:
    out, *rest = r.ins(n)
    for x in rest:
        out |= x
    return out


def _pad(n: Node, k: int, r: Ranges) -> Range:
    return r.of(n.used[0]) | (r.of(n.used[1]) if len(n.used) > 1 else Range(0, 0))


def _with_zero(n: Node, k: int, r: Ranges) -> Range:
    return r.of(n.used[0]) | Range(0, 0)


def _clip(n: Node, k: int, r: Ranges) -> Range:
    x, lo, hi = (None if v is None else r.of(v) for v in [*n.inputs, None, None][:3])
    assert x is not None
    if lo is not None and not lo.nan:
        x = replace(x, lo=max(x.lo, lo.lo), hi=max(x.hi, lo.hi))
    elif lo is not None:
        x = replace(x, hi=max(x.hi, lo.hi))
    if hi is not None and not hi.nan:
        x = replace(x, lo=min(x.lo, hi.lo), hi=min(x.hi, hi.hi))
    elif hi is not None:
        x = replace(x, lo=min(x.lo, hi.lo))
    return x


def _relu(n: Node, k: int, r: Ranges) -> Range:
    x = r.of(n.used[0])
    return replace(x, lo=max(x.lo, 0), hi=max(x.hi, 0))


def _max(a: Range, b: Range, d: DType) -> Range:
    return Range(max(a.lo, b.lo), max(a.hi, b.hi), a.nan or b.nan)


def _min(a: Range, b: Range, d: DType) -> Range:
    return Range(min(a.lo, b.lo), min(a.hi, b.hi), a.nan or b.nan)


def _abs(n: Node, k: int, r: Ranges) -> Range:
    x, d = r.of(n.used[0]), n.outputs[0].dtype
    lo = 0 if x.lo <= 0 <= x.hi else min(abs(x.lo), abs(x.hi))
    hi = max(abs(x.lo), abs(x.hi))
    return Range(lo, hi, x.nan) if d.is_float else fitted(lo, hi, d)


def _negate(n: Node, k: int, r: Ranges) -> Range:
    return _neg(r.of(n.used[0]), n.outputs[0].dtype)


def _whole(f: Callable[[float], int]) -> Rule:
    """Floor, Ceil, Round: exact"""
    def rule(n: Node, k: int, r: Ranges) -> Range:
        x = r.of(n.used[0])
        lo, hi = (v if math.isinf(v) else float(f(v)) for v in (x.lo, x.hi))
        return Range(lo, hi, x.nan)

    return rule


def _between(lo: float, hi: float) -> Rule:
    """Functions of a bounded result; NaN stays NaN."""
    def rule(n: Node, k: int, r: Ranges) -> Range:
        return Range(lo, hi, r.of(n.used[0]).nan)

    return rule


def _loosely(lo: float, hi: float, nan: bool = False) -> Rule:
    """The same where what computes it may be off in the last places."""
    def rule(n: Node, k: int, r: Ranges) -> Range:
        return rounded(lo, hi, nan or r.of(n.used[0]).nan, n.outputs[0].dtype)

    return rule


def _softmax(n: Node, k: int, r: Ranges) -> Range:
    x = r.of(n.used[0])
    bad = x.nan or math.isinf(x.lo) or math.isinf(x.hi)
    return Range(0.0, 1.0 + n.outputs[0].type.size * SLACK[n.outputs[0].dtype], bad)


def _sqrt(n: Node, k: int, r: Ranges) -> Range:
    return Range(0.0, math.inf, r.of(n.used[0]).nan or r.of(n.used[0]).lo < 0)


def _mean(n: Node, k: int, r: Ranges) -> Range:
    """Sums may overflow, and lose digits in any order, but not their sign."""
    x = r.of(n.used[0])
    if not n.outputs[0].dtype.is_float or not n.used[0].type.size or any(n.attrs.get("pads", ())):
        return every(n.outputs[0].dtype)
    return Range(0.0 if x.lo >= 0 else -math.inf, 0.0 if x.hi <= 0 else math.inf,
                 x.nan or (x.lo < 0 < x.hi) or math.isinf(x.lo) or math.isinf(x.hi))


def _total(n: Node, k: int, r: Ranges) -> Range:
    """A sum of as many as there are, in any order"""
    x, d = r.of(n.used[0]), n.outputs[0].dtype
    if not n.used[0].type.size or not n.outputs[0].type.size or is_open(n.used[0].type.size):
        return _mean(n, k, r)
    many = n.used[0].type.size // n.outputs[0].type.size
    if not d.is_float:
        return fitted(many * x.lo, many * x.hi, d)
    if many * SLACK[d] > 0.5 or x.nan or math.isinf(x.lo) or math.isinf(x.hi):
        return _mean(n, k, r)
    off = many * max(abs(x.lo), abs(x.hi)) * many * SLACK[d]
    return rounded(float(many * x.lo - off) if x.lo < 0 else float(many * x.lo) * (1 - many * SLACK[d]),
                   float(many * x.hi + off) if x.hi > 0 else float(many * x.hi) * (1 - many * SLACK[d]), False, d)


def _fold(n: Node, k: int, r: Ranges) -> Range | None:
    """The largest or smallest of some elements; of none: the neutral element."""
    return r.of(n.used[0]) if n.used[0].type.size else None


def _max_pool(n: Node, k: int, r: Ranges) -> Range | None:
    if k or any(n.attrs.get("pads", [1])) or n.attrs.get("ceil_mode"):
        return None
    return r.of(n.used[0])


def holds(to: DType, source: DType, x: Range) -> bool:
    """Whether every value of `source` in `x` is a value of the type `to`."""
    if to is source:
        return True
    if to.is_opaque or source.is_opaque:
        return to.is_float and to not in (DType.F16, DType.BF16)
    if source.is_float:
        return to is DType.F64 or (to is DType.F32 and source in (DType.F16, DType.BF16))
    if to.is_float:
        return x.within(-(2 ** DIGITS[to]), 2 ** DIGITS[to])
    return x.within(every(to).lo, every(to).hi)


def _cast(n: Node, k: int, r: Ranges) -> Range:
    x, source, to = r.of(n.used[0]), n.used[0].dtype, n.attrs["to"]
    if to is DType.BOOL:
        never = x.lo > 0 or x.hi < 0
        return Range(1 if never else 0, 0 if not never and x.lo == x.hi == 0 and not x.nan else 1)
    if to.is_code or source.is_code:
        return every(to)
    if to.is_float:
        lo, hi = float(x.lo), float(x.hi)
        return Range(lo, hi, x.nan) if holds(to, source, x) else rounded(lo, hi, x.nan, to)
    if x.nan or math.isinf(x.lo) or math.isinf(x.hi):
        return every(to)
    return fitted(math.trunc(x.lo), math.trunc(x.hi), to)


def _imod(n: Node, k: int, r: Ranges) -> Range | None:
    a, b = r.ins(n)
    if n.outputs[0].dtype.is_float or b.lo <= 0:
        return None
    if n.attrs.get("fmod"):
        return Range(max(1 - b.hi, min(a.lo, 0)), min(b.hi - 1, max(a.hi, 0)))
    return a if a.lo >= 0 and a.hi < b.lo else Range(0, b.hi - 1)


def _band(n: Node, k: int, r: Ranges) -> Range | None:
    """With a number that is not negative, no result is larger than it."""
    tops = [x.hi for x in r.ins(n) if x.lo >= 0]
    return Range(0, min(tops)) if tops else None


def _arg(n: Node, k: int, r: Ranges) -> Range:
    return Range(0, n.used[0].shape[n.attrs["axis"]] - 1)


def _top_k(n: Node, k: int, r: Ranges) -> Range | None:
    if n.outputs[0].type.size == 0:
        return None
    return _arg(n, k, r) if k else r.of(n.used[0])


def _where(n: Node, k: int, r: Ranges) -> Range:
    c, a, b = r.ins(n)
    return a if c.lo == 1 else b if c.hi == 0 else a | b


def _compare(sure: Callable[[Range, Range], bool], never: Callable[[Range, Range], bool]) -> Rule:
    """`sure`: true for all numbers; `never`: for none. Nothing is true of NaN."""
    def rule(n: Node, k: int, r: Ranges) -> Range:
        a, b = r.ins(n)
        if sure(a, b) and not a.nan and not b.nan:
            return Range(1, 1)
        return Range(0, 0) if never(a, b) else Range(0, 1)

    return rule


def _not(n: Node, k: int, r: Ranges) -> Range:
    x = r.of(n.used[0])
    return Range(1 - x.hi, 1 - x.lo)


def _dequantize(n: Node, k: int, r: Ranges) -> Range | None:
    x, scale = r.of(n.used[0]), n.used[1]
    zero = [*n.inputs, None][2]
    d = n.outputs[0].dtype
    if scale.const is None or (zero is not None and zero.const is None) or scale.type.bytes > SCAN_BYTES:
        return None
    s = of_array(scale.const.array, scale.dtype)
    z = Range(0, 0) if zero is None else r.of(zero)
    if s.nan or math.isinf(s.lo) or math.isinf(s.hi):
        return None
    lo, hi = _corners(lambda a, b: a * b, Range(x.lo - z.hi, x.hi - z.lo), s)
    return rounded(float(lo), float(hi), False, d)


_BINARY: dict[str, Rule] = {
    "Add": _binary(_add), "Sum": _binary(_add), "Sub": _binary(_sub), "Mul": _binary(_mul), "Div": _binary(_div),
    "Max": _binary(_max), "Min": _binary(_min), "And": _binary(_min), "Or": _binary(_max),
    "Mod": _imod, "BitwiseAnd": _band,
}
_COMPARE: dict[str, Rule] = {
    "Less": _compare(lambda a, b: a.hi < b.lo, lambda a, b: a.lo >= b.hi),
    "LessOrEqual": _compare(lambda a, b: a.hi <= b.lo, lambda a, b: a.lo > b.hi),
    "Greater": _compare(lambda a, b: a.lo > b.hi, lambda a, b: a.hi <= b.lo),
    "GreaterOrEqual": _compare(lambda a, b: a.lo >= b.hi, lambda a, b: a.hi < b.lo),
    "Equal": _compare(lambda a, b: a.lo == a.hi == b.lo == b.hi, lambda a, b: a.hi < b.lo or b.hi < a.lo),
}
MOVES = ("Reshape", "Transpose", "Slice", "Split", "Expand", "Tile", "Flatten", "Squeeze", "Unsqueeze", "Copy",
         "Gather", "GatherElements", "GatherND", "ReverseSequence")
RULES: dict[str, Rule] = {
    **dict.fromkeys(MOVES, _same), **_BINARY, **_COMPARE,
    "Concat": _all, "Pad": _pad, "Trilu": _with_zero, "Where": _where, "Not": _not, "Cast": _cast,
    "Clip": _clip, "Relu": _relu, "Abs": _abs, "Neg": _negate, "Sqrt": _sqrt, "Exp": _loosely(0.0, math.inf),
    "Floor": _whole(math.floor), "Ceil": _whole(math.ceil), "Round": _whole(round),
    "Sigmoid": _between(0.0, 1.0), "HardSigmoid": _loosely(0.0, 1.0, nan=True),
    "Tanh": _loosely(-1.0, 1.0), "Erf": _loosely(-1.0, 1.0), "Softplus": _loosely(0.0, math.inf),
    "Softmax": _softmax, "ReduceMean": _mean, "ReduceSum": _total, "AveragePool": _mean,
    "ReduceMax": _fold, "ReduceMin": _fold, "MaxPool": _max_pool,
    "ArgMax": _arg, "ArgMin": _arg, "TopK": _top_k, "DequantizeLinear": _dequantize,
}
