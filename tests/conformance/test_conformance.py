"""ONNX's own cases through the whole compiler: one per operator, each with its recorded status.

The sample stands in `sample.txt`; all cases run with `python tools/conformance.py`, and what came out
stands in `docs/conformance.md`.
"""

from __future__ import annotations

import importlib.util
import sys
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from monobloc.cache import Cache
from monobloc.options import Options

ROOT = Path(__file__).resolve().parents[2]
BATCHES = 4


def _tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("conformance_tool", ROOT / "tools" / "conformance.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


tool = _tool()


@lru_cache(maxsize=1)
def cases() -> list[Any]:
    return tool.load_cases()  # type: ignore[no-any-return]


def test_sample_is_up_to_date() -> None:
    recorded = tool.read_sample(tool.SAMPLE)
    assert len(recorded) >= 150
    assert list(recorded) == [c.name for c in tool.sample(cases())], "run `python tools/conformance.py --sample`"


def test_nothing_recorded_is_wrong() -> None:
    wrong = {n: s for n, s in tool.read_sample(tool.SAMPLE).items() if s not in tool.GOOD}
    assert not wrong


@pytest.mark.parametrize("batch", range(BATCHES))
def test_cases_end_as_recorded(batch: int, cache: Path) -> None:
    recorded = tool.read_sample(tool.SAMPLE)
    chosen = [c for c in cases() if c.name in recorded][batch::BATCHES]
    results = tool.run_batch(chosen, Options(lto="none"), Cache(cache))
    assert len(results) == len(chosen)
    other = [r for r in results if r.status != recorded[r.name]]
    bad = [f"{r.name}: {r.status} instead of {recorded[r.name]}: {r.why}" for r in other]
    unnamed = [f"{r.name}: the refusal names no node: {r.why}" for r in results if not r.node]
    assert not bad + unnamed, "\n".join(bad + unnamed)


def test_a_wrong_answer_is_seen() -> None:
    """The comparison itself: a changed expectation is a mismatch."""
    case = next(c for c in cases() if c.name == "node/test_add")
    feeds, want = case.sets[0]
    wrong = {k: y + 1 for k, y in want.items()}
    changed = tool.Case(case.name, case.model, ((feeds, wrong),))
    (result,) = tool.run_batch([changed], Options(lto="none"), None)
    assert result.status == "mismatch"
