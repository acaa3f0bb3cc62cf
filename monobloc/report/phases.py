"""How long a build took and how much memory, phase by phase.

The only part of a report that differs from run to run. Phases begin where the progress line says so;
memory is what this process and the tools it started held at most, sampled while they run, since the system
reports a finished child's peak together with that of whoever started it.
"""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

_EVERY = 0.02  # seconds between samples
_PHASES = {"reading": "reading models", "finding": "finding live outputs", "optimizing": "optimizing models",
           "linking": "linking"}
_STATUS = re.compile(rb"^(VmHWM|VmRSS):\s+(\d+) kB", re.MULTILINE)


@dataclass
class _Phase:
    name: str
    seconds: float = 0.0
    own: int = 0
    tools: int = 0


@dataclass
class Phases:
    """A progress callback that takes the time of what it is told; a context that samples memory."""

    tell: Callable[[str], None]
    clock: Callable[[], float] = time.perf_counter
    _phases: list[_Phase] = field(default_factory=list)
    _started: float = 0.0
    _stop: threading.Event = field(default_factory=threading.Event)
    _sampler: threading.Thread | None = None

    def __call__(self, text: str) -> None:
        self.tell(text)
        if (name := _phase_of(text)) is not None:
            self._close()
            self._phases.append(_Phase(name))

    def __enter__(self) -> Phases:
        self._started = self.clock()
        self._phases.append(_Phase("starting"))
        if Path("/proc/self/status").exists():
            self._sampler = threading.Thread(target=self._sample, daemon=True)
            self._sampler.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, e: BaseException | None, at: TracebackType | None) -> None:
        self._close()
        self._stop.set()
        if self._sampler is not None:
            self._sampler.join()

    def _close(self) -> None:
        now = self.clock()
        if self._phases:
            self._phases[-1].seconds += now - self._started
            _note_memory(self._phases[-1])
        self._started = now

    def _sample(self) -> None:
        while not self._stop.wait(_EVERY):
            if self._phases:
                _note_memory(self._phases[-1])

    def facts(self) -> dict[str, Any]:
        """Phases in the order they first came; times of one name are added, of memory the peak counts."""
        merged: dict[str, _Phase] = {}
        for p in self._phases:
            met = merged.setdefault(p.name, _Phase(p.name))
            met.seconds += p.seconds
            met.own, met.tools = max(met.own, p.own), max(met.tools, p.tools)
        rows = [{"phase": p.name, "seconds": round(p.seconds, 3), "own_memory": p.own, "tools_memory": p.tools}
                for p in merged.values()]
        return {"seconds": round(sum(p.seconds for p in merged.values()), 3), "phases": rows}


def _phase_of(text: str) -> str | None:
    """`compiling app.c` and `compiling dsp.c` are one phase; what does not begin one is said of the phase at hand."""
    first, _, rest = text.partition(" ")
    if first == "compiling":
        return "compiling sources" if rest else "compiling models"
    return _PHASES.get(first)


def _note_memory(phase: _Phase) -> None:
    phase.own = max(phase.own, _memory("self", b"VmRSS"))
    phase.tools = max(phase.tools, sum(_memory(pid, b"VmHWM") for pid in _children()))


def _children() -> list[str]:
    """Processes that this one started and that still run."""
    found = []
    for task in _listed("/proc/self/task"):
        try:
            found += Path(f"/proc/self/task/{task}/children").read_text().split()
        except OSError:
            continue
    return found


def _listed(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


def _memory(pid: str, which: bytes) -> int:
    try:
        found = dict(_STATUS.findall(Path(f"/proc/{pid}/status").read_bytes()))
    except OSError:
        return 0
    return int(found.get(which, 0)) * 1024
