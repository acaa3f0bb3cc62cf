"""Ensembles of decision trees (`ai.onnx.ml`): regressors, classifiers, and TreeEnsemble of version 5.

All become `TreeTables`: nodes and leaves in arrays that mb/trees.h walks. What follows, base values, labels and
transforms, are ordinary operators. A node that asks whether a value is in a set is a chain of nodes that ask for
one value each.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from monobloc.errors import ModelError
from monobloc.ir.graph import Node, Value
from monobloc.ir.types import DType, TensorType
from monobloc.ops import Case, OpDef
from monobloc.ops.build import cast_to
from monobloc.ops.fused import plus, slice_last
from monobloc.ops.ml_scores import (
    ML,
    above,
    as_float,
    best,
    constant,
    label,
    labels_of,
    second_class,
    transform_of,
    transformed,
)

Array = np.ndarray
Attrs = dict[str, Any]
F32, F64, I32, U8 = DType.F32, DType.F64, DType.I32, DType.U8
MODES = ("LEQ", "LT", "GTE", "GT", "EQ", "NEQ")  # as mb/trees.h numbers them
AGGREGATES = ("SUM", "AVERAGE", "MIN", "MAX")
NAN = 8


class TreeTables(OpDef):
    """Sums of leaves. Inputs: x, limits, weights (of x's type), roots, columns, yes, no, starts, targets, modes"""

    name = "TreeTables"
    internal = True
    splits = True

    def infer(self, ins: Sequence[Value | None], attrs: Attrs) -> list[TensorType]:
        x, limit, weight, *tables = ins
        assert x is not None and limit is not None and weight is not None
        if x.type.rank != 2 or x.dtype not in (F32, F64) or {limit.dtype, weight.dtype} != {x.dtype}:
            raise ModelError(f"{self.name} of {x.type} with limits {limit.type} and weights {weight.type}")
        want = [I32] * 6 + [U8]
        if any(v is None or v.dtype is not d or v.type.rank != 1 for v, d in zip(tables, want, strict=True)):
            raise ModelError(f"{self.name} has tables of other types than int32")
        return [TensorType(x.dtype, (x.shape[0], attrs["targets"]))]

    def ref(self, attrs: Attrs, *xs: Array | None) -> Array:
        x, limit, weight, root, column, yes, no, start, target, mode = (v for v in xs if v is not None)
        mode = np.broadcast_to(mode, column.shape)  # one for all where all are the same
        none = {"MIN": np.inf, "MAX": -np.inf}.get(attrs["aggregate"], 0.0)
        join: Any = {"MIN": min, "MAX": max}.get(attrs["aggregate"], float.__add__)
        y = np.full((len(x), attrs["targets"]), none)
        for i, row in enumerate(x):
            for at in root.tolist():
                while at >= 0:
                    taken = self._taken(int(mode[at]), row[column[at]], limit[at])
                    at = int(yes[at] if taken else no[at])
                for e in range(start[~at], start[~at + 1]):
                    y[i, target[e]] = join(float(y[i, target[e]]), float(weight[e]))
        y = np.where(np.isinf(y), 0, y) if none else y
        return (y / len(root) if attrs["aggregate"] == "AVERAGE" else y).astype(x.dtype)

    def _taken(self, mode: int, x: Any, limit: Any) -> bool:
        compared = (x <= limit, x < limit, x >= limit, x > limit, x == limit, x != limit)
        return bool(compared[mode & 7] or (mode & NAN and np.isnan(x)))

    def routine(self, n: Node, c: Any) -> str:
        x, limit, weight, root, column, yes, no, start, target, mode = n.used
        one = mode.type.size == 1
        kind = int(mode.const.array[0]) if one and mode.const is not None else -1
        fields = {"root": root, "column": column, "yes": yes, "no": no, "start": start, "target": target, "mode": mode}
        tables = ", ".join(f".{k} = {c.ptr(v)}" for k, v in fields.items())
        return f"""
  const mb_trees d = {{
    .rows = {x.shape[0]}, .columns = {x.shape[1]}, .trees = {root.type.size}, .targets = {n.attrs["targets"]},
    .aggregate = MB_TREES_{n.attrs["aggregate"]}, .mode = {kind},
  }};
  const mb_tree_tables t = {{{tables}}};
  mb_trees_run(d, t, {c.ptr(limit)}, {c.ptr(weight)}, {c.ptr(x)}, {c.ptr(n.outputs[0])}, tid, nt);
"""

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        """Two trees of five leaves over three columns, every mode, and NaN"""
        yes_no = [1, 2, ~0, 4, ~3], [3, ~1, ~2, ~4, ~0]
        tables = [[0, 3], rng.integers(0, 3, 5), *yes_no, [0, 1, 3, 3, 4, 5], [0, 1, 0, 1, 1]]
        root, column, yes, no, start, target = (np.array(v, np.int32) for v in tables)
        for d, aggregate in ((np.float32, "SUM"), (np.float64, "AVERAGE"), (np.float32, "MIN"), (np.float32, "MAX")):
            x = rng.integers(-2, 3, (7, 3)).astype(d)
            x[2, :2] = np.nan
            limit, weight = rng.integers(-1, 2, 5).astype(d), rng.standard_normal(5).astype(d)
            mode = np.array([0, 1 | NAN, 4, 2 | NAN, 5], np.uint8)
            ins = (x, limit, weight, root, column, yes, no, start, target, mode)
            yield Case(ins, {"targets": 2, "aggregate": aggregate}, aggregate)


# -- what a model says ----------------------------------------------------------------------------------
@dataclass
class Tables:
    """Nodes and leaves as they are found"""

    column: list[int] = field(default_factory=list)
    limit: list[float] = field(default_factory=list)
    yes: list[int] = field(default_factory=list)
    no: list[int] = field(default_factory=list)
    mode: list[int] = field(default_factory=list)
    leaves: list[list[tuple[int, float]]] = field(default_factory=list)
    root: list[int] = field(default_factory=list)

    def node(self, column: int, limit: float, mode: int) -> int:
        for values, v in ((self.column, column), (self.limit, limit), (self.mode, mode), (self.yes, 0), (self.no, 0)):
            values.append(v)  # type: ignore[arg-type]
        return len(self.column) - 1

    def leaf(self, entries: list[tuple[int, float]]) -> int:
        self.leaves.append(entries)
        return ~(len(self.leaves) - 1)


def emit(b: Any, n: Any, x: Value, t: Tables, targets: int, aggregate: str) -> Value:
    """[rows, targets]"""
    if t.column and not 0 <= min(t.column) <= max(t.column) < x.shape[1]:
        n.fail(f"a node reads column {max(t.column)} of {x.type}")
    entries = [e for leaf in t.leaves for e in leaf]
    if entries and not 0 <= min(e[0] for e in entries) <= max(e[0] for e in entries) < targets:
        n.fail(f"a leaf counts for target {max(e[0] for e in entries)} of {targets}")
    start = np.cumsum([0, *(len(leaf) for leaf in t.leaves)])
    d = x.dtype.numpy
    modes = t.mode if len(set(t.mode)) > 1 else t.mode[:1] or [0]
    ints = [t.root, t.column, t.yes, t.no, start, [e[0] for e in entries]]
    tables = [b.const(np.asarray(v, np.int32)) for v in ints]
    numbers = [b.const(np.asarray(v, d)) for v in (t.limit, [e[1] for e in entries])]
    ins = [x, *numbers, *tables, b.const(np.asarray(modes, np.uint8))]
    return b.one("TreeTables", *ins, targets=targets, aggregate=aggregate)


def values_of(n: Any, name: str, count: int | None = None, default: Any = None) -> Any:
    """An attribute, or its form as a tensor"""
    tensor = n.attrs.get(f"{name}_as_tensor")
    v = n.attrs.get(name) if tensor is None else tensor.ravel().tolist()
    v = v or default
    if count is not None and (v is None or len(v) != count):
        n.fail(f"{0 if v is None else len(v)} values of `{name}`, {count} are needed")
    return v


def by_nodes(n: Any, what: str) -> Tables:
    """The trees of the operators before version 5; their leaves' weights are of `what`: target or class."""
    ids = values_of(n, "nodes_nodeids", None, [])
    count = len(ids)
    trees, modes = values_of(n, "nodes_treeids", count), values_of(n, "nodes_modes", count)
    columns, limits = values_of(n, "nodes_featureids", count), values_of(n, "nodes_values", count)
    yes, no = values_of(n, "nodes_truenodeids", count), values_of(n, "nodes_falsenodeids", count)
    missing = values_of(n, "nodes_missing_value_tracks_true", count, [0] * count)
    weights = _weights(n, what)
    t, place = Tables(), {}
    for k, key in enumerate(zip(trees, ids, strict=True)):
        if key in place:
            n.fail(f"tree {key[0]} has node {key[1]} twice")
        mode = modes[k].removeprefix("BRANCH_")
        if mode == "LEAF":
            place[key] = t.leaf(weights.get(key, []))
        elif mode in MODES:
            place[key] = t.node(columns[k], limits[k], MODES.index(mode) | (NAN if missing[k] else 0))
        else:
            n.fail(f"a node has the mode `{modes[k]}`")
    inner = [k for k, key in enumerate(zip(trees, ids, strict=True)) if place[key] >= 0]
    for at, k in enumerate(inner):
        for side, ends in ((t.yes, yes), (t.no, no)):
            key = (trees[k], ends[k])
            if key not in place:
                n.fail(f"node {ids[k]} of tree {trees[k]} leads to node {ends[k]}, which there is not")
            side[at] = place[key]
    first: dict[int, int] = {}
    for tree, node in zip(trees, ids, strict=True):
        first.setdefault(tree, place[tree, node])
    t.root = list(first.values())
    _acyclic(n, t)
    return t


def _weights(n: Any, what: str) -> dict[tuple[int, int], list[tuple[int, float]]]:
    """(tree, node) -> what it adds to which target"""
    out: dict[tuple[int, int], list[tuple[int, float]]] = {}
    targets = values_of(n, f"{what}_ids", None, [])
    parts = [values_of(n, f"{what}_{k}", len(targets)) for k in ("treeids", "nodeids", "weights")] if targets else []
    for target, tree, node, w in zip(targets, *parts, strict=True):
        out.setdefault((tree, node), []).append((target, w))
    return out


def _acyclic(n: Any, t: Tables) -> None:
    """No way through a tree comes back: every walk ends."""
    parents = np.zeros(len(t.column), np.int64)
    for at in (*t.yes, *t.no):
        if at >= 0:
            parents[at] += 1
    seen, queue = 0, [at for at in range(len(t.column)) if not parents[at]]
    for at in queue:
        seen += 1
        for to in (t.yes[at], t.no[at]):
            if to >= 0:
                parents[to] -= 1
                if not parents[to]:
                    queue.append(to)
    if seen < len(t.column):
        n.fail("a tree leads back to one of its own nodes")


# -- operators ----------------------------------------------------------------------------------------
def rows_of(b: Any, n: Any, x: Value) -> Value:
    """[rows, columns] in float32; doubles stay"""
    x = x if x.dtype is F64 else as_float(b, x)
    if x.type.rank != 2:
        n.fail(f"takes rows of columns, got {x.type}")
    return x


class TreeEnsembleRegressor(OpDef):
    name = "TreeEnsembleRegressor"
    domain = ML

    def from_onnx(self, b: Any, n: Any) -> Sequence[Value | None]:
        aggregate, targets = n.attrs.get("aggregate_function", "SUM"), int(n.attrs.get("n_targets", 1))
        if aggregate not in AGGREGATES:
            n.fail(f"aggregate_function is `{aggregate}`")
        y = emit(b, n, rows_of(b, n, n.inputs[0]), by_nodes(n, "target"), targets, aggregate)
        base = values_of(n, "base_values", None, [])
        y = plus(b, y, b.const(np.asarray(base, y.dtype.numpy)) if base else None)
        y = cast_to(b, y, F32)
        transform = transform_of(n)
        return [y if transform == "SOFTMAX" and targets == 1 else transformed(b, y, transform)]


class TreeEnsembleClassifier(OpDef):
    """The label is that of the best score; of two classes with one score, what is above 0.5 or 0 (onnxruntime)"""

    name = "TreeEnsembleClassifier"
    domain = ML

    def from_onnx(self, b: Any, n: Any) -> Sequence[Value | None]:
        labels = labels_of(n, "classlabels_int64s", "classlabels_strings")
        if len(labels) < 2:
            n.unsupported("a classifier of one class")
        t, transform = by_nodes(n, "class"), transform_of(n)
        scores = emit(b, n, rows_of(b, n, n.inputs[0]), t, len(labels), "SUM")
        scores = cast_to(b, scores, F32)
        base = values_of(n, "base_values", None, [])
        ids = sorted({target for leaf in t.leaves for target, _ in leaf})
        if len(labels) == 2 and len(ids) == 1:
            return self._binary(b, n, scores, t, ids[0], labels, base)
        if base and len(base) != len(labels):
            n.unsupported(f"{len(base)} base values of {len(labels)} classes")
        scores = plus(b, scores, constant(b, base) if base else None)
        chosen = best(b, n, self._present(b, n, scores, t, base))
        return [label(b, n, labels, chosen), transformed(b, scores, transform)]

    def _binary(
        self, b: Any, n: Any, scores: Value, t: Tables, which: int, labels: Array, base: Sequence[float]
    ) -> list[Value]:
        """All weights are of one class of two."""
        if len(base) > 1:
            n.unsupported("two base values of two classes that have one score")
        positive = all(w >= 0 for leaf in t.leaves for _, w in leaf)
        score = slice_last(b, n, scores, which, which + 1)
        score = plus(b, score, constant(b, base) if base else None)
        chosen = label(b, n, labels, above(b, score, 0.5 if positive else 0.0))
        if which == 1:  # the first class has a score too, which is 0
            if base:
                n.unsupported("a base value of two classes that have one score, which is the second's")
            return [chosen, transformed(b, scores, transform_of(n))]
        return [chosen, second_class(b, n, score, transform_of(n), positive)]

    def _present(self, b: Any, n: Any, scores: Value, t: Tables, base: Sequence[float]) -> Value:
        """Classes that no leaf counted for are not the best, though 0 may be more than what there is."""
        if base or all(w >= 0 for leaf in t.leaves for _, w in leaf):
            return scores
        counts = Tables(**vars(t) | {"leaves": [[(k, 1.0) for k, _ in leaf] for leaf in t.leaves]})
        counted = emit(b, n, rows_of(b, n, n.inputs[0]), counts, scores.shape[1], "SUM")
        seen = b.one("Greater", counted, b.const(0, counted.dtype))
        return b.one("Where", seen, scores, constant(b, -np.inf))


class TreeEnsemble(OpDef):
    """Nodes and leaves in tables of their own; half floats compute in float32"""

    name = "TreeEnsemble"
    domain = ML

    def from_onnx(self, b: Any, n: Any) -> Sequence[Value | None]:
        x, a, targets = n.inputs[0], n.attrs, int(n.attrs.get("n_targets", 1))
        aggregate = int(a.get("aggregate_function", 1))
        if not 0 <= aggregate < 4:
            n.fail(f"aggregate_function is {aggregate}")
        kind = ("AVERAGE", "SUM", "MIN", "MAX")[aggregate]
        work = x if x.dtype in (F32, F64) else b.one("Cast", x, to=F32)
        y = emit(b, n, rows_of(b, n, work), self._tables(n), targets, kind)
        transform = transform_of(n)
        y = y if transform == "SOFTMAX" and targets == 1 else transformed(b, y, transform)
        return [cast_to(b, y, x.dtype)]

    def _tables(self, n: Any) -> Tables:
        a = n.attrs
        count = len(a["nodes_featureids"])
        modes, splits = a["nodes_modes"].ravel().tolist(), a["nodes_splits"].ravel().tolist()
        missing = a.get("nodes_missing_value_tracks_true") or [0] * count
        sets, t = iter(self._sets(a)), Tables()
        t.leaves = [[(k, float(w))] for k, w in zip(a["leaf_targetids"], a["leaf_weights"].ravel(), strict=True)]
        names = ("nodes_truenodeids", "nodes_falsenodeids", "nodes_trueleafs", "nodes_falseleafs")
        if any(len(v) != count for v in (modes, splits, missing, *(a[k] for k in names))):
            n.fail(f"its tables of {count} nodes differ in length")
        first, chains = [], []
        for k in range(count):
            nan = NAN if missing[k] else 0
            member = modes[k] == 6
            if not member and not 0 <= modes[k] < 6:
                n.fail(f"a node has the mode {modes[k]}")
            each = next(sets, []) if member else [splits[k]]
            if not each:
                n.fail("a node asks for membership in a set that is missing or empty")
            chain = [t.node(a["nodes_featureids"][k], v, (4 if member else modes[k]) | nan) for v in each]
            first.append(chain[0])
            chains.append(chain)
        for k, chain in enumerate(chains):
            yes, no = (self._end(n, t, first, a[ids][k], a[leafs][k]) for ids, leafs in (
                ("nodes_truenodeids", "nodes_trueleafs"), ("nodes_falsenodeids", "nodes_falseleafs")))
            for at, after in zip(chain, [*chain[1:], None], strict=True):
                t.yes[at], t.no[at] = yes, no if after is None else after
        t.root = [self._end(n, t, first, k, 0) for k in a["tree_roots"]]
        _acyclic(n, t)
        return t

    def _end(self, n: Any, t: Tables, first: list[int], at: int, is_leaf: int) -> int:
        if not 0 <= at < len(t.leaves if is_leaf else first):
            n.fail(f"a node leads to {'leaf' if is_leaf else 'node'} {at}, which there is not")
        return ~at if is_leaf else first[at]

    def _sets(self, a: Attrs) -> list[list[float]]:
        """Sets of values; a NaN ends one."""
        out: list[list[float]] = [[]]
        for v in a["membership_values"].ravel().tolist() if "membership_values" in a else []:
            if v == v:
                out[-1].append(v)
            else:
                out.append([])
        return out
