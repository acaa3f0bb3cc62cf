"""FlatBuffers, read without trusting them.

A table is a position whose first four bytes lead back to its vtable, which holds an offset per field (0: absent).
Every read is checked against the file's end, and vectors against their length, so a damaged file is a ModelError
and never a read elsewhere. What is nested is read once per path; the reader bounds the number of all reads, since
offsets may lead in circles.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from monobloc.errors import ModelError

MAX_READS = 20_000_000


@dataclass
class Data:
    """The bytes of a file"""

    bytes: memoryview
    reads: int = field(default=0)

    def number(self, kind: str, at: int) -> int | float | bool:
        self.reads += 1
        size = struct.calcsize("<" + kind)
        if at < 0 or at + size > len(self.bytes) or self.reads > MAX_READS:
            raise ModelError(f"is damaged: it points to byte {at} of {len(self.bytes)}")
        out: int | float | bool = struct.unpack_from("<" + kind, self.bytes, at)[0]
        return out

    def whole(self, kind: str, at: int) -> int:
        return int(self.number(kind, at))

    def span(self, at: int, size: int) -> memoryview:
        if at < 0 or size < 0 or at + size > len(self.bytes):
            raise ModelError(f"is damaged: it names bytes {at} to {at + size} of {len(self.bytes)}")
        return self.bytes[at : at + size]

    def root(self) -> Table:
        return Table(self, self.whole("I", 0))


@dataclass(frozen=True)
class Table:
    """Fields by slot number, each with its default"""

    data: Data
    at: int

    @cached_property
    def _vtable(self) -> tuple[int, int]:
        start = self.at - self.data.whole("i", self.at)
        return start, self.data.whole("H", start)

    def _field(self, slot: int) -> int:
        start, size = self._vtable
        if 4 + 2 * slot + 2 > size:
            return 0
        offset = self.data.whole("H", start + 4 + 2 * slot)
        return self.at + offset if offset else 0

    def whole(self, slot: int, kind: str = "i", default: int = 0) -> int:
        at = self._field(slot)
        return self.data.whole(kind, at) if at else default

    def real(self, slot: int, default: float = 0.0) -> float:
        at = self._field(slot)
        return float(self.data.number("f", at)) if at else default

    def flag(self, slot: int, default: bool = False) -> bool:
        at = self._field(slot)
        return bool(self.data.number("B", at)) if at else default

    def table(self, slot: int) -> Table | None:
        at = self._field(slot)
        return Table(self.data, at + self.data.whole("I", at)) if at else None

    def _vector(self, slot: int, item: int) -> tuple[int, int]:
        """(first byte, count)"""
        at = self._field(slot)
        if not at:
            return 0, 0
        at += self.data.whole("I", at)
        count = self.data.whole("I", at)
        self.data.span(at + 4, count * item)
        return at + 4, count

    def blob(self, slot: int) -> memoryview | None:
        if not self._field(slot):
            return None
        at, count = self._vector(slot, 1)
        return self.data.span(at, count)

    def array(self, slot: int, dtype: str) -> np.ndarray | None:
        if not self._field(slot):
            return None
        kind = np.dtype(dtype)
        at, count = self._vector(slot, kind.itemsize)
        return np.frombuffer(self.data.span(at, count * kind.itemsize), kind.newbyteorder("<")).astype(kind)

    def ints(self, slot: int) -> list[int]:
        found = self.array(slot, "i4")
        return [] if found is None else [int(x) for x in found]

    def text(self, slot: int) -> str:
        found = self.blob(slot)
        return "" if found is None else str(found, "utf-8", "replace")

    def tables(self, slot: int) -> Iterator[Table]:
        at, count = self._vector(slot, 4)
        for k in range(count):
            place = at + 4 * k
            yield Table(self.data, place + self.data.whole("I", place))
