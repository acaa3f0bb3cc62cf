"""Convolutions, pooling and recurrences along axes whose size data decide.

A convolution pads with zeros, so zeros behind what is there are the padding that it asks for, and more of it; the
first entries of its result are right in any room. A maximum takes the lowest number there, and a recurrence the size
as the length of its sequences.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from monobloc.frontend.extents import Extents, Tensor
from monobloc.frontend.node import OnnxNode
from monobloc.frontend.sized_folds import Found, lowest, mean, wide
from monobloc.ir.graph import Value
from monobloc.ir.types import DType
from monobloc.ops import OpDef
from monobloc.ops.sized import Ragged


def _spatial(n: OnnxNode) -> Ragged | None:
    """The tensor of a node all of whose other inputs have fixed sizes, and whose channels are fixed"""
    x: Any = n.inputs[0]
    rest: Sequence[Any] = n.inputs[1:]
    fits = isinstance(x, Ragged) and not any(isinstance(v, Ragged) for v in rest) and 1 not in x.counts
    return x if fits else None


def _window(n: OnnxNode, kernel: Sequence[int], k: int) -> tuple[int, int, int]:
    """(taps from first to last, stride, pads of both sides) along spatial axis k"""
    dims = len(kernel)
    dilation, stride = (list(n.attrs.get(a) or [1] * dims)[k] for a in ("dilations", "strides"))
    pads = list(n.attrs.get("pads") or [0] * (2 * dims))
    return dilation * (kernel[k] - 1) + 1, stride, pads[k] + pads[dims + k]


def _sized(e: Extents, x: Ragged, made: Value, sizes: dict[int, Value]) -> Tensor:
    """A result, batches and spatial axes of which have these sizes"""
    counts = {0: x.counts[0]} if 0 in x.counts else {}
    return e.tensor(made, {**counts, **sizes})


def conv(e: Extents, op: OpDef, n: OnnxNode) -> Found:
    x, w = _spatial(n), n.inputs[1]
    if x is None or w is None or n.attrs.get("auto_pad", "NOTSET") not in ("NOTSET", "VALID"):
        return None
    kernel = n.attrs.get("kernel_shape") or list(w.shape[2:])
    made = op.from_onnx(e.b, replace(n, inputs=[e.masked(x, 0, [a for a in x.counts if a]), *n.inputs[1:]]))[0]
    assert made is not None
    sizes = {a: _slides(e, n, c, kernel, a, made.shape[a]) for a, c in x.counts.items() if a > 1}
    return [_sized(e, x, made, sizes)]


def _slides(e: Extents, n: OnnxNode, size: Value, kernel: Sequence[int], axis: int, room: int) -> Value:
    """How often a window fits; a run where it does not at all is an error"""
    taps, stride, pads = _window(n, kernel, axis - 2)
    over = e.bounded(e.add(size, e.const(pads - taps)), 1 << 40)
    return e.limits.size(e.add(e.div(over, e.const(stride)), e.const(1)), room)


def conv_transpose(e: Extents, op: OpDef, n: OnnxNode) -> Found:
    x, w = _spatial(n), n.inputs[1]
    plain = n.attrs.get("auto_pad", "NOTSET") in ("NOTSET", "VALID") and "output_shape" not in n.attrs
    if x is None or w is None or not plain:
        return None
    kernel = n.attrs.get("kernel_shape") or list(w.shape[2:])
    more = n.attrs.get("output_padding") or [0] * len(kernel)
    made = op.from_onnx(e.b, replace(n, inputs=[e.masked(x, 0, [a for a in x.counts if a]), *n.inputs[1:]]))[0]
    assert made is not None
    sizes = {}
    for a, c in x.counts.items():
        if a > 1:
            taps, stride, pads = _window(n, kernel, a - 2)
            total = e.add(e.mul(e.sub(c, e.const(1)), e.const(stride)), e.const(taps - pads + more[a - 2]))
            sizes[a] = e.bounded(total, made.shape[a])
    return [_sized(e, x, made, sizes)]


def pool(e: Extents, op: OpDef, n: OnnxNode) -> Found:
    x = _spatial(n)
    usual = n.attrs.get("auto_pad", "NOTSET") in ("NOTSET", "VALID") and not n.attrs.get("ceil_mode", 0)
    if x is None or not usual or n.n_outputs > 1:
        return None
    kernel, spatial = n.attrs["kernel_shape"], [a for a in x.counts if a > 1]
    average = n.op == "AveragePool"
    if average and spatial and any(n.attrs.get("pads") or []) and not n.attrs.get("count_include_pad", 0):
        made = _counted(e, op, n, x, spatial)
    else:
        made = _pooled(e, op, n, e.masked(x, 0 if average else lowest(x.dtype), spatial))
    return [_sized(e, x, made, {a: _slides(e, n, x.counts[a], kernel, a, made.shape[a]) for a in spatial})]


def _pooled(e: Extents, op: OpDef, n: OnnxNode, x: Value) -> Value:
    made = op.from_onnx(e.b, replace(n, inputs=[x]))[0]
    assert made is not None
    return made


def _counted(e: Extents, op: OpDef, n: OnnxNode, x: Ragged, spatial: Sequence[int]) -> Value:
    """The mean of what is there alone: that with zeros counted, by the part of the window that is there"""
    n = replace(n, attrs={**n.attrs, "count_include_pad": 1})
    there = e.b.const(True)
    for axis in spatial:
        there = e.b.one("And", there, e.there(x, axis))
    ones = e.b.one("Expand", e.cast(there, wide(x)), shape=[1, 1, *x.value.shape[2:]])
    total = _pooled(e, op, n, e.cast(e.masked(x, 0, spatial), wide(x)))
    return e.cast(e.b.one("Div", total, _pooled(e, op, n, ones)), x.dtype)


def global_pool(e: Extents, op: OpDef, n: OnnxNode) -> Found:
    x = _spatial(n)
    if x is None:
        return None
    spatial = [a for a in x.counts if a > 1]
    one = {a: e.const(1) for a in spatial}
    if n.op == "GlobalMaxPool":
        made = op.from_onnx(e.b, replace(n, inputs=[e.masked(x, lowest(x.dtype), spatial)]))[0]
        return None if made is None else [_sized(e, x, made, one)]
    return [_sized(e, x, e.cast(mean(e, x, range(2, x.value.type.rank)), x.dtype), one)]


def recurrent(e: Extents, op: OpDef, n: OnnxNode) -> Found:
    """Along time, which all sequences of the batch have the same of"""
    x: Any = n.inputs[0]
    rest: Sequence[Any] = n.inputs[1:]
    time = 1 if n.attrs.get("layout", 0) else 0
    if not isinstance(x, Ragged) or set(x.counts) != {time} or any(isinstance(v, Ragged) for v in rest) or (
            n.input(4) is not None):
        return None
    batch = x.value.shape[1 - time]
    length = e.b.one("Cast", e.b.one("Expand", x.counts[time], shape=[batch]), to=DType.I32)
    inputs = [x.value, *n.inputs[1:4], *[None] * (4 - len(n.inputs)), length, *n.inputs[5:]]
    made = op.from_onnx(e.b, replace(n, inputs=inputs))
    sizes = {time: x.counts[time]}
    return [v if k or v is None else e.tensor(v, sizes) for k, v in enumerate(made)]


WINDOWS = {
    "Conv": conv, "ConvTranspose": conv_transpose, "MaxPool": pool, "AveragePool": pool,
    "GlobalAveragePool": global_pool, "GlobalMaxPool": global_pool,
    "LSTM": recurrent, "GRU": recurrent, "RNN": recurrent,
}  # fmt: skip
