"""Models that feed each other, or read one input, are one program; what does not fit is told, both sides named."""

from __future__ import annotations

import shutil
from dataclasses import replace
from itertools import permutations
from pathlib import Path

import numpy as np
import pytest
from small_models import dense, exchange, integers

import monobloc
from monobloc import driver
from monobloc.driver import compile_parts, compile_to_object, import_model, module_of
from monobloc.errors import LinkError, MonoblocError
from monobloc.link.connect import parse_connections
from monobloc.loader import CompiledModel
from monobloc.options import Options

X = np.random.default_rng(17).standard_normal((2, 8)).astype(np.float32)


def build(folder: Path, models: list[str], connect: list[str], cache: Path, out: str = "p.so", **more: object) -> Path:
    o = Options(lto="none", cache=cache, connect=tuple(parse_connections(connect)))
    driver.build([folder / f"{m}.onnx" for m in models], folder / out, "shared", replace(o, **more))  # type: ignore
    return folder / out


def relu(x: np.ndarray) -> np.ndarray:
    return np.maximum(x, 0)


def test_a_model_reads_all_outputs_of_its_name(tmp_path: Path, cache: Path) -> None:
    wa, wb = dense(tmp_path / "backbone.onnx", y="features"), dense(tmp_path / "head.onnx", x="features", seed=1)
    m = CompiledModel(build(tmp_path, ["head", "backbone"], ["head=backbone"], cache))
    assert (m.name, [i.name for i in m.inputs], [i.name for i in m.outputs]) == ("pipeline", ["x"], ["y"])
    np.testing.assert_allclose(m(X), relu(relu(X @ wa) @ wb), rtol=1e-4, atol=1e-5)


