"""Control flow that data decide: every way through it, in every kind of build, against onnxruntime."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from border import build, model, module
from control_models import CASES, branches, deep, nested, text, x
from onnx import helper

from monobloc import driver
from monobloc.errors import MonoblocError
from monobloc.frontend.importer import load_onnx
from monobloc.ir.graph import Graph
from monobloc.ir.interp import interpret
from monobloc.ir.text import copy_graph, print_graph
from monobloc.ir.verify import verify
from monobloc.link.image import link_modules
from monobloc.link.request import Request
from monobloc.loader import CompiledModel
from monobloc.options import Options
from monobloc.passes import PassContext, pipeline, run_passes
from monobloc.targets import resolve

OPTIONS = Options(lto="none")
NAMES = list(CASES)


def session(m: onnx.ModelProto) -> onnxruntime.InferenceSession:
    o = onnxruntime.SessionOptions()
    o.log_severity_level = 3
    return onnxruntime.InferenceSession(m.SerializeToString(), o)


def want(m: onnx.ModelProto, feeds: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    s = session(m)
    return dict(zip([o.name for o in s.get_outputs()], s.run(None, feeds), strict=True))


def close(got: dict[str, np.ndarray], right: dict[str, np.ndarray]) -> None:
    assert got.keys() == right.keys()
    for name, y in right.items():
        assert got[name].shape == y.shape and got[name].dtype == y.dtype
        np.testing.assert_allclose(got[name], y, rtol=2e-5, atol=2e-5, err_msg=name)


def ops(g: Graph) -> set[str]:
    return {n.op for part in g.tree() for n in part.nodes}


# -- answers --------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", NAMES)
def test_every_way_through_gives_what_onnxruntime_gives(name: str, tmp_path: Path) -> None:
    make, feeds = CASES[name]
    m = make()
    linked = build({name: m}, tmp_path, OPTIONS)
    assert {"If", "Loop"} & ops(linked.low.graph)
    for f in feeds:
        close(linked(**f), want(m, f))


@pytest.mark.parametrize("going", [False, True])
def test_a_loop_whose_condition_is_known_and_whose_count_is_data(going: bool) -> None:
    """One that never runs gives what it starts with."""
    m = text("""g (int64 n, float[4,8] x) => (float[4,8] y) {
        y = Loop(n, going, x) <body = b (int64 i, bool c, float[4,8] s) => (bool c2, float[4,8] s2) {
            s2 = Erf(s)  c2 = Identity(c) }> }""", going=np.array(going))
    g, feeds = load_onnx(m).graph, {"n": np.array(2), "x": x()}
    assert ("Loop" in ops(g)) == going
    close(interpret(g, feeds), want(m, feeds))


@pytest.mark.parametrize(("kind", "shape"), [("loop", (0, 4, 8)), ("scan", (4, 0, 8))])
def test_what_no_iteration_stacks_has_the_rows_of_one(kind: str, shape: tuple[int, ...]) -> None:
    """Bodies seldom declare what their outputs are: the axis of iterations is not the only one."""
    node = {"loop": """Loop(n, , x) <body = b (int64 i, bool c, float[4,8] s) => (bool c2, s2, t) {
                t = Erf(s)  s2 = Mul(t, s)  c2 = Identity(c) }>""",
            "scan": """Scan(x, none) <num_scan_inputs = 1, scan_output_axes = [1],
                body = b (float[4,8] s, float[4,8] r) => (s2, t) { t = Add(s, r)  s2 = Mul(t, s) }>"""}[kind]
    constants = {"loop": {"n": np.array(0)}, "scan": {"none": np.zeros((0, 4, 8), np.float32)}}[kind]
    m = text(f"g (float[4,8] x) => (float[4,8] y, float[N,K,M] rows) {{ y, rows = {node} }}", **constants)
    feeds = {"x": x()}
    got = interpret(load_onnx(m).graph, feeds)
    assert got["rows"].shape == shape
    np.testing.assert_array_equal(got["y"], feeds["x"])


@pytest.mark.parametrize("name", NAMES)
def test_the_graph_means_the_same_before_and_after_passes_and_as_text(name: str) -> None:
    make, feeds = CASES[name]
    m = make()
    g = load_onnx(m).graph
    verify(g)
    again = copy_graph(g)
    assert print_graph(again) == print_graph(g)
    passes = [p for p in pipeline() if p.name not in ("select", "share")]  # packed weights are no matrices
    run_passes(again, PassContext(resolve("x86_64-linux", "x86-64-v3")), passes)
    names = [v.name for part in again.tree() for n in part.nodes for v in n.outputs]
    assert len(set(names)) == len(names)
    assert print_graph(copy_graph(again)) == print_graph(again)
    for f in feeds:
        for graph in (g, again):
            close(interpret(graph, f), want(m, f))


@pytest.mark.parametrize("name", ["deep"])
def test_lto_and_threads_change_no_bit(name: str, tmp_path: Path, cache: Path) -> None:
    make, feeds = CASES[name]
    onnx.save(make(), tmp_path / f"{name}.onnx")
    answers = []
    for k, o in enumerate((OPTIONS, replace(OPTIONS, lto="thin"), replace(OPTIONS, lto="full", threads=2))):
        driver.build([tmp_path / f"{name}.onnx"], tmp_path / f"{k}.so", "shared", replace(o, cache=cache))
        m = CompiledModel(tmp_path / f"{k}.so")
        answers.append([a.tobytes() for f in feeds for a in m.run(f).values()])
    assert answers[0] == answers[1] == answers[2]


# -- links ----------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", ["deep"])
def test_objects_and_parts_link_to_the_whole(name: str, tmp_path: Path, cache: Path) -> None:
    o = replace(OPTIONS, cache=cache)
    path = tmp_path / f"{name}.onnx"
    onnx.save(CASES[name][0](), path)
    driver.build([path], tmp_path / "whole.so", "shared", replace(o, dump=tmp_path / "dump"))
    whole = (tmp_path / "whole.so").read_bytes()
    driver.compile_to_object(path, tmp_path / "one.o", o)
    parts = driver.compile_parts(driver.module_of(path, driver.import_model(path, o), o), tmp_path / "p.o",
                                 replace(o, partitions=2))
    for k, given in enumerate(([tmp_path / "one.o"], parts[::-1])):
        driver.link(given, tmp_path / f"{k}.so", "shared", replace(o, dump=tmp_path / f"dump{k}"))
        assert (tmp_path / f"{k}.so").read_bytes() == whole


def test_an_objects_own_code_runs_its_regions(tmp_path: Path, cache: Path) -> None:
    """`--graph-lto off`: the native code of an object, whose weights are stored as the model has them"""
    make, feeds = CASES["branches"]
    onnx.save(make(), tmp_path / "m.onnx")
    o = replace(OPTIONS, cache=cache, graph_lto=False)
    driver.build([tmp_path / "m.onnx"], tmp_path / "m.so", "shared", o)
    for f in feeds:
        close(CompiledModel(tmp_path / "m.so").run(f), want(make(), f))


def test_two_models_of_equal_names_connect(tmp_path: Path) -> None:
    both = build({"a": nested(), "b": nested()}, tmp_path, OPTIONS, "b.x=a.y")
    feeds = {k: np.array(v) for k, v in (("c", True), ("d", False), ("b.c", False), ("b.d", True))}
    inputs = CompiledModel(both.path).inputs
    assert {i.name for i in inputs} == {"c", "d", "x", "b.c", "b.d"}
    first = x()
    middle = want(nested(), {"x": first, "c": np.array(True), "d": np.array(False)})["y"]
    close(both(x=first, **feeds), want(nested(), {"x": middle, "c": np.array(False), "d": np.array(True)}))


@pytest.mark.parametrize("condition", [True, False])
def test_a_bound_condition_removes_the_branch_that_is_not_taken(condition: bool, tmp_path: Path) -> None:
    whole = build({"m": branches()}, tmp_path, OPTIONS)
    given = {"bind": {"m.c": np.array(condition)}}
    one = link_modules([module(branches(), "m", OPTIONS)], Request(tmp_path / "b.so", "shared",
                                                                  replace(OPTIONS, **given)))
    low = one.programs[0]
    assert "If" not in ops(low.graph) and [v.name for v in low.graph.inputs] == ["x"]
    assert 0 < low.weights_bytes == whole.low.weights_bytes // 2
    f = {"x": x()}
    close(CompiledModel(tmp_path / "b.so").run(f), want(branches(), {**f, "c": np.array(condition)}))


def test_a_condition_of_another_model_removes_a_branch(tmp_path: Path) -> None:
    a = model([helper.make_node("Less", ["k", "two"], ["c"])], [("k", "f32", [])], [("c", "bool", [])],
              two=np.float32(2))
    both = build({"a": a, "b": branches()}, tmp_path, replace(OPTIONS, bind={"a.k": np.array(1.0)}), "b.c=a.c")
    assert "If" not in ops(both.low.graph) and len(both.low.unit.weights) == 1


def test_a_loop_bound_to_no_iteration_is_gone(tmp_path: Path) -> None:
    one = build({"m": deep()}, tmp_path, replace(OPTIONS, bind={"n": np.array(0)}))
    assert "Loop" not in ops(one.low.graph) and one.low.weights_bytes == 0
    f = x()
    assert one(x=f)["y"].tobytes() == f.tobytes()


def test_outputs_that_nobody_reads_leave_the_regions(tmp_path: Path) -> None:
    """`d` of the carried values is read by nothing, `k` never changes"""
    linked = build({"m": CASES["swapped"][0]()}, tmp_path, OPTIONS)
    (loop,) = (n for n in linked.low.graph.nodes if n.op == "Loop")
    assert loop.attrs["carried"] == 2 and "Exp" not in ops(linked.low.graph)


# -- memory ---------------------------------------------------------------------------------------------
def test_branches_share_memory(tmp_path: Path) -> None:
    chain = "  ".join(f"{n} = MatMul({p}, w)" for p, n in zip(["x", "h", "i", "j"], ["h", "i", "j", "k"]))
    m = text(f"""g (bool c, float[64,8] x) => (float[64,8] y) {{
        y = If(c) <then_branch = t () => (float[64,8] k) {{ {chain} }},
                   else_branch = e () => (float[64,8] q) {{ {chain.replace('k =', 'q =')} }}> }}""",
             w=np.eye(8, dtype=np.float32))
    low = build({"m": m}, tmp_path, OPTIONS).low
    ports = sum(v.type.bytes for v in low.graph.inputs) + 64 * 8 * 4
    assert low.placement.arena - ports <= 2 * 64 * 8 * 4 + 256  # two of the three values between, once


def test_the_planned_regions_do_not_meet_what_lives_round_them(tmp_path: Path) -> None:
    """`t` is read after the loop: nothing inside may lie on it."""
    p = build({"m": deep()}, tmp_path, OPTIONS).low.placement
    outer = [(at, at + v.type.bytes) for v, at, _, _ in p.buffers]
    inside = [(p.offset[int(s.base)], v) for g, order in p.inner.items() for n in order for v in n.outputs
              if isinstance((s := p.storage[v]).base, int) and v not in g.output_values]
    assert inside and not any(a <= at < z for at, v in inside for a, z in outer if v.type.size)


# -- errors ---------------------------------------------------------------------------------------------
def test_an_index_that_is_wrong_in_the_branch_taken_is_an_error(tmp_path: Path) -> None:
    m = text("""g (bool c, int64[2] i, float[4,8] x) => (float[2,8] y) {
        y = If(c) <then_branch = t () => (float[2,8] p) { p = Gather(x, i) },
                   else_branch = e () => (float[2,8] q) { q = Identity(k) }> }""", k=np.zeros((2, 8), np.float32))
    linked = build({"m": m}, tmp_path, OPTIONS)
    f = {"x": x(), "i": np.array([1, 7])}
    assert not linked(**f, c=np.array(False))["y"].any()
    with pytest.raises(MonoblocError, match="(?i)index"):
        linked(**f, c=np.array(True))
    assert linked(x=f["x"], i=np.array([1, 3]), c=np.array(True))["y"].tobytes() == f["x"][[1, 3]].tobytes()


def test_reports_hold_the_layers_of_regions(tmp_path: Path, cache: Path) -> None:
    onnx.save(branches(), tmp_path / "m.onnx")
    from monobloc.report.facts import of_program

    image = driver.build([tmp_path / "m.onnx"], tmp_path / "m.so", "shared", replace(OPTIONS, cache=cache))
    facts = of_program(image.programs[0])
    layers = {op for x in facts["layers"] for op in x["ops"]}
    assert {"If", "MatMul", "Softmax"} <= layers
    assert facts["stack_bound"] > 0
