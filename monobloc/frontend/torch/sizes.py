"""What a program computes of sizes and numbers: computed while it is read, as Python would."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import torch

from monobloc.ir.graph import Value

# What a program checks of its sizes and data as it runs: sizes are known here, and data are not looked at.
IGNORED = {
    "_assert_scalar.default", "_assert_async.default", "_assert_async.msg", "_assert_tensor_metadata.default",
    "sym_constrain_range.default", "sym_constrain_range_for_size.default", "_functional_assert_async.msg",
    "_functional_assert_scalar.default", "_linalg_check_errors.default",
}  # fmt: skip


def computed(target: Any, name: str, args: Any) -> tuple[bool, Any]:
    """(whether it is about numbers, the result)"""
    if name in OF_TENSORS and args and isinstance(args[0], Value):
        return True, OF_TENSORS[name](args[0], *args[1:])
    if name == "_local_scalar_dense.default" and isinstance(args[0], Value) and args[0].const is not None:
        return True, args[0].const.array.reshape(()).item()
    if isinstance(target, torch._ops.OpOverload) or any(isinstance(a, Value) for a in args):
        return False, None
    known = getattr(operator, name, None) or getattr(math, name, None) or SYMBOLIC.get(name)
    return (True, known(*args)) if known is not None else (False, None)


OF_TENSORS: dict[str, Callable[..., Any]] = {
    "sym_size.int": lambda v, k: v.shape[k],
    "sym_numel.default": lambda v: v.type.size,
    "sym_stride.int": lambda v, k: v.type.strides[k],
    "sym_storage_offset.default": lambda v: 0,
    "sym_is_contiguous.default": lambda v, *_: True,
}
NUMBERS = {*OF_TENSORS, "_local_scalar_dense.default"}
SYMBOLIC: dict[str, Callable[..., Any]] = {
    "sym_max": max, "sym_min": min, "sym_float": float, "sym_int": int, "sym_not": operator.not_, "sym_sum": sum,
    "sym_ite": lambda c, a, b: a if c else b, "_sym_sqrt": math.sqrt, "sym_sqrt": math.sqrt, "round": round,
}
