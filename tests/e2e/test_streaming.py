"""Streaming models, a thousand steps: state stays in the program's memory, and answers do not drift."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

from monobloc import litert
from monobloc.driver import build
from monobloc.loader import CompiledModel
from monobloc.options import Options

STEPS, SEED = 1000, 47
print(f"seed {SEED}")


def built(path: Path, out: Path, o: Options) -> CompiledModel:
    build([path], out, "shared", o)
    return CompiledModel(out)


def drift(
    model: CompiledModel, path: Path, name: str, state: tuple[str, str], start: tuple[int, ...], **fixed: np.ndarray
) -> np.ndarray:
    """The largest difference of the outputs of every step from onnxruntime's"""
    session = onnxruntime.InferenceSession(str(path))
    rng = np.random.default_rng(SEED)
    shape = next(s.shape for s in model.inputs if s.name == name)
    outputs = [o.name for o in session.get_outputs()]
    now = np.zeros(start, np.float32)
    out = []
    for k in range(STEPS):
        x = (rng.standard_normal(shape) * 0.1 * (1 + np.sin(k / 50))).astype(np.float32)
        want = dict(zip(outputs, session.run(None, {name: x, state[0]: now, **fixed}), strict=True))
        now = want.pop(state[1])
        got = model.run({name: x})
        assert got.keys() == want.keys()
        out.append(max(float(np.abs(got[n] - want[n]).max()) for n in want))
    return np.array(out)


@pytest.mark.slow
def test_half_of_silero_goes_with_its_sample_rate(shared: Path, cache: Path, tmp_path: Path) -> None:
    """Both rates in one image, a choice of the run; bound to one, the other's weights are gone, and state is kept"""
    path = shared / "models" / "silero_vad.onnx"
    o = Options(lto="none", cache=cache, shapes={"input": (1, 288), "state": (2, 1, 128)})
    both = built(path, tmp_path / "both.so", o)
    session = onnxruntime.InferenceSession(str(path))
    rng, state = np.random.default_rng(SEED), np.zeros((2, 1, 128), np.float32)
    for rate in (16000, 8000, 16000, 44100):
        f = {"input": rng.standard_normal((1, 288)).astype(np.float32), "state": state, "sr": np.array(rate)}
        want = session.run(None, f)
        got, state = both.run(f), want[1]
        np.testing.assert_allclose(got["output"], want[0], rtol=1e-4, atol=1e-6)
        np.testing.assert_allclose(got["stateN"], want[1], rtol=1e-4, atol=1e-5)
    bound = {"sr": np.array(16000)}
    half = built(path, tmp_path / "half.so", replace(o, bind=bound))
    assert half.weights_bytes < 0.55 * both.weights_bytes
    assert (tmp_path / "half.so").stat().st_size < 0.55 * (tmp_path / "both.so").stat().st_size
    one = built(path, tmp_path / "one.so", replace(o, shapes={"input": (1, 576), "state": (2, 1, 128)}, bind=bound,
                                                   persist=(("state", "stateN"),)))
    assert [p.name for p in (*one.inputs, *one.outputs)] == ["input", "output"]
    found = drift(one, path, "input", ("state", "stateN"), (2, 1, 128), **bound)
    assert found.max() < 1e-5, found.max()


@pytest.mark.parametrize("name, port, state", [
    ("dtln_1", "input_2", ("input_3", "tf_op_layer_stack_2")),
    ("dtln_2", "input_4", ("input_5", "tf_op_layer_stack_5")),
])
def test_noise_suppression_does_not_drift(
    name: str, port: str, state: tuple[str, str], shared: Path, cache: Path, tmp_path: Path
) -> None:
    path = shared / "models" / f"{name}.onnx"
    model = built(path, tmp_path / "m.so", Options(lto="none", cache=cache, persist=(state,)))
    found = drift(model, path, port, state, (1, 2, 128, 2))
    assert found.max() < 1e-4 and found[-100:].max() < 1e-5, (found.max(), found[-100:].max())  # noise saturates it


@pytest.mark.skipif(not litert.installed(), reason=f"LiteRT is the reference: {litert.INSTALL}")
def test_a_wake_word_is_exact_for_a_thousand_steps(shared: Path, cache: Path, tmp_path: Path) -> None:
    path = shared / "models" / "mww_v2_vad.tflite"
    model = built(path, tmp_path / "m.so", Options(lto="none", cache=cache))
    session, rng = litert.Session(path), np.random.default_rng(SEED)
    (spec,) = model.inputs
    for _ in range(STEPS):
        f = {spec.name: rng.integers(-128, 128, spec.shape).astype(spec.dtype)}
        want, got = session.run(f), model.run(f)
        assert all(got[n].tobytes() == want[n].tobytes() for n in want)
