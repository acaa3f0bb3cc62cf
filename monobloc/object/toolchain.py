"""The only place that starts clang, lld and the archiver.

The tools are those inside the `ziglang` wheel, called directly (`zig clang`, never `zig cc`, which
adds options of its own); Debian's LLVM 22 is the same compiler and can stand in. Jobs are plain
data, so a command is a pure function of its job; outputs appear whole or not at all and never
contain a folder's name or the time. Compilations are cached by the content of all they read.
"""

from __future__ import annotations

import errno
import functools
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from monobloc.cache import Cache, key, tree_digest, write_atomic
from monobloc.errors import Diagnostics, ToolchainError
from monobloc.object.link_cache import known_link
from monobloc.targets import Target

Kind = Literal["native", "bitcode", "fat"]
Lto = Literal["none", "thin", "full"]
Progress = Callable[[int, int, str], None]
Finish = Callable[[Path, Path | None], None]

# All units unsplit or none: LLVM refuses a mixture; and the native half of a split one lacks its vtables.
_UNIFIED = ("-flto=thin", "-funified-lto", "-fno-split-lto-unit")
_KIND_FLAGS: dict[str, tuple[str, ...]] = {
    "native": (),
    "bitcode": _UNIFIED,
    "fat": (*_UNIFIED, "-ffat-lto-objects"),
}
_OPT_FLAGS = {"speed": ("-O3",), "size": ("-Os",), "debug": ("-O0",)}
_LANGUAGES = {
    ".c": "c",
    ".cc": "c++",
    ".cpp": "c++",
    ".cxx": "c++",
    ".C": "c++",
    ".S": "assembler-with-cpp",
}
_LANGUAGES |= {".s": "assembler", ".i": "cpp-output", ".ii": "c++-cpp-output"}
_STANDARDS = {"c": ("-std=gnu11",), "c++": ("-std=gnu++17",)}
_NUMERIC = ("-fno-math-errno", "-fno-trapping-math", "-ffp-contract=on")
_SECTIONS = ("-fPIC", "-ffunction-sections", "-fdata-sections")
# Our own code: no libc, nothing visible that does not say so, no tables for unwinding.
_FREESTANDING = (
    *("-ffreestanding", "-fvisibility=hidden", "-fno-stack-protector"),
    *("-fno-unwind-tables", "-fno-asynchronous-unwind-tables", "-fstack-size-section"),
)


# -- tools -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Tools:
    """Where the tools are; each is the start of a command."""

    name: str
    clang: tuple[str, ...]
    lld: tuple[str, ...]
    ar: tuple[str, ...]
    headers: tuple[str, ...]  # flags that leave only the compiler's own headers
    llvm: str  # version, as 22.1.8

    @property
    def llvm_major(self) -> int:
        return int(self.llvm.split(".")[0])


@functools.cache
def find_tools(prefer: Literal["zig", "system"] = "zig") -> Tools:
    finders = [_zig_tools, _system_tools]
    for finder in finders if prefer == "zig" else reversed(finders):
        if tools := finder():
            return tools
    raise ToolchainError(
        "no compiler found: neither the Python package `ziglang` nor clang-22 and lld-22",
        hints=["pip install ziglang==0.17.1"],
    )


def _zig_tools() -> Tools | None:
    spec = importlib.util.find_spec("ziglang")
    if spec is None or not spec.submodule_search_locations:
        return None
    folder = Path(spec.submodule_search_locations[0])
    zig = str(folder / ("zig.exe" if os.name == "nt" else "zig"))
    headers = ("-nostdinc", "-isystem", str(folder / "lib" / "include"))
    return Tools(
        "zig", (zig, "clang"), (zig, "ld.lld"), (zig, "ar"), headers, _clang_version((zig, "clang"))
    )


def _system_tools() -> Tools | None:
    clang, lld, ar = (shutil.which(n) for n in ("clang-22", "ld.lld-22", "llvm-ar-22"))
    if not (clang and lld and ar):
        return None
    return Tools("llvm", (clang,), (lld,), (ar,), ("-nostdlibinc",), _clang_version((clang,)))


