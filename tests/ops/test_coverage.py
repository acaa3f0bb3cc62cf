"""docs/operators.md says the truth: a node of every operator and type that it names is read, and compiles."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from onnx_form import has_onnx_form, onnx_model

from monobloc.driver import import_model
from monobloc.errors import MonoblocError
from monobloc.frontend.coverage import coverage
from monobloc.frontend.signature import signature, type_name
from monobloc.ir.graph import Graph
from monobloc.ir.interp import interpret
from monobloc.ir.types import DType
from monobloc.link.image import link_modules
from monobloc.link.objects import Module
from monobloc.link.request import Request
from monobloc.loader import CompiledModel
from monobloc.ops import Case, OpDef, onnx_names, registry
from monobloc.options import Options

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))
from doc_operators import types  # noqa: E402

SEED, OPSET, COMPILED = 31, 23, 120
print(f"seed {SEED}")


def first_case(op: OpDef) -> Case | None:
    return next((c for c in op.cases(np.random.default_rng(SEED)) if has_onnx_form(op, c)), None)


def in_type(op: OpDef, case: Case, d: DType) -> Case:
    """The case with the inputs that follow the first variable one in another type."""
    s = signature(op.name, "", OPSET)
    assert s is not None
    kind = next(p.type for p in s.params if p.type in s.types)
    out = []
    for k, x in enumerate(case.inputs):
        p = s.param(k)
        if x is not None and p is not None and p.type == kind:
            x = np.asarray(x)
            x = np.nan_to_num(np.abs(x) if d.value[0] in "ub" else x, posinf=9, neginf=-9) if not d.is_float else x
            x = x.astype(d.numpy)
        out.append(x)
    return Case(tuple(out), case.attrs, case.name)


def pairs() -> list[tuple[OpDef, DType, Case]]:
    out = []
    for c in coverage():
        case = first_case(c.reader) if c.reader is not None and not c.domain and c.name == c.reader.name else None
        for d in c.types if case is not None else ():
            s = signature(c.name, "", OPSET)
            if s is None or d.is_opaque or not any(p.type in s.types for p in s.params):
                continue
            first = next(p for p in s.params if p.type in s.types)
            if type_name(d) in s.types[first.type]:
                out.append((c.reader, d, in_type(c.reader, case, d)))  # type: ignore[arg-type]
    return out


def graph_of(op: OpDef, case: Case) -> tuple[Graph, dict[str, np.ndarray]]:
    feeds = {f"x{i}": np.asarray(x) for i, x in enumerate(case.inputs) if x is not None}
    return import_model(onnx_model(op, case, 1), Options()).graph, feeds


def test_every_pair_is_read() -> None:
    bad, all_of = [], pairs()
    for op, d, case in all_of:
        try:
            graph_of(op, case)
        except MonoblocError as e:
            bad.append(f"{op.name} {d.value}: {e}")
    assert len(all_of) > 400
    assert not bad, "\n".join(bad)


def test_pairs_compile(tmp_path: Path, cache: Path) -> None:
    """Some of them, other ones for another seed: what is computed is what the graph means."""
    chosen = np.random.default_rng(SEED).permutation(len(pairs()))[:COMPILED]
    all_of = pairs()
    made = [(*all_of[k][:2], *graph_of(all_of[k][0], all_of[k][2])) for k in sorted(chosen)]
    out, o = tmp_path / "pairs.so", Options(lto="none", cache=cache)
    modules = [Module(g, f"p{k}", f"p{k}", f"p{k}") for k, (_, _, g, _) in enumerate(made)]
    link_modules(modules, Request(out, "shared", o))
    models = {m.name: m for m in (CompiledModel(out, k) for k in range(len(made)))}
    bad = []
    for k, (op, d, g, feeds) in enumerate(made):
        with np.errstate(all="ignore"):
            want = interpret(g, feeds)["y0"]
        got = models[f"p{k}"].run(feeds)["y0"]
        tol = 2e-2 if d in (DType.F16, DType.BF16) else 2e-4
        a, b = (v.astype(np.float64) for v in (got, want))
        if got.dtype != want.dtype or not np.allclose(a, b, tol, tol, equal_nan=True):
            bad.append(f"{op.name} {d.value}: {got.ravel()[:4]} instead of {want.ravel()[:4]}")
    assert not bad, "\n".join(bad)


def test_types_are_named_shortly() -> None:
    assert types([DType.I8, DType.F32]) == "f32 i8"
    assert types([d for d in DType if d.is_int]) == "ints"
    assert types([]) == "-"


def test_every_reader_is_covered() -> None:
    assert {(c.domain, c.name) for c in coverage()} >= set(onnx_names())
    assert {type(c.reader) for c in coverage() if c.reader} == {type(x) for x in registry().values() if not x.internal}


@pytest.mark.parametrize(("name", "opset"), [("Softmax", 11), ("Softmax", 13), ("Clip", 12), ("Resize", 19)])
def test_versions_are_listed(name: str, opset: int) -> None:
    assert opset in next(c for c in coverage() if c.title == name).versions
