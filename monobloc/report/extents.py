"""A finished file cut into runs of bytes, none left out and none counted twice.

Problem: a report of sizes is believed only if it adds up to the file. Idea: walk the file by offset;
whatever no header, table or section claims is padding, so the sum is the file's size by construction.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from monobloc.link.trace import ENTRY, Piece, Trace, numbered, pieces_of
from monobloc.object import ar, elf
from monobloc.object.elf import Buffer, Elf, Section


@dataclass(frozen=True)
class Extent:
    """Bytes of a file: a piece of the trace, a table or header by its name, or padding."""

    offset: int
    size: int
    section: str  # or what stands outside of sections: `ELF header`, `padding`
    piece: int | None = None  # index into the trace
    member: str = ""  # of an archive
    structure: bool = False  # the file's own: headers, tables, padding


def extents(data: Buffer, trace: Trace | None) -> tuple[list[Extent], Trace]:
    """All runs of a file, and the pieces they refer to; without a trace the file's own symbols tell."""
    view = memoryview(data)
    if ar.is_archive(view):
        return _archive(view, trace)
    if not elf.is_elf(view):
        return [Extent(0, len(view), "content")], Trace()
    known = trace or Trace(pieces_of(view))
    return list(_elf(view, known.pieces)), known


def _elf(data: memoryview, found: Sequence[Piece]) -> Iterator[Extent]:
    e = Elf(data)
    pieces: dict[tuple[str, int], list[int]] = {}
    for k, p in enumerate(found):
        pieces.setdefault((p.section, p.nth), []).append(k)
    claims = list(_tables(e))
    keys = numbered(e.sections)
    for s in e.sections:
        if s.type not in (0, elf.SHT_NOBITS) and s.size:
            claims += _section(s, pieces.get(keys[s.index], ()), found)
    yield from _without_gaps(claims, len(data))


def _tables(e: Elf) -> Iterator[Extent]:
    h = e.header
    yield Extent(0, h[8], "ELF header", structure=True)
    yield Extent(h[5], h[9] * h[10], "program headers", structure=True)
    yield Extent(h[6], h[11] * len(e.raw_sections), "section headers", structure=True)


def _section(s: Section, pieces: Sequence[int], found: Sequence[Piece]) -> Iterator[Extent]:
    loaded = bool(s.flags & elf.SHF_ALLOC)
    if not pieces:
        yield Extent(s.offset, s.size, s.name, structure=not loaded)
    for k in pieces:
        p = found[k]
        padding = not p.symbol and not p.name
        yield Extent(s.offset + p.start, p.size, s.name, None if padding else k, structure=padding)


def _without_gaps(claims: Iterable[Extent], size: int) -> Iterator[Extent]:
    at = 0
    for x in sorted((x for x in claims if x.size), key=lambda x: (x.offset, -x.size)):
        start, end = max(x.offset, at), min(x.offset + x.size, size)
        if start > at:
            yield Extent(at, start - at, "padding", structure=True)
        if end > start:
            yield replace(x, offset=start, size=end - start)
            at = end
    if at < size:
        yield Extent(at, size - at, "padding", structure=True)


def _archive(data: memoryview, trace: Trace | None) -> tuple[list[Extent], Trace]:
    """Each member with its header; a trace is the first object's, which is all that a link puts into one."""
    claims: list[Extent] = [Extent(0, 8, "archive header", structure=True)]
    pieces: list[Piece] = []
    for m in ar.members(data):
        start = _offset_of(data, m.data)
        if not 60 <= start <= len(data):
            continue  # a thin archive's member lies in a file of its own
        claims.append(Extent(start - 60, 60, "archive header", structure=True))
        inner: Iterable[Extent] = [Extent(0, len(m.data), "content")]
        if elf.is_elf(m.data):
            own = trace.pieces if trace and not pieces else pieces_of(m.data)
            inner = _elf(m.data, own)
            inner = [x if x.piece is None else replace(x, piece=x.piece + len(pieces)) for x in inner]
            pieces += _shifted(own, len(pieces))
        claims += [replace(x, offset=start + x.offset, member=m.name) for x in inner]
    return list(_named_tables(claims, len(data))), Trace(tuple(pieces), trace.defined if trace else {})


def _shifted(pieces: Sequence[Piece], by: int) -> Iterator[Piece]:
    for p in pieces:
        kept = p.kept_by + by if p.kept_by is not None and p.kept_by != ENTRY else p.kept_by
        yield replace(p, readers=tuple(k + by for k in p.readers), kept_by=kept)


def _named_tables(claims: Sequence[Extent], size: int) -> Iterator[Extent]:
    """What no member claims are the tables of symbols and long names, and bytes that align."""
    for x in _without_gaps(claims, size):
        yield replace(x, section="archive index") if x.section == "padding" and not x.member and x.size > 1 else x


def _offset_of(whole: memoryview, part: memoryview) -> int:
    if not len(part):
        return len(whole)
    return int(np.frombuffer(part, np.uint8).ctypes.data - np.frombuffer(whole, np.uint8).ctypes.data)
