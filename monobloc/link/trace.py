"""What an image consists of and what refers to what, taken from the linked file before it is stripped.

Problem: after the link only bytes are left, yet every one of them has to be explained: whose it is and
who keeps it. Idea: the linker's map says which file a part came from, the symbol table names it, and the
relocations that the link leaves (`--emit-relocs`) say who refers to it. Together they cut every section
into pieces, and a walk from the entry points gives each piece the one that keeps it.
"""

from __future__ import annotations

import json
import zlib
from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import astuple, dataclass, field, replace
from pathlib import Path

from monobloc.errors import MonoblocError
from monobloc.link.linkmap import Contribution, contributions, plain_file
from monobloc.link.remarks import Remark
from monobloc.link.stack import plain
from monobloc.object import ar, elf
from monobloc.object.elf import Buffer, Elf, Section, Symbol

ENTRY = -1  # keeps what the image starts with or exports
_STARTED = (".init", ".fini", ".init_array", ".fini_array", ".preinit_array", ".ctors", ".dtors")
_NO_REASON = (".eh_frame", ".gcc_except_table", ".stack_sizes")  # tables about code keep none of it
_SOURCE = (elf.STT_OBJECT, elf.STT_FUNC)


@dataclass(frozen=True)
class Piece:
    """Bytes of one section that belong to one thing."""

    section: str
    nth: int  # which of the sections of that name
    start: int
    size: int
    name: str  # the symbol, or the input section where none covers the bytes
    symbol: bool
    file: str = ""  # `app.o`, `libdsp.a(fir.o)`; empty: unknown, or made by the linker
    also: tuple[str, ...] = ()  # further names of the same bytes
    readers: tuple[int, ...] = ()  # pieces that refer to it
    kept_by: int | None = None  # the next piece on the way to an entry point, ENTRY, or nobody


@dataclass(frozen=True)
class Trace:
    """All pieces of an image, and which of the user's files defines a symbol."""

    pieces: tuple[Piece, ...] = ()
    defined: dict[str, str] = field(default_factory=dict)
    remarks: tuple[Remark, ...] = ()

    def packed(self) -> bytes:
        rows = [astuple(p) for p in self.pieces], self.defined, [astuple(r) for r in self.remarks]
        return zlib.compress(json.dumps(rows).encode(), 3)


def unpacked(data: bytes) -> Trace:
    pieces, defined, remarks = json.loads(zlib.decompress(data))
    return Trace(tuple(_piece(*p) for p in pieces), defined, tuple(Remark(*r) for r in remarks))


def _piece(section: str, nth: int, start: int, size: int, name: str, symbol: bool, file: str, also: list[str],
           readers: list[int], kept_by: int | None) -> Piece:
    return Piece(section, nth, start, size, name, symbol, file, tuple(also), tuple(readers), kept_by)


def of_file(path: Path, map_text: str = "", user: Iterable[Path | str] = ()) -> Trace:
    """The trace of a linked or relocatable file that still has its symbols."""
    return Trace(pieces_of(ar.map_file(path), map_text), defined_by(user))


def map_text(path: Path | None) -> str:
    return path.read_text(errors="replace") if path is not None and path.is_file() else ""


def numbered(sections: Sequence[Section]) -> dict[int, tuple[str, int]]:
    """Section index -> its name, and how many of that name stand before it."""
    seen: dict[str, int] = {}
    out = {}
    for s in sections:
        out[s.index] = (s.name, seen.get(s.name, 0))
        seen[s.name] = out[s.index][1] + 1
    return out


