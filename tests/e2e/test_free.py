"""What costs nothing: operations that change nothing, and what was left in a model to look into it.

The same network plain, and with Identity, Dropout, taps and side outputs in every place an exporter leaves them:
the programs are the same, byte for byte.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import heads
import numpy as np
import onnx
import pytest
from onnx import NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper

from monobloc.driver import build
from monobloc.options import Options

SEED = 3
APP = """
int printf(const char *format, ...);
#include "net.h"
int main(void) {
  for (int i = 0; i < NET_IN_X_SIZE; i++) net_in_x()[i] = (float)(i % 5) / 5;
  if (net_run()) return 1;
  for (int i = 0; i < NET_OUT_Y_SIZE; i++) printf("%.7f\\n", net_out_y()[i]);
  return 0;
}
"""


def _info(name: str, shape: list[int], dtype: int = TensorProto.FLOAT) -> ValueInfoProto:
    return helper.make_tensor_value_info(name, dtype, shape)


def _model(path: Path, extra: str) -> Path:
    """x -> Conv -> Relu -> Flatten -> Gemm -> Softmax -> y, with what `extra` names in between."""
    rng = np.random.default_rng(SEED)
    w = {"k": rng.standard_normal((8, 2, 3, 3), np.float32), "g": rng.standard_normal((8 * 36, 10), np.float32) / 16}
    at = {n: n for n in ("x", "c", "r", "f", "g", "m")}  # the name by which the next node reads a value
    nodes: list[NodeProto] = []
    outputs = [_info("y", [1, 10])]

    def between(value: str) -> None:
        if extra == "identity":
            nodes.append(helper.make_node("Identity", [at[value]], [f"{value}.same"]))
            at[value] = f"{value}.same"
        elif extra == "dropout" and value != "g":
            mask = [f"{value}.mask"] if value == "r" else []
            nodes.append(helper.make_node("Dropout", [at[value], "ratio", "training"], [f"{value}.dropped", *mask]))
            at[value] = f"{value}.dropped"
        elif extra in ("taps", "outputs") and value != "g":
            nodes.append(helper.make_node("Abs", [value], [f"{value}.abs"]))
            nodes.append(helper.make_node("ReduceMax", [f"{value}.abs"], [f"{value}.max"], keepdims=0))
            nodes.append(helper.make_node("MatMul", [f"{value}.max0", "probe"], [f"{value}.probe"]))
            nodes.insert(-1, helper.make_node("Unsqueeze", [f"{value}.max", "axes"], [f"{value}.max0"]))
            looked = [_info(f"{value}.max", []), _info(f"{value}.probe", [1, 4096])]
            outputs.extend(looked if extra == "outputs" else [])

    steps = (("x", "Conv", "c", ["k"]), ("c", "Relu", "r", []), ("r", "Flatten", "f", []), ("f", "MatMul", "m", ["g"]))
    between("g")
    for source, op, made, more in steps:
        between(source)
        nodes.append(helper.make_node(op, [at[source], *(at.get(n, n) for n in more)], [made], name=f"net/{made}"))
    between("m")
    nodes.append(helper.make_node("Softmax", [at["m"]], ["y"], name="net/y"))
    more = {"ratio": np.array(0.5, np.float32), "training": np.array(False), "axes": np.array([0, 1], np.int64),
            "probe": rng.standard_normal((1, 4096), np.float32)}
    used = {n for node in nodes for n in node.input}
    inits = [numpy_helper.from_array(a, n) for n, a in (w | more).items() if n in used]
    graph = helper.make_graph(nodes, "net", [_info("x", [1, 2, 8, 8])], outputs, inits)
    m = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.checker.check_model(m)
    onnx.save(m, path)
    return path


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory, cache: Path) -> tuple[bytes, np.ndarray]:
    return _image(tmp_path_factory.mktemp("plain"), "", Options(cache=cache))


def _image(folder: Path, extra: str, o: Options) -> tuple[bytes, np.ndarray]:
    (folder / "app.c").write_text(APP)
    made = build([_model(folder / "net.onnx", extra), folder / "app.c"], folder / "app", "exe", o)
    return made.path.read_bytes(), heads.answers(made.path)


@pytest.mark.parametrize("extra", ["identity", "dropout", "taps", "outputs"])
def test_it_costs_not_a_byte(extra: str, plain: tuple[bytes, np.ndarray], tmp_path: Path, cache: Path) -> None:
    data, answer = _image(tmp_path, extra, Options(cache=cache))
    assert answer.tobytes() == plain[1].tobytes() and answer.size == 10
    assert data == plain[0], f"{len(data)} bytes and {len(plain[0])} differ"


def test_side_outputs_cost_what_they_are_where_they_are_read(
    plain: tuple[bytes, np.ndarray], tmp_path: Path, cache: Path
) -> None:
    """The control: a library, whose loader may ask for all."""
    made = {}
    for extra in ("", "outputs"):
        o = replace(Options(cache=None), lto="none")
        made[extra] = build([_model(tmp_path / "net.onnx", extra)], tmp_path / "net.so", "shared", o)
    assert made["outputs"].programs[0].weights_bytes >= made[""].programs[0].weights_bytes + 4 * 4096
    assert made["outputs"].programs[0].placement.arena >= made[""].programs[0].placement.arena + 4 * 4 * 4096
