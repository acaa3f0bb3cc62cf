"""Element types and tensor types: what a Value carries.

A tensor type is dtype, shape, layout. The shape is always the logical (ONNX) one; the layout is the
order in which the axes lie in memory, slowest first. `(0, 2, 3, 1)` on an NCHW tensor is what others
call NHWC. Ops never see the layout: it only changes how an index becomes an address.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

import ml_dtypes
import numpy as np


class DType(Enum):
    """An element type; the value is its name in the text form."""

    F32 = "f32"
    F64 = "f64"
    F16 = "f16"
    BF16 = "bf16"
    I8 = "i8"
    I16 = "i16"
    I32 = "i32"
    I64 = "i64"
    U8 = "u8"
    U16 = "u16"
    U32 = "u32"
    U64 = "u64"
    BOOL = "bool"

    @property
    def numpy(self) -> np.dtype[Any]:
        return _NUMPY[self]

    @property
    def size(self) -> int:
        """bytes per element"""
        return int(_NUMPY[self].itemsize)

    @property
    def c(self) -> str:
        """the C type of an element in memory"""
        return _C[self]

    @property
    def is_float(self) -> bool:
        return self in (DType.F32, DType.F64, DType.F16, DType.BF16)

    @property
    def is_int(self) -> bool:
        return self.value[0] in "iu"

    @property
    def is_signed(self) -> bool:
        return self.is_float or self.value[0] == "i"

    def hold(self, array: np.ndarray) -> np.ndarray | None:
        """The array in this type where that keeps its values, but for what rounding takes of floats."""
        try:
            with np.errstate(all="ignore"):
                out = array.astype(self.numpy)
                same = np.array_equal(out.astype(array.dtype), array, equal_nan=array.dtype.kind == "f")
        except (TypeError, ValueError):
            return None
        narrowed = self.is_float and array.dtype.kind == "f"  # 0.1 given as a Python float is meant
        return out if same or narrowed else None

    @staticmethod
    def of(dtype: np.dtype | type) -> DType:
        """The DType of a numpy dtype; KeyError when there is none."""
        return _OF_NUMPY[np.dtype(dtype)]


_NUMPY: dict[DType, np.dtype[Any]] = {
    DType.F32: np.dtype(np.float32),
    DType.F64: np.dtype(np.float64),
    DType.F16: np.dtype(np.float16),
    DType.BF16: np.dtype(ml_dtypes.bfloat16),
    DType.I8: np.dtype(np.int8),
    DType.I16: np.dtype(np.int16),
    DType.I32: np.dtype(np.int32),
    DType.I64: np.dtype(np.int64),
    DType.U8: np.dtype(np.uint8),
    DType.U16: np.dtype(np.uint16),
    DType.U32: np.dtype(np.uint32),
    DType.U64: np.dtype(np.uint64),
    DType.BOOL: np.dtype(np.bool_),
}
_OF_NUMPY = {v: k for k, v in _NUMPY.items()}
_C = {
    DType.F32: "float",
    DType.F64: "double",
    DType.F16: "_Float16",
    DType.BF16: "__bf16",
    DType.I8: "int8_t",
    DType.I16: "int16_t",
    DType.I32: "int32_t",
    DType.I64: "int64_t",
    DType.U8: "uint8_t",
    DType.U16: "uint16_t",
    DType.U32: "uint32_t",
    DType.U64: "uint64_t",
    DType.BOOL: "uint8_t",
}

Shape = tuple[int, ...]


@dataclass(frozen=True)
class TensorType:
    """dtype, logical shape and memory order of the axes (None: as written, row major)."""

    dtype: DType
    shape: Shape
    layout: tuple[int, ...] | None = None

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        """number of elements"""
        return math.prod(self.shape)

    @property
    def bytes(self) -> int:
        return self.size * self.dtype.size

    @property
    def order(self) -> tuple[int, ...]:
        """axes from slowest to fastest in memory"""
        return self.layout if self.layout is not None else tuple(range(self.rank))

    @property
    def strides(self) -> Shape:
        """dense element strides per logical axis, in memory order"""
        out = [0] * self.rank
        step = 1
        for axis in reversed(self.order):
            out[axis] = step
            step *= self.shape[axis]
        return tuple(out)

    def with_layout(self, layout: tuple[int, ...] | None) -> TensorType:
        plain = layout is None or layout == tuple(range(self.rank))
        return replace(self, layout=None if plain or layout is None else tuple(layout))

    def __str__(self) -> str:
        dims = ",".join(map(str, self.shape))
        order = "" if self.layout is None else "{" + ",".join(map(str, self.layout)) + "}"
        return f"{self.dtype.value}[{dims}]{order}"


_LIST = r"(?:\d+(?:,\d+)*)?"
_TYPE = re.compile(rf"(\w+)\[({_LIST})\](?:\{{({_LIST})\}})?", re.ASCII)


def parse_type(text: str) -> TensorType:
    """Inverse of str(TensorType); ValueError on anything else."""
    m = _TYPE.fullmatch(text)
    if m is None:
        raise ValueError(f"{text!r} is no tensor type")
    shape, layout = (tuple(map(int, x.split(","))) if x else () for x in (m[2], m[3]))
    if m[3] is not None and sorted(layout) != list(range(len(shape))):
        raise ValueError(f"{text!r}: the layout is no order of its axes")
    return TensorType(DType(m[1]), shape, layout if m[3] is not None else None)
