"""Weights of few bits, or with a scale for each block, stay packed: products and lookups read them so.

    x @ dequantize(w)              = BlockProduct(x, packed w, scales, zero points)
    gather(dequantize(w), i)       = dequantize(unpack(gather(packed w, i)), gather(scales, i))

w is a constant of 2 or 4 bits, or of bytes whose scales change along the sum: `narrow` takes one scale per column,
which meets the finished sum, but these do not factor out of it. `mb/nbits.h` widens them in registers. One scale for
a whole row is one for each of its blocks. If one reader of a weight is of another kind, the weight is computed for
all, as in `narrow`. In a product the scale meets sums of a block instead of their terms, which is another rounding:
`strict` leaves products alone.

Where the model allows it (`level` 4) and the machine has dot products of bytes, x is rounded to bytes once for all its
products, with a scale for every row and block, as onnxruntime does. Elsewhere, and in `strict`, x stays float.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from monobloc.ir.graph import Graph, Node, Value
from monobloc.ir.types import DType
from monobloc.ops.build import Builder, cast_to
from monobloc.ops.nbits import packed, planes
from monobloc.passes import PassContext
from monobloc.passes.contraction import BYTES, FLOATS
from monobloc.passes.rewrite import sweep_dead

Array = np.ndarray
MIN_ELEMENTS = 512
BLOCK_SIZES = (32, 64, 128)  # elements that share a copy of a scale where a whole row has one


class Blocks:
    name = "blocks"

    def run(self, g: Graph, ctx: PassContext) -> bool:
        changed = False
        for node in list(g.nodes):
            if node.attrs.get("level") == 4 and node.op == "BlockProduct":
                if ctx.target.byte_dot and ctx.numerics != "strict":
                    round_operand(g, node)
                    ctx.reason(node, self.name, "multiplies bytes: accuracy level 4")
                    changed = True
                continue
            w = weight(node)
            readers = None if w is None else readers_of(g, node.outputs[0], w, ctx.numerics == "strict")
            if not readers:
                continue
            for user, form in readers:
                rewrite(g, user, form)
                ctx.reason(user, self.name, f"reads %{node.inputs[0].name} in {form.bits} bits an element")  # type: ignore
            changed = True
        if changed:
            sweep_dead(g)
        return changed


@dataclass(frozen=True)
class Weight:
    """Integers from 0 on with scales and zero points; of a matrix, one of each per row and block of a row"""

    q: Array  # uint8 [rows, columns]
    scale: Array  # [rows, blocks]
    zero: Array  # uint8 [rows, blocks]
    block: int
    bits: int
    dtype: DType  # of what is dequantized


def weight(n: Node) -> Weight | None:
    """A dequantized constant matrix"""
    if n.op != "DequantizeLinear" or n.attrs["to"] not in FLOATS:
        return None
    x, scale, zero = [*n.inputs, None][:3]
    if x is None or x.const is None or x.type.rank != 2 or scale is None or scale.const is None:
        return None
    if x.type.size < MIN_ELEMENTS:
        return None
    if x.dtype not in BYTES or (zero is not None and zero.const is None):
        return None
    q = x.const.array
    points = np.zeros(scale.shape, q.dtype) if zero is None or zero.const is None else zero.const.array
    bits = _bits(x.dtype, int(min(q.min(), points.min())), int(max(q.max(), points.max())))
    if bits == 8 and not n.attrs["block_size"]:
        return None
    shift = 1 << (bits - 1) if x.dtype is DType.I8 else 0
    lined = ((v.astype(np.int16) + shift).astype(np.uint8) for v in (q, points))
    return _lined(n, next(lined), scale.const.array, next(lined), bits)


def _bits(d: DType, low: int, high: int) -> int:
    """How many bits a byte needs: types of 4 and 2 bits are read as bytes."""
    for bits in (2, 4):
        least = -(1 << (bits - 1)) if d is DType.I8 else 0
        if least <= low and high < least + (1 << bits):
            return bits
    return 8


def _lined(n: Node, q: Array, scale: Array, zero: Array, bits: int) -> Weight:
    """Scales and zero points of blocks along the rows; those along the other axis are of whole rows."""
    axis, size = n.attrs["axis"], n.attrs["block_size"]
    if size and axis == 1:
        return Weight(q, scale, zero, size, bits, n.attrs["to"])
    if size:  # blocks of rows
        scale, zero = (np.repeat(a, size, 0)[: len(q)] for a in (scale, zero))
        return Weight(q, scale, zero, 1, bits, n.attrs["to"])
    shape = [1, 1]
    if scale.ndim:
        shape[axis] = -1
    scale, zero = (np.broadcast_to(a.reshape(shape), q.shape if axis and scale.ndim else (len(q), 1))
                   for a in (scale, zero))
    return Weight(q, scale, zero, 1 if axis and n.inputs[1].type.rank else q.shape[1], bits, n.attrs["to"])  # type: ignore


def transposed(w: Weight) -> Weight | None:
    """With rows and columns exchanged, where each element's scale is known for itself or a column has one"""
    rows, columns = w.q.shape
    spread = [np.repeat(a, w.block, 1)[:, :columns].T for a in (w.scale, w.zero)]
    scale, zero = (np.ascontiguousarray(a) for a in spread)
    block = _constant_run(scale, zero)
    if block < 16:
        return None
    return Weight(np.ascontiguousarray(w.q.T), scale[:, ::block], zero[:, ::block], block, w.bits, w.dtype)


