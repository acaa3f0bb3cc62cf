"""Complex numbers inside of a program, as two tensors; and Fourier transforms, which are ONNX's (`ops/spectral.py`).

Nothing complex enters or leaves an image. What moves elements moves both parts; what computes is written out here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch

from monobloc.frontend.torch import elementwise
from monobloc.frontend.torch.elementwise import atan2_of
from monobloc.frontend.torch.indexing import index_put
from monobloc.frontend.torch.movement import READERS as MOVES
from monobloc.frontend.torch.node import AtenNode, Reader, Results
from monobloc.ir.graph import Value
from monobloc.ir.types import DType
from monobloc.ops import spectral
from monobloc.ops.elementwise import broadcast_shapes

MOVED = (*MOVES, "clone.default", "alias.default", "detach.default", "contiguous.default", "sum.dim_IntList",
         "mean.dim")


@dataclass(frozen=True)
class Complex:
    re: Value
    im: Value


def read(n: AtenNode, readers: Mapping[str, Reader]) -> Results:
    """A call with complex arguments"""
    own = OF_COMPLEX.get(n.op)
    if own is not None:
        return own(n)
    if n.op not in MOVED:
        n.unsupported("an operator of complex numbers")
    re, im = (readers[n.op](_part(n, part)) for part in ("re", "im"))
    if isinstance(re, list):
        return [Complex(a, b) for a, b in zip(re, im, strict=True)]
    return Complex(re, im)


def lifted(*names: str) -> Reader:
    """What chooses among elements, of which some may be real"""
    def read(n: AtenNode) -> Results:
        whole = replace(n, args={**n.args, **{k: parts(n, k) for k in names}})
        return Complex(*(BY_PARTS[n.op](_part(whole, part)) for part in ("re", "im")))

    return read


def _part(n: AtenNode, part: str) -> AtenNode:
    """The same call of real or imaginary parts"""
    def of(a: Any) -> Any:
        if isinstance(a, list):
            return [of(x) for x in a]
        return getattr(a, part) if isinstance(a, Complex) else a

    def real(t: Any) -> Any:
        if isinstance(t, (list, tuple)):
            return [real(x) for x in t]
        return t.real if isinstance(t, torch.Tensor) and t.is_complex() else t

    return replace(n, args={k: of(v) for k, v in n.args.items()}, metas={k: real(v) for k, v in n.metas.items()},
                   made=real(n.made))


def parts(n: AtenNode, name: str) -> Complex:
    """An operand as a complex number, in the type of the others' parts"""
    a = n[name]
    if isinstance(a, Complex):
        return a
    like = next(v for v in n.args.values() if isinstance(v, Complex)).re.dtype
    if isinstance(a, Value):
        return Complex(n.cast(a, like), n.scalar(0, like))
    return Complex(n.scalar(complex(a).real, like), n.scalar(complex(a).imag, like))


# -- arithmetic ---------------------------------------------------------------------------------------
def add(op: str) -> Reader:
    def read(n: AtenNode) -> Results:
        a, b = parts(n, "self"), parts(n, "other")
        if n.get("alpha", 1) != 1:
            n.unsupported("a sum of complex numbers with a factor")
        return Complex(*(_broadcast(n, n.one(op, p, q), a, b) for p, q in ((a.re, b.re), (a.im, b.im))))

    return read


def _broadcast(n: AtenNode, v: Value, a: Complex, b: Complex) -> Value:
    return n.expand(v, list(broadcast_shapes(a.re.shape, b.re.shape)))


def mul(n: AtenNode) -> Results:
    a, b = parts(n, "self"), parts(n, "other")
    if not isinstance(n["other"], Complex) and not isinstance(n["other"], complex):
        return Complex(n.one("Mul", a.re, b.re), n.one("Mul", a.im, b.re))
    if not isinstance(n["self"], Complex):
        return Complex(n.one("Mul", a.re, b.re), n.one("Mul", a.re, b.im))
    re = n.one("Sub", n.one("Mul", a.re, b.re), n.one("Mul", a.im, b.im))
    return Complex(re, n.one("Add", n.one("Mul", a.re, b.im), n.one("Mul", a.im, b.re)))


def div(n: AtenNode) -> Results:
    if not isinstance(n["other"], (Complex, complex)):
        a, by = n["self"], n.scalar(n["other"], n["self"].re.dtype)
        return Complex(n.one("Div", a.re, by), n.one("Div", a.im, by))
    a, b = parts(n, "self"), parts(n, "other")
    size = n.one("Add", n.one("Mul", b.re, b.re), n.one("Mul", b.im, b.im))
    re = n.one("Add", n.one("Mul", a.re, b.re), n.one("Mul", a.im, b.im))
    im = n.one("Sub", n.one("Mul", a.im, b.re), n.one("Mul", a.re, b.im))
    return Complex(n.one("Div", re, size), n.one("Div", im, size))


