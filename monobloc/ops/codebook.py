"""Weights of 4 bits that are no multiples of a scale (`com.microsoft`): MatMulBnb4 looks them up in a table of 16
numbers, MatMulFpQ4 keeps each block's scale beside its bits.

The bits of MatMulFpQ4 are put in the order that `BlockProduct` multiplies. The others become floats: a product with
floats costs no look-up, and the few models that have them are not made for small machines.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from monobloc.ir.graph import Value
from monobloc.ir.types import DType
from monobloc.ops import OpDef
from monobloc.ops.build import cast_to, read_as
from monobloc.ops.nbits import packed, planes

F32 = DType.F32
_HALF_FP4 = (0, 1 / 192, 2 / 3, 1, 1 / 3, 1 / 2, 1 / 6, 1 / 4)
FP4 = np.array([*_HALF_FP4, *(-v for v in _HALF_FP4)], np.float32)
# quantiles of a normal distribution, which bitsandbytes calls NF4
NF4 = np.array([
    -1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635, -0.18477343022823334,
    -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224,
    0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0,
], np.float32)


class MatMulBnb4(OpDef):
    """A times the transpose of [N, K] numbers out of a table, each times the largest of its block"""

    name = "MatMulBnb4"
    domain = "com.microsoft"

    def from_onnx(self, b: Any, n: Any) -> Sequence[Value | None]:
        x, q, most = n.inputs
        columns, size, block = (int(n.attrs[k]) for k in ("N", "K", "block_size"))
        kind = int(n.attrs["quant_type"])
        if not n.attrs.get("transB", 1):
            n.unsupported("`transB` = 0, which training alone has,")
        if kind not in (0, 1) or block < 16 or block & (block - 1):
            n.unsupported(f"`quant_type` = {kind} in blocks of {block}",
                          hint="there are FP4 (0) and NF4 (1) in blocks of 16, 32, 64, ...")
        count = columns * size
        blocks = -(-count // block)
        if x.type.rank < 1 or x.shape[-1] != size or q.type.size != (count + 1) // 2 or most.type.size != blocks:
            n.fail(f"{x.type} by {q.type} in {most.type} blocks is no product with [{columns}, {size}]",
                   hint="two weights are one byte, and each block has its largest one")
        w = b.const(self._weights(n.const(1), n.const(2), kind, block, count).reshape(columns, size))
        y = read_as(b, n, "MatMul", [cast_to(b, x, F32), b.one("Transpose", w, perm=[1, 0])])
        return [cast_to(b, y, x.dtype)]

    def _weights(self, q: np.ndarray, most: np.ndarray, kind: int, block: int, count: int) -> np.ndarray:
        """In order; the first of two lies in the high bits"""
        codes = np.stack([q.ravel() >> 4, q.ravel() & 15], 1).ravel()[:count]
        return (NF4 if kind else FP4)[codes] * np.repeat(most.ravel().astype(np.float32), block)[:count]


class MatMulFpQ4(OpDef):
    """A times [K, N] in blocks of 32 of a column: a scale, perhaps a zero point, and 16 bytes of two weights, of which
    the second is 16 further on"""

    name = "MatMulFpQ4"
    domain = "com.microsoft"

    def from_onnx(self, b: Any, n: Any) -> Sequence[Value | None]:
        x, blob, kind = n.inputs[0], n.const(1).ravel(), int(n.attrs.get("blk_quant_type", 1))
        shape = [int(v) for v in n.const(2).ravel()]
        if kind not in (0, 1):
            n.unsupported(f"`blk_quant_type` = {kind}", hint="there are 0 and 1; onnxruntime has no shapes for others")
        if len(shape) != 2 or min(shape) < 1 or x.type.rank < 1 or x.shape[-1] != shape[0]:
            n.fail(f"A is {x.type} and B {shape}, which are no product")
        (size, columns), room = shape, 20 + kind
        blocks = -(-size // 32)
        if blob.size != columns * blocks * room:
            n.fail(f"B has {blob.size} bytes, {columns} columns of {blocks} blocks need {columns * blocks * room}")
        table = blob.reshape(columns, blocks, room)
        scale = np.ascontiguousarray(table[:, :, :4]).view(np.float32)[:, :, 0]
        codes = np.concatenate([table[:, :, -16:] & 15, table[:, :, -16:] >> 4], 2)
        parts = [packed(codes, 4), scale, *([packed(table[:, :, 4], 4)] if kind else [])]
        y = b.one("BlockProduct", planes(b, x, blocks, 32, 4), *(b.const(v) for v in parts), bits=4)
        return [b.one("Reshape", y, shape=[*x.shape[:-1], columns])]
