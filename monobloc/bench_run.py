"""How fast is it? Contenders take turns, so that whatever slows the machine slows all of them.

Turns are short bursts; each call is timed; the first of a burst, which finds the caches full of the
other's data, counts as any other. Both sides have inputs and outputs bound before the clock starts.
"""

from __future__ import annotations

import ctypes
import re
import statistics
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from monobloc.codegen.lower import Lowered
from monobloc.errors import ModelError, UnsupportedError
from monobloc.loader import CompiledModel
from monobloc.oracles import own_oracle
from monobloc.run_image import Executable, call
from monobloc.verify_run import ort_session

BURST = 0.03  # seconds
OURS = "monobloc"
PEERS = ("onnxruntime", "openvino")
REST = 0.002  # between turns with threads: workers of the other side spin for a while


@dataclass(frozen=True)
class Timing:
    """Seconds of one contender's runs"""

    name: str
    threads: int
    first: float
    least: float
    median: float
    p90: float
    p99: float
    most: float
    runs: int


@dataclass(frozen=True)
class Contender:
    name: str
    threads: int
    run: Callable[[], Any]


# -- contenders ---------------------------------------------------------------------------------------
def ours(model: CompiledModel, feeds: Mapping[str, np.ndarray], threads: int) -> Contender:
    model.set_threads(threads)
    return Contender(OURS, threads, _runner(model, feeds))


def _runner(model: CompiledModel, feeds: Mapping[str, np.ndarray]) -> Callable[[], Any]:
    """Inputs lie in the arena, which is never written over (contract of the C interface)."""
    model.write(feeds)
    run_at, ram = model._info.run_at, model._ram.ctypes.data  # noqa: SLF001

    def run() -> None:
        status = run_at(ram)
        if status:
            raise ModelError(f"the run ends with error {status}", hints=["give real data with `--input`"])

    return run


def onnxruntime(model: Path, feeds: Mapping[str, np.ndarray], threads: int) -> Contender:
    session = ort_session(model, threads)
    known = {i.name: np.ascontiguousarray(feeds[i.name]) for i in session.get_inputs() if i.name in feeds}
    try:
        session.run(None, known)
    except Exception as e:
        raise UnsupportedError(f"onnxruntime fails: {str(e).strip().splitlines()[0][:300]}") from None
    return Contender("onnxruntime", threads, _bound_run(session, known) or (lambda: session.run(None, known)))


def _bound_run(session: Any, feeds: Mapping[str, np.ndarray]) -> Callable[[], Any] | None:
    """A run that copies nothing; None where the model's declared output shapes are stale: onnxruntime gives such
    outputs once, but refuses to write into them again."""
    binding = session.io_binding()
    for name, value in feeds.items():
        binding.bind_cpu_input(name, value)
    for o in session.get_outputs():
        binding.bind_output(o.name)
    try:
        for _ in range(2):
            session.run_with_iobinding(binding)
    except Exception:
        return None
    return lambda: session.run_with_iobinding(binding)


def openvino(model: Path, feeds: Mapping[str, np.ndarray], threads: int) -> Contender:
    try:
        import openvino as ov
    except ImportError:
        raise ModelError("openvino is not installed", hints=["pip install openvino"]) from None
    core = ov.Core()
    try:
        net = core.read_model(str(model))
        net.reshape({k: list(v.shape) for k, v in feeds.items()})
        limits = {"INFERENCE_NUM_THREADS": threads, "PERFORMANCE_HINT": "LATENCY", "INFERENCE_PRECISION_HINT": "f32"}
        request = core.compile_model(net, "CPU", limits).create_infer_request()
        request.infer(dict(feeds))
    except RuntimeError as e:
        raise UnsupportedError(f"openvino refuses the model: {str(e).strip().splitlines()[0][:300]}") from None
    return Contender("openvino", threads, request.infer)


def peer(name: str, model: Path, feeds: Mapping[str, np.ndarray], threads: int) -> Contender:
    """A peer by name; of a format of another framework, that."""
    own = own_oracle(model)
    if own is not None:
        return Contender(own.NAME, threads, own.timed(model, feeds, threads))
    return {"onnxruntime": onnxruntime, "openvino": openvino}[name](model, feeds, threads)


