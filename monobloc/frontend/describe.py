"""Facts of a model in a fraction of a second, nothing compiled: what `monobloc check` shows.

The file is described as it is, also when it cannot be imported; then the import is tried and
every problem is kept, the operators that are not supported apart from the rest.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from monobloc.errors import ErrorList, MonoblocError, UnsupportedError
from monobloc.frontend import proto
from monobloc.frontend.dims import declared
from monobloc.frontend.formats import format_of, load_model, need_torch
from monobloc.frontend.functions import domain_of
from monobloc.frontend.importing import Choices, Imported, Model, guarded
from monobloc.frontend.source import read_source
from monobloc.frontend.tensors import DTYPES
from monobloc.frontend.tflite import facts as tflite_facts


@dataclass(frozen=True)
class Port:
    """An input or output as the file declares it"""

    name: str
    type: str


@dataclass(frozen=True)
class Facts:
    """What a model is. `imported` is None when `problems` or `unsupported` are not empty."""

    name: str
    ir_version: int
    opsets: dict[str, int]
    producer: str
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    ops: dict[str, int]  # in the file, nested graphs and functions included; most frequent first
    weight_bytes: int
    weight_bytes_by_type: dict[str, int]
    unsupported: tuple[UnsupportedError, ...]
    problems: tuple[MonoblocError, ...]
    notes: tuple[str, ...]
    imported: Imported | None


def describe(model: Model, choices: Choices | None = None) -> Facts:
    """Facts of a model. Raises only when the file is no model at all."""
    with guarded(model):
        kind = format_of(model)
        facts = {"onnx": _onnx, "tflite": _tflite, "torch": _torch}[kind](model)
    imported, errors = None, []
    try:
        imported = load_model(model, choices)
    except ErrorList as e:
        errors = e.errors
    except MonoblocError as e:
        errors = [e]
    return Facts(
        **facts,
        unsupported=tuple(e for e in errors if isinstance(e, UnsupportedError)),
        problems=tuple(e for e in errors if not isinstance(e, UnsupportedError)),
        notes=tuple(imported.notes) if imported else (),
        imported=imported,
    )


def _onnx(model: Model) -> dict[str, Any]:
    source = read_source(model)
    m = source.model
    weights: Counter[str] = Counter()
    for t in _tensors(m):
        dtype = DTYPES.get(t.data_type)
        bits = dtype.bits if dtype else 8
        weights[dtype.value if dtype else f"type {t.data_type}"] += (bits * _elements(t) + 7) // 8
    constants = {t.name for t in m.graph.initializer}
    return {
        "name": source.name,
        "ir_version": m.ir_version,
        "opsets": {domain_of(o.domain): o.version for o in m.opset_import},
        "producer": f"{m.producer_name} {m.producer_version}".strip(),
        "inputs": tuple(_port(v) for v in m.graph.input if v.name not in constants),
        "outputs": tuple(_port(v) for v in m.graph.output),
        "ops": dict(Counter(_op(n) for n in _nodes(m)).most_common()),
        "weight_bytes": sum(weights.values()),
        "weight_bytes_by_type": dict(weights.most_common()),
    }


def _tflite(model: Model) -> dict[str, Any]:
    return _with_ports(tflite_facts(model))


def _torch(model: Model) -> dict[str, Any]:
    need_torch()
    from monobloc.frontend.torch import facts

    return _with_ports(facts(model))


def _with_ports(found: dict[str, Any]) -> dict[str, Any]:
    return found | {k: tuple(Port(*p) for p in found[k]) for k in ("inputs", "outputs")}


def _elements(t: proto.TensorProto) -> int:
    out = 1
    for d in t.dims:
        out *= max(d, 0)
    return out


def _op(n: proto.NodeProto) -> str:
    domain = domain_of(n.domain)
    return f"{domain}::{n.op_type}" if domain else n.op_type


def _port(v: proto.ValueInfoProto) -> Port:
    try:
        return Port(v.name, str(declared(v.type, v.name)))
    except MonoblocError as e:
        return Port(v.name, e.message.removeprefix(v.name + " ").removesuffix(", which is not supported"))


def _graphs(m: proto.ModelProto) -> Iterator[proto.GraphProto]:
    queue = [m.graph]
    for g in queue:
        yield g
        queue += _nested(g.node)
    for f in m.functions:
        queue = _nested(f.node)
        for g in queue:
            yield g
            queue += _nested(g.node)


def _nested(nodes: Sequence[proto.NodeProto]) -> list[proto.GraphProto]:
    return [g for n in nodes for a in n.attribute for g in (*([a.g] if a.HasField("g") else []), *a.graphs)]


def _nodes(m: proto.ModelProto) -> Iterator[proto.NodeProto]:
    for g in _graphs(m):
        yield from g.node
    for f in m.functions:
        yield from f.node


def _tensors(m: proto.ModelProto) -> Iterator[proto.TensorProto]:
    """Initializers, and the values of Constant nodes"""
    for g in _graphs(m):
        yield from g.initializer
    for n in _nodes(m):
        if n.op_type == "Constant":
            yield from (a.t for a in n.attribute if a.HasField("t"))