def test_two_models_read_one_input(tmp_path: Path, cache: Path) -> None:
    wa, wb = dense(tmp_path / "a.onnx"), dense(tmp_path / "b.onnx", x="image", y="z", seed=1)
    m = CompiledModel(build(tmp_path, ["a", "b"], ["b.image=a.x"], cache))
    assert [i.name for i in m.inputs] == ["x"]
    y, z = m(X)
    np.testing.assert_allclose(y, relu(X @ wa), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(z, relu(X @ wb), rtol=1e-4, atol=1e-5)


def test_a_shared_input_may_be_fed(tmp_path: Path, cache: Path) -> None:
    """`c.x` reads what `b.x` reads, and that is an output of `a`."""
    ws = [dense(tmp_path / f"{n}.onnx", y=f"y{n}", seed=k) for k, n in enumerate("abc")]
    m = CompiledModel(build(tmp_path, list("cba"), ["c.x=b.x", "b.x=a.ya"], cache))
    a = relu(X @ ws[0])
    assert [i.name for i in m.inputs] == ["x"]
    got = m.run({"x": X})
    np.testing.assert_allclose(got["yb"], relu(a @ ws[1]), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(got["yc"], relu(a @ ws[2]), rtol=1e-4, atol=1e-4)


def test_models_may_feed_each_other(tmp_path: Path, cache: Path) -> None:
    """Between tensors there is no cycle: out of `a` into `b` and back into the other input of `a`."""
    exchange(tmp_path / "a.onnx")
    w = dense(tmp_path / "b.onnx")
    m = CompiledModel(build(tmp_path, ["a", "b"], ["b.x=a.y1", "a.x2=b.y"], cache))
    assert [i.name for i in m.inputs] == ["x1"]
    np.testing.assert_allclose(m(X), np.tanh(relu(-X @ w)), rtol=1e-4, atol=1e-4)


def test_the_rest_keeps_its_own_entry(tmp_path: Path, cache: Path) -> None:
    for n in "abc":
        dense(tmp_path / f"{n}.onnx")
    out = build(tmp_path, list("abc"), ["b.x=a.y"], cache, name="my line")
    found = out.read_bytes()
    for symbol in (b"c_run\0", b"my_x20_line_run\0"):
        assert symbol in found
    assert b"a_run\0" not in found.replace(symbol, b"")


def test_order_changes_nothing(tmp_path: Path, cache: Path) -> None:
    """Neither the order of models nor that of connections."""
    for k, n in enumerate("abc"):
        dense(tmp_path / f"{n}.onnx", y=f"y{n}", seed=k)
    connect = ["c.x=b.x", "b.x=a.ya"]
    images = {build(tmp_path, list(models), connect[::step], cache, dump=tmp_path / "dump").read_bytes()
              for models in list(permutations("abc"))[::2] for step in (1, -1)}
    assert len(images) == 1


def test_connected_objects_give_the_image_of_connected_models(tmp_path: Path, cache: Path) -> None:
    o = Options(lto="none", cache=cache, connect=(("b.x", "a.y"),))
    for n in "ab":
        dense(tmp_path / f"{n}.onnx")
        compile_to_object(tmp_path / f"{n}.onnx", tmp_path / f"{n}.o", o)
    whole = build(tmp_path, ["a", "b"], ["b.x=a.y"], cache, dump=tmp_path / "d").read_bytes()
    driver.link([tmp_path / "b.o", tmp_path / "a.o"], tmp_path / "o.so", "shared", replace(o, dump=tmp_path / "e"))
    assert (tmp_path / "o.so").read_bytes() == whole


def test_connected_in_python(tmp_path: Path, cache: Path) -> None:
    wa, wb = dense(tmp_path / "a.onnx", y="features"), dense(tmp_path / "b.onnx", x="features", seed=1)
    models = {"backbone": tmp_path / "a.onnx", "head": (tmp_path / "b.onnx").read_bytes()}
    m = monobloc.compile(models, connect=["head=backbone"], lto="none", name="whole", cache=cache,
                         shape={"backbone.x": (2, 8)})
    assert m.name == "whole"
    np.testing.assert_allclose(m(X), relu(relu(X @ wa) @ wb), rtol=1e-4, atol=1e-5)
    with pytest.raises(MonoblocError, match="`x` names none of the models"):
        monobloc.compile(models, connect=["head=backbone"], shape={"x": (2, 8)}, cache=cache)
    with pytest.raises(MonoblocError, match="not one: backbone, head"):
        monobloc.compile(models, lto="none", cache=cache)
    with pytest.raises(MonoblocError, match="`head.q`"):
        monobloc.compile(models, lto="none", cache=cache, connect=["head.q=backbone.features"])


# -- what does not fit ----------------------------------------------------------------------------------
def told(folder: Path, models: list[str], connect: list[str], cache: Path, **more: object) -> str:
    with pytest.raises(MonoblocError) as e:
        build(folder, models, connect, cache, **more)
    return str(e.value)


def test_all_bad_connections_are_told_at_once(tmp_path: Path, cache: Path) -> None:
    dense(tmp_path / "a.onnx")
    dense(tmp_path / "wide.onnx", wide=12)
    integers(tmp_path / "whole.onnx")
    text = told(tmp_path, ["a", "wide", "whole"], ["wide.x=a.y", "whole.x=a.y", "a.q=wide.y", "a.x=wide.q"], cache)
    assert "4 errors" not in text
    for part in ("`wide.x` is f32[2,12], `a.y` is f32[2,8]: they do not connect, their shapes differ",
                 f"an input of {tmp_path}/wide.onnx", f"an output of {tmp_path}/a.onnx",
                 "their types differ", "there is no input `a.q`", "there is no output `wide.q`"):
        assert part in text, text


def test_models_without_a_common_name(tmp_path: Path, cache: Path) -> None:
    dense(tmp_path / "a.onnx", y="features")
    dense(tmp_path / "b.onnx")
    text = told(tmp_path, ["a", "b"], ["b=a"], cache)
    assert "no input of `b` has the name of an output of `a`" in text
    assert "inputs of b: x" in text and "outputs of a: features" in text and "`--connect b.x=a.features`" in text


def test_one_input_connected_twice(tmp_path: Path, cache: Path) -> None:
    for n in "abc":
        dense(tmp_path / f"{n}.onnx")
    text = told(tmp_path, list("abc"), ["c.x=a.y", "c.x=b.y"], cache)
    assert "`c.x` is connected twice: to `a.y` and to `b.y`" in text


@pytest.mark.parametrize(("connect", "way"), [
    (["a.x=a.y"], "a.x <- a.y <- a.x"),
    (["a.x=b.x", "b.x=a.x"], "a.x <- b.x <- a.x"),
    (["c.x=b.y", "b.x=a.y", "a.x=b.y"], "b.x <- a.y <- a.x <- b.y <- b.x"),  # only those on the way are named
])
def test_a_cycle_is_shown(connect: list[str], way: str, tmp_path: Path, cache: Path) -> None:
    for n in "abc":
        dense(tmp_path / f"{n}.onnx")
    assert f"the connections form a cycle: {way}" in told(tmp_path, list("abc"), connect, cache)


def test_a_program_named_as_a_model(tmp_path: Path, cache: Path) -> None:
    for n in "abc":
        dense(tmp_path / f"{n}.onnx")
    assert "two models have the prefix `c`" in told(tmp_path, list("abc"), ["b.x=a.y"], cache, name="c")


# -- parts ----------------------------------------------------------------------------------------------
def test_parts_of_different_models(tmp_path: Path, cache: Path) -> None:
    """One file changed between two calls of `compile`, or another size was asked for."""
    o, made = Options(lto="none", cache=cache), []
    for k, out in enumerate((8, 8, 12)):
        folder = tmp_path / str(k)
        folder.mkdir()
        dense(folder / "m.onnx", out=out, seed=k)
        imported = import_model(folder / "m.onnx", o)
        made.append(compile_parts(module_of(folder / "m.onnx", imported, o), folder / "p.o", replace(o, partitions=2)))
    for other, why in ((1, "weights, operators or sizes of `m` differ"), (2, "`h`: f32[2,12] in ")):
        with pytest.raises(LinkError, match="cut from different models") as e:
            driver.link([made[other][0], made[0][1]], tmp_path / "x.so", "shared", o)
        text = str(e.value)
        assert str(made[other][0]) in text and str(made[0][1]) in text and why in text, text
    copy = Path(shutil.copy(made[0][0], tmp_path / "copy.o"))
    with pytest.raises(LinkError, match=r"(?s)twice.*part 1: .*p\.0\.o, .*copy\.o"):
        driver.link([*made[0], copy], tmp_path / "x.so", "shared", o)


def test_connecting_takes_the_graphs(tmp_path: Path, cache: Path) -> None:
    for n in "ab":
        dense(tmp_path / f"{n}.onnx")
    assert "`--connect` needs the graphs" in told(tmp_path, ["a", "b"], ["b.x=a.y"], cache, graph_lto=False)
