"""If, Loop and Scan: decided while the model is read where constants decide, written as control nodes where data do.

A loop whose trip count and conditions are constant is *written out*, one copy of the body per iteration: shape
arithmetic folds in each copy, and iterations fuse. A thousand copies are no longer a program anybody wants,
so long loops become a Loop node like those whose end data decide, and are written out only where their bodies
need that: values that change their shape from one iteration to the next. A Scan is a loop whose body picks
its rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from monobloc.errors import ModelError, MonoblocError, UnsupportedError
from monobloc.frontend import carry
from monobloc.frontend.attributes import SubGraph
from monobloc.frontend.extents import value_of
from monobloc.frontend.importing import Told
from monobloc.frontend.node import graph_inputs_behind
from monobloc.frontend.tensors import DTYPES
from monobloc.ir.graph import Value
from monobloc.ir.types import DType, TensorType
from monobloc.ops.build import Builder
from monobloc.ops.control import UNBOUND, Loop, OpenRegion, close
from monobloc.ops.movement import pad, slice_of
from monobloc.ops.sequence import Bundle, Items
from monobloc.ops.sized import Ragged

if TYPE_CHECKING:
    from monobloc.frontend.walk import Binding, Frame, Walker

FEW_COPIES = 256  # nodes of the body times iterations up to which a loop is written out
MAX_COPIES = 2048  # the same where there is no other way
MAX_TRIPS = 1 << 31  # more is no number of iterations, but "as long as the condition holds"


class _Many(Exception):  # noqa: N818
    """A loop has more copies than was allowed, or an end that only a run knows."""


def _binds(why: str, v: Value | None) -> list[str]:
    """A hint to fix the inputs that decide a value"""
    sources = graph_inputs_behind(v) if v is not None else []
    return [f"{why}: `{' '.join(f'--bind {s}=...' for s in sources)}`"] if sources else []


# -- control nodes ---------------------------------------------------------------------------------
@contextmanager
def opened(w: Walker, name: str) -> Iterator[OpenRegion]:
    """What is walked inside goes into a region."""
    graph, builder = w.graph, w.builder
    region = OpenRegion(name, graph)
    w.regions.append(region)
    w.graph, w.builder = region, Builder(region)
    w.builder.name, w.builder.locs = name, builder.locs
    try:
        yield region
    finally:
        w.graph, w.builder = graph, builder


def chosen(w: Walker, condition: Value, attrs: dict[str, Any], frame: Frame, label: str) -> list[Binding]:
    """The outputs of an If whose condition data decide."""
    (condition,) = _tensors([condition])
    if condition.type.size != 1:
        raise ModelError(f"the condition has shape {list(condition.shape)}, but must be one bool")
    regions, made, before = [], [], len(w.diagnostics.errors)
    for key in ("then_branch", "else_branch"):
        with opened(w, f"{label}/{key}") as region:
            made.append(w.subgraph(attrs[key], [], frame, f"{label}/{key}"))
        regions.append(region)
    _advise(w, before, _binds("a branch is left out where its condition is known", condition))
    forms, axes = _outputs_of_branches(regions, [_all_known(outs) for outs in made], condition)
    given, types = close(regions), [v.type for _, v in regions[0].outputs]
    b = w.builder
    b.name, b.locs = label, (label,)
    inside = {"then": regions[0], "else": regions[1]}
    outs = iter(b.graph.make("If", [condition, *given], types, inside, name=label, locs=b.locs).outputs)
    return _formed([Ragged(next(outs), {a: next(outs) for a in sized}) if sized else next(outs) for sized in axes],
                   forms)


def _outputs_of_branches(
    regions: Sequence[OpenRegion], known: Sequence[Sequence[Any]], condition: Value
) -> tuple[list[Any], list[list[int]]]:
    """Give both regions their outputs, of equal types. What the values are: forms of sequences, and for each
    tensor the axes along which data decide its size."""
    forms = [[_form(v) for v in outs] for outs in known]
    for k, (a, c) in enumerate(zip(*forms, strict=False)):
        if a != c:
            one, other = (outs[k].type for outs in known)
            raise _differs(f"output {k} is {one} in one branch and {other} in the other", condition)
    yes, no = map(_flat, known)
    if len(yes) != len(no):
        raise ModelError(f"its branches have {len(yes)} and {len(no)} outputs, but must have the same")
    hints = _binds("fix what decides while compiling", condition)
    axes: list[list[int]] = []
    for k, pair in enumerate(zip(yes, no, strict=True)):
        axes.append(_open_axes(pair, k, condition))
        for region, v in zip(regions, pair, strict=True):
            rooms = {a: max(value_of(x).shape[a] for x in pair) for a in axes[-1]}
            parts = _in_room(Builder(region), v, rooms) if rooms else [v]
            region.outputs += [(f"out{len(region.outputs) + j}", x) for j, x in enumerate(_tensors(parts, hints))]
    return forms[0], axes


def _open_axes(pair: tuple[Any, Any], k: int, condition: Value) -> list[int]:
    """None where both branches give one type; the axes along which they differ, or data decide either's size"""
    one, other = pair
    if one.type == other.type and not isinstance(one, Ragged):
        return []
    if all(isinstance(v, (Value, Ragged)) for v in pair) and one.dtype is other.dtype:
        a, b = (value_of(v).shape for v in pair)
        axes = {j for v in pair if isinstance(v, Ragged) for j in v.counts}
        if len(a) == len(b):
            return sorted(axes | {j for j, (x, y) in enumerate(zip(a, b, strict=True)) if x != y})
    raise _differs(f"output {k} is {one.type} in one branch and {other.type} in the other", condition)


