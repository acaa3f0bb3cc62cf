"""MediaPipe's custom operators, which LiteRT does not know: their definitions written out in numpy."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from tfl_single import Case, Q

from monobloc.errors import ErrorList, MonoblocError
from monobloc.frontend.tflite import load_tflite
from monobloc.ir.interp import interpret

SAME, VALID = 1, 2
F32 = np.float32


def spread(x: np.ndarray, w: np.ndarray, bias: np.ndarray, strides: tuple[int, int], out: tuple[int, int],
           before: tuple[int, int]) -> np.ndarray:
    """Every pixel of x adds its multiple of the weights [out, h, w, in] to the image; `before` is cut off."""
    (_, h, wide, _), (oc, kh, kw, _) = x.shape, w.shape
    full = np.zeros((h * strides[0] + kh, wide * strides[1] + kw, oc))
    for i in range(h):
        for j in range(wide):
            at = np.s_[i * strides[0] : i * strides[0] + kh, j * strides[1] : j * strides[1] + kw]
            full[at] += np.einsum("ohwc,c->hwo", w.astype(np.float64), x[0, i, j])
    return full[before[0] : before[0] + out[0], before[1] : before[1] + out[1]] + bias


def case(kernel: tuple[int, int], strides: tuple[int, int], padding: int, out: tuple[int, int]) -> Case:
    rng = np.random.default_rng([*kernel, *strides, padding])
    w, bias = rng.standard_normal((3, *kernel, 2)).astype(F32), rng.standard_normal(3).astype(F32)
    return Case("spread", "Convolution2DTransposeBias", (Q((1, 4, 5, 2), F32), w, bias), Q((1, *out, 3), F32),
                custom=struct.pack("<3i", padding, strides[1], strides[0]))


@pytest.mark.parametrize(("kernel", "strides", "padding", "out", "before"), [
    ((2, 2), (2, 2), SAME, (8, 10), (0, 0)),
    ((3, 3), (2, 1), SAME, (8, 5), (0, 1)),
    ((5, 4), (2, 2), SAME, (8, 10), (1, 1)),
    ((3, 2), (2, 3), VALID, (9, 15), (0, 0)),
    ((1, 1), (1, 1), VALID, (4, 5), (0, 0)),
])
def test_transposed_convolution_with_a_bias(
    kernel: tuple[int, int], strides: tuple[int, int], padding: int, out: tuple[int, int], before: tuple[int, int]
) -> None:
    c = case(kernel, strides, padding, out)
    file, (feeds, *_) = c.model()
    (got,) = interpret(load_tflite(file).graph, feeds).values()
    want = spread(feeds["x0"], c.ins[1], c.ins[2], strides, out, before)
    np.testing.assert_allclose(got[0], want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("custom", "words"), [
    (b"", "options of 0 bytes"), (struct.pack("<3i", 0, 2, 2), "the padding 0"),
    (struct.pack("<3i", 1, 0, 2), "strides"),
])
def test_damaged_options_are_errors(custom: bytes, words: str) -> None:
    given = (Q((1, 2, 2, 1), F32), np.ones((1, 2, 2, 1), F32), np.ones(1, F32))
    c = Case("spread", "Convolution2DTransposeBias", given, Q((1, 4, 4, 1), F32), custom=custom)
    with pytest.raises((ErrorList, MonoblocError), match=words):
        load_tflite(c.model()[0])
