"""Matrix products: MatMul, Gemm, and their integer forms.

In the IR a MatMul's operands have rank 2 or more (vectors become matrices when the model is read), so
the contraction kernels see one shape of problem. The expressions are the general fallback: any dtype,
any broadcasting, a fold over k. Integer products are exact in int32.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from monobloc.errors import ModelError
from monobloc.ir.expr import Expr, Fn, Num, call, cast, idx, lift, reduce
from monobloc.ir.graph import Node, Value
from monobloc.ir.types import DType, TensorType
from monobloc.ops import EXACT, Case, OpDef
from monobloc.ops.contract import INF, NAN, Edge, f16, f32, i8, i32
from monobloc.ops.elementwise import bcast, broadcast_shapes, same_dtype
from monobloc.ops.quant import np_requantize, requantize
from monobloc.ops.reduce import np_wide, wide

Array = np.ndarray
Attrs = dict[str, Any]
I32 = DType.I32


def product_shape(op: str, a: Value, b: Value) -> tuple[int, ...]:
    """Shape of a matrix product of operands of rank 2 or more."""
    if a.type.rank < 2 or b.type.rank < 2:
        raise ModelError(f"{op} needs matrices, got {a.type} and {b.type}")
    if a.shape[-1] != b.shape[-2]:
        raise ModelError(f"{op} inner sizes differ: {a.shape[-1]} of {a.type} and {b.shape[-2]} of {b.type}")
    batch = broadcast_shapes(a.shape[:-2], b.shape[:-2])
    return (*batch, a.shape[-2], b.shape[-1])


def as_matrices(b: Any, n: Any, x: Value, y: Value) -> tuple[Value, Value, list[int] | None]:
    """Operands of rank 2 or more, and the shape to give the result in the end (None: as it is)."""
    if x.type.rank == 0 or y.type.rank == 0:
        n.fail(f"{n.op} needs tensors of rank 1 or more, got {x.type} and {y.type}")
    left, right = x.type.rank == 1, y.type.rank == 1
    if not (left or right):
        return x, y, None
    inner = x.shape[-1], y.shape[0] if right else y.shape[-2]
    if inner[0] != inner[1]:
        n.fail(f"{n.op} inner sizes differ: {inner[0]} of {x.type} and {inner[1]} of {y.type}")
    final = [*x.shape[:-1], *([] if right else (*y.shape[:-2], y.shape[-1]))]
    x = b.one("Reshape", x, shape=[1, x.shape[0]]) if left else x
    y = b.one("Reshape", y, shape=[y.shape[0], 1]) if right else y
    if left and not right:
        final = [*y.shape[:-2], y.shape[-1]]
    return x, y, final


def batched(f: Fn, v: Value, rank: int) -> Fn:
    """Operand `v` read with the batch indices of a result of `rank` (they broadcast) and its own row
    and column."""
    skip = rank - v.type.rank

    def at(*i: Expr) -> Expr:
        head = [idx(0) if d == 1 else i[skip + k] for k, d in enumerate(v.shape[:-2])]
        return f(*head, *i[-2:])

    return at


def product_type(op: str, ins: Sequence[Value | None], attrs: Attrs) -> DType:
    """Operands are of one type, which the result has; passes may store one narrower, and say the result's."""
    return attrs["to"] if "to" in attrs else same_dtype(op, ins)


