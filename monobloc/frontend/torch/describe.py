"""What a program is, as the file says it, for `monobloc check`."""

from __future__ import annotations

from collections import Counter
from typing import Any

import torch

from monobloc.errors import MonoblocError
from monobloc.frontend.torch.importer import op_name
from monobloc.frontend.torch.program import OPSETS, PRODUCER, read_program
from monobloc.frontend.torch.tensors import dtype_of


def facts(model: Any) -> dict[str, Any]:
    p = read_program(model)
    nodes = [n for n in p.exported.graph.nodes if n.op == "call_function"]
    weights: Counter[str] = Counter()
    seen = set()
    for t in (*p.exported.state_dict.values(), *p.exported.constants.values()):
        if isinstance(t, torch.Tensor) and (key := (t.data_ptr(), t.nbytes)) not in seen:
            seen.add(key)
            weights[_type(t)] += t.nbytes
    outs = zip(p.output_names(), (leaf for leaf in _leaves(p)), strict=False)
    return {
        "name": p.name,
        "ir_version": 0,
        "opsets": OPSETS,
        "producer": PRODUCER,
        "inputs": tuple((n.name, _text(n.meta["val"])) for n in p.user_inputs()
                        if isinstance(n.meta.get("val"), (torch.Tensor, torch.SymInt))),
        "outputs": tuple((name, _text(leaf.meta.get("val"))) for name, leaf in outs if isinstance(leaf, torch.fx.Node)),
        "ops": dict(Counter(op_name(n.target) for n in nodes).most_common()),
        "weight_bytes": sum(weights.values()),
        "weight_bytes_by_type": dict(weights.most_common()),
    }


def _leaves(p: Any) -> list[Any]:
    return [leaf for leaf, s in zip(p.outputs(), p.signature.output_specs, strict=True) if s.kind.name == "USER_OUTPUT"]


def _type(t: Any) -> str:
    try:
        return dtype_of(t.dtype).value
    except MonoblocError:
        return str(t.dtype).removeprefix("torch.")


def _text(val: Any) -> str:
    if isinstance(val, torch.Tensor):
        return f"{_type(val)}[{','.join(map(str, val.shape))}]"
    return "a number" if isinstance(val, torch.SymInt) else str(val)
