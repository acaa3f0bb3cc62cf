"""Which outputs are alive: those whose accessor the application's code still names after its own link.

The application is linked for a trial, in the same mode and with `--gc-sections`, against stubs of the
models' interface. Stubs are native code in sections of their own, so nothing sees through them: an
accessor is in the result exactly if living code refers to it, whether or not addresses escape. What no
living code names is removed from the graph with every node, weight and buffer that only it needed.

Objects that are not linked here (`--used-by`) count by the symbols they leave undefined. GCC's slim LTO
objects keep those in a table of their own, which is read; they hold no machine code, so linking them is
an error that says what to do.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from monobloc.cache import write_atomic
from monobloc.codegen.names import mangle
from monobloc.errors import LinkError
from monobloc.link.objects import Module
from monobloc.object import ar, elf, toolchain
from monobloc.object.elf import Buffer
from monobloc.object.toolchain import CompileJob, Libc, LinkJob
from monobloc.options import Options

BITCODE_MAGIC = b"BC\xc0\xde"
_SLIM_TABLE = ".gnu.lto_.symtab"
_UNDEFINED = (2, 3)  # kinds of a slim object's symbols: undefined, weakly undefined


# -- names --------------------------------------------------------------------------------------------
def output_accessors(m: Module, name: str) -> tuple[str, ...]:
    """The functions an application may read an output by."""
    stem = f"{m.prefix}_out_{mangle(name)}"
    return (stem, f"{stem}_at")


def interface_symbols(m: Module) -> list[str]:
    """Every symbol of a model's header."""
    out = [f"{m.prefix}_{s}" for s in
           ("run", "run_at", "reset", "reset_at", "set_threads", "stop", "strerror", "ram_size")]
    for v in m.graph.inputs:
        stem = f"{m.prefix}_in_{mangle(v.origin or v.name)}"
        out += [stem, f"{stem}_at"]
    for name, _ in m.graph.outputs:
        out += output_accessors(m, name)
    return out


# -- the trial link -----------------------------------------------------------------------------------
def probe(
    modules: Sequence[Module], user: Sequence[Path | str], folder: Path, o: Options, libc: Libc,
    libs: Sequence[str] = (), libdirs: Sequence[Path] = (),
) -> set[str]:
    """Interface symbols that living code of the application names."""
    for path in user:
        if isinstance(path, Path):
            refuse_slim(path)
    stubs = folder / "stubs.o"
    text = "\n".join(f"char {s}(void) {{ return 0; }}" for m in modules for s in interface_symbols(m))
    job = CompileJob(text.encode(), stubs, o.target.baseline(), extra=("-fvisibility=default", "-fno-builtin"),
                     name="stubs.c")
    toolchain.compile_all([job], 1)
    made = folder / "probe"
    toolchain.link(LinkJob("exe", (stubs, *user), made, o.target, lto=o.lto, libc=libc, opt=o.opt, icf="none",
                           libs=tuple(libs), libdirs=tuple(libdirs), extra=tuple(o.link_args)))
    return {s.name for s in elf.symbols(made.read_bytes()) if s.defined}


# -- objects that are not linked ------------------------------------------------------------------------
def used_by(paths: Sequence[Path], folder: Path, o: Options) -> set[str]:
    """Symbols that objects and archives leave undefined, in whatever form they are."""
    out: set[str] = set()
    for path in paths:
        if not path.is_file():
            raise LinkError(f"cannot read `{path}`: no such file")
        for k, data in enumerate(_objects(path)):
            out |= undefined(data, folder / f"used{k}", o)
    return out


def _objects(path: Path) -> Iterator[Buffer]:
    data = ar.map_file(path)
    if ar.is_archive(data):
        yield from (m.data for m in ar.members(data, path))
    else:
        yield data


def undefined(data: Buffer, scratch: Path, o: Options) -> set[str]:
    """Symbols one object needs: native, fat, bitcode, or GCC's slim form."""
    if bytes(data[:4]) == BITCODE_MAGIC:
        source, made = scratch.with_suffix(".bc"), scratch.with_suffix(".o")
        write_atomic(source, [data])
        toolchain.link(LinkJob("relocatable", (source,), made, o.target, lto="thin", gc=False, opt=o.opt))
        data = made.read_bytes()
    if not elf.is_elf(data):
        raise LinkError("`--used-by` takes objects, bitcode and archives of them")
    slim = slim_symbols(data)
    if slim is not None:
        return slim
    return {s.name for s in elf.symbols(data) if not s.defined}


def slim_symbols(data: Buffer) -> set[str] | None:
    """Undefined symbols of a slim LTO object; None if it is not one."""
    sections = elf.sections(data)
    if not any(s.name.startswith(_SLIM_TABLE) for s in sections) or _has_code(data):
        return None
    out: set[str] = set()
    for s in sections:
        if s.name.startswith(_SLIM_TABLE) and not s.name.startswith(".gnu.lto_.symtab_ext"):
            content = elf.get_section(data, s.name)
            out |= set(_slim_table(bytes(content or b"")))
    return out


def _has_code(data: Buffer) -> bool:
    """A fat object has the ordinary symbols beside the table."""
    return not any(s.name.startswith("__gnu_lto_slim") for s in elf.symbols(data))


def _slim_table(table: bytes) -> Iterator[str]:
    """Entries: name, NUL, comdat, NUL, kind, visibility, 8 bytes size, 4 bytes slot."""
    at = 0
    while at < len(table):
        name_end = table.find(b"\0", at)
        comdat_end = table.find(b"\0", name_end + 1) if name_end >= 0 else -1
        if comdat_end < 0 or comdat_end + 15 > len(table):
            raise LinkError("damaged `.gnu.lto_.symtab` in a slim LTO object")
        kind, _, _, _ = struct.unpack_from("<BBQI", table, comdat_end + 1)
        if kind in _UNDEFINED:
            yield table[at:name_end].decode("utf-8", "replace")
        at = comdat_end + 15


def refuse_slim(path: Path) -> None:
    for data in _objects(path):
        if elf.is_elf(data) and slim_symbols(data) is not None:
            raise LinkError(
                f"{path} is a slim LTO object of GCC: it holds no machine code, and only GCC can read it",
                hints=["compile it with `-ffat-lto-objects`, or let `monobloc compile` compile the source"],
            )


# -- what follows ---------------------------------------------------------------------------------------
def keep_live(m: Module, names: set[str]) -> tuple[Module, list[str]]:
    """The module with its living outputs only, and what went."""
    dead = [name for name, _ in m.graph.outputs if not names & set(output_accessors(m, name))]
    m.graph.outputs = [(name, v) for name, v in m.graph.outputs if name not in dead]
    return replace(m), dead
