"""What an object defines and needs, as a linker sees it: the facts that decide which objects join a link."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from monobloc.link import live
from monobloc.object import bitcode, elf, slim
from monobloc.object.elf import Buffer
from monobloc.options import Options

_NONE: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Symbols:
    defined: frozenset[str] = _NONE  # weak ones too: they satisfy whoever needs them
    strong: frozenset[str] = _NONE  # of which there may be one only: neither weak, nor common, nor in a group
    needed: frozenset[str] = _NONE  # weak references need nothing


def read_symbols(data: Buffer, folder: Path, o: Options) -> Symbols:
    """Of a native object, fat or not, of bitcode, or GCC's slim form; other files have none."""
    if bitcode.is_bitcode(data):
        data = live.compiled(data, folder / "bitcode", o)
    if not elf.is_elf(data):
        return Symbols()
    e = elf.Elf(data)
    if e.type != elf.ET_REL:
        return Symbols()
    shared = {s.index for s in e.sections if s.flags & elf.SHF_GROUP or s.name.startswith(".gnu.linkonce.")}
    visible = [s for s in e.symbols if s.bind != elf.STB_LOCAL and s.name]
    return Symbols(
        frozenset(s.name for s in visible if s.defined),
        frozenset(s.name for s in visible if s.defined and s.bind == elf.STB_GLOBAL and s.section not in shared
                  and s.section != elf.SHN_COMMON),
        frozenset(s.name for s in visible if not s.defined and s.bind != elf.STB_WEAK) | slim.undefined(data),
    )