# -- pieces -------------------------------------------------------------------------------------------
def pieces_of(data: Buffer, map_text: str = "") -> tuple[Piece, ...]:
    e = Elf(data)
    linked = e.type != elf.ET_REL
    parts: dict[tuple[str, int], list[Contribution]] = {}
    for c in contributions(map_text):
        parts.setdefault((c.section, c.nth), []).append(c)
    symbols: dict[int, list[Symbol]] = {}
    for y in e.symbols:
        if y.defined and y.size and y.type in (*_SOURCE, elf.STT_NOTYPE):
            symbols.setdefault(y.section, []).append(y)
    cut: list[Piece] = []
    at: dict[int, tuple[int, int]] = {}  # section -> its pieces, as a range of `cut`
    keys = numbered(e.sections)
    for s in e.sections:
        if s.flags & elf.SHF_ALLOC and s.size:
            base = s.addr if linked else 0
            first = len(cut)
            cut += _cut(s, keys[s.index][1], base, parts.get(keys[s.index], []), symbols.get(s.index, []))
            at[s.index] = (first, len(cut))
    places = _Places(e, cut, at)
    readers = _readers(e, places)
    kept = _kept(cut, readers, _roots(e, places))
    return tuple(replace(p, readers=tuple(readers.get(k, ())), kept_by=kept.get(k)) for k, p in enumerate(cut))


def _cut(
    s: Section, nth: int, base: int, parts: Sequence[Contribution], symbols: Sequence[Symbol]
) -> Iterator[Piece]:
    """The pieces of a section in order; what lies between symbols goes by its input section."""
    names: dict[int, list[Symbol]] = {}
    for y in symbols:
        names.setdefault(y.value - base, []).append(y)
    spans = sorted((c.address - base, c.address - base + c.size, c) for c in parts) if parts else []
    at = 0
    for start in [*sorted(k for k in names if 0 <= k < s.size), s.size]:
        if start < at:
            continue  # inside of another
        yield from _unnamed(s, nth, at, start, spans)
        if start < s.size:
            here = sorted(names[start], key=lambda y: (y.bind == elf.STB_LOCAL, y.name))
            size = min(max(y.size for y in here), s.size - start)
            also = dict.fromkeys(n for y in here if (n := plain(y.name)) != plain(here[0].name))
            yield Piece(s.name, nth, start, size, plain(here[0].name), True, _file_at(spans, start), tuple(also))
            at = start + size


def _unnamed(
    s: Section, nth: int, at: int, end: int, spans: Sequence[tuple[int, int, Contribution]]
) -> Iterator[Piece]:
    k = max(bisect_right(spans, at, key=lambda x: x[0]) - 1, 0)
    while at < end:
        while k < len(spans) and spans[k][1] <= at:
            k += 1
        if k == len(spans) or spans[k][0] >= end:
            yield Piece(s.name, nth, at, end - at, "" if spans else s.name, False)
            return
        first, last, c = spans[k]
        if first > at:
            yield Piece(s.name, nth, at, first - at, "", False)
            at = first
        yield Piece(s.name, nth, at, min(last, end) - at, c.input, False, c.file)
        at = min(last, end)


def _file_at(spans: Sequence[tuple[int, int, Contribution]], at: int) -> str:
    k = bisect_right(spans, at, key=lambda x: x[0]) - 1
    return spans[k][2].file if k >= 0 and at < spans[k][1] else ""


# -- references ---------------------------------------------------------------------------------------
class _Places:
    """From an address (or, in relocatables, a section and an offset) to a piece."""

    def __init__(self, e: Elf, cut: Sequence[Piece], at: dict[int, tuple[int, int]]) -> None:
        self.e, self.linked = e, e.type != elf.ET_REL
        self.ranges, self.cut = at, cut
        self.starts = {k: [p.start for p in cut[a:b]] for k, (a, b) in at.items()}
        loaded = (s for s in e.sections if s.index in at and not _thread_zeros(s))
        self.loaded = sorted((s.addr, s.addr + s.size, s.index) for s in loaded)

    def find(self, section: int, offset: int) -> int | None:
        if section not in self.ranges:
            return None
        k = bisect_right(self.starts[section], offset) - 1
        first = self.ranges[section][0]
        return first + k if k >= 0 and offset < self.cut[first + k].start + max(self.cut[first + k].size, 1) else None

    def of_address(self, section: int, address: int) -> int | None:
        """An address in a section; in linked files the section follows from the address."""
        if not self.linked:
            return self.find(section, address)
        s = self.e.sections[section]
        if not s.addr <= address < s.addr + s.size:
            k = bisect_right(self.loaded, address, key=lambda x: x[0]) - 1
            if k < 0 or address >= self.loaded[k][1]:
                return None
            section = self.loaded[k][2]
        return self.find(section, address - self.e.sections[section].addr)


