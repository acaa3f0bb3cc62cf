"""Normalizations with what onnxruntime's optimizer fuses round them: skips, biases, embeddings, activations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from monobloc.ir.graph import Value
from monobloc.ir.types import DType
from monobloc.ops import OpDef
from monobloc.ops.build import cast_to, channels_first, channels_last, read_as
from monobloc.ops.fused import plus, silu
from monobloc.ops.qlinear import real
from monobloc.ops.reduce import wide

F32 = DType.F32


def inverse_rms(b: Any, x: Value, axes: list[int], epsilon: float) -> Value:
    """1 / sqrt(mean(x^2) + epsilon), in the type that sums are made in"""
    x = cast_to(b, x, wide(x.dtype))
    mean = b.one("ReduceMean", b.one("Mul", x, x), axes=axes, keepdims=1)
    return b.one("Reciprocal", b.one("Sqrt", b.one("Add", mean, b.const(epsilon, x.dtype))))


class SimplifiedLayerNormalization(OpDef):
    """RMSNormalization by the name it had before ONNX had one"""

    name = "SimplifiedLayerNormalization"

    def from_onnx(self, b: Any, n: Any) -> Sequence[Value | None]:
        x, scale = n.inputs
        if scale.dtype is not x.dtype:
            n.unsupported(f"a scale of {scale.dtype.value} for an input of {x.dtype.value}")
        y = read_as(b, n, "RMSNormalization", [x, scale], 23, **n.attrs)
        axis = int(n.attrs.get("axis", -1)) % x.type.rank
        more = [inverse_rms(b, x, list(range(axis, x.type.rank)), float(n.attrs.get("epsilon", 1e-5)))]
        return [y, *(more if n.n_outputs > 1 else [])]


class SkipLayerNormalization(OpDef):
    """LayerNormalization(input + skip + bias) over the last axis; the sum is the fourth output"""

    name = "SkipLayerNormalization"
    domain = "com.microsoft"

    def from_onnx(self, b: Any, n: Any) -> Sequence[Value | None]:
        x, skip, gamma, beta, bias = [*n.inputs, None, None][:5]
        total = plus(b, x, skip, bias)
        attrs = {"axis": x.type.rank - 1, "epsilon": float(n.attrs.get("epsilon", 1e-12))}
        y = b.emit("LayerNormalization", [total, gamma, beta], attrs, outputs=min(n.n_outputs, 3))
        return [*y, *[None] * (3 - len(y)), total]


class SkipSimplifiedLayerNormalization(OpDef):
    """RMSNormalization(input + skip + bias) over the last axis; the sum is the fourth output"""

    name = "SkipSimplifiedLayerNormalization"
    domain = "com.microsoft"

    def from_onnx(self, b: Any, n: Any) -> Sequence[Value | None]:
        x, skip, gamma, bias = [*n.inputs, None][:4]
        total = plus(b, x, skip, bias)
        axis, epsilon = x.type.rank - 1, float(n.attrs.get("epsilon", 1e-12))
        y = b.one("RMSNormalization", total, gamma, axis=axis, epsilon=epsilon)
        return [y, None, inverse_rms(b, total, [axis], epsilon) if n.n_outputs > 2 else None, total]


class EmbedLayerNormalization(OpDef):
    """LayerNormalization of the sum of embeddings of words, positions and segments"""

    name = "EmbedLayerNormalization"
    domain = "com.microsoft"

    def from_onnx(self, b: Any, n: Any) -> Sequence[Value | None]:
        ids, segments, words, places, kinds, gamma, beta, mask, at = [*n.inputs, None, None][:9]
        if ids.type.rank != 2:
            n.fail(f"input ids are {ids.type}, must be [batch, sequence]")
        at = b.counted(ids.shape[1]) if at is None else at
        read = [(words, ids), (places, at), (kinds, segments)]
        rows = [read_as(b, n, "Gather", [t, k], axis=0) for t, k in read if t is not None and k is not None]
        return self.summed(b, n, rows, gamma, beta, mask)

    def summed(self, b: Any, n: Any, rows: list[Value], gamma: Value, beta: Value, mask: Value | None) -> list[Value]:
        total = plus(b, *rows)
        attrs = {"axis": 2, "epsilon": float(n.attrs.get("epsilon", 1e-12))}
        y = b.emit("LayerNormalization", [total, gamma, beta], attrs)[0]
        return [y, self._lengths(b, n.inputs[0], mask), total]

    def _lengths(self, b: Any, ids: Value, mask: Value | None) -> Value:
        """How many elements of each row of the mask are 1"""
        if mask is None:
            return b.one("Expand", b.const(0, DType.I32), shape=[ids.shape[0]])
        ones = b.one("Cast", b.one("Equal", mask, b.const(1, mask.dtype)), to=DType.I32)
        return b.one("ReduceSum", ones, axes=[1], keepdims=0)


class QEmbedLayerNormalization(EmbedLayerNormalization):
    """The same of tables of bytes, one scale and zero point for each: only the rows that are read become floats."""

    name = "QEmbedLayerNormalization"

    def from_onnx(self, b: Any, n: Any) -> Sequence[Value | None]:
        tables, mask, scales, zeros = n.inputs[2:7], n.inputs[7], n.inputs[8:13], n.inputs[13:18]
        scaled = list(zip(tables, scales, zeros, strict=True))
        gamma, beta = (real(b, n, *t) for t in scaled[3:])
        ids, segments = n.inputs[:2]
        at = [ids, b.counted(ids.shape[-1]), segments]
        rows = [real(b, n, read_as(b, n, "Gather", [t, k], axis=0), s, z)
                for (t, s, z), k in zip(scaled[:3], at, strict=True) if t is not None and k is not None]
        return self.summed(b, n, rows, gamma, beta, mask)


class GatedRMSNorm(OpDef):
    """RMSNormalization in groups of as many elements as the scale has, times the activation of a gate; in float32"""

    name = "GatedRMSNorm"
    domain = "com.microsoft"

    def from_onnx(self, b: Any, n: Any) -> Sequence[Value | None]:
        x, scale, gate = (cast_to(b, v, F32) for v in n.inputs)
        size, name = scale.type.size, n.attrs.get("activation", "silu")
        if scale.type.rank != 1 or not x.type.rank or x.shape[-1] % max(size, 1) or gate.shape != x.shape:
            n.fail(f"normalizes {x.type} in groups of {list(scale.shape)}, with the gate {gate.type}",
                   hint="the scale has one axis whose size divides the input's last, the gate the input's shape")
        if name not in ("silu", "swish", "sigmoid"):
            n.fail(f"has the unknown activation {name!r}, must be silu, swish or sigmoid")
        groups = b.one("Reshape", x, shape=[*x.shape[:-1], x.shape[-1] // size, size])
        epsilon = float(n.attrs.get("epsilon", 1e-5))
        y = b.one("RMSNormalization", groups, scale, axis=x.type.rank, epsilon=epsilon)
        gate = b.one("Sigmoid", gate) if name == "sigmoid" else silu(b, gate)
        y = b.one("Mul", b.one("Reshape", y, shape=list(x.shape)), gate)
        return [cast_to(b, y, n.inputs[0].dtype)]


class GroupNorm(OpDef):
    """GroupNormalization of channels that may be last, with SiLU; SkipGroupNorm adds a skip and a bias before"""

    name = "GroupNorm"
    domain = "com.microsoft"
    aliases = ("SkipGroupNorm",)

    def from_onnx(self, b: Any, n: Any) -> Sequence[Value | None]:
        x, gamma, beta, skip, bias = [*n.inputs, None, None, None][:5]
        last = bool(n.attrs.get("channels_last", 1))
        channels = x.shape[-1 if last else 1]
        around = [1] * (x.type.rank - 2)
        shift = bias and b.one("Reshape", bias, shape=[1, channels, *around])
        total = plus(b, *(self._placed(b, v, last, around) for v in (x, skip)), shift)
        work = cast_to(b, total, gamma.dtype)
        attrs = {"epsilon": float(n.attrs.get("epsilon", 1e-5)), "num_groups": int(n.attrs["groups"])}
        y = b.emit("GroupNormalization", [work, gamma, beta], attrs)[0]
        y = silu(b, y) if n.attrs["activation"] else y
        y = cast_to(b, y, x.dtype)
        out = [y, total] if n.op == "SkipGroupNorm" else [y]
        return [channels_last(b, v) if last else v for v in out]

    def _placed(self, b: Any, v: Value | None, last: bool, around: list[int]) -> Any:
        """With channels on the second axis; of two axes, one number per sample and channel"""
        if v is not None and v.type.rank == 2:
            return b.one("Reshape", v, shape=[*v.shape, *around])
        return channels_first(b, v) if v is not None and last else v
