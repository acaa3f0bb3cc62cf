"""TFLite's choice of boxes: NON_MAX_SUPPRESSION_V4 and V5, and the detection head TFLite_Detection_PostProcess.

Results have room for the most boxes that there can be; a count says how many there are, and the rest is zero. Of equal
scores the box with the lower number comes first.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from monobloc.errors import ModelError
from monobloc.ir.graph import Node, Value
from monobloc.ir.types import DType, TensorType
from monobloc.ops import Case, OpDef

Array = np.ndarray
Attrs = dict[str, Any]
F32, I32 = DType.F32, DType.I32


def overlap(a: Array, b: Array) -> float:
    """Intersection over union of boxes by two corners: `mb_tfl_overlap` of csrc/include/mb/tflbox.h"""
    low, high = np.minimum(a[:2], a[2:]), np.maximum(a[:2], a[2:])
    low2, high2 = np.minimum(b[:2], b[2:]), np.maximum(b[:2], b[2:])
    areas = [np.prod(h - v) for v, h in ((low, high), (low2, high2))]
    if min(areas) <= 0:
        return 0.0
    both = np.prod(np.maximum(np.minimum(high, high2) - np.maximum(low, low2), 0))
    return float(both / (areas[0] + areas[1] - both))


class TflSuppress(OpDef):
    """Boxes by falling score, without those that overlap one before by `overlap` or more. Inputs boxes [n, 4], scores
    [n], and as numbers of the run the overlap, the least score and sigma (0: boxes are left out, else their scores are
    lowered by how much they overlap). Outputs numbers of boxes, their scores, and how many."""

    name = "TflSuppress"
    internal = True

    def infer(self, ins: Sequence[Value | None], attrs: Attrs) -> list[TensorType]:
        boxes, scores, *numbers = ins
        assert boxes is not None and scores is not None
        if boxes.shape != (*scores.shape, 4) or scores.type.rank != 1 or any(v is None or v.type.size != 1
                                                                            for v in numbers):
            raise ModelError(f"{self.name} of {boxes.type} with {scores.type}")
        return [TensorType(I32, (attrs["most"],)), TensorType(F32, (attrs["most"],)), TensorType(I32, ())]

    def ref(self, attrs: Attrs, *xs: Array | None) -> list[Array]:
        boxes, scores, limit, least, sigma = (np.asarray(x) for x in xs)
        left = {k: (np.float32(s), 0) for k, s in enumerate(scores) if s > least.item()}
        at, out = np.zeros(attrs["most"], np.int32), np.zeros(attrs["most"], np.float32)
        count, fall = 0, -0.5 / sigma.item() if sigma.item() > 0 else 0.0
        while left and count < attrs["most"]:
            k = max(left, key=lambda i: (left[i][0], -i))
            before, first = left.pop(k)
            score, hard = before, False
            for j in range(count - 1, first - 1, -1):
                share = overlap(boxes[k], boxes[at[j]])
                if share >= limit.item():
                    hard = True
                    break
                score = np.float32(score * np.float32(np.exp(fall * share * share))) if fall else score
                if score <= least.item():
                    break
            if hard or score <= least.item():
                continue
            if score == before:
                at[count], out[count] = k, score
                count += 1
            else:
                left[k] = (score, count)
        return [at, out, np.array(count, np.int32)]

    def routine(self, n: Node, c: Any) -> str:
        boxes, scores, limit, least, sigma = n.used
        size, most = scores.type.size, n.attrs["most"]
        outs = [c.ptr(v) for v in n.outputs]
        return f"""\
