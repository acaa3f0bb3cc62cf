"""The audio front end of TFLite Micro, which LiteRT does not have: what its own kernels answered, step by step"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from flatbuffers import flexbuffers
from tfl_single import I16, I32, Case, Q

U32, U64, LOUD = np.uint32, np.uint64, 1 << 15


def signal(name: str, op: str, ins: tuple[Any, ...], out: Any, steps: int = 1, **options: Any) -> Case:
    about = bytes(flexbuffers.Dumps(options))
    return Case(f"{op} {name}", f"Signal{op}", ins, out, custom=about, steps=steps, micro=True)


def every() -> Iterator[Case]:
    yield from transforms()
    yield from channels()
    yield from frames()


def transforms() -> Iterator[Case]:
    rng = np.random.default_rng(5)
    for shape, size, shift in (((24,), 24, 12), ((2, 3, 8), 8, 15), ((4, 5), 5, 0)):
        w = rng.integers(-LOUD, LOUD, size).astype(I16)
        yield signal(f"{size}", "Window", (Q(shape, I16), w), Q(shape, I16), shift=shift)
    for dtype, kind in ((I16, 7), (I32, 2)):
        for length, taken, outer in ((512, 480, ()), (256, 256, (2,)), (8, 8, ()), (4, 3, (3,)), (32, 32, ())):
            x, y = (*outer, taken), (*outer, length + 2)
            name = f"{np.dtype(dtype).name} {length}"
            yield signal(name, "Rfft", (Q(x, dtype),), Q(y, dtype), T=kind, fft_length=length)
            yield signal(name, "Irfft", (Q(y, dtype),), Q((*outer, length), dtype), T=kind, fft_length=length)
    for k, most in enumerate((0, 1, 5, 2047, 2048, 30000)):
        quiet = Q((16,), I16, low=-most, high=most)
        yield Case(f"FftAutoScale {k}", "SignalFftAutoScale", (quiet,), (Q((16,), I16), Q((), I32)), micro=True)
    lowest = np.full(4, -LOUD, I16), *(np.int16(v) for v in ([-LOUD, 0, 1, 2], [9, 5, -LOUD, -7], [1, -LOUD, 0, 0]))
    for k, x in enumerate(lowest):
        yield Case(f"FftAutoScale lowest {k}", "SignalFftAutoScale", (x,), (Q((4,), I16), Q((), I32)), micro=True)


def channels() -> Iterator[Case]:
    rng = np.random.default_rng(6)
    yield signal("all", "Energy", (Q((20,), I16),), Q((10,), U32), start_index=0, end_index=10)
    loud = np.full(8, -LOUD, I16)
    yield signal("loudest", "Energy", (loud,), Q((4,), U32), start_index=0, end_index=4)
    widths = np.array([3, 5, 2, 7, 0, 4], I16)
    at = np.cumsum([0, *widths[:-1]]).astype(I16)
    weights, rest = (rng.integers(-LOUD, LOUD, 21).astype(I16) for _ in range(2))
    ins = Q((30,), U32), weights, rest, (at + 4).astype(I16), at, widths
    yield signal("few", "FilterBank", ins, Q((5,), U64), num_channels=5)
    for bits in (0, 3):
        yield Case(f"FilterBankSquareRoot {bits}", "SignalFilterBankSquareRoot",
                   (Q((40,), U64, high=1 << 62), np.array(bits, I32)), Q((40,), U32), micro=True)
    exact = np.array([0, 1, 2, 3, 4, 12, 13, 65535**2, 2**32 - 1, 2**32, 2**64 - 1, (2**32 - 1) ** 2], U64)
    yield Case("FilterBankSquareRoot exact", "SignalFilterBankSquareRoot", (exact, np.array(0, I32)),
               Q(exact.shape, U32), micro=True)
    for clamping in (False, True):
        yield signal(f"{clamping}", "FilterBankSpectralSubtraction", (Q((7,), U32, high=1 << 22),),
                     (Q((7,), U32), Q((7,), U32)), steps=4, clamping=clamping, num_channels=7, smoothing=15000,
                     one_minus_smoothing=1384, alternate_smoothing=14000, alternate_one_minus_smoothing=2384,
                     smoothing_bits=8, spectral_subtraction_bits=14, min_signal_remaining=819)
    gains = np.abs(rng.integers(-LOUD, LOUD, 125)).astype(I16)
    for shift in (6, 12):
        ins = Q((30,), U32), Q((30,), U32), gains
        yield signal(f"{shift}", "PCAN", ins, Q((30,), U32), snr_shift=shift)
    quiet = np.arange(30).astype(U32)
    yield signal("quiet", "PCAN", (Q((30,), U32), quiet, gains), Q((30,), U32), snr_shift=8)
    for bits, scale in ((3, 1600), (0, 65536), (8, 1)):
        ins = (np.array([0, 1, 2, 3, 65535, 65536, 2**32 - 1], U32),)
        about = {"input_correction_bits": bits, "output_scale": scale}
        yield signal(f"{bits} edges", "FilterBankLog", ins, Q((7,), I16), **about)
        yield signal(f"{bits}", "FilterBankLog", (Q((30,), U32),), Q((30,), I16), **about)


def frames() -> Iterator[Case]:
    """Those without prefill leave their first results as they were, which are not compared."""
    for shape, size, step in (((160,), 400, 160), ((2, 12), 9, 4), ((6,), 6, 6)):
        outs = Q((*shape[:-1], shape[-1] // step, size), I16), Q((), bool)
        about = {"frame_size": size, "frame_step": step}
        yield signal(f"{size}", "Framer", (Q(shape, I16),), outs, steps=5, prefill=True, **about)
    outs = Q((1, 6), I16), Q((), bool)
    yield signal("whole", "Framer", (Q((6,), I16),), outs, steps=3, frame_size=6, frame_step=6, prefill=False)
    for left, right, step in ((0, 0, 1), (2, 0, 1), (2, 0, 3)):
        outs = Q((5 * (left + right + 1),), I16), Q((), bool)
        yield signal(f"{left} {right} {step}", "Stacker", (Q((5,), I16),), outs, steps=1 if step > 1 else 4,
                     num_channels=5, stacker_left_context=left, stacker_right_context=right, stacker_step=step)
    for shape, by in (((8,), 3), ((2, 6), 6), ((4,), 11), ((5,), 0)):
        yield signal(f"{by}", "Delay", (Q(shape, I16),), Q(shape, I16), steps=4, delay_length=by)
    for shape, step in (((1, 8), 3), ((3, 4, 6), 2), ((2, 5), 5)):
        out = (*shape[:-2], shape[-2] * step)
        yield signal(f"{step}", "OverlapAdd", (Q(shape, I16),), Q(out, I16), steps=3, T=7, frame_step=step)
