"""Models as PyTorch exports them, committed with the tests: every LTO mode, against onnxruntime."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import monobloc

MODELS = Path(__file__).parent.parent / "models"
SEED = 20260


def _feeds(m: monobloc.CompiledModel) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(SEED)
    return {
        i.name: rng.standard_normal(i.shape).astype(i.dtype)
        if i.dtype.kind == "f"
        else rng.integers(0, 2, i.shape).astype(i.dtype)
        for i in m.inputs
    }


@pytest.mark.parametrize("name", ["unet_small", "encoder_small"])
def test_exported_models_agree_with_onnxruntime_in_every_mode(name: str, cache: Path) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    path = MODELS / f"{name}.onnx"
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    first: dict[str, np.ndarray] | None = None
    for lto in ("none", "thin", "full"):
        m = monobloc.compile(path, lto=lto, cache=cache)
        feeds = _feeds(m)
        got = m.run(feeds)
        for want, (out, y) in zip(session.run(None, feeds), got.items(), strict=True):
            np.testing.assert_allclose(y, want, rtol=1e-4, atol=2e-6, err_msg=f"{out}, {lto}, seed {SEED}")
        if first is not None:
            for out, y in got.items():
                assert y.tobytes() == first[out].tobytes(), f"{out} differs between LTO modes"
        first = got
