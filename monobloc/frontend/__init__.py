"""ONNX in, Graph out: `load_onnx`, and `describe` for a look without compiling."""

from monobloc.frontend.describe import Facts, describe
from monobloc.frontend.importer import Imported, load_onnx

__all__ = ["Facts", "Imported", "describe", "load_onnx"]
