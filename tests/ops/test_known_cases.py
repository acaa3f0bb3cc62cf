"""`known_cases.py`: interpreted, folded, and compiled with and without LTO; no case of the collection is missing."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import numpy as np
import onnx
import pytest
from known_cases import TABLE, Array, Known, node, text
from onnx import numpy_helper

from monobloc.codegen.lower import lower
from monobloc.driver import import_model
from monobloc.ir.interp import interpret
from monobloc.link.image import link_modules
from monobloc.link.objects import Module, compile_module, context
from monobloc.link.request import Request
from monobloc.loader import CompiledModel
from monobloc.object import toolchain
from monobloc.options import Options
from monobloc.passes.fuse import MAX_GROUP

BIG = {"more_names_than_c_must_know", "nodes_of_hundreds_of_operands"}  # compiled in one mode of LTO
ROOT = Path(__file__).resolve().parents[2]
MADE: dict[str, Known] = {name: f() for name, (_, f) in TABLE.models.items()}

# cases that are no values of a model, by the tests that hold them
ELSEWHERE: dict[int, tuple[str, ...]] = {
    3: ("ops/test_o1_onnx.py::test_run_time_index_outside_is_an_error",),
    11: ("errors/cases.py::declared_window_shape_contradicts", "errors/cases.py::declared_output_shape_contradicts"),
    39: ("errors/cases.py::op_newer_than_opset", "errors/cases.py::opset_too_new"),
    41: ("errors/cases.py::external_escapes_upwards", "errors/cases.py::external_absolute",
         "errors/cases.py::external_through_link", "errors/cases.py::external_hard_link",
         "unit/test_frontend_data.py::test_links_of_a_hub_cache_are_followed"),
    44: ("e2e/test_process.py::test_objects_with_large_weights_link",
         "e2e/test_process.py::test_no_code_reaches_large_weights_by_32_bits"),
    40: ("ops/test_known_cases.py::test_a_status_that_nobody_reads_is_told",),
    45: ("ops/test_known_cases.py::test_weights_are_never_text",),
    46: ("ops/test_known_cases.py::test_fusion_is_bounded",),
    42: ("errors/cases.py::external_unknown_key", "errors/cases.py::external_giant_length"),
    49: ("errors/cases.py::result_huge", "errors/cases.py::dimension_huge"),
}


def wrong(k: Known, got: dict[str, Array]) -> str:
    for name, want in k.want.items():
        y = got[name]
        if y.dtype != want.dtype or y.shape != want.shape:
            return f"{name}: {y.dtype}{y.shape} instead of {want.dtype}{want.shape}"
        if want.dtype.kind in "biu":
            same = np.array_equal(y, want)
        else:
            same = np.allclose(y.astype(np.float64), want.astype(np.float64), rtol=k.rtol, atol=0, equal_nan=True)
        if not same:
            return f"{name}: {y} instead of {want}"
    return ""


@pytest.mark.parametrize("name", MADE)
def test_meaning(name: str) -> None:
    k = MADE[name]
    assert not wrong(k, interpret(import_model(k.model, Options()).graph, k.feeds))


def all_constant(k: Known) -> onnx.ModelProto:
    """The model with nothing left to compute."""
    m = onnx.ModelProto()
    m.CopyFrom(k.model)
    m.graph.initializer.extend(numpy_helper.from_array(np.asarray(x), n) for n, x in k.feeds.items())
    del m.graph.input[:]
    return m


@pytest.mark.parametrize("way", ["none", "full", "folded"])
def test_compiled(way: str, tmp_path: Path, cache: Path) -> None:
    folded = way == "folded"
    o = Options(lto="none" if folded else way, cache=cache)  # type: ignore[arg-type]
    graphs = {n: import_model(all_constant(k) if folded else k.model, o).graph for n, k in MADE.items()
              if way == "none" or n not in BIG}
    out = tmp_path / "known.so"
    modules = [Module(g, f"k{i}", f"k{i}", f"k{i}") for i, g in enumerate(graphs.values())]
    link_modules(modules, Request(out, "shared", o))
    models = {m.name: m for m in (CompiledModel(out, i) for i in range(len(graphs)))}
    got = {n: models[f"k{i}"].run({} if folded else MADE[n].feeds) for i, n in enumerate(graphs)}
    bad = [f"{n}: {d}" for n, ys in got.items() if (d := wrong(MADE[n], ys))]
    assert not bad, "\n".join(bad)


def test_a_status_that_nobody_reads_is_told(tmp_path: Path) -> None:
    o, k = Options(lto="none"), MADE["relu_keeps_nan"]
    _, low = compile_module(Module(import_model(k.model, o).graph, "net", "net", "net"), o)
    (tmp_path / "net.h").write_text(low.header, encoding="utf-8")
    for body, fits in (("return net_run();", True), ("net_run(); return 0;", False)):
        (tmp_path / "app.c").write_text(f'#include "net.h"\nint main(void) {{ {body} }}\n', encoding="utf-8")
        tools = toolchain.find_tools()
        call = [*tools.clang, *tools.headers, "-Werror", "-fsyntax-only", "app.c"]
        made = subprocess.run(call, cwd=tmp_path, capture_output=True, text=True)
        assert (made.returncode == 0) == fits, made.stderr


def test_weights_are_never_text() -> None:
    """Neither in the graph's text nor in what clang reads: both are as small for a large weight as for a small one."""
    w = np.random.default_rng(1).standard_normal((1 << 10, 1 << 9)).astype(np.float32)
    k, o = node("MatMul", [w[:1], w.T], w[:1] @ w.T, const=[1]), Options(lto="none")
    obj, low = compile_module(Module(import_model(k.model, o).graph, "m", "m"), o)
    assert sum(w.size for w in obj.weights.values()) >= w.nbytes
    assert len(obj.ir) + len(obj.bitcode) + sum(map(len, low.files.values())) < w.nbytes // 20


def test_fusion_is_bounded() -> None:
    """A chain of hundreds is many groups, and the report says which limit cut it."""
    m = text("g (float[8] x) => (float[8] y300) {" + "".join(
        f" y{i + 1} = Sub(x, y{i})" for i in range(1, 300)) + " y1 = Neg(x) }")
    ctx = context(Options(lto="none"), "image")
    low = lower(import_model(m, Options()).graph, ctx, "m", "m")
    bodies = [len(n.body.nodes) for n in low.graph.nodes if n.body is not None]
    assert sum(bodies) == 300 and max(bodies) <= MAX_GROUP
    assert any("too large" in why for _, by, why in ctx.why if by == "fuse")


def test_no_case_is_missing(shared: Path) -> None:
    part = (shared / "CASES.md").read_text(encoding="utf-8").split("### 4A")[1].split("### 4B")[0]
    asked = {int(n) for n in re.findall(r"^(\d+)\.", part, re.M)}
    here = {n for n, _ in TABLE.models.values()}
    assert asked and asked == here | set(ELSEWHERE)


@pytest.mark.parametrize("number", ELSEWHERE)
def test_cases_elsewhere_exist(number: int) -> None:
    for place in ELSEWHERE[number]:
        file, _, name = place.partition("::")
        assert re.search(rf"^def {name}\(", (ROOT / "tests" / file).read_text(encoding="utf-8"), re.M), place
