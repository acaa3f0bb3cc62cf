"""Which front end reads a model: TFLite files bear a mark, or are named so; anything else is taken for ONNX."""

from __future__ import annotations

import os
from pathlib import Path

from monobloc.frontend.importer import load_onnx
from monobloc.frontend.importing import Choices, Imported, Model
from monobloc.frontend.tflite import is_tflite, load_tflite

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


def load_model(model: Model, choices: Choices | None = None) -> Imported:
    """The graph of a model of any format"""
    return (load_tflite if tells_tflite(model) else load_onnx)(model, choices)
