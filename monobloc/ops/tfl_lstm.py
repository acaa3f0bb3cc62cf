"""TFLite's LSTM over a sequence in floats, and the fixed point of 16 bits that the one in integers computes in.

The products with the input are ordinary ones, made before, for all steps at once: `gates` holds them, biases included,
in the order input, forget, cell, output. What has to wait for the step before is here. `np_logistic16` and `np_tanh16`
are in fixed point as LiteRT has them from gemmlowp.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from monobloc.errors import ModelError
from monobloc.ir.graph import Node, Value
from monobloc.ir.types import DType, TensorType
from monobloc.ops import Case, OpDef, Tol
from monobloc.ops.tfl_fixed import EXP_FACTORS

Array = np.ndarray
Attrs = dict[str, Any]
F32, I8, I16 = DType.F32, DType.I8, DType.I16
TOP = (1 << 15) - 1


# -- fixed point of 16 bits: the number of integer bits of a value is said where it matters -----------------
def high(a: Any, b: Any) -> Any:
    """The doubled product's high half, rounded (towards zero at the half)"""
    ab = np.asarray(a, np.int64) * b
    v = ab + np.where(ab >= 0, 1 << 14, 1 - (1 << 14))
    return np.minimum(np.where(v >= 0, v >> 15, -(-v >> 15)), TOP)


def right(x: Any, by: int) -> Any:
    """x / 2^by, rounded half away from zero"""
    mask = (1 << by) - 1
    return (x >> by) + ((x & mask) > (mask >> 1) + (x < 0))


def fit(x: Any) -> Any:
    return np.clip(x, -TOP - 1, TOP)


def constant16(v: int) -> int:
    """A constant of 32 bits as one of 16"""
    return int(right(np.int64(v), 16))


EXP_8TH, THIRD = constant16(1895147668), constant16(715827883)
FACTORS = [constant16(v) for v in EXP_FACTORS]
C48_17, C32_17 = constant16(1515870810), constant16(-1010580540)


def np_exp16(a: Any, bits: int) -> Any:
    """exp of a value that is not positive, with `bits` integer bits; the result has none"""
    fraction = 15 - bits
    quarter = 1 << (fraction - 2)
    part = (a & (quarter - 1)) - quarter
    x = (part << bits) + (1 << 12)
    x2 = high(x, x)
    x3, x4 = high(x2, x), high(x2, x2)
    tail = right(high(right(x4, 2) + x3, THIRD) + x2, 1)
    y = fit(EXP_8TH + high(EXP_8TH, x + tail))
    rest = part - a
    for exponent, factor in zip(range(-2, bits), FACTORS, strict=False):
        y = np.where(rest & (1 << (fraction + exponent)), high(y, factor), y)
    return np.where(a == 0, TOP, y)


def _newton(a: Any) -> Any:
    """2 / (1 + a) with two integer bits, a in [0, 1]"""
    half = (a + TOP + 1) >> 1
    x = C48_17 + high(half, C32_17)
    for _ in range(3):
        x = fit(x + fit(high(x, (1 << 13) - high(half, x)) << 2))
    return x


def np_logistic16(a: Array) -> Array:
    """3 integer bits to none"""
    x = a.astype(np.int64)
    y = fit(_newton(np_exp16(-np.abs(x), 3)) << 1)
    return np.where(x == 0, 1 << 14, np.where(x > 0, y, TOP - y)).astype(np.int16)


def np_tanh16(a: Array, bits: int = 3) -> Array:
    """`bits` integer bits to none"""
    x = a.astype(np.int64)
    y = fit((_newton(np_exp16(-np.abs(x), bits + 1)) - (1 << 13)) << 2)
    return np.where(x == 0, 0, np.where(x > 0, y, -y)).astype(np.int16)


def over_time(step: Callable[[Array, Array, Array], tuple[Array, Array]], gates: Array, h: Array, c: Array
              ) -> list[Array]:
    """All h, and the last h and c, of a cell that reads gates [b, t, n] step by step"""
    made = []
    for t in range(gates.shape[1]):
        h, c = step(gates[:, t], h, c)
        made.append(h)
    return [np.stack(made, 1) if made else np.zeros((h.shape[0], 0, h.shape[1]), h.dtype), h, c]


