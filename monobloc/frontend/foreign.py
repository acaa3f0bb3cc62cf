"""Models of other frameworks: recognised by what the file holds, and answered with the lines that convert them.

Their own exporters know them best. They are not run from here: to load such a file is to run code that it brings.
"""

from __future__ import annotations

import re
from pathlib import Path

from monobloc.errors import UnsupportedError
from monobloc.frontend.sniff import Sniffed

FOREIGN_SUFFIXES = (".pt", ".pth", ".keras", ".h5", ".hdf5", ".pb", ".mlir", ".stablehlo", ".safetensors", ".gguf")
HDF5, PICKLE, MLIR, GGUF = b"\x89HDF\r\n\x1a\n", (b"\x80\2", b"\x80\3", b"\x80\4", b"\x80\5"), b"ML\xefR", b"GGUF"


def is_saved_model(path: Path) -> bool:
    return path.is_dir() and (path / "saved_model.pb").is_file()


def refusal(f: Sniffed) -> UnsupportedError | None:
    """What is said of a model that no front end reads; None where one may"""
    found = _kind(f)
    if found is None:
        return None
    what, lines = found
    stem = Path(f.name).stem or "model"
    return UnsupportedError(f"is {what}, which is not read as it is", hints=[
        "convert it:" + "".join(f"\n      {line.format(name=f.name or 'MODEL', stem=stem)}" for line in lines)])


def _kind(f: Sniffed) -> tuple[str, tuple[str, ...]] | None:
    if f.kind == "zip":
        return _of_zip(f)
    if f.kind == "folder":
        if "saved_model.pb" in f.members:
            return "a TensorFlow SavedModel", SAVED_MODEL
        return ("a checkpoint of JAX, weights without the function", JAX) if any(
            n in f.members for n in ("_CHECKPOINT_METADATA", "_METADATA")) else None
    if f.head.startswith(HDF5):
        return "a Keras model (HDF5)", KERAS
    if f.head.startswith(PICKLE) and f.suffix != ".onnx":
        return "a pickle, most likely PyTorch weights without the module", WEIGHTS
    if f.head.startswith(MLIR) or re.match(rb"\s*(#\w+.*\n\s*)*module @", f.head):
        return "StableHLO, as JAX exports it", JAX
    if f.head.startswith(GGUF) or (f.suffix == ".safetensors" and f.head[8:9] == b"{"):
        return "weights without a graph", WEIGHTS
    if f.name == "saved_model.pb":
        return "a part of a TensorFlow SavedModel: name its folder", SAVED_MODEL
    return None


def _of_zip(f: Sniffed) -> tuple[str, tuple[str, ...]] | None:
    names = f.members
    if "config.json" in names and any(n.endswith(".weights.h5") for n in names):
        return "a Keras model", KERAS
    if any(n.endswith("/constants.pkl") for n in names) and any("/code/" in n for n in names):
        return "TorchScript", TORCHSCRIPT
    if any(n.endswith("data.pkl") for n in names):
        return "what `torch.save` wrote: weights, or a module that only its own code can load", WEIGHTS
    return None


KERAS = (
    "import keras",
    'model = keras.saving.load_model("{name}")',
    'model.export("{stem}.onnx", format="onnx")      # or "{stem}.tflite", format="litert"',
)
SAVED_MODEL = (
    "pip install tf2onnx",
    "python -m tf2onnx.convert --saved-model {name} --output {stem}.onnx --opset 18",
)
TORCHSCRIPT = (
    "import torch",
    "# the module itself, if there is one:",
    'torch.export.save(torch.export.export(module.eval(), (example,)), "{stem}.pt2")',
    "# or the script:",
    'torch.onnx.export(torch.jit.load("{name}"), (example,), "{stem}.onnx", dynamo=False)',
)
WEIGHTS = (
    "import torch",
    "module = ...                                    # the class that the weights belong to",
    'module.load_state_dict(torch.load("{name}", weights_only=True))',
    'torch.export.save(torch.export.export(module.eval(), (example,)), "{stem}.pt2")',
)
JAX = (
    "pip install jax2onnx",
    "from jax2onnx import to_onnx",
    'to_onnx(function, [(1, 32)], return_mode="file", output_path="{stem}.onnx")      # the shapes of its inputs',
)
