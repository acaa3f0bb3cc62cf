"""Operators about order: the best elements, where they are, running sums, and distinct elements.

NaN is larger than every number, and of equal elements the one with the lower index comes first.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import numpy as np

from monobloc.errors import ModelError
from monobloc.ir.expr import BOOL, Expr, Fn, call, idx, reduce
from monobloc.ir.graph import Node, Value
from monobloc.ir.types import DType, TensorType
from monobloc.ops import EXACT, Case, OpDef, Tol
from monobloc.ops.contract import INF, NAN, NAN_LOST, Edge, f32, i32, i64
from monobloc.ops.shape import axis_of, only, reshape
from monobloc.ops.sized import Ragged

Array = np.ndarray


def comparable(x: Array) -> Array:
    """what numpy can sort: half floats as float32"""
    return x.astype(np.float32) if x.dtype.kind not in "biuf" else x


# -- where the largest is -----------------------------------------------------------------------------
class ArgExtreme(OpDef):
    """Index of the largest or smallest element along `axis`, the first or the last of equal ones"""

    kind: ClassVar[str]

    def from_onnx(self, b: Any, n: Any) -> Sequence[Value | None]:
        x = n.inputs[0]
        axis = axis_of(n.attrs.get("axis", 0), x.type.rank, self.name)
        keep, last = int(n.attrs.get("keepdims", 1) == 1), n.attrs.get("select_last_index", 0)
        return b.emit(self.name, [x], {"axis": axis, "keepdims": keep, "select_last_index": last})

    def infer(self, ins: Sequence[Value | None], attrs: dict[str, Any]) -> list[TensorType]:
        x, axis = only(ins[0], self.name), attrs["axis"]
        if not x.shape[axis]:
            raise ModelError(f"{self.name} along axis {axis} of shape {list(x.shape)}, which is empty")
        kept = (1,) if attrs["keepdims"] else ()
        return [TensorType(DType.I64, (*x.shape[:axis], *kept, *x.shape[axis + 1 :]))]

    def ref(self, attrs: dict[str, Any], *xs: Array | None) -> Array:
        assert xs[0] is not None
        x, axis, last = comparable(xs[0]), attrs["axis"], attrs["select_last_index"]
        find = np.argmax if self.kind == "max" else np.argmin
        at = find(np.flip(x, axis) if last else x, axis)
        at = x.shape[axis] - 1 - at if last else at
        return (np.expand_dims(at, axis) if attrs["keepdims"] else at).astype(np.int64)

    def expr(self, n: Node, *xs: Fn | None) -> Fn:
        x, axis = xs[0], n.attrs["axis"]
        assert x is not None
        size, skip = n.used[0].shape[axis], 1 if n.attrs["keepdims"] else 0
        fold = "max" if n.attrs["select_last_index"] else "min"

        def at(*i: Expr) -> Expr:
            if size == 1:
                return idx(0)

            def element(k: Expr) -> Expr:
                return x(*i[:axis], k, *i[axis + skip :])

            best = reduce(self.kind, [size], element)

            def is_best(k: Expr) -> Expr:
                e = element(k)
                same = e.eq(best)
                return call("lor", same, call("isnan", e, dtype=BOOL)) if e.dtype.is_float else same

            return reduce(fold, [size], lambda k: k, is_best)

        return at

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        x = rng.integers(-3, 4, (3, 7, 4)).astype(np.float32)
        for axis in (0, 1, 2):
            for last in (0, 1):
                yield Case((x,), {"axis": axis, "keepdims": last, "select_last_index": last}, f"{axis}_{last}")
        y = x.copy()
        y[0, 2:4, 0] = np.nan
        yield Case((y,), {"axis": 1, "keepdims": 0, "select_last_index": 0}, "nan")
        yield Case((x.astype(np.uint8),), {"axis": 1, "keepdims": 0, "select_last_index": 0}, "u8")
        yield Case((x[:1],), {"axis": 0, "keepdims": 0, "select_last_index": 1}, "single")


class ArgMax(ArgExtreme):
    """Index of the largest element"""

    name = "ArgMax"
    tol = EXACT
    example = {"axis": 0, "keepdims": 1, "select_last_index": 0}
    edges = (
        Edge("ties", "the first, with `select_last_index` the last", (f32(1, 3, 3, 2),), (i64(1),)),
        Edge("NaN", "is larger than every number", (f32(1, NAN, INF),), (i64(1),)).differs(
            "onnxruntime", "loses it", NAN_LOST),
    )
    kind = "max"


class ArgMin(ArgExtreme):
    """Index of the smallest element"""

    name = "ArgMin"
    tol = EXACT
    example = {"axis": 0, "keepdims": 1, "select_last_index": 0}
    edges = (
        Edge("ties", "the first, with `select_last_index` the last", (f32(3, 1, 1, 2),), (i64(1),)),
        Edge("NaN", "is smaller than every number", (f32(1, NAN, -INF),), (i64(1),)).differs(
            "onnxruntime", "loses it", NAN_LOST),
    )
    kind = "min"


# -- the best k -----------------------------------------------------------------------------------------
class TopK(OpDef):
    """The k largest or smallest elements along `axis` and their indices, best first"""

    name = "TopK"
    tol = EXACT
    example = {"k": 2, "axis": 0, "largest": 1, "sorted": 1}
    edges = (
        Edge("ties", "the lower index comes first", (f32(1, 3, 3, 3),), (f32(3, 3), i64(1, 2))),
        Edge("NaN", "is larger than every number", (f32(1, NAN, INF),), (f32(NAN, INF), i64(1, 2))),
    )

    def from_onnx(self, b: Any, n: Any) -> Sequence[Value | None]:
        x = n.inputs[0]
        axis = axis_of(n.attrs.get("axis", -1), x.type.rank, "TopK")
        if n.opset >= 10 and n.inputs[1].const is None:
            return self._chosen(b, n, x, axis)
        k = n.attrs["k"] if n.opset < 10 else int(np.asarray(n.const(1, "K")).ravel()[0])
        return b.emit("TopK", [x], {"axis": axis, "k": int(k), "largest": n.attrs.get("largest", 1)}, outputs=2)

    def _chosen(self, b: Any, n: Any, x: Value, axis: int) -> Sequence[Any]:
        """All in order, of which as many are there as a run says"""
        attrs = {"axis": axis, "k": x.shape[axis], "largest": n.attrs.get("largest", 1)}
        count = b.one("Bounded", reshape(b, n.inputs[1], []), least=0, most=x.shape[axis])
        return [Ragged(v, {axis: count}) for v in b.emit("TopK", [x], attrs, outputs=2)]

    def infer(self, ins: Sequence[Value | None], attrs: dict[str, Any]) -> list[TensorType]:
        x, axis, k = only(ins[0], "TopK"), attrs["axis"], attrs["k"]
        if not 0 <= k <= x.shape[axis]:
            raise ModelError(f"TopK wants {k} of {x.shape[axis]} elements along axis {axis}")
        if x.dtype is DType.BOOL:
            raise ModelError("TopK of booleans")
        shape = (*x.shape[:axis], k, *x.shape[axis + 1 :])
        return [TensorType(x.dtype, shape), TensorType(DType.I64, shape)]

    def ref(self, attrs: dict[str, Any], *xs: Array | None) -> list[Array]:
        x, axis = xs[0], attrs["axis"]
        assert x is not None
        keys = comparable(x)
        if attrs["largest"]:
            order = x.shape[axis] - 1 - np.flip(np.argsort(np.flip(keys, axis), axis, kind="stable"), axis)
        else:
            order = np.argsort(keys, axis, kind="stable")
        at = np.take(order, np.arange(attrs["k"]), axis).astype(np.int64)
        return [np.take_along_axis(x, at, axis), at]

    def routine(self, n: Node, c: Any) -> str:
        x, axis = n.used[0], n.attrs["axis"]
        outer, size, inner = math.prod(x.shape[:axis]), x.shape[axis], math.prod(x.shape[axis + 1 :])
        values = c.ptr(n.outputs[0])
        at = c.ptr(n.outputs[1]) if len(n.outputs) > 1 else c.scratch(8 * n.outputs[0].type.size)
        t, worse = x.dtype.c, _worse(x.dtype, bool(n.attrs["largest"]))
        left, right = ((f"v[{p} * {inner}]", f"w[{p} * {inner}]") for p in ("q", "(q + 1)"))
        return f"""\
