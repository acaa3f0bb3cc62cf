"""Walks the nodes of a model and lets each operator write its IR.

A frame is one body with its names: the graph, a branch of an `If` (which sees the names around
it), or a function (which does not). A node that fails is reported; its outputs become unknown,
and whatever reads them is skipped without a word, so one run tells all independent problems.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from monobloc.errors import Diagnostics, Loc, ModelError, MonoblocError, UnsupportedError
from monobloc.frontend import proto
from monobloc.frontend.attributes import SubGraph, read_attribute, read_attributes
from monobloc.frontend.control import chosen, repeated
from monobloc.frontend.external import ExternalFiles
from monobloc.frontend.functions import Functions, domain_of, has_schema_body, schema_body
from monobloc.frontend.importing import Told, told
from monobloc.frontend.limits import Limits, Most
from monobloc.frontend.node import OnnxNode
from monobloc.frontend.order import order
from monobloc.frontend.ragged import on_ragged
from monobloc.frontend.refused import refused
from monobloc.frontend.signature import Signature, first_opset, signature
from monobloc.frontend.sized_shapes import sized_shape
from monobloc.frontend.source import Raw
from monobloc.frontend.tensors import DTYPES, sparse_tensor, tensor
from monobloc.ir.graph import Const, Graph, Value
from monobloc.ir.strings import string_shape, to_chars
from monobloc.ir.types import DType, TensorType
from monobloc.ops import OpDef, onnx_reader
from monobloc.ops.build import Builder
from monobloc.ops.control import OpenRegion
from monobloc.ops.sequence import Bundle, Items
from monobloc.ops.sized import Ragged
from monobloc.ops.strings import of_strings

MAX_DEPTH = 60
_BUILT_IN = ("Constant", "If", "Loop", "Scan")  # read here, by no OpDef


class Unknown:
    """What a node that failed would have made"""


UNKNOWN = Unknown()
Binding = Value | Bundle | Ragged | Unknown | None  # None: an optional input that is absent


@dataclass
class Frame:
    """The names of one body. `bound` are the attributes of the function being unfolded."""

    opsets: dict[str, int]
    names: dict[str, Binding] = field(default_factory=dict)
    parent: Frame | None = None
    bound: dict[str, Any] | None = None
    declared: dict[str, proto.TypeProto] = field(default_factory=dict)
    prefix: str = ""  # of the names of values and unnamed nodes
    function: bool = False
    depth: int = 0

    def find(self, name: str) -> Binding:
        frame: Frame | None = self
        while frame is not None:
            if name in frame.names:
                return frame.names[name]
            frame = frame.parent
        return UNKNOWN

    def knows(self, name: str) -> bool:
        return name in self.names or (self.parent is not None and self.parent.knows(name))

    def label(self, p: proto.NodeProto, index: int) -> str:
        """A node's name in messages and in the IR"""
        if p.name and not self.function:
            return p.name
        return self.prefix + (p.name or f"#{index}({p.op_type})")


