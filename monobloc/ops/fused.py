"""What onnxruntime's optimizer fuses (`com.microsoft`): read as the operators it fused, which fuse here anew."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from monobloc.ir.graph import Value
from monobloc.ir.types import DType
from monobloc.ops import OpDef
from monobloc.ops.build import cast_to, channels_first, channels_last, read_as

F32 = DType.F32
# ONNX's operator and the names of its attributes, in the order in which their values are listed
ACTIVATIONS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("Relu", "Sigmoid", "Tanh", "Softplus", "Softsign", "HardSwish"), ()),
    "LeakyRelu": ("alpha",),
    "Elu": ("alpha",),
    "ThresholdedRelu": ("alpha",),
    "Clip": ("min", "max"),
    "HardSigmoid": ("alpha", "beta"),
    "Selu": ("alpha", "gamma"),
}


def activated(b: Any, n: Any, y: Value, name: str, values: Sequence[float]) -> Value:
    """An activation by its name, with values of its parameters; those that are not given are ONNX's defaults."""
    if not name:
        return y
    if name not in ACTIVATIONS:
        n.unsupported(f"the activation `{name}`", note=f"these are: {', '.join(sorted(ACTIVATIONS))}")
    given = dict(zip(ACTIVATIONS[name], (float(v) for v in values), strict=False))
    if name == "Clip":
        return b.one("Clip", y, *(b.const(v, y.dtype) for v in given.values()))
    return read_as(b, n, name, [y], 14, **given)


def gelu(b: Any, n: Any, x: Value, approximate: str = "none") -> Value:
    return read_as(b, n, "Gelu", [x], 20, approximate=approximate)


def silu(b: Any, x: Value) -> Value:
    return b.one("Mul", x, b.one("Sigmoid", x))


def plus(b: Any, x: Value, *addends: Value | None) -> Value:
    for v in addends:
        x = x if v is None else b.one("Add", x, v)
    return x


def without(n: Any, *names: str) -> dict[str, Any]:
    """The node's attributes but for some"""
    return {k: v for k, v in n.attrs.items() if k not in names}


# -- contractions -------------------------------------------------------------------------------------
class FusedConv(OpDef):
    """act(Conv(X, W, B) + Z); the NHWC forms have channels last"""

    name = "FusedConv"
    domain = "com.microsoft"
    aliases = ("NhwcConv", "NhwcFusedConv")

    def from_onnx(self, b: Any, n: Any) -> Sequence[Value | None]:
        x, w, bias, z = [*n.inputs, None, None][:4]
        last = n.op.startswith("Nhwc")
        x = channels_first(b, x) if last else x
        y = read_as(b, n, "Conv", [x, w, bias], **without(n, "activation", "activation_params"))
        y = plus(b, y, channels_first(b, z) if z is not None and last else z)
        y = activated(b, n, y, n.attrs.get("activation", ""), n.attrs.get("activation_params", ()))
        return [channels_last(b, y) if last else y]


class NhwcMaxPool(OpDef):
    name = "NhwcMaxPool"
    domain = "com.microsoft"

    def from_onnx(self, b: Any, n: Any) -> Sequence[Value | None]:
        return [channels_last(b, read_as(b, n, "MaxPool", [channels_first(b, n.inputs[0])], **n.attrs))]


class FusedMatMul(OpDef):
    """alpha * A' B'; `transBatch` moves the first axis behind the batch's"""

    name = "FusedMatMul"
    domain = "com.microsoft"
    aliases = ("TransposeMatMul", "FusedMatMulActivation")

    def from_onnx(self, b: Any, n: Any) -> Sequence[Value | None]:
        x, y = (self._placed(b, n, v, side) for v, side in zip(n.inputs, "AB", strict=True))
        out = read_as(b, n, "MatMul", [x, y])
        alpha = float(n.attrs.get("alpha", 1.0))
        out = out if alpha == 1 else b.one("Mul", out, b.const(alpha, out.dtype))
        if n.attrs.get("activation_axis", -1) != -1:
            n.unsupported("an activation along an axis")
        values = [n.attrs[k] for k in ("activation_alpha", "activation_beta", "activation_gamma") if k in n.attrs]
        return [activated(b, n, out, n.attrs.get("activation", ""), values)]

    def _placed(self, b: Any, n: Any, v: Value, side: str) -> Value:
        axes = list(range(v.type.rank))
        if n.attrs.get(f"transBatch{side}", 0) and len(axes) > 2:
            axes = [*axes[1:-1], 0, axes[-1]]
        if n.attrs.get(f"trans{side}", 0) and len(axes) > 1:
            axes[-2:] = axes[:-3:-1]
        return b.one("Transpose", v, perm=axes) if axes != sorted(axes) else v


class FusedGemm(OpDef):
    """act(Gemm)"""

    name = "FusedGemm"
    domain = "com.microsoft"

    def from_onnx(self, b: Any, n: Any) -> Sequence[Value | None]:
        mine = ("activation", "activation_alpha", "activation_beta", "activation_gamma")
        y = read_as(b, n, "Gemm", n.inputs, **without(n, *mine))
        values = [n.attrs[k] for k in mine[1:] if k in n.attrs]
        return [activated(b, n, y, n.attrs.get("activation", ""), values)]


