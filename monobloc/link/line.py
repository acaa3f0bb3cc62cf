"""The words of a link line as what they mean: objects that join, objects that wait, and the rest.

Files named directly join; members of archives, and objects between `--start-lib` and `--end-lib`, wait
until somebody needs them; `--whole-archive` makes the members of the archives behind it join. `-lNAME` is
of interest where it is an archive that holds models. All other words are for the linker.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from monobloc.cache import write_atomic
from monobloc.errors import Diagnostics, LinkError
from monobloc.link.objects import Module, read_module
from monobloc.link.symbols import is_code
from monobloc.object import ar, fat, toolchain
from monobloc.object.elf import Buffer
from monobloc.object.fat import Object

SOURCE_SUFFIXES = (".c", ".cc", ".cpp", ".cxx", ".C", ".S", ".s")
_STATIC = {"-Bstatic": True, "-static": True, "-dn": True, "-non_shared": True,
           "-Bdynamic": False, "-dy": False, "-call_shared": False}


@dataclass(frozen=True, eq=False)
class Unit:
    """One object of the line: a file, or a member of an archive."""

    place: str  # as a message names it: `lib/libkws.a(kws.o)`
    data: Buffer
    identity: tuple[object, ...]  # equal if two names lead to one object
    waits: bool
    word: int  # which word of the line it is from

    @cached_property
    def has_models(self) -> bool:
        return fat.is_monobloc(self.data)

    @cached_property
    def models(self) -> list[Object]:
        return fat.read(self.data, name=self.place, llvm=toolchain.find_tools().llvm) if self.has_models else []

    @cached_property
    def modules(self) -> list[Module]:
        return [read_module(x) for x in self.models]


@dataclass
class Line:
    """Words, and the units that the files among them hold."""

    words: list[Path | str] = field(default_factory=list)
    units: list[Unit] = field(default_factory=list)
    libs: list[str] = field(default_factory=list)  # those that are the linker's business alone

    @property
    def may_wait(self) -> bool:
        """Whether there is a model about which something is to decide."""
        return any(u.waits and u.has_models for u in self.units)

    def of(self, word: int) -> list[Unit]:
        return [u for u in self.units if u.word == word]


def read_line(words: Sequence[Path | str], libs: Sequence[str] = (), libdirs: Sequence[Path] = ()) -> Line:
    """`libs` stand behind all other words."""
    line, state, saved, problems = Line(), _State(), list[_State](), Diagnostics()
    archives = {n: _library(f"-l{n}", libdirs, False) for n in libs}
    line.libs = [n for n, path in archives.items() if path is None]
    for word in [*words, *(p for p in archives.values() if p is not None)]:
        if word == "--push-state":
            saved.append(state)
        elif word == "--pop-state" and saved:
            state = saved.pop()
        elif isinstance(word, str):
            state = state.after(word)
            if word.startswith("-l"):
                word = _library(word, libdirs, state.static) or word
        if isinstance(word, Path):
            try:
                line.units += _units(word, len(line.words), state)
            except LinkError as e:
                problems.report(e)
        line.words.append(word)
    problems.checkpoint()
    return line


@dataclass(frozen=True)
class _State:
    whole: bool = False
    lib: bool = False
    static: bool = False

    def after(self, word: str) -> _State:
        whole = {"--whole-archive": True, "--no-whole-archive": False}.get(word, self.whole)
        lib = {"--start-lib": True, "--end-lib": False}.get(word, self.lib)
        return _State(whole, lib, _STATIC.get(word, self.static))


def _units(path: Path, word: int, state: _State) -> Iterator[Unit]:
    if not path.is_file():
        raise LinkError(f"cannot read `{path}`: no such file")
    data = ar.map_file(path)
    if path.suffix in SOURCE_SUFFIXES and not is_code(data):
        raise LinkError(f"`{path}` is source, and `link` takes objects",
                        hints=["`monobloc build` takes objects and sources", f"`monobloc compile {path}` first"])
    if not ar.is_archive(data):
        yield Unit(str(path), data, _identity(path), state.lib, word)
        return
    for k, m in enumerate(ar.members(data, path)):
        own = _identity(m.path) if m.path is not None else (*_identity(path), k)
        yield Unit(f"{path}({m.name})", m.data, own, not state.whole, word)


def _identity(path: Path) -> tuple[object, ...]:
    try:
        s = path.stat()
    except OSError:
        return (str(path),)
    return (s.st_dev, s.st_ino)


def _library(word: str, libdirs: Sequence[Path], static: bool) -> Path | None:
    """The archive that `-lNAME` means, if it holds models."""
    name = word[2:]
    for folder in libdirs:
        path = folder / (name[1:] if name.startswith(":") else f"lib{name}.a")
        if not static and not name.startswith(":") and (folder / f"lib{name}.so").exists():
            return None
        if path.is_file():
            data = ar.map_file(path)
            holds = ar.is_archive(data) and any(fat.is_monobloc(m.data) for m in ar.members(data, path))
            return path if holds else None
    return None


def without_models(path: Path, units: Sequence[Unit], folder: Path) -> Path | None:
    """An archive of a file's other members, if it has any: a model is never linked twice, as graph and as code."""
    rest = [u for u in units if not u.has_models]
    if len(rest) == len(units):
        return path
    if not any(is_code(u.data) for u in rest):
        return None
    made = folder / str(units[0].word) / path.name
    names = [u.place.removeprefix(f"{path}(")[:-1] for u in rest]
    write_atomic(made, ar.write([ar.Member(n, memoryview(u.data)) for n, u in zip(names, rest, strict=True)]))
    return made
