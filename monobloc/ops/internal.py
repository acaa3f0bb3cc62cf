"""Operators that passes make: Copy (also a change of layout), Fused (a group), Foreign (somebody else's function)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from monobloc.ir.expr import Expr
from monobloc.ir.graph import Node, Value
from monobloc.ir.types import TensorType
from monobloc.ops import OpDef, registry
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


class Foreign(OpDef):
    """Another operator that a function of a foreign library computes.

    Attributes: `op` and `of` (its own attributes), `call` (C text in pieces, `@in0` and `@out0` for
    pointers), `returns`, `scratch` in bytes, `file` and `line` of the kernel row, `declaration`, `header`.
    """

    name = "Foreign"
    internal = True

    def infer(self, ins: Sequence[Value | None], attrs: dict[str, Any]) -> list[TensorType]:
        return registry()[attrs["op"]].infer(ins, dict(attrs["of"]))

    def ref(self, attrs: dict[str, Any], *xs: np.ndarray | None) -> Any:
        return registry()[attrs["op"]].ref(dict(attrs["of"]), *xs)

    def routine(self, n: Node, c: Any) -> str:
        a = n.attrs
        pointers = {f"@in{k}": c.ptr(v) for k, v in enumerate(n.used)}
        pointers |= {f"@out{k}": c.ptr(v) for k, v in enumerate(n.outputs)}
        pointers |= {"@scratch": f"((void *){c.scratch(a['scratch'])})" if a["scratch"] else "0"}
        call = "".join(pointers.get(piece, piece.removeprefix("@")) for piece in a["call"])
        place = f'#line {a["line"]} "{a["file"]}"'
        if a["returns"] == "nothing":
            return f"{place}\n{call};"
        return f"{place}\nconst int e = {call};\nif (e) return e < 0 ? e : MB_E_KERNEL + e;"
