"""The parts of TFLite's schema that inference needs: names of operators and types, and the file as plain records.

Slot numbers are those of `schema.fbs`, which never reuses one.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from monobloc.errors import ModelError
from monobloc.frontend.formats import is_tflite
from monobloc.frontend.tflite.flatbuffer import Data, Table
from monobloc.ir.types import DType

MAX_TENSORS = 1 << 20

OPERATORS = tuple(
    "ADD AVERAGE_POOL_2D CONCATENATION CONV_2D DEPTHWISE_CONV_2D DEPTH_TO_SPACE DEQUANTIZE EMBEDDING_LOOKUP FLOOR "
    "FULLY_CONNECTED HASHTABLE_LOOKUP L2_NORMALIZATION L2_POOL_2D LOCAL_RESPONSE_NORMALIZATION LOGISTIC "
    "LSH_PROJECTION LSTM MAX_POOL_2D MUL RELU RELU_N1_TO_1 RELU6 RESHAPE RESIZE_BILINEAR RNN SOFTMAX "
    "SPACE_TO_DEPTH SVDF TANH CONCAT_EMBEDDINGS SKIP_GRAM CALL CUSTOM EMBEDDING_LOOKUP_SPARSE PAD "
    "UNIDIRECTIONAL_SEQUENCE_RNN GATHER BATCH_TO_SPACE_ND SPACE_TO_BATCH_ND TRANSPOSE MEAN SUB DIV SQUEEZE "
    "UNIDIRECTIONAL_SEQUENCE_LSTM STRIDED_SLICE BIDIRECTIONAL_SEQUENCE_RNN EXP TOPK_V2 SPLIT LOG_SOFTMAX DELEGATE "
    "BIDIRECTIONAL_SEQUENCE_LSTM CAST PRELU MAXIMUM ARG_MAX MINIMUM LESS NEG PADV2 GREATER GREATER_EQUAL "
    "LESS_EQUAL SELECT SLICE SIN TRANSPOSE_CONV SPARSE_TO_DENSE TILE EXPAND_DIMS EQUAL NOT_EQUAL LOG SUM SQRT "
    "RSQRT SHAPE POW ARG_MIN FAKE_QUANT REDUCE_PROD REDUCE_MAX PACK LOGICAL_OR ONE_HOT LOGICAL_AND LOGICAL_NOT "
    "UNPACK REDUCE_MIN FLOOR_DIV REDUCE_ANY SQUARE ZEROS_LIKE FILL FLOOR_MOD RANGE RESIZE_NEAREST_NEIGHBOR "
    "LEAKY_RELU SQUARED_DIFFERENCE MIRROR_PAD ABS SPLIT_V UNIQUE CEIL REVERSE_V2 ADD_N GATHER_ND COS WHERE RANK "
    "ELU REVERSE_SEQUENCE MATRIX_DIAG QUANTIZE MATRIX_SET_DIAG ROUND HARD_SWISH IF WHILE NON_MAX_SUPPRESSION_V4 "
    "NON_MAX_SUPPRESSION_V5 SCATTER_ND SELECT_V2 DENSIFY SEGMENT_SUM BATCH_MATMUL "
    "PLACEHOLDER_FOR_GREATER_OP_CODES CUMSUM CALL_ONCE BROADCAST_TO RFFT2D CONV_3D IMAG REAL COMPLEX_ABS "
    "HASHTABLE HASHTABLE_FIND HASHTABLE_IMPORT HASHTABLE_SIZE REDUCE_ALL CONV_3D_TRANSPOSE VAR_HANDLE "
    "READ_VARIABLE ASSIGN_VARIABLE BROADCAST_ARGS RANDOM_STANDARD_NORMAL BUCKETIZE RANDOM_UNIFORM MULTINOMIAL "
    "GELU DYNAMIC_UPDATE_SLICE RELU_0_TO_1 UNSORTED_SEGMENT_PROD UNSORTED_SEGMENT_MAX UNSORTED_SEGMENT_SUM ATAN2 "
    "UNSORTED_SEGMENT_MIN SIGN BITCAST BITWISE_XOR RIGHT_SHIFT STABLEHLO_LOGISTIC STABLEHLO_ADD STABLEHLO_DIVIDE "
    "STABLEHLO_MULTIPLY STABLEHLO_MAXIMUM STABLEHLO_RESHAPE STABLEHLO_CLAMP STABLEHLO_CONCATENATE "
    "STABLEHLO_BROADCAST_IN_DIM STABLEHLO_CONVOLUTION STABLEHLO_SLICE STABLEHLO_CUSTOM_CALL STABLEHLO_REDUCE "
    "STABLEHLO_ABS STABLEHLO_AND STABLEHLO_COSINE STABLEHLO_EXPONENTIAL STABLEHLO_FLOOR STABLEHLO_LOG "
    "STABLEHLO_MINIMUM STABLEHLO_NEGATE STABLEHLO_OR STABLEHLO_POWER STABLEHLO_REMAINDER STABLEHLO_RSQRT "
    "STABLEHLO_SELECT STABLEHLO_SUBTRACT STABLEHLO_TANH STABLEHLO_SCATTER STABLEHLO_COMPARE STABLEHLO_CONVERT "
    "STABLEHLO_DYNAMIC_SLICE STABLEHLO_DYNAMIC_UPDATE_SLICE STABLEHLO_PAD STABLEHLO_IOTA STABLEHLO_DOT_GENERAL "
    "STABLEHLO_REDUCE_WINDOW STABLEHLO_SORT STABLEHLO_WHILE STABLEHLO_GATHER STABLEHLO_TRANSPOSE DILATE "
    "STABLEHLO_RNG_BIT_GENERATOR REDUCE_WINDOW STABLEHLO_COMPOSITE STABLEHLO_SHIFT_LEFT STABLEHLO_CBRT "
    "STABLEHLO_CASE".split()
)
TYPES = {
    0: DType.F32, 1: DType.F16, 2: DType.I32, 3: DType.U8, 4: DType.I64, 6: DType.BOOL, 7: DType.I16, 9: DType.I8,
    10: DType.F64, 12: DType.U64, 15: DType.U32, 16: DType.U16, 18: DType.BF16,
}  # fmt: skip
TYPE_NAMES = {
    5: "string", 8: "complex64", 11: "complex128", 13: "resource", 14: "variant", 17: "int4", 19: "int2", 20: "uint4",
}  # fmt: skip
SMALL = {17: (4, True), 19: (2, True), 20: (4, False)}  # integers smaller than a byte: bits, signed
RESOURCE, COMPLEX = 13, 8


@dataclass(frozen=True)
class Quantization:
    """real = scale * (integer - zero), per tensor (one entry) or per index of `axis`"""

    scale: np.ndarray  # float32
    zero: np.ndarray  # int64, as long as `scale`
    axis: int


@dataclass(frozen=True)
class Tensor:
    """A tensor of a subgraph; `data` where it is constant. `signature` has -1 where a size is open."""

    index: int
    name: str
    shape: tuple[int, ...]
    signature: tuple[int, ...]
    type: int
    data: memoryview | None
    quantization: Quantization | None
    variable: bool
    sparsity: Table | None = None  # where the elements of a constant stand, when it holds some of them only

    @property
    def what(self) -> str:
        return f"tensor '{self.name or self.index}'"

    @property
    def type_text(self) -> str:
        known = TYPES.get(self.type)
        return known.value if known else TYPE_NAMES.get(self.type, f"type {self.type}")

    @property
    def text(self) -> str:
        return f"{self.type_text}[{','.join('?' if s < 0 else str(d) for d, s in zip(self.shape, self.signature))}]"


@dataclass(frozen=True)
class Operator:
    """`inputs` has -1 where an optional one is absent."""

    name: str
    version: int
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    options: Table | None
    intermediates: tuple[int, ...]
    custom: bytes = b""  # options of a custom operator


@dataclass(frozen=True)
class SubGraph:
    name: str
    tensors: tuple[Tensor, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    operators: tuple[Operator, ...]


@dataclass(frozen=True)
class Signature:
    """What a caller calls the inputs and outputs of a subgraph: names by tensor"""

    key: str
    subgraph: int
    inputs: dict[int, str]
    outputs: dict[int, str]


@dataclass(frozen=True)
class Model:
    name: str  # of the file, for messages
    path: Path | None
    version: int
    description: str
    subgraphs: tuple[SubGraph, ...]
    signatures: tuple[Signature, ...] = field(default=())

    @property
    def main(self) -> SubGraph:
        return self.subgraphs[0]


def read_model(model: str | os.PathLike[str] | bytes | memoryview) -> Model:
    """The records of a file; ModelError where it is damaged."""
    if isinstance(model, (bytes, bytearray, memoryview)):
        path, name, data = None, "model", memoryview(model)
    else:
        path = Path(model)
        name = path.name
        try:
            data = memoryview(path.read_bytes())
        except OSError as e:
            raise ModelError(f"cannot read `{path}`: {(e.strerror or str(e)).lower()}") from None
    if len(data) < 8 or not is_tflite(data):
        raise ModelError("is no TFLite model: it does not hold the mark TFL3")
    return _Reader(Data(data), name, path).model()


class _Reader:
    def __init__(self, data: Data, name: str, path: Path | None) -> None:
        self.data, self.name, self.path, self.root = data, name, path, data.root()

    def model(self) -> Model:
        self.codes = [_code(t) for t in self.root.tables(1)]
        self.buffers = [self._buffer(t) for t in self.root.tables(4)]
        graphs = tuple(self._subgraph(t) for t in self.root.tables(2))
        if not graphs:
            raise ModelError("holds no graph")
        signatures = tuple(self._signature(t, graphs) for t in self.root.tables(7))
        version = self.root.whole(0, "I")
        if version != 3:
            raise ModelError(f"is of version {version} of the format, the only one known is 3")
        return Model(self.name, self.path, version, self.root.text(3), graphs, signatures)

    def _buffer(self, t: Table) -> memoryview | None:
        start, size = t.whole(1, "Q"), t.whole(2, "Q")
        if start > 1:  # data behind the FlatBuffer, in files larger than 2 GiB
            return self.data.span(start, size)
        return t.blob(0) or None

    def _subgraph(self, t: Table) -> SubGraph:
        tensors = tuple(self._tensor(k, x) for k, x in enumerate(t.tables(0)))
        if len(tensors) > MAX_TENSORS:
            raise ModelError(f"has {len(tensors)} tensors")
        operators = tuple(self._operator(x, len(tensors)) for x in t.tables(3))
        inputs, outputs = (_indices(t.ints(k), len(tensors), False) for k in (1, 2))
        return SubGraph(t.text(4), tensors, inputs, outputs, operators)

    def _tensor(self, index: int, t: Table) -> Tensor:
        shape, signature = tuple(t.ints(0)), tuple(t.ints(7))
        number = t.whole(2, "I")
        if number >= max(len(self.buffers), 1):
            raise ModelError(f"is damaged: tensor {index} names buffer {number} of {len(self.buffers)}")
        data = self.buffers[number] if self.buffers else None
        if any(d < 0 for d in shape):
            raise ModelError(f"tensor '{t.text(3)}' has the shape {list(shape)}")
        signature = signature if len(signature) == len(shape) else shape
        return Tensor(index, t.text(3), shape, signature, t.whole(1, "b"), data, _quantization(t.table(4)),
                      t.flag(5), t.table(6))

    def _operator(self, t: Table, tensors: int) -> Operator:
        number = t.whole(0, "I")
        if number >= len(self.codes):
            raise ModelError(f"is damaged: an operator has the code {number} of {len(self.codes)}")
        name, version = self.codes[number]
        ins, outs = _indices(t.ints(1), tensors, True), _indices(t.ints(2), tensors, False)
        options = t.table(4) or t.table(12)  # of operators behind RIGHT_SHIFT
        return Operator(name, version, ins, outs, options, _indices(t.ints(8), tensors, True),
                        bytes(t.blob(5) or b""))

    def _signature(self, t: Table, graphs: tuple[SubGraph, ...]) -> Signature:
        number = t.whole(4, "I")
        if number >= len(graphs):
            raise ModelError(f"is damaged: a signature names graph {number} of {len(graphs)}")
        names = [{x.whole(1, "I"): x.text(0) for x in t.tables(k)} for k in (0, 1)]
        return Signature(t.text(2), number, *names)


def _indices(found: list[int], tensors: int, optional: bool) -> tuple[int, ...]:
    for k in found:
        if not (-1 if optional else 0) <= k < tensors:
            raise ModelError(f"is damaged: it names tensor {k} of {tensors}")
    return tuple(found)


def _code(t: Table) -> tuple[str, int]:
    """(name, version) of an operator; small codes stand in an older field."""
    code = max(t.whole(0, "b"), t.whole(3, "i"))
    name = OPERATORS[code] if 0 <= code < len(OPERATORS) else f"operator {code}"
    return (t.text(1) or "CUSTOM" if name == "CUSTOM" else name), t.whole(2, "i", 1)


def _quantization(t: Table | None) -> Quantization | None:
    if t is None:
        return None
    scale, zero = t.array(2, "f4"), t.array(3, "i8")
    if scale is None or not scale.size:
        return None
    zero = np.zeros(scale.size, np.int64) if zero is None or not zero.size else zero
    if zero.size == 1 and scale.size > 1:
        zero = np.repeat(zero, scale.size)
    if zero.size != scale.size:
        raise ModelError(f"is damaged: {scale.size} scales have {zero.size} zero points")
    return Quantization(scale, zero, t.whole(6))