def _in_room(b: Builder, v: Value | Ragged, rooms: Mapping[int, int]) -> list[Value]:
    """A tensor with more room along some axes, and how many entries there are along each"""
    x, counts = value_of(v), v.counts if isinstance(v, Ragged) else {}
    sizes = [counts.get(a) or b.const(np.int64(x.shape[a])) for a in rooms]
    more = [rooms.get(a, d) - d for a, d in enumerate(x.shape)]
    return [pad(b, x, [0] * len(more), more, "constant", None), *sizes]


def _advise(w: Walker, before: int, hints: Sequence[str]) -> None:
    """What also helps against the errors of a body"""
    for e in w.diagnostics.errors[before:]:
        e.hints = tuple(dict.fromkeys([*e.hints, *hints]))


def _differs(what: str, condition: Value | None, hints: Sequence[str] = ()) -> UnsupportedError:
    return UnsupportedError(f"{what}; a type that data decide is not supported",
                            hints=[*hints, *_binds("fix what decides while compiling", condition)])


def _all_known(outs: Sequence[Binding]) -> list[Any]:
    known: list[Any] = [v for v in outs if isinstance(v, (Value, Bundle, Ragged))]
    if len(known) < len(outs):
        raise Told("a value of a body is unknown")
    return known


def _tensors(values: Sequence[Any], hints: Sequence[str] = ()) -> list[Value]:
    """What goes in and out of regions"""
    for v in values:
        if not isinstance(v, Value):
            raise UnsupportedError(f"{v.type} that data decide is not supported", hints=hints)
    return list(values)


def _sized_tensors(values: Sequence[Any], hints: Sequence[str] = ()) -> list[Any]:
    """The same, of sizes that data may decide"""
    _tensors([v for v in values if not isinstance(v, Ragged)], hints)
    return list(values)


def _form(v: Any) -> Any:
    """Of a sequence how many items it has and of which type; of an optional whether it is there"""
    return (len(v.values), v.dtype) if isinstance(v, Items) else None if isinstance(v, (Value, Ragged)) else "absent"


def _flat(values: Sequence[Any]) -> list[Any]:
    """Sequences by their items"""
    return [x for v in values for x in (v.values if isinstance(v, Items) else (v,))]


def _formed(values: Sequence[Any], forms: Sequence[Any]) -> list[Binding]:
    rest = iter(values)
    return [next(rest) if f is None else Items(tuple(next(rest) for _ in range(f[0])), f[1]) for f in forms]


def _named(values: Sequence[Value]) -> list[tuple[str, Value]]:
    return [(f"out{k}", v) for k, v in enumerate(values)]


