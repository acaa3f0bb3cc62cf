"""Steps of bfloat16 and float16: computed in single precision and rounded once, as the builder's answers are."""

from __future__ import annotations

import numpy as np
from builder import BF16, Builder
from onnx import TensorProto
from sizes import long_shape, size
from steps import broadcast_partner, chance, number, some
from tolerance import differs

# Sums may keep float32's precision: Exp turns a bfloat16's rounding of 8 into 3 % of e^8. What is not known to the bit
# has those before it
UNARY = ("Relu", "Abs", "Neg", "Sigmoid", "Tanh", "Erf", "Softplus", "Exp", "Sqrt", "Floor", "Round", "Sign")


class HalfBuilder(Builder):
    """Models whose floats were halves once: two that are rounded at other places differ by a half's rounding."""

    def differs(self, got: np.ndarray, want: np.ndarray) -> str:
        return differs(got, want, of_halves=True)

    def _empty(self) -> Builder:
        return HalfBuilder(self.seed, self.opset)


def start(b: Builder) -> str:
    short = (number(b, 1, 3), number(b, 1, 9), int(some(b, 1, 7, 8, 16, 17, 33)))
    return b.input(b.random(long_shape(b, 3) if chance(b, 0.3) else short, _type(b)))


def _type(b: Builder) -> object:
    return some(b, BF16, BF16, np.float16)


def halves(b: Builder) -> str:
    x = b.pick(some(b, BF16, np.float16)) or start(b)  # type: ignore[arg-type]
    v = b.values[x]
    kind = number(b, 0, 9)
    if kind <= 1:
        return b.one(str(some(b, *UNARY[: len(UNARY) if b.exact[x] else UNARY.index("Exp")])), x)
    if kind <= 3:
        return b.one(str(some(b, "Add", "Mul", "Sub", "Max", "Min")), x, broadcast_partner(b, x, v.dtype))
    if kind == 4 and v.ndim > 1:
        return b.one("MatMul", x, b.leaf((v.shape[-1], size(b, v.size // max(1, v.shape[-1]), p=0.4)), v.dtype))
    if kind == 5 and v.ndim > 1:
        return b.one(str(some(b, "ReduceMean", "ReduceMax", "ReduceSum", "ReduceL2")), x, b.ints(-1), keepdims=1)
    if kind == 6:
        return b.one(str(some(b, "Softmax", "LogSoftmax")), x, axis=number(b, -v.ndim, v.ndim - 1))
    if kind == 7 and v.ndim > 1:
        scale = b.constant(b.random(v.shape[-1:]).astype(v.dtype))
        return b.one("LayerNormalization", x, scale, axis=-1)
    return _moved(b, x)


def _moved(b: Builder, x: str) -> str:
    v = b.values[x]
    kind = number(b, 0, 4)
    if kind == 0:
        return b.one("Transpose", x, perm=[int(k) for k in b.rng.permutation(v.ndim)])
    if kind == 1:
        return b.one("Concat", x, x, axis=number(b, 0, v.ndim - 1))
    if kind == 2:
        return b.one("Where", b.leaf(v.shape, np.bool_), x, broadcast_partner(b, x, v.dtype))
    if kind == 3:
        return b.one("Cast", x, to=int(some(b, TensorProto.FLOAT, TensorProto.BFLOAT16)))
    y = b.pick()
    return b.one("Cast", y, to=TensorProto.BFLOAT16) if y and chance(b) else b.one("Reshape", x, b.ints(-1))


__all__ = ["HalfBuilder", "halves", "start"]
