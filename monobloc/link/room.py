"""Weights are written into the image behind the linker: it makes room for them and never sees their bytes.

Problem: a linker maps its inputs and its output, so it has every weight in memory twice, and each is written
twice. Idea: the object of weights says of a large one only how long it is (SHT_NOBITS). Beside constants that have
bytes the linker leaves as much room in the file, and after the link each weight goes to its place, one at a time.
The build id is made then, too: what the linker could make of a file without weights says nothing of them.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from monobloc.object import ar, elf
from monobloc.object.elf import Elf
from monobloc.object.fat import Weight
from monobloc.object.strip import build_id_place

LARGE = 1 << 12  # bytes; smaller ones are linked as they are, and see to it that there is room for the others
PIECE = 1 << 20


class NoRoom(Exception):
    """The linker left none, or it cannot be told where."""


@dataclass(frozen=True)
class Place:
    """Where in a file a weight lies"""

    offset: int
    size: int
    key: str


def waiting(weights: Mapping[str, Weight], inside: Mapping[str, tuple[str, int]]) -> frozenset[str]:
    """Which weights the linker need not see: not those of memory regions, which may have no room in the file."""
    return frozenset(k for k, w in weights.items() if w.size >= LARGE and not w.section and k not in inside)


def fill(path: Path, weights: Mapping[str, Weight], names: Mapping[str, str]) -> list[Place]:
    """Write weights to their places in a fresh image; `names` are the symbols of those that wait, by key."""
    places = _places(Elf(ar.map_file(path)), weights, names) if names else []
    with path.open("r+b") as f:
        for p in places:
            _write(f.fileno(), weights[p.key].read(), p.offset)
    return places


def _places(e: Elf, weights: Mapping[str, Weight], names: Mapping[str, str]) -> list[Place]:
    if e.symtab is None:
        raise NoRoom
    keys = {name: k for k, name in names.items()}
    found: dict[str, Place] = {}
    for s in e.symbols:
        if (key := keys.get(s.name)) is None or not s.defined:
            continue
        section = e.sections[s.section]
        if key in found or s.size != weights[key].size or section.type != elf.SHT_PROGBITS:
            raise NoRoom
        found[key] = Place(section.offset + s.value - section.addr, s.size, key)
    return sorted(found.values(), key=lambda p: p.offset)  # what nothing refers to is not there


def _write(fd: int, data: memoryview, at: int) -> None:
    while len(data):
        written = os.pwrite(fd, data, at)
        data, at = data[written:], at + written


# -- the build id ---------------------------------------------------------------------------------------
def identify(path: Path, places: Sequence[Place]) -> None:
    """Write the build id of a finished image: its bytes, with the names of large weights in place of theirs.

    Left alone where the command line asked for another kind of id, or for none.
    """
    data = ar.map_file(path)
    ident = build_id_place(Elf(data))
    if ident is None or any(data[ident[0] : sum(ident)]):
        return
    with path.open("r+b") as f:
        made, at = hashlib.sha256(), 0
        for p in [*places, Place(os.fstat(f.fileno()).st_size, 0, "")]:
            while at < p.offset:
                piece = os.pread(f.fileno(), min(PIECE, p.offset - at), at)
                made.update(piece)
                at += len(piece)
            made.update(p.key.encode())
            at = p.offset + p.size
        _write(f.fileno(), memoryview(made.digest()[: ident[1]]), ident[0])
