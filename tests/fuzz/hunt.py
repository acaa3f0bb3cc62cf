"""Search by hand: `python tests/fuzz/hunt.py FAMILY SEED COUNT [STEPS [CPU [THREADS]]]` prints what differs."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from compare import check
from generators import random_model

from monobloc.options import Options
from monobloc.targets import resolve


def main(family: str, seed: str, count: str, steps: str = "10", cpu: str = "", threads: str = "1") -> int:
    models = [(family, random_model(s, family, int(steps))) for s in range(int(seed), int(seed) + int(count))]
    target = resolve("x86_64-linux", cpu) if cpu else resolve("host")
    with tempfile.TemporaryDirectory() as folder:
        found = check(models, Path(folder), Options(target=target, lto="none", threads=int(threads)))
    print(f"{family} from seed {seed}: {found.compared} outputs compared, {len(found.refused)} models refused")
    print(*(f"refused: {r}" for r in found.refused), *(f"WRONG: {w}" for w in found.bad), sep="\n")
    return bool(found.bad)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
