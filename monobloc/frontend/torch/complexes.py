"""Complex numbers inside of a program, as two tensors; and Fourier transforms, as products with constant matrices.

Nothing complex enters or leaves an image. What moves elements moves both parts; what computes is written out here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from monobloc.frontend.torch import elementwise
from monobloc.frontend.torch.elementwise import atan2_of
from monobloc.frontend.torch.movement import READERS as MOVES
from monobloc.frontend.torch.node import AtenNode, Reader, Results
from monobloc.frontend.torch.windows import along
from monobloc.ir.graph import Value
from monobloc.ir.types import DType

MOVED = (*MOVES, "clone.default", "alias.default", "detach.default", "contiguous.default", "sum.dim_IntList")


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
    return n.expand(v, list(np.broadcast_shapes(a.re.shape, b.re.shape)))


def mul(n: AtenNode) -> Results:
    a, b = parts(n, "self"), parts(n, "other")
    if not isinstance(n["other"], Complex) and not isinstance(n["other"], complex):
        return Complex(n.one("Mul", a.re, b.re), n.one("Mul", a.im, b.re))
    if not isinstance(n["self"], Complex):
        return Complex(n.one("Mul", a.re, b.re), n.one("Mul", a.re, b.im))
    re = n.one("Sub", n.one("Mul", a.re, b.re), n.one("Mul", a.im, b.im))
    return Complex(re, n.one("Add", n.one("Mul", a.re, b.im), n.one("Mul", a.im, b.re)))


def div(n: AtenNode) -> Results:
    if isinstance(n["other"], (Complex, complex)) or not isinstance(n["self"], Complex):
        n.unsupported("division by a complex number")
    a, b = n["self"], n.scalar(n["other"], n["self"].re.dtype)
    return Complex(n.one("Div", a.re, b), n.one("Div", a.im, b))


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
    z = n["self"]
    wide = [n.reshape(v, [*v.shape, 1]) for v in (z.re, z.im)]
    return n.b.emit("Concat", wide, {"axis": z.re.type.rank})[0]


# -- made of reals ------------------------------------------------------------------------------------
def view_as_complex(n: AtenNode) -> Results:
    x = n.x()
    return Complex(*(n.reshape(n.cut(x, x.type.rank - 1, k, 1), x.shape[:-1]) for k in range(2)))


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
def waves(rows: int, columns: int, length: int) -> tuple[np.ndarray, np.ndarray]:
    """(cos, sin) of 2 pi j k / length, the angle reduced in integers first"""
    at = np.outer(np.arange(rows), np.arange(columns)) % length * (2 * np.pi / length)
    return np.cos(at), np.sin(at)


def scale(n: AtenNode, lengths: list[int]) -> float:
    """Of a transform over axes of these lengths: none, by the root of their product, or by it"""
    count = math.prod(lengths)
    return (1.0, 1 / math.sqrt(count), 1 / count)[n["normalization"]]


def transformed(n: AtenNode, z: Complex, axis: int, forward: bool) -> Complex:
    d = z.re.shape[axis]
    c, s = waves(d, d, d)
    s = -s if forward else s
    re = n.one("Sub", along(n, z.re, axis, c), along(n, z.im, axis, s))
    return Complex(re, n.one("Add", along(n, z.re, axis, s), along(n, z.im, axis, c)))


def fft_r2c(n: AtenNode) -> Results:
    """The last axis named from reals, in half of its frequencies if asked for; the others of those"""
    x, axes = n.x(), [n.axis_of(a, n.x().type.rank) for a in n.ints("dim")]
    by, last = scale(n, [x.shape[a] for a in axes]), axes[-1]
    d = x.shape[last]
    c, s = waves(d, d // 2 + 1 if n["onesided"] else d, d)
    z = Complex(along(n, x, last, c * by), along(n, x, last, -s * by))
    for a in axes[:-1]:
        z = transformed(n, z, a, True)
    return z


def fft_c2c(n: AtenNode) -> Results:
    z = n["self"]
    axes = [n.axis_of(a, z.re.type.rank) for a in n.ints("dim")]
    by = scale(n, [z.re.shape[a] for a in axes])
    for a in axes:
        z = transformed(n, z, a, bool(n["forward"]))
    return z if by == 1 else Complex(*(n.one("Mul", v, n.scalar(by, v.dtype)) for v in (z.re, z.im)))


def fft_c2r(n: AtenNode) -> Results:
    """Back to reals: what is left out of the frequencies is the mirror of what is there"""
    z, d = n["self"], n["last_dim_size"]
    axes = [n.axis_of(a, z.re.type.rank) for a in n.ints("dim")]
    last, kept = axes[-1], d // 2 + 1
    by = scale(n, [*(z.re.shape[a] for a in axes[:-1]), d])
    for a in axes[:-1]:
        z = transformed(n, z, a, False)
    c, s = waves(kept, d, d)
    twice = np.full((kept, 1), 2.0)
    twice[0] = 1
    if d % 2 == 0:
        twice[-1] = 1
    z = Complex(n.cut(z.re, last, 0, kept), n.cut(z.im, last, 0, kept))
    return n.one("Sub", along(n, z.re, last, c * twice * by), along(n, z.im, last, s * twice * by))


def same(n: AtenNode) -> Results:
    z, to = n["self"], n.get("dtype")
    if to is not None and to not in (torch.complex64, torch.complex128):
        n.unsupported("a complex number as a real one")
    wide = {torch.complex64: DType.F32, torch.complex128: DType.F64}.get(to, z.re.dtype)
    return Complex(n.cast(z.re, wide), n.cast(z.im, wide))


OF_COMPLEX: dict[str, Callable[[AtenNode], Results]] = {
    "add.Tensor": add("Add"), "sub.Tensor": add("Sub"), "mul.Tensor": mul, "mul.Scalar": mul, "div.Tensor": div,
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
