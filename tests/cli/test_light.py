"""Commands that build load of package onnx only what they need, and who wants all of it still gets it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import onnx
from onnx import TensorProto, helper


def python(text: str, *args: str | Path) -> str:
    done = subprocess.run([sys.executable, "-c", text, *map(str, args)], check=True, capture_output=True, text=True)
    return done.stdout


def test_a_check_of_imports_of_a_build(tmp_path: Path) -> None:
    x, y = (helper.make_tensor_value_info(p, TensorProto.FLOAT, [4]) for p in "xy")
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", [x], [y])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), tmp_path / "m.onnx")
    text = ("import sys; from monobloc.cli import run; code = run(sys.argv[1:]); "
            "print('onnx' in sys.modules, 'torch' in sys.modules, code)")
    told = python(text, "compile", tmp_path / "m.onnx", "-o", tmp_path / "m.o", "--cache", tmp_path / "cache")
    assert told.splitlines()[-1] == "False False 0"


def test_the_package_after_its_parts() -> None:
    """One class of messages, whoever asks."""
    assert python("""
from monobloc.cli.light import light_onnx
light_onnx()
from monobloc.frontend.importing import Model
from monobloc.frontend.proto import ModelProto, defs
import sys
assert "onnx" not in sys.modules and defs.get_schema("Conv", 17, "").name == "Conv"
import onnx
from onnx import checker, helper, numpy_helper, shape_inference
assert onnx.ModelProto is ModelProto
x, y = (helper.make_tensor_value_info(p, onnx.TensorProto.FLOAT, [4]) for p in "xy")
m = helper.make_model(helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", [x], [y]))
checker.check_model(m)
assert len(shape_inference.infer_shapes(m).graph.node) == 1 and isinstance(m, ModelProto)
assert onnx.defs.get_schema("Gelu", 20).function_body is not None
print("fine")
""") == "fine\n"


def test_where_the_package_is_there_already() -> None:
    assert python("import onnx, sys; n = len(sys.modules); from monobloc.cli.light import light_onnx; "
                  "m = len(sys.modules); light_onnx(); print(len(sys.modules) - m)") == "0\n"
