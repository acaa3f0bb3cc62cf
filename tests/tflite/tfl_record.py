"""Asks LiteRT's reference kernels about every single operator of the tests, and writes their answers down."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence

import numpy as np
import tfl_cases
from tfl_single import FLOATS, HASHES, Case, digest


def answers(case: Case) -> list[list[np.ndarray]]:
    """LiteRT's outputs of every step"""
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    data, feeds = case.model()
    plain = OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
    kind = plain if case.optimized else OpResolverType.BUILTIN_REF
    try:
        it = Interpreter(model_content=data, experimental_op_resolver_type=kind)
        it.allocate_tensors()
    except ValueError as e:  # some operators have one kernel only, which the reference resolver does not list
        if "Didn't find op" not in str(e):
            raise
        it = Interpreter(model_content=data, experimental_op_resolver_type=plain)
        it.allocate_tensors()
    out = []
    for one in feeds:
        for d in it.get_input_details():
            it.set_tensor(d["index"], one[d["name"]])
        it.invoke()
        out.append([it.get_tensor(d["index"]).copy() for d in it.get_output_details()])
    return out


def record(cases: Sequence[Case]) -> int:
    hashes, floats, refused = {}, {}, 0
    for case in cases:
        try:
            steps = answers(case)
        except (RuntimeError, ValueError) as e:
            refused += 1
            sys.stdout.write(f"{case.name}: {str(e).splitlines()[0]}\n")
            continue
        for step, ys in enumerate(steps):
            for k, y in enumerate(ys):
                key = case.name if (step, k) == (0, 0) else f"{case.name} [{step}.{k}]"
                if y.dtype.kind == "f":
                    floats[key] = y
                else:
                    hashes[key] = digest(y)
    HASHES.write_text(json.dumps(hashes, indent=1) + "\n")
    np.savez_compressed(FLOATS, **floats)
    sys.stdout.write(f"{len(hashes)} answers of integers, {len(floats)} of floats, {refused} cases refused\n")
    return refused


if __name__ == "__main__":
    sys.exit(bool(record(tfl_cases.every())))
