"""The audio front end of TFLite Micro (custom operators `Signal...`): from samples to the logarithms of filter banks.

What a run keeps (samples that are yet to come in another frame, the noise so far) is state, as variables are. Parts of
a result that TFLite Micro's kernels leave as they were, while no whole frame is there, are zeros or what came before.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from monobloc.frontend.tflite.flexbuffer import numbers
from monobloc.frontend.tflite.node import Result, TflNode
from monobloc.frontend.tflite.variables import start
from monobloc.ir.graph import Value
from monobloc.ir.types import DType, TensorType
from monobloc.ops.movement import slice_of
from monobloc.ops.shape import reshape
from monobloc.ops.spectral import transform
from monobloc.ops.tfl_signal import GAINS, log_table, tables

I16, I32, I64, U32, U64, F32, BOOL = (DType.I16, DType.I32, DType.I64, DType.U32, DType.U64, DType.F32, DType.BOOL)
MOST_FRAMES = 64  # of one run, which are written out


# -- what all need --------------------------------------------------------------------------------------
def options(n: TflNode, *names: str, low: int = 0, high: int = 1 << 24) -> list[int]:
    found = numbers(n.custom)
    if missing := [k for k in names if k not in found]:
        n.fail(f"has no option {', '.join(missing)}")
    values = [int(found[k]) for k in names]
    if bad := [f"{k} = {v}" for k, v in zip(names, values, strict=True) if not low <= v <= high]:
        n.fail(f"has the options {', '.join(bad)}, which must be {low} to {high}")
    return values


def given(n: TflNode, *types: DType) -> list[Value]:
    """Inputs of these types"""
    found = [n.x(k) for k in range(len(types))]
    if [v.dtype for v in found] != list(types):
        n.unsupported(f"{n.op} of {', '.join(str(v.type) for v in found)}")
    return found


def state(n: TflNode, what: str, dtype: DType, shape: tuple[int, ...]) -> tuple[str, Value]:
    """The name of what is kept, and what it was after the last run"""
    name = f"{n.outs[0].name or n.op}.{what}.{n.outs[0].index}"
    start(n, name, TensorType(dtype, shape))
    return name, n.states.now[name]


def rows(n: TflNode, x: Value) -> Value:
    """[outer, last axis]"""
    if not x.type.rank or not x.type.size:
        n.fail(f"has samples {x.type}")
    return reshape(n.b, x, [x.type.size // x.shape[-1], x.shape[-1]])


def columns(n: TflNode, x: Value, first: int, count: int) -> Value:
    return slice_of(n.b, x, [(0, 1, x.shape[0]), (first, 1, count)])


def behind(n: TflNode, what: str, x: Value, held: int) -> Value:
    """[outer, held + new]: the last samples of runs before, and those of this one"""
    name, before = state(n, what, x.dtype, (x.shape[0], held))
    line: Value = n.b.one("Concat", before, x, axis=1) if held else x
    n.states.now[name] = columns(n, line, line.shape[1] - held, held)
    return line


def clipped(n: TflNode, v: Value) -> Value:
    """int32 cut to int16"""
    return n.b.one("Cast", n.b.one("Clip", v, n.b.const(-32768, v.dtype), n.b.const(32767, v.dtype)), to=I16)


# -- transforms -------------------------------------------------------------------------------------------
def window(n: TflNode) -> Result:
    x, w = given(n, I16, I16)
    shift, = options(n, "shift", high=31)
    if w.type.rank != 1 or not w.type.size or x.type.size % w.type.size:
        n.fail(f"has {x.type} of windows {w.type}")
    parts = reshape(n.b, x, [x.type.size // w.type.size, w.type.size])
    product = n.b.one("Mul", n.b.one("Cast", parts, to=I32), n.b.one("Cast", w, to=I32))
    shifted = n.b.one("BitShift", product, n.b.const(shift, I32), direction="RIGHT")
    return [reshape(n.b, clipped(n, shifted), list(x.shape))]


def fourier(n: TflNode) -> Result:
    """Real numbers to pairs, or back; of whole numbers every step is one of TFLite Micro's"""
    x, inverse = n.x(0), n.op == "SignalIrfft"
    length, = options(n, "fft_length", low=4, high=1 << 16)
    if length & (length - 1) or x.dtype not in (I16, I32, F32):
        n.unsupported(f"{n.op} of {x.type} to the length {length}, which is not a power of two")
    parts = rows(n, x)
    if parts.shape[1] != length + 2 if inverse else parts.shape[1] > length:
        n.fail(f"transforms {x.type} to the length {length}")
    if x.dtype is F32:
        y = _of_floats(n, parts, length, inverse)
    else:
        whole = [n.b.const(t) for t in tables(length, inverse, x.dtype)]
        y = n.b.one("TflRfft", parts, *whole, inverse=int(inverse))
    return [reshape(n.b, y, [*x.shape[:-1], y.type.size // parts.shape[0]])]


def _of_floats(n: TflNode, x: Value, length: int, inverse: bool) -> Value:
    if inverse:
        return transform(n.b, n, reshape(n.b, x, [x.shape[0], length // 2 + 1, 2]), 1, length, True, True)
    return transform(n.b, n, reshape(n.b, x, [*x.shape, 1]), 1, length, False, True)


def auto_scale(n: TflNode) -> Result:
    """As many bits to the left as the largest number has room for, and how many that were"""
    x, = given(n, I16)
    return n.b.emit("TflAutoScale", [x], outputs=2)


# -- filter banks -------------------------------------------------------------------------------------------
def energy(n: TflNode) -> Result:
    """The squares of complex numbers from `start_index` to `end_index`; zeros round them"""
    x, = given(n, I16)
    end, first = options(n, "end_index", "start_index")
    if x.type.rank != 1 or x.shape[0] % 2 or not first <= end <= x.shape[0] // 2:
        n.fail(f"has numbers {first} to {end} of {x.type}")
    wide = n.b.one("Cast", reshape(n.b, x, [x.shape[0] // 2, 2]), to=U32)
    total = n.b.one("ReduceSum", n.b.one("Mul", wide, wide), axes=[1], keepdims=0)
    at = np.arange(x.shape[0] // 2)
    if first > 0 or end < len(at):
        total = n.b.one("Where", n.b.const((at >= first) & (at < end)), total, n.b.const(0, U32))
    return [total]


def filter_bank(n: TflNode) -> Result:
    x, *rest = given(n, U32, *[I16] * 5)
    count, = options(n, "num_channels", low=1)
    known = [n.const(k, "a filter bank").astype(np.int64) for k in range(1, 6)]
    weights, left, first, at, widths = known
    if x.type.rank != 1 or any(v.shape != (count + 1,) for v in (first, at, widths)) or weights.shape != left.shape:
        n.fail(f"has {count} channels of {', '.join(str(v.type) for v in (x, *rest))}")
    if min(first.min(), at.min(), widths.min()) < 0 or (first + widths).max() > x.shape[0] or (
            at + widths).max() > weights.size:
        n.fail(f"has channels that lead out of {x.type} and {weights.size} weights")
    return [n.b.one("TflFilterBank", x, *rest)]


def root(n: TflNode) -> Result:
    x, bits = given(n, U64, I32)
    if bits.type.size != 1:
        n.fail(f"takes away {bits.type} bits")
    return [n.b.one("TflRoot", x, bits)]


def subtraction(n: TflNode) -> Result:
    """The signal without the noise, which is what a slow filter makes of the signal"""
    x, = given(n, U32)
    names = ("smoothing", "one_minus_smoothing", "alternate_smoothing", "alternate_one_minus_smoothing",
             "min_signal_remaining")
    factors = options(n, *names, high=(1 << 31) - 1)
    clamping, bits, down = options(n, "clamping", "smoothing_bits", "spectral_subtraction_bits", high=31)
    if x.type.rank != 1:
        n.fail(f"has channels {x.type}")
    odd = np.arange(x.shape[0]) % 2 == 1
    take, keep = (n.b.const(np.where(odd, other, own), U64) for own, other in (factors[::2][:2], factors[1:4:2]))
    name, noise = state(n, "noise", U32, x.shape)

    def shifted(v: Value, by: int, direction: str) -> Value:
        return n.b.one("BitShift", v, n.b.const(by, v.dtype), direction=direction)

    def wide(v: Value) -> Value:
        return n.b.one("Cast", v, to=U64)

    up = shifted(x, bits, "LEFT")
    mixed = n.b.one("Add", n.b.one("Mul", wide(up), take), n.b.one("Mul", wide(noise), keep))
    noise = n.b.one("Cast", shifted(mixed, down, "RIGHT"), to=U32)
    below = n.b.one("Min", noise, up)
    noise = below if clamping else noise
    n.states.now[name] = noise
    least = n.b.one("Mul", wide(x), n.b.const(factors[4], U64))
    least = n.b.one("Cast", shifted(least, down, "RIGHT"), to=U32)
    return [n.b.one("Max", shifted(n.b.one("Sub", up, below), bits, "RIGHT"), least), noise]


def gain(n: TflNode) -> Result:
    x, noise, table = given(n, U32, U32, I16)
    shift, = options(n, "snr_shift", high=63)
    if noise.shape != x.shape or table.type.rank != 1 or table.shape[0] < GAINS:
        n.fail(f"has {x.type}, noise {noise.type} and gains {table.type}, of which {GAINS} are needed")
    return [n.b.one("TflPcan", x, noise, table, shift=shift)]


def logarithm(n: TflNode) -> Result:
    x, = given(n, U32)
    bits, = options(n, "input_correction_bits", high=31)
    scale, = options(n, "output_scale", high=(1 << 31) - 1)
    return [n.b.one("TflLog", x, n.b.const(log_table()), scale=scale, bits=bits)]


# -- frames -------------------------------------------------------------------------------------------------
def frames(n: TflNode) -> Result:
    """Frames of `frame_size` samples, each `frame_step` behind the last, and whether all of them are there"""
    x, = given(n, I16)
    size, step = options(n, "frame_size", "frame_step", low=1)
    prefill, = options(n, "prefill", high=1)
    line, count = rows(n, x), x.shape[-1] // step
    if x.shape[-1] % step or step > size:
        n.fail(f"cuts {x.type} into frames of {size} every {step}")
    needed = -(-size // step)  # steps until the first frame is whole
    held = size - step if prefill else (needed - 1) * step
    line = behind(n, "samples", line, held)
    at = np.arange(count)[:, None] * step + np.arange(size)
    y = reshape(n.b, n.b.one("Gather", line, n.b.const(at), axis=1), [*x.shape[:-1], count, size])
    if prefill:
        return [y, n.b.const(np.ones((), bool))]
    name, seen = state(n, "steps", I32, ())
    n.states.now[name] = n.b.one("Min", n.b.one("Add", seen, n.b.const(count, I32)), n.b.const(needed, I32))
    return [y, n.b.one("GreaterOrEqual", seen, n.b.const(needed - 1, I32))]


def stack(n: TflNode) -> Result:
    """A vector with those before and behind it, and whether enough came; the first is taken for those before it"""
    x, = given(n, I16)
    size, step = options(n, "num_channels", "stacker_step", low=1)
    left, right = options(n, "stacker_left_context", "stacker_right_context", high=1 << 12)
    whole = left + right + 1
    if x.shape != (size,) or step > whole:
        n.fail(f"stacks {x.type} of {size} channels every {step} of {whole}")
    held = (left + right) * size
    kept, before = state(n, "vectors", I16, (1, held))
    name, seen = state(n, "seen", I32, ())  # one more than there are, 0 before the first
    none, new = n.b.one("Equal", seen, n.b.const(0, I32)), reshape(n.b, x, [1, size])
    copies = reshape(n.b, n.b.one("Expand", x, shape=[left + right, size]), [1, held])
    before = n.b.one("Where", none, copies, before)
    line = n.b.one("Concat", before, new, axis=1) if held else new
    n.states.now[kept] = columns(n, line, size, held)
    there = n.b.one("Add", seen, n.b.one("Where", none, n.b.const(2 + left, I32), n.b.const(1, I32)))
    valid = n.b.one("Greater", there, n.b.const(whole, I32))
    n.states.now[name] = n.b.one("Where", valid, n.b.one("Sub", there, n.b.const(step, I32)), there)
    return [reshape(n.b, line, [held + size]), valid]


def delay(n: TflNode) -> Result:
    x, = given(n, I16)
    by, = options(n, "delay_length")
    line = behind(n, "samples", rows(n, x), by)
    return [reshape(n.b, columns(n, line, 0, x.shape[-1]), list(x.shape))]


def overlap(n: TflNode) -> Result:
    """Frames added where they overlap, a step of each"""
    x, (step,) = n.x(0), options(n, "frame_step", low=1)
    if x.dtype not in (I16, F32) or x.type.rank < 2:
        n.unsupported(f"{n.op} of {x.type}")
    count, size = x.shape[-2:]
    if step > size or not 0 < count <= MOST_FRAMES:
        n.fail(f"adds {count} frames of {size} every {step}")
    outer = x.type.size // (count * size)
    parts = reshape(n.b, x, [outer, count * size])
    name, total = state(n, "sums", x.dtype, (outer, size))
    none: Any = n.b.const(np.zeros((outer, step), x.dtype.numpy))
    made = []
    for k in range(count):
        total = _added(n, total, columns(n, parts, k * size, size))
        made.append(columns(n, total, 0, step))
        total = n.b.one("Concat", columns(n, total, step, size - step), none, axis=1) if step < size else none
    n.states.now[name] = total
    y = made[0] if count == 1 else n.b.emit("Concat", made, {"axis": 1})[0]
    return [reshape(n.b, y, [*x.shape[:-2], count * step])]


def _added(n: TflNode, a: Value, c: Value) -> Value:
    if a.dtype is F32:
        return n.b.one("Add", a, c)
    return clipped(n, n.b.one("Add", *(n.b.one("Cast", v, to=I32) for v in (a, c))))


READERS = {
    "SignalWindow": window, "SignalRfft": fourier, "SignalIrfft": fourier, "SignalFftAutoScale": auto_scale,
    "SignalEnergy": energy, "SignalFilterBank": filter_bank, "SignalFilterBankSquareRoot": root,
    "SignalFilterBankSpectralSubtraction": subtraction, "SignalPCAN": gain, "SignalFilterBankLog": logarithm,
    "SignalFramer": frames, "SignalStacker": stack, "SignalDelay": delay, "SignalOverlapAdd": overlap,
}  # fmt: skip
