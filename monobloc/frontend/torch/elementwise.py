"""Elementwise operators. Operands are promoted by PyTorch's rules before an operator of the IR computes."""

from __future__ import annotations

import math
from typing import Any

from monobloc.frontend.torch.node import AtenNode, Reader, Results
from monobloc.frontend.torch.tensors import dtype_of
from monobloc.ir.graph import Value
from monobloc.ir.types import DType

BOOL = DType.BOOL


# -- of one tensor ------------------------------------------------------------------------------------
def unary(op: str) -> Reader:
    """In the tensor's own type"""
    return lambda n: n.one(op, n.x())


def real(op: str) -> Reader:
    """Of integers too, as floats"""
    return lambda n: n.one(op, n.floats())


def rounding(op: str) -> Reader:
    """Integers are whole already"""
    return lambda n: n.one(op, n.x()) if n.x().dtype.is_float else n.x()


def same(n: AtenNode) -> Results:
    return n.x()


def dropout(n: AtenNode) -> Results:
    if n["train"] and n["p"] > 0:
        n.unsupported("dropout in training, which draws random numbers,")
    return n.x("input")


def trunc(n: AtenNode) -> Results:
    return truncated(n, n.x())


def truncated(n: AtenNode, x: Value) -> Value:
    """Towards zero; the sign of zero stays"""
    if not x.dtype.is_float:
        return x
    zero = n.scalar(0, x.dtype)
    return n.one("Where", n.one("Less", x, zero), n.one("Ceil", x), n.one("Floor", x))


def rounded(n: AtenNode) -> Results:
    x, digits = n.x(), n.get("decimals", 0)
    if not x.dtype.is_float:
        return x
    if not digits:
        return n.one("Round", x)
    by = n.scalar(10.0 ** abs(digits), x.dtype)
    first, last = ("Mul", "Div") if digits > 0 else ("Div", "Mul")
    return n.one(last, n.one("Round", n.one(first, x, by)), by)


def rsqrt(n: AtenNode) -> Results:
    return n.one("Reciprocal", n.one("Sqrt", n.floats()))


def exp2(n: AtenNode) -> Results:
    x = n.floats()
    return n.one("Pow", n.scalar(2, x.dtype), x)


def expm1(n: AtenNode) -> Results:
    """`Elu` is exp(x) - 1 below zero without loss; above, exp(x) - 1 = -elu(-x) * exp(x)."""
    x = n.floats()
    zero = n.scalar(0, x.dtype)
    above = n.one("Mul", n.one("Neg", n.one("Elu", n.one("Neg", x), alpha=1.0)), n.one("Exp", x))
    lost = n.one("Greater", x, n.scalar(80, x.dtype))  # there 1 is lost anyway, and 1 * inf is not
    above = n.one("Where", lost, n.one("Exp", x), above)
    return n.one("Where", n.one("Greater", x, zero), above, n.one("Elu", n.one("Min", x, zero), alpha=1.0))


def log1p(n: AtenNode) -> Results:
    """log(1 + x) = 2 atanh(x / (2 + x)), which keeps small x"""
    x = n.floats()
    small = n.one("Less", n.one("Abs", x), n.scalar(0.5, x.dtype))
    ratio = n.one("Div", x, n.one("Add", x, n.scalar(2, x.dtype)))
    fine = n.one("Mul", n.one("Atanh", n.one("Where", small, ratio, n.scalar(0, x.dtype))), n.scalar(2, x.dtype))
    return n.one("Where", small, fine, n.one("Log", n.one("Add", x, n.scalar(1, x.dtype))))


def log_base(base: float) -> Reader:
    """In double: the logarithm of a power is whole then, and its floor the right one"""

    def read(n: AtenNode) -> Results:
        x = n.floats()
        wide = n.one("Log", n.cast(x, DType.F64))
        return n.cast(n.one("Mul", wide, n.scalar(1 / math.log(base), DType.F64)), x.dtype)

    return read


def sigmoid(n: AtenNode) -> Results:
    return n.one("Sigmoid", n.floats())


def sign(n: AtenNode) -> Results:
    x = n.x()
    if x.dtype is BOOL:
        return x
    y = n.one("Sign", x)  # of NaN: 0
    return n.one("Where", n.one("IsNaN", x), n.scalar(0, x.dtype), y) if x.dtype.is_float else y


