"""mb/rnn.h against float64 recurrences: hidden sizes round the lane count, batches, directions."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from monobloc.kernels import packing, tiles
from tests.kernels import harness

SEED = 20240604
GATES = {"lstm": 4, "gru": 3, "rnn": 1}


@dataclass(frozen=True)
class Case:
    kind: str
    hidden: int
    batch: int = 1
    steps: int = 5
    h0: bool = False
    reverse: bool = False
    reset_after: bool = False
    peephole: bool = False
    input_forget: bool = False
    clip: float | None = None

    def desc(self) -> dict[str, int | float]:
        return tiles.rnn_desc(
            self.steps,
            self.batch,
            self.hidden,
            GATES[self.kind],
            has_h0=self.h0,
            reverse=self.reverse,
            reset_after=self.reset_after,
            peephole=self.peephole,
            input_forget=self.input_forget,
            clip=self.clip,
        )


def cases(vl: int) -> list[Case]:
    sizes = [(1, 1), (vl - 1, 3), (vl, 1), (vl + 1, 2), (2 * vl + 3, 5), (3 * vl, 9)]
    out = [Case(k, n, b, h0=b % 2 == 0) for n, b in sizes for k in GATES]
    out += [Case("gru", n, b, reset_after=True, h0=b % 2 == 1) for n, b in sizes]
    out += [Case("lstm", n, b, peephole=True, h0=True) for n, b in sizes]
    out += [Case(k, vl + 2, 2, reverse=True, clip=0.5) for k in GATES]
    return [*out, Case("lstm", vl, 2, input_forget=True), Case("rnn", vl, 1, steps=1)]


def source(vl: int) -> str:
    text = ['#include "mb/rnn.h"', '#include "mb/math.h"']
    for i, c in enumerate(cases(vl)):
        text.append(f"static const mb_rnn d{i} = {tiles.c_initializer(c.desc())};")
        acts = {"lstm": "mb_sigmoid, mb_tanh, mb_tanh", "gru": "mb_sigmoid, mb_tanh"}
        text.append(f"MB_{c.kind.upper()}(rnn{i}, d{i}, {acts.get(c.kind, 'mb_tanh')})")
        call = {
            "lstm": "xp, r, peep, h0, y, h, c, z",
            "gru": "xp, r, bias, h0, y, h, z",
            "rnn": "xp, r, h0, y, h, z",
        }[c.kind]
        text.append(
            f"void run{i}(const float *xp, const float *r, const float *peep, const float *bias,"
            " const float *h0, float *y, float *h, float *c, float *z, int tid, int nt)"
            f" {{ (void)peep; (void)bias; (void)c; rnn{i}({call}, tid, nt); }}"
        )
    return "\n".join(text)


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def step(c: Case, xp: np.ndarray, r: np.ndarray, v: dict[str, np.ndarray], h: np.ndarray) -> None:
    """One step in float64: reads v["h"], v["c"] and writes them."""
    n = c.hidden

    def clip(x: np.ndarray) -> np.ndarray:
        return x if c.clip is None else np.clip(x, -c.clip, c.clip)

    if c.kind == "rnn":
        v["h"] = np.tanh(clip(xp + h @ r.T))
    elif c.kind == "gru":
        zr = sigmoid(clip(xp[:, : 2 * n] + h @ r[: 2 * n].T))
        z, reset = zr[:, :n], zr[:, n:]
        if c.reset_after:
            cand = xp[:, 2 * n :] + reset * (h @ r[2 * n :].T + v["bias"])
        else:
            cand = xp[:, 2 * n :] + (reset * h) @ r[2 * n :].T + v["bias"]
        v["h"] = (1 - z) * np.tanh(clip(cand)) + z * h
    else:
        i, o, f, g = np.split(xp + h @ r.T, 4, axis=1)
        p = v["peep"] if c.peephole else np.zeros((3, n))
        i = sigmoid(clip(i + p[0] * v["c"]))
        f = 1 - i if c.input_forget else sigmoid(clip(f + p[2] * v["c"]))
        v["c"] = f * v["c"] + i * np.tanh(clip(g))
        v["h"] = sigmoid(clip(o + p[1] * v["c"])) * np.tanh(v["c"])


def run_case(lib: ctypes.CDLL, i: int, c: Case, vl: int, at_end: bool, nt: int) -> bytes:
    rng = np.random.default_rng(SEED + i)
    n, f32, gates = c.hidden, np.float32, GATES[c.kind]
    xp = rng.standard_normal((c.steps, c.batch, gates * n), f32)
    r = rng.standard_normal((gates * n, n), f32) / f32(np.sqrt(n))
    v = {"h": np.zeros((c.batch, n)), "c": rng.standard_normal((c.batch, n), f32)}
    v |= {"bias": rng.standard_normal(n, f32), "peep": rng.standard_normal((3, n), f32)}
    if c.h0:
        v["h"] = rng.standard_normal((c.batch, n), f32)
    packed = packing.pack_gru(r, c.reset_after, vl) if c.kind == "gru" else packing.pack_recurrent(r, gates, vl)
    z = np.full(max(1, tiles.rnn_scratch(c.desc(), c.kind == "gru")), np.nan, f32)
    y, state = np.full((c.steps, c.batch, n), 7e7, f32), np.full((c.batch, n), 7e7, f32)
    arrays = (xp, packed, v["peep"], v["bias"], v["h"].astype(f32), y, state, v["c"], z)
    g = [harness.Guarded(a, at_end) for a in arrays]
    for tid in range(nt):
        getattr(lib, f"run{i}")(*(a.pointer for a in g), tid, nt)
    want = np.zeros((c.steps, c.batch, n))
    for t in range(c.steps)[:: -1 if c.reverse else 1]:
        step(c, xp[t].astype(np.float64), r.astype(np.float64), v, v["h"])
        want[t] = v["h"]
    pairs = [(g[5].array, want), (g[6].array, v["h"])]
    pairs += [(g[7].array, v["c"])] if c.kind == "lstm" else []
    for got, exact in pairs:
        assert np.abs(got - exact).max() < 1e-5, f"vl {vl} {c}: {np.abs(got - exact).max()}"
    assert all(a.canaries_intact() for a in g), f"vl {vl} {c}: wrote outside"
    return g[5].array.tobytes() + g[6].array.tobytes()


@pytest.mark.parametrize("vl", [16, 8, 4])
def test_rnn(vl: int, tmp_path: Path) -> None:
    if not harness.cpu_has(vl):
        pytest.skip(f"this CPU has no vectors of {vl} floats")
    lib = harness.compile_shared(source(vl), tmp_path, vl)
    for i, c in enumerate(cases(vl)):
        one = run_case(lib, i, c, vl, True, 1)
        for nt in (2, 3):
            many = run_case(lib, i, c, vl, nt == 2, nt)
            assert one == many, f"vl {vl} {c}: differs with {nt} threads"
