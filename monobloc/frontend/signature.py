"""What ONNX's own schema says of an operator: counts, attributes and types, checked before an op
reads a node.

Wrong counts, unknown or ill-typed attributes and element types that the standard does not allow
are told here once for all operators, in one wording; `from_onnx` can rely on what passed. For operators
that onnxruntime defines beside ONNX, `schemas.json` says the same (tools/gen_schemas.py).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources
from typing import Any

import numpy as np

from monobloc.errors import ModelError
from monobloc.frontend import proto
from monobloc.ir.graph import Value
from monobloc.ir.types import DType
from monobloc.ops.sequence import Absent, Bundle, Items
from monobloc.ops.sized import Ragged

_SINGLE, _OPTIONAL, _VARIADIC = 0, 1, 2
_TYPE_NAMES = {
    DType.F32: "float",
    DType.F64: "double",
    DType.F16: "float16",
    DType.BF16: "bfloat16",
    DType.BOOL: "bool",
    DType.CHAR: "string",
    **{d: d.value.replace("f", "float", 1) for d in DType if d.is_code and d.value_type is DType.F32},
}


def type_name(d: DType) -> str:
    """An element type as ONNX's schemas write it"""
    return f"tensor({_TYPE_NAMES.get(d) or d.numpy.name})"


@dataclass(frozen=True)
class Param:
    name: str
    option: int
    type: str
    homogeneous: bool


@dataclass(frozen=True)
class Attribute:
    kind: str  # name of the AttributeProto type
    required: bool


@dataclass(frozen=True)
class Signature:
    """The facts of one OpSchema"""

    op: str
    since: int
    min_inputs: int
    max_inputs: int
    max_outputs: int
    params: tuple[Param, ...]
    types: dict[str, frozenset[str]]
    attributes: dict[str, Attribute]
    deprecated: bool

    def param(self, i: int) -> Param | None:
        if i < len(self.params):
            return self.params[i]
        last = self.params[-1] if self.params else None
        return last if last and last.option == _VARIADIC else None

    def input_name(self, i: int) -> str:
        p = self.param(i)
        return p.name if p else f"number {i}"

    def check(self, inputs: Sequence[object], attrs: dict[str, Any], n_outputs: int) -> None:
        """ModelError on the first thing that the standard does not allow (absent inputs: None)."""
        self._check_counts(inputs, n_outputs)
        self._check_attributes(attrs)

    def _check_counts(self, inputs: Sequence[object], n_outputs: int) -> None:
        for i, p in enumerate(self.params):
            if p.option == _SINGLE and (i >= len(inputs) or inputs[i] is None):
                raise ModelError(f"input {i} ({p.name}) is missing")
        for i, given in enumerate(inputs):
            many = self.param(i)
            if given is None and many is not None and many.option == _VARIADIC:
                raise ModelError(f"input {i} ({many.name}) is missing")
        if not self.min_inputs <= len(inputs) <= self.max_inputs:
            want = _range(self.min_inputs, self.max_inputs)
            raise ModelError(f"has {len(inputs)} inputs, but takes {want}")
        if n_outputs > self.max_outputs:
            raise ModelError(f"has {n_outputs} outputs, but gives at most {self.max_outputs}")

    def _check_attributes(self, attrs: dict[str, Any]) -> None:
        for name, value in attrs.items():
            known = self.attributes.get(name)
            if known is None:
                raise ModelError(
                    f"has an attribute `{name}`, unknown to {self.op} of opset {self.since}",
                    notes=[f"it has {', '.join(f'`{a}`' for a in sorted(self.attributes)) or 'none'}"],
                )
            if not _is(value, known.kind):
                raise ModelError(f"the attribute `{name}` is {_kind(value)} instead of {known.kind.lower()}")
        for name, a in self.attributes.items():
            if a.required and name not in attrs:
                raise ModelError(f"the attribute `{name}` is missing")

    def check_types(self, inputs: Sequence[Value | Bundle | Ragged | None]) -> None:
        """ModelError on an element type that the standard does not allow."""
        seen: dict[str, tuple[int, DType]] = {}
        for i, v in enumerate(inputs):
            p = self.param(i)
            if v is None or p is None or isinstance(v, Absent):
                continue
            allowed = self.types.get(p.type) or frozenset({p.type})
            kind = f"seq({type_name(v.dtype)})" if isinstance(v, Items) else type_name(v.dtype)
            if not {kind, f"optional({kind})"} & allowed:
                raise ModelError(
                    f"input {i} ({p.name}) is {v.type}, refused by {self.op} of opset {self.since}",
                    notes=[f"it takes {', '.join(sorted(allowed))}"],
                )
            first, dtype = seen.setdefault(p.type, (i, v.dtype))
            if p.homogeneous and p.type in self.types and dtype is not v.dtype:
                raise ModelError(
                    f"inputs {first} ({self.input_name(first)}) and {i} ({p.name}) are "
                    f"{dtype.value} and {v.dtype.value}, but must have one type"
                )


