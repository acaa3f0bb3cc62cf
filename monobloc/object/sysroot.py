"""A libc for programs whose own code needs one.

The system's compiler knows where its start files and libraries are, so it is asked first and only
for paths. Where there is none, the toolchain builds musl: `zig cc -v` does it once per machine, and
its printed link line says which files to keep. That takes about a minute, so it is announced and
kept in the user's cache.
"""

from __future__ import annotations

import functools
import json
import os
import re
import shlex
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from monobloc.cache import Cache, file_state, key
from monobloc.errors import ToolchainError
from monobloc.object.toolchain import Libc, Tools, find_tools, run
from monobloc.targets import Target

Announce = Callable[[str], None]

_START = ("Scrt1.o", "crti.o", "crtbeginS.o")
_END = ("crtendS.o", "crtn.o")
# Only what is used stays: C++, the mathematical functions and threads need not be asked for.
_IF_USED = ("--push-state", "--as-needed")
_LIBS = ("-lm", "-lpthread", "-lgcc", "-lgcc_s", "--pop-state", "-lc", "-lgcc")
_KEPT = re.compile(r"(r?crt1|crti|crtn)\.o|lib\w+\.a")


def tell(text: str) -> None:
    """The default announcement: a line on the error stream, where messages go."""
    print(text, file=sys.stderr)


def libc_for(target: Target, cache: Cache | None, announce: Announce = tell) -> Libc:
    """The system's libc, or else our own musl."""
    return system_libc(target, cache) or harvest(target, cache, announce=announce)


# -- the system's ----------------------------------------------------------------------------------


def system_libc(target: Target, cache: Cache | None = None) -> Libc | None:
    """Where the system's compiler for that target finds its files; None without such a compiler."""
    for name in ("cc", f"{target.gnu_prefix}-gcc"):
        cc = shutil.which(name)
        if cc and _machine(_ask(cc, cache, "-E", "-v", "-x", "c", "/dev/null")) == target.arch:
            if found := _from_compiler(cc, target, cache):
                return found
    return None


def _machine(text: str) -> str:
    """The processor a compiler is for, as it says under -v."""
    found = re.search(r"^Target: ([^-\s]+)", text, re.M)
    return found[1] if found else ""


_NAMED = re.compile(r"(?<![\w.-])/[^\s:\"'=]+")


@functools.cache
def _ask(cc: str, cache: Cache | None, *arguments: str) -> str:
    """What a compiler says of itself; kept while it is the same file, and what it named is there, or still is not."""
    k = key(what="asked", cc=cc, state=file_state(os.path.realpath(cc)), arguments=arguments)
    known = cache.get(k) if cache else None
    if known is not None:
        text, there = json.loads(known)
        if there == _there(text):
            return str(text)
    try:
        ran = run([cc, *arguments], what=f"asking `{cc}`")
    except ToolchainError:
        return ""
    text = ran.stdout + ran.stderr
    if cache:
        cache.put(k, json.dumps([text, _there(text)]).encode())
    return text


def _there(text: str) -> list[str]:
    return sorted(p for p in set(_NAMED.findall(text)) if os.path.exists(p))


def _from_compiler(cc: str, target: Target, cache: Cache | None) -> Libc | None:
    libdirs = _library_folders(_ask(cc, cache, "-print-search-dirs"))
    paths = {n: next((d / n for d in libdirs if (d / n).is_file()), None) for n in (*_START, *_END, "libstdc++.so")}
    start, end = ([p.resolve() for n in names if (p := paths[n])] for names in (_START, _END))
    if len(start) != len(_START) or len(end) != len(_END):
        return None  # a compiler without libc's development files
    c, cpp = (search_paths(_ask(cc, cache, "-E", "-v", "-x", x, "/dev/null")) for x in ("c", "c++"))
    return Libc(
        start=tuple(start),
        end=(*_IF_USED, *(("-lstdc++",) if paths["libstdc++.so"] else ()), *_LIBS, *map(str, end)),
        includes=tuple(c),
        cxx_includes=tuple(p for p in cpp if p not in c),
        libdirs=libdirs,
        dynamic_linker=target.dynamic_linker,
    )


