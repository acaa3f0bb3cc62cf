"""State that the program keeps itself: `--persist`."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from border import build as border_build
from border import model
from onnx import TensorProto, helper, numpy_helper

from monobloc.driver import build
from monobloc.errors import LinkError
from monobloc.link.persist import parse_persist
from monobloc.loader import CompiledModel
from monobloc.options import Emit, Options

STEPS = 7


def _cell(path: Path) -> None:
    """h_out = tanh(x W + h U), y = h_out + 1, z = c + x, c_out = c + 1"""
    rng = np.random.default_rng(3)
    weights = {"w": rng.standard_normal((8, 8), np.float32) / 4, "u": rng.standard_normal((8, 8), np.float32) / 4,
               "one": np.ones((1, 8), np.float32)}
    node = helper.make_node
    nodes = [node("MatMul", ["x", "w"], ["a"]), node("MatMul", ["h", "u"], ["b"]), node("Add", ["a", "b"], ["s"]),
             node("Tanh", ["s"], ["h_out"]), node("Add", ["h_out", "one"], ["y"]), node("Add", ["c", "x"], ["z"]),
             node("Add", ["c", "one"], ["c_out"])]
    ports = {n: helper.make_tensor_value_info(n, TensorProto.FLOAT, [1, 8])
             for n in ("x", "h", "c", "y", "h_out", "z", "c_out")}
    graph = helper.make_graph(nodes, "cell", [ports[n] for n in "xhc"],
                              [ports[n] for n in ("y", "h_out", "z", "c_out")],
                              [numpy_helper.from_array(w, n) for n, w in weights.items()])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)


@pytest.fixture(scope="module")
def cell(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("persist") / "cell.onnx"
    _cell(path)
    return path


BOTH = (("h", "h_out"), ("c", "c_out"))


def _xs() -> list[np.ndarray]:
    return [np.random.default_rng(k).standard_normal((1, 8), np.float32) for k in range(STEPS)]


def _want(cell: Path) -> list[tuple[np.ndarray, np.ndarray]]:
    session = onnxruntime.InferenceSession(str(cell))
    h = c = np.zeros((1, 8), np.float32)
    out = []
    for x in _xs():
        y, h, z, c = session.run(None, {"x": x, "h": h, "c": c})
        out.append((y, z))
    return out


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("lto", ["none", "thin", "full"])
def test_state_stays_between_runs(lto: str, threads: int, cell: Path, tmp_path: Path) -> None:
    o = Options(lto=lto, persist=BOTH, threads=threads)  # type: ignore[arg-type]
    made = build([cell], tmp_path / "cell.so", "shared", o)
    assert "h_out" not in made.programs[0].header and "in_h" not in made.programs[0].header
    one, other = CompiledModel(tmp_path / "cell.so"), CompiledModel(tmp_path / "cell.so")
    assert [s.name for s in one.inputs] == ["x"] and [s.name for s in one.outputs] == ["y", "z"]
    for turn in range(2):  # the second after a reset
        for x, (y, z) in zip(_xs(), _want(cell), strict=True):
            got = one.run({"x": x})
            np.testing.assert_allclose(got["y"], y, rtol=1e-5, atol=1e-6)
            np.testing.assert_allclose(got["z"], z, rtol=1e-5, atol=1e-6)
            if turn == 0:
                other.run({"x": x + 1})  # every instance has a state of its own
        one.reset()


APP = """
#include <stdio.h>
#include "cell.h"
int main(void) {
  float x[8];
  while (fread(x, 4, 8, stdin) == 8) {
    for (int i = 0; i < 8; i++) cell_in_x()[i] = x[i];
    if (cell_run()) return 1;
    fwrite(cell_out_y(), 4, 8, stdout);
  }
  cell_reset();
  if (cell_run()) return 1;
  fwrite(cell_out_y(), 4, 8, stdout);
  return 0;
}
"""


def test_an_application_sees_no_state(cell: Path, tmp_path: Path) -> None:
    """And state that only dead outputs need is gone with them."""
    (tmp_path / "app.c").write_text(APP)
    o = Options(lto="thin", persist=BOTH)
    made = build([cell, tmp_path / "app.c"], tmp_path / "app", "exe", o)
    assert made.image.removed == {"cell": ["z", "c_out"]}
    assert [x.name for x, _ in made.programs[0].interface.states] == ["h"]
    data = b"".join(x.tobytes() for x in _xs())
    done = subprocess.run([str(tmp_path / "app")], input=data, check=True, capture_output=True)
    got = np.frombuffer(done.stdout, np.float32).reshape(-1, 1, 8)
    np.testing.assert_allclose(got[:-1], [y for y, _ in _want(cell)], rtol=1e-5, atol=1e-6)
    session = onnxruntime.InferenceSession(str(cell))
    zero = np.zeros((1, 8), np.float32)
    fresh = session.run(["y"], {"x": _xs()[-1], "h": zero, "c": zero})[0]
    np.testing.assert_allclose(got[-1], fresh, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("emit", ["exe", "shared"])
def test_one_output_of_the_type_needs_no_name(emit: Emit, cell: Path, tmp_path: Path) -> None:
    with pytest.raises(LinkError, match="are of its type") as e:
        build([cell], tmp_path / "m", emit, Options(lto="none", persist=(("h", ""),)))
    assert "--persist h=y" in e.value.hints[0]
    made = build([cell], tmp_path / "m", emit, Options(lto="none", persist=(("h", ""),), keep_outputs=("h_out",)))
    assert [(x.name, y.name) for x, y in made.programs[0].interface.states] == [("h", "h_out")]


def test_the_application_must_not_touch_state(cell: Path, tmp_path: Path) -> None:
    (tmp_path / "app.c").write_text(APP.replace("cell_reset();", "float *cell_in_h(void); cell_in_h();"))
    with pytest.raises(LinkError, match=r"uses `cell_in_h`, and `--persist` made `h`"):
        build([cell, tmp_path / "app.c"], tmp_path / "app", "exe", Options(lto="none", persist=BOTH))


@pytest.mark.parametrize(("call", "what"), [("cell_in_h()", "input"), ("cell_out_h_out_at(0)", "output")])
def test_a_source_that_includes_the_header_without_state(call: str, what: str, cell: Path, tmp_path: Path) -> None:
    (tmp_path / "app.c").write_text(APP.replace("cell_reset();", f"{call};"))
    with pytest.raises(LinkError, match=f"no such {what}: `--persist h=h_out` made it the program's own") as e:
        build([cell, tmp_path / "app.c"], tmp_path / "app", "exe", Options(lto="none", persist=BOTH))
    assert e.value.notes == ({"input": "inputs: x", "output": "outputs: y, z"}[what],)


def test_everything_wrong_is_told_at_once(cell: Path, tmp_path: Path) -> None:
    o = Options(lto="none", persist=(("hh", ""), ("h", "nothing"), ("c", "c_out"), ("x", "c_out")))
    with pytest.raises(Exception) as e:
        build([cell], tmp_path / "m", "exe", o)
    told = str(e.value)
    assert "did you mean `h`?" in told and "has no output `nothing`" in told and "is the state of `c` already" in told
    with pytest.raises(LinkError, match="names no state"):
        parse_persist(["=y"])
    with pytest.raises(LinkError, match="graph-lto off"):
        build([cell], tmp_path / "m", "exe", replace(Options(lto="none", persist=BOTH), graph_lto=False))


def test_a_streaming_model_of_the_zoo(shared: Path, tmp_path: Path, cache: Path) -> None:
    """A hundred frames of a noise suppressor: state inside and state carried by hand are equal bits."""
    path = next((shared / "models").rglob("dtln_1*.onnx"), None)
    if path is None:
        pytest.skip("no dtln_1 in the zoo")
    build([path], tmp_path / "hand.so", "shared", Options(lto="thin", cache=cache, name="m"))
    hand = CompiledModel(tmp_path / "hand.so")
    (x, h), (y, h_out) = hand.inputs, hand.outputs
    assert h.shape == h_out.shape
    o = Options(lto="thin", cache=cache, name="m", persist=((h.name, h_out.name),))
    build([path], tmp_path / "own.so", "shared", o)
    own = CompiledModel(tmp_path / "own.so")
    state = np.zeros(h.shape, np.float32)
    rng = np.random.default_rng(5)
    for _ in range(100):
        frame = np.abs(rng.standard_normal(x.shape, np.float32))
        want = hand.run({x.name: frame, h.name: state})
        state = want[h_out.name].copy()
        got = own.run({x.name: frame})
        np.testing.assert_array_equal(got[y.name], want[y.name])


# -- in connected models -----------------------------------------------------------------------------------
def _sum(x: str = "x") -> onnx.ModelProto:
    """h_out = h + x, y = 2 h_out"""
    nodes = [helper.make_node("Add", ["h", x], ["h_out"]), helper.make_node("Add", ["h_out", "h_out"], ["y"])]
    return model(nodes, [(x, "f32", [4]), ("h", "f32", [4])], [("y", "f32", [4]), ("h_out", "f32", [4])])


def _run(folder: Path, connect: str, *persist: str, **more: object) -> list[dict[str, float]]:
    """What three runs of `c` and `d`, connected, give for 1, 2, 3."""
    o = replace(Options(lto="none", persist=tuple(parse_persist(persist))), **more)  # type: ignore[arg-type]
    linked = border_build({"c": _sum(), "d": _sum()}, folder, o, connect)
    lib, out = CompiledModel(linked.path), []
    for k in (1, 2, 3):
        got = lib.run({i.name: np.full(4, k if i.name == "x" else 0, np.float32) for i in lib.inputs})
        out.append({n: float(v[0]) for n, v in got.items()})
    return out


def test_state_that_also_feeds_another_model(tmp_path: Path) -> None:
    """Names are the models' own: `h_out` of `d` is not taken for that of `c`, which feeds `d`."""
    got = _run(tmp_path, "d.x=c.h_out", "c.h=c.h_out", "d.h=d.h_out")
    assert got == [{"y": 2, "d.y": 2}, {"y": 6, "d.y": 8}, {"y": 12, "d.y": 20}]


