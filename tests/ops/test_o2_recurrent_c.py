"""mb/recurrent.h: the C of the recurrent loops, compiled for every lane count, against the reference.

The function body is what the operator's `routine` writes. Every buffer is exactly as large as its
tensor and lies against an inaccessible page.
"""

from __future__ import annotations

import ctypes
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from monobloc.ir.graph import Graph, Node, Value
from monobloc.ir.types import DType, TensorType
from monobloc.ops import Case, opdef
from monobloc.ops.recurrent import ACTIVATIONS

sys.path.insert(0, str(Path(__file__).parents[1] / "kernels"))
from harness import Guarded, compile_shared, cpu_has

SEED = 5
print(f"seed {SEED}")
OPS = ("LstmLoop", "GruLoop", "RnnLoop")


@dataclass
class Context:
    """Pointers are entries of the argument array; scratch is the last."""

    place: dict[Value, int]
    in_place: bool = False
    bytes: int = 0
    lines: list[str] = field(default_factory=list)

    def spent(self, v: Value) -> bool:
        return self.in_place

    def ptr(self, v: Value) -> str:
        return f"(({v.dtype.c} *)p[{self.place[v]}])"

    def scratch(self, nbytes: int) -> str:
        self.bytes = nbytes
        return f"p[{len(self.place)}]"


def node_of(op: str, case: Case) -> Node:
    g = Graph("case")
    ins = [
        None if x is None else g.add_input(f"x{k}", TensorType(DType.of(x.dtype), x.shape))
        for k, x in enumerate(case.inputs)
    ]
    return g.make(op, ins, opdef(op).infer(ins, case.attrs), case.attrs)


def wider(case: Case) -> Case:
    """The same case in double"""
    ins = [x.astype(np.float64) if x is not None and x.dtype == np.float32 else x for x in case.inputs]
    return Case(tuple(ins), case.attrs, case.name + "_f64")


def cases() -> list[tuple[str, Case]]:
    rng = np.random.default_rng(SEED)
    out = [(op, c) for op in OPS for c in opdef(op).cases(rng)]
    gru = [c for op, c in out if op == "GruLoop"]
    both = {0, 1} <= {c.attrs["linear_before_reset"] for c in gru}
    assert both, "take another seed: one of the two forms of GRU is missing"
    rnn = next(c for op, c in out if op == "RnnLoop" and c.attrs["direction"] == "bidirectional")
    for k in range(0, len(ACTIVATIONS), 2):
        pair = list(ACTIVATIONS)[-2:] if k + 1 == len(ACTIVATIONS) else list(ACTIVATIONS)[k : k + 2]
        attrs = rnn.attrs | {"activations": pair, "alpha": [0.7] * 2, "beta": [0.2] * 2}
        out.append(("RnnLoop", Case(rnn.inputs, attrs, "+".join(pair))))
    return out + [(op, wider(c)) for op, c in out[::6]]


def source(made: list[tuple[Node, Context, str]]) -> str:
    text = ['#include "mb/recurrent.h"']
    for k, (_, _, body) in enumerate(made):
        text.append(f"int case{k}(char **p, int tid, int nt) {{\n{body}\n}}")
    return "\n".join(text)


@pytest.fixture(scope="module")
def made() -> list[tuple[Case, Node, Context, str]]:
    out = []
    for op, case in cases():
        for in_place in (False, True):
            n = node_of(op, case)
            c = Context({v: k for k, v in enumerate([*n.used, *n.outputs])}, in_place)
            out.append((case, n, c, opdef(op).routine(n, c)))  # type: ignore[attr-defined]
            assert (c.bytes == 0) == (in_place and op != "GruLoop")
    return out


@pytest.mark.parametrize("lanes", [16, 8, 4])
def test_loops_are_the_reference(made: list[Any], lanes: int, tmp_path: Path) -> None:
    if not cpu_has(lanes):
        pytest.skip(f"this machine cannot run code for {lanes} lanes")
    lib = compile_shared(source([m[1:] for m in made]), tmp_path, lanes)
    for k, (case, n, c, _) in enumerate(made):
        want = opdef(n).run(case.attrs, case.inputs, len(n.outputs))
        first: list[np.ndarray] = []
        for threads in (1, 2, 3):
            got = call(getattr(lib, f"case{k}"), case, n, c, threads, at_end=threads != 2)
            for y, w in zip(got, want, strict=True):
                tol = 1e-10 if y.dtype == np.float64 else 2e-5
                np.testing.assert_allclose(y, w, rtol=tol, atol=tol, err_msg=f"{n.op} {case.name} {case.attrs}")
            first = first or got
            assert all(np.array_equal(a, b) for a, b in zip(first, got, strict=True)), "threads changed a bit"


def call(fn: Any, case: Case, n: Node, c: Context, threads: int, at_end: bool) -> list[np.ndarray]:
    ins = [Guarded(np.ascontiguousarray(x), at_end) for x in case.inputs if x is not None]
    outs = [Guarded(np.full(v.shape, np.nan, v.dtype.numpy), at_end) for v in n.outputs]
    scratch = Guarded(np.full(c.bytes // 4, np.nan, np.float32), at_end)
    areas = [*ins, *outs, scratch]
    pointers = (ctypes.c_void_p * len(areas))(*[a.pointer for a in areas])
    for tid in range(threads):
        assert fn(pointers, tid, threads) == 0
    assert all(a.canaries_intact() for a in areas)
    return [o.array.copy() for o in outs]


def test_a_wrong_length_is_an_error(made: list[Any], tmp_path: Path) -> None:
    lanes = next(v for v in (8, 4) if cpu_has(v))
    case, n, c, body = next(m for m in made if m[0].inputs[2] is not None)
    lib = compile_shared(source([(n, c, body)]), tmp_path, lanes)
    for bad in (-1, case.inputs[0].shape[0] + 1):
        ins = [*case.inputs]
        ins[2] = np.full_like(ins[2], bad)
        areas = [Guarded(np.ascontiguousarray(x), True) for x in ins if x is not None]
        areas += [Guarded(np.zeros(v.shape, v.dtype.numpy), True) for v in n.outputs]
        areas.append(Guarded(np.zeros(c.bytes // 4, np.float32), True))
        pointers = (ctypes.c_void_p * len(areas))(*[a.pointer for a in areas])
        assert lib.case0(pointers, 0, 1) == 2
