"""A file includes the headers of what it calls: reading all of them would be a fifth of its compilation."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import monobloc
from monobloc.codegen import unit
from monobloc.codegen.lower import lower
from monobloc.driver import import_model
from monobloc.ir.graph import Graph
from monobloc.ir.types import DType, TensorType
from monobloc.options import Options
from monobloc.passes import PassContext
from monobloc.targets import resolve

CSRC = Path(monobloc.__file__).parent / "csrc" / "include" / "mb"


def included(node: onnx.NodeProto, *more: onnx.NodeProto, kind: int = TensorProto.FLOAT) -> set[str]:
    """What the files include of a model of these nodes, x to y; `w` is a square weight."""
    x, y = (helper.make_tensor_value_info(p, kind, [1, 16, 8, 16]) for p in "xy")
    w = numpy_helper.from_array(np.ones((16, 16), np.float32), "w")
    filters = numpy_helper.from_array(np.ones((16, 16, 1, 1), np.float32), "f")
    graph = helper.make_graph([node, *more], "g", [x], [y], [w, filters])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    g = import_model(model.SerializeToString(), Options()).graph
    low = lower(g, PassContext(resolve("x86_64-linux")), "m", "m")
    return set(re.findall(r'#include "mb/(\w+)\.h"', "\n".join(low.files.values())))


FEW = {"base", "scalar", "abi", "hal"}
CONV = helper.make_node("Conv", ["x", "f"], ["c"])


@pytest.mark.parametrize("activation", ["Relu", "HardSigmoid", "LeakyRelu", "Abs", "HardSwish"])
def test_plain_activations_need_no_mathematics(activation: str) -> None:
    assert included(CONV, helper.make_node(activation, ["c"], ["y"])) == FEW | {"conv", "turn"}


def test_the_file_says_what_it_calls() -> None:
    common = FEW | {"math", "codes", "narrow", "epilogue"}
    assert included(CONV, helper.make_node("Tanh", ["c"], ["y"])) == common | {"conv", "turn"}
    assert included(helper.make_node("MatMul", ["x", "w"], ["y"])) == FEW | {"gemm"}
    assert included(helper.make_node("Tanh", ["x"], ["y"])) == common
    assert included(helper.make_node("Relu", ["x"], ["y"])) == FEW
    double = included(helper.make_node("Relu", ["x"], ["y"]), kind=TensorProto.DOUBLE)
    assert double == common, "functions of doubles are in math.h, and a float's would be taken without it"


def test_a_name_that_the_table_does_not_know_gets_all() -> None:
    g = Graph("g")
    x = g.add_input("x", TensorType(DType.F32, (1,)))
    node = g.make("Relu", [x], [x.type])
    for text, known in (("mb_something_new(x);", False), ("mb_turn1(x); mb_cast_i32(y); mb_f8e5m2_value(z);", True)):
        assert (unit._headers([unit._Layer(node, "layer", body=[text])]) == unit.HEADERS) != known


def test_names_of_headers_begin_as_the_table_says() -> None:
    """What else a header defines has a name that base.h, scalar.h or math.h has too, for other types."""
    assert set(unit.HEADERS) - set(unit._NAMED) == FEW | {"math", "codes", "narrow", "epilogue"}
    defined = re.compile(r"^(?:MB_INLINE|MB_OVERLOAD|#define) ?[^(\n]*?\b((?:mb|MB)_\w+)\(", re.M)
    for header, begins in unit._NAMED.items():
        names = {n.split("_")[1].lower() for n in defined.findall((CSRC / f"{header}.h").read_text())}
        assert names & begins, f"{header}.h defines nothing that begins with {sorted(begins)}"


def test_plain_functions_are_where_every_file_finds_them() -> None:
    text = (CSRC / "base.h").read_text() + (CSRC / "scalar.h").read_text() + (CSRC / "hal.h").read_text()
    made = {"mb_lanes_sum", "mb_lanes_prod", "mb_lanes_max", "mb_lanes_min"}  # by a macro of base.h
    missing = [n for n in sorted(unit._PLAIN - made) if not re.search(rf"\b{n}\b", text)]
    assert not missing, f"in neither base.h nor scalar.h: {missing}"
    doubles = (CSRC / "math_f64.h").read_text()
    assert "double mb_relu(double" in doubles and "double" not in unit._PLAIN
