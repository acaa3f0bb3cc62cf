"""Operators that passes make: Copy (also a change of layout) and Fused (a group)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from monobloc.ir.expr import Expr
from monobloc.ir.graph import Value
from monobloc.ir.types import TensorType
from monobloc.ops import OpDef
from monobloc.ops.elementwise import Elementwise


class Copy(Elementwise):
    """The same elements in other memory: for outputs of their own, and for conversions of layout."""

    name = "Copy"
    internal = True

    def infer(self, ins: Sequence[Value | None], attrs: dict[str, Any]) -> list[TensorType]:
        return [TensorType(ins[0].dtype, ins[0].shape)]  # type: ignore[union-attr]

    def ref(self, attrs: dict[str, Any], *xs: np.ndarray | None) -> np.ndarray:
        return xs[0]  # type: ignore[return-value]

    def scalar(self, attrs: dict[str, Any], *xs: Expr) -> Expr:
        return xs[0]


class Fused(OpDef):
    """A group of nodes (attribute `body`) that is one loop nest or one kernel call with its epilogue."""

    name = "Fused"
    internal = True
