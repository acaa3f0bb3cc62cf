"""Reading and extending ELF files with nothing but `struct`.

Problem: our objects carry sections no compiler writes (graph, bitcode, summary, weights), and tools
that could add them are missing on many machines or break relocatable files. Idea: a relocatable
file keeps all its bytes; new sections, symbols and tables are appended behind them and only the
header is rewritten. An object "from scratch" is an empty one extended the same way. Contents are
lists of buffers, so gigabytes of weights pass through without a copy.

Files come from strangers: every offset is checked, and whatever is wrong is a `LinkError`. Layout:
System V gABI, chapter 4; COMDAT groups, "Section Groups"; x86-64 psABI for large sections.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeAlias

from monobloc.errors import LinkError, UnsupportedError

Buffer: TypeAlias = bytes | bytearray | memoryview

MAGIC = b"\x7fELF"
ET_REL, ET_EXEC, ET_DYN = 1, 2, 3
EM_386, EM_ARM, EM_X86_64, EM_AARCH64, EM_RISCV = 3, 40, 62, 183, 243
MACHINE_NAMES = {
    EM_386: "i386",
    EM_ARM: "arm",
    EM_X86_64: "x86-64",
    EM_AARCH64: "aarch64",
    EM_RISCV: "riscv",
    164: "hexagon",
}
SHT_PROGBITS, SHT_SYMTAB, SHT_STRTAB, SHT_RELA, SHT_NOBITS = 1, 2, 3, 4, 8
SHT_REL, SHT_DYNSYM, SHT_GROUP, SHT_SYMTAB_SHNDX = 9, 11, 17, 18
SHF_WRITE, SHF_ALLOC, SHF_EXECINSTR, SHF_GROUP, SHF_TLS = 0x1, 0x2, 0x4, 0x200, 0x400
SHF_X86_64_LARGE, SHF_EXCLUDE = 0x10000000, 0x80000000
SHN_UNDEF, SHN_LORESERVE, SHN_ABS, SHN_COMMON, SHN_XINDEX = 0, 0xFF00, 0xFFF1, 0xFFF2, 0xFFFF
STB_LOCAL, STB_GLOBAL, STB_WEAK = 0, 1, 2
STT_NOTYPE, STT_OBJECT, STT_FUNC, STT_SECTION, STT_FILE = 0, 1, 2, 3, 4
STV_DEFAULT, STV_INTERNAL, STV_HIDDEN, STV_PROTECTED = 0, 1, 2, 3
PT_LOAD, PT_DYNAMIC, PT_INTERP, PT_GNU_STACK, PT_GNU_RELRO = 1, 2, 3, 0x6474E551, 0x6474E552
PF_X, PF_W, PF_R = 1, 2, 4
GRP_COMDAT = 1
OPERAND_BIAS = {EM_X86_64: {2: 4, 4: 4, 9: 4, 41: 4, 42: 4}}  # addends of operands relative to their end, by kind
_NAME_MAX = 1 << 16


@dataclass(frozen=True)
class Section:
    index: int
    name: str
    type: int
    flags: int
    addr: int
    offset: int
    size: int
    link: int
    info: int
    align: int
    entsize: int


@dataclass(frozen=True)
class Symbol:
    name: str
    value: int
    size: int
    bind: int
    type: int
    visibility: int
    section: int

    @property
    def defined(self) -> bool:
        return self.section != SHN_UNDEF


@dataclass(frozen=True)
class Segment:
    type: int
    flags: int
    offset: int
    vaddr: int
    filesz: int
    memsz: int
    align: int


@dataclass(frozen=True)
class _Class:
    """What differs between ELF32 and ELF64: the order and width of the fields."""

    header: struct.Struct
    section: struct.Struct
    symbol: struct.Struct
    segment: struct.Struct
    symbol_order: tuple[int, ...]  # positions of name, value, size, info, other, section
    segment_order: tuple[int, ...]  # positions of type, flags, offset, vaddr, filesz, memsz, align


_ELF32 = _Class(
    struct.Struct("<16sHHIIIIIHHHHHH"),
    struct.Struct("<10I"),
    struct.Struct("<IIIBBH"),
    struct.Struct("<8I"),
    (0, 1, 2, 3, 4, 5),
    (0, 6, 1, 2, 4, 5, 7),
)
_ELF64 = _Class(
    struct.Struct("<16sHHIQQQIHHHHHH"),
    struct.Struct("<IIQQQQIIQQ"),
    struct.Struct("<IBBHQQ"),
    struct.Struct("<IIQQQQQQ"),
    (0, 4, 5, 1, 2, 3),
    (0, 1, 2, 3, 5, 6, 7),
)


def _bad(what: str) -> LinkError:
    return LinkError(f"damaged ELF file: {what}")


class Elf:
    """A parsed view of one file; nothing is copied but names."""

    def __init__(self, data: Buffer) -> None:
        self.data = memoryview(data)
        if self.data.format != "B" or self.data.ndim != 1:
            self.data = self.data.cast("B")
        ident = bytes(self.data[:16])
        if ident[:4] != MAGIC:
            raise LinkError("not an ELF file", notes=[f"it starts with {ident[:4]!r}"])
        if len(ident) < 16 or ident[4] not in (1, 2):
            raise _bad("unknown file class")
        if ident[5] != 1:
            raise UnsupportedError("big-endian ELF files are not supported")
        self.bits = 32 * ident[4]
        self.cls = _ELF64 if ident[4] == 2 else _ELF32
        if len(self.data) < self.cls.header.size:
            raise _bad(
                f"the header needs {self.cls.header.size} bytes, the file has {len(self.data)}"
            )
        self.header = self.cls.header.unpack_from(self.data)
        self.type: int = self.header[1]
        self.machine: int = self.header[2]

    def take(self, offset: int, size: int, what: str) -> memoryview:
        if offset + size > len(self.data):
            raise _bad(
                f"{what} at {offset:#x}+{size:#x} is outside the file of {len(self.data):#x} bytes"
            )
        return self.data[offset : offset + size]

    def _table(
        self, offset: int, count: int, size: int, s: struct.Struct, what: str
    ) -> Iterator[tuple[int, ...]]:
        if count and size != s.size:
            raise _bad(f"{what} entries are {size} bytes, expected {s.size}")
        return s.iter_unpack(self.take(offset, count * s.size, what))

    @cached_property
    def raw_sections(self) -> list[tuple[int, ...]]:
        offset, size, count = self.header[6], self.header[11], self.header[12]
        if offset == 0:
            return []
        if count == 0:  # more than 65279 sections: the count stands in the null section
            count = next(self._table(offset, 1, size, self.cls.section, "section table"))[5]
        return list(self._table(offset, count, size, self.cls.section, "section table"))

    @cached_property
    def names_index(self) -> int:
        index = self.header[13]
        if index == SHN_XINDEX and self.raw_sections:
            index = self.raw_sections[0][6]
        if self.raw_sections and index >= len(self.raw_sections):
            raise _bad(
                f"section {index} for names, but there are {len(self.raw_sections)} sections"
            )
        return int(index)

    @cached_property
    def sections(self) -> list[Section]:
        if not self.raw_sections:
            return []
        names = self.strings(self.names_index)
        return [Section(i, name_at(names, h[0]), *h[1:]) for i, h in enumerate(self.raw_sections)]

    def strings(self, index: int) -> bytes:
        if index >= len(self.raw_sections):
            raise _bad(f"string table {index} does not exist")
        h = self.raw_sections[index]
        return bytes(self.take(h[4], h[5], "string table")) if h[1] != SHT_NOBITS else b""

    def content(self, s: Section) -> memoryview:
        if s.type == SHT_NOBITS:
            return memoryview(b"")
        return self.take(s.offset, s.size, f"section `{s.name}`")

    def relocations(self, s: Section) -> Iterator[tuple[int, int, int, int]]:
        """Offset, symbol, kind and addend of each; an addend that stands in the code is not read."""
        wide, with_addend = self.bits == 64, s.type == SHT_RELA
        form = ("<QQ" if wide else "<II") + (("q" if wide else "i") if with_addend else "")
        shift, mask = (32, 0xFFFFFFFF) if wide else (8, 0xFF)
        size = struct.calcsize(form)
        for at, info, *addend in struct.iter_unpack(form, self.content(s)[: s.size // size * size]):
            yield at, info >> shift, info & mask, addend[0] if addend else 0

    @cached_property
    def symtab(self) -> Section | None:
        return next((s for s in self.sections if s.type == SHT_SYMTAB), None)

    @cached_property
    def dynsym(self) -> Section | None:
        return next((s for s in self.sections if s.type == SHT_DYNSYM), None)

    @cached_property
    def raw_symbols(self) -> list[tuple[int, ...]]:
        """name, value, size, info, other, section of each symbol; the null one included."""
        return self.raw_symbols_of(self.symtab)

    def raw_symbols_of(self, s: Section | None) -> list[tuple[int, ...]]:
        if s is None:
            return []
        size, order = self.cls.symbol.size, self.cls.symbol_order
        if s.size % size:
            raise _bad(f"symbol table of {s.size} bytes is not a multiple of {size}")
        table = self._table(s.offset, s.size // size, s.entsize, self.cls.symbol, "symbol table")
        return [tuple(t[i] for i in order) for t in table]

    @cached_property
    def symbols(self) -> list[Symbol]:
        return self.symbols_of(self.symtab)

    def symbols_of(self, table: Section | None) -> list[Symbol]:
        if table is None:
            return []
        names = self.strings(table.link)
        return [
            Symbol(name_at(names, n), value, size, info >> 4, info & 15, other & 3, section)
            for n, value, size, info, other, section in self.raw_symbols_of(table)
        ]

    @cached_property
    def segments(self) -> list[Segment]:
        offset, size, count = self.header[5], self.header[9], self.header[10]
        table = self._table(offset, count, size, self.cls.segment, "program headers")
        return [Segment(*(t[i] for i in self.cls.segment_order)) for t in table]


def name_at(strings: bytes, offset: int) -> str:
    end = strings.find(b"\0", offset, offset + _NAME_MAX)
    if offset >= len(strings) and not (offset == 0 and not strings):
        raise _bad(f"name at {offset:#x} is outside its string table of {len(strings):#x} bytes")
    if end < 0 and strings:
        raise _bad(f"name at {offset:#x} does not end")
    return strings[offset:end].decode("utf-8", "backslashreplace") if strings else ""


def is_elf(data: Buffer) -> bool:
    return bytes(memoryview(data)[:4]) == MAGIC


def sections(data: Buffer) -> list[Section]:
    return Elf(data).sections


def get_section(data: Buffer, name: str) -> memoryview | None:
    """The content of the first section of that name, as a view into `data`."""
    elf = Elf(data)
    found = next((s for s in elf.sections if s.name == name), None)
    return None if found is None else elf.content(found)


def symbols(data: Buffer) -> list[Symbol]:
    return Elf(data).symbols


def linked_symbols(data: Buffer) -> list[Symbol]:
    """Those a linker goes by: of a stripped shared library, the dynamic ones are all there are."""
    e = Elf(data)
    return [*e.symbols, *e.symbols_of(e.dynsym)]


def program_headers(data: Buffer) -> list[Segment]:
    return Elf(data).segments


# -- writing ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Later:
    """Bytes that are read when they are written, and need no memory before or after."""

    size: int
    read: Callable[[], Buffer]

    def __call__(self) -> Buffer:
        return self.read()

    def __len__(self) -> int:
        return self.size


Chunk = Buffer | Later  # of a file to be written


@dataclass(frozen=True)
class NewSection:
    """A section to append. `comdat` names the symbol of its group: linkers keep one of each.

    Of a section of type SHT_NOBITS only the size is written.
    """

    name: str
    data: Chunk | Sequence[Buffer]
    flags: int = SHF_EXCLUDE
    align: int = 1
    type: int = SHT_PROGBITS
    comdat: str = ""

    @property
    def buffers(self) -> list[memoryview] | list[Later]:
        if isinstance(self.data, Later):
            return [self.data]
        parts = [self.data] if isinstance(self.data, bytes | bytearray | memoryview) else self.data
        return [memoryview(p).cast("B") for p in parts]

    @property
    def size(self) -> int:
        return sum(map(len, self.buffers))


@dataclass(frozen=True)
class NewSymbol:
    """A global symbol at an offset of `section` (a name among the new sections)."""

    name: str
    section: str
    value: int = 0
    size: int = 0
    type: int = STT_OBJECT
    visibility: int = STV_HIDDEN
    bind: int = STB_GLOBAL


@dataclass
class _Writer:
    """Appends to the bytes of `elf`; `chunks` joined are the new file."""

    elf: Elf
    chunks: list[Chunk] = field(default_factory=list)
    size: int = 0

    def __post_init__(self) -> None:
        e = self.elf
        if e.type != ET_REL:
            raise LinkError(
                f"sections can only be added to relocatable files, this one has type {e.type}"
            )
        if e.symtab is None:
            raise LinkError(
                "sections can only be added to files with a symbol table, this one has none"
            )
        if any(s.type == SHT_SYMTAB_SHNDX for s in e.sections):
            raise UnsupportedError("an object with more than 65279 sections cannot be extended")
        self.headers = [list(h) for h in e.raw_sections]
        self.symbols = [list(s) for s in e.raw_symbols]
        self.tables = {i: bytearray(e.strings(i)) for i in {e.names_index, e.symtab.link}}
        self.by_name = {s.name: i for i, s in enumerate(e.symbols) if s.bind != STB_LOCAL}
        self.put([e.data[e.cls.header.size :]], 1, start=e.cls.header.size)

    def put(self, data: Iterable[Chunk], align: int, start: int = 0) -> int:
        self.size += start
        gap = -self.size % max(align, 1)
        if gap:
            self.chunks.append(bytes(gap))
        offset = self.size = self.size + gap
        for d in data:
            self.chunks.append(d)
            self.size += len(d)
        return offset

    def string(self, table: int, text: str) -> int:
        offset = len(self.tables[table])
        self.tables[table] += text.encode() + b"\0"
        return offset

    def symbol(self, s: NewSymbol, section: int) -> int:
        """Defines an undefined symbol in place (its relocations follow), or appends a new one."""
        assert self.elf.symtab is not None and s.bind != STB_LOCAL
        index = self.by_name.get(s.name)
        if index is None:
            name = self.string(self.elf.symtab.link, s.name)
            index = self.by_name[s.name] = len(self.symbols)
            self.symbols.append([name, 0, 0, 0, 0, SHN_UNDEF])
        entry = self.symbols[index]
        if entry[5] != SHN_UNDEF:
            raise LinkError(f"symbol `{s.name}` is defined twice in one object")
        visibility = (
            min(v for v in (entry[4] & 3, s.visibility, 9) if v) if s.visibility else entry[4] & 3
        )
        entry[1:] = [s.value, s.size, s.bind << 4 | s.type, visibility, section]
        return index

    def header(self, name: str, *rest: int) -> int:
        if len(self.headers) + 1 >= SHN_LORESERVE:
            raise UnsupportedError("an object cannot have more than 65279 sections")
        self.headers.append([self.string(self.elf.names_index, name), *rest])
        return len(self.headers) - 1

    def add(self, new: Sequence[NewSection], syms: Sequence[NewSymbol]) -> None:
        wanted: dict[str, list[NewSymbol]] = {}
        for s in syms:
            wanted.setdefault(s.section, []).append(s)
        for sec in new:
            index = len(self.headers) + bool(sec.comdat)
            found = {s.name: self.symbol(s, index) for s in wanted.pop(sec.name, [])}
            if sec.comdat:
                self.group(found[sec.comdat], index)
            flags = sec.flags | (SHF_GROUP if sec.comdat else 0)
            offset = self.put(sec.buffers if sec.type != SHT_NOBITS else [], sec.align)
            self.header(sec.name, sec.type, flags, 0, offset, sec.size, 0, 0, sec.align, 0)
        if wanted:
            raise LinkError(
                f"symbol `{next(iter(wanted.values()))[0].name}` names no section of this object"
            )

    def group(self, signature: int, member: int) -> None:
        assert self.elf.symtab is not None
        offset = self.put([struct.pack("<II", GRP_COMDAT, member)], 4)
        table = self.elf.symtab.index
        self.header(".group", SHT_GROUP, 0, 0, offset, 8, table, signature, 4, 4)

    def finish(self) -> list[Chunk]:
        e, cls = self.elf, self.elf.cls
        assert e.symtab is not None
        inverse = sorted(range(6), key=cls.symbol_order.__getitem__)
        table = b"".join(cls.symbol.pack(*(s[i] for i in inverse)) for s in self.symbols)
        self.move(e.symtab.index, table, 8)
        for index in sorted(self.tables):
            self.move(index, bytes(self.tables[index]), 1)
        where = self.put([b"".join(cls.section.pack(*h) for h in self.headers)], 8)
        head = list(e.header)
        head[6], head[11], head[12], head[13] = (
            where,
            cls.section.size,
            len(self.headers),
            e.names_index,
        )
        try:
            return [cls.header.pack(*head), *self.chunks]
        except struct.error:
            raise UnsupportedError("a 32-bit object cannot exceed 4 GiB") from None

    def move(self, index: int, data: bytes, align: int) -> None:
        self.headers[index][4] = self.put([data], align)
        self.headers[index][5] = len(data)


def extend(data: Buffer, new: Sequence[NewSection], syms: Sequence[NewSymbol] = ()) -> list[Chunk]:
    """The relocatable `data` with more sections and symbols, as buffers to write in order."""
    writer = _Writer(Elf(data))
    writer.add(new, syms)
    return writer.finish()


def joined(chunks: Iterable[Chunk]) -> bytes:
    """A file in memory"""
    return b"".join(c.read() if isinstance(c, Later) else c for c in chunks)


def add_sections(data: Buffer, new: Sequence[tuple[str, Buffer, int, int]]) -> bytes:
    """`extend` for the simple case: (name, content, flags, alignment) each."""
    return joined(extend(data, [NewSection(n, d, flags, align) for n, d, flags, align in new]))


def empty(machine: int, bits: int = 64, flags: int = 0) -> bytes:
    """A relocatable file with no code, ready to be extended."""
    cls = _ELF64 if bits == 64 else _ELF32
    names = b"\0.strtab\0.symtab\0.note.GNU-stack\0"
    null = bytes(cls.symbol.size)
    start = cls.header.size
    table = start + len(null)
    end = -(-(table + len(names)) // 8) * 8
    headers = [
        (0,) * 10,
        (1, SHT_STRTAB, 0, 0, table, len(names), 0, 0, 1, 0),
        (9, SHT_SYMTAB, 0, 0, start, len(null), 1, 1, 8, cls.symbol.size),
        (17, SHT_PROGBITS, 0, 0, table, 0, 0, 0, 1, 0),
    ]
    ident = MAGIC + bytes([bits // 32, 1, 1]) + bytes(9)
    sizes = (cls.header.size, 0, 0, cls.section.size, len(headers), 1)
    head = cls.header.pack(ident, ET_REL, machine, 1, 0, 0, end, flags, *sizes)
    body = (head + null + names).ljust(end, b"\0")
    return body + b"".join(cls.section.pack(*h) for h in headers)


def write_object(
    machine: int,
    new: Sequence[NewSection],
    syms: Sequence[NewSymbol] = (),
    *,
    bits: int = 64,
    flags: int = 0,
) -> list[Chunk]:
    """A relocatable file made of these sections and symbols alone."""
    return extend(empty(machine, bits, flags), new, syms)


# -- records ---------------------------------------------------------------------------------------

_RECORD = struct.Struct("<8sQII")
_RECORD_MAGIC = b"MONOBLC\x01"


def pack_record(payload: Buffer) -> bytes:
    """One record of one of our sections: `ld -r` may lay several behind each other."""
    body = bytes(payload)
    head = _RECORD.pack(_RECORD_MAGIC, len(body), zlib.crc32(body), 0)
    return (head + body).ljust(-(-(len(head) + len(body)) // 8) * 8, b"\0")


def unpack_records(data: Buffer) -> list[memoryview]:
    """The payloads of all records; between two there may be any padding of zeros."""
    view, out, at = memoryview(data), [], 0
    while at < len(view):
        if view[at] == 0:
            at += 1
            continue
        if at + _RECORD.size > len(view):
            raise LinkError(
                f"damaged record: {len(view) - at} bytes left, a header needs {_RECORD.size}"
            )
        magic, size, crc, _ = _RECORD.unpack_from(view, at)
        body = view[at + _RECORD.size : at + _RECORD.size + size]
        if magic != _RECORD_MAGIC:
            raise LinkError(f"damaged record: it starts with {magic!r}, expected {_RECORD_MAGIC!r}")
        if len(body) != size:
            raise LinkError(f"damaged record: {len(body)} bytes of {size}")
        if zlib.crc32(body) != crc:
            raise LinkError("damaged record: its checksum does not match")
        out.append(body)
        at += _RECORD.size + size
    return out
