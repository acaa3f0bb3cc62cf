"""TFLite in, the same Graph out: `load_tflite`, and `facts` for a look without compiling."""

from monobloc.frontend.tflite.describe import facts
from monobloc.frontend.tflite.importer import load_tflite

__all__ = ["facts", "load_tflite"]
