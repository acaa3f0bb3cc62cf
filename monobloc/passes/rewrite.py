"""Local rewriting: rules by operator, applied until nothing changes.

A rule looks at one node and gives the values that replace its outputs, or None with a reason why it
does not apply. The right side is never worse than the left; each rule states its identity.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from monobloc.ir.graph import Graph, Node, Value
from monobloc.ops.build import Builder
from monobloc.passes import PassContext

Rule = Callable[[Node, Builder], Sequence[Value] | None]
MAX_ROUNDS = 50


def apply_rules(g: Graph, rules: Mapping[str, Sequence[Rule]], ctx: PassContext, by: str) -> bool:
    """Every rule on every node, repeatedly; replaced nodes are removed at once."""
    changed = False
    for _ in range(MAX_ROUNDS):
        if not _sweep(g, rules, ctx, by):
            return changed
        changed = True
    raise AssertionError(f"the rules of {by} do not come to rest")


def _sweep(g: Graph, rules: Mapping[str, Sequence[Rule]], ctx: PassContext, by: str) -> bool:
    changed = False
    exported = g.output_values
    for node in list(g.nodes):
        if not any(v.users or v in exported for v in node.outputs):
            continue  # dead already
        for rule in rules.get(node.op, ()):
            g.release([node])  # the first node that a rule makes takes over the name
            new = rule(node, Builder(g, before=node, locs=node.locs, name=node.name))
            if new is None:
                g.reserve(node)
                continue
            ctx.reason(node, by, (rule.__doc__ or rule.__name__).strip().splitlines()[0])
            for old, v in zip(node.outputs, new, strict=True):
                g.replace(old, v)
            exported = g.output_values
            changed = True
            break
    if changed:
        sweep_dead(g)
    return changed


def sweep_dead(g: Graph) -> None:
    live = g.output_values
    dead: set[Node] = set()
    for node in reversed(g.nodes):
        if any(v in live for v in node.outputs):
            live.update(node.used)
        else:
            dead.add(node)
    if dead:
        g.remove_all(dead)


def only_use(g: Graph, v: Value) -> bool:
    """Whether a value is read exactly once and does not leave the graph."""
    return len(v.users) == 1 and g.uses(v) == 1


def made_by(v: Value | None, *ops: str) -> Node | None:
    """The node that makes `v` if it is one of these operators."""
    return v.producer if v is not None and v.producer is not None and v.producer.op in ops else None