class MatMul(OpDef):
    """The matrix product; with `to` operands may be of other types than the result, and are widened"""

    name = "MatMul"
    edges = (
        Edge("NaN", "stays in its row and column, also against 0", (f32([NAN, 1], [1, 1]), f32([0, 1], [0, 1])),
             (f32([NAN, NAN], [0, 2]),)),
        Edge("infinities", "by 0 is NaN; others are not touched", (f32([INF, 1], [1, 1]), f32([0, 1], [1, 1])),
             (f32([NAN, INF], [1, 2]),)),
        Edge("overflow", "halves are summed in float32, integers wrap", (f16([200, 200]), f16([400], [-400])),
             (f16([0]),)),
        Edge("nothing", "a sum of no terms is 0", (np.zeros((2, 0), np.float32), np.zeros((0, 1), np.float32)),
             (f32([0], [0]),)),
    )
    contraction = "matmul"

    def from_onnx(self, b: Any, n: Any) -> Sequence[Value | None]:
        x, y, final = as_matrices(b, n, *n.inputs[:2])
        out = b.one("MatMul", x, y)
        return [out if final is None else b.one("Reshape", out, shape=final)]

    def infer(self, ins: Sequence[Value | None], attrs: Attrs) -> list[TensorType]:
        a, b = ins
        assert a is not None and b is not None
        return [TensorType(product_type("MatMul", ins, attrs), product_shape("MatMul", a, b))]

    def ref(self, attrs: Attrs, *xs: Array | None) -> Array:
        a, b = xs
        assert a is not None and b is not None
        return np.matmul(np_wide(a), np_wide(b)).astype(attrs["to"].numpy if "to" in attrs else a.dtype)

    def expr(self, n: Node, *xs: Fn | None) -> Fn:
        a, b = n.inputs
        assert a is not None and b is not None and xs[0] is not None and xs[1] is not None
        out = n.outputs[0].type
        fa, fb = batched(xs[0], a, out.rank), batched(xs[1], b, out.rank)

        def at(*i: Expr) -> Expr:
            def term(k: Expr) -> Expr:
                p, q = fa(*i[:-2], i[-2], k), fb(*i[:-2], k, i[-1])
                return call("mul", cast(p, wide(out.dtype)), cast(q, wide(out.dtype)))

            return cast(reduce("sum", [a.shape[-1]], term), out.dtype)

        return at

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        def f(*shape: int) -> Array:
            return rng.standard_normal(shape).astype(np.float32)

        yield Case((f(5, 7), f(7, 9)), {}, "2d")
        yield Case((f(2, 1, 3, 4), f(5, 4, 2)), {}, "batch_broadcast")
        yield Case((f(3, 0), f(0, 2)), {}, "empty_k")
        yield Case((f(1, 33), f(33, 1)), {}, "dot")
        ints = rng.integers(-50, 50, (3, 4)), rng.integers(-50, 50, (4, 5))
        yield Case(tuple(x.astype(np.int32) for x in ints), {}, "i32")
        yield Case((f(3, 300).astype(np.float16), f(300, 2).astype(np.float16)), {}, "half")


