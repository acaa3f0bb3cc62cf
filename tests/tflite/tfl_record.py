"""Asks LiteRT's reference kernels about every single operator of the tests, and writes their answers down."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence

import numpy as np
import tfl_cases
from tfl_ask import interpreter
from tfl_single import FLOATS, HASHES, MICRO, Case, digest, kept, key_of


def answers(case: Case) -> list[list[np.ndarray]]:
    """LiteRT's outputs of every step"""
    data, feeds = case.model()
    it = interpreter(data, case.optimized)
    out = []
    for one in feeds:
        for d in it.get_input_details():
            it.set_tensor(d["index"], one[d["name"]])
        it.invoke()
        out.append([it.get_tensor(d["index"]).copy() for d in it.get_output_details()])
    return out


def record(cases: Sequence[Case], new: bool = False) -> int:
    hashes: dict[str, str] = json.loads(HASHES.read_text()) if new else {}
    floats: dict[str, np.ndarray] = kept()[1] if new else {}
    cases, refused = [c for c in cases if c.name not in hashes and c.name not in floats], 0
    for case in cases:
        try:
            steps = answers(case)
        except (RuntimeError, ValueError) as e:
            refused += 1
            sys.stdout.write(f"{case.name}: {str(e).splitlines()[0]}\n")
            continue
        for step, ys in enumerate(steps):
            for k, y in enumerate(ys):
                key = key_of(case, step, k)
                if y.dtype.kind == "f":
                    floats[key] = y
                else:
                    hashes[key] = digest(y)
    HASHES.write_text(json.dumps(hashes, indent=1) + "\n")
    np.savez_compressed(FLOATS, **floats)
    sys.stdout.write(f"{len(hashes)} answers of integers, {len(floats)} of floats, {refused} cases refused\n")
    return refused


def micro_answers(case: Case) -> list[list[np.ndarray]]:
    from tflite_micro import runtime

    data, feeds = case.model()
    it, out = runtime.Interpreter.from_bytes(data, arena_size=1 << 22), []
    for one in feeds:
        for k, name in enumerate(sorted(one, key=lambda n: int(n[1:]))):
            it.set_input(np.ascontiguousarray(one[name]), k)
        it.invoke()
        out.append([it.get_output(k).copy() for k in range(len(case.outs))])
    return out


def in_child(case: Case) -> dict[str, str]:
    """Hashes of what TFLite Micro answers, or nothing; it may end the process that asks."""
    r, w = os.pipe()
    if (child := os.fork()) == 0:
        found = {}
        try:
            for step, ys in enumerate(micro_answers(case)):
                found |= {key_of(case, step, k): digest(y) for k, y in enumerate(ys) if y.dtype.kind != "f"}
        except Exception:
            found = {}
        os.write(w, json.dumps(found).encode())
        os._exit(0)
    os.close(w)
    with os.fdopen(r, "rb") as f:
        text = f.read()
    os.waitpid(child, 0)
    return dict(json.loads(text or b"{}"))


def record_micro(cases: Sequence[Case]) -> None:
    found: dict[str, str] = {}
    for case in cases:
        found |= in_child(case)
    MICRO.write_text(json.dumps(found, indent=1) + "\n")
    sys.stdout.write(f"{len(found)} answers of integers\n")


if __name__ == "__main__":
    if "--micro" in sys.argv:
        record_micro(tfl_cases.every())
    else:
        sys.exit(bool(record([c for c in tfl_cases.every() if not c.micro], new="--new" in sys.argv)))
