"""A child process that asks LiteRT's reference kernels: models and what they are fed come in, answers go out."""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

Feeds = dict[str, np.ndarray]
Question = tuple[bytes, Feeds, bool]


def asked(models: Sequence[tuple[bytes, Feeds]], optimized: Sequence[bool] = ()) -> list[list[np.ndarray] | str]:
    """The outputs of each model, or why LiteRT refuses it; where it dies, another child goes on with the next.

    `optimized`: whose reference kernels are wrong, so that the others are asked.
    """
    ways = optimized or [False] * len(models)
    questions: list[Question] = [(*m, way) for m, way in zip(models, ways, strict=True)]
    found: list[list[np.ndarray] | str] = []
    while len(found) < len(questions):
        given = pickle.dumps(questions[len(found) :])
        p = subprocess.run([sys.executable, __file__], input=given, capture_output=True)
        rest, before = memoryview(p.stdout), len(found)
        while len(rest):
            size = int.from_bytes(rest[:8], "little")
            found.append(pickle.loads(rest[8 : 8 + size]))
            rest = rest[8 + size :]
        if p.returncode:
            found.append(f"died with {p.returncode}")
        assert len(found) > before, p.stderr.decode()
    return found


def interpreter(data: bytes, optimized: bool) -> Any:
    """Of LiteRT's reference kernels, or the others where it is asked for them or has no more than these"""
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    plain = OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
    kind = plain if optimized else OpResolverType.BUILTIN_REF
    try:
        it = Interpreter(model_content=data, experimental_op_resolver_type=kind)
        it.allocate_tensors()
    except ValueError as e:  # some operators have one kernel only, which the reference resolver does not list
        if optimized or "Didn't find op" not in str(e):
            raise
        return interpreter(data, True)
    return it


def answer(data: bytes, feeds: Feeds, optimized: bool) -> list[Any] | str:
    try:
        it = interpreter(data, optimized)
        for d in it.get_input_details():
            it.set_tensor(d["index"], feeds[d["name"]])
        it.invoke()
        return [it.get_tensor(d["index"]).copy() for d in it.get_output_details()]
    except (RuntimeError, ValueError) as e:
        return str(e)


if __name__ == "__main__":
    for question in pickle.loads(sys.stdin.buffer.read()):
        data = pickle.dumps(answer(*question))
        sys.stdout.buffer.write(len(data).to_bytes(8, "little") + data)
        sys.stdout.buffer.flush()
