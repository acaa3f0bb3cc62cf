"""TFLite's recurrent cells of floats with all that they may have.

Weights are floats or int8. Of int8 (`scales` says what each gate's stand for) the vector that they multiply is
quantized at every step, as TFLite's hybrid kernels do. Products with the input are made before, for all steps at once:
`gates` holds them, with the biases unless gates are normalized.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import numpy as np

from monobloc.errors import ModelError
from monobloc.ir.graph import Node, Value
from monobloc.ir.types import DType, TensorType
from monobloc.ops import Case, OpDef, Tol
from monobloc.ops.tfl import np_nearest
from monobloc.ops.tfl_lstm import over_time

Array = np.ndarray
Attrs = dict[str, Any]
F32, I8 = DType.F32, DType.I8
ACTIVATIONS = ("none", "relu", "relu_n1_to_1", "relu6", "tanh")
_NUMPY: dict[str, Any] = {
    "none": lambda x: x, "relu": lambda x: np.maximum(x, 0), "relu_n1_to_1": lambda x: np.clip(x, -1, 1),
    "relu6": lambda x: np.clip(x, 0, 6), "tanh": np.tanh,
}  # fmt: skip
_C = {
    "none": "{0}", "relu": "mb_max({0}, 0.0f)", "relu_n1_to_1": "mb_min(mb_max({0}, -1.0f), 1.0f)",
    "relu6": "mb_min(mb_max({0}, 0.0f), 6.0f)", "tanh": "mb_tanh({0})",
}  # fmt: skip


def np_quantize(x: Array, asymmetric: bool) -> tuple[Array, Array, Array]:
    """(int8 as int64, scale, zero point) per row: `mb_tfl_quantize` of csrc/include/mb/tfl.h"""
    x = x.astype(np.float32)
    low, high = np.minimum(x.min(-1, keepdims=True), 0), np.maximum(x.max(-1, keepdims=True), 0)
    empty, one = low == high, np.float32(1)
    zero: Array
    scale: Array
    q: Array
    top: Array
    if asymmetric:
        wide: Array = np.where(empty, 1.0, (high.astype(np.float64) - low) / 255)
        a, z = low / wide, high / wide
        zero = np.clip(np_nearest(np.where(128 - a < 127 + z, -128 - a, 127 - z)), -128, 127)
        scale = wide.astype(np.float32)
        q = np.clip(np_nearest(zero.astype(np.float32) + x * (one / scale)), -128, 127)
    else:
        top = np.where(empty, one, np.maximum(-low, high))
        zero, scale = np.zeros_like(low), top / np.float32(127)
        q = np.clip(np_nearest(x * (np.float32(127) / top)), -127, 127)
    out = [np.where(empty, 0, v).astype(np.int64) for v in (q, zero)]
    return out[0], np.where(empty, one, scale), out[1]


def times(x: Array, w: Array, scales: Sequence[float], asymmetric: bool) -> Array:
    """x [b, k] times w [n, k]; the rows of w in as many parts as there are scales"""
    if w.dtype.kind == "f":
        return x @ w.T.astype(x.dtype)
    q, scale, zero = np_quantize(x, asymmetric)
    total = (q - zero) @ w.T.astype(np.int64)
    per = np.repeat(np.array(scales, np.float32), w.shape[0] // len(scales))
    return (total.astype(np.float32) * (scale * per)).astype(x.dtype)


class Cell(OpDef):
    """Base: outputs all results [b, t, p] and the state after the last step"""

    internal = True
    tol = Tol(1e-5, 1e-5)
    parts: ClassVar[int] = 1  # gates

    def product(self, w: Value | None, out: str, vector: str, size: int, rows: int, scales: str, attrs: Attrs) -> str:
        """C: out[j] += row j of w times the vector"""
        assert w is not None
        if w.dtype is F32:
            return f"for (long j = 0; j < {rows}; j++) {out}[j] += mb_tfl_dot(w_{out} + j * {size}, {vector}, {size});"
        part = rows // self.parts if out == "gate" else rows
        return f"""\
{{
  int32_t zero;
  float scale = mb_tfl_quantize({vector}, {size}, q, {int(attrs["asymmetric"])}, &zero);
  for (long j = 0; j < {rows}; j++)
    {out}[j] += mb_tfl_dot8(w_{out} + j * {size}, q, {size}, zero, scale * {scales}[j / {part}]);
}}"""


class TflRnn(Cell):
    """h = act(gates + R h). Inputs gates [b, t, u], R [u, u], h [b, u]."""

    name = "TflRnn"

    def infer(self, ins: Sequence[Value | None], attrs: Attrs) -> list[TensorType]:
        gates, r, h = ins
        assert gates is not None and r is not None and h is not None
        batch, _, size = gates.shape
        if r.shape != (size, size) or h.shape != (batch, size) or r.dtype not in (F32, I8):
            raise ModelError(f"{self.name} of {gates.type} with {r.type} and {h.type}")
        return [gates.type, h.type]

    def ref(self, attrs: Attrs, *xs: Array | None) -> list[Array]:
        gates, r, h = xs
        assert gates is not None and r is not None and h is not None
        made = []
        for t in range(gates.shape[1]):
            h = _NUMPY[attrs["act"]](gates[:, t] + times(h, r, attrs["scales"], attrs["asymmetric"]))
            made.append(h)
        return [np.stack(made, 1) if made else gates, h]

    def routine(self, n: Node, c: Any) -> str:
        gates, r, h = n.used
        batch, steps, size = gates.shape
        product = self.product(r, "gate", "hb", size, size, "scales", n.attrs)
        return f"""\