class Gemm(OpDef):
    """alpha * A' B' + beta * C, with A and B transposed as asked; C broadcasts"""

    name = "Gemm"
    example = {"alpha": 1.0, "beta": 1.0, "transA": 0, "transB": 0}
    edges = (
        Edge("NaN", "stays in its row and column, also against 0", (f32([NAN, 1], [1, 1]), f32([0, 1], [0, 1])),
             (f32([NAN, NAN], [0, 2]),)),
        Edge("infinities", "by 0 is NaN; others are not touched", (f32([INF, 1], [1, 1]), f32([0, 1], [1, 1])),
             (f32([NAN, INF], [1, 2]),)),
        Edge("nothing", "a sum of no terms is 0", (np.zeros((2, 0), np.float32), np.zeros((0, 1), np.float32)),
             (f32([0], [0]),)),
    )
    contraction = "gemm"

    def from_onnx(self, b: Any, n: Any) -> Sequence[Value | None]:
        attrs = {
            "alpha": float(n.attrs.get("alpha", 1.0)),
            "beta": float(n.attrs.get("beta", 1.0)),
            "transA": int(bool(n.attrs.get("transA", 0))),
            "transB": int(bool(n.attrs.get("transB", 0))),
        }
        return b.emit("Gemm", [n.inputs[0], n.inputs[1], n.input(2)], attrs)

    def infer(self, ins: Sequence[Value | None], attrs: Attrs) -> list[TensorType]:
        a, b, c = [*ins, None][:3]
        assert a is not None and b is not None
        if a.type.rank != 2 or b.type.rank != 2:
            raise ModelError(f"Gemm needs matrices, got {a.type} and {b.type}")
        m, k = a.shape[::-1] if attrs["transA"] else a.shape
        k2, cols = b.shape[::-1] if attrs["transB"] else b.shape
        if k != k2:
            raise ModelError(f"Gemm inner sizes differ: {k} of {a.type} and {k2} of {b.type}")
        if c is not None and broadcast_shapes((m, cols), c.shape) != (m, cols):
            raise ModelError(f"Gemm C of {list(c.shape)} does not broadcast to {[m, cols]}")
        return [TensorType(same_dtype("Gemm", ins), (m, cols))]

    def ref(self, attrs: Attrs, *xs: Array | None) -> Array:
        a, b, c = [*xs, None][:3]
        assert a is not None and b is not None
        x, y = (np_wide(v.T if attrs[t] else v) for v, t in ((a, "transA"), (b, "transB")))
        out = x @ y * _factor(attrs["alpha"], x.dtype)
        if c is not None:
            out = out + np_wide(c) * _factor(attrs["beta"], x.dtype)
        return out.astype(a.dtype)

    def expr(self, n: Node, *xs: Fn | None) -> Fn:
        a, c, attrs = n.inputs[0], n.inputs[2] if len(n.inputs) > 2 else None, n.attrs
        fa, fb, fc = [*xs, None][:3]
        assert a is not None and fa is not None and fb is not None
        out = n.outputs[0].type
        extent = a.shape[0 if attrs["transA"] else 1]

        def at(i: Expr, j: Expr) -> Expr:
            def term(k: Expr) -> Expr:
                p = fa(k, i) if attrs["transA"] else fa(i, k)
                q = fb(j, k) if attrs["transB"] else fb(k, j)
                return call("mul", cast(p, wide(p.dtype)), cast(q, wide(q.dtype)))

            e = scaled(reduce("sum", [extent], term), attrs["alpha"])
            if fc is not None and c is not None and attrs["beta"] != 0:
                addend = bcast(fc, c.shape, 2)(i, j)
                e = e + scaled(cast(addend, e.dtype), attrs["beta"])
            return cast(e, out.dtype)

        return at

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        def f(*shape: int) -> Array:
            return rng.standard_normal(shape).astype(np.float32)

        plain = {"alpha": 1.0, "beta": 1.0, "transA": 0, "transB": 0}
        yield Case((f(3, 4), f(4, 5)), plain, "no_c")
        yield Case((f(3, 4), f(5, 4), f(5)), plain | {"transB": 1}, "bias")
        yield Case((f(4, 3), f(4, 5), f(3, 1)), plain | {"transA": 1, "alpha": 0.5, "beta": 2.0}, "alpha_beta")
        yield Case((f(4, 3), f(5, 4), f(1, 1)), plain | {"transA": 1, "transB": 1, "beta": 0.0}, "no_beta")
        ints = [rng.integers(-9, 9, s).astype(np.int32) for s in ((3, 4), (4, 5), (5,))]
        yield Case(tuple(ints), plain | {"alpha": 2.0}, "i32")


def _factor(x: float, d: np.dtype) -> Any:
    return int(x) if d.kind in "iu" else x


def scaled(e: Expr, factor: float) -> Expr:
    return e if factor == 1 else call("mul", e, lift(factor, e.dtype))


# -- integers ---------------------------------------------------------------------------------------
def zero_reader(f: Fn | None, v: Value | None, rows: bool) -> Fn:
    """Zero point of an operand at (batch..., row or column) as int32: a scalar, per row or column, or
    per batch and row or column."""
    if f is None or v is None:
        return lambda *i: Num(0, I32)

    def at(*i: Expr) -> Expr:
        if v.type.size == 1:
            return cast(f(*[idx(0)] * v.type.rank), I32)
        if v.type.rank == 1:
            return cast(f(i[-2] if rows else i[-1]), I32)
        index = [idx(0) if d == 1 else i[len(i) - v.type.rank + k] for k, d in enumerate(v.shape)]
        return cast(f(*index), I32)

    return at


def np_zero(z: Array | None, rows: bool) -> Array:
    if z is None:
        return np.int32(0)  # type: ignore[return-value]
    z = z.astype(np.int32)
    return z.reshape(()) if z.size == 1 else z[:, None] if z.ndim == 1 and rows else z


