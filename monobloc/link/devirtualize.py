"""Whether a link may resolve C++ virtual calls: if no class can be derived where it does not see.

LLVM turns a virtual call into a direct one when only one function can be called. It decides by the classes
in the bitcode it links, so it must be told that those are all (`--lto-whole-program-visibility`). That is
true of an executable unless

* native code derives from a class of the bitcode. lld finds those by their type informations, of objects and
  of shared libraries (`--lto-validate-all-vtables-have-type-infos`), and leaves these classes alone. Code
  compiled by `-fno-rtti` has none to be found by;
* a shared library written in C++ hands out objects of classes that it does not show;
* the program loads code at run time.

Each of the latter leaves all virtual calls as they are: slower, never wrong. Standard libraries are known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from monobloc.errors import LinkError
from monobloc.object import ar, bitcode, elf
from monobloc.object.elf import Buffer, Elf
from monobloc.object.toolchain import Libc
from monobloc.options import Options

COMPILE_FLAGS = ("-fwhole-program-vtables",)
LINK_FLAGS = ("--lto-whole-program-visibility", "--lto-validate-all-vtables-have-type-infos")

RUNTIMES = frozenset(
    "c m pthread dl rt util atomic gcc gcc_s gcc_eh stdc++ stdc++fs c++ c++abi unwind supc++ gomp omp quadmath".split()
)
LOADERS = frozenset(("dlopen", "dlmopen", "dlsym", "dlvsym", "__libc_dlopen_mode", "g_module_open", "lt_dlopen"))
EXPORTING = frozenset(("--export-dynamic", "-export-dynamic", "-E"))


def words_of_the_line(o: Options) -> tuple[str, ...]:
    """What the linker is asked for beside what is decided here"""
    return tuple(w for w in o.link_args if w not in LINK_FLAGS)


def assume(
    o: Options, user: Sequence[Path | str], libs: Sequence[str], libdirs: Sequence[Path], system: Callable[[], Libc]
) -> tuple[Options, str]:
    """The options of an executable's link, which say so if virtual calls may be resolved, and else the obstacle.

    `system` tells where the system's libraries are; it is asked only if one of them is not known here.
    """
    if o.lto == "none" or not user:
        return o, ""
    named = [*(x[2:] for x in user if isinstance(x, str) and x.startswith("-l")), *libs]
    folders = (*libdirs, *(() if set(named) <= RUNTIMES else system().libdirs))
    why = obstacle(user, libs, folders, o.link_args)
    return (o, why) if why else (replace(o, link_args=(*LINK_FLAGS, *o.link_args)), "")


def obstacle(
    inputs: Iterable[Path | str], libs: Sequence[str], libdirs: Sequence[Path], others: Sequence[str]
) -> str:
    """Why virtual calls must stay; empty if they may be resolved. `others` are the linker's other words."""
    if set(others) & EXPORTING:
        return "the executable exports its symbols to what it loads"
    files: list[Path] = []
    names = [*(x[2:] for x in inputs if isinstance(x, str) and x.startswith("-l")), *libs]
    for name in names:
        if name in RUNTIMES:
            continue
        found = _library(name, libdirs)
        if found is None:
            return f"the library `{name}` is not where it could be looked at"
        files.append(found)
    files += [x for x in inputs if isinstance(x, Path)]
    return next((f"{path} {why}" for path in files if (why := _obstacle_in(path))), "")


def _library(name: str, libdirs: Sequence[Path]) -> Path | None:
    names = [name[1:]] if name.startswith(":") else [f"lib{name}.so", f"lib{name}.a"]
    return next((d / n for d in libdirs for n in names if (d / n).is_file()), None)


def _obstacle_in(path: Path) -> str:
    if not path.is_file():
        return ""  # the linker tells
    try:
        return next((why for _, data in ar.contents(path) if (why := _of_object(data))), "")
    except LinkError:
        return "cannot be read"


def _of_object(data: Buffer) -> str:
    if bitcode.is_bitcode(data):
        raw = bytes(data)
        return "loads code at run time" if any(n.encode() in raw for n in LOADERS) else ""
    if not elf.is_elf(data):
        return "may be a script that names other libraries"
    e = Elf(data)
    if e.type == elf.ET_DYN:
        return "is a shared library written in C++" if _speaks_cxx(e) else ""
    if {s.name for s in e.symbols} & LOADERS:
        return "loads code at run time"
    fat = any(s.name == bitcode.FAT for s in e.sections)
    return "holds classes without type informations" if not fat and _hides_classes(e) else ""


def _speaks_cxx(e: Elf) -> bool:
    """By the names of its symbols, and of the libraries it needs."""
    texts = [bytes(e.content(s)) for s in e.sections if s.name == ".dynstr"]
    return any(word in text for text in texts for word in (b"\0_Z", b"libstdc++", b"libc++"))


def _hides_classes(e: Elf) -> bool:
    """Native code with a table of virtual functions that lld cannot relate to its class."""
    names = {s.name for s in e.symbols}
    tables = {n for n in names if n.startswith("_ZTV") and not n.startswith("_ZTVN10__cxxabiv1")}
    if tables or not any(n.startswith("_Z") for n in names):
        return any("_ZTI" + n[4:] not in names for n in tables)
    # Without the names of what is local (`strip -x`) a table is known by its pointers only.
    stripped = not any(s.bind == elf.STB_LOCAL and s.type in (elf.STT_OBJECT, elf.STT_FUNC) for s in e.symbols)
    return stripped and any(s.name.startswith((".data.rel.ro", ".rela.rodata")) for s in e.sections)