def absolute(n: AtenNode) -> Results:
    x = n.x()
    return x if x.dtype is BOOL else n.one("Abs", x)


def bitwise_not(n: AtenNode) -> Results:
    x = n.x()
    return n.one("Not" if x.dtype is BOOL else "BitwiseNot", x)


def logical_not(n: AtenNode) -> Results:
    return n.one("Not", n.cast(n.x(), BOOL))


def isnan(n: AtenNode) -> Results:
    return n.one("IsNaN", n.x()) if n.x().dtype.is_float else _never(n)


def isinf(n: AtenNode) -> Results:
    return n.one("IsInf", n.x(), detect_positive=1, detect_negative=1) if n.x().dtype.is_float else _never(n)


def isfinite(n: AtenNode) -> Results:
    if not n.x().dtype.is_float:
        return n.one("Not", _never(n))
    x = n.x()
    return n.one("Less", n.one("Abs", x), n.scalar(math.inf, x.dtype))


def _never(n: AtenNode) -> Value:
    return n.expand(n.scalar(False, BOOL), n.x().shape)


def signbit(n: AtenNode) -> Results:
    x = n.x()
    if not x.dtype.is_float:
        return n.one("Less", x, n.scalar(0, x.dtype))
    return _negative(n, x)


# -- of two -------------------------------------------------------------------------------------------
def binary(op: str, logical: str = "") -> Reader:
    """In the promoted type; booleans by `logical`"""

    def read(n: AtenNode) -> Results:
        a, b = n.pair()
        return n.one(logical if logical and a.dtype is BOOL else op, a, b)

    return read


def added(op: str, logical: str = "") -> Reader:
    """self + alpha * other, or minus"""

    def read(n: AtenNode) -> Results:
        a, b = n.pair()
        alpha = n.get("alpha", 1)
        if alpha != 1:
            b = n.one("Mul", b, n.scalar(alpha, b.dtype))
        return n.one(logical if logical and a.dtype is BOOL else op, a, b)

    return read


def rsub(n: AtenNode) -> Results:
    a, b = n.pair()
    alpha = n.get("alpha", 1)
    return n.one("Sub", b, a if alpha == 1 else n.one("Mul", a, n.scalar(alpha, a.dtype)))


def compared(op: str, negated: bool = False) -> Reader:
    def read(n: AtenNode) -> Results:
        a, b = n.pair()
        if a.dtype is BOOL and op != "Equal":
            a, b = n.cast(a, DType.U8), n.cast(b, DType.U8)
        y = n.one(op, a, b)
        return n.one("Not", y) if negated else y

    return read


def logical(op: str) -> Reader:
    return lambda n: n.one(op, n.scalar(n["self"], BOOL), n.scalar(n["other"], BOOL))


def div(n: AtenNode) -> Results:
    """Division of reals; with a mode, rounded down or towards zero"""
    mode = n.get("rounding_mode")
    if mode is None:
        a, b = n.pair(real=True)
        return n.one("Div", a, b)
    a, b = n.pair()
    if mode == "trunc":
        return truncated(n, n.one("Div", a, b))
    return floored(n, a, b)


def floor_divide(n: AtenNode) -> Results:
    return floored(n, *n.pair())


def floored(n: AtenNode, a: Value, b: Value) -> Value:
    if a.dtype.is_float:
        # as PyTorch: from the remainder, so that what divides evenly is not rounded away
        rest = remainder_of(n, a, b)
        whole = n.one("Round", n.one("Div", n.one("Sub", a, rest), b))
        by_zero = n.one("Equal", b, n.scalar(0, b.dtype))
        return n.one("Where", by_zero, n.one("Div", a, b), whole)
    q = n.one("Div", a, b)
    if not a.dtype.is_signed:
        return q
    zero = n.scalar(0, a.dtype)
    rest = n.one("Sub", a, n.one("Mul", q, b))
    apart = n.one("Xor", n.one("Less", rest, zero), n.one("Less", b, zero))
    down = n.one("And", n.one("Not", n.one("Equal", rest, zero)), apart)
    return n.one("Sub", q, n.cast(down, a.dtype))


def remainder(n: AtenNode) -> Results:
    return remainder_of(n, *n.pair())


