"""What objects define and need, as a linker sees it: which join a link, and what those linked elsewhere read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from monobloc.cache import write_atomic
from monobloc.errors import LinkError, ToolchainError, naming
from monobloc.object import ar, bitcode, elf, slim, toolchain
from monobloc.object.elf import Buffer
from monobloc.object.toolchain import LinkJob
from monobloc.options import Options

Chain = tuple[str, ...]  # who names a symbol, who names that, ... up to a root
_NONE: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Symbols:
    defined: frozenset[str] = _NONE  # weak ones too: they satisfy whoever needs them
    strong: frozenset[str] = _NONE  # of which there may be one only: neither weak, nor common, nor in a group
    needed: frozenset[str] = _NONE  # weak references need nothing


def is_code(data: Buffer) -> bool:
    """What a linker takes for an object."""
    return elf.is_elf(data) or bitcode.is_bitcode(data)


def read_symbols(data: Buffer, folder: Path, o: Options) -> Symbols:
    """Of a native object, fat or not, of bitcode, or GCC's slim form; other files have none."""
    if bitcode.is_bitcode(data):
        data = _compiled(data, folder / "bitcode", o)
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


# -- objects that are not linked ------------------------------------------------------------------------
def used_by(paths: Sequence[Path], folder: Path, o: Options) -> dict[str, Chain]:
    """Symbols that objects and archives leave undefined, in whatever form they are, and who does."""
    out: dict[str, Chain] = {}
    for path in paths:
        if not path.is_file():
            raise LinkError(f"cannot read `{path}`: no such file")
        _has_code(path)
        for name, data in _objects(path):
            with naming(str(path.parent / name)):
                found = undefined(data, folder / "used", o)
            for s in sorted(found):
                out.setdefault(s, (name,))
    return out


def _has_code(path: Path) -> None:
    """An archive of other things, as of archives, would say that nobody reads anything; an empty one may."""
    data = ar.map_file(path)
    others = list(ar.members(data, path)) if ar.is_archive(data) else []
    if others and not any(is_code(m.data) for m in others):
        what = "an archive" if ar.is_archive(others[0].data) else "no object"
        raise LinkError(f"`--used-by {path}`: it holds no object", notes=[f"its member `{others[0].name}` is {what}"],
                        hints=["name objects, and archives of objects"])


def _objects(path: Path) -> Iterator[tuple[str, Buffer]]:
    """An object, or those of an archive, with their names; other members of archives are no linker's business."""
    data = ar.map_file(path)
    if not ar.is_archive(data):
        yield path.name, data
        return
    for m in ar.members(data, path):
        if is_code(m.data):
            yield f"{path.name}({m.name})", m.data


def undefined(data: Buffer, scratch: Path, o: Options) -> set[str]:
    """Symbols one file needs: native, fat or bitcode, GCC's slim form, or a shared library."""
    if bitcode.is_bitcode(data):
        told = bitcode.read(data, "bitcode")
        if told.listed:  # of any LLVM, for any machine
            return set(told.needed)
        data = _compiled(data, scratch, o)
    if not elf.is_elf(data):
        raise LinkError("`--used-by` takes objects, bitcode and archives of them",
                        notes=[f"it starts with {bytes(data[:8])!r}"])
    return {s.name for s in elf.linked_symbols(data) if s.name and not s.defined} | slim.undefined(data)


def _compiled(code: Buffer, scratch: Path, o: Options) -> Buffer:
    """As code, so that inline assembly is seen too; without optimizing, for its own link may not either."""
    source, made = scratch.with_suffix(".bc"), scratch.with_suffix(".o")
    write_atomic(source, [code])
    job = LinkJob("relocatable", (source,), made, o.target, gc=False, extra=("--lto-O0", "--lto-CGO0"))
    try:
        return toolchain.link(job).out.read_bytes()
    except ToolchainError as e:
        tool = toolchain.tool_version()
        raise LinkError(f"{tool} cannot read its bitcode", notes=e.output.strip().splitlines()[:1],
                        hints=["give an object with machine code, as `-ffat-lto-objects` makes it"]) from None


def refuse_slim(path: Path) -> None:
    """lld takes these objects, finds no code in them, and says that something else is missing."""
    for name, data in _objects(path):
        if elf.is_elf(data) and slim.is_slim(data):
            raise LinkError(
                f"{path.parent / name} is a slim LTO object of GCC: it holds no machine code, and only GCC can read it",
                hints=["compile it with `-ffat-lto-objects`, or let `monobloc compile` compile the source",
                       "or let GCC link: `monobloc link -r MODELS --used-by OBJECT... -o models.o`"],
            )


def check_linkable(path: Path, o: Options) -> None:
    """What lld cannot take, told in words."""
    refuse_slim(path)
    for name, data in _objects(path):
        if not elf.is_elf(data):
            continue
        e = elf.Elf(data)
        if (e.machine, e.bits) != (o.target.elf_machine, 8 * o.target.pointer_size):
            met = elf.MACHINE_NAMES.get(e.machine, f"machine {e.machine}")
            raise LinkError(f"{path.parent / name} is for {met} with {e.bits} bits, this link is for {o.target.name}",
                            hints=["`monobloc targets` lists what it can build for"])
