"""Weights that two readers want in different forms are stored once where that costs nothing that counts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from border import Linked, build, model, module
from onnx import helper

from monobloc import driver
from monobloc.codegen.lower import Lowered
from monobloc.link.image import link_modules
from monobloc.link.merge import inside
from monobloc.link.objects import compile_module
from monobloc.link.request import Request
from monobloc.loader import CompiledModel
from monobloc.object.fat import Weight
from monobloc.options import Options
from monobloc.targets import resolve

node = helper.make_node
SEED = 12
print(f"seed {SEED}")
OPTIONS = Options(lto="none")
HIDDEN = 24


def table(vocabulary: int) -> np.ndarray:
    return (np.random.default_rng(SEED).standard_normal((vocabulary, HIDDEN)) / 8).astype(np.float32)


def language_model(vocabulary: int, tokens: int = 1, tied: bool = True) -> onnx.ModelProto:
    """Looks tokens up in a table, and scores all of it with the same table, transposed."""
    w = table(vocabulary)
    nodes = [node("Gather", ["e", "i"], ["r"]), node("MatMul", ["r", "m"], ["t"]), node("Tanh", ["t"], ["h"]),
             *([node("Transpose", ["e"], ["et"], perm=[1, 0])] if tied else []), node("MatMul", ["h", "et"], ["y"])]
    mixing = np.random.default_rng(SEED + 1).standard_normal((HIDDEN, HIDDEN)).astype(np.float32)
    return model(nodes, [("i", "i64", [tokens])], [("y", "f32", [tokens, vocabulary])], e=w, m=mixing,
                 **({} if tied else {"et": np.ascontiguousarray(w.T)}))


def scored(vocabulary: int, i: np.ndarray) -> np.ndarray:
    w = table(vocabulary)
    mixing = np.random.default_rng(SEED + 1).standard_normal((HIDDEN, HIDDEN)).astype(np.float32)
    return np.tanh(w[i] @ mixing) @ w.T


def stored(made: Linked) -> int:
    return made.low.weights_bytes


@pytest.mark.parametrize("tied", [True, False], ids=["by a Transpose", "exported twice"])
def test_a_tied_embedding_is_stored_once(tied: bool, tmp_path: Path) -> None:
    size = 9000
    made = build({"lm": language_model(size, tied=tied)}, tmp_path, OPTIONS)
    once = size * HIDDEN * 4
    assert once < stored(made) < 1.1 * once and made.path.stat().st_size < 1.2 * once
    for i in (0, 17, size - 1, -1):
        at = np.array([i])
        np.testing.assert_allclose(made(i=at)["y"], scored(size, at), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("size", [13, 130, 144, 1001])
@pytest.mark.parametrize("lanes", [4, 16])
def test_every_column_is_found_in_the_panels(size: int, lanes: int, tmp_path: Path) -> None:
    """Whole panels, a narrower last one, and a last vector that repeats columns of the one before."""
    target = resolve("host", "x86-64-v2" if lanes == 4 and resolve().arch == "x86_64" else None)
    o = replace(OPTIONS, optimize="size", target=target)
    made = build({"lm": language_model(size, tokens=size)}, tmp_path, o)
    assert stored(made) < 1.3 * (size + HIDDEN) * HIDDEN * 4
    i = np.random.default_rng(SEED).permutation(size)
    np.testing.assert_allclose(made(i=i)["y"], scored(size, i), rtol=1e-4, atol=1e-5)


def test_it_changes_no_bit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    m, i = {"lm": language_model(5000)}, np.array([4321])
    one = build(m, tmp_path, OPTIONS)(i=i)["y"].tobytes()
    monkeypatch.setattr("monobloc.passes.share._pays", lambda *_: False)
    two = build(m, tmp_path, OPTIONS)
    assert stored(two) > 2 * 5000 * HIDDEN * 4 and two(i=i)["y"].tobytes() == one


def test_where_lookups_would_cost_much_the_table_stays(tmp_path: Path) -> None:
    made = build({"lm": language_model(200, tokens=50)}, tmp_path, OPTIONS)
    assert stored(made) > 2 * 200 * HIDDEN * 4
    assert any("read too often" in text for _, by, text in made.low.context.why if by == "share")


def test_the_object_holds_it_once_and_links_to_the_same_image(tmp_path: Path, cache: Path) -> None:
    onnx.save(language_model(9000), tmp_path / "lm.onnx")
    o = replace(OPTIONS, cache=cache)
    module = driver.module_of(tmp_path / "lm.onnx", driver.import_model(tmp_path / "lm.onnx", o), o)
    obj, native = compile_module(module, o)
    assert sum(w.size for w in obj.weights.values()) < 1.1 * 9000 * HIDDEN * 4
    assert native.weights_bytes < 1.1 * 9000 * HIDDEN * 4
    driver.compile_to_object(tmp_path / "lm.onnx", tmp_path / "lm.o", o)
    images = [driver.link([tmp_path / "lm.o"], tmp_path / "a.so", "shared", replace(o, cache=None)),
              driver.build([tmp_path / "lm.onnx"], tmp_path / "b.so", "shared", replace(o, cache=None)).image]
    assert images[0].path.read_bytes() == images[1].path.read_bytes()


# -- across programs ------------------------------------------------------------------------------------
def two(models: dict[str, onnx.ModelProto], folder: Path) -> tuple[Path, list[Lowered]]:
    """Programs of one image that are called apart."""
    image = link_modules([module(m, name, OPTIONS) for name, m in models.items()],
                         Request(folder / "two.so", "shared", OPTIONS))
    return image.path, image.programs


def test_a_table_is_stored_once_for_a_model_that_looks_up_and_one_that_multiplies(tmp_path: Path) -> None:
    w = table(9000)
    embed = model([node("Gather", ["e", "i"], ["y"])], [("i", "i64", [1])], [("y", "f32", [1, HIDDEN])], e=w)
    head = model([node("MatMul", ["h", "w"], ["y"])], [("h", "f32", [1, HIDDEN])], [("y", "f32", [1, 9000])],
                 w=np.ascontiguousarray(w.T))
    path, programs = two({"embed": embed, "head": head}, tmp_path)
    assert path.stat().st_size < 1.2 * w.nbytes
    i = np.array([8999])
    assert CompiledModel(path, 0).run({"i": i})["y"].tobytes() == w[i].tobytes()
    h = np.random.default_rng(1).standard_normal((1, HIDDEN)).astype(np.float32)
    np.testing.assert_allclose(CompiledModel(path, 1).run({"h": h})["y"], h @ w.T, rtol=1e-4, atol=1e-5)
    assert any("stored for a product" in text for p in programs for _, _, text in p.context.why)


def test_a_weight_within_another_is_a_place_in_it(tmp_path: Path) -> None:
    """The first rows of a table of positions; a part that does not begin where weights may is stored."""
    t = np.random.default_rng(SEED).standard_normal((256, 16)).astype(np.float32)
    parts = {"long": t, "short": np.ascontiguousarray(t[32:96]), "odd": t.reshape(-1)[1:1025].reshape(64, 16).copy()}
    models = {name: model([node("Add", ["x", "t"], ["y"])], [("x", "f32", list(a.shape))],
                          [("y", "f32", list(a.shape))], t=a) for name, a in parts.items()}
    path, _ = two(models, tmp_path)
    data = path.read_bytes()
    assert data.count(t.tobytes()) == 1 and data.count(parts["short"].tobytes()) == 1
    assert data.count(parts["odd"].tobytes()) == 2  # once in the table, where it is not aligned
    for name, a in parts.items():
        x = np.ones_like(a)
        assert CompiledModel(path, sorted(parts).index(name)).run({"x": x})["y"].tobytes() == (x + a).tobytes()


def test_places_keep_alignment_and_memory_regions() -> None:
    t = np.arange(256, dtype=np.uint32)
    whole, half, odd = (Weight(x.tobytes()) for x in (t, t[64:128], t[3:131]))
    assert inside({"a": whole, "b": half, "c": odd}) == {"b": ("a", 256)}
    assert inside({"a": whole, "b": replace(half, section=".fast")}) == {}
    zeros = Weight(bytes(1024)), Weight(bytes(512)), Weight(bytes(100))
    assert inside(dict(zip("abc", zeros, strict=True))) == {"b": ("a", 0)}
    assert inside({"a": half}) == {}
