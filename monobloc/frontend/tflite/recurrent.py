"""LSTMs over sequences: UNIDIRECTIONAL_SEQUENCE_LSTM, BIDIRECTIONAL_SEQUENCE_LSTM, and LSTM, which is one step.

In floats, in floats with int8 weights (hybrid), and in int8 with a cell state of int16. The products with the input
are made for all steps at once; the operators of `ops/tfl_lstm.py` and `ops/tfl_rnn.py` do the rest. What a cell holds
after the last step is state: it is there in the next run.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from monobloc.frontend.tflite.convs import _zero
from monobloc.frontend.tflite.hybrid import rows_times
from monobloc.frontend.tflite.node import Result, TflNode
from monobloc.frontend.tflite.scaling import NONE, TANH, multiplier
from monobloc.frontend.tflite.variables import start
from monobloc.ir.graph import Value
from monobloc.ir.types import DType
from monobloc.ops.movement import slice_of, transpose
from monobloc.ops.quant import limits
from monobloc.ops.shape import reshape
from monobloc.ops.tfl_lstm8 import PLAIN
from monobloc.ops.tfl_rnn import ACTIVATIONS

F32, I8, I16, I32 = DType.F32, DType.I8, DType.I16, DType.I32


@dataclass(frozen=True)
class Places:
    """Which inputs of an operator are what; groups are in the order input, forget, cell, output"""

    weights: tuple[int, ...] = (1, 2, 3, 4)
    recurrent: tuple[int, ...] = (5, 6, 7, 8)
    peepholes: tuple[int, ...] = (9, 10, 11)
    bias: tuple[int, ...] = (12, 13, 14, 15)
    projection: int = 16
    projection_bias: int = 17
    hidden: int = 18
    cell: int = 19
    norms: tuple[int, ...] = (20, 21, 22, 23)
    more: tuple[int, ...] = ()  # weights of a second input

    def moved(self, by: int) -> Places:
        def all_of(places: tuple[int, ...]) -> tuple[int, ...]:
            return tuple(k + by for k in places)

        return replace(self, weights=all_of(self.weights), recurrent=all_of(self.recurrent),
                       peepholes=all_of(self.peepholes), bias=all_of(self.bias), projection=self.projection + by,
                       projection_bias=self.projection_bias + by)


ONE = Places()
FORWARD = replace(ONE, hidden=35, cell=36, norms=(), more=(40, 41, 42, 43))
BACKWARD = replace(FORWARD.moved(17), hidden=37, cell=38, more=(44, 45, 46, 47))


@dataclass(frozen=True)
class Way:
    """What the operator's options say"""

    act: str
    clip: float
    cut: float
    asymmetric: bool


def _activation(n: TflNode, slot: int) -> str:
    act = n.options.whole(slot, "b")
    if not NONE <= act <= TANH:
        n.unsupported(f"{n.op} with the activation {act}")
    return ACTIVATIONS[act]


def _way(n: TflNode, asymmetric: int) -> Way:
    return Way(_activation(n, 0), n.options.real(1), n.options.real(2), n.options.flag(asymmetric))


def _of_rank(n: TflNode, rank: int) -> Value:
    x = n.x(0)
    if x.type.rank != rank:
        n.fail(f"has an input of {x.type}, which must have rank {rank}")
    return x


# -- the operators ------------------------------------------------------------------------------------
def lstm(n: TflNode) -> Result:
    x = _of_rank(n, 3)
    x = transpose(n.b, x, (1, 0, 2)) if n.options.flag(3) else x
    y = _cell(n, x, None, ONE, _way(n, 4))
    return [transpose(n.b, y, (1, 0, 2)) if n.options.flag(3) else y]


def one_step(n: TflNode) -> Result:
    """LSTM; its further outputs, of kernels with concatenated weights, are not made."""
    if n.options.whole(3, "b"):
        n.unsupported("LSTM with concatenated weights (the basic kernel)")
    x = _of_rank(n, 2)
    y = _cell(n, reshape(n.b, x, [x.shape[0], 1, x.shape[1]]), None, ONE, _way(n, 4))
    return [reshape(n.b, y, [y.shape[0], y.shape[2]])]


