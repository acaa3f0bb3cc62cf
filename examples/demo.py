"""The first result: a trained digit recognizer becomes one static executable, and reads a digit.

Run by `make demo`. What it does by hand is

    monobloc build examples/mnist8.onnx -o build/demo/mnist8
    build/demo/mnist8 build/demo/seven.npy --time --repeat 1000
"""

from __future__ import annotations

import re
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

from monobloc.driver import build, user_cache
from monobloc.errors import MonoblocError
from monobloc.options import Options

HERE = Path(__file__).resolve().parent
OUT = HERE.parent / "build" / "demo"
SEVEN = """
############
############
         ###
        ###
        ###
       ###
       ###
      ###
      ###
     ###
     ###
    ###
    ###
"""


def digit(picture: str) -> np.ndarray:
    """Text as the 28x28 picture the model was trained on: float32 [1, 1, 28, 28], 0 to 255."""
    rows = picture.strip("\n").splitlines()
    x = np.zeros((28, 28), np.float32)
    top, left = (28 - len(rows)) // 2, (28 - max(map(len, rows))) // 2
    for r, row in enumerate(rows):
        for c, ch in enumerate(row):
            x[top + r, left + c] = 255.0 * (ch == "#")
    return x[None, None]


def main() -> int:
    OUT.mkdir(parents=True, exist_ok=True)
    exe = OUT / "mnist8"
    start = time.perf_counter()
    try:
        made = build([HERE / "mnist8.onnx"], exe, "exe", Options(cache=user_cache()))
    except MonoblocError as e:
        print(f"error: {e}", file=sys.stderr)
        return 1
    seconds = time.perf_counter() - start
    np.save(OUT / "seven.npy", digit(SEVEN))
    command = [str(exe), str(OUT / "seven.npy"), "--time", "--repeat", "1000"]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    info = subprocess.run([str(exe), "--info"], check=True, capture_output=True, text=True).stdout
    print(SEVEN)
    answer = re.search(r"argmax (\d+)", text)
    median = re.search(r"median ([\d.]+)", text)
    arena = re.search(r"(?:arena|ram)\D*(\d+)", info)
    print(f"answer       {answer[1] if answer else '?'}")
    print(f"executable   {exe.relative_to(HERE.parent)}, {exe.stat().st_size:,} bytes, static, no libc")
    print(f"arena        {int(arena[1]) if arena else 0:,} bytes, all of the RAM the model needs")
    print(f"latency      {median[1] if median else '?'} us (median of 1000)")
    print(f"built in     {seconds:.1f} s{' (from the cache)' if made.image.cached else ''}")
    print(f"\nnext: {exe.relative_to(HERE.parent)} --info     .venv/bin/monobloc try YOUR_MODEL.onnx")
    return 0


if __name__ == "__main__":
    sys.exit(main())
