"""The Object: one ELF file that any linker takes, and that carries all that ours wants to know.

    .text .rodata          native code with default decisions
    .rodata.mb.<hash>      weights, one COMDAT group each, defining the hidden symbol mb_w_<hash>
    .monobloc.ir           the graph as text, compressed
    .monobloc.bc           LLVM bitcode of the same code
    .monobloc.summary      JSON: what the linker decides with, versions, names of the weights

Linkers drop the last three from images (SHF_EXCLUDE) and lay them behind each other under `ld -r`,
so each holds records and one file may contain several Objects. Weights are read as views into the
mapped file. Equal weights of several objects have equal names, and linkers keep one of each group.
"""

from __future__ import annotations

import hashlib
import json
import re
import struct
import zlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from monobloc.cache import write_atomic
from monobloc.errors import LinkError, naming
from monobloc.object import ar, elf
from monobloc.object.elf import Buffer, Chunk, Later

FORMAT = 1
IR, BITCODE, SUMMARY = ".monobloc.ir", ".monobloc.bc", ".monobloc.summary"
SYMBOL_PREFIX = "mb_w_"
LARGE_OVER = 1 << 30  # bytes of weights beyond which 32-bit distances are in danger
_WEIGHT_SECTION = re.compile(r"\.l?rodata\.mb\.([0-9A-Za-z_]+)")


@dataclass(frozen=True)
class Weight:
    data: Chunk
    align: int = 64
    section: str = ""  # prefix of its section's name, where a memory region of the target holds it

    @property
    def size(self) -> int:
        return self.data.size if isinstance(self.data, Later) else memoryview(self.data).nbytes

    def read(self) -> memoryview:
        return memoryview(self.data.read() if isinstance(self.data, Later) else self.data).cast("B")


@dataclass(frozen=True)
class Object:
    code: Buffer  # a native relocatable; as read, the whole file
    ir: str
    bitcode: Buffer
    summary: Mapping[str, Any]
    weights: Mapping[str, Weight] = field(default_factory=dict)
    name: str = ""
    large_over: int = LARGE_OVER  # what the code was compiled for

    def write(self, path: Path, *, llvm: str, large_over: int | None = None) -> None:
        write_atomic(path, self.chunks(llvm=llvm, large_over=large_over))

    def chunks(self, *, llvm: str, large_over: int | None = None) -> list[Chunk]:
        """The file as chunks to write one after another; weights are read one by one."""
        machine = elf.Elf(self.code).machine
        sections, symbols = weight_sections(
            self.weights, machine, self.large_over if large_over is None else large_over
        )
        sizes = {h: w.size for h, w in sorted(self.weights.items())}
        summary = {**self.summary, "format": FORMAT, "llvm": llvm, "weights": sizes}
        text = json.dumps(summary, sort_keys=True, separators=(",", ":"))
        records = [(IR, _pack_text(self.ir)), (BITCODE, self.bitcode), (SUMMARY, text.encode())]
        sections += [elf.NewSection(n, elf.pack_record(d), align=8) for n, d in records]
        return elf.extend(self.code, sections, symbols)


def weight_hash(data: Buffer) -> str:
    """The name of a weight: its content."""
    return hashlib.blake2b(memoryview(data).cast("B"), digest_size=16).hexdigest()


def weight_symbol(content_hash: str) -> str:
    return SYMBOL_PREFIX + content_hash