def power(n: AtenNode) -> Results:
    """To a whole number"""
    times = n["exponent"]
    if not isinstance(times, (int, float)) or times != int(times) or not 1 <= times <= 8:
        n.unsupported("a power of complex numbers that is no whole number from 1 to 8")
    z: Any = n["self"]
    for _ in range(int(times) - 1):
        z = mul(replace(n, args={"self": z, "other": n["self"]}))
    return z


def linear(n: AtenNode) -> Results:
    turned = Complex(*(n.swap(v) for v in (parts(n, "weight").re, parts(n, "weight").im)))
    y = product("other")(replace(n, args={"self": parts(n, "input"), "other": turned}))
    return y if n.get("bias") is None else add("Add")(replace(n, args={"self": y, "other": n["bias"]}))


def fill(n: AtenNode) -> Results:
    value, shape = parts(n, "value"), parts(n, "self").re.shape
    return Complex(*(n.expand(v, shape) for v in (value.re, value.im)))


def reciprocal(n: AtenNode) -> Results:
    return div(replace(n, args={"self": 1, "other": n["self"]}))


def exp(n: AtenNode) -> Results:
    z = n["self"]
    r = n.one("Exp", z.re)
    return Complex(n.one("Mul", r, n.one("Cos", z.im)), n.one("Mul", r, n.one("Sin", z.im)))


def product(other: str) -> Reader:
    """Of matrices"""
    def read(n: AtenNode) -> Results:
        a, b = parts(n, "self"), parts(n, other)
        re = n.one("Sub", n.one("MatMul", a.re, b.re), n.one("MatMul", a.im, b.im))
        return Complex(re, n.one("Add", n.one("MatMul", a.re, b.im), n.one("MatMul", a.im, b.re)))

    return read


def size(n: AtenNode) -> Results:
    z = n["self"]
    return n.one("Sqrt", n.one("Add", n.one("Mul", z.re, z.re), n.one("Mul", z.im, z.im)))


def angle(n: AtenNode) -> Results:
    return atan2_of(n, n["self"].im, n["self"].re)


def conj(n: AtenNode) -> Results:
    return Complex(n["self"].re, n.one("Neg", n["self"].im))


def neg(n: AtenNode) -> Results:
    return Complex(n.one("Neg", n["self"].re), n.one("Neg", n["self"].im))


def view_as_real(n: AtenNode) -> Results:
    return joined(n, n["self"])


# -- made of reals ------------------------------------------------------------------------------------
def view_as_complex(n: AtenNode) -> Results:
    return taken_apart(n, n.x())


def complex_of(n: AtenNode) -> Results:
    shape = n.shape()
    return Complex(n.expand(n.x("real"), shape), n.expand(n.x("imag"), shape))


def polar(n: AtenNode) -> Results:
    r, at = n.x("abs"), n.x("angle")
    return Complex(n.one("Mul", r, n.one("Cos", at)), n.one("Mul", r, n.one("Sin", at)))


def angle_of_real(n: AtenNode) -> Results:
    """Half a turn below zero, none above"""
    x = n.floats()
    zero = n.scalar(0, x.dtype)
    y = n.one("Where", n.one("Less", x, zero), n.scalar(math.pi, x.dtype), zero)
    return n.one("Where", n.one("IsNaN", x), x, y)


# -- Fourier transforms -------------------------------------------------------------------------------
def joined(n: AtenNode, z: Complex) -> Value:
    """Both parts side by side in a last axis"""
    wide = [n.reshape(v, [*v.shape, 1]) for v in (z.re, z.im)]
    return n.b.emit("Concat", wide, {"axis": z.re.type.rank})[0]


def taken_apart(n: AtenNode, x: Value) -> Complex:
    return Complex(*(n.reshape(n.cut(x, x.type.rank - 1, k, 1), x.shape[:-1]) for k in range(2)))


def scaled(n: AtenNode, y: Value, lengths: list[int], forward: bool) -> Value:
    """By PyTorch's normalization: none, by the root of the number of elements, or by it; an inverse transform is
    divided by it already"""
    count = math.prod(lengths)
    by = (1.0, 1 / math.sqrt(count), 1 / count)[n["normalization"]] * (1 if forward else count)
    return y if abs(by - 1) < 1e-12 else n.one("Mul", y, n.scalar(by, y.dtype))


