"""Strings in arrays: a tensor of strings is one of bytes with one more axis, the room that each string has.

UTF-8, filled up with zeros; a string may fill its room, so it need not end with one. numpy's own `S` arrays have
the same bytes.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from monobloc.errors import ModelError
from monobloc.ir.types import DType, Shape, TensorType

Array = np.ndarray


def to_chars(strings: Any, what: str, room: int | None = None) -> Array:
    """Python or numpy strings as bytes with an axis of `room`, by default what the longest needs"""
    given = np.asarray(strings)
    if given.dtype.kind == "S":
        given = given.astype(object)
    flat = [x if isinstance(x, bytes) else str(x).encode() for x in given.ravel().tolist()]
    longest = max(map(len, flat), default=0)
    for x in flat:
        if b"\0" in x:
            raise ModelError(f"{what} has a string with the character NUL, which is not supported")
    if room is not None and longest > room:
        raise ModelError(f"{what} has a string of {longest} bytes; there is room for {room}",
                         hints=[f"compile with `--strings {longest}`"])
    size = max(longest, 1) if room is None else room
    return np.array(flat, f"S{size}").view("S1").reshape(*given.shape, size) if flat else np.zeros(
        (*given.shape, size), "S1"
    )


def to_text(chars: Array) -> Array:
    """An array of Python strings; what is no UTF-8 is shown as such."""
    return texts(np.ascontiguousarray(chars).view(f"S{chars.shape[-1]}").reshape(chars.shape[:-1]))


def texts(flat: Array) -> Array:
    """The same of numpy's strings"""
    out = np.empty(flat.shape, object)
    out.ravel()[:] = [x.decode(errors="replace") for x in flat.ravel().tolist()]
    return out


def string_shape(t: TensorType) -> Shape:
    """A tensor's shape as models know it: of strings without the axis of their room"""
    return t.shape[:-1] if t.dtype is DType.CHAR else t.shape