def _clang_version(clang: tuple[str, ...]) -> str:
    text = run([*clang, "--version"], what="clang --version").stdout
    found = re.search(r"clang version (\d+\.\d+\.\d+)", text)
    if not found:
        raise ToolchainError(
            "cannot tell the version of clang", command=shlex.join(clang), output=text
        )
    return found[1]


def tool_version(tools: Tools | None = None) -> str:
    """Everything about the tools that can change their output, for cache keys and stamps."""
    tools = tools or find_tools()
    return f"LLVM {tools.llvm} ({tools.name})"


@dataclass(frozen=True)
class Ran:
    stdout: str
    stderr: str


def run(
    command: Sequence[str],
    *,
    what: str,
    cwd: Path | None = None,
    env: dict[str, str] | None = None,
    show: Sequence[str] | None = None,
) -> Ran:
    """Runs a tool; `show` is the command to print when it fails, if another repeats it better.

    The environment is empty: variables such as CPATH would change what is built.
    """
    clean = {"LC_ALL": "C", "PATH": os.defpath} | (env or {})
    try:
        p = subprocess.run(
            command, cwd=cwd, env=clean, stdin=subprocess.DEVNULL, capture_output=True, check=False
        )
    except OSError as e:
        problem = (e.strerror or str(e)).lower()
        raise ToolchainError(f"cannot start `{command[0]}`: {problem}") from None
    out, err = p.stdout.decode("utf-8", "replace"), p.stderr.decode("utf-8", "replace")
    if p.returncode:
        line = shlex.join(show or command)
        if cwd is not None and show is None:
            line = f"cd {shlex.quote(str(cwd))} && {line}"
        died = f"signal {-p.returncode}" if p.returncode < 0 else f"status {p.returncode}"
        raise ToolchainError(f"{what} failed with {died}", command=line, output=err or out)
    return Ran(out, err)


def default_jobs() -> int:
    with suppress(AttributeError, OSError):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


# -- compiling -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Libc:
    """What user code needs around it: headers to compile, and what a link starts and ends with."""

    start: tuple[Path, ...]
    end: tuple[str, ...]  # files or options
    includes: tuple[Path, ...]
    cxx_includes: tuple[Path, ...] = ()
    libdirs: tuple[Path, ...] = ()
    dynamic_linker: str = ""  # empty: static


@dataclass(frozen=True)
class CompileJob:
    """One translation unit. A text as `source` is compiled under the file name `name`."""

    source: Path | bytes
    out: Path
    target: Target
    kind: Kind = "native"
    opt: Literal["speed", "size", "debug"] = "speed"
    includes: tuple[Path, ...] = ()
    defines: tuple[tuple[str, str], ...] = ()
    extra: tuple[str, ...] = ()
    name: str = ""
    hosted: bool = False  # the user's own code: ordinary rules, may call libc
    libc: Libc | None = None  # whose headers it sees
    debug: bool = False
    foreign: tuple[Path, ...] = ()  # folders of headers that are not ours: only the preprocessor knows what it reads

    @property
    def file_name(self) -> str:
        if self.name:
            return self.name
        return self.source.name if isinstance(self.source, Path) else self.out.stem + ".c"

    @property
    def text(self) -> bytes:
        if isinstance(self.source, bytes):
            return self.source
        try:
            return self.source.read_bytes()
        except OSError as e:
            raise ToolchainError(
                f"cannot read `{self.source}`: {(e.strerror or str(e)).lower()}"
            ) from None

    @property
    def language(self) -> str:
        suffix = Path(self.file_name).suffix
        if suffix not in _LANGUAGES:
            known = ", ".join(_LANGUAGES)
            raise ToolchainError(f"`{self.file_name}` is no source file", hints=[f"known: {known}"])
        return _LANGUAGES[suffix]


@dataclass(frozen=True)
class Compiled:
    out: Path
    warnings: str = ""
    cached: bool = False


