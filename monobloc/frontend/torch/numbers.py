"""Numbers that data decide: what `.item()` takes out of a tensor, as the place in a cache that a step writes to.

A number of this kind is a tensor of one element for whoever computes with it. Where it says where a slice begins, the
slice is read or written by index; how long that is must be known.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from monobloc.errors import Loc, UnsupportedError
from monobloc.frontend.torch.indexing import write_rows
from monobloc.frontend.torch.node import AtenNode, Reader, Results, holds
from monobloc.ir.graph import Value
from monobloc.ir.types import DType
from monobloc.ops.build import Builder
from monobloc.ops.shape import reshape

ITEM = "_local_scalar_dense.default"
PYTHON = {"add": "Add", "sub": "Sub", "mul": "Mul"}
AS_TENSORS = {
    *(f"{op}.{kind}" for op in ("add", "sub", "mul", "div", "eq", "ne", "lt", "le", "gt", "ge")
      for kind in ("Tensor", "Scalar")), "full.default", "full_like.default", "fill.Scalar", "scalar_tensor.default",
}  # fmt: skip


@dataclass(frozen=True)
class DataNumber:
    """`value` has one element and no axes"""

    value: Value


def item(b: Builder, v: Value) -> DataNumber:
    wide = v if not v.dtype.is_int else b.one("Cast", v, to=DType.I64)
    return DataNumber(reshape(b, wide, []))


def python(b: Builder, name: str, args: list[Any], loc: Loc) -> DataNumber:
    """What Python computes of such numbers and others"""
    if name == "sym_float":
        return DataNumber(b.one("Cast", args[0].value, to=DType.F64))
    if name not in PYTHON or len(args) != 2:
        raise UnsupportedError(f"`{name}` of a number that data decide is not supported", loc=loc)
    own = next(a.value.dtype for a in args if isinstance(a, DataNumber))
    ins = [a.value if isinstance(a, DataNumber) else b.const(a, own) for a in args]
    if len({v.dtype for v in ins}) > 1 or any(isinstance(a, float) for a in args) and own.is_int:
        raise UnsupportedError(f"`{name}` of numbers of two types that data decide is not supported", loc=loc)
    return DataNumber(b.one(PYTHON[name], *ins))


def read(n: AtenNode, readers: Mapping[str, Reader]) -> Results:
    """A call of which some arguments are such numbers"""
    if n.op in PLACES:
        return PLACES[n.op](n)
    if n.op not in AS_TENSORS:
        named = ", ".join(f"`{k}`" for k, v in n.args.items() if holds(v, DataNumber))
        n.unsupported(f"{named} that data decide")
    plain = {k: v.value if isinstance(v, DataNumber) else v for k, v in n.args.items()}
    return readers[n.op](AtenNode(n.op, n.b, n.loc, plain, n.metas, n.made, n.needed))


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
