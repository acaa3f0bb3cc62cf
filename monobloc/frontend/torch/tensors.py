"""PyTorch's tensors and element types as ours: the same bytes, nothing copied where they lie dense in memory."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import torch

from monobloc.errors import UnsupportedError
from monobloc.ir.types import DType

_TYPES = {
    torch.float32: DType.F32, torch.float64: DType.F64, torch.float16: DType.F16, torch.bfloat16: DType.BF16,
    torch.int8: DType.I8, torch.int16: DType.I16, torch.int32: DType.I32, torch.int64: DType.I64,
    torch.uint8: DType.U8, torch.uint16: DType.U16, torch.uint32: DType.U32, torch.uint64: DType.U64,
    torch.bool: DType.BOOL,
}  # fmt: skip


def dtype_of(dtype: Any) -> DType:
    found = _TYPES.get(dtype)
    if found is None:
        raise UnsupportedError(f"the element type {str(dtype).removeprefix('torch.')} is not supported")
    return found


def array_of(t: Any, what: str) -> np.ndarray:
    """The elements of a tensor"""
    if t.layout != torch.strided or t.is_quantized:
        raise UnsupportedError(f"{what} is {'quantized' if t.is_quantized else 'sparse'}, which is not supported")
    if t.is_meta:
        raise UnsupportedError(f"{what} is on the device `meta` and has no data")
    dtype = dtype_of(t.dtype)
    t = t.detach().cpu().resolve_neg().contiguous()
    if dtype is DType.BF16:
        found: np.ndarray = t.view(torch.int16).numpy().view(ml_dtypes.bfloat16)
        return found
    return np.asarray(t.numpy(), dtype.numpy)


def identity_of(t: Any) -> tuple[Any, ...]:
    """Equal for two tensors that are the same memory seen in the same way: parameters that are shared"""
    return (t.untyped_storage().data_ptr(), t.storage_offset(), tuple(t.shape), tuple(t.stride()), t.dtype, t.device)


def tensor_of(array: np.ndarray) -> Any:
    """A tensor with memory of its own"""
    array = np.array(array)
    if array.dtype == ml_dtypes.bfloat16:
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)
