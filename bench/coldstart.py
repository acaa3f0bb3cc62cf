"""Cold start: from the start of the process to its first output, beside a steady inference.

    python bench/coldstart.py [MODEL.onnx] [--starts 40] [--repeat 1000]

Without a model: MobileNetV2 with seeded weights (needs torch and the architectures beside the
repository), else a model of the zoo, else the bundled one. Weights are in the page cache.

A busy machine only ever adds to a time, so each number is the least over many processes; CPU time is
printed too, which other processes disturb less. Exit status 1 if a limit is missed.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from monobloc.driver import build, user_cache
from monobloc.options import Options

ROOT = Path(__file__).resolve().parents[1]
SHARED = ROOT.parent / "shared"
EXTRA_MS, RATIO = 10.0, 1.1  # first output beyond one steady inference; first over median with --pretouch


@dataclass(frozen=True)
class Start:
    """One process: milliseconds and page faults."""

    wall: float
    cpu: float
    faults: int
    text: str

    def times(self) -> dict[str, float]:
        found = re.search(r"time us: (.*)", self.text)
        assert found, self.text
        words = found[1].split()
        return {k: float(v) / 1000 for k, v in zip(words[::2], words[1::2], strict=True) if k != "runs"}


def start(exe: Path, *args: str) -> Start:
    with tempfile.TemporaryFile() as out:
        began = time.perf_counter()
        actions = [(os.POSIX_SPAWN_DUP2, out.fileno(), 1)]
        pid = os.posix_spawn(exe, [str(exe), "--seed", "1", *args], {}, file_actions=actions)
        _, status, used = os.wait4(pid, 0)
        wall = time.perf_counter() - began
        if status:
            sys.exit(f"error: {exe} ended with status {status}")
        out.seek(0)
        cpu = used.ru_utime + used.ru_stime
        return Start(wall * 1000, cpu * 1000, used.ru_minflt + used.ru_majflt, out.read().decode())


def model(folder: Path) -> Path:
    """The model to measure when none is given."""
    made = folder / "mobilenetv2.onnx"
    code = (
        f"import sys, torch; sys.path.insert(0, {str(SHARED / 'prototypes' / 'models')!r}); import archs\n"
        f"m, x = archs.build('mobilenetv2')\n"
        f"torch.onnx.export(m, (x,), {str(made)!r}, opset_version=17, dynamo=False)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    if done.returncode == 0 and made.is_file():
        return made
    for other in (SHARED / "models" / "ultraface_rfb_320.onnx", ROOT / "examples" / "mnist8.onnx"):
        if other.is_file():
            return other
    sys.exit("error: no model to measure")


def main() -> int:
    p = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    p.add_argument("model", nargs="?", type=Path)
    p.add_argument("--starts", type=int, default=40)
    p.add_argument("--repeat", type=int, default=1000)
    p.add_argument("--rounds", type=int, default=5)
    a = p.parse_args()
    with tempfile.TemporaryDirectory(prefix="monobloc-") as tmp:
        exe = Path(tmp) / "model"
        build([a.model or model(Path(tmp))], exe, "exe", Options(cache=user_cache()))
        return measure(exe, a)


def measure(exe: Path, a: argparse.Namespace) -> int:
    start(exe)  # weights into the page cache
    cold: list[Start] = []
    plain: list[dict[str, float]] = []
    touched: list[dict[str, float]] = []
    for _ in range(a.rounds):  # interleaved: all see the same machine
        cold += [start(exe) for _ in range(max(1, a.starts // a.rounds))]
        plain.append(start(exe, "--time", "--repeat", str(max(2, a.repeat // a.rounds))).times())
        touched += [start(exe, "--pretouch", "--time", "--repeat", "2").times() for _ in range(a.starts // a.rounds)]
        touched.append(start(exe, "--pretouch", "--time", "--repeat", str(max(2, a.repeat // a.rounds))).times())
    steady = min(t["median"] for t in plain)
    wall, cpu = min(s.wall for s in cold), min(s.cpu for s in cold)
    first, warm = min(t["first"] for t in plain), min(t["first"] for t in touched)
    print(f"steady inference      {steady:8.2f} ms (median; least {min(t['min'] for t in plain):.2f})")
    print(f"process, whole        {wall:8.2f} ms, {wall - steady:.2f} beyond steady (limit {EXTRA_MS:g})")
    print(f"process, CPU time     {cpu:8.2f} ms")
    print(f"page faults           {min(s.faults for s in cold):8d}")
    print(f"first inference       {first:8.2f} ms")
    print(f"first, --pretouch     {warm:8.2f} ms, {warm / steady:.2f} of steady (limit {RATIO:g})")
    return int(wall - steady > EXTRA_MS or warm > RATIO * steady)


if __name__ == "__main__":
    sys.exit(main())
