"""A backend for the model zoo's checker: every example through every LTO mode and thread count.

    PYTHONPATH=tools .venv/bin/python ../shared/models/check_zoo.py ../shared/models zoo_adapter:run NAME...

`run` builds `none`, `thin` and `full`, each for one and for two threads, and insists that all six give
the same bits; `run_none`, `run_thin` and `run_full` are single-threaded builds of one mode.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import monobloc

MODES = ("none", "thin", "full")


def _once(path: str, feeds: dict[str, np.ndarray], lto: str, threads: int) -> dict[str, np.ndarray]:
    shapes = {name: x.shape for name, x in feeds.items()}
    m = monobloc.compile(path, shape=shapes, lto=lto, threads=threads)
    try:
        return m.run(feeds)
    finally:
        m.stop()


def run(path: str, meta: dict[str, Any], feeds: dict[str, np.ndarray], steps: int) -> dict[str, np.ndarray]:
    first: dict[str, np.ndarray] | None = None
    for lto in MODES:
        for threads in (1, 2):
            got = _once(path, feeds, lto, threads)
            if first is None:
                first = got
            for name, y in got.items():
                same = y.tobytes() == first[name].tobytes()
                assert same, f"{name}: --lto {lto} with {threads} threads gives other bits than none with 1"
    assert first is not None
    return first


def run_none(path: str, meta: dict[str, Any], feeds: dict[str, np.ndarray], steps: int) -> dict[str, np.ndarray]:
    return _once(path, feeds, "none", 1)


def run_thin(path: str, meta: dict[str, Any], feeds: dict[str, np.ndarray], steps: int) -> dict[str, np.ndarray]:
    return _once(path, feeds, "thin", 1)


def run_full(path: str, meta: dict[str, Any], feeds: dict[str, np.ndarray], steps: int) -> dict[str, np.ndarray]:
    return _once(path, feeds, "full", 1)
