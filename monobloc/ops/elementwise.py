"""Elementwise operators: the output at an index follows from the inputs at the same index.

Inputs broadcast as in numpy (ONNX "multidirectional broadcasting"). NaN passes through Max, Min, Relu
and Clip; integer division truncates and never traps (INT_MIN / -1 wraps, x / 0 is 0).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar, Literal

import numpy as np

from monobloc.errors import ModelError
from monobloc.ir.expr import BOOL, Expr, Fn, Num, call, cast, idx, lift, select
from monobloc.ir.graph import Node, Value
from monobloc.ir.symbolic import is_open, same_number
from monobloc.ir.types import DType, TensorType
from monobloc.ops import EXACT, Case, OpDef, Tol
from monobloc.ops.contract import INF, NAN, Edge, f32, i8, i32

Array = np.ndarray


def broadcast_shapes(*shapes: tuple[int, ...]) -> tuple[int, ...]:
    """numpy's rule; ModelError with both shapes when they do not agree"""
    if any(is_open(d) for s in shapes for d in s):
        return _broadcast_open(shapes)
    try:
        return tuple(int(d) for d in np.broadcast_shapes(*shapes))
    except ValueError:
        raise ModelError(f"shapes {' and '.join(map(str, map(list, shapes)))} do not broadcast") from None


def _broadcast_open(shapes: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    out: list[int] = []
    for axis in range(-max(map(len, shapes)), 0):
        met: int = 1
        for d in (s[axis] for s in shapes if len(s) >= -axis):
            if same_number(d, 1):
                continue  # whatever the others are
            if met == 1:
                met = d
            elif d != 1 and d != met:
                raise ModelError(f"shapes {' and '.join(map(str, map(list, shapes)))} do not broadcast")
        out.append(met)
    return tuple(out)


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
_ORDER = (Edge("NaN", "every comparison with it is false", (f32(NAN, 1, NAN), f32(1, NAN, NAN)), (np.zeros(3, bool),)),)
_EQUAL = (*_ORDER, Edge("-0.0", "equals 0", (f32(-0.0), f32(0)), (np.array([True]),)))
ADDITION = (
    Edge("NaN", "on either side gives NaN", (f32(NAN, 1), f32(1, NAN)), (f32(NAN, NAN),)),
    Edge("infinities", "inf - inf is NaN", (f32(INF, INF), f32(-INF, 1)), (f32(NAN, INF),)),
    Edge("-0.0", "-0.0 and -0.0 give -0.0, with 0 they give 0", (f32(-0.0, -0.0), f32(-0.0, 0)), (f32(-0.0, 0),)),
)
TRAPS: tuple[Literal["onnxruntime"], str, str] = (
    "onnxruntime", "dies of SIGFPE", "ONNX leaves it open; a model must not end its process"
)
LOW = -(2**31)
_PROMISES: dict[str, tuple[Edge, ...]] = {
    "Add": (*ADDITION, Edge("overflow", "wraps", (i8(127, -128), i8(1, -1)), (i8(-128, 127),))),
    "Sub": (
        Edge("NaN", "on either side gives NaN", (f32(NAN, 1), f32(1, NAN)), (f32(NAN, NAN),)),
        Edge("infinities", "inf - inf is NaN", (f32(INF, INF), f32(INF, 1)), (f32(NAN, INF),)),
        Edge("-0.0", "0 - 0 is 0, -0.0 - 0 is -0.0", (f32(0, -0.0), f32(0, 0)), (f32(0, -0.0),)),
        Edge("overflow", "wraps", (i8(-128, 127), i8(1, -1)), (i8(127, -128),)),
    ),
    "Mul": (
        Edge("NaN", "on either side gives NaN", (f32(NAN, 0), f32(0, NAN)), (f32(NAN, NAN),)),
        Edge("infinities", "by 0 are NaN", (f32(INF, -INF), f32(0, 2)), (f32(NAN, -INF),)),
        Edge("-0.0", "signs multiply", (f32(-0.0, 0), f32(2, -2)), (f32(-0.0, -0.0),)),
        Edge("overflow", "wraps", (i8(127, -128), i8(2, -1)), (i8(-2, -128),)),
    ),
    "Div": (
        Edge("NaN", "on either side gives NaN", (f32(NAN, 1), f32(1, NAN)), (f32(NAN, NAN),)),
        Edge("infinities", "inf / inf is NaN", (f32(INF, 1), f32(INF, -INF)), (f32(NAN, -0.0),)),
        Edge("-0.0", "signs divide", (f32(-0.0, 1), f32(2, -0.0)), (f32(-0.0, -INF),)),
        Edge("division by 0", "floats give an infinity, 0 / 0 is NaN", (f32(1, -1, 0), f32(0, 0, 0)),
             (f32(INF, -INF, NAN),)),
        Edge("division by 0", "integers give 0", (i32(7, 0), i32(0, 0)), (i32(0, 0),)).differs(*TRAPS),
        Edge("overflow", "the lowest integer by -1 is itself", (i32(LOW), i32(-1)), (i32(LOW),)).differs(*TRAPS),
        Edge("other", "integers are cut towards 0", (i32(-7, 8), i32(2, -3)), (i32(-3, -2),)),
    ),
    "Pow": (
        Edge("NaN", "gives NaN, but 1 to any power and any number to the power of 0 are 1",
             (f32(NAN, 2, 1, NAN), f32(2, NAN, NAN, 0)), (f32(NAN, NAN, 1, 1),)),
        Edge("infinities", "as in C", (f32(INF, INF, 0.5, -INF), f32(2, -1, INF, 3)), (f32(INF, 0, 0, -INF),)),
        Edge("-0.0", "to an odd power stays, to an odd negative one is -inf", (f32(-0.0, -0.0, -0.0), f32(3, 2, -1)),
             (f32(-0.0, 0, -INF),)),
        Edge("overflow", "integers wrap", (i32(2**16, 3), i32(2, 2)), (i32(0, 9),)).differs(
            "onnxruntime", "gives the lowest integer", "it computes in float64 and converts; integers wrap as in Add"),
        Edge("division by 0", "a negative number to a fraction is NaN", (f32(-8), f32(1 / 3)), (f32(NAN),)),
    ),
    "Equal": _EQUAL, "Less": _ORDER, "LessOrEqual": _ORDER, "Greater": _ORDER, "GreaterOrEqual": _ORDER,
}
_SWAPPED = {"gt": "lt", "ge": "le"}


class Binary(Elementwise):
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
        {"name": _name, "numpy": staticmethod(_binary), "fn": _fn, "result": _result,
         "edges": _PROMISES.get(_name, ()), "tol": Tol() if _name == "Pow" else EXACT, "__module__": __name__},
    )
