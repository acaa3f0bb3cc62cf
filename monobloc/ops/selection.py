"""What data pick out: NonZero, Compress, Unique, and the boxes that stay of NonMaxSuppression.

The result has room for everything that could be picked; how much was is a number beside it (`sized.Ragged`).
Room that is not used holds zeros, which are right as indices.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from monobloc.ir.graph import Node, Value
from monobloc.ir.types import DType, TensorType
from monobloc.ops import EXACT, Case, OpDef
from monobloc.ops.contract import NAN, Edge, f32, i64
from monobloc.ops.indexing import gather_const, wrapped
from monobloc.ops.movement import transpose
from monobloc.ops.order import comparable
from monobloc.ops.shape import axis_of, reshape
from monobloc.ops.sized import Ragged

Array = np.ndarray
COUNT = TensorType(DType.I64, ())


def _room(a: Array, size: int) -> Array:
    """An array in room for `size` entries along its last axis"""
    return np.concatenate([a, np.zeros((*a.shape[:-1], size - a.shape[-1]), a.dtype)], -1)


class NonZero(OpDef):
    """Coordinates of what is not zero, in order"""

    name = "NonZero"
    tol = EXACT
    edges = (
        Edge("NaN", "is not zero", (f32(NAN, 0, 1),), (i64([0, 2, 0]), np.array(2))),
        Edge("-0.0", "is zero", (f32(-0.0, 1),), (i64([1, 0]), np.array(1))),
    )

    def from_onnx(self, b: Any, n: Any) -> Sequence[Any]:
        x = n.inputs[0]
        x = reshape(b, x, [1]) if x.type.rank == 0 else x
        if x.const is not None:
            return [b.const(np.stack(np.nonzero(x.const.array)).astype(np.int64))]
        at, count = b.emit("NonZero", [x], outputs=2)
        return [Ragged(at, {1: count})]

    def infer(self, ins: Sequence[Value | None], attrs: dict[str, Any]) -> list[TensorType]:
        x = ins[0]
        assert x is not None
        return [TensorType(DType.I64, (x.type.rank, x.type.size)), COUNT]

    def ref(self, attrs: dict[str, Any], *xs: Array | None) -> list[Array]:
        assert xs[0] is not None
        found = np.stack(np.nonzero(xs[0])).astype(np.int64)
        return [_room(found, xs[0].size), np.array(found.shape[1], np.int64)]

    def routine(self, n: Node, c: Any) -> str:
        x, (at, count) = n.used[0], n.outputs
        size, shape = x.type.size, x.shape
        steps = [math.prod(shape[k + 1 :]) for k in range(len(shape))]
        write = " ".join(
            f"at[{k * size} + m] = e / {max(s, 1)} % {max(d, 1)};" for k, (s, d) in enumerate(zip(steps, shape)))
        return f"""\
