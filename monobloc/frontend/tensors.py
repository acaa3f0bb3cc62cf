"""TensorProto to constants: every encoding ONNX has, checked before anything is allocated, read
late.

A tensor's elements lie in `raw_data`, in one of five typed fields, or in another file. Type,
shape and length are checked at once, the elements are made when somebody asks for them. Sparse tensors become dense.
"""

from __future__ import annotations

import math

import numpy as np

from monobloc.errors import ModelError, UnsupportedError
from monobloc.frontend import proto
from monobloc.frontend.external import ExternalFiles, Span
from monobloc.frontend.source import Raw
from monobloc.ir.codes import unpack
from monobloc.ir.graph import Const
from monobloc.ir.strings import to_chars
from monobloc.ir.types import DType, TensorType
from monobloc.ops.build import MAX_ELEMENTS

T = proto.TensorProto
MOST_DENSE = 1 << 30  # bytes that a sparse tensor of a few may become
DTYPES: dict[int, DType] = {
    T.FLOAT: DType.F32,
    T.DOUBLE: DType.F64,
    T.FLOAT16: DType.F16,
    T.BFLOAT16: DType.BF16,
    T.INT8: DType.I8,
    T.INT16: DType.I16,
    T.INT32: DType.I32,
    T.INT64: DType.I64,
    T.UINT8: DType.U8,
    T.UINT16: DType.U16,
    T.UINT32: DType.U32,
    T.UINT64: DType.U64,
    T.BOOL: DType.BOOL,
    T.STRING: DType.CHAR,
    T.INT4: DType.I4,
    T.UINT4: DType.U4,
    T.INT2: DType.I2,
    T.UINT2: DType.U2,
    T.FLOAT8E4M3FN: DType.F8E4M3FN,
    T.FLOAT8E4M3FNUZ: DType.F8E4M3FNUZ,
    T.FLOAT8E5M2: DType.F8E5M2,
    T.FLOAT8E5M2FNUZ: DType.F8E5M2FNUZ,
    T.FLOAT8E8M0: DType.F8E8M0,
    T.FLOAT4E2M1: DType.F4E2M1,
}
ELEM_TYPES = {v: k for k, v in DTYPES.items()}
_FIELD = {
    DType.F32: "float_data",
    DType.F64: "double_data",
    DType.I64: "int64_data",
    DType.U32: "uint64_data",
    DType.U64: "uint64_data",
}  # all others: int32_data
_FIELDS = ("float_data", "int32_data", "int64_data", "double_data", "uint64_data", "string_data")


def dtype_of(elem_type: int, what: str) -> DType:
    """The DType of an ONNX element type; UnsupportedError or ModelError with `what` has it."""
    if elem_type in DTYPES:
        return DTYPES[elem_type]
    names = T.DataType
    if elem_type not in names.values() or elem_type == T.UNDEFINED:
        raise ModelError(f"{what} has element type {elem_type}, which is none of ONNX")
    raise UnsupportedError(f"{what} has element type {names.Name(elem_type).lower()}, which is not supported")


def checked_shape(dims: list[int], what: str) -> tuple[int, ...]:
    """A shape whose sizes can be computed with; ModelError otherwise."""
    if any(d < 0 for d in dims):
        raise ModelError(f"{what} has a negative dimension: {dims}")
    if math.prod(d for d in dims if d) > MAX_ELEMENTS:
        raise ModelError(f"{what} has shape {dims}, which is too large to address")
    return tuple(dims)


def stored_bytes(type: TensorType) -> int:
    """Bytes of a tensor in a model's file, where elements of 4 and 2 bits lie together in one."""
    return (type.size * type.dtype.bits + 7) // 8


def tensor(
    t: proto.TensorProto, what: str, files: ExternalFiles, raw: Raw | None = None
) -> tuple[TensorType, Const]:
    """Type and data of a tensor; `raw` is its raw_data when that was cut out while reading."""
    dtype = dtype_of(t.data_type, what)
    shape = checked_shape(list(t.dims), what)
    type = TensorType(dtype, shape)
    if t.HasField("segment"):
        raise UnsupportedError(f"{what} is stored in segments, which is not supported")
    if t.data_location == T.EXTERNAL:
        span = _located(t, what, files, stored_bytes(type))
        return type, Const(load=lambda: _from_bytes(files.bytes(span), type))
    stored = [f for f in _FIELDS if len(getattr(t, f))]
    if dtype is DType.CHAR:
        return _strings(t, what, type, stored)
    if raw is None and t.HasField("raw_data"):
        raw = Raw.of(t.raw_data)
    if raw is not None:
        if stored:
            raise ModelError(f"{what} is stored twice, in raw_data and {stored[0]}")
        if raw.size != stored_bytes(type):
            raise ModelError(f"{what} has {raw.size} bytes of data for {type}, which needs {stored_bytes(type)}")
        read = raw.read
        return type, Const(load=lambda: _from_bytes(read(), type))
    return type, _from_field(t, what, type, stored)


