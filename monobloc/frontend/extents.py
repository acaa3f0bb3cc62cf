"""Arithmetic on sizes that are data, while a model is read.

Every size is a scalar of 64 bits: a constant where it is known, and folded with others then. What models compute as
lists (`Concat(Shape(x)[0], 4)`) is taken apart into its elements, so that a size that is known stays known, and two
sizes that are computed alike are seen to be the same.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

import numpy as np

from monobloc.errors import UnsupportedError
from monobloc.frontend.limits import Limits
from monobloc.frontend.node import OnnxNode, graph_inputs_behind
from monobloc.ir.graph import Value
from monobloc.ir.symbolic import is_open, whole
from monobloc.ir.types import DType
from monobloc.ops import opdef
from monobloc.ops.build import Builder
from monobloc.ops.movement import pad, slice_of
from monobloc.ops.shape import reshape
from monobloc.ops.sized import Ragged

Tensor = Value | Ragged
MOST = 1 << 28  # elements along an axis
DEPTH = 40  # of what is followed back to where a size comes from


def value_of(t: Tensor) -> Value:
    """What holds a tensor: with room for the most, where data decide its size"""
    return t.value if isinstance(t, Ragged) else t


class Extents:
    """Sizes for the outputs of one node."""

    def __init__(self, b: Builder, n: OnnxNode | None, limits: Limits) -> None:
        self.b, self.limits = b, limits
        self.n: Any = n  # None where nothing can be wrong
        self.keys: dict[Value, Any] = {}

    # -- elements ----------------------------------------------------------------------------------
    def const(self, k: int) -> Value:
        return self.b.const(k if is_open(k) else np.int64(k))

    def known(self, v: Value) -> int | None:
        """The number that a scalar is in every run"""
        return None if v.const is None or v.type.rank else whole(v.const.array[()])

    def elements(self, v: Value) -> list[Value]:
        """The elements of a list of integers"""
        return [self.size(self.element(v, k)) for k in range(v.type.size)]

    def scalar(self, v: Value) -> Value:
        return self.size(self.element(v, 0))

    def size(self, v: Value) -> Value:
        """A number of elements"""
        return self.cast(v, DType.I64)

    def cast(self, v: Value, to: DType) -> Value:
        return v if v.dtype is to else self.one("Cast", v, to=to)

    def one(self, op: str, *ins: Value, **attrs: Any) -> Value:
        """An operator on scalars, of which equal ones are one"""
        return self.b.one(op, *ins, **attrs)

    def element(self, v: Value, k: int, depth: int = DEPTH) -> Value:
        """Element k in order, from as far back as it is only moved or computed element by element"""
        found = self._element(v, k, depth)
        self.limits.element(v, k, found)
        return found

    def _element(self, v: Value, k: int, depth: int) -> Value:
        if v.const is not None:
            return self.b.const(v.const.array.ravel()[k])
        p = v.producer
        if v.type.rank == 0 and (p is None or p.op != "Reshape"):
            return v
        if p is not None and depth and v not in self.limits.each:
            if p.op == "Reshape":
                return self.element(p.used[0], k, depth - 1)
            if p.op == "Concat" and v.type.rank == 1:
                for x in p.used:
                    if k < x.type.size:
                        return self.element(x, k, depth - 1)
                    k -= x.type.size
            if p.op == "Slice" and v.type.rank == 1:
                return self.element(p.used[0], p.attrs["starts"][0] + k * p.attrs["steps"][0], depth - 1)
            if p.op == "Gather" and p.used[0].type.rank == 1 and p.used[1].const is not None:
                return self.element(p.used[0], int(p.used[1].const.array.ravel()[k]), depth - 1)
            if p.op == "Expand" and p.used[0].type.size == 1:
                return self.element(p.used[0], 0, depth - 1)
            if opdef(p).elementwise and len(p.outputs) == 1 and all(x.type.size in (1, v.type.size) for x in p.used):
                ins = [None if x is None else self.element(x, k % x.type.size, depth - 1) for x in p.inputs]
                return self.b.emit(p.op, ins, p.attrs)[0]
        if v.type.rank == 0:
            return v
        starts, ones = np.unravel_index(k, v.shape), [1] * v.type.rank
        return reshape(self.b, slice_of(self.b, v, [(int(s), 1, 1) for s in starts]) if v.type.size > 1 else v,
                       ones[:0])

    # -- arithmetic --------------------------------------------------------------------------------
    def add(self, a: Value, b: Value) -> Value:
        return b if self.known(a) == 0 else a if self.known(b) == 0 else self.one("Add", a, b)

    def sub(self, a: Value, b: Value) -> Value:
        same = self.constant_difference(a, b)
        return self.const(same) if same is not None else a if self.known(b) == 0 else self.one("Sub", a, b)

    def mul(self, a: Value, b: Value) -> Value:
        return b if self.known(a) == 1 else a if self.known(b) == 1 else self.one("Mul", a, b)

    def div(self, a: Value, b: Value) -> Value:
        """Of what is not negative, rounded down; by 0 it is by 1"""
        return a if self.known(b) == 1 else self.one("Div", a, self.at_least(b, 1))

    def mod(self, a: Value, b: Value) -> Value:
        return self.one("Mod", a, self.at_least(b, 1))

    def at_least(self, a: Value, least: int) -> Value:
        return a if self.limits.sure.of(a).lo >= least else self.one("Max", a, self.const(least))

    def min(self, a: Value, b: Value) -> Value:
        return a if self.same(a, b) else self.one("Min", a, b)

    def total(self, sizes: Sequence[Value]) -> Value:
        out = self.const(1)
        for s in sizes:
            out = self.mul(out, s)
        return out

    # -- what is known -----------------------------------------------------------------------------
    def key(self, v: Value, depth: int = DEPTH) -> Any:
        """Equal for values that are computed alike"""
        if v not in self.keys:
            p = v.producer
            if v.const is not None and v.type.size <= 64:
                self.keys[v] = ("const", v.dtype, v.shape, v.const.array.tobytes())
            elif p is None or not depth or p.regions or p.body is not None:
                self.keys[v] = v
            else:
                ins = tuple(None if x is None else self.key(x, depth - 1) for x in p.inputs)
                self.keys[v] = (p.op, p.outputs.index(v), repr(sorted(p.attrs.items())), ins)
        return self.keys[v]

    def same(self, a: Value, b: Value) -> bool:
        return a is b or self.key(a) == self.key(b)

    def linear(self, v: Value, depth: int = DEPTH) -> tuple[dict[Any, tuple[int, Value]], int]:
        """(how often each term is in it), and a constant"""
        if (known := self.known(v)) is not None:
            return {}, known
        p = v.producer
        if p is not None and depth and p.op in ("Add", "Sub") and v.dtype is DType.I64:
            sign = 1 if p.op == "Add" else -1
            (terms, const), (more, other) = (self.linear(x, depth - 1) for x in p.used)
            out = dict(terms)
            for key, (k, x) in more.items():
                out[key] = (out.get(key, (0, x))[0] + sign * k, x)
            return {key: t for key, t in out.items() if t[0]}, const + sign * other
        return {self.key(v): (1, v)}, 0

    def _difference(self, a: Value, b: Value) -> tuple[list[tuple[int, Value]], int]:
        (terms, const), (more, other) = self.linear(a), self.linear(b)
        out = dict(terms)
        for key, (k, x) in more.items():
            out[key] = (out.get(key, (0, x))[0] - k, x)
        return [t for t in out.values() if t[0]], const - other

    def constant_difference(self, a: Value, b: Value) -> int | None:
        """a - b where it is the same in every run"""
        terms, const = self._difference(a, b)
        return None if terms else const

    def most_difference(self, a: Value, b: Value) -> float:
        """The most that a - b can be"""
        terms, const = self._difference(a, b)
        ranges = [(k, self.limits.likely.of(v)) for k, v in terms]
        far = 1 << 62  # of a type that holds everything
        ends = [r.hi if k > 0 else r.lo for k, r in ranges]
        return math.inf if any(abs(e) >= far for e in ends) else const + sum(
            k * e for (k, _), e in zip(ranges, ends, strict=True))

    def most(self, v: Value) -> float:
        """The most that a size can be; infinite where nobody says"""
        found = self.limits.likely.of(v).hi
        return found if found < 1 << 62 else math.inf

    # -- sizes that are made -----------------------------------------------------------------------
    def bounded(self, v: Value, most: int, least: int = 0, *others: Value) -> Value:
        """`v`, which ends the run where it is not from `least` to `most`, or more than others"""
        if v.const is not None or others or not self.limits.fits(v, least, most):
            v = self.b.one("Bounded", v, *others, least=least, most=most)
        return self.limits.size(v, most, least)

    def after(self, v: Value, check: Value, is_always: int) -> Value:
        """`v`, for which a size has to be made that ends the run where it is not what it should be"""
        if check.const is not None or not v.type.size:
            return v
        x = self.b.one("After", reshape(self.b, v, v.shape or [1]), check, size=is_always)
        return reshape(self.b, x, v.shape)

    def room(self, v: Value, *behind: Value, most: float | None = None) -> int:
        """How much is kept free for a size"""
        most = self.most(v) if most is None else most
        if most > MOST:
            self.endless(*(behind or (v,)))
        return max(int(most), 1)

    def endless(self, *behind: Value) -> NoReturn:
        names = list(dict.fromkeys(s for v in behind for s in self.limits.behind(v))) or ["NAME"]
        inputs = list(dict.fromkeys(s for v in behind for s in graph_inputs_behind(v)))
        told = ", ".join(f"'{s}'" for s in inputs)
        fixed = [f"or fix what decides it: `{' '.join(f'--bind {s}=...' for s in inputs)}`"] if inputs else []
        raise UnsupportedError(
            "has a result whose size only a run knows, and nothing says how large it gets",
            loc=self.n.loc, notes=[f"it depends on the model's input {told}"] if inputs else [],
            hints=[f"say how large a number gets that decides it: `{' '.join(f'--max-value {s}=N' for s in names)}`",
                   *fixed])

    # -- tensors -----------------------------------------------------------------------------------
    def value(self, t: Tensor) -> Value:
        return value_of(t)

    def sizes(self, t: Tensor) -> list[Value]:
        shape, counts = self.value(t).shape, t.counts if isinstance(t, Ragged) else {}
        return [self.limits.size(counts[k], d) if k in counts else self.const(d) for k, d in enumerate(shape)]

    def tensor(self, v: Value, sizes: Sequence[Value] | Mapping[int, Value]) -> Tensor:
        """What has these sizes: no more than the room along their axes"""
        counts = dict(enumerate(sizes)) if not isinstance(sizes, Mapping) else dict(sizes)
        for axis, c in list(counts.items()):
            k = self.known(c)
            if k is not None:
                v = self.fit(v, axis, k)
                del counts[axis]
            elif v.shape[axis] == 0:
                del counts[axis]
            else:
                counts[axis] = self.limits.size(c, v.shape[axis])
        return Ragged(v, counts) if counts else v

    def fit(self, v: Value, axis: int, room: int) -> Value:
        """With room for so many entries: the first ones, or more of which nobody knows what they are"""
        have = v.shape[axis]
        if room <= have:
            return slice_of(self.b, v, [(0, 1, room) if k == axis else (0, 1, d) for k, d in enumerate(v.shape)])
        more = [room - have if k == axis else 0 for k in range(v.type.rank)]
        return pad(self.b, v, [0] * v.type.rank, more, "constant", None)

    def iota(self, room: int, axis: int = 0, rank: int = 1) -> Value:
        """0, 1, 2, ... along an axis"""
        steps = self.b.one("Iota", start=0, delta=1, size=room)
        return reshape(self.b, steps, [room if k == axis else 1 for k in range(rank)])

    def inside(self, at: Value, room: int) -> Value:
        """Positions moved into an axis of `room` entries"""
        top = self.b.one("Min", at, self.const(room - 1))
        return self.b.one("Max", top, self.const(0))

    def picked(self, v: Value, axis: int, at: Value) -> Value:
        """Entries along an axis, at positions that are moved inside"""
        if v.shape[axis] == 0:
            shape = [*v.shape[:axis], *at.shape, *v.shape[axis + 1 :]]
            return self.b.one("Expand", self.b.const(np.zeros((), v.dtype.numpy)), shape=shape)
        return self.b.one("Gather", v, self.inside(at, v.shape[axis]), axis=axis)

    def there(self, t: Ragged, axis: int) -> Value:
        """Which entries along an axis there are, as it broadcasts with the tensor"""
        return self.b.one("Less", self.iota(t.value.shape[axis], axis, t.value.type.rank), t.counts[axis])

    def masked(self, t: Tensor, fill: Any, axes: Sequence[int] | None = None) -> Value:
        """The room, with `fill` where nothing is along some axes, or all"""
        if not isinstance(t, Ragged):
            return t
        v = t.value
        for axis in t.counts if axes is None else axes:
            if axis in t.counts:
                v = self.b.one("Where", self.there(t, axis), v, self.b.const(np.asarray(fill, v.dtype.numpy)))
        return v
