"""Elementwise operators: the output at an index follows from the inputs at the same index.

Inputs broadcast as in numpy (ONNX "multidirectional broadcasting"). NaN passes through Max, Min, Relu
and Clip; integer division truncates and never traps (INT_MIN / -1 wraps, x / 0 is 0).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar

import numpy as np

from monobloc.errors import ModelError
from monobloc.ir.expr import BOOL, Expr, Fn, Num, call, cast, idx, lift, select
from monobloc.ir.graph import Node, Value
from monobloc.ir.types import DType, TensorType
from monobloc.ops import Case, OpDef

Array = np.ndarray


def broadcast_shapes(*shapes: tuple[int, ...]) -> tuple[int, ...]:
    """numpy's rule; ModelError with both shapes when they do not agree"""
    try:
        return tuple(int(d) for d in np.broadcast_shapes(*shapes))
    except ValueError:
        raise ModelError(f"shapes {' and '.join(map(str, map(list, shapes)))} do not broadcast") from None


def bcast(x: Fn, shape: Sequence[int], rank: int) -> Fn:
    """`x` of the given shape read with an index of a broadcast result of `rank`"""
    skip = rank - len(shape)

    def at(*i: Expr) -> Expr:
        return x(*[idx(0) if d == 1 else i[skip + k] for k, d in enumerate(shape)])

    return at


def same_dtype(op: str, ins: Sequence[Value | None]) -> DType:
    kinds = {v.dtype for v in ins if v is not None}
    if len(kinds) != 1:
        raise ModelError(f"{op} needs inputs of one type, got {', '.join(sorted(k.value for k in kinds))}")
    return kinds.pop()


class Elementwise(OpDef):
    """Base: `scalar` makes the expression of one element from those of the inputs."""

    elementwise = True
    result: ClassVar[DType | None] = None  # of comparisons and tests
    first_typed: ClassVar[int] = 0  # the input whose dtype the result has
    mixed: ClassVar[bool] = False  # inputs may be of different dtypes

    def infer(self, ins: Sequence[Value | None], attrs: dict[str, Any]) -> list[TensorType]:
        if not self.mixed:
            same_dtype(self.name, ins)
        lead = ins[self.first_typed]
        assert lead is not None
        shape = broadcast_shapes(*[v.shape for v in ins if v is not None])
        return [TensorType(self.result or lead.dtype, shape)]

    def scalar(self, attrs: dict[str, Any], *xs: Expr) -> Expr:
        raise NotImplementedError

    def expr(self, n: Node, *xs: Fn | None) -> Fn:
        rank = n.outputs[0].type.rank
        fns = [bcast(x, v.shape, rank) for x, v in zip(xs, n.inputs) if x is not None and v is not None]
        return lambda *i: self.scalar(n.attrs, *[f(*i) for f in fns])


# -- unary ------------------------------------------------------------------------------------------
def np_erf(x: Array) -> Array:
    import math

    return np.vectorize(math.erf, otypes=[np.float64])(x.astype(np.float64)).astype(x.dtype)


def _in_f64(f: Callable[..., Array]) -> Callable[..., Array]:
    """compute in float64, round once"""
    return lambda x: f(x.astype(np.float64)).astype(x.dtype) if x.dtype.kind == "f" else f(x)


