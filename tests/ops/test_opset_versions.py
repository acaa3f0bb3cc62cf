"""Every version of every operator that ONNX ever had, as a model of one node, against onnxruntime or ONNX's reference.

A version is tried in the form that it has: its attributes and inputs are those of its own schema. Most follow from
the OpDefs' cases; where attributes became inputs or defaults changed, `opset_forms.py` writes them. Neither oracle has
kernels for the first versions: then the newest form of the same computation says what is right.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np
import onnx
import pytest
from eval_expr import as_onnx
from onnx import helper
from opset_forms import ELSEWHERE, FORMS, Form
from test_o2_onnx import one_node, ours, reference, runtime

from monobloc.frontend.coverage import coverage
from monobloc.ir.types import DType
from monobloc.ops import Case, OpDef

SEED = 5
print(f"seed {SEED}")
Array = np.ndarray
NEWEST = 26


def versions() -> list[tuple[str, int]]:
    all_of = {(s.name, s.since_version) for s in onnx.defs.get_all_schemas_with_history()
              if s.domain == "" and not s.deprecated and s.since_version <= NEWEST}
    return sorted((n, v) for n, v in all_of if n not in ELSEWHERE)


@cache
def readers() -> dict[str, OpDef | None]:
    return {c.name: c.reader for c in coverage() if not c.domain}


def form(op: str, version: int) -> Form | None:
    """The node to try: the newest written form that is not newer, or a case that is one of this version"""
    written = [f for f in FORMS.get(op, ()) if f.since <= version]
    if written:
        return written[-1]
    reader = readers().get(op)
    if reader is None or reader.name != op:
        return None
    s = onnx.defs.get_schema(op, version)
    return next((f for f in map(of_case, reader.cases(np.random.default_rng(SEED))) if fits(f, s)), None)


def of_case(c: Case) -> Form:
    attrs = {k: helper.np_dtype_to_tensor_dtype(v.numpy) if isinstance(v, DType) else v for k, v in c.attrs.items()}
    ins = [None if x is None else as_onnx(np.asarray(x)) for x in c.inputs]
    return Form(1, ins, {k: v for k, v in attrs.items() if v is not None and v != []})


def fits(f: Form, s: Any) -> bool:
    needed = {k for k, a in s.attributes.items() if a.required}
    if not needed <= set(f.attrs) <= set(s.attributes) or not s.min_input <= len(f.inputs) <= s.max_input:
        return False
    types = {c.type_param_str: c.allowed_type_strs for c in s.type_constraints}
    for k, x in enumerate(f.inputs):
        p = s.inputs[min(k, len(s.inputs) - 1)]
        kind = "" if x is None else helper.tensor_dtype_to_string(helper.np_dtype_to_tensor_dtype(np.asarray(x).dtype))
        name = kind.removeprefix("TensorProto.").lower()
        if x is not None and f"tensor({name})" not in types.get(p.type_str, [p.type_str]):
            return False
    return True


def built(op: str, version: int, f: Form) -> tuple[onnx.ModelProto, dict[str, Array]]:
    const = range(0 if f.constant else 1, len(f.inputs))
    return one_node(op, version, f.inputs, dict(f.attrs), f.outputs, const=const)


def answer(op: str, version: int, f: Form) -> list[Array] | None:
    model, feeds = built(op, version, f)
    for oracle in (runtime, reference):
        try:
            return [np.asarray(y) for y in oracle(model, feeds)]
        except Exception as e:  # noqa: BLE001 - whatever it cannot do
            print(f"{op} {version}: {oracle.__name__}: {str(e)[:150]}")
    return None


def newest(op: str) -> Iterator[tuple[int, Form]]:
    for v in sorted((v for n, v in versions() if n == op), reverse=True):
        if (f := form(op, v)) is not None:
            yield v, f


@pytest.mark.parametrize("letter", sorted({n[0] for n, _ in versions()}))
def test_every_version_is_read_as_it_was(letter: str) -> None:
    bad = []
    for op, version in versions():
        if op[0] != letter:
            continue
        f = form(op, version)
        if f is None:
            bad.append(f"{op} {version}: no form of it is known")
            continue
        want = answer(op, version, f)
        if want is None:
            want = next((y for v, g in newest(op) if (y := answer(op, v, g)) is not None), None)
        try:
            got = ours(*built(op, version, f))
        except Exception as e:  # noqa: BLE001 - all of them are told
            bad.append(f"{op} {version}: {type(e).__name__}: {e}")
            continue
        if want is None:
            bad.append(f"{op} {version}: no oracle")
        elif why := differs(got, want):
            bad.append(f"{op} {version}: {why}")
    assert not bad, "\n".join(bad)


def differs(got: list[Array], want: list[Array]) -> str:
    for g, w in zip(got, want, strict=True):
        if g.dtype != w.dtype or g.shape != w.shape:
            return f"{g.dtype}{g.shape} instead of {w.dtype}{w.shape}"
        if w.dtype.kind in "biu":
            if not np.array_equal(g, w):
                return f"{g} instead of {w}"
        elif not np.allclose(g.astype(np.float64), w.astype(np.float64), 1e-4, 1e-5, equal_nan=True):
            return f"{g} instead of {w}"
    return ""


@pytest.mark.parametrize("version", [7, 10, 12, 13, 22])
def test_the_mask_of_dropout(version: int) -> None:
    """No two oracles could agree before opset 12: ONNX did not say what it is."""
    model, feeds = one_node("Dropout", version, [np.ones((2, 3), np.float32)], {}, 2)
    assert not differs(ours(model, feeds), [np.asarray(y) for y in runtime(model, feeds)])