def repeated(
    w: Walker, op: str, inputs: Sequence[Value | None], attrs: dict[str, Any], frame: Frame, label: str
) -> list[Binding]:
    """The outputs of a Loop or Scan node: written out where that pays, a Loop node where it does not, written out
    at length where nothing else will do."""
    body = attrs["body"]
    assert isinstance(body, SubGraph)
    if op == "Scan" and frame.opsets.get("", 0) < 9:
        return _Unroll(w, body, frame, label, MAX_COPIES).scan8(inputs, attrs)

    def unroll(limit: int) -> list[Binding]:
        copies = _Unroll(w, body, frame, label, limit)
        return copies.loop(inputs) if op == "Loop" else copies.scan(inputs, attrs)

    def keep() -> list[Binding]:
        kept = _Kept(w, body, frame, label)
        return kept.loop(inputs) if op == "Loop" else kept.scan(inputs, attrs)

    mark = _Mark(w)
    try:
        return unroll(FEW_COPIES)
    except _Many as e:
        mark.back()
        endless = e
    try:
        return keep()
    except MonoblocError:
        if endless.args:  # only a run knows how often: what keeps it from being a node is what is wrong
            raise
        mark.back()
    try:
        return unroll(MAX_COPIES)
    except _Many:
        size = max(len(body.graph.node), 1)
        raise UnsupportedError(
            f"must be written out, one copy of its {size} nodes per iteration; "
            f"more than {MAX_COPIES // size} iterations are not supported"
        ) from None


class _Mark:
    """A place of an import to come back to: what was made and reported after it is forgotten."""

    def __init__(self, w: Walker) -> None:
        self.w, self.graph, self.nodes = w, w.graph, len(w.graph.nodes)
        self.name, self.locs = w.builder.name, w.builder.locs
        self.regions = len(w.regions)
        self.errors, self.told = list(w.diagnostics.errors), set(w.diagnostics._told)

    def back(self) -> None:
        for g in (self.graph, *self.w.regions[self.regions :]):  # what is around regions must forget them too
            g.remove_all(set(g.nodes[self.nodes if g is self.graph else 0 :]))
        self.w.builder.name, self.w.builder.locs = self.name, self.locs
        self.w.diagnostics.errors[:], self.w.diagnostics._told = self.errors, self.told