static const float scales[1] = {{{_floats(n.attrs["scales"])}}};
const float *x = {c.ptr(gates)}, *h0 = {c.ptr(h)};
const {r.dtype.c} *w_gate = {c.ptr(r)};
float *y = {c.ptr(n.outputs[0])}, *h = {c.ptr(n.outputs[1])}, *gate = (float *){c.scratch(4 * size)};
int8_t *q = (int8_t *){c.scratch(size)};
(void)scales, (void)q;
for (long b = 0; b < {batch}; b++) {{
  float *hb = h + b * {size};
  for (long j = 0; j < {size}; j++) hb[j] = h0[b * {size} + j];
  for (long t = 0; t < {steps}; t++, x += {size}, y += {size}) {{
    for (long j = 0; j < {size}; j++) gate[j] = x[j];
    {product}
    for (long j = 0; j < {size}; j++) y[j] = hb[j] = {_C[n.attrs["act"]].format("gate[j]")};
  }}
}}"""

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        gates, h = (rng.standard_normal(s).astype(np.float32) for s in ((2, 5, 7), (2, 7)))
        r = (rng.standard_normal((7, 7)) / 3).astype(np.float32)
        for act in ACTIVATIONS:
            yield Case((gates, r, h), {"act": act, "scales": [1.0], "asymmetric": 0}, act)
        q = (r * 90).astype(np.int8)
        for asymmetric in (0, 1):
            attrs = {"act": "relu6", "scales": [0.01], "asymmetric": asymmetric}
            yield Case((gates, q, h), attrs, f"hybrid{asymmetric}")


def _floats(values: Sequence[float]) -> str:
    return ", ".join(f"{float(np.float32(v)).hex()}f" for v in values)


class TflLstmFull(Cell):
    """Inputs gates [b, t, 4h] in the order input, forget, cell, output; R [4h, p]; h [b, p]; c [b, h]; and, each or
    none: peepholes [3, h] of input, forget, output; norms [2, 4h], factors and biases; the projection [p, h] and its
    bias [p]. `clip` cuts c, `cut` the projection (0: neither); `coupled`: the input gate is what forget leaves.
    """

    name = "TflLstmFull"
    parts = 4

    def infer(self, ins: Sequence[Value | None], attrs: Attrs) -> list[TensorType]:
        gates, r, h, c, peep, norms, w, bias = [*ins, *[None] * 8][:8]
        assert gates is not None and r is not None and h is not None and c is not None
        (batch, steps, rows), size, p = gates.shape, c.shape[-1], h.shape[-1]
        fits = rows == 4 * size and r.shape == (rows, p) and h.shape[:-1] == c.shape[:-1] == (batch,)
        fits &= (p == size) if w is None else w.shape == (p, size)
        fits &= peep is None or peep.shape == (3, size)
        fits &= norms is None or norms.shape == (2, rows)
        if not fits or (bias is not None and bias.shape != (p,)):
            raise ModelError(f"{self.name} of {gates.type} with {r.type}, {h.type} and {c.type}")
        return [TensorType(F32, (batch, steps, p)), h.type, c.type]

    def ref(self, attrs: Attrs, *xs: Array | None) -> list[Array]:
        gates, r, h, c, *rest = [*xs, *[None] * 8][:8]
        assert gates is not None and r is not None and h is not None and c is not None
        return over_time(lambda x, h, c: self.step(attrs, x, r, h, c, *rest), gates, h, c)

    def step(self, a: Attrs, x: Array, r: Array, h: Array, c: Array, peep: Array | None, norms: Array | None,
             w: Array | None, bias: Array | None) -> tuple[Array, Array]:
        g = np.split(x + times(h, r, a["scales"][:4], a["asymmetric"]), 4, axis=-1)

        def gate(k: int, state: Array) -> Array:
            v = g[k] if peep is None or k == 2 else g[k] + peep[k if k < 2 else 2] * state
            return v if norms is None else _normalized(v, *(np.split(p, 4)[k] for p in norms))

        forget = _sigmoid(gate(1, c))
        enter = 1 - forget if a["coupled"] else _sigmoid(gate(0, c))
        c = forget * c + enter * _NUMPY[a["act"]](gate(2, c))
        c = np.clip(c, -a["clip"], a["clip"]) if a["clip"] > 0 else c
        h = (_sigmoid(gate(3, c)) * _NUMPY[a["act"]](c)).astype(np.float32)
        if w is not None:
            h = times(h, w, a["scales"][4:], a["asymmetric"]) + (0 if bias is None else bias)
            h = np.clip(h, -a["cut"], a["cut"]) if a["cut"] > 0 else h
        return h.astype(np.float32), c.astype(np.float32)

    def routine(self, n: Node, k: Any) -> str:
        gates, r, h0, c0, peep, norms, w, bias = [*n.inputs, *[None] * 8][:8]
        assert gates is not None and r is not None and h0 is not None and c0 is not None
        a, (batch, steps, rows), p = n.attrs, gates.shape, h0.shape[-1]
        size = rows // 4
        given = [(peep, "float", "peep"), (norms, "float", "norm"), (bias, "float", "bias"),
                 (w, "" if w is None else w.dtype.c, "w_hb")]
        return f"""\