def compile_flags(job: CompileJob) -> list[str]:
    """All options that name no folder."""
    defines = (*job.target.vector_defines, *job.defines) if not job.hosted else job.defines
    return [
        *("-c", "-x", job.language, *_STANDARDS.get(job.language, ())),
        *job.target.cflags,
        *_OPT_FLAGS[job.opt],
        *_SECTIONS,
        *(() if job.hosted else (*_NUMERIC, *_FREESTANDING)),
        *_KIND_FLAGS[job.kind],
        *(("-gdwarf-4",) if job.debug else ()),
        *(f"-D{k}={v}" for k, v in defines),
        *job.extra,
    ]


def compile_command(job: CompileJob, tools: Tools, folder: Path) -> list[str]:
    """The command, to be run in `folder`, where the source is `job.file_name`."""
    includes = (*job.includes, *job.foreign)
    maps = [f"-ffile-prefix-map={p}={name}" for p, name in _mapped(job, folder)]
    return [
        *tools.clang,
        *compile_flags(job),
        *("-fdebug-compilation-dir=.", *maps),
        *(f"-I{p.resolve()}" for p in includes),
        *_system_headers(job, tools),
        job.file_name,
    ]


def _mapped(job: CompileJob, folder: Path) -> list[tuple[Path, str]]:
    """What folders are called in results: no name of this machine's is in them."""
    return [(folder, "."), *((p.resolve(), f"include{i}") for i, p in enumerate((*job.includes, *job.foreign)))]


def _system_headers(job: CompileJob, tools: Tools) -> list[str]:
    if job.libc is None:
        return list(tools.headers)
    cxx = job.libc.cxx_includes if job.language.startswith("c++") else ()
    before = [f for p in cxx for f in ("-isystem", str(p))]
    return [*before, *tools.headers, *(f for p in job.libc.includes for f in ("-isystem", str(p)))]


@dataclass(frozen=True)
class Made:
    """What a compiler made of a job: the file's content, and what it said."""

    data: bytes
    warnings: str = ""


# The seam for compiling elsewhere: whatever makes of a job what `compile_here` makes of it.
Executor = Callable[[CompileJob, Tools], Made]


def compile_here(job: CompileJob, tools: Tools) -> Made:
    """Run the compiler on this machine."""
    with tempfile.TemporaryDirectory(prefix="monobloc-") as scratch:
        folder, place = _place(job, Path(scratch))
        command = compile_command(job, tools, folder)
        object_file = Path(scratch) / "out.o"
        show = [*command[:-1], str(place), "-o", str(job.out)]
        what = f"compiling `{job.source if isinstance(job.source, Path) else job.file_name}`"
        try:
            ran = run([*command, "-o", str(object_file)], what=what, cwd=folder, show=show)
        except ToolchainError:
            if isinstance(job.source, bytes):
                write_atomic(place, [job.source])  # so that the printed command can be repeated
            raise
        return Made(object_file.read_bytes(), ran.stderr)


def compile_all(
    jobs: Sequence[CompileJob],
    n_jobs: int | None = None,
    cache: Cache | None = None,
    progress: Progress | None = None,
    tools: Tools | None = None,
    execute: Executor = compile_here,
) -> list[Compiled]:
    """Compiles everything, then reports all failures at once; results in the order of the jobs."""
    tools = tools or find_tools()
    digests = {p: tree_digest(p) for p in sorted({p for j in jobs for p in j.includes if not j.hosted})}
    problems, done = Diagnostics(), 0

    def one(job: CompileJob) -> Compiled | ToolchainError:
        try:
            return _compile(job, tools, cache, [digests[p] for p in job.includes if not job.hosted], execute)
        except ToolchainError as e:
            return e

    results: list[Compiled] = []
    with ThreadPoolExecutor(max(1, n_jobs or default_jobs())) as pool:
        for job, result in zip(jobs, pool.map(one, jobs), strict=True):
            done += 1
            if progress:
                progress(done, len(jobs), job.file_name)
            if isinstance(result, ToolchainError):
                problems.report(result)
            else:
                results.append(result)
    problems.checkpoint()
    return results