# -- timing -------------------------------------------------------------------------------------------
def interleave(contenders: Sequence[Contender], seconds: float) -> list[Timing]:
    """Bursts in turn until each contender had its seconds."""
    samples: list[list[float]] = [[_once(c)] for c in contenders]
    spent = [s[0] for s in samples]
    rest = REST if any(c.threads > 1 for c in contenders) else 0.0
    while min(spent) < seconds or min(map(len, samples)) < 4:
        for k, c in enumerate(contenders):
            burst = _burst(c)
            samples[k] += burst
            spent[k] += sum(burst)
            time.sleep(rest)
    return [_timing(c, s) for c, s in zip(contenders, samples, strict=True)]


def _once(c: Contender) -> float:
    start = time.perf_counter()
    c.run()
    return time.perf_counter() - start


def _burst(c: Contender) -> list[float]:
    out: list[float] = []
    end = time.perf_counter() + BURST
    clock, run = time.perf_counter, c.run
    while True:
        start = clock()
        run()
        now = clock()
        out.append(now - start)
        if now >= end:
            return out


def _timing(c: Contender, samples: list[float]) -> Timing:
    steady = np.sort(np.asarray(samples[1:] or samples))
    p90, p99 = (float(np.quantile(steady, q)) for q in (0.9, 0.99))
    return Timing(c.name, c.threads, samples[0], float(steady[0]), statistics.median(steady), p90, p99,
                  float(steady[-1]), len(samples))


# -- executables --------------------------------------------------------------------------------------
_TIMES = re.compile(r"time us: first ([\d.]+) min ([\d.]+) median ([\d.]+) p99 ([\d.]+) runs (\d+)")


def time_executable(image: Executable, seconds: float, threads: int) -> Timing:
    """By the program's own clock; data are random."""
    few = _run_timed(image, 3, threads)
    runs = max(10, min(1_000_000, int(seconds / max(few.median, 1e-7))))
    return _run_timed(image, runs, threads)


def _run_timed(image: Executable, runs: int, threads: int) -> Timing:
    words = ["--repeat", str(runs), "--time", "--seed", "0", "--threads", str(threads), "--model", image.name]
    m = _TIMES.search(call(image.command(*words)))
    if m is None:
        raise ModelError(f"`{image.path}` tells no times")
    first, least, median, p99 = (float(m[k]) / 1e6 for k in range(1, 5))
    return Timing(OURS, threads, first, least, median, p99, p99, p99, int(m[5]))


def cold_start(image: Executable, tries: int = 11) -> float:
    """Median seconds from starting the process to its end, one inference in it."""
    found = []
    for _ in range(tries):
        start = time.perf_counter()
        subprocess.run(image.command("--seed", "0"), capture_output=True, check=True)
        found.append(time.perf_counter() - start)
    return statistics.median(found)


# -- layers -------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class LayerTime:
    name: str
    ops: str
    type: str
    seconds: float
    share: float


def layer_times(model: CompiledModel, low: Lowered, run: Callable[[], Any], seconds: float) -> list[LayerTime]:
    """Time of every layer of an image built with clocks (`Options.profile`), in the order they run."""
    run()
    counters = [_ticks(model, part, len(names)) for part, names in zip(low.unit.parts, low.unit.layers, strict=True)]
    before = [list(c) for c in counters]
    start, runs = time.perf_counter(), 0
    while runs < 3 or time.perf_counter() - start < seconds:
        run()
        runs += 1
    total = (time.perf_counter() - start) / runs
    ticks = [a - b for c, old in zip(counters, before, strict=True) for a, b in zip(c, old, strict=True)]
    names = [n for part in low.unit.layers for n in part]
    nodes = {n.name: n for part in low.graph.tree() for n in part.nodes}
    whole = sum(ticks) or 1
    return [LayerTime(n, _ops(nodes[n]), str(nodes[n].outputs[0].type), total * t / whole, t / whole)
            for n, t in zip(names, ticks, strict=True)]


def _ticks(model: CompiledModel, part: str, n: int) -> Any:
    return (ctypes.c_ulonglong * n).in_dll(model._lib, f"{part}_ticks")  # noqa: SLF001


def _ops(node: Any) -> str:
    return " + ".join(m.op for m in (node.body.nodes if node.body is not None else [node]))
