"""Steps of operators that compute element by element."""

from __future__ import annotations

import numpy as np
from builder import Builder
from steps import broadcast_partner, chance, number, some

UNARY = (
    ("Relu", {}), ("Sigmoid", {}), ("Tanh", {}), ("Erf", {}), ("Softplus", {}), ("Softsign", {}), ("Abs", {}),
    ("Neg", {}), ("HardSigmoid", {}), ("HardSwish", {}), ("Elu", {"alpha": 0.7}), ("Selu", {}), ("Exp", {}),
    ("LeakyRelu", {"alpha": 0.2}), ("ThresholdedRelu", {"alpha": 0.3}), ("Mish", {}), ("Celu", {"alpha": 0.4}),
    ("Sin", {}), ("Cos", {}), ("Atan", {}), ("Identity", {}), ("Sinh", {}), ("Asinh", {}),
)
SHARP = (("Floor", {}), ("Ceil", {}), ("Round", {}), ("Sign", {}))


def unary(b: Builder) -> str:
    kind, attrs = some(b, *UNARY)
    return b.one(kind, b.pick(), **attrs)


def sharp(b: Builder) -> str:
    kind, attrs = some(b, *SHARP)
    return b.one(kind, b.pick(exact=True), exact=True, **attrs)


def binary(b: Builder) -> str:
    x = b.pick()
    y = broadcast_partner(b, x)
    if chance(b):
        x, y = y, x
    return b.one(str(some(b, "Add", "Sub", "Mul", "Add", "Max", "Min")), x, y)


def divide(b: Builder) -> str:
    x = b.pick()
    den = b.constant(np.abs(b.random(b.values[x].shape[-1:])) + 0.5)
    return b.one("Div", x, den) if chance(b) else b.one("Div", b.constant(np.float32(2.5)),
                                                         b.one("Softplus", x) or den)


def variadic(b: Builder) -> str:
    x = b.pick()
    ins = [x, *(broadcast_partner(b, x) for _ in range(number(b, 0, 3)))]
    return b.one(str(some(b, "Sum", "Max", "Min", "Mean")), *ins)


def clip(b: Builder) -> str:
    x = b.pick()
    lo = b.constant(np.float32(-0.5)) if chance(b, 0.7) else ""
    hi = b.constant(np.float32(0.9)) if chance(b, 0.7) else ""
    return b.one("Clip", x, lo, hi)


def prelu(b: Builder) -> str:
    x = b.pick()
    shape = b.values[x].shape
    slope = some(b, shape[1:2] + (1,) * (len(shape) - 2), (1,) * len(shape), shape[-1:])
    return b.one("PRelu", x, b.constant(b.random(slope)))


def swish(b: Builder) -> str:
    x = b.pick()
    return b.one("Mul", x, b.one("Sigmoid", x))


def gelu(b: Builder) -> str:
    x = b.pick()
    e = b.one("Erf", b.one("Div", x, b.constant(np.float32(2**0.5))))
    return b.one("Mul", b.one("Mul", x, b.one("Add", e, b.constant(np.float32(1)))), b.constant(np.float32(0.5)))


def where(b: Builder) -> str:
    x = b.pick()
    shape = b.values[x].shape
    c = b.leaf(tuple(d if chance(b) else 1 for d in shape), np.bool_)
    y = broadcast_partner(b, x)
    return b.one("Where", c, x, y) if chance(b) else b.one("Where", c, y, x)


def power(b: Builder) -> str:
    return b.one("Pow", b.pick(), b.constant(np.float32(some(b, 2, 3, 1, 0))))


def root(b: Builder) -> str:
    x = b.one("Add", b.one("Abs", b.pick()), b.constant(np.float32(0.1)))
    return b.one(str(some(b, "Sqrt", "Log", "Reciprocal")), x) if x else ""
