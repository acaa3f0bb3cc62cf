"""Choices of boxes. Scores are constants without equal ones, since equal scores may be taken in any order."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from flatbuffers import flexbuffers
from tfl_single import F32, I32, U8, Case, Q

N = 40


def corners() -> np.ndarray:
    rng = np.random.default_rng(3)
    low = rng.uniform(0, 1, (N, 2))
    return np.concatenate([low, low + rng.uniform(0.1, 0.5, (N, 2))], 1).astype(F32)


def scores(*shape: int) -> np.ndarray:
    size = int(np.prod(shape))
    return (np.random.default_rng(list(shape)).permutation(size).reshape(shape) / size).astype(F32)


def every() -> Iterator[Case]:
    for most in (7, 60):
        ins = corners(), scores(N), np.array(most, I32), np.array(0.4, F32), np.array(0.2, F32)
        at, count = Q((most,), I32), Q((), I32)
        yield Case(f"boxes {most}", "NON_MAX_SUPPRESSION_V4", ins, (at, count))
        for sigma in (0.0, 0.3):
            given = (*ins, np.array(sigma, F32))
            yield Case(f"boxes {most} {sigma}", "NON_MAX_SUPPRESSION_V5", given, (at, Q((most,), F32), count))
    anchors = np.concatenate([corners()[:, :2], np.full((N, 2), 0.3)], 1).astype(F32)
    for regular in (0, 1):
        for most, per in ((5, 1), (9, 2)):
            outs = results(most * per)
            about = options(most, per, 4, regular)
            codes = Q((1, N, 4), F32, low=-2, high=2)
            yield Case(f"detection {regular} {most}", "TFLite_Detection_PostProcess", (codes, scores(1, N, 5), anchors),
                       outs, custom=about)
    few = np.where(scores(1, N, 5) > 0.99, scores(1, N, 5), 0).astype(F32)
    given = Q((1, N, 4), F32, low=-2, high=2), few, anchors
    yield Case("detection of few", "TFLite_Detection_PostProcess", given, results(9), custom=options(9, 1, 4, 1))
    bytes_ = (np.arange(N * 5) + 40).reshape(1, N, 5).astype(U8), 1 / 256, 0
    small = (anchors * 100).astype(U8), 0.01, 0
    given = Q((1, N, 4), U8, 0.02, 128), bytes_, small
    yield Case("detection uint8", "TFLite_Detection_PostProcess", given, results(5), custom=options(5, 1, 4, 0))


def results(room: int) -> tuple[Q, ...]:
    return Q((1, room, 4), F32), Q((1, room), F32), Q((1, room), F32), Q((1,), F32)


def options(most: int, per: int, classes: int, regular: int) -> bytes:
    values: dict[str, Any] = {
        "max_detections": most, "max_classes_per_detection": per, "num_classes": classes, "detections_per_class": 8,
        "nms_score_threshold": 0.3, "nms_iou_threshold": 0.4, "y_scale": 10.0, "x_scale": 10.0, "h_scale": 5.0,
        "w_scale": 5.0, "use_regular_nms": bool(regular),
    }  # fmt: skip
    return bytes(flexbuffers.Dumps(values))
