"""`monobloc cc` and `c++`: clang's command line, whole-program optimization behind it.

    -c               fat objects: native code for any linker, unified bitcode for ours
    -E -S --version  what clang does
    link             sources are compiled, then clang says how it would link and lld does it, with LTO;
                     models among the inputs go through `models`
"""

from __future__ import annotations

import shlex
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from monobloc.drivers import args, tools
from monobloc.drivers.args import Item
from monobloc.errors import tell

# Unsplit: of a split fat object the native half would lack its tables of virtual functions.
FAT = ("-flto=thin", "-funified-lto", "-fno-split-lto-unit", "-ffat-lto-objects", "-fwhole-program-vtables")
SECTIONS = ("-ffunction-sections", "-fdata-sections")
QUIET, LOUD = "--start-no-unused-arguments", "--end-no-unused-arguments"
# Every section may be dropped, except those that code finds by `__start_NAME`.
GC = ("--gc-sections", "-z", "nostart-stop-gc")
_LINK_ONLY = ("-l", "-L", "-Wl,", "-Xlinker", "-T", "-u", "-z")


def main(verb: str, argv: Sequence[str], env: Mapping[str, str]) -> int:
    if "-print-cmake-dir" in argv or "--print-cmake-dir" in argv:
        print(Path(__file__).resolve().parents[1] / "cmake")
        return 0
    found = [_depfile(i) for i in args.items(args.expand(argv))]
    to_linker = any(i.flag.startswith(("-Wl,", "-Xlinker")) for i in found)  # as in `cc -Wl,--version`
    one = Compiler(verb, env)
    stage = args.flags(found) & {"-c", "-S", "-E", "-M", "-MM", "-fsyntax-only", "-###"}
    if stage == {"-c"}:
        return one.compile(found)
    if stage or not (to_linker or any(i.input for i in found)):
        return one.plain(found)
    return one.link(found)


def _depfile(item: Item) -> Item:
    """`--depfile F` is `-MD -MF F` under the name that the other verbs have for it."""
    if item.flag == "--depfile" and len(item.words) > 1:
        return Item(("-MD", "-MF", item.words[1]))
    if item.flag.startswith("--depfile="):
        return Item(("-MD", "-MF", item.flag.partition("=")[2]))
    return item


class Compiler:
    """One call: the verb it came under and the environment for the tools."""

    def __init__(self, verb: str, env: Mapping[str, str]) -> None:
        self.name, self.cxx, self.env = f"monobloc {verb}", verb == "c++", env

    def _run(self, words: Sequence[str]) -> int:
        return tools.call([*tools.clang(self.cxx, words), *words], self.env, self.name)

    def plain(self, found: Sequence[Item]) -> int:
        """Nothing of ours is in what is asked for."""
        return self._run(args.words(i for i in found if not args.is_lto(i)))

    # -- compiling --
    def compile(self, found: Sequence[Item]) -> int:
        return self._run([*_own(found), *args.words(i for i in found if not args.is_lto(i))])

    def _compile_source(self, item: Item, found: Sequence[Item], out: Path, app: Path) -> int:
        """One source of a link; a dependency file is named after the program, as by clang."""
        keep = [i for i in found if not i.input and i.flag != "-o" and not i.flag.startswith(_LINK_ONLY)]
        keep = [i for i in keep if not args.is_lto(i) and not i.flag.startswith("-x")]
        deps: list[str] = []
        if args.flags(keep) & {"-MD", "-MMD"}:
            deps += [] if any(i.value("-MF") or "-MF" in i.words for i in keep) else ["-MF", str(app.with_suffix(".d"))]
            deps += [] if args.flags(keep) & {"-MT", "-MQ"} else ["-MT", str(app)]
        language = ["-x", item.language] if item.language else []
        words = [QUIET, *args.words(keep), *deps, LOUD, "-c", *language, *item.words, "-o", str(out)]
        return self._run([*_own(found), *words])

    # -- linking --
    def link(self, found: Sequence[Item]) -> int:
        out = args.output(found, "a.out")
        with tempfile.TemporaryDirectory(prefix="monobloc-") as tmp:
            ready: list[Item] = []
            for k, item in enumerate(found):
                if item.is_source:
                    made = Path(tmp) / f"{k}-{Path(item.words[0]).stem.replace('-', '_')}.o"
                    if code := self._compile_source(item, found, made, out):
                        return code
                    item = Item((str(made),), True)
                if not item.flag.startswith("-x"):
                    ready.append(item)
            return self._link_objects(ready, out, Path(tmp))

    def _link_objects(self, found: list[Item], out: Path, tmp: Path) -> int:
        from monobloc.drivers import models

        mode, found = args.lto_mode(found), args.handed_on(found)
        relocatable = bool(args.flags(found) & {"-r", "--relocatable"})
        if not relocatable and models.among(found):
            if models.direct(found):
                return models.link(found, out, mode, self.env)
            found = models.closed(found, mode, tmp, self.env)
        if mode != "none" and not relocatable:
            found = _fit(found, mode, tmp)
        return self._lld(found, mode, relocatable)

    def _lld(self, found: Sequence[Item], mode: str, relocatable: bool) -> int:
        """clang's own link line, with our linker and modes in it."""
        keep = [i for i in found if not args.is_lto(i) and not i.flag.startswith("-fuse-ld") and i.flag != "-v"]
        words = args.words(keep)
        line = tools.link_line([*tools.clang(self.cxx, words), *words], self.env, self.name)
        if line is None:
            return 1
        own: list[str] = []
        if not relocatable:
            own = [*GC, *lto_flags(mode, args.level(found), self.env)]
            own += _virtual_calls(found, line) if mode != "none" else ()
        return run_lld([*own, *line], self.env, verbose="-v" in args.flags(found))


