"""TFLite in, the same Graph out: `load_tflite`, and `facts` for a look without compiling."""

from monobloc.frontend.tflite.describe import facts
from monobloc.frontend.tflite.importer import load_tflite
from monobloc.frontend.tflite.schema import is_tflite

__all__ = ["facts", "is_tflite", "load_tflite"]
