"""Folds whose order is free become one loop along memory; sums of floats stay as they are."""

from __future__ import annotations

import pytest

from monobloc.codegen.folds import along_memory
from monobloc.ir.expr import Expr, Load, Num, Reduce, Var, linear
from monobloc.ir.graph import Graph
from monobloc.ir.types import DType, TensorType

C, H, W = Var("c", 64), Var("h", 25), Var("w", 5)


def fold(kind: str, dtype: DType, address: Expr) -> Reduce:
    x = Graph("g").add_input("x", TensorType(dtype, (1, 64, 25, 5)))
    return Reduce(kind, (C, H, W), Load(x, (address,), dtype), None, dtype)


KINDS = [("max", DType.F32), ("min", DType.I8), ("sum", DType.I32), ("or", DType.BOOL)]


@pytest.mark.parametrize(("kind", "dtype"), KINDS)
def test_channels_last_is_one_loop(kind: str, dtype: DType) -> None:
    r = along_memory(fold(kind, dtype, C + W * 64 + H * 320))
    assert isinstance(r, Reduce) and [v.extent for v in r.vars] == [8000]
    (load,) = (x for x in [r.body] if isinstance(x, Load))
    assert linear(load.index[0]) == ({r.vars[0]: 1}, 0)


def test_what_does_not_merge_is_sorted() -> None:
    r = along_memory(fold("max", DType.F32, C + W * 100 + H * 500))  # a view of wider pixels
    assert isinstance(r, Reduce) and [v.extent for v in r.vars] == [125, 64]


def test_sums_of_floats_and_guarded_folds_keep_their_order() -> None:
    total = fold("sum", DType.F32, C + W * 64 + H * 320)
    guarded = Reduce("max", total.vars, total.body, C.lt(Num(7, DType.I64)), DType.F32)
    assert along_memory(total) == total and along_memory(guarded) == guarded
