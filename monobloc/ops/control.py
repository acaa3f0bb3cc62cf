"""Control flow that data decide: If and Loop. Scan is a Loop whose body picks its rows.

A control node runs regions, graphs of their own. What a region takes from around it is an input of the
node, so a node's inputs say all that it reads, and passes and plan need to know nothing else of it. A
region's layers are ordinary ones; the node itself is the C round them: an `if` round two lists of calls, a
`for` round one.

What goes round a loop lies in the loop's own outputs: they are set to their first values, the body reads
them, and at the end of an iteration the next ones are taken over. Rows to stack move to their place then.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from monobloc.ir.graph import Graph, Node, Value
from monobloc.ir.interp import run_graph
from monobloc.ir.types import DType, TensorType
from monobloc.ops import OpDef

UNBOUND = -1


class If(OpDef):
    """One of two regions. Inputs: the condition, then what both regions take, in their inputs' order."""

    name = "If"
    internal = True

    def infer(self, ins: Sequence[Value | None], attrs: dict[str, Any]) -> list[TensorType]:
        yes, no = ([v.type.with_layout(None) for _, v in attrs[k].outputs] for k in ("then", "else"))
        assert yes == no, f"the branches give {yes} and {no}"
        for k in ("then", "else"):
            _fits(attrs[k].inputs, ins[1:])
        return yes

    def ref(self, attrs: dict[str, Any], *xs: np.ndarray | None) -> list[np.ndarray]:
        assert xs[0] is not None
        taken = attrs["then"] if xs[0].ravel()[0] else attrs["else"]
        return run_graph(taken, [x for x in xs[1:] if x is not None])

    def routine(self, n: Node, c: Any) -> str:
        condition, yes, no = n.inputs[0], n.attrs["then"], n.attrs["else"]
        return f"if (*{c.ptr(condition)}) {{\n{c.region(yes)}\n}} else {{\n{c.region(no)}\n}}"


@dataclass(frozen=True)
class Ports:
    """What a loop's inputs, outputs and region hold, by their parts."""

    trips: Value | None
    condition: Value | None
    first: tuple[Value, ...]  # what carried values start with
    captured: tuple[Value, ...]
    last: tuple[Value, ...]  # carried values, and what they are at the end
    stacked: tuple[Value, ...]
    count: Value | None  # how many rows those have
    number: Value  # inside: which iteration this is
    now: tuple[Value, ...]  # inside: carried values
    inner: tuple[Value, ...]  # inside: what is captured
    goes_on: Value | None  # inside: whether there is another iteration
    then: tuple[Value, ...]  # inside: the next carried values
    rows: tuple[Value, ...]  # inside: one row of each stack


def ports(n: Node) -> Ports:
    """The parts of a Loop node."""
    body, k = n.attrs["do"], n.attrs["carried"]
    outs, test = [v for _, v in body.outputs], int(n.attrs["test"])
    given = [v for v in n.inputs[2:] if v is not None]
    end = len(n.outputs) - int(n.attrs["counted"])
    return Ports(
        n.inputs[0], n.inputs[1], tuple(given[:k]), tuple(given[k:]), tuple(n.outputs[:k]),
        tuple(n.outputs[k:end]), n.outputs[end] if n.attrs["counted"] else None,
        body.inputs[0], tuple(body.inputs[1 : 1 + k]), tuple(body.inputs[1 + k :]),
        outs[0] if test else None, tuple(outs[test : test + k]), tuple(outs[test + k :]),
    )  # fmt: skip


