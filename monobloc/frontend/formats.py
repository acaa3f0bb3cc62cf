"""Which front end reads a model: what the file begins with says it, its name only where it cannot be read."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from monobloc.frontend.importer import Imported, Model, load_onnx
from monobloc.frontend.tflite import is_tflite, load_tflite
from monobloc.ir.types import Shape

MODEL_SUFFIXES = (".onnx", ".tflite")


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


def load_model(
    model: Model,
    *,
    shapes: Mapping[str, Shape] | None = None,
    dims: Mapping[str, int] | None = None,
    bind: Mapping[str, Any] | None = None,
    keep_outputs: Sequence[str] | None = None,
    name: str | None = None,
) -> Imported:
    """The graph of a model of any format; see `load_onnx`."""
    load = load_tflite if tells_tflite(model) else load_onnx
    return load(model, shapes=shapes, dims=dims, bind=bind, keep_outputs=keep_outputs, name=name)