def search_paths(text: str) -> list[Path]:
    """The folders a compiler lists under -v, without its own headers (ours take their place)."""
    part = text.partition("#include <...> search starts here:")[2].partition("End of search list")[
        0
    ]
    paths = [Path(line.strip()).resolve() for line in part.splitlines() if line.strip()]
    own = re.compile(r"/(gcc|gcc-cross|clang)/.*/include(-fixed)?$|/ziglang/lib/include$")
    return [p for p in paths if not own.search(str(p))]


def _library_folders(text: str) -> tuple[Path, ...]:
    found = re.search(r"^libraries: =(.*)$", text, re.M)
    paths = [Path(p) for p in (found[1] if found else "").split(":") if p]
    return tuple(dict.fromkeys(p.resolve() for p in paths if p.is_dir()))


# -- our own ---------------------------------------------------------------------------------------


def harvest(
    target: Target, cache: Cache | None, *, tools: Tools | None = None, announce: Announce = tell
) -> Libc:
    """Static musl for the target, built on first use and kept under the cache."""
    tools = tools or find_tools()
    if tools.name != "zig" or not target.musl_triple or cache is None:
        raise ToolchainError(
            f"no libc for {target.name}: no system compiler, and without a cache none is built",
            hints=[f"install `{target.gnu_prefix}-gcc`, or give a folder with `--cache`"],
        )
    folder = cache.folder("sysroot") / f"{target.musl_triple}-{tools.llvm}"
    if not (folder / "libc.json").is_file():
        announce(f"building a libc for {target.name}, once: about a minute")
        _build(target, folder, tools)
    return _load(folder)


def _build(target: Target, folder: Path, tools: Tools) -> None:
    with tempfile.TemporaryDirectory(prefix=".sysroot-", dir=folder.parent) as scratch:
        work = Path(scratch)
        (work / "probe.c").write_text("int main(void) { return 0; }\n")
        # Options first: each combination has a libc of its own.
        options = ["-target", target.musl_triple, "-static-pie", "-fPIE", "-O2", "-g0", "-v"]
        command = [tools.clang[0], "cc", *options, "probe.c", "-o", "probe"]
        own = str(work / "cache")
        env = {"ZIG_LOCAL_CACHE_DIR": own, "ZIG_GLOBAL_CACHE_DIR": own, "HOME": scratch}
        log = run(command, what=f"building a libc for {target.name}", cwd=work, env=env).stderr
        kept = work / "kept"
        kept.mkdir()
        files = kept_files(log)
        for f in files:
            shutil.copy(work / f, kept / f.name)
        facts = {"files": [f.name for f in files], "includes": list(map(str, search_paths(log)))}
        (kept / "libc.json").write_text(json.dumps(facts))
        if not folder.exists():  # another process may have been faster
            os.rename(kept, folder)


def kept_files(log: str) -> list[Path]:
    """The start file and libraries on the link line that `zig cc -v` prints, in its order."""
    lines = [x.strip() for x in log.splitlines()]
    links = [x for x in lines if x.startswith("ld.lld ")]  # the parts of libc, then the program
    line = links[-1] if links else ""
    files = [Path(w) for w in shlex.split(line) if _KEPT.fullmatch(Path(w).name)]
    if not any(f.name == "libc.a" for f in files):
        raise ToolchainError("the compiler built no libc", output=log[-2000:])
    return files


def _load(folder: Path) -> Libc:
    facts = json.loads((folder / "libc.json").read_text())
    files = [folder / name for name in facts["files"]]
    start = tuple(f for f in files if f.suffix == ".o")
    end = tuple(str(f) for f in files if f.suffix == ".a")
    return Libc(start, end, tuple(map(Path, facts["includes"])))
