"""Facts of a TFLite file as it is, also when it cannot be imported: what `monobloc check` shows."""

from __future__ import annotations

from collections import Counter
from typing import Any

from monobloc.frontend.tflite.importer import port_names
from monobloc.frontend.tflite.schema import TYPES, Model, Tensor, read_model


def facts(model: Any) -> dict[str, Any]:
    """The fields of `frontend.Facts` that stand in the file"""
    m = read_model(model)
    ins, outs = port_names(m)
    weights: Counter[str] = Counter()
    for t in _constants(m):
        weights[t.type_text] += len(t.data or b"")
    return {
        "name": m.name, "ir_version": m.version, "opsets": {"tflite": m.version}, "producer": m.description,
        "inputs": tuple((name, m.main.tensors[t].text) for name, t in zip(ins, m.main.inputs, strict=True)),
        "outputs": tuple((name, m.main.tensors[t].text) for name, t in zip(outs, m.main.outputs, strict=True)),
        "ops": dict(Counter(o.name for g in m.subgraphs for o in g.operators).most_common()),
        "weight_bytes": sum(weights.values()),
        "weight_bytes_by_type": dict(weights.most_common()),
    }


def _constants(m: Model) -> list[Tensor]:
    return [t for g in m.subgraphs for t in g.tensors if t.data is not None and t.type in TYPES]
