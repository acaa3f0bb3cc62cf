"""torch.cond and while_loop: subgraphs that become regions of the same control nodes as ONNX's.

Where the condition is known while the program is read, the branch that is taken is written out instead.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from monobloc.errors import UnsupportedError
from monobloc.ir.graph import Graph, Value
from monobloc.ir.types import DType, TensorType
from monobloc.ops.build import Builder, cast_to
from monobloc.ops.control import UNBOUND, OpenRegion, close

Body = Callable[[Any, Sequence[Any], Graph], list[Any]]  # (subgraph, its inputs, the graph to write into)


def cond(args: Sequence[Any], b: Builder, body: Body) -> list[Any]:
    condition, *branches, given = args
    if isinstance(condition, Value) and condition.const is not None:
        condition = bool(condition.const.array.ravel()[0])
    if not isinstance(condition, Value):
        return body(branches[0 if condition else 1], given, b.graph)
    regions = []
    for branch, word in zip(branches, ("then", "else"), strict=True):
        region = OpenRegion(f"{b.name}/{word}", b.graph)
        region.outputs = [(f"out{k}", v) for k, v in enumerate(tensors(body(branch, given, region)))]
        regions.append(region)
    types, others = ([v.type for _, v in r.outputs] for r in regions)
    if types != others:
        yes, no = (", ".join(map(str, t)) or "nothing" for t in (types, others))
        raise UnsupportedError(f"a choice between {yes} and {no} is not supported")
    taken = close(regions)
    inside = {"then": regions[0], "else": regions[1]}
    return list(b.graph.make("If", [flag(b, condition), *taken], types, inside, name=b.name, locs=b.locs).outputs)


def while_loop(args: Sequence[Any], b: Builder, body: Body) -> list[Any]:
    """The condition's subgraph runs before the loop, and at the end of each iteration."""
    test, step, carried, more = args
    first = tensors(carried)
    region = OpenRegion(b.name, b.graph)
    region.add_input(f"{b.name}/i", TensorType(DType.I64, ()))
    now = [region.add_input(f"{v.name}.now", v.type) for v in first]
    then = tensors(body(step, [*now, *more], region))
    for a, z in zip(first, then, strict=True):
        if (a.dtype, a.shape) != (z.dtype, z.shape):
            raise UnsupportedError(f"a carried value that is {a.type} before an iteration and {z.type} after it "
                                   "is not supported")
    goes_on = flag(Builder(region, name=b.name, locs=b.locs), tensors(body(test, [*then, *more], region))[0])
    region.outputs = [("test", goes_on), *((f"out{k}", v) for k, v in enumerate(then))]
    start = flag(b, tensors(body(test, [*first, *more], b.graph))[0])
    taken = close([region])
    attrs = {"do": region, "carried": len(first), "test": True, "most": UNBOUND, "counted": False, "bounded": False}
    made = b.graph.make("Loop", [None, start, *first, *taken], [v.type for v in first], attrs, name=b.name, locs=b.locs)
    return list(made.outputs)


def flag(b: Builder, v: Value) -> Value:
    """A condition as one bool"""
    v = cast_to(b, v, DType.BOOL)
    return v if v.shape == () else b.one("Reshape", v, shape=[])


def tensors(values: Sequence[Any]) -> list[Value]:
    if not all(isinstance(v, Value) for v in values):
        raise UnsupportedError("a branch or loop that gives numbers, complex tensors or tensors whose size data decide "
                               "is not supported")
    return list(values)


CONTROL: dict[str, Callable[[Sequence[Any], Builder, Body], list[Any]]] = {"cond": cond, "while_loop": while_loop}
