"""Single operators against what LiteRT's reference kernels answered: every bit of every integer.

Each stands alone in the reference evaluator, so that a failure has a name; all of a family are compiled into one image.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import tfl_cases
from tfl_single import HASHES, MICRO, Case, compiled, digest, graph_of, key_of, wrong

from monobloc.errors import UnsupportedError
from monobloc.ir.interp import interpret

REFUSED = {"rsqrt int16"}  # whose fixed point of 16 bits TFLite Micro has for itself
EMPTY = {"GREATER int16"}  # TFLite Micro has no kernel for it and answers zeros


@pytest.mark.parametrize("case", tfl_cases.every(), ids=lambda c: c.name.replace(" ", "_"))
def test_every_bit(case: Case) -> None:
    g, feeds = graph_of([case])
    kept = {v.name: np.zeros(v.shape, v.dtype.numpy) for v in g.inputs if v.state}
    for step, one in enumerate(feeds):
        got = interpret(g, {**kept, **one})
        kept = {v.name: got[v.state] for v in g.inputs if v.state}
        found = [w for k in range(len(case.outs)) if (w := wrong(case, step, k, got[f"c0.y{k}"]))]
        assert not found, found


def test_every_bit_of_tflite_micro() -> None:
    """`--numerics tflm`: all that its kernels answer, and where they answer otherwise than LiteRT's"""
    answers, others = json.loads(MICRO.read_text()), json.loads(HASHES.read_text())
    bad, differ = [], set()
    for case in tfl_cases.every():
        if case.name in EMPTY or not any(case.name == key or key.startswith(f"{case.name} [") for key in answers):
            continue
        try:
            g, feeds = graph_of([case], micro=True)
        except UnsupportedError as e:
            bad += [] if case.name in REFUSED else [str(e)]
            continue
        kept = {v.name: np.zeros(v.shape, v.dtype.numpy) for v in g.inputs if v.state}
        for step, one in enumerate(feeds):
            got = interpret(g, {**kept, **one})
            kept = {v.name: got[v.state] for v in g.inputs if v.state}
            for k in range(len(case.outs)):
                key = key_of(case, step, k)
                if key in answers and digest(got[f"c0.y{k}"]) != answers[key]:
                    bad.append(key)
                differ |= {case.name} if key in others and answers.get(key, others[key]) != others[key] else set()
    assert not bad and len(differ) > 8, bad


@pytest.mark.parametrize("family", tfl_cases.FAMILIES)
def test_compiled(family: str, tmp_path: Path, cache: Path) -> None:
    found = compiled(list(tfl_cases.FAMILIES[family].every()), tmp_path, cache)
    assert not found, "\n".join(found)
