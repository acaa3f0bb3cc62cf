"""Models compiled in parts, or through an object, link to the image of the whole: byte for byte."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from programs import write_models

from monobloc.cache import Cache, key
from monobloc.driver import build as build_image
from monobloc.driver import compile_parts, compile_source, compile_to_object, import_model, link, module_of
from monobloc.errors import LinkError, ModelError
from monobloc.link.connect import parse_connections
from monobloc.link.image import link_modules
from monobloc.link.request import Request
from monobloc.link.split import split_at
from monobloc.loader import CompiledModel
from monobloc.object import toolchain
from monobloc.options import Options

ROOT = Path(__file__).resolve().parents[2]
MNIST = ROOT / "examples" / "mnist8.onnx"
MODELS = [MNIST, ROOT / "tests/models/unet_small.onnx", ROOT / "tests/models/encoder_small.onnx"]


def _options(cache: Path) -> Options:
    return Options(lto="none", cache=cache)


def _link(paths: list[Path], out: Path, o: Options) -> bytes:
    """Linked without the image cache: equal bytes must come from equal work."""
    link(paths, out, "shared", replace(o, dump=out.with_suffix(".dump")))
    return out.read_bytes()


@pytest.mark.parametrize("path", MODELS, ids=lambda p: p.stem)
def test_an_object_and_its_parts_link_to_the_whole(path: Path, cache: Path, tmp_path: Path) -> None:
    o = _options(cache)
    build_image([path], tmp_path / "whole.so", "shared", replace(o, dump=tmp_path / "dump"))
    whole = (tmp_path / "whole.so").read_bytes()
    compile_to_object(path, tmp_path / "one.o", o)
    assert _link([tmp_path / "one.o"], tmp_path / "one.so", o) == whole
    parts = compile_parts(module_of(path, import_model(path, o), o), tmp_path / "p.o", replace(o, partitions=4))
    assert len(parts) == 4
    assert _link(parts[::-1], tmp_path / "parts.so", o) == whole


@pytest.mark.parametrize("model", ["mnist8", "alpha"])
def test_every_single_tensor_cut_links_to_the_whole(model: str, cache: Path, tmp_path: Path) -> None:
    o = _options(cache)
    path = MNIST if model == "mnist8" else write_models(tmp_path)[model]
    module = module_of(path, import_model(path, o), o)
    names = [v.name for n in module.graph.nodes for v in n.outputs if v.users]
    assert len(names) >= 9
    build_image([path], tmp_path / "whole.so", "shared", replace(o, dump=tmp_path / "dump"))
    whole = (tmp_path / "whole.so").read_bytes()
    for k, name in enumerate(names):
        parts = compile_parts(module, tmp_path / f"cut{k}.o", replace(o, split_at=(name,)))
        assert _link(parts, tmp_path / f"cut{k}.so", o) == whole, name


ZOO = ("mnist8_onnx2c", "mnist_pytorch_onnx2c", "super_resolution_connxr", "emx_micro_kws_m_static_fp32", "dtln_2",
       "dnsmos_sig_bak_ovr", "winml_iris_mlp")  # fmt: skip


@pytest.mark.parametrize("name", ZOO)
def test_zoo_models_cut_at_three_places_link_to_the_whole(
    name: str, shared: Path, cache: Path, tmp_path: Path
) -> None:
    """Cut at a quarter, half and three quarters of the nodes; parts join in the wrong order."""
    path, o = shared / "models" / f"{name}.onnx", _options(cache)
    module = module_of(path, import_model(path, o), o)
    nodes = module.graph.nodes
    places = tuple(dict.fromkeys(nodes[k * len(nodes) // 4 - 1].outputs[0].name for k in (1, 2, 3)))
    assert len(places) == 3
    build_image([path], tmp_path / "whole.so", "shared", replace(o, dump=tmp_path / "dump"))
    parts = compile_parts(module, tmp_path / "p.o", replace(o, split_at=places))
    assert len(parts) >= 3
    assert _link(parts[::-1], tmp_path / "parts.so", o) == (tmp_path / "whole.so").read_bytes()


def test_a_missing_part_is_named(cache: Path, tmp_path: Path) -> None:
    o = _options(cache)
    module = module_of(MNIST, import_model(MNIST, o), o)
    parts = compile_parts(module, tmp_path / "p.o", replace(o, partitions=3))
    with pytest.raises(LinkError, match=r"(?s)missing.*part 1 of 3"):
        link([parts[0], parts[2]], tmp_path / "x.so", "shared", o)


def test_splitting_at_no_tensor_is_an_error(cache: Path, tmp_path: Path) -> None:
    o = _options(cache)
    module = module_of(MNIST, import_model(MNIST, o), o)
    with pytest.raises(ModelError, match="`nowhere`"):
        compile_parts(module, tmp_path / "p.o", replace(o, split_at=("nowhere",)))


# -- models that feed each other ------------------------------------------------------------------------
def _mlp(name: str, wide: int, out: int, path: Path, output: str = "y") -> np.ndarray:
    w = np.random.default_rng(wide * 100 + out).standard_normal((wide, out)).astype(np.float32)
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, wide])
    y = helper.make_tensor_value_info(output, TensorProto.FLOAT, [2, out])
    nodes = [helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node("Relu", ["h"], [output])]
    graph = helper.make_graph(nodes, name, [x], [y], [numpy_helper.from_array(w, "w")])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), path)
    return w


def test_connected_models_are_one_program(cache: Path, tmp_path: Path) -> None:
    wa = _mlp("backbone", 8, 12, tmp_path / "backbone.onnx", "features")
    wb = _mlp("head", 12, 5, tmp_path / "head.onnx")
    o = replace(_options(cache), connect=tuple(parse_connections(["head.x=backbone.features"])))
    out = tmp_path / "both.so"
    build_image([tmp_path / "head.onnx", tmp_path / "backbone.onnx"], out, "shared", o)
    m = CompiledModel(out)
    assert (m.name, [i.name for i in m.inputs], [i.name for i in m.outputs]) == ("pipeline", ["x"], ["y"])
    x = np.random.default_rng(3).standard_normal((2, 8)).astype(np.float32)
    want = np.maximum(np.maximum(x @ wa, 0) @ wb, 0)
    np.testing.assert_allclose(m(x), want, rtol=1e-5, atol=1e-5)


def test_the_order_of_models_changes_nothing(cache: Path, tmp_path: Path) -> None:
    for name in "abcd":
        _mlp(name, 6 + ord(name) % 7, 5, tmp_path / f"{name}.onnx")
    rng, images = np.random.default_rng(20), set()
    for jobs in (1, 2):
        for k in range(5):
            paths = [tmp_path / f"{n}.onnx" for n in rng.permutation(list("abcd"))]
            out = tmp_path / f"{jobs}{k}.so"
            build_image(paths, out, "shared", replace(_options(cache), jobs=jobs, dump=tmp_path / "dump"))
            images.add(out.read_bytes())
    assert len(images) == 1


@pytest.mark.parametrize(
    ("connect", "told"),
    [
        (["head.x=backbone.y"], "no output `backbone.y`"),
        (["head.x=backbone.features", "backbone.x=head.y"], "they do not connect"),
        (["nobody.x=backbone.features"], "no input `nobody.x`"),
    ],
)
def test_wrong_connections_say_what_does_not_fit(connect: list[str], told: str, cache: Path, tmp_path: Path) -> None:
    _mlp("backbone", 8, 12, tmp_path / "backbone.onnx", "features")
    _mlp("head", 12, 5, tmp_path / "head.onnx")
    o = replace(_options(cache), connect=tuple(parse_connections(connect)))
    with pytest.raises(LinkError, match=told):
        build_image([tmp_path / "head.onnx", tmp_path / "backbone.onnx"], tmp_path / "x.so", "shared", o)


def test_a_cycle_of_connections_is_shown(cache: Path, tmp_path: Path) -> None:
    _mlp("a", 6, 6, tmp_path / "a.onnx")
    _mlp("b", 6, 6, tmp_path / "b.onnx")
    o = replace(_options(cache), connect=tuple(parse_connections(["a.x=b.y", "b.x=a.y"])))
    with pytest.raises(LinkError, match=r"cycle: a\.x <- b\.y <- b\.x <- a\.y <- a\.x"):
        build_image([tmp_path / "a.onnx", tmp_path / "b.onnx"], tmp_path / "x.so", "shared", o)


# -- starting inside ------------------------------------------------------------------------------------
def test_from_starts_inside_the_graph(cache: Path, tmp_path: Path) -> None:
    """The tensor is an input, what made it is gone, and the rest answers as in the whole model."""
    o = _options(cache)
    inner = "Pooling66_Output_0"
    whole = tmp_path / "whole.so"
    build_image([MNIST], whole, "shared", replace(o, keep_outputs=("Plus214_Output_0", inner)))
    x = np.random.default_rng(8).uniform(0, 255, (1, 1, 28, 28)).astype(np.float32)
    want = CompiledModel(whole).run({"Input3": x})
    build_image([MNIST], tmp_path / "rest.so", "shared", replace(o, start_from=(inner,)))
    rest = CompiledModel(tmp_path / "rest.so")
    assert [i.name for i in rest.inputs] == [inner]
    np.testing.assert_allclose(rest(want[inner]), want["Plus214_Output_0"], rtol=1e-5, atol=1e-4)
    model = CompiledModel(whole)
    assert rest.weights_bytes < model.weights_bytes and rest.arena_bytes < model.arena_bytes


def test_preprocessing_that_the_application_does_itself_is_gone(cache: Path, tmp_path: Path) -> None:
    """`--from` behind a scale and a table: nothing of them is left, and the first input is no input any more."""
    rng = np.random.default_rng(4)
    table, w = rng.standard_normal((4096, 64), np.float32), rng.standard_normal((64, 8), np.float32)
    nodes = [helper.make_node("Gather", ["table", "ids"], ["rows"]),
             helper.make_node("Mul", ["rows", "scale"], ["pre"]),
             helper.make_node("MatMul", ["pre", "w"], ["y"])]
    ports = [helper.make_tensor_value_info("ids", TensorProto.INT64, [4]),
             helper.make_tensor_value_info("y", TensorProto.FLOAT, [4, 8])]
    arrays = {"table": table, "w": w, "scale": np.array([0.25], np.float32)}
    inits = [numpy_helper.from_array(a, n) for n, a in arrays.items()]
    graph = helper.make_graph(nodes, "m", ports[:1], ports[1:], inits)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), tmp_path / "m.onnx")
    build_image([tmp_path / "m.onnx"], tmp_path / "m.so", "shared", replace(_options(cache), start_from=("pre",)))
    m = CompiledModel(tmp_path / "m.so")
    x = rng.standard_normal((4, 64), np.float32)
    assert [i.name for i in m.inputs] == ["pre"]
    np.testing.assert_allclose(m(x), x @ w, rtol=1e-4, atol=1e-4)
    data = (tmp_path / "m.so").read_bytes()
    assert len(data) < table.nbytes // 8 and table[5, :16].tobytes() not in data


def test_from_an_unknown_tensor_is_an_error(cache: Path, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="`--from nothing`"):
        build_image([MNIST], tmp_path / "x.so", "shared", replace(_options(cache), start_from=("nothing",)))


# -- code that was joined with a model -------------------------------------------------------------------
def test_code_joined_with_a_model_is_never_dropped(cache: Path, tmp_path: Path) -> None:
    """`ld -r model.o app.o`: recompiling the graph would lose the application, so that is refused."""
    o = _options(cache)
    compile_to_object(MNIST, tmp_path / "mnist8.o", o)
    (tmp_path / "app.c").write_text("int app(void) { return 3; }\n")
    compile_source(tmp_path / "app.c", tmp_path / "app.o", o)
    joined = toolchain.relocatable([tmp_path / "mnist8.o", tmp_path / "app.o"], tmp_path / "both.o", o.target)
    with pytest.raises(LinkError, match=r"(?s)other code in one file.*`app`"):
        link([joined], tmp_path / "x", "exe", o)
    link([joined], tmp_path / "x", "exe", replace(o, graph_lto=False))


def test_a_build_keeps_the_cache_within_its_size(tmp_path: Path) -> None:
    """What was used longest ago goes when a build adds something."""
    small = Cache(tmp_path / "cache", max_bytes=200_000)
    old = key(what="old")
    small.put(old, bytes(300_000))
    o = Options(lto="none")
    link_modules([module_of(MNIST, import_model(MNIST, o), o)], Request(tmp_path / "m.so", "shared", o, small))
    assert small.get(old) is None
    assert sum(p.stat().st_size for p in (tmp_path / "cache/entries").glob("*/*")) <= 200_000


def test_an_input_that_nothing_reads_is_in_the_parts_too(tmp_path: Path) -> None:
    """It is in the header, so an application may call its accessor."""
    o = Options(lto="none")
    ports = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [4]) for n in ("x", "unread", "y")]
    nodes = [helper.make_node("Tanh", ["x"], ["h"]), helper.make_node("Softmax", ["h"], ["y"])]
    graph = helper.make_graph(nodes, "g", ports[:2], ports[2:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    whole = module_of(Path("m.onnx"), import_model(model.SerializeToString(), o), o)
    link_modules([whole], Request(tmp_path / "whole.so", "shared", o))
    link_modules(split_at(whole, ["h"]), Request(tmp_path / "parts.so", "shared", o))
    assert [i.name for i in CompiledModel(tmp_path / "parts.so").inputs] == ["x", "unread"]
    assert (tmp_path / "parts.so").read_bytes() == (tmp_path / "whole.so").read_bytes()
