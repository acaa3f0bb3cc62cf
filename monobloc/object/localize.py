"""Closing a relocatable: symbols that nobody outside may use become local.

`ld -r` keeps every global symbol global, so two finished blocks in one program would clash over
names that were only meant inside. Local symbols must stand before global ones, so the symbol table
is sorted anew, and relocations and groups, which count by its order, follow. Symbols in COMDAT
groups stay as they are: their group is what other objects share.
"""

from __future__ import annotations

import struct
from collections.abc import Callable

from monobloc.errors import LinkError
from monobloc.object import elf
from monobloc.object.elf import Elf, Section

# SHT_LLVM_ADDRSIG lists symbols whose address matters. Without it linkers take all of them as such,
# which is safe; `ld -r` leaves one that they warn about.
_ADDRSIG = 0x6FFF4C03


def localize(data: bytes, keep: Callable[[str], bool]) -> bytes:
    """The relocatable with all defined symbols local but those `keep` says yes to."""
    e = Elf(data)
    if e.type != elf.ET_REL or e.symtab is None:
        raise LinkError("only a relocatable file with a symbol table can be closed")
    out = bytearray(data)
    order = _order(e, keep)
    place = {old: new for new, (old, _) in enumerate(order)}
    _write_symbols(e, out, order)
    for s in e.sections:
        if s.type == _ADDRSIG:
            _set(e, out, s, {1: 0, 2: 0, 6: 0})
        elif s.link == e.symtab.index:
            _follow(e, out, s, place)
    return bytes(out)


def _order(e: Elf, keep: Callable[[str], bool]) -> list[tuple[int, bool]]:
    """Old index and whether it is local now, in the new order."""
    shared = {s.index for s in e.sections if s.flags & elf.SHF_GROUP}
    local = [
        s.bind == elf.STB_LOCAL or (s.defined and s.section not in shared and not keep(s.name))
        for s in e.symbols
    ]
    return sorted(enumerate(local), key=lambda item: not item[1])


def _write_symbols(e: Elf, out: bytearray, order: list[tuple[int, bool]]) -> None:
    assert e.symtab is not None
    positions, size = e.cls.symbol_order, e.cls.symbol.size
    inverse = sorted(range(6), key=positions.__getitem__)
    for new, (old, local) in enumerate(order):
        entry = list(e.raw_symbols[old])
        if local:
            entry[3] &= 15  # binding local; hidden says nothing more then
            entry[4] &= ~3
        packed = e.cls.symbol.pack(*(entry[i] for i in inverse))
        out[e.symtab.offset + new * size : e.symtab.offset + (new + 1) * size] = packed
    _set(e, out, e.symtab, {7: sum(local for _, local in order)})


def _set(e: Elf, out: bytearray, s: Section, changes: dict[int, int]) -> None:
    """Fields of a section's header, by position: 1 type, 2 flags, 6 link, 7 info."""
    fields = list(e.raw_sections[s.index])
    for position, value in changes.items():
        fields[position] = value
    e.cls.section.pack_into(out, e.header[6] + s.index * e.cls.section.size, *fields)


def _follow(e: Elf, out: bytearray, s: Section, place: dict[int, int]) -> None:
    if s.type in (elf.SHT_REL, elf.SHT_RELA):
        _relocations(e, out, s, place)
    elif s.type == elf.SHT_GROUP:
        _set(e, out, s, {7: _at(place, s.info)})
    elif s.type == elf.SHT_SYMTAB_SHNDX:
        raise LinkError("a relocatable with more than 65279 sections cannot be closed")


def _relocations(e: Elf, out: bytearray, s: Section, place: dict[int, int]) -> None:
    wide = e.bits == 64
    size = (24 if s.type == elf.SHT_RELA else 16) if wide else (12 if s.type == elf.SHT_RELA else 8)
    info, shift = (struct.Struct("<Q"), 32) if wide else (struct.Struct("<I"), 8)
    e.content(s)  # inside the file
    for at in range(s.offset + info.size, s.offset + s.size // size * size, size):
        (value,) = info.unpack_from(out, at)
        kind = value & ((1 << shift) - 1)
        info.pack_into(out, at, _at(place, value >> shift) << shift | kind)


def _at(place: dict[int, int], index: int) -> int:
    if index not in place:
        raise LinkError(f"damaged ELF file: symbol {index} of {len(place)} is used")
    return place[index]
