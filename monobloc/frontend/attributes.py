"""AttributeProto to plain Python: int, float, str, lists of them, numpy arrays, nested graphs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from monobloc.errors import ModelError, UnsupportedError
from monobloc.frontend import proto
from monobloc.frontend.external import ExternalFiles
from monobloc.frontend.tensors import sparse_tensor, tensor

A = proto.AttributeProto
_SCALARS: dict[int, str] = {A.FLOAT: "f", A.INT: "i", A.STRING: "s", A.TENSOR: "t", A.GRAPH: "g", A.TYPE_PROTO: "tp",
                            A.SPARSE_TENSOR: "sparse_tensor"}
_LISTS: dict[int, str] = {
    A.FLOATS: "floats",
    A.INTS: "ints",
    A.STRINGS: "strings",
    A.TENSORS: "tensors",
    A.GRAPHS: "graphs",
}
_REFUSED: dict[int, str] = {
    A.SPARSE_TENSORS: "sparse tensors",
    A.TYPE_PROTOS: "types",
}


@dataclass(frozen=True, eq=False)
class SubGraph:
    """A nested graph and the frame whose names it may use"""

    graph: proto.GraphProto
    frame: Any


def read_attributes(
    node: proto.NodeProto, bound: Mapping[str, Any] | None, frame: Any, files: ExternalFiles
) -> dict[str, Any]:
    """All attributes of a node. `bound` are those of the function whose body the node stands in."""
    out: dict[str, Any] = {}
    for a in node.attribute:
        name = a.name
        if not name:
            raise ModelError("has an attribute without a name")
        if name in out:
            raise ModelError(f"has the attribute `{name}` twice")
        if a.ref_attr_name:
            if bound is None:
                raise ModelError(f"the attribute `{name}` is a function's (`{a.ref_attr_name}`), but in none")
            if a.ref_attr_name in bound:
                out[name] = bound[a.ref_attr_name]
            continue
        out[name] = read_attribute(a, frame, files)
    return out


def read_attribute(a: proto.AttributeProto, frame: Any, files: ExternalFiles) -> Any:
    """The value of one attribute; ModelError when its type and its fields disagree."""
    kind = _kind(a)
    if kind in _REFUSED:
        raise UnsupportedError(f"the attribute `{a.name}` is {_REFUSED[kind]}, which is not supported")
    field = _SCALARS.get(kind) or _LISTS[kind]
    value = getattr(a, field)
    what = f"the attribute `{a.name}`"
    if kind == A.TYPE_PROTO:
        return value
    if kind == A.SPARSE_TENSOR:
        return sparse_tensor(value, what, files)[1].array
    readers: dict[str, Callable[[Any], Any]] = {
        "f": float,
        "i": int,
        "s": lambda x: _text(x, what),
        "t": lambda x: _array(x, what, files),
        "g": lambda x: SubGraph(x, frame),
    }
    plain = readers[field[0]]
    return [plain(x) for x in value] if kind in _LISTS else plain(value)


def _kind(a: proto.AttributeProto) -> int:
    """The attribute's type; files of the first versions leave it out."""
    held = [k for k, f in _SCALARS.items() if a.HasField(f)] + [k for k, f in _LISTS.items() if len(getattr(a, f))]
    if a.type == A.UNDEFINED and len(held) == 1:
        return held[0]
    if a.type == A.UNDEFINED or a.type not in (*_SCALARS, *_LISTS, *_REFUSED):
        raise ModelError(f"the attribute `{a.name}` has no type")
    if a.type not in _REFUSED and held not in ([], [a.type]):
        said, held_names = A.AttributeType.Name(a.type), [A.AttributeType.Name(k) for k in held]
        names = " and ".join(held_names)
        raise ModelError(f"the attribute `{a.name}` is declared {said}, but holds {names}")
    return a.type


def _text(raw: bytes, what: str) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        raise ModelError(f"{what} is no UTF-8 text") from None


def _array(t: proto.TensorProto, what: str, files: ExternalFiles) -> np.ndarray:
    return tensor(t, what, files)[1].array