def fft_r2c(n: AtenNode) -> Results:
    """The last axis named from reals, in half of its frequencies if asked for; the others of those"""
    x, axes = n.x(), [n.axis_of(a, n.x().type.rank) for a in n.ints("dim")]
    lengths = [x.shape[a] for a in axes]
    y = spectral.transform(n.b, n, n.reshape(x, [*x.shape, 1]), axes[-1], lengths[-1], False, bool(n["onesided"]))
    for a, d in zip(axes[:-1], lengths, strict=False):
        y = spectral.transform(n.b, n, y, a, d, False, False)
    return taken_apart(n, scaled(n, y, lengths, True))


def fft_c2c(n: AtenNode) -> Results:
    z, forward = n["self"], bool(n["forward"])
    axes = [n.axis_of(a, z.re.type.rank) for a in n.ints("dim")]
    lengths, y = [z.re.shape[a] for a in axes], joined(n, z)
    for a, d in zip(axes, lengths, strict=True):
        y = spectral.transform(n.b, n, y, a, d, not forward, False)
    return taken_apart(n, scaled(n, y, lengths, forward))


def fft_c2r(n: AtenNode) -> Results:
    """Back to reals: what is left out of the frequencies is the mirror of what is there"""
    z, last = n["self"], n["last_dim_size"]
    axes = [n.axis_of(a, z.re.type.rank) for a in n.ints("dim")]
    lengths, y = [*(z.re.shape[a] for a in axes[:-1]), last], joined(n, z)
    for k, (a, d) in enumerate(zip(axes, lengths, strict=True)):
        y = spectral.transform(n.b, n, y, a, d, True, k == len(axes) - 1)
    return scaled(n, n.reshape(y, y.shape[:-1]), lengths, False)


def same(n: AtenNode) -> Results:
    z, to = n["self"], n.get("dtype")
    if to is not None and to not in (torch.complex64, torch.complex128):
        n.unsupported("a complex number as a real one")
    wide = {torch.complex64: DType.F32, torch.complex128: DType.F64}.get(to, z.re.dtype)
    return Complex(n.cast(z.re, wide), n.cast(z.im, wide))


BY_PARTS: dict[str, Reader] = {"where.self": elementwise.READERS["where.self"], "index_put.default": index_put}
OF_COMPLEX: dict[str, Callable[[AtenNode], Results]] = {
    "add.Tensor": add("Add"), "sub.Tensor": add("Sub"), "mul.Tensor": mul, "mul.Scalar": mul, "div.Tensor": div,
    "exp.default": exp, "reciprocal.default": reciprocal, "mm.default": product("mat2"), "bmm.default": product("mat2"),
    "matmul.default": product("other"), "linear.default": linear, "pow.Tensor_Scalar": power,
    "fill.Tensor": fill, "fill.Scalar": fill, "where.self": lifted("self", "other"),
    "index_put.default": lifted("self", "values"),
    "div.Scalar": div, "abs.default": size, "angle.default": angle, "_conj.default": conj,
    "_conj_physical.default": conj, "conj_physical.default": conj, "resolve_conj.default": same, "neg.default": neg,
    "view_as_real.default": view_as_real, "real.default": lambda n: n["self"].re,
    "imag.default": lambda n: n["self"].im, "_to_copy.default": same, "_fft_c2c.default": fft_c2c,
    "_fft_c2r.default": fft_c2r,
}  # fmt: skip


def to_copy(n: AtenNode) -> Results:
    """Reals as complex numbers, too"""
    wide = {torch.complex64: DType.F32, torch.complex128: DType.F64}.get(n.get("dtype"))
    if wide is None:
        return elementwise.to_copy(n)
    x = n.cast(n.x(), wide)
    return Complex(x, n.expand(n.scalar(0, wide), x.shape))


def only_complex(n: AtenNode) -> Results:
    n.unsupported("an operator of complex numbers on reals")


READERS: dict[str, Reader] = {
    "view_as_complex.default": view_as_complex, "complex.default": complex_of, "polar.default": polar,
    "angle.default": angle_of_real, "_fft_r2c.default": fft_r2c, "_to_copy.default": to_copy,
    **dict.fromkeys(("_fft_c2c.default", "_fft_c2r.default", "view_as_real.default", "imag.default"), only_complex),
    **dict.fromkeys(("_conj.default", "_conj_physical.default", "conj_physical.default", "resolve_conj.default",
                     "real.default"), elementwise.same),
}  # fmt: skip
