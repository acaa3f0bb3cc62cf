"""Products: of matrices, convolutions, attention, distances."""

from __future__ import annotations

import math

import numpy as np

from monobloc.frontend.torch.node import AtenNode, Reader, Results
from monobloc.frontend.torch.norms import softmax_of
from monobloc.ir.graph import Value
from monobloc.ir.types import DType
from monobloc.ops.build import cast_to
from monobloc.ops.indexing import gather_const


# -- matrices -----------------------------------------------------------------------------------------
def product(a: str, b: str) -> Reader:
    return lambda n: n.onnx("MatMul", n.x(a), n.x(b))[0]


def linear(n: AtenNode) -> Results:
    x, w, bias = n.x("input"), n.x("weight"), n.get("bias")
    if x.type.rank == 2 and w.type.rank == 2:
        return n.onnx("Gemm", x, w, bias, transB=1)[0]
    y = n.onnx("MatMul", x, n.swap(w) if w.type.rank == 2 else w)[0]
    return y if bias is None else n.one("Add", y, bias)


def addmm(n: AtenNode) -> Results:
    """beta * self + alpha * a b"""
    a, b = n.x("mat1"), n.x("mat2")
    return n.onnx("Gemm", a, b, n.x(), alpha=float(n["alpha"]), beta=float(n["beta"]))[0]


def added_product(a: str, b: str) -> Reader:
    def read(n: AtenNode) -> Results:
        y, c = n.onnx("MatMul", n.x(a), n.x(b))[0], n.x()
        if n["alpha"] != 1:
            y = n.one("Mul", y, n.scalar(n["alpha"], y.dtype))
        if n["beta"] == 0:
            return y
        if n["beta"] != 1:
            c = n.one("Mul", c, n.scalar(n["beta"], c.dtype))
        return n.one("Add", c, y)

    return read


def outer(n: AtenNode) -> Results:
    a, b = n.pair("self", "vec2")
    return n.one("Mul", n.reshape(a, [a.type.size, 1]), n.reshape(b, [1, b.type.size]))


def trilinear(n: AtenNode) -> Results:
    """The sum of products of three tensors, each with new axes where it has none"""
    parts = []
    for k in (1, 2, 3):
        v = n.x(f"i{k}")
        for axis in sorted(n.ints(f"expand{k}")):
            v = n.reshape(v, [*v.shape[:axis], 1, *v.shape[axis:]])
        parts.append(v)
    y = n.one("Mul", n.one("Mul", parts[0], parts[1]), parts[2])
    return n.fold("ReduceSum", y, n.ints("sumdim"))


# -- convolutions -------------------------------------------------------------------------------------
def convolution(n: AtenNode) -> Results:
    x, w, bias = n.x("input"), n.x("weight"), n.get("bias")
    rank = w.type.rank - 2
    strides, pads, dilations = (n.ints(k, rank) for k in ("stride", "padding", "dilation"))
    one = x.type.rank == rank + 1  # without a batch
    if one:
        x = n.reshape(x, [1, *x.shape])
    attrs = {"strides": strides, "pads": pads + pads, "dilations": dilations, "group": n["groups"]}
    if n["transposed"]:
        y = n.onnx("ConvTranspose", x, w, bias, output_padding=n.ints("output_padding", rank), **attrs)[0]
    else:
        y = n.onnx("Conv", x, w, bias, **attrs)[0]
    return n.reshape(y, y.shape[1:]) if one else y


# -- attention ----------------------------------------------------------------------------------------
def attention(n: AtenNode) -> Results:
    """softmax(q k^T * scale + mask) v; queries may share keys and values in groups"""
    q, k, v = n.x("query"), n.x("key"), n.x("value")
    if n.get("dropout_p"):
        n.unsupported("attention with dropout, which draws random numbers,")
    if n.get("enable_gqa"):
        k, v = (_for_each_query(n, t, q.shape[-3]) for t in (k, v))
    scale = n.get("scale")
    scale = 1 / math.sqrt(q.shape[-1]) if scale is None else float(scale)
    scores = n.one("MatMul", n.one("Mul", q, n.scalar(scale, q.dtype)), n.swap(k))
    mask = n.get("attn_mask")
    if n.get("is_causal"):
        true = n.expand(n.scalar(True, DType.BOOL), scores.shape[-2:])
        mask = n.onnx("Trilu", true, upper=0)[0]
    return n.one("MatMul", masked_softmax(n, scores, mask), v)