enum {{ size = {size} }};
static const float scales[5] = {{{_floats([*a["scales"], 1][:5])}}};
const float *x = {k.ptr(gates)}, *h0 = {k.ptr(h0)}, *c0 = {k.ptr(c0)};
const {r.dtype.c} *w_gate = {k.ptr(r)};
{"".join(f"const {t} *{name} = {k.ptr(v)};" for v, t, name in given if v is not None)}
float *y = {k.ptr(n.outputs[0])}, *h = {k.ptr(n.outputs[1])}, *c = {k.ptr(n.outputs[2])};
float *gate = (float *){k.scratch(4 * rows)}, *out = (float *){k.scratch(4 * size)};
int8_t *q = (int8_t *){k.scratch(max(size, p))};
(void)scales, (void)q, (void)out;
for (long b = 0; b < {batch}; b++) {{
  float *hb = h + b * {p}, *cb = c + b * size;
  for (long j = 0; j < {p}; j++) hb[j] = h0[b * {p} + j];
  for (long j = 0; j < size; j++) cb[j] = c0[b * size + j];
  for (long t = 0; t < {steps}; t++, x += 4 * size) {{
    for (long j = 0; j < 4 * size; j++) gate[j] = x[j];
    {self.product(r, "gate", "hb", p, rows, "scales", a)}
    {self._cell(a, peep is not None, norms is not None)}
    {self._projected(a, w, bias is not None, p, size)}
    for (long j = 0; j < {p}; j++) y[(b * {steps} + t) * {p} + j] = hb[j];
  }}
}}"""

    def _cell(self, a: Attrs, peep: bool, norms: bool) -> str:
        """C: c and out from the gates"""
        def normal(g: int) -> str:
            return f"mb_tfl_normal(gate + {g} * size, norm + {g} * size, norm + {4 + g} * size, size);" if norms else ""

        def peeped(g: int, row: int) -> str:
            add = f"for (long j = 0; j < size; j++) gate[{g} * size + j] += peep[{row} * size + j] * cb[j];"
            return add if peep else ""

        enter = "1.0f - f" if a["coupled"] else "mb_sigmoid(gate[j])"
        clip = float(np.float32(a["clip"])).hex() + "f"
        return f"""\
{"" if a["coupled"] else peeped(0, 0)} {peeped(1, 1)}
    {"" if a["coupled"] else normal(0)} {normal(1)} {normal(2)}
    for (long j = 0; j < size; j++) {{
      float f = mb_sigmoid(gate[size + j]);
      float v = f * cb[j] + ({enter}) * {_C[a["act"]].format("gate[2 * size + j]")};
      {f"v = v > {clip} ? {clip} : v < -{clip} ? -{clip} : v;" if a["clip"] > 0 else ""}
      cb[j] = v;
    }}
    {peeped(3, 2)} {normal(3)}
    for (long j = 0; j < size; j++) out[j] = mb_sigmoid(gate[3 * size + j]) * {_C[a["act"]].format("cb[j]")};"""

    def _projected(self, a: Attrs, w: Value | None, bias: bool, p: int, size: int) -> str:
        if w is None:
            return f"for (long j = 0; j < {p}; j++) hb[j] = out[j];"
        cut = float(np.float32(a["cut"])).hex() + "f"
        cuts = f"for (long j = 0; j < {p}; j++) hb[j] = hb[j] > {cut} ? {cut} : hb[j] < -{cut} ? -{cut} : hb[j];"
        return f"""\
