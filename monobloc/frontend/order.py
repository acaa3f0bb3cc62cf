"""The nodes of one graph body in an order in which everything is made before it is used.

ONNX asks for a sorted list, yet files exist that are not sorted; sorting is stable, so a sorted
list stays as it is. Only what the wanted names need is kept. Names that a nested graph takes from
around it count as inputs of the node that holds it. Cycles, doubled and missing names are
problems with a place.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from monobloc.errors import Loc, ModelError, MonoblocError
from monobloc.frontend import proto


@dataclass
class Order:
    """Positions of the nodes to import; names without a value; what is wrong."""

    nodes: list[int]
    broken: set[str] = field(default_factory=set)
    problems: list[MonoblocError] = field(default_factory=list)


def order(
    nodes: Sequence[proto.NodeProto],
    wanted: Iterable[str],
    own: Iterable[str],
    outside: Callable[[str], bool],
    loc: Callable[[int], Loc],
) -> Order:
    """Sort a body. `own` are its names besides those of nodes; `outside` knows those around it."""
    out = Order([])
    makers = _makers(nodes, set(own), loc, out)
    uses = [used_names(n) for n in nodes]
    _missing(uses, makers, set(own), outside, loc, out)
    deps = [sorted({makers[x] for x in u if x in makers}) for u in uses]
    live = _live(deps, [makers[w] for w in wanted if w in makers])
    _sort(nodes, deps, live, loc, out)
    return out


def used_names(node: proto.NodeProto) -> list[str]:
    """Names a node reads, those of its nested graphs that come from around them included"""
    names = [x for x in node.input if x]
    for a in node.attribute:
        for g in (*([a.g] if a.HasField("g") else []), *a.graphs):
            names += captured(g)
    return list(dict.fromkeys(names))


def captured(g: proto.GraphProto) -> list[str]:
    """Names a nested graph reads but does not make"""
    made = {v.name for v in g.input} | {t.name for t in g.initializer}
    for n in g.node:
        made.update(n.output)
    reads = [x for n in g.node for x in used_names(n)] + [v.name for v in g.output]
    return [x for x in dict.fromkeys(reads) if x and x not in made]


def _makers(nodes: Sequence[proto.NodeProto], own: set[str], loc: Callable[[int], Loc], out: Order) -> dict[str, int]:
    makers: dict[str, int] = {}
    for i, n in enumerate(nodes):
        for name in n.output:
            if not name:
                continue
            if name in makers:
                first = f"first by {loc(makers[name])}"
                out.problems.append(ModelError(f"output '{name}' is made twice", loc=loc(i), notes=[first]))
            elif name in own:
                out.problems.append(ModelError(f"output '{name}' is already an input or initializer", loc=loc(i)))
            else:
                makers[name] = i
    return makers


def _missing(
    uses: Sequence[Sequence[str]],
    makers: dict[str, int],
    own: set[str],
    outside: Callable[[str], bool],
    loc: Callable[[int], Loc],
    out: Order,
) -> None:
    for i, names in enumerate(uses):
        for name in names:
            if name in makers or name in own or name in out.broken or outside(name):
                continue
            names_near = [*makers, *sorted(own)][:5000] if len(out.problems) < 10 else []
            near = difflib.get_close_matches(name[:200], names_near, 1)
            hints = [f"did you mean '{near[0]}'?"] if near else []
            out.problems.append(ModelError(f"reads '{name}', which nothing makes", loc=loc(i), hints=hints))
            out.broken.add(name)


def _live(deps: Sequence[Sequence[int]], roots: Iterable[int]) -> set[int]:
    live: set[int] = set()
    queue = list(roots)
    while queue:
        i = queue.pop()
        if i not in live:
            live.add(i)
            queue += deps[i]
    return live


def _sort(
    nodes: Sequence[proto.NodeProto],
    deps: Sequence[Sequence[int]],
    live: set[int],
    loc: Callable[[int], Loc],
    out: Order,
) -> None:
    """Depth first along the inputs, in file order; an edge back to the path closes a cycle."""
    done: set[int] = set()
    for root in sorted(live):
        if root in done:
            continue
        path = {root: iter(deps[root])}
        while path:
            at = next(reversed(path))
            for d in path[at]:
                if d in path:
                    _cycle(nodes, list(path), d, loc, out)
                elif d not in done:
                    path[d] = iter(deps[d])
                    break
            else:
                del path[at]
                done.add(at)
                out.nodes.append(at)


def _cycle(
    nodes: Sequence[proto.NodeProto],
    path: list[int],
    back: int,
    loc: Callable[[int], Loc],
    out: Order,
) -> None:
    ring = path[path.index(back) :]
    names = [loc(i).node for i in [*ring, back]]
    if len(names) > 8:
        names = [*names[:4], "...", *names[-3:]]
    out.problems.append(ModelError(f"is part of a cycle: {' <- '.join(names)}", loc=loc(back)))
    for i in ring:
        out.broken.update(x for x in nodes[i].output if x)
