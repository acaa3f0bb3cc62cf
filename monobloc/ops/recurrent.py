"""Recurrent layers: LSTM, GRU, RNN.

Only H * R^T has to wait for the step before. So the importer takes a layer apart: X * W^T plus biases
for all steps and directions becomes one MatMul (the fast contraction kernel does it), and the loop
over time is one node of its own, `LstmLoop`, `GruLoop` or `RnnLoop`, a routine over C in
mb/recurrent.h. Its inputs:

    gates   [T, B, D*G*H]     before the past is added, in ONNX's order of gates (iofc, zrh)
    rt      [D, H, G*H]       recurrence weights, transposed: a row is contiguous
    lens    [B]               steps of each sample, or absent
    h0, c0  [D, B, H]         first states, or absent (zero)
    extra                     LSTM: peepholes [D, 3H]; GRU with linear_before_reset: the candidate's
                              recurrent bias [D, H]; or absent
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from monobloc.errors import ModelError
from monobloc.ir.graph import Node, Value
from monobloc.ir.types import DType, Shape, TensorType
from monobloc.ops import Case, OpDef, Tol
from monobloc.ops.build import cast_to
from monobloc.ops.contract import NAN, Edge, f32, i32

Array = np.ndarray
Attrs = dict[str, Any]
F32, F64 = DType.F32, DType.F64


@dataclass(frozen=True)
class Activation:
    """numpy form; default alpha and beta, None where the function has no such parameter"""

    numpy: Callable[[Array, float, float], Array]
    alpha: float | None = None
    beta: float | None = None


ACTIVATIONS: dict[str, Activation] = {
    "sigmoid": Activation(lambda x, a, b: 1 / (1 + np.exp(-x))),
    "tanh": Activation(lambda x, a, b: np.tanh(x)),
    "relu": Activation(lambda x, a, b: np.maximum(x, 0)),
    "leakyrelu": Activation(lambda x, a, b: np.where(x < 0, a * x, x), 0.01),
    "thresholdedrelu": Activation(lambda x, a, b: np.where(x > a, x, 0), 1.0),
    "scaledtanh": Activation(lambda x, a, b: a * np.tanh(b * x), 1.0, 1.0),
    "hardsigmoid": Activation(lambda x, a, b: np.clip(a * x + b, 0, 1), 0.2, 0.5),
    "elu": Activation(lambda x, a, b: np.where(x < 0, a * np.expm1(x), x), 1.0),
    "softsign": Activation(lambda x, a, b: x / (1 + np.abs(x))),
    "softplus": Activation(lambda x, a, b: np.logaddexp(x, 0)),
    "affine": Activation(lambda x, a, b: a * x + b, 1.0, 0.0),
}


class Recurrent(OpDef):
    """What the three layers share; a subclass says its gates and one step."""

    gates: ClassVar[int]
    resets: ClassVar[int] = 0  # states of the size of one that a step keeps beside its gates
    states: ClassVar[int] = 1
    default: ClassVar[tuple[str, ...]]
    tol = Tol(1e-4, 1e-5)

    # -- reading ------------------------------------------------------------------------------------
    def from_onnx(self, b: Any, n: Any) -> Sequence[Value | None]:
        if n.op != self.aliases[0]:
            n.fail(f"unknown operator {n.op}")
        x, w, r = (self._wide(b, v) for v in n.inputs[:3])
        attrs = self._attrs(n, x, w.shape, r.shape)
        batch_first = bool(n.attrs.get("layout", 0))
        x = b.one("Transpose", x, perm=[1, 0, 2]) if batch_first else x
        first = [self._state(b, n.input(5 + k), batch_first) for k in range(self.states)]
        gates, extra = self._gates(b, n, x, w, attrs)
        rt = b.one("Transpose", r, perm=[0, 2, 1])
        ins = [gates, rt, n.input(4), *first, *([None] if self.states == 1 else []), extra]
        outs = b.emit(self.name, ins, attrs, outputs=1 + self.states)
        return self._results(b, n, outs, batch_first)

    def _wide(self, b: Any, v: Any) -> Any:
        """Half floats compute in float32; None stays None."""
        return b.one("Cast", v, to=F32) if v is not None and v.dtype not in (F32, F64) else v

    def _state(self, b: Any, v: Value | None, batch_first: bool) -> Value | None:
        v = self._wide(b, v)
        return b.one("Transpose", v, perm=[1, 0, 2]) if v is not None and batch_first else v

    def _attrs(self, n: Any, x: Value, w: Shape, r: Shape) -> Attrs:
        direction = n.attrs.get("direction", "forward")
        if direction not in ("forward", "reverse", "bidirectional"):
            n.fail(f"direction is `{direction}`, must be forward, reverse or bidirectional")
        dirs = 2 if direction == "bidirectional" else 1
        hidden = int(n.attrs.get("hidden_size", r[-1] if r else 0))
        if x.type.rank != 3 or w != (dirs, self.gates * hidden, x.shape[-1]):
            want = [dirs, self.gates * hidden, x.shape[-1] if x.type.rank else 0]
            n.fail(f"input weights have shape {list(w)}, input {x.type} and hidden size {hidden} need {want}")
        if r != (dirs, self.gates * hidden, hidden):
            want = [dirs, self.gates * hidden, hidden]
            n.fail(f"recurrence weights have shape {list(r)}, hidden size {hidden} needs {want}")
        names, alpha, beta = activations(n, self.default * dirs)
        clip = n.attrs.get("clip")
        return {
            "direction": direction,
            "activations": names,
            "alpha": alpha,
            "beta": beta,
            "clip": float(clip) if clip else 0.0,
        }

    def _gates(self, b: Any, n: Any, x: Value, w: Value, attrs: Attrs) -> tuple[Value, Value | None]:
        """X * W^T + biases of all steps and directions, and what the loop needs besides."""
        steps, batch, size = x.shape
        dirs, rows = w.shape[:2]
        wt = b.one("Reshape", b.one("Transpose", w, perm=[2, 0, 1]), shape=[size, dirs * rows])
        flat = b.one("MatMul", b.one("Reshape", x, shape=[steps * batch, size]), wt)
        bias, extra = None, None
        if n.input(3) is not None:
            bias, extra = self._biases(b, n, self._wide(b, n.input(3)), attrs, dirs, rows)
            flat = b.one("Add", flat, b.one("Reshape", bias, shape=[dirs * rows]))
        return b.one("Reshape", flat, shape=[steps, batch, dirs * rows]), self._extra(b, n, extra, attrs)

    def _biases(
        self, b: Any, n: Any, v: Value, attrs: Attrs, dirs: int, rows: int
    ) -> tuple[Value, Value | None]:
        """(Wb + Rb as [D, G*H], what stays inside the loop)"""
        if v.shape != (dirs, 2 * rows):
            n.fail(f"bias has shape {list(v.shape)}, the weights need {[dirs, 2 * rows]}")
        both = b.one("Reshape", v, shape=[dirs, 2, rows])
        return b.emit("ReduceSum", [both], {"axes": [1], "keepdims": 0})[0], None

    def _extra(self, b: Any, n: Any, extra: Value | None, attrs: Attrs) -> Value | None:
        return extra

    def _results(self, b: Any, n: Any, outs: list[Value], batch_first: bool) -> list[Value]:
        if batch_first:
            outs = [b.one("Transpose", outs[0], perm=[2, 0, 1, 3])] + [
                b.one("Transpose", v, perm=[1, 0, 2]) for v in outs[1:]
            ]
        want = n.inputs[0].dtype
        outs = [cast_to(b, v, want) for v in outs]
        return outs[: n.n_outputs]

    # -- types --------------------------------------------------------------------------------------
    def infer(self, ins: Sequence[Value | None], attrs: Attrs) -> list[TensorType]:
        gates, rt, lens, h0, c0, _ = [*ins, *[None] * 6][:6]
        assert gates is not None and rt is not None
        dirs, hidden = rt.shape[:2]
        steps, batch, width = gates.shape
        if width != dirs * self.gates * hidden or gates.dtype is not rt.dtype:
            raise ModelError(f"{self.name} gates {gates.type} and weights {rt.type} do not agree")
        if lens is not None and (lens.shape != (batch,) or lens.dtype is not DType.I32):
            raise ModelError(f"{self.name} sequence lengths are {lens.type}, must be i32[{batch}]")
        state = TensorType(gates.dtype, (dirs, batch, hidden))
        for what, v in (("hidden", h0), ("cell", c0)):
            if v is not None and v.type != state:
                raise ModelError(f"{self.name} initial {what} state is {v.type}, must be {state}")
        return [TensorType(gates.dtype, (steps, dirs, batch, hidden)), *[state] * self.states]

    # -- meaning ------------------------------------------------------------------------------------
    def ref(self, attrs: Attrs, *xs: Array | None) -> list[Array]:
        gates, rt, lens, h0, c0, extra = [*xs, *[None] * 6][:6]
        assert gates is not None and rt is not None
        dirs, hidden = rt.shape[:2]
        steps, batch = gates.shape[:2]
        y = np.zeros((steps, dirs, batch, hidden))
        last = [np.zeros((dirs, batch, hidden)) for _ in range(self.states)]
        for d in range(dirs):
            for s in range(batch):
                part = gates[:, s].reshape(steps, dirs, -1)[:, d].astype(np.float64)
                state = [np.zeros(hidden) if v is None else v[d, s].astype(np.float64) for v in (h0, c0)]
                length = steps if lens is None else int(lens[s])
                more = None if extra is None else extra[d].astype(np.float64)
                backward = attrs["direction"] == "reverse" or d == 1
                for t in reversed(range(length)) if backward else range(length):
                    state = self.step(attrs, d, part[t], rt[d].astype(np.float64), more, state)
                    y[t, d, s] = state[0]
                for out, v in zip(last, state, strict=False):
                    out[d, s] = v
        return [v.astype(gates.dtype) for v in (y, *last)]

    def step(self, attrs: Attrs, d: int, x: Array, rt: Array, extra: Array | None, state: list[Array]) -> list[Array]:
        raise NotImplementedError

    def gate(self, attrs: Attrs, d: int, which: int, x: Array, clipped: bool = True) -> Array:
        """Activation number `which` of direction `d`"""
        k = d * len(self.default) + which
        if clipped and attrs["clip"]:
            x = np.clip(x, -attrs["clip"], attrs["clip"])
        with np.errstate(over="ignore"):
            return ACTIVATIONS[attrs["activations"][k]].numpy(x, attrs["alpha"][k], attrs["beta"][k])

    # -- code ---------------------------------------------------------------------------------------
    def routine(self, n: Node, c: Any) -> str:
        gates, rt, lens, h0, c0, extra = n.inputs
        assert gates is not None and rt is not None
        steps, batch, _ = gates.shape
        dirs, hidden = rt.shape[:2]
        suffix = "f64" if gates.dtype is F64 else "f32"
        in_place = not self.resets and c.spent(gates)
        size = dirs * batch * (self.gates + self.resets) * hidden * gates.dtype.size
        scratch = "0" if in_place else c.scratch(size)
        ins = [c.ptr(v) if v is not None else "0" for v in (gates, rt, lens, h0, c0, extra)]
        outs = [c.ptr(v) for v in n.outputs] + ["0"] * (2 - self.states)
        return f"""
  const mb_rec d = {{
    .steps = {steps}, .batch = {batch}, .hidden = {hidden}, .dirs = {dirs}, .in_place = {int(in_place)},
{self._fields(n.attrs)}
  }};
  return mb_rec_run_{suffix}(d, {self.gates}, {", ".join(ins)}, {", ".join(outs)},
                         ({gates.dtype.c} *){scratch}, tid, nt);
