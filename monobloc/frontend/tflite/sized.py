"""Operators of TFLite whose results have sizes that data decide: as ONNX's operators that do the same.

WHERE and UNIQUE of what a run computes, RANGE, SLICE, STRIDED_SLICE, TILE, FILL, BROADCAST_TO and PAD by numbers that
are data, and what reads their results. TFLite's own rules stand here: a SLICE that leaves its tensor, or an element
that is not there, is an error of the run, where ONNX would take less.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from monobloc.frontend.extents import Extents, Tensor
from monobloc.frontend.limits import Limits
from monobloc.frontend.node import OnnxNode
from monobloc.frontend.ragged import on_ragged
from monobloc.frontend.sized_shapes import FAR, reshaped, sized_shape
from monobloc.frontend.sized_shapes import sliced as sliced_along
from monobloc.frontend.tensors import ELEM_TYPES
from monobloc.frontend.tflite.movement import _spread
from monobloc.frontend.tflite.node import Held, TflNode
from monobloc.frontend.tflite.scaling import CLAMPS, NONE, RELU
from monobloc.ir.graph import Value
from monobloc.ir.types import DType
from monobloc.ops import onnx_reader
from monobloc.ops.sized import Ragged

OPSET = 18
Found = Sequence[Tensor]


class Call:
    """A TFLite operator some of whose inputs may be of a size that data decide."""

    def __init__(self, n: TflNode, given: Sequence[Any], limits: Limits) -> None:
        self.n, self.given, self.limits = n, given, limits
        self.e = Extents(n.b, self._node(n.op, [], 1, {}), limits)

    def _node(self, op: str, inputs: Sequence[Any], outputs: int, attrs: dict[str, Any]) -> OnnxNode:
        return OnnxNode(op, "", OPSET, self.n.loc.node, list(inputs), attrs, outputs, self.n.loc)

    def onnx(self, op: str, *inputs: Any, outputs: int = 1, **attrs: Any) -> list[Any]:
        """What ONNX's operator makes of tensors"""
        node, known, b = self._node(op, inputs, outputs, attrs), onnx_reader("", op), self.n.b
        assert known is not None  # one of ours
        if any(isinstance(v, Ragged) for v in inputs):
            return list(on_ragged(b, known, node, self.limits))
        found = sized_shape(b, node, self.limits)
        return list(known.from_onnx(b, node) if found is None else found)

    def tensor(self, k: int) -> Tensor:
        v = self.given[k] if k < len(self.given) else None
        if not isinstance(v, (Value, Ragged)):
            self.n.fail(f"input {k} is missing")
        return v

    def numbers(self, k: int) -> list[Value]:
        """The elements of a list of integers"""
        v = self.tensor(k)
        return self.e.elements(v if isinstance(v, Value) else self.n.unsupported(f"input {k} of {v.type}"))

    def activated(self, v: Any, kind: int) -> Found:
        if kind == NONE:
            return [v]
        if kind not in CLAMPS:
            self.n.unsupported(f"the fused activation {kind}")
        lo, hi = CLAMPS[kind]
        dtype = self.e.value(v).dtype
        return self.onnx("Relu", v) if kind == RELU else self.onnx("Clip", v, self.n.b.const(lo, dtype),
                                                                   self.n.b.const(hi, dtype))


Read = Callable[[Call], Found]


def decides(op: str, held: Sequence[Held | None]) -> bool:
    """Whether an operator's result has sizes that data decide: numbers that say them are data"""
    places = DECIDES[op][1] if op in DECIDES else ()
    return any(h is not None and h.made.const is None for k in places for h in held[k : k + 1])


def read_sized(n: TflNode, given: Sequence[Any], limits: Limits) -> Found:
    """The outputs of an operator that decides sizes by data, or reads a tensor of such a size"""
    reader = DECIDES[n.op][0] if n.op in DECIDES else READS.get(n.op)
    if reader is None or any(t is not None and t.quantization is not None and t.quantization.scale.size for t in n.ins):
        types = ", ".join(str(v.type) for v in given if v is not None)
        n.unsupported(f"{n.op} of {types}, whose size data decide,")
    return reader(Call(n, given, limits))


