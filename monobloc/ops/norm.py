"""Normalizations: subtract a mean, divide by a deviation, scale and shift.

Means and variances are folds of their own (two passes: the variance is the mean of squared
differences, never a difference of large sums). The loop generator computes them once per row because
they do not depend on the innermost index. Half floats compute in float32.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from monobloc.errors import ModelError
from monobloc.ir.expr import Expr, Fn, all_of, call, cast, idx, lift, reduce, select
from monobloc.ir.graph import Node, Value
from monobloc.ir.symbolic import is_open
from monobloc.ir.types import DType, TensorType
from monobloc.ops import Case, OpDef
from monobloc.ops.build import cast_to
from monobloc.ops.contract import INF, NAN, Edge, f32
from monobloc.ops.elementwise import bcast, broadcast_shapes
from monobloc.ops.pool import abs_power, root
from monobloc.ops.reduce import normalized_axes, np_wide, wide

Array = np.ndarray
Attrs = dict[str, Any]


def widened(f: Fn) -> Fn:
    """`f` with its elements in the type that sums are made in"""

    def at(*i: Expr) -> Expr:
        e = f(*i)
        return cast(e, wide(e.dtype))

    return at


def rows(x: Fn, i: Sequence[Expr], axes: Sequence[int]) -> Fn:
    """Elements of the row through `i` along `axes`."""

    def at(*r: Expr) -> Expr:
        index = list(i)
        for a, v in zip(axes, r, strict=True):
            index[a] = v
        return x(*index)

    return at


def mean_of(extents: Sequence[int], row: Fn) -> Expr:
    total, count = reduce("sum", extents, row), math.prod(extents)
    if is_open(count):
        return call("mul", total, call("div", lift(1, total.dtype), lift(count, total.dtype)))
    return call("mul", total, lift(1 / max(count, 1), total.dtype))


def moments(extents: Sequence[int], row: Fn) -> tuple[Expr, Expr]:
    """mean and variance of a row"""
    mean = mean_of(extents, row)

    def squared(*r: Expr) -> Expr:
        d = row(*r) - mean
        return call("mul", d, d)

    return mean, mean_of(extents, squared)


def inverse_deviation(variance: Expr, epsilon: float) -> Expr:
    return call("reciprocal", call("sqrt", variance + epsilon))


def need_shape(op: str, what: str, v: Value | None, shape: tuple[int, ...]) -> None:
    if v is not None and v.shape != shape:
        raise ModelError(f"{op} {what} has shape {list(v.shape)}, the input needs {list(shape)}")


class BatchNormalization(OpDef):
    """(x - mean) / sqrt(var + epsilon) * scale + bias per channel, with given statistics"""

    name = "BatchNormalization"
    example = {"epsilon": 0.0}
    edges = (
        Edge("NaN", "stays where it is", (f32([NAN, 1]), f32(1, 1), f32(0, 0), f32(0, 0), f32(1, 1)), (f32([NAN, 1]),)),
        Edge("infinities", "stay where they are", (f32([INF, 1]), f32(1, 1), f32(0, 0), f32(0, 0), f32(1, 1)),
             (f32([INF, 1]),)),
        Edge("division by 0", "a variance of 0 without epsilon gives an infinity, or NaN for the mean itself",
             (f32([1, 0]), f32(1, 1), f32(0, 0), f32(0, 0), f32(0, 0)), (f32([INF, NAN]),)).differs(
            "onnxruntime", "gives NaN for both", "it multiplies scale and shift first, and inf - inf is NaN"),
    )

    def from_onnx(self, b: Any, n: Any) -> Sequence[Value | None]:
        if n.attrs.get("training_mode", 0):
            return self._training(b, n)
        if n.n_outputs > 1:
            n.unsupported("BatchNormalization in training mode")
        if n.opset < 7 and not n.attrs.get("is_test", 0):
            n.unsupported("BatchNormalization in training mode")
        epsilon = {"epsilon": float(n.attrs.get("epsilon", 1e-5))}
        if n.opset < 9 and not n.attrs.get("spatial", 1):  # every element of a sample is a channel
            x = n.inputs[0]
            flat = [b.one("Reshape", v, shape=[x.shape[0], -1] if v is x else [-1]) for v in n.inputs[:5]]
            return [b.one("Reshape", b.one(self.name, *flat, **epsilon), shape=list(x.shape))]
        return b.emit(self.name, n.inputs[:5], epsilon)

    def _training(self, b: Any, n: Any) -> Sequence[Value | None]:
        """With the statistics of the batch, which move the running ones"""
        x, scale, bias, mean, var = n.inputs[:5]
        axes, keep = [k for k in range(x.type.rank) if k != 1], float(n.attrs.get("momentum", 0.9))
        at = b.one("ReduceMean", x, axes=axes, keepdims=1)
        off = b.one("Sub", x, at)
        spread = b.one("ReduceMean", b.one("Mul", off, off), axes=axes, keepdims=0)
        at = b.one("Reshape", at, shape=list(spread.shape))
        epsilon = float(n.attrs.get("epsilon", 1e-5))
        y = b.emit(self.name, [x, *(cast_to(b, v, x.dtype) for v in (scale, bias, at, spread))], {"epsilon": epsilon})
        moved = []
        for old, new in ((mean, at), (var, spread)):
            k = (b.const(np.array(f, old.dtype.numpy)) for f in (keep, 1 - keep))
            moved.append(b.one("Add", b.one("Mul", old, next(k)), b.one("Mul", cast_to(b, new, old.dtype), next(k))))
        return [*y, *moved]

    def infer(self, ins: Sequence[Value | None], attrs: Attrs) -> list[TensorType]:
        x = ins[0]
        assert x is not None
        if x.type.rank < 1:
            raise ModelError(f"{self.name} needs a tensor of rank 1 or more, got {x.type}")
        channels = x.shape[1] if x.type.rank > 1 else 1
        for what, v in zip(("scale", "bias", "mean", "variance"), ins[1:], strict=True):
            need_shape(self.name, what, v, (channels,))
        return [TensorType(x.dtype, x.shape)]

    def ref(self, attrs: Attrs, *xs: Array | None) -> Array:
        x = xs[0]
        assert x is not None
        shape = [1, -1] + [1] * (x.ndim - 2) if x.ndim > 1 else [1]
        scale, bias, mean, var = (p.astype(np.float64).reshape(shape) for p in xs[1:])  # type: ignore[union-attr]
        y = (np_wide(x) - mean) / np.sqrt(var + attrs["epsilon"]) * scale + bias
        return y.astype(x.dtype)

    def expr(self, n: Node, *xs: Fn | None) -> Fn:
        x, scale, bias, mean, var = (widened(f) for f in xs if f is not None)
        out = n.outputs[0].dtype

        def at(*i: Expr) -> Expr:
            c = i[1] if len(i) > 1 else idx(0)
            e = x(*i)
            gain, shift, center, spread = (cast(p(c), e.dtype) for p in (scale, bias, mean, var))
            factor = call("mul", gain, inverse_deviation(spread, n.attrs["epsilon"]))
            return cast(call("mul", e - center, factor) + shift, out)

        return at

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        for shape in ((2, 5, 3, 4), (3, 5), (1, 5, 7)):
            x = rng.standard_normal(shape).astype(np.float32)
            p = [rng.standard_normal(5).astype(np.float32) for _ in range(3)]
            var = rng.uniform(0.1, 2, 5).astype(np.float32)
            yield Case((x, *p, var), {"epsilon": 1e-3}, f"rank{len(shape)}")


class InstanceNormalization(OpDef):
    """Statistics over the spatial axes of each sample and channel."""

    name = "InstanceNormalization"
    example = {"epsilon": 0.0}
    edges = (
        Edge("NaN", "makes what it is averaged with NaN", (f32([[1, NAN], [-1, 1]]), f32(1, 1), f32(0, 0)),
             (f32([[NAN, NAN], [-1, 1]]),)),
        Edge("infinities", "as NaN", (f32([[1, INF], [-1, 1]]), f32(1, 1), f32(0, 0)), (f32([[NAN, NAN], [-1, 1]]),)),
    )

    def from_onnx(self, b: Any, n: Any) -> Sequence[Value | None]:
        return b.emit(self.name, n.inputs[:3], {"epsilon": float(n.attrs.get("epsilon", 1e-5))})

    def infer(self, ins: Sequence[Value | None], attrs: Attrs) -> list[TensorType]:
        x = ins[0]
        assert x is not None
        if x.type.rank < 3:
            raise ModelError(f"{self.name} needs at least one spatial axis, got {x.type}")
        need_shape(self.name, "scale", ins[1], (x.shape[1],))
        need_shape(self.name, "bias", ins[2], (x.shape[1],))
        return [TensorType(x.dtype, x.shape)]

    def ref(self, attrs: Attrs, *xs: Array | None) -> Array:
        x, scale, bias = (np_wide(v) for v in xs)  # type: ignore[arg-type]
        axes = tuple(range(2, x.ndim))
        shape = [1, -1] + [1] * len(axes)
        mean, var = x.mean(axes, keepdims=True), x.var(axes, keepdims=True)
        y = (x - mean) / np.sqrt(var + attrs["epsilon"]) * scale.reshape(shape) + bias.reshape(shape)
        return y.astype(xs[0].dtype)  # type: ignore[union-attr]

    def expr(self, n: Node, *xs: Fn | None) -> Fn:
        x, scale, bias = (widened(f) for f in xs if f is not None)
        out = n.outputs[0]
        axes = range(2, out.type.rank)
        extents = out.shape[2:]

        def at(*i: Expr) -> Expr:
            mean, var = moments(extents, rows(x, i, axes))
            factor = call("mul", inverse_deviation(var, n.attrs["epsilon"]), scale(i[1]))
            return cast(call("mul", x(*i) - mean, factor) + bias(i[1]), out.dtype)

        return at

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        for shape in ((2, 3, 4, 5), (1, 3, 40)):
            x = rng.standard_normal(shape).astype(np.float32)
            p = [rng.standard_normal(3).astype(np.float32) for _ in range(2)]
            yield Case((x, *p), {"epsilon": 1e-5}, f"rank{len(shape)}")
        half = (rng.standard_normal((1, 2, 64)) * 100 + 300).astype(np.float16)
        yield Case((half, np.ones(2, np.float16), np.zeros(2, np.float16)), {"epsilon": 1e-5}, "half_large")


class GroupNormalization(OpDef):
    """Scale and bias are per channel, or per group as opset 18 had them."""

    name = "GroupNormalization"
    example = {"epsilon": 0.0, "num_groups": 2}
    edges = (
        Edge("NaN", "makes what it is averaged with NaN", (f32([[1, NAN], [-1, 1]]), f32(1, 1), f32(0, 0)),
             (f32([[NAN, NAN], [-1, 1]]),)),
        Edge("infinities", "as NaN", (f32([[1, INF], [-1, 1]]), f32(1, 1), f32(0, 0)), (f32([[NAN, NAN], [-1, 1]]),)),
    )

    def from_onnx(self, b: Any, n: Any) -> Sequence[Value | None]:
        attrs = {"epsilon": float(n.attrs.get("epsilon", 1e-5)), "num_groups": int(n.attrs["num_groups"])}
        return b.emit(self.name, n.inputs[:3], attrs)

    def infer(self, ins: Sequence[Value | None], attrs: Attrs) -> list[TensorType]:
        x, scale, bias = ins
        assert x is not None and scale is not None and bias is not None
        groups = attrs["num_groups"]
        if x.type.rank < 2 or groups < 1 or x.shape[1] % groups:
            raise ModelError(f"{self.name} of {x.type} in {groups} groups: the channels do not divide")
        if scale.shape not in ((x.shape[1],), (groups,)):
            need_shape(self.name, "scale", scale, (x.shape[1],))
        need_shape(self.name, "bias", bias, scale.shape)
        return [TensorType(x.dtype, x.shape)]

    def ref(self, attrs: Attrs, *xs: Array | None) -> Array:
        x, scale, bias = (np_wide(v) for v in xs)  # type: ignore[arg-type]
        groups, shape = attrs["num_groups"], x.shape
        rows_ = x.reshape(shape[0], groups, math.prod(shape[1:]) // groups)
        mean, var = rows_.mean(-1, keepdims=True), rows_.var(-1, keepdims=True)
        y = ((rows_ - mean) / np.sqrt(var + attrs["epsilon"])).reshape(shape)
        per = [1, -1] + [1] * (x.ndim - 2)
        scale, bias = (np.repeat(p, shape[1] // p.size).reshape(per) for p in (scale, bias))
        return (y * scale + bias).astype(xs[0].dtype)  # type: ignore[union-attr]

    def expr(self, n: Node, *xs: Fn | None) -> Fn:
        x, scale, bias = (widened(f) for f in xs if f is not None)
        out, parameters = n.outputs[0], n.inputs[1]
        assert parameters is not None
        size = out.shape[1] // n.attrs["num_groups"]
        each = out.shape[1] // parameters.shape[0]
        extents = [size, *out.shape[2:]]

        def at(*i: Expr) -> Expr:
            first = (i[1] // size) * size
            mean, var = moments(extents, lambda *r: x(i[0], first + r[0], *r[1:]))
            factor = call("mul", inverse_deviation(var, n.attrs["epsilon"]), scale(i[1] // each))
            return cast(call("mul", x(*i) - mean, factor) + bias(i[1] // each), out.dtype)

        return at

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        x = rng.standard_normal((2, 6, 3, 4)).astype(np.float32)
        for count, name in ((6, "per_channel"), (2, "per_group")):
            p = [rng.standard_normal(count).astype(np.float32) for _ in range(2)]
            yield Case((x, *p), {"epsilon": 1e-5, "num_groups": 2}, name)


class LayerNormalization(OpDef):
    """Statistics over the axes from `axis` on; mean and inverse deviation are further outputs."""

    name = "LayerNormalization"
    example = {"axis": 2, "epsilon": 0.0}
    edges = (
        Edge("NaN", "makes what it is averaged with NaN", (f32([[1, NAN], [-1, 1]]), f32(1, 1), f32(0, 0)),
             (f32([[NAN, NAN], [-1, 1]]),)),
        Edge("infinities", "as NaN", (f32([[1, INF], [-1, 1]]), f32(1, 1), f32(0, 0)), (f32([[NAN, NAN], [-1, 1]]),)),
    )

    def from_onnx(self, b: Any, n: Any) -> Sequence[Value | None]:
        x = n.inputs[0]
        if int(n.attrs.get("stash_type", 1)) != 1:
            n.unsupported(f"LayerNormalization with stash_type {n.attrs['stash_type']}")
        axis = normalized_axes([int(n.attrs.get("axis", -1))], x.type.rank)[0]
        attrs = {"axis": axis, "epsilon": float(n.attrs.get("epsilon", 1e-5))}
        return b.emit(self.name, [x, n.inputs[1], n.input(2)], attrs, outputs=n.n_outputs)

    def infer(self, ins: Sequence[Value | None], attrs: Attrs) -> list[TensorType]:
        x = ins[0]
        assert x is not None
        axis = attrs["axis"]
        for what, v in zip(("scale", "bias"), ins[1:], strict=False):
            if v is not None and broadcast_shapes(x.shape, v.shape) != x.shape:
                raise ModelError(f"{self.name} {what} of {list(v.shape)} does not broadcast to {list(x.shape)}")
        kept = x.shape[:axis] + (1,) * (x.type.rank - axis)
        stash = TensorType(wide(x.dtype), kept)
        return [TensorType(x.dtype, x.shape), stash, stash]

    def ref(self, attrs: Attrs, *xs: Array | None) -> list[Array]:
        x, scale, bias = [*xs, None][:3]
        assert x is not None and scale is not None
        axes = tuple(range(attrs["axis"], x.ndim))
        v = np_wide(x)
        mean, var = v.mean(axes, keepdims=True), v.var(axes, keepdims=True)
        inv = 1 / np.sqrt(var + attrs["epsilon"])
        y = (v - mean) * inv * np_wide(scale)
        stash = wide(DType.of(x.dtype)).numpy
        y = y if bias is None else y + np_wide(bias)
        return [y.astype(x.dtype), mean.astype(stash), inv.astype(stash)]

    def expr(self, n: Node, *xs: Fn | None) -> list[Fn]:
        x, scale, bias = [None if f is None else widened(f) for f in [*xs, None][:3]]
        v, s, t = [*n.inputs, None][:3]
        assert x is not None and scale is not None and v is not None and s is not None
        rank, axes = v.type.rank, range(n.attrs["axis"], v.type.rank)
        extents = [v.shape[a] for a in axes]
        factor_of = bcast(scale, s.shape, rank)
        shift_of = None if bias is None or t is None else bcast(bias, t.shape, rank)

        def stats(i: Sequence[Expr]) -> tuple[Expr, Expr]:
            mean, var = moments(extents, rows(x, i, axes))
            return mean, inverse_deviation(var, n.attrs["epsilon"])

        def at(*i: Expr) -> Expr:
            mean, inverse = stats(i)
            y = call("mul", call("mul", x(*i) - mean, inverse), factor_of(*i))
            return cast(y if shift_of is None else y + shift_of(*i), v.dtype)

        return [at, lambda *i: stats(i)[0], lambda *i: stats(i)[1]][: len(n.outputs)]

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        x = rng.standard_normal((2, 3, 4, 5)).astype(np.float32)
        for axis in (1, 3):
            p = [rng.standard_normal(x.shape[axis:]).astype(np.float32) for _ in range(2)]
            yield Case((x, *p), {"axis": axis, "epsilon": 1e-5}, f"axis{axis}")
        yield Case((x, np.array([2] * 5, np.float32)), {"axis": 3, "epsilon": 1e-5}, "no_bias")
        half = (rng.standard_normal((3, 64)) * 100 + 300).astype(np.float16)
        yield Case((half, np.ones(64, np.float16)), {"axis": 1, "epsilon": 1e-5}, "half_large")


class RMSNormalization(OpDef):
    """x / sqrt(mean(x^2) + epsilon) * scale over the axes from `axis` on"""

    name = "RMSNormalization"
    example = {"axis": 1, "epsilon": 0.0}
    edges = (
        Edge("NaN", "makes what it is averaged with NaN", (f32([1, NAN], [-1, 1]), f32(1, 1)),
             (f32([NAN, NAN], [-1, 1]),)),
        Edge("infinities", "are NaN; the others of the row are 0", (f32([1, INF], [-1, 1]), f32(1, 1)),
             (f32([0, NAN], [-1, 1]),)),
    )

    def from_onnx(self, b: Any, n: Any) -> Sequence[Value | None]:
        x = n.inputs[0]
        if int(n.attrs.get("stash_type", 1)) != 1:
            n.unsupported(f"RMSNormalization with stash_type {n.attrs['stash_type']}")
        axis = normalized_axes([int(n.attrs.get("axis", -1))], x.type.rank)[0]
        return b.emit(self.name, n.inputs[:2], {"axis": axis, "epsilon": float(n.attrs.get("epsilon", 1e-5))})

    def infer(self, ins: Sequence[Value | None], attrs: Attrs) -> list[TensorType]:
        x, scale = ins
        assert x is not None and scale is not None
        if broadcast_shapes(x.shape, scale.shape) != x.shape:
            raise ModelError(f"{self.name} scale of {list(scale.shape)} does not broadcast to {list(x.shape)}")
        return [TensorType(x.dtype, x.shape)]

    def ref(self, attrs: Attrs, *xs: Array | None) -> Array:
        x, scale = (np_wide(v) for v in xs)  # type: ignore[arg-type]
        axes = tuple(range(attrs["axis"], x.ndim))
        y = x / np.sqrt((x * x).mean(axes, keepdims=True) + attrs["epsilon"]) * scale
        return y.astype(xs[0].dtype)  # type: ignore[union-attr]

    def expr(self, n: Node, *xs: Fn | None) -> Fn:
        x, scale = (widened(f) for f in xs if f is not None)
        v, s = n.inputs
        assert v is not None and s is not None
        axes = range(n.attrs["axis"], v.type.rank)
        extents = [v.shape[a] for a in axes]
        factor_of = bcast(scale, s.shape, v.type.rank)

        def at(*i: Expr) -> Expr:
            row = rows(x, i, axes)
            inverse = inverse_deviation(mean_of(extents, lambda *r: abs_power(row(*r), 2)), n.attrs["epsilon"])
            return cast(call("mul", call("mul", x(*i), inverse), factor_of(*i)), v.dtype)

        return at

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        x = rng.standard_normal((2, 3, 4)).astype(np.float32)
        for axis in (1, 2):
            yield Case((x, rng.standard_normal(x.shape[axis:]).astype(np.float32)), {"axis": axis, "epsilon": 1e-5})


class LpNormalization(OpDef):
    """x / (sum |x|^p)^(1/p) along an axis; a row of norm zero gives zeros"""

    name = "LpNormalization"
    example = {"axis": 1, "p": 2}
    edges = (
        Edge("NaN", "makes its row NaN", (f32([1, NAN], [3, 4]),), (f32([NAN, NAN], [0.6, 0.8]),)),
        Edge("infinities", "are NaN; the others of the row are 0", (f32([1, INF], [3, 4]),),
             (f32([0, NAN], [0.6, 0.8]),)),
        Edge("division by 0", "a row of zeros stays 0", (f32([0, 0]),), (f32([0, 0]),)),
    )

    def from_onnx(self, b: Any, n: Any) -> Sequence[Value | None]:
        x, p = n.inputs[0], int(n.attrs.get("p", 2))
        if p not in (1, 2):
            n.fail(f"LpNormalization with p = {p}, must be 1 or 2")
        axis = normalized_axes([int(n.attrs.get("axis", -1))], x.type.rank)[0]
        return b.emit(self.name, [x], {"axis": axis, "p": p})

    def infer(self, ins: Sequence[Value | None], attrs: Attrs) -> list[TensorType]:
        x = ins[0]
        assert x is not None
        return [TensorType(x.dtype, x.shape)]

    def ref(self, attrs: Attrs, *xs: Array | None) -> Array:
        x = np_wide(xs[0])  # type: ignore[arg-type]
        norm = (np.abs(x) ** attrs["p"]).sum(attrs["axis"], keepdims=True) ** (1 / attrs["p"])
        return np.where(norm == 0, 0, x / np.where(norm == 0, 1, norm)).astype(xs[0].dtype)  # type: ignore

    def expr(self, n: Node, *xs: Fn | None) -> Fn:
        assert xs[0] is not None
        x, axis, p = widened(xs[0]), n.attrs["axis"], n.attrs["p"]
        out = n.outputs[0]

        def at(*i: Expr) -> Expr:
            row = rows(x, i, [axis])
            norm = root(reduce("sum", [out.shape[axis]], lambda r: abs_power(row(r), p)), p)
            safe = select(norm.eq(0), lift(1, norm.dtype), norm)
            return cast(call("div", x(*i), safe), out.dtype)

        return at

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        x = rng.standard_normal((2, 3, 4)).astype(np.float32)
        x[0, :, 1] = 0
        for p in (1, 2):
            yield Case((x,), {"axis": 1, "p": p}, f"p{p}")


class MeanVarianceNormalization(OpDef):
    """(x - mean) / (sqrt(var) + 1e-9) over `axes`"""

    name = "MeanVarianceNormalization"
    example = {"axes": [1]}
    edges = (
        Edge("NaN", "makes what it is averaged with NaN", (f32([1, NAN], [-1, 1]),), (f32([NAN, NAN], [-1, 1]),)),
        Edge("infinities", "as NaN", (f32([1, INF], [-1, 1]),), (f32([NAN, NAN], [-1, 1]),)),
    )

    def from_onnx(self, b: Any, n: Any) -> Sequence[Value | None]:
        x = n.inputs[0]
        axes = normalized_axes(n.ints("axes", [0, 2, 3]), x.type.rank)
        return b.emit(self.name, [x], {"axes": axes})

    def infer(self, ins: Sequence[Value | None], attrs: Attrs) -> list[TensorType]:
        x = ins[0]
        assert x is not None
        return [TensorType(x.dtype, x.shape)]

    def ref(self, attrs: Attrs, *xs: Array | None) -> Array:
        x, axes = np_wide(xs[0]), tuple(attrs["axes"])  # type: ignore[arg-type]
        y = (x - x.mean(axes, keepdims=True)) / (x.std(axes, keepdims=True) + 1e-9)
        return y.astype(xs[0].dtype)  # type: ignore[union-attr]

    def expr(self, n: Node, *xs: Fn | None) -> Fn:
        assert xs[0] is not None
        x, axes, out = widened(xs[0]), n.attrs["axes"], n.outputs[0]
        extents = [out.shape[a] for a in axes]

        def at(*i: Expr) -> Expr:
            mean, var = moments(extents, rows(x, i, axes))
            return cast(call("div", x(*i) - mean, call("sqrt", var) + 1e-9), out.dtype)

        return at

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        yield Case((rng.standard_normal((2, 3, 4, 5)).astype(np.float32),), {"axes": [0, 2, 3]})


class LRN(OpDef):
    """x / (bias + alpha / size * sum of squares of `size` neighbouring channels)^beta"""

    name = "LRN"
    edges = (
        Edge("NaN", "stays in the channels round it", (f32([[NAN]], [[1]], [[1]]).reshape(1, 3, 1),),
             (f32([[NAN]], [[NAN]], [[1]]).reshape(1, 3, 1),), {"size": 3, "alpha": 0.0, "beta": 0.75, "bias": 1.0}),
        Edge("infinities", "are NaN; the channels round them are 0", (f32(INF, 1, 1).reshape(1, 3, 1),),
             (f32(NAN, 0, 0.5946035).reshape(1, 3, 1),), {"size": 3, "alpha": 3.0, "beta": 0.75, "bias": 0.0}),
    )
    defaults = (("alpha", 1e-4), ("beta", 0.75), ("bias", 1.0))

    def from_onnx(self, b: Any, n: Any) -> Sequence[Value | None]:
        attrs: Attrs = {k: float(n.attrs.get(k, v)) for k, v in self.defaults}
        attrs["size"] = int(n.attrs["size"])
        if attrs["size"] < 1:
            n.fail(f"LRN needs a positive size, got {attrs['size']}")
        return b.emit("LRN", n.inputs[:1], attrs)

    def infer(self, ins: Sequence[Value | None], attrs: Attrs) -> list[TensorType]:
        x = ins[0]
        assert x is not None
        if x.type.rank < 2:
            raise ModelError(f"LRN needs a channel axis, got {x.type}")
        return [TensorType(x.dtype, x.shape)]

    def ref(self, attrs: Attrs, *xs: Array | None) -> Array:
        x, size = np_wide(xs[0]), attrs["size"]  # type: ignore[arg-type]
        total, channels = np.zeros_like(x), x.shape[1]
        for c in range(channels):
            lo, hi = max(c - (size - 1) // 2, 0), min(c + size // 2 + 1, channels)
            total[:, c] = (x[:, lo:hi] ** 2).sum(1)
        y = x / (attrs["bias"] + attrs["alpha"] / size * total) ** attrs["beta"]
        return y.astype(xs[0].dtype)  # type: ignore[union-attr]

    def expr(self, n: Node, *xs: Fn | None) -> Fn:
        assert xs[0] is not None
        x, a, out = widened(xs[0]), n.attrs, n.outputs[0]
        before = (a["size"] - 1) // 2

        def at(*i: Expr) -> Expr:
            def near(r: Expr) -> Expr:
                return i[1] + r - before

            def squared(r: Expr) -> Expr:
                return abs_power(x(i[0], near(r), *i[2:]), 2)

            total = reduce(
                "sum", [a["size"]], squared, lambda r: all_of((near(r).ge(0), near(r).lt(out.shape[1])))
            )
            base = call("mul", total, lift(a["alpha"] / a["size"], total.dtype)) + a["bias"]
            power = call("exp", call("log", base) * -a["beta"])
            if base.dtype is DType.F64:
                power = call("reciprocal", call("pow", base, lift(a["beta"], base.dtype)))
            return cast(call("mul", x(*i), power), out.dtype)

        return at

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        # onnx.reference fills as many channels as there are samples: equal numbers keep it usable
        x = rng.standard_normal((6, 6, 3, 2)).astype(np.float32) * 3
        for size in (3, 4):
            yield Case((x,), {"size": size, "alpha": 0.01, "beta": 0.75, "bias": 1.5}, f"size{size}")
