"""The audio front end of TFLite Micro: what its answers to single operators (`cases_signal.py`) do not hold."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cases_signal import signal
from flatbuffers import flexbuffers
from tfl_files import Net
from tfl_single import F32, I16, I32, Case, Q, graph_of

from monobloc import driver
from monobloc.errors import MonoblocError
from monobloc.frontend.tflite import load_tflite
from monobloc.ir.interp import interpret
from monobloc.loader import CompiledModel
from monobloc.options import Options


def steps_of(case: Case) -> tuple[list[dict[str, np.ndarray]], list[list[np.ndarray]]]:
    """What is fed in each run, and what comes out"""
    g, feeds = graph_of([case])
    kept = {v.name: np.zeros(v.shape, v.dtype.numpy) for v in g.inputs if v.state}
    made = []
    for one in feeds:
        got = interpret(g, {**kept, **one})
        kept = {v.name: got[v.state] for v in g.inputs if v.state}
        made.append([got[f"c0.y{k}"] for k in range(len(case.outs))])
    return feeds, made


def test_transforms_of_floats() -> None:
    feeds, [[y]] = steps_of(signal("f", "Rfft", (Q((2, 30), F32),), Q((2, 34), F32), T=0, fft_length=32))
    x = feeds[0]["c0.x0"]
    np.testing.assert_allclose(y.view(np.complex64), np.fft.rfft(x, 32), rtol=1e-4, atol=1e-4)
    feeds, [[y]] = steps_of(signal("f", "Irfft", (Q((2, 34), F32),), Q((2, 32), F32), T=0, fft_length=32))
    x = feeds[0]["c0.x0"]
    np.testing.assert_allclose(y, np.fft.irfft(x.view(np.complex64), 32), rtol=1e-4, atol=1e-4)
    frames = Q((1, 2, 8), F32)
    feeds, made = steps_of(signal("f", "OverlapAdd", (frames,), Q((1, 6), F32), steps=3, T=0, frame_step=3))
    line = np.zeros(24)
    for k, one in enumerate(np.concatenate([f["c0.x0"].reshape(2, 8) for f in feeds])):
        line[3 * k : 3 * k + 8] += one
    np.testing.assert_allclose(np.concatenate([y.ravel() for y, in made]), line[:18], rtol=1e-5)


@pytest.mark.parametrize("count", [1, 2])
def test_frames_that_are_not_whole_yet(count: int) -> None:
    out = Q((count, 10), I16), Q((), bool)
    feeds, made = steps_of(signal("n", "Framer", (Q((4 * count,), I16),), out, steps=6, frame_size=10, frame_step=4,
                                  prefill=False))
    line, at = np.concatenate([f["c0.x0"] for f in feeds]), 0
    for run, (y, valid) in enumerate(made):
        assert bool(valid) == (run * count >= 2)
        for frame in y if valid else ():
            np.testing.assert_array_equal(frame, line[at : at + 10])
            at += 4
        at += 4 * max(0, (run + 1) * count - 2) if not valid else 0


@pytest.mark.parametrize("step", [1, 2, 4])
def test_vectors_that_are_not_there_yet(step: int) -> None:
    """One before and two behind; the first stands for the one before it"""
    out = Q((12,), I16), Q((), bool)
    feeds, made = steps_of(signal("s", "Stacker", (Q((3,), I16),), out, steps=9, num_channels=3,
                                  stacker_left_context=1, stacker_right_context=2, stacker_step=step))
    line = [feeds[0]["c0.x0"], *(f["c0.x0"] for f in feeds)]
    for run, (y, valid) in enumerate(made):
        assert bool(valid) == (run >= 2 and (run - 2) % step == 0)
        if valid:
            np.testing.assert_array_equal(y, np.concatenate(line[run - 2 : run + 2]))


def test_energies_round_those_that_are_asked_for_are_zeros() -> None:
    feeds, [[y]] = steps_of(signal("some", "Energy", (Q((12,), I16),), Q((6,), np.uint32), start_index=1, end_index=4))
    pairs = feeds[0]["c0.x0"].reshape(6, 2).astype(np.int64)
    want = (pairs**2).sum(1)
    want[[0, 4, 5]] = 0
    np.testing.assert_array_equal(y, want)


def bytes_of(**options: Any) -> bytes:
    return bytes(flexbuffers.Dumps(options))


def front_end() -> bytes:
    """From 20 samples a run to the logarithms of five channels, each operator with its next"""
    net, rng = Net(), np.random.default_rng(8)
    x = net.tensor("x", (20,), I16)
    frame, valid = net.tensor("frame", (1, 32), I16), net.tensor("valid", (), bool)
    net.op("SignalFramer", [x], [frame, valid], {}, bytes_of(frame_size=32, frame_step=20, prefill=True))
    hann = net.const("hann", (4096 * np.hanning(32)).astype(I16))
    windowed, flat = net.tensor("windowed", (1, 32), I16), net.tensor("flat", (32,), I16)
    net.op("SignalWindow", [frame, hann], [windowed], {}, bytes_of(shift=12))
    net.op("RESHAPE", [windowed, net.const("to", np.array([32], I32))], [flat])
    scaled, bits = net.tensor("scaled", (32,), I16), net.tensor("bits", (), I32)
    net.op("SignalFftAutoScale", [flat], [scaled, bits])
    spectrum, power = net.tensor("spectrum", (34,), I16), net.tensor("power", (17,), np.uint32)
    net.op("SignalRfft", [scaled], [spectrum], {}, bytes_of(T=7, fft_length=32))
    net.op("SignalEnergy", [spectrum], [power], {}, bytes_of(start_index=0, end_index=17))
    widths = np.array([2, 2, 3, 3, 3, 3], I16)
    at = np.cumsum([0, *widths[:-1]]).astype(I16)
    weights = rng.integers(0, 4096, 16).astype(I16)
    tables = [net.const(f"t{k}", v) for k, v in enumerate((weights, (4096 - weights).astype(I16), at, at, widths))]
    bank, root = net.tensor("bank", (5,), np.uint64), net.tensor("root", (5,), np.uint32)
    net.op("SignalFilterBank", [power, *tables], [bank], {}, bytes_of(num_channels=5))
    net.op("SignalFilterBankSquareRoot", [bank, bits], [root])
    clean, noise, even = (net.tensor(name, (5,), np.uint32) for name in ("clean", "noise", "even"))
    net.op("SignalFilterBankSpectralSubtraction", [root], [clean, noise], {}, bytes_of(
        alternate_one_minus_smoothing=14746, alternate_smoothing=1638, clamping=False, min_signal_remaining=819,
        num_channels=5, one_minus_smoothing=15974, smoothing=410, smoothing_bits=10, spectral_subtraction_bits=14))
    gains = net.const("gains", (32000 // (1 + np.arange(125))).astype(I16))
    net.op("SignalPCAN", [clean, noise, gains], [even], {}, bytes_of(snr_shift=3))
    y = net.tensor("y", (5,), I16)
    net.op("SignalFilterBankLog", [even], [y], {}, bytes_of(input_correction_bits=3, output_scale=1600))
    return net.file([x], [y])


# what the package tflite-micro answered to four runs
ANSWERS = [[21719, 21490, 21296, 21021, 20854], [21919, 20845, 21860, 20895, 21312],
           [23011, 19771, 22968, 19740, 20572], [21752, 20065, 21735, 20241, 21219]]


def runs() -> list[np.ndarray]:
    t = np.arange(80)
    wave = 9000 * np.sin(t * 0.7) + 4000 * np.sin(t * 2.1) + np.random.default_rng(9).integers(-300, 300, 80)
    return list(wave.astype(I16).reshape(4, 20))


def test_a_whole_front_end(tmp_path: Path, cache: Path) -> None:
    file = tmp_path / "front.tflite"
    file.write_bytes(front_end())
    out = tmp_path / "front.so"
    driver.build([file], out, "shared", Options(lto="none", cache=cache))
    m = CompiledModel(out)
    assert [m.run({"x": x})["y"].tolist() for x in runs()] == ANSWERS


@pytest.mark.parametrize(("case", "message"), [
    (signal("w", "Window", (Q((9,), I16), np.ones(4, I16)), Q((9,), I16), shift=3), "of windows"),
    (signal("o", "Window", (Q((8,), I16), np.ones(4, I16)), Q((8,), I16)), "has no option shift"),
    (signal("r", "Rfft", (Q((9,), I16),), Q((14,), I16), T=7, fft_length=12), "not a power of two"),
    (signal("l", "Rfft", (Q((19,), I16),), Q((18,), I16), T=7, fft_length=16), "to the length 16"),
    (signal("f", "Framer", (Q((9,), I16),), (Q((2, 5), I16), Q((), bool)), frame_size=5, frame_step=4, prefill=True),
     "into frames of 5 every 4"),
    (signal("b", "FilterBank", (Q((4,), np.uint32), *[np.ones(2, I16)] * 2, *(np.array(v, I16) for v in (
        [0, 3], [0, 1], [1, 2]))), Q((1,), np.uint64), num_channels=1), "lead out of"),
    (signal("p", "PCAN", (Q((4,), np.uint32), Q((4,), np.uint32), np.ones(9, I16)), Q((4,), np.uint32), snr_shift=1),
     "of which 125 are needed"),
    (signal("t", "Delay", (Q((4,), F32),), Q((4,), F32), delay_length=1), "SignalDelay of f32"),
])
def test_what_is_refused(case: Case, message: str) -> None:
    with pytest.raises(MonoblocError, match=message):
        load_tflite(case.model()[0])