def _for_each_query(n: AtenNode, t: Value, heads: int) -> Value:
    """Every head of keys or values as often as queries share it"""
    *batch, own, rows, columns = t.shape
    wide = n.expand(n.reshape(t, [*batch, own, 1, rows, columns]), [*batch, own, heads // own, rows, columns])
    return n.reshape(wide, [*batch, heads, rows, columns])


def masked_softmax(n: AtenNode, scores: Value, mask: Value | None) -> Value:
    """A row that the mask leaves nothing of is zeros, as in PyTorch."""
    if mask is None:
        return softmax_of(n, scores, scores.type.rank - 1)
    low = n.scalar(-math.inf, scores.dtype)
    if mask.dtype is DType.BOOL:
        scores = n.one("Where", mask, scores, low)
        some = n.fold("ReduceMax", mask, [mask.type.rank - 1], True)
    else:
        scores = n.one("Add", scores, n.cast(mask, scores.dtype))
        some = n.one("Greater", n.fold("ReduceMax", mask, [mask.type.rank - 1], True), n.scalar(-math.inf, mask.dtype))
    y = softmax_of(n, scores, scores.type.rank - 1)
    if some.const is not None and some.const.array.all():
        return y
    return n.one("Where", some, y, n.scalar(0, y.dtype))


# -- distances ----------------------------------------------------------------------------------------
def cdist(n: AtenNode) -> Results:
    a, b, p = n.x("x1"), n.x("x2"), float(n["p"])
    a = n.reshape(a, [*a.shape[:-1], 1, a.shape[-1]])
    b = n.reshape(b, [*b.shape[:-2], 1, *b.shape[-2:]])
    return distance(n, n.one("Sub", a, b), p)


def distance(n: AtenNode, apart: Value, p: float) -> Value:
    axis = [apart.type.rank - 1]
    if p in (1, 2):
        return n.fold(f"ReduceL{int(p)}", apart, axis)
    if math.isinf(p):
        return n.fold("ReduceMax", n.one("Abs", apart), axis)
    if p == 0:
        n.unsupported("a distance with p = 0")
    total = n.fold("ReduceSum", n.one("Pow", n.one("Abs", apart), n.scalar(p, apart.dtype)), axis)
    return n.one("Pow", total, n.scalar(1 / p, total.dtype))


def pdist(n: AtenNode) -> Results:
    """Distances of all pairs of rows"""
    x = n.x()
    first, second = np.triu_indices(x.shape[0], 1)
    a, b = (gather_const(n.b, x, at, 0) for at in (first, second))
    return distance(n, n.one("Sub", a, b), float(n["p"]))


def grouped(a: str, b: str) -> Reader:
    """Rows sorted by group, by the matrix of their group; without ends of groups a product of as many matrices"""
    def read(n: AtenNode) -> Results:
        x, w, ends = n.x(a), n.x(b), n.get("offs")
        if n.get("bias") is not None or (ends is None) != (x.type.rank == 3) or w.type.rank != 3:
            n.unsupported(f"grouped products of {x.type} by {w.type} {'with' if ends is not None else 'without'} ends "
                          "of groups: rows of a matrix by one of several matrices each, or several by several, "
                          "without a bias")
        if ends is None:
            return n.onnx("MatMul", x, w)[0]
        x, ends = cast_to(n.b, x, DType.F32), cast_to(n.b, ends, DType.I64)
        return cast_to(n.b, n.one("GroupedProduct", x, w, ends), n.out)

    return read


READERS: dict[str, Reader] = {
    "_grouped_mm.default": grouped("self", "mat2"),
    "transformers.grouped_mm_fallback.default": grouped("input", "weight"),
    "mm.default": product("self", "mat2"), "bmm.default": product("self", "mat2"),
    "matmul.default": product("self", "other"), "mv.default": product("self", "vec"),
    "dot.default": product("self", "tensor"), "linear.default": linear, "addmm.default": addmm,
    "baddbmm.default": added_product("batch1", "batch2"), "addmv.default": added_product("mat", "vec"),
    "outer.default": outer, "_trilinear.default": trilinear, "convolution.default": convolution,
    "scaled_dot_product_attention.default": attention, "_cdist_forward.default": cdist,
    "_pdist_forward.default": pdist,
}  # fmt: skip
