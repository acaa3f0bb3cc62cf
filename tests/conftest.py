"""What all tests share: the models that lie beside the repository, and a cache that outlives a run."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from monobloc.cache import Cache, default_root

ROOT = Path(__file__).resolve().parents[1]
CACHE_BYTES = 2 << 30


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "slow: takes more than ten seconds on two cores")


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of models and conformance data beside the repository; it is no part of it."""
    folder = ROOT.parent / "shared"
    if not (folder / "models" / "check_zoo.py").is_file():
        pytest.skip(f"no model zoo at {folder}")
    return folder


@pytest.fixture(scope="session")
def cache() -> Path:
    """One folder for all tests and all runs: what is compiled twice is compiled once.

    Keys hold the compiler's own sources, so that a change of ours is never hidden by an old entry.
    """
    root = default_root(os.environ).parent / "monobloc-tests"
    Cache(root, CACHE_BYTES).collect()
    return root
