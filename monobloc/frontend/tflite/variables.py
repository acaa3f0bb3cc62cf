"""Resource variables: state that a model keeps between runs.

How a variable becomes inputs and outputs of the graph is said in `frontend/state.py`.
"""

from __future__ import annotations

from monobloc.frontend.state import flipped
from monobloc.frontend.tflite.node import Held, Result, TflNode
from monobloc.ir.types import TensorType


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


READERS = {"VAR_HANDLE": var_handle, "READ_VARIABLE": read_variable, "ASSIGN_VARIABLE": assign_variable}
