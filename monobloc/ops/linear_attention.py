"""Attention with a state of fixed size, and what stands before it (`com.microsoft`): LinearAttention, GatedDeltaNet,
their gates, and causal convolutions that remember what came before.

The state S of a head is [keys, values]. A token multiplies it by exp(decay), adds what its key and value say, and
asks it with its query:

    r = beta * (v - S' k)       where the rule has the delta, else v
    S = S + k r'
    y = scale * S' q

`DeltaRule` is that loop over time (mb/delta.h), one head a turn of the loop outside; all the rest is read as other
operators.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from monobloc.errors import ModelError
from monobloc.ir.graph import Node, Value
from monobloc.ir.types import DType, TensorType
from monobloc.ops import Case, OpDef, Tol
from monobloc.ops.attention import refuse
from monobloc.ops.build import cast_to, read_as
from monobloc.ops.fused import silu
from monobloc.ops.movement import slice_of

Array = np.ndarray
Attrs = dict[str, Any]
F32 = DType.F32
RULES = ("linear", "gated", "delta", "gated_delta")


# -- the recurrence -----------------------------------------------------------------------------------
class DeltaRule(OpDef):
    """Inputs q [B, T, Hq, K], k [B, T, Hk, K], v [B, T, H, V], and, each or none: what a state is multiplied by first
    [B, T, H, K or 1], beta [B, T, H], which the rule with the delta has, and the first state [B, H, K, V].

    Heads of keys stand for groups of the state's. There is a result for every head of queries, or for every head of
    the state where there are more of those. Outputs y [B, T, heads, V] and the last state.
    """

    name = "DeltaRule"
    internal = True
    splits = True
    tol = Tol(1e-4, 1e-5)

    def infer(self, ins: Sequence[Value | None], attrs: Attrs) -> list[TensorType]:
        q, k, v, factor, beta, first = [*ins, *[None] * 3][:6]
        assert q is not None and k is not None and v is not None
        if not (q.type.rank == k.type.rank == v.type.rank == 4):
            raise ModelError(f"{self.name} of {q.type}, {k.type} and {v.type}")
        (b, t, hq, width), (_, _, hk, _), (_, _, h, size) = q.shape, k.shape, v.shape
        fits = k.shape == (b, t, hk, width) and v.shape[:2] == (b, t) and min(hq, hk, h) > 0
        fits = fits and h % hk == 0 and max(hq, h) % min(hq, h) == 0
        fits = fits and (factor is None or factor.shape in ((b, t, h, width), (b, t, h, 1)))
        fits = fits and (beta is None or beta.shape == (b, t, h))
        fits = fits and (first is None or first.shape == (b, h, width, size))
        if not fits or any(x is not None and x.dtype is not F32 for x in ins):
            raise ModelError(f"{self.name}: {', '.join(str(x and x.type) for x in ins)} do not fit together")
        return [TensorType(F32, (b, t, max(hq, h), size)), TensorType(F32, (b, h, width, size))]

    def ref(self, attrs: Attrs, *xs: Array | None) -> list[Array]:
        q, k, v, factor, beta, first = (x if x is None else x.astype(np.float64) for x in [*xs, *[None] * 3][:6])
        assert q is not None and k is not None and v is not None
        h = v.shape[2]
        q = np.repeat(q, max(h // q.shape[2], 1), 2)
        k, group = np.repeat(k, h // k.shape[2], 2), q.shape[2] // h
        s = np.zeros((len(v), h, k.shape[3], v.shape[3])) if first is None else first.copy()
        y = np.zeros((*q.shape[:3], v.shape[3]))
        for t in range(q.shape[1]):
            s = s if factor is None else s * factor[:, t, :, :, None]
            r = v[:, t]
            if beta is not None:
                r = (r - np.einsum("bhkv,bhk->bhv", s, k[:, t])) * beta[:, t, :, None]
            s = s + k[:, t, :, :, None] * r[:, :, None, :]
            y[:, t] = np.einsum("bhkv,bhk->bhv", np.repeat(s, group, 1), q[:, t]) * attrs["scale"]
        return [y.astype(np.float32), s.astype(np.float32)]

    def routine(self, n: Node, c: Any) -> str:
        q, k, v, factor, beta, first = [*n.inputs, *[None] * 3][:6]
        assert q is not None and k is not None and v is not None
        (batch, steps, hq, width), hk, (h, size) = q.shape, k.shape[2], v.shape[2:]
        f, by = ("0", 0) if factor is None else (
            f"{c.ptr(factor)} + (at * {h} + h) * {factor.shape[3]}", int(factor.shape[3] > 1))
        last = "" if beta is None else f"""
    const float beta = {c.ptr(beta)}[at * {h} + h];
    for (long j = 0; j < {size}; j++) r[j] *= beta;"""
        start = "0" if first is None else f"{c.ptr(first)}[p * {width * size} + i]"
        outs, scale = max(hq, h), float(np.float32(n.attrs["scale"])).hex()
        return f"""\
