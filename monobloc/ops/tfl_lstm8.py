"""TFLite's LSTM in integers, with all that it may have: h of 8 bits, gates and the cell state of 16.

As in the cells of floats, products with the input are made before, for all steps at once. Whatever meets in a gate is
scaled to the gate's own scale first, rounded and cut to 16 bits, one part after the other; the order shows in results.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from monobloc.errors import ModelError
from monobloc.ir.graph import Node, Value
from monobloc.ir.types import DType, TensorType
from monobloc.ops import Case, OpDef
from monobloc.ops.tfl import np_scale
from monobloc.ops.tfl_fixed import inverse_root
from monobloc.ops.tfl_lstm import TOP, fit, np_logistic16, np_tanh16, over_time, right

Array = np.ndarray
Attrs = dict[str, Any]
I8, I16, I32 = DType.I8, DType.I16, DType.I32
PLAIN: Attrs = {"coupled": 0, "pm": [], "ps": [], "nm": [], "ns": [], "guard": [], "wm": 0, "ws": 0, "cut": 0}


def scaled(x: Array, m: int, s: int) -> Array:
    out: Array = np_scale(np.asarray(x, np.int64), np.array(m), np.array(s)).astype(np.int64)
    return out


def _down(x: Array, by: int) -> Array:
    """C's division by a positive number"""
    out: Array = np.where(x >= 0, x // by, -(-x // by))
    return out


def np_normal16(x: Array, w: Array, bias: Array, m: int, s: int, guard: int) -> Array:
    """Rows with mean 0 and variance 1, times w, plus bias: `mb_tfl_normal16` of csrc/include/mb/tfl.h"""
    n, x = x.shape[-1], x.astype(np.int64)
    mean = _down(x.sum(-1, keepdims=True) * 1024, n)
    spread = _down((x * x).sum(-1, keepdims=True) * ((1 << 20) // n) - mean * mean, 1 << 20)
    roots = [inverse_root(int(v) if v >= 1 else guard) for v in spread.ravel()]
    a, b = (np.array([r[k] for r in roots], np.int64).reshape(spread.shape) for k in (0, 1))
    v = np_scale(x * 1024 - mean, a, b).astype(np.int64) * w + bias
    return np.asarray(fit(scaled(_down(np.where(v > 0, v + 512, v - 512), 1024), m, s + 12)))


class TflLstm8(OpDef):
    """Inputs gates [b, t, 4h] in the order input, forget, cell, output; R [4h, p]; h [b, p]; c [b, h]; and, each or
    none: peepholes [3, h] of input, forget, output; norms [4, h] and their biases [4, h]; the projection [p, h] and its
    bias [p]. Outputs all h, and the last h and c.

    Attributes: `m`, `s` scale the products with h of each gate, `pm`, `ps` those of the peepholes, `nm`, `ns`
    normalized gates, whose variance is at least `guard`; `hm`, `hs`, `hz` scale what the cell gives, `wm`, `ws` its
    projection; `zero` is h's zero point. c has `bits` integer bits and is cut to `clip`, the projection to `cut`
    (0: they are not).
    `coupled`: the input gate is what forget leaves. As in LiteRT's kernel, only the first p cells have peepholes.
    """

    name = "TflLstm8"
    internal = True

    def infer(self, ins: Sequence[Value | None], attrs: Attrs) -> list[TensorType]:
        gates, r, h, c, peep, norms, biases, w, bias = [*ins, *[None] * 9][:9]
        assert gates is not None and r is not None and h is not None and c is not None
        (batch, steps, rows), size, p = gates.shape, c.shape[-1], h.shape[-1]
        fits = rows == 4 * size and r.shape == (rows, p) and h.shape[:-1] == c.shape[:-1] == (batch,)
        fits &= (p == size) if w is None else w.shape == (p, size)
        fits &= peep is None or (peep.shape == (3, size) and len(attrs["pm"]) == 3 and p <= size)
        fits &= (norms is None) == (biases is None)
        fits &= all(v is None or (v.shape == (4, size) and len(attrs["nm"]) == 4) for v in (norms, biases))
        if not fits or (bias is not None and (w is None or bias.shape != (p,))):
            raise ModelError(f"{self.name} of {gates.type} with {r.type}, {h.type} and {c.type}")
        return [TensorType(h.dtype, (batch, steps, p)), h.type, c.type]

    def ref(self, attrs: Attrs, *xs: Array | None) -> list[Array]:
        gates, r, h, c, *rest = [*xs, *[None] * 9][:9]
        assert gates is not None and r is not None and h is not None and c is not None
        return over_time(lambda x, h, c: self.step(attrs, x, r, h, c, *rest), gates, h, c)

    def step(self, a: Attrs, x: Array, r: Array, h: Array, c: Array, peep: Array | None, norms: Array | None,
             biases: Array | None, w: Array | None, bias: Array | None) -> tuple[Array, Array]:
        m, s = (np.repeat(np.array(a[k], np.int64), c.shape[-1]) for k in ("m", "s"))
        total = (h.astype(np.int64) - a["zero"]) @ r.astype(np.int64).T
        parts = np.split(np.asarray(fit(np_scale(total, m, s).astype(np.int64) + x)), 4, axis=-1)

        def gate(k: int, state: Array) -> Array:
            v, j = parts[k], min(k, 2)
            if peep is not None and k != 2:
                more = scaled(peep[j].astype(np.int64) * state, a["pm"][j], a["ps"][j])
                v = fit(np.where(np.arange(c.shape[-1]) < h.shape[-1], more, 0) + v)
            if norms is not None and biases is not None:
                v = np_normal16(v, norms[k].astype(np.int64), biases[k], a["nm"][k], a["ns"][k], a["guard"][k])
            return v.astype(np.int16)

        forget, g = np_logistic16(gate(1, c)).astype(np.int64), np_tanh16(gate(2, c)).astype(np.int64)
        enter = TOP - forget if a["coupled"] else np_logistic16(gate(0, c)).astype(np.int64)
        new = np.asarray(fit(right(forget * c, 15) + right(enter * g, 15 + a["bits"])))
        c = (np.clip(new, -a["clip"], a["clip"]) if a["clip"] > 0 else new).astype(np.int16)
        out = np_logistic16(gate(3, c)).astype(np.int64) * np_tanh16(c, a["bits"])
        y = np.clip(scaled(out, a["hm"], a["hs"]) + a["hz"], -128, 127)
        if w is not None:
            total = (y - a["hz"]) @ w.astype(np.int64).T + (0 if bias is None else bias)
            y = np.clip(scaled(total, a["wm"], a["ws"]) + a["zero"], -128, 127)
            y = np.clip(y, -a["cut"], a["cut"]) if a["cut"] > 0 else y
        return y.astype(np.int8), c

    def routine(self, n: Node, k: Any) -> str:
        gates, r, h0, c0, peep, norms, biases, w, bias = [*n.inputs, *[None] * 9][:9]
        assert gates is not None and r is not None and h0 is not None and c0 is not None
        a, (batch, steps, rows), p = n.attrs, gates.shape, h0.shape[-1]
        given = [(peep, "peep"), (norms, "norm"), (biases, "norm_bias"), (w, "proj"), (bias, "proj_bias")]
        clip = a["clip"]
        return f"""\
enum {{ size = {rows // 4} }};
static const int32_t m[4] = {{{_ints(a["m"])}}}, s[4] = {{{_ints(a["s"])}}};
const int16_t *x = {k.ptr(gates)}, *c0 = {k.ptr(c0)};
const int8_t *w = {k.ptr(r)}, *h0 = {k.ptr(h0)};
{"".join(f"const {v.dtype.c} *{name} = {k.ptr(v)};" for v, name in given if v is not None)}
int8_t *y = {k.ptr(n.outputs[0])}, *h = {k.ptr(n.outputs[1])};
int16_t *c = {k.ptr(n.outputs[2])};
int32_t *gate = (int32_t *){k.scratch(rows * 4)};
for (long b = 0; b < {batch}; b++) {{
  int8_t *hb = h + b * {p};
  int16_t *cb = c + b * size;
  for (long j = 0; j < {p}; j++) hb[j] = h0[b * {p} + j];
  for (long j = 0; j < size; j++) cb[j] = c0[b * size + j];
  for (long t = 0; t < {steps}; t++, x += 4 * size) {{
    for (long j = 0; j < 4 * size; j++) {{
      int32_t total = 0;
      for (long k = 0; k < {p}; k++) total += (hb[k] - ({a["zero"]})) * w[j * {p} + k];
      gate[j] = mb_tfl_fit16(mb_tfl_scale(total, m[j / size], s[j / size]) + x[j]);
    }}
    {"".join(self._gate(a, g, peep is not None, norms is not None, p) for g in range(int(bool(a["coupled"])), 3))}
    for (long j = 0; j < size; j++) {{
      int32_t f = mb_tfl_logistic16(gate[size + j]), g = mb_tfl_tanh16(gate[2 * size + j], 3);
      int32_t i = {"32767 - f" if a["coupled"] else "mb_tfl_logistic16(gate[j])"};
      int32_t v = mb_tfl_fit16(mb_tfl_right32(f * cb[j], 15) + mb_tfl_right32(i * g, {15 + a["bits"]}));
      {f"v = v > {clip} ? {clip} : v < -{clip} ? -{clip} : v;" if clip > 0 else ""}
      cb[j] = (int16_t)v;
    }}
    {self._gate(a, 3, peep is not None, norms is not None, p)}
    for (long j = 0; j < size; j++) {{
      int32_t o = mb_tfl_logistic16(gate[3 * size + j]) * mb_tfl_tanh16(cb[j], {a["bits"]});
      {_byte("gate[j]" if w is not None else "hb[j]", f"mb_tfl_scale(o, {a['hm']}, {a['hs']}) + ({a['hz']})")}
    }}
    {self._projected(a, p, bias is not None) if w is not None else ""}
    for (long j = 0; j < {p}; j++) y[(b * {steps} + t) * {p} + j] = hb[j];
  }}
}}"""

    def _gate(self, a: Attrs, g: int, peep: bool, norms: bool, p: int) -> str:
        """C: what a gate gets besides its products"""
        out, j = "", min(g, 2)
        if peep and g != 2:
            out += f"""for (long j = 0; j < {p}; j++)
      gate[{g} * size + j] = mb_tfl_fit16(
        mb_tfl_scale(peep[{j} * size + j] * cb[j], {a["pm"][j]}, {a["ps"][j]}) + gate[{g} * size + j]);
    """
        if norms:
            out += f"""mb_tfl_normal16(gate + {g} * size, norm + {g} * size, norm_bias + {g} * size, size, {a["nm"][g]},
      {a["ns"][g] + 12}, {a["guard"][g]});
    """
        return out

    def _projected(self, a: Attrs, p: int, bias: bool) -> str:
        """C: h from what the cell gives, which lies where the input gate was"""
        cut = a["cut"]
        return f"""for (long j = 0; j < {p}; j++) {{
      int32_t total = {"proj_bias[j]" if bias else "0"};
      for (long k = 0; k < size; k++) total += (gate[k] - ({a["hz"]})) * proj[j * size + k];
      {_byte("hb[j]", f"mb_tfl_scale(total, {a['wm']}, {a['ws']}) + ({a['zero']})")}
      {f"hb[j] = (int8_t)(hb[j] > {cut} ? {cut} : hb[j] < -{cut} ? -{cut} : hb[j]);" if cut > 0 else ""}
    }}"""

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        attrs = PLAIN | {"m": [1 << 30, 1500000000, 1200000000, 2000000000], "s": [-2, -3, 0, -1], "hm": 1100000000,
                         "hs": -21, "hz": 3, "zero": -4, "bits": 3, "clip": 0}
        gates, r, h, c = self._given(rng, 9, 9)
        yield Case((gates, r, h, c), attrs, "plain")
        yield Case((gates, r, h, c), attrs | {"clip": 9000}, "clip")
        wide = rng.integers(-(2**15), 2**15, (1, 200, 4)).astype(np.int16)
        yield Case((wide, r[:4, :1], h[:1, :1], c[:1, :1]), attrs, "curves")
        kept = np.repeat(np.array([-(2**15), 2**15 - 1, 0, 2**15 - 1], np.int16), 64).reshape(1, 1, 256)
        far = np.linspace(2**14, 2**15 - 1, 64).astype(np.int16).reshape(1, 64)  # where tanh looks at 5 integer bits
        rest = np.zeros((256, 64), np.int8), np.zeros((1, 64), np.int8)
        yield Case((kept, *rest, far), attrs | {"bits": 4}, "far")
        peep, norms = (rng.integers(-(2**15), 2**15, (k, 9)).astype(np.int16) for k in (3, 4))
        biases = rng.integers(-(2**20), 2**20, (4, 9)).astype(np.int32)
        more = {"pm": [1 << 30, 1300000000, 1900000000], "ps": [-14, -15, -13]}
        yield Case((gates, r, h, c, peep), attrs | more, "peepholes")
        more |= {"nm": [1 << 30, 1900000000, 1700000000, 1400000000], "ns": [-11, -12, -11, -12], "guard": [1, 9, 1, 3]}
        yield Case((gates, r, h, c, peep, norms, biases), attrs | more | {"coupled": 1}, "normalized")
        w, bias = rng.integers(-127, 128, (5, 9)).astype(np.int8), rng.integers(-999, 999, 5).astype(np.int32)
        all_of = (*self._given(rng, 9, 5), peep, norms, biases, w, bias)
        yield Case(all_of, attrs | more | {"wm": 1600000000, "ws": -5, "cut": 70}, "projected")

    def _given(self, rng: np.random.Generator, size: int, p: int) -> tuple[Array, Array, Array, Array]:
        gates = rng.integers(-(2**14), 2**14, (2, 6, 4 * size)).astype(np.int16)
        r = rng.integers(-127, 128, (4 * size, p)).astype(np.int8)
        h = rng.integers(-128, 128, (2, p)).astype(np.int8)
        return gates, r, h, rng.integers(-(2**15), 2**15, (2, size)).astype(np.int16)


def _ints(values: Sequence[int]) -> str:
    return ", ".join(map(str, values))


def _byte(to: str, value: str) -> str:
    """C: a value cut to 8 bits"""
    return f"{{ int32_t q = {value}; {to} = (int8_t)(q < -128 ? -128 : q > 127 ? 127 : q); }}"