def weight_sections(
    weights: Mapping[str, Weight], machine: int, large_over: int = LARGE_OVER,
    names: Mapping[str, Sequence[str]] | None = None, inside: Mapping[str, tuple[str, int]] | None = None,
    without: Collection[str] = (),
) -> tuple[list[elf.NewSection], list[elf.NewSymbol]]:
    """The weights as data that any linker merges by content.

    With `names`, symbols of each weight's own in place of that by content: then each is in one file
    only, so there is nothing to merge. The first of them has the weight's size, the others have none.
    Nothing then depends on content, not the order either: new weights lie where the old ones did.
    `inside` are weights that are names for a place in another one. Of those `without` only the size is written.
    """
    large = machine == elf.EM_X86_64 and sum(w.size for w in weights.values()) > large_over
    prefix, flags = (".lrodata", elf.SHF_X86_64_LARGE) if large else (".rodata", 0)
    sections, symbols = [], []
    section: dict[str, str] = {}
    for h, w in sorted(weights.items()) if names is None else weights.items():
        if inside and h in inside:
            continue
        label, symbol = (h, weight_symbol(h)) if names is None else (names[h][0], "")
        name = f"{prefix}.mb.{label}"
        if not _WEIGHT_SECTION.fullmatch(name):
            raise LinkError(f"`{h}` cannot be the name of a weight")
        name = f"{w.section}.{label}" if w.section else name
        kind = elf.SHT_NOBITS if h in without else elf.SHT_PROGBITS
        sections.append(elf.NewSection(name, w.data, elf.SHF_ALLOC | flags, w.align, kind, symbol))
        own = [symbol] if names is None else names[h]
        symbols += [elf.NewSymbol(s, name, size=w.size if k == 0 else 0) for k, s in enumerate(own)]
        section[h] = name
    for h, (host, at) in sorted((inside or {}).items()):
        symbols += [elf.NewSymbol(s, section[host], value=at) for s in (names or {}).get(h, [])]
    return sections, symbols


def weights_object(
    weights: Mapping[str, Weight], machine: int, large_over: int = LARGE_OVER,
    names: Mapping[str, Sequence[str]] | None = None, inside: Mapping[str, tuple[str, int]] | None = None,
    without: Collection[str] = (),
) -> list[Chunk]:
    """A relocatable of weights alone, as chunks to write."""
    return elf.write_object(machine, *weight_sections(weights, machine, large_over, names, inside, without))


def other_symbols(objects: Sequence[Object]) -> list[str]:
    """Global symbols in these objects' files that no model defines: code that `ld -r` joined with them."""
    out: list[str] = []
    files = {id(x.code): x.code for x in objects}
    for key, code in files.items():
        prefixes = [str(x.summary.get("prefix")) for x in objects if id(x.code) == key]
        own = re.compile(rf"mb_|(layer_\d+)?({'|'.join(map(re.escape, prefixes))})_")
        out += [s.name for s in elf.symbols(code)
                if s.defined and s.bind != elf.STB_LOCAL and not own.match(s.name)]
    return out


# -- reading ---------------------------------------------------------------------------------------


def is_monobloc(data: Buffer) -> bool:
    """True if the ELF file carries at least one Object."""
    try:
        return elf.is_elf(data) and any(s.name == SUMMARY for s in elf.sections(data))
    except LinkError:
        return False


def read(source: Path | Buffer, *, name: str = "", llvm: str = "") -> list[Object]:
    """All Objects of a file or an archive's members; `llvm` is the version that will use them."""
    path = source if isinstance(source, Path) else None
    data = ar.map_file(source) if isinstance(source, Path) else memoryview(source)
    name = name or (str(path) if path else "object")
    if not ar.is_archive(data):
        return _read_elf(data, name, llvm)
    found: list[Object] = []
    for m in ar.members(data, path):
        if is_monobloc(m.data):
            found += _read_elf(m.data, f"{name}({m.name})", llvm)
    return found


def _read_elf(data: memoryview, name: str, llvm: str) -> list[Object]:
    with naming(name):
        parsed = elf.Elf(data)
        parts = {n: _records(parsed, n) for n in (SUMMARY, IR, BITCODE)}
        if not parts[SUMMARY]:
            raise LinkError("is not a Monobloc object", hints=["`monobloc compile` makes one"])
        if not parts[BITCODE]:  # stripped: the graph is what a link needs
            parts[BITCODE] = [memoryview(b"")] * len(parts[SUMMARY])
        counts = {n: len(p) for n, p in parts.items()}
        if len(set(counts.values())) != 1:
            told = ", ".join(f"{n} has {c}" for n, c in counts.items())
            raise LinkError("its sections hold different numbers of records", notes=[told])
        weights = _weights(parsed)
        records = zip(parts[SUMMARY], parts[IR], parts[BITCODE], strict=True)
        return [_object(data, name, llvm, weights, *r) for r in records]