const {x.dtype.c} *x = {c.ptr(x)};
int64_t *at = {c.ptr(at)};
long m = 0;
for (long e = 0; e < {size}; e++) if (x[e] != 0) {{ {write} m++; }}
for (long k = 0; k < {len(shape)}; k++) for (long e = m; e < {size}; e++) at[k * {size} + e] = 0;
*{c.ptr(count)} = m;"""

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        yield Case((rng.integers(0, 2, (3, 4, 2)).astype(np.float32),), {})
        yield Case((np.array([np.nan, -0.0, 0, np.inf, -1], np.float32),), {}, "special")
        yield Case((np.zeros((2, 3), np.bool_),), {}, "none")
        yield Case((np.ones((2, 3), np.int8),), {}, "all")


class Compress(OpDef):
    """Vanishes: a Gather of the places where the condition holds"""

    name = "Compress"
    strings = "moves"

    def from_onnx(self, b: Any, n: Any) -> Sequence[Any]:
        x, keep = n.inputs[0], n.inputs[1]
        axis = n.attrs.get("axis")
        if axis is None:
            x, axis = reshape(b, x, [-1] if x.type.size else [0]), 0
        axis = axis_of(axis, x.type.rank, "Compress")
        if keep.const is not None:
            return [gather_const(b, x, wrapped(np.flatnonzero(keep.const.array), x.shape[axis], "Compress"), axis)]
        if keep.type.rank != 1 or keep.shape[0] > x.shape[axis]:
            n.fail(f"the condition is {keep.type} for {x.shape[axis]} entries along axis {axis}")
        at, count = b.emit("NonZero", [keep], outputs=2)
        return [Ragged(b.one("Gather", x, reshape(b, at, [keep.shape[0]]), axis=axis), {axis: count})]


class Unique(OpDef):
    """Values without repetition, or slices along an axis"""

    name = "Unique"
    aliases = ("com.microsoft::Unique",)

    def from_onnx(self, b: Any, n: Any) -> Sequence[Any]:
        if not n.domain:
            return self._unique(b, n)[: n.n_outputs]
        n.attrs["sorted"] = 0  # onnxruntime's own does not sort, and does not say where each was first
        values, _, *more = self._unique(b, n)
        return [values, *more][: n.n_outputs]

    def _unique(self, b: Any, n: Any) -> Sequence[Any]:
        x, axis = n.inputs[0], n.attrs.get("axis")
        if x.const is not None:
            return self._constant(b, n, x.const.array)
        slices = axis is not None and x.type.rank > 1
        if slices and not x.type.size:  # what it holds is known
            return self._constant(b, n, np.zeros(x.shape, x.dtype.numpy))
        if x.dtype is DType.BOOL:
            found = self._unique(b, replace(n, inputs=[b.one("Cast", x, to=DType.U8)]))
            return [Ragged(b.one("Cast", found[0].value, to=DType.BOOL), found[0].counts), *found[1:]]
        if slices:
            return self._slices(b, n, x, axis_of(axis, x.type.rank, "Unique"))
        flat = reshape(b, x, [x.type.size])
        values, order = b.emit("TopK", [flat], {"axis": 0, "k": x.type.size, "largest": 0}, outputs=2)
        out = b.emit("UniqueRuns", [values, order], {"sorted": int(n.attrs.get("sorted", 1))}, outputs=5)
        count = out[4]
        return [v if k == 2 else Ragged(v, {0: count}) for k, v in enumerate(out[:4])]

    def _slices(self, b: Any, n: Any, x: Value, axis: int) -> Sequence[Any]:
        """Along an axis: rows of a matrix, in the order of their first elements that differ"""
        order = [axis, *(k for k in range(x.type.rank) if k != axis)]
        moved = transpose(b, x, order)
        rows = reshape(b, moved, [x.shape[axis], -1])
        *out, count = b.emit("UniqueRows", [rows], {"sorted": int(n.attrs.get("sorted", 1))}, outputs=5)
        back = transpose(b, reshape(b, out[0], moved.shape), [order.index(k) for k in range(x.type.rank)])
        return [Ragged(back, {axis: count}), Ragged(out[1], {0: count}), out[2], Ragged(out[3], {0: count})]

    def _constant(self, b: Any, n: Any, x: Array) -> Sequence[Value]:
        axis = n.attrs.get("axis")
        if axis is not None:
            axis = axis_of(axis, x.ndim, "Unique")
        values, first, inverse, counts = np.unique(comparable(x), True, True, True, axis=axis)
        values = values.astype(x.dtype)
        inverse = inverse.reshape(-1)
        if not n.attrs.get("sorted", 1):
            order = np.argsort(first, kind="stable")
            rank = np.argsort(order, kind="stable")
            values = np.take(values, order, 0 if axis is None else axis)
            first, inverse, counts = first[order], rank[inverse], counts[order]
        indices = [v.astype(np.int64) for v in (first, inverse, counts)]
        return [b.const(v) for v in (values, *indices)]


def _renumbered(new: str, size: int) -> str:
    """C: what is the same has numbers as it comes in sorted order; here it gets those by where each first was"""
    return f"""
int64_t *new = (int64_t *){new};
long next = 0;
for (long e = 0; e < {size}; e++) if (first[inverse[e]] == e) new[inverse[e]] = next++;
for (long e = 0; e < {size}; e++) inverse[e] = new[inverse[e]];
for (long e = {size}; e-- > 0;) first[inverse[e]] = e;"""


class UniqueRuns(OpDef):
    """Runs of equal ones in sorted values: each value, where it first was, which run each is in, how long they are"""

    name = "UniqueRuns"
    internal = True

    def infer(self, ins: Sequence[Value | None], attrs: dict[str, Any]) -> list[TensorType]:
        x = ins[0]
        assert x is not None
        row = TensorType(DType.I64, x.shape)
        return [TensorType(x.dtype, x.shape), row, row, row, COUNT]

    def ref(self, attrs: dict[str, Any], *xs: Array | None) -> list[Array]:
        v, order = xs
        assert v is not None and order is not None
        back = np.zeros_like(v)
        back[order] = v
        _, first, inverse, counts = np.unique(comparable(back), True, True, True)
        if not attrs["sorted"]:
            by = np.argsort(first, kind="stable")
            first, inverse, counts = first[by], np.argsort(by, kind="stable")[inverse], counts[by]
        rows = [_room(a.astype(np.int64), v.size) for a in (first, counts)]
        return [_room(back[first], v.size), rows[0], inverse.astype(np.int64), rows[1], np.array(first.size, np.int64)]

    def routine(self, n: Node, c: Any) -> str:
        v, order = n.used
        size, t = v.type.size, v.dtype.c
        values, first, inverse, counts, count = map(c.ptr, n.outputs)
        new = c.scratch(8 * size)
        differs = "(v[e] != v[e - 1] && !(v[e] != v[e] && v[e - 1] != v[e - 1]))" if v.dtype.is_float else (
            "v[e] != v[e - 1]")
        renumber = "" if n.attrs["sorted"] else _renumbered(new, size)
        return f"""\
