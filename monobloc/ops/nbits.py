"""Weights of 2, 4 or 8 bits in blocks of one scale and zero point each: MatMulNBits, GatherBlockQuantized.

`BlockProduct` multiplies with them as the model stores them; mb/nbits.h widens them in registers, or a panel of them
in cache. Its inputs:

    x       [M, planes, blocks, blob]  float; plane p holds what the p-th bits of all bytes multiply
    b       [N, blocks, blob]          bytes of 8 / bits weights each, the first in the lowest bits
    scale   [N, blocks]                float or half
    zero    [N, bytes] packed like b, [N, blocks] of the scale's type, or absent (half of the range)

Its attribute `level` 4 says that x may be rounded to bytes with a scale for every row and block. `ByteBlockProduct` is
the product then, with x int8, its scales and its sums of blocks (times the scale), both [M, blocks].
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from monobloc.errors import ModelError
from monobloc.ir.expr import Expr, Fn, Num, call, select
from monobloc.ir.graph import Node, Value
from monobloc.ir.symbolic import upper
from monobloc.ir.types import DType, TensorType
from monobloc.ops import Case, OpDef, Tol
from monobloc.ops.build import cast_to, read_as
from monobloc.ops.reduce import normalized_axes

Array = np.ndarray
Attrs = dict[str, Any]
F32, U8 = DType.F32, DType.U8
MANY = 8  # rows from which panels of floats pay: `MB_NBITS_MANY` of the header
PART = 512  # elements of a column that a panel of floats holds
SCALES = {F32: "MB_T_F32", DType.F16: "MB_T_F16", DType.BF16: "MB_T_BF16"}


def planes_of(bytes_: Array, bits: int) -> Array:
    """[.., planes, n]: the p-th bits of each byte"""
    shifts = np.arange(8 // bits, dtype=np.uint8)[:, None] * bits
    return (bytes_[..., None, :] >> shifts.astype(np.uint8)) & np.uint8((1 << bits) - 1)


def unpacked(bytes_: Array, bits: int) -> Array:
    """[.., n * planes]: the elements of bytes in order, the first in the lowest bits"""
    out = np.swapaxes(planes_of(bytes_, bits), -1, -2)
    return out.reshape(*bytes_.shape[:-1], bytes_.shape[-1] * (8 // bits))


def packed(elements: Array, bits: int) -> Array:
    """The inverse of `unpacked`; the last byte of a row is filled with zeros."""
    per = 8 // bits
    fill = -elements.shape[-1] % per
    e = np.pad(elements.astype(np.uint8), [(0, 0)] * (elements.ndim - 1) + [(0, fill)])
    e = e.reshape(*e.shape[:-1], e.shape[-1] // per, per)
    return np.bitwise_or.reduce(e << (np.arange(per, dtype=np.uint8) * np.uint8(bits)), axis=-1).astype(np.uint8)


def rows_of(x: Array) -> Array:
    """A matrix, also where there are no rows"""
    return x.reshape(len(x), math.prod(x.shape[1:]))


def weights(b: Array, scale: Array, zero: Array | None, bits: int) -> Array:
    """[N, planes, blocks, blob]: what b stands for, in double"""
    n, blocks, _ = b.shape
    center: Array = np.array(1 << (bits - 1))
    if zero is not None:
        center = unpacked(zero, bits)[:, :blocks] if zero.dtype == np.uint8 else zero
    center = np.broadcast_to(center.astype(np.float64), (n, blocks))
    w = (planes_of(b, bits) - center[:, :, None, None]) * scale.astype(np.float64)[:, :, None, None]
    return w.swapaxes(1, 2)


class BlockProduct(OpDef):
    """x times blocks of packed weights, summed in float"""

    name = "BlockProduct"
    internal = True
    splits = True
    tol = Tol(1e-4, 1e-4)
    x_type = F32
    macro = "MB_NBITS"

    def infer(self, ins: Sequence[Value | None], attrs: Attrs) -> list[TensorType]:
        (x, *_), (b, scale, zero) = self.parted(ins)
        want = (x.shape[0], 8 // attrs["bits"], *b.shape[1:])
        if x.dtype is not self.x_type or b.dtype is not U8 or b.type.rank != 3 or x.shape != want:
            raise ModelError(f"{self.name} of {x.type} and {b.type} does not fit together")
        if scale.shape != b.shape[:2] or scale.dtype not in SCALES:
            raise ModelError(f"{self.name} scales are {scale.type} for weights {b.type}")
        bytes_ = (b.shape[0], -(-b.shape[1] * attrs["bits"] // 8))
        if zero is not None and (zero.shape != bytes_ if zero.dtype is U8 else zero.type != scale.type):
            raise ModelError(f"{self.name} zero points are {zero.type} for weights {b.type}")
        return [TensorType(F32, (x.shape[0], b.shape[0]))]

    def parted(self, ins: Sequence[Any]) -> tuple[Sequence[Any], tuple[Any, Any, Any]]:
        """What is multiplied, and b, scale and zero point"""
        x, b, scale, zero = [*ins, None][:4]
        return [x], (b, scale, zero)

    def ref(self, attrs: Attrs, *xs: Array | None) -> Array:
        (x,), (b, scale, zero) = self.parted(xs)
        w = weights(b, scale, zero, attrs["bits"])
        return (rows_of(x).astype(np.float64) @ rows_of(w).T).astype(np.float32)

    def routine(self, n: Node, c: Any) -> str:
        xs, (b, scale, zero) = self.parted(n.inputs)
        kernel, own = self.kernel(n, c)
        ins = [c.ptr(v) for v in (*xs, b, scale)] + ["0" if zero is None else c.ptr(zero)]
        return f"{kernel}({xs[0].shape[0]}, {', '.join(ins)}, {c.ptr(n.outputs[0])}, {own}, tid, nt);"

    def kernel(self, n: Node, c: Any) -> tuple[str, str]:
        """The kernel's name, and its scratch"""
        xs, (b, scale, zero) = self.parted(n.inputs)
        kind = "MB_ZERO_NONE" if zero is None else "MB_ZERO_PACKED" if zero.dtype is U8 else "MB_ZERO_FLOAT"
        (columns, blocks, blob), bits = b.shape[-3:], n.attrs["bits"]
        kc = min(blocks, max(1, PART * bits // 8 // blob))
        kernel = c.kernel("nbits_panel", f"""
static const mb_nbits KERNEL_d = {{
  .n = {columns}, .blocks = {blocks}, .blob = {blob}, .bits = {bits},
  .scale_type = {SCALES[scale.dtype]}, .zero_kind = {kind}, .kc = {kc},
}};
{self.macro}(KERNEL, KERNEL_d)""")
        size = self.scratch(upper(xs[0].shape[0]), blocks, blob, 8 // bits, kc, c.target.f32_lanes)
        return kernel, f"(float *){c.scratch(size, each=True)}" if size else "0"

    def scratch(self, rows: int, blocks: int, blob: int, planes: int, kc: int, lanes: int) -> int:
        """Bytes of scratch of a thread: `mb_nbits_float_scratch` of the header"""
        return kc * blob * planes * 2 * lanes * 4 if rows >= MANY else 0

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        def make(m: int, n: int, blocks: int, block: int, bits: int, what: str) -> Case:
            blob = block * bits // 8
            x = rng.standard_normal((m, 8 // bits, blocks, blob)).astype(np.float32)
            b = rng.integers(0, 256, (n, blocks, blob)).astype(np.uint8)
            scale = rng.uniform(0.01, 0.1, (n, blocks)).astype(np.float16 if "half" in what else np.float32)
            zero: Any = None
            if "packed" in what:
                zero = packed(rng.integers(0, 1 << bits, (n, blocks)), bits)
            elif "float" in what:
                zero = rng.uniform(0, 9, (n, blocks)).astype(scale.dtype)
            return Case((*self.rounded(x), b, scale, zero), {"bits": bits}, f"{bits}bits_{what}_{m}")

        yield make(1, 9, 3, 32, 4, "plain")
        yield make(0, 9, 3, 32, 4, "plain")
        yield make(6, 5, 3, 32, 4, "packed")
        yield make(2, 4, 2, 16, 4, "small_half_packed")
        yield make(5, 3, 2, 64, 2, "packed")
        yield make(4, 3, 5, 32, 8, "half_float")
        yield make(3, 2, 1, 128, 4, "float")
        yield make(33, 37, 19, 32, 4, "packed")
        yield make(15, 33, 3, 16, 4, "half")
        yield make(14, 70, 9, 128, 8, "packed")
        yield make(12, 5, 7, 16, 2, "float")
        if self.x_type is F32:
            yield make(17, 3, 2, 18, 4, "packed")

    def rounded(self, x: Array) -> Sequence[Array]:
        return [x]


class ByteBlockProduct(BlockProduct):
    """The same of x rounded to bytes: summed exactly within a block"""

    name = "ByteBlockProduct"
    x_type = DType.I8
    macro = "MB_NBITS_BYTES"

    def parted(self, ins: Sequence[Any]) -> tuple[Sequence[Any], tuple[Any, Any, Any]]:
        x, by, sums, b, scale, zero = [*ins, None][:6]
        return [x, by, sums], (b, scale, zero)

    def infer(self, ins: Sequence[Value | None], attrs: Attrs) -> list[TensorType]:
        (x, *numbers), (b, _, _) = self.parted(ins)
        if b.shape[-1] % 4:
            raise ModelError(f"{self.name} of blocks of {b.shape[-1]} bytes, not of words of 4")
        if any(v.type != TensorType(F32, (x.shape[0], b.shape[1])) for v in numbers):
            raise ModelError(f"{self.name} of {x.type} has scales and sums {[str(v.type) for v in numbers]}")
        return super().infer(ins, attrs)

    def ref(self, attrs: Attrs, *xs: Array | None) -> Array:
        (x, by, sums), (b, scale, zero) = self.parted(xs)
        w, center = (weights(v, scale, zero, attrs["bits"]) for v in (b, np.zeros_like(b)))
        real = x.astype(np.float64) * by.astype(np.float64)[:, None, :, None]
        products = rows_of(real) @ rows_of(w - center).T
        return (products + sums.astype(np.float64) @ center[:, 0, :, 0].T).astype(np.float32)

    def scratch(self, rows: int, blocks: int, blob: int, planes: int, kc: int, lanes: int) -> int:
        """`mb_nbits_byte_scratch` of the header"""
        few = 4 * -(-blocks * blob // (4 * lanes)) * 2 * lanes
        return 4 * max((blocks * blob * planes // 4 + 2 * blocks) * 2 * lanes, few)

    def rounded(self, x: Array) -> Sequence[Array]:
        by = np.abs(x).max((1, 3)) / np.float32(127)
        q = np.rint(x / by[:, None, :, None]).astype(np.int8)
        return [q, by, (q.astype(np.int32).sum((1, 3)) * by).astype(np.float32)]


class GroupedBlockProduct(BlockProduct):
    """Rows sorted by group, each times the packed weights of its group, as GroupedProduct does with matrices: b, scale
    and zero point have an axis of groups in front, and `ends` [groups] int64 is where a group's rows end"""

    name = "GroupedBlockProduct"

    def parted(self, ins: Sequence[Any]) -> tuple[Sequence[Any], tuple[Any, Any, Any]]:
        x, ends, b, scale, zero = [*ins, None][:5]
        return [x, ends], (b, scale, zero)

    def infer(self, ins: Sequence[Value | None], attrs: Attrs) -> list[TensorType]:
        (x, ends), (b, scale, zero) = self.parted(ins)
        want = (x.shape[0], 8 // attrs["bits"], *b.shape[2:])
        if b.type.rank != 4 or x.type != TensorType(F32, want) or ends.type != TensorType(DType.I64, b.shape[:1]):
            raise ModelError(f"{self.name} of {x.type} by {b.type}, in groups that end at {ends.type}")
        if scale.shape != b.shape[:3] or scale.dtype not in SCALES or (zero is not None and zero.type != scale.type):
            raise ModelError(f"{self.name} scales are {scale.type}, zero points {zero and zero.type} for {b.type}")
        return [TensorType(F32, (x.shape[0], b.shape[1]))]

    def ref(self, attrs: Attrs, *xs: Array | None) -> Array:
        (x, ends), (b, scale, zero) = self.parted(xs)
        y, start = np.zeros((len(x), b.shape[1]), np.float32), 0
        for g, end in enumerate(ends.tolist()):
            stop = min(max(end, start), len(x))
            w = weights(b[g], scale[g], None if zero is None else zero[g], attrs["bits"])
            y[start:stop] = rows_of(x[start:stop]).astype(np.float64) @ rows_of(w).T
            start = stop
        return y

    def routine(self, n: Node, c: Any) -> str:
        (x, ends), (b, scale, zero) = self.parted(n.inputs)
        kernel, own = self.kernel(n, c)

        def of(v: Any, which: str) -> str:
            """Where a row's or a group's part of a value lies"""
            return "0" if v is None else f"{c.ptr(v)} + {which} * {math.prod(v.shape[1:])}"

        ins = [of(x, "from"), of(b, "g"), of(scale, "g"), of(zero, "g"), of(n.outputs[0], "from")]
        return f"""\
long from = 0;
for (long g = 0; g < {b.shape[0]}; g++) {{
  const long to = mb_grouped_end({c.ptr(ends)}, g, from, {x.shape[0]});
  if (to > from) {kernel}(to - from, {', '.join(ins)}, {own}, tid, nt);
  from = to;
}}
mb_grouped_rest({of(n.outputs[0], 'from')}, ({x.shape[0]} - from) * {b.shape[1]}, tid, nt);
"""

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        def make(ends: list[int], rows: int, n: int, blocks: int, block: int, bits: int, zero: bool) -> Case:
            blob, groups = block * bits // 8, len(ends)
            x = rng.standard_normal((rows, 8 // bits, blocks, blob)).astype(np.float32)
            b = rng.integers(0, 256, (groups, n, blocks, blob)).astype(np.uint8)
            scale = rng.uniform(0.01, 0.1, (groups, n, blocks)).astype(np.float32)
            more = [rng.uniform(0, 9, scale.shape).astype(np.float32)] if zero else []
            return Case((x, np.array(ends, np.int64), b, scale, *more), {"bits": bits}, f"{bits}bits_{ends}")

        yield make([2, 2, 5], 5, 9, 3, 32, 4, False)
        yield make([0, 11, 30], 30, 37, 4, 32, 4, True)
        yield make([1, 2, 3], 5, 6, 2, 16, 8, True)  # rows behind the last
        yield make([9, 3, 90], 12, 5, 2, 32, 2, False)  # no order, more than there are


class UnpackBits(OpDef):
    """Elements of `bits` bits that lie packed along the last axis, one a byte"""

    name = "UnpackBits"
    internal = True

    def infer(self, ins: Sequence[Value | None], attrs: Attrs) -> list[TensorType]:
        x = ins[0]
        if x is None or x.dtype is not U8 or x.type.rank < 1:
            raise ModelError(f"{self.name} needs bytes, got {x and x.type}")
        return [TensorType(U8, (*x.shape[:-1], x.shape[-1] * (8 // attrs["bits"])))]

    def ref(self, attrs: Attrs, *xs: Array | None) -> Array:
        assert xs[0] is not None
        return unpacked(xs[0], attrs["bits"])

    def expr(self, n: Node, *xs: Fn | None) -> Fn:
        x, bits = xs[0], n.attrs["bits"]
        assert x is not None
        per = 8 // bits

        def at(*i: Expr) -> Expr:
            byte, which = x(*i[:-1], i[-1] // per), i[-1] % per
            out: Expr = byte
            for p in range(1, per):
                out = select(which.lt(p), out, call("shr", byte, Num(bits * p, U8)))
            return call("band", out, Num((1 << bits) - 1, U8))

        return at

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        for bits in (2, 4):
            yield Case((rng.integers(0, 256, (3, 9)).astype(np.uint8),), {"bits": bits}, f"{bits}")


def planes(b: Any, x: Value, blocks: int, block: int, bits: int) -> Value:
    """x as BlockProduct reads it: [M, planes, blocks, blob] in float, zeros where the last block is not full"""
    per, size = 8 // bits, x.shape[-1]
    x = cast_to(b, x, F32)
    x = b.one("Reshape", x, shape=[x.type.size // size, size])
    if size < blocks * block:
        zeros = b.const(np.zeros((1, blocks * block - size), np.float32))
        x = b.one("Concat", x, b.one("Expand", zeros, shape=[x.shape[0], zeros.shape[1]]), axis=1)
    x = b.one("Reshape", x, shape=[x.shape[0], blocks, block // per, per])
    return b.one("Transpose", x, perm=[0, 3, 1, 2])


# -- reading ------------------------------------------------------------------------------------------
class MatMulNBits(OpDef):
    """A times packed weights: read as BlockProduct"""

    name = "MatMulNBits"
    domain = "com.microsoft"

    def from_onnx(self, b: Any, n: Any) -> Sequence[Value | None]:
        x, w, scale, zero, groups, bias = [*n.inputs, *[None] * 6][:6]
        bits, block = int(n.attrs.get("bits", 4)), int(n.attrs["block_size"])
        size, columns = int(n.attrs["K"]), int(n.attrs["N"])
        if bits not in (2, 4, 8) or block < 16 or block & (block - 1):
            n.unsupported(f"weights of {bits} bits in blocks of {block}: 2, 4 or 8 bits in blocks of 16, 32, 64, ...")
        if n.attrs.get("weight_prepacked", 0):
            n.unsupported("weights that are packed for one machine", hint="export the model without prepacking")
        if x.type.rank < 1 or x.shape[-1] != size or size < 1:
            n.fail(f"A is {x.type}, K is {size}")
        blocks, blob = -(-size // block), block * bits // 8
        w, scale = self._shaped(b, n, w, (columns, blocks, blob)), self._shaped(b, n, scale, (columns, blocks))
        if zero is not None:
            zero = zero if zero.dtype in (U8, scale.dtype) else b.one("Cast", zero, to=scale.dtype)
            per_row = blocks if zero.dtype is not U8 else -(-blocks * bits // 8)
            zero = self._shaped(b, n, zero, (columns, per_row))
        if groups is not None:
            x, w = self._sorted(b, n, x, w, block, bits)
        level = {"level": 4} if int(n.attrs.get("accuracy_level", 0)) == 4 else {}
        y = b.one("BlockProduct", planes(b, x, blocks, block, bits), w, scale, zero, bits=bits, **level)
        y = b.one("Reshape", cast_to(b, y, x.dtype), shape=[*x.shape[:-1], columns])
        return [y if bias is None else b.one("Add", y, bias)]

    def _shaped(self, b: Any, n: Any, v: Value, shape: tuple[int, ...]) -> Value:
        if v.shape == shape:
            return v
        if v.type.size != int(np.prod(shape)):
            n.fail(f"an input has shape {list(v.shape)}, its attributes say {list(shape)}")
        return b.one("Reshape", v, shape=list(shape))

    def _sorted(self, b: Any, n: Any, x: Value, w: Value, block: int, bits: int) -> tuple[Value, Value]:
        """Rows in the order of their groups (`g_idx` says which scale a row has), as x's elements then are."""
        size, columns = x.shape[-1], w.shape[0]
        groups = n.const(4)[:size]
        order = np.argsort(groups, kind="stable")
        if (groups[order] != np.arange(size) // block).any():
            n.unsupported("groups of rows (g_idx) that are not of block_size rows each")
        if (order == np.arange(size)).all():
            return x, w
        rows = unpacked(n.const(1).reshape(columns, -1), bits)
        rows[:, :size] = rows[:, order]
        x = read_as(b, n, "Gather", [x, b.ints(order.tolist())], axis=-1)
        return x, b.const(packed(rows, bits).reshape(w.shape))


class GatherBlockQuantized(OpDef):
    """Rows of packed weights, dequantized: gathered as they are stored"""

    name = "GatherBlockQuantized"
    domain = "com.microsoft"

    def from_onnx(self, b: Any, n: Any) -> Sequence[Value | None]:
        data, indices, scale, zero = [*n.inputs, None][:4]
        bits, block = int(n.attrs.get("bits", 4)), int(n.attrs.get("block_size", 128))
        if data.dtype is not U8 or bits not in (2, 4, 8):
            n.unsupported(f"{n.op} of {data.dtype.value} and {bits} bits, not bytes of 2, 4 or 8 bits,")
        gather, along = normalized_axes(
            [int(n.attrs.get("gather_axis", 0)), int(n.attrs.get("quantize_axis", 1))], data.type.rank
        )
        last = data.type.rank - 1
        if gather == last or along != last:
            n.unsupported(f"gather_axis {gather} with quantize_axis {along} of {data.type}: blocks of the last axis")
        q, s, z = (v and read_as(b, n, "Gather", [v, indices], axis=gather) for v in (data, scale, zero))
        assert q is not None and s is not None
        z = b.const(np.full(s.shape, 1 << (bits - 1), np.uint8)) if z is None else self._elements(b, z, bits)
        if z.shape != s.shape:  # the last byte of a row is not full
            z = read_as(b, n, "Slice", [z, b.ints([0]), b.ints([s.shape[-1]]), b.ints([-1])])
        q = self._elements(b, q, bits)
        attrs = {"axis": q.type.rank - 1, "block_size": block, "to": scale.dtype}
        return b.emit("DequantizeLinear", [q, s, z], attrs)

    def _elements(self, b: Any, v: Value, bits: int) -> Value:
        return v if bits == 8 else b.one("UnpackBits", v, bits=bits)
