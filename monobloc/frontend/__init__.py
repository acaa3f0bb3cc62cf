"""A model in, a Graph out: `load_model` for any format, and `describe` for a look without compiling."""

from monobloc.frontend.describe import Facts, describe
from monobloc.frontend.formats import MODEL_SUFFIXES, load_model
from monobloc.frontend.importer import Imported, load_onnx

__all__ = ["MODEL_SUFFIXES", "Facts", "Imported", "describe", "load_model", "load_onnx"]
