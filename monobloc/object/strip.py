"""Taking sections without memory off a linked file: symbols, relocations, stack sizes.

Problem: a link that is asked for what an analysis needs (relocations, symbols) writes it into the
image, and a second link would cost as much as the first. Idea: what occupies no memory lies behind
everything that does, so a new end of the file, section table included, does the work of `-s`.
"""

from __future__ import annotations

import struct

from monobloc.errors import InternalError
from monobloc.object import elf
from monobloc.object.elf import Elf, Section

_KEPT = (".comment",)


def stripped_end(e: Elf) -> tuple[int, bytes, bytes]:
    """Where the loaded part of the file ends, what comes behind it, and the new file header."""
    needed = {i for s in e.sections for i in (s.link, s.info)}
    kept = [s for s in e.sections if s.index == 0 or s.index in needed or not _is_nothing(s)]
    kept = [s for s in kept if s.index == 0 or s.flags & elf.SHF_ALLOC or s.name in _KEPT]
    loaded = [s for s in kept if s.flags & elf.SHF_ALLOC and s.type != elf.SHT_NOBITS]
    end = max([s.offset + s.size for s in loaded] + [e.header[5] + e.header[9] * e.header[10]])
    new = {s.index: i for i, s in enumerate(kept)}
    body, names, rows = bytearray(), bytearray(b"\0"), []
    for s in kept:
        row = list(e.raw_sections[s.index])
        if s.index:
            row[0] = len(names)
            names += s.name.encode() + b"\0"
        if s.index and not s.flags & elf.SHF_ALLOC:
            row[4] = end + len(body)
            body += e.content(s)
        if row[6] and row[6] not in new:
            raise InternalError(f"section `{s.name}` needs one that is to be stripped")
        row[6] = new[row[6]] if row[6] else 0
        if s.type in (elf.SHT_REL, elf.SHT_RELA):
            row[7] = new.get(row[7], 0)
        rows.append(row)
    rows.append([len(names), elf.SHT_STRTAB, 0, 0, end + len(body), 0, 0, 0, 1, 0])
    names += b".shstrtab\0"
    rows[-1][5] = len(names)
    body += names
    body += bytes(-(end + len(body)) % 8)
    head = list(e.header)
    head[6], head[12], head[13] = end + len(body), len(rows), len(rows) - 1
    body += b"".join(e.cls.section.pack(*row) for row in rows)
    return end, bytes(body), e.cls.header.pack(*head)


def _is_nothing(s: Section) -> bool:
    """A header without bytes: left over from start files, or the linker's padding."""
    return s.size == 0 or (s.type == elf.SHT_NOBITS and s.name == ".relro_padding")


def build_id_place(e: Elf) -> tuple[int, int] | None:
    """Offset and size of the build-id's bytes in the file."""
    note = next((s for s in e.sections if s.name == ".note.gnu.build-id"), None)
    if note is None:
        return None
    name, size, _ = struct.unpack_from("<III", e.content(note))
    return note.offset + 12 + -(-name // 4) * 4, size
