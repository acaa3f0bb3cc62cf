"""What all tests share: the models that lie beside the repository, and a cache that outlives a run."""

from __future__ import annotations

import os
import sys
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from monobloc.cache import Cache, default_root, key
from monobloc.link import image_cache
from monobloc.link.objects import Module
from monobloc.link.request import Request

ROOT = Path(__file__).resolve().parents[1]
CACHE_BYTES = 2 << 30
SHARED_CACHE = default_root(os.environ).parent / "monobloc-tests"


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "slow: takes more than ten seconds on two cores")


def generators(module: ModuleType) -> list[np.random.Generator]:
    """Those a module draws from: its own `RNG` and those of the functions it imports"""
    spaces = [vars(module), *(getattr(f, "__globals__", {}) for f in vars(module).values())]
    found = {id(g): g for space in spaces if isinstance(g := space.get("RNG"), np.random.Generator)}
    return list(found.values())


@pytest.fixture(autouse=True)
def own_numbers(request: pytest.FixtureRequest) -> None:
    """A test's random numbers depend on its name alone, not on which tests ran before it in the same process."""
    seed = zlib.crc32(request.node.nodeid.encode())
    for generator in generators(request.module):
        generator.bit_generator.state = np.random.default_rng(seed).bit_generator.state
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(seed)


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
    Cache(SHARED_CACHE, CACHE_BYTES).collect()
    return SHARED_CACHE


@pytest.fixture(scope="session", autouse=True)
def own_images() -> Iterator[None]:
    """Whole images of an earlier run are not taken: a test would see no link, and nothing of its programs."""
    request_key, run = image_cache.request_key, os.urandom(8)

    def of_this_run(modules: Sequence[Module], r: Request) -> str:
        k = request_key(modules, r)
        return key(image=k, run=run) if k and r.cache is not None and r.cache.root == SHARED_CACHE else k

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(image_cache, "request_key", of_this_run)
        yield