def _own(found: Sequence[Item]) -> list[str]:
    """Our options of a compilation, before the user's, which win."""
    lto = args.lto_mode(found)
    target = " ".join(args.words(i for i in found if i.flag == "-target" or i.flag.startswith("--target")))
    elf = not any(w in target for w in ("wasm", "windows", "mingw", "darwin", "apple", "macos"))
    plain = "-emit-llvm" in args.flags(found)  # the output is bitcode already, which would hold another one
    return [QUIET, *SECTIONS, *(FAT if lto != "none" and elf and not plain else ()), LOUD]


def lto_flags(mode: str, level: int, env: Mapping[str, str]) -> list[str]:
    if mode == "none":
        return []
    flags = [f"--lto={mode}", "--fat-lto-objects", f"--lto-O{level}", f"--lto-CGO{level}"]
    if mode == "thin" and (cache := _thinlto_cache(env)):
        flags += [f"--thinlto-cache-dir={cache}", "--thinlto-cache-policy=cache_size_bytes=1g"]
    return flags


def _fit(found: Sequence[Item], mode: str, folder: Path) -> list[Item]:
    """Inputs whose bitcode lld could not link as it is, or that lost or gained symbols since, made fit for it."""
    from monobloc.link.bitcode import Reader
    from monobloc.options import Options

    reader = Reader(folder, Options(lto=mode))  # type: ignore[arg-type]
    paths = [Path(i.words[0]) for i in found if i.input]
    new = iter(reader.inputs(paths))
    tell(reader.notes)
    return [Item((str(next(new)),), True, i.language) if i.input else i for i in found]


def _virtual_calls(found: Sequence[Item], line: Sequence[str]) -> tuple[str, ...]:
    """Whether the linker may resolve them, of an executable; `-fno-whole-program-vtables` says no."""
    from monobloc.link import devirtualize

    if args.flags(found) & {"-shared", "-fno-whole-program-vtables"}:
        return ()
    words = args.items(line, args.LD_VALUED)
    files = [Path(i.words[0]) for i in words if i.input]
    libs = [v for i in words if (v := i.value("-l"))]
    folders = [Path(v) for i in words if (v := i.value("-L"))]
    return () if devirtualize.obstacle(files, libs, folders, line) else devirtualize.LINK_FLAGS


def _thinlto_cache(env: Mapping[str, str]) -> Path | None:
    """Where LLVM keeps what it compiled; it gives up where it cannot write, which must not cost the build."""
    import os

    from monobloc.cache import Cache, default_root

    try:
        folder = Cache(default_root(env)).folder("thinlto")
    except OSError:
        return None
    return folder if os.access(folder, os.W_OK) and "%" not in str(folder.absolute()) else None


def run_lld(words: Sequence[str], env: Mapping[str, str], verbose: bool = False) -> int:
    from monobloc.object import toolchain

    if any(w.startswith("--lto=") for w in words):
        words = [*words, *toolchain.keep_wrapped(words)]
    if verbose:
        print(f" ld.lld {shlex.join(words)}", file=sys.stderr, flush=True)
    return tools.call([*tools.lld(), *words], env)
