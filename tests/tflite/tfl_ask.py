"""A child process that asks LiteRT's reference kernels: models and what they are fed come in, answers go out."""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

Feeds = dict[str, np.ndarray]


def asked(models: Sequence[tuple[bytes, Feeds]]) -> list[list[np.ndarray] | str]:
    """The outputs of each model, or why LiteRT refuses it"""
    p = subprocess.run([sys.executable, __file__], input=pickle.dumps(list(models)), capture_output=True, check=True)
    found: list[list[np.ndarray] | str] = pickle.loads(p.stdout)
    return found


def answer(data: bytes, feeds: Feeds) -> list[Any] | str:
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    try:
        it = Interpreter(model_content=data, experimental_op_resolver_type=OpResolverType.BUILTIN_REF)
        it.allocate_tensors()
        for d in it.get_input_details():
            it.set_tensor(d["index"], feeds[d["name"]])
        it.invoke()
        return [it.get_tensor(d["index"]).copy() for d in it.get_output_details()]
    except (RuntimeError, ValueError) as e:
        return str(e)


if __name__ == "__main__":
    sys.stdout.buffer.write(pickle.dumps([answer(*m) for m in pickle.loads(sys.stdin.buffer.read())]))
