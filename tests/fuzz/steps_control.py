"""Steps of branches and loops: bodies are short chains that keep a shape, over values of their own and of outside.

What a branch or body reads from outside it names, so nesting is a chain with an If or Loop in it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
from builder import Builder
from onnx import TensorProto, helper
from steps import chance, number, some

UNARY = ("Relu", "Neg", "Abs", "Tanh", "Sigmoid", "Softsign", "Sin", "Identity", "Erf")
BINARY = ("Add", "Sub", "Mul", "Max", "Min")
ROOM = 6  # trips at most
LARGE = 4000


def branch(b: Builder) -> str:
    """An If of a condition that is data, or known"""
    x = _start(b)
    k = len(b.nodes)
    return _first(b.add(_branch(b, x, _partners(b, x), f"s{k}", 1, [f"t{k}_0"]))) if x else ""


def loop(b: Builder) -> str:
    """A Loop with a state and a stack of rows; its count and condition are data, or known"""
    x = _start(b)
    k = len(b.nodes)
    outs = [f"t{k}_0", f"t{k}_1"][: number(b, 1, 2)]
    return _first(b.add(_loop(b, x, _partners(b, x), f"s{k}", 1, outs))) if x else ""


def scan(b: Builder) -> str:
    x = b.pick(low=2)
    if not x or 0 in b.values[x].shape or b.values[x].size > LARGE:
        return ""
    shape, tag = b.values[x].shape, f"s{len(b.nodes)}"
    axis = number(b, 0, len(shape) - 1)
    rest = shape[:axis] + shape[axis + 1:]
    state = b.leaf(rest)
    body = _Body(b, [f"{tag}_h", f"{tag}_x"], [n for n, v in b.values.items() if v.shape == rest and _plain(v)], tag)
    body.chain(number(b, 1, 4), 0)
    new, row = body.last(), body.any()
    row = body.node("Identity", row) if row == new or row not in body.made else row
    graph = _graph(body.nodes, [f"{tag}_h", f"{tag}_x"], [new, row], None if b.dims else rest)
    node = helper.make_node(
        "Scan", [state, x], [f"t{len(b.nodes)}_0", f"t{len(b.nodes)}_1"], body=graph,
        num_scan_inputs=1, scan_input_axes=[axis], scan_output_axes=[number(b, 0, len(rest))],
        scan_input_directions=[number(b, 0, 1)], scan_output_directions=[number(b, 0, 1)])
    return _first(b.add(node))


# -- pieces ---------------------------------------------------------------------------------------------
class _Body:
    """Nodes of a subgraph under construction; `own` are its inputs, `outer` what it may read from outside."""

    def __init__(self, b: Builder, own: Sequence[str], outer: Sequence[str], tag: str) -> None:
        self.b, self.tag, self.outer = b, tag, [*outer]
        self.known = [*own]
        self.made: list[str] = []
        self.nodes: list[onnx.NodeProto] = []

    def node(self, kind: str, *ins: str, **attrs: object) -> str:
        name = f"{self.tag}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, ins, [name], **attrs))
        self.made.append(name)
        self.known.append(name)
        return name

    def any(self) -> str:
        inner = self.known and (chance(self.b, 0.7) or not self.outer)
        return str(some(self.b, *(self.known if inner else self.outer)))

    def last(self) -> str:
        """What came last; it has the shape that the chain keeps, as others need not."""
        return (self.known or self.outer)[-1]

    def chain(self, steps: int, depth: int) -> None:
        """`depth`: how deep branches and loops may still nest"""
        for _ in range(steps):
            if depth and chance(self.b, 0.25):
                tag, outs = f"{self.tag}_{len(self.nodes)}", [f"{self.tag}_{len(self.nodes)}_out"]
                make = _branch if chance(self.b) else _loop
                self.nodes.append(make(self.b, self.last(), [*self.known, *self.outer], tag, depth - 1, outs))
                self.made += outs
                self.known += outs
            elif chance(self.b):
                self.node(str(some(self.b, *UNARY)), self.last())
            else:
                self.node(str(some(self.b, *BINARY)), self.last(), self.any())


def _branch(b: Builder, x: str, partners: Sequence[str], tag: str, depth: int,
            outs: Sequence[str]) -> onnx.NodeProto:
    shape = b.values[x].shape if x in b.values and not b.dims else None
    graphs = []
    for side in ("yes", "no"):
        body = _Body(b, [], [*partners, x], f"{tag}{side}")
        body.chain(number(b, 0, 3), depth)
        out = body.last() if body.made else body.node("Identity", x)
        graphs.append(_graph(body.nodes, [], [out], shape))
    return helper.make_node("If", [b.leaf((), np.bool_)], outs, then_branch=graphs[0], else_branch=graphs[1])


def _loop(b: Builder, x: str, partners: Sequence[str], tag: str, depth: int,
          outs: Sequence[str]) -> onnx.NodeProto:
    """The condition compares the iteration with a number, so that it does not hang on roundings."""
    shape = b.values[x].shape if x in b.values and not b.dims else None
    number_, goes, state = f"{tag}_i", f"{tag}_c", f"{tag}_s"
    body = _Body(b, [state], [*partners, x], tag)
    if chance(b, 0.4):
        at = body.node("Cast", number_, to=TensorProto.FLOAT)
        body.known.remove(at)
        body.node("Add", state, at)
    body.chain(number(b, 1, 3), depth)
    kept = body.last() if body.last() in body.made else body.node("Identity", body.last())
    on = body.node("Identity", goes)
    if chance(b, 0.4):
        on = body.node("Less", number_, _known_or_not(b, number(b, -1, ROOM - 2)))
    rows = [body.node("Identity", str(some(b, *body.known, *body.outer))) for _ in outs[1:]]
    graph = _graph(body.nodes, [state], [kept, *rows], shape, loop=(number_, goes, on))
    condition = "" if chance(b, 0.6) else b.leaf((), np.bool_)
    return helper.make_node("Loop", [_known_or_not(b, number(b, 0, ROOM)), condition, x], outs, body=graph)


def _known_or_not(b: Builder, n: int) -> str:
    return (b.constant if chance(b) else b.input)(np.array(n))


def _graph(nodes: Sequence[onnx.NodeProto], ins: Sequence[str], outs: Sequence[str], shape: tuple[int, ...] | None,
           loop: tuple[str, str, str] | None = None) -> onnx.GraphProto:
    def info(name: str, dtype: int = TensorProto.FLOAT, dims: tuple[int, ...] | None = None) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(name, dtype, dims)

    first = [info(loop[0], TensorProto.INT64, ()), info(loop[1], TensorProto.BOOL, ())] if loop else []
    last = [info(loop[2], TensorProto.BOOL, ())] if loop else []
    return helper.make_graph(nodes, "body", [*first, *map(info, ins)],
                             [*last, *(info(o, dims=shape) for o in outs[:1]), *map(info, outs[1:])])


def _start(b: Builder) -> str:
    x = b.pick()
    return x if x and b.values[x].size < LARGE else ""


def _partners(b: Builder, x: str) -> list[str]:
    """Others of its shape, and scalars"""
    there = [n for n, v in b.values.items() if _plain(v) and v.shape in (b.values[x].shape, ()) and n != x]
    return there if there and chance(b, 0.8) else [b.leaf(b.values[x].shape)]


def _plain(v: np.ndarray) -> bool:
    return v.dtype == np.float32


def _first(names: list[str]) -> str:
    return names[0] if names else ""
