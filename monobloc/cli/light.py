"""Of package onnx only what reads models: its messages and schemas, which takes a quarter of the time."""

from __future__ import annotations

import sys
from contextlib import suppress
from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec

PARTS = ("onnx.onnx_ml_pb2", "onnx.onnx_cpp2py_export")


def light_onnx() -> None:
    """Loads them under their own names. Who imports the package later gets it whole, with these in it.

    For commands: there no code of others runs that might look for them as the package's attributes.
    """
    package = None if "onnx" in sys.modules else find_spec("onnx")
    if package is None:
        return
    for name in PARTS:
        with suppress(ImportError):  # Python's own way is left, which tells what is wrong
            _load(name, list(package.submodule_search_locations or ()))


def _load(name: str, folders: list[str]) -> None:
    spec = PathFinder.find_spec(name, folders)
    if spec is None or spec.loader is None:
        raise ImportError(name)
    module = sys.modules[name] = module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