const {t} *x = {c.ptr(x)};
{t} *y = {values};
int64_t *at = (int64_t *){at};
for (long o = 0; o < {outer}; o++)
for (long i = 0; i < {inner}; i++) {{
  /* a heap of the best so far, the worst of them at its root */
  const {t} *s = x + o * {size * inner} + i;
  {t} *v = y + o * {n.attrs["k"] * inner} + i;
  int64_t *w = at + o * {n.attrs["k"] * inner} + i;
  for (long e = 0, n = 0; e < {size + n.attrs["k"]}; e++) {{
    {t} a;
    int64_t b;
    long p = 0;
    if (e < {size}) {{ /* one more element */
      a = s[e * {inner}], b = e;
      if (n < {n.attrs["k"]}) {{
        for (p = n++; p > 0; ) {{
          long q = (p - 1) / 2;
          {t} c = v[q * {inner}];
          int64_t d = w[q * {inner}];
          if (!({worse("a", "b", "c", "d")})) break;
          v[p * {inner}] = c, w[p * {inner}] = d, p = q;
        }}
        v[p * {inner}] = a, w[p * {inner}] = b;
        continue;
      }}
      if (n == 0 || !({worse("v[0]", "w[0]", "a", "b")})) continue;
    }} else {{ /* the worst goes to the end of what is left */
      if (--n <= 0) break;
      a = v[n * {inner}], b = w[n * {inner}];
      v[n * {inner}] = v[0], w[n * {inner}] = w[0];
    }}
    for (long q = 1; q < n; q = 2 * p + 1) {{
      if (q + 1 < n && ({worse(*right, *left)})) q++;
      if (!({worse(*left, "a", "b")})) break;
      v[p * {inner}] = v[q * {inner}], w[p * {inner}] = w[q * {inner}], p = q;
    }}
    v[p * {inner}] = a, w[p * {inner}] = b;
  }}
}}"""

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        x = rng.integers(-5, 6, (3, 9, 2)).astype(np.float32)
        for largest in (0, 1):
            for axis, k in ((0, 2), (1, 4), (1, 9), (2, 1)):
                yield Case((x,), {"axis": axis, "k": k, "largest": largest}, f"{axis}_{k}_{largest}")
        y = x.copy()
        y[0, 1, :], y[1, 5, 0], y[2, 0, 1] = np.nan, np.inf, -np.inf
        yield Case((y,), {"axis": 1, "k": 3, "largest": 1}, "nan")
        yield Case((y,), {"axis": 1, "k": 8, "largest": 0}, "nan_smallest")
        yield Case((x.astype(np.int64),), {"axis": 1, "k": 5, "largest": 1}, "i64")
        yield Case((x,), {"axis": 1, "k": 0, "largest": 1}, "none")


def _worse(dtype: DType, largest: bool) -> Any:
    """C: whether element (a, index b) comes after (c, index d) in the result"""

    def less(a: str, c: str) -> str:
        return f"({a} < {c} || ({a} == {a} && {c} != {c}))" if dtype.is_float else f"{a} < {c}"

    def text(a: str, b: str, c: str, d: str) -> str:
        first, second = (a, c) if largest else (c, a)
        return f"{less(first, second)} || (!({less(second, first)}) && {b} > {d})"

    return text


# -- running sums -----------------------------------------------------------------------------------------
class Running(OpDef):
    """Base: a fold of all elements up to one along `axis`; without that one if exclusive, from the end
    if reverse"""

    tol = Tol(1e-4, 1e-5)
    fold: ClassVar[Any]
    sign: ClassVar[str]  # of the fold in C
    start: ClassVar[int]

    def from_onnx(self, b: Any, n: Any) -> Sequence[Value | None]:
        x = n.inputs[0]
        axis = axis_of(int(np.asarray(n.const(1, "axis")).ravel()[0]), x.type.rank, self.name)
        attrs = {"axis": axis, "exclusive": n.attrs.get("exclusive", 0), "reverse": n.attrs.get("reverse", 0)}
        return b.emit(self.name, [x], attrs)

    def infer(self, ins: Sequence[Value | None], attrs: dict[str, Any]) -> list[TensorType]:
        x = only(ins[0], self.name)
        if x.dtype is DType.BOOL:
            raise ModelError(f"{self.name} of booleans")
        return [TensorType(x.dtype, x.shape)]

    def ref(self, attrs: dict[str, Any], *xs: Array | None) -> Array:
        x, axis = xs[0], attrs["axis"]
        assert x is not None
        y = np.flip(x, axis) if attrs["reverse"] else x
        wide = y.astype(np.float64) if x.dtype.kind not in "iu" else y
        if attrs["exclusive"]:
            front = [(1, 0) if k == axis else (0, 0) for k in range(x.ndim)]
            wide = np.pad(wide, front, constant_values=self.start)
            wide = wide[tuple(slice(-1 if k == axis else None) for k in range(x.ndim))]
        total = type(self).fold.accumulate(wide, axis, dtype=wide.dtype)
        return (np.flip(total, axis) if attrs["reverse"] else total).astype(x.dtype)

    def routine(self, n: Node, c: Any) -> str:
        x, axis = n.used[0], n.attrs["axis"]
        outer, size, inner = math.prod(x.shape[:axis]), x.shape[axis], math.prod(x.shape[axis + 1 :])
        t = x.dtype.c
        wide = "float" if x.dtype in (DType.F16, DType.BF16) else t
        if x.dtype.is_int:
            wide = "uint64_t"  # it wraps
        at = f"(o * {size} + {f'{size - 1} - e' if n.attrs['reverse'] else 'e'}) * {inner} + i"
        add, put = f"all {self.sign}= ({wide})x[p];", f"y[p] = ({t})all;"
        # x and y may be the same memory: the element is read before it is written over
        exclusive = f"{wide} v = ({wide})x[p]; {put} all {self.sign}= v;"
        return f"""\