def remainder_of(n: AtenNode, a: Value, b: Value) -> Value:
    """With the divisor's sign"""
    if not a.dtype.is_float:
        return n.one("Mod", a, b, fmod=0)
    zero, rest = n.scalar(0, a.dtype), n.one("Mod", a, b, fmod=1)
    apart = n.one("Xor", n.one("Less", rest, zero), n.one("Less", b, zero))
    wrong = n.one("And", n.one("Not", n.one("Equal", rest, zero)), apart)
    return n.one("Where", wrong, n.one("Add", rest, b), rest)


def fmod(n: AtenNode) -> Results:
    a, b = n.pair()
    return n.one("Mod", a, b, fmod=1)


def power(n: AtenNode) -> Results:
    a, b = n.pair("self", "exponent")
    if n.out is not a.dtype:
        a, b = n.cast(a, n.out), n.cast(b, n.out)
    return n.one("Pow", a, b)


def atan2(n: AtenNode) -> Results:
    return atan2_of(n, *n.pair(real=True))


def atan2_of(n: AtenNode, y: Value, x: Value) -> Value:
    """The angle of (x, y), by quadrant; zeros and infinities as C has them"""
    zero, pi = n.scalar(0, x.dtype), n.scalar(math.pi, x.dtype)
    ay, ax = n.one("Abs", y), n.one("Abs", x)
    inf = n.scalar(math.inf, x.dtype)
    same_size = n.one("Equal", ax, ay)  # zero by zero, infinity by infinity
    ratio = n.one("Div", n.one("Min", ax, ay), n.one("Max", ax, ay))
    ratio = n.one("Where", same_size, n.one("Where", n.one("Equal", ax, zero), zero, n.scalar(1, x.dtype)), ratio)
    ratio = n.one("Where", n.one("And", same_size, n.one("Equal", ax, inf)), n.scalar(1, x.dtype), ratio)
    angle = n.one("Atan", ratio)
    angle = n.one("Where", n.one("Greater", ay, ax), n.one("Sub", n.scalar(math.pi / 2, x.dtype), angle), angle)
    angle = n.one("Where", _negative(n, x), n.one("Sub", pi, angle), angle)
    angle = n.one("Where", _negative(n, y), n.one("Neg", angle), angle)
    bad = n.one("Or", n.one("IsNaN", x), n.one("IsNaN", y))
    return n.one("Where", bad, n.one("Add", x, y), angle)


def _negative(n: AtenNode, x: Value) -> Value:
    """Whether a float's sign bit is set"""
    bits = {2: DType.I16, 4: DType.I32, 8: DType.I64}[x.dtype.size]
    return n.one("Less", n.one("BitCast", x, to=bits), n.scalar(0, bits))


def hypot(n: AtenNode) -> Results:
    """sqrt(x x + y y) without overflow: the larger one times what is at most sqrt(2)"""
    a, b = (n.one("Abs", v) for v in n.pair(real=True))
    big, small = n.one("Max", a, b), n.one("Min", a, b)
    one, inf = n.scalar(1, big.dtype), n.scalar(math.inf, big.dtype)
    ratio = n.one("Div", small, n.one("Where", n.one("Equal", big, n.scalar(0, big.dtype)), one, big))
    y = n.one("Mul", big, n.one("Sqrt", n.one("Add", one, n.one("Mul", ratio, ratio))))
    infinite = n.one("Or", n.one("Equal", a, inf), n.one("Equal", b, inf))
    return n.one("Where", infinite, inf, y)


def copysign(n: AtenNode) -> Results:
    a, b = n.pair(real=True)
    size = n.one("Abs", a)
    return n.one("Where", _negative(n, b), n.one("Neg", size), size)


def extreme(op: str) -> Reader:
    def read(n: AtenNode) -> Results:
        a, b = n.pair()
        if a.dtype is BOOL:
            return n.one("Or" if op == "Max" else "And", a, b)
        return n.one(op, a, b)

    return read


def number_wins(op: str) -> Reader:
    """fmax, fmin: NaN only where both are"""

    def read(n: AtenNode) -> Results:
        a, b = n.pair()
        if not a.dtype.is_float:
            return n.one(op, a, b)
        a2 = n.one("Where", n.one("IsNaN", a), b, a)
        return n.one(op, a2, n.one("Where", n.one("IsNaN", b), a, b))

    return read


