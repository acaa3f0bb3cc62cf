"""Operators that are written in other operators: a model's own functions, and ONNX's bodies.

A call is replaced by the nodes of the body (`walk.py`); here the bodies are found. Bodies may
call each other, so the number of nodes they unfold to is computed first: recursion, and unfolding
without end, are told instead of tried.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from monobloc.errors import ModelError, UnsupportedError
from monobloc.frontend import proto
from monobloc.frontend.attributes import SubGraph
from monobloc.frontend.signature import schema
from monobloc.frontend.tensors import ELEM_TYPES
from monobloc.ir.graph import Value
from monobloc.ir.strings import string_shape
from monobloc.ir.symbolic import is_open
from monobloc.ops.sequence import Absent, Bundle, Items
from monobloc.ops.sized import Ragged

MAX_NODES = 200_000

Key = tuple[str, str, str]  # domain, name, overload


def domain_of(name: str) -> str:
    """The default domain has two names."""
    return "" if name == "ai.onnx" else name


def key_of(p: proto.NodeProto) -> Key:
    return domain_of(p.domain), p.op_type, p.overload


@dataclass(frozen=True)
class Functions:
    """The model's functions, and how many nodes each unfolds to"""

    bodies: dict[Key, proto.FunctionProto]
    sizes: dict[Key, int]

    def body(self, p: proto.NodeProto) -> proto.FunctionProto | None:
        """The function a node calls; ModelError when it must not be unfolded."""
        key = key_of(p)
        f = self.bodies.get(key)
        if f is not None and self.count(key, ()) > MAX_NODES:
            raise ModelError(f"the function {f.name} unfolds to more than {MAX_NODES} nodes")
        return f

    def count(self, key: Key, path: tuple[Key, ...]) -> int:
        if key in path:
            names = [k[1] for k in (*path[path.index(key) :], key)]
            raise ModelError(f"the function {key[1]} calls itself: {' -> '.join(names)}")
        if len(path) > 60:
            raise ModelError(f"the function {path[0][1]} calls others more than 60 deep")
        if key not in self.sizes:
            callees = [key_of(n) for n in _all_nodes(self.bodies[key].node)]
            self.sizes[key] = len(callees) + sum(self.count(k, (*path, key)) for k in callees if k in self.bodies)
        return self.sizes[key]


def _all_nodes(nodes: Sequence[proto.NodeProto]) -> list[proto.NodeProto]:
    """Nodes of a body and of the graphs nested in it"""
    out = list(nodes)
    for n in out:
        for a in n.attribute:
            for g in (*([a.g] if a.HasField("g") else []), *a.graphs):
                out += g.node
    return out


def functions_of(model: proto.ModelProto) -> Functions:
    """The table of a model's functions; ModelError on doubled ones."""
    bodies: dict[Key, proto.FunctionProto] = {}
    for f in model.functions:
        key = domain_of(f.domain), f.name, f.overload
        if key in bodies:
            raise ModelError(f"the function {f.domain}::{f.name} is defined twice")
        bodies[key] = f
    return Functions(bodies, {})


# -- bodies in ONNX's schemas ----------------------------------------------------------------------
def has_schema_body(op: str, domain: str, opset: int) -> bool:
    s = schema(op, domain, opset)
    return s is not None and (s.has_function or s.has_context_dependent_function)


def schema_body(
    p: proto.NodeProto,
    domain: str,
    opset: int,
    inputs: Sequence[Value | Bundle | Ragged | None],
    attrs: dict[str, Any],
) -> tuple[proto.FunctionProto, list[proto.AttributeProto]] | None:
    """The body ONNX gives for an operator here, and defaults of its attributes."""
    s = schema(p.op_type, domain, opset)
    if s is None or not (s.has_function or s.has_context_dependent_function):
        return None
    import onnx.defs  # noqa: F401 - the package gives schemas their `function_body`

    try:
        raw = _context_body(s, p, opset, inputs, attrs) if s.has_context_dependent_function else b""
    except Exception as e:  # onnx writes these bodies as text, which not every name survives
        raise UnsupportedError(f"ONNX's body of {p.op_type} cannot be made: {str(e)[:200]}") from None
    body = proto.FunctionProto()
    if raw:
        body.ParseFromString(raw)
    elif s.has_function:
        raw = s.get_function_with_opset_version(_version(s.function_opset_versions, opset))
        body.ParseFromString(raw) if raw else body.CopyFrom(s.function_body)
    if not body.node:
        return None
    defaults = [a.default_value for a in s.attributes.values() if a.default_value.name]
    return body, defaults


def _version(versions: Sequence[int], opset: int) -> int:
    """The newest body not newer than the opset, else the oldest"""
    fit = [v for v in versions if v <= opset]
    return max(fit) if fit else min(versions)


def _context_body(
    s: Any, p: proto.NodeProto, opset: int, inputs: Sequence[Value | Bundle | Ragged | None], attrs: dict[str, Any]
) -> bytes:
    from onnx import helper

    node = proto.NodeProto()
    node.CopyFrom(p)
    del node.attribute[:]
    for name, value in attrs.items():
        node.attribute.append(helper.make_attribute(name, _proto_value(value)))
    types = [_type_proto(v).SerializeToString() for v in inputs]
    version = _version(s.context_dependent_function_opset_versions, opset)
    return bytes(s.get_context_dependent_function_with_opset_version(version, node.SerializeToString(), types))


def _proto_value(value: Any) -> Any:
    if isinstance(value, SubGraph):
        return value.graph
    from onnx import numpy_helper

    return numpy_helper.from_array(value) if isinstance(value, np.ndarray) else value


def _type_proto(v: Value | Bundle | Ragged | None) -> proto.TypeProto:
    if v is None or isinstance(v, Absent):
        return proto.TypeProto()
    assert not isinstance(v, Ragged)  # no operator with a body takes one
    from onnx import helper

    if isinstance(v, Items):
        shapes = {x.shape for x in v.values}
        one = list(shapes.pop()) if len(shapes) == 1 else None
        return helper.make_sequence_type_proto(helper.make_tensor_type_proto(ELEM_TYPES[v.dtype], one))
    shape = [str(d) if is_open(d) else d for d in string_shape(v.type)]
    return helper.make_tensor_type_proto(ELEM_TYPES[v.dtype], shape)
