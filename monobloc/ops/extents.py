"""Sizes that a run computes: each a scalar, checked where it is made.

What comes out of these is never more than the room that is kept for it, and never negative: a run whose data say
otherwise ends with MB_E_SHAPE. So whatever reads a size may trust it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from monobloc.errors import ModelError
from monobloc.ir.expr import Expr, Fn, Num, call, cast
from monobloc.ir.graph import Node, Value
from monobloc.ir.types import DType, TensorType
from monobloc.ops import EXACT, Case, OpDef
from monobloc.ops.movement import ENDLESS, slice_range

Array = np.ndarray
COUNT = TensorType(DType.I64, ())


def _number(x: Array | None) -> int:
    assert x is not None
    return int(x.ravel()[0])


def _out(*values: int) -> list[Array]:
    return [np.array(v, np.int64) for v in values]


class _Extent(OpDef):
    """Base: integers in, integers out"""

    internal = True
    tol = EXACT
    counts = True
    outputs = 1

    def infer(self, ins: Sequence[Value | None], attrs: dict[str, Any]) -> list[TensorType]:
        assert all(v is not None and v.type.size == 1 for v in ins)
        return [COUNT] * self.outputs

    def inputs(self, n: Node, c: Any, *names: str) -> str:
        return " ".join(f"const {v.dtype.c} {name} = *{c.ptr(v)};" for name, v in zip(names, n.used, strict=True))


class Bounded(_Extent):
    """The first input, which is from `least` to `most`, and no more than the others"""

    name = "Bounded"

    def ref(self, attrs: dict[str, Any], *xs: Array | None) -> list[Array]:
        v, *others = map(_number, xs)
        if not attrs["least"] <= v <= min(attrs["most"], *others, attrs["most"]):
            raise ModelError(f"a size of {v} is not from {attrs['least']} to {min([attrs['most'], *others])}")
        return _out(v)

    def routine(self, n: Node, c: Any) -> str:
        tests = [f"v < {n.attrs['least']}", f"v > {n.attrs['most']}", *(f"v > *{c.ptr(o)}" for o in n.used[1:])]
        return (f"const int64_t v = *{c.ptr(n.used[0])};\nif ({' || '.join(tests)}) return MB_E_SHAPE;\n"
                f"*{c.ptr(n.outputs[0])} = v;")

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        yield Case((np.int64(3),), {"least": 0, "most": 3})
        yield Case((np.int64(-2), np.int64(5)), {"least": -2, "most": 9}, "other")


class After(OpDef):
    """x, once a size was made that ends the run where it is not `size`: nothing else would ask for it"""

    name = "After"
    internal = True
    moves = True
    codes = True

    def infer(self, ins: Sequence[Value | None], attrs: dict[str, Any]) -> list[TensorType]:
        x, check = ins
        assert x is not None and check is not None and x.type.rank and check.type.size == 1
        return [x.type.with_layout(None)]

    def ref(self, attrs: dict[str, Any], *xs: Array | None) -> Array:
        assert xs[0] is not None and _number(xs[1]) == attrs["size"]
        return xs[0]

    def expr(self, n: Node, *xs: Fn | None) -> Fn:
        """The size is read, which is all; adding nothing to an index costs nothing"""
        x, check = xs
        assert x is not None and check is not None
        size, zeros = n.used[0].shape[0], [Num(0, DType.I64)] * n.used[1].type.rank

        def at(first: Expr, *rest: Expr) -> Expr:
            moved = first + (cast(check(*zeros), DType.I64) - n.attrs["size"])
            return x(call("index_inside", moved, Num(size, DType.I64), dtype=DType.I64), *rest)

        return at

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        yield Case((rng.standard_normal((3, 4)).astype(np.float32), np.int64(7)), {"size": 7})


class CommonSize(_Extent):
    """What sizes broadcast to: those that are not 1 are the same"""

    name = "CommonSize"

    def ref(self, attrs: dict[str, Any], *xs: Array | None) -> list[Array]:
        found = {_number(x) for x in xs} - {1}
        if len(found) > 1:
            raise ModelError(f"sizes of {sorted(found)} do not broadcast")
        return _out(found.pop() if found else 1)

    def routine(self, n: Node, c: Any) -> str:
        tests = "\n".join(f"if (*{p} != 1) {{ if (size != 1 && size != *{p}) return MB_E_SHAPE; size = *{p}; }}"
                          for p in map(c.ptr, n.used))
        return f"int64_t size = 1;\n{tests}\n*{c.ptr(n.outputs[0])} = size;"

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        yield Case((np.int64(1), np.int64(4)), {})
        yield Case((np.int64(0), np.int64(1), np.int64(0)), {}, "none")


class SameSize(_Extent):
    """The first input, which all others are equal to"""

    name = "SameSize"

    def ref(self, attrs: dict[str, Any], *xs: Array | None) -> list[Array]:
        found = {_number(x) for x in xs}
        if len(found) > 1:
            raise ModelError(f"sizes of {sorted(found)} must be the same")
        return _out(found.pop())

    def routine(self, n: Node, c: Any) -> str:
        first, *rest = map(c.ptr, n.used)
        differ = " || ".join(f"*{p} != *{first}" for p in rest) or "0"
        return f"if ({differ}) return MB_E_SHAPE;\n*{c.ptr(n.outputs[0])} = *{first};"

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        yield Case((np.int64(4), np.int64(4), np.int64(4)), {})


class SliceExtent(_Extent):
    """Inputs size, start, end, step: the first entry that start:end:step takes, and how many; ONNX's rules"""

    name = "SliceExtent"
    outputs = 2

    def ref(self, attrs: dict[str, Any], *xs: Array | None) -> list[Array]:
        size, start, end, step = map(_number, xs)
        if step == 0:
            raise ModelError("has a step of 0")
        first, _, count = slice_range(start, end, step, size)
        return _out(max(first, 0), count)

    def routine(self, n: Node, c: Any) -> str:
        first, count = map(c.ptr, n.outputs)
        ends = " || ".join(f"end == {k}" for k in ENDLESS)
        return f"""\
{self.inputs(n, c, "size", "start", "end", "step")}
if (step == 0) return MB_E_SHAPE;
const int64_t low = step > 0 ? 0 : -1, high = step > 0 ? size : size - 1;
int64_t a = start < 0 ? start + size : start, z = end < 0 ? end + size : end;
if (step < 0 && ({ends})) z = -1;
a = a < 0 ? 0 : a, a = a > high ? high : a;
z = z < low ? low : z, z = z > high ? high : z;
const uint64_t far = step > 0 ? (z > a ? z - a : 0) : (a > z ? a - z : 0), by = step > 0 ? step : -(uint64_t)step;
*{count} = far / by + (far % by != 0);
*{first} = a < 0 ? 0 : a;"""

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        far = [-(1 << 63), -9, -4, -1, 0, 2, 4, 9, *ENDLESS]
        for k in range(60):
            start, end, step = (int(rng.choice(far)) for _ in range(3))
            yield Case(tuple(map(np.int64, (int(rng.integers(0, 5)), start, end, step or 3))), {}, str(k))