def integer_product(n: Node, a: int, b: int, az: int, bz: int, xs: Sequence[Fn | None]) -> Fn:
    """Exact int32 product of zero-point-corrected operands; the arguments are input numbers."""
    ins = [*n.inputs, None, None, None]
    va, vb = ins[a], ins[b]
    fs = [*xs, None, None, None]
    assert va is not None and vb is not None and fs[a] is not None and fs[b] is not None
    rank = n.outputs[0].type.rank
    fa, fb = batched(fs[a], va, rank), batched(fs[b], vb, rank)  # type: ignore[arg-type]
    za, zb = zero_reader(fs[az], ins[az], True), zero_reader(fs[bz], ins[bz], False)

    def at(*i: Expr) -> Expr:
        def term(k: Expr) -> Expr:
            p = cast(fa(*i[:-2], i[-2], k), I32)
            q = cast(fb(*i[:-2], k, i[-1]), I32)
            return call("mul", minus(p, za(*i)), minus(q, zb(*i)))

        return reduce("sum", [va.shape[-1]], term)

    return at


def minus(x: Expr, zero: Expr) -> Expr:
    return x if isinstance(zero, Num) and zero.value == 0 else call("sub", x, zero)


def check_zero(op: str, what: str, v: Value | None, of: Value, allowed: tuple[int, ...]) -> None:
    """A zero point has the type of what it belongs to, and one element or one per row or column."""
    if v is None:
        return
    if v.dtype is not of.dtype:
        raise ModelError(f"{op} {what} zero point is {v.dtype.value}, its tensor is {of.dtype.value}")
    if v.type.size not in (1, *allowed):
        raise ModelError(f"{op} {what} zero point has {v.type.size} elements for {of.type}")


