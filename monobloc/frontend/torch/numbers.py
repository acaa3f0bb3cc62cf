"""Numbers that data decide: what `.item()` takes out of a tensor, as the place in a cache that a step writes to.

A number of this kind is a tensor of one element for whoever computes with it. Where it says where a slice begins, the
slice is read or written by index; how long that is must be known.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import reduce
from typing import Any

import numpy as np

from monobloc.errors import Loc, UnsupportedError
from monobloc.frontend.torch.indexing import write_rows
from monobloc.frontend.torch.node import AtenNode, DataNumber, Reader, Results, holds
from monobloc.frontend.torch.sized import read as read_sized
from monobloc.ir.graph import Value
from monobloc.ir.types import DType
from monobloc.ops.build import Builder
from monobloc.ops.shape import reshape
from monobloc.ops.sized import Ragged

ITEM = "_local_scalar_dense.default"
PYTHON = {
    "add": "Add", "sub": "Sub", "mul": "Mul", "sym_min": "Min", "sym_max": "Max", "mod": "Mod", "eq": "Equal",
    "lt": "Less", "le": "LessOrEqual", "gt": "Greater", "ge": "GreaterOrEqual",
}  # fmt: skip
AS_TENSORS = {
    *(f"{op}.{kind}" for op in ("add", "sub", "mul", "div", "eq", "ne", "lt", "le", "gt", "ge")
      for kind in ("Tensor", "Scalar")), "full.default", "full_like.default", "fill.Scalar", "scalar_tensor.default",
}  # fmt: skip


def item(b: Builder, v: Value) -> DataNumber:
    wide = v if not v.dtype.is_int else b.one("Cast", v, to=DType.I64)
    return DataNumber(reshape(b, wide, []))


def python(b: Builder, name: str, args: list[Any], loc: Loc) -> DataNumber:
    """What Python computes of such numbers and others"""
    if name == "sym_float":
        return DataNumber(b.one("Cast", args[0].value, to=DType.F64))
    if name == "sym_sum":
        terms: list[Any] = args[0]
        return DataNumber(reduce(lambda a, c: python(b, "add", [a, c], loc), terms).value)
    if name == "neg":
        return DataNumber(b.one("Neg", args[0].value))
    if name not in (*PYTHON, "floordiv") or len(args) != 2:
        raise UnsupportedError(f"`{name}` of a number that data decide is not supported", loc=loc)
    own = next(a.value.dtype for a in args if isinstance(a, DataNumber))
    ins = [a.value if isinstance(a, DataNumber) else b.const(a, own) for a in args]
    if len({v.dtype for v in ins}) > 1 or any(isinstance(a, float) for a in args) and own.is_int:
        raise UnsupportedError(f"`{name}` of numbers of two types that data decide is not supported", loc=loc)
    if name == "floordiv":  # rounded down, as Python has it
        x, by = ins
        return DataNumber(b.one("Div", b.one("Sub", x, b.one("Mod", x, by)), by))
    return DataNumber(b.one(PYTHON[name], *ins))


def read(n: AtenNode, sized: Mapping[str, Reader], readers: Mapping[str, Reader]) -> Results:
    """A call of which some arguments are such numbers"""
    if n.op in PLACES and _length_is_fixed(n):
        return PLACES[n.op](n)
    if n.op in sized:
        return sized[n.op](n)
    if n.op not in AS_TENSORS:
        named = ", ".join(f"`{k}`" for k, v in n.args.items() if holds(v, DataNumber))
        n.unsupported(f"{named} that data decide")
    plain = replace(n, args={k: v.value if isinstance(v, DataNumber) else v for k, v in n.args.items()})
    return read_sized(plain, sized, readers) if holds(plain.args, Ragged) else readers[n.op](plain)


def _length_is_fixed(n: AtenNode) -> bool:
    """Of a slice that begins where data say"""
    return not holds(n.args, Ragged) and all(isinstance(d, int) for d in n.shape())


# -- slices that begin where data say -----------------------------------------------------------------
def _places(n: AtenNode, count: Any) -> Value:
    start = n["start"]
    if not isinstance(start, DataNumber) or not isinstance(count, int) or n["step"] != 1:
        n.unsupported("a slice whose length data decide, or with a step,")
    return n.one("Add", n.reshape(start.value, [1]), n.b.const(np.arange(count)))


def sliced(n: AtenNode) -> Results:
    axis = n.axis()
    return n.one("Gather", n.x(), _places(n, n.shape()[axis]), axis=axis)


def slice_scatter(n: AtenNode) -> Results:
    x, src, axis = n.x(), n.cast(n.x("src"), n.x().dtype), n.axis()
    return write_rows(n, x, _places(n, src.shape[axis]), src, axis)


def selected(n: AtenNode) -> Results:
    return n.one("Gather", n.x(), n["index"].value, axis=n.axis())


def select_scatter(n: AtenNode) -> Results:
    x, axis = n.x(), n.axis()
    src = n.reshape(n.cast(n.x("src"), x.dtype), [*x.shape[:axis], 1, *x.shape[axis + 1 :]])
    return write_rows(n, x, n.reshape(n["index"].value, [1]), src, axis)


PLACES: dict[str, Callable[[AtenNode], Results]] = {
    "slice.Tensor": sliced, "slice_scatter.default": slice_scatter, "select.int": selected,
    "select_scatter.default": select_scatter,
}  # fmt: skip
