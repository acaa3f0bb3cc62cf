"""Dependencies of an output, as make reads them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from monobloc.cache import write_atomic


def write(path: Path | None, out: Path, inputs: Sequence[Path]) -> None:
    if path is not None:
        found = dict.fromkeys(f for p in inputs for f in (p, *_external(p)))
        write_atomic(path, [f"{_quoted(out)}: {' '.join(map(_quoted, found))}\n".encode()])


def _quoted(p: Path) -> str:
    return str(p).replace("$", "$$").replace("#", "\\#").replace(" ", "\\ ")


def _external(model: Path) -> Iterator[Path]:
    """Files that hold a model's weights."""
    if model.suffix != ".onnx":
        return
    import onnx

    proto = onnx.load(str(model), load_external_data=False)
    for t in proto.graph.initializer:
        for entry in t.external_data:
            if entry.key == "location":
                yield model.parent / entry.value
