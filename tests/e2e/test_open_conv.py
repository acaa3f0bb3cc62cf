"""Convolutions of every kind whose height and width a run chooses, against onnxruntime; one kernel for all sizes."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from monobloc.driver import build, compile_to_object, link
from monobloc.loader import CompiledModel
from monobloc.options import Options
from monobloc.passes.open_tiles import widths
from monobloc.targets import resolve

SEED = 71
print(f"seed {SEED}")
RNG = np.random.default_rng(SEED)

# input channels, output channels, kernel, and attributes; the names say what is unusual
KINDS: dict[str, tuple[int, int, tuple[int, ...], dict[str, object]]] = {
    "point": (20, 40, (1, 1), {}),
    "point_stride": (20, 16, (1, 1), {"strides": [2, 2]}),
    "same": (20, 33, (3, 3), {"pads": [1, 1, 1, 1]}),
    "stride": (20, 48, (3, 3), {"pads": [1, 1, 1, 1], "strides": [2, 2]}),
    "uneven": (20, 5, (2, 5), {"pads": [0, 3, 1, 0], "strides": [1, 2]}),
    "valid": (20, 64, (3, 3), {}),
    "dilated": (20, 17, (3, 3), {"pads": [6, 6, 6, 6], "dilations": [6, 6]}),
    "grouped": (20, 24, (3, 3), {"pads": [1, 1, 1, 1], "group": 4}),
    "depthwise": (20, 20, (3, 3), {"pads": [1, 1, 1, 1], "group": 20}),
    "depthwise_stride": (20, 20, (5, 5), {"pads": [2, 2, 2, 2], "group": 20, "strides": [2, 2]}),
    "depthwise_dilated": (20, 20, (3, 3), {"pads": [2, 2, 2, 2], "group": 20, "dilations": [2, 2]}),
    "multiplier": (20, 40, (3, 3), {"pads": [1, 1, 1, 1], "group": 20}),
}


def _model(path: Path, batch: int | str) -> None:
    """All kinds side by side; the first result goes through a residual and a gate, which an epilogue reads."""
    nodes, weights, outs = [], [], []
    for name, (ic, oc, kernel, attrs) in KINDS.items():
        group = int(attrs.get("group", 1))  # type: ignore[call-overload]
        w = RNG.standard_normal((oc, ic // group, *kernel)).astype(np.float32)
        w /= np.sqrt(w[0].size)
        weights += [numpy_helper.from_array(w, f"{name}_w"),
                    numpy_helper.from_array(RNG.standard_normal(oc).astype(np.float32), f"{name}_b")]
        nodes.append(helper.make_node("Conv", ["x", f"{name}_w", f"{name}_b"], [f"{name}_h"], **attrs))
        nodes.append(helper.make_node("HardSwish", [f"{name}_h"], [name]))
        outs.append(name)
    nodes += [helper.make_node("Add", ["depthwise", "x"], ["sum"]),
              helper.make_node("Conv", ["sum", "same2_w"], ["h2"], pads=[1, 1, 1, 1]),
              helper.make_node("Add", ["h2", "sum"], ["again"]), helper.make_node("Sigmoid", ["again"], ["last"])]
    weights.append(numpy_helper.from_array((RNG.standard_normal((20, 20, 3, 3)) / 14).astype(np.float32), "same2_w"))
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in (*outs, "last")]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [batch, 20, "h", "w"])
    g = helper.make_graph(nodes, "kinds", [x], ends, weights)
    onnx.save(helper.make_model(g, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)


def _bytes(path: Path) -> None:
    """The same kinds of bytes: inputs, weights and results are quantized, in steps that sums do not fall between."""
    nodes = [helper.make_node("QuantizeLinear", ["x", "sx", "z"], ["xq"]),
             helper.make_node("DequantizeLinear", ["xq", "sx", "z"], ["xd"])]
    weights = {"sx": np.float32(0.0625), "z": np.uint8(117), "sw": np.float32(0.03125), "zw": np.int8(0)}
    for name, (ic, oc, kernel, attrs) in KINDS.items():
        group = int(attrs.get("group", 1))  # type: ignore[call-overload]
        weights[f"{name}_w"] = RNG.integers(-99, 99, (oc, ic // group, *kernel)).astype(np.int8)
        weights[f"{name}_s"] = np.float32(2 ** np.round(np.log2(weights[f"{name}_w"][0].size) / 2) / 8)
        nodes += [helper.make_node("DequantizeLinear", [f"{name}_w", "sw", "zw"], [f"{name}_f"]),
                  helper.make_node("Conv", ["xd", f"{name}_f"], [f"{name}_h"], **attrs),
                  helper.make_node("QuantizeLinear", [f"{name}_h", f"{name}_s", "z"], [f"{name}_q"]),
                  helper.make_node("DequantizeLinear", [f"{name}_q", f"{name}_s", "z"], [name])]
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in KINDS]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 20, "h", "w"])
    g = helper.make_graph(nodes, "bytes", [x], ends, [numpy_helper.from_array(v, n) for n, v in weights.items()])
    onnx.save(helper.make_model(g, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)


def _check(m: CompiledModel, path: Path, shapes: list[tuple[int, int, int]]) -> None:
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    names = [o.name for o in session.get_outputs()]
    for n, h, w in shapes:
        x = np.random.default_rng([n, h, w]).standard_normal((n, 20, h, w)).astype(np.float32)
        got = m.run({"x": x})
        for name, want in zip(names, session.run(names, {"x": x}), strict=True):
            assert got[name].shape == want.shape
            np.testing.assert_allclose(got[name], want, rtol=1e-4, atol=2e-5, err_msg=f"{name} at {n}, {h}, {w}")


@pytest.mark.parametrize(("lto", "threads", "cpu"), [("thin", 2, None), ("none", 1, "x86-64-v2")])
def test_every_kind_at_every_size(lto: str, threads: int, cpu: str | None, tmp_path: Path, cache: Path) -> None:
    path = tmp_path / "kinds.onnx"
    _model(path, "n")
    o = Options(lto=lto, threads=threads, target=resolve("host", cpu), cache=cache,  # type: ignore[arg-type]
                dims={"n": (2, 3, 4), "h": tuple(range(4, 20)), "w": tuple(range(4, 41))})
    build([path], tmp_path / "m.so", "shared", o)
    m = CompiledModel(tmp_path / "m.so")
    _check(m, path, [(4, 4, 4), *((2, h, 44 - 2 * h) for h in range(4, 20)), *((2, 6, w) for w in range(4, 41)),
                     (3, 19, 40)])
    m.stop()


@pytest.mark.parametrize(("lto", "threads", "cpu"), [("none", 2, None), ("thin", 1, "x86-64-v3")])
def test_bytes_of_every_kind(lto: str, threads: int, cpu: str | None, tmp_path: Path, cache: Path) -> None:
    """The same bits as an image of one size, and onnxruntime's numbers; one version of all sizes."""
    path = tmp_path / "bytes.onnx"
    _bytes(path)
    o = Options(lto=lto, threads=threads, target=resolve("host", cpu), cache=cache,  # type: ignore[arg-type]
                dims={"n": (2, 3, 4), "h": tuple(range(4, 20)), "w": tuple(range(4, 41))})
    made = build([path], tmp_path / "m.so", "shared", o)
    assert len(made.programs[0].versions) == 1
    assert sum(n.attrs.get("kernel") in ("iconv", "idwconv") for n in made.programs[0].graph.nodes) == len(KINDS)
    m = CompiledModel(tmp_path / "m.so")
    _check(m, path, [(4, 4, 4), *((2, h, 44 - 2 * h) for h in range(4, 20)), (3, 19, 40)])
    build([path], tmp_path / "one.so", "shared", replace(o, dims={"n": 2, "h": 11, "w": 37}))
    x = np.random.default_rng(5).standard_normal((2, 20, 11, 37)).astype(np.float32)
    got, want = m.run({"x": x}), CompiledModel(tmp_path / "one.so").run({"x": x})
    assert all((got[name] == want[name]).all() for name in KINDS)
    m.stop()