def _readers(e: Elf, places: _Places) -> dict[int, dict[int, None]]:
    """Piece -> the pieces that refer to it."""
    out: dict[int, dict[int, None]] = {}
    bias = elf.OPERAND_BIAS.get(e.machine, {})
    targets: dict[tuple[int, int], int | None] = {}
    for s in e.sections:
        if s.type not in (elf.SHT_RELA, elf.SHT_REL) or s.flags & elf.SHF_ALLOC or s.info not in places.ranges:
            continue
        if e.sections[s.info].name in _NO_REASON:
            continue
        for at, number, kind, addend in e.relocations(s):
            source = places.of_address(s.info, at)
            symbol = e.symbols[number] if number < len(e.symbols) else None
            if source is None or symbol is None or not symbol.defined or symbol.section >= elf.SHN_LORESERVE:
                continue
            more = addend + bias.get(kind, 0) if symbol.type == elf.STT_SECTION else 0
            if (number, more) not in targets:
                targets[number, more] = places.of_address(symbol.section, symbol.value + more)
            target = targets[number, more]
            if target is not None and target != source:
                out.setdefault(target, {})[source] = None
    return out


def _roots(e: Elf, places: _Places) -> list[int]:
    """What a loader or another file reaches: the entry point, what is exported, what starts by itself."""
    found: list[int | None] = []
    if places.linked:
        found += [places.of_address(s[2], e.header[4]) for s in places.loaded[:1]]
    for y in e.symbols:
        exported = y.bind != elf.STB_LOCAL and y.visibility in (elf.STV_DEFAULT, elf.STV_PROTECTED)
        if y.defined and exported and y.section < elf.SHN_LORESERVE and e.type != elf.ET_EXEC and y.type in _SOURCE:
            if places.linked and not _is_shared(e):
                continue
            found.append(places.of_address(y.section, y.value))
    for s in e.sections:
        if s.name.startswith(_STARTED) and s.index in places.ranges:
            found += range(*places.ranges[s.index])
    return list(dict.fromkeys(k for k in found if k is not None))


def _thread_zeros(s: Section) -> bool:
    """Thread-local zeros share addresses with what follows them."""
    return bool(s.flags & elf.SHF_TLS) and s.type == elf.SHT_NOBITS


def _is_shared(e: Elf) -> bool:
    return e.type == elf.ET_DYN and e.header[4] == 0


def _kept(cut: Sequence[Piece], readers: dict[int, dict[int, None]], roots: Sequence[int]) -> dict[int, int]:
    """Breadth first, so that every chain is a shortest one."""
    named: dict[int, list[int]] = {}
    for target, sources in readers.items():
        for source in sources:
            named.setdefault(source, []).append(target)
    out = dict.fromkeys(roots, ENTRY)
    todo = deque(roots)
    while todo:
        k = todo.popleft()
        for target in sorted(named.get(k, ())):
            if target not in out:
                out[target] = k
                todo.append(target)
    return out


# -- the user's files ---------------------------------------------------------------------------------
def defined_by(user: Iterable[Path | str]) -> dict[str, str]:
    """Symbol -> the file that defines it: Full LTO joins all files, and forgets which was which."""
    out: dict[str, str] = {}
    for path in user:
        if not isinstance(path, Path) or not path.is_file():
            continue
        for full, data in ar.contents(path, path.name):
            name = plain_file(full)
            for y in _symbols(data):
                if y.defined and y.name and y.type in _SOURCE and out.setdefault(y.name, name) != name:
                    out[y.name] = out[y.name] if y.bind == elf.STB_LOCAL else name
    return out


def _symbols(data: Buffer) -> list[Symbol]:
    try:
        return elf.symbols(data) if elf.is_elf(data) else []
    except MonoblocError:
        return []  # the linker has told already what is wrong with it