class RangeExtent(_Extent):
    """Inputs start, limit, delta: how many elements a Range has, at most `most`"""

    name = "RangeExtent"

    def ref(self, attrs: dict[str, Any], *xs: Array | None) -> list[Array]:
        start, limit, delta = (x.ravel()[0].item() for x in xs if x is not None)
        count = max(math.ceil((limit - start) / delta), 0) if isinstance(start, float) else max(
            -((start - limit) // delta), 0)
        if count > attrs["most"]:
            raise ModelError(f"a size of {count} is not from 0 to {attrs['most']}")
        return _out(count)

    def routine(self, n: Node, c: Any) -> str:
        most, count = n.attrs["most"], c.ptr(n.outputs[0])
        head = self.inputs(n, c, "start", "limit", "delta")
        if n.used[0].dtype.is_float:
            return f"""\
{head}
const double far = ((double)limit - (double)start) / (double)delta;
if (!(far <= {most})) return MB_E_SHAPE;
const int64_t whole = far > 0 ? (int64_t)far : 0;
*{count} = whole + (far > (double)whole);
"""
        return f"""\
{head}
if (delta == 0) return MB_E_SHAPE;
uint64_t far = 0, by = delta > 0 ? (uint64_t)delta : -(uint64_t)delta;
if (delta > 0 && limit > start) far = (uint64_t)limit - (uint64_t)start;
if (delta < 0 && limit < start) far = (uint64_t)start - (uint64_t)limit;
far = far / by + (far % by != 0);
if (far > {most}) return MB_E_SHAPE;
*{count} = far;"""

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        for k, (a, z, d) in enumerate([(0, 5, 1), (5, 0, -2), (3, 3, 1), (0, 7, 3), (2, -4, 1)]):
            for t in (np.int64, np.int32, np.float32):
                yield Case(tuple(np.array(v, t) for v in (a, z, d)), {"most": 7}, f"{k}{np.dtype(t).name}")
        yield Case(tuple(np.array(v, np.float64) for v in (0, 1, 0.3)), {"most": 4}, "part")


class ReshapeExtents(_Extent):
    """Inputs: the sizes that a tensor has (`rank` of them), then those asked for, 0 and -1 among them. Outputs: those
    it gets, each at most what `most` says."""

    name = "ReshapeExtents"

    def infer(self, ins: Sequence[Value | None], attrs: dict[str, Any]) -> list[TensorType]:
        super().infer(ins, attrs)
        return [COUNT] * (len(ins) - attrs["rank"])

    def ref(self, attrs: dict[str, Any], *xs: Array | None) -> list[Array]:
        have, asked = [_number(x) for x in xs[: attrs["rank"]]], [_number(x) for x in xs[attrs["rank"] :]]
        if not attrs["allowzero"]:
            asked = [have[k] if d == 0 and k < len(have) else d for k, d in enumerate(asked)]
        total, known = math.prod(have), math.prod(d for d in asked if d != -1)
        found = [total // max(known, 1) if d == -1 else d for d in asked]
        if asked.count(-1) > 1 or (-1 in asked and known == 0) or math.prod(found) != total or any(
                not 0 <= d <= most for d, most in zip(found, attrs["most"], strict=True)):
            raise ModelError(f"a tensor of shape {have} does not fit into the shape {asked}")
        return _out(*found)

    def routine(self, n: Node, c: Any) -> str:
        rank, k = n.attrs["rank"], len(n.outputs)
        have = ", ".join(f"*{c.ptr(v)}" for v in n.used[:rank])
        asked = ", ".join(f"*{c.ptr(v)}" for v in n.used[rank:])
        zero = "" if n.attrs["allowzero"] else f"d = d == 0 && k < {rank} ? have[k] : d;"
        copy = "\n".join(f"*{c.ptr(v)} = to[{j}];" for j, v in enumerate(n.outputs))
        return f"""\
const int64_t have[] = {{{have or 0}}}, asked[] = {{{asked or 0}}}, most[] = {{{", ".join(map(str, n.attrs["most"]))}}};
int64_t to[{max(k, 1)}], total = 1, known = 1;
long open = -1;
for (long k = 0; k < {rank}; k++) total *= have[k];
for (long k = 0; k < {k}; k++) {{
  int64_t d = asked[k];
  {zero}
  if (d == -1) {{ if (open >= 0) return MB_E_SHAPE; open = k; d = 0; }}
  else if (d < 0 || d > most[k]) return MB_E_SHAPE;
  else if (__builtin_mul_overflow(known, d, &known)) return MB_E_SHAPE;
  to[k] = d;
}}
if (open >= 0) {{
  if (known == 0) return MB_E_SHAPE;
  to[open] = total / known;
  if (to[open] > most[open]) return MB_E_SHAPE;
  known *= to[open];
}}
if (known != total) return MB_E_SHAPE;
{copy}"""

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        for k, (have, asked, zero) in enumerate([([2, 3], [6], 0), ([2, 3], [-1, 2], 0), ([2, 3, 4], [0, -1], 0),
                                                 ([0, 3], [0, 5], 1), ([2, 0], [-1, 3], 0), ([], [1, 1], 0)]):
            attrs = {"rank": len(have), "allowzero": zero, "most": [*[9] * (len(asked) - 1), 12]}
            yield Case(tuple(map(np.int64, (*have, *asked))), attrs, str(k))
