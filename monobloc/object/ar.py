"""Reading static archives: GNU, LLVM and BSD spellings of long names, and thin archives.

Members are views into the archive; those of a thin one are files named relative to the archive.
Writing what a build asks for is the archiver's work (`toolchain.archive`); `write` makes archives that
only a link of ours sees, without an index, in which two members may have one name.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from monobloc.errors import LinkError, naming
from monobloc.object.elf import Buffer

ARCHIVE, THIN = b"!<arch>\n", b"!<thin>\n"
_TABLES = {"/", "/SYM64/", "__.SYMDEF", "__.SYMDEF SORTED", "__.SYMDEF_64"}


@dataclass(frozen=True)
class Member:
    name: str
    data: memoryview
    path: Path | None = None  # of a thin archive's member


def is_archive(data: Buffer) -> bool:
    return bytes(memoryview(data)[:8]) in (ARCHIVE, THIN)


def map_file(path: Path) -> memoryview:
    """The file as a read-only view that costs no memory until it is read."""
    try:
        with open(path, "rb") as f:
            if f.seek(0, 2) == 0:
                return memoryview(b"")
            return memoryview(mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ))
    except OSError as e:
        raise LinkError(f"cannot read `{path}`: {(e.strerror or str(e)).lower()}") from None


def taken(part: memoryview) -> memoryview:
    """A copy of a part; where that is of a mapped file, its pages are given back."""
    copy, owner = memoryview(bytes(part)), part.obj
    if isinstance(owner, mmap.mmap) and hasattr(owner, "madvise"):
        # rounded inwards: neighbours are somebody else's
        start = -(-_distance(part, owner) // mmap.PAGESIZE) * mmap.PAGESIZE
        end = (_distance(part, owner) + part.nbytes) // mmap.PAGESIZE * mmap.PAGESIZE
        if end > start:
            owner.madvise(mmap.MADV_DONTNEED, start, end - start)
    return copy


def _distance(part: memoryview, owner: mmap.mmap) -> int:
    """How far into a mapping a part of it lies."""
    import numpy as np  # whoever takes weights has it; drivers that read archives start without

    first, whole = (np.frombuffer(x, np.uint8).ctypes.data for x in (part, owner))
    return int(first - whole)


def contents(path: Path, called: str = "") -> Iterator[tuple[str, memoryview]]:
    """A file, or its members if it is an archive, each with its name in messages: `called` in place of the path."""
    data, name = map_file(path), called or str(path)
    if not is_archive(data):
        yield name, data
        return
    for m in members(data, path):
        yield f"{name}({m.name})", m.data


def members(data: Buffer, path: Path | None = None) -> Iterator[Member]:
    """All object members in order. `path` is needed to find the members of a thin archive, and for messages."""
    with naming(str(path or "")):
        yield from _members(data, path)


def _members(data: Buffer, path: Path | None) -> Iterator[Member]:
    view = memoryview(data)
    if not is_archive(view):
        raise LinkError("not an archive", notes=[f"it starts with {bytes(view[:8])!r}"])
    thin, long_names, at = bytes(view[:8]) == THIN, b"", 8
    while at < len(view):
        name, size = _header(view, at)
        at += 60
        stored = not thin or name in _TABLES or name == "//"
        body = view[at : at + size] if stored else memoryview(b"")
        if stored and len(body) != size:
            raise LinkError(f"damaged archive: member `{name}` has {len(body)} of {size} bytes")
        at += size + (size & 1) if stored else 0
        if name == "//":
            long_names = bytes(body)
        elif name.startswith("#1/"):
            yield _bsd(name, body)
        elif name not in _TABLES:
            full = _long_name(name, long_names)
            yield Member(full, *_outside(full, path)) if thin else Member(full, body)


def _header(view: memoryview, at: int) -> tuple[str, int]:
    head = bytes(view[at : at + 60])
    if len(head) < 60 or head[58:60] != b"`\n":
        raise LinkError(f"damaged archive: no member header at {at:#x}")
    size = head[48:58].strip()
    if not size.isdigit():
        raise LinkError(f"damaged archive: member size {size!r} at {at:#x}")
    return head[:16].decode("latin-1").rstrip(" "), int(size)


def _long_name(name: str, table: bytes) -> str:
    if not (name.startswith("/") and name[1:].isdigit()):
        return name.removesuffix("/")
    start = int(name[1:])
    end = table.find(b"\n", start)
    if start >= len(table) or end < 0:
        raise LinkError(
            f"damaged archive: long name {name} is outside the table of {len(table)} bytes"
        )
    return table[start:end].decode("utf-8", "backslashreplace").removesuffix("/")


def _bsd(name: str, body: memoryview) -> Member:
    digits = name[3:]
    if not digits.isdigit() or int(digits) > len(body):
        raise LinkError(f"damaged archive: member name `{name}`")
    n = int(digits)
    return Member(bytes(body[:n]).rstrip(b"\0").decode("utf-8", "backslashreplace"), body[n:])


def _outside(name: str, archive: Path | None) -> tuple[memoryview, Path]:
    if archive is None:
        raise LinkError(f"the thin archive member `{name}` needs the archive's own path")
    if "\0" in name:
        raise LinkError(f"damaged archive: member name {name!r}")
    return map_file(archive.parent / name), archive.parent / name


def write(given: Iterable[Member]) -> list[Buffer]:
    """An archive as buffers to write: GNU's form, no index, no times, no owners."""
    table, body = b"", list[Buffer]()
    for m in given:
        name = m.name.encode("utf-8", "surrogateescape")
        body += [_member_header(f"/{len(table)}", m.data.nbytes), m.data, b"\n" * (m.data.nbytes & 1)]
        table += name + b"/\n"
    table += b"\n" * (len(table) & 1)
    return [ARCHIVE, _member_header("//", len(table)), table, *body]


def _member_header(name: str, size: int) -> bytes:
    return f"{name:<16}{0:<12}{0:<6}{0:<6}{644:<8}{size:<10}`\n".encode()
