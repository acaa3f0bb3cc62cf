"""GatherPacked: rows of an embedding in blocks as GGUF files have them, dequantized as they are gathered.

A row is numbers of 4 or 2 bytes, or blocks of 32: a scale in half precision, and 8 or 4 bits each. Of 4 bits byte j
holds the elements j and 16 + j.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from monobloc.ir.graph import Value
from monobloc.ir.types import DType
from monobloc.ops import OpDef
from monobloc.ops.build import cast_to
from monobloc.ops.fused import slice_last

F32, U8, U16, U32, I64 = DType.F32, DType.U8, DType.U16, DType.U32, DType.I64
# what the 4 bits of IQ4_NL stand for
STEPS = (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)


def joined(b: Any, x: Value, size: int, to: DType) -> Any:
    """The last axis in numbers of `size` bytes, the lowest first"""
    whole = U32 if size == 4 else U16
    parts = b.one("Reshape", b.one("Cast", x, to=whole), shape=[*x.shape[:-1], x.shape[-1] // size, size])
    weights = b.const([1 << (8 * k) for k in range(size)], whole)
    bits = b.one("ReduceSum", b.one("Cast", b.one("Mul", parts, weights), to=U32), axes=[x.type.rank], keepdims=0)
    real = b.one("BitCast", bits if size == 4 else b.one("Cast", bits, to=U16), to=to)
    return cast_to(b, real, F32)


def nibbles(b: Any, x: Value) -> Any:
    """[.., 16] bytes as [.., 32] numbers of 4 bits: all low ones, then all high ones"""
    low, high = b.one("BitwiseAnd", x, b.const(15, U8)), b.one("BitShift", x, b.const(4, U8), direction="RIGHT")
    return b.emit("Concat", [low, high], {"axis": x.type.rank - 1})[0]


def _less_8(b: Any, n: Any, x: Value) -> Any:
    return b.one("Sub", b.one("Cast", nibbles(b, slice_last(b, n, x, 2, 18)), to=F32), b.const(8, F32))


def _steps(b: Any, n: Any, x: Value) -> Any:
    at = b.one("Cast", nibbles(b, slice_last(b, n, x, 2, 18)), to=I64)
    return b.one("Gather", b.const(STEPS, F32), at, axis=0)


def _bytes(b: Any, n: Any, x: Value) -> Any:
    return b.one("Cast", b.one("BitCast", slice_last(b, n, x, 2, 34), to=DType.I8), to=F32)


# number of a format: bytes of a block of 32, and what its elements are before their scale
BLOCKS: dict[int, tuple[int, Callable[[Any, Any, Value], Any]]] = {2: (18, _less_8), 8: (34, _bytes), 20: (18, _steps)}
PLAIN = {0: (4, F32), 1: (2, DType.F16), 30: (2, DType.BF16)}


class GatherPacked(OpDef):
    """Indices outside of the table are its first row."""

    name = "GatherPacked"
    domain = "com.microsoft"

    def from_onnx(self, b: Any, n: Any) -> Sequence[Value | None]:
        data, at = n.inputs
        kind, size, to = int(n.attrs["packed_type"]), int(n.attrs["K"]), n.dtype_attr("output_dtype", DType.BF16)
        if kind not in BLOCKS and kind not in PLAIN:
            n.unsupported(f"the packed type {kind}",
                          hint="there are 0 (F32), 1 (F16), 2 (Q4_0), 8 (Q8_0), 20 (IQ4_NL) and 30 (BF16)")
        row = size // 32 * BLOCKS[kind][0] if kind in BLOCKS else size * PLAIN[kind][0]
        if data.type.rank != 2 or not data.shape[0] or data.shape[1] != row or (kind in BLOCKS and size % 32):
            n.fail(f"has rows {data.type} for {size} elements of the packed type {kind}, which need {row} bytes")
        at = b.one("Cast", at, to=I64)
        above, below = b.one("GreaterOrEqual", at, b.const(0, I64)), b.one("Less", at, b.const(data.shape[0], I64))
        inside = b.one("And", above, below)
        x = b.one("Gather", data, b.one("Where", inside, at, b.const(0, I64)), axis=0)
        if kind in PLAIN:
            y = joined(b, x, *PLAIN[kind])
        else:
            width, elements = BLOCKS[kind]
            blocks = b.one("Reshape", x, shape=[*at.shape, size // 32, width])
            scale = joined(b, slice_last(b, n, blocks, 0, 2), 2, DType.F16)
            y = b.one("Reshape", b.one("Mul", elements(b, n, blocks), scale), shape=[*at.shape, size])
        return [cast_to(b, y, to)]
