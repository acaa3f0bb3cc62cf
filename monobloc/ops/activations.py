"""Activations: elementwise functions of one input with parameters."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import numpy as np

from monobloc.ir.expr import Expr, call, cast, lift, select
from monobloc.ir.graph import Value
from monobloc.ir.types import DType
from monobloc.ops import Case
from monobloc.ops.contract import INF, NAN, Edge, at, f32, i32
from monobloc.ops.elementwise import Array, Elementwise
from monobloc.ops.unary import np_erf


class PRelu(Elementwise):
    """x where x >= 0, slope * x elsewhere"""

    name = "PRelu"
    edges = (
        Edge("NaN", "stays", (f32(NAN, 1), f32(0.5)), (f32(NAN, 1),)),
        Edge("infinities", "-inf by a slope of 0 is NaN", (f32(INF, -INF), f32(0)), (f32(INF, NAN),)),
        Edge("-0.0", "stays", (f32(-0.0), f32(0.5)), (f32(-0.0),)),
    )

    def from_onnx(self, b: Any, n: Any) -> Sequence[Value | None]:
        x, slope = n.inputs
        if n.opset < 7 and slope.type.rank == 1 and x.type.rank > 1:
            slope = b.one("Reshape", slope, shape=[slope.shape[0]] + [1] * (x.type.rank - 2))
        return b.emit("PRelu", [x, slope])

    def ref(self, attrs: dict[str, Any], *xs: Array | None) -> Array:
        x, s = xs
        return np.asarray(np.where(x < 0, x * s, x))  # type: ignore[operator]

    def scalar(self, attrs: dict[str, Any], *xs: Expr) -> Expr:
        x, s = xs
        return select(x.lt(0), call("mul", x, s), x)

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        yield Case((rng.standard_normal((2, 3, 4)).astype(np.float32), np.array([[0.1], [0.2], [0.3]], np.float32)), {})


class Parametric(Elementwise):
    """Activations of one input with float attributes and their defaults."""

    defaults: ClassVar[dict[str, float]] = {}

    def from_onnx(self, b: Any, n: Any) -> Sequence[Value | None]:
        attrs = {k: float(n.attrs.get(k, v)) for k, v in self.defaults.items()}
        return b.emit(self.name, n.inputs[:1], attrs)

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        x = rng.standard_normal((5, 33)).astype(np.float32) * 3
        yield Case((x,), dict(self.defaults))
        x[0, :4] = np.nan, np.inf, -np.inf, -0.0
        yield Case((x,), {k: v * 0.7 for k, v in self.defaults.items()}, "other")


class LeakyRelu(Parametric):
    name = "LeakyRelu"
    edges = at(NAN, INF, -INF, -0.0, {"alpha": 0.01})
    defaults = {"alpha": 0.01}

    def ref(self, attrs: dict[str, Any], *xs: Array | None) -> Array:
        x = xs[0]
        return np.where(x < 0, x * x.dtype.type(attrs["alpha"]), x)  # type: ignore

    def scalar(self, attrs: dict[str, Any], *xs: Expr) -> Expr:
        x = xs[0]
        return select(x.lt(0), x * attrs["alpha"], x)


class Elu(Parametric):
    name = "Elu"
    edges = at(NAN, INF, -1, -0.0, {"alpha": 1.0})
    defaults = {"alpha": 1.0}

    def ref(self, attrs: dict[str, Any], *xs: Array | None) -> Array:
        x = xs[0].astype(np.float64)  # type: ignore[union-attr]
        return np.where(x < 0, attrs["alpha"] * np.expm1(x), x).astype(xs[0].dtype)  # type: ignore

    def scalar(self, attrs: dict[str, Any], *xs: Expr) -> Expr:
        x = xs[0]
        return select(x.lt(0), call("expm1", x) * attrs["alpha"], x)


def zero_from_two_parts(edges: tuple[Edge, ...]) -> tuple[Edge, ...]:
    why = "it adds a positive and a negative part, and the sum of two zeros is 0"
    return tuple(e.differs("onnxruntime", "gives 0", why) if e.topic == "-0.0" else e for e in edges)


class Celu(Parametric):
    name = "Celu"
    example = {"alpha": 1.0}
    edges = zero_from_two_parts(at(NAN, INF, -1, -0.0))
    defaults = {"alpha": 1.0}

    def from_onnx(self, b: Any, n: Any) -> Sequence[Value | None]:
        if not n.attrs.get("alpha", 1.0):
            n.fail("alpha is 0, by which Celu divides")
        return super().from_onnx(b, n)

    def ref(self, attrs: dict[str, Any], *xs: Array | None) -> Array:
        x = xs[0].astype(np.float64)  # type: ignore[union-attr]
        a = attrs["alpha"]
        return np.where(x < 0, a * np.expm1(x / a), x).astype(xs[0].dtype)  # type: ignore

    def scalar(self, attrs: dict[str, Any], *xs: Expr) -> Expr:
        x, a = xs[0], attrs["alpha"]
        return select(x.lt(0), call("expm1", call("div", x, lift(a, x.dtype))) * a, x)


class Selu(Parametric):
    name = "Selu"
    example = {"alpha": 1.6732632, "gamma": 1.050701}
    edges = zero_from_two_parts(at(NAN, INF, -1.7580993, -0.0))
    defaults = {"alpha": 1.67326319217681884765625, "gamma": 1.05070102214813232421875}

    def ref(self, attrs: dict[str, Any], *xs: Array | None) -> Array:
        x = xs[0].astype(np.float64)  # type: ignore[union-attr]
        y = attrs["gamma"] * np.where(x <= 0, attrs["alpha"] * np.expm1(x), x)
        return y.astype(xs[0].dtype)  # type: ignore[union-attr]

    def scalar(self, attrs: dict[str, Any], *xs: Expr) -> Expr:
        x = xs[0]
        neg = call("expm1", x) * attrs["alpha"]
        return select(x.le(0), neg, x) * attrs["gamma"]


class HardSigmoid(Parametric):
    name = "HardSigmoid"
    edges = at(NAN, 1, 0, 0.5, {"alpha": 0.2, "beta": 0.5})
    defaults = {"alpha": 0.2, "beta": 0.5}

    def ref(self, attrs: dict[str, Any], *xs: Array | None) -> Array:
        t = xs[0].dtype.type  # type: ignore[union-attr]
        return np.clip(xs[0] * t(attrs["alpha"]) + t(attrs["beta"]), 0, 1).astype(t)

    def scalar(self, attrs: dict[str, Any], *xs: Expr) -> Expr:
        x = xs[0]
        y = x * attrs["alpha"] + attrs["beta"]
        return call("min", call("max", y, lift(0, x.dtype)), lift(1, x.dtype))


class HardSwish(Parametric):
    """x * max(0, min(1, x / 6 + 0.5))"""

    name = "HardSwish"
    edges = at(NAN, INF, NAN, -0.0)

    def ref(self, attrs: dict[str, Any], *xs: Array | None) -> Array:
        t = xs[0].dtype.type  # type: ignore[union-attr]
        return (xs[0] * np.clip(xs[0] * t(1 / 6) + t(0.5), 0, 1)).astype(t)

    def scalar(self, attrs: dict[str, Any], *xs: Expr) -> Expr:
        x = xs[0]
        gate = call("min", call("max", x * (1 / 6) + 0.5, lift(0, x.dtype)), lift(1, x.dtype))
        return call("mul", x, gate)


class ThresholdedRelu(Parametric):
    name = "ThresholdedRelu"
    edges = at(0, INF, 0, 0, {"alpha": 1.0})
    defaults = {"alpha": 1.0}

    def ref(self, attrs: dict[str, Any], *xs: Array | None) -> Array:
        x = xs[0]
        return np.where(x > x.dtype.type(attrs["alpha"]), x, x.dtype.type(0))  # type: ignore

    def scalar(self, attrs: dict[str, Any], *xs: Expr) -> Expr:
        x = xs[0]
        return select(x.gt(attrs["alpha"]), x, lift(0, x.dtype))


class Shrink(Parametric):
    name = "Shrink"
    example = {"lambd": 0.5, "bias": 0.0}
    edges = (
        *at(0, INF, -INF, 0),
        Edge("other", "integers are compared and shifted as real numbers, then cut towards 0", (i32(3, 0, 1, -3),),
             (i32(2, 0, 0, -2),), {"lambd": 1.5, "bias": 0.5}),
        Edge("other", "as does a negative threshold", (i32(3, 0, -1),), (i32(2, 1, 0),), {"lambd": -0.5, "bias": 1.0}),
    )
    defaults = {"lambd": 0.5, "bias": 0.0}

    def ref(self, attrs: dict[str, Any], *xs: Array | None) -> Array:
        x, lam, bias = xs[0], attrs["lambd"], attrs["bias"]
        assert x is not None
        w = x.astype(np.float64) if x.dtype.kind in "iu" else x
        bias = w.dtype.type(bias)
        return np.where(w < -lam, w + bias, np.where(w > lam, w - bias, 0)).astype(x.dtype)

    def scalar(self, attrs: dict[str, Any], *xs: Expr) -> Expr:
        x, lam, bias = xs[0], attrs["lambd"], attrs["bias"]
        w = cast(x, DType.F64) if x.dtype.is_int else x  # neither threshold nor shift need be whole numbers
        return cast(select(w.lt(-lam), w + bias, select(w.gt(lam), w - bias, lift(0, w.dtype))), x.dtype)


class Gelu(Elementwise):
    name = "Gelu"
    edges = at(NAN, INF, NAN, -0.0, {"approximate": "none"})

    def from_onnx(self, b: Any, n: Any) -> Sequence[Value | None]:
        return b.emit("Gelu", n.inputs[:1], {"approximate": n.attrs.get("approximate", "none")})

    def ref(self, attrs: dict[str, Any], *xs: Array | None) -> Array:
        x = xs[0].astype(np.float64)  # type: ignore[union-attr]
        if attrs.get("approximate") == "tanh":
            y = 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))
        else:
            y = 0.5 * x * (1 + np_erf(x / np.sqrt(2)))
        return y.astype(xs[0].dtype)  # type: ignore[union-attr]

    def scalar(self, attrs: dict[str, Any], *xs: Expr) -> Expr:
        return call("gelu_tanh" if attrs.get("approximate") == "tanh" else "gelu", xs[0])

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        x = rng.standard_normal((5, 33)).astype(np.float32) * 3
        for kind in ("none", "tanh"):
            yield Case((x,), {"approximate": kind}, kind)
