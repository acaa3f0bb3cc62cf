"""Random programs whose sizes data decide mean what onnxruntime computes, or end where it does."""

from __future__ import annotations

from collections import Counter

import numpy as np
import onnxruntime
from sized_programs import MOST, Program

from monobloc.errors import MonoblocError
from monobloc.frontend.importer import load_onnx
from monobloc.frontend.importing import Choices
from monobloc.ir.interp import interpret

SEED, COUNT = 83, 60
print(f"seed {SEED}")


def tried(seed: int, met: Counter[str]) -> None:
    rng = np.random.default_rng(seed)
    m = Program(rng).model()
    if m is None:
        return
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    try:
        session = onnxruntime.InferenceSession(m.SerializeToString(), options)
        g = load_onnx(m, Choices(max_values={"n": (MOST,)})).graph
    except (MonoblocError, onnxruntime.capi.onnxruntime_pybind11_state.Fail):
        met["refused"] += 1  # sizes that never fit
        return
    for _ in range(3):
        feeds = {"x": rng.standard_normal((4, 6)).astype(np.float32), "n": rng.integers(0, MOST + 1, 6)}
        try:
            want = session.run(None, feeds)
        except Exception:  # of onnxruntime, of several types
            want = None
        try:
            got = interpret(g, feeds)
        except MonoblocError:  # it also takes empty tensors of any shape for nothing
            met["error" if want is None else "stricter"] += 1
            continue
        assert want is not None, f"seed {seed}: onnxruntime ends with an error"
        for port, y in zip(session.get_outputs(), want, strict=True):
            assert got[port.name].shape == y.shape, f"seed {seed}: {port.name}"
            np.testing.assert_allclose(got[port.name], y, rtol=1e-3, atol=1e-4, err_msg=f"seed {seed}: {port.name}")
        met["same"] += 1


def test_programs_mean_what_onnxruntime_computes() -> None:
    met: Counter[str] = Counter()
    for k in range(COUNT):
        tried(SEED * 1000 + k, met)
    print(dict(met))
    assert met["same"] > 10 * met["stricter"] and met["same"] > COUNT and met["refused"] < COUNT / 5, dict(met)