# -- the operator ------------------------------------------------------------------------------------
class TflLstm(OpDef):
    """Inputs gates [b, t, 4h], weights [h, 4h], h [b, h], c [b, h]; outputs all h, and the last h and c.

    `clip` cuts the cell state (0: it does not).
    """

    name = "TflLstm"
    internal = True
    tol = Tol(1e-5, 1e-5)

    def infer(self, ins: Sequence[Value | None], attrs: Attrs) -> list[TensorType]:
        gates, r, h, c = ins
        assert gates is not None and r is not None and h is not None and c is not None
        batch, steps, rows = gates.shape
        size = rows // 4
        if r.shape != (size, rows) or h.shape != (batch, size) or c.shape != h.shape:
            raise ModelError(f"{self.name} of {gates.type} with {r.type}, {h.type} and {c.type}")
        return [TensorType(h.dtype, (batch, steps, size)), h.type, c.type]

    def ref(self, attrs: Attrs, *xs: Array | None) -> list[Array]:
        gates, r, h, c = (x.astype(np.float64) for x in xs if x is not None)
        made = over_time(lambda x, h, c: self.step(attrs, x, r, h, c), gates, h, c)
        return [y.astype(np.float32) for y in made]

    def step(self, attrs: Attrs, gates: Array, r: Array, h: Array, c: Array) -> tuple[Array, Array]:
        i, f, g, o = np.split(gates + h @ r, 4, axis=-1)
        i, f, o = (1 / (1 + np.exp(-v)) for v in (i, f, o))
        c = f * c + i * np.tanh(g)
        if attrs["clip"] > 0:
            c = np.clip(c, -attrs["clip"], attrs["clip"])
        return o * np.tanh(c), c

    def routine(self, n: Node, k: Any) -> str:
        gates, r, h0, c0 = n.used
        batch, steps, rows = gates.shape
        y, h, c = (k.ptr(v) for v in n.outputs)
        clip = float(np.float32(n.attrs["clip"])).hex() + "f"
        return f"""\
enum {{ size = {rows // 4} }};
const float *x = {k.ptr(gates)};
const float *w = {k.ptr(r)};
float *y = {y}, *h = {h};
float *c = {c};
const float *h0 = {k.ptr(h0)};
const float *c0 = {k.ptr(c0)};
float *gate = (float *){k.scratch(rows * 4)};
for (long b = 0; b < {batch}; b++) {{
  float *hb = h + b * size;
  float *cb = c + b * size;
  for (long j = 0; j < size; j++) hb[j] = h0[b * size + j], cb[j] = c0[b * size + j];
  for (long t = 0; t < {steps}; t++, x += 4 * size) {{
    for (long j = 0; j < 4 * size; j++) gate[j] = x[j];
    for (long k = 0; k < size; k++)
      for (long j = 0; j < 4 * size; j++) gate[j] += hb[k] * w[k * 4 * size + j];
    for (long j = 0; j < size; j++) {{
      float v = mb_sigmoid(gate[size + j]) * cb[j] + mb_sigmoid(gate[j]) * mb_tanh(gate[2 * size + j]);
      {f"v = v > {clip} ? {clip} : v < -{clip} ? -{clip} : v;" if n.attrs["clip"] > 0 else ""}
      cb[j] = v;
      hb[j] = mb_sigmoid(gate[3 * size + j]) * mb_tanh(v);
      y[(b * {steps} + t) * size + j] = hb[j];
    }}
  }}
}}"""

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        def f(*shape: int) -> Array:
            return rng.standard_normal(shape).astype(np.float32)

        yield Case((f(2, 5, 28), f(7, 28) / 3, f(2, 7), f(2, 7)), {"clip": 0.0}, "plain")
        yield Case((f(1, 4, 64) * 3, f(16, 64), f(1, 16), f(1, 16)), {"clip": 0.75}, "clip")
