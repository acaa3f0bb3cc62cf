"""Layers on tensors whose size data decide: products, attention, convolutions, pooling, norms and spreads.

Each is written as nodes of ONNX, whose readers know of such sizes, as `sized.py` has it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from monobloc.frontend.extents import Tensor, value_of
from monobloc.frontend.torch.node import AtenNode, DataNumber, Reader, Results
from monobloc.frontend.torch.reductions import correction_of
from monobloc.frontend.torch.sized import as_list, cast, onnx, rank_of, sizes_of, tensor
from monobloc.ir.graph import Value
from monobloc.ir.types import DType


def optional(n: AtenNode, name: str) -> Tensor | None:
    return None if n.get(name) is None else tensor(n, name)


# -- products -----------------------------------------------------------------------------------------
def product(a: str, b: str) -> Reader:
    """A vector is a row on the left and a column on the right."""
    def read(n: AtenNode) -> Results:
        x, y = tensor(n, a), tensor(n, b)
        left, right = rank_of(x) == 1, rank_of(y) == 1
        x = onnx(n, "Unsqueeze", x, n.b.ints([0])) if left else x
        y = onnx(n, "Unsqueeze", y, n.b.ints([1])) if right else y
        gone = [-2] * left + [-1] * right
        z = onnx(n, "MatMul", x, y)
        return onnx(n, "Squeeze", z, n.b.ints(gone)) if gone else z

    return read


def linear(n: AtenNode) -> Results:
    y = onnx(n, "MatMul", tensor(n, "input"), onnx(n, "Transpose", tensor(n, "weight"), perm=[1, 0]))
    return y if n.get("bias") is None else onnx(n, "Add", y, n["bias"])


def added(a: str, b: str) -> Reader:
    def read(n: AtenNode) -> Results:
        y, c = product(a, b)(n), tensor(n)
        y = y if n.get("alpha", 1) == 1 else onnx(n, "Mul", y, n.scalar(n["alpha"], y.dtype))
        if n.get("beta", 1) == 0:
            return y
        return onnx(n, "Add", c if n.get("beta", 1) == 1 else onnx(n, "Mul", c, n.scalar(n["beta"], c.dtype)), y)

    return read


def outer(n: AtenNode) -> Results:
    a, b = (cast(n, tensor(n, k), n.out) for k in ("self", "vec2"))
    return onnx(n, "Mul", onnx(n, "Unsqueeze", a, n.b.ints([1])), onnx(n, "Unsqueeze", b, n.b.ints([0])))


def attention(n: AtenNode) -> Results:
    """softmax(q k^T * scale + mask) v; a row that the mask leaves nothing of is zeros"""
    q, k, v, mask = (optional(n, name) for name in ("query", "key", "value", "attn_mask"))
    assert q is not None and k is not None and v is not None
    if n.get("dropout_p") or n.get("enable_gqa") or n.get("is_causal"):
        n.unsupported("attention with dropout, groups or a causal mask on a tensor whose size depends on data")
    size, order = value_of(q).shape[-1], list(range(rank_of(k)))
    scale = 1 / math.sqrt(size) if n.get("scale") is None else float(n["scale"])
    turned = onnx(n, "Transpose", k, perm=[*order[:-2], order[-1], order[-2]])
    scores = onnx(n, "MatMul", onnx(n, "Mul", q, n.scalar(scale, q.dtype)), turned)
    low = n.scalar(-math.inf, q.dtype)
    if mask is not None:
        scores = onnx(n, "Where", mask, scores, low) if mask.dtype is DType.BOOL else onnx(n, "Add", scores, mask)
    weights = onnx(n, "Softmax", scores, axis=-1)
    if mask is not None:
        best = onnx(n, "ReduceMax", scores, n.b.ints([-1]), keepdims=1)
        weights = onnx(n, "Where", onnx(n, "Greater", best, low), weights, n.scalar(0, q.dtype))
    return onnx(n, "MatMul", weights, v)


# -- windows ------------------------------------------------------------------------------------------
def batched(n: AtenNode, x: Tensor, rank: int) -> tuple[Tensor, bool]:
    """With an axis of batches, and whether it is new"""
    one = rank_of(x) == rank + 1
    return onnx(n, "Unsqueeze", x, n.b.ints([0])) if one else x, one


def unbatched(n: AtenNode, y: Tensor, one: bool) -> Tensor:
    return onnx(n, "Squeeze", y, n.b.ints([0])) if one else y


def convolution(n: AtenNode) -> Results:
    w, bias = tensor(n, "weight"), optional(n, "bias")
    rank = rank_of(w) - 2
    x, one = batched(n, tensor(n, "input"), rank)
    strides, pads, dilations = (n.ints(k, rank) for k in ("stride", "padding", "dilation"))
    attrs = {"strides": strides, "pads": pads + pads, "dilations": dilations, "group": n["groups"]}
    if n["transposed"]:
        y = onnx(n, "ConvTranspose", x, w, bias, output_padding=n.ints("output_padding", rank), **attrs)
    else:
        y = onnx(n, "Conv", x, w, bias, **attrs)
    return unbatched(n, y, one)


def pool(op: str, rank: int, places: bool = False) -> Reader:
    def read(n: AtenNode) -> Results:
        if n.get("divisor_override") is not None or places and 1 in n.needed:
            n.unsupported("pooling with a divisor or with places on a tensor whose size depends on data")
        x, one = batched(n, tensor(n), rank)
        kernel, pads = n.ints("kernel_size", rank), n.ints("padding", rank)
        strides = n.ints("stride", rank) or kernel
        more = {"count_include_pad": int(n["count_include_pad"])} if op == "AveragePool" else {
            "dilations": n.ints("dilation", rank)}
        y = onnx(n, op, x, kernel_shape=kernel, strides=strides, pads=pads + pads, ceil_mode=int(n["ceil_mode"]),
                 **more)
        return [unbatched(n, y, one), None] if places else unbatched(n, y, one)

    return read


# -- norms and spreads --------------------------------------------------------------------------------
def layer_norm(n: AtenNode) -> Results:
    """Over as many last axes as sizes are given"""
    x, shape, scale = tensor(n, "input"), n["normalized_shape"], optional(n, "weight")
    scale = n.b.const(np.ones(1, x.dtype.numpy)) if scale is None else scale
    return onnx(n, "LayerNormalization", x, scale, n["bias"], axis=rank_of(x) - len(shape), epsilon=float(n["eps"]))


def group_norm(n: AtenNode) -> Results:
    x = tensor(n, "input")
    ones = np.ones(value_of(x).shape[1], x.dtype.numpy)
    scale, bias = optional(n, "weight"), optional(n, "bias")
    y = onnx(n, "GroupNormalization", x, n.b.const(ones) if scale is None else scale,
             n.b.const(ones * 0) if bias is None else bias, epsilon=float(n["eps"]),
             num_groups=n["group" if "group" in n.args else "num_groups"])
    if n.needed & {1, 2}:
        n.unsupported("the mean of a group norm on a tensor whose size depends on data")
    return y if n.op == "group_norm.default" else [y, None, None]


def batch_norm(n: AtenNode) -> Results:
    """By statistics that are given"""
    x = tensor(n, "input")
    ones = np.ones(value_of(x).shape[1] if rank_of(x) > 1 else 1, x.dtype.numpy)
    scale, bias = optional(n, "weight"), optional(n, "bias")
    if n.get("training") or n.get("running_mean") is None:
        n.unsupported("a batch norm by what it reads of a tensor whose size depends on data")
    y = onnx(n, "BatchNormalization", x, n.b.const(ones) if scale is None else scale,
             n.b.const(ones * 0) if bias is None else bias, tensor(n, "running_mean"), tensor(n, "running_var"),
             epsilon=float(n["eps"]))
    return y if n.op == "batch_norm.default" else [y, None, None]


def axes_of(n: AtenNode, x: Tensor) -> list[int]:
    given = n.get("dim")
    named: Sequence[int] = [given] if isinstance(given, int) else given or range(rank_of(x))
    return [n.axis_of(a, rank_of(x)) for a in named]


def spread(root: bool, both: bool = False) -> Reader:
    """The variance of what is there, or its root; and the mean beside it"""
    def read(n: AtenNode) -> Results:
        x = tensor(n)
        axes, keep = axes_of(n, x), int(bool(n.get("keepdim")))
        mean = onnx(n, "ReduceMean", x, n.b.ints(axes), keepdims=1)
        apart = onnx(n, "Sub", x, mean)
        total = onnx(n, "ReduceSum", onnx(n, "Mul", apart, apart), n.b.ints(axes), keepdims=keep)
        y = onnx(n, "Div", total, n.one("Max", *_left(n, x, axes)))
        y = onnx(n, "Sqrt", y) if root else y
        return [y, mean if keep else onnx(n, "Squeeze", mean, n.b.ints(axes))] if both else y

    return read


def _left(n: AtenNode, x: Tensor, axes: Sequence[int]) -> tuple[Value, Value]:
    """How many entries there are, less the correction; and 0"""
    sizes = [s for k, s in enumerate(sizes_of(n, x)) if k in axes]
    count = n.b.const(np.int64(1))
    for s in sizes:
        count = n.one("Mul", count, s.value if isinstance(s, DataNumber) else n.b.const(np.int64(s)))
    wide = n.cast(count, x.dtype)
    return n.one("Sub", wide, n.scalar(correction_of(n), x.dtype)), n.scalar(0, x.dtype)


def length(n: AtenNode) -> Results:
    """Of vectors, as a root of squares or a sum of what they are without signs"""
    p, x = n.get("ord") if "ord" in n.args else n.get("p"), tensor(n)
    kinds = {2.0: "ReduceL2", 1.0: "ReduceL1"}
    power = 2.0 if p is None else float(p)
    if power not in kinds:
        n.unsupported(f"a norm of order {power} of a tensor whose size depends on data")
    return onnx(n, kinds[power], cast(n, x, n.out), n.b.ints(axes_of(n, x)), keepdims=int(bool(n.get("keepdim"))))


def logsumexp(n: AtenNode) -> Results:
    x = cast(n, tensor(n), n.out)
    return onnx(n, "ReduceLogSumExp", x, as_list(n, axes_of(n, x)), keepdims=int(bool(n.get("keepdim"))))


SIZED: dict[str, Reader] = {
    "mm.default": product("self", "mat2"), "bmm.default": product("self", "mat2"),
    "matmul.default": product("self", "other"), "mv.default": product("self", "vec"),
    "dot.default": product("self", "tensor"), "linear.default": linear, "addmm.default": added("mat1", "mat2"),
    "baddbmm.default": added("batch1", "batch2"), "addmv.default": added("mat", "vec"), "outer.default": outer,
    "scaled_dot_product_attention.default": attention, "convolution.default": convolution,
    **{f"avg_pool{k}d.default": pool("AveragePool", k) for k in (1, 2, 3)},
    **{f"max_pool{k}d.default": pool("MaxPool", k) for k in (1, 2, 3)},
    **{f"max_pool{k}d_with_indices.default": pool("MaxPool", k, places=True) for k in (1, 2, 3)},
    "layer_norm.default": layer_norm, "native_layer_norm.default": lambda n: [layer_norm(n), None, None],
    "batch_norm.default": batch_norm, "_native_batch_norm_legit_no_training.default": batch_norm,
    "group_norm.default": group_norm, "native_group_norm.default": group_norm,
    **{f"var.{k}": spread(False) for k in ("correction", "dim", "default")},
    **{f"std.{k}": spread(True) for k in ("correction", "dim", "default")},
    **{f"{name}_mean.{k}": spread(name == "std", both=True) for name in ("var", "std") for k in ("correction", "dim")},
    "linalg_vector_norm.default": length, "norm.ScalarOpt_dim": length, "logsumexp.default": logsumexp,
}  # fmt: skip