def _compile(
    job: CompileJob, tools: Tools, cache: Cache | None, includes: list[str], execute: Executor
) -> Compiled:
    k = _compile_key(job, tools, includes) if cache else ""
    if cache and k and cache.get_file(k, job.out):
        return Compiled(job.out, cached=True)
    made = execute(job, tools)
    write_atomic(job.out, [made.data])
    if cache and k and not made.warnings:  # warnings must be shown again
        cache.put(k, made.data)
    return Compiled(job.out, made.warnings)


def _place(job: CompileJob, scratch: Path) -> tuple[Path, Path]:
    """The folder to compile in, and the source's name in a printed command."""
    if isinstance(job.source, bytes):
        (scratch / job.file_name).write_bytes(job.source)
        return scratch, job.out.with_suffix(".failed" + Path(job.file_name).suffix).absolute()
    if not job.source.is_file():
        raise ToolchainError(f"cannot read `{job.source}`: no such file")
    return job.source.parent.resolve(), job.source.absolute()


def _compile_key(job: CompileJob, tools: Tools, includes: list[str]) -> str:
    """All that the compiler reads, by content."""
    if job.hosted or job.foreign:  # which headers of the system are read, only the preprocessor knows
        try:
            text = _preprocessed(job, tools)
        except ToolchainError:
            return ""  # the compiler will tell
    else:
        text = job.text
    flags = compile_flags(job)
    return key(what="compile", tool=tool_version(tools), flags=flags, name=job.file_name, text=text, inc=includes)


def _preprocessed(job: CompileJob, tools: Tools) -> bytes:
    with tempfile.TemporaryDirectory(prefix="monobloc-") as scratch:
        folder, _ = _place(job, Path(scratch))
        command = [c for c in compile_command(job, tools, folder) if c != "-c"]
        text = run([*command, "-E", "-o", "-"], what="preprocessing", cwd=folder).stdout.encode()
        for path, name in reversed(_mapped(job, folder)):  # line marks name headers, which each build has elsewhere
            text = text.replace(f'"{path}/'.encode(), f'"{name}/'.encode())
        return text


# -- bitcode of others ------------------------------------------------------------------------------


def ir_text(bitcode: bytes, what: str, tools: Tools | None = None) -> str:
    """Bitcode as LLVM's text, not optimized further."""
    flags = ("-x", "ir", "-S", "-emit-llvm", "-Xclang", "-disable-llvm-passes", "-Wno-override-module")
    with tempfile.TemporaryDirectory(prefix="monobloc-") as scratch:
        (Path(scratch) / "in.bc").write_bytes(bitcode)
        command = [*(tools or find_tools()).clang, *flags, "in.bc", "-o", "out.ll"]
        run(command, what=f"reading the bitcode of {what}", cwd=Path(scratch))
        return (Path(scratch) / "out.ll").read_text(encoding="utf-8", errors="surrogateescape")


def ir_flags(target: Target, kind: Kind, opt: str) -> list[str]:
    """What else decides the object that a text becomes."""
    return [
        *("-x", "ir", "-c", f"--target={target.triple}", "-Wno-override-module", "-Wno-unused-command-line-argument"),
        *(*_OPT_FLAGS[opt], *_SECTIONS, *_KIND_FLAGS[kind], "-fstack-size-section"),
    ]


def compile_ir(text: str, what: str, flags: Sequence[str], tools: Tools | None = None) -> bytes:
    """LLVM's text as an object; which CPU it may use, its functions say themselves."""
    with tempfile.TemporaryDirectory(prefix="monobloc-") as scratch:
        (Path(scratch) / "in.ll").write_text(text, encoding="utf-8", errors="surrogateescape")
        run(
            [*(tools or find_tools()).clang, *flags, "in.ll", "-o", "out.o"],
            what=f"compiling the bitcode of {what}",
            cwd=Path(scratch),
        )
        return (Path(scratch) / "out.o").read_bytes()


# -- archives and relocatable files ----------------------------------------------------------------