def test_quantizing_in_front_of_moves(tmp_path: Path, cache: Path) -> None:
    """Which of two tensors is larger is not asked of the run: one version has all sizes."""
    path = tmp_path / "moved.onnx"
    w = {"sx": np.float32(0.0625), "z": np.uint8(117), "sw": np.float32(0.03125), "zw": np.int8(0),
         "sy": np.float32(0.5), "w": RNG.integers(-99, 99, (20, 6, 3, 2)).astype(np.int8)}
    nodes = [helper.make_node("QuantizeLinear", ["x", "sx", "z"], ["xq"]),
             helper.make_node("DequantizeLinear", ["xq", "sx", "z"], ["xd"]),
             helper.make_node("DequantizeLinear", ["w", "sw", "zw"], ["f"]),
             helper.make_node("ConvTranspose", ["xd", "f"], ["h"], strides=[2, 1]),
             helper.make_node("Transpose", ["h"], ["t"], perm=[0, 2, 3, 1]),
             helper.make_node("QuantizeLinear", ["t", "sy", "z"], ["q"]),
             helper.make_node("DequantizeLinear", ["q", "sy", "z"], ["y"])]
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in (("x", [1, 20, "h", "w"]), ("y", None)))
    g = helper.make_graph(nodes, "moved", [x], [y], [numpy_helper.from_array(v, n) for n, v in w.items()])
    onnx.save(helper.make_model(g, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    o = Options(lto="none", cache=cache, dims={"h": tuple(range(2, 9)), "w": tuple(range(2, 9))})
    made = build([path], tmp_path / "m.so", "shared", o)
    assert len(made.programs[0].versions) == 1
    _check(CompiledModel(tmp_path / "m.so"), path, [(1, 2, 2), (1, 2, 7), (1, 5, 3), (1, 8, 8)])


def test_an_object_by_itself(tmp_path: Path, cache: Path) -> None:
    """Its weights are as they are in the model."""
    path = tmp_path / "kinds.onnx"
    _model(path, 1)
    compile_to_object(path, tmp_path / "m.o", Options(cache=cache, dims={"h": (8, 12, 16, 20, 24, 28, 32), "w": 9}))
    link([tmp_path / "m.o"], tmp_path / "m.so", "shared", Options(graph_lto=False, lto="none", cache=cache))
    _check(CompiledModel(tmp_path / "m.so"), path, [(1, h, 9) for h in (8, 12, 32)])


def test_tiles_of_a_row() -> None:
    """The widest first, and the last is 1: so every width is covered exactly."""
    for most, extent in product(range(1, 29), range(1, 100)):
        found, left = widths(most), extent
        assert found[0] <= most and found[-1] == 1 and found == sorted(set(found), reverse=True)
        for w in found:
            left %= w
        assert left == 0
