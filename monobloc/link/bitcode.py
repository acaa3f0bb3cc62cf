"""Bitcode in whatever form it comes is put into the one form that our links take.

lld links in both modes only bitcode with a ThinLTO summary that was made for it (`-funified-lto`), and
knows nothing of `.llvmbc` sections. So what others compiled is translated first: plain bitcode
(`-emit-llvm -c`, `-flto`), fat objects (`.llvm.lto`) and embedded bitcode (`-fembed-bitcode`), as
files, members of archives and of thin archives. Without LTO an object's native code is used, and
plain bitcode is compiled. Where bitcode cannot be used but native code is there, that is used, and a note
says so: bitcode of a newer LLVM, modules that `ld -r` has put one behind the other, or an object that
holds more code than its bitcode.

A kernel library's functions can be marked for inlining on the way (`inline`): then its generic entry is
specialized where it is called, in every mode, whatever LLVM's heuristics think of its size.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from monobloc.cache import Cache, key, write_atomic
from monobloc.errors import Diagnostics, LinkError, naming
from monobloc.object import ar, bitcode, elf, fat, toolchain
from monobloc.object.bitcode import EMBEDDED, FAT, Bitcode
from monobloc.object.elf import Buffer, Elf
from monobloc.options import Options

Inline = Callable[[str], bool]  # whether a function of this name is inlined wherever it is called
_GENERATED = ("DW.ref.", "__x86.", "__llvm_")  # what only native code defines: references and thunks of its own
_HIDDEN = b".llvm.off"  # as long as FAT: a section that the linker does not look for
_DEFINE = re.compile(r'^(define\b[^@\n]*@("[^"\n]*"|[-\w.$]+)\(.*\)[^\n]*?) #(\d+)', re.MULTILINE)
_GROUP = re.compile(r"^attributes #(\d+) = \{([^\n]*)\}$", re.MULTILINE)
_TRIPLE = re.compile(r'^target triple = "([^"-]*)', re.MULTILINE)
_CALL = re.compile(r'\b(?:call|invoke)\b[^@\n]*@("[^"\n]*"|[-\w.$]+)\(')
_SPLIT = re.compile(r'(!\{i32 \d+, !"EnableSplitLTOUnit", i32 )1\}')
_REGULAR = re.compile(r'(!\{i32 \d+, !"ThinLTO", i32 )0\}')


@dataclass
class Reader:
    """Translates inputs of one link; `notes` collects what the user should know.

    Of a kernel library (`kernels`) all bitcode is translated, and `unbounded` says what hides the stack it takes.
    """

    folder: Path
    o: Options
    cache: Cache | None = None
    inline: Inline | None = None
    kernels: bool = False
    unbounded: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def inputs(self, given: Sequence[Path | str]) -> list[Path | str]:
        """The same inputs, those that need it translated; all problems at once."""
        problems = Diagnostics()
        out: list[Path | str] = []
        for k, item in enumerate(given):
            try:
                out.append(item if isinstance(item, str) else self._file(item, k))
            except LinkError as e:
                problems.report(e)
        problems.checkpoint()
        return out

    def _file(self, path: Path, k: int) -> Path:
        if not path.is_file():
            return path  # the linker will tell
        data = ar.map_file(path)
        if ar.is_archive(data):
            return self._archive(path, data, k)
        new = self._read(data, str(path))
        if new is None:
            return path
        made = self.folder / str(k) / path.name
        write_atomic(made, [new])
        return made

    def _archive(self, path: Path, data: Buffer, k: int) -> Path:
        members = list(ar.members(data, path))
        new = [self._read(m.data, f"{path}({m.name})") for m in members]
        if all(n is None for n in new):
            return path
        made = self.folder / str(k) / path.name
        write_atomic(made, ar.write(ar.Member(Path(m.name).name, m.data if n is None else memoryview(n))
                                    for m, n in zip(members, new, strict=True)))
        return made

    # -- one object --
    def _read(self, data: Buffer, name: str) -> Buffer | None:
        with naming(name):
            new = self._object(data, name)
        if new is None and elf.is_elf(data):
            self.unbounded.append(f"{name} is native code")
        return new

    def _object(self, data: Buffer, name: str) -> Buffer | None:
        """What to link instead, or None: the object as it is."""
        if bitcode.is_bitcode(data):
            return self._plain(bytes(data), name)
        if not elf.is_elf(data) or self.o.lto == "none" or fat.is_monobloc(data):
            return None
        parsed = Elf(data)
        found = {s.name: s for s in parsed.sections if s.name in (FAT, EMBEDDED) and s.size > 1}
        section = found.get(FAT) or found.get(EMBEDDED)
        if section is None:
            return None
        content = bytes(parsed.content(section))
        try:
            b = bitcode.read(content, name)
            why = _obstacle(b) or _more_than(b, parsed) or _hidden(b, parsed)
        except LinkError as e:
            b, why = None, e.message.rpartition(": ")[2]
        if b is None or why:
            self.notes.append(f"{name}: its native code is linked, not its bitcode: {why}")
            return _without(data, parsed) if section.name == FAT else None
        if section.name == FAT and self._as_it_is(b):
            return None
        return self._translated(content, name, "bitcode")

    def _plain(self, data: bytes, name: str) -> Buffer | None:
        b = bitcode.read(data, name)
        if why := _obstacle(b):
            raise LinkError(f"{name}: {why}", hints=["compile it with that version or an older one, or to native code"])
        if self.o.lto == "none":
            return self._translated(data, name, "native")
        return None if self._as_it_is(b) else self._translated(data, name, "bitcode")

    def _as_it_is(self, b: Bitcode) -> bool:
        return b.thin and b.unified and not self.kernels

    def _translated(self, data: bytes, name: str, kind: toolchain.Kind) -> bytes:
        text = toolchain.ir_text(data, name)
        machine = _TRIPLE.search(text)
        ours = self.o.target.triple.partition("-")[0]
        if machine is not None and machine[1] != ours:
            raise LinkError(f"{name} holds code for {machine[1]}, this link is for {ours}")
        text = _SPLIT.sub(r"\g<1>0}", _REGULAR.sub(r"\g<1>1}", text))  # flags of a module that ours agree with
        if self.kernels and (names := recursive(text)):
            self.unbounded.append(f"`{names[0]}` of {name} calls itself")
        if kind == "bitcode" and self.inline is not None:
            text = mark_inline(text, self.inline)
        flags = toolchain.ir_flags(self.o.target, kind, self.o.opt)
        k = key(what="ir", tool=toolchain.tool_version(), text=text.encode("utf-8", "surrogateescape"), flags=flags)
        made = self.cache.get(k) if self.cache is not None else None
        if made is None:
            made = toolchain.compile_ir(text, name, flags)
            if self.cache is not None:
                self.cache.put(k, made)
        return made


def _obstacle(b: Bitcode) -> str:
    """Why bitcode cannot be linked as such; empty if it can."""
    ours = toolchain.find_tools()
    if b.major is not None and b.major > ours.llvm_major:
        return f"its bitcode is of {b.producer.replace('LLVM', 'LLVM ', 1)}, and this link reads up to LLVM {ours.llvm}"
    if b.modules == 0:
        return "it holds no module"
    if b.modules > 1:
        return f"it holds {b.modules} modules one behind the other, as `ld -r` joins them"
    return ""


def _more_than(b: Bitcode, e: Elf) -> str:
    """Whether an object defines what its bitcode does not, as after `ld -r` or `objcopy --redefine-sym`."""
    native = {s.name for s in e.symbols if s.defined and s.bind != elf.STB_LOCAL and s.name}
    more = sorted(n for n in native - b.defined if not n.startswith(_GENERATED))
    return f"`{more[0]}` is not in it" if more else ""


def _hidden(b: Bitcode, e: Elf) -> str:
    """Whether what the bitcode gives to others was made local since, as by `objcopy --localize-symbol`."""
    local = sorted(b.defined & {s.name for s in e.symbols if s.defined and s.bind == elf.STB_LOCAL})
    return f"`{local[0]}` is local to its native code" if local else ""


def _without(data: Buffer, e: Elf) -> bytes:
    """A copy in which the linker does not see `.llvm.lto`."""
    out = bytearray(data)
    names = e.sections[e.names_index]
    at = out.find(FAT.encode() + b"\0", names.offset, names.offset + names.size)
    while at >= 0:
        out[at : at + len(FAT)] = _HIDDEN
        at = out.find(FAT.encode() + b"\0", at, names.offset + names.size)
    return bytes(out)


def mark_inline(text: str, wanted: Inline) -> str:
    """LLVM text in which the functions wanted are `alwaysinline`, but for those that say they must not be."""
    stops = {"noinline", "optnone", "naked", "alwaysinline"}
    never = {n for n, body in _GROUP.findall(text) if stops & set(body.split())}

    def marked(m: re.Match[str]) -> str:
        use = m[3] not in never and wanted(m[2].strip('"'))
        return f"{m[1]} alwaysinline #{m[3]}" if use else m[0]

    return _DEFINE.sub(marked, text)


def recursive(text: str) -> list[str]:
    """Functions of an LLVM text that call themselves, directly or through others of it."""
    calls: dict[str, set[str]] = {}
    bodies = [(m[2], m.end()) for m in _DEFINE.finditer(text)]
    for name, start in bodies:
        calls[name] = set(_CALL.findall(text, start, text.find("\n}", start)))
    return [name for name in calls if name in _reached(calls, name)]


def _reached(calls: Mapping[str, set[str]], name: str) -> set[str]:
    seen: set[str] = set()
    todo = list(calls[name])
    while todo:
        f = todo.pop()
        if f not in seen:
            seen.add(f)
            todo += calls.get(f, ())
    return seen


def defined(paths: Collection[Path]) -> set[str]:
    """Global symbols that objects and archives define, in whatever form."""
    out: set[str] = set()
    for path in paths:
        for name, data in ar.contents(path):
            if bitcode.is_bitcode(data):
                out |= bitcode.read(data, name).defined
            elif elf.is_elf(data):
                out |= {s.name for s in elf.symbols(data) if s.defined and s.bind != elf.STB_LOCAL}
    return out
