"""A backbone with a small head that applications read and one of 1 MB that they do not."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from monobloc.driver import compile_source
from monobloc.object import toolchain
from monobloc.options import Options

HEAD_BYTES = 1 << 20
WIDE = HEAD_BYTES // 4 // 64
SEED = 5

APP = """
#ifdef __cplusplus
extern "C"
#endif
int printf(const char *format, ...);  /* firmware compilers come without a C library */
#include "twoheads.h"
const void *volatile escaped;
static void never(void) { escaped = twoheads_out_big(); }
int main(void) {
  float *x = twoheads_in_x();
  for (int i = 0; i < 64; i++) x[i] = (float)i / 64;
  escaped = x;
  if (twoheads_run()) return 1;
  escaped = twoheads_out_small();
  for (int i = 0; i < 4; i++) printf("%.6f\\n", twoheads_out_small()[i]);
  return 0;
}
"""
READER = '#include "twoheads.h"\nfloat first(void) { return *twoheads_out_small(); }\n'


def weights() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(SEED)
    backbone, small = rng.standard_normal((64, 64), np.float32) / 8, rng.standard_normal((64, 4), np.float32)
    return {"b": backbone, "s": small, "g": rng.standard_normal((64, WIDE), np.float32)}


def head_pattern() -> bytes:
    """Sixteen floats of the big head, which lie together in every order its weights are stored in."""
    return bytes(weights()["g"][0, :16].tobytes())


def model(path: Path, heads: Sequence[str] = ("small", "big"), unread_input: bool = False) -> np.ndarray:
    """Write it; what the small head answers to i / 64. `aux` is an input of the big head only."""
    w = weights()
    nodes = [
        helper.make_node("MatMul", ["x", "b"], ["h0"]),
        helper.make_node("Relu", ["h0"], ["h"]),
        helper.make_node("MatMul", ["h", "s"], ["small"]),
        helper.make_node("MatMul", ["h", "g"], ["big0" if unread_input else "big"]),
    ]
    nodes += [helper.make_node("Add", ["big0", "aux"], ["big"])] if unread_input else []
    size = {"x": 64, "aux": WIDE, "small": 4, "big": WIDE}
    ports = {n: helper.make_tensor_value_info(n, TensorProto.FLOAT, [1, d]) for n, d in size.items()}
    inits = [numpy_helper.from_array(a, n) for n, a in w.items() if n != "g" or "big" in heads]
    graph = helper.make_graph([n for n in nodes if n.output[0][:3] != "big" or "big" in heads], "twoheads",
                              [ports["x"], *([ports["aux"]] if unread_input else [])], [ports[h] for h in heads], inits)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), path)
    return np.maximum((np.arange(64, dtype=np.float32) / 64) @ w["b"], 0) @ w["s"]


def need(*tools: str) -> None:
    for tool in tools:
        if shutil.which(tool) is None:
            pytest.skip(f"no {tool}")


def made_by(tool: str, source: Path, out: Path, *flags: str) -> Path:
    need(tool)
    subprocess.run([tool, "-c", str(source), "-o", str(out), *flags], check=True)
    return out


def plain_bitcode(source: Path, out: Path, *flags: str) -> Path:
    """`clang -O2 -c -emit-llvm`: no summary, and not said to be for thin and full."""
    tools = toolchain.find_tools()
    command = [*tools.clang, *tools.headers, "-ffreestanding", "-O2", "-fPIC", "-emit-llvm", *flags, "-c", str(source)]
    toolchain.run([*command, "-o", str(out)], what="clang -emit-llvm")
    return out


def application(kind: str, source: Path, o: Options) -> Path:
    """The application as what builds hand to a linker; C++ sources are C files of another name."""
    if kind in ("c", "c++"):
        out = source.with_suffix(".cpp") if kind == "c++" else source
        out.write_text(source.read_text())
        return out
    made = source.with_name(f"{source.stem}.{kind}.o")
    if kind == "fat":
        compile_source(source, made, o)
    elif kind == "bitcode":
        plain_bitcode(source, made)
    else:
        made_by("gcc", source, made, "-O1", "-ffunction-sections", "-fdata-sections")
    return made


def answers(image: Path) -> np.ndarray:
    text = subprocess.run([str(image)], check=True, capture_output=True, text=True).stdout
    return np.array(text.split(), np.float32)
