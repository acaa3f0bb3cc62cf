"""Folds of every window of a tensor: REDUCE_WINDOW and STABLEHLO_REDUCE_WINDOW.

A window is a box, so it is folded axis by axis. A short axis is as many slices that lie beside each other; a long one
is put together of windows of 1, 2, 4, ... entries, each of two of the one before: a running sum of 1,000 entries takes
ten steps and no matrix. What the fold starts with goes in last.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from monobloc.frontend.tflite.node import Reader, Result, TflNode
from monobloc.frontend.tflite.stablehlo import edged, filling, spread
from monobloc.ir.graph import Value
from monobloc.ir.types import DType
from monobloc.ops.build import cast_to
from monobloc.ops.movement import slice_of

SHORT = 8  # entries of an axis of a window that are slices of their own
FOLDS = {1: "Add", 2: "Mul", 3: "Min", 4: "Max", 5: "And", 6: "Or"}  # as the schema numbers them
BODIES = {
    "ADD": "Add", "STABLEHLO_ADD": "Add", "MUL": "Mul", "STABLEHLO_MULTIPLY": "Mul", "MINIMUM": "Min",
    "STABLEHLO_MINIMUM": "Min", "MAXIMUM": "Max", "STABLEHLO_MAXIMUM": "Max", "LOGICAL_AND": "And",
    "STABLEHLO_AND": "And", "LOGICAL_OR": "Or", "STABLEHLO_OR": "Or",
}  # fmt: skip


def plain(n: TflNode) -> Result:
    """The window is three more inputs, the fold a number."""
    number = n.options.whole(0)
    if number not in FOLDS:
        n.unsupported(f"the fold {number} of windows")
    return [_folded(n, FOLDS[number], n.x(0), *(n.ints(k, "the window") for k in (2, 3, 4)))]


def stablehlo(n: TflNode) -> Result:
    """The window is options, the fold a graph of one operator; the tensor is spread and gets edges first."""
    x, rank = n.x(0), n.x(0).type.rank
    window, strides, apart, dilations, pads = (_longs(n, k) for k in range(5))
    body = n.body(n.options.whole(5))
    if len(body) != 1 or body[0] not in BODIES:
        n.unsupported(f"a window folded by {', '.join(body) or 'nothing'}")
    if len(pads) != 2 * rank or len(apart) != rank or min(apart, default=1) < 1:
        n.fail(f"spreads {x.type} by {apart} with the edges {pads}")
    value = filling(n, 1)
    x = edged(n, spread(n, x, apart, value), pads[::2], pads[1::2], value)
    return [_folded(n, BODIES[body[0]], x, window, strides, dilations)]


def _longs(n: TflNode, slot: int) -> list[int]:
    found = n.options.array(slot, "i8")
    return [] if found is None else [int(k) for k in found]


def _folded(n: TflNode, op: str, x: Value, window: Sequence[int], strides: Sequence[int], dilations: Sequence[int],
            ) -> Value:
    if any(len(v) != x.type.rank or min(v, default=1) < 1 for v in (window, strides, dilations)):
        n.fail(f"has windows of {list(window)}, {list(strides)} apart, with {list(dilations)} between entries, "
               f"for {x.type}")
    start, kind = filling(n, 1), x.dtype
    if op in ("And", "Or") and kind is not DType.BOOL:
        x, start = (n.b.one("Cast", v, to=DType.BOOL) for v in (x, start))
    elif x.dtype is DType.BOOL and op not in ("And", "Or"):
        n.unsupported(f"{op} of booleans")

    def join(a: Value, b: Value) -> Value:
        return n.b.one(op, a, b)

    for axis, sizes in enumerate(zip(window, strides, dilations, strict=True)):
        x = _along(n, join, x, axis, *sizes)
    x = join(x, start)
    return cast_to(n.b, x, kind)


def _along(n: TflNode, join: Callable[[Value, Value], Value], x: Value, axis: int, window: int, stride: int,
           dilation: int) -> Value:
    """Windows of an axis; none where it is shorter than one of them"""
    count = max((x.shape[axis] - (window - 1) * dilation - 1) // stride + 1, 0)
    if window > SHORT and count:
        x = _doubled(n, join, x, axis, window, dilation)
        return _taken(n, x, axis, 0, stride, count)
    found = _taken(n, x, axis, 0, stride, count)
    for k in range(1, window if count else 1):
        found = join(found, _taken(n, x, axis, k * dilation, stride, count))
    return found


def _doubled(n: TflNode, join: Callable[[Value, Value], Value], x: Value, axis: int, window: int, dilation: int,
             ) -> Value:
    """All windows of an axis, one apart"""
    count, size, done = x.shape[axis] - (window - 1) * dilation, 1, 0
    found: Value | None = None
    while True:
        if window & size:
            part = _taken(n, x, axis, done * dilation, 1, count)
            found, done = part if found is None else join(found, part), done + size
        if done == window and found is not None:
            return found
        left = x.shape[axis] - size * dilation
        x, size = join(_taken(n, x, axis, 0, 1, left), _taken(n, x, axis, size * dilation, 1, left)), 2 * size


def _taken(n: TflNode, x: Value, axis: int, start: int, step: int, count: int) -> Value:
    return slice_of(n.b, x, [(start, step, count) if k == axis else (0, 1, d) for k, d in enumerate(x.shape)])


READERS: dict[str, Reader] = {"REDUCE_WINDOW": plain, "STABLEHLO_REDUCE_WINDOW": stablehlo}