_UNARY: dict[str, tuple[Callable[[Array], Array], str]] = {
    # ONNX name: (numpy, scalar function)
    "Abs": (np.abs, "abs"),
    "Neg": (np.negative, "neg"),
    "Sign": (np.sign, "sign"),
    "Floor": (np.floor, "floor"),
    "Ceil": (np.ceil, "ceil"),
    "Round": (np.rint, "round"),
    "Sqrt": (np.sqrt, "sqrt"),
    "Reciprocal": (lambda x: (1 / x).astype(x.dtype), "reciprocal"),
    "Exp": (_in_f64(np.exp), "exp"),
    "Log": (_in_f64(np.log), "log"),
    "Sin": (_in_f64(np.sin), "sin"),
    "Cos": (_in_f64(np.cos), "cos"),
    "Tan": (_in_f64(np.tan), "tan"),
    "Asin": (_in_f64(np.arcsin), "asin"),
    "Acos": (_in_f64(np.arccos), "acos"),
    "Atan": (_in_f64(np.arctan), "atan"),
    "Sinh": (_in_f64(np.sinh), "sinh"),
    "Cosh": (_in_f64(np.cosh), "cosh"),
    "Tanh": (_in_f64(np.tanh), "tanh"),
    "Asinh": (_in_f64(np.arcsinh), "asinh"),
    "Acosh": (_in_f64(np.arccosh), "acosh"),
    "Atanh": (_in_f64(np.arctanh), "atanh"),
    "Erf": (np_erf, "erf"),
    "Sigmoid": (_in_f64(lambda x: 1 / (1 + np.exp(-x))), "sigmoid"),
    "Softplus": (_in_f64(lambda x: np.logaddexp(x, 0)), "softplus"),
    "Softsign": (_in_f64(lambda x: x / (1 + np.abs(x))), "softsign"),
    "Mish": (_in_f64(lambda x: x * np.tanh(np.logaddexp(x, 0))), "mish"),
    "Relu": (lambda x: np.maximum(x, x.dtype.type(0)), "relu"),
    "BitwiseNot": (np.invert, "bnot"),
}


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


for _name, (_numpy, _fn) in _UNARY.items():
    globals()[_name] = type(
        _name, (Unary,), {"name": _name, "numpy": staticmethod(_numpy), "fn": _fn, "__module__": __name__}
    )


class Not(Elementwise):
    """logical not"""

    name = "Not"
    result = DType.BOOL

    def ref(self, attrs: dict[str, Any], *xs: Array | None) -> Array:
        return np.logical_not(xs[0])  # type: ignore[arg-type]

    def scalar(self, attrs: dict[str, Any], *xs: Expr) -> Expr:
        return call("lnot", xs[0])

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        yield Case((rng.random((4, 5)) > 0.5,), {})


# -- binary -----------------------------------------------------------------------------------------
def _div(a: Array, b: Array) -> Array:
    if a.dtype.kind not in "iu":
        return a / b
    safe = np.where(b == 0, np.ones_like(b), b)
    q = np.floor_divide(a, safe)
    fix = (np.remainder(a, safe) != 0) & ((a < 0) != (safe < 0))
    return np.where(b == 0, np.zeros_like(q), q + fix.astype(a.dtype))


def _pow(a: Array, b: Array) -> Array:
    if a.dtype.kind in "iu" and b.dtype.kind in "iu" and (b >= 0).all():
        return np.power(a, b.astype(a.dtype))
    return np.power(a.astype(np.float64), b.astype(np.float64)).astype(a.dtype)


_BINARY: dict[str, tuple[Callable[[Array, Array], Array], str, DType | None]] = {
    "Add": (np.add, "add", None),
    "Sub": (np.subtract, "sub", None),
    "Mul": (np.multiply, "mul", None),
    "Div": (_div, "div", None),
    "Pow": (_pow, "pow", None),
    "And": (np.logical_and, "land", BOOL),
    "Or": (np.logical_or, "lor", BOOL),
    "Xor": (np.logical_xor, "lxor", BOOL),
    "Equal": (np.equal, "eq", BOOL),
    "Less": (np.less, "lt", BOOL),
    "LessOrEqual": (np.less_equal, "le", BOOL),
    "Greater": (np.greater, "gt", BOOL),
    "GreaterOrEqual": (np.greater_equal, "ge", BOOL),
    "BitwiseAnd": (np.bitwise_and, "band", None),
    "BitwiseOr": (np.bitwise_or, "bor", None),
    "BitwiseXor": (np.bitwise_xor, "bxor", None),
}
_SWAPPED = {"gt": "lt", "ge": "le"}