# -- what decides sizes --------------------------------------------------------------------------------
def _where(c: Call) -> Found:
    """The places of what is not zero, one a row"""
    return c.onnx("Transpose", c.onnx("NonZero", c.tensor(0))[0], perm=[1, 0])


def _unique(c: Call) -> Found:
    """In the order they come, and where each element is among them"""
    x = c.tensor(0)
    if not isinstance(x, Value) or x.type.rank != 1:
        c.n.unsupported(f"UNIQUE of {x.type}")
    values, _, inverse = c.onnx("Unique", x, outputs=3, sorted=0)
    return [values, *c.onnx("Cast", inverse, to=ELEM_TYPES[c.n.out_dtype(1)])]


def _range(c: Call) -> Found:
    return c.onnx("Range", *(c.tensor(k) for k in range(3)))


def _tile(c: Call) -> Found:
    return c.onnx("Tile", c.tensor(0), c.tensor(1))


def _fill(c: Call) -> Found:
    return c.onnx("Expand", c.tensor(1), c.tensor(0))


def _broadcast_to(c: Call) -> Found:
    return c.onnx("Expand", c.tensor(0), c.tensor(1))


def _pad(c: Call) -> Found:
    """Of pairs by axes"""
    pairs = c.numbers(1)
    lists = [*pairs[::2], *pairs[1::2]]
    rows = [c.n.b.one("Reshape", p, shape=[1]) for p in lists]
    value = [c.tensor(2)] if c.n.op == "PADV2" else []
    return c.onnx("Pad", c.tensor(0), c.n.b.emit("Concat", rows, {"axis": 0})[0], *value)


def _reshape(c: Call) -> Found:
    return [reshaped(c.e, c.tensor(0), c.numbers(1), True)]


def _slice(c: Call) -> Found:
    """Begins and sizes; what is asked for is there, or the run ends"""
    x, e = c.tensor(0), c.e
    for axis, (begin, size) in enumerate(zip(c.numbers(1), c.numbers(2), strict=True)):
        have, room = e.sizes(x)[axis], e.value(x).shape[axis]
        if e.known(begin) == 0 and e.known(size) == -1:
            continue
        begin = e.bounded(begin, room, 0, have)
        if e.known(size) == -1 or size.const is None:
            left = e.sub(have, begin)
            asked = e.one("Where", e.one("Equal", size, e.const(-1)), left, size) if size.const is None else left
        else:
            asked = size
        end = e.bounded(e.one("Add", begin, asked), room, 0, have)
        x = _exactly(e, sliced_along(e, x, axis, begin, end, e.const(1)), axis, asked)
    return [x]


def _exactly(e: Extents, t: Tensor, axis: int, asked: Value) -> Tensor:
    """As many entries as were asked for, of what was checked to have them"""
    known = e.known(asked)
    if known is None or not isinstance(t, Ragged):
        return t
    counts = {a: k for a, k in t.counts.items() if a != axis}
    return e.tensor(e.after(e.fit(t.value, axis, known), e.bounded(t.counts[axis], known, known), known), counts)


