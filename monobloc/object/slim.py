"""Objects of `gcc -flto`: which symbols they leave to others.

A slim one holds no machine code and no ordinary symbol but a marker; a fat one holds both forms. What GCC
knows of symbols stands in `.gnu.lto_.symtab.HASH`, one for each object that `ld -r` joined, without the
compression of all other LTO sections. Format: `lto-streamer-out.cc`, `produce_symtab`, and the linker
plugin that reads it; it is the same for every machine, and `.gnu.lto_.ext_symtab` beside it adds nothing
that is needed here. Symbols of top-level assembly stand nowhere, so such an object is refused.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from monobloc.errors import LinkError
from monobloc.object import elf
from monobloc.object.elf import Buffer

MARKER = "__gnu_lto_slim"
_TABLES = (".gnu.lto_.symtab", ".gnu.offload_lto_.symtab")
_ASSEMBLY = (".gnu.lto_.asm.", ".gnu.offload_lto_.asm.")
_UNDEFINED = (2, 3)  # kinds: undefined, weakly undefined
_REST = struct.Struct("<BBQI")  # kind, visibility, size, slot


def is_slim(data: Buffer) -> bool:
    """Whether some of it is nothing but GCC's own form. `ld -r` may have joined it with real code."""
    return any(s.name.startswith(MARKER) for s in elf.symbols(data))


def undefined(data: Buffer) -> set[str]:
    """What the LTO form of an object needs; nothing if it has none."""
    e = elf.Elf(data)
    tables = [s for s in e.sections if s.name.startswith(_TABLES)]
    if tables and is_slim(data) and any(s.name.startswith(_ASSEMBLY) for s in e.sections):
        raise LinkError("a slim LTO object of GCC with top-level assembly does not tell which symbols that uses",
                        hints=["compile it with `-ffat-lto-objects`"])
    if not tables and is_slim(data):
        raise LinkError("a slim LTO object of GCC without a `.gnu.lto_.symtab` does not tell which symbols it uses",
                        hints=["compile it with `-ffat-lto-objects`"])
    return {name for s in tables for name in _entries(bytes(e.content(s)))}


def _entries(table: bytes) -> Iterator[str]:
    """Undefined symbols. An entry: name, NUL, COMDAT's name, NUL, kind, visibility, size, slot."""
    at = 0
    while at < len(table):
        name_end = table.find(b"\0", at)
        comdat_end = table.find(b"\0", name_end + 1) if name_end >= 0 else -1
        if comdat_end < 0 or comdat_end + 1 + _REST.size > len(table):
            raise LinkError("damaged `.gnu.lto_.symtab` in an LTO object of GCC")
        kind = _REST.unpack_from(table, comdat_end + 1)[0]
        if kind in _UNDEFINED:
            yield table[at:name_end].decode("utf-8", "replace")
        at = comdat_end + 1 + _REST.size