"""

    def _fields(self, attrs: Attrs) -> str:
        acts = ", ".join(
            f"{{MB_REC_{name.upper()}, {alpha!r}, {beta!r}}}"
            for name, alpha, beta in zip(attrs["activations"], attrs["alpha"], attrs["beta"], strict=True)
        )
        return f"""    .reverse = {int(attrs["direction"] == "reverse")},
    .has_clip = {int(bool(attrs["clip"]))}, .clip = {attrs["clip"]!r},
    .input_forget = {attrs.get("input_forget", 0)}, .linear_before_reset = {attrs.get("linear_before_reset", 0)},
    .act = {{{acts}}},"""

    # -- tests --------------------------------------------------------------------------------------
    def extra_case(self, rng: np.random.Generator, dirs: int, hidden: int) -> tuple[Array | None, Attrs]:
        return None, {}

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        def f(*s: int) -> Array:
            return rng.standard_normal(s).astype(np.float32)

        def make(t: int, b: int, h: int, direction: str, what: str, **attrs: Any) -> Case:
            dirs = 2 if direction == "bidirectional" else 1
            extra, more = self.extra_case(rng, dirs, h) if what != "plain" else (None, {})
            lens = rng.integers(0, t + 1, b).astype(np.int32) if what == "lens" else None
            states = [f(dirs, b, h) if what != "plain" and k < self.states else None for k in range(2)]
            base = {
                "direction": direction,
                "activations": list(self.default) * dirs,
                "alpha": [0.0] * len(self.default) * dirs,
                "beta": [0.0] * len(self.default) * dirs,
                "clip": 0.0,
            }
            ins = (f(t, b, dirs * self.gates * h), f(dirs, h, self.gates * h) / h**0.5, lens, *states, extra)
            return Case(ins, base | self.flags() | more | attrs, f"{direction}_{what}")

        yield make(5, 1, 7, "forward", "plain")
        yield make(4, 2, 16, "reverse", "states")
        yield make(6, 3, 33, "bidirectional", "lens")
        yield make(3, 1, 40, "bidirectional", "clip", clip=0.4)

    def flags(self) -> Attrs:
        return {}


def _promises(gates: int, states: int) -> tuple[Edge, ...]:
    """By examples of one sample and one hidden element"""
    rt, nan = np.zeros((1, 1, gates), np.float32), f32(NAN)
    return (
        Edge("indices", "a sequence longer than the input makes the run fail",
             (np.zeros((2, 1, gates), np.float32), rt, i32(3), None, None, None), ()),
        Edge("NaN", "stays in every later state",
             (np.full((1, 1, gates), NAN, np.float32), rt, None, None, None, None),
             (nan.reshape(1, 1, 1, 1), *[nan.reshape(1, 1, 1)] * states)),
    )


class LstmLoop(Recurrent):
    name = "LstmLoop"
    example = {"direction": "forward", "activations": ["sigmoid", "tanh", "tanh"], "alpha": [0.0, 0.0, 0.0],
               "beta": [0.0, 0.0, 0.0], "clip": 0.0, "input_forget": 0}
    edges = _promises(gates=4, states=2)
    aliases = ("LSTM",)
    gates, states = 4, 2
    default = ("sigmoid", "tanh", "tanh")

    def _attrs(self, n: Any, x: Value, w: Shape, r: Shape) -> Attrs:
        return super()._attrs(n, x, w, r) | {"input_forget": int(n.attrs.get("input_forget", 0))}

    def _extra(self, b: Any, n: Any, extra: Value | None, attrs: Attrs) -> Value | None:
        return self._wide(b, n.input(7))

    def infer(self, ins: Sequence[Value | None], attrs: Attrs) -> list[TensorType]:
        rt, p = ins[1], ins[5] if len(ins) > 5 else None
        if p is not None and rt is not None and p.shape != (rt.shape[0], 3 * rt.shape[1]):
            want = [rt.shape[0], 3 * rt.shape[1]]
            raise ModelError(f"{self.name} peepholes have shape {list(p.shape)}, must be {want}")
        return super().infer(ins, attrs)

    def step(self, attrs: Attrs, d: int, x: Array, rt: Array, extra: Array | None, state: list[Array]) -> list[Array]:
        h, c = state
        i, o, f, g = np.split(x + h @ rt, 4)
        pi, po, pf = np.zeros((3, h.size)) if extra is None else np.split(extra, 3)
        i = self.gate(attrs, d, 0, i + pi * c)
        f = 1 - i if attrs["input_forget"] else self.gate(attrs, d, 0, f + pf * c)
        c = f * c + i * self.gate(attrs, d, 1, g)
        o = self.gate(attrs, d, 0, o + po * c)
        return [o * self.gate(attrs, d, 2, c, clipped=False), c]

    def flags(self) -> Attrs:
        return {"input_forget": 0}

    def extra_case(self, rng: np.random.Generator, dirs: int, hidden: int) -> tuple[Array | None, Attrs]:
        return rng.standard_normal((dirs, 3 * hidden)).astype(np.float32), {"input_forget": int(rng.integers(0, 2))}


class GruLoop(Recurrent):
    name = "GruLoop"
    example = {"direction": "forward", "activations": ["sigmoid", "tanh"], "alpha": [0.0, 0.0], "beta": [0.0, 0.0],
               "clip": 0.0, "linear_before_reset": 0}
    edges = _promises(gates=3, states=1)
    aliases = ("GRU",)
    gates, resets = 3, 1
    default = ("sigmoid", "tanh")

    def _attrs(self, n: Any, x: Value, w: Shape, r: Shape) -> Attrs:
        return super()._attrs(n, x, w, r) | {"linear_before_reset": int(bool(n.attrs.get("linear_before_reset", 0)))}

    def _biases(
        self, b: Any, n: Any, v: Value, attrs: Attrs, dirs: int, rows: int
    ) -> tuple[Value, Value | None]:
        """With linear_before_reset the recurrent bias of the candidate is scaled by the reset gate, so
        it stays inside: masks take the biases apart, and constants fold."""
        if not attrs["linear_before_reset"]:
            return super()._biases(b, n, v, attrs, dirs, rows)
        if v.shape != (dirs, 2 * rows):
            n.fail(f"bias has shape {list(v.shape)}, the weights need {[dirs, 2 * rows]}")
        parts = b.one("Reshape", v, shape=[dirs, 2, 3, rows // 3])
        mask = np.zeros((1, 2, 3, 1), v.dtype.numpy)
        mask[0, 1, 2] = 1
        inner = b.one("Mul", parts, b.const(mask))
        outer = b.one("Mul", parts, b.const(1 - mask))
        bias = b.emit("ReduceSum", [outer], {"axes": [1], "keepdims": 0})[0]
        return bias, b.emit("ReduceSum", [inner], {"axes": [1, 2], "keepdims": 0})[0]

    def step(self, attrs: Attrs, d: int, x: Array, rt: Array, extra: Array | None, state: list[Array]) -> list[Array]:
        h, n = state[0], state[0].size
        z = self.gate(attrs, d, 0, x[:n] + h @ rt[:, :n])
        r = self.gate(attrs, d, 0, x[n : 2 * n] + h @ rt[:, n : 2 * n])
        if attrs["linear_before_reset"]:
            past = r * (h @ rt[:, 2 * n :] + (0 if extra is None else extra))
        else:
            past = (r * h) @ rt[:, 2 * n :]
        t = self.gate(attrs, d, 1, x[2 * n :] + past)
        return [(1 - z) * t + z * h, state[1]]

    def flags(self) -> Attrs:
        return {"linear_before_reset": 0}

    def extra_case(self, rng: np.random.Generator, dirs: int, hidden: int) -> tuple[Array | None, Attrs]:
        if rng.random() < 0.4:
            return None, {}
        return rng.standard_normal((dirs, hidden)).astype(np.float32), {"linear_before_reset": 1}


class RnnLoop(Recurrent):
    name = "RnnLoop"
    example = {"direction": "forward", "activations": ["tanh"], "alpha": [0.0], "beta": [0.0], "clip": 0.0}
    edges = _promises(gates=1, states=1)
    aliases = ("RNN",)
    gates = 1
    default = ("tanh",)

    def step(self, attrs: Attrs, d: int, x: Array, rt: Array, extra: Array | None, state: list[Array]) -> list[Array]:
        return [self.gate(attrs, d, 0, x + state[0] @ rt), state[1]]


def activations(n: Any, default: Sequence[str]) -> tuple[list[str], list[float], list[float]]:
    """Names in lower case with alpha and beta each. The attributes list values only for functions that
    have such a parameter, in order; what is missing is the function's own default."""
    names = [str(s).lower() for s in n.attrs.get("activations") or default]
    if len(names) != len(default):
        n.fail(f"{len(names)} activations are given, {len(default)} are needed")
    given = {k: iter(n.attrs.get(f"activation_{k}") or []) for k in ("alpha", "beta")}
    alpha, beta = [], []
    for name in names:
        if name not in ACTIVATIONS:
            n.fail(f"unknown activation `{name}`", hint="known: " + ", ".join(sorted(ACTIVATIONS)))
        a = ACTIVATIONS[name]
        alpha.append(0.0 if a.alpha is None else float(next(given["alpha"], a.alpha)))
        beta.append(0.0 if a.beta is None else float(next(given["beta"], a.beta)))
    return names, alpha, beta
