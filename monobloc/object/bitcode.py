"""Reading LLVM bitcode as far as a linker must know it: version, form, symbols, how many modules.

Bitcode comes alone (`-c -emit-llvm`, `-flto`), beside native code in `.llvm.lto` (fat objects), and in
`.llvmbc` (`-fembed-bitcode`). A file is a sequence of blocks: one names its producer, one is the module
(in it, perhaps, a summary whose flags tell how it may be linked), one the linker's symbol table, one the
names. Blocks say their length, so only the few that matter are read.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass

from monobloc.errors import LinkError
from monobloc.object.elf import Buffer

MAGIC, WRAPPER = b"BC\xc0\xde", b"\xde\xc0\x17\x0b"
FAT, EMBEDDED = ".llvm.lto", ".llvmbc"  # sections of native objects that hold it
_IDENTIFICATION, _MODULE, _SUMMARY, _STRTAB, _SYMTAB = 13, 8, 20, 23, 25
_FLAGS, _UNIFIED = 20, 0x200  # record of a summary, and its bit
_UNDEFINED, _GLOBAL = 1 << 3, 1 << 10  # of a symbol
_HEADER = struct.Struct("<I24xII")  # of the symbol table: version, producer, modules, comdats; where symbols are
_TABLE_VERSION = 3  # of LLVM 22; another may mean another layout


@dataclass(frozen=True)
class Bitcode:
    """One module, or several that were joined by their bytes."""

    producer: str  # as "LLVM22.1.8"
    modules: int
    thin: bool  # holds a ThinLTO summary
    unified: bool  # may be linked in either mode
    defined: frozenset[str]
    needed: frozenset[str] = frozenset()
    listed: bool = False  # every module has a symbol table, inline assembly's symbols included

    @property
    def major(self) -> int | None:
        """LLVM's version, if it is LLVM's own."""
        m = re.match(r"LLVM(\d+)", self.producer)
        return int(m[1]) if m else None


def is_bitcode(data: Buffer) -> bool:
    return bytes(memoryview(data)[:4]) in (MAGIC, WRAPPER)


def read(data: Buffer, name: str) -> Bitcode:
    """What the bitcode says of itself; LinkError if it is damaged."""
    view = memoryview(data)
    if bytes(view[:4]) == WRAPPER:
        if len(view) < 20:
            raise LinkError(f"{name}: damaged bitcode: its wrapper is cut off")
        offset, size = struct.unpack_from("<8xII", view)
        view = view[offset : offset + size]
    try:
        return _read(view)
    except (struct.error, IndexError, ValueError, OverflowError, _Damaged) as e:
        raise LinkError(f"{name}: damaged bitcode", notes=[str(e)] if str(e) else ()) from None


class _Damaged(Exception):
    pass


def _read(view: memoryview) -> Bitcode:
    producer, flags, modules, thin = "", 0, 0, False
    symtab, strtab = b"", b""
    defined: set[str] = set()
    needed: set[str] = set()
    tables = 0
    for block in _top_level(view):
        if block.id == _IDENTIFICATION:
            producer = "".join(chr(c) for code, values, _ in block.records() if code == 1 for c in values)
        elif block.id == _MODULE:
            modules += 1
            for inner in block.blocks():
                if inner.id == _SUMMARY:
                    thin = True
                    flags |= next((v[0] for code, v, _ in inner.records() if code == _FLAGS and v), 0)
        elif block.id in (_SYMTAB, _STRTAB):
            blob = next((b for code, _, b in block.records() if code == 1), b"")
            symtab, strtab = (blob, strtab) if block.id == _SYMTAB else (symtab, blob)
            if block.id == _STRTAB:
                for undefined, name in _symbols(symtab, strtab):
                    (needed if undefined else defined).add(name)
                tables += len(symtab) >= _HEADER.size and _HEADER.unpack_from(symtab)[0] == _TABLE_VERSION
                symtab = b""
    return Bitcode(producer, modules, thin, bool(flags & _UNIFIED), frozenset(defined), frozenset(needed),
                   0 < modules == tables)


def _symbols(symtab: bytes, strtab: bytes) -> Iterator[tuple[bool, str]]:
    """Global symbols, and whether they are undefined. The table follows `llvm/Object/IRSymtab.h`."""
    if len(symtab) < _HEADER.size:
        return
    _, at, count = _HEADER.unpack_from(symtab)
    for k in range(count):
        start, size, _, _, _, flags = struct.unpack_from("<6I", symtab, at + 24 * k)
        if flags & _GLOBAL:
            yield bool(flags & _UNDEFINED), strtab[start : start + size].decode("utf-8", "replace")


# -- the bit stream -----------------------------------------------------------------------------------
_CHAR6 = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._"
Abbreviation = list[tuple[str, int]]
Record = tuple[int, list[int], bytes]


class _Bits:
    """Reads little-endian bits of a span of bytes."""

    def __init__(self, data: memoryview, at: int, end: int) -> None:
        self.data, self.at, self.end = data, at * 8, end * 8

    def take(self, n: int) -> int:
        if self.at + n > self.end:
            raise _Damaged(f"it ends inside of a block, at byte {self.at // 8}")
        first, last = self.at // 8, (self.at + n + 7) // 8
        value = int.from_bytes(self.data[first:last], "little") >> (self.at % 8)
        self.at += n
        return value & ((1 << n) - 1)

    def vbr(self, n: int) -> int:
        value, shift, more = 0, 0, 1 << (n - 1)
        while True:
            piece = self.take(n)
            value |= (piece & (more - 1)) << shift
            shift += n - 1
            if not piece & more:
                return value
            if shift > 70:
                raise _Damaged("a number has no end")

    def align(self) -> None:
        self.at = -(-self.at // 32) * 32


@dataclass(frozen=True)
class _Block:
    data: memoryview
    id: int
    width: int
    start: int
    end: int

    def blocks(self) -> Iterator[_Block]:
        return (b for b in self._walk() if isinstance(b, _Block))

    def records(self) -> Iterator[Record]:
        return (r for r in self._walk() if not isinstance(r, _Block))

    def _walk(self) -> Iterator[_Block | Record]:
        bits = _Bits(self.data, self.start, self.end)
        abbreviations: list[Abbreviation] = []
        while bits.at < bits.end:
            kind = bits.take(self.width)
            if kind == 0:
                return
            if kind == 1:
                inner = _enter(bits)
                yield inner
                bits.at = inner.end * 8
            elif kind == 2:
                abbreviations.append(_abbreviation(bits))
            elif kind == 3:
                code, n = bits.vbr(6), bits.vbr(6)
                yield code, [bits.vbr(6) for _ in range(_plausible(n, bits))], b""
            else:
                yield _abbreviated(bits, abbreviations[kind - 4])


def _plausible(n: int, bits: _Bits) -> int:
    if n > bits.end - bits.at:
        raise _Damaged("a record is longer than its block")
    return n


def _enter(bits: _Bits) -> _Block:
    number, width = bits.vbr(8), bits.vbr(4)
    bits.align()
    words = bits.take(32)
    start = bits.at // 8
    if start + 4 * words > bits.end // 8 or width < 2:
        raise _Damaged(f"a block at byte {start} is cut off")
    return _Block(bits.data, number, width, start, start + 4 * words)


def _abbreviation(bits: _Bits) -> Abbreviation:
    out: Abbreviation = []
    for _ in range(_plausible(bits.vbr(5), bits)):
        if bits.take(1):
            out.append(("literal", bits.vbr(8)))
            continue
        kind = bits.take(3)
        if kind in (1, 2):
            out.append(("fixed" if kind == 1 else "vbr", bits.vbr(5)))
        elif kind in (3, 4, 5):
            out.append((("array", "char6", "blob")[kind - 3], 0))
        else:
            raise _Damaged(f"an abbreviation of kind {kind}")
    return out


def _abbreviated(bits: _Bits, how: Abbreviation) -> Record:
    values: list[int] = []
    blob = b""
    for k, (kind, n) in enumerate(how):
        if kind == "array":
            values += [_scalar(bits, *how[k + 1]) for _ in range(_plausible(bits.vbr(6), bits))]
            break
        if kind == "blob":
            size = bits.vbr(6)
            bits.align()
            blob = bytes(bits.data[bits.at // 8 : bits.at // 8 + size])
            if len(blob) < size:
                raise _Damaged("a table is cut off")
            bits.at += 8 * size
            bits.align()
        else:
            values.append(_scalar(bits, kind, n))
    return values[0], values[1:], blob


def _scalar(bits: _Bits, kind: str, n: int) -> int:
    if kind == "literal":
        return n
    if kind == "char6":
        return ord(_CHAR6[bits.take(6)])
    return 0 if n == 0 else bits.take(n) if kind == "fixed" else bits.vbr(n)


def _top_level(view: memoryview) -> Iterator[_Block]:
    """Blocks of a file; joined files follow each other, each with its magic number."""
    at, size = 0, len(view)
    while at + 4 <= size:
        if bytes(view[at : at + 4]) in (MAGIC, b"\0\0\0\0"):  # the next module, or padding before it
            at += 4
            continue
        bits = _Bits(view, at, size)
        if bits.take(2) != 1:
            raise _Damaged(f"no block at byte {at}")
        block = _enter(bits)
        yield block
        at = block.end
