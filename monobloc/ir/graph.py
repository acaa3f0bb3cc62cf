"""The SSA graph: Graph, Node, Value, Const; and the only functions that change one.

Every Value is made once, by a node, as a graph input or as a constant. Nodes are kept in an order in
which every value is made before it is used. Every Node knows the model's nodes it came from (Loc).
Constants hold their array, or know how to get it: a link reads graphs, not weights.
"""

from __future__ import annotations

import hashlib
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import numpy as np

from monobloc.ir.dims import Dim, symbols_of
from monobloc.ir.symbolic import Space, has_open
from monobloc.ir.types import DType, TensorType

KEPT = 1 << 16  # bytes of a constant that stays in memory once it was read


class Const:
    """A constant's data, by content: its hash is its name everywhere (object, symbol, cache).

    Large data that can be read again are only lent: they go when nobody uses them any more, so that memory holds
    a few of a model's weights at a time. `once`: `load` is slow, what it gives is kept (or spooled, see `spool.py`).

    `source` remembers that these data are a permutation of another constant's axes, so that an object
    can store one of the two and name the other. `panels` remembers that they are a matrix [k, n] packed for
    vectors of `vl` in panels of `nv` of them, so that others who want the matrix can read it here.
    """

    def __init__(
        self,
        array: np.ndarray | None = None,
        *,
        key: str | None = None,
        load: Callable[[], np.ndarray] | None = None,
        once: bool = False,
        source: tuple[Const, tuple[int, ...]] | None = None,
        panels: tuple[Const, tuple[int, int, int, int]] | None = None,  # the matrix; k, n, nv, vl
    ) -> None:
        assert array is not None or load is not None
        self._array, self._key, self._load, self._once = array, key, load, once
        self._lent: Callable[[], np.ndarray | None] = lambda: None
        self._most = KEPT  # bytes of data that stay
        self.source, self.panels = source, panels

    @property
    def array(self) -> np.ndarray:
        found = self._array if self._array is not None else self._lent()
        if found is None:
            assert self._load is not None
            found = self._load()
            if found.nbytes <= self._most or self._once:
                self._array = found
            else:
                self._lent = weakref.ref(found)
        return found

    @property
    def has_open(self) -> bool:
        """Whether there are sizes among its elements; such are never read from anywhere, so nothing is read here."""
        return self._array is not None and has_open(self._array)

    def spool(self, keep: Callable[[np.ndarray], Callable[[], np.ndarray] | None], most: int = KEPT) -> None:
        """Data larger than `most` leave memory; what can be read nowhere else goes to where `keep` puts it."""
        array = self._array
        if array is None or array.nbytes <= most or has_open(array):
            return
        load = keep(array) if self._load is None or self._once else self._load
        if load is not None:
            self._array, self._load, self._once, self._lent = None, load, False, weakref.ref(array)
            self._most = most

    @property
    def key(self) -> str:
        """32 hex digits: a hash of the bytes only, so that equal data are equal names"""
        if self._key is None:
            self._key = content_key(self.array)
        return self._key


def content_key(array: np.ndarray) -> str:
    if has_open(array):
        return hashlib.blake2b(str(array.tolist()).encode(), digest_size=16).hexdigest()
    data = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    return hashlib.blake2b(data.data, digest_size=16).hexdigest()


@dataclass(eq=False)
class Value:
    """One tensor. `name` is unique in its graph; `origin` is the model's own name for it."""

    name: str
    type: TensorType
    producer: Node | None = None
    const: Const | None = None
    origin: str = ""
    state: str = ""  # of an input that is state: the output whose value it has in the next run
    users: list[Node] = field(default_factory=list, repr=False)

    @property
    def dtype(self) -> DType:
        return self.type.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        return self.type.shape

    def __hash__(self) -> int:
        return id(self)

    def __repr__(self) -> str:
        return f"%{self.name}:{self.type}"


