"""Tensors whose size data decide: as much room as they may need, and how much of it counts.

A `Ragged` is what such a tensor is while a model is read: a value with room for the most, and for some of its axes
the number of entries that are there. What lies behind them gets into no result: operators that would let it are
given it masked, or are refused. At an output `Sized` packs what is there, so that it is dense, and writes its sizes
beside it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from monobloc.ir.graph import Node, Value
from monobloc.ir.types import DType, TensorType
from monobloc.ops import OpDef

OP = "Sized"


@dataclass(frozen=True, eq=False)
class Ragged:
    """`counts` (one i64 each) entries of `value` along some axes are there."""

    value: Value
    counts: Mapping[int, Value]

    @property
    def dtype(self) -> DType:
        return self.value.dtype

    @property
    def type(self) -> str:
        dims = [f"<={d}" if k in self.counts else str(d) for k, d in enumerate(self.value.shape)]
        return f"{self.dtype.value}[{','.join(dims)}]"


class Sized(OpDef):
    """The first entries along `axes`, densely packed into room for the most, and the sizes they have. Inputs: x,
    how many entries there are along each."""

    name = OP
    internal = True

    def infer(self, ins: Sequence[Value | None], attrs: dict[str, Any]) -> list[TensorType]:
        x, *counts = ins
        assert x is not None and len(counts) == len(attrs["axes"]) and sorted(attrs["axes"]) == attrs["axes"]
        assert all(c is not None and c.dtype is DType.I64 and c.type.size == 1 for c in counts)
        return [x.type.with_layout(None), TensorType(DType.I64, (x.type.rank,))]

    def ref(self, attrs: dict[str, Any], *xs: np.ndarray | None) -> list[np.ndarray]:
        x, *counts = xs
        assert x is not None
        kept = x
        for axis, count in zip(attrs["axes"], counts, strict=True):
            assert count is not None
            kept = np.take(kept, np.arange(int(count.ravel()[0])), axis)
        out = np.zeros(x.size, x.dtype)
        out[: kept.size] = kept.ravel()
        return [out.reshape(x.shape), np.array(kept.shape, np.int64)]

    def routine(self, n: Node, c: Any) -> str:
        x, axes, sizes = n.used[0], n.attrs["axes"], c.ptr(n.outputs[1])
        count = {a: f"count{a}" for a in axes}
        lines = [f"const int64_t {count[a]} = *{c.ptr(v)};" for a, v in zip(axes, n.used[1:], strict=True)]
        lines += [f"if ({count[a]} < 0 || {count[a]} > {x.shape[a]}) return MB_E_SHAPE;" for a in axes]
        lines += [f"{sizes}[{k}] = {count.get(k, d)};" for k, d in enumerate(x.shape)]
        if x.type.size:
            lines += self._copies(x, axes, c.ptr(n.outputs[0]), c.ptr(x))
        return "\n".join(lines)

    def _copies(self, x: Value, axes: Sequence[int], to: str, source: str) -> Iterator[str]:
        """Everything behind the last of the axes is in one piece."""
        last, at = axes[-1], "0"
        inner = math.prod(x.shape[last + 1 :]) * x.dtype.size
        yield f"char *to = (char *){to};"
        outer = 1  # of axes that are whole, and so are walked as one
        for k in range(last):
            outer *= 1 if k in axes else x.shape[k]
            if k in axes or k + 1 in axes:
                end, step = (f"count{k}", x.shape[k]) if k in axes else (str(outer), outer)
                yield f"for (long i{k} = 0; i{k} < {end}; i{k}++)"
                at, outer = f"({at}) * {step} + i{k}", 1
        yield (f"{{ __builtin_memcpy(to, (const char *){source} + ({at}) * {x.shape[last] * inner}, "
               f"count{last} * {inner}); to += count{last} * {inner}; }}")


def packed(b: Any, r: Ragged, name: str) -> Value:
    """What an output holds of it"""
    axes = sorted(r.counts)
    ins, attrs = [r.value, *(r.counts[a] for a in axes)], {"axes": axes}
    node = b.graph.make(OP, ins, Sized().infer(ins, attrs), attrs, name=name, locs=b.locs)
    out: Value = node.outputs[0]
    return out


def sizes_of(v: Value) -> Value | None:
    """Where the sizes are that a value has in a run, if data decide them"""
    p = v.producer
    return p.outputs[1] if p is not None and p.op == OP and p.outputs[0] is v else None
