"""Loop and Scan, written out: one copy of the body per iteration.

Every shape is known, so Scan's number of iterations is too, and Loop's when its trip count and
conditions are constant. A copy per iteration lets shape arithmetic fold and iterations fuse; it is
limited, since a thousand copies are no longer a program anybody wants.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from monobloc.errors import ModelError, UnsupportedError
from monobloc.frontend.attributes import SubGraph
from monobloc.frontend.node import graph_inputs_behind
from monobloc.frontend.tensors import DTYPES
from monobloc.ir.graph import Value
from monobloc.ir.types import TensorType
from monobloc.ops.sequence import Bundle

if TYPE_CHECKING:
    from monobloc.frontend.walk import Binding, Frame, Walker

MAX_COPIES = 2048  # nodes of the body times iterations


def at_run_time(what: str, v: Value | None) -> UnsupportedError:
    """`what` would have to be known while compiling."""
    sources = graph_inputs_behind(v) if v is not None else []
    binds = " ".join(f"--bind {s}=..." for s in sources)
    return UnsupportedError(
        f"{what} is known only at run time, which is not supported",
        notes=[f"it depends on the model's input {', '.join(map(repr, sources))}"] if sources else [],
        hints=[f"fix that input while compiling: `{binds}`"] if sources else [],
    )


def unrolled(
    w: Walker, op: str, inputs: Sequence[Value | None], attrs: dict[str, Any], frame: Frame, label: str
) -> list[Binding]:
    """The outputs of a Loop or Scan node."""
    body = attrs["body"]
    assert isinstance(body, SubGraph)
    run = _Unroll(w, body, frame, label)
    if op == "Loop":
        return run.loop(inputs)
    if frame.opsets.get("", 0) < 9:
        return run.scan8(inputs, attrs)
    return run.scan(inputs, attrs)


class _Unroll:
    """One node on its way."""

    def __init__(self, w: Walker, body: SubGraph, frame: Frame, label: str) -> None:
        self.w, self.b, self.body, self.frame, self.label = w, w.builder, body, frame, label
        self.copies = 0

    def step(self, inputs: Sequence[Binding]) -> list[Value]:
        """One more copy of the body"""
        size = max(len(self.body.graph.node), 1)
        self.copies += 1
        if self.copies * size > MAX_COPIES:
            raise UnsupportedError(
                f"is written out, one copy of its {size} nodes per iteration; "
                f"more than {MAX_COPIES // size} iterations are not supported"
            )
        name, locs = self.b.name, self.b.locs
        outs = self.w.subgraph(self.body, inputs, self.frame, f"{self.label}/{self.copies - 1}")
        self.b.name, self.b.locs = name, locs
        known: list[Any] = [v for v in outs if isinstance(v, (Value, Bundle))]
        if len(known) < len(outs):
            self.w.diagnostics.checkpoint()
            raise ModelError("an output of the body is made by nothing")
        return known

    # -- Loop --
    def loop(self, inputs: Sequence[Value | None]) -> list[Binding]:
        inputs = [*inputs, None, None][: max(len(inputs), 2)]
        trips, condition = _scalar("the trip count", inputs[0]), _scalar("the condition", inputs[1])
        states = [v for v in inputs[2:] if v is not None]
        scans: list[list[Value]] = [[] for _ in self.body.graph.output[1 + len(states) :]]
        going, k = condition is None or bool(condition), 0
        while going and (trips is None or k < int(trips)):
            outs = self.step([self.b.const(np.int64(k)), self.b.const(np.bool_(True)), *states])
            states = outs[1 : 1 + len(states)]
            for rows, v in zip(scans, outs[1 + len(states) :], strict=True):
                rows.append(v)
            k += 1
            if trips is None or k < int(trips):
                going = bool(_scalar("the condition of the next iteration", outs[0]))
        return [*states, *(self._stacked(rows, 1 + len(states) + j, 0) for j, rows in enumerate(scans))]

    # -- Scan --
    def scan(self, inputs: Sequence[Value | None], attrs: dict[str, Any]) -> list[Binding]:
        given = [v for v in inputs if v is not None]
        n = int(attrs["num_scan_inputs"])
        if len(given) < len(inputs) or not 0 < n <= len(given):
            raise ModelError(f"has {len(inputs)} inputs, {n} of them to scan")
        states, xs = given[: len(given) - n], given[len(given) - n :]
        axes = [_axis(a, x.type.rank) for a, x in zip(_list(attrs, "scan_input_axes", n), xs, strict=True)]
        lengths = {x.shape[a] for a, x in zip(axes, xs, strict=True)}
        if len(lengths) != 1:
            raise ModelError(f"scans axes of {sorted(lengths)} elements, but they must have the same")
        back = _list(attrs, "scan_input_directions", n)
        return self._scanned(states, xs, axes, back, lengths.pop(), attrs)

    def _scanned(
        self, states: list[Value], xs: list[Value], axes: list[int], back: list[int], length: int, attrs: dict[str, Any]
    ) -> list[Binding]:
        n_out = len(self.body.graph.output) - len(states)
        scans: list[list[Value]] = [[] for _ in range(n_out)]
        for k in range(length):
            rows = [self._row(x, a, length - 1 - k if d else k) for x, a, d in zip(xs, axes, back, strict=True)]
            outs = self.step([*states, *rows])
            states = outs[: len(states)]
            for made, v in zip(scans, outs[len(states) :], strict=True):
                made.append(v)
        out_axes, out_back = _list(attrs, "scan_output_axes", n_out), _list(attrs, "scan_output_directions", n_out)
        stacked = [
            self._stacked(made[::-1] if d else made, len(states) + j, a)
            for j, (made, a, d) in enumerate(zip(scans, out_axes, out_back, strict=True))
        ]
        return [*states, *stacked]

    def scan8(self, inputs: Sequence[Value | None], attrs: dict[str, Any]) -> list[Binding]:
        """Opset 8: the first input gives lengths, the first axis of all is the batch, the second is scanned."""
        if inputs[0] is not None:
            raise UnsupportedError("a Scan over sequences of different lengths is not supported")
        given = [v for v in inputs[1:] if v is not None]
        n = int(attrs["num_scan_inputs"])
        back, batch = _list(attrs, "directions", n), given[0].shape[0]
        results: list[list[Value]] = []
        for k in range(batch):
            rows = [self._row(v, 0, k) for v in given]
            states, xs = rows[: len(rows) - n], rows[len(rows) - n :]
            outs = self._scanned(states, xs, [0] * n, back, xs[0].shape[0], {})
            results.append([v for v in outs if isinstance(v, Value)])
        return [self._stacked(list(rows), j, 0) for j, rows in enumerate(zip(*results, strict=True))]

    # -- rows --
    def _row(self, x: Value, axis: int, at: int) -> Value:
        starts, sizes = [0] * x.type.rank, list(x.shape)
        starts[axis], sizes[axis] = at, 1
        part = self.b.one("Slice", x, starts=starts, steps=[1] * x.type.rank, sizes=sizes)
        return self.b.one("Reshape", part, shape=[d for k, d in enumerate(x.shape) if k != axis])

    def _stacked(self, rows: list[Value], output: int, axis: int) -> Value:
        if not rows:
            return self._empty(output)
        if not all(isinstance(v, Value) for v in rows):
            raise ModelError("stacks values that are no tensors")
        axis = _axis(axis, rows[0].type.rank + 1)
        if len({v.shape for v in rows}) > 1:
            raise UnsupportedError("rows of different shapes cannot be stacked, which is not supported")
        shape = [*rows[0].shape[:axis], 1, *rows[0].shape[axis:]]
        parts = [self.b.one("Reshape", v, shape=shape) for v in rows]
        return parts[0] if len(parts) == 1 else self.b.emit("Concat", parts, {"axis": axis})[0]

    def _empty(self, output: int) -> Value:
        """What no iteration made: its shape is what the body declares."""
        t = self.body.graph.output[output].type.tensor_type
        if t.elem_type not in DTYPES or not all(d.HasField("dim_value") for d in t.shape.dim):
            raise UnsupportedError("runs no iteration, and the body does not declare its output's shape")
        kind = TensorType(DTYPES[t.elem_type], (0, *(d.dim_value for d in t.shape.dim)))
        return self.b.const(np.zeros(kind.shape, kind.dtype.numpy))


def _scalar(what: str, v: Value | None) -> Any:
    """The one element of a constant; None when absent"""
    if v is None:
        return None
    if not isinstance(v, Value):
        raise ModelError(f"{what} is {v.type}")
    if v.const is None:
        raise at_run_time(what, v)
    if v.type.size != 1:
        raise ModelError(f"{what} has shape {list(v.shape)}, but must be one element")
    return v.const.array.ravel()[0]


def _list(attrs: dict[str, Any], name: str, n: int) -> list[int]:
    out = list(attrs.get(name) or [0] * n)
    if len(out) != n:
        raise ModelError(f"the attribute `{name}` has {len(out)} entries, but needs {n}")
    return out


def _axis(axis: int, rank: int) -> int:
    if not -rank <= axis < rank:
        raise ModelError(f"axis {axis} is outside of rank {rank}")
    return axis % rank