def _constant_run(scale: Array, zero: Array) -> int:
    """The largest size of blocks in which each row has one scale and zero point"""
    if (scale == scale[:, :1]).all() and (zero == zero[:, :1]).all():
        return int(scale.shape[1])
    changes = np.flatnonzero(((scale[:, 1:] != scale[:, :-1]) | (zero[:, 1:] != zero[:, :-1])).any(0)) + 1
    return math.gcd(*changes.tolist())


# -- activations as bytes ---------------------------------------------------------------------------------
def round_operand(g: Graph, n: Node) -> None:
    """A BlockProduct becomes a ByteBlockProduct. The two quotients are onnxruntime's: another one rounds ties apart."""
    x, *rest = n.inputs
    assert x is not None
    m, _, blocks, _ = x.shape
    g.release([n])
    b = Builder(g, before=n, locs=n.locs, name=n.name)
    largest = b.one("ReduceMax", b.one("Abs", x), axes=[1, 3], keepdims=1)
    by = b.one("Div", largest, b.const(np.float32(127)))
    inverse = b.one("Div", b.const(np.float32(127)), largest)
    inverse = b.one("Where", b.one("Equal", largest, b.const(np.float32(0))), largest, inverse)
    whole = b.one("Round", b.one("Mul", x, inverse))
    sums = b.one("Mul", b.one("ReduceSum", whole, axes=[1, 3], keepdims=1), by)
    numbers = [b.one("Reshape", v, shape=[m, blocks]) for v in (by, sums)]
    y = b.one("ByteBlockProduct", b.one("Cast", whole, to=DType.I8), *numbers, *rest, bits=n.attrs["bits"])
    g.replace(n.outputs[0], y)
    g.remove(n)


# -- who can read it --------------------------------------------------------------------------------------
Reader = tuple[Node, Weight]


def readers_of(g: Graph, v: Value, w: Weight, exact: bool) -> list[Reader] | None:
    """All who read a weight, each with the form it reads"""
    if v in g.output_values:
        return None
    out: list[Reader] = []
    for user in dict.fromkeys(v.users):
        products, form = [user], None
        if user.op == "Gather" and _is_lookup(user, v, w):
            out.append((user, w))
            continue
        if user.op == "Transpose" and user.outputs[0] not in g.output_values:
            products, form = list(dict.fromkeys(user.outputs[0].users)), _whole(w)
            v_read = user.outputs[0]
        else:
            v_read = v
        if exact or not all(_is_product(p, v_read) for p in products):
            return None
        form = form if v_read is not v else _whole(transposed(w))
        if form is None:
            return None
        out += [(p, form) for p in products]
    return out


def _is_product(n: Node, v: Value) -> bool:
    return n.op == "MatMul" and n.inputs[1] is v and n.inputs[0] is not v and len(n.used) == 2


def _is_lookup(n: Node, v: Value, w: Weight) -> bool:
    rows = n.inputs[0] is v and n.attrs["axis"] == 0 and n.inputs[1] is not v
    return rows and w.block >= 1 and w.q.shape[1] % (8 // w.bits) == 0 and w.scale.shape[1] < w.q.shape[1]


def _whole(w: Weight | None) -> Weight | None:
    """Blocks that the kernel takes: of one scale a row, some; their bytes hold nothing of another block."""
    if w is None:
        return None
    if w.scale.shape[1] == 1:
        block = min(BLOCK_SIZES, key=lambda size: (-w.q.shape[1] % size, -size))
        scale, zero = (np.repeat(a, -(-w.q.shape[1] // block), 1) for a in (w.scale, w.zero))
        return Weight(w.q, scale, zero, block, w.bits, w.dtype)
    return w if w.block * w.bits % 8 == 0 and w.block >= 16 else None


# -- how it is read ---------------------------------------------------------------------------------------
def rewrite(g: Graph, n: Node, w: Weight) -> None:
    g.release([n])  # its replacement is called like it
    b = Builder(g, before=n, locs=n.locs, name=n.name)
    y = _gathered(b, n, w) if n.op == "Gather" else _multiplied(b, n, w)
    g.replace(n.outputs[0], y)
    g.remove(n)


def _multiplied(b: Builder, n: Node, w: Weight) -> Value:
    x, (rows, columns) = n.inputs[0], w.q.shape
    assert x is not None
    blocks = w.scale.shape[1]
    full = np.zeros((rows, blocks * w.block), np.uint8)
    full[:, :columns] = w.q
    data = b.const(packed(full, w.bits).reshape(rows, blocks, w.block * w.bits // 8))
    middle = 1 << (w.bits - 1)
    zero = None if (w.zero == middle).all() else b.const(packed(w.zero, w.bits))
    y = b.one("BlockProduct", planes(b, x, blocks, w.block, w.bits), data, b.const(np.ascontiguousarray(w.scale)),
              zero, bits=w.bits)
    out = n.outputs[0]
    return b.one("Reshape", cast_to(b, y, out.dtype), shape=list(out.shape))


def _gathered(b: Builder, n: Node, w: Weight) -> Value:
    index, columns = n.inputs[1], w.q.shape[1]

    def rows(a: Array) -> Value:
        return b.one("Gather", b.const(np.ascontiguousarray(a)), index, axis=0)

    q = rows(packed(w.q, w.bits))
    q = q if w.bits == 8 else b.one("UnpackBits", q, bits=w.bits)
    block = columns if w.scale.shape[1] == 1 else w.block
    attrs = {"axis": q.type.rank - 1, "block_size": block, "to": w.dtype}
    return b.emit("DequantizeLinear", [q, rows(w.scale), rows(w.zero)], attrs)[0]
