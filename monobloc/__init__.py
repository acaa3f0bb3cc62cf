"""Monobloc: machine-learning models as native programs, optimized as a whole at link.

Names are loaded when they are first used, so that the command line starts quickly.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from monobloc.driver import compile as compile  # noqa: A004 - the public name
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
_HOMES = {
    "driver": ("compile",),
    "errors": ("LinkError", "ModelError", "MonoblocError", "ToolchainError", "UnsupportedError"),
    "loader": ("CompiledModel", "InferenceSession", "load"),
    "targets": ("Target",),
}


def __getattr__(name: str) -> Any:
    for home, names in _HOMES.items():
        if name in names:
            return getattr(importlib.import_module(f"{__name__}.{home}"), name)
    raise AttributeError(f"module `{__name__}` has no attribute `{name}`")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
