"""Element types and tensor types: what a Value carries.

A tensor type is dtype, shape, layout. The shape is always the logical (ONNX) one; the layout is the
order in which the axes lie in memory, slowest first. `(0, 2, 3, 1)` on an NCHW tensor is what others
call NHWC. Ops never see the layout: it only changes how an index becomes an address. Nor do they see that
halves are `stored` as float32, which keeps what rounding them would lose.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

import ml_dtypes
import numpy as np

from monobloc.ir.symbolic import SIZE, Space, parse_size


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
    CHAR = "char"  # a byte of a string: the last axis is its room, filled up with zeros
    # codes: an element is a byte whose low bits are the code, the others are 0 (read: ignored)
    I4 = "i4"
    U4 = "u4"
    I2 = "i2"
    U2 = "u2"
    F8E4M3FN = "f8e4m3fn"
    F8E4M3FNUZ = "f8e4m3fnuz"
    F8E5M2 = "f8e5m2"
    F8E5M2FNUZ = "f8e5m2fnuz"
    F8E8M0 = "f8e8m0"
    F4E2M1 = "f4e2m1"

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
        """an integer that machines compute with"""
        return self.value[0] in "iu" and self not in CODE_BITS

    @property
    def is_signed(self) -> bool:
        return self.is_float or self.value[0] == "i"

    @property
    def is_code(self) -> bool:
        """a type that C has not: its elements are moved as bytes, and only `cast` knows what they stand for"""
        return self in CODE_BITS

    @property
    def is_opaque(self) -> bool:
        """a type that numpy's arithmetic does not know"""
        return self in CODE_BITS or self is DType.CHAR

    @property
    def value_type(self) -> DType:
        """for codes, the smallest type that holds all their values; else the type itself"""
        if self not in CODE_BITS:
            return self
        return DType.F32 if self.value[0] == "f" else DType.I8 if self.value[0] == "i" else DType.U8

    @property
    def bits(self) -> int:
        """bits of an element in a model's file"""
        return CODE_BITS.get(self, self.size * 8)

    def codes(self, array: np.ndarray) -> np.ndarray:
        """the bytes of an array of codes or of strings; any other array as it is"""
        return np.ascontiguousarray(array).view(np.uint8).reshape(array.shape) if self.is_opaque else array

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


CODE_BITS: dict[DType, int] = {
    DType.I4: 4,
    DType.U4: 4,
    DType.I2: 2,
    DType.U2: 2,
    DType.F8E4M3FN: 8,
    DType.F8E4M3FNUZ: 8,
    DType.F8E5M2: 8,
    DType.F8E5M2FNUZ: 8,
    DType.F8E8M0: 8,
    DType.F4E2M1: 4,
}
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
    DType.CHAR: np.dtype("S1"),
    DType.I4: np.dtype(ml_dtypes.int4),
    DType.U4: np.dtype(ml_dtypes.uint4),
    DType.I2: np.dtype(ml_dtypes.int2),
    DType.U2: np.dtype(ml_dtypes.uint2),
    DType.F8E4M3FN: np.dtype(ml_dtypes.float8_e4m3fn),
    DType.F8E4M3FNUZ: np.dtype(ml_dtypes.float8_e4m3fnuz),
    DType.F8E5M2: np.dtype(ml_dtypes.float8_e5m2),
    DType.F8E5M2FNUZ: np.dtype(ml_dtypes.float8_e5m2fnuz),
    DType.F8E8M0: np.dtype(ml_dtypes.float8_e8m0fnu),
    DType.F4E2M1: np.dtype(ml_dtypes.float4_e2m1fn),
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
    DType.CHAR: "uint8_t",
    **dict.fromkeys(CODE_BITS, "uint8_t"),
}

HALVES = (DType.F16, DType.BF16)
Shape = tuple[int, ...]


@dataclass(frozen=True)
class TensorType:
    """dtype, logical shape and memory order of the axes (None: as written, row major)."""

    dtype: DType
    shape: Shape
    layout: tuple[int, ...] | None = None
    stored: DType | None = None  # what its elements are in memory, where that is another type

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        """number of elements"""
        return math.prod(self.shape)

    @property
    def bytes(self) -> int:
        return self.size * self.memory.size

    @property
    def memory(self) -> DType:
        """the type of an element in memory"""
        return self.stored or self.dtype

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
        kind = self.dtype.value if self.stored is None else f"{self.dtype.value}/{self.stored.value}"
        return f"{kind}[{dims}]{order}"


_LIST = r"(?:\d+(?:,\d+)*)?"
_SIZES = rf"(?:(?:\d+|{SIZE})(?:,(?:\d+|{SIZE}))*)?"
_TYPE = re.compile(rf"(\w+)(?:/(\w+))?\[({_SIZES})\](?:\{{({_LIST})\}})?", re.ASCII)


def parse_type(text: str, space: Space | None = None) -> TensorType:
    """Inverse of str(TensorType); ValueError on anything else."""
    m = _TYPE.fullmatch(text)
    if m is None:
        raise ValueError(f"{text!r} is no tensor type")
    shape = tuple(parse_size(x, space) for x in m[3].split(",")) if m[3] else ()
    layout = tuple(map(int, m[4].split(","))) if m[4] else ()
    if m[4] is not None and sorted(layout) != list(range(len(shape))):
        raise ValueError(f"{text!r}: the layout is no order of its axes")
    stored = DType(m[2]) if m[2] else None
    return TensorType(DType(m[1]), shape, layout if m[4] is not None else None, stored)