def shifted(direction: str) -> Reader:
    def read(n: AtenNode) -> Results:
        a, b = n.pair()
        if a.dtype.is_signed and direction == "LEFT":
            return n.one("Mul", a, n.one("Pow", n.scalar(2, a.dtype), b))
        return n.one("BitShift", a, b, direction=direction) if not a.dtype.is_signed else floored(
            n, a, n.one("Pow", n.scalar(2, a.dtype), b))

    return read


def where(n: AtenNode) -> Results:
    a, b = n.pair("self", "other")
    return n.one("Where", n.cast(n.x("condition"), BOOL), a, b)


def masked_fill(n: AtenNode) -> Results:
    x = n.x()
    return n.one("Where", n.cast(n.x("mask"), BOOL), n.scalar(n["value"], x.dtype), x)


def addcmul(n: AtenNode) -> Results:
    dtype = n.out
    a, b = (n.scalar(n[k], dtype) for k in ("tensor1", "tensor2"))
    op = "Mul" if n.op.startswith("addcmul") else "Div"
    term = n.one(op, a, b)
    if n.get("value", 1) != 1:
        term = n.one("Mul", n.scalar(n["value"], dtype), term)
    return n.one("Add", n.scalar(n["self"], dtype), term)


def lerp(n: AtenNode) -> Results:
    a, b = n.pair("self", "end")
    w = n.scalar(n["weight"], a.dtype)
    return n.one("Add", a, n.one("Mul", w, n.one("Sub", b, a)))


# -- bounded ------------------------------------------------------------------------------------------
def clamp(n: AtenNode) -> Results:
    """Bounds may be numbers or tensors; NaN of the tensor stays"""
    dtype, x = n.out, n.x()
    y = n.cast(x, dtype)
    for name, op in (("min", "Max"), ("max", "Min")):
        bound = n.get(name)
        if bound is not None:
            y = n.one(op, y, n.scalar(bound, dtype))
    return y


def hardtanh(n: AtenNode) -> Results:
    x = n.x()
    return n.one("Clip", x, n.scalar(n["min_val"], x.dtype), n.scalar(n["max_val"], x.dtype))


def relu6(n: AtenNode) -> Results:
    x = n.x()
    return n.one("Clip", x, n.scalar(0, x.dtype), n.scalar(6, x.dtype))


# -- activations --------------------------------------------------------------------------------------
def relu(n: AtenNode) -> Results:
    return n.one("Relu", n.x())


def gelu(n: AtenNode) -> Results:
    return n.onnx("Gelu", n.x(), approximate=n.get("approximate") or "none")[0]


def silu(n: AtenNode) -> Results:
    x = n.x()
    return n.one("Mul", x, n.one("Sigmoid", x))


def elu(n: AtenNode) -> Results:
    x, alpha, scale, inner = n.x(), n["alpha"], n.get("scale", 1), n.get("input_scale", 1)
    if inner != 1:
        zero = n.scalar(0, x.dtype)
        low = n.one("Elu", n.one("Mul", n.one("Min", x, zero), n.scalar(inner, x.dtype)), alpha=float(alpha))
        y = n.one("Where", n.one("Greater", x, zero), x, low)
    else:
        y = n.one("Elu", x, alpha=float(alpha))
    return y if scale == 1 else n.one("Mul", y, n.scalar(scale, x.dtype))


def parametric(op: str, **names: Any) -> Reader:
    """attribute=(argument, default)"""

    def read(n: AtenNode) -> Results:
        attrs: dict[str, Any] = {a: float(n.get(k, d)) for a, (k, d) in names.items()}
        return n.onnx(op, n.x(), **attrs)[0]

    return read


def leaky_relu(n: AtenNode) -> Results:
    return n.one("LeakyRelu", n.x(), alpha=float(n["negative_slope"]))


def rrelu(n: AtenNode) -> Results:
    """In evaluation the slope is the middle of its range"""
    if n["training"]:
        n.unsupported("rrelu in training, which draws random numbers,")
    return [n.one("LeakyRelu", n.x(), alpha=(n["lower"] + n["upper"]) / 2), n.x("noise")]


def prelu(n: AtenNode) -> Results:
    x, w = n.x(), n.x("weight")
    if n.op == "prelu.default" and w.type.size > 1 and x.type.rank > 1:
        w = n.reshape(w, [w.type.size] + [1] * (x.type.rank - 2))
    return n.one("PRelu", x, n.reshape(w, []) if w.type.size == 1 else w)