const {t} *x = {c.ptr(x)};
{t} *y = {c.ptr(n.outputs[0])};
for (long o = 0; o < {outer}; o++)
for (long i = 0; i < {inner}; i++) {{
  {wide} all = {self.start};
  for (long e = 0; e < {size}; e++) {{
    long p = {at};
    {exclusive if n.attrs["exclusive"] else f"{add} {put}"}
  }}
}}"""

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        x = rng.standard_normal((3, 5, 4)).astype(np.float32)
        for exclusive in (0, 1):
            for reverse in (0, 1):
                attrs = {"axis": exclusive + reverse, "exclusive": exclusive, "reverse": reverse}
                yield Case((x,), attrs, f"{exclusive}{reverse}")
        yield Case(((x * 9).astype(np.int32),), {"axis": 1, "exclusive": 0, "reverse": 0}, "int")
        yield Case((x.astype(np.float16),), {"axis": 1, "exclusive": 1, "reverse": 1}, "half")
        yield Case((x[:, :0],), {"axis": 1, "exclusive": 1, "reverse": 0}, "empty")


class CumSum(Running):
    """Running sum"""

    name = "CumSum"
    example = {"axis": 0, "exclusive": 0, "reverse": 0}
    edges = (
        Edge("NaN", "stays in every later sum", (f32(1, NAN, 2),), (f32(1, NAN, NAN),)),
        Edge("infinities", "inf - inf is NaN", (f32(INF, 1, -INF),), (f32(INF, INF, NAN),)),
        Edge("overflow", "wraps", (i32(2**31 - 1, 1),), (i32(2**31 - 1, -(2**31)),)),
    )
    fold = np.add
    sign = "+"
    start = 0


class CumProd(Running):
    """Running product"""

    name = "CumProd"
    example = {"axis": 0, "exclusive": 0, "reverse": 0}
    edges = (
        Edge("NaN", "stays in every later product", (f32(1, NAN, 0),), (f32(1, NAN, NAN),)),
        Edge("infinities", "by 0 is NaN", (f32(INF, 0),), (f32(INF, NAN),)),
        Edge("overflow", "wraps", (i32(2**30, 4),), (i32(2**30, 0),)),
    )
    fold = np.multiply
    sign = "*"
    start = 1
