"""A backend for the model zoo's checker: every example through every LTO mode and thread count.

    PYTHONPATH=tools .venv/bin/python ../shared/models/check_zoo.py ../shared/models zoo_adapter:run NAME...

`run` builds `none`, `thin` and `full`, each for one and for two threads, and insists that all six give
the same bits; `run_none`, `run_thin` and `run_full` are single-threaded builds of one mode.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import monobloc
from monobloc.frontend.describe import describe
from monobloc.frontend.tflite.schema import read_model

MODES = ("none", "thin", "full")
BOUND = {"silero_vad": ("sr",)}  # the rate decides which half of the model runs, and each half takes other sizes


def _stepped(m: Any, path: str, feeds: dict[str, np.ndarray], steps: int) -> dict[str, np.ndarray]:
    """A TFLite model under its tensors' own names, which the zoo's files have; step by step where it keeps state."""
    main = read_model(path).main
    ins, outs = ([main.tensors[t].name for t in side] for side in (main.inputs, main.outputs))
    if set(feeds) == {str(k) for k in range(len(ins))}:
        ins, outs = ([str(k) for k in range(len(side))] for side in (ins, outs))
    made = []
    for step in range(max(steps, 1)):
        given = [feeds[name][step] if steps else feeds[name] for name in ins]
        found = m.run({s.name: x.reshape(s.shape) for s, x in zip(m.inputs, given, strict=True)})
        made.append([found[s.name].copy() for s in m.outputs])
    return {name: np.stack([y[k] for y in made]) if steps else made[0][k] for k, name in enumerate(outs)}


def _program(m: Any, feeds: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """A PyTorch program, whose inputs and outputs the zoo's files number"""
    got = m.run({s.name: feeds[str(k)] for k, s in enumerate(m.inputs)})
    return {str(k): got[s.name] for k, s in enumerate(m.outputs)}


def _alike(path: str, meta: dict[str, Any], feeds: dict[str, np.ndarray]) -> list[dict[str, Any]]:
    """The examples that one image is for: those of the same bound values."""
    bound = BOUND.get(meta["name"], ())
    return [e for e in meta["examples"]
            if all(np.array_equal(np.load(Path(path).parent / e["npz"])[f"in_{n}"], feeds[n]) for n in bound)]


def _sizes(path: str, examples: Sequence[dict[str, Any]], feeds: dict[str, np.ndarray]) -> dict[str, Any]:
    """One image for all examples: axes that have other sizes in another example are dimensions of the run."""
    called = {str(k): p.name for k, p in enumerate(describe(path).inputs)} if path.endswith(".pt2") else {}
    shapes: dict[str, list[int | str]] = {name: list(x.shape) for name, x in feeds.items()}
    names: dict[tuple[int, ...], str] = {}
    for name, shape in shapes.items():
        for axis in range(len(shape)):
            ports = [e["inputs"][int(name)] if called else e["inputs"][name] for e in examples]
            met = tuple(p["shape"][axis] for p in ports)
            if len(set(met)) > 1:
                shape[axis] = names.setdefault(met, f"s{len(names)}")
    return {"shape": {called.get(k, k): v for k, v in shapes.items()}, "dim": {n: met for met, n in names.items()}}


def _once(path: str, meta: dict[str, Any], feeds: dict[str, np.ndarray], lto: str, threads: int,
          steps: int = 0) -> dict[str, np.ndarray]:
    tflite = path.endswith(".tflite")
    bind = {name: feeds[name] for name in BOUND.get(meta["name"], ())}
    sizes = {} if tflite else _sizes(path, _alike(path, meta, feeds), feeds)
    m = monobloc.compile(path, lto=lto, threads=threads, bind=bind, **sizes)
    feeds = {name: x for name, x in feeds.items() if name not in bind}
    try:
        if path.endswith(".pt2"):
            return _program(m, feeds)
        return _stepped(m, path, feeds, steps) if tflite else m.run(feeds)
    finally:
        m.stop()


def run(path: str, meta: dict[str, Any], feeds: dict[str, np.ndarray], steps: int) -> dict[str, np.ndarray]:
    first: dict[str, np.ndarray] | None = None
    for lto in MODES:
        for threads in (1, 2):
            got = _once(path, meta, feeds, lto, threads, steps)
            if first is None:
                first = got
            for name, y in got.items():
                same = y.tobytes() == first[name].tobytes()
                assert same, f"{name}: --lto {lto} with {threads} threads gives other bits than none with 1"
    assert first is not None
    return first


def run_none(path: str, meta: dict[str, Any], feeds: dict[str, np.ndarray], steps: int) -> dict[str, np.ndarray]:
    return _once(path, meta, feeds, "none", 1, steps)


def run_thin(path: str, meta: dict[str, Any], feeds: dict[str, np.ndarray], steps: int) -> dict[str, np.ndarray]:
    return _once(path, meta, feeds, "thin", 1, steps)


def run_full(path: str, meta: dict[str, Any], feeds: dict[str, np.ndarray], steps: int) -> dict[str, np.ndarray]:
    return _once(path, meta, feeds, "full", 1, steps)
