"""Resource variables: state that a model keeps between runs.

A variable becomes an input that is state and an output, the value it has in the next run. State starts as zeros in
memory; a variable that starts otherwise is kept as its difference in bits from its start, which starts as zeros.
"""

from __future__ import annotations

import numpy as np

from monobloc.frontend.tflite.node import Held, Result, TflNode
from monobloc.ir.graph import Graph, Value
from monobloc.ir.types import DType, TensorType
from monobloc.ops.build import Builder


def var_handle(n: TflNode) -> Result:
    n.resources[n.outs[0].index] = n.options.text(1) or f"variable{n.outs[0].index}"
    return [None]


def name_of(n: TflNode) -> str:
    found = n.resources.get(n.tensor(0).index)
    if found is None:
        n.unsupported("a variable that no VAR_HANDLE of the graph names")
    return found


def read_variable(n: TflNode) -> Result:
    name = name_of(n)
    if name not in n.states.now:
        start(n, name, TensorType(n.out_dtype(), n.outs[0].shape))
    v = n.states.now[name]
    if v.type.shape != n.outs[0].shape or v.dtype is not n.out_dtype():
        n.fail(f"reads the variable '{name}' as {n.outs[0].text}, which is {v.type}")
    return [Held(last=v)]


def start(n: TflNode, name: str, type: TensorType) -> None:
    """The variable as an input"""
    v = n.graph.add_input(name, type)
    n.states.before[name] = v
    n.states.now[name] = flipped(n.b, v, n.states.start.get(name))


def assign_variable(n: TflNode) -> Result:
    name, v = name_of(n), n.x(1)
    if name not in n.states.before:
        start(n, name, v.type)
    before = n.states.before[name]
    if v.type.shape != before.shape or v.dtype is not before.dtype:
        n.fail(f"assigns {v.type} to the variable '{name}', which is {before.type}")
    n.states.now[name] = v
    return []


def flipped(b: Builder, v: Value, start: np.ndarray | None) -> Value:
    """A value as its difference in bits from where it started, and back"""
    if start is None or not start.any():
        return v
    bits = {1: DType.U8, 2: DType.U16, 4: DType.U32, 8: DType.U64}[v.dtype.size]
    mask = b.const(np.ascontiguousarray(start).view(bits.numpy), bits)
    seen = v if v.dtype is bits else b.one("BitCast", v, to=bits)
    out = b.one("BitwiseXor", seen, mask)
    return out if v.dtype is bits else b.one("BitCast", out, to=v.dtype)


def finish(n_b: Builder, graph: Graph, states_before: dict[str, Value], now: dict[str, Value],
           starts: dict[str, np.ndarray]) -> None:
    """The outputs that variables leave by"""
    taken = {name for name, _ in graph.outputs}
    for name, v in states_before.items():
        out = f"{name}/next"
        while out in taken:
            out += "_"
        v.state = out
        graph.outputs.append((out, flipped(n_b, now[name], starts.get(name))))


READERS = {"VAR_HANDLE": var_handle, "READ_VARIABLE": read_variable, "ASSIGN_VARIABLE": assign_variable}
