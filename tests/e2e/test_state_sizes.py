"""State beside sizes that a run chooses: a streaming model takes blocks of many lengths, and keeps what it heard."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import helper
from sized_chain import head, run, save, wide

from monobloc.driver import build, compile_to_object, link
from monobloc.errors import MonoblocError
from monobloc.link.connect import parse_connections
from monobloc.loader import CompiledModel
from monobloc.options import Options

BLOCKS = (5, 1, 9, 2, 9, 4, 1, 1, 7, 3)
PERSIST = (("past", "past_out"), ("seen", "seen_out"))


def _stream(path: Path, batch: int | str = 1) -> None:
    """features = tanh(w [past, x]) along t, the last two columns kept; `seen` adds up what there was"""
    node = helper.make_node
    nodes = [node("Concat", ["past", "x"], ["all"], axis=1), node("Slice", ["all", "two", "end", "axis"], ["past_out"]),
             *(node("Slice", ["all", f"from{k}", f"to{k}", "axis"], [f"s{k}"]) for k in range(3)),
             node("Concat", ["s0", "s1", "s2"], ["taps"], axis=2), node("MatMul", ["taps", "w"], ["h"]),
             node("Tanh", ["h"], ["features"]), node("ReduceSum", ["x", "axis"], ["sum"], keepdims=0),
             node("Add", ["seen", "sum"], ["seen_out"]), node("Mul", ["seen_out", "half"], ["level"])]
    ints = {"two": [-2], "end": [1 << 40], "axis": [1], **{f"from{k}": [k] for k in range(3)},
            "to0": [-2], "to1": [-1], "to2": [1 << 40]}
    save(path, nodes, {"x": [batch, "t", 6], "past": [batch, 2, 6], "seen": [batch, 6]},
         ["features", "past_out", "seen_out", "level"],
         {"w": wide(18, 16), "half": np.float32(0.5), **{k: np.array(v) for k, v in ints.items()}})


def _x(k: int, t: int) -> np.ndarray:
    return np.random.default_rng([k, t]).standard_normal((1, t, 6)).astype(np.float32)


def _check(m: CompiledModel, a: Path, second: Path | None = None) -> None:
    """Blocks of all lengths twice, from the start each time, as onnxruntime with the state handed round."""
    for _ in range(2):
        past, seen = np.zeros((1, 2, 6), np.float32), np.zeros((1, 6), np.float32)
        for k, t in enumerate(BLOCKS):
            got, want = m.run({"x": _x(k, t)}), run(a, {"x": _x(k, t), "past": past, "seen": seen})
            past, seen = want.pop("past_out"), want.pop("seen_out")
            if second is not None:
                want |= run(second, {"features": want.pop("features")})
            assert list(got) == list(want)
            for name, y in want.items():
                assert got[name].shape == y.shape
                np.testing.assert_allclose(got[name], y, rtol=1e-4, atol=1e-5, err_msg=f"{name}, block {k} of {t}")
        m.reset()


@pytest.mark.parametrize("lto", ["none", "thin", "full"])
@pytest.mark.parametrize("sizes", [tuple(range(1, 10)), (1, 2, 3, 4, 5, 7, 9)], ids=["range", "set"])
def test_blocks_of_many_lengths(sizes: tuple[int, ...], lto: str, tmp_path: Path, cache: Path) -> None:
    a = tmp_path / "stream.onnx"
    _stream(a)
    o = Options(lto=lto, dims={"t": sizes}, persist=PERSIST, cache=cache)  # type: ignore[arg-type]
    build([a], tmp_path / "m.so", "shared", o)
    m = CompiledModel(tmp_path / "m.so")
    assert [i.name for i in m.inputs] == ["x"] and "past" not in m.outputs
    _check(m, a)


def test_a_stream_that_feeds_another_model(tmp_path: Path, cache: Path) -> None:
    a, b = tmp_path / "stream.onnx", tmp_path / "head.onnx"
    _stream(a)
    head(b, batch="n")
    compile_to_object(a, tmp_path / "a.o", Options(dims={"t": tuple(range(1, 10))}, cache=cache))
    compile_to_object(b, tmp_path / "b.o", Options(dims={"n": 1, "t": tuple(range(1, 12))}, cache=cache))
    o = Options(connect=tuple(parse_connections(["head=stream"])), persist=PERSIST, cache=cache)
    link([tmp_path / "a.o", tmp_path / "b.o"], tmp_path / "p.so", "shared", o)
    _check(CompiledModel(tmp_path / "p.so"), a, b)


@pytest.mark.parametrize("sizes", [(1, 2, 3, 4), (2, 3)])
def test_state_of_an_open_size(sizes: tuple[int, ...], tmp_path: Path, cache: Path) -> None:
    a = tmp_path / "stream.onnx"
    _stream(a, "n")
    with pytest.raises(MonoblocError, match="(?s)`past` of `stream` has another size.*`seen` of `stream` has"):
        build([a], tmp_path / "m.so", "shared", Options(dims={"n": sizes, "t": 3}, persist=PERSIST, cache=cache))