def softplus(n: AtenNode) -> Results:
    x, beta, above = n.x(), n.get("beta", 1), n.get("threshold", 20)
    if beta == 1:
        return n.one("Where", n.one("Greater", x, n.scalar(above, x.dtype)), x, n.one("Softplus", x))
    scaled = n.one("Mul", x, n.scalar(beta, x.dtype))
    soft = n.one("Div", n.one("Softplus", scaled), n.scalar(beta, x.dtype))
    return n.one("Where", n.one("Greater", scaled, n.scalar(above, x.dtype)), x, soft)


def hardsigmoid(n: AtenNode) -> Results:
    return n.one("HardSigmoid", n.x(), alpha=1 / 6, beta=0.5)


def hardshrink(n: AtenNode) -> Results:
    x, lim = n.x(), n["lambd"]
    inside = n.one("LessOrEqual", n.one("Abs", x), n.scalar(lim, x.dtype))
    return n.one("Where", inside, n.scalar(0, x.dtype), x)


def threshold(n: AtenNode) -> Results:
    x = n.x()
    low = n.one("LessOrEqual", x, n.scalar(n["threshold"], x.dtype))
    return n.one("Where", low, n.scalar(n["value"], x.dtype), x)


def log_sigmoid(n: AtenNode) -> Results:
    x = n.x()
    y = n.one("Neg", n.one("Softplus", n.one("Neg", x)))
    return [y, n.expand(n.scalar(0, x.dtype), [0])] if n.op.startswith("log_sigmoid_forward") else y


def logit(n: AtenNode) -> Results:
    x = n.floats()
    if n.get("eps") is not None:
        x = n.one("Clip", x, n.scalar(n["eps"], x.dtype), n.scalar(1 - n["eps"], x.dtype))
    return n.one("Log", n.one("Div", x, n.one("Sub", n.scalar(1, x.dtype), x)))


def glu(n: AtenNode) -> Results:
    x, axis = n.x(), n.axis()
    half = x.shape[axis] // 2
    return n.one("Mul", n.cut(x, axis, 0, half), n.one("Sigmoid", n.cut(x, axis, half, half)))


# -- types --------------------------------------------------------------------------------------------
def to_copy(n: AtenNode) -> Results:
    """Another type, or another memory format or device, which mean nothing here"""
    x, to = n.x(), n.get("dtype")
    return x if to is None else n.cast(x, dtype_of(to))


def convert_element_type(n: AtenNode) -> Results:
    return n.cast(n.x("a"), dtype_of(n["dtype"]))


def view_dtype(n: AtenNode) -> Results:
    """The same bits as another type"""
    x, to = n.x(), dtype_of(n["dtype"])
    if x.dtype.size != to.size:
        n.unsupported("seeing a tensor as elements of another size")
    return x if x.dtype is to else n.one("BitCast", x, to=to)


REALS = {
    "acos": "Acos", "acosh": "Acosh", "asin": "Asin", "asinh": "Asinh", "atan": "Atan", "atanh": "Atanh", "cos": "Cos",
    "cosh": "Cosh", "erf": "Erf", "exp": "Exp", "log": "Log", "reciprocal": "Reciprocal", "sin": "Sin",
    "sinh": "Sinh", "sqrt": "Sqrt", "tan": "Tan", "tanh": "Tanh",
}  # fmt: skip
COMPARISONS = {"eq": "Equal", "ge": "GreaterOrEqual", "gt": "Greater", "le": "LessOrEqual", "lt": "Less"}


def overloads(name: str, reader: Reader, *kinds: str) -> dict[str, Reader]:
    return {f"{name}.{kind}": reader for kind in kinds}