class Binary(Elementwise):
    oldest = 1
    strings = ""
    numpy: ClassVar[Callable[..., Any]]
    fn: ClassVar[str]

    def from_onnx(self, b: Any, n: Any) -> Sequence[Value | None]:
        if n.opset < 7 and n.domain == "":
            return legacy_broadcast(self.name, b, n)
        return b.emit(self.name, n.inputs, {})

    def infer(self, ins: Sequence[Value | None], attrs: dict[str, Any]) -> list[TensorType]:
        if self.name != "Pow":
            same_dtype(self.name, ins)
        a, c = ins
        assert a is not None and c is not None
        return [TensorType(self.result or a.dtype, broadcast_shapes(a.shape, c.shape))]

    def ref(self, attrs: dict[str, Any], *xs: Array | None) -> Array:
        return type(self).numpy(*xs)

    def scalar(self, attrs: dict[str, Any], *xs: Expr) -> Expr:
        a, b = xs
        if self.fn in _SWAPPED:
            return call(_SWAPPED[self.fn], b, a, dtype=BOOL)
        if self.name == "Pow":
            return _pow_expr(a, b)
        return call(self.fn, a, b, dtype=self.result)

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        if self.name in ("And", "Or", "Xor"):
            yield Case((rng.random((4, 5)) > 0.5, rng.random((5,)) > 0.5), {})
            return
        ints = rng.integers(1, 9, (4, 1, 5)).astype(np.int32), rng.integers(1, 4, (3, 1)).astype(np.int32)
        yield Case(ints, {}, "int")
        if not self.name.startswith("Bitwise"):
            x = rng.uniform(0.5, 2, (4, 1, 5)).astype(np.float32)
            yield Case((x, rng.uniform(0.5, 2, (3, 5)).astype(np.float32)), {}, "broadcast")
            yield Case((x, np.array(2.0, np.float32)), {}, "scalar")


def _pow_expr(a: Expr, b: Expr) -> Expr:
    """Small constant exponents are products (as the reference rounds them, within its tolerance)."""
    if isinstance(b, Num) and a.dtype.is_float:
        if b.value == 2:
            return call("mul", a, a)
        if b.value == 0.5:
            return call("sqrt", a)
        if b.value == 1:
            return a
    if a.dtype.is_int and b.dtype.is_int:
        return call("ipow", a, cast(b, a.dtype))
    wide = a.dtype if a.dtype.is_float else DType.F64
    return cast(call("pow", cast(a, wide), cast(b, wide)), a.dtype)


def legacy_broadcast(name: str, b: Any, n: Any) -> Sequence[Value | None]:
    """Opsets before 7 broadcast only when asked to, along `axis`."""
    x, y = n.inputs
    axis = n.attrs.get("axis")
    if n.attrs.get("broadcast") and axis is not None and y.type.rank:
        axis = axis % max(x.type.rank, 1)
        shape = y.shape + (1,) * (x.type.rank - axis - y.type.rank)
        y = b.one("Reshape", y, shape=list(shape))
    return b.emit(name, [x, y], {})


for _name, (_binary, _fn, _result) in _BINARY.items():
    globals()[_name] = type(
        _name,
        (Binary,),
        {"name": _name, "numpy": staticmethod(_binary), "fn": _fn, "result": _result, "__module__": __name__},
    )
globals()["Equal"].strings = "compares"


class Mod(Elementwise):
    """fmod=0: the result has the divisor's sign (integers); fmod=1: the dividend's (C's fmod)"""

    name = "Mod"

    def ref(self, attrs: dict[str, Any], *xs: Array | None) -> Array:
        a, b = xs
        assert a is not None and b is not None
        safe = np.where(b == 0, np.ones_like(b), b) if a.dtype.kind in "iu" else b
        out = np.fmod(a, safe) if attrs.get("fmod") else np.mod(a, safe)
        return out if safe is b else np.where(b == 0, np.zeros_like(out), out)

    def scalar(self, attrs: dict[str, Any], *xs: Expr) -> Expr:
        if xs[0].dtype.is_float:
            return call("fmod" if attrs.get("fmod") else "mod", *xs)
        return call("irem" if attrs.get("fmod") else "imod", *xs)

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        a = rng.integers(-20, 20, (6, 7)).astype(np.int32)
        yield Case((a, np.where(a % 3 == 0, 5, -4).astype(np.int32)), {"fmod": 0})
        yield Case((a, np.full((7,), 6, np.int32)), {"fmod": 1})
        yield Case((a.astype(np.float32), np.full((7,), 3.5, np.float32)), {"fmod": 1})