const {t} *v = {c.ptr(v)};
const int64_t *order = {c.ptr(order)};
{t} *values = {values};
int64_t *first = {first}, *inverse = {inverse}, *counts = {counts};
long m = 0;
for (long e = 0; e < {size}; e++) {{
  if (e == 0 || {differs}) first[m++] = order[e];
  inverse[order[e]] = m - 1;
}}{renumber}
for (long e = 0; e < {size}; e++) counts[e] = 0;
for (long e = 0; e < {size}; e++) counts[inverse[e]]++;
for (long e = {size}; e-- > 0;) values[inverse[order[e]]] = v[e];
for (long e = m; e < {size}; e++) values[e] = 0, first[e] = 0;
*{count} = m;"""

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        rows: tuple[Array, ...] = (rng.integers(0, 4, 9), np.array([2, np.nan, 1, 2, np.nan, -0.0, 0.0], np.float32))
        for k, x in enumerate(rows):
            order = np.argsort(x, kind="stable")
            for s in (0, 1):
                yield Case((x[order], order.astype(np.int64)), {"sorted": s}, f"{k}{s}")


class UniqueRows(OpDef):
    """The same of rows of a matrix: each row, where it first was, which one each is, how many of each there are"""

    name = "UniqueRows"
    internal = True

    def infer(self, ins: Sequence[Value | None], attrs: dict[str, Any]) -> list[TensorType]:
        x = ins[0]
        assert x is not None and x.type.rank == 2
        row = TensorType(DType.I64, x.shape[:1])
        return [x.type.with_layout(None), row, row, row, COUNT]

    def ref(self, attrs: dict[str, Any], *xs: Array | None) -> list[Array]:
        x = xs[0]
        assert x is not None
        ranks = np.unique(comparable(x), return_inverse=True)[1].reshape(x.shape)  # of which NaN has one
        _, first, inverse, counts = np.unique(ranks, True, True, True, axis=0)
        inverse = inverse.reshape(-1)
        if not attrs["sorted"]:
            by = np.argsort(first, kind="stable")
            first, inverse, counts = first[by], np.argsort(by, kind="stable")[inverse], counts[by]
        places = [_room(a.astype(np.int64), len(x)) for a in (first, counts)]
        return [_room(x[first].T, len(x)).T, places[0], inverse.astype(np.int64), places[1],
                np.array(first.size, np.int64)]

    def routine(self, n: Node, c: Any) -> str:
        """Numbers of rows, sorted by a heap: no row is moved before it is known to stay"""
        x = n.used[0]
        (rows, width), t = x.shape, x.dtype.c
        values, first, inverse, counts, count = map(c.ptr, n.outputs)
        nan = " || ({1}[k] != {1}[k] && {0}[k] == {0}[k])" if x.dtype.is_float else ""
        first_less, last_less = (f"({a}[k] < {b}[k]{nan.format(a, b)})" for a, b in (("p", "q"), ("q", "p")))
        compare = f"""long before = -1;
      const {t} *p = x + a * {width}, *q = x + z * {width};
      for (long k = 0; k < {width} && before < 0; k++) before = {first_less} ? 1 : {last_less} ? 0 : -1;"""
        renumber = "" if n.attrs["sorted"] else _renumbered(c.scratch(8 * rows), rows)
        return f"""\
