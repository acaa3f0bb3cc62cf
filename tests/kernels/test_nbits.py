"""mb/nbits.h and mb/nbits_panel.h against the operators' reference, on guarded memory."""

from __future__ import annotations

import ctypes
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from monobloc.ir.graph import Graph
from monobloc.ir.types import DType, TensorType
from monobloc.ops import Case, OpDef, registry
from tests.kernels import harness

SEED = 41
OPS = [registry()[name] for name in ("BlockProduct", "ByteBlockProduct")]
VNNI = [(16, ("-mavx512vnni",), "avx512_vnni"), (8, ("-mavxvnni",), "avx_vnni")]
MACHINES = [*VNNI, (16, (), ""), (8, (), ""), (4, (), "")]


def all_cases() -> list[tuple[OpDef, Case]]:
    print(f"seed {SEED}")
    return [(op, c) for op in OPS for c in op.cases(np.random.default_rng(SEED))]


class Asked:
    """What a routine asks for: operands by name, scratch behind all"""

    def __init__(self, names: dict[Any, str], vl: int, threads: int) -> None:
        self.names, self.threads, self.size, self.text = names, threads, 0, ""
        self.target = SimpleNamespace(f32_lanes=vl)

    def ptr(self, v: Any) -> str:
        return self.names[v]

    def scratch(self, nbytes: int, each: bool = False) -> str:
        self.size = nbytes * (self.threads if each else 1)
        return "own"

    def kernel(self, header: str, text: str) -> str:
        self.text = text
        return "KERNEL"


def function(i: int, op: OpDef, c: Case, vl: int, threads: int) -> tuple[str, int]:
    """C of one case, as the operator writes it, and its scratch"""
    g = Graph("g")
    ins = [None if x is None else g.add_input(f"x{k}", TensorType(DType.of(x.dtype), x.shape))
           for k, x in enumerate(c.inputs)]
    n = g.make(op.name, ins, op.infer(ins, c.attrs), c.attrs, name="n")
    names = {v: f"(const {v.dtype.c} *)at[{k}]" for k, v in enumerate(ins) if v is not None}
    asked = Asked(names | {n.outputs[0]: "y"}, vl, threads)
    body = op.routine(n, asked)  # type: ignore[attr-defined]
    head = f"void run{i}(const void *const *at, float *y, char *own, int tid, int nt)"
    text = f"{asked.text}\n{head} {{ (void)own, (void)nt, (void)tid; {body} }}"
    return re.sub(r"\bKERNEL", f"k{i}", text), asked.size


def run(f: Any, c: Case, size: int, want: np.ndarray, at_end: bool, nt: int, what: str) -> np.ndarray:
    ins = [None if x is None else harness.Guarded(np.asarray(x), at_end) for x in c.inputs]
    y = harness.Guarded(np.full(want.shape, np.nan, np.float32), at_end)
    own = harness.Guarded(np.full(size, 0x5A, np.uint8), True)
    at = (ctypes.c_void_p * len(ins))(*(None if g is None else g.array.ctypes.data for g in ins))
    for tid in range(nt):
        f(at, y.pointer, own.pointer, tid, nt)
    assert all(g.canaries_intact() for g in (*filter(None, ins), y, own)), what
    return y.array.copy()


@pytest.mark.parametrize(("vl", "extra", "flag"), MACHINES)
def test_nbits(vl: int, extra: tuple[str, ...], flag: str, tmp_path: Path) -> None:
    if not harness.cpu_has(vl) or (flag and flag not in Path("/proc/cpuinfo").read_text().split()):
        pytest.skip(f"this CPU has no {flag or f'vectors of {vl} floats'}")
    cases = all_cases()
    made = [function(i, op, c, vl, 2) for i, (op, c) in enumerate(cases)]
    text = '#include "mb/nbits_panel.h"\n' + "\n".join(t for t, _ in made)
    lib = harness.compile_shared(text, tmp_path, vl, extra)
    for i, ((op, c), (_, size)) in enumerate(zip(cases, made, strict=True)):
        want, f, what = op.run(c.attrs, c.inputs, 1)[0], getattr(lib, f"run{i}"), f"{op.name} {c.name} vl {vl}"
        one = run(f, c, size, want, True, 1, what)
        np.testing.assert_allclose(one, want, rtol=1e-4, atol=1e-4, err_msg=what)
        np.testing.assert_array_equal(run(f, c, size, want, False, 2, what), one, err_msg=f"{what}: threads")