const float *boxes = {c.ptr(boxes)}, *scores = {c.ptr(scores)};
const float limit = *{c.ptr(limit)}, least = *{c.ptr(least)}, sigma = *{c.ptr(sigma)};
int32_t *at = {outs[0]}, *found = {outs[2]}, *first = (int32_t *){c.scratch(4 * size)};
float *out = {outs[1]}, *now = (float *){c.scratch(4 * size)};
for (long i = 0; i < {most}; i++) at[i] = 0, out[i] = 0;
*found = mb_tfl_suppress(boxes, scores, {size}, {most}, limit, least, sigma, at, out, now, first);"""

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        boxes, scores = _boxes(rng, 30)
        for most, sigma in ((12, 0.0), (40, 0.0), (40, 0.3)):
            numbers = tuple(np.float32(v) for v in (0.4, 0.2, sigma))
            yield Case((boxes, scores, *numbers), {"most": most}, f"{most}_{sigma}")


def _boxes(rng: np.random.Generator, n: int) -> tuple[Array, Array]:
    corners = rng.uniform(0, 1, (n, 2))
    boxes = np.concatenate([corners, corners + rng.uniform(0.1, 0.5, (n, 2))], 1).astype(np.float32)
    return boxes, rng.permutation(n).astype(np.float32) / n


def plainly(boxes: Array, scores: Array, least: float, limit: float, most: int) -> list[int]:
    """Boxes by falling score, without those that overlap one before by more than `limit`"""
    order = [k for k in np.argsort(-scores, kind="stable") if scores[k] >= least]
    kept: list[int] = []
    for k in order:
        if len(kept) < most and not any(overlap(boxes[k], boxes[j]) > limit for j in kept):
            kept.append(int(k))
    return kept


class TflDetect(OpDef):
    """Inputs boxes [n, 4] and scores [n, classes], behind `skip` columns of the background. Attributes: `most` boxes,
    `per` classes of each, `least` score, `limit` of overlap; `regular`: each class has its own choice, of `each` boxes
    at most. Outputs boxes, classes, scores, and how many.
    """

    name = "TflDetect"
    internal = True

    def infer(self, ins: Sequence[Value | None], attrs: Attrs) -> list[TensorType]:
        boxes, scores = ins
        assert boxes is not None and scores is not None
        if boxes.shape != (scores.shape[0], 4) or scores.type.rank != 2 or scores.shape[1] <= attrs["skip"]:
            raise ModelError(f"{self.name} of {boxes.type} with {scores.type}")
        return self._types(attrs)

    def ref(self, attrs: Attrs, *xs: Array | None) -> list[Array]:
        boxes, scores = xs
        assert boxes is not None and scores is not None
        a, real = attrs, scores[:, attrs["skip"] :]
        if a["regular"]:
            rows = [(real[k, c], k, c) for c in range(real.shape[1])
                    for k in plainly(boxes, real[:, c], a["least"], a["limit"], a["each"])]
            rows = sorted(rows, key=lambda r: -r[0])[: a["most"]]
        else:
            best = np.argsort(-real, 1, kind="stable")[:, : a["per"]]
            kept = plainly(boxes, real.max(1), a["least"], a["limit"], a["most"])
            rows = [(real[k, c], k, c) for k in kept for c in best[k]]
        out = [np.zeros(t.shape, np.float32) for t in self._types(attrs)]
        for j, (score, k, c) in enumerate(rows):
            out[0][0, j], out[1][0, j], out[2][0, j] = boxes[k], c, score
        out[3][0] = len(rows) if a["regular"] else len(rows) // a["per"]
        return out

    def _types(self, attrs: Attrs) -> list[TensorType]:
        k = attrs["most"] * attrs["per"]
        return [TensorType(F32, s) for s in ((1, k, 4), (1, k), (1, k), (1,))]

    def routine(self, n: Node, c: Any) -> str:
        boxes, scores = n.used
        a, (size, width) = n.attrs, scores.shape
        y, classes, out, found = (c.ptr(v) for v in n.outputs)
        least, limit = (float(np.float32(a[k])).hex() + "f" for k in ("least", "limit"))
        room = n.outputs[1].type.size
        real = width - a["skip"]
        head = f"""\
const float *boxes = {c.ptr(boxes)}, *s = {c.ptr(scores)} + {a["skip"]};
float *y = {y}, *classes = {classes}, *out = {out};
for (long j = 0; j < {room}; j++) y[4 * j] = y[4 * j + 1] = y[4 * j + 2] = y[4 * j + 3] = classes[j] = out[j] = 0;
float *column = (float *){c.scratch(4 * size)};
int32_t *kept = (int32_t *){c.scratch(4 * max(a["each"], a["most"], 1))};
long count = 0;"""
        if not a["regular"]:
            return f"""{head}
for (long k = 0; k < {size}; k++) {{
  column[k] = s[k * {width}];
  for (long c = 1; c < {real}; c++) column[k] = s[k * {width} + c] > column[k] ? s[k * {width} + c] : column[k];
}}
long n = mb_tfl_boxes(boxes, column, {size}, {a["most"]}, {limit}, {least}, kept);
for (long i = 0; i < n; i++)
  for (long p = 0, last = -1; p < {a["per"]}; p++, count++) {{
    const float *row = s + kept[i] * {width};
    long best = -1; /* the next after the last, by falling score and rising number */
    for (long c = 0; c < {real}; c++)
      if ((last < 0 || row[c] < row[last] || (row[c] == row[last] && c > last)) && (best < 0 || row[c] > row[best]))
        best = c;
    for (long k = 0; k < 4; k++) y[4 * count + k] = boxes[4 * kept[i] + k];
    classes[count] = (float)best, out[count] = row[best], last = best;
  }}
*{found} = (float)n;"""
        return f"""{head}
for (long c = 0; c < {real}; c++) {{
  for (long k = 0; k < {size}; k++) column[k] = s[k * {width} + c];
  long n = mb_tfl_boxes(boxes, column, {size}, {a["each"]}, {limit}, {least}, kept);
  for (long i = 0; i < n; i++) {{
    float score = s[kept[i] * {width} + c];
    long j = count; /* sorted in: what is lower moves on */
    if (count == {a["most"]} && !(score > out[count - 1])) continue;
    if (count == {a["most"]}) j--;
    else count++;
    for (; j > 0 && out[j - 1] < score; j--) {{
      for (long k = 0; k < 4; k++) y[4 * j + k] = y[4 * j - 4 + k];
      classes[j] = classes[j - 1], out[j] = out[j - 1];
    }}
    for (long k = 0; k < 4; k++) y[4 * j + k] = boxes[4 * kept[i] + k];
    classes[j] = (float)c, out[j] = score;
  }}
}}
*{found} = (float)count;"""

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        boxes, _ = _boxes(rng, 30)
        scores = rng.permutation(150).reshape(30, 5).astype(np.float32) / 150
        plain = {"most": 9, "per": 2, "least": 0.3, "limit": 0.4, "each": 7, "skip": 1, "regular": 0}
        yield Case((boxes, scores), plain, "fast")
        yield Case((boxes, scores), plain | {"regular": 1}, "regular")
        yield Case((boxes, scores), plain | {"most": 40, "per": 1, "skip": 0, "least": 0.9}, "few")
