"""Models on the link line of `cc` and `ld`: compiled from their graphs, with the options of their objects.

An ordinary executable is linked as `monobloc link` does it: the application's living code decides which
outputs live. Every other shape (shared, static, without start files, by a linker script) gets the models
as one closed object in their place, and the rest of the line stays as it is.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from monobloc.drivers import args
from monobloc.drivers.args import Item
from monobloc.errors import LinkError, ToolchainError
from monobloc.object import ar, fat

if TYPE_CHECKING:
    from monobloc.options import Options

# Shapes that `monobloc link` does not make, and libraries that clang alone knows of.
_OTHER_SHAPES = frozenset(
    "-shared -static -static-pie -no-pie -nopie -nostdlib -nostartfiles -nodefaultlibs -nolibc -nostdlib++ -T -m32"
    " -static-libgcc -static-libstdc++ -pg -p --coverage -coverage".split()
)
_OTHER_STARTS = ("-fsanitize=", "--target=", "-target", "--sysroot", "-stdlib=", "-rtlib=", "-T", "-B", "-specs=",
                 "--gcc-toolchain", "--gcc-install-dir", "-fopenmp", "-fprofile-", "-fcs-profile-", "-fxray-")
_BETWEEN = frozenset(
    "--start-group --end-group -( -) --whole-archive --no-whole-archive --as-needed --no-as-needed -Bstatic -Bdynamic"
    " -static -dn -dy -call_shared --push-state --pop-state --start-lib --end-lib".split()
)
_OBJECTS = (".o", ".obj", ".lo", ".a")


def among(found: Sequence[Item]) -> list[Path]:
    """Inputs that hold models, `-l` ones too."""
    return [Path(i.words[0]) for i in with_libraries(found) if i.input and has_models(Path(i.words[0]))]


def has_models(path: Path) -> bool:
    if not path.is_file():
        return False  # the linker tells
    data = ar.map_file(path)
    if ar.is_archive(data):
        return any(fat.is_monobloc(m.data) for m in ar.members(data, path))
    return fat.is_monobloc(data) and not joined(path)


def joined(path: Path) -> bool:
    """Whether `ld -r` put a model and other code into one file; then its native code is all there is to link."""
    return fat.is_monobloc(ar.map_file(path)) and bool(fat.other_symbols(fat.read(path)))


def with_libraries(found: Sequence[Item]) -> list[Item]:
    """`-lkws` becomes the file where it is an archive that holds models."""
    folders = [Path(v) for i in found if (v := i.value("-L"))]
    return [_library(i, folders) for i in found]


def _library(item: Item, folders: Sequence[Path]) -> Item:
    path = _archive(item, folders)
    return Item((str(path),), True) if path is not None and has_models(path) else item


def _archive(item: Item, folders: Sequence[Path]) -> Path | None:
    """The static library that `-lNAME` means, in the folders of the line."""
    name = item.value("-l")
    for folder in folders:
        if not name or (folder / f"lib{name}.so").exists():
            break
        path = folder / (name[1:] if name.startswith(":") else f"lib{name}.a")
        if path.is_file():
            return path
    return None


def _files(found: Sequence[Item]) -> list[Path]:
    """All inputs there are, and static libraries by name."""
    folders = [Path(v) for i in found if (v := i.value("-L"))]
    named = (Path(i.words[0]) if i.input else _archive(i, folders) for i in found)
    return [p for p in named if p is not None and p.is_file()]


def direct(found: Sequence[Item]) -> bool:
    """Whether an ordinary executable is asked for."""
    flags = args.flags(found)
    if flags & _OTHER_SHAPES or any(f.startswith(_OTHER_STARTS) for f in flags):
        return False
    return not any(i.input and Path(i.words[0]).is_file() and joined(Path(i.words[0])) for i in found)


# -- the options of a link ------------------------------------------------------------------------------
def options(paths: Sequence[Path], found: Sequence[Item], mode: str, env: Mapping[str, str]) -> Options:
    """Machine, threads and numerics as the objects were compiled; the rest as the line says."""
    from monobloc.cache import default_root
    from monobloc.options import Options
    from monobloc.targets import resolve

    made = {}
    for path in paths:
        for obj in fat.read(path):
            s = obj.summary
            made[str(path)] = (str(s.get("target")), str(s.get("cpu")), tuple(s.get("features", ())),
                               str(s.get("numerics", "default")), int(s.get("threads", 1)))
    facts = list(made.values())
    if len({f[:4] for f in facts}) > 1:
        notes = [f"{name}: {f[0]} {f[1]}, numerics {f[3]}" for name, f in made.items()]
        raise LinkError("the models were compiled for different machines or with different numerics", notes=notes,
                        hints=["compile them again with the same `--target`, `--cpu` and `--numerics`"])
    target, cpu, features, numerics, _ = facts[0]
    levels = [i.flag for i in found if i.flag.startswith("-O")]
    size = bool(levels) and levels[-1] in ("-Os", "-Oz")
    debug = any(i.flag.startswith("-g") and i.flag != "-g0" for i in found)
    return Options(
        target=resolve(target, cpu, features), lto=mode, optimize="size" if size else "speed",  # type: ignore[arg-type]
        numerics=numerics, threads=max(f[4] for f in facts), debug=debug, cache=default_root(env),  # type: ignore[arg-type]
    )


# -- an ordinary executable ------------------------------------------------------------------------------
@dataclass(frozen=True)
class Line:
    """A compiler's link line as the linker's: what stands between files, and what holds for all."""

    inputs: tuple[Path | str, ...]
    libdirs: tuple[Path, ...]
    others: tuple[str, ...]
    depfile: Path | None = None  # `--dependency-file`, which lld would fill with names of its scratch files


def line(found: Sequence[Item]) -> Line:
    inputs: list[Path | str] = []
    others: list[str] = []
    for item in found:
        if item.input:
            inputs.append(Path(item.words[0]))
        elif name := item.value("-l"):
            inputs.append(f"-l{name}")
        else:
            ours = _linker_words(item)
            (inputs if ours and set(ours) <= _BETWEEN else others).extend(ours)
    dirs = tuple(Path(v) for i in found if (v := i.value("-L")))
    depfiles = [Path(w.partition("=")[2]) for w in others if w.startswith("--dependency-file=")]
    others = [w for w in others if not w.startswith("--dependency-file=")]
    return Line(tuple(inputs), dirs, tuple(others), depfiles[-1] if depfiles else None)


def _linker_words(item: Item) -> list[str]:
    """What one option of the compiler means to the linker."""
    if item.flag == "-Xlinker":
        return list(item.words[1::2])
    if item.flag == "-rdynamic":
        return ["--export-dynamic"]
    if item.flag == "-s":
        return ["-s"]
    for option in ("-u", "-z", "-e"):
        if item.flag == option:
            return list(item.words)
    return []


def link(found: Sequence[Item], out: Path, mode: str, env: Mapping[str, str]) -> int:
    from monobloc import driver
    from monobloc.report import depfile

    found = with_libraries(found)
    for item in found:
        if item.input and not Path(item.words[0]).exists():
            raise LinkError(f"no such file or directory: `{item.words[0]}`")
    ours = line(found)
    o = options(among(found), found, mode, env)
    keep_found = ("-z", "nostart-stop-gc")  # sections that code finds by `__start_NAME`
    refused = ("--no-lto-whole-program-visibility",) if "-fno-whole-program-vtables" in args.flags(found) else ()
    o = replace(o, link_args=(*keep_found, *refused, *ours.others))
    try:
        driver.link(ours.inputs, out, "exe", o, libdirs=ours.libdirs)
    except ToolchainError as e:
        if "-v" in args.flags(found) or "ld.lld: " not in e.output:
            raise
        sys.stderr.write(f"{e.output.rstrip()}\nerror: the link failed (-v shows the linker's command)\n")
        return 1
    depfile.write(ours.depfile, out, [i for i in ours.inputs if isinstance(i, Path)])
    return 0


# -- everything else ------------------------------------------------------------------------------------
def closed(found: Sequence[Item], mode: str, folder: Path, env: Mapping[str, str]) -> list[Item]:
    """The line with all models as one native object, where the first of them stood."""
    from monobloc import driver
    from monobloc.link.resolve import NotNeeded
    from monobloc.link.symbols import refuse_slim

    found = with_libraries(found)
    paths = among(found)
    o = options(paths, found, mode, env)
    users = tuple(p for p in _files(found) if p.suffix in _OBJECTS and p not in paths)
    for path in users:
        refuse_slim(path)
    shared = bool(args.flags(found) & {"-shared", "--shared", "-Bshareable"})
    made = folder / "models.o"
    out: list[Item] = []
    placed = False
    try:
        driver.link(paths, made, "object", o if shared or not users else replace(o, used_by=users))
    except NotNeeded:
        placed = True  # as with every archive that nobody needs
    for item in found:
        if not item.input or Path(item.words[0]) not in paths:
            out.append(item)
            continue
        out += [] if placed else [Item((str(made),), True)]
        placed = True
        if _has_more(Path(item.words[0])):
            out.append(item)  # its models are defined already, so that only its other members are drawn in
    return out


def _has_more(path: Path) -> bool:
    data = ar.map_file(path)
    return ar.is_archive(data) and not all(fat.is_monobloc(m.data) for m in ar.members(data, path))
