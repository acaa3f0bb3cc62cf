"""Which front end reads a model: by what the file holds, else by its name; what nobody knows is taken for ONNX.

Each is imported when it is the one. PyTorch takes seconds and need not be installed.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

from monobloc.errors import ModelError
from monobloc.frontend.foreign import FOREIGN_SUFFIXES, is_saved_model, refusal
from monobloc.frontend.importing import Choices, Imported, Model, guarded
from monobloc.frontend.sniff import is_exported, sniff
from monobloc.frontend.versions import load_versions

Format = Literal["onnx", "tflite", "torch"]
MODEL_SUFFIXES = (".onnx", ".tflite", ".pt2")
TFLITE_MARK = b"TFL3"
TORCH_INSTALL = "pip install 'monobloc[torch]'"


def is_tflite(head: bytes | memoryview) -> bool:
    return bytes(head[4:8]) == TFLITE_MARK


def is_model_file(path: Path) -> bool:
    """Whether a file is a model by its name, one that is only recognised to say how to convert it included"""
    return path.suffix in MODEL_SUFFIXES or path.suffix in FOREIGN_SUFFIXES or is_saved_model(path)


def format_of(model: Model | Any) -> Format:
    """UnsupportedError for what other frameworks write, with the lines that convert it"""
    if is_program(model):
        return "torch"
    found = sniff(model)
    problem = refusal(found)
    if problem is not None:
        raise problem
    if is_tflite(found.head) or (found.suffix == ".tflite" and found.kind != "zip"):
        return "tflite"
    exported = found.kind == "zip" and any(map(is_exported, found.members))
    return "torch" if found.suffix == ".pt2" or exported else "onnx"


def is_program(model: Any) -> bool:
    """An object of PyTorch's, or a program that was made of one"""
    home = type(model).__module__
    return home.partition(".")[0] == "torch" or home.startswith("monobloc.frontend.torch.")


def load_model(model: Model | Any, choices: Choices | None = None) -> Imported:
    """The graph of a model of any format"""
    loaders: dict[Format, Callable[[Any], Callable[[Choices], Imported]]] = {
        "onnx": _onnx_loader, "tflite": _tflite_loader, "torch": _torch_loader}
    with guarded(model):
        load = loaders[format_of(model)](model)
    return load_versions(load, choices or Choices())


def _onnx_loader(model: Model) -> Callable[[Choices], Imported]:
    from monobloc.frontend.importer import load_onnx

    return lambda c: load_onnx(model, c)


def _tflite_loader(model: Model) -> Callable[[Choices], Imported]:
    from monobloc.frontend.tflite import load_tflite

    return lambda c: load_tflite(model, c)


def _torch_loader(model: Any) -> Callable[[Choices], Imported]:
    need_torch()
    from monobloc.frontend.torch import loader

    return loader(model)


def need_torch() -> None:
    if find_spec("torch") is None:
        raise ModelError("PyTorch is not installed, and reads its own programs", hints=[
            TORCH_INSTALL,
            "a smaller one, without CUDA: pip install torch --index-url https://download.pytorch.org/whl/cpu"])
