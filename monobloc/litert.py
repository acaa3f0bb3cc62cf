"""LiteRT beside our images: the oracle and the peer of TFLite models, where it is installed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from monobloc.errors import ModelError, UnsupportedError
from monobloc.frontend.tflite.importer import port_names
from monobloc.frontend.tflite.schema import TYPES, read_model

NAME, INSTALL = "LiteRT", "pip install 'monobloc[litert]'"


def installed() -> bool:
    return find_spec("ai_edge_litert") is not None


class Session:
    """An interpreter under our names of inputs and outputs; `reference` asks for the reference kernels, `all_values`
    keeps inner tensors."""

    def __init__(self, model: Path, threads: int = 1, reference: bool = True, all_values: bool = False) -> None:
        try:
            from ai_edge_litert.interpreter import Interpreter, OpResolverType
        except ImportError:
            raise ModelError("LiteRT is not installed", hints=[INSTALL]) from None
        kind = OpResolverType.BUILTIN_REF if reference else OpResolverType.AUTO
        self.names = port_names(read_model(model))
        try:
            self.interpreter: Any = Interpreter(str(model), num_threads=threads, experimental_op_resolver_type=kind,
                                                experimental_preserve_all_tensors=all_values)
            self.interpreter.allocate_tensors()
        except (RuntimeError, ValueError) as e:
            raise refused(e) from None

    def feed(self, feeds: Mapping[str, np.ndarray]) -> None:
        details = self.interpreter.get_input_details()
        try:
            for name, d in zip(self.names[0], details, strict=True):
                if tuple(d["shape"]) != feeds[name].shape:
                    self.interpreter.resize_tensor_input(d["index"], feeds[name].shape)
            self.interpreter.allocate_tensors()
            for name, d in zip(self.names[0], details, strict=True):
                self.interpreter.set_tensor(d["index"], np.ascontiguousarray(feeds[name]))
        except (RuntimeError, ValueError) as e:
            raise refused(e) from None

    def invoke(self, feeds: Mapping[str, np.ndarray]) -> None:
        self.feed(feeds)
        try:
            self.interpreter.invoke()
        except RuntimeError as e:
            raise refused(e) from None

    def run(self, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        self.invoke(feeds)
        details = self.interpreter.get_output_details()
        return {name: self.interpreter.get_tensor(d["index"]) for name, d in zip(self.names[1], details, strict=True)}

    def values(self, feeds: Mapping[str, np.ndarray], names: Sequence[str]) -> dict[str, np.ndarray]:
        """Inner values by their tensors' names; asks a session that was made to keep them"""
        self.invoke(feeds)
        at = {d["name"]: d["index"] for d in self.interpreter.get_tensor_details()}
        return {name: self.interpreter.get_tensor(at[name]) for name in names}


def inner_session(model: Path) -> Session:
    return Session(model, all_values=True)


def inner_values(model: Path) -> list[tuple[str, str, str]]:
    """(name, node, operator) of every tensor that the main graph's operators make, if no other is called so"""
    main = read_model(model).main
    made = [(main.tensors[t], o) for o in main.operators for t in o.outputs if t >= 0]
    names = Counter(t.name for t in main.tensors)
    return [(t.name, t.name, o.name) for t, o in made if t.name and names[t.name] == 1 and t.type in TYPES]


def timed(model: Path, feeds: Mapping[str, np.ndarray], threads: int) -> Callable[[], Any]:
    """What to call again and again: the kernels that LiteRT takes by itself"""
    session = Session(model, threads, reference=False)
    session.run(feeds)
    return session.interpreter.invoke  # type: ignore[no-any-return]


def refused(e: Exception) -> UnsupportedError:
    first = (str(e).strip().splitlines() or ["no reason given"])[0][:300]
    return UnsupportedError(f"LiteRT refuses the model: {first}",
                            hints=["`--against reference` compares with our own reference"])
