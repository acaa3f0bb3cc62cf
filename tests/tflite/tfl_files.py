"""Tiny .tflite files, written for tests: a FlatBuffer of tables given as {slot: value}."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from monobloc.frontend.tflite.schema import OPERATORS, TYPES

# Other readers believe an operator's options only under their table's number.
OPTIONS = {
    "CONV_2D": 1, "DEPTHWISE_CONV_2D": 2, "AVERAGE_POOL_2D": 5, "MAX_POOL_2D": 5, "L2_POOL_2D": 5, "SVDF": 6, "RNN": 7,
    "FULLY_CONNECTED": 8, "SOFTMAX": 9, "CONCATENATION": 10, "ADD": 11, "L2_NORMALIZATION": 12,
    "EMBEDDING_LOOKUP_SPARSE": 20,
    "LOCAL_RESPONSE_NORMALIZATION": 13, "LSTM": 14, "RESIZE_BILINEAR": 15, "RESHAPE": 17, "SPACE_TO_DEPTH": 19,
    "MUL": 21, "PAD": 22, "GATHER": 23, "SPACE_TO_BATCH_ND": 25, "MEAN": 27, "SUM": 27, "REDUCE_MAX": 27,
    "REDUCE_MIN": 27,
    "REDUCE_PROD": 27, "REDUCE_ANY": 27, "REDUCE_ALL": 27, "SUB": 28, "DIV": 29, "SQUEEZE": 30,
    "UNIDIRECTIONAL_SEQUENCE_RNN": 31, "STRIDED_SLICE": 32, "CAST": 37, "ARG_MAX": 40, "TRANSPOSE_CONV": 49,
    "SPARSE_TO_DENSE": 50, "ARG_MIN": 57, "FAKE_QUANT": 58, "PACK": 59, "ONE_HOT": 61, "UNPACK": 64,
    "BIDIRECTIONAL_SEQUENCE_LSTM": 69, "BIDIRECTIONAL_SEQUENCE_RNN": 70, "UNIDIRECTIONAL_SEQUENCE_LSTM": 71,
    "RESIZE_NEAREST_NEIGHBOR": 74, "LEAKY_RELU": 75, "MIRROR_PAD": 77, "UNIQUE": 80, "REVERSE_SEQUENCE": 87,
    "SPLIT": 35, "SPLIT_V": 79, "IF": 92, "WHILE": 93,
    "DEPTH_TO_SPACE": 94, "BATCH_MATMUL": 101, "CUMSUM": 102, "CONV_3D": 106, "CONV_3D_TRANSPOSE": 106,
    "BUCKETIZE": 115, "GELU": 116,
}  # fmt: skip
# The options of later operators are in a field of their own.
OPTIONS2 = {
    "STABLEHLO_SCATTER": 7, "STABLEHLO_PAD": 10, "STABLEHLO_REDUCE_WINDOW": 13, "STABLEHLO_GATHER": 16, "DILATE": 18,
    "STABLEHLO_RNG_BIT_GENERATOR": 19, "REDUCE_WINDOW": 20, "STABLEHLO_COMPOSITE": 21, "STABLEHLO_SHIFT_LEFT": 22,
    "STABLEHLO_CASE": 23,
}  # fmt: skip
TYPE_NUMBERS = {d.numpy: number for number, d in TYPES.items()}


@dataclass(frozen=True)
class Scalar:
    """A field of a kind that `struct` knows"""

    kind: str
    value: Any


class Writer:
    """Parents stand before their children, so every offset leads forward."""

    def __init__(self) -> None:
        self.out = bytearray(b"\0\0\0\0TFL3")

    def file(self, root: dict[int, Any]) -> bytes:
        struct.pack_into("<I", self.out, 0, self.table(root))
        return bytes(self.out)

    def _align(self) -> int:
        self.out += bytes(-len(self.out) % 8)
        return len(self.out)

    def table(self, fields: dict[int, Any]) -> int:
        fields = {k: v for k, v in fields.items() if v is not None}
        slots = max(fields, default=-1) + 1
        start = self._align()
        at = start + (4 + 2 * slots + 7) // 8 * 8
        self.out += bytes(at - start + 8 + 8 * len(fields))
        struct.pack_into("<HH", self.out, start, 4 + 2 * slots, 8 + 8 * len(fields))
        struct.pack_into("<i", self.out, at, at - start)
        for place, (slot, v) in enumerate(sorted(fields.items())):
            offset = 8 + 8 * place
            struct.pack_into("<H", self.out, start + 4 + 2 * slot, offset)
            if isinstance(v, Scalar):
                struct.pack_into("<" + v.kind, self.out, at + offset, v.value)
            else:
                struct.pack_into("<I", self.out, at + offset, self._child(v) - at - offset)
        return at

    def _child(self, v: Any) -> int:
        if isinstance(v, dict):
            return self.table(v)
        if isinstance(v, list):
            at = self._align()
            self.out += struct.pack("<I", len(v)) + bytes(4 * len(v))
            for k, x in enumerate(v):
                place = at + 4 + 4 * k
                struct.pack_into("<I", self.out, place, self.table(x) - place)
            return at
        data = v.encode() if isinstance(v, str) else np.ascontiguousarray(v).tobytes()
        count = len(data) if isinstance(v, str) else len(v)
        self.out += bytes((4 - len(self.out)) % 8)  # eight-byte elements are aligned
        at = len(self.out)
        self.out += struct.pack("<I", count) + data + (b"\0" if isinstance(v, str) else b"")
        return at


def i32(v: int) -> Scalar:
    return Scalar("i", v)


def byte(v: int) -> Scalar:
    return Scalar("b", v)


@dataclass
class Net:
    """A model in the making: every method returns the number of a tensor or adds an operator."""

    tensors: list[dict[int, Any]] = field(default_factory=list)
    buffers: list[dict[int, Any]] = field(default_factory=lambda: [{}])
    operators: list[dict[int, Any]] = field(default_factory=list)
    codes: list[str] = field(default_factory=list)

    def tensor(self, name: str, shape: tuple[int, ...], dtype: Any, scale: Any = None, zero: int = 0,
               variable: bool = False) -> int:
        other = {"resource": 13, "int4": 17, "complex": 8}
        kind = other[dtype] if isinstance(dtype, str) else TYPE_NUMBERS[np.dtype(dtype)]
        scales = None if scale is None else np.atleast_1d(np.asarray(scale, np.float32))
        q = None if scales is None else {2: scales, 3: np.full(scales.size, zero, np.int64)}
        self.tensors.append({0: np.asarray(shape, np.int32), 1: byte(kind), 2: Scalar("I", 0), 3: name, 4: q,
                             5: Scalar("B", 1) if variable else None})
        return len(self.tensors) - 1

    def const(self, name: str, array: np.ndarray, scale: Any = None, zero: int = 0, axis: int = 0) -> int:
        """`axis` is the one of the scales, where there are several"""
        t = self.tensor(name, array.shape, array.dtype, scale, zero)
        if axis:
            self.tensors[t][4][6] = i32(axis)
        self.buffers.append({0: np.frombuffer(array.tobytes(), np.uint8)})
        self.tensors[t][2] = Scalar("I", len(self.buffers) - 1)
        return t

    def int4(self, name: str, array: np.ndarray, scale: Any, axis: int = 0) -> int:
        """Two numbers in a byte, the first in the low half"""
        t = self.tensor(name, array.shape, "int4", scale)
        self.tensors[t][4][6] = i32(axis)
        flat = np.append(array.ravel(), [0] * (array.size % 2)).astype(np.uint8) & 15
        self.buffers.append({0: flat[::2] | flat[1::2] << 4})
        self.tensors[t][2] = Scalar("I", len(self.buffers) - 1)
        return t

    def sparse(self, name: str, array: np.ndarray, scale: Any = None, block: int = 0) -> int:
        """A matrix whose rows list what is not zero; with `block`, runs of so many columns"""
        rows, width = array.shape[0], max(block, 1)
        parts = array.reshape(rows, -1, width)
        kept = [np.flatnonzero(parts[r].any(-1)) for r in range(rows)]
        segments = np.cumsum([0, *map(len, kept)]).astype(np.int32)
        axes: list[dict[int, Any]] = [
            {0: byte(0), 1: i32(rows)},
            {0: byte(1), 2: Scalar("B", 1), 3: {0: segments}, 4: Scalar("B", 1),
             5: {0: np.concatenate(kept).astype(np.int32)}},
        ]
        t = self.const(name, np.concatenate([parts[r][k] for r, k in enumerate(kept)]).ravel(), scale)
        order, blocks = ([0, 1, 2], [1]) if block else ([0, 1], [])
        if block:
            axes.append({0: byte(0), 1: i32(block)})
        self.tensors[t][0] = np.asarray(array.shape, np.int32)
        self.tensors[t][6] = {0: np.asarray(order, np.int32), 1: np.asarray(blocks, np.int32), 2: axes}
        return t

    def op(self, name: str, ins: list[int], outs: list[int], options: dict[int, Any] | None = None,
           custom: bytes = b"", between: list[int] | None = None) -> None:
        """A name that is no builtin operator's is a custom operator, and `custom` its options."""
        if name not in self.codes:
            self.codes.append(name)
        ends = {1: np.asarray(ins, np.int32), 2: np.asarray(outs, np.int32)}
        self.operators.append({0: Scalar("I", self.codes.index(name)), **ends,
                               3: Scalar("B", OPTIONS[name]) if name in OPTIONS and options is not None else None,
                               4: options if name not in OPTIONS2 and (options or name in OPTIONS) else None,
                               11: Scalar("B", OPTIONS2[name]) if name in OPTIONS2 else None,
                               12: options or {} if name in OPTIONS2 else None,
                               5: np.frombuffer(custom, np.uint8) if custom else None,
                               8: np.asarray(between, np.int32) if between else None})

    def beside(self) -> Net:
        """A subgraph of the same file"""
        return Net([], self.buffers, [], self.codes)

    def graph(self, ins: list[int], outs: list[int]) -> dict[int, Any]:
        ends = {1: np.asarray(ins, np.int32), 2: np.asarray(outs, np.int32)}
        return {0: self.tensors, **ends, 3: self.operators, 4: "main"}

    def file(self, ins: list[int], outs: list[int], signature: tuple[dict[str, int], dict[str, int]] | None = None,
             others: Sequence[dict[int, Any]] = ()) -> bytes:
        """`others` are the subgraphs behind this one, made by `beside`"""
        codes = []
        for name in self.codes:
            number = OPERATORS.index(name if name in OPERATORS else "CUSTOM")
            codes.append({0: byte(min(number, 127)), 1: None if name in OPERATORS else name, 3: i32(number)})
        maps = [] if signature is None else [
            [{0: name, 1: Scalar("I", t)} for name, t in side.items()] for side in signature
        ]
        signatures = [] if signature is None else [{0: maps[0], 1: maps[1], 2: "serving_default"}]
        return Writer().file({0: Scalar("I", 3), 1: codes, 2: [self.graph(ins, outs), *others], 3: "a test",
                              4: self.buffers, 7: signatures})
