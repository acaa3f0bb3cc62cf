"""Bitcode that others made, in the form our links take.

lld links `--lto=thin` and `--lto=full` from one object only if every module says it was made for both
(`-funified-lto`). Objects of `clang -flto`, `-emit-llvm` and `-ffat-lto-objects` do not say so, and one of
them fails the whole link. Reading such a module and writing it again with a summary makes it one of ours; code
and attributes stay what they were. Archives are written again with the same members in the same order.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from monobloc.cache import Cache, write_atomic
from monobloc.errors import LinkError, ToolchainError
from monobloc.object import ar, elf, toolchain
from monobloc.object.elf import Buffer
from monobloc.object.toolchain import CompileJob
from monobloc.targets import Target

MAGIC = (b"BC\xc0\xde", b"\xde\xc0\x17\x0b")  # plain, wrapped
FAT = ".llvm.lto"
_UNIFIED = b"UnifiedLTO"  # the module flag's name; strings of metadata are stored as they are


def is_bitcode(data: Buffer) -> bool:
    return bytes(data[:4]) in MAGIC


def foreign(data: Buffer) -> Buffer | None:
    """The bitcode of an object that must be written again, if it is one."""
    if elf.is_elf(data):
        found = elf.get_section(data, FAT)
        if found is None or not is_bitcode(found):
            return None
        data = found
    return data if is_bitcode(data) and _UNIFIED not in bytes(data) else None


def unified(inputs: Sequence[Path | str], folder: Path, target: Target, cache: Cache | None) -> list[Path | str]:
    """A link's inputs, in which foreign bitcode is replaced; what needs no change is the file it was."""
    return [x if isinstance(x, str) else _unified(x, folder / str(k), target, cache) for k, x in enumerate(inputs)]


def _unified(path: Path, folder: Path, target: Target, cache: Cache | None) -> Path:
    data = ar.map_file(path)
    if not ar.is_archive(data):
        found = foreign(data)
        return path if found is None else rewrite(path.name, found, folder / path.name, target, cache)
    members = list(ar.members(data, path))
    codes = [foreign(m.data) for m in members]
    if all(c is None for c in codes):
        return path
    files = []
    for k, (m, code) in enumerate(zip(members, codes, strict=True)):
        files.append(folder / str(k) / Path(m.name).name)
        if code is None:
            write_atomic(files[-1], [m.data])
        else:
            rewrite(f"{path.name}({m.name})", code, files[-1], target, cache)
    return toolchain.archive(files, folder / path.name)


def rewrite(name: str, code: Buffer, out: Path, target: Target, cache: Cache | None) -> Path:
    """The same module with a summary, for thin and full."""
    job = CompileJob(bytes(code), out, target, "bitcode", hosted=True, name=f"{out.stem}.bc",
                     extra=("-Wno-override-module",))
    try:
        toolchain.compile_all([job], 1, cache)
    except ToolchainError as e:
        raise LinkError(f"{toolchain.tool_version()} cannot read the bitcode of {name}",
                        notes=[x for x in e.output.strip().splitlines() if "error" in x][:1],
                        hints=["give an object with machine code, or link with `--lto none`"]) from None
    return out
