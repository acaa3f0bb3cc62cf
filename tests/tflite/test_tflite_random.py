"""Single operators with random attributes, sizes and scales, against LiteRT where it is installed: every bit."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest
from tfl_trial import KINDS, some, trial

from monobloc.options import Options

SEED = 2031
COUNT = 3 * len(KINDS)


@pytest.mark.skipif(find_spec("ai_edge_litert") is None, reason="LiteRT is not installed: pip install ai-edge-litert")
def test_every_bit_of_random_operators(tmp_path: Path, cache: Path) -> None:
    print(f"seed {SEED}")
    cases = some(SEED, COUNT)
    found = trial(cases, tmp_path, Options(lto="none", cache=cache))
    assert found.compared > len(cases) * 3 // 4, list(found.unknown.items())[:3]
    assert not found.wrong
    assert not found.refused


def test_random_operators_are_the_same_every_time() -> None:
    assert [c.model()[0] for c in some(5, 40)] == [c.model()[0] for c in some(5, 40)]
