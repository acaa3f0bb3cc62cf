"""A tensor with a smaller one written into it at a place that is data."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from monobloc.errors import ModelError
from monobloc.ir.expr import Expr, Fn, all_of, cast, idx, select
from monobloc.ir.graph import Node, Value
from monobloc.ir.types import DType, TensorType
from monobloc.ops import Case, OpDef
from monobloc.ops.indexing import index_dtype
from monobloc.ops.movement import clamp
from monobloc.ops.shape import only

Array = np.ndarray
I64 = DType.I64


class UpdateSlice(OpDef):
    """x with `update` written from `start` on (one index per axis), moved so that it lies inside"""

    name = "UpdateSlice"
    internal = True

    def infer(self, ins: Sequence[Value | None], attrs: dict[str, Any]) -> list[TensorType]:
        x, update, start = (only(v, self.name) for v in ins)
        index_dtype(start, self.name)
        fits = update.type.rank == x.type.rank and all(u <= d for u, d in zip(update.shape, x.shape, strict=True))
        if not fits or start.shape != (x.type.rank,) or update.dtype is not x.dtype:
            raise ModelError(f"{self.name} writes {update.type} into {x.type} at {start.type}")
        return [TensorType(x.dtype, x.shape)]

    def ref(self, attrs: dict[str, Any], *xs: Array | None) -> Array:
        x, update, start = xs
        assert x is not None and update is not None and start is not None
        first = [min(max(int(s), 0), d - u) for s, d, u in zip(start, x.shape, update.shape, strict=True)]
        out = x.copy()
        out[tuple(slice(f, f + u) for f, u in zip(first, update.shape, strict=True))] = update
        return out

    def expr(self, n: Node, *xs: Fn | None) -> Fn:
        x, update, start = xs
        assert x is not None and update is not None and start is not None
        shape, small = n.used[0].shape, n.used[1].shape
        if not all(small):
            return x

        def at(*i: Expr) -> Expr:
            steps = []
            for k, (d, u) in enumerate(zip(shape, small, strict=True)):
                first = clamp(cast(start(idx(k)), I64), d - u + 1) if d > u else idx(0)
                steps.append(i[k] - first)
            new = all_of(c for s, u in zip(steps, small, strict=True) for c in (s.ge(0), s.lt(u)))
            return select(new, update(*(clamp(s, u) for s, u in zip(steps, small, strict=True))), x(*i))

        return at

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        x = rng.standard_normal((4, 5, 3)).astype(np.float32)
        for start in ([1, 2, 0], [-4, 9, 0], [3, 4, 1]):
            yield Case((x, x[:2, :3, :3] + 1, np.array(start, np.int32)), {}, str(start))
        yield Case((x[:, 0], x[:0, 0], np.array([1, 1])), {}, "empty")