for (long j = 0; j < {p}; j++) hb[j] = {"bias[j]" if bias else "0"};
    {self.product(w, "hb", "out", size, p, "(scales + 4)", a)}
    {cuts if a["cut"] > 0 else ""}"""

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        def f(*shape: int) -> Array:
            return rng.standard_normal(shape).astype(np.float32)

        plain = {"act": "tanh", "scales": [0.01, 0.02, 0.015, 0.01, 0.02], "asymmetric": 0, "clip": 0.0, "cut": 0.0,
                 "coupled": 0}
        size, p = 6, 4
        base = f(2, 5, 24), f(24, size) / 3, f(2, size), f(2, size)
        small = f(2, 5, 24), f(24, p) / 3, f(2, p), f(2, size)
        yield Case(base, plain, "plain")
        yield Case((*base, f(3, size)), plain | {"coupled": 1, "clip": 0.8}, "peepholes")
        yield Case((*base, f(3, size), f(2, 24)), plain | {"act": "relu"}, "norms")
        yield Case((*small, None, None, f(p, size), f(p)), plain | {"cut": 0.4}, "projection")
        q = (small[1] * 90).astype(np.int8), (f(p, size) * 50).astype(np.int8)
        for k in (0, 1):
            ins = small[0], q[0], small[2], small[3], f(3, size), f(2, 24), q[1]
            yield Case(ins, plain | {"asymmetric": k}, f"hybrid{k}")


def _sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


def _normalized(x: Array, factor: Array, bias: Array) -> Array:
    mean = x.mean(-1, keepdims=True)
    return (x - mean) / np.sqrt(((x - mean) ** 2).mean(-1, keepdims=True) + 1e-8) * factor + bias