class GemmFastGelu(OpDef):
    """FastGelu(X W + bias)"""

    name = "GemmFastGelu"
    domain = "com.microsoft"

    def from_onnx(self, b: Any, n: Any) -> Sequence[Value | None]:
        return [gelu(b, n, plus(b, read_as(b, n, "MatMul", n.inputs[:2]), n.input(2)), "tanh")]


# -- elementwise --------------------------------------------------------------------------------------
class BiasGelu(OpDef):
    """Gelu(A + B); Gelu of com.microsoft is ONNX's"""

    name = "BiasGelu"
    domain = "com.microsoft"
    aliases = ("Gelu",)

    def from_onnx(self, b: Any, n: Any) -> Sequence[Value | None]:
        return [gelu(b, n, plus(b, *n.inputs))]


class FastGelu(OpDef):
    """Gelu(X + bias) in its form with tanh"""

    name = "FastGelu"
    domain = "com.microsoft"

    def from_onnx(self, b: Any, n: Any) -> Sequence[Value | None]:
        return [gelu(b, n, plus(b, *n.inputs), "tanh")]


class QuickGelu(OpDef):
    """x * sigmoid(alpha * x)"""

    name = "QuickGelu"
    domain = "com.microsoft"

    def from_onnx(self, b: Any, n: Any) -> Sequence[Value | None]:
        x, alpha = n.inputs[0], float(n.attrs.get("alpha", 1.702))
        scaled = x if alpha == 1 else b.one("Mul", x, b.const(alpha, x.dtype))
        return [b.one("Mul", x, b.one("Sigmoid", scaled))]


class ScaledSiLU(OpDef):
    """z * sigmoid(z) of z = scale * X, rounded after each step; the scale is an input or `alpha`"""

    name = "ScaledSiLU"
    domain = "com.microsoft"

    def from_onnx(self, b: Any, n: Any) -> Sequence[Value | None]:
        x, scale = n.inputs[0], n.input(1)
        if scale is None:
            scale = b.const(n.attrs.get("alpha", 1.0), F32)
        elif scale.type.size != 1:
            n.fail(f"has the scale {scale.type}, which is not one number")
        scale = b.one("Reshape", scale, shape=[])
        z = b.one("Mul", *(cast_to(b, v, F32) for v in (x, scale)))
        return [silu(b, cast_to(b, z, x.dtype))]


class BiasAdd(OpDef):
    """X + bias + skip"""

    name = "BiasAdd"
    domain = "com.microsoft"

    def from_onnx(self, b: Any, n: Any) -> Sequence[Value | None]:
        return [plus(b, *n.inputs)]


class BiasSplitGelu(OpDef):
    """The left half of X + bias times Gelu of the right"""

    name = "BiasSplitGelu"
    domain = "com.microsoft"

    def from_onnx(self, b: Any, n: Any) -> Sequence[Value | None]:
        x = plus(b, *n.inputs)
        half = x.shape[-1] // 2
        left, right = (slice_last(b, n, x, k * half, (k + 1) * half) for k in (0, 1))
        return [b.one("Mul", left, gelu(b, n, right))]


def slice_last(b: Any, n: Any, x: Value, begin: int, end: int) -> Value:
    """Elements of the last axis"""
    return read_as(b, n, "Slice", [x, b.ints([begin]), b.ints([end]), b.ints([-1])])


class BiasSoftmax(OpDef):
    """Softmax(data + bias) over everything from `axis` on"""

    name = "BiasSoftmax"
    domain = "com.microsoft"

    def from_onnx(self, b: Any, n: Any) -> Sequence[Value | None]:
        x, bias = n.inputs
        axis = int(n.attrs.get("axis", 1)) % max(x.type.rank, 1)
        if not n.attrs["is_inner_broadcast"] and bias.type.rank < x.type.rank:
            ones = x.type.rank - axis
            shape = [1] * (x.type.rank - bias.type.rank) + list(bias.shape)
            if bias.type.rank > ones:
                n.unsupported(f"a bias of {list(bias.shape)} that is broadcast to {list(x.shape)}")
            bias = b.one("Reshape", bias, shape=shape)
        return [read_as(b, n, "Softmax", [b.one("Add", x, bias)], 11, axis=axis)]


class BiasDropout(OpDef):
    """data + bias + residual: nothing is dropped while inferring"""

    name = "BiasDropout"
    domain = "com.microsoft"
    aliases = ("BitmaskBiasDropout", "BitmaskDropout")

    def from_onnx(self, b: Any, n: Any) -> Sequence[Value | None]:
        plain = n.op == "BitmaskDropout"
        training = n.input(2 if plain else 4)
        if training is not None and (training.const is None or training.const.array.any()):
            n.unsupported("Dropout in training mode")
        if n.n_outputs > 1:
            n.unsupported("the mask of a Dropout")
        return [n.inputs[0] if plain else plus(b, n.inputs[0], n.inputs[1], n.input(2))]


