"""Every operator agrees with itself, and with ONNX where ONNX has it in the same form.

infer  == the shapes and types of ref
expr   == ref, evaluated without a compiler
ref    == onnx.reference or onnxruntime, for operators whose attributes are ONNX's own
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from eval_expr import as_onnx, eval_node
from onnx_form import answers, has_onnx_form, onnx_model

from monobloc.ir.graph import Graph, Node, Value
from monobloc.ir.types import DType, TensorType
from monobloc.ops import EXACT, Case, OpDef, registry

SEED = 20240
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
    if want.dtype.itemsize == 2 and op.tol != EXACT and not op.moves:
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


ONNX_CASES = [p for p in CASES if (p.values[0].name, p.values[1].name) not in DIFFERENT and has_onnx_form(*p.values)]


@pytest.mark.parametrize(("op", "case"), ONNX_CASES)
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
