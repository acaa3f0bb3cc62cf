"""Single operators against what LiteRT's reference kernels answered: every bit of every integer.

Each stands alone in the reference evaluator, so that a failure has a name; all of a family are compiled into one image.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tfl_cases
from tfl_single import Case, compiled, graph_of, wrong

from monobloc.ir.interp import interpret


@pytest.mark.parametrize("case", tfl_cases.every(), ids=lambda c: c.name.replace(" ", "_"))
def test_every_bit(case: Case) -> None:
    g, feeds = graph_of([case])
    kept = {v.name: np.zeros(v.shape, v.dtype.numpy) for v in g.inputs if v.state}
    for step, one in enumerate(feeds):
        got = interpret(g, {**kept, **one})
        kept = {v.name: got[v.state] for v in g.inputs if v.state}
        found = [w for k in range(len(case.outs)) if (w := wrong(case, step, k, got[f"c0.y{k}"]))]
        assert not found, found


@pytest.mark.parametrize("family", tfl_cases.FAMILIES)
def test_compiled(family: str, tmp_path: Path, cache: Path) -> None:
    found = compiled(list(tfl_cases.FAMILIES[family].every()), tmp_path, cache)
    assert not found, "\n".join(found)
