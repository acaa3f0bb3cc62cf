"""Single operators of int16 from a trained speech model, beside the repository: every bit of every answer."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import monobloc
from monobloc.frontend.tflite import load_tflite
from monobloc.verify_run import reference

FAMILIES = {"add": 17, "conv": 22, "leaky_relu": 23, "pad": 19, "quantize": 2, "strided_slice": 34, "sub": 5,
            "transpose_conv": 5}


def numbers(path: Path) -> np.ndarray:
    return np.array([float(x) for x in re.split(r"[,\s]+", path.read_text().strip()) if x])


@pytest.mark.parametrize("family", FAMILIES)
def test_seanet(shared: Path, cache: Path, family: str) -> None:
    folder = shared / "tflite_ops" / "seanet" / family
    models = sorted(folder.glob("*.tflite"))
    assert len(models) == FAMILIES[family]
    for k, path in enumerate(models):
        g = load_tflite(path).graph
        files = sorted(folder.glob(f"{path.stem}_input*.csv"))
        feeds = {v.name: numbers(f).astype(v.dtype.numpy).reshape(v.shape)
                 for v, f in zip(g.inputs, files, strict=False) if v.users}
        feeds |= {v.name: np.zeros(v.shape, v.dtype.numpy) for v in g.inputs if not v.users}
        want = numbers(next(iter(sorted(folder.glob(f"{path.stem}_golden*.csv")))))
        got = reference(g, feeds)[g.outputs[0][0]]
        assert np.array_equal(got.ravel(), want), path.name
        if k == 0:  # what is compiled says the same
            made = monobloc.compile(path, lto="none", cache=cache).run(feeds)[g.outputs[0][0]]
            assert np.array_equal(made.ravel(), want), path.name
