"""Compiling and linking: real tools on small sources."""

import ctypes
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from monobloc import targets
from monobloc.cache import Cache
from monobloc.errors import ErrorList, ToolchainError
from monobloc.object import elf, sysroot, toolchain
from monobloc.object.toolchain import CompileJob, Kind, LinkJob, Lto, compile_all, link
from monobloc.targets import Target

START = {
    "x86_64": b'__attribute__((naked)) void _start(void) { __asm__("and $-16, %rsp\\n call app\\n'
    b' mov %eax, %edi\\n mov $60, %eax\\n syscall"); }',
    "aarch64": b'__attribute__((naked)) void _start(void) { __asm__("bl app\\n'
    b' mov x8, #93\\n svc #0"); }',
}
APP = b"int answer(int);\n__attribute__((used)) int app(void) { return answer(40); }\n"
ANSWER = b"""#include "two.h"
static __attribute__((noinline)) int inner(int a) { return a + TWO; }
#ifdef __x86_64__
__attribute__((visibility("default")))
#endif
int answer(int a) { return inner(a); }
__attribute__((visibility("default"))) int unused(int a) { return inner(a) * twice(a); }
"""
HEADER = "#define TWO 2\nstatic inline int twice(int a) { return 2 * a; }\n"
LTO: list[Lto] = ["none", "thin", "full"]


def jobs(folder: Path, target: Target, kind: Kind = "fat") -> list[CompileJob]:
    (folder / "inc").mkdir(parents=True, exist_ok=True)
    (folder / "inc/two.h").write_text(HEADER)
    texts = {"start": START[target.arch], "app": APP, "answer": ANSWER}
    return [
        CompileJob(text, folder / f"{n}.o", target, kind, includes=(folder / "inc",), name=f"{n}.c")
        for n, text in texts.items()
    ]


def build(folder: Path, target: Target, lto: Lto, cache: Path | None = None) -> Path:
    made = compile_all(jobs(folder, target))
    inputs = tuple(m.out for m in made)
    job = LinkJob("exe", inputs, folder / f"app.{lto}", target, lto, entry="_start")
    return link(replace(job, thinlto_cache=cache)).out


def runner(target: Target) -> tuple[str, ...]:
    if targets.runs_here(target):
        return ()
    if not shutil.which(target.runner[0]):
        pytest.skip(f"no {target.runner[0]} here")
    return target.runner


@pytest.mark.parametrize("lto", LTO)
@pytest.mark.parametrize("name", targets.names())
def test_an_executable_without_libc(name: str, lto: Lto, tmp_path: Path) -> None:
    target = targets.resolve(name)
    out = build(tmp_path, target, lto, tmp_path / "thinlto")
    assert subprocess.run([*runner(target), out], check=False).returncode == 42
    image = out.read_bytes()
    segments = elf.program_headers(image)
    assert not any(p.flags & elf.PF_W and p.flags & elf.PF_X for p in segments)
    kinds = {p.type for p in segments}
    assert {elf.PT_GNU_RELRO, elf.PT_GNU_STACK} <= kinds and elf.PT_INTERP not in kinds
    names = {s.name for s in elf.symbols(image)}
    assert "unused" not in names and elf.Elf(image).machine == target.elf_machine
    assert ("answer" in names) == (lto == "none")  # LTO saw through the call


def test_two_folders_give_the_same_bytes(tmp_path: Path) -> None:
    target = targets.resolve("x86_64-linux")
    for lto in LTO:
        one, two = (build(tmp_path / f, target, lto) for f in ("here", "there/deeper"))
        assert one.read_bytes() == two.read_bytes(), lto
    for job in jobs(tmp_path / "here", target):
        data = job.out.read_bytes()
        assert data == (tmp_path / "there/deeper" / job.out.name).read_bytes()
        assert str(tmp_path).encode() not in data


def test_debug_information_names_no_folder(tmp_path: Path) -> None:
    target, found = targets.resolve("x86_64-linux"), []
    for folder in (tmp_path / "a", tmp_path / "b/c"):
        made = compile_all([replace(j, debug=True) for j in jobs(folder, target)])
        found.append([m.out.read_bytes() for m in made])
    assert found[0] == found[1] and b"two.h" in b"".join(found[0])
    assert str(tmp_path).encode() not in b"".join(found[0])


def test_a_source_file_is_compiled_where_it_is(tmp_path: Path) -> None:
    (tmp_path / "x.c").write_text('#include "y.h"\n')
    (tmp_path / "y.h").write_text("int y = 1;\n")
    target = targets.resolve("x86_64-linux")
    compile_all([CompileJob(tmp_path / "x.c", tmp_path / "x.o", target)])
    names = [s.name for s in elf.symbols((tmp_path / "x.o").read_bytes())]
    assert "y" in names and "x.c" in names