globals()["Equal"].strings = "compares"


class Mod(Elementwise):
    """fmod=0: the result has the divisor's sign (integers); fmod=1: the dividend's (C's fmod)"""

    name = "Mod"
    edges = (
        Edge("division by 0", "by 0 it is 0 for integers, NaN for floats", (i32(7, -7), i32(0, 0)),
             (i32(0, 0),)).differs(*TRAPS),
        Edge("overflow", "the lowest integer by -1 is 0", (i8(-128), i8(-1)), (i8(0),)),
        Edge("other", "has the divisor's sign", (i32(-7, 7), i32(3, -3)), (i32(2, -2),)),
        Edge("NaN", "`fmod`: NaN where either is", (f32(NAN, 1), f32(1, NAN)), (f32(NAN, NAN),), {"fmod": 1}),
        Edge("infinities", "`fmod`: of an infinity it is NaN, by one it is the dividend", (f32(INF, 3), f32(2, INF)),
             (f32(NAN, 3),), {"fmod": 1}),
        Edge("-0.0", "`fmod`: stays", (f32(-0.0), f32(2)), (f32(-0.0),), {"fmod": 1}),
    )

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
    tol = EXACT
    example = {"direction": "LEFT"}
    edges = (
        Edge("overflow", "by the width or more gives 0", (np.array([255, 1], np.uint8), np.array([8, 9], np.uint8)),
             (np.array([0, 0], np.uint8),)),
    )
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
    tol = EXACT
    edges = (
        Edge("NaN", "on either side gives NaN", (f32(NAN, 1, NAN), f32(1, NAN, INF)), (f32(NAN, NAN, NAN),)),
        Edge("infinities", "are the largest and smallest numbers", (f32(INF, -INF), f32(1, 1)), (f32(INF, 1),)),
        Edge("-0.0", "a zero may have either sign", (f32(-0.0), f32(0)), (f32(0),), zeros=False),
    )
    fn = "max"
    numpy = staticmethod(np.maximum)