class _Kept:
    """A Loop or Scan that becomes a Loop node."""

    def __init__(self, w: Walker, body: SubGraph, frame: Frame, label: str) -> None:
        self.w, self.body, self.frame, self.label = w, body, frame, label

    def loop(self, inputs: Sequence[Any]) -> list[Binding]:
        trips, condition, *states = [*inputs, None, None][: max(len(inputs), 2)]
        most = int(_scalar("the trip count", trips)) if trips is not None and trips.const is not None else UNBOUND
        if condition is not None and condition.const is not None:
            condition = None  # it is true: a loop that never runs is written out
        if most > MAX_TRIPS or trips is None or trips.const is not None:
            most, trips = most if most <= MAX_TRIPS else UNBOUND, None
        ends = [v for v in (trips, condition) if v is not None]
        hints = [h for v in ends for h in _binds("a loop is written out where its end is known", v)]
        known = _sized_tensors([v for v in states if v is not None], hints)
        mark = _Mark(self.w)
        rooms = [carry.rooms_of(v) for v in known]
        region, now, outs = self._iteration(known, rooms, ends)
        grown = carry.grown(now, outs[1 : 1 + len(now)])
        if any(grown):
            mark.back()
            bound = self._bound(most, trips)
            for k, axes in enumerate(grown):
                if bound == UNBOUND and any(g > 0 for g in axes.values()):
                    what = f"the carried value {k} is {known[k].type} before an iteration and {outs[1 + k].type} after"
                    raise _differs(f"{what} it", trips, [self._say_trips()])
            rooms = [carry.roomy(v, g, max(bound, 0)) for v, g in zip(known, grown, strict=True)]
            region, now, outs = self._iteration(known, rooms, ends)
            again = carry.grown(now, outs[1 : 1 + len(now)])
            for k, (a, r, g) in enumerate(zip(again, rooms, grown, strict=True)):
                if a.keys() - r.keys() or any(a[axis] > max(g.get(axis, 0), 0) for axis in a):
                    raise _differs(f"the carried value {k} grows by more from one iteration to the next", trips)
        goes_on, rows = outs[0], outs[1 + len(now) :]
        first = [x for v, r in zip(known, rooms, strict=True) for x in carry.parts(self.w.builder, self.w.limits, v, r)]
        then = [x for v, r in zip(outs[1 : 1 + len(now)], rooms, strict=True)
                for x in carry.parts(Builder(region), self.w.limits, v, r)]
        made = iter(self._node(region, trips, condition, most, first, None if _always(goes_on) else goes_on, then,
                               _tensors(rows, hints)))
        return [*(carry.whole(made, r) for r in rooms), *made]

    def _iteration(
        self, states: Sequence[Value | Ragged], rooms: Sequence[Mapping[int, int]], ends: Sequence[Value]
    ) -> tuple[OpenRegion, list[Value | Ragged], list[Any]]:
        """The body once, on carried values with this room; it, those values, and what it gives"""
        one = self.body.graph.input[0].type.tensor_type.shape.dim if self.body.graph.input else ()
        with opened(self.w, self.label) as region:
            number = region.add_input(f"{self.label}/i", TensorType(DType.I64, (1,) if len(one) == 1 else ()))
            always = self.w.builder.const(np.bool_(True))
            now = [carry.inside(region, self.w.limits, v, r) for v, r in zip(states, rooms, strict=True)]
            outs = self._body(region, [number, always, *now], ends)
        return region, now, outs

    def _say_trips(self) -> str:
        return f"say how many iterations it has at most: `--max-trips '{self.label}=N'`"

    def _bound(self, most: int, trips: Value | None) -> int:
        """How many iterations there are at most"""
        if most != UNBOUND:
            return most
        told = UNBOUND if trips is None else self.w.limits.likely.of(trips).hi
        return self.w.max_trips.get(self.label, self.w.max_trips.get("", int(told) if told < MAX_TRIPS else UNBOUND))

    def scan(self, inputs: Sequence[Value | None], attrs: dict[str, Any]) -> list[Binding]:
        states, xs, axes, back, length = _scan_parts(_tensors(inputs), attrs)
        with opened(self.w, self.label) as region:
            b = self.w.builder
            number = region.add_input(f"{self.label}/i", TensorType(DType.I64, ()))
            now = [region.add_input(f"{v.name}.now", v.type.with_layout(None)) for v in states]
            last = b.one("Sub", b.const(np.int64(length - 1)), number) if any(back) else number
            rows = [b.one("Gather", x, last if d else number, axis=a) for x, a, d in zip(xs, axes, back, strict=True)]
            outs = self._body(region, [*now, *rows])
        outs = _tensors(outs)
        k = len(now)
        found = self._node(region, None, None, length, states, None, outs[:k], outs[k:])
        n_out, b = len(outs) - k, self.w.builder
        out_axes, out_back = _list(attrs, "scan_output_axes", n_out), _list(attrs, "scan_output_directions", n_out)
        return [*found[:k], *(_turned(b, v, a, d) for v, a, d in zip(found[k:], out_axes, out_back, strict=True))]

    def _body(self, region: OpenRegion, inputs: Sequence[Binding], ends: Sequence[Value | None] = ()) -> list[Any]:
        for v in region.inputs:
            v.origin = ""  # no input of the model, whoever asks what depends on it
        before = len(self.w.diagnostics.errors)
        outs = self.w.subgraph(self.body, inputs, self.frame, self.label)
        hints = [h for v in ends for h in _binds("a loop is written out where its end is known", v)]
        _advise(self.w, before, hints)
        return _sized_tensors(_all_known(outs), hints)

    def _node(
        self, region: OpenRegion, trips: Value | None, condition: Value | None, most: int, states: Sequence[Value],
        goes_on: Value | None, then: Sequence[Value], rows: Sequence[Value],
    ) -> list[Any]:
        if len(then) < len(states):
            raise ModelError(f"carries {len(states)} values, but its body gives {len(then)}")
        for k, (a, z) in enumerate(zip(states, then, strict=True)):
            if (a.dtype, a.shape) != (z.dtype, z.shape):
                raise _differs(f"the carried value {k} is {a.type} before an iteration and {z.type} after it", trips)
        counted = bool(rows) and (goes_on is not None or trips is not None or condition is not None or most == UNBOUND)
        bound = self.w.max_trips.get(self.label, self.w.max_trips.get("", UNBOUND)) if most == UNBOUND else UNBOUND
        if counted and most == UNBOUND:
            bound = self._bound(most, trips)
        if counted and most == bound == UNBOUND:
            raise _differs("how many rows it stacks is known only at run time", trips or condition,
                           [self._say_trips()])
        region.outputs = _named([*([goes_on] if goes_on is not None else []), *then, *rows])
        given = close([region])
        most = max(most, bound)
        attrs = {"do": region, "carried": len(states), "test": goes_on is not None, "most": most, "counted": counted,
                 "bounded": bound != UNBOUND}
        inputs = [trips, condition, *states, *given]
        b = self.w.builder
        b.name, b.locs = self.label, (self.label,)
        made = b.graph.make("Loop", inputs, Loop().infer(inputs, attrs), attrs, name=self.label, locs=b.locs).outputs
        if not counted:
            return list(made)
        return [*made[: len(states)], *(Ragged(v, {0: made[-1]}) for v in made[len(states) : -1])]


