"""MediaPipe's custom operators, which LiteRT does not know: their definitions written out in numpy."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from flatbuffers import flexbuffers
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


# -- the face mesh with attention ---------------------------------------------------------------------
def asked_for(some: list[int], **more: float) -> bytes:
    b = flexbuffers.Builder()
    with b.Map():
        b.Key("subset_idxs")
        b.TypedVectorFromElements(some)
        for name, v in more.items():
            b.Key(name)
            (b.Float if isinstance(v, float) else b.Int)(v)
    return bytes(b.Finish())


def matrix_of(x: np.ndarray, some: list[int], o: dict[str, float]) -> np.ndarray:
    """A matrix for each step, multiplied"""
    (x0, y0), (x1, y1) = (x[0, int(o[k]), :2] for k in ("left_rotation_idx", "right_rotation_idx"))
    r = o["target_rotation_radians"] - np.arctan2(y1 - y0, x1 - x0)

    def turn(a: float) -> np.ndarray:
        m = np.eye(4)
        m[:2, :2] = [[np.cos(a), -np.sin(a)], [np.sin(a), np.cos(a)]]
        return m

    def shift(dx: float, dy: float) -> np.ndarray:
        m = np.eye(4)
        m[:2, 3] = dx, dy
        return m

    turned = x[0, some, :2].astype(np.float64) @ turn(r)[:2, :2].T
    high, low = turned.max(0), turned.min(0)
    center = turn(-r)[:2, :2] @ ((high + low) / 2)
    w, h = o["output_width"], o["output_height"]
    scale = np.diag([o["scale_x"] * (high - low)[0] / w, o["scale_y"] * (high - low)[1] / h, 1, 1])
    return shift(*center) @ turn(-r) @ scale @ shift(-w / 2, -h / 2)


def sampled_by(x: np.ndarray, m: np.ndarray, height: int, width: int) -> np.ndarray:
    y, (h, w) = np.zeros((1, height, width, x.shape[3])), x.shape[1:3]
    wide = np.pad(x.astype(np.float64), ((0, 0), (0, 1), (0, 1), (0, 0)))
    for i in range(height):
        for j in range(width):
            px, py = m[:2, :2].astype(np.float64) @ [j + 0.5, i + 0.5] + m[:2, 3] - 0.5
            if 0 <= px <= w - 1 and 0 <= py <= h - 1:
                (a, fx), (b, fy) = ((int(p), p - int(p)) for p in (px, py))
                y[0, i, j] = (wide[0, b, a] * (1 - fx) * (1 - fy) + wide[0, b, a + 1] * fx * (1 - fy)
                              + wide[0, b + 1, a] * (1 - fx) * fy + wide[0, b + 1, a + 1] * fx * fy)
    return y


@pytest.mark.parametrize("target", [0, 0.7, -3.0])
def test_matrices_of_landmarks(target: float) -> None:
    about = {"left_rotation_idx": 3, "right_rotation_idx": 7, "target_rotation_radians": target, "scale_x": 1.5,
             "scale_y": 1.25, "output_height": 8, "output_width": 6}
    some = [1, 3, 4, 200, 7, 11]
    c = Case("matrix", "Landmarks2TransformMatrix", (Q((1, 201, 3), F32),), Q((1, 4, 4), F32),
             custom=asked_for(some, **about))
    file, (feeds, *_) = c.model()
    (got,) = interpret(load_tflite(file).graph, feeds).values()
    np.testing.assert_allclose(got[0], matrix_of(feeds["x0"], some, about), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("size", [2, 3])
def test_landmarks_move_by_a_matrix(size: int) -> None:
    c = Case("moved", "TransformLandmarks", (Q((1, 9, size), F32), Q((1, 4, 4), F32)), Q((1, 9, size), F32))
    file, (feeds, *_) = c.model()
    (got,) = interpret(load_tflite(file).graph, feeds).values()
    want = feeds["x0"].astype(np.float64).copy()
    want[0, :, :2] = want[0, :, :2] @ feeds["x1"][0, :2, :2].T + feeds["x1"][0, :2, 3]
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("turn", [
    [[0.5, 0, 0.25], [0, 0.75, 1]], [[0.61, -0.77, 2.03], [0.79, 0.63, -1.1]], [[1, 0, 0], [0, 1, 0]],
])
def test_images_are_sampled_by_a_matrix(turn: list[list[float]]) -> None:
    m = np.eye(4)
    m[:2, [0, 1, 3]] = turn
    c = Case("sampled", "TransformTensorBilinear", (Q((1, 7, 9, 5), F32), m[None].astype(F32)), Q((1, 6, 4, 5), F32),
             custom=bytes(flexbuffers.Dumps({"output_height": 6, "output_width": 4})))
    file, (feeds, *_) = c.model()
    (got,) = interpret(load_tflite(file).graph, feeds).values()
    want = sampled_by(feeds["x0"], m, 6, 4)
    assert want.any() and np.abs(want).max() > 1
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("op", "custom", "words"), [
    ("Landmarks2TransformMatrix", bytes(flexbuffers.Dumps({"landmarks_range": 2})), "no option left_rotation_idx"),
    ("Landmarks2TransformMatrix", asked_for([900], left_rotation_idx=0, right_rotation_idx=1, target_rotation_radians=0,
                                            scale_x=1, scale_y=1, output_height=3, output_width=3), "of 9 for"),
    ("Landmarks2TransformMatrix", b"\1\2\3", "no map of a FlexBuffer"),
    ("TransformLandmarks", b"\1\2\3", "with options"),
])
def test_what_is_odd_of_landmarks_is_told(op: str, custom: bytes, words: str) -> None:
    ins = (Q((1, 9, 3), F32), Q((1, 4, 4), F32))[: 2 if op.startswith("T") else 1]
    c = Case("odd", op, ins, Q((1, 4, 4), F32), custom=custom)
    with pytest.raises((ErrorList, MonoblocError), match=words):
        load_tflite(c.model()[0])