def _object(
    data: memoryview,
    name: str,
    llvm: str,
    weights: Mapping[str, Weight],
    summary_bytes: memoryview,
    ir: memoryview,
    bitcode: memoryview,
) -> Object:
    summary = _summary(summary_bytes)
    check_versions(summary, llvm)
    wanted = summary.get("weights")
    if not isinstance(wanted, dict):
        raise LinkError("damaged summary: `weights` is no table")
    for h, size in wanted.items():
        if h not in weights or weights[h].size != size:
            met = f"{weights[h].size} bytes" if h in weights else "nothing"
            raise LinkError(f"weight `{h}` should have {size} bytes, found {met}")
    own = {h: weights[h] for h in wanted}
    return Object(data, _unpack_text(ir), bitcode, summary, own, name)


def _records(parsed: elf.Elf, name: str) -> list[memoryview]:
    return [
        r for s in parsed.sections if s.name == name for r in elf.unpack_records(parsed.content(s))
    ]


def _weights(parsed: elf.Elf) -> dict[str, Weight]:
    found = {}
    for s in parsed.sections:
        if m := _WEIGHT_SECTION.fullmatch(s.name):
            found[m[1]] = Weight(parsed.content(s), max(s.align, 1))
    return found


def _summary(data: memoryview) -> dict[str, Any]:
    try:
        summary = json.loads(bytes(data))
    except (ValueError, RecursionError) as e:
        raise LinkError(f"damaged summary: {e}") from None
    if not isinstance(summary, dict):
        raise LinkError("damaged summary: it is no table")
    return summary


def check_versions(summary: Mapping[str, Any], llvm: str = "") -> None:
    """Refuses what was written by another format, or by an LLVM whose bitcode may differ."""
    again = "compile the model again with this version"
    if (met := summary.get("format")) != FORMAT:
        newer = isinstance(met, int) and met > FORMAT
        hints = [f"{again}, or update Monobloc" if newer else again]
        raise LinkError(f"object format {met}, this version reads format {FORMAT}", hints=hints)
    made = str(summary.get("llvm", "unknown"))
    if llvm and made.split(".")[0] != llvm.split(".")[0]:
        raise LinkError(f"compiled with LLVM {made}, this link uses LLVM {llvm}", hints=[again])


# -- compressed text -------------------------------------------------------------------------------


def _pack_text(text: str) -> bytes:
    raw = text.encode()
    return struct.pack("<Q", len(raw)) + zlib.compress(raw, 6)


def _unpack_text(data: memoryview) -> str:
    """Never makes more than the stated size, which compression bounds by the input's."""
    if len(data) < 8:
        raise LinkError(f"damaged graph: {len(data)} bytes")
    (size,) = struct.unpack_from("<Q", data)
    if size > 1100 * len(data) + 64:
        raise LinkError(f"damaged graph: {size} bytes cannot come from {len(data)}")
    try:
        d = zlib.decompressobj()
        raw = d.decompress(data[8:], size + 1)
        if len(raw) != size or not d.eof:
            raise LinkError(f"damaged graph: {size} bytes expected, {len(raw)} found")
        return raw.decode()
    except (zlib.error, UnicodeDecodeError) as e:
        raise LinkError(f"damaged graph: {e}") from None


def same_machine(objects: Sequence[Object]) -> int:
    """The machine all objects are for."""
    first: int = elf.Elf(objects[0].code).machine
    for o in objects[1:]:
        if (other := elf.Elf(o.code).machine) != first:
            names = [elf.MACHINE_NAMES.get(m, str(m)) for m in (first, other)]
            raise LinkError(f"{objects[0].name} is for {names[0]}, {o.name} is for {names[1]}")
    return first