const {t} *x = {c.ptr(x)};
{t} *values = {values};
int64_t *first = {first}, *inverse = {inverse}, *counts = {counts}, *order = (int64_t *){c.scratch(8 * rows)};
for (long e = 0; e < {rows}; e++) order[e] = e;
for (long end = {rows}, top = {rows} / 2; end > 1;) {{
  int64_t down;
  if (top > 0) down = order[--top];
  else {{ down = order[--end]; order[end] = order[0]; }}
  long hole = top;
  for (long child; (child = 2 * hole + 1) < end; hole = child) {{
    for (long which = 0; which < 2; which++) {{
      const long a = which ? down : order[child], z = which ? order[child] : child + 1 < end ? order[child + 1] : -1;
      if (z < 0) continue;
      {compare}
      const int lower = before < 0 ? a < z : before;
      if (!which && lower) child++;
      if (which && !lower) goto found;
    }}
    order[hole] = order[child];
  }}
found:
  order[hole] = down;
}}
long m = 0;
for (long e = 0; e < {rows}; e++) {{
  int same = e > 0;
  const {t} *p = x + order[e] * {width}, *q = e ? x + order[e - 1] * {width} : p;
  for (long k = 0; k < {width} && same; k++) same = p[k] == q[k] || (p[k] != p[k] && q[k] != q[k]);
  if (!same) first[m++] = order[e];
  inverse[order[e]] = m - 1;
}}{renumber}
for (long e = 0; e < {rows}; e++) counts[e] = 0;
for (long e = 0; e < {rows}; e++) counts[inverse[e]]++;
for (long e = m; e < {rows}; e++) first[e] = 0;
for (long e = 0; e < m; e++) __builtin_memcpy(values + e * {width}, x + first[e] * {width}, {width * x.dtype.size});
__builtin_memset(values + m * {width}, 0, ({rows} - m) * {width * x.dtype.size});
*{count} = m;"""

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        nan = np.array([[np.nan, 1], [0, 2], [np.nan, 1], [-0.0, 2], [np.nan, 0]], np.float32)
        low = [rng.integers(0, 2, shape) for shape in ((40, 3), (1, 2), (9, 1))]
        for k, x in enumerate((*low, nan)):
            for s in (0, 1):
                yield Case((x,), {"sorted": s}, f"{k}{s}")


class NonMaxSuppression(OpDef):
    """Greedily from the best score on: a box stays unless it overlaps one that stayed"""

    name = "NonMaxSuppression"
    tol = EXACT
    example = {"center": 0, "limit": 2, "overlap": 0.5, "least": None}
    edges = (
        Edge("ties", "of equal scores the lower index comes first",
             (f32([[0, 0, 1, 1], [2, 2, 3, 3]]), f32([[0.5, 0.5]])), (i64([0, 0, 0], [0, 0, 1]), np.array(2))),
    )

    def from_onnx(self, b: Any, n: Any) -> Sequence[Any]:
        boxes, scores = n.inputs[:2]
        if (boxes.type.rank, scores.type.rank) != (3, 3) or boxes.shape[2] != 4 or (
                scores.shape[::2] != boxes.shape[:2]):
            n.fail(f"needs boxes [n,b,4] and scores [n,c,b], got {list(boxes.shape)} and {list(scores.shape)}")
        limit = int(np.ravel(n.const_or(2, 0, "max_output_boxes_per_class"))[0])
        attrs: dict[str, Any] = {"center": int(n.attrs.get("center_point_box", 0)),
                                 "limit": max(0, min(limit, boxes.shape[1])),
                                 "overlap": float(np.ravel(n.const_or(3, 0.0, "iou_threshold"))[0])}
        least = n.const_or(4, None, "score_threshold")
        attrs["least"] = None if least is None else float(np.ravel(least)[0])
        if boxes.const is not None and scores.const is not None:
            rows, count = self.ref(attrs, boxes.const.array, scores.const.array)
            return [b.const(rows[: int(count)])]
        found, stay = b.emit(self.name, [boxes, scores], attrs, outputs=2)
        return [Ragged(found, {0: stay})]

    def infer(self, ins: Sequence[Value | None], attrs: dict[str, Any]) -> list[TensorType]:
        scores = ins[1]
        assert scores is not None
        return [TensorType(DType.I64, (scores.shape[0] * scores.shape[1] * attrs["limit"], 3)), COUNT]

    def ref(self, attrs: dict[str, Any], *xs: Array | None) -> list[Array]:
        boxes, scores = xs
        assert boxes is not None and scores is not None
        rows = []
        for k, image in enumerate(corners(boxes, bool(attrs["center"]))):
            for c, s in enumerate(scores[k]):
                some = np.arange(len(s)) if attrs["least"] is None else np.flatnonzero(s > np.float32(attrs["least"]))
                order = some[np.argsort(-s[some], kind="stable")]
                rows += [(k, c, i) for i in suppressed(image, order, attrs["limit"], attrs["overlap"])]
        found = np.array(rows, np.int64).reshape(-1, 3)
        most = scores.shape[0] * scores.shape[1] * attrs["limit"]
        return [_room(found.T, most).T, np.array(len(found), np.int64)]

    def routine(self, n: Node, c: Any) -> str:
        boxes, scores = n.used
        (images, classes, count), a = scores.shape, n.attrs
        left = c.scratch(max(count, 1))
        corner = (("p[1] - p[3] / 2", "p[0] - p[2] / 2", "p[1] + p[3] / 2", "p[0] + p[2] / 2") if a["center"] else
                  (_least("p[0]", "p[2]"), _least("p[1]", "p[3]"), _most("p[0]", "p[2]"), _most("p[1]", "p[3]")))
        box = f"{{{', '.join(corner)}}}"
        least = "1" if a["least"] is None else f"s[i] > {_number(a['least'])}"
        return f"""\
