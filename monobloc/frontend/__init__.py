"""A model in, a Graph out: `load_model` for any format. What not every build needs is imported where it is used."""

from monobloc.frontend.formats import MODEL_SUFFIXES, format_of, is_model_file, is_program, load_model
from monobloc.frontend.importing import Choices, Imported

__all__ = ["MODEL_SUFFIXES", "Choices", "Imported", "format_of", "is_model_file", "is_program", "load_model"]
