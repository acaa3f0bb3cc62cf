"""Operators that passes make: Copy (also a change of layout), Unpack (packed weights read by element), Fused (a
group), Foreign (somebody else's function)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from monobloc.ir.expr import Expr, Fn, idx, select
from monobloc.ir.graph import Node, Value
from monobloc.ir.types import TensorType
from monobloc.kernels import packing
from monobloc.ops import Case, OpDef, opdef
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


class Unpack(OpDef):
    """A matrix [k, n] as it lies in the panels of packed weights (kernels/packing.py), read element by element."""

    name = "Unpack"
    internal = True

    def infer(self, ins: Sequence[Value | None], attrs: dict[str, Any]) -> list[TensorType]:
        return [TensorType(ins[0].dtype, (attrs["k"], attrs["n"]))]  # type: ignore[union-attr]

    def ref(self, attrs: dict[str, Any], *xs: np.ndarray | None) -> np.ndarray:
        assert xs[0] is not None
        return packing.unpack_gemm_b(xs[0], *(attrs[a] for a in ("k", "n", "nv", "vl")))

    def expr(self, n: Node, *xs: Fn | None) -> Fn:
        x, k, columns, vl = xs[0], n.attrs["k"], n.attrs["n"], n.attrs["vl"]
        assert x is not None
        whole, nr, total = columns // vl * vl, n.attrs["nv"] * vl, -(-columns // vl) * vl
        rest = total % nr  # columns of the last panel, where it is narrower

        def at(i: Expr, j: Expr) -> Expr:
            column = j
            if whole < columns and whole:  # the last vector repeats some columns of the one before
                column = j + select(j.lt(whole), idx(0), idx(whole + vl - columns))
            row = i * nr
            if rest:
                row = select(column.lt(total - rest), row, i * rest)
            return x(column // nr * (nr * k) + row + column % nr)

        return at

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        for k, n, nv, vl in ((3, 16, 2, 4), (5, 30, 3, 4), (2, 3, 1, 4), (4, 13, 2, 4)):
            packed = packing.pack_gemm_b(rng.standard_normal((k, n)).astype(np.float32), nv, vl)
            yield Case((packed,), {"k": k, "n": n, "nv": nv, "vl": vl}, f"{n}")


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
        return opdef(attrs["op"]).infer(ins, dict(attrs["of"]))

    def ref(self, attrs: dict[str, Any], *xs: np.ndarray | None) -> Any:
        return opdef(attrs["op"]).ref(dict(attrs["of"]), *xs)

    def routine(self, n: Node, c: Any) -> str:
        a = n.attrs
        pointers = {f"@in{k}": c.ptr(v) for k, v in enumerate(n.used)}
        pointers |= {f"@out{k}": c.ptr(v) for k, v in enumerate(n.outputs)}
        pointers |= {"@scratch": f"((void *){c.scratch(a['scratch'])})" if a["scratch"] else "0"}
        call = "".join(pointers.get(piece, piece.removeprefix("@")) for piece in a["call"])
        place = f'#line {a["line"]} "{a["file"]}"'
        if a["returns"] == "nothing":
            return f"{place}\n{call};"
        return f"{place}\nconst int e = {call};\nif (e) return e < 0 ? e : MB_E_FOREIGN + e;"
