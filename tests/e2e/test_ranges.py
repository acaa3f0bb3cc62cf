"""What one model proves of its values removes checks in another, and never a bit of an answer."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from border import Linked, build, model
from onnx import helper

from monobloc.options import Options

node = helper.make_node
SEED = 99
print(f"seed {SEED}")
RNG = np.random.default_rng(SEED)
EDGES = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, 0.4999, 7.0], np.float32)
TABLE = RNG.standard_normal((8, 4)).astype(np.float32)
OPTIONS = Options(lto="none")


def bits(a: np.ndarray) -> bytes:
    return a.tobytes()


def test_a_clip_in_the_first_model_ends_the_clip_of_the_second(tmp_path: Path) -> None:
    six = {"lo": np.float32(0), "hi": np.float32(6)}
    a = model([node("Mul", ["x", "two"], ["m"]), node("Clip", ["m", "lo", "hi"], ["y"])],
              [("x", "f32", [8])], [("y", "f32", [8])], two=np.float32(2), **six)
    b = model([node("Relu", ["x"], ["r"]), node("Clip", ["r", "lo", "hi"], ["c"]), node("Add", ["c", "two"], ["z"])],
              [("x", "f32", [8])], [("z", "f32", [8])], two=np.float32(2), **six)
    both = build({"a": a, "b": b}, tmp_path, OPTIONS, "b.x=a.y")
    assert both.ops == ["Add", "Clip", "Mul"]
    apart = build({"b": b}, tmp_path, OPTIONS)(x=build({"a": a}, tmp_path, OPTIONS)(x=EDGES)["y"])
    assert bits(both(x=EDGES)["z"]) == bits(apart["z"])


@pytest.fixture
def reader() -> dict[str, object]:
    return {"b": model([node("Gather", ["table", "i"], ["y"], axis=0)], [("i", "i64", [3])], [("y", "f32", [3, 4])],
                       table=TABLE)}


def answers(both: Linked, apart: Linked, i: np.ndarray, **feeds: np.ndarray) -> None:
    assert bits(both(**feeds)["y"]) == bits(apart(i=i)["y"])


def test_an_index_from_argmax_is_not_checked(reader: dict, tmp_path: Path) -> None:
    a = model([node("ArgMax", ["x"], ["i"], axis=1, keepdims=0)], [("x", "f32", [3, 8])], [("i", "i64", [3])])
    alone = build(reader, tmp_path, OPTIONS)
    assert "mb_index(" in alone.c and "MB_E_INDEX" in alone.c
    both = build({"a": a, **reader}, tmp_path, OPTIONS, "b.i=a.i")
    assert "mb_index" not in both.c and "MB_E_INDEX" not in both.c and "bad" not in both.c
    x = RNG.standard_normal((3, 8)).astype(np.float32)
    x[1, 3] = np.nan
    answers(both, alone, x.argmax(1), x=x)


def test_an_index_is_checked_once_per_row(reader: dict, tmp_path: Path) -> None:
    lines = build(reader, tmp_path, OPTIONS).c.splitlines()
    check = next(k for k, line in enumerate(lines) if "mb_index(" in line)
    assert lines[check].strip().startswith("const long") and "for (" in "".join(lines[check + 1 : check + 3])


def test_indices_that_may_be_negative_are_only_wrapped(reader: dict, tmp_path: Path) -> None:
    a = model([node("Clip", ["x", "lo", "hi"], ["i"])], [("x", "i64", [3])], [("i", "i64", [3])],
              lo=np.int64(-8), hi=np.int64(7))
    both = build({"a": a, **reader}, tmp_path, OPTIONS, "b.i=a.i")
    assert "mb_index_wrap(" in both.c and "MB_E_INDEX" not in both.c
    x = np.array([-100, 100, -3])
    answers(both, build(reader, tmp_path, OPTIONS), x.clip(-8, 7), x=x)


def test_indices_that_may_be_too_large_are_still_checked(reader: dict, tmp_path: Path) -> None:
    a = model([node("Clip", ["x", "lo", "hi"], ["i"])], [("x", "i64", [3])], [("i", "i64", [3])],
              lo=np.int64(0), hi=np.int64(8))
    both = build({"a": a, **reader}, tmp_path, OPTIONS, "b.i=a.i")
    assert "mb_index_below(" in both.c
    answers(both, build(reader, tmp_path, OPTIONS), np.array([0, 7, 3]), x=np.array([-5, 7, 3]))
    with pytest.raises(Exception, match="index"):
        both(x=np.array([0, 9, 1]))


def test_a_scatter_at_proven_indices_is_not_checked(tmp_path: Path) -> None:
    a = model([node("Cast", ["x"], ["i"], to=7)], [("x", "bool", [2, 1])], [("i", "i64", [2, 1])])
    b = model([node("ScatterND", ["table", "i", "u"], ["y"])], [("i", "i64", [2, 1]), ("u", "f32", [2, 4])],
              [("y", "f32", [8, 4])], table=TABLE)
    both = build({"a": a, "b": b}, tmp_path, OPTIONS, "b.i=a.i")
    assert "MB_E_INDEX" in build({"b": b}, tmp_path, OPTIONS).c and "MB_E_INDEX" not in both.c
    u = RNG.standard_normal((2, 4)).astype(np.float32)
    want = TABLE.copy()
    want[[1, 0]] = u
    assert bits(both(x=np.array([[True], [False]]), u=u)["y"]) == bits(want)


def test_requantizing_at_the_border_vanishes(tmp_path: Path) -> None:
    q = {"s": np.float32(0.03), "z": np.uint8(7)}
    b = model([node("QuantizeLinear", ["x", "s", "z"], ["q"]), node("MaxPool", ["q"], ["p"], kernel_shape=[2])],
              [("x", "f32", [1, 1, 8])], [("p", "u8", [1, 1, 7])], **q)
    a = model([node("Reshape", ["x", "to"], ["r"]),
               node("QuantizeLinear", ["r", "s", "z"], ["q"]), node("DequantizeLinear", ["q", "s", "z"], ["y"])],
              [("x", "f32", [8])], [("y", "f32", [1, 1, 8])], to=np.array([1, 1, 8]), **q)
    both = build({"a": a, "b": b}, tmp_path, OPTIONS, "b.x=a.y")
    assert both.ops.count("QuantizeLinear") == 1 and "DequantizeLinear" not in both.ops
    x = RNG.uniform(-2, 9, 8).astype(np.float32)
    apart = build({"b": b}, tmp_path, OPTIONS)(x=build({"a": a}, tmp_path, OPTIONS)(x=x)["y"])
    assert bits(both(x=x)["p"]) == bits(apart["p"])
