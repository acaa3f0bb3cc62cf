"""Makes `finder.onnx` and `page.ppm`: a detector of ink and a page of digits to try it on.

    python make_data.py

The detector is small but built like a real one: a backbone of convolutions, and heads for scores, boxes
and a description of the page that this program never reads. One channel of it is set by hand to carry
the darkness of its surroundings; the others hold seeded random weights. Needs numpy and onnx.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

HERE = Path(__file__).resolve().parent
WIDTH, HEIGHT, PAGE_WIDTH, PAGE_HEIGHT = 64, 48, 160, 120
CHANNELS = (16, 24, 32, 32)  # of the backbone's convolutions
CELL = 4  # pixels of the detector's input per cell of its output

# Strokes of digits, in a box of 10 x 14 dots: polylines.
STROKES: dict[str, list[list[tuple[float, float]]]] = {
    "0": [[(5, 0), (1, 3), (1, 10), (5, 14), (9, 10), (9, 3), (5, 0)]],
    "1": [[(5, 0), (5, 14)]],
    "2": [[(1, 3), (3, 0), (7, 0), (9, 3), (8, 7), (1, 14), (10, 14)]],
    "3": [[(1, 1), (5, 0), (9, 3), (5, 6), (9, 10), (5, 14), (1, 13)]],
    "4": [[(7, 14), (7, 0), (1, 9), (10, 9)]],
    "7": [[(0, 0), (10, 0), (4, 14)]],
}
DIGITS = (("7", 18, 16), ("1", 76, 24), ("3", 126, 18), ("4", 32, 76), ("0", 84, 80), ("2", 130, 74))


def weights() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(7)

    def conv(out: int, inside: int, k: int, dark: float) -> np.ndarray:
        w = rng.standard_normal((out, inside, k, k)) / np.sqrt(inside * k * k)
        w[0] = 0.0
        w[0, 0] = dark  # channel 0 sums channel 0
        return w.astype(np.float32)

    w, inside = {}, 1
    for n, out in enumerate(CHANNELS):
        w[f"w{n}"] = conv(out, inside, 3, 1 / 9)
        w[f"b{n}"] = (rng.standard_normal(out) / 10).astype(np.float32)
        w[f"b{n}"][0] = 0.0
        inside = out
    w["score_w"] = np.zeros((1, inside, 1, 1), np.float32)
    w["score_w"][0, 0] = 60.0
    w["score_b"] = np.array([-3.0], np.float32)
    w["box_w"] = (rng.standard_normal((4, inside, 1, 1)) / 200).astype(np.float32)
    w["box_b"] = np.array([0.0, 0.0, 14.0, 16.0], np.float32)  # middle and size, in pixels
    w["describe_w"] = conv(32, inside, 3, 1 / 9)
    w["describe_fc"] = (rng.standard_normal((32, 64)) / 6).astype(np.float32)
    return w


def finder() -> onnx.ModelProto:
    node, nodes, x = helper.make_node, [], "ink"
    for n in range(len(CHANNELS)):
        stride = 2 if n < 2 else 1
        nodes.append(node("Conv", [x, f"w{n}", f"b{n}"], [f"c{n}"], f"conv{n}", pads=[1] * 4, strides=[stride] * 2))
        nodes.append(node("Relu", [f"c{n}"], [f"r{n}"], f"relu{n}"))
        x = f"r{n}"
    nodes += [
        node("Conv", [x, "score_w", "score_b"], ["score_raw"], "score"),
        node("Sigmoid", ["score_raw"], ["scores"], "probability"),
        node("Conv", [x, "box_w", "box_b"], ["boxes"], "box"),
        node("Conv", [x, "describe_w"], ["d"], "describe", pads=[1] * 4, strides=[2, 2]),
        node("HardSwish", ["d"], ["ds"], "describe_act"),
        node("GlobalAveragePool", ["ds"], ["dg"], "describe_mean"),
        node("Flatten", ["dg"], ["df"], "describe_flat"),
        node("MatMul", ["df", "describe_fc"], ["dm"], "describe_fc"),
        node("LpNormalization", ["dm"], ["description"], "describe_norm"),
    ]
    h, w = HEIGHT // CELL, WIDTH // CELL
    outputs = {"scores": (1, 1, h, w), "boxes": (1, 4, h, w), "description": (1, 64)}
    graph = helper.make_graph(
        nodes, "finder",
        [helper.make_tensor_value_info("ink", TensorProto.FLOAT, (1, 1, HEIGHT, WIDTH))],
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in outputs.items()],
        [numpy_helper.from_array(w, n) for n, w in weights().items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model)
    return model


def distance(x: np.ndarray, y: np.ndarray, a: tuple[float, float], b: tuple[float, float]) -> np.ndarray:
    """From every pixel to the segment from a to b."""
    d = np.subtract(b, a)
    t = np.clip(((x - a[0]) * d[0] + (y - a[1]) * d[1]) / (d @ d), 0, 1)
    return np.hypot(x - a[0] - t * d[0], y - a[1] - t * d[1])


def page() -> bytes:
    """Dark strokes on uneven yellowish paper."""
    y, x = np.mgrid[0:PAGE_HEIGHT, 0:PAGE_WIDTH].astype(np.float64)
    ink = np.zeros_like(x)
    for digit, left, top in DIGITS:
        for line in STROKES[digit]:
            for a, b in zip(line, line[1:], strict=False):
                start, end = ((left + 1.3 * p, top + 1.5 * q) for p, q in (a, b))
                ink = np.maximum(ink, np.clip(2.4 - distance(x, y, start, end), 0, 1))
    paper = 235 + 12 * np.sin(x / 40) * np.cos(y / 50) + np.random.default_rng(3).normal(0, 2, x.shape)
    pixels = np.stack([(paper - k) * (1 - ink) + 40 * ink for k in (0, 6, 30)], axis=-1)
    header = b"P6\n# digits\n%d %d\n255\n" % (PAGE_WIDTH, PAGE_HEIGHT)
    return header + np.clip(pixels, 0, 255).astype(np.uint8).tobytes()


if __name__ == "__main__":
    (HERE / "finder.onnx").write_bytes(finder().SerializeToString(deterministic=True))
    (HERE / "page.ppm").write_bytes(page())
