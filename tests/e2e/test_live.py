"""Outputs that the application does not read are gone, with the weights and RAM that only they needed."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from monobloc.driver import build as build_image
from monobloc.driver import compile_source, compile_to_object
from monobloc.errors import LinkError
from monobloc.object import toolchain
from monobloc.options import Options

HEAD_BYTES = 1 << 20
SEED = 5

APP = """
#include <stdio.h>
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


def _model(path: Path) -> np.ndarray:
    """A backbone with a small head and one of 1 MB; what the small head answers to i / 64."""
    rng = np.random.default_rng(SEED)
    wide = HEAD_BYTES // 4 // 64
    backbone, small = rng.standard_normal((64, 64), np.float32) / 8, rng.standard_normal((64, 4), np.float32)
    weights = {"b": backbone, "s": small, "g": rng.standard_normal((64, wide), np.float32)}
    nodes = [
        helper.make_node("MatMul", ["x", "b"], ["h0"]),
        helper.make_node("Relu", ["h0"], ["h"]),
        helper.make_node("MatMul", ["h", "s"], ["small"]),
        helper.make_node("MatMul", ["h", "g"], ["big"]),
    ]
    ports = [("x", 64), ("small", 4), ("big", wide)]
    x, *outs = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [1, d]) for n, d in ports)
    inits = [numpy_helper.from_array(w, n) for n, w in weights.items()]
    graph = helper.make_graph(nodes, "twoheads", [x], outs, inits)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), path)
    return np.maximum((np.arange(64, dtype=np.float32) / 64) @ backbone, 0) @ small


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory, cache: Path) -> tuple[Path, np.ndarray]:
    """A folder with the model's object and header, and the right answer."""
    folder = tmp_path_factory.mktemp("live")
    want = _model(folder / "twoheads.onnx")
    compile_to_object(folder / "twoheads.onnx", folder / "twoheads.o", Options(lto="none", cache=cache))
    return folder, want


def _application(kind: str, folder: Path, o: Options) -> Path:
    source = folder / ("app.cpp" if kind == "c++" else "app.c")
    source.write_text(APP)
    if kind in ("c", "c++"):
        return source
    made = folder / f"{kind}.o"
    if kind == "fat":
        compile_source(source, made, o)
    else:
        gcc = shutil.which("gcc")
        if gcc is None:
            pytest.skip("no gcc for a native object")
        subprocess.run([gcc, "-O1", "-ffunction-sections", "-c", str(source), "-o", str(made)], check=True)
    return made


@pytest.mark.parametrize("lto", ["none", "thin", "full"])
@pytest.mark.parametrize("kind", ["c", "c++", "fat", "native"])
def test_the_unread_head_is_gone(kind: str, lto: str, program: tuple[Path, np.ndarray], cache: Path) -> None:
    folder, want = program
    o = Options(lto=lto, cache=cache)  # type: ignore[arg-type]
    out = folder / f"{kind}.{lto}"
    made = build_image([folder / "twoheads.o", _application(kind, folder, o)], out, "exe", o)
    assert made.image.removed == {"twoheads": ["big"]}
    assert out.stat().st_size < HEAD_BYTES // 4
    assert made.programs[0].placement.arena < 4096
    text = subprocess.run([str(out)], check=True, capture_output=True, text=True).stdout
    np.testing.assert_allclose(np.array(text.split(), np.float32), want, rtol=1e-4, atol=1e-4)


def test_a_read_head_stays(program: tuple[Path, np.ndarray], cache: Path) -> None:
    folder, _ = program
    (folder / "both.c").write_text(APP.replace("escaped = x;", "never();"))
    o = Options(lto="thin", cache=cache)
    made = build_image([folder / "twoheads.o", folder / "both.c"], folder / "both", "exe", o)
    assert made.image.removed == {}
    assert (folder / "both").stat().st_size > HEAD_BYTES


def test_liveness_from_objects_that_are_not_linked(program: tuple[Path, np.ndarray], cache: Path) -> None:
    folder, _ = program
    o = Options(lto="none", cache=cache)
    (folder / "reader.c").write_text('#include "twoheads.h"\nfloat first(void) { return *twoheads_out_small(); }\n')
    compile_source(folder / "reader.c", folder / "reader.o", o)
    toolchain.archive([folder / "reader.o"], folder / "reader.a")
    out = folder / "models.o"
    used = replace(o, used_by=(folder / "reader.a",))
    made = build_image([folder / "twoheads.o"], out, "archive", used)
    assert made.image.removed == {"twoheads": ["big"]}
    assert out.stat().st_size < HEAD_BYTES // 4


@pytest.mark.skipif(shutil.which("gcc") is None, reason="no gcc to make slim LTO objects with")
def test_slim_objects_are_read_for_liveness_and_refused_for_linking(
    program: tuple[Path, np.ndarray], cache: Path
) -> None:
    folder, _ = program
    o = Options(lto="none", cache=cache)
    (folder / "slim.c").write_text('#include "twoheads.h"\nfloat first(void) { return *twoheads_out_small(); }\n')
    slim = folder / "slim.o"
    command = ["gcc", "-O1", "-flto", "-fno-fat-lto-objects", "-c", str(folder / "slim.c"), "-o", str(slim)]
    subprocess.run(command, check=True)
    made = build_image([folder / "twoheads.o"], folder / "m.a", "archive", replace(o, used_by=(slim,)))
    assert made.image.removed == {"twoheads": ["big"]}
    with pytest.raises(LinkError, match="slim LTO object"):
        build_image([folder / "twoheads.o", slim], folder / "x", "exe", o)
