"""Determinants: of small matrices by expansion, which fuses, of larger ones by elimination."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from monobloc.errors import ModelError
from monobloc.ir.expr import Expr, Fn, cast, idx, lift
from monobloc.ir.graph import Node, Value
from monobloc.ir.types import DType, TensorType
from monobloc.ops import Case, OpDef, Tol
from monobloc.ops.build import cast_to
from monobloc.ops.contract import INF, NAN, Edge, f32
from monobloc.ops.shape import only

LARGEST = 5  # the expansion has n! terms


def _expanded(m: np.ndarray) -> np.ndarray:
    """By minors of the first row, as compiled code has it: elimination loses what infinities give."""
    if m.shape[-1] == 0:
        return np.ones(m.shape[:-2])
    terms = [(-1) ** k * m[..., 0, k] * _expanded(np.delete(m[..., 1:, :], k, -1)) for k in range(m.shape[-1])]
    return np.asarray(sum(terms))


def _of_each(x: Value) -> list[TensorType]:
    """One number for each matrix of a stack"""
    if x.type.rank < 2 or x.shape[-1] != x.shape[-2]:
        raise ModelError(f"Det needs square matrices, got {x.type}")
    return [TensorType(x.dtype, x.shape[:-2])]


class Det(OpDef):
    """Over the last two axes; in double, since its terms cancel"""

    name = "Det"
    edges = (
        Edge("NaN", "gives NaN", (f32([NAN, 0], [0, 1]),), (f32(NAN)[0],)),
        Edge("infinities", "go through the sum of products; from 6 by 6 on they give NaN",
             (f32([INF, 1], [1, 1]),), (f32(INF)[0],)),
    )
    tol = Tol(1e-4, 1e-5)

    def from_onnx(self, b: Any, n: Any) -> Sequence[Value | None]:
        x = n.inputs[0]
        if x.type.rank < 2 or x.shape[-1] <= LARGEST:
            return b.emit("Det", [x])
        wide = cast_to(b, x, DType.F64)
        y = b.one("DetByElimination", wide)
        return [cast_to(b, y, x.dtype)]

    def infer(self, ins: Sequence[Value | None], attrs: dict[str, Any]) -> list[TensorType]:
        return _of_each(only(ins[0], self.name))

    def ref(self, attrs: dict[str, Any], *xs: np.ndarray | None) -> np.ndarray:
        x = xs[0]
        assert x is not None
        wide = x.astype(np.float64)
        found = np.linalg.det(wide) if np.isfinite(wide).all() else _expanded(wide)
        return np.asarray(found).astype(x.dtype)

    def expr(self, n: Node, *xs: Fn | None) -> Fn:
        x, v = xs[0], n.used[0]
        assert x is not None

        def at(*i: Expr) -> Expr:
            def minor(row: int, columns: tuple[int, ...]) -> Expr:
                if not columns:
                    return lift(1.0, DType.F64)
                total: Expr | None = None
                for k, c in enumerate(columns):
                    rest = columns[:k] + columns[k + 1 :]
                    term = cast(x(*i, idx(row), idx(c)), DType.F64) * minor(row + 1, rest)
                    total = term if total is None else total - term if k % 2 else total + term
                assert total is not None
                return total

            return cast(minor(0, tuple(range(v.shape[-1]))), v.dtype)

        return at

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        for n in (1, 2, 3, 4):
            yield Case((rng.standard_normal((3, n, n)).astype(np.float32),), {}, f"{n}")


class DetByElimination(OpDef):
    """Of matrices of doubles; one that is not finite gives NaN"""

    name = "DetByElimination"
    internal = True
    tol = Tol(1e-9, 1e-9)

    def infer(self, ins: Sequence[Value | None], attrs: dict[str, Any]) -> list[TensorType]:
        return _of_each(only(ins[0], "Det"))

    def ref(self, attrs: dict[str, Any], *xs: np.ndarray | None) -> np.ndarray:
        x = xs[0]
        assert x is not None
        finite = np.isfinite(x).all((-1, -2))
        return np.asarray(np.where(finite, np.linalg.det(np.where(finite[..., None, None], x, 0)), np.nan))

    def routine(self, n: Node, c: Any) -> str:
        x, y = n.used[0], n.outputs[0]
        size = x.shape[-1]
        work = c.scratch(8 * size * size)
        return (f"for (long k = 0; k < {y.type.size}; k++) "
                f"{c.ptr(y)}[k] = mb_inverse_det({size}, {c.ptr(x)} + k * {size * size}, (double *){work});\n")

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        x = rng.standard_normal((2, 3, 7, 7))
        x[0, 1, :, 2], x[1, 0, 3, 3], x[1, 1, 0] = 0, np.inf, 0
        yield Case((x,), {}, "7")
        yield Case((np.eye(6)[[1, 0, 2, 4, 5, 3]] * 2,), {}, "pivots")
