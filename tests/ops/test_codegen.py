"""Every operator's cases through the whole compiler: passes, C, link, run; against the reference.

One image per file of operators holds all their cases as nodes of one graph, so that a file costs one
compilation. Inputs that the model would hold as weights (see CONSTANT) are constants.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from monobloc.ir.graph import Graph, Node
from monobloc.ir.strings import to_text
from monobloc.ir.types import DType, TensorType
from monobloc.link.image import link_modules
from monobloc.link.objects import Module
from monobloc.link.request import Request
from monobloc.loader import CompiledModel
from monobloc.ops import EXACT, Case, OpDef, registry
from monobloc.options import Options

SEED = 20240
print(f"seed {SEED}")
CONSTANT = {"Conv": {1, 2}, "ConvTranspose": {1, 2}, "BatchNormalization": {1, 2, 3, 4}}
SKIP = {"Fused"}


def families() -> dict[str, list[OpDef]]:
    out: dict[str, list[OpDef]] = {}
    for op in registry().values():
        if op.name not in SKIP and (op.has_expr or op.has_routine):
            out.setdefault(type(op).__module__.rpartition(".")[2], []).append(op)
    return out


def node_of(g: Graph, op: OpDef, case: Case, k: int, feeds: dict[str, np.ndarray]) -> Node:
    ins = []
    for j, x in enumerate(case.inputs):
        if x is None:
            ins.append(None)
        elif j in CONSTANT.get(op.name, ()):
            ins.append(g.constant(f"w{k}_{j}", np.asarray(x)))
        else:
            x = np.asarray(x)
            ins.append(g.add_input(f"x{k}_{j}", TensorType(DType.of(x.dtype), x.shape)))
            feeds[f"x{k}_{j}"] = x
    return g.make(op.name, ins, op.infer(ins, case.attrs), case.attrs, name=f"{op.name}_{k}_{case.name}")


def all_cases(ops: list[OpDef]) -> list[tuple[OpDef, Case]]:
    return [(op, c) for op in ops for c in op.cases(np.random.default_rng(SEED))]


def differs(op: OpDef, got: np.ndarray, want: np.ndarray) -> str:
    if want.dtype != "S1" and (got.dtype != want.dtype or got.shape != want.shape):
        return f"{got.dtype}{got.shape} instead of {want.dtype}{want.shape}"
    if want.dtype == "S1":  # given back as Python's strings
        return "" if got.tolist() == to_text(want).tolist() else f"{got.tolist()} instead of {to_text(want).tolist()}"
    if DType.of(want.dtype).is_code:
        got, want = got.view(np.uint8), want.view(np.uint8)
    half = want.dtype.itemsize == 2 and want.dtype.kind not in "iu"
    rtol, atol = (1e-2, 1e-2) if half else (max(op.tol.rtol, 2e-5), max(op.tol.atol, 4e-6))
    if want.dtype.kind in "biu" or op.tol == EXACT or op.moves:
        rtol = atol = 0
    try:
        np.testing.assert_allclose(got.astype(np.float64), want.astype(np.float64), rtol=rtol, atol=atol)
    except AssertionError as e:
        return str(e)
    return ""


@pytest.mark.parametrize("family", families())
def test_compiled_is_the_reference(family: str, tmp_path: Path) -> None:
    g, feeds, want = Graph(family), {}, {}
    for k, (op, case) in enumerate(all_cases(families()[family])):
        n = node_of(g, op, case, k, feeds)
        with np.errstate(all="ignore"):
            ys = op.run(case.attrs, [None if x is None else np.asarray(x) for x in case.inputs], len(n.outputs))
        for j, (v, y) in enumerate(zip(n.outputs, ys, strict=True)):
            g.outputs.append((f"y{k}_{j}", v))
            want[f"y{k}_{j}"] = (op, case, y)
    if not want:
        pytest.skip("no cases")
    out = tmp_path / "m.so"
    link_modules([Module(g, family, family)], Request(out, "shared", Options(lto="none", cache=tmp_path / "cache")))
    got = CompiledModel(out).run(feeds)
    bad = [
        f"{op.name} {c.name} {c.attrs} output {k}: {d}"
        for k, (op, c, y) in want.items()
        if (d := differs(op, got[k], y))
    ]
    assert not bad, "\n".join(bad)