char *left = {left};
int64_t *out = {c.ptr(n.outputs[0])};
long m = 0;
for (long k = 0; k < {images}; k++)
for (long c = 0; c < {classes}; c++) {{
  const float *s = {c.ptr(scores)} + (k * {classes} + c) * {count}, *all = {c.ptr(boxes)} + k * {count * 4};
  const long start = m;
  for (long i = 0; i < {count}; i++) left[i] = {least};
  while (m - start < {a["limit"]}) {{
    long best = -1;
    for (long i = 0; i < {count}; i++)
      if (left[i] && (best < 0 || s[i] > s[best] || (s[best] != s[best] && s[i] == s[i]))) best = i;
    if (best < 0) break;
    left[best] = 0;
    float b[4];
    {{ const float *p = all + best * 4, q[4] = {box}; __builtin_memcpy(b, q, 16); }}
    int stays = 1;
    for (long j = start; j < m && stays; j++) {{
      const float *p = all + out[3 * j + 2] * 4;
      const float q[4] = {box};
      const float h = {_least("b[2]", "q[2]")} - {_most("b[0]", "q[0]")};
      const float w = {_least("b[3]", "q[3]")} - {_most("b[1]", "q[1]")};
      const float one = (b[2] - b[0]) * (b[3] - b[1]), other = (q[2] - q[0]) * (q[3] - q[1]);
      const float shared = h > 0 && w > 0 ? h * w : 0, both = one + other - shared;
      stays = !(shared > 0 && one > 0 && other > 0 && both > 0 && shared / both > {_number(a["overlap"])});
    }}
    if (stays) out[3 * m] = k, out[3 * m + 1] = c, out[3 * m + 2] = best, m++;
  }}
}}
for (long e = 3 * m; e < {n.outputs[0].type.size}; e++) out[e] = 0;
*{c.ptr(n.outputs[1])} = m;"""

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        for center in (0, 1):
            boxes = (rng.uniform(0, 4, (2, 20, 4))).astype(np.float32)
            scores = rng.integers(0, 9, (2, 3, 20)).astype(np.float32) / 8
            for least, limit in ((None, 20), (0.3, 4), (5.0, 4)):
                attrs = {"center": center, "limit": limit, "overlap": 0.3, "least": least}
                yield Case((boxes, scores), attrs, f"{center}{limit}{least}")


def _least(a: str, b: str) -> str:
    return f"({a} < {b} ? {a} : {b})"


def _most(a: str, b: str) -> str:
    return f"({a} > {b} ? {a} : {b})"


def _number(x: float) -> str:
    """A float in C, exactly"""
    v = float(np.float32(x))
    return f"{v.hex()}f" if math.isfinite(v) else f"({'-' if v < 0 else ''}1.0f / 0)" if v == v else "(0.0f / 0)"


def corners(boxes: Array, centers: bool) -> Array:
    """[..., (low y, low x, high y, high x)] of both ways to give a box"""
    if centers:
        at, half = boxes[..., 1::-1], boxes[..., 3:1:-1] / 2
        return np.concatenate([at - half, at + half], -1)
    a, z = boxes[..., :2], boxes[..., 2:]
    return np.concatenate([np.minimum(a, z), np.maximum(a, z)], -1)


def suppressed(boxes: Array, order: Array, limit: int, overlap: float) -> list[int]:
    """Greedily from the best score on: a box stays unless it overlaps one that stayed."""
    area = np.prod(boxes[:, 2:] - boxes[:, :2], axis=1)
    stay: list[int] = []
    for i in order:
        if len(stay) >= limit:
            break
        size = np.minimum(boxes[i, 2:], boxes[stay, 2:]) - np.maximum(boxes[i, :2], boxes[stay, :2])
        shared = np.where((size > 0).all(axis=1), np.prod(size, axis=1), 0)
        union = area[i] + area[stay] - shared
        sound = (shared > 0) & (area[i] > 0) & (area[stay] > 0) & (union > 0)
        if not (sound & (shared / np.where(union > 0, union, 1) > np.float32(overlap))).any():
            stay.append(int(i))
    return stay