def test_state_that_another_model_makes(tmp_path: Path) -> None:
    assert _run(tmp_path, "d.x=c.y", "c.h=d.h_out") == [
        {"h_out": 1, "y": 4}, {"h_out": 4, "y": 16}, {"h_out": 11, "y": 44}]


def test_state_stays_beside_outputs_that_are_kept(cell: Path, tmp_path: Path) -> None:
    o = Options(lto="none", persist=BOTH, keep_outputs=("y", "z"))
    build([cell], tmp_path / "kept.so", "shared", o)
    build([cell], tmp_path / "all.so", "shared", replace(o, keep_outputs=()))
    one, other = CompiledModel(tmp_path / "kept.so"), CompiledModel(tmp_path / "all.so")
    for x in _xs():
        assert {k: v.tobytes() for k, v in one.run({"x": x}).items()} == {
            k: v.tobytes() for k, v in other.run({"x": x}).items()}


@pytest.mark.parametrize(("connect", "persist", "why"), [
    ("d.x=c.h_out", ["h=h_out"], "several models have this input"),
    ("d.h=c.y", ["d.h=d.h_out"], "`d.h` is fed by `c.y`, so it cannot be state"),
    ("d.x=c.y", ["c.h=h_out", "c.h=d.y"], "the input keeps `h_out` already"),
])
def test_state_of_connected_models_that_is_wrong(connect: str, persist: list[str], why: str, tmp_path: Path) -> None:
    with pytest.raises(LinkError, match=why):
        _run(tmp_path, connect, *persist)