class Min(Variadic):
    name = "Min"
    tol = EXACT
    edges = (
        Edge("NaN", "on either side gives NaN", (f32(NAN, 1, NAN), f32(1, NAN, INF)), (f32(NAN, NAN, NAN),)),
        Edge("infinities", "are the largest and smallest numbers", (f32(INF, -INF), f32(1, 1)), (f32(1, -INF),)),
        Edge("-0.0", "a zero may have either sign", (f32(-0.0), f32(0)), (f32(0),), zeros=False),
    )
    fn = "min"
    numpy = staticmethod(np.minimum)


class Sum(Variadic):
    name = "Sum"
    edges = (*ADDITION[:2], ADDITION[2].differs("onnx", "gives 0", "it starts from 0"))
    fn = "add"
    numpy = staticmethod(np.add)


class Mean(Variadic):
    name = "Mean"
    edges = (
        *ADDITION[:2],
        Edge("-0.0", "-0.0 and -0.0 give -0.0", (f32(-0.0), f32(-0.0)), (f32(-0.0),)),
    )
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
    tol = EXACT
    edges = (
        Edge("NaN", "stays; a bound that is NaN does not bound", (f32(NAN, 2), f32(-1)[0], f32(NAN)[0]),
             (f32(NAN, 2),)).differs(
            "onnx", "gives NaN for a NaN bound",
            "a bound that compares with nothing bounds nothing; onnxruntime reads it so too"),
        Edge("infinities", "become the bounds", (f32(INF, -INF), f32(-1)[0], f32(1)[0]), (f32(1, -1),)),
        Edge("-0.0", "stays within -0.0 and 0", (f32(-0.0), f32(-1)[0], f32(1)[0]), (f32(-0.0),)),
        Edge("other", "where min exceeds max, max is the result", (f32(0, 5), f32(3)[0], f32(1)[0]), (f32(1, 1),)),
    )

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
    moves = True
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
    tol = EXACT
    edges = (
        Edge("NaN", "is one, whatever its sign", (f32(NAN, -NAN, INF),), (np.array([True, True, False]),)),
    )
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
    tol = EXACT
    edges = (
        Edge("NaN", "is none", (f32(NAN, INF, -INF),), (np.array([False, True, True]),)),
    )
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
    moves = True
    aliases = ("Dropout",)
    codes = bundles = True
    strings = "own"

    def from_onnx(self, b: Any, n: Any) -> Sequence[Value | None]:
        x = n.inputs[0]
        if n.op == "Dropout" and n.opset < 7 and not n.attrs.get("is_test", 0):
            n.unsupported("Dropout in training mode")
        training = n.input(2)
        if n.op == "Dropout" and training is not None and (training.const is None or training.const.array.any()):
            ratio = n.input(1)
            if ratio is None or ratio.const is None or ratio.const.array.any():
                n.unsupported("Dropout in training mode")
        if n.n_outputs > 1:  # the mask: undefined by ONNX before opset 12, where onnxruntime writes zeros
            return [x, b.const(np.full(x.shape, n.opset >= 12, bool if n.opset >= 10 else x.dtype.numpy))]
        return [x]

    def ref(self, attrs: dict[str, Any], *xs: Array | None) -> Array:
        return xs[0]  # type: ignore[return-value]

    def scalar(self, attrs: dict[str, Any], *xs: Expr) -> Expr:
        return xs[0]


