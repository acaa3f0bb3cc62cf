"""Every operator agrees with itself, and with ONNX where ONNX has it in the same form.

infer  == the shapes and types of ref
expr   == ref, evaluated without a compiler
ref    == onnx.reference or onnxruntime, for operators whose attributes are ONNX's own
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from eval_expr import as_onnx, eval_node
from onnx import helper
from onnx.reference import ReferenceEvaluator

from monobloc.ir.graph import Graph, Node, Value
from monobloc.ir.types import DType, TensorType
from monobloc.ops import Case, OpDef, registry

SEED, OPSET = 20240, 23
print(f"seed {SEED}")

# (operator, case) where both ONNX implementations differ from us, and why we are right
DIFFERENT = {
    ("ScatterElements", "nan"): "their max is Python's, which loses a NaN depending on the order",
    ("GridSample", "far_zeros"): "coordinates that are no numbers read what their index happens to be",
    ("GridSample", "far_border"): "as above",
}


def all_cases() -> list[Any]:
    out = []
    for name, op in sorted(registry().items()):
        for k, case in enumerate(op.cases(np.random.default_rng(SEED))):
            out.append(pytest.param(op, case, id=f"{name}-{k}{'-' if case.name else ''}{case.name}"))
    return out


CASES = all_cases()


def node_of(op: OpDef, case: Case) -> tuple[Node, dict[Value, np.ndarray]]:
    g = Graph("case")
    ins: list[Value | None] = []
    data: dict[Value, np.ndarray] = {}
    for k, x in enumerate(case.inputs):
        if x is None:
            ins.append(None)
            continue
        x = np.asarray(x)
        ins.append(g.add_input(f"x{k}", TensorType(DType.of(x.dtype), x.shape)))
        data[ins[-1]] = x  # type: ignore[index]
    return g.make(op.name, ins, op.infer(ins, case.attrs), case.attrs), data


def reference(op: OpDef, case: Case, outputs: int) -> list[np.ndarray]:
    xs = [None if x is None else np.asarray(x) for x in case.inputs]
    with np.errstate(all="ignore"):
        return op.run(case.attrs, xs, outputs)


def assert_close(op: OpDef, got: np.ndarray, want: np.ndarray) -> None:
    if want.dtype == object:
        assert as_onnx(got).tolist() == want.tolist()
        return
    codes = DType.of(want.dtype).codes
    if want.dtype.kind in "biu" or DType.of(want.dtype).is_opaque:
        np.testing.assert_array_equal(codes(got), codes(want))
        return
    rtol, atol = op.tol.rtol, op.tol.atol
    if want.dtype.itemsize == 2:
        rtol, atol = max(rtol, 1e-2), max(atol, 1e-2)
    np.testing.assert_allclose(got.astype(np.float64), want.astype(np.float64), rtol=rtol, atol=atol)


@pytest.mark.parametrize(("op", "case"), CASES)
def test_infer_is_what_ref_gives(op: OpDef, case: Case) -> None:
    n, _ = node_of(op, case)
    for y, v in zip(reference(op, case, len(n.outputs)), n.outputs, strict=True):
        assert y.shape == v.shape
        assert DType.of(y.dtype) is v.dtype


@pytest.mark.parametrize(("op", "case"), [p for p in CASES if p.values[0].has_expr])
def test_expr_is_ref(op: OpDef, case: Case) -> None:
    n, data = node_of(op, case)
    want = reference(op, case, len(n.outputs))
    for (at, got), y, v in zip(eval_node(n, data), want, n.outputs, strict=True):
        assert DType.of(got.dtype) is v.dtype
        assert_close(op, got, y.ravel()[at])


def test_every_operator_can_be_lowered() -> None:
    for name, op in registry().items():
        made = type(op).infer is not OpDef.infer
        ways = op.has_expr or op.has_routine or op.contraction is not None
        assert ways or not made, f"{name} has neither expr, contraction nor routine"


def has_onnx_form(op: OpDef, case: Case) -> bool:
    """Whether the operator's attributes and inputs are ONNX's own."""
    if (op.name, case.name) in DIFFERENT:
        return False
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


@pytest.mark.parametrize(("op", "case"), [p for p in CASES if has_onnx_form(*p.values)])
def test_ref_is_onnx(op: OpDef, case: Case) -> None:
    """Where the two disagree with each other, we agree with one."""
    ours = reference(op, case, len(node_of(op, case)[0].outputs))
    feeds = {f"x{i}": as_onnx(np.asarray(x)) for i, x in enumerate(case.inputs) if x is not None}
    theirs = answers(onnx_model(op, case, len(ours)), feeds)
    if not theirs:
        pytest.skip("neither ONNX's reference nor onnxruntime runs this")
    errors = []
    for want in theirs:
        try:
            for got, w in zip(ours, want, strict=True):
                assert_close(op, got, w)
            return
        except AssertionError as e:
            errors.append(e)
    raise errors[0]
