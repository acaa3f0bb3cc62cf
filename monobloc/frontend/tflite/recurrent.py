"""UNIDIRECTIONAL_SEQUENCE_LSTM, in floats and in int8 with a cell state of int16.

The products with the input are made for all steps at once; `TflLstm` and `TflLstm8` do the rest. What the cell
holds after the last step is state: it is there in the next run.
"""

from __future__ import annotations

import math

import numpy as np

from monobloc.frontend.tflite.convs import _zero
from monobloc.frontend.tflite.node import Result, TflNode
from monobloc.frontend.tflite.scaling import TANH, multiplier
from monobloc.frontend.tflite.variables import start
from monobloc.ir.graph import Value
from monobloc.ir.types import DType
from monobloc.ops.movement import transpose
from monobloc.ops.quant import limits
from monobloc.ops.shape import reshape

F32, I8, I16, I32 = DType.F32, DType.I8, DType.I16, DType.I32
INPUT, RECURRENT, BIAS, HIDDEN, CELL = (1, 2, 3, 4), (5, 6, 7, 8), (12, 13, 14, 15), 18, 19
REFUSED = {"peepholes": (9, 10, 11), "a projection": (16, 17), "layer normalization": (20, 21, 22, 23)}


def lstm(n: TflNode) -> Result:
    _check(n)
    x = n.x(0)
    x = transpose(n.b, x, (1, 0, 2)) if n.options.flag(3) else x
    r = [n.x(k) for k in RECURRENT]
    hidden, cell = _state(n, HIDDEN), _state(n, CELL)
    kinds = {v.dtype for v in (x, *r)}
    if kinds == {F32}:
        outs = _floats(n, x, r, hidden, cell)
    elif kinds == {I8} and cell.dtype is I16:
        outs = _integers(n, x, r, hidden, cell)
    else:
        n.unsupported(f"{n.op} of {x.dtype.value} with weights of {r[0].dtype.value}")
    for k, v in ((HIDDEN, outs[1]), (CELL, outs[2])):
        n.states.now[_name(n, k)] = v
    return [transpose(n.b, outs[0], (1, 0, 2)) if n.options.flag(3) else outs[0]]


def _check(n: TflNode) -> None:
    for what, inputs in REFUSED.items():
        if any(n.has(k) for k in inputs):
            n.unsupported(f"{n.op} with {what}")
    if not n.has(1):
        n.unsupported(f"{n.op} whose input gate is the forget gate's rest")
    if n.options.whole(0, "b") != TANH:
        n.unsupported(f"{n.op} with the activation {n.options.whole(0, 'b')}")
    if n.x(0).type.rank != 3 or any(n.x(k).type.rank != 2 for k in (*INPUT, *RECURRENT)):
        n.fail(f"has an input of {n.x(0).type}, which must have rank 3, and weights of {n.x(1).type}")


def _name(n: TflNode, i: int) -> str:
    t = n.tensor(i)
    return f"{t.name or 'state'}.{t.index}"


def _state(n: TflNode, i: int) -> Value:
    """A variable tensor; integers start at their zero point."""
    name, t = _name(n, i), n.tensor(i)
    if name not in n.states.now:
        if n.quantized(i) and n.scale(t)[1]:
            n.states.start[name] = np.full(t.shape, n.scale(t)[1], np.int8)
        start(n, name, n.state_type(i))
    return n.states.now[name]


def _gates(n: TflNode, x: Value, product: str, zero: Value | None) -> Value:
    """Rows of all steps times the four gates' weights"""
    w = n.b.emit("Concat", [transpose(n.b, n.x(k), (1, 0)) for k in INPUT], {"axis": 1})[0]
    rows = reshape(n.b, x, [x.shape[0] * x.shape[1], x.shape[2]])
    return n.b.one(product, rows, w, *([] if product == "MatMul" else [zero, None]))


def _biased(n: TflNode, total: Value) -> Value:
    if not all(n.has(k) for k in BIAS):
        n.unsupported(f"{n.op} without biases")
    return n.b.one("Add", total, n.b.emit("Concat", [n.x(k) for k in BIAS], {"axis": 0})[0])


def _floats(n: TflNode, x: Value, r: list[Value], hidden: Value, cell: Value) -> list[Value]:
    gates = reshape(n.b, _biased(n, _gates(n, x, "MatMul", None)), [*x.shape[:2], -1])
    weights = n.b.emit("Concat", [transpose(n.b, v, (1, 0)) for v in r], {"axis": 1})[0]
    return n.b.emit("TflLstm", [gates, weights, hidden, cell], {"clip": n.options.real(1)}, 3)


def _integers(n: TflNode, x: Value, r: list[Value], hidden: Value, cell: Value) -> list[Value]:
    """Gates have 3 integer bits, so a scale of 2^-12."""
    b, unit = n.b, 2.0**-12
    (sx, _), (sh, zh), (sc, zc) = (n.scale(n.tensor(k)) for k in (0, HIDDEN, CELL))
    bits = 15 + round(math.log2(float(sc)))
    if zc or float(sc) != 2.0 ** (bits - 15) or not 0 <= bits <= 4 or any(n.scale(n.tensor(k))[1] for k in RECURRENT):
        n.unsupported(f"{n.op} with a cell state of scale {sc} and zero point {zc}")
    if n.scale(n.outs[0]) != (sh, zh):
        n.unsupported(f"{n.op} whose result and state have different scales")
    size = r[0].shape[0]
    ways = [[multiplier(float(np.float64(np.float32(n.scale(n.tensor(k))[0] * s))) / unit) for k in group]
            for group, s in ((INPUT, sx), (RECURRENT, sh))]
    total = _biased(n, _gates(n, x, "MatMulInteger", _zero(n, 0, x)))
    lo, hi = limits(I16)
    scales = [b.const(np.repeat([way[k] for way in ways[0]], size), I32) for k in (0, 1)]
    gates = b.emit("TflRescale", [total, *scales], {"zero_in": 0, "left": 0, "zero": 0, "lo": lo, "hi": hi,
                                                    "to": I16})[0]
    hm, hs = multiplier(2.0**-15 / float(_hidden_scale(n)) * 2.0**-15)
    clip = n.options.real(1)
    attrs = {"m": [m for m, _ in ways[1]], "s": [s for _, s in ways[1]], "hm": hm, "hs": hs, "hz": zh, "zero": zh,
             "bits": bits, "clip": int(min(max(clip / float(sc), lo), hi)) if clip > 0 else 0}
    weights = b.emit("Concat", r, {"axis": 0})[0]
    return b.emit("TflLstm8", [reshape(b, gates, [*x.shape[:2], -1]), weights, hidden, cell], attrs, 3)


def _hidden_scale(n: TflNode) -> np.float32:
    """Of the result before a projection: the last intermediate tensor's, where there is one"""
    last = n.intermediates[4] if len(n.intermediates) > 4 else None
    return n.scale(last if last is not None and last.quantization is not None else n.tensor(HIDDEN))[0]


READERS = {"UNIDIRECTIONAL_SEQUENCE_LSTM": lstm}
