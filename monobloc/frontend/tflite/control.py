"""IF and WHILE: subgraphs that become regions of the same control nodes as ONNX's."""

from __future__ import annotations

from collections.abc import Sequence

from monobloc.frontend.tflite.node import Held, Result, TflNode
from monobloc.ir.graph import Value
from monobloc.ir.types import DType, TensorType
from monobloc.ops.control import UNBOUND, OpenRegion, close


def if_(n: TflNode) -> Result:
    condition, numbers = n.x(0), (n.options.whole(0), n.options.whole(1))
    given = [n.x(k) for k in range(1, len(n.ins))]
    if condition.type.size != 1 or condition.dtype is not DType.BOOL:
        n.fail(f"the condition is {condition.type}, but must be one bool")
    if condition.const is not None:
        return _held(n.call(n.graph, numbers[0 if condition.const.array.ravel()[0] else 1], given))
    regions = []
    for number, word in zip(numbers, ("then", "else"), strict=True):
        region = OpenRegion(f"{n.loc.node}/{word}", n.graph)
        region.outputs = [(f"out{k}", v) for k, v in enumerate(n.call(region, number, given))]
        regions.append(region)
    yes, no = ([v.type for _, v in r.outputs] for r in regions)
    if yes != no:
        n.unsupported(f"a choice between {_told(yes)} and {_told(no)}")
    taken = close(regions)
    inside = {"then": regions[0], "else": regions[1]}
    return _held(n.graph.make("If", [condition, *taken], yes, inside, name=n.loc.node, locs=n.b.locs).outputs)


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


READERS = {"IF": if_, "WHILE": while_}
