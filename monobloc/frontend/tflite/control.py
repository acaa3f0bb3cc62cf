"""IF, STABLEHLO_CASE and WHILE: subgraphs that become regions of the same control nodes as ONNX's."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from monobloc.frontend.tflite.node import Held, Result, TflNode
from monobloc.ir.graph import Graph, Value
from monobloc.ir.types import DType, TensorType
from monobloc.ops.build import Builder
from monobloc.ops.control import UNBOUND, OpenRegion, close
from monobloc.ops.shape import reshape

Way = Callable[[Graph], list[Value]]  # writes a branch into a region


def if_(n: TflNode) -> Result:
    condition, numbers = n.x(0), (n.options.whole(0), n.options.whole(1))
    given = [n.x(k) for k in range(1, len(n.ins))]
    if condition.type.size != 1 or condition.dtype is not DType.BOOL:
        n.fail(f"the condition is {condition.type}, but must be one bool")
    if condition.const is not None:
        return _held(n.call(n.graph, numbers[0 if condition.const.array.ravel()[0] else 1], given))
    return _held(_choice(n, n.graph, n.loc.node, condition, [_way(n, k, given) for k in numbers]))


def case(n: TflNode) -> Result:
    """As many branches as there are; a number that none has is the last one's."""
    at, numbers = n.x(0), n.options.ints(0)
    given = [n.x(k) for k in range(1, len(n.ins))]
    if at.type.size != 1 or at.dtype is not DType.I32 or not numbers:
        n.fail(f"chooses among {len(numbers)} branches by {at.type}")
    if at.const is not None:
        k = int(at.const.array.ravel()[0])
        return _held(n.call(n.graph, numbers[k if 0 <= k < len(numbers) else -1], given))
    at = reshape(n.b, at, [])

    def rest(graph: Graph, first: int) -> list[Value]:
        if first == len(numbers) - 1:
            return n.call(graph, numbers[first], given)
        here = Builder(graph, name=n.loc.node, locs=n.b.locs)
        hit = here.one("Equal", at, here.const(first, DType.I32))
        return _choice(n, graph, f"{n.loc.node}/{first}", hit,
                       [_way(n, numbers[first], given), lambda g: rest(g, first + 1)])

    return _held(rest(n.graph, 0))


def _way(n: TflNode, number: int, given: Sequence[Value]) -> Way:
    return lambda g: n.call(g, number, given)


def _choice(n: TflNode, graph: Graph, name: str, condition: Value, ways: Sequence[Way]) -> list[Value]:
    """One of two regions of a graph"""
    regions = []
    for way, word in zip(ways, ("then", "else"), strict=True):
        region = OpenRegion(f"{name}/{word}", graph)
        region.outputs = [(f"out{k}", v) for k, v in enumerate(way(region))]
        regions.append(region)
    yes, no = ([v.type for _, v in r.outputs] for r in regions)
    if yes != no:
        n.unsupported(f"a choice between {_told(yes)} and {_told(no)}")
    taken = close(regions)
    inside = {"then": regions[0], "else": regions[1]}
    return graph.make("If", [condition, *taken], yes, inside, name=name, locs=n.b.locs).outputs


def while_(n: TflNode) -> Result:
    """The condition's subgraph runs before the loop, and at the end of each iteration."""
    test, body = n.options.whole(0), n.options.whole(1)
    given = [n.x(k) for k in range(len(n.ins))]
    changing = [k for k in range(len(given)) if not n.passes(body, k)]
    region = OpenRegion(n.loc.node, n.graph)
    region.add_input(f"{n.loc.node}/i", TensorType(DType.I64, ()))
    now = [region.add_input(f"{given[k].name}.now", given[k].type) if k in changing else given[k]
           for k in range(len(given))]
    then = n.call(region, body, now)
    if len(then) != len(given):
        n.fail(f"carries {len(given)} values, but its body gives {len(then)}")
    for a, z in zip(given, then, strict=True):
        if (a.dtype, a.shape) != (z.dtype, z.shape):
            n.unsupported(f"a carried value that is {a.type} before an iteration and {z.type} after it")
    goes_on = n.call(region, test, then)[0]
    region.outputs = [("test", goes_on), *((f"out{k}", then[k]) for k in changing)]
    first = n.call(n.graph, test, given)[0]
    taken = close([region])
    carried = [given[k] for k in changing]
    attrs = {"do": region, "carried": len(carried), "test": True, "most": UNBOUND, "counted": False,
             "bounded": False}
    made = n.graph.make("Loop", [None, first, *carried, *taken], [v.type for v in carried], attrs, name=n.loc.node,
                        locs=n.b.locs)
    last = dict(zip(changing, made.outputs, strict=True))
    return _held([last.get(k, v) for k, v in enumerate(given)])


def _held(values: Sequence[Value]) -> Result:
    return [Held(last=v) for v in values]


def _told(types: Sequence[TensorType]) -> str:
    return ", ".join(map(str, types)) or "nothing"


READERS = {"IF": if_, "STABLEHLO_CASE": case, "WHILE": while_}