def bidirectional(n: TflNode) -> Result:
    """One cell reads the sequence forwards, one backwards. A second input is added to both, by weights of its own;
    or, without such weights, the cell that reads backwards reads it."""
    turned, merged = n.options.flag(4, True), n.options.flag(3)
    ends = [_of_rank(n, 3), n.x(39) if n.has(39) else None]
    x, other = (v if v is None or not turned else transpose(n.b, v, (1, 0, 2)) for v in ends)
    assert x is not None
    added = other if other is not None and n.has(FORWARD.more[1]) else None
    second = x if other is None or added is not None else other
    way = _way(n, 5)
    there = _cell(n, x, added, FORWARD, way)
    more = None if added is None else _backwards(n, added)
    back = _backwards(n, _cell(n, _backwards(n, second), more, BACKWARD, way))
    outs = [n.b.emit("Concat", [there, back], {"axis": 2})[0]] if merged else [there, back]
    return [transpose(n.b, y, (1, 0, 2)) if turned else y for y in outs]


def _backwards(n: TflNode, x: Value) -> Value:
    return slice_of(n.b, x, [(d - 1, -1, d) if k == 1 and d else (0, 1, d) for k, d in enumerate(x.shape)])


# -- one cell -----------------------------------------------------------------------------------------
def _cell(n: TflNode, x: Value, added: Value | None, p: Places, way: Way) -> Value:
    """x [batch, steps, k] through a cell; its state is kept"""
    r = [n.x(k) for k in p.recurrent[1:]]
    kinds = {v.dtype for v in (*r, *(n.x(k) for k in p.weights[1:]))}
    if any(n.x(k).type.rank != 2 for k in (*p.weights[1:], *p.recurrent[1:])):
        n.fail(f"has weights of {n.x(p.weights[1]).type}, which must have rank 2")
    hidden, cell = (_state(n, i, (x.shape[0], r[0].shape[k])) for i, k in ((p.hidden, 1), (p.cell, 0)))
    if x.dtype is F32 and len(kinds) == 1 and kinds <= {F32, I8}:
        outs = _floats(n, x, added, hidden, cell, p, way)
    elif x.dtype is I8 and kinds == {I8} and cell.dtype is I16 and added is None:
        outs = _integers(n, x, hidden, cell, p, way)
    else:
        n.unsupported(f"{n.op} of {x.dtype.value} with weights of {r[0].dtype.value}")
    for k, v in ((p.hidden, outs[1]), (p.cell, outs[2])):
        n.states.now[_name(n, k)] = v
    return outs[0]


def _name(n: TflNode, i: int) -> str:
    t = n.tensor(i)
    return f"{t.name or 'state'}.{t.index}"


def _state(n: TflNode, i: int, shape: tuple[int, ...]) -> Value:
    """A variable tensor; integers start at their zero point."""
    name, t = _name(n, i), n.tensor(i)
    if math.prod(t.shape) != math.prod(shape):
        n.fail(f"has a state of {t.text}, which must have the shape {list(shape)}")
    if name not in n.states.now:
        if n.quantized(i) and n.scale(t)[1]:
            n.states.start[name] = np.full(t.shape, n.scale(t)[1], np.int8)
        start(n, name, n.state_type(i))
    return n.states.now[name]


def _whole(n: TflNode, places: tuple[int, ...]) -> list[Value] | None:
    """All inputs of a group, or None where it is absent; of a coupled input gate the first is absent too"""
    return [n.x(k) for k in places] if places and all(n.has(k) for k in places) else None


def _floats(n: TflNode, x: Value, added: Value | None, hidden: Value, cell: Value, p: Places, way: Way) -> list[Value]:
    b, coupled, size = n.b, not n.has(p.weights[0]), cell.shape[-1]
    norms = _norms(n, p, coupled, size)
    gates = _sums(n, x, p.weights, size, way)
    if added is not None:
        gates = b.one("Add", gates, _sums(n, added, p.more, size, way))
    if norms is None:
        gates = b.one("Add", gates, _joined(n, p.bias, coupled, (size,)))
    gates = reshape(b, gates, [*x.shape[:2], 4 * size])
    weights = _joined(n, p.recurrent, coupled, n.x(p.recurrent[1]).shape)
    peepholes = _peepholes(n, p, coupled, size)
    projection = n.x(p.projection) if n.has(p.projection) else None
    plain = norms is None and peepholes is None and projection is None and not coupled
    if plain and weights.dtype is F32 and way.act == "tanh":
        ins = [gates, transpose(b, weights, (1, 0)), hidden, cell]
        return b.emit("TflLstm", ins, {"clip": way.clip}, 3)
    scales = [_scale_of(n, k) for k in (*p.recurrent, p.projection)]
    attrs = {"act": way.act, "clip": way.clip, "cut": way.cut, "asymmetric": int(way.asymmetric),
             "coupled": int(coupled), "scales": scales}
    bias = n.x(p.projection_bias) if n.has(p.projection_bias) else None
    return b.emit("TflLstmFull", [gates, weights, hidden, cell, peepholes, norms, projection, bias], attrs, 3)