def archive(members: Sequence[Path], out: Path, tools: Tools | None = None) -> Path:
    """A static library with an index, no times, no owners."""
    tools = tools or find_tools()
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".monobloc-", dir=out.parent) as scratch:
        made = Path(scratch) / "out.a"
        command = [*tools.ar, "rcsD", str(made), *map(str, members)]
        run(
            command,
            what=f"archiving `{out}`",
            show=[*tools.ar, "rcsD", str(out), *map(str, members)],
        )
        write_atomic(out, [made.read_bytes()])
    return out


def relocatable(
    objects: Iterable[Path], out: Path, target: Target, extra: tuple[str, ...] = ()
) -> Path:
    """Native objects as one."""
    return link(LinkJob("relocatable", tuple(objects), out, target, gc=False, extra=extra)).out


# -- linking ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class LinkJob:
    kind: Literal["exe", "shared", "relocatable"]
    inputs: tuple[Path | str, ...]  # files, or options that belong between files
    out: Path
    target: Target
    lto: Lto = "none"
    exports: tuple[str, ...] = ()  # shared: the only visible symbols, unless empty
    entry: str = ""
    libs: tuple[str, ...] = ()
    libdirs: tuple[Path, ...] = ()
    libc: Libc | None = None
    gc: bool = True
    pie: bool = True
    strip: bool = False
    undefs: bool = True  # shared: symbols may be left to the process that loads it
    icf: Literal["all", "safe", "none", ""] = (
        ""  # empty: all for our own code, safe beside the user's
    )
    opt: Literal["speed", "size", "debug"] = "speed"
    map: Path | None = None
    thinlto_cache: Path | None = None
    thinlto_jobs: int = 0
    extra: tuple[str, ...] = ()


@dataclass(frozen=True)
class Linked:
    out: Path
    stdout: str
    warnings: str


# The build id of an image is made when the linker is done (`link/room.py`): here is place for it.
_HARDENING = (
    *("-z", "relro", "-z", "now", "-z", "noexecstack"),
    *(f"--build-id=0x{'00' * 20}", "--hash-style=gnu", "--eh-frame-hdr"),
)


# musl's start file is made by `ld -r`, which loses what safe folding would like to know of it.
_HARMLESS = "conservatively ignores SHT_LLVM_ADDRSIG"


def _scratch_home(out: Path) -> Path:
    """Where lld may write: beside the result, so that it can be renamed, unless a `%` is in the way.

    LLVM puts a random digit in place of each `%` in the name of a file that it makes.
    """
    homes = (out.parent.absolute(), Path(tempfile.gettempdir()), Path("/tmp"))  # noqa: S108
    return next((h for h in homes if "%" not in str(h)), homes[0])


def _move(made: Path, out: Path) -> None:
    """Renames, or copies from another file system, so that the file appears whole."""
    try:
        os.replace(made, out)
    except OSError as e:
        if e.errno != errno.EXDEV:
            raise
        write_atomic(out, [made.read_bytes()], made.stat().st_mode & 0o777)


def link_command(
    job: LinkJob, out: Path, tools: Tools, version_script: Path | None = None
) -> list[str]:
    libc = job.libc if job.kind != "relocatable" else None
    return [
        *tools.lld,
        *_kind_flags(job),
        *_lto_flags(job, tools),
        *((f"--version-script={version_script}",) if version_script else ()),
        *((f"-Map={job.map}",) if job.map else ()),
        *job.extra,
        *(keep_wrapped(job.extra) if job.lto != "none" else ()),
        *("-o", str(out)),
        *(map(str, libc.start) if libc else ()),
        *map(str, job.inputs),
        *(f"-L{d}" for d in (*job.libdirs, *(libc.libdirs if libc else ()))),
        *(f"-l{n}" for n in job.libs),
        *(libc.end if libc else ()),
    ]


# Sections that code finds by `__start_NAME` stay, as with GNU ld.
_KEEP_FOUND = ("-z", "nostart-stop-gc")


