"""Passes never change what a graph computes, rest when they are done, and keep the text form exact."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from control_graphs import controlled
from hypothesis import given, settings
from hypothesis import strategies as st
from random_graphs import Maker, chain, from_case, operators

from monobloc.ir.interp import interpret
from monobloc.ir.strings import to_text
from monobloc.ir.text import copy_graph, parse_graph, print_graph
from monobloc.ir.verify import verify
from monobloc.link.image import link_modules
from monobloc.link.objects import Module
from monobloc.link.request import Request
from monobloc.loader import CompiledModel
from monobloc.options import Options
from monobloc.passes import PassContext, pipeline, run_passes
from monobloc.passes.canonicalize import Canonicalize
from monobloc.targets import resolve

SEED = 4711
print(f"seed {SEED}")
SEEDS = st.integers(0, 1 << 20)
Answers = dict[str, np.ndarray]


def differences(got: Answers, want: Answers, rtol: float = 1e-4) -> str:
    """Floats within a part of the output's own size, everything else exactly."""
    assert list(got) == list(want)
    bad = []
    for name, w in want.items():
        g = got[name]
        if w.dtype == "S1" and g.dtype == object:  # letters, given back as Python's strings
            w = to_text(w)
        if (g.dtype, g.shape) != (w.dtype, w.shape):
            bad.append(f"{name}: {g.dtype}{g.shape} instead of {w.dtype}{w.shape}")
            continue
        if w.dtype.kind in "biuSO":
            ok = np.array_equal(g, w)
        else:
            half = w.dtype.itemsize == 2
            finite = w[np.isfinite(w)].astype(np.float64)
            size = float(np.abs(finite).max(initial=1))
            tol = 2e-2 if half else rtol
            ok = np.allclose(g.astype(np.float64), w.astype(np.float64), tol, tol * min(size, 10), equal_nan=True)
        if not ok:
            bad.append(f"{name}: {g.ravel()[:6]} instead of {w.ravel()[:6]}")
    return "; ".join(bad)


def check_every_pass(m: Maker) -> None:
    want = interpret(m.g, m.feeds)
    g, ctx = copy_graph(m.g), PassContext(resolve())
    for p in pipeline():
        before = print_graph(g)
        changed = p.run(g, ctx)
        verify(g)
        text = print_graph(g)
        assert changed or text == before, f"{p.name} changed something and does not say so"
        assert print_graph(copy_graph(g)) == text, f"after {p.name} the text does not read back"
        if p.name == "select":
            break  # weights are packed now: only kernels read them
        wrong = differences(interpret(g, m.feeds), want)
        assert not wrong, f"{p.name}: {wrong}\n{before}\n->\n{text}"


@settings(max_examples=60, deadline=None, derandomize=True)
@given(SEEDS)
def test_passes_keep_the_meaning(seed: int) -> None:
    check_every_pass(chain(seed))


CASES = [(op, case) for op in operators() for case in op.cases(np.random.default_rng(SEED))]


@pytest.mark.parametrize("part", range(8))
def test_passes_keep_the_meaning_of_every_case(part: int) -> None:
    for k, (op, case) in list(enumerate(CASES))[part::8]:
        try:
            check_every_pass(from_case(SEED + k, op, case))
        except Exception as e:
            raise AssertionError(f"{op.name} {case.name} {case.attrs}, seed {SEED + k}: {type(e).__name__}: {e}") from e


@settings(max_examples=60, deadline=None, derandomize=True)
@given(SEEDS)
def test_canonicalize_is_idempotent(seed: int) -> None:
    g, ctx = chain(seed).g, PassContext(resolve())
    Canonicalize().run(g, ctx)
    text = print_graph(g)
    assert not Canonicalize().run(g, ctx)
    assert print_graph(g) == text


@settings(max_examples=60, deadline=None, derandomize=True)
@given(SEEDS)
def test_text_reads_back(seed: int) -> None:
    g = chain(seed).g
    table = {v.const.key: v.const for v in g.constants() if v.const is not None}
    text = print_graph(g)
    again = parse_graph(text, lambda key, _: table[key])
    verify(again)
    assert print_graph(again) == text


@settings(max_examples=30, deadline=None, derandomize=True)
@given(SEEDS)
def test_passes_are_deterministic(seed: int) -> None:
    texts = []
    for _ in range(2):
        g = chain(seed).g
        run_passes(g, PassContext(resolve()))
        texts.append(print_graph(g))
    assert texts[0] == texts[1]


@settings(max_examples=30, deadline=None, derandomize=True)
@given(SEEDS)
def test_passes_say_whether_they_changed_something(seed: int) -> None:
    """Only then is the graph verified and dumped."""
    g, ctx = chain(seed).g, PassContext(resolve())
    for p in pipeline():
        before = print_graph(g)
        if not p.run(g, ctx):
            assert print_graph(g) == before, f"{p.name} says that it changed nothing"


# -- compiled ----------------------------------------------------------------------------------------
def compiled_differs(makers: list[tuple[str, Maker]], folder: Path, o: Options) -> list[str]:
    """All graphs in one library; what each gives, run twice, beside what it means."""
    modules = [Module(copy_graph(m.g), f"m{k:03}", f"m{k:03}", label) for k, (label, m) in enumerate(makers)]
    out = folder / "batch.so"
    link_modules(modules, Request(out, "shared", o))
    bad = []
    for k, (label, m) in enumerate(makers):
        want, model = interpret(m.g, m.feeds), CompiledModel(out, k)
        for threads in (o.threads, 1):
            model.set_threads(threads)
            if wrong := differences(model.run(m.feeds), want):
                bad.append(f"{label}, {threads} threads: {wrong}\n{print_graph(m.g)}")
                break
    return bad


@pytest.mark.parametrize("part", range(3))
def test_compiled_chains(part: int, tmp_path: Path) -> None:
    makers = [(f"chain({s})", chain(s)) for s in range(SEED + 30 * part, SEED + 30 * part + 30)]
    bad = compiled_differs(makers, tmp_path, Options(lto="none", threads=2, jobs=2))
    assert not bad, "\n".join(bad)


@pytest.mark.parametrize("part", range(4))
def test_compiled_cases(part: int, tmp_path: Path) -> None:
    """Every operator's cases, fused with what stands before and behind them."""
    made = [(f"{op.name} {c.name}, seed {SEED + k}", from_case(SEED + k, op, c)) for k, (op, c) in enumerate(CASES)]
    bad = compiled_differs(made[part::4], tmp_path, Options(lto="none", threads=2, jobs=2))
    assert not bad, "\n".join(bad)


# -- control flow --------------------------------------------------------------------------------------
@settings(max_examples=25, deadline=None, derandomize=True)
@given(SEEDS)
def test_passes_keep_the_meaning_of_choices_and_loops(seed: int) -> None:
    m = controlled(seed)
    want = interpret(m.g, m.feeds)
    g = copy_graph(m.g)
    assert print_graph(g) == print_graph(m.g)
    run_passes(g, PassContext(resolve()), [p for p in pipeline() if p.name not in ("select", "share")])
    assert print_graph(copy_graph(g)) == print_graph(g)
    wrong = differences(interpret(g, m.feeds), want)
    assert not wrong, f"seed {seed}: {wrong}\n{print_graph(m.g)}"


def test_compiled_choices_and_loops(tmp_path: Path) -> None:
    makers = [(f"controlled({s})", controlled(s)) for s in range(SEED + 24, SEED + 40)]
    bad = compiled_differs(makers, tmp_path, Options(lto="none", threads=2, jobs=2))
    assert not bad, "\n".join(bad)
