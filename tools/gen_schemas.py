"""frontend/schemas.json: the signatures of operators that onnxruntime defines beside ONNX.

    python tools/gen_schemas.py            write it
    python tools/gen_schemas.py --check    fail if it is not what the installed onnxruntime says

One operator a line: domain, name, opset, inputs (name, option, type), outputs, types, attributes. It is data, so that
reading a model needs no onnxruntime.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

FILE = Path(__file__).resolve().parents[1] / "monobloc" / "frontend" / "schemas.json"
DEFAULT = ("LayerNormalization", "SimplifiedLayerNormalization")  # of ONNX's own domain, in no opset of it


def schemas() -> list[Any]:
    from onnxruntime.capi import onnxruntime_pybind11_state as state

    found = state.get_all_operator_schema()
    wanted = [s for s in found if s.domain == "com.microsoft" or s.domain == "" and s.name in DEFAULT]
    return sorted((s for s in wanted if s.since_version == 1), key=lambda s: (s.domain, s.name))


def entry(s: Any) -> dict[str, Any]:
    kinds = {str(a.type).rpartition(".")[2] for a in s.attributes.values()}
    assert kinds <= {"INT", "INTS", "FLOAT", "FLOATS", "STRING", "STRINGS", "TENSOR", "GRAPH"}, kinds
    return {
        "op": s.name,
        "domain": s.domain,
        "inputs": [[p.name, str(p.option).rpartition(".")[2], p.typeStr, p.isHomogeneous] for p in s.inputs],
        "counts": [s.min_input, s.max_input, s.max_output],
        "types": {c.type_param_str: sorted(c.allowed_type_strs) for c in s.type_constraints},
        "attributes": {
            k: [str(a.type).rpartition(".")[2], bool(a.required)] for k, a in sorted(s.attributes.items())
        },
    }


def text() -> str:
    lines = [json.dumps(entry(s), separators=(",", ":")) for s in schemas()]
    return "[\n" + ",\n".join(lines) + "\n]\n"


def main() -> int:
    made = text()
    if "--check" in sys.argv[1:]:
        return int(FILE.read_text(encoding="utf-8") != made)
    FILE.write_text(made, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