# -- others -------------------------------------------------------------------------------------------
class CDist(OpDef):
    """Distances of all rows of A and all rows of B"""

    name = "CDist"
    domain = "com.microsoft"

    def from_onnx(self, b: Any, n: Any) -> Sequence[Value | None]:
        x, y = n.inputs
        metric = n.attrs.get("metric", "sqeuclidean")
        if metric not in ("euclidean", "sqeuclidean"):
            n.unsupported(f"the metric `{metric}`, which is neither euclidean nor sqeuclidean,")
        if x.type.rank != 2 or y.type.rank != 2 or x.shape[1] != y.shape[1]:
            n.fail(f"needs matrices of as many columns, got {x.type} and {y.type}")
        rows = b.one("Reshape", x, shape=[x.shape[0], 1, x.shape[1]])
        d = b.one("Sub", rows, b.one("Reshape", y, shape=[1, *y.shape]))
        squared = b.one("ReduceSum", b.one("Mul", d, d), axes=[2], keepdims=0)
        return [squared if metric == "sqeuclidean" else b.one("Sqrt", squared)]


class ExpandDims(OpDef):
    """Unsqueeze at one axis"""

    name = "ExpandDims"
    domain = "com.microsoft"

    def from_onnx(self, b: Any, n: Any) -> Sequence[Value | None]:
        axis = int(n.const(1).reshape(()))
        return [read_as(b, n, "Unsqueeze", [n.inputs[0], b.ints([axis])])]


class IsAllFinite(OpDef):
    """Whether all elements of all inputs are numbers; or only no NaN, or no infinity"""

    name = "IsAllFinite"
    domain = "com.microsoft"

    def from_onnx(self, b: Any, n: Any) -> Sequence[Value | None]:
        only = [f for f in ("IsNaN", "IsInf") if n.attrs.get({"IsNaN": "isnan_only", "IsInf": "isinf_only"}[f], 0)]
        total: Value | None = None
        for x in n.inputs:
            bad = b.const(np.zeros((), bool))
            for f in only or ("IsNaN", "IsInf"):
                bad = b.one("Or", bad, read_as(b, n, f, [x], 20))
            count = b.one("ReduceMax", b.one("Cast", bad, to=DType.I32), axes=list(range(x.type.rank)), keepdims=0)
            total = count if total is None else b.one("Max", total, count)
        assert total is not None
        # not Equal: the maximum of no elements is the lowest number
        return [b.one("Reshape", b.one("LessOrEqual", total, b.const(0, DType.I32)), shape=[])]


class GatedAdd(OpDef):
    """X + Y * gate, where the gate has one number for each row"""

    name = "GatedAdd"
    domain = "com.microsoft"

    def from_onnx(self, b: Any, n: Any) -> Sequence[Value | None]:
        x, y, gate = n.inputs[:3]
        if n.input(3) is not None:
            n.unsupported("GatedAdd with weights of its gate, which onnxruntime has for GPUs alone,")
        return [b.one("Add", x, b.one("Mul", y, gate))]


class UnfoldTensor(OpDef):
    """Windows of `size` entries every `step` along an axis; a window's entries are the last axis"""

    name = "UnfoldTensor"
    domain = "com.microsoft"

    def from_onnx(self, b: Any, n: Any) -> Sequence[Value | None]:
        x, size, step = n.inputs[0], int(n.attrs["size"]), int(n.attrs.get("step", 1))
        rank = x.type.rank
        axis = int(n.attrs.get("dim", -1))
        if not -rank <= axis < rank or step < 1 or not 0 < size <= x.shape[axis]:
            n.fail(f"has windows of {size} every {step} along axis {axis} of {x.type}",
                   hint="size and step are at least 1, and a window is no larger than its axis")
        axis %= rank
        at = np.arange(0, x.shape[axis] - size + 1, step)[:, None] + np.arange(size)
        y = read_as(b, n, "Gather", [x, b.const(at)], axis=axis)
        order = [k for k in range(rank + 1) if k != axis + 1]
        return [b.one("Transpose", y, perm=[*order, axis + 1])]


class ConvTransposeWithDynamicPads(OpDef):
    """ConvTranspose whose pads are an input"""

    name = "ConvTransposeWithDynamicPads"
    domain = "com.microsoft"

    def from_onnx(self, b: Any, n: Any) -> Sequence[Value | None]:
        pads = {} if n.input(2) is None else {"pads": n.ints(2)}
        return [read_as(b, n, "ConvTranspose", [*n.inputs[:2], n.input(3)], 11, **n.attrs, **pads)]


class SameAsOnnx(OpDef):
    """Operators that ONNX took over as they were, or with more types"""

    name = "com.microsoft::Trilu"
    aliases = tuple(f"com.microsoft::{x}" for x in ("Pad", "GatherND", "GridSample", "Range"))

    def from_onnx(self, b: Any, n: Any) -> Sequence[Value | None]:
        inputs = list(n.inputs)
        if n.op == "Range" and len(inputs) < 3:
            inputs.append(b.const(1, inputs[0].dtype))
        return [read_as(b, n, n.op, inputs, 16, **n.attrs)]