def _scale_of(n: TflNode, i: int) -> float:
    return float(n.scale(n.tensor(i))[0]) if n.has(i) and n.x(i).dtype is I8 else 1.0


def _joined(n: TflNode, places: tuple[int, ...], coupled: bool, shape: tuple[int, ...]) -> Value:
    """The four gates' tensors, one under the other; zeros for what a coupled input gate lacks"""
    found = [n.x(k) for k in places[1:]]
    first = n.b.const(np.zeros(shape), found[0].dtype) if coupled else n.x(places[0])
    return n.b.emit("Concat", [first, *found], {"axis": 0})[0]


def _sums(n: TflNode, x: Value, places: tuple[int, ...], size: int, way: Way) -> Value:
    """Rows of all steps times the gates' weights"""
    b, coupled = n.b, not n.has(places[0])
    rows = reshape(b, x, [x.shape[0] * x.shape[1], x.shape[2]])
    if n.x(places[1]).dtype is F32:
        return b.one("MatMul", rows, transpose(b, _joined(n, places, coupled, n.x(places[1]).shape), (1, 0)))
    parts = [rows_times(b, rows, transpose(b, n.x(k), (1, 0)), n.quant(n.tensor(k)).scale, way.asymmetric)
             for k in places[int(coupled) :]]
    if coupled:
        parts.insert(0, b.const(np.zeros((rows.shape[0], size)), F32))
    return b.emit("Concat", parts, {"axis": 1})[0]


def _peepholes(n: TflNode, p: Places, coupled: bool, size: int) -> Value | None:
    found = _whole(n, p.peepholes[int(coupled) :])
    if found is None:
        return None
    parts = []
    for k, v in zip(p.peepholes[int(coupled) :], found, strict=True):
        real = v if v.dtype is F32 else n.b.one("Mul", n.b.one("Cast", v, to=F32), n.b.const(_scale_of(n, k), F32))
        parts.append(reshape(n.b, real, [1, size]))
    if coupled:
        parts.insert(0, n.b.const(np.zeros((1, size)), F32))
    return n.b.emit("Concat", parts, {"axis": 0})[0]


def _norms(n: TflNode, p: Places, coupled: bool, size: int) -> Value | None:
    """Factors and biases of normalized gates, [2, 4 size]"""
    if _whole(n, p.norms[int(coupled) :]) is None:
        return None
    rows = [reshape(n.b, _joined(n, places, coupled, (size,)), [1, 4 * size]) for places in (p.norms, p.bias)]
    return n.b.emit("Concat", rows, {"axis": 0})[0]


# -- integers -----------------------------------------------------------------------------------------
def _integers(n: TflNode, x: Value, hidden: Value, cell: Value, p: Places, way: Way) -> list[Value]:
    """Gates have 3 integer bits, so a scale of 2^-12; normalized ones the scales of the intermediate tensors."""
    coupled = not n.has(p.weights[0])
    norms, peepholes = (_whole(n, k[int(coupled) :]) is not None for k in (p.norms, p.peepholes))
    bits = _check_integers(n, p, way)
    (sx, _), (sh, zh), (sc, _) = (n.scale(n.tensor(k)) for k in (0, p.hidden, p.cell))
    units = [np.float32(_between(n, k)[0]) if norms else np.float32(2.0**-12) for k in range(4)]
    size = n.x(p.recurrent[1]).shape[0]
    to_gates = _ways(n, p.weights, units, sx)
    gates = _gates(n, x, p, coupled, norms, [np.repeat([way[k] for way in to_gates], size) for k in (0, 1)])
    ways = {"": _ways(n, p.recurrent, units, sh)}
    last = n.intermediates[4] if len(n.intermediates) > 4 else None
    sy, hz = n.scale(last) if last is not None and last.quantization is not None else (sh, zh)
    hm, hs = multiplier(2.0**-15 / float(sy) * 2.0**-15)
    attrs = {**PLAIN, "hm": hm, "hs": hs, "hz": hz, "zero": zh, "bits": bits, "coupled": int(coupled),
             "clip": _cut(way.clip, sc, *limits(I16))}
    parts: list[Value | None] = [None] * 5
    if peepholes:
        if hidden.shape[-1] > size:
            n.unsupported(f"{n.op} of integers with peepholes and a projection to more than it has cells")
        ways["p"] = _ways(n, p.peepholes, [units[0], units[1], units[3]], np.float32(2.0 ** (bits - 15)))
        parts[0] = _rows(n, p.peepholes, coupled)
    if norms:
        ways["n"] = _ways(n, p.norms, [np.float32(1)] * 4, np.float32(1))
        parts[1:3] = [_rows(n, k, coupled) for k in (p.norms, p.bias)]
        attrs["guard"] = [max(1, int(np.float32(10000) * _scale(n, k))) for k in p.norms]
    if n.has(p.projection):
        sp = _scale(n, p.projection)
        attrs["wm"], attrs["ws"] = multiplier(float(np.float32(np.float32(sp * sy) / sh)))
        attrs["cut"] = _cut(way.cut, sh, *limits(I8))
        parts[3:] = [n.x(p.projection), n.x(p.projection_bias) if n.has(p.projection_bias) else None]
    for name, found in ways.items():
        attrs |= {f"{name}m": [m for m, _ in found], f"{name}s": [s for _, s in found]}
    weights = _joined(n, p.recurrent, coupled, n.x(p.recurrent[1]).shape)
    return n.b.emit("TflLstm8", [gates, weights, hidden, cell, *parts], attrs, 3)