def _strided_slice(c: Call) -> Found:
    n, e, x = c.n, c.e, c.tensor(0)
    begin, end, steps = c.numbers(1), c.numbers(2), n.ints(3, "the step")
    if min(steps, default=1) < 1:
        n.unsupported("STRIDED_SLICE backwards from numbers that are data")
    masks = [n.options.whole(k) for k in range(5)]
    if n.options.flag(5):
        end = [e.add(p, q) for p, q in zip(begin, end, strict=True)]
    added: list[int] = []
    if masks[2] or masks[3]:
        spread: Any = _spread(n, e.value(x), begin, end, steps, masks)  # type: ignore[arg-type]
        begin, end, steps, masks, added = spread
        begin, end = ([v if isinstance(v, Value) else e.const(v) for v in vs] for vs in (begin, end))
    gone = []
    for axis, (first, last, step) in enumerate(zip(begin, end, steps, strict=True)):
        if masks[4] >> axis & 1:
            x = _element(c, x, axis, first)
            gone.append(axis)
        else:
            first = e.const(0) if masks[0] >> axis & 1 else first
            last = e.const(FAR) if masks[1] >> axis & 1 else last
            x = sliced_along(e, x, axis, first, last, e.const(step))
    if gone:
        (x,) = c.onnx("Squeeze", x, n.b.ints(gone))
    for axis in added:
        (x,) = c.onnx("Unsqueeze", x, n.b.ints([axis]))
    return [x]


def _element(c: Call, x: Tensor, axis: int, at: Value) -> Tensor:
    """One entry, counted from the end when negative, which is there or ends the run"""
    e, room = c.e, c.e.value(x).shape[axis]
    size = e.sizes(x)[axis]
    place = e.one("Where", e.one("Less", at, e.const(0)), e.one("Add", at, size), at)
    place = e.bounded(place, room - 1, 0, e.sub(size, e.const(1)))
    counts = {k: s for k, s in enumerate(e.sizes(x)) if k != axis}
    return e.tensor(e.picked(e.value(x), axis, c.n.b.one("Reshape", place, shape=[1])), counts)


def _one_hot(c: Call) -> Found:
    axis = c.n.options.whole(0, "i", -1)
    values = [c.onnx("Reshape", c.tensor(k), c.n.b.ints([1]))[0] for k in (3, 2)]
    return c.onnx("OneHot", c.tensor(0), c.tensor(1), c.n.b.emit("Concat", values, {"axis": 0})[0], axis=axis)


# -- what reads them -----------------------------------------------------------------------------------
def _elementwise(op: str, fused: bool = False) -> Read:
    def read(c: Call) -> Found:
        (y,) = c.onnx(op, *c.given)
        return c.activated(y, c.n.options.whole(0, "b")) if fused else [y]

    return read


def _cast(c: Call) -> Found:
    return c.onnx("Cast", c.tensor(0), to=ELEM_TYPES[c.n.out_dtype()])


def _square(c: Call) -> Found:
    return c.onnx("Mul", c.tensor(0), c.tensor(0))


def _fold(op: str) -> Read:
    def read(c: Call) -> Found:
        axes = c.n.b.ints([c.n.axis(a, c.e.value(c.tensor(0)).type.rank) for a in c.n.ints(1, "the axes")])
        return c.onnx(op, c.tensor(0), axes, keepdims=int(c.n.options.flag(0)))

    return read


def _shape(c: Call) -> Found:
    (sizes,) = c.onnx("Shape", c.tensor(0))
    return [sizes] if c.n.out_dtype() is DType.I64 else c.onnx("Cast", sizes, to=ELEM_TYPES[c.n.out_dtype()])


def _transpose(c: Call) -> Found:
    return c.onnx("Transpose", c.tensor(0), perm=c.n.ints(1, "the order of axes"))


def _expand_dims(c: Call) -> Found:
    return c.onnx("Unsqueeze", c.tensor(0), c.n.b.ints([c.n.ints(1, "the axis")[0]]))


def _squeeze(c: Call) -> Found:
    axes = c.n.options.ints(0)
    return c.onnx("Squeeze", c.tensor(0), c.n.b.ints(axes)) if axes else c.n.unsupported("SQUEEZE of all axes of 1")


def _concat(c: Call) -> Found:
    (y,) = c.onnx("Concat", *c.given, axis=c.n.options.whole(0))
    return c.activated(y, c.n.options.whole(1, "b"))


