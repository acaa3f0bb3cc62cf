"""Tensors whose size data decide: as much room as they may need, and how much of it counts.

A `Ragged` is what such a tensor is while a model is read: a value with room for the most, and the number of entries
along one axis that are there. What lies behind them gets into no result: operators that would let it are refused.
At an output `Sized` packs what is there, so that it is dense, and writes its sizes beside it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from monobloc.ir.graph import Node, Value
from monobloc.ir.types import DType, TensorType
from monobloc.ops import OpDef

OP = "Sized"


@dataclass(frozen=True, eq=False)
class Ragged:
    """`count` (one i64) entries of `value` along `axis` are there."""

    value: Value
    count: Value
    axis: int

    @property
    def dtype(self) -> DType:
        return self.value.dtype

    @property
    def type(self) -> str:
        dims = [f"<={d}" if k == self.axis else str(d) for k, d in enumerate(self.value.shape)]
        return f"{self.dtype.value}[{','.join(dims)}]"


class Sized(OpDef):
    """The first entries along an axis, densely packed into room for the most, and the sizes they have."""

    name = OP
    internal = True

    def infer(self, ins: Sequence[Value | None], attrs: dict[str, Any]) -> list[TensorType]:
        x, count = ins
        assert x is not None and count is not None and count.dtype is DType.I64 and count.type.size == 1
        return [x.type.with_layout(None), TensorType(DType.I64, (x.type.rank,))]

    def ref(self, attrs: dict[str, Any], *xs: np.ndarray | None) -> list[np.ndarray]:
        x, count = xs
        assert x is not None and count is not None
        kept = np.take(x, np.arange(int(count.ravel()[0])), attrs["axis"])
        out = np.zeros(x.size, x.dtype)
        out[: kept.size] = kept.ravel()
        return [out.reshape(x.shape), np.array(kept.shape, np.int64)]

    def routine(self, n: Node, c: Any) -> str:
        x, axis = n.used[0], n.attrs["axis"]
        outer, most, inner = math.prod(x.shape[:axis]), x.shape[axis], math.prod(x.shape[axis + 1 :]) * x.dtype.size
        sizes = c.ptr(n.outputs[1])
        lines = [
            f"const int64_t count = *{c.ptr(n.used[1])};",
            f"if (count < 0 || count > {most}) return MB_E_SHAPE;",
            *(f"{sizes}[{k}] = {'count' if k == axis else d};" for k, d in enumerate(x.shape)),
        ]
        if x.type.size:
            to, source = c.ptr(n.outputs[0]), c.ptr(x)
            lines.append(
                f"for (long o = 0; o < {outer}; o++) __builtin_memcpy((char *){to} + o * count * {inner}, "
                f"(const char *){source} + o * {most * inner}, count * {inner});"
            )
        return "\n".join(lines)


def packed(b: Any, r: Ragged, name: str) -> Value:
    """What an output holds of it"""
    types = Sized().infer([r.value, r.count], {"axis": r.axis})
    node = b.graph.make(OP, [r.value, r.count], types, {"axis": r.axis}, name=name, locs=b.locs)
    out: Value = node.outputs[0]
    return out


def sizes_of(v: Value) -> Value | None:
    """Where the sizes are that a value has in a run, if data decide them"""
    p = v.producer
    return p.outputs[1] if p is not None and p.op == OP and p.outputs[0] is v else None