class Loop(OpDef):
    """A region again and again.

    Inputs: how often at most, whether at all (both may be absent), what is carried round, what the region
    takes. The region's inputs: the iteration's number, carried values, what is taken; its outputs: whether to go
    on (where `test`), the next carried values, rows to stack (of `most` iterations). Outputs: carried values at the
    end, stacks, and where `counted` how many iterations there were. A loop that would go on after `most` is at its
    end, or where that is `bounded` by the user the run's.
    """

    name = "Loop"
    internal = True

    def infer(self, ins: Sequence[Value | None], attrs: dict[str, Any]) -> list[TensorType]:
        body, k, test = attrs["do"], attrs["carried"], int(attrs["test"])
        outs = [v.type.with_layout(None) for _, v in body.outputs][test:]
        _fits(body.inputs[1:], ins[2:])
        _fits(body.inputs[1 : 1 + k], [v for _, v in body.outputs[test : test + k]])
        count = [TensorType(DType.I64, ())] if attrs["counted"] else []
        return [*outs[:k], *(TensorType(t.dtype, (attrs["most"], *t.shape)) for t in outs[k:]), *count]

    def ref(self, attrs: dict[str, Any], *xs: np.ndarray | None) -> list[np.ndarray]:
        body, k, test = attrs["do"], attrs["carried"], int(attrs["test"])
        trips = np.inf if attrs["most"] == UNBOUND else attrs["most"]
        trips = trips if xs[0] is None else min(trips, int(xs[0].ravel()[0]))
        going = xs[1] is None or bool(xs[1].ravel()[0])
        given = [x for x in xs[2:] if x is not None]
        state, taken = given[:k], given[k:]
        stacks: list[list[np.ndarray]] = [[] for _ in body.outputs[test + k :]]
        i = 0
        while going and i < trips:
            number = np.full(body.inputs[0].shape, i, body.inputs[0].dtype.numpy)
            outs = run_graph(body, [number, *state, *taken])
            going = not test or bool(outs[0].ravel()[0])
            state = outs[test : test + k]
            for stack, row in zip(stacks, outs[test + k :], strict=True):
                stack.append(row)
            i += 1
        kinds = [v.type for _, v in body.outputs[test + k :]]
        made = [_in_room(s, attrs["most"], t) for s, t in zip(stacks, kinds, strict=True)]
        return [*state, *made, *([np.array(i, np.int64)] if attrs["counted"] else [])]

    def routine(self, n: Node, c: Any) -> str:
        p = ports(n)
        limit = [f"i < {n.attrs['most']}"] if n.attrs["most"] != UNBOUND else []
        limit += ["i < trips"] if p.trips is not None else []
        going = p.goes_on is not None or p.condition is not None
        head = [f"const int64_t trips = *{c.ptr(p.trips)};"] if p.trips is not None else []
        head += [f"int going = {f'*{c.ptr(p.condition)}' if p.condition is not None else '1'};"] if going else []
        head += [_move(c, a, b) for a, b in zip(p.last, p.first, strict=True) if a.type.size]
        tail = [f"going = *{c.ptr(p.goes_on)};"] if p.goes_on is not None else []
        tail += [_move(c, a, b) for a, b in zip(p.last, p.then, strict=True) if a.type.size]
        stacks = zip(p.stacked, p.rows, strict=True)
        tail += [_move(c, a, b, f" + i * {b.type.size}") for a, b in stacks if b.type.size]
        test = " && ".join([*(["going"] if going else []), *limit]) or "1"
        start = ["int64_t i = 0;", f"for (; {test}; i++) {{", f"*(int64_t *){c.ptr(p.number)} = i;"]
        end = [f"*{c.ptr(p.count)} = i;"] if p.count is not None else []
        if n.attrs["bounded"]:
            more = " && ".join([*(["going"] if going else []), *(["i < trips"] if p.trips is not None else [])]) or "1"
            end.append(f"if ({more}) return MB_E_SHAPE;")
        return "\n".join([*head, *start, c.region(n.attrs["do"]), *tail, "}", *end])


def _in_room(rows: Sequence[np.ndarray], most: int, t: TensorType) -> np.ndarray:
    """Rows stacked, with room for the most"""
    out = np.zeros((most, *t.shape), t.dtype.numpy)
    out[: len(rows)] = np.array(rows, t.dtype.numpy).reshape(len(rows), *t.shape)
    return out


def _move(c: Any, to: Value, source: Value, at: str = "") -> str:
    return f"__builtin_memcpy({c.ptr(to)}{at}, {c.ptr(source)}, {source.type.bytes});"


def _fits(inner: Sequence[Value], outer: Sequence[Value | None]) -> None:
    """A region's inputs are of the types of what they are given."""
    for a, b in zip(inner, outer, strict=True):
        assert b is not None and (a.dtype, a.shape) == (b.dtype, b.shape), f"{a} takes {b}"


def outside_of(n: Node, region: Graph) -> list[tuple[Value, Value]]:
    """Values of a region that lie where values of the graph round it do: what it takes, what a branch gives, and
    what goes round a loop, which lies in the loop's outputs."""
    if n.op == "If":
        taken = [(a, b) for a, b in zip(region.inputs, n.inputs[1:], strict=True) if b is not None]
        return [*taken, *((v, o) for (_, v), o in zip(region.outputs, n.outputs, strict=True))]
    p = ports(n)
    return [*zip(p.now, p.last, strict=True), *zip(p.inner, p.captured, strict=True)]


def is_control(n: Node) -> bool:
    return bool(n.regions)


class OpenRegion(Graph):
    """A region that is being made: its nodes may still read values from around it."""

    def __init__(self, name: str, within: Graph) -> None:
        super().__init__(name, within)
        self.own: set[Value] = set()

    def value(self, name: str, type: TensorType, origin: str = "") -> Value:
        v = super().value(name, type, origin)
        self.own.add(v)
        return v


def close(regions: Sequence[OpenRegion]) -> list[Value]:
    """Make regions of one node see nothing of what is around them: what they read there becomes their inputs, the
    same ones of all of them, and constants their own. Gives what the node has to hand in, in order of first use."""
    captured: dict[Value, None] = {}
    inner: list[dict[Value, Value]] = []
    for r in regions:
        seen: dict[Value, Value] = {}
        for n in r.nodes:
            for k, v in enumerate(n.inputs):
                if v is not None:
                    r.set_input(n, k, _inside(r, v, seen))
        r.outputs = [(name, _inside(r, v, seen)) for name, v in r.outputs]
        captured.update(dict.fromkeys(v for v, mine in seen.items() if mine.const is None))
        inner.append(seen)
    for r, seen in zip(regions, inner, strict=True):
        r.inputs += [seen.get(v) or r.value(f"{v.name}.in", v.type) for v in captured]
        for v in r.inputs:
            v.origin = v.name
    return list(captured)


def _inside(r: OpenRegion, v: Value, seen: dict[Value, Value]) -> Value:
    if v in r.own:
        return v
    if v not in seen:
        seen[v] = r.value(f"{v.name}.in", v.type)
        seen[v].const = v.const
    return seen[v]