class BitShift(Elementwise):
    name = "BitShift"
    since = 11

    def ref(self, attrs: dict[str, Any], *xs: Array | None) -> Array:
        f = np.left_shift if attrs["direction"] == "LEFT" else np.right_shift
        return f(xs[0], xs[1])  # type: ignore[arg-type]

    def scalar(self, attrs: dict[str, Any], *xs: Expr) -> Expr:
        return call("shl" if attrs["direction"] == "LEFT" else "shr", *xs)

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        x = rng.integers(0, 200, (5, 3)).astype(np.uint8)
        for d in ("LEFT", "RIGHT"):
            yield Case((x, rng.integers(0, 7, (3,)).astype(np.uint8)), {"direction": d}, d)


# -- variadic ---------------------------------------------------------------------------------------
MOST_TERMS = 32  # of one node: an expression is as deep as its chain is long


class Variadic(Elementwise):
    """Max, Min, Sum, Mean of any number of inputs: a chain from the left"""

    fn: ClassVar[str]
    numpy: ClassVar[Callable[..., Any]]
    chain: ClassVar[str] = ""  # the operator of the chain's links, where it is another one

    def from_onnx(self, b: Any, n: Any) -> Sequence[Value | None]:
        terms = list(n.inputs)
        if len(terms) <= MOST_TERMS:
            return b.emit(self.name, terms)
        while len(terms) > MOST_TERMS:
            terms[:MOST_TERMS] = [b.one(self.chain or self.name, *terms[:MOST_TERMS])]
        return self.finish(b, b.one(self.chain or self.name, *terms), len(n.inputs))

    def finish(self, b: Any, chain: Value, count: int) -> Sequence[Value | None]:
        return [chain]

    def ref(self, attrs: dict[str, Any], *xs: Array | None) -> Array:
        out = xs[0]
        for x in xs[1:]:
            out = type(self).numpy(out, x)
        return out  # type: ignore[return-value]

    def scalar(self, attrs: dict[str, Any], *xs: Expr) -> Expr:
        out = xs[0]
        for x in xs[1:]:
            out = call(self.fn, out, x)
        return out

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        x = rng.standard_normal((3, 4)).astype(np.float32)
        x[0, 0] = np.nan
        yield Case((x, rng.standard_normal(4).astype(np.float32), np.array([[0.5]], np.float32)), {})
        yield Case((x,), {}, "one")


class Max(Variadic):
    name = "Max"
    fn = "max"
    numpy = staticmethod(np.maximum)


class Min(Variadic):
    name = "Min"
    fn = "min"
    numpy = staticmethod(np.minimum)


class Sum(Variadic):
    name = "Sum"
    fn = "add"
    numpy = staticmethod(np.add)


class Mean(Variadic):
    name = "Mean"
    fn = "add"
    numpy = staticmethod(np.add)
    chain = "Sum"

    def finish(self, b: Any, chain: Value, count: int) -> Sequence[Value | None]:
        return [b.one("Div", chain, b.const(np.array(count), chain.dtype))]

    def ref(self, attrs: dict[str, Any], *xs: Array | None) -> Array:
        total = super().ref(attrs, *xs)
        return (total / len(xs)).astype(total.dtype)

    def scalar(self, attrs: dict[str, Any], *xs: Expr) -> Expr:
        total = super().scalar(attrs, *xs)
        return call("div", total, lift(len(xs), total.dtype))


# -- with parameters ----------------------------------------------------------------------------------
class Clip(Elementwise):
    """min(max(x, lo), hi); a missing or NaN bound does not bound; NaN in x stays"""

    name = "Clip"

    def from_onnx(self, b: Any, n: Any) -> Sequence[Value | None]:
        x = n.inputs[0]
        if n.opset >= 11:
            return b.emit("Clip", [x, n.input(1), n.input(2)])
        lo, hi = n.attrs.get("min"), n.attrs.get("max")
        bounds = [None if v is None else b.const(v, x.dtype) for v in (lo, hi)]
        return b.emit("Clip", [x, *bounds])

    def ref(self, attrs: dict[str, Any], *xs: Array | None) -> Array:
        x, lo, hi = [*xs, None, None][:3]
        assert x is not None
        if lo is not None:
            x = np.where(lo > x, lo, x)
        if hi is not None:
            x = np.where(hi < x, hi, x)
        return x

    def expr(self, n: Node, *xs: Fn | None) -> Fn:
        x, lo, hi = [*xs, None, None][:3]
        assert x is not None

        def at(*i: Expr) -> Expr:
            e = x(*i)
            if lo is not None:
                e = call("clip_lo", e, lo())
            return e if hi is None else call("clip_hi", e, hi())

        return at

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        x = rng.standard_normal((4, 9)).astype(np.float32)
        x[0, :3] = np.nan, np.inf, -np.inf
        yield Case((x, np.float32(-0.5), np.float32(0.5)), {})
        yield Case((x, np.float32(np.nan), np.float32(0.5)), {}, "nan_bound")
        yield Case(((x[1:] * 10).astype(np.int64), np.int64(-3)), {}, "int")


