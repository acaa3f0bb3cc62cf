"""A keyword spotter of the zoo with a second head of 1 MB on its features, of which the application reads none.

The small model of `test_live.py` shows every way to name a buffer; this one shows the same on a real backbone.
"""

from __future__ import annotations

from pathlib import Path

import heads
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from monobloc import driver
from monobloc.codegen.lower import Lowered
from monobloc.codegen.names import mangle
from monobloc.driver import build, compile_to_object
from monobloc.options import Options
from monobloc.report import facts

FEATURES, WIDTH = "Relu__14:0", 32
WIDE = heads.HEAD_BYTES // 4 // WIDTH

APP = """
#ifdef __cplusplus
extern "C"
#endif
int printf(const char *format, ...);
#include "kws.h"
const void *volatile escaped;
int main(void) {
  float *x = kws_in_INPUT();
  for (int i = 0; i < 1960; i++) x[i] = (float)(i % 17) / 17;
  escaped = x;
  if (kws_run()) return 1;
  const float *y = kws_out_OUTPUT();
  escaped = y;
  for (int i = 0; i < 10; i++) printf("%.7f\\n", y[i]);
  return 0;
}
""".replace("INPUT", mangle("serving_default_input:0")).replace("OUTPUT", mangle("StatefulPartitionedCall:0"))


@pytest.fixture(scope="module")
def spotter(tmp_path_factory: pytest.TempPathFactory, shared: Path, cache: Path) -> tuple[Path, np.ndarray, Lowered]:
    """The folder with the two-headed model and its object, what the spotter answers, and the spotter alone."""
    onnxruntime = pytest.importorskip("onnxruntime")
    folder = tmp_path_factory.mktemp("zoo")
    source = shared / "models" / "emx_micro_kws_m_static_fp32.onnx"
    m = onnx.load(source)
    x = (np.arange(1960) % 17 / np.float32(17)).astype(np.float32).reshape(1, 1960)
    session = onnxruntime.InferenceSession(str(source), providers=["CPUExecutionProvider"])
    want = session.run(None, {session.get_inputs()[0].name: x})[0].ravel()
    head = np.random.default_rng(heads.SEED).standard_normal((WIDTH, WIDE), np.float32)
    m.graph.initializer.append(numpy_helper.from_array(head, "head"))
    m.graph.node.append(helper.make_node("MatMul", [FEATURES, "head"], ["h"]))
    m.graph.node.append(helper.make_node("Softmax", ["h"], ["second"]))
    m.graph.output.append(helper.make_tensor_value_info("second", TensorProto.FLOAT, [1, WIDE]))
    onnx.save(m, folder / "kws.onnx")
    compile_to_object(folder / "kws.onnx", folder / "kws.o", Options(lto="none", cache=cache))
    one = facts.program_of(driver.module_of(source, driver.import_model(source, Options()), Options()), Options())
    return folder, want, one


@pytest.mark.parametrize("lto", ["thin", "full"])
@pytest.mark.parametrize("kind", ["c", "c++", "fat", "bitcode", "native"])
def test_the_second_head_of_a_zoo_model_is_gone(
    kind: str, lto: str, spotter: tuple[Path, np.ndarray, Lowered], cache: Path
) -> None:
    folder, want, one = spotter
    (folder / f"{kind}.c").write_text(APP)
    o = Options(lto=lto, cache=cache)  # type: ignore[arg-type]
    app = heads.application(kind, folder / f"{kind}.c", o)
    made = build([folder / "kws.o", app], folder / f"{kind}.{lto}", "exe", o)
    assert made.image.removed == {"kws": ["second"]}
    assert made.programs[0].weights_bytes == one.weights_bytes
    assert made.programs[0].placement.arena == one.placement.arena
    assert made.path.stat().st_size < heads.HEAD_BYTES // 4
    np.testing.assert_allclose(heads.answers(made.path), want, rtol=1e-4, atol=1e-6)
