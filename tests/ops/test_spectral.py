"""Long Fourier transforms: no matrix, so weights grow with the length; right against numpy, in double."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from test_o2_onnx import one_node, ours

from monobloc import driver
from monobloc.frontend.importer import load_onnx

SEED = 88
RNG = np.random.default_rng(SEED)
print(f"seed {SEED}")


@pytest.mark.parametrize("length", [64, 1000, 1009, 4096])
@pytest.mark.parametrize(("inverse", "onesided"), [(0, 0), (0, 1), (1, 0)])
def test_long_transforms(length: int, inverse: int, onesided: int) -> None:
    x = RNG.standard_normal((2, length, 1 if onesided else 2))
    model, feeds = one_node("DFT", 20, [x, None, np.int64(1)], {"inverse": inverse, "onesided": onesided}, const=[2])
    (got,) = ours(model, feeds)
    z = x[..., 0] if onesided else x[..., 0] + 1j * x[..., 1]
    want = (np.fft.rfft if onesided else np.fft.ifft if inverse else np.fft.fft)(z, axis=1)
    np.testing.assert_allclose(got[..., 0] + 1j * got[..., 1], want, atol=1e-10 * length)
    assert "FourierTransform" in {n.op for n in load_onnx(model).graph.nodes}


def test_a_compiled_spectrogram_has_no_matrix(tmp_path: Path) -> None:
    x, frame, step = RNG.standard_normal((1, 4000)).astype(np.float32), 1000, 500
    window = np.hanning(frame).astype(np.float32)
    model, _ = one_node("STFT", 17, [x, np.array(step), window, np.array(frame)], {"onesided": 1}, const=[1, 2, 3])
    m = driver.compile(model, lto="none", threads=2, cache=tmp_path)
    got = m(x)[0]
    frames = np.stack([x[0, k : k + frame] for k in range(0, 3001, step)]).astype(np.float64)
    want = np.fft.rfft(frames * window)
    np.testing.assert_allclose(got[..., 0] + 1j * got[..., 1], want, atol=1e-4)
    assert m.weights_bytes < 8 * frames.size + 40 * frame  # where frames lie, roots, the window