def test_kinds(tmp_path: Path) -> None:
    target = targets.resolve("x86_64-linux")
    native, bitcode, fat = (
        compile_all(jobs(tmp_path / k, target, k))[2].out.read_bytes()
        for k in ("native", "bitcode", "fat")
    )
    assert bitcode[:4] == b"BC\xc0\xde"
    assert elf.get_section(native, ".llvm.lto") is None
    assert bytes(elf.get_section(fat, ".llvm.lto") or b"")[:4] == b"BC\xc0\xde"
    assert elf.get_section(fat, ".text.answer") == elf.get_section(native, ".text.answer")


@pytest.mark.parametrize("lto", LTO)
def test_a_shared_library(lto: Lto, tmp_path: Path) -> None:
    target = targets.resolve("host")
    inputs = tuple(m.out for m in compile_all(jobs(tmp_path, target))[2:])
    out = tmp_path / "lib.so"
    link(LinkJob("shared", inputs, out, target, lto, exports=("answer",)))
    assert ctypes.CDLL(str(out)).answer(1) == 3
    visible = [s.name for s in elf.symbols(out.read_bytes()) if s.bind == elf.STB_GLOBAL]
    assert visible == ["answer"]


def test_the_cache_knows_everything_that_is_read(tmp_path: Path) -> None:
    target, cache = targets.resolve("x86_64-linux"), Cache(tmp_path / "cache")

    def cached(changed: list[CompileJob]) -> list[bool]:
        return [c.cached for c in compile_all(changed, cache=cache)]

    base = jobs(tmp_path, target)
    assert cached(base) == [False] * 3 and cached(base) == [True] * 3
    first = base[2].out.read_bytes()
    (tmp_path / "inc/two.h").write_text(HEADER.replace("2", "3"))
    assert cached(base) == [False] * 3 and base[2].out.read_bytes() != first
    for change in (
        {"opt": "size"},
        {"kind": "native"},
        {"defines": (("X", "1"),)},
        {"target": targets.resolve("x86_64-linux", "x86-64-v3")},
        {"extra": ("-funroll-loops",)},
        {"debug": True},
    ):
        assert cached([replace(base[2], **change)]) == [False], change  # type: ignore[arg-type]
    moved = [replace(j, out=tmp_path / "elsewhere" / j.out.name) for j in base]
    assert cached(moved) == [True] * 3 and cached(base) == [True] * 3
    assert moved[2].out.read_bytes() == base[2].out.read_bytes()


def test_hosted_code_is_cached_by_what_it_includes(tmp_path: Path) -> None:
    (tmp_path / "user.c").write_text('#include "user.h"\nint f(void) { return N; }\n')
    (tmp_path / "user.h").write_text("#define N 1\n")
    target, cache = targets.resolve("x86_64-linux"), Cache(tmp_path / "cache")
    job = CompileJob(tmp_path / "user.c", tmp_path / "user.o", target, hosted=True)
    assert [compile_all([job], cache=cache)[0].cached for _ in range(2)] == [False, True]
    (tmp_path / "user.h").write_text("#define N 2\n")
    assert not compile_all([job], cache=cache)[0].cached


def test_headers_of_a_build_are_known_in_any_folder(tmp_path: Path) -> None:
    """A build writes the headers of its models into a temporary folder; line marks name it."""
    source, cache = tmp_path / "user.c", Cache(tmp_path / "cache")
    source.write_text('#include "net.h"\nint f(void) { return N; }\nconst char *where = __FILE__;\n')
    cached, made = [], []
    for k, n in enumerate((1, 1, 2)):
        folder = tmp_path / str(k) / "include"
        folder.mkdir(parents=True)
        (folder / "net.h").write_text(f"static inline const char *net(void) {{ return __FILE__; }}\n#define N {n}\n")
        job = CompileJob(source, tmp_path / f"{k}.o", targets.resolve("x86_64-linux"), hosted=True, includes=(folder,),
                         debug=True)
        cached += [c.cached for c in compile_all([job], cache=cache)]
        compile_all([replace(job, out=tmp_path / "anew.o")])
        made.append((job.out.read_bytes(), (tmp_path / "anew.o").read_bytes()))
    assert cached == [False, True, False]
    assert all(kept == anew for kept, anew in made) and made[0] != made[2]


def test_warnings_are_shown_each_time(tmp_path: Path) -> None:
    target, cache = targets.resolve("x86_64-linux"), Cache(tmp_path / "cache")
    job = CompileJob(b"#warning look\n", tmp_path / "x.o", target, name="x.c")
    for _ in range(2):  # from a cache they would be lost
        assert "look" in compile_all([job], cache=cache)[0].warnings


