"""Cases of operators as ONNX models of one node, and what ONNX's two implementations say of them.

Either may be unable to run a model, or die: `answers` asks them in this process, `asked` in a child with a time limit.
"""

from __future__ import annotations

import multiprocessing
import signal
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
from eval_expr import as_onnx
from onnx import helper
from onnx.reference import ReferenceEvaluator

from monobloc.ir.types import DType
from monobloc.ops import Case, OpDef

OPSET, LIMIT_S = 23, 60


def has_onnx_form(op: OpDef, case: Case) -> bool:
    """Whether the operator's attributes and inputs are ONNX's own."""
    if op.internal or op.domain or "::" in op.name or not onnx.defs.has(op.name, OPSET):
        return False
    schema = onnx.defs.get_schema(op.name, OPSET)
    if schema.deprecated or not set(case.attrs) <= set(schema.attributes):
        return False
    return schema.min_input <= len(case.inputs) <= schema.max_input


def onnx_model(op: OpDef, case: Case, outputs: int) -> onnx.ModelProto:
    attrs = {}
    for k, v in case.attrs.items():
        attrs[k] = helper.np_dtype_to_tensor_dtype(v.numpy) if isinstance(v, DType) else v
    feeds = {f"x{i}": None if x is None else as_onnx(np.asarray(x)) for i, x in enumerate(case.inputs)}
    names = ["" if x is None else k for k, x in feeds.items()]
    outs = [f"y{i}" for i in range(outputs)]
    node = helper.make_node(op.name, names, outs, **{k: v for k, v in attrs.items() if v not in (None, [])})
    infos = [
        helper.make_tensor_value_info(k, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)
        for k, x in feeds.items()
        if x is not None
    ]
    results = [helper.make_empty_tensor_value_info(o) for o in outs]
    graph = helper.make_graph([node], "g", infos, results)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)])


def answers(model: onnx.ModelProto, feeds: dict[str, np.ndarray]) -> list[list[np.ndarray]]:
    """What ONNX's reference and onnxruntime say; either may be unable to run the model."""
    out = []
    for run in (_reference, _runtime):
        try:
            out.append([np.asarray(y) for y in run(model, feeds)])
        except Exception as e:  # noqa: BLE001  (each has its own exceptions for what it cannot do)
            print(f"{run.__name__}: {e}")
    return out


def _reference(model: onnx.ModelProto, feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
    with np.errstate(all="ignore"):
        return list(ReferenceEvaluator(model).run(None, feeds))


def _runtime(model: onnx.ModelProto, feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
    options = ort.SessionOptions()
    options.log_severity_level = 4
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return list(session.run(None, feeds))


ORACLES = {"onnx": _reference, "onnxruntime": _runtime}


def asked(who: str, models: list[tuple[onnx.ModelProto, dict[str, np.ndarray]]]) -> list[list[np.ndarray] | str]:
    """What an implementation says of each: outputs, or why there are none. A crash is that of one model only."""
    out: list[list[np.ndarray] | str] = []
    while len(out) < len(models):
        out += _in_a_child(who, models[len(out):])
    return out


def _in_a_child(who: str, models: list[tuple[onnx.ModelProto, dict[str, np.ndarray]]]) -> list[list[np.ndarray] | str]:
    """The answers up to the first model that kills the child, whose answer is its end."""
    context = multiprocessing.get_context("spawn")
    mine, its = context.Pipe()
    child = context.Process(target=_answer, args=(who, [(m.SerializeToString(), f) for m, f in models], its))
    child.start()
    its.close()
    got: list[list[np.ndarray] | str] = []
    try:
        while len(got) < len(models):
            if not mine.poll(LIMIT_S):
                return [*got, "hangs"]
            got.append(mine.recv())
        return got
    except EOFError:
        child.join()
        return [*got, f"dies of {signal.Signals(-(child.exitcode or 0)).name}" if child.exitcode else "ends"]
    finally:
        child.kill()
        child.join()


def _answer(who: str, models: list[tuple[bytes, dict[str, np.ndarray]]], to: Any) -> None:
    for raw, feeds in models:
        try:
            to.send([np.asarray(y) for y in ORACLES[who](onnx.load_model_from_string(raw), feeds)])
        except Exception as e:  # noqa: BLE001 - each has its own exceptions for what it cannot do
            to.send(f"refuses: {str(e)[:200]}")