def _range(low: int, high: int) -> str:
    if high >= 1 << 30:
        return f"{low} or more"
    return str(low) if low == high else f"{low} to {high}"


def _is(value: Any, kind: str) -> bool:
    if kind in ("INT", "FLOAT", "STRING"):
        return type(value) is {"INT": int, "FLOAT": float, "STRING": str}[kind]
    if kind == "TENSOR":
        return isinstance(value, np.ndarray)
    if kind in ("INTS", "FLOATS", "STRINGS"):  # an empty list carries no type
        item = {"INTS": int, "FLOATS": float, "STRINGS": str}[kind]
        return isinstance(value, list) and all(type(x) is item for x in value)
    return True


def _kind(value: Any) -> str:
    if isinstance(value, list):
        return _kind(value[0]) + "s" if value else "an empty list"
    names = {int: "int", float: "float", str: "string", np.ndarray: "tensor"}
    return names.get(type(value), type(value).__name__.lower())


@lru_cache(maxsize=4096)
def signature(op: str, domain: str, opset: int) -> Signature | None:
    """The schema in force in an opset; None for operators that neither ONNX nor onnxruntime defines."""
    s = schema(op, domain, opset)
    if s is None:
        return _beside_onnx().get((domain, op))
    options = {"Single": _SINGLE, "Optional": _OPTIONAL, "Variadic": _VARIADIC}
    return Signature(
        op=op,
        since=s.since_version,
        min_inputs=s.min_input,
        max_inputs=s.max_input,
        max_outputs=s.max_output,
        params=tuple(Param(p.name, options[p.option.name], p.type_str, p.is_homogeneous) for p in s.inputs),
        types={c.type_param_str: frozenset(c.allowed_type_strs) for c in s.type_constraints},
        attributes={k: Attribute(a.type.name, a.required) for k, a in s.attributes.items()},
        deprecated=s.deprecated,
    )


@lru_cache(maxsize=1)
def _beside_onnx() -> dict[tuple[str, str], Signature]:
    """What onnxruntime defines, by domain and name"""
    text = resources.files(__package__).joinpath("schemas.json").read_text(encoding="utf-8")
    options = {"Single": _SINGLE, "Optional": _OPTIONAL, "Variadic": _VARIADIC}
    out = {}
    for s in json.loads(text):
        out[s["domain"], s["op"]] = Signature(
            op=s["op"],
            since=1,
            min_inputs=s["counts"][0],
            max_inputs=s["counts"][1],
            max_outputs=s["counts"][2],
            params=tuple(Param(name, options[option], type, same) for name, option, type, same in s["inputs"]),
            types={k: frozenset(v) for k, v in s["types"].items()},
            attributes={k: Attribute(*v) for k, v in s["attributes"].items()},
            deprecated=False,
        )
    return out


def schema(op: str, domain: str, opset: int) -> Any:
    """onnx's OpSchema, or None (its type stubs lag behind: Any)"""
    try:
        return proto.defs.get_schema(op, opset, domain)
    except Exception:  # onnx raises types of its own C++ module
        return None


@lru_cache(maxsize=4096)
def first_opset(op: str, domain: str) -> int | None:
    """The opset in which ONNX first defines an operator"""
    newest = schema(op, domain, 1 << 30)
    if newest is None:
        return None
    at = newest.since_version
    while at > 1 and (older := schema(op, domain, at - 1)) is not None:
        at = older.since_version
    return int(at)


def opset_newest() -> int:
    return int(proto.defs.schema_version_map()[""][1])
