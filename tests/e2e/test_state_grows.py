"""State that grows: a decoder keeps keys and values of all words so far, and each run adds some."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from sized_chain import run, wide

from monobloc.driver import build, compile_to_object
from monobloc.errors import LinkError, ModelError, MonoblocError, UnsupportedError
from monobloc.loader import CompiledModel
from monobloc.options import Options

HEADS, DEEP, WORDS, MOST = 2, 8, 20, 12
WIDE = HEADS * DEEP
LAYERS = ("0", "1")
PERSIST = (("past.*", "present.*"),)
DIMS: Mapping[str, object] = {"past": tuple(range(MOST + 1)), "seq": (1, 2, 3, 4), "total": "past+seq"}
PIECES = (3, 1, 1, 4, 2, 1)  # twelve words, then it is full


def decoder(path: Path, total: str = "total") -> None:
    """Two layers of attention over all words so far, with a mask [1, total] of those that count"""
    node, nodes = helper.make_node, [helper.make_node("Gather", ["words", "ids"], ["x.0"])]
    weights: dict[str, np.ndarray] = {"words": wide(WORDS, WIDE), "scale": np.float32(DEEP**-0.5),
                                      "split": np.array([0, 0, HEADS, DEEP]), "join": np.array([0, 0, WIDE]),
                                      "low": np.float32(-1e9), "one": np.float32(1), "axes": np.array([1, 2])}
    nodes += [node("Unsqueeze", ["mask", "axes"], ["m"]), node("Sub", ["one", "m"], ["gone"]),
              node("Mul", ["gone", "low"], ["bias"])]
    for n, k in enumerate(LAYERS):
        for s, c in enumerate("qkv"):
            weights[f"{c}.{k}.w"] = wide(WIDE, WIDE, seed=10 * n + s)
            nodes += [node("MatMul", [f"x.{k}", f"{c}.{k}.w"], [f"{c}.{k}.0"]),
                      node("Reshape", [f"{c}.{k}.0", "split"], [f"{c}.{k}.1"]),
                      node("Transpose", [f"{c}.{k}.1"], [f"{c}.{k}"], perm=[0, 2, 1, 3])]
        nodes += [*(node("Concat", [f"past.{k}.{c}", f"{c}.{k}"], [f"present.{k}.{c}"], axis=2) for c in "kv"),
                  node("Transpose", [f"present.{k}.k"], [f"kt.{k}"], perm=[0, 1, 3, 2]),
                  node("MatMul", [f"q.{k}", f"kt.{k}"], [f"s.{k}.0"]), node("Mul", [f"s.{k}.0", "scale"], [f"s.{k}.1"]),
                  node("Add", [f"s.{k}.1", "bias"], [f"s.{k}.2"]), node("Softmax", [f"s.{k}.2"], [f"s.{k}"]),
                  node("MatMul", [f"s.{k}", f"present.{k}.v"], [f"o.{k}.0"]),
                  node("Transpose", [f"o.{k}.0"], [f"o.{k}.1"], perm=[0, 2, 1, 3]),
                  node("Reshape", [f"o.{k}.1", "join"], [f"o.{k}"]),
                  node("Add", [f"o.{k}", f"x.{k}"], ["hidden" if n else "x.1"])]
    ports = [helper.make_tensor_value_info("ids", TensorProto.INT64, ["b", "seq"]),
             helper.make_tensor_value_info("mask", TensorProto.FLOAT, ["b", total])]
    past = [f"{k}.{c}" for k in LAYERS for c in "kv"]
    ports += [helper.make_tensor_value_info(f"past.{p}", TensorProto.FLOAT, ["b", HEADS, "past", DEEP]) for p in past]
    ends = ["hidden", *(f"present.{p}" for p in past)]
    outs = [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in ends]
    g = helper.make_graph(nodes, path.stem, ports, outs, [numpy_helper.from_array(np.asarray(v), n)
                                                          for n, v in weights.items()])
    onnx.save(helper.make_model(g, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    decoder(tmp_path / "dec.onnx")
    return tmp_path / "dec.onnx"


def _feeds(k: int, past: int, seq: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng([k, seq])
    mask = np.ones((1, past + seq), np.float32)
    mask[0, : past // 3] = 0  # padding on the left
    return {"ids": rng.integers(0, WORDS, (1, seq)), "mask": mask}


def _check(m: CompiledModel, model: Path, pieces: tuple[int, ...] = PIECES) -> None:
    """From the beginning, as onnxruntime with the state handed round; then there is no room for one word more."""
    state = {f"past.{k}.{c}": np.zeros((1, HEADS, 0, DEEP), np.float32) for k in LAYERS for c in "kv"}
    past = 0
    for k, seq in enumerate(pieces):
        feeds = _feeds(k, past, seq)
        got, want = m.run(feeds), run(model, feeds | state)
        assert list(got) == ["hidden"] and got["hidden"].shape == want["hidden"].shape
        np.testing.assert_allclose(got["hidden"], want["hidden"], rtol=1e-4, atol=1e-5,
                                   err_msg=f"{seq} words behind {past}")
        state = {n.replace("present", "past"): y for n, y in want.items() if n.startswith("present")}
        past += seq
    assert past == MOST
    with pytest.raises(ModelError, match="outside"):
        m.run(_feeds(9, past, 1))


@pytest.mark.parametrize("lto", ["none", "thin", "full"])
def test_a_decoder_keeps_what_it_saw(lto: str, model: Path, tmp_path: Path, cache: Path) -> None:
    o = Options(lto=lto, dims=DIMS, persist=PERSIST, cache=cache)  # type: ignore[arg-type]
    build([model], tmp_path / "m.so", "shared", o)
    m = CompiledModel(tmp_path / "m.so")
    assert [i.name for i in m.inputs] == ["ids", "mask"] and m.dims == {"seq": range(1, 5)}
    for _ in range(2):
        _check(m, model)
        m.reset()
    _check(m, model, (4, 4, 4))


def test_what_has_no_room_changes_nothing(model: Path, tmp_path: Path, cache: Path) -> None:
    build([model], tmp_path / "m.so", "shared", Options(dims=DIMS, persist=PERSIST, cache=cache))  # type: ignore[arg-type]
    a, b = CompiledModel(tmp_path / "m.so"), CompiledModel(tmp_path / "m.so")
    for m in (a, b):
        for k, past in enumerate((0, 4)):
            m.run(_feeds(k, past, 4))
    a.run(_feeds(2, 8, 2))
    b.run(_feeds(2, 8, 2))
    with pytest.raises(ModelError, match="outside"):
        a.run(_feeds(3, 10, 3))
    last = _feeds(4, 10, 2)
    np.testing.assert_array_equal(a.run(last)["hidden"], b.run(last)["hidden"])


APP = """#include <stdio.h>
#include "dec.h"
int main(void) {
  for (int turn = 0; turn < 2; turn++) {
    for (int k = 0; dec_get_past() < DEC_PAST_MAX; k++) {
      const int seq = k % 2 + 1;
      if (dec_set_seq(seq)) return 2;
      for (int i = 0; i < seq; i++) dec_in_ids()[i] = (3 * k + i) % WORDS;
      for (int i = 0; i < dec_get_past() + seq; i++) dec_in_mask()[i] = 1;
      if (dec_run()) return 3;
      printf("%d %.6f\\n", (int)dec_get_past(), dec_out_hidden()[0]);
    }
    if (dec_set_seq(1) || dec_run() != DEC_E_SHAPE) return 4;
    dec_reset();
  }
  return dec_get_past() != 0;
}
""".replace("WORDS", str(WORDS))


@pytest.mark.parametrize("parts", ["whole", "objects"])
def test_an_application_asks_how_long_it_is(parts: str, model: Path, tmp_path: Path, cache: Path) -> None:
    app, exe = tmp_path / "app.c", tmp_path / "app"
    app.write_text(APP)
    o = Options(dims=DIMS, persist=PERSIST, cache=cache)  # type: ignore[arg-type]
    if parts == "whole":
        build([model, app], exe, "exe", o)
    else:
        compile_to_object(model, tmp_path / "dec.o", Options(dims=DIMS, cache=cache))  # type: ignore[arg-type]
        build([tmp_path / "dec.o", app], exe, "exe", Options(persist=PERSIST, cache=cache))
    lines = subprocess.run([exe], capture_output=True, text=True, check=True).stdout.splitlines()
    assert lines[: len(lines) // 2] == lines[len(lines) // 2 :] and int(lines[-1].split()[0]) == MOST
    assert [int(x.split()[0]) for x in lines[:4]] == [1, 3, 4, 6]


def test_a_pattern_keeps_no_more_outputs_than_are_state(tmp_path: Path, cache: Path) -> None:
    """`present.v` fits the pattern, and no input becomes it."""
    nodes = [helper.make_node("Add", ["past.k", "x"], ["present.k"]), helper.make_node("Neg", ["x"], ["present.v"]),
             helper.make_node("Mul", ["present.k", "x"], ["y"])]
    ports = [[helper.make_tensor_value_info(n, TensorProto.FLOAT, [3]) for n in names]
             for names in (("x", "past.k"), ("y", "present.k", "present.v"))]
    onnx.save(helper.make_model(helper.make_graph(nodes, "sums", *ports),
                                opset_imports=[helper.make_opsetid("", 17)], ir_version=8), tmp_path / "sums.onnx")
    compile_to_object(tmp_path / "sums.onnx", tmp_path / "sums.o", Options(lto="none", cache=cache))
    for given in ("sums.onnx", "sums.o"):
        build([tmp_path / given], tmp_path / f"{given}.so", "shared",
              Options(lto="none", keep_outputs=("y",), persist=PERSIST, cache=cache))
        m, x = CompiledModel(tmp_path / f"{given}.so"), np.array([1, 2, 3], np.float32)
        for k in (1, 2, 3):
            assert {n: y.tolist() for n, y in m.run({"x": x}).items()} == {"y": (k * x * x).tolist()}


@pytest.mark.parametrize("call", ["dec_set_past(3)", "dec_set_past_at(0, 3)"])
def test_nobody_sets_how_long_it_is(call: str, model: Path, tmp_path: Path, cache: Path) -> None:
    (tmp_path / "app.c").write_text(f"int {call.partition('(')[0]}();\nint main(void) {{ return {call}; }}\n")
    with pytest.raises(LinkError, match=r"made `past` the length of state.*") as e:
        build([model, tmp_path / "app.c"], tmp_path / "app", "exe", Options(dims=DIMS, persist=PERSIST, cache=cache))  # type: ignore[arg-type]
    assert "dec_get_past" in e.value.hints[0]


@pytest.mark.parametrize(("dims", "persist", "error", "why"), [
    ({"past": tuple(range(1, 13))}, PERSIST, UnsupportedError, r"grows, and `past` begins at 1"),
    ({"b": (1, 2)}, PERSIST, MonoblocError, r"does not grow by it: axis 0 is"),
    ({}, (("past.0.k", ""),), LinkError, r"no output is of its type"),
    ({}, (("past.9.*", "present.9.*"),), LinkError, r"no model has this input"),
    ({}, (("past.*", "presents.*"),), MonoblocError, r"no output `presents.0.k`"),
    ({"total": "past+many"}, PERSIST, ModelError, r"total=past\+many` is no arithmetic of dimensions that"),
])  # fmt: skip
def test_what_cannot_grow_is_told(dims: Mapping[str, object], persist: tuple[tuple[str, str], ...], error: type,
                                  why: str, model: Path, tmp_path: Path, cache: Path) -> None:
    o = Options(lto="none", dims={**DIMS, **dims}, persist=persist, cache=cache)  # type: ignore[arg-type]
    with pytest.raises(error, match=why):
        build([model], tmp_path / "m.so", "shared", o)
    assert not (tmp_path / "m.so").exists()


def test_one_word_at_a_time_is_two_versions(tmp_path: Path, cache: Path) -> None:
    """Sums and products of open sizes ask for no single one: nothing behind, and something."""
    decoder(tmp_path / "dec.onnx", "past + seq")
    made = build([tmp_path / "dec.onnx"], tmp_path / "m.so", "shared",
                 Options(lto="none", dims={"past": tuple(range(MOST + 1)), "seq": 1}, persist=PERSIST, cache=cache))
    assert len(made.programs[0].interface.sizes.versions) == 2
