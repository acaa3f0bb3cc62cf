"""Models that take several sizes: `--dim n=1,4,8`."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import monobloc
from monobloc.driver import build, compile_to_object, link
from monobloc.errors import ModelError, MonoblocError, UnsupportedError
from monobloc.frontend import Choices, load_model
from monobloc.ir.dims import Dim, parse_sizes
from monobloc.ir.text import parse_graphs, print_graph
from monobloc.loader import CompiledModel
from monobloc.options import Emit, Options
from monobloc.report.facts import estimate
from monobloc.run_image import open_image

DIMS = {"n": (1, 3), "t": (2, 40)}
SHAPES = [(n, t) for n in DIMS["n"] for t in DIMS["t"]]


def _attends(path: Path) -> None:
    """y = softmax(x (x w)^T) x w with a Reshape that asks for the shape, z = its mean; x is [n, t, 24]"""
    rng = np.random.default_rng(5)
    w, k = rng.standard_normal((24, 160)).astype(np.float32) / 5, rng.standard_normal((160, 24)).astype(np.float32) / 12
    node = helper.make_node
    nodes = [
        node("MatMul", ["x", "w"], ["a"]), node("MatMul", ["a", "k"], ["q"]),
        node("Transpose", ["x"], ["xt"], perm=[0, 2, 1]), node("MatMul", ["q", "xt"], ["s"]),
        node("Softmax", ["s"], ["p"], axis=-1), node("MatMul", ["p", "a"], ["h"]),
        node("Shape", ["x"], ["shape"]), node("Gather", ["shape", "zero"], ["rows"]),
        node("Concat", ["rows", "rest"], ["flat"], axis=0), node("Reshape", ["h", "flat"], ["y"]),
        node("ReduceMean", ["y"], ["z"], axes=[1], keepdims=0),
    ]
    consts = {"w": w, "k": k, "zero": np.array([0]), "rest": np.array([-1])}
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", "t", 24])
    outs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, None),
            helper.make_tensor_value_info("z", TensorProto.FLOAT, ["n"])]
    g = helper.make_graph(nodes, path.stem, [x], outs, [numpy_helper.from_array(v, n) for n, v in consts.items()])
    onnx.save(helper.make_model(g, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)


@pytest.fixture(scope="module")
def attends(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("sizes") / "attends.onnx"
    _attends(path)
    return path


def _data(n: int, t: int) -> np.ndarray:
    return np.random.default_rng([n, t]).standard_normal((n, t, 24)).astype(np.float32)


def _want(model: Path, x: np.ndarray) -> dict[str, np.ndarray]:
    session = onnxruntime.InferenceSession(str(model), providers=["CPUExecutionProvider"])
    return dict(zip(["y", "z"], session.run(["y", "z"], {"x": x}), strict=True))


def _check(got: dict[str, np.ndarray], want: dict[str, np.ndarray]) -> None:
    assert {k: v.shape for k, v in got.items()} == {k: v.shape for k, v in want.items()}
    for name, y in want.items():
        np.testing.assert_allclose(got[name], y, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("lto", "threads"), [("none", 1), ("thin", 2), ("full", 1)])
def test_every_size_gives_its_own_shapes(lto: str, threads: int, attends: Path, tmp_path: Path, cache: Path) -> None:
    o = Options(lto=lto, threads=threads, dims=DIMS, cache=cache)  # type: ignore[arg-type]
    build([attends], tmp_path / "a.so", "shared", o)
    m = CompiledModel(tmp_path / "a.so")
    assert m.dims == DIMS and m.inputs[0].axes == ("n", "t", "")
    for n, t in [*SHAPES, *SHAPES[::-1]]:
        _check(m.run({"x": _data(n, t)}), _want(attends, _data(n, t)))
    _weights_are_there_once(attends, tmp_path / "a.so")
    largest = load_model(attends, Choices(dims={"n": 3, "t": 40})).graph
    assert m.arena_bytes <= estimate(largest, o).arena + 128
    m.stop()


def _weights_are_there_once(model: Path, image: Path) -> None:
    """Packed or not: every vector of 16 columns of a row is somewhere, once."""
    data = image.read_bytes()
    for t in onnx.load(model).graph.initializer:
        if t.name in ("w", "k"):
            assert data.count(numpy_helper.to_array(t)[3, :4].tobytes()) == 1, t.name


def test_sizes_that_it_was_not_built_for(attends: Path, cache: Path) -> None:
    m = monobloc.compile(attends, dim={"n": [1, 3], "t": range(2, 5)}, cache=cache)
    assert m.dims == {"n": (1, 3), "t": range(2, 5)}
    with pytest.raises(ModelError, match="dimension `n` is 2, attends takes 1,3"):
        m.run({"x": _data(2, 2)})
    with pytest.raises(ModelError, match=r"dimension `t` is 5, attends takes 2\.\.4"):
        m.set_dims(t=5)
    with pytest.raises(ModelError, match="shape"):
        m.run({"x": np.zeros((1, 2, 23), np.float32)})
    fresh = monobloc.compile(attends, dim={"n": [1, 3], "t": [2, 4]}, cache=cache)
    with pytest.raises(ModelError, match="size"):  # none was set
        fresh.run({})
    fresh.set_dims(n=3, t=4)
    fresh.input_buffer("x")[...] = _data(3, 4)
    _check(fresh.run(), _want(attends, _data(3, 4)))


def test_two_inputs_that_disagree(tmp_path: Path, cache: Path) -> None:
    ports = [helper.make_tensor_value_info(n, TensorProto.FLOAT, ["n", 4]) for n in "aby"]
    g = helper.make_graph([helper.make_node("Add", ["a", "b"], ["y"])], "sum", ports[:2], ports[2:])
    m = monobloc.compile(helper.make_model(g, opset_imports=[helper.make_opsetid("", 17)], ir_version=8),
                         dim={"n": [1, 2]}, cache=cache)
    with pytest.raises(ModelError, match="dimension `n` is 1 in input `a` and 2 in input `b`"):
        m.run({"a": np.zeros((1, 4), np.float32), "b": np.zeros((2, 4), np.float32)})
    assert m.run({"a": np.ones((2, 4), np.float32), "b": np.ones((2, 4), np.float32)})["y"].shape == (2, 4)


APP = r"""
#include "attends.h"
#include <stdio.h>
#include <stdlib.h>
int main(void) {
  if (attends_run() != ATTENDS_E_SHAPE) return 2;
  if (attends_set_n(2) != ATTENDS_E_SHAPE || attends_set_t(ATTENDS_T_MAX + 1) != ATTENDS_E_SHAPE) return 3;
  for (int n = 1; n <= ATTENDS_N_MAX; n += 2) {
    if (attends_set_n(n) || attends_set_t(40)) return 4;
    for (int k = 0; k < n * 40 * 24; k++) attends_in_x()[k] = (float)(k % 7) - 3;
    if (attends_run()) return 5;
    printf("%d", (int)attends_out_z_dims()[0]);
    for (int k = 0; k < n; k++) printf(" %.5f", attends_out_z()[k]);
    printf("\n");
  }
  void *ram = aligned_alloc(64, (attends_ram_size + 63) / 64 * 64);
  attends_reset_at(ram);
  if (attends_run_at(ram) != ATTENDS_E_SHAPE) return 6;
  if (attends_set_n_at(ram, 3) || attends_set_t_at(ram, 2) || attends_run_at(ram)) return 7;
  return attends_out_z_dims_at(ram)[0] == 3 ? 0 : 8;
}
"""


def test_c_interface_and_objects(attends: Path, tmp_path: Path, cache: Path) -> None:
    """Compiled by itself, linked with an application that reads one of the outputs."""
    o = Options(dims=DIMS, cache=cache)
    compile_to_object(attends, tmp_path / "attends.o", o)
    (tmp_path / "app.c").write_text(APP)
    made = build([tmp_path / "attends.o", tmp_path / "app.c"], tmp_path / "app", "exe", Options(cache=cache))
    assert made.image.removed == {"attends": ["y"]}
    ran = subprocess.run([tmp_path / "app"], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout
    for line, n in zip(ran.stdout.splitlines(), (1, 3), strict=True):
        x = (np.arange(n * 40 * 24) % 7 - 3).astype(np.float32).reshape(n, 40, 24)
        want = _want(attends, x)["z"]
        assert line.split()[0] == str(n)
        np.testing.assert_allclose([float(v) for v in line.split()[1:]], want, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("graph_lto", [True, False])
def test_object_without_its_graph(graph_lto: bool, attends: Path, tmp_path: Path, cache: Path) -> None:
    compile_to_object(attends, tmp_path / "attends.o", Options(dims=DIMS, cache=cache))
    link([tmp_path / "attends.o"], tmp_path / "a.so", "shared", Options(graph_lto=graph_lto, cache=cache))
    m = CompiledModel(tmp_path / "a.so")
    for n, t in SHAPES:
        _check(m.run({"x": _data(n, t)}), _want(attends, _data(n, t)))


def test_executable_reads_any_size(attends: Path, tmp_path: Path, cache: Path) -> None:
    build([attends], tmp_path / "a", "exe", Options(dims=DIMS, cache=cache))
    image = open_image(tmp_path / "a")
    assert image.inputs[0].axes == ("n", "t", "")
    for n, t in SHAPES:
        _check(image.run({"x": _data(n, t)}), _want(attends, _data(n, t)))
    with pytest.raises(ModelError) as e:
        image.run({"x": _data(2, 2)})
    assert "dimension 'n' is 2 in the input, which is none of its sizes" in str(e.value)


def test_bind_and_keep_output_reach_every_version(attends: Path, tmp_path: Path, cache: Path) -> None:
    compile_to_object(attends, tmp_path / "attends.o", Options(dims=DIMS, cache=cache))
    image = link([tmp_path / "attends.o"], tmp_path / "a.so", "shared", Options(keep_outputs=("z",), cache=cache))
    assert all([n for n, _ in v.graph.outputs] == ["z"] for v in image.programs[0].versions)
    m = CompiledModel(tmp_path / "a.so")
    for n, t in SHAPES:
        _check(m.run({"x": _data(n, t)}), {"z": _want(attends, _data(n, t))["z"]})


def test_text_of_versions_parses_back(attends: Path) -> None:
    graphs = load_model(attends, Choices(dims=DIMS)).graphs
    assert [g.at for g in graphs] == [{"n": n, "t": t} for n in (3, 1) for t in (40, 2)]
    text = "\n".join(map(print_graph, graphs))
    table = {v.const.key: v.const for g in graphs for v in g.constants() if v.const is not None}
    again = parse_graphs(text, lambda key, _: table[key])
    assert "\n".join(map(print_graph, again)) == text
    assert [(g.dims, g.at) for g in again] == [(g.dims, g.at) for g in graphs]


@pytest.mark.parametrize(("text", "sizes", "back"), [
    ("4", 4, None), ("1,4,8", (1, 4, 8), "1,4,8"), ("8,1,4,4", (1, 4, 8), "1,4,8"), ("1..4", (1, 2, 3, 4), "1..4"),
    ("3..4", (3, 4), "3,4"), ("5..5", 5, None), ("4..1", None, None), ("a..b", None, None), ("1,", None, None),
    ("-1..3", None, None), ("1..2..3", None, None), ("8..20:4", (8, 12, 16, 20), "8,12,16,20"),
    ("32..640:32", tuple(range(32, 641, 32)), "32..640:32"), ("1..22:3", tuple(range(1, 23, 3)), "1..22:3"),
    ("8..30:10", (8, 18, 28), "8,18,28"), ("1..8:1", tuple(range(1, 9)), "1..8"), ("1..8:0", None, None),
    ("past+seq", "past+seq", None), ("floor(n / 2)", "floor(n / 2)", None), ("2", 2, None), ("1.5", None, None),
])
def test_sizes_as_text(text: str, sizes: object, back: str | None) -> None:
    found = parse_sizes(text)
    assert found == sizes
    if isinstance(found, tuple):
        assert str(Dim("n", found)) == back


def _refused(what: type[MonoblocError], match: str, model: Path, emit: Emit = "shared", **options: object) -> None:
    with pytest.raises(what, match=match):
        build([model], model.with_suffix(".out"), emit, Options(**options))  # type: ignore[arg-type]


def test_what_is_refused(attends: Path, tmp_path: Path) -> None:
    squares = tuple(k * k for k in range(1, 20))  # a set: steps that are equal would stay open
    many = {"n": squares, "t": squares}
    _refused(UnsupportedError, "361 combinations", attends, dims=many)
    _refused(ModelError, "dimension 'm', which no input has", attends, dims={"m": (1, 2)})
    squeezed = tmp_path / "squeezed.onnx"
    ports = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 4]),
             helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
    g = helper.make_graph([helper.make_node("Squeeze", ["x"], ["y"])], "s", ports[:1], ports[1:])
    onnx.save(helper.make_model(g, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), squeezed)
    _refused(ModelError, "not of one kind at all of its sizes", squeezed, dims={"n": (1, 2)})


def test_shapes_name_sizes(cache: Path) -> None:
    """An input whose sizes have no names gets them from `--shape`."""
    ports = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [None, None]) for n in "xy"]
    g = helper.make_graph([helper.make_node("Exp", ["x"], ["y"])], "e", ports[:1], ports[1:])
    model = helper.make_model(g, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    m = monobloc.compile(model, shape={"x": ("b", 6)}, dim={"b": [1, 2]}, cache=cache)
    for b in (1, 2):
        x = np.linspace(-1, 1, 6 * b, dtype=np.float32).reshape(b, 6)
        np.testing.assert_allclose(m(x), np.exp(x), rtol=1e-5)
    with pytest.raises(ModelError, match="names the size 'b', which is not given"):
        monobloc.compile(model, shape={"x": ("b", 6)}, cache=cache)