def test_all_failures_are_told_with_commands_that_repeat_them(tmp_path: Path) -> None:
    target = targets.resolve("x86_64-linux")
    bad = [CompileJob(t, tmp_path / f"{n}.o", target, name=f"{n}.c") for n, t in
           (("one", b"int x = ;"), ("good", b"int y;"), ("two", b"#error no"))]  # fmt: skip
    with pytest.raises(ErrorList) as caught:
        compile_all(bad, 2)
    one, two = caught.value.errors
    assert isinstance(one, ToolchainError) and isinstance(two, ToolchainError)
    assert "compiling `one.c` failed with status 1" in str(one) and "no" in two.output
    assert (tmp_path / "good.o").exists() and not (tmp_path / "one.o").exists()
    again = subprocess.run(one.command, shell=True, capture_output=True, text=True, check=False)
    assert again.returncode == 1 and "expected expression" in again.stderr


def test_link_failures(tmp_path: Path) -> None:
    target = targets.resolve("x86_64-linux")
    made = compile_all(jobs(tmp_path, target))
    job = LinkJob("exe", (made[0].out, made[1].out), tmp_path / "app", target, entry="_start")
    with pytest.raises(ToolchainError, match="undefined symbol: answer"):
        link(job)
    with pytest.raises(ToolchainError, match="cannot find entry symbol"):
        link(replace(job, inputs=(made[2].out,)))
    assert not (tmp_path / "app").exists() and not list(tmp_path.glob(".monobloc*"))


def test_the_map_and_the_library_flags(tmp_path: Path) -> None:
    target = targets.resolve("x86_64-linux")
    start, app, answer = (m.out for m in compile_all(jobs(tmp_path, target)))
    toolchain.archive([answer], tmp_path / "libanswer.a")
    job = LinkJob("exe", (start, app), tmp_path / "app", target, "thin", entry="_start")
    job = replace(job, libs=("answer",), libdirs=(tmp_path,), map=tmp_path / "m", strip=True)
    out = link(job).out
    assert elf.symbols(out.read_bytes()) == [] and "_start" in (tmp_path / "m").read_text()
    assert out.stat().st_mode & 0o111


def test_versions() -> None:
    tools = toolchain.find_tools()
    assert tools.llvm_major >= 22 and tools.llvm in toolchain.tool_version()


@pytest.mark.parametrize("lto", LTO)
def test_user_code_with_the_systems_libc(lto: Lto, tmp_path: Path) -> None:
    target = targets.resolve("host")
    libc = sysroot.system_libc(target)
    if libc is None:
        pytest.skip("no system compiler with a libc here")
    source = tmp_path / "user.c"
    source.write_text(
        "#include <math.h>\n#include <stdio.h>\n"
        'int main(int c, char **v) { printf("%.3f\\n", pow(c + 1, 0.5)); return 0; }\n'
    )
    job = CompileJob(source, tmp_path / "user.o", target, "fat", hosted=True, libc=libc)
    made = compile_all([job])
    out = link(LinkJob("exe", (made[0].out,), tmp_path / "user", target, lto, libc=libc)).out
    assert subprocess.run([out], capture_output=True, check=True).stdout == b"1.414\n"


def test_what_a_compiler_says_is_kept_while_it_is_true(tmp_path: Path) -> None:
    cc, said, cache = tmp_path / "cc", tmp_path / "said", Cache(tmp_path / "cache")

    def asked() -> tuple[str, int]:
        sysroot._ask.cache_clear()  # as in the next process
        before = len(said.read_text().splitlines()) if said.exists() else 0
        text = sysroot._ask(str(cc), cache, "-v")
        return text, len(said.read_text().splitlines()) - before

    cc.write_text(f'#!/bin/sh\necho "$@" >> {said}\necho libraries: ={tmp_path}/lib:{tmp_path}/later\n')
    cc.chmod(0o755)
    first, times = asked()
    assert f"{tmp_path}/lib" in first and times == 1
    assert asked() == (first, 0)
    (tmp_path / "later").mkdir()  # one of the folders that it named appears
    assert asked() == (first, 1) and asked() == (first, 0)
    cc.write_text(cc.read_text().replace("later", "elsewhere"))
    text, times = asked()
    assert f"{tmp_path}/elsewhere" in text and times == 1


def test_what_is_kept_of_a_built_libc() -> None:
    log = (
        "clang -cc1 ...\nld.lld -r -o c/o/1/rcrt1.o a.o b.o\n"
        "#include <...> search starts here:\n /opt/ziglang/lib/include\n /opt/ziglang/lib/libc/m\n"
        "End of search list.\n"
        "ld.lld --gc-sections -o probe c/o/1/rcrt1.o c/o/2/probe.o -L/ c/o/3/libc.a "
        "c/o/4/libzigc.a c/o/5/libcompiler_rt.a\n"
    )
    names = [f.name for f in sysroot.kept_files(log)]
    assert names == ["rcrt1.o", "libc.a", "libzigc.a", "libcompiler_rt.a"]
    assert sysroot.search_paths(log) == [Path("/opt/ziglang/lib/libc/m")]
    with pytest.raises(ToolchainError, match="built no libc"):
        sysroot.kept_files("clang -cc1\n")