def _always(v: Value) -> bool:
    return v.const is not None and bool(v.const.array.ravel()[0])


def _turned(b: Builder, v: Value, axis: int, back: int) -> Value:
    """Rows stacked along the first axis, along another one, or in the other direction"""
    if back:
        v = slice_of(b, v, [(v.shape[0] - 1, -1, v.shape[0]), *((0, 1, d) for d in v.shape[1:])])
    axis = _axis(axis, v.type.rank)
    order = [k + 1 if k < axis else 0 if k == axis else k for k in range(v.type.rank)]
    return v if axis == 0 else b.one("Transpose", v, perm=order)


def _scan_parts(
    inputs: Sequence[Value | None], attrs: dict[str, Any]
) -> tuple[list[Value], list[Value], list[int], list[int], int]:
    """A Scan's states, what it scans, along which axes, in which directions, and how often."""
    given = [v for v in inputs if v is not None]
    n = int(attrs["num_scan_inputs"])
    if len(given) < len(inputs) or not 0 < n <= len(given):
        raise ModelError(f"has {len(inputs)} inputs, {n} of them to scan")
    states, xs = given[: len(given) - n], given[len(given) - n :]
    axes = [_axis(a, x.type.rank) for a, x in zip(_list(attrs, "scan_input_axes", n), xs, strict=True)]
    lengths = {x.shape[a] for a, x in zip(axes, xs, strict=True)}
    if len(lengths) != 1:
        raise ModelError(f"scans axes of {sorted(lengths)} elements, but they must have the same")
    return states, xs, axes, _list(attrs, "scan_input_directions", n), lengths.pop()


