"""The meaning of a graph: runs it with numpy through the operators' references. Oracle of every pass."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from monobloc.ir.graph import Graph, Node, Value


def interpret(g: Graph, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Outputs by exported name; `feeds` by the inputs' original names."""
    given = [np.asarray(feeds[v.origin or v.name]) for v in g.inputs]
    sizes = [v.producer.outputs[1] for _, v in g.outputs if v.producer is not None and v.producer.op == "Sized"]
    found = run_graph(g, given, sizes)
    more = iter(found[len(g.outputs) :])
    out = {}
    for (name, v), y in zip(g.outputs, found, strict=False):
        if v.producer is not None and v.producer.op == "Sized":  # of the size that data decide
            shape = next(more)
            y = y.ravel()[: int(np.prod(shape))].reshape(shape)
        out[name] = y
    return out


def run_graph(g: Graph, given: Sequence[np.ndarray], more: Sequence[Value] = ()) -> list[np.ndarray]:
    """Outputs in order, of inputs in order: a region's too; and `more` values behind them."""
    env: dict[Value, np.ndarray] = {}
    for v, x in zip(g.inputs, given, strict=True):
        assert x.shape == v.shape and x.dtype == v.dtype.numpy, f"{v}: got {x.dtype}{list(x.shape)}"
        env[v] = x
    with np.errstate(all="ignore"):
        for node in g.nodes:
            for v, y in zip(node.outputs, run_node(node, env), strict=True):
                env[v] = y
    return [_get(env, v) for v in (*(v for _, v in g.outputs), *more)]


def _get(env: dict[Value, np.ndarray], v: Value) -> np.ndarray:
    return v.const.array if v.const is not None else env[v]


def run_node(node: Node, env: dict[Value, np.ndarray]) -> list[np.ndarray]:
    """One node's outputs, cast to the declared types."""
    from monobloc.ops import opdef

    xs = [None if v is None else _get(env, v) for v in node.inputs]
    if node.body is not None:
        inner = dict(zip(node.body.inputs, xs, strict=True))
        for n in node.body.nodes:
            inner.update(zip(n.outputs, run_node(n, inner), strict=True))  # type: ignore[arg-type]
        ys = [_get(inner, v) for _, v in node.body.outputs]  # type: ignore[arg-type]
    else:
        ys = opdef(node).run(node.attrs, xs, len(node.outputs))
    return [np.asarray(y).astype(v.dtype.numpy, copy=False).reshape(v.shape) for y, v in zip(ys, node.outputs)]