class Walker:
    """Imports bodies into `graph`."""

    def __init__(
        self,
        graph: Graph,
        model: str,
        functions: Functions,
        files: ExternalFiles,
        diagnostics: Diagnostics,
        ignore_shapes: bool = False,
        max_trips: Mapping[str, int] | None = None,
        max_values: Most | None = None,
    ) -> None:
        self.graph, self.model, self.functions, self.files = graph, model, functions, files
        self.diagnostics, self.ignore_shapes = diagnostics, ignore_shapes
        self.max_trips = max_trips or {}
        self.limits = Limits(max_values or {})
        self.builder = Builder(graph)
        self.regions: list[OpenRegion] = []  # all that were made
        self.named: dict[Value, int] = {}  # depth of the frame that named a value
        self.skipped = 0

    # -- bodies ------------------------------------------------------------------------------------
    def constants(self, g: proto.GraphProto, frame: Frame, raws: dict[int, Raw]) -> None:
        """The initializers of a graph become constants of its frame."""
        readers: list[tuple[str, Callable[..., tuple[TensorType, Const]]]] = [
            *((t.name, partial(tensor, t, raw=raws.get(i))) for i, t in enumerate(g.initializer)),
            *((s.values.name, partial(sparse_tensor, s)) for s in g.sparse_initializer)]
        for name, read in readers:
            what = f"initializer '{name}'"
            try:
                if name in frame.names:
                    raise ModelError(f"{what} is defined twice")
                value = self.graph.const_value(frame.prefix + name, *read(what=what, files=self.files))
                self.named[value], frame.names[name] = frame.depth, value
            except MonoblocError as e:
                self.diagnostics.report(e.at(Loc(self.model)))
                frame.names[name] = UNKNOWN

    def body(self, nodes: Sequence[proto.NodeProto], frame: Frame, wanted: Sequence[str]) -> None:
        """Imports what `wanted` needs."""
        outside = frame.parent.knows if frame.parent else lambda _: False
        plan = order(nodes, wanted, frame.names, outside, lambda i: self._loc(nodes[i], frame, i))
        for problem in plan.problems:
            self.diagnostics.report(problem)
        frame.names.update(dict.fromkeys(sorted(plan.broken), UNKNOWN))
        self.skipped += (len(nodes) - len(plan.nodes)) if frame.depth == 0 else 0
        for i in plan.nodes:
            self._node(nodes[i], i, frame, plan.broken)

    def _loc(self, p: proto.NodeProto, frame: Frame, index: int) -> Loc:
        domain = domain_of(p.domain)
        return Loc(self.model, frame.label(p, index), f"{domain}::{p.op_type}" if domain else p.op_type)

    # -- one node ----------------------------------------------------------------------------------
    def _node(self, p: proto.NodeProto, index: int, frame: Frame, broken: set[str]) -> None:
        loc = self._loc(p, frame, index)
        outs: Sequence[Binding]
        try:
            outs = self._values(p, frame, loc)
        except Told:
            outs = [UNKNOWN] * len(p.output)
        except Exception as e:
            self.diagnostics.report(told(e, loc))
            outs = [UNKNOWN] * len(p.output)
        for i, name in enumerate(p.output):
            if name and name not in broken:
                self._bind(name, outs[i] if i < len(outs) else None, i, frame, loc)

    def _bind(self, name: str, v: Binding, i: int, frame: Frame, loc: Loc) -> None:
        if v is None:
            self.diagnostics.report(UnsupportedError(f"output {i} ('{name}') is not supported", loc=loc))
            v = UNKNOWN
        problem = bundle_contradiction(v, frame.declared.get(name), name)
        if problem is not None:
            self.diagnostics.report(problem.at(loc))
        if isinstance(v, Value):
            self.limits.name(name, v)
            if self.named.get(v, MAX_DEPTH + 1) > frame.depth:
                self.graph.rename(v, frame.prefix + name)
                self.named[v] = frame.depth
            problem = contradiction(v, frame.declared.get(name), name)
            if problem is not None:
                self.diagnostics.report(problem.at(loc))
        frame.names[name] = v

    def _values(self, p: proto.NodeProto, frame: Frame, loc: Loc) -> Sequence[Binding]:
        domain = domain_of(p.domain)
        attrs = read_attributes(p, frame.bound, frame, self.files)
        inputs = [frame.find(x) if x else None for x in _trimmed(p.input)]
        n_outputs = len(_trimmed(p.output))
        function = self.functions.body(p)
        if function is not None:
            return self._call(function, inputs, attrs, [], frame, loc.node)
        opset = self._opset(domain, frame, p.op_type)
        sig = signature(p.op_type, domain, opset)
        op = self._operator(p.op_type, domain, opset, sig)
        if sig is not None:
            sig.check(inputs, attrs, n_outputs)
        known: list[Any] = [v for v in inputs if not isinstance(v, Unknown)]
        if len(known) < len(inputs):
            return [UNKNOWN] * len(p.output)
        if sig is not None:
            sig.check_types(known)
        if domain == "" and p.op_type == "Constant":
            return [self._constant(attrs)]
        if domain == "" and p.op_type == "Loop":
            self.builder.name, self.builder.locs = loc.node, (loc.node,)
            return repeated(self, p.op_type, known, attrs, frame, loc.node)
        if any(isinstance(v, Ragged) for v in known):
            self.builder.name, self.builder.locs = loc.node, (loc.node,)
            node = OnnxNode(p.op_type, domain, opset, loc.node, known, attrs, n_outputs, loc, sig)
            return on_ragged(self.builder, op, node, self.limits)
        if domain == "" and p.op_type == "If":
            condition = known[0]
            if isinstance(condition, Value) and condition.const is not None:
                return self._branch(condition.const.array, attrs, frame, loc.node)
            if condition is not None:
                return chosen(self, condition, attrs, frame, loc.node)
        if domain == "" and p.op_type == "Scan":
            self.builder.name, self.builder.locs = loc.node, (loc.node,)
            return repeated(self, p.op_type, known, attrs, frame, loc.node)
        if op is None:
            body = schema_body(p, domain, opset, known, attrs)
            if body is None:
                raise UnsupportedError(f"{p.op_type} with these inputs is not supported")
            return self._call(body[0], inputs, attrs, body[1], frame, loc.node)
        for v in known:
            if isinstance(v, Bundle) and not op.bundles or isinstance(v, Value) and v.dtype.is_code and not op.codes:
                raise UnsupportedError(f"{p.op_type} of {v.type} is not supported")
        holds_strings = any(isinstance(v, Value) and v.dtype is DType.CHAR for v in known)
        if holds_strings and op.strings == "":
            raise UnsupportedError(f"{p.op_type} of strings is not supported")
        self.builder.name, self.builder.locs = loc.node, (loc.node,)
        attrs.pop("consumed_inputs", None)  # of the first opsets: which memory may be used again
        n = OnnxNode(p.op_type, domain, opset, loc.node, known, attrs, n_outputs, loc, sig)
        if holds_strings and op.strings != "own":
            return of_strings(self.builder, op, n)
        found = sized_shape(self.builder, n, self.limits)
        return op.from_onnx(self.builder, n) if found is None else found

    def _opset(self, domain: str, frame: Frame, op: str) -> int:
        if domain in frame.opsets:
            return frame.opsets[domain]
        if onnx_reader(domain, op) is not None:
            return 1
        raise ModelError(f"the model does not import an opset of domain '{domain or 'ai.onnx'}'")

    def _operator(self, op: str, domain: str, opset: int, sig: Signature | None) -> OpDef | None:
        """Who reads the operator; None: its body in ONNX's schema, or this file."""
        reader = onnx_reader(domain, op)
        if domain == "" and sig is None:
            raise _no_such_operator(op, opset)
        if reader is not None or (domain == "" and op in _BUILT_IN) or has_schema_body(op, domain, opset):
            return reader
        raise refused(domain, op)

    # -- constants, functions, branches ------------------------------------------------------------
    def _constant(self, attrs: dict[str, Any]) -> Value:
        if len(attrs) != 1:
            raise ModelError(f"a Constant holds one value, this one {len(attrs)}")
        ((key, x),) = attrs.items()
        kinds: dict[str, Any] = {"value_float": np.float32, "value_floats": np.float32}
        if key.startswith("value_string"):
            return self.builder.const(to_chars(np.array(x, object), "the constant"), name="constant")
        array = x if isinstance(x, np.ndarray) else np.array(x, kinds.get(key, np.int64))
        return self.builder.const(array, name="constant")

    def _call(
        self,
        f: proto.FunctionProto,
        inputs: Sequence[Binding],
        attrs: dict[str, Any],
        defaults: Sequence[proto.AttributeProto],
        caller: Frame,
        label: str,
    ) -> list[Binding]:
        """The outputs of a function body on these inputs"""
        if len(inputs) > len(f.input):
            raise ModelError(f"passes {len(inputs)} inputs to the function {f.name}, which takes {len(f.input)}")
        opsets = {domain_of(o.domain): o.version for o in f.opset_import}
        bound = {a.name: read_attribute(a, caller, self.files) for a in (*f.attribute_proto, *defaults)}
        frame = Frame({**caller.opsets, **opsets}, prefix=label + "/", bound={**bound, **attrs}, function=True)
        frame.depth = self._deeper(caller)
        for i, name in enumerate(f.input):
            frame.names[name] = inputs[i] if i < len(inputs) else None
        self.body(f.node, frame, list(f.output))
        return [frame.find(name) if frame.knows(name) else None for name in f.output]

    def _branch(self, condition: np.ndarray, attrs: dict[str, Any], frame: Frame, label: str) -> list[Binding]:
        """The outputs of the branch of an If that is taken; the other one is never looked at."""
        if condition.size != 1:
            raise ModelError(f"the condition has shape {list(condition.shape)}, but must be one bool")
        return self.subgraph(attrs["then_branch" if condition.ravel()[0] else "else_branch"], [], frame, label)

    def subgraph(self, body: SubGraph, inputs: Sequence[Binding], frame: Frame, label: str) -> list[Binding]:
        """The outputs of a body that sees the names around it, on these inputs"""
        g = body.graph
        if len(inputs) != len(g.input):
            raise ModelError(f"the body takes {len(g.input)} inputs, but is given {len(inputs)}")
        inner = Frame(frame.opsets, parent=body.frame, bound=body.frame.bound, prefix=label + "/")
        inner.depth = self._deeper(frame)
        inner.declared = declared_types(g, self.ignore_shapes)
        self.constants(g, inner, {})
        inner.names.update({v.name: x for v, x in zip(g.input, inputs, strict=True)})
        self.body(g.node, inner, [v.name for v in g.output])
        for v in g.output:
            if not inner.knows(v.name):
                raise ModelError(f"the body's output '{v.name}' is made by nothing")
        return [inner.find(v.name) for v in g.output]

    def _deeper(self, frame: Frame) -> int:
        if frame.depth >= MAX_DEPTH:
            raise ModelError(f"bodies are nested more than {MAX_DEPTH} deep")
        return frame.depth + 1


