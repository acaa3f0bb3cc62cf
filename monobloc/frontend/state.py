"""What a model keeps between runs, whichever format says it.

A variable is an input that is state and an output, the value it has in the next run. State starts as zeros in memory;
a variable that starts otherwise is kept as its difference in bits from its start, which starts as zeros.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from monobloc.ir.graph import Graph, Value
from monobloc.ir.types import DType
from monobloc.ops.build import Builder

_BITS = {1: DType.U8, 2: DType.U16, 4: DType.U32, 8: DType.U64}


def flipped(b: Builder, v: Value, start: np.ndarray | None) -> Value:
    """A value as its difference in bits from where it started, and back"""
    bits = _BITS[v.dtype.size]
    mask = None if start is None else np.ascontiguousarray(start).view(bits.numpy).reshape(start.shape)
    if mask is None or not mask.any():
        return v
    seen = v if v.dtype is bits else b.one("BitCast", v, to=bits)
    out = b.one("BitwiseXor", seen, b.const(mask, bits))
    return out if v.dtype is bits else b.one("BitCast", out, to=v.dtype)


def finish(b: Builder, graph: Graph, before: Mapping[str, Value], now: Mapping[str, Value],
           starts: Mapping[str, np.ndarray]) -> None:
    """The outputs that variables leave by"""
    taken = {name for name, _ in graph.outputs}
    for name, v in before.items():
        out = f"{name}/next"
        while out in taken:
            out += "_"
        v.state = out
        graph.outputs.append((out, flipped(b, now[name], starts.get(name))))