def _check_integers(n: TflNode, p: Places, way: Way) -> int:
    """What LiteRT's kernel asks for; the integer bits of the cell's state"""
    if p is not ONE:  # LiteRT has no such kernel, so nobody says which scales the cell that reads backwards has
        n.unsupported(f"{n.op} of integers")
    if len(n.intermediates) == 12:
        n.unsupported(f"{n.op} of integers whose gates are of 8 bits")
    if way.act != "tanh":
        n.unsupported(f"{n.op} of integers without tanh")
    sc, zc = n.scale(n.tensor(p.cell))
    bits = 15 + round(math.log2(float(sc)))
    turned = any(n.scale(n.tensor(k))[1] for k in (*p.recurrent, p.projection) if n.has(k))
    if zc or float(sc) != 2.0 ** (bits - 15) or not 0 <= bits <= 4 or turned:
        n.unsupported(f"{n.op} with a cell state of scale {sc} and zero point {zc}")
    if n.scale(n.outs[0]) != n.scale(n.tensor(p.hidden)):
        n.unsupported(f"{n.op} whose result and state have different scales")
    return bits


def _gates(n: TflNode, x: Value, p: Places, coupled: bool, norms: bool, scales: list[np.ndarray]) -> Value:
    """What the input gives to the gates of all steps; biases of normalized gates come later."""
    b, (lo, hi) = n.b, limits(I16)
    rows = reshape(b, x, [x.shape[0] * x.shape[1], x.shape[2]])
    w = transpose(b, _joined(n, p.weights, coupled, n.x(p.weights[1]).shape), (1, 0))
    total = b.one("MatMulInteger", rows, w, _zero(n, 0, x), None)
    if not norms:
        total = b.one("Add", total, _joined(n, p.bias, coupled, n.x(p.bias[1]).shape))
    gates = b.emit("TflRescale", [total, *(b.const(v, I32) for v in scales)],
                   {"zero_in": 0, "left": 0, "zero": 0, "lo": lo, "hi": hi, "to": I16})[0]
    return reshape(b, gates, [*x.shape[:2], -1])


def _cut(at: float, scale: np.float32, lo: int, hi: int) -> int:
    """Where integers of a scale are cut, 0 for nowhere"""
    return int(np.clip(np.float32(at) / scale, lo, hi)) if at > 0 else 0


def _between(n: TflNode, k: int) -> tuple[np.float32, int]:
    """Scale and zero point of intermediate tensor k"""
    t = n.intermediates[k] if k < len(n.intermediates) else None
    if t is None:
        n.fail(f"has no intermediate tensor {k}, whose scale it needs")
    return n.scale(t)


def _scale(n: TflNode, i: int) -> np.float32:
    return n.scale(n.tensor(i))[0] if n.has(i) else np.float32(1)


def _ways(n: TflNode, places: tuple[int, ...], units: list[np.float32], by: np.float32) -> list[tuple[int, int]]:
    """Multipliers from the products of a group's weights with what has the scale `by` to the gates' scales"""
    return [multiplier(float(np.float32(np.float32(_scale(n, k) * by) / unit)))
            for k, unit in zip(places, units, strict=True)]


def _rows(n: TflNode, places: tuple[int, ...], coupled: bool) -> Value:
    """A group's vectors, one under the other; zeros for what a coupled input gate lacks"""
    size = n.x(places[1]).shape[0]
    return reshape(n.b, _joined(n, places, coupled, (size,)), [len(places), size])


READERS = {"UNIDIRECTIONAL_SEQUENCE_LSTM": lstm, "LSTM": one_step, "BIDIRECTIONAL_SEQUENCE_LSTM": bidirectional}
