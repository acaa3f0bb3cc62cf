"""FlexBuffers: the options of custom operators, a map from names to numbers and lists. Read without trusting them.

The last byte says how wide the root is, the one before what it is. A map is a vector of values behind which a byte
per value says what that is; two numbers in front of it lead to its keys and say how wide these are.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from monobloc.errors import ModelError

INT, UINT, FLOAT, BOOL, MAP = 1, 2, 3, 26, 9
INDIRECT = {6: INT, 7: UINT, 8: FLOAT}
VECTORS = {11: INT, 12: UINT}
FORMATS = {INT: "bhiq", UINT: "BHIQ", BOOL: "BHIQ"}


class _Reader:
    def __init__(self, data: bytes) -> None:
        self.data = data

    def number(self, at: int, width: int, kind: int) -> int | float:
        if kind == FLOAT:
            form = {4: "f", 8: "d"}.get(width)
        else:
            form = FORMATS[kind][{1: 0, 2: 1, 4: 2, 8: 3}[width]]
        if form is None or at < 0 or at + width > len(self.data):
            raise ModelError(f"has options that are damaged: a number at byte {at} of {len(self.data)}")
        out: int | float = struct.unpack_from("<" + form, self.data, at)[0]
        return out

    def whole(self, at: int, width: int) -> int:
        return int(self.number(at, width, UINT))

    def key(self, at: int) -> str:
        end = self.data.find(b"\0", at)
        if not 0 <= at < end:
            raise ModelError("has options that are damaged: a name without an end")
        return self.data[at:end].decode("utf-8", "replace")


def numbers(data: bytes) -> dict[str, int | float]:
    """The numbers of a map by name; what is of another kind is left out."""
    out: dict[str, int | float] = {}
    r = _Reader(data)
    for name, kind, place, width, own in _entries(r):
        if kind in (INT, UINT, FLOAT, BOOL):
            out[name] = r.number(place, width, kind)
        elif kind in INDIRECT:
            out[name] = r.number(place - r.whole(place, width), own, INDIRECT[kind])
    return out


def lists(data: bytes) -> dict[str, list[int]]:
    """The lists of integers of a map by name; their lengths stand in front of them."""
    r = _Reader(data)
    out: dict[str, list[int]] = {}
    for name, kind, place, width, own in _entries(r):
        if kind in VECTORS:
            at = place - r.whole(place, width)
            size = r.whole(at - own, own)
            if size * own > len(data):
                raise ModelError(f"has options that are damaged: a list of {size}")
            out[name] = [int(r.number(at + k * own, own, VECTORS[kind])) for k in range(size)]
    return out


def _entries(r: _Reader) -> Iterator[tuple[str, int, int, int, int]]:
    """Of a map: (name, kind, where its value stands, how wide values are, how wide what it leads to is)"""
    data = r.data
    if len(data) < 3 or data[-1] not in (1, 2, 4, 8) or data[-2] >> 2 != MAP:
        raise ModelError("has options that are no map of a FlexBuffer")
    width = 1 << (data[-2] & 3)
    root = len(data) - 2 - data[-1]
    start = root - r.whole(root, data[-1])
    size = r.whole(start - width, width)
    if size > len(data):
        raise ModelError(f"has options that are damaged: a map of {size}")
    keys_at, keys_width = start - 3 * width, r.whole(start - 2 * width, width)
    if keys_width not in (1, 2, 4, 8):
        raise ModelError("has options that are damaged: a map without names")
    keys = keys_at - r.whole(keys_at, width)
    for k in range(size):
        at = keys + k * keys_width
        packed = r.whole(start + size * width + k, 1)
        yield r.key(at - r.whole(at, keys_width)), packed >> 2, start + k * width, width, 1 << (packed & 3)