def _gather(c: Call) -> Found:
    if c.n.options.whole(1):
        c.n.unsupported(f"GATHER with batches from {c.tensor(0).type} by {c.tensor(1).type}, whose size data decide,")
    return c.onnx("Gather", c.tensor(0), c.tensor(1), axis=c.n.options.whole(0))


def _gather_nd(c: Call) -> Found:
    at = c.tensor(1)
    at = at if at.dtype is DType.I64 else c.onnx("Cast", at, to=ELEM_TYPES[DType.I64])[0]
    return c.onnx("GatherND", c.tensor(0), at)


def _softmax(c: Call) -> Found:
    if (beta := c.n.options.real(0)) != 1:
        c.n.unsupported(f"SOFTMAX with the beta {beta:g} of {c.tensor(0).type}, whose size data decide,")
    return c.onnx("Softmax", c.tensor(0), axis=-1)


def _fully_connected(c: Call) -> Found:
    w = c.tensor(1)
    if not isinstance(w, Value) or w.dtype is not DType.F32 or c.e.value(c.tensor(0)).dtype is not DType.F32:
        c.n.unsupported(f"FULLY_CONNECTED of {c.tensor(0).type}, whose size data decide, with weights of {w.type}")
    (y,) = c.onnx("MatMul", c.tensor(0), *c.onnx("Transpose", w, perm=[1, 0]))
    if len(c.given) > 2 and c.given[2] is not None:
        (y,) = c.onnx("Add", y, c.given[2])
    return c.activated(y, c.n.options.whole(0, "b"))


DECIDES: dict[str, tuple[Read, Sequence[int]]] = {  # with the places of what decides
    "WHERE": (_where, (0,)), "UNIQUE": (_unique, (0,)), "RANGE": (_range, (0, 1, 2)), "TILE": (_tile, (1,)),
    "FILL": (_fill, (0,)), "BROADCAST_TO": (_broadcast_to, (1,)), "PAD": (_pad, (1,)), "PADV2": (_pad, (1,)),
    "SLICE": (_slice, (1, 2)), "STRIDED_SLICE": (_strided_slice, (1, 2)), "ONE_HOT": (_one_hot, (1,)),
}
READS: dict[str, Read] = {
    **{k: _elementwise(v) for k, v in {
        "MAXIMUM": "Max", "MINIMUM": "Min", "NEG": "Neg", "ABS": "Abs", "EXP": "Exp", "LOG": "Log", "SQRT": "Sqrt",
        "TANH": "Tanh", "LOGISTIC": "Sigmoid", "RELU": "Relu", "FLOOR": "Floor", "CEIL": "Ceil", "SIN": "Sin",
        "COS": "Cos", "LESS": "Less", "GREATER": "Greater", "EQUAL": "Equal", "LESS_EQUAL": "LessOrEqual",
        "GREATER_EQUAL": "GreaterOrEqual", "LOGICAL_AND": "And", "LOGICAL_OR": "Or", "LOGICAL_NOT": "Not",
        "SELECT_V2": "Where", "POW": "Pow"}.items()},
    **{k: _elementwise(v, True) for k, v in {"ADD": "Add", "SUB": "Sub", "MUL": "Mul", "DIV": "Div"}.items()},
    **{k: _fold(v) for k, v in {"SUM": "ReduceSum", "MEAN": "ReduceMean", "REDUCE_MAX": "ReduceMax",
                                "REDUCE_MIN": "ReduceMin", "REDUCE_PROD": "ReduceProd"}.items()},
    "CAST": _cast, "SQUARE": _square, "SHAPE": _shape, "TRANSPOSE": _transpose, "EXPAND_DIMS": _expand_dims,
    "SQUEEZE": _squeeze, "CONCATENATION": _concat, "GATHER": _gather, "GATHER_ND": _gather_nd, "SOFTMAX": _softmax,
    "FULLY_CONNECTED": _fully_connected, "RESHAPE": _reshape,
}
