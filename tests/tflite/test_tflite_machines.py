"""TFLite's integers on every level of every machine: scaling runs in vectors of another width on each."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
import tfl_cases
from tfl_single import graph_of, wrong

from monobloc.link.image import link_modules
from monobloc.link.objects import Module
from monobloc.link.request import Request
from monobloc.options import Options
from monobloc.targets import cpus, names, resolve, runs_here

PICKED = ("conv int8", "conv uint8", "depthwise int8", "product int8", "conv per channel", "ties conv int8",
          "ties depthwise uint8", "LOGISTIC int16 fine", "softmax int8", "add 1 int8")  # fmt: skip


@pytest.mark.parametrize(("target", "cpu"), [(name, cpu) for name in names() for cpu in cpus(name)])
def test_same_integers(cache: Path, tmp_path: Path, target: str, cpu: str) -> None:
    t = resolve(target, cpu)
    command = []
    if not runs_here(t):
        found = shutil.which(t.runner[0]) if t.runner else None
        if found is None:
            pytest.skip(f"no emulator for {target} (apt-get install qemu-user)")
        if t.f32_lanes == 16:
            pytest.skip("the emulator has no such vectors")
        command = [found, *t.runner[1:]]
    cases = [c for c in tfl_cases.every() if c.name in PICKED]
    assert len(cases) == len(PICKED)
    g, (feeds,) = graph_of(cases)
    exe = tmp_path / "cases"
    link_modules([Module(g, "cases", "cases")], Request(exe, "exe", Options(target=t, lto="none", cache=cache)))
    for k, x in feeds.items():
        np.save(tmp_path / f"{k}.npy", x)
    line = [*command, str(exe), *(f"{k}={tmp_path / k}.npy" for k in feeds), "-o", f"{tmp_path}/out-{{}}.npy"]
    subprocess.run(line, check=True, capture_output=True, timeout=120)
    found_wrong = [w for k, c in enumerate(cases) if (w := wrong(c, 0, 0, np.load(tmp_path / f"out-c{k}.y0.npy")))]
    assert not found_wrong
