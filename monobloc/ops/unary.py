"""Functions of one number, and `Not`: numpy's form, the scalar function, and what they promise."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import numpy as np

from monobloc.ir.expr import Expr, call
from monobloc.ir.types import DType
from monobloc.ops import EXACT, Case, Tol
from monobloc.ops.contract import INF, NAN, Edge, at, f32, i8
from monobloc.ops.elementwise import Array, Elementwise


def np_erf(x: Array) -> Array:
    return np.vectorize(math.erf, otypes=[np.float64])(x.astype(np.float64)).astype(x.dtype)


def _in_f64(f: Callable[..., Array]) -> Callable[..., Array]:
    """compute in float64, round once"""
    return lambda x: f(x.astype(np.float64)).astype(x.dtype) if x.dtype.kind == "f" else f(x)


LOWEST_STAYS = (Edge("overflow", "the lowest integer stays what it is", (i8(-128, -1),), (i8(-128, 1),)),)
TIES_TO_EVEN = Edge("ties", "go to the even number", (f32(0.5, 1.5, -2.5, -0.5),), (f32(0, 2, -2, -0.0),))

_UNARY: dict[str, tuple[Callable[[Array], Array], str, tuple[Edge, ...]]] = {
    # ONNX name: (numpy, scalar function, promises)
    "Abs": (np.abs, "abs", (*at(NAN, INF, INF, 0), *LOWEST_STAYS)),
    "Neg": (np.negative, "neg", (*at(NAN, -INF, INF, 0), *LOWEST_STAYS)),
    "Sign": (np.sign, "sign", at(NAN, 1, -1, 0)),
    "Floor": (np.floor, "floor", at(NAN, INF, -INF, -0.0)),
    "Ceil": (np.ceil, "ceil", at(NAN, INF, -INF, -0.0)),
    "Round": (np.rint, "round", (*at(NAN, INF, -INF, -0.0), TIES_TO_EVEN)),
    "Sqrt": (np.sqrt, "sqrt", at(NAN, INF, NAN, -0.0)),
    "Reciprocal": (lambda x: (1 / x).astype(x.dtype), "reciprocal", at(NAN, 0, -0.0, -INF)),
    "Exp": (_in_f64(np.exp), "exp", at(NAN, INF, 0, 1)),
    "Log": (_in_f64(np.log), "log", at(NAN, INF, NAN, -INF)),
    "Sin": (_in_f64(np.sin), "sin", at(NAN, NAN, NAN, -0.0)),
    "Cos": (_in_f64(np.cos), "cos", at(NAN, NAN, NAN, 1)),
    "Tan": (_in_f64(np.tan), "tan", at(NAN, NAN, NAN, -0.0)),
    "Asin": (_in_f64(np.arcsin), "asin", at(NAN, NAN, NAN, -0.0)),
    "Acos": (_in_f64(np.arccos), "acos", at(NAN, NAN, NAN, math.pi / 2)),
    "Atan": (_in_f64(np.arctan), "atan", at(NAN, math.pi / 2, -math.pi / 2, -0.0)),
    "Sinh": (_in_f64(np.sinh), "sinh", at(NAN, INF, -INF, -0.0)),
    "Cosh": (_in_f64(np.cosh), "cosh", at(NAN, INF, INF, 1)),
    "Tanh": (_in_f64(np.tanh), "tanh", at(NAN, 1, -1, -0.0)),
    "Asinh": (_in_f64(np.arcsinh), "asinh", at(NAN, INF, -INF, -0.0)),
    "Acosh": (_in_f64(np.arccosh), "acosh", at(NAN, INF, NAN, NAN)),
    "Atanh": (_in_f64(np.arctanh), "atanh", at(NAN, NAN, NAN, -0.0)),
    "Erf": (np_erf, "erf", at(NAN, 1, -1, -0.0)),
    "Sigmoid": (_in_f64(lambda x: 1 / (1 + np.exp(-x))), "sigmoid", at(NAN, 1, 0, 0.5)),
    "Softplus": (_in_f64(lambda x: np.logaddexp(x, 0)), "softplus", at(NAN, INF, 0, math.log(2))),
    "Softsign": (_in_f64(lambda x: x / (1 + np.abs(x))), "softsign", at(NAN, NAN, NAN, -0.0)),
    "Mish": (_in_f64(lambda x: x * np.tanh(np.logaddexp(x, 0))), "mish", at(NAN, INF, NAN, -0.0)),
    "Relu": (lambda x: np.maximum(x, x.dtype.type(0)), "relu", at(NAN, INF, 0, 0, zeros=False)),
    "BitwiseNot": (np.invert, "bnot", ()),
}


_EXACT = ("abs", "neg", "sign", "floor", "ceil", "round", "relu", "bnot")


class Unary(Elementwise):
    numpy: ClassVar[Callable[[Array], Array]]
    fn: ClassVar[str]

    def ref(self, attrs: dict[str, Any], *xs: Array | None) -> Array:
        return type(self).numpy(xs[0])  # type: ignore[arg-type]

    def scalar(self, attrs: dict[str, Any], *xs: Expr) -> Expr:
        return call(self.fn, xs[0])

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        if self.name == "BitwiseNot":
            yield Case((rng.integers(-100, 100, (5, 7)).astype(np.int32),), {})
            return
        x = rng.uniform(-0.99, 0.99, (3, 5, 17)).astype(np.float32)
        if self.name == "Acosh":
            x = (x + 2.5).astype(np.float32)
        yield Case((x,), {})
        yield Case((np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0], np.float32),), {}, "special")


for _name, (_numpy, _fn, _edges) in _UNARY.items():
    globals()[_name] = type(
        _name, (Unary,),
        {"name": _name, "numpy": staticmethod(_numpy), "fn": _fn, "edges": _edges,
         "tol": EXACT if _fn in _EXACT else Tol(), "__module__": __name__},
    )


class Not(Elementwise):
    """logical not"""

    name = "Not"
    tol = EXACT
    result = DType.BOOL

    def ref(self, attrs: dict[str, Any], *xs: Array | None) -> Array:
        return np.logical_not(xs[0])  # type: ignore[arg-type]

    def scalar(self, attrs: dict[str, Any], *xs: Expr) -> Expr:
        return call("lnot", xs[0])

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        yield Case((rng.random((4, 5)) > 0.5,), {})
