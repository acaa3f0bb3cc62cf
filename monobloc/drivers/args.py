"""Command lines of compilers and linkers, cut into items: an option with its value, or an input.

Nothing is interpreted beyond what a driver must know: which words are values, which are inputs, what
is asked for. All else is passed on as it was written, so options that clang learns need no work here.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from monobloc.errors import LinkError

# Options whose value may be the next word.
CC_VALUED = frozenset(
    "-o -I -D -U -L -l -T -B -x -u -z -e -F -V -b -A -G -include -imacros -isystem -iquote -idirafter -isysroot"
    " -iprefix -iwithprefix -iwithprefixbefore -cxx-isystem -MF -MT -MQ -Xlinker -Xclang -Xpreprocessor -Xassembler"
    " -mllvm -target -arch -param --param --sysroot -framework -soname -rpath --depfile -aux-info -dumpbase".split()
)
LD_VALUED = frozenset(
    "-o -l -L -T -e -m -z -u -h -I -y -R -b -A -F -f -c -O -Map --Map -soname --soname -rpath --rpath -rpath-link"
    " --rpath-link -dynamic-linker --dynamic-linker --entry --script --undefined --defsym -defsym --version-script"
    " -version-script --dynamic-list -dynamic-list --output --library --library-path --wrap -wrap --sysroot"
    " --exclude-libs --image-base -Ttext -Tdata -Tbss --section-start --export-dynamic-symbol --retain-symbols-file"
    " --trace-symbol --format -format --dependency-file --init -init --fini -fini -plugin --plugin -mllvm --mllvm"
    " --just-symbols -auxiliary --auxiliary -filter --filter --hash-style --default-script -plugin-opt --plugin-opt"
    .split()
)
SOURCES = frozenset(".c .i .cc .cp .cpp .cxx .c++ .C .CPP .ii .S .s .sx .m .mm .ll .bc .cppm".split())


@dataclass(frozen=True)
class Item:
    """One option with its value, or one input."""

    words: tuple[str, ...]
    input: bool = False
    language: str = ""  # of an input, as `-x` says

    @property
    def flag(self) -> str:
        return "" if self.input else self.words[0]

    @property
    def is_source(self) -> bool:
        if not self.input:
            return False
        if self.language not in ("", "none"):
            return True
        return self.words[0] == "-" or Path(self.words[0]).suffix in SOURCES

    def value(self, option: str) -> str | None:
        """What `-Ldir` or `-L dir` says, for `-L`."""
        if self.input or not self.words[0].startswith(option):
            return None
        if self.words[0] == option:
            return self.words[1] if len(self.words) > 1 else None
        return self.words[0][len(option) :]


def expand(argv: Iterable[str], depth: int = 0) -> list[str]:
    """`@file` becomes what the file says; as for GCC, a file that is not there is a plain word."""
    out: list[str] = []
    for word in argv:
        path = Path(word[1:])
        if word.startswith("@") and len(word) > 1 and depth < 10 and path.is_file():
            out += expand(shlex.split(path.read_text(encoding="utf-8")), depth + 1)
        else:
            out.append(word)
    return out


def items(argv: Sequence[str], valued: frozenset[str] = CC_VALUED) -> list[Item]:
    return list(_items(list(argv), valued))


def _items(words: list[str], valued: frozenset[str]) -> Iterator[Item]:
    at, language, only_inputs = 0, "", False
    while at < len(words):
        word = words[at]
        at += 1
        if only_inputs or not word.startswith("-") or word == "-":
            yield Item((word,), True, language)
        elif word == "--":
            only_inputs = True
        elif word in valued and at < len(words):
            language = words[at] if word == "-x" else language
            yield Item((word, words[at]))
            at += 1
        else:
            language = word[2:] if word.startswith("-x") and word != "-x" else language
            yield Item((word,))


# -- what a compiler is told for the linker ---------------------------------------------------------------
_ALONE = {"-s": "-s", "--strip-all": "-s", "-r": "-r", "-i": "-r", "--relocatable": "-r"}
_VALUED = {"-l": "-l", "--library": "-l", "-L": "-L", "--library-path": "-L", "-T": "-T", "--script": "-T"}
_ADDRESSES = ("-Tbss", "-Tdata", "-Ttext")  # no scripts


def handed_on(found: Iterable[Item]) -> list[Item]:
    """`-Wl,` and `-Xlinker` word by word: files and libraries among them are items as elsewhere on the line."""
    out: list[Item] = []
    for own, run in groupby(found, key=lambda i: i.flag.startswith("-Wl,") or i.flag == "-Xlinker"):
        if not own:
            out += run
            continue
        said = [w for i in run for w in (i.words[1:] if i.flag == "-Xlinker" else i.flag.split(",")[1:])]
        out += [_as_compilers_say(i) for i in items(said, LD_VALUED)]
    return out


def _as_compilers_say(item: Item) -> Item:
    """An option that compilers know, and drivers look at, in their spelling."""
    if item.input and Path(item.words[0]).is_file():
        return item
    if item.flag in _ALONE:
        return Item((_ALONE[item.flag],))
    for option, same in _VALUED.items():
        stuck = f"{option}=" if option.startswith("--") else option
        value = item.words[1] if item.words[0] == option and len(item.words) > 1 else \
            item.words[0].removeprefix(stuck) if item.words[0].startswith(stuck) else ""
        if value and not item.flag.startswith(_ADDRESSES):
            return Item((f"{same}{value}",))
    return Item(tuple(w for word in item.words for w in ("-Xlinker", word)))


def words(found: Iterable[Item]) -> list[str]:
    return [w for i in found for w in i.words]


def flags(found: Iterable[Item]) -> set[str]:
    return {i.flag for i in found}


def output(found: Iterable[Item], default: str) -> Path:
    named = [v for i in found if (v := i.value("-o"))]
    return Path(named[-1] if named else default)


# -- modes --------------------------------------------------------------------------------------------
_LTO_WORDS = {"": "thin", "thin": "thin", "full": "full", "auto": "thin", "jobserver": "thin", "none": "none"}


def lto_mode(found: Iterable[Item], default: str = "thin") -> str:
    """The last of `-flto`, `-flto=thin|full|none` and `-fno-lto`; GCC's `-flto=N` says nothing of the mode."""
    mode = default
    for item in found:
        if item.flag == "-fno-lto":
            mode = "none"
        elif item.flag == "-flto":
            mode = _LTO_WORDS[""]
        elif item.flag.startswith("-flto="):
            word = item.flag.removeprefix("-flto=")
            if word not in _LTO_WORDS and not word.isdigit():
                raise LinkError(f"unknown mode in `{item.flag}`", hints=["modes: none, thin, full"])
            mode = _LTO_WORDS.get(word, "thin")
    return mode


def is_lto(item: Item) -> bool:
    own = ("-fno-lto", "-flto", "-ffat-lto-objects", "-fno-fat-lto-objects", "-funified-lto", "-fno-unified-lto")
    families = ("-flto=", "-flto-jobs=", "-flto-partition=", "-fuse-linker-plugin")
    return item.flag in own or item.flag.startswith(families)


def level(found: Iterable[Item], default: int = 2) -> int:
    """What the linker's optimizer is asked for: the last `-O`."""
    out = default
    for item in found:
        if item.flag.startswith("-O"):
            word = item.flag[2:]
            out = {"": 1, "fast": 3, "s": 2, "z": 2, "g": 1}.get(word, min(int(word), 3) if word.isdigit() else out)
    return out