# -- written out -----------------------------------------------------------------------------------
class _Unroll:
    """One node on its way."""

    def __init__(self, w: Walker, body: SubGraph, frame: Frame, label: str, limit: int) -> None:
        self.w, self.b, self.body, self.frame, self.label = w, w.builder, body, frame, label
        self.limit, self.copies = limit, 0

    def step(self, inputs: Sequence[Binding]) -> list[Value]:
        """One more copy of the body"""
        self.copies += 1
        if self.copies * max(len(self.body.graph.node), 1) > self.limit:
            raise _Many
        name, locs = self.b.name, self.b.locs
        outs = self.w.subgraph(self.body, inputs, self.frame, f"{self.label}/{self.copies - 1}")
        self.b.name, self.b.locs = name, locs
        return _all_known(outs)

    # -- Loop --
    def loop(self, inputs: Sequence[Value | None]) -> list[Binding]:
        inputs = [*inputs, None, None][: max(len(inputs), 2)]
        never = isinstance(inputs[1], Value) and inputs[1].const is not None and not _scalar("the condition", inputs[1])
        trips = 0 if never else _known("the trip count", inputs[0])
        condition = _known("the condition", inputs[1])
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
                going = bool(_known("the condition of the next iteration", outs[0]))
        first = [self.b.const(np.int64(0)), self.b.const(np.bool_(True)), *states]
        return [*states, *(self._stacked(rows, 1 + len(states) + j, 0, first) for j, rows in enumerate(scans))]

    # -- Scan --
    def scan(self, inputs: Sequence[Value | None], attrs: dict[str, Any]) -> list[Binding]:
        states, xs, axes, back, length = _scan_parts(inputs, attrs)
        if length * max(len(self.body.graph.node), 1) > self.limit:
            raise _Many
        return self._scanned(states, xs, axes, back, length, attrs)

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
        first = [*states, *(self._zeros(x, a) for x, a in zip(xs, axes, strict=True))]
        stacked = [
            self._stacked(made[::-1] if d else made, len(states) + j, a, first)
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
        return [self._stacked(list(rows), j, 0, []) for j, rows in enumerate(zip(*results, strict=True))]

    # -- rows --
    def _row(self, x: Value, axis: int, at: int) -> Value:
        starts, sizes = [0] * x.type.rank, list(x.shape)
        starts[axis], sizes[axis] = at, 1
        part = self.b.one("Slice", x, starts=starts, steps=[1] * x.type.rank, sizes=sizes)
        return self.b.one("Reshape", part, shape=[d for k, d in enumerate(x.shape) if k != axis])

    def _zeros(self, x: Value, axis: int) -> Value:
        """In place of a row, where there is none"""
        return self.b.const(np.zeros([d for k, d in enumerate(x.shape) if k != axis], x.dtype.numpy))

    def _stacked(self, rows: list[Value], output: int, axis: int, first: Sequence[Binding]) -> Value:
        """`first`: what the first iteration takes, or would take"""
        if not rows:
            return self._empty(output, axis, first)
        if not all(isinstance(v, Value) for v in rows):
            raise ModelError("stacks values that are no tensors")
        axis = _axis(axis, rows[0].type.rank + 1)
        if len({v.shape for v in rows}) > 1:
            raise UnsupportedError("rows of different shapes cannot be stacked, which is not supported")
        shape = [*rows[0].shape[:axis], 1, *rows[0].shape[axis:]]
        parts = [self.b.one("Reshape", v, shape=shape) for v in rows]
        return parts[0] if len(parts) == 1 else self.b.emit("Concat", parts, {"axis": axis})[0]

    def _empty(self, output: int, axis: int, first: Sequence[Binding]) -> Value:
        """What no iteration made: rows are those that the body declares, or else that an iteration would give."""
        t = self.body.graph.output[output].type.tensor_type
        if t.elem_type in DTYPES and t.HasField("shape") and all(d.HasField("dim_value") for d in t.shape.dim):
            row = TensorType(DTYPES[t.elem_type], tuple(d.dim_value for d in t.shape.dim))
        else:
            mark = _Mark(self.w)
            row = self.step(first)[output].type
            mark.back()
        at = _axis(axis, row.rank + 1)
        return self.b.const(np.zeros((*row.shape[:at], 0, *row.shape[at:]), row.dtype.numpy))


def _scalar(what: str, v: Value | None) -> Any:
    """The one element of a constant; None when absent"""
    if v is None:
        return None
    if not isinstance(v, Value):
        raise ModelError(f"{what} is {v.type}")
    if v.const is None:
        raise UnsupportedError(f"{what} is known only at run time, which is not supported")
    if v.type.size != 1:
        raise ModelError(f"{what} has shape {list(v.shape)}, but must be one element")
    return v.const.array.ravel()[0]


def _known(what: str, v: Value | None) -> Any:
    """The same, where a loop is to be written out: otherwise it is not"""
    if isinstance(v, Value) and v.const is None:
        raise _Many(what)
    return _scalar(what, v)


def _list(attrs: dict[str, Any], name: str, n: int) -> list[int]:
    out = list(attrs.get(name) or [0] * n)
    if len(out) != n:
        raise ModelError(f"the attribute `{name}` has {len(out)} entries, but needs {n}")
    return out


def _axis(axis: int, rank: int) -> int:
    if not -rank <= axis < rank:
        raise ModelError(f"axis {axis} is outside of rank {rank}")
    return axis % rank