@dataclass(eq=False)
class Node:
    """One operation. Optional inputs that are absent are None; attributes are plain data or a Graph.

    The graph `body` is a group's (Fused). All others are regions: what a control node (If, Loop) runs, as
    often as data say. A region reads nothing but its own inputs and constants; what it takes from outside
    is an input of the node.
    """

    op: str
    name: str
    inputs: list[Value | None]
    outputs: list[Value]
    attrs: dict[str, Any]
    locs: tuple[str, ...] = ()

    def __hash__(self) -> int:
        return id(self)

    def __repr__(self) -> str:
        return f"{self.op} '{self.name}'"

    @property
    def used(self) -> list[Value]:
        """the inputs that are there"""
        return [v for v in self.inputs if v is not None]

    @property
    def body(self) -> Graph | None:
        return self.attrs.get("body")

    @property
    def regions(self) -> list[Graph]:
        """graphs that a control node runs"""
        return [x for k, x in sorted(self.attrs.items()) if isinstance(x, Graph) and k != "body"]


class Graph:
    """Inputs, outputs and nodes in order. `outputs` pairs the exported name with its value, so one
    value can leave twice and an input or a constant can leave as it is.

    A region is made `within` the graph round it: they share one space of names, so that a name is one
    value, one node and one symbol of the whole program.
    """

    def __init__(self, name: str, within: Graph | None = None) -> None:
        self.name = name
        self.inputs: list[Value] = []
        self.outputs: list[tuple[str, Value]] = []
        self.nodes: list[Node] = []
        self.dims: tuple[Dim, ...] = ()  # that a run chooses
        self.at: dict[str, int] = {}  # this version's sizes of them
        self.space: Space | None = None  # for which sizes of those that `at` leaves open this version is
        self._names: set[str] = set() if within is None else within._names
        self._next: dict[str, int] = {} if within is None else within._next

    # -- making -------------------------------------------------------------------------------
    def unique(self, name: str) -> str:
        """`name`, or `name.1`, `name.2`... when taken"""
        out = name
        while out in self._names:
            self._next[name] = self._next.get(name, 0) + 1
            out = f"{name}.{self._next[name]}"
        self._names.add(out)
        return out

    def value(self, name: str, type: TensorType, origin: str = "") -> Value:
        return Value(self.unique(name), type, origin=origin or name)

    def rename(self, v: Value, name: str) -> None:
        """Give a value the model's own name."""
        self._names.discard(v.name)
        v.name, v.origin = self.unique(name), name

    def add_input(self, name: str, type: TensorType) -> Value:
        v = self.value(name, type)
        self.inputs.append(v)
        return v

    def constant(self, name: str, array: np.ndarray) -> Value:
        dtype = DType.I64 if has_open(array) else DType.of(array.dtype)
        v = self.value(name, TensorType(dtype, array.shape))
        v.const = Const(array)
        return v

    def const_value(self, name: str, type: TensorType, const: Const) -> Value:
        v = self.value(name, type)
        v.const = const
        return v

    def make(
        self,
        op: str,
        inputs: Iterable[Value | None],
        types: Iterable[TensorType],
        attrs: dict[str, Any] | None = None,
        *,
        name: str = "",
        out_names: Iterable[str] = (),
        locs: tuple[str, ...] = (),
        before: Node | None = None,
    ) -> Node:
        """A new node with new outputs; appended, or put in front of `before`."""
        types = list(types)
        base = name or op.lower()
        names = list(out_names) or [base] * len(types)
        node = Node(op, self.unique("n:" + base)[2:], list(inputs), [], dict(attrs or {}), locs)
        node.outputs = [self.value(n, t) for n, t in zip(names, types, strict=True)]
        for v in node.outputs:
            v.producer = node
        for v in node.used:
            v.users.append(node)
        at = len(self.nodes) if before is None else self.nodes.index(before)
        self.nodes.insert(at, node)
        return node

    # -- changing -----------------------------------------------------------------------------
    def set_input(self, node: Node, i: int, value: Value | None) -> None:
        old = node.inputs[i]
        if old is not None:
            old.users.remove(node)
        node.inputs[i] = value
        if value is not None:
            value.users.append(node)

    def replace(self, old: Value, new: Value) -> None:
        """Every use of `old` becomes a use of `new`, as an output of the graph too."""
        if old is new:
            return
        for node in list(dict.fromkeys(old.users)):
            for i, v in enumerate(node.inputs):
                if v is old:
                    self.set_input(node, i, new)
        self.outputs = [(n, new if v is old else v) for n, v in self.outputs]

    def remove(self, node: Node) -> None:
        """Take out a node none of whose outputs is used."""
        exported = self.output_values
        assert not any(v.users or v in exported for v in node.outputs), f"{node} is still used"
        for i in range(len(node.inputs)):
            self.set_input(node, i, None)
        self.nodes.remove(node)

    def remove_all(self, dead: set[Node]) -> None:
        """Take out many nodes at once that only use each other's outputs."""
        for node in dead:
            for v in node.used:
                if node in v.users:
                    v.users.remove(node)
        self.nodes = [n for n in self.nodes if n not in dead]

    def release(self, nodes: Iterable[Node]) -> None:
        """Give the names of nodes that are about to be replaced to their replacement."""
        for node in nodes:
            self._names.discard("n:" + node.name)
            self._names.difference_update(v.name for v in node.outputs)

    def reserve(self, node: Node) -> None:
        """Take released names back: the node stays after all."""
        self._names.add("n:" + node.name)
        self._names.update(v.name for v in node.outputs)

    def sort(self) -> None:
        """Restore definition before use, keeping the present order where it can (stable)."""
        done: set[Node] = set()
        out: list[Node] = []
        members = set(self.nodes)
        for root in self.nodes:
            stack = [(root, iter(root.used))]
            if root in done:
                continue
            on_path = {root}
            while stack:
                node, it = stack[-1]
                for v in it:
                    p = v.producer
                    if p is not None and p in members and p not in done:
                        assert p not in on_path, f"cycle through {p}"
                        on_path.add(p)
                        stack.append((p, iter(p.used)))
                        break
                else:
                    stack.pop()
                    done.add(node)
                    out.append(node)
        self.nodes = out

    def adopt(self, nodes: Sequence[Node], before: Node) -> None:
        """Move nodes of a region in front of the node that it belongs to: their names are this graph's too."""
        at = self.nodes.index(before)
        self.nodes[at:at] = nodes

    # -- looking ------------------------------------------------------------------------------
    def tree(self) -> Iterator[Graph]:
        """this graph, then the regions of its control nodes, each with its own"""
        yield self
        for node in self.nodes:
            for region in node.regions:
                yield from region.tree()

    @property
    def output_values(self) -> set[Value]:
        return {v for _, v in self.outputs}

    def constants(self) -> list[Value]:
        """constants that are used here, not in regions, in order of first use"""
        seen: dict[Value, None] = {}
        for node in self.nodes:
            for v in node.used:
                if v.const is not None:
                    seen.setdefault(v)
        for _, v in self.outputs:
            if v.const is not None:
                seen.setdefault(v)
        return list(seen)

    def values(self) -> Iterator[Value]:
        yield from self.inputs
        yield from self.constants()
        for node in self.nodes:
            yield from node.outputs

    @property
    def fixed(self) -> dict[str, int]:
        """The dimensions that have one size in this version, by their symbols"""
        return {s: self.at[d.name] for s, d in zip(symbols_of(self.dims), self.dims, strict=True) if d.name in self.at}

    def uses(self, v: Value) -> int:
        """how often a value is used, leaving the graph included"""
        return len(v.users) + sum(1 for _, o in self.outputs if o is v)


def space_of(g: Graph) -> Space | None:
    """The space of a graph's dimensions that have no fixed sizes."""
    left = {s: d.sizes for s, d in zip(symbols_of(g.dims), g.dims, strict=True) if d.name not in g.at}
    return Space(list(left), np.array(list(product(*left.values())), np.int64)) if left else None