def keep_wrapped(words: Sequence[str]) -> list[str]:
    """`--wrap=f` under LTO: calls of `f` that code generation makes up come when `__wrap_f` was dropped already."""
    names = [w.partition("=")[2] for w in words if w.startswith(("--wrap=", "-wrap="))]
    names += [after for w, after in zip(words, words[1:], strict=False) if w in ("--wrap", "-wrap")]
    return [f"--undefined=__wrap_{n}" for n in names]


def _kind_flags(job: LinkJob) -> list[str]:
    entry = [f"--entry={job.entry}"] if job.entry else []
    gc = ["--gc-sections", *_KEEP_FOUND] if job.gc else []
    if job.kind == "relocatable":
        return ["-r", *entry, *gc]
    icf = job.icf or ("safe" if job.libc else "all")
    # Code and constants on pages of their own, but for size: a page of padding at each border.
    pages = "noseparate-code" if job.opt == "size" else "separate-code"
    common = [*_HARDENING, "-z", pages, *gc, f"--icf={icf}", *(["-s"] if job.strip else []), *entry]
    if job.kind == "shared":
        return ["-shared", "-z", "undefs" if job.undefs else "defs", *common]
    dynamic = job.libc.dynamic_linker if job.libc else ""
    pie = ["-pie", "-z", "text"] if job.pie else []
    kind = [f"--dynamic-linker={dynamic}"] if dynamic else ["-static", "--no-dynamic-linker"]
    return [*kind, *pie, *common, *(f"--export-dynamic-symbol={e}" for e in job.exports)]


def _lto_flags(job: LinkJob, tools: Tools) -> list[str]:
    if job.lto == "none":
        return []
    level = {"speed": 3, "size": 2, "debug": 0}[job.opt]
    flags = [f"--lto={job.lto}", "--fat-lto-objects", f"--lto-O{level}", f"--lto-CGO{level}"]
    flags += [f"--thinlto-jobs={job.thinlto_jobs or default_jobs()}", *job.target.lto_flags]
    if job.thinlto_cache and job.lto == "thin":
        flags += [
            f"--thinlto-cache-dir={job.thinlto_cache}",
            "--thinlto-cache-policy=cache_size_bytes=256m",
        ]
    return flags


def link(
    job: LinkJob, tools: Tools | None = None, finish: Finish = lambda path, link_map: None, cache: Cache | None = None
) -> Linked:
    """Links; `finish` may change the file before it appears under its name, and sees its map."""
    tools = tools or find_tools()
    job.out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".monobloc-", dir=_scratch_home(job.out)) as scratch:
        script = None
        if job.kind == "shared" and job.exports:
            script = Path(scratch) / "exports.map"
            script.write_text("{ global: " + " ".join(f"{e};" for e in job.exports) + " local: *; };\n")
        made, read = Path(scratch) / "out", Path(scratch) / "read"
        show = link_command(job, job.out, tools, script)
        what = f"linking `{job.out}`"
        mapped = replace(job, map=Path(scratch) / "map") if job.map else job
        bare = replace(job, inputs=(), map=None, thinlto_cache=None)
        known = known_link(cache, job, link_command(bare, Path("out"), tools), tool_version(tools))
        said = known.recall(made, mapped.map) if known else None
        command = [*link_command(mapped, made, tools, script), f"--dependency-file={read}"]
        ran = Ran(*said) if said else run(command, what=what, show=show)
        if "cannot find entry symbol" in ran.stderr:  # lld only warns, and drops the whole program
            raise ToolchainError(f"{what} failed", command=shlex.join(show), output=ran.stderr)
        if known and not said:
            known.keep(job, made, read, mapped.map, (ran.stdout, ran.stderr))
        finish(made, mapped.map)
        if mapped.map and job.map and mapped.map.is_file():
            write_atomic(job.map, [mapped.map.read_bytes()])
        _move(made, job.out)
    warnings = [w for w in ran.stderr.splitlines(keepends=True) if _HARMLESS not in w]
    return Linked(job.out, ran.stdout, "".join(warnings))
