"""A fuzzer of TFLite operators: random single ones, every bit against LiteRT's reference kernels.

    python tools/fuzz_tflite.py [--seed N] [--seconds 600] [--batch 60] [--lto none]

Needs LiteRT (`pip install ai-edge-litert`), which is asked in a child process. Cases are made by
tests/tflite/tfl_random*.py; a seed gives the same ones as long as these stay as they are. The exit code is 1 if any
answer differs, or if an operator that LiteRT takes is refused by anything but a named error.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "tflite")]

from tfl_trial import some, trial  # noqa: E402

from monobloc.options import Options  # noqa: E402


def arguments() -> argparse.Namespace:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--seed", type=int, default=0, help="the first one")
    p.add_argument("--seconds", type=float, default=600)
    p.add_argument("--batch", type=int, default=60, help="operators per image")
    p.add_argument("--lto", default="none")
    return p.parse_args()


def main() -> int:
    a = arguments()
    end, seed, tried, bad = time.monotonic() + a.seconds, a.seed, 0, 0
    refused = Counter[str]()
    while time.monotonic() < end:
        folder = Path(tempfile.mkdtemp(prefix="monobloc-fuzz-"))
        found = trial(some(seed, a.batch), folder, Options(lto=a.lto, cache=folder / "cache"))
        shutil.rmtree(folder, ignore_errors=True)
        for text in found.wrong:
            print(f"FOUND {text}")
        for text in found.refused.values():
            refused[text] += 1
        tried, bad, seed = tried + found.compared, bad + len(found.wrong), seed + a.batch
        print(f"seeds to {seed}: {tried} operators compared, {bad} differ, {sum(refused.values())} refused by us, "
              f"{len(found.unknown)} of the last {a.batch} by LiteRT", flush=True)
    for text, count in refused.most_common():
        print(f"{count} refused: {text}")
    return bool(bad)


if __name__ == "__main__":
    sys.exit(main())
