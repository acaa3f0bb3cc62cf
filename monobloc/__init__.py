"""Monobloc: machine-learning models as native programs, optimized as a whole at link."""

from monobloc.driver import compile  # noqa: A004 - the public name
from monobloc.errors import LinkError, ModelError, MonoblocError, ToolchainError, UnsupportedError
from monobloc.loader import CompiledModel, InferenceSession, load
from monobloc.targets import Target

__version__ = "0.1.0"
__all__ = [
    "CompiledModel",
    "InferenceSession",
    "LinkError",
    "ModelError",
    "MonoblocError",
    "Target",
    "ToolchainError",
    "UnsupportedError",
    "compile",
    "load",
]