const long B = {batch}, T = {steps};
float *r = (float *){c.scratch(4 * size, each=True)} + tid * {size};
for (long p = tid; p < B * {h}; p += nt) {{
  const long h = p % {h};
  float *s = {c.ptr(n.outputs[1])} + p * {width * size};
  for (long i = 0; i < {width * size}; i++) s[i] = {start};
  for (long t = 0; t < T; t++) {{
    const long at = p / {h} * T + t;
    const float *k = {c.ptr(k)} + (at * {hk} + h / {h // hk}) * {width};
    const float *v = {c.ptr(v)} + (at * {h} + h) * {size};
    for (long j = 0; j < {size}; j++) r[j] = v[j];
    mb_delta_ask({width}, {size}, s, {f}, {by}, {"0" if beta is None else "k"}, r);{last}
    for (long o = h * {outs // h}; o < (h + 1) * {outs // h}; o++)
      mb_delta_add({width}, {size}, s, o > h * {outs // h} ? 0 : k, r,
                   {c.ptr(q)} + (at * {hq} + o / {outs // hq}) * {width}, {scale}f,
                   {c.ptr(n.outputs[0])} + (at * {outs} + o) * {size});
  }}
}}
"""

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        def make(what: str, b: int, t: int, heads: tuple[int, int, int], width: int, size: int, decay: int) -> Case:
            hq, hk, h = heads
            shapes = (b, t, hq, width), (b, t, hk, width), (b, t, h, size)
            q, k, v = (rng.standard_normal(s).astype(np.float32) / 2 for s in shapes)
            factor, beta = (rng.uniform(0.5, 1, (b, t, h, *w)).astype(np.float32) for w in ((decay,), ()))
            first = rng.standard_normal((b, h, width, size)).astype(np.float32)
            some = "delta" in what and beta, "first" in what and first
            return Case((q, k, v, factor if decay else None, *(x if x is not False else None for x in some)),
                        {"scale": 0.5}, what)

        yield make("delta_first", 2, 5, (2, 2, 2), 4, 7, 1)
        yield make("delta_first_per_key", 1, 3, (2, 2, 4), 3, 5, 3)
        yield make("gated", 2, 4, (6, 3, 3), 4, 4, 4)
        yield make("linear_first", 1, 1, (1, 3, 3), 5, 2, 0)
        yield make("delta", 1, 0, (1, 1, 1), 2, 2, 1)
        yield make("delta_first_tiles", 1, 2, (4, 2, 2), 9, 87, 9)
        yield make("gated_tiles", 1, 2, (2, 2, 2), 3, 64, 1)


def attended(
    b: Any, n: Any, q: Value, k: Value, v: Value, decay: Value | None, beta: Value | None, first: Value | None
) -> list[Value]:
    """What a node's rule makes of these, in float32: results and the last state"""
    rule = n.attrs.get("update_rule", "gated_delta")
    if rule not in RULES:
        n.fail(f"has the unknown update_rule {rule!r}, must be {', '.join(RULES[:-1])} or {RULES[-1]}")
    if "gated" in rule and decay is None or "delta" in rule and beta is None:
        n.fail(f"the update_rule {rule!r} needs {'decay' if 'gated' in rule and decay is None else 'beta'}")
    factor = b.one("Exp", decay) if decay is not None and "gated" in rule else None
    scale = float(n.attrs.get("scale", 0.0)) or float(q.shape[-1]) ** -0.5
    ins = [q, k, v, factor, beta if "delta" in rule else None, first]
    out: list[Value] = b.emit("DeltaRule", ins, {"scale": scale}, outputs=2)
    return out


# -- operators ----------------------------------------------------------------------------------------
class LinearAttention(OpDef):
    """Heads are packed in the last axis; the state is [B, H, keys, values]"""

    name = "com.microsoft::LinearAttention"

    def from_onnx(self, b: Any, n: Any) -> Sequence[Value | None]:
        refuse(n, state_window=0)
        to = n.inputs[0].dtype
        q, k, v = (cast_to(b, x, F32) for x in n.inputs[:3])
        first, decay, beta = (x and cast_to(b, x, F32) for x in [*n.inputs[3:], *[None] * 3][:3])
        hq, h = int(n.attrs["q_num_heads"]), int(n.attrs["kv_num_heads"])
        if min(hq, h) < 1 or any(x.type.rank != 3 for x in (q, k, v)) or q.shape[2] % hq or v.shape[2] % h:
            n.fail(f"{q.type}, {k.type} and {v.type} do not part into {hq} heads of queries and {h} of keys and values",
                   hint="all are [batch, sequence, heads * size]")
        width = q.shape[2] // hq
        if not width or not k.shape[2] or k.shape[2] % width:
            n.fail(f"heads of {width} do not fit keys {k.type}")
        if any(x is not None and x.type.rank != 3 for x in (decay, beta)):
            n.fail(f"has the decay {decay and decay.type} and beta {beta and beta.type}",
                   hint="they are [batch, sequence, heads], the decay also [batch, sequence, heads * keys]")
        q, k, v = (b.one("Reshape", x, shape=[*x.shape[:2], c, x.shape[2] // c])
                   for x, c in ((q, hq), (k, k.shape[2] // width), (v, h)))
        if decay is not None:
            decay = b.one("Reshape", decay, shape=[*decay.shape[:2], h, decay.shape[2] // h])
        if beta is not None and beta.shape[2] == 1 != h:
            beta = b.one("Expand", beta, shape=[*beta.shape[:2], h])
        y, last = attended(b, n, q, k, v, decay, beta, first)
        y = b.one("Reshape", y, shape=[*y.shape[:2], y.shape[2] * y.shape[3]])
        state = to if n.input(3) is None else n.input(3).dtype
        return [cast_to(b, x, d) for x, d in ((y, to), (last, state))][: n.n_outputs]


class GatedDeltaNet(OpDef):
    """Tokens of all samples one behind the other, as many of each; states are [B, H, values, keys], and float"""

    name = "GatedDeltaNet"
    domain = "com.microsoft"

    def from_onnx(self, b: Any, n: Any) -> Sequence[Value | None]:
        query, key, value, bounds, decay, beta, first, a_log, bias = [*n.inputs, *[None] * 9][:9]
        refuse(n, state_update_capacity=0)
        if bounds is not None or n.n_outputs > 2:
            n.unsupported("samples of several lengths (cu_seqlens), or the output of updates",
                          hint="give all samples as many tokens, and leave cu_seqlens out")
        if first is None or first.type.rank != 4 or 0 in first.shape[1:]:
            n.fail("needs initial_state [batch, heads, values, keys], which says how many samples there are")
        to, (batch, h, size, width) = query.dtype, first.shape
        shape = list(query.shape[: 1 if key is None else -2])
        tokens = int(np.prod(shape))
        if tokens % max(batch, 1):
            n.fail(f"{tokens} tokens are no {batch} samples of one length")
        q, k, v = self._parts(b, n, query, key, value, [batch, tokens // max(batch, 1)], h, size, width)
        if n.attrs.get("qk_l2_norm", 0):
            q, k = (self._unit(b, x) for x in (q, k))
        if decay is not None:
            wide = [batch, q.shape[1], h, decay.type.size // max(tokens * h, 1) or 1]
            decay = self._decay(b, n, b.one("Reshape", cast_to(b, decay, F32), shape=wide), a_log, bias)
        if beta is not None:
            beta = b.one("Reshape", cast_to(b, beta, F32), shape=[batch, q.shape[1], h])
            kind = n.attrs.get("beta_activation", "none")
            if kind not in ("none", "sigmoid"):
                n.fail(f"has the unknown beta_activation {kind!r}, must be none or sigmoid")
            beta = b.one("Sigmoid", beta) if kind == "sigmoid" else beta
        y, last = attended(b, n, q, k, v, decay, beta, b.one("Transpose", first, perm=[0, 1, 3, 2]))
        y = b.one("Reshape", y, shape=[*shape, *y.shape[2:]])
        y = cast_to(b, y, to)
        return [y, b.one("Transpose", last, perm=[0, 1, 3, 2])][: n.n_outputs]

    def _parts(
        self, b: Any, n: Any, query: Value, key: Value | None, value: Value | None, outer: list[int], h: int, size: int,
        width: int,
    ) -> list[Value]:
        """[B, T, heads, size] each, in float32"""
        if key is not None and value is not None:
            parts = [query, key, value]
        else:
            rows = query.shape[-1]
            pairs = (rows - h * size) // 2
            if query.type.rank != 2 or pairs < width or pairs % width:
                n.fail(f"{query.type} holds no queries, keys and values of {h} heads of {width} and {size}")
            cuts = ((0, pairs), (pairs, pairs), (2 * pairs, rows - 2 * pairs))
            parts = [slice_of(b, query, [(0, 1, query.shape[0]), (at, 1, c)]) for at, c in cuts]
        sizes = (width, width, size)
        if any(x.shape[-1] % s for x, s in zip(parts, sizes, strict=True)):
            n.fail(f"{', '.join(str(x.type) for x in parts)} do not fit a state of {[h, size, width]}")
        return [b.one("Reshape", cast_to(b, x, F32), shape=[*outer, x.type.size // max(int(np.prod(outer)) * s, 1), s])
                for x, s in zip(parts, sizes, strict=True)]

    def _unit(self, b: Any, x: Value) -> Any:
        length = b.one("ReduceSum", b.one("Mul", x, x), axes=[3], keepdims=1)
        return b.one("Div", x, b.one("Sqrt", b.one("Add", length, b.const(1e-6, F32))))

    def _decay(self, b: Any, n: Any, decay: Value, a_log: Value | None, bias: Value | None) -> Any:
        kind = n.attrs.get("gate_activation", "none")
        if kind == "none":
            return decay
        if kind not in ("softplus", "qwen", "sigmoid", "kda"):
            n.fail(f"has the unknown gate_activation {kind!r}, must be none, softplus, sigmoid, kda or qwen")
        if a_log is None or bias is None:
            n.fail(f"the gate_activation {kind!r} needs a_log and dt_bias")
        assert bias is not None
        h = decay.shape[2]
        rate = b.one("Exp", b.one("Reshape", a_log, shape=[h, 1]))
        x = b.one("Add", decay, b.one("Reshape", bias, shape=[h, bias.type.size // max(h, 1)]))
        if kind in ("softplus", "qwen"):
            return b.one("Mul", b.one("Neg", rate), b.one("Softplus", x))
        bound = b.const(n.attrs.get("gate_lower_bound", -5.0), F32)
        return b.one("Mul", bound, b.one("Sigmoid", b.one("Mul", rate, x)))


class LinearAttentionGate(OpDef):
    """decay_scale * Softplus(a + dt_bias), and Sigmoid(b); in float32"""

    name = "LinearAttentionGate"
    domain = "com.microsoft"

    def from_onnx(self, b: Any, n: Any) -> Sequence[Value | None]:
        a, bias, scale, rate = [*n.inputs, None][:4]
        if n.n_outputs > 1 and rate is None:
            n.fail("its second output needs the input b")
        decay = b.one("Mul", b.one("Softplus", b.one("Add", cast_to(b, a, F32), bias)), scale)
        out = [decay, *([b.one("Sigmoid", cast_to(b, rate, F32))] if n.n_outputs > 1 else [])]
        return [cast_to(b, x, a.dtype) for x in out]


class CausalConvWithState(OpDef):
    """A depthwise convolution that sees what came before; the state is as many of the last positions as it needs"""

    name = "com.microsoft::CausalConvWithState"

    def from_onnx(self, b: Any, n: Any) -> Sequence[Value | None]:
        refuse(n, ndim=1, state_window=0, state_update_capacity=0, state_length=0, input_channels=0,
               input_channel_offset=0, state_channels_last=-1)
        x, w, bias, past = [*n.inputs, None, None][:4]
        last, dilation = bool(n.attrs.get("channels_last", 0)), int(n.attrs.get("dilation", 1))
        inner = list(x.shape[2:])
        x, past = (self._first(b, v) if v is not None and last else v for v in (x, past))
        if x.type.rank != 3 or w.type.rank != 3 or w.shape[:2] != (x.shape[1], 1) or dilation < 1:
            n.fail(f"has weights {w.type} with dilation {dilation} for {n.inputs[0].type}",
                   hint="the weights are [channels, 1, taps]")
        held = (w.shape[2] - 1) * dilation
        if past is not None and past.shape != (*x.shape[:2], held):
            n.fail(f"the state {n.inputs[3].type} does not hold {held} positions of {n.inputs[0].type}")
        if past is None:
            past = b.one("Expand", b.const(np.zeros((1, 1, 1), x.dtype.numpy)), shape=[*x.shape[:2], held])
        line = b.one("Concat", past, x, axis=2) if held else x
        y = read_as(b, n, "Conv", [line, w, bias], group=x.shape[1], dilations=[dilation])
        kind = n.attrs.get("activation", "none")
        if kind not in ("none", "silu", "swish"):
            n.fail(f"has the unknown activation {kind!r}, must be silu, swish or none")
        y = y if kind == "none" else silu(b, y)
        state = slice_of(b, line, [(0, 1, x.shape[0]), (0, 1, x.shape[1]), (x.shape[2], 1, held)])
        return [self._back(b, v, inner) if last else v for v in (y, state)][: n.n_outputs]

    def _first(self, b: Any, v: Value) -> Any:
        """[B, channels, steps]"""
        v = b.one("Reshape", v, shape=[*v.shape[:2], int(np.prod(v.shape[2:]))])
        return b.one("Transpose", v, perm=[0, 2, 1])

    def _back(self, b: Any, v: Value, inner: list[int]) -> Any:
        v = b.one("Transpose", v, perm=[0, 2, 1])
        return b.one("Reshape", v, shape=[*v.shape[:2], *inner])
