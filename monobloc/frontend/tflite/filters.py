"""Plain recurrent cells (RNN and its two sequences), and SVDF, a filter over the last steps.

In floats, and in floats with int8 weights; SVDF also in int8 with a state of int16 or int8. State lasts from run to
run.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from monobloc.frontend.tflite.arithmetic import rescale
from monobloc.frontend.tflite.convs import _zero
from monobloc.frontend.tflite.hybrid import rows_times
from monobloc.frontend.tflite.node import Result, TflNode
from monobloc.frontend.tflite.recurrent import _activation, _backwards, _name, _of_rank, _scale_of, _state
from monobloc.frontend.tflite.scaling import TANH
from monobloc.ir.graph import Value
from monobloc.ir.types import DType
from monobloc.ops.movement import slice_of, transpose
from monobloc.ops.quant import limits
from monobloc.ops.shape import reshape

F32, I8, I16, I32 = DType.F32, DType.I8, DType.I16, DType.I32


# -- plain cells --------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Places:
    """Which inputs are what; `more`: weights of a second input"""

    weights: int = 1
    recurrent: int = 2
    bias: int = 3
    hidden: int = 4
    more: int | None = None


def _cell(n: TflNode, x: Value, added: Value | None, p: Places, act: str, asymmetric: bool) -> Value:
    b, r = n.b, n.x(p.recurrent)
    hidden = _state(n, p.hidden, (x.shape[0], *r.shape[:1]))
    if x.dtype is not F32 or r.dtype not in (F32, I8) or n.x(p.weights).dtype is not r.dtype:
        n.unsupported(f"{n.op} of {x.dtype.value} with weights of {n.x(p.weights).dtype.value}")
    sums = _sums(n, x, p.weights, asymmetric)
    if added is not None and p.more is not None:
        sums = b.one("Add", sums, _sums(n, added, p.more, asymmetric))
    gates = reshape(b, b.one("Add", sums, n.x(p.bias)), [*x.shape[:2], r.shape[0]])
    attrs = {"act": act, "scales": [_scale_of(n, p.recurrent)], "asymmetric": int(asymmetric)}
    y, last = b.emit("TflRnn", [gates, r, hidden], attrs, 2)
    n.states.now[_name(n, p.hidden)] = last
    return y


def _sums(n: TflNode, x: Value, place: int, asymmetric: bool) -> Value:
    rows, w = reshape(n.b, x, [x.shape[0] * x.shape[1], x.shape[2]]), transpose(n.b, n.x(place), (1, 0))
    if w.dtype is F32:
        return n.b.one("MatMul", rows, w)
    return rows_times(n.b, rows, w, n.quant(n.tensor(place)).scale, asymmetric)


def rnn(n: TflNode) -> Result:
    x = _of_rank(n, 2)
    y = _cell(n, reshape(n.b, x, [x.shape[0], 1, x.shape[1]]), None, Places(), _activation(n, 0), n.options.flag(1))
    return [reshape(n.b, y, [y.shape[0], y.shape[2]])]


def sequence(n: TflNode) -> Result:
    x, turned = _of_rank(n, 3), n.options.flag(0)
    y = _cell(n, transpose(n.b, x, (1, 0, 2)) if turned else x, None, Places(), _activation(n, 1), n.options.flag(2))
    return [transpose(n.b, y, (1, 0, 2)) if turned else y]


def both_ways(n: TflNode) -> Result:
    turned, act, asymmetric = n.options.flag(0), _activation(n, 1), n.options.flag(3)
    x = _of_rank(n, 3)
    x = transpose(n.b, x, (1, 0, 2)) if turned else x
    other = n.x(9) if n.has(9) else None
    other = transpose(n.b, other, (1, 0, 2)) if other is not None and turned else other
    added = other if n.has(10) else None
    second = x if other is None or added is not None else other
    there = _cell(n, x, added, Places(more=10), act, asymmetric)
    more = None if added is None else _backwards(n, added)
    back = _backwards(n, _cell(n, _backwards(n, second), more, Places(5, 6, 7, 8, 11), act, asymmetric))
    outs = [n.b.emit("Concat", [there, back], {"axis": 2})[0]] if n.options.flag(2) else [there, back]
    return [transpose(n.b, y, (1, 0, 2)) if turned else y for y in outs]


# -- SVDF ---------------------------------------------------------------------------------------------
def svdf(n: TflNode) -> Result:
    """A product with the input becomes the newest of the steps that the state keeps; each filter is a product with
    them, and `rank` filters are summed for each result."""
    x, features, over_time, rank = _of_rank(n, 2), n.x(1), n.x(2), n.options.whole(0)
    filters, memory = over_time.shape
    if features.shape != (filters, x.shape[1]) or rank < 1 or filters % rank:
        n.fail(f"has an input of {x.type} with weights of {features.type} and {over_time.type}, rank {rank}")
    if x.dtype is F32:
        return [_svdf_floats(n, x, features, over_time, rank)]
    if x.dtype is I8 and features.dtype is I8 and n.out_dtype() is I8:
        return [_svdf_integers(n, x, features, over_time, rank)]
    n.unsupported(f"SVDF of {x.dtype.value} with weights of {features.dtype.value}")


def _kept(n: TflNode, newest: Value, filters: int, memory: int) -> Value:
    """The last steps [batch, filters, memory] with the newest in, which become the state"""
    batch = newest.shape[0]
    old = reshape(n.b, _state(n, 4, (batch, filters * memory)), [batch, filters, memory])
    late = slice_of(n.b, old, [(0, 1, batch), (0, 1, filters), (1, 1, memory - 1)])
    new = n.b.emit("Concat", [late, reshape(n.b, newest, [batch, filters, 1])], {"axis": 2})[0]
    n.states.now[_name(n, 4)] = reshape(n.b, new, [batch, filters * memory])
    return new


def _svdf_floats(n: TflNode, x: Value, features: Value, over_time: Value, rank: int) -> Value:
    b, (filters, memory) = n.b, over_time.shape
    w = transpose(b, features, (1, 0))
    if features.dtype is F32:
        newest = b.one("MatMul", x, w)
    else:
        newest = rows_times(b, x, w, n.quant(n.tensor(1)).scale, n.options.flag(2))
    if over_time.dtype is not F32:
        over_time = b.one("Mul", b.one("Cast", over_time, to=F32), b.const(_scale_of(n, 2), F32))
    parts = b.one("Mul", _kept(n, newest, filters, memory), over_time)
    sums = reshape(b, parts, [x.shape[0], filters // rank, rank * memory])
    y = b.emit("ReduceSum", [sums], {"axes": [2], "keepdims": 0})[0]
    y = b.one("Add", y, n.x(3)) if n.has(3) else y
    return n.activate(y, n.options.whole(1, "b")) if n.options.whole(1, "b") != TANH else b.one("Tanh", y)


def _svdf_integers(n: TflNode, x: Value, features: Value, over_time: Value, rank: int) -> Value:
    """Sums in int32, scaled to the state's and then to the result's scale; the result is not below its zero point's
    meaning of the activation, which its scale already holds."""
    b, (filters, memory) = n.b, over_time.shape
    (sx, _), (sf, _), (st, _), (ss, zs), (sy, zy) = (
        n.scale(t) for t in (n.tensor(0), n.tensor(1), n.tensor(2), n.tensor(4), n.outs[0]))
    state = _state(n, 4, (x.shape[0], filters * memory)).dtype
    if state not in (I16, I8) or over_time.dtype is not state:
        n.unsupported(f"SVDF of int8 with a state of {state.value} and weights of {over_time.dtype.value} over time")
    total = b.one("MatMulInteger", x, transpose(b, features, (1, 0)), _zero(n, 0, x), None)
    lo, hi = limits(state)
    real = float(np.float64(np.float32(sx * sf)) / np.float64(ss))
    newest = rescale(n, total, real, state, zero=zs, lo=lo, hi=hi)
    wide = b.one("Cast", _kept(n, newest, filters, memory), to=I32)
    wide = b.one("Sub", wide, b.const(zs, I32)) if zs else wide
    parts = b.one("Mul", wide, b.one("Cast", over_time, to=I32))
    sums = reshape(b, parts, [x.shape[0], filters // rank, rank * memory])
    y = b.emit("ReduceSum", [sums], {"axes": [2], "keepdims": 0})[0]
    y = b.one("Add", y, n.x(3)) if n.has(3) else y
    real = float(np.float64(np.float32(ss * st)) / np.float64(sy))
    return rescale(n, y, real, I8, zero=zy, lo=-128, hi=127)


READERS = {
    "RNN": rnn, "UNIDIRECTIONAL_SEQUENCE_RNN": sequence, "BIDIRECTIONAL_SEQUENCE_RNN": both_ways, "SVDF": svdf,
}  # fmt: skip
