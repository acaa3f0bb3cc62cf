"""MurmurHash3 (`com.microsoft`): features hashed to 32 bits, by the public algorithm for machines of 32 bits."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from monobloc.errors import ModelError
from monobloc.ir.graph import Node, Value
from monobloc.ir.strings import string_shape, to_chars, to_text
from monobloc.ir.types import DType, TensorType
from monobloc.ops import EXACT, Case, OpDef

Array = np.ndarray
Attrs = dict[str, Any]
CHAR, I32, U32 = DType.CHAR, DType.I32, DType.U32


def hashed(data: bytes, seed: int) -> int:
    """Four bytes at a time, then those that are left, then the length"""
    h, whole = seed, len(data) // 4 * 4
    for k in range(0, len(data), 4):
        part = int.from_bytes(data[k : k + 4], "little") * 0xCC9E2D51 & 0xFFFFFFFF
        h ^= ((part << 15 | part >> 17) & 0xFFFFFFFF) * 0x1B873593 & 0xFFFFFFFF
        if k < whole:
            h = ((h << 13 | h >> 19) & 0xFFFFFFFF) * 5 + 0xE6546B64 & 0xFFFFFFFF
    h ^= len(data)
    for by, shift in ((0x85EBCA6B, 16), (0xC2B2AE35, 13)):
        h = (h ^ h >> shift) * by & 0xFFFFFFFF
    return h ^ h >> 16


class MurmurHash3(OpDef):
    """Of the bytes of each number or string"""

    name = "MurmurHash3"
    domain = "com.microsoft"
    strings = "own"
    tol = EXACT

    def from_onnx(self, b: Any, n: Any) -> Sequence[Value | None]:
        x, attrs = n.inputs[0], {"seed": int(n.attrs.get("seed", 0)) & 0xFFFFFFFF}
        if x.dtype is not CHAR and x.dtype.size not in (4, 8):
            n.unsupported(f"a hash of {x.type}")
        y = b.one(self.name, x, **attrs)
        return [y if n.attrs.get("positive", 1) else b.one("BitCast", y, to=I32)]

    def infer(self, ins: Sequence[Value | None], attrs: Attrs) -> list[TensorType]:
        x = ins[0]
        if x is None or x.dtype is not CHAR and x.dtype.size not in (4, 8):
            raise ModelError(f"{self.name} of {x and x.type}")
        return [TensorType(U32, string_shape(x.type) if x.dtype is CHAR else x.shape)]

    def ref(self, attrs: Attrs, *xs: Array | None) -> Array:
        x = xs[0]
        assert x is not None
        shape = x.shape
        if x.dtype.kind == "S":
            text = to_text(x)
            shape, data = text.shape, [str(s).encode() for s in text.ravel()]
        else:
            data = [v.tobytes() for v in x.ravel()]
        return np.array([hashed(d, attrs["seed"]) for d in data], np.uint32).reshape(shape)

    def routine(self, n: Node, c: Any) -> str:
        x, y = n.used[0], n.outputs[0]
        text = x.dtype is CHAR
        room = x.shape[-1] if text else x.dtype.size
        length = f"0;\n  while (size < {room} && p[size]) size++" if text else f"{room}"
        return f"""\
const uint8_t *x = (const uint8_t *){c.ptr(x)};
uint32_t *y = {c.ptr(y)};
for (long i = 0; i < {y.type.size}; i++) {{
  const uint8_t *p = x + i * {room};
  long size = {length};
  uint32_t h = {n.attrs["seed"]}u;
  for (long k = 0; k < size; k += 4) {{
    uint32_t part = 0;
    for (long j = 0; j < 4 && k + j < size; j++) part |= (uint32_t)p[k + j] << 8 * j;
    part *= 0xCC9E2D51u;
    h ^= (part << 15 | part >> 17) * 0x1B873593u;
    if (k + 4 <= size) h = (h << 13 | h >> 19) * 5 + 0xE6546B64u;
  }}
  h ^= (uint32_t)size;
  h = (h ^ h >> 16) * 0x85EBCA6Bu;
  h = (h ^ h >> 13) * 0xC2B2AE35u;
  y[i] = h ^ h >> 16;
}}
"""

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        words = to_chars(np.array([["", "a", "ab"], ["abc", "abcd", "é and more than eight"]], object), "x")
        yield Case((words,), {"seed": 0}, "strings")
        for d in (np.int32, np.uint64, np.float32, np.float64):
            x = (rng.standard_normal((3, 5)) * 1000).astype(d)
            yield Case((x,), {"seed": 3000000000}, np.dtype(d).name)
