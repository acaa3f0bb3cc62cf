"""Tensors out of nothing: constants. What draws random numbers is refused by name."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from monobloc.frontend.torch.node import AtenNode, Reader, Results
from monobloc.frontend.torch.tensors import dtype_of
from monobloc.ir.graph import Value
from monobloc.ir.symbolic import is_open
from monobloc.ir.types import DType


def filled(n: AtenNode, value: Any, shape: list[int], dtype: DType) -> Value:
    return n.expand(n.scalar(value, dtype), shape)


def full(n: AtenNode) -> Results:
    return filled(n, n["fill_value"], n.ints("size"), n.out)


def full_like(n: AtenNode) -> Results:
    return filled(n, n["fill_value"], list(n.x().shape), n.out)


def of_size(value: int) -> Reader:
    return lambda n: filled(n, value, n.ints("size"), n.out)


def like(value: int) -> Reader:
    return lambda n: filled(n, value, list(n.x().shape), n.out)


def fill(n: AtenNode) -> Results:
    return filled(n, n["value"], list(n.x().shape), n.x().dtype)


def scalar_tensor(n: AtenNode) -> Results:
    return n.scalar(n["s"], n.out)


def arange(n: AtenNode) -> Results:
    start, end, step = n.get("start", 0), n["end"], n.get("step", 1)
    if any(map(is_open, (start, end, step))):
        return counted(n, start, step, -((start - end) // step), n.out)
    return n.b.const(torch.arange(start, end, step, dtype=torch_dtype(n)).numpy(), n.out)


def linspace(n: AtenNode) -> Results:
    return n.b.const(torch.linspace(n["start"], n["end"], n["steps"], dtype=torch_dtype(n)).numpy(), n.out)


def torch_dtype(n: AtenNode) -> Any:
    """Of the result, where numpy has the type; halves are rounded afterwards"""
    dtype = n.made.dtype
    return torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype


def eye(n: AtenNode) -> Results:
    return n.b.const(np.eye(n["n"], n.get("m")), n.out)


def tri_indices(upper: bool) -> Reader:
    def read(n: AtenNode) -> Results:
        f = np.triu_indices if upper else np.tril_indices
        return n.b.const(np.stack(f(n["row"], n.get("offset", 0), n["col"])), n.out)

    return read


def device_put(n: AtenNode) -> Results:
    return n.x("a")


def counted(n: AtenNode, start: int, step: int, size: int, to: DType) -> Results:
    """As many numbers as a run chooses"""
    y = n.b.emit("Iota", [], {"start": start, "delta": step, "size": size if size > 0 else 0})[0]
    return n.cast(y, to)


def iota(n: AtenNode) -> Results:
    if any(map(is_open, (n["start"], n["step"], n["length"]))):
        return counted(n, n["start"], n["step"], n["length"], dtype_of(n["dtype"]))
    return n.b.const(n["start"] + n["step"] * np.arange(n["length"]), dtype_of(n["dtype"]))


def random(n: AtenNode) -> Results:
    n.unsupported("an operator that draws random numbers", hints=["make what it draws an input of the module"])


RANDOM = (
    "rand.default", "randn.default", "randint.low", "randint.default", "rand_like.default", "randn_like.default",
    "randperm.default", "bernoulli.p", "bernoulli.default", "normal.Tensor_Tensor", "multinomial.default",
    "randint_like.low_dtype", "uniform.default", "exponential.default", "normal_functional.default",
)  # fmt: skip


def native_dropout(n: AtenNode) -> Results:
    if n["train"] and n["p"]:
        random(n)
    x = n.x("input")
    return [x, filled(n, True, list(x.shape), DType.BOOL)]


READERS: dict[str, Reader] = {
    "full.default": full, "full_like.default": full_like, "fill.Scalar": fill, "fill.Tensor": fill,
    "zeros.default": of_size(0), "ones.default": of_size(1), "empty.memory_format": of_size(0),
    "empty_strided.default": of_size(0), "new_zeros.default": of_size(0), "new_ones.default": of_size(1),
    "new_full.default": full, "new_empty.default": of_size(0), "zeros_like.default": like(0),
    "ones_like.default": like(1), "empty_like.default": like(0), "empty_permuted.default": of_size(0),
    "scalar_tensor.default": scalar_tensor, "arange.start_step": arange, "arange.start": arange,
    "arange.default": arange, "linspace.default": linspace, "eye.default": eye, "eye.m": eye,
    "tril_indices.default": tri_indices(False), "triu_indices.default": tri_indices(True),
    "prims.iota.default": iota, "prims.device_put.default": device_put, "native_dropout.default": native_dropout,
    **dict.fromkeys(RANDOM, random),
}  # fmt: skip
