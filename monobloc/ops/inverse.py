"""Inverse of square matrices (`com.microsoft`), by elimination."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from monobloc.errors import ModelError
from monobloc.ir.graph import Node, Value
from monobloc.ir.types import DType, TensorType
from monobloc.ops import Case, OpDef, Tol
from monobloc.ops.contract import NAN, Edge, f32

Array = np.ndarray
Attrs = dict[str, Any]


class Inverse(OpDef):
    """The inverse of each matrix of a stack; half floats compute in float32"""

    name = "Inverse"
    domain = "com.microsoft"
    tol = Tol(1e-3, 1e-4)
    edges = (
        Edge("NaN", "gives NaN", (f32([NAN]),), (f32([NAN]),)),
        Edge("division by 0", "a matrix that has no inverse gives NaN", (f32([0, 0], [0, 1]),),
             (f32([NAN] * 2, [NAN] * 2),)),
    )

    def from_onnx(self, b: Any, n: Any) -> Sequence[Value | None]:
        x = n.inputs[0]
        if x.dtype in (DType.F32, DType.F64):
            return b.emit(self.name, [x])
        y = b.one(self.name, b.one("Cast", x, to=DType.F32))
        return [b.one("Cast", y, to=x.dtype)]

    def infer(self, ins: Sequence[Value | None], attrs: Attrs) -> list[TensorType]:
        x = ins[0]
        assert x is not None
        if x.type.rank < 2 or x.shape[-1] != x.shape[-2] or x.dtype not in (DType.F32, DType.F64):
            raise ModelError(f"{self.name} needs square matrices of floats, got {x.type}")
        return [TensorType(x.dtype, x.shape)]

    def ref(self, attrs: Attrs, *xs: Array | None) -> Array:
        x = xs[0]
        assert x is not None
        out = np.full(x.shape, np.nan, x.dtype)
        for i in np.ndindex(x.shape[:-2]):
            try:
                out[i] = np.linalg.inv(x[i].astype(np.float64))
            except np.linalg.LinAlgError:
                continue  # there is none
        return out

    def routine(self, n: Node, c: Any) -> str:
        x, size = n.used[0], n.used[0].shape[-1]
        count = x.type.size // max(size * size, 1)
        work = c.scratch(max(size * size, 1) * x.dtype.size)
        return f"  mb_inverse_run({count}, {size}, {c.ptr(x)}, ({x.dtype.c} *){work}, {c.ptr(n.outputs[0])});\n"

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        for shape, d in (((5, 5), np.float32), ((2, 3, 4, 4), np.float64), ((3, 1, 1), np.float32)):
            x = rng.standard_normal(shape) + 3 * np.eye(shape[-1])
            yield Case((x.astype(d),), {}, f"{shape[-1]}")
        swap = np.array([[0, 1, 0], [0, 0, 2], [4, 0, 0]], np.float32)
        yield Case((swap,), {}, "pivots")
