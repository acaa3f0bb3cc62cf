"""What became of a model on its way into the image: removed, merged, fused, and why.

The model as it came in is compared with what was compiled from it. Whatever is in one and not in the
other is a row with the decision that made it so; passes note their decisions as they take them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from monobloc.codegen.lower import Lowered
from monobloc.ir.graph import Graph, Node, Value

Row = dict[str, Any]
_TAKE_AWAY = ("fold", "cse", "dce")  # passes whose last word on a node is why it is gone


class Fate:
    """Of everything in one model; `given` is its graph as the link got it."""

    def __init__(self, given: Graph, low: Lowered, removed: Sequence[str], unread: Sequence[str]) -> None:
        self.given, self.low, self.removed_outputs, self.unread_inputs = given, low, removed, unread
        self.nodes = {n for part in given.tree() for n in part.nodes}
        self.layer: dict[str, str] = {}  # the model's node -> the layer that does its work
        self.views: set[str] = set()
        for n in low.placement.steps():
            inner = n.body.nodes if n.body is not None else [n]
            for name in (*n.locs, n.name, *(x.name for x in inner), *(loc for x in inner for loc in x.locs)):
                if n in low.placement.views:
                    self.views.add(name)
                else:
                    self.layer.setdefault(name, n.name)
        self.why: dict[str, tuple[str, str]] = {}
        for name, by, reason in low.context.why:
            self.why[name] = (by, reason)
        self.kept = {v.const.key: v for v in low.weights.values() if v.const is not None}
        self.only = _needed_only_by(given, removed)

    def removed(self) -> list[Row]:
        """Outputs, inputs, nodes and weights that the image does not hold."""
        rows = [{"what": "output", "name": n, "reason": "no living code reads it"} for n in self.removed_outputs]
        rows += [{"what": "input", "name": n, "reason": "nothing needs it, and no living code names it"}
                 for n in self.unread_inputs]
        rows += [r for n in self.given.nodes if (r := self._node(n)) is not None]
        constants = [v for part in self.given.tree() for v in part.constants() if v.type.size > 1]
        weights = [r for v in constants if (r := self._weight(v)) is not None]
        return rows + sorted(weights, key=lambda r: -r["bytes"])

    def _node(self, n: Node) -> Row | None:
        names = (n.name, *n.locs)
        if any(x in self.layer for x in names):
            return None
        if n in self.only:
            by, reason = "outputs", f"only removed outputs need it: {', '.join(self.only[n])}"
        elif any(x in self.views for x in names):
            by, reason = "plan", "a view: its elements stay where they are"
        else:
            by, reason = self._decided(n, next((self.why[x] for x in names if x in self.why), ("", "")))
        return {"what": "node", "name": n.name, "op": n.op, "pass": by, "reason": reason}

    def _decided(self, n: Node, last: tuple[str, str]) -> tuple[str, str]:
        """The decision that took a node away, or the layer that does its work among other things."""
        if last[0] in _TAKE_AWAY:
            return last
        heir = self._heir(n)
        if heir is None:
            return last if last[1] else ("", "its result is not needed")
        return last[0] or "patterns", f"layer '{heir}' does its work" + (f": {last[1]}" if last[1] else "")

    def _heir(self, n: Node) -> str | None:
        """The layer of the nearest node that reads its result, near or far."""
        todo, seen = [n], {n}
        while todo:
            now = todo.pop(0)
            for user in (u for v in now.outputs for u in v.users):
                layer = next((self.layer[x] for x in (user.name, *user.locs) if x in self.layer), None)
                if layer is not None:
                    return layer
                if user not in seen:
                    seen.add(user)
                    todo.append(user)
        return None

    def _weight(self, v: Value) -> Row | None:
        """A weight that is not in the image as it is, nor packed under its own name."""
        assert v.const is not None
        if v.const.key in self.kept or any(x.name.startswith(f"{v.name}.") for x in self.kept.values()):
            return None
        row: Row = {"what": "weight", "name": v.name, "bytes": v.type.bytes}
        users = [n for n in v.users if n in self.nodes]
        if users and all(n in self.only for n in users):
            return {**row, "reason": f"only removed outputs need it: {', '.join(self.only[users[0]])}"}
        layers = dict.fromkeys(self.layer[x] for n in users for x in (n.name, *n.locs) if x in self.layer)
        if layers:
            return {**row, "reason": f"computed into what layer {' and '.join(map(repr, layers))} reads"}
        told = next((self.why[x] for n in users for x in (n.name, *n.locs) if x in self.why), None)
        if told:
            return {**row, "reason": f"'{users[0].name}' read it, and {told[1]}"}
        return {**row, "reason": "nothing reads it" if not users else "what read it is not needed"}

    def fused(self) -> list[Row]:
        """Layers that do the work of several operators."""
        rows = []
        for n in self.low.placement.steps():
            inner = n.body.nodes if n.body is not None else [n]
            if len(inner) > 1 and n not in self.low.placement.views:
                rows.append({"layer": n.name, "ops": [x.op for x in inner], "from": list(n.locs)})
        return rows


def _needed_only_by(g: Graph, removed: Sequence[str]) -> dict[Node, list[str]]:
    """Nodes that no other output needs, with the removed outputs that do."""
    needed = _feeding([v for name, v in g.outputs if name not in removed])
    out: dict[Node, list[str]] = {}
    for name, v in g.outputs:
        if name in removed:
            for n in _feeding([v]) - needed:
                out.setdefault(n, []).append(name)
    return out


def _feeding(values: Sequence[Value]) -> set[Node]:
    found: set[Node] = set()
    todo = [v.producer for v in values if v.producer is not None]
    while todo:
        n = todo.pop()
        if n not in found:
            found.add(n)
            todo += [v.producer for v in n.used if v.producer is not None]
    return found


# -- across models ------------------------------------------------------------------------------------
def merged(programs: Sequence[Lowered], given: Mapping[str, Graph]) -> list[Row]:
    """Weights that several tensors share, stored once."""
    users: dict[str, dict[tuple[str, str], None]] = {}
    values: dict[str, Value] = {}
    symbols: dict[str, str] = {}
    for low in programs:
        names = _names(given.get(low.interface.prefix))
        for symbol, v in low.weights.items():
            if v.const is not None:
                values[v.const.key] = v
                symbols.setdefault(v.const.key, symbol)
                for name in names.get(v.const.key, [v.name]):
                    users.setdefault(v.const.key, {})[low.interface.title, name] = None
    rows = [{"symbol": symbols[k], "bytes": values[k].type.bytes, "saved": values[k].type.bytes * (len(u) - 1),
             "tensors": [{"model": m, "name": n} for m, n in u]} for k, u in users.items() if len(u) > 1]
    return sorted(rows, key=lambda r: (-r["saved"], r["symbol"]))


def _names(g: Graph | None) -> dict[str, list[str]]:
    """The model's own names of its constants, by content."""
    out: dict[str, list[str]] = {}
    for v in g.constants() if g is not None else ():
        if v.const is not None:
            out.setdefault(v.const.key, []).append(v.name)
    return out
