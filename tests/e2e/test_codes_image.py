"""Models whose inputs, weights and outputs have types of at most 8 bits: as library, as executable, in parts."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import monobloc

node = helper.make_node
SEED = 77
print(f"seed {SEED}")


def mixed() -> onnx.ModelProto:
    """Weights of four bits by blocks, an input of 8-bit floats, and outputs of small integers and floats."""
    rng = np.random.default_rng(SEED)
    w = rng.integers(-8, 8, (32, 20)).astype(ml_dtypes.int4)
    scale = rng.uniform(0.05, 0.1, (2, 20)).astype(np.float32)
    zero = rng.integers(-3, 4, (2, 20)).astype(ml_dtypes.int4)
    nodes = [node("Cast", ["x"], ["xf"], to=TensorProto.FLOAT),
             node("DequantizeLinear", ["w", "scale", "zero"], ["wf"], axis=0, block_size=16),
             node("MatMul", ["xf", "wf"], ["y"]),
             node("Cast", ["y"], ["small"], to=TensorProto.FLOAT8E4M3FN), node("Transpose", ["small"], ["turned"]),
             node("Cast", ["y"], ["four"], to=TensorProto.FLOAT4E2M1),
             node("QuantizeLinear", ["y", "one"], ["two"], output_dtype=TensorProto.UINT2),
             node("Pad", ["q", "pads"], ["padded"])]  # fmt: skip
    F8, I4 = TensorProto.FLOAT8E4M3FN, TensorProto.INT4
    ins = [("x", F8, [3, 32]), ("q", I4, [2, 3])]
    outs = [("y", TensorProto.FLOAT, [3, 20]), ("turned", F8, [20, 3]), ("four", TensorProto.FLOAT4E2M1, [3, 20]),
            ("two", TensorProto.UINT2, [3, 20]), ("padded", I4, [4, 3])]  # fmt: skip
    weights = {"w": w, "scale": scale, "zero": zero, "one": np.float32(1.5), "pads": np.array([1, 0, 1, 0])}
    ports = [[helper.make_tensor_value_info(*p) for p in side] for side in (ins, outs)]
    g = helper.make_graph(nodes, "g", *ports, [numpy_helper.from_array(np.asarray(v), k) for k, v in weights.items()])
    return helper.make_model(g, opset_imports=[helper.make_opsetid("", 25)])


def data() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(SEED)
    x = rng.standard_normal((3, 32)).astype(ml_dtypes.float8_e4m3fn)
    return {"x": x, "q": rng.integers(-8, 8, (2, 3)).astype(ml_dtypes.int4)}


def check(got: dict[str, np.ndarray], m: onnx.ModelProto) -> None:
    want = dict(zip([o.name for o in m.graph.output], ReferenceEvaluator(m).run(None, data()), strict=True))
    np.testing.assert_allclose(got["y"], want["y"], rtol=1e-5, atol=1e-5)
    for name in ("turned", "four", "two", "padded"):
        assert got[name].dtype == want[name].dtype
        np.testing.assert_array_equal(got[name].astype(np.float32), want[name].astype(np.float32))


def test_in_python() -> None:
    m = mixed()
    check(monobloc.compile(m, lto="none").run(data()), m)


def test_compiled_and_linked(tmp_path: Path) -> None:
    m = mixed()
    onnx.save(m, tmp_path / "m.onnx")
    for words in (["compile", "m.onnx", "-o", "m.o"], ["link", "m.o", "-o", "m.so", "--lto", "none"]):
        assert monobloc_cli(words, tmp_path) == ""
    check(monobloc.load(tmp_path / "m.so").run(data()), m)
    assert "uint8_t *m_in_q(void);" in (tmp_path / "m.h").read_text()


def test_as_an_executable(tmp_path: Path) -> None:
    """numpy has no names for these types in files: it reads bytes, which are the codes."""
    m = mixed()
    onnx.save(m, tmp_path / "m.onnx")
    assert monobloc_cli(["build", "m.onnx", "-o", "m", "--lto", "none"], tmp_path) == ""
    for name, x in data().items():
        np.save(tmp_path / f"{name}.npy", x)
    (tmp_path / "out").mkdir()
    done = subprocess.run(["./m", "x.npy", "q.npy", "-o", "out/"], capture_output=True, text=True, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    types = {o.name: helper.tensor_dtype_to_np_dtype(o.type.tensor_type.elem_type) for o in m.graph.output}
    got = {k: np.load(tmp_path / "out" / f"{k}.npy") for k in types}
    check({k: y if k == "y" else y.view(types[k]) for k, y in got.items()}, m)
    shown = subprocess.run(["./m", "x.npy", "q.npy"], capture_output=True, text=True, cwd=tmp_path).stdout
    first = " ".join(str(int(v)) for v in got["padded"].view(types["padded"]).ravel()[:8])
    assert f"padded i4 [4, 3]: {first} ..." in shown
    assert subprocess.run(["./m", "q.npy", "x.npy"], capture_output=True, cwd=tmp_path).returncode == 1


def monobloc_cli(words: list[str], folder: Path) -> str:
    """The command's errors"""
    command = [sys.executable, "-m", "monobloc", *words]
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder)
    return done.stderr if done.returncode else ""
