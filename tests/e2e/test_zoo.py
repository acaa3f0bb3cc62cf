"""Trained models from the zoo beside the repository: every mode, every thread count, against recorded answers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from monobloc import driver
from monobloc.loader import CompiledModel
from monobloc.options import Options

SMALL = (
    "mnist8_onnx2c", "mnist_pytorch_onnx2c", "winml_iris_mlp", "emx_micro_kws_m_static_fp32",
    "super_resolution_connxr", "dnsmos_sig_bak_ovr", "aecmos_1663915512", "basic_pitch", "dtln_1", "dtln_2",
    "magika_v3_3", "byte_sb_bidi_lstm", "mnist_quantized_connxr", "emx_micro_kws_m_static_qdq",
    "emx_micro_kws_m_static_qoperator", "tashkeel_rawi_int8",
)  # fmt: skip
# hundreds of layers: one mode
LARGE = ("squeezenet_fp16", "ppocr_cls_v2", "ppocrv4_det", "ultraface_rfb_320", "q_ppocr_cls_v2_qdq_s8s8_pc")
MODES = {**dict.fromkeys(SMALL, ("none", "thin", "full")), **dict.fromkeys(LARGE, ("thin",))}


def examples(folder: Path, about: dict[str, Any]) -> list[tuple[dict[str, np.ndarray], dict[str, np.ndarray]]]:
    """(inputs, wanted outputs) by name."""
    out = []
    for e in about["examples"]:
        z = np.load(folder / e["npz"])
        out.append(tuple({k.split("_", 1)[1]: z[k] for k in z.files if k.startswith(p)} for p in ("in_", "out_")))
    return out  # type: ignore[return-value]


def compare(got: np.ndarray, want: np.ndarray, tolerance: dict[str, Any], what: str) -> None:
    """The zoo's own rule."""
    assert (got.shape, got.dtype) == (want.shape, want.dtype), what
    assert want.dtype.kind != "f" or np.isfinite(got).all(), f"{what}: not finite"
    off = np.abs(got.astype(np.float64) - want.astype(np.float64))
    limit = 0 if tolerance.get("exact") else tolerance["atol"] + tolerance["rtol"] * np.abs(want.astype(np.float64))
    assert (off <= limit).all(), f"{what}: off by {off.max():.3g} in {(off > limit).sum()} of {off.size}"
    if tolerance.get("atol_mean") and off.size:
        assert off.mean() <= tolerance["atol_mean"], f"{what}: mean error {off.mean():.3g}"


@pytest.mark.parametrize("name", MODES)
def test_zoo(shared: Path, cache: Path, tmp_path: Path, name: str) -> None:
    folder = shared / "models"
    about = json.loads((folder / f"{name}.json").read_text())
    seen: dict[tuple[int, str], bytes] = {}  # the first answer to each example, by output
    for lto in MODES[name]:
        libraries: dict[tuple[object, ...], CompiledModel] = {}
        for k, (feeds, wants) in enumerate(examples(folder, about)):
            shapes = {n: x.shape for n, x in feeds.items()}
            key = tuple(shapes.items())
            if key not in libraries:
                out = tmp_path / f"{lto}{len(libraries)}.so"
                o = Options(shapes=shapes, threads=2, jobs=2, lto=lto, cache=cache)  # type: ignore[arg-type]
                driver.build([folder / about["file"]], out, "shared", o)
                libraries[key] = CompiledModel(out)
            m = libraries[key]
            for threads in (1, 2):
                m.set_threads(threads)
                got = m.run(feeds)
                for n, want in wants.items():
                    what = f"{name} example {k} output {n}, --lto {lto}, {threads} threads"
                    compare(got[n], want, about["tolerance"], what)
                    first = seen.setdefault((k, n), got[n].tobytes())
                    assert got[n].tobytes() == first, f"{what}: other bits than in the first mode"
        for m in libraries.values():
            m.stop()


@pytest.mark.parametrize("name", ["mnist8_onnx2c", "aecmos_1663915512"])
def test_one_thread_is_the_same_build(shared: Path, cache: Path, tmp_path: Path, name: str) -> None:
    """Building for one thread changes the plan, never the answer."""
    folder = shared / "models"
    about = json.loads((folder / f"{name}.json").read_text())
    feeds, _ = examples(folder, about)[0]
    answers = []
    for threads in (1, 2):
        o = Options(shapes={n: x.shape for n, x in feeds.items()}, threads=threads, cache=cache)
        m = CompiledModel(driver.build([folder / about["file"]], tmp_path / f"{threads}.so", "shared", o).path)
        answers.append(b"".join(y.tobytes() for y in m.run(feeds).values()))
        m.stop()
    assert answers[0] == answers[1]
