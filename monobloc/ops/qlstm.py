"""DynamicQuantizeLSTM: an LSTM whose weights are bytes, and whose inputs and states are quantized as they come.

X is quantized by its range, X * W is an integer product of all steps, as ONNX's LSTM is taken apart
(ops/recurrent.py). The loop is `QuantizedLstmLoop`: each step quantizes the state by the range it has over the
whole batch, and multiplies integers. Its inputs:

    gates   [T, B, D*4H]      before the past is added
    r       [D, H, 4H]        recurrence weights, as the model stores them
    scale   [D, 4H]           of r's columns
    zero    [D, 4H]           of r's columns, or absent
    h0, c0  [D, B, H]         first states, or absent (zero)
    peep    [D, 3H]           peepholes, or absent
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from monobloc.errors import ModelError
from monobloc.ir.graph import Node, Value
from monobloc.ir.types import DType, TensorType
from monobloc.ops import Case, opdef
from monobloc.ops.build import read_as, reading
from monobloc.ops.contract import NAN, Edge, f32
from monobloc.ops.recurrent import LstmLoop

Array = np.ndarray
Attrs = dict[str, Any]
F32 = DType.F32


class QuantizedLstmLoop(LstmLoop):
    name = "QuantizedLstmLoop"
    edges: ClassVar[tuple[Edge, ...]] = (
        Edge("NaN", "stays in every later state",
             (np.full((1, 1, 4), NAN, np.float32), np.zeros((1, 1, 4), np.int8), np.zeros((1, 4), np.float32),
              *[None] * 4),
             (f32(NAN).reshape(1, 1, 1, 1), f32(NAN).reshape(1, 1, 1), f32(NAN).reshape(1, 1, 1))),
    )
    aliases = ("com.microsoft::DynamicQuantizeLSTM",)

    # -- reading ------------------------------------------------------------------------------------
    def from_onnx(self, b: Any, n: Any) -> Sequence[Value | None]:
        x, w, r, bias, lens, h0, c0, peep, sw, zw, sr, zr = n.inputs
        steps, batch, size = x.shape if x.type.rank == 3 else (0, 0, 0)
        self._check_lengths(n, lens, steps)
        if any(v.type.rank != 3 for v in (w, r)):
            n.fail(f"weights are {w.type} and {r.type}, must be [directions, size, 4 * hidden]")
        attrs = self._attrs(n, x, *((v.shape[0], v.shape[2], v.shape[1]) for v in (w, r)))
        dirs, columns = w.shape[0], w.shape[2]
        sw, zw, sr, zr = (self._columns(b, n, v, dirs, columns) for v in (sw, zw, sr, zr))
        flat = self._input_gates(b, n, x, w, sw, zw)
        if bias is not None:
            both, _ = self._biases(b, n, bias, attrs, dirs, columns)
            flat = b.one("Add", flat, b.one("Reshape", both, shape=[dirs * columns]))
        gates = b.one("Reshape", flat, shape=[steps, batch, dirs * columns])
        if zr.const is not None and not zr.const.array.any():
            zr = None
        return self._results(b, n, b.emit(self.name, [gates, r, sr, zr, h0, c0, peep], attrs, outputs=3), False)

    def _check_lengths(self, n: Any, lens: Value | None, steps: int) -> None:
        if lens is not None and (lens.const is None or (lens.const.array != steps).any()):
            n.unsupported("a DynamicQuantizeLSTM of sequences of several lengths")

    def _columns(self, b: Any, n: Any, v: Value, dirs: int, columns: int) -> Value:
        """A scale or zero point of each column: [D, 4H]"""
        if v.shape == (dirs, columns):
            return v
        if v.type.size != dirs:
            n.fail(f"a scale or zero point has shape {list(v.shape)}, must be {[dirs]} or {[dirs, columns]}")
        return b.one("Expand", b.one("Reshape", v, shape=[dirs, 1]), shape=[dirs, columns])

    def _input_gates(self, b: Any, n: Any, x: Value, w: Value, scale: Value, zero: Value) -> Value:
        """X * W of all steps and directions: [T*B, D*4H]"""
        dirs, size, columns = w.shape
        flat = b.one("Reshape", x, shape=[x.type.size // max(size, 1), size])
        quantize = replace(reading(n, "DynamicQuantizeLinear", [flat]), n_outputs=3)
        q, sx, zx = opdef("QuantizeLinear").from_onnx(b, quantize)
        wt = b.one("Reshape", b.one("Transpose", w, perm=[1, 0, 2]), shape=[size, dirs * columns])
        row = [dirs * columns]
        acc = read_as(b, n, "MatMulInteger", [q, wt, zx, b.one("Reshape", zero, shape=row)])
        assert sx is not None
        factor = b.one("Mul", b.one("Reshape", scale, shape=row), sx)
        return b.one("Mul", b.one("Cast", acc, to=F32), factor)

    # -- types and meaning ----------------------------------------------------------------------------
    def infer(self, ins: Sequence[Value | None], attrs: Attrs) -> list[TensorType]:
        gates, r, scale, zero, h0, c0, peep = [*ins, *[None] * 7][:7]
        assert gates is not None and r is not None and scale is not None
        dirs, hidden, columns = r.shape
        steps, batch, width = gates.shape
        if width != dirs * columns or columns != 4 * hidden or r.dtype not in (DType.I8, DType.U8):
            raise ModelError(f"{self.name} gates {gates.type} and weights {r.type} do not agree")
        state = TensorType(F32, (dirs, batch, hidden))
        for what, v, want in (
            ("scale", scale, TensorType(F32, (dirs, columns))),
            ("zero point", zero, TensorType(r.dtype, (dirs, columns))),
            ("initial hidden state", h0, state),
            ("initial cell state", c0, state),
            ("peepholes", peep, TensorType(F32, (dirs, 3 * hidden))),
        ):
            if v is not None and v.type != want:
                raise ModelError(f"{self.name} {what} is {v.type}, must be {want}")
        return [TensorType(F32, (steps, dirs, batch, hidden)), state, state]

    def ref(self, attrs: Attrs, *xs: Array | None) -> list[Array]:
        gates, r, scale, zero, h0, c0, peep = [*xs, *[None] * 7][:7]
        assert gates is not None and r is not None and scale is not None
        dirs, hidden, columns = r.shape
        steps, batch = gates.shape[:2]
        y = np.zeros((steps, dirs, batch, hidden), np.float32)
        last = [np.zeros((dirs, batch, hidden), np.float32) if v is None else v.copy() for v in (h0, c0)]
        for d in range(dirs):
            weights = r[d].astype(np.int64) - (0 if zero is None else zero[d].astype(np.int64))
            more = None if peep is None else peep[d].astype(np.float64)
            backward = attrs["direction"] == "reverse" or d == 1
            for t in reversed(range(steps)) if backward else range(steps):
                q, by = quantize(last[0][d])
                past = (q @ weights) * (by * scale[d]).astype(np.float64)
                for s in range(batch):
                    part = gates[t, s].reshape(dirs, columns)[d] + past[s]
                    before = [np.zeros(hidden), last[1][d, s].astype(np.float64)]
                    h, c = self.step(attrs, d, part, np.zeros((hidden, columns)), more, before)
                    last[0][d, s], last[1][d, s] = h, c
                y[t, d] = last[0][d]
        return [y, *last]

    # -- code ---------------------------------------------------------------------------------------
    def routine(self, n: Node, c: Any) -> str:
        gates, r, scale, zero, h0, c0, peep = [*n.inputs, *[None] * 7][:7]
        assert gates is not None and r is not None
        steps, batch, _ = gates.shape
        dirs, hidden, _ = r.shape
        scratch = c.scratch(dirs * (9 + batch) * hidden * 4)
        ins = [c.ptr(v) if v is not None else "0" for v in (gates, r, scale, zero, h0, c0, peep)]
        return f"""
  const mb_rec d = {{
    .steps = {steps}, .batch = {batch}, .hidden = {hidden}, .dirs = {dirs},
{self._fields(n.attrs)}
  }};
  return mb_qlstm_run(d, {int(r.dtype is DType.U8)}, {", ".join(ins)}, {", ".join(c.ptr(v) for v in n.outputs)},
                      (float *){scratch}, tid, nt);
