"""What the link line fixes: inputs that are constants, where a model starts, which outputs stay."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from border import build, model, module
from onnx import helper

from monobloc import driver
from monobloc.cli.settings import options, work_on
from monobloc.errors import MonoblocError
from monobloc.link.bind import Fixed
from monobloc.link.program import programs
from monobloc.loader import CompiledModel
from monobloc.options import Options

node = helper.make_node
SEED = 5
print(f"seed {SEED}")
RNG = np.random.default_rng(SEED)
OPTIONS = Options(lto="none")


def moded(weights: float = 1.0) -> onnx.ModelProto:
    """`mode` decides between two products; each has weights of its own."""
    return model(
        [node("Equal", ["mode", "three"], ["is"]), node("MatMul", ["x", "w"], ["fast"]),
         node("MatMul", ["x", "v"], ["slow"]), node("Tanh", ["slow"], ["t"]),
         node("Where", ["is", "fast", "t"], ["c"]), node("Relu", ["c"], ["y"])],
        [("x", "f32", [2, 8]), ("mode", "i64", [])], [("y", "f32", [2, 4])], three=np.int64(3),
        w=np.full((8, 4), weights, np.float32), v=np.full((8, 4), 2 * weights, np.float32))


@pytest.fixture
def compiled(tmp_path: Path, cache: Path) -> Path:
    """The model as an object: `kws.o`."""
    onnx.save(moded(), tmp_path / "kws.onnx")
    driver.compile_to_object(tmp_path / "kws.onnx", tmp_path / "kws.o", replace(OPTIONS, cache=cache))
    return tmp_path / "kws.o"


@pytest.mark.parametrize("name", ["mode", "kws.mode"])
def test_a_bound_input_leaves_the_image_with_what_it_decides(name: str, compiled: Path) -> None:
    o = OPTIONS
    whole = driver.link([compiled], compiled.with_name("whole.so"), "shared", o)
    made = driver.link([compiled], compiled.with_name("kws.so"), "shared", replace(o, bind={name: np.array(3)}))
    before, after = whole.programs[0], made.programs[0]
    assert "kws_in_mode" in before.header and "mode" not in after.header
    assert sorted(n.op for n in after.graph.nodes) == ["Fused"] and after.weights_bytes * 2 == before.weights_bytes
    assert after.placement.arena < before.placement.arena
    x = RNG.standard_normal((2, 8)).astype(np.float32)
    want = CompiledModel(whole.path).run({"x": x, "mode": np.array(3)})["y"]
    assert CompiledModel(made.path).run({"x": x})["y"].tobytes() == want.tobytes()


def test_the_other_value_keeps_the_other_branch(compiled: Path, cache: Path) -> None:
    made = driver.link([compiled], compiled.with_name("kws.so"), "shared",
                       replace(OPTIONS, cache=cache, bind={"mode": np.array(0)}))
    x = RNG.standard_normal((2, 8)).astype(np.float32)
    np.testing.assert_allclose(CompiledModel(made.path).run({"x": x})["y"],
                               np.maximum(np.tanh(x @ np.full((8, 4), 2, np.float32)), 0), rtol=1e-4, atol=1e-6)


def test_binding_reaches_over_the_border_of_models(tmp_path: Path) -> None:
    a = model([node("Add", ["m", "one"], ["n"])], [("m", "i64", [])], [("n", "i64", [])], one=np.int64(1))
    both = build({"a": a, "b": moded()}, tmp_path, replace(OPTIONS, bind={"a.m": np.array(2)}), "b.mode=a.n")
    assert [v.name for v in both.low.graph.inputs] == ["b.x"] and both.ops == ["MatMul", "Relu"]


def test_parts_are_bound_as_the_whole_is(tmp_path: Path, cache: Path) -> None:
    o = replace(OPTIONS, cache=cache)
    parts = driver.compile_parts(module(moded(), "kws", o), tmp_path / "p.o", replace(o, partitions=2))
    made = driver.link(parts, tmp_path / "kws.so", "shared", replace(o, bind={"mode": np.array(3)}))
    assert [v.name for v in made.programs[0].graph.inputs] == ["x"]


def test_start_and_kept_outputs_at_the_link(compiled: Path, cache: Path) -> None:
    o = replace(OPTIONS, cache=cache, start_from=("slow",), keep_outputs=("kws.t",))
    made = driver.link([compiled], compiled.with_name("t.so"), "shared", o)
    assert made.programs[0].weights_bytes == 0
    slow = RNG.standard_normal((2, 4)).astype(np.float32)
    got = CompiledModel(made.path).run({"slow": slow})
    assert list(got) == ["t"]
    np.testing.assert_allclose(got["t"], np.tanh(slow), rtol=1e-5)


def test_models_given_to_build_are_named_too(tmp_path: Path, cache: Path) -> None:
    for name in ("kws", "vad"):
        onnx.save(moded(), tmp_path / f"{name}.onnx")
    o = replace(OPTIONS, cache=cache, bind={"kws.mode": np.array(3)})
    made = driver.build([tmp_path / "kws.onnx", tmp_path / "vad.onnx"], tmp_path / "both.so", None, o)
    assert [len(p.graph.inputs) for p in made.programs] == [1, 2]


def test_a_project_binds_in_tables(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch, compiled: Path
) -> None:
    onnx.save(moded(2.0), tmp_path / "vad.onnx")
    onnx.save(moded(3.0), tmp_path / "cmd.onnx")
    (tmp_path / "monobloc.toml").write_text(
        'lto = "none"\nbind = { "cmd.mode" = 3 }\n[[model]]\npath = "kws.o"\nbind = { mode = 3 }\n'
        '[[model]]\npath = "vad.onnx"\nkeep-output = ["t"]\nfrom = ["slow"]\n[[model]]\npath = "cmd.onnx"\n')
    monkeypatch.chdir(tmp_path)
    work = work_on([], {"cache": cache})
    paths = [p for p, _ in work.models]
    made = driver.build(paths, tmp_path / "all.so", None, work.options, options_of=work.options_of)
    inputs = {p.interface.prefix: [q.name for q in p.interface.inputs] for p in made.programs}
    assert inputs == {"kws": ["x"], "vad": ["slow"], "cmd": ["x"]}


@pytest.mark.parametrize("given,told", [
    ({"bind": {"moode": np.array(1)}}, r"`--bind moode`: no model has this input(?s:.*)did you mean `mode`"),
    ({"bind": {"x": np.zeros((3, 8))}}, r"`--bind x`: several models(?s:.*)`kws.x` or `vad.x`"),
    ({"bind": {"kws.x": np.zeros((3, 8))}}, r"float64\[3,8\] does not fit f32\[2,8\](?s:.*)kws.onnx"),
    ({"bind": {"kws.mode": np.array(1.5)}}, "i64 cannot hold the given float64"),
    ({"bind": {"kws.mode": np.array("three")}}, "i64 cannot hold the given <U5"),
    ({"start_from": ("kws.nothing",)}, "`--from kws.nothing`: no model has this tensor"),
    ({"keep_outputs": ("kws.nothing",)}, "`--keep-output kws.nothing`: no model has this output"),
    ({"bind": {"a": np.array(1)}, "keep_outputs": ("b",)}, "(?s)`--bind a`.*`--keep-output b`"),
])
def test_what_does_not_fit_is_told(given: dict, told: str) -> None:
    modules = [module(moded(), name, OPTIONS) for name in ("kws", "vad")]
    with pytest.raises(MonoblocError) as e:
        programs(modules, fixed=Fixed(**given))
    assert re.search(told, str(e.value)), str(e.value)


def test_one_input_bound_by_both_of_its_names() -> None:
    with pytest.raises(MonoblocError, match="`--bind kws.mode`: the input `mode` of `kws` is bound already"):
        programs([module(moded(), "kws", OPTIONS)], fixed=Fixed({"mode": np.array(3), "kws.mode": np.array(0)}))


def test_native_code_cannot_be_bound(compiled: Path, cache: Path) -> None:
    with pytest.raises(MonoblocError, match="`--bind` needs the graphs"):
        driver.link([compiled], compiled.with_name("x.so"), "shared",
                    replace(OPTIONS, cache=cache, graph_lto=False, bind={"mode": np.array(3)}))


def test_the_verb_takes_it(compiled: Path) -> None:
    assert options({"bind": ["kws.mode=3"]}).bind == {"kws.mode": np.array(3)}


def test_a_bound_input_that_a_later_start_makes_idle(compiled: Path, tmp_path: Path) -> None:
    """At the link as at the import: it is bound, and then gone."""
    o = replace(OPTIONS, bind={"mode": np.array(3)}, start_from=("c",))
    linked = driver.link([compiled], tmp_path / "a.so", "shared", o)
    built = driver.build([compiled.with_suffix(".onnx")], tmp_path / "b.so", "shared", o)
    x = RNG.standard_normal((2, 4)).astype(np.float32)
    for path in (linked.path, built.path):
        np.testing.assert_array_equal(CompiledModel(path).run({"c": x})["y"], np.maximum(x, 0))
