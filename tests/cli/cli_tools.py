"""What the tests of the command line share."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Told:
    """What a command said"""

    code: int
    out: str
    err: str


Command = Callable[..., Told]


def tiny(path: Path, batch: int | str = 1, op: str = "Relu") -> Path:
    """y = op(x @ w + b), with a second output of integers."""
    rng = np.random.default_rng(5)
    w = numpy_helper.from_array(rng.standard_normal((8, 4)).astype(np.float32), "w")
    b = numpy_helper.from_array(rng.standard_normal(4).astype(np.float32), "b")
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["xw"], "product"),
        helper.make_node("Add", ["xw", "b"], ["sum"], "bias"),
        helper.make_node(op, ["sum"], ["y"], "last"),
        helper.make_node("ArgMax", ["y"], ["best"], "choice", axis=1, keepdims=0),
    ]
    g = helper.make_graph(
        nodes, "tiny",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [batch, 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [batch, 4]),
         helper.make_tensor_value_info("best", TensorProto.INT64, [batch])],
        [w, b],
    )  # fmt: skip
    onnx.save(helper.make_model(g, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), str(path))
    return path


def program(*words: str, cwd: Path, **env: str) -> subprocess.CompletedProcess[str]:
    """`python -m monobloc` as a process of its own"""
    keep = {k: v for k, v in os.environ.items() if k != "NO_COLOR"}
    return subprocess.run([sys.executable, "-m", "monobloc", *words], cwd=cwd, text=True, capture_output=True,
                          env={**keep, "PYTHONPATH": str(ROOT), **env}, timeout=120)