def sparse_tensor(s: proto.SparseTensorProto, what: str, files: ExternalFiles) -> tuple[TensorType, Const]:
    """A sparse tensor as the dense one that it stands for; its elements' places are numbers or rows of coordinates."""
    shape = checked_shape(list(s.dims), what)
    kind, values = tensor(s.values, f"the values of {what}", files)
    at_type, at = tensor(s.indices, f"the indices of {what}", files)
    type = TensorType(kind.dtype, shape)
    if kind.dtype is DType.CHAR or kind.dtype.is_code:
        raise UnsupportedError(f"{what} is sparse and of {kind.dtype.value}, which is not supported")
    if type.bytes > MOST_DENSE:
        raise UnsupportedError(f"{what} is sparse and has {type.bytes} bytes when it is dense, which is not supported",
                               notes=[f"at most {MOST_DENSE} bytes are"])
    count = kind.shape[0] if len(kind.shape) == 1 else -1
    if at_type.dtype is not DType.I64 or at_type.shape not in ((count,), (count, len(shape))):
        raise ModelError(f"{what} has values {kind} with indices {at_type}")
    places = at.array if at_type.rank == 1 else _linear(at.array, shape, what)
    if places.size and not 0 <= places.min() <= places.max() < type.size:
        raise ModelError(f"{what} of {type} has an index outside of it")

    def load() -> np.ndarray:
        out = np.zeros(type.size, type.dtype.numpy)
        out[places] = values.array
        return out.reshape(shape)

    return type, Const(load=load, once=True)


def _linear(rows: np.ndarray, shape: tuple[int, ...], what: str) -> np.ndarray:
    if ((rows < 0) | (rows >= np.array(shape, np.int64))).any():
        raise ModelError(f"{what} of shape {list(shape)} has an index outside of it")
    return np.ravel_multi_index(tuple(rows.T), shape) if len(shape) else np.zeros(len(rows), np.int64)


def _located(t: proto.TensorProto, what: str, files: ExternalFiles, nbytes: int) -> Span:
    try:
        return files.span(t, nbytes)
    except ModelError as e:
        raise ModelError(f"{what}: {e.message}", notes=e.notes, hints=e.hints) from None


def _from_bytes(data: memoryview, type: TensorType) -> np.ndarray:
    if type.dtype is DType.BOOL:  # bytes other than 0 and 1 would be no bool
        return np.not_equal(np.frombuffer(data, np.uint8), 0).reshape(type.shape)
    if type.dtype.is_code:
        codes = unpack(np.frombuffer(data, np.uint8), type.size, type.dtype.bits)
        return codes.view(type.dtype.numpy).reshape(type.shape)
    array = np.frombuffer(data, type.dtype.numpy)  # ONNX is little endian, and so are the hosts we run on
    return (array if array.flags.aligned else array.copy()).reshape(type.shape)


def _from_field(t: proto.TensorProto, what: str, type: TensorType, stored: list[str]) -> Const:
    field = _FIELD.get(type.dtype, "int32_data")
    if stored not in ([], [field]):
        raise ModelError(f"{what} of {type} has its data in {', '.join(stored)} instead of {field}")
    values = getattr(t, field)
    count = stored_bytes(type) if type.dtype.is_code else type.size
    if len(values) != count:
        raise ModelError(f"{what} has {len(values)} elements of data for {type}, which needs {count}")
    if type.dtype in (DType.F32, DType.F64, DType.I64):  # any value fits, so it can wait
        return Const(load=lambda: np.array(values, type.dtype.numpy).reshape(type.shape), once=True)
    return Const(_from_ints(values, what, type).reshape(type.shape))


def _strings(t: proto.TensorProto, what: str, type: TensorType, stored: list[str]) -> tuple[TensorType, Const]:
    """Strings get the room that the longest needs."""
    if stored not in ([], ["string_data"]) or len(t.string_data) != type.size:
        raise ModelError(f"{what} has {len(t.string_data)} strings, but needs {type.size}")
    chars = to_chars(np.array(list(t.string_data), object).reshape(type.shape), what)
    return TensorType(DType.CHAR, chars.shape), Const(chars)


def _from_ints(values: list[int], what: str, type: TensorType) -> np.ndarray:
    """Integers hold bool as 0 and 1, the bits of 16-bit floats, and the bytes of what is smaller."""
    wide = np.array(values, np.uint64 if type.dtype in (DType.U32, DType.U64) else np.int64)
    if type.dtype is DType.BOOL:
        return np.not_equal(wide, 0)
    if type.dtype.is_code:
        wide = wide & 0xFF if ((wide >= -128) & (wide < 256)).all() else wide  # bytes, with sign or without
    small = np.dtype(np.uint8 if type.dtype.is_code else np.uint16 if type.dtype.is_float else type.dtype.numpy)
    narrow = wide.astype(small)
    if not np.array_equal(narrow.astype(wide.dtype), wide):
        raise ModelError(f"{what} of {type} holds numbers that its type cannot hold")
    narrow = unpack(narrow, type.size, type.dtype.bits) if type.dtype.is_code else narrow
    return narrow.view(type.dtype.numpy)
