"""Which front end reads a model: TFLite files bear a mark, or are named so; anything else is taken for ONNX.

Each is imported when it is the one.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from monobloc.frontend.importing import Choices, Imported, Model
from monobloc.frontend.versions import load_versions

MODEL_SUFFIXES = (".onnx", ".tflite")


TFLITE_MARK = b"TFL3"


def is_tflite(head: bytes | memoryview) -> bool:
    return bytes(head[4:8]) == TFLITE_MARK


def tells_tflite(model: Model) -> bool:
    """Whether a path or bytes are a TFLite model."""
    if isinstance(model, (bytes, bytearray, memoryview)):
        return is_tflite(model)
    if not isinstance(model, (str, os.PathLike)):
        return False
    try:
        with open(model, "rb") as f:
            return is_tflite(f.read(8)) or Path(model).suffix == ".tflite"
    except OSError:
        return Path(model).suffix == ".tflite"


def load_model(model: Model, choices: Choices | None = None) -> Imported:
    """The graph of a model of any format"""
    load: Callable[[Model, Choices], Imported]
    if tells_tflite(model):
        from monobloc.frontend.tflite import load_tflite as load
    else:
        from monobloc.frontend.importer import load_onnx as load
    return load_versions(lambda c: load(model, c), choices or Choices())