READERS: dict[str, Reader] = {
    **{f"{name}.default": real(op) for name, op in REALS.items()},
    **{k: v for name, op in COMPARISONS.items() for k, v in overloads(name, compared(op), "Tensor", "Scalar").items()},
    **overloads("ne", compared("Equal", negated=True), "Tensor", "Scalar"),
    **overloads("add", added("Add", "Or"), "Tensor", "Scalar"),
    **overloads("sub", added("Sub"), "Tensor", "Scalar"),
    **overloads("rsub", rsub, "Tensor", "Scalar"),
    **overloads("mul", binary("Mul", "And"), "Tensor", "Scalar"),
    **overloads("div", div, "Tensor", "Scalar", "Tensor_mode", "Scalar_mode"),
    **overloads("floor_divide", floor_divide, "default", "Scalar"),
    **overloads("remainder", remainder, "Tensor", "Scalar", "Scalar_Tensor"),
    **overloads("fmod", fmod, "Tensor", "Scalar"),
    **overloads("pow", power, "Tensor_Tensor", "Tensor_Scalar", "Scalar"),
    **overloads("bitwise_and", binary("BitwiseAnd", "And"), "Tensor", "Scalar"),
    **overloads("bitwise_or", binary("BitwiseOr", "Or"), "Tensor", "Scalar"),
    **overloads("bitwise_xor", binary("BitwiseXor", "Xor"), "Tensor", "Scalar"),
    **overloads("bitwise_left_shift", shifted("LEFT"), "Tensor", "Tensor_Scalar"),
    **overloads("bitwise_right_shift", shifted("RIGHT"), "Tensor", "Tensor_Scalar"),
    **overloads("__lshift__", shifted("LEFT"), "Tensor", "Scalar"),
    **overloads("__rshift__", shifted("RIGHT"), "Tensor", "Scalar"),
    **overloads("where", where, "self", "ScalarOther", "ScalarSelf", "Scalar"),
    **overloads("masked_fill", masked_fill, "Scalar", "Tensor"),
    **overloads("clamp", clamp, "default", "Tensor"),
    **overloads("clamp_min", clamp, "default", "Tensor"),
    **overloads("clamp_max", clamp, "default", "Tensor"),
    **overloads("lerp", lerp, "Scalar", "Tensor"),
    "abs.default": absolute, "neg.default": unary("Neg"), "positive.default": same, "relu.default": relu,
    "floor.default": rounding("Floor"), "ceil.default": rounding("Ceil"), "trunc.default": trunc,
    "round.default": rounded, "round.decimals": rounded, "sign.default": sign, "sgn.default": sign,
    "signbit.default": signbit, "rsqrt.default": rsqrt, "exp2.default": exp2, "expm1.default": expm1,
    "log1p.default": log1p, "log2.default": log_base(2), "log10.default": log_base(10), "sigmoid.default": sigmoid,
    "bitwise_not.default": bitwise_not, "logical_not.default": logical_not, "logical_and.default": logical("And"),
    "logical_or.default": logical("Or"), "logical_xor.default": logical("Xor"), "isnan.default": isnan,
    "isinf.default": isinf, "isfinite.default": isfinite, "atan2.default": atan2, "copysign.Tensor": copysign,
    "hypot.default": hypot, "rrelu_with_noise_functional.default": rrelu,
    "maximum.default": extreme("Max"), "minimum.default": extreme("Min"), "fmax.default": number_wins("Max"),
    "fmin.default": number_wins("Min"), "addcmul.default": addcmul, "addcdiv.default": addcmul,
    "hardtanh.default": hardtanh, "relu6.default": relu6, "gelu.default": gelu, "silu.default": silu,
    "mish.default": real("Mish"), "elu.default": elu, "selu.default": parametric("Selu"),
    "celu.default": parametric("Celu", alpha=("alpha", 1.0)), "leaky_relu.default": leaky_relu,
    "prelu.default": prelu, "_prelu_kernel.default": prelu, "softplus.default": softplus,
    "hardswish.default": unary("HardSwish"),
    "hardsigmoid.default": hardsigmoid, "hardshrink.default": hardshrink,
    "softshrink.default": parametric("Shrink", bias=("lambd", 0.5), lambd=("lambd", 0.5)),
    "threshold.default": threshold, "log_sigmoid.default": log_sigmoid, "log_sigmoid_forward.default": log_sigmoid,
    "logit.default": logit, "glu.default": glu,
    "_to_copy.default": to_copy, "prims.convert_element_type.default": convert_element_type,
    "view.dtype": view_dtype, "clone.default": same, "alias.default": same, "detach.default": same,
    "lift_fresh_copy.default": same, "lift_fresh.default": same, "contiguous.default": same, "dropout.default": dropout,
}  # fmt: skip
