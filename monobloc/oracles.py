"""Who says what is right of a format that onnxruntime does not read, and is timed beside us: its own framework.

Such a module has NAME, INSTALL, `installed()`, `Session(model).run(feeds)` and `timed(model, feeds, threads)`; for the
values of every layer `inner_values(model)` and `inner_session(model).values(feeds, names)`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from monobloc import eager, litert
from monobloc.frontend import format_of


def own_oracle(model: Path) -> Any:
    """The module that runs a model of this format; None: onnxruntime does"""
    return {"tflite": litert, "torch": eager}.get(format_of(model))
