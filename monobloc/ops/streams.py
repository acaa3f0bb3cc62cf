"""Residual streams of several branches (`com.microsoft`): mixed before and after a block, gated, and normalized each.

Streams are [.., C, H], or [.., C * H] with `num_branches` C. All of it is computed in float32 and rounded once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from monobloc.ir.graph import Value
from monobloc.ir.types import DType
from monobloc.ops import OpDef
from monobloc.ops.build import cast_to
from monobloc.ops.fused_norm import inverse_rms

F32 = DType.F32


# -- shared -------------------------------------------------------------------------------------------
def rounded(b: Any, y: Value, to: DType, shape: Sequence[int]) -> Any:
    return cast_to(b, b.one("Reshape", y, shape=list(shape)), to)


def branches(b: Any, n: Any, x: Value) -> Any:
    """[.., C, H] in float32"""
    count = int(n.attrs.get("num_branches", 0))
    if count < 0 or x.type.rank < (1 if count else 2) or (count and x.shape[-1] % count):
        n.fail(f"{x.type} does not part into {count or 'its'} branches",
               hint="streams are [.., C, H], or [.., C * H] with num_branches C")
    x = cast_to(b, x, F32)
    return b.one("Reshape", x, shape=[*x.shape[:-1], count, x.shape[-1] // count]) if count else x


def gates(b: Any, n: Any, gate: Value, like: Value) -> Any:
    """Gates [.., C], [.., C, 1], [.., C, H] or [.., C * H] so that they multiply streams [.., C, H]"""
    *outer, count, size = like.shape
    for shape, to in (
        ([*outer, count, size], [*outer, count, size]), ([*outer, count, 1], [*outer, count, 1]),
        ([*outer, count], [*outer, count, 1]), ([*outer, count * size], [*outer, count, size]),
    ):
        if list(gate.shape) == shape:
            return b.one("Reshape", cast_to(b, gate, F32), shape=to)
    n.fail(f"gates {gate.type} do not fit streams of {list(like.shape)}",
           hint="gates are [.., C], [.., C, 1], [.., C, H] or [.., C * H]")


def normalized(b: Any, x: Value, scale: Value | None, epsilon: float) -> Any:
    """RMSNormalization over the last axis, by a scale that is broadcast"""
    y = b.one("Mul", x, inverse_rms(b, x, [x.type.rank - 1], epsilon))
    return y if scale is None else b.one("Mul", y, scale)


# -- operators ----------------------------------------------------------------------------------------
class BranchwiseRMSNorm(OpDef):
    """RMSNormalization of each branch by itself"""

    name = "BranchwiseRMSNorm"
    domain = "com.microsoft"

    def from_onnx(self, b: Any, n: Any) -> Sequence[Value | None]:
        x, scale = n.inputs[0], n.input(1)
        parts = branches(b, n, x)
        count, size = parts.shape[-2:]
        if scale is not None:
            if scale.shape not in ((count * size,), (count, size), (size,)):
                n.fail(f"the scale {scale.type} does not fit {count} branches of {size}",
                       hint="it is [C * H], [C, H] or [H]")
            scale = b.one("Reshape", cast_to(b, scale, F32), shape=[-1, size] if scale.type.size != size else [size])
        y = normalized(b, parts, scale, float(n.attrs.get("epsilon", 1e-5)))
        return [rounded(b, y, x.dtype, x.shape)]


class HyperConnectionPreMix(OpDef):
    """One tensor out of all streams: reduction_scale * the sum over branches of streams * pre_mix"""

    name = "HyperConnectionPreMix"
    domain = "com.microsoft"

    def from_onnx(self, b: Any, n: Any) -> Sequence[Value | None]:
        x, mix = n.inputs
        streams = branches(b, n, x)
        mixed = b.one("Mul", streams, gates(b, n, mix, streams))
        y = b.one("ReduceSum", mixed, axes=[streams.type.rank - 2], keepdims=0)
        scale = float(n.attrs.get("reduction_scale", 1.0))
        y = y if scale == 1 else b.one("Mul", y, b.const(scale, F32))
        return [rounded(b, y, x.dtype, y.shape)]


class HyperConnectionPostMix(OpDef):
    """stream_mix' times the streams, and a block's output times post_mix on each of them"""

    name = "HyperConnectionPostMix"
    domain = "com.microsoft"

    def from_onnx(self, b: Any, n: Any) -> Sequence[Value | None]:
        x, block, post, mix = [*n.inputs, None][:4]
        streams = branches(b, n, x)
        *outer, count, size = streams.shape
        if list(block.shape) != [*outer, size] or (mix is not None and list(mix.shape) != [*outer, count, count]):
            n.fail(f"streams of {list(streams.shape)} with a block's {block.type} and a mix of {mix and mix.type}",
                   hint="the block's output is [.., H], the mix [.., C, C]")
        if mix is not None:
            axes = list(range(mix.type.rank))
            turned = b.one("Transpose", cast_to(b, mix, F32), perm=[*axes[:-2], axes[-1], axes[-2]])
            streams = b.one("MatMul", turned, streams)
        new = b.one("Reshape", cast_to(b, block, F32), shape=[*outer, 1, size])
        y = b.one("Add", streams, b.one("Mul", gates(b, n, post, streams), new))
        return [rounded(b, y, x.dtype, x.shape)]


class EngramGate(OpDef):
    """value * sigmoid(signed root of the product of key and query, both normalized), for each stream"""

    name = "EngramGate"
    domain = "com.microsoft"

    def from_onnx(self, b: Any, n: Any) -> Sequence[Value | None]:
        key, query, value, *scales = (cast_to(b, v, F32) for v in n.inputs if v is not None)
        to, epsilon = n.inputs[0].dtype, float(n.attrs.get("epsilon", 1e-5))
        if key.type.rank != 4 or query.shape != key.shape or value.shape != (*key.shape[:2], key.shape[3]):
            n.fail(f"keys {key.type}, queries {query.type} and values {value.type} do not fit together",
                   hint="keys and queries are [batch, sequence, C, H], values [batch, sequence, H]")
        if any(s.shape != key.shape[2:] for s in scales):
            n.fail(f"scales {[str(s.type) for s in scales]} are not all {list(key.shape[2:])}")
        k, q = (normalized(b, x, s, epsilon) for x, s in zip((key, query), scales, strict=False))
        dot = b.one("ReduceSum", b.one("Mul", k, q), axes=[3], keepdims=1)
        dot = b.one("Mul", dot, b.const(1 / float(key.shape[3]) ** 0.5, F32))
        root = b.one("Sqrt", b.one("Max", b.one("Abs", dot), b.const(1e-6, F32)))
        gate = b.one("Sigmoid", b.one("Mul", b.one("Sign", dot), root))
        y = b.one("Mul", gate, b.one("Reshape", value, shape=[*value.shape[:2], 1, value.shape[2]]))
        out = [rounded(b, y, to, y.shape)]
        if n.n_outputs > 1:
            if len(scales) < 3:
                n.fail("its second output needs conv_norm_scale")
            out.append(rounded(b, normalized(b, y, scales[2], epsilon), to, y.shape))
        return out
