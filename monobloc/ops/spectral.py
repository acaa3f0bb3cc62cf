"""Fourier transforms, and the mel filter bank.

Real and imaginary parts lie side by side, so a short transform of any kind (complex, of real signals, their
inverses, padded or cut) is one product with a constant matrix on both. The matrix grows with the square of the length:
longer ones are a routine with a table of roots. Both sum in double, as the cancellation of large terms is what a
spectrum is made of.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from monobloc.ir.graph import Node, Value
from monobloc.ir.types import DType, TensorType
from monobloc.ops import Case, OpDef, Tol
from monobloc.ops.build import cast_to
from monobloc.ops.indexing import gather_const
from monobloc.ops.shape import axis_of

SHORT = 64  # lengths below which a transform is a matrix: the product is as fast, and fuses


def roots(length: int, powers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """cos and sin of 2 pi p / length, exact where they are 0, 1 or -1"""
    j = powers % length
    angle = 2 * np.pi * j / length
    cos, sin = np.cos(angle), np.sin(angle)
    cos[(4 * j == length) | (4 * j == 3 * length)] = 0
    sin[(j == 0) | (2 * j == length)] = 0
    return cos, sin


def dft_matrix(taken: int, parts: int, length: int, inverse: bool, onesided: bool) -> np.ndarray:
    """[taken, parts, made, 2 or 1]: from `taken` numbers (of 1 or 2 parts) to the transform's"""
    real_out = inverse and onesided
    made = length // 2 + 1 if onesided and not inverse else length
    n = np.arange(taken)[:, None]
    cos, sin = roots(length, n * np.arange(made)[None, :])
    sin = -sin if inverse else sin
    scale = np.full((taken, 1), 1 / length if inverse else 1.0)
    if real_out:  # bins that the other half repeats count twice
        scale[1 : (length + 1) // 2] *= 2
    scale[length // 2 + 1 if real_out else length :] = 0
    out = np.empty((taken, 2, made, 2))
    out[:, 0, :, 0], out[:, 0, :, 1] = scale * cos, scale * -sin
    out[:, 1, :, 0], out[:, 1, :, 1] = scale * sin, scale * cos
    return out[:, :parts, :, : 1 if real_out else 2]


def transform(b: Any, n: Any, x: Value, axis: int, length: int | None, inverse: bool, onesided: bool) -> Value:
    """The transform of `x` along an axis; its last axis holds the parts of a number."""
    rank, parts = x.type.rank, x.shape[-1]
    if rank < 2 or parts not in (1, 2) or axis == rank - 1:
        n.fail(f"needs signals with a last axis of 1 or 2 parts, got {x.type} and axis {axis}")
    taken = int(x.shape[axis])  # each has a table of its own
    full = length if length is not None else 2 * (taken - 1) if inverse and onesided else taken
    if full < 1:
        n.fail(f"a transform of length {full} is none")
    perm = [k for k in range(rank - 1) if k != axis] + [axis, rank - 1]
    rows = [x.shape[k] for k in perm[:-2]]
    wide = cast_to(b, x, DType.F64)
    flat = b.one("Reshape", b.one("Transpose", wide, perm=perm), shape=[math.prod(rows), taken, parts])
    if full < SHORT:
        y = _short(b, flat, full, inverse, onesided)
    else:
        table = b.const(np.stack(roots(full, np.arange(full)), 1))
        y = b.one("FourierTransform", flat, table, inverse=int(inverse), onesided=int(onesided))
    y = b.one("Reshape", y, shape=[*rows, *y.shape[1:]])
    y = b.one("Transpose", y, perm=[perm.index(k) for k in range(rank)])
    return cast_to(b, y, x.dtype)


def _short(b: Any, flat: Value, full: int, inverse: bool, onesided: bool) -> Value:
    """Rows by the matrix of the transform"""
    count, taken, parts = flat.shape
    matrix = dft_matrix(taken, parts, full, inverse, onesided)
    made, out_parts = matrix.shape[2:]
    y = b.one("MatMul", b.one("Reshape", flat, shape=[count, taken * parts]),
              b.const(matrix.reshape(taken * parts, made * out_parts)))
    out: Value = b.one("Reshape", y, shape=[count, made, out_parts])
    return out


class FourierTransform(OpDef):
    """Rows of real or complex numbers, by the roots of one: cos and sin of 2 pi t / length"""

    name = "FourierTransform"
    internal = True
    splits = True
    tol = Tol(1e-9, 1e-9)

    def infer(self, ins: Sequence[Value | None], attrs: dict[str, Any]) -> list[TensorType]:
        x, table = ins
        assert x is not None and table is not None
        length, inverse, onesided = table.shape[0], attrs["inverse"], attrs["onesided"]
        made = length // 2 + 1 if onesided and not inverse else length
        return [TensorType(DType.F64, (x.shape[0], made, 1 if onesided and inverse else 2))]

    def ref(self, attrs: dict[str, Any], *xs: np.ndarray | None) -> np.ndarray:
        x, table = xs
        assert x is not None and table is not None
        z, length = x[..., 0] + (1j * x[..., 1] if x.shape[-1] == 2 else 0), len(table)
        if attrs["inverse"] and attrs["onesided"]:
            return np.asarray(np.fft.irfft(z, length, axis=1)[..., None])
        y = (np.fft.ifft if attrs["inverse"] else np.fft.fft)(z, length, axis=1)
        y = y[:, : length // 2 + 1] if attrs["onesided"] else y
        return np.stack([y.real, y.imag], -1)

    def routine(self, n: Node, c: Any) -> str:
        (x, table), y, a = n.used, n.outputs[0], n.attrs
        rows, taken, parts = x.shape
        length, room = table.shape[0], 32 * table.shape[0]
        mirrored = int(a["inverse"] and a["onesided"])
        return f"""\
const mb_fourier d = {{{length}, {taken}, {y.shape[1]}, {parts}, {y.shape[2]}, {int(a["inverse"])}, {mirrored}}};
double *work = (double *)({c.scratch(room, each=True)} + tid * {room}L);
for (long r = tid; r < {rows}; r += nt)
  mb_fourier_row(d, {c.ptr(x)} + r * {taken * parts}, {c.ptr(table)}, work, {c.ptr(y)} + r * {y.shape[1] * y.shape[2]});
"""

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        sizes = (64, 64, 1), (60, 50, 2), (97, 120, 1), (98, 98, 2), (1, 3, 2), (2, 2, 1), (81, 9, 2)
        for length, taken, parts in sizes:
            table = np.stack(roots(length, np.arange(length)), 1)
            for inverse, onesided in ((0, 0), (0, 1), (1, 0), (1, 1)):
                x = rng.standard_normal((3, taken, parts))
                yield Case((x, table), {"inverse": inverse, "onesided": onesided}, f"{length}_{inverse}{onesided}")


class DFT(OpDef):
    """Vanishes: a product with a constant matrix, or a FourierTransform"""

    name = "DFT"

    def from_onnx(self, b: Any, n: Any) -> Sequence[Value | None]:
        x = n.inputs[0]
        axis = n.attrs.get("axis", 1) if n.opset < 20 else int(np.ravel(n.const_or(2, -2, "axis"))[0])
        length = n.const_or(1, None, "dft_length")
        length = None if length is None else int(np.ravel(length)[0])
        inverse, onesided = bool(n.attrs.get("inverse", 0)), bool(n.attrs.get("onesided", 0))
        return [transform(b, n, x, axis_of(axis, x.type.rank, "DFT"), length, inverse, onesided)]


class STFT(OpDef):
    """Vanishes: a gather of overlapping frames, the window, and DFT"""

    name = "STFT"

    def from_onnx(self, b: Any, n: Any) -> Sequence[Value | None]:
        x, window = n.inputs[0], n.input(2)
        if x.type.rank == 2:
            x = b.one("Reshape", x, shape=[*x.shape, 1])
        step = int(np.ravel(n.const(1, "frame_step"))[0])
        given = n.const_or(3, None, "frame_length")
        taken = window.shape[0] if window is not None else x.shape[1] if given is None else int(np.ravel(given)[0])
        length = taken if given is None else int(np.ravel(given)[0])
        if step < 1 or length < 1 or max(length, taken) > x.shape[1]:
            n.fail(f"frames of {length} every {step} do not fit a signal of {x.shape[1]}")
        frames = 1 + (x.shape[1] - length) // step
        at = np.minimum(np.arange(frames)[:, None] * step + np.arange(taken)[None, :], x.shape[1] - 1)
        y = gather_const(b, x, at.astype(np.int64), 1)
        if window is not None:
            y = b.one("Mul", y, b.one("Reshape", window, shape=[taken, 1]))
        return [transform(b, n, y, 2, length, False, bool(n.attrs.get("onesided", 1)))]


class MelWeightMatrix(OpDef):
    """Vanishes: all its inputs are constant"""

    name = "MelWeightMatrix"

    def from_onnx(self, b: Any, n: Any) -> Sequence[Value | None]:
        bins, length, rate, low, high = (np.ravel(n.const(k))[0] for k in range(5))
        out = n.dtype_attr("output_datatype", DType.F32)
        return [b.const(mel_weights(int(bins), int(length), int(rate), float(low), float(high)).astype(out.numpy))]


def mel_weights(bins: int, length: int, rate: int, low: float, high: float) -> np.ndarray:
    """[spectrum, bins]: triangles whose corners lie at equal steps in mel"""
    first, last = (2595 * np.log1p(f / 700) / np.log(10) for f in (low, high))
    mel = np.arange(bins + 2) * (last - first) / (bins + 2) + first
    corners = ((length + 1) * (700 * np.expm1(mel / 2595 * np.log(10))) // rate).astype(int)
    out = np.zeros((length // 2 + 1, bins))
    f = np.arange(len(out))
    for k, (a, c, z) in enumerate(zip(corners, corners[1:], corners[2:], strict=False)):
        if a == c:
            out[c, k] = 1
        else:
            out[:, k] = np.where((f >= a) & (f <= c), (f - a) / (c - a), out[:, k])
        if z > c:
            out[:, k] = np.where((f >= c) & (f < z), (z - f) / (z - c), out[:, k])
    return out


# -- as PyTorch's exporter wrote them for onnxruntime ---------------------------------------------------
class Rfft(OpDef):
    """The transform of real signals along the last axis, and back"""

    name = "Rfft"
    domain = "com.microsoft"
    aliases = ("Irfft",)

    def from_onnx(self, b: Any, n: Any) -> Sequence[Value | None]:
        x, inverse = n.inputs[0], n.op == "Irfft"
        for name, normal in (("onesided", 1), ("normalized", 0), ("signal_ndim", 1)):
            if int(n.attrs.get(name, normal)) != normal:
                n.unsupported(f"`{name}` = {n.attrs[name]}")
        if inverse:
            if x.type.rank < 2 or x.shape[-1] != 2:
                n.fail(f"needs pairs of numbers, got {x.type}")
            y = transform(b, n, x, x.type.rank - 2, None, True, True)
            return [b.one("Reshape", y, shape=list(y.shape[:-1]))]
        return [transform(b, n, b.one("Reshape", x, shape=[*x.shape, 1]), x.type.rank - 1, None, False, True)]


class ComplexMul(OpDef):
    """Products of complex numbers, whose parts are the last axis; B conjugated first, or not"""

    name = "ComplexMul"
    domain = "com.microsoft"
    aliases = ("ComplexMulConj",)

    def from_onnx(self, b: Any, n: Any) -> Sequence[Value | None]:
        if any(not v.type.rank or v.shape[-1] != 2 for v in n.inputs):
            n.fail(f"needs pairs of numbers, got {' and '.join(str(v.type) for v in n.inputs)}")
        (p, q), (r, s) = ([gather_const(b, v, np.array([k]), v.type.rank - 1) for k in (0, 1)] for v in n.inputs)
        s = b.one("Neg", s) if n.op.endswith("Conj") else s
        real = b.one("Sub", b.one("Mul", p, r), b.one("Mul", q, s))
        imag = b.one("Add", b.one("Mul", p, s), b.one("Mul", q, r))
        return b.emit("Concat", [real, imag], {"axis": real.type.rank - 1})
