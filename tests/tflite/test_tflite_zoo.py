"""Trained TFLite models from the zoo beside the repository, against the answers of LiteRT's reference kernels.

Integers must be equal in every bit; models that keep state run all their steps.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import monobloc
from monobloc.frontend.tflite import load_tflite
from monobloc.frontend.tflite.schema import read_model

MODELS = ("tflm_hello_world_fp32", "tflm_hello_world_int8", "tflm_micro_speech_int8", "mlperftiny_ad_int8",
          "mlperftiny_kws_int8", "mlperftiny_ic_int8", "mlperftiny_ic_fp32", "mww_v2_vad", "tflm_mnist_lstm_fp32",
          "tflm_mnist_lstm_int8")
SLOW = ("mlperftiny_kws_fp32", "mlperftiny_vww_int8", "mlperftiny_vww_fp32", "coral_mobilenet_v1_025_128_quant",
        "mww_v2_hey_mycroft", "tflm_person_detect_int8", "dtln_quant_1_tfl", "mp_face_detection_short_range",
        "basic_pitch_tfl")


@pytest.mark.parametrize("name", [*MODELS, *(pytest.param(n, marks=pytest.mark.slow) for n in SLOW)])
def test_zoo(shared: Path, cache: Path, name: str) -> None:
    folder = shared / "models"
    about = json.loads((folder / f"{name}.json").read_text())
    path, tolerance = folder / about["file"], about["tolerance"]
    main = read_model(path).main
    names = [[main.tensors[t].name for t in side] for side in (main.inputs, main.outputs)]
    for e in about["examples"]:
        m = monobloc.compile(path, lto="none", cache=cache)
        z, steps = np.load(folder / e["npz"]), e.get("steps") or 0
        ins, outs = ([z[p + n] if p + n in z.files else z[f"{p}{k}"] for k, n in enumerate(side)]
                     for p, side in zip(("in_", "out_"), names, strict=True))
        for step in range(max(steps, 1)):
            given = [x[step] if steps else x for x in ins]
            got = m.run({s.name: x.reshape(s.shape) for s, x in zip(m.inputs, given, strict=True)})
            for s, want in zip(m.outputs, outs, strict=True):
                w, g = (want[step] if steps else want).astype(np.float64), got[s.name].astype(np.float64)
                limit = 0 if tolerance.get("exact") else tolerance["atol"] + tolerance["rtol"] * np.abs(w)
                assert got[s.name].dtype == want.dtype and g.shape == w.shape
                assert (np.abs(g - w) <= limit).all(), f"{e['npz']}, step {step}, {s.name}: {np.abs(g - w).max()}"
        m.stop()


@pytest.mark.parametrize("name", ("mlperftiny_ic_fp32", "mlperftiny_kws_int8", "mlperftiny_vww_fp32"))
def test_transposes_only_at_the_ends(shared: Path, name: str) -> None:
    g = load_tflite(shared / "models" / f"{name}.tflite").graph
    assert sum(n.op == "Transpose" for n in g.nodes) <= 2
