"""A model in, a Graph out: `load_model` for any format, and `describe` for a look without compiling."""

from monobloc.frontend.describe import Facts, describe
from monobloc.frontend.formats import MODEL_SUFFIXES, load_model
from monobloc.frontend.importer import load_onnx
from monobloc.frontend.importing import Choices, Imported

__all__ = ["MODEL_SUFFIXES", "Facts", "Imported", "Choices", "describe", "load_model", "load_onnx"]