# -- what is wrong ---------------------------------------------------------------------------------
def _trimmed(names: Sequence[str]) -> list[str]:
    """without empty names at the end"""
    out = list(names)
    while out and not out[-1]:
        out.pop()
    return out


def _no_such_operator(op: str, opset: int) -> MonoblocError:
    first = first_opset(op, "")
    if first is not None and first > opset:
        return ModelError(f"{op} exists from opset {first} on, but the model imports opset {opset}")
    return ModelError(f"{op} is no operator of ONNX in opset {opset}")


STALE = "the file's declared shapes are stale: infer them again, or `--ignore-declared-shapes`"


def declared_types(g: proto.GraphProto, ignore_shapes: bool) -> dict[str, proto.TypeProto]:
    """What a graph says of its inner values and outputs"""
    out = {v.name: v.type for v in (*g.value_info, *g.output)}
    if not ignore_shapes:
        return out
    return {name: _without_shape(t) for name, t in out.items()}


def _without_shape(t: proto.TypeProto) -> proto.TypeProto:
    if t.WhichOneof("value") != "tensor_type":
        return t
    return proto.TypeProto(tensor_type=proto.TypeProto.Tensor(elem_type=t.tensor_type.elem_type))


def bundle_contradiction(v: Binding, type: proto.TypeProto | None, name: str) -> ModelError | None:
    """An error when only one of value and declared type is a sequence; maps (of ZipMap) are tensors here."""
    kind = type.WhichOneof("value") if type is not None else None
    while type is not None and kind == "optional_type":
        type = type.optional_type.elem_type
        kind = type.WhichOneof("value")
    if kind not in ("tensor_type", "sequence_type") or not isinstance(v, (Value, Items)):
        return None
    if type is not None and kind == "sequence_type" and type.sequence_type.elem_type.HasField("map_type"):
        return None
    if isinstance(v, Items) == (kind == "sequence_type"):
        return None
    return ModelError(f"output '{name}' is declared a {str(kind).removesuffix('_type')}, but is {v.type}")


def contradiction(v: Value, type: proto.TypeProto | None, name: str) -> ModelError | None:
    """An error when a declared type cannot be that of `v`; symbols and unknown sizes can be."""
    if type is None or type.WhichOneof("value") != "tensor_type":
        return None
    t = type.tensor_type
    dims: list[Any] | None = [d.dim_value if d.HasField("dim_value") else d.dim_param or "?" for d in t.shape.dim]
    fixed = [d if isinstance(d, int) and d >= 0 else None for d in dims or []]
    have = string_shape(v.type)
    wrong = t.HasField("shape") and (
        len(fixed) != len(have) or any(d is not None and d != s for d, s in zip(fixed, have, strict=False))
    )
    dtype = DTYPES.get(t.elem_type)
    if not wrong and (dtype is v.dtype or t.elem_type == proto.TensorProto.UNDEFINED):
        return None
    kind = dtype.value if dtype else f"element type {t.elem_type}"
    shape = f"[{','.join(map(str, dims or []))}]" if t.HasField("shape") else ""
    return ModelError(
        f"output '{name}' is declared {kind}{shape}, but is {v.type}",
        hints=[STALE if dtype is v.dtype else "the file's declared types are stale: infer them again, or remove them"],
    )