class MatMulInteger(OpDef):
    name = "MatMulInteger"
    tol = EXACT
    edges = (
        Edge("overflow", "exact in int32, which wraps", (i8([-128, -128]), i8([-128], [-128])), (i32([32768]),)),
    )

    def from_onnx(self, b: Any, n: Any) -> Sequence[Value | None]:
        x, y, final = as_matrices(b, n, *n.inputs[:2])
        out = b.one("MatMulInteger", x, y, n.input(2), n.input(3))
        return [out if final is None else b.one("Reshape", out, shape=final)]

    def infer(self, ins: Sequence[Value | None], attrs: Attrs) -> list[TensorType]:
        a, b, az, bz = [*ins, None, None][:4]
        assert a is not None and b is not None
        shape = product_shape(self.name, a, b)
        check_zero(self.name, "A", az, a, (shape[-2], a.type.size // max(a.shape[-1], 1)))
        check_zero(self.name, "B", bz, b, (shape[-1], b.type.size // max(b.shape[-2], 1)))
        return [TensorType(I32, shape)]

    def ref(self, attrs: Attrs, *xs: Array | None) -> Array:
        a, b, az, bz = [*xs, None, None][:4]
        assert a is not None and b is not None
        return np.matmul(a.astype(np.int32) - np_zero(az, True), b.astype(np.int32) - np_zero(bz, False))

    def expr(self, n: Node, *xs: Fn | None) -> Fn:
        return integer_product(n, 0, 1, 2, 3, xs)

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        a = rng.integers(0, 256, (4, 6)).astype(np.uint8)
        b = rng.integers(-128, 128, (6, 5)).astype(np.int8)
        yield Case((a, b), {}, "plain")
        yield Case((a, b, np.uint8(12), np.int8(-3)), {}, "scalars")
        zeros = rng.integers(-5, 5, (5,)).astype(np.int8)
        yield Case((a, b, np.arange(4).astype(np.uint8), zeros), {}, "vectors")


class QLinearMatMul(OpDef):
    """The integer product, scaled in float32, rounded half to even, shifted and saturated"""

    name = "QLinearMatMul"
    tol = EXACT
    edges = (
        Edge("ties", "go to the even number",
             (i8([1], [3], [-1]), f32(0.5)[0], i8(0)[0], i8([1]), f32(1)[0], i8(0)[0], f32(1)[0], i8(0)[0]),
             (i8([0], [2], [0]),)),
        Edge("overflow", "saturates",
             (i8([127], [-128]), f32(1)[0], i8(0)[0], i8([2]), f32(1)[0], i8(0)[0], f32(1)[0], i8(0)[0]),
             (i8([127], [-128]),)),
    )

    def from_onnx(self, b: Any, n: Any) -> Sequence[Value | None]:
        a, a_scale, a_zero, y, y_scale, y_zero, scale, zero = n.inputs
        a, y, final = as_matrices(b, n, a, y)
        out = b.one("QLinearMatMul", a, a_scale, a_zero, y, y_scale, y_zero, scale, zero)
        return [out if final is None else b.one("Reshape", out, shape=final)]

    def infer(self, ins: Sequence[Value | None], attrs: Attrs) -> list[TensorType]:
        a, _, az, b, _, bz, _, zero = ins
        assert a is not None and b is not None and zero is not None
        shape = product_shape(self.name, a, b)
        check_zero(self.name, "A", az, a, (shape[-2], a.type.size // max(a.shape[-1], 1)))
        check_zero(self.name, "B", bz, b, (shape[-1], b.type.size // max(b.shape[-2], 1)))
        return [TensorType(zero.dtype, shape)]

    def ref(self, attrs: Attrs, *xs: Array | None) -> Array:
        a, sa, az, b, sb, bz, sy, zy = xs
        assert a is not None and b is not None and sy is not None and zy is not None
        total = np.matmul(a.astype(np.int32) - np_zero(az, True), b.astype(np.int32) - np_zero(bz, False))
        return np_requantize(total, _per(sa, True) * _per(sb, False) / sy.astype(np.float32), zy)

    def expr(self, n: Node, *xs: Fn | None) -> Fn:
        total = integer_product(n, 0, 3, 2, 5, xs)
        readers = [scale_reader(xs[k], n.inputs[k], k == 1) for k in (1, 4, 6)]
        zero = zero_reader(xs[7], n.inputs[7], True)
        out = n.outputs[0].dtype

        def at(*i: Expr) -> Expr:
            sa, sb, sy = (r(*i) for r in readers)
            return requantize(total(*i), call("div", call("mul", sa, sb), sy), zero(*i), out)

        return at

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        a = rng.integers(0, 256, (2, 3, 6)).astype(np.uint8)
        b = rng.integers(0, 256, (2, 6, 5)).astype(np.uint8)
        s = [np.float32(v) for v in (0.0066, 0.00705, 0.0107)]
        z = [np.uint8(v) for v in (113, 114, 118)]
        yield Case((a, s[0], z[0], b, s[1], z[1], s[2], z[2]), {}, "u8")
        signed = [np.int8(v) for v in (-3, 4, -9)]
        ai, bi = (v.view(np.int8) for v in (a, b))
        yield Case((ai, s[0], signed[0], bi, s[1], signed[1], s[2], signed[2]), {}, "i8")
        per = rng.uniform(0.001, 0.01, 5).astype(np.float32), rng.integers(0, 9, 5).astype(np.uint8)
        yield Case((a[0], s[0], z[0], b[0], *per, s[2], z[2]), {}, "per_column")


def scale_reader(f: Fn | None, v: Value | None, rows: bool) -> Fn:
    """A scale as float32, placed as its zero point is."""
    assert f is not None and v is not None

    def at(*i: Expr) -> Expr:
        if v.type.size == 1:
            return cast(f(*[idx(0)] * v.type.rank), DType.F32)
        if v.type.rank == 1:
            return cast(f(i[-2] if rows else i[-1]), DType.F32)
        index = [idx(0) if d == 1 else i[len(i) - v.type.rank + k] for k, d in enumerate(v.shape)]
        return cast(f(*index), DType.F32)

    return at


def _per(s: Array | None, rows: bool) -> Array:
    assert s is not None
    s = s.astype(np.float32)
    return s.reshape(()) if s.size == 1 else s[:, None] if s.ndim == 1 and rows else s