"""

    # -- tests --------------------------------------------------------------------------------------
    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        def f(*s: int) -> Array:
            return rng.standard_normal(s).astype(np.float32)

        plain = {"clip": 0.0, "input_forget": 0}
        for direction, dirs, batch, hidden, dtype in (
            ("forward", 1, 1, 7, np.int8), ("reverse", 1, 3, 40, np.uint8), ("bidirectional", 2, 2, 16, np.int8),
            ("forward", 1, 1, 36, np.uint8),
        ):
            info, columns = np.iinfo(dtype), 4 * hidden
            r = rng.integers(info.min, info.max + 1, (dirs, hidden, columns)).astype(dtype)
            scale = rng.uniform(0.001, 0.01, (dirs, columns)).astype(np.float32)
            acts = {"activations": list(self.default) * dirs, "alpha": [0.0] * 3 * dirs, "beta": [0.0] * 3 * dirs}
            zero = rng.integers(info.min // 2 + 3, info.max // 2, (dirs, columns)).astype(dtype)
            more = [f(dirs, batch, hidden), f(dirs, batch, hidden), f(dirs, 3 * hidden)] if batch > 1 else []
            ins = (f(5, batch, dirs * columns), r, scale, zero if batch > 1 else None, *more)
            yield Case(ins, plain | acts | {"direction": direction}, direction)


def quantize(h: Array) -> tuple[Array, np.float32]:
    """State as integers round its zero point, and their scale: as DynamicQuantizeLinear has it"""
    low, high = np.minimum(h.min(), np.float32(0)), np.maximum(h.max(), np.float32(0))
    scale = np.float32(1) if high == low else (high - low) / np.float32(255)
    zero = np.rint(np.clip(-low / scale, 0, 255))
    return np.clip(np.rint(h / scale), -zero, 255 - zero).astype(np.int64), scale
