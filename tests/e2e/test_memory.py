"""Arenas beside the smallest bound over orders, for every float model of the zoo without control flow."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench"))
import memory  # noqa: E402


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("name", memory.MODELS)
def test_arenas_are_near_the_bound(name: str, threads: int, shared: Path) -> None:
    path = shared / "models" / f"{name}.onnx"
    row = memory.measure(path, memory.example_shapes(name), memory.TARGET, memory.CPU, threads, seconds=2)
    assert row.bound <= row.arena <= memory.LIMIT * row.bound, row