class Where(Elementwise):
    name = "Where"
    strings = "moves"
    mixed = True
    first_typed = 1

    def infer(self, ins: Sequence[Value | None], attrs: dict[str, Any]) -> list[TensorType]:
        same_dtype("Where", ins[1:])
        return super().infer(ins, attrs)

    def ref(self, attrs: dict[str, Any], *xs: Array | None) -> Array:
        c, a, b = xs
        return np.asarray(np.where(c, a, b))  # type: ignore[arg-type]

    def scalar(self, attrs: dict[str, Any], *xs: Expr) -> Expr:
        return select(*xs)

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        c = rng.random((3, 1, 5)) > 0.5
        x = rng.standard_normal((4, 1)).astype(np.float32)
        yield Case((c, x, rng.standard_normal((5,)).astype(np.float32)), {})


def of_code(b: Any, v: Value) -> Value:
    """What codes stand for; anything else as it is"""
    return b.one("Cast", v, to=v.dtype.value_type) if v.dtype.is_code else v


class IsNaN(Elementwise):
    name = "IsNaN"
    result = BOOL
    codes = True

    def from_onnx(self, b: Any, n: Any) -> Sequence[Value | None]:
        return b.emit(self.name, [of_code(b, n.inputs[0])], n.attrs)

    def ref(self, attrs: dict[str, Any], *xs: Array | None) -> Array:
        return np.isnan(xs[0])  # type: ignore[arg-type]

    def scalar(self, attrs: dict[str, Any], *xs: Expr) -> Expr:
        return call("isnan", xs[0], dtype=BOOL)

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        yield Case((np.array([1, np.nan, np.inf, -np.inf], np.float32),), {})


class IsInf(Elementwise):
    name = "IsInf"
    result = BOOL
    codes = True

    def from_onnx(self, b: Any, n: Any) -> Sequence[Value | None]:
        return b.emit(self.name, [of_code(b, n.inputs[0])], n.attrs)

    def ref(self, attrs: dict[str, Any], *xs: Array | None) -> Array:
        x = xs[0]
        pos = np.isposinf(x) if attrs.get("detect_positive", 1) else np.zeros(x.shape, bool)  # type: ignore
        neg = np.isneginf(x) if attrs.get("detect_negative", 1) else np.zeros(x.shape, bool)  # type: ignore
        return pos | neg

    def scalar(self, attrs: dict[str, Any], *xs: Expr) -> Expr:
        x, inf = xs[0], float("inf")
        pos = x.eq(inf) if attrs.get("detect_positive", 1) else Num(False, BOOL)
        neg = x.eq(-inf) if attrs.get("detect_negative", 1) else Num(False, BOOL)
        return call("lor", pos, neg)

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        yield Case((np.array([1, np.nan, np.inf, -np.inf], np.float32),), {"detect_negative": 0})


class Identity(Elementwise):
    """Vanishes: the importer returns its input."""

    name = "Identity"
    aliases = ("Dropout",)
    codes = bundles = True
    strings = "own"

    def from_onnx(self, b: Any, n: Any) -> Sequence[Value | None]:
        x = n.inputs[0]
        training = n.input(2)
        if n.op == "Dropout" and training is not None and (training.const is None or training.const.array.any()):
            ratio = n.input(1)
            if ratio is None or ratio.const is None or ratio.const.array.any():
                n.unsupported("Dropout in training mode")
        if n.n_outputs > 1:
            return [x, b.const(np.ones(x.shape, bool if n.opset >= 10 else x.dtype.numpy))]
        return [x]

    def ref(self, attrs: dict[str, Any], *xs: Array | None) -> Array:
        return xs[0]  # type: ignore[return-value]

    def scalar(self, attrs: dict[str, Any], *xs: Expr) -> Expr:
        return xs[0]


