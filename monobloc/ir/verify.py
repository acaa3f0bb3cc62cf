"""What every graph must satisfy, checked after every pass: SSA, links both ways, types by inference."""

from __future__ import annotations

from collections import Counter

from monobloc.errors import InternalError
from monobloc.ir.graph import Graph, Node, Value


def verify(g: Graph, infer: bool = True) -> None:
    """InternalError names the first node that breaks a rule."""
    defined: set[Value] = set(g.inputs)
    users: dict[Value, list[Node]] = {}
    for node in g.nodes:
        for v in node.used:
            if v.const is None and v not in defined:
                raise InternalError(f"{node} uses %{v.name} before it is defined")
            users.setdefault(v, []).append(node)
        for v in node.outputs:
            if v in defined or v.const is not None:
                raise InternalError(f"{node} defines %{v.name} again")
            if v.producer is not node:
                raise InternalError(f"%{v.name} does not know that {node} makes it")
            defined.add(v)
        if infer:
            _check_types(node)
    for _, v in g.outputs:
        if v.const is None and v not in defined:
            raise InternalError(f"output %{v.name} is not defined")
    for v in defined:
        used = users.get(v, [])
        if v.users != used and Counter(v.users) != Counter(used):  # mostly they are in the nodes' order
            raise InternalError(f"the users of %{v.name} are not what the nodes say")


def _check_types(node: Node) -> None:
    from monobloc.ops import opdef  # the verifier asks the operators; the data structures do not know them

    if node.body is not None:
        body = node.body
        verify(body)
        inner = [v.type for _, v in body.outputs]
        for a, b in zip(inner, node.outputs, strict=True):
            if (a.dtype, a.shape) != (b.dtype, b.shape):
                raise InternalError(f"{node}: the body gives {a}, the node says {b.type}")
        return
    for region in node.regions:
        verify(region)
    want = opdef(node).infer(node.inputs, dict(node.attrs))[: len(node.outputs)]
    for t, v in zip(want, node.outputs, strict=True):
        if (t.dtype, t.shape) != (v.dtype, v.shape):
            raise InternalError(f"{node}: inference gives {t}, %{v.name} is {v.type}")
