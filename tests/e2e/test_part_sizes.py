"""Parts of a model of several sizes link to the image of the whole: byte for byte."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from sized_chain import backbone, head, run, save, wide, x_of

from monobloc.driver import build, compile_parts, compile_to_object, import_model, link, module_of
from monobloc.errors import LinkError, UnsupportedError
from monobloc.link.connect import parse_connections
from monobloc.loader import CompiledModel
from monobloc.options import Options

N, T = (2, 3, 4), (1, 5)


def _linked(parts: list[Path], out: Path, o: Options) -> bytes:
    """Without the image cache: equal bytes must come from equal work."""
    link(parts, out, "shared", replace(o, dump=out.with_suffix(".dump")))
    return out.read_bytes()


def _body(path: Path) -> None:
    """The backbone, and its features once more through a product and a softmax along t."""
    node = helper.make_node
    nodes = [node("MatMul", ["x", "w"], ["h"]), node("Tanh", ["h"], ["f"]), node("Softmax", ["f"], ["p"], axis=1),
             node("MatMul", ["p", "v"], ["g"]), node("Add", ["g", "f"], ["s"]), node("Shape", ["x"], ["shape"]),
             node("Gather", ["shape", "zero"], ["n"]), node("Concat", ["n", "rest"], ["flat"], axis=0),
             node("Reshape", ["s", "flat"], ["rows"]), node("ReduceMean", ["s"], ["y"], axes=[1])]
    save(path, nodes, {"x": ["n", "t", 12]}, ["rows", "y", "f"],
         {"w": wide(12, 16), "v": wide(16, 16, seed=1), "zero": np.array([0]), "rest": np.array([-1])})


@pytest.mark.parametrize("lto", ["none", "thin", "full"])
def test_parts_link_to_the_whole(lto: str, tmp_path: Path, cache: Path) -> None:
    path = tmp_path / "body.onnx"
    _body(path)
    o = Options(lto=lto, dims={"n": N, "t": T}, cache=cache)  # type: ignore[arg-type]
    build([path], tmp_path / "whole.so", "shared", replace(o, dump=tmp_path / "dump"))
    whole, module = (tmp_path / "whole.so").read_bytes(), module_of(path, import_model(path, o), o)
    cuts = [replace(o, partitions=3), replace(o, split_at=("f", "g"))]
    for k, cut in enumerate(cuts if lto == "none" else cuts[:1]):
        parts = compile_parts(module, tmp_path / f"p{k}.o", cut)
        assert len(parts) == 3
        assert _linked(parts[::-1], tmp_path / f"p{k}.so", replace(o, dims={})) == whole
    m = CompiledModel(tmp_path / "p0.so")
    for n, t in product(N, T):
        for name, want in run(path, {"x": x_of(n, t)}).items():
            np.testing.assert_allclose(m.run({"x": x_of(n, t)})[name], want, rtol=1e-4, atol=1e-5)


def test_parts_and_another_model(tmp_path: Path, cache: Path) -> None:
    a, b = tmp_path / "body.onnx", tmp_path / "head.onnx"
    backbone(a)
    head(b)
    o = Options(lto="none", cache=cache, dims={"n": N, "t": (5, 6, 7)})
    parts = compile_parts(module_of(a, import_model(a, o), o), tmp_path / "p.o", replace(o, partitions=2))
    compile_to_object(b, tmp_path / "b.o", o)
    link([*parts, tmp_path / "b.o"], tmp_path / "p.so", "shared",
         Options(lto="none", cache=cache, connect=tuple(parse_connections(["head=body"]))))
    m = CompiledModel(tmp_path / "p.so")
    for n in N:
        want = run(b, {"features": run(a, {"x": x_of(n, 6)})["features"]})["y"]
        np.testing.assert_allclose(m.run({"x": x_of(n, 6)})["y"], want, rtol=1e-4, atol=1e-5)


def test_parts_of_other_sizes(tmp_path: Path, cache: Path) -> None:
    path, made = tmp_path / "body.onnx", []
    backbone(path)
    for k, n in enumerate([(2, 3, 4), (2, 3, 4, 5)]):
        o = Options(lto="none", dims={"n": n, "t": 3}, cache=cache, partitions=2)
        made.append(compile_parts(module_of(path, import_model(path, o), o), tmp_path / f"p{k}.o", o))
    with pytest.raises(LinkError, match="cut from different models"):
        link([made[0][0], made[1][1]], tmp_path / "p.so", "shared", Options(cache=cache))


def test_a_cut_that_another_size_has_not(tmp_path: Path, cache: Path) -> None:
    """A branch that the size decides: its tensors are not those of the other one."""
    def branch(name: str, op: str) -> onnx.GraphProto:
        nodes = [helper.make_node(op, ["x"], [f"{name}1"]), helper.make_node("Neg", [f"{name}1"], [f"{name}2"])]
        return helper.make_graph(nodes, name, [], [helper.make_tensor_value_info(f"{name}2", TensorProto.FLOAT, None)])

    nodes = [helper.make_node("Shape", ["x"], ["shape"]), helper.make_node("Gather", ["shape", "one"], ["t"]),
             helper.make_node("Greater", ["t", "limit"], ["long"]),
             helper.make_node("If", ["long"], ["z"], then_branch=branch("a", "Tanh"), else_branch=branch("b", "Exp")),
             helper.make_node("Abs", ["z"], ["y"])]
    path = tmp_path / "chooses.onnx"
    save(path, nodes, {"x": [2, "t", 12]}, ["y"], {"one": np.int64(1), "limit": np.int64(3)})
    o = Options(lto="none", dims={"t": (2, 3, 4, 5)}, cache=cache)
    module = module_of(path, import_model(path, o), o)
    with pytest.raises(UnsupportedError, match="would read and make other tensors at other sizes") as e:
        compile_parts(module, tmp_path / "p.o", replace(o, split_at=("#3(If)/a1",)))
    assert "#3(If)/b1" in str(e.value) and "--split-at" in str(e.value)
    compile_parts(module, tmp_path / "p.o", replace(o, split_at=("z",)))
