"""Virtual calls of an executable become direct where one function can be meant, and stay where others might be."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from monobloc.link.devirtualize import obstacle
from monobloc.object import elf

MONOBLOC = [sys.executable, "-m", "monobloc"]
BASE = """
struct Base { virtual ~Base() {} virtual int f(int x) const = 0; };
extern "C" Base *make(); extern "C" Base *other();
"""
ONE = """
namespace { struct One : Base { int f(int x) const override { return x + 1; } }; }
Base *make() { return new One; }
"""
TWO = """
namespace { struct Two : Base { int f(int x) const override { return x + 2; } }; }
Base *other() { return new Two; }
"""
MAIN = """
#include <cstdio>
__attribute__((noinline)) int hot_loop(const Base *b, int n) { int s = 0; while (n--) s += b->f(n); return s; }
int main(int c, char **) { Base *b = c > 1 ? OTHER : make(); std::printf("%d\\n", hot_loop(b, 4)); delete b; }
"""
ALONE, TOGETHER = ("10\n", "10\n"), ("10\n", "14\n")  # without an argument, and with one

pytestmark = pytest.mark.skipif(not shutil.which("g++"), reason="no `g++`: no C++ library to link")


def run(*words: object, cwd: Path) -> str:
    done = subprocess.run([str(w) for w in words], cwd=cwd, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, f"{' '.join(map(str, words))}\n{done.stdout}{done.stderr}"
    assert "warning" not in done.stderr, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program's parts: fat, and as other compilers leave them."""
    home = tmp_path_factory.mktemp("virtual")
    texts = {"one": ONE, "two": TWO, "main": MAIN.replace("OTHER", "other()"), "alone": MAIN.replace("OTHER", "make()")}
    for name, text in texts.items():
        (home / f"{name}.cpp").write_text(BASE + text)
    run(*MONOBLOC, "c++", "-O2", "-fPIC", "-c", "one.cpp", "two.cpp", "main.cpp", "alone.cpp", cwd=home)
    run("g++", "-O2", "-fPIC", "-c", "two.cpp", "-o", "native.o", cwd=home)
    run("g++", "-O2", "-fPIC", "-fno-rtti", "-c", "two.cpp", "-o", "no_rtti.o", cwd=home)
    run("objcopy", "--discard-all", "no_rtti.o", "stripped.o", cwd=home)
    run("g++", "-shared", "-fvisibility=hidden", "-Wl,-soname,libtwo.so", "native.o", "-o", "libtwo.so", cwd=home)
    run("ar", "rcs", "libold.a", "no_rtti.o", cwd=home)
    return home


def link(folder: Path, line: str, verb: str = "c++") -> Path:
    run(*MONOBLOC, verb, *line.split(), "-o", "app", cwd=folder)
    return folder / "app"


def answers(app: Path) -> tuple[str, str]:
    return run(app, cwd=app.parent), run(app, "x", cwd=app.parent)


def indirect_calls(app: Path, function: str = "hot_loop") -> list[str]:
    text = run("objdump", "-d", "--no-show-raw-insn", app, cwd=app.parent)
    body = re.search(rf"^\w+ <[^>]*{function}[^>]*>:\n(.*?)\n\n", text + "\n\n", re.M | re.S)
    assert body, f"no {function} in {app}"
    return re.findall(r"(?:call|jmp) +\*.*", body[1])


@pytest.mark.parametrize("mode", ["thin", "full"])
def test_one_implementation_is_called_directly(mode: str, folder: Path) -> None:
    app = link(folder, f"-flto={mode} -O2 -g alone.o one.o")
    assert answers(app) == ALONE and not indirect_calls(app)


def test_without_lto_the_call_stays(folder: Path) -> None:
    assert indirect_calls(link(folder, "-fno-lto -O2 -g alone.o one.o"))


def test_any_linker_takes_the_objects(folder: Path) -> None:
    """Classes without a name outside of their file were missing from native halves once."""
    tables = {s.name: s.defined for s in elf.symbols((folder / "one.o").read_bytes()) if "_ZTVN12_GLOBAL" in s.name}
    assert tables and all(tables.values())
    run("g++", "main.o", "one.o", "two.o", "-o", "plain", cwd=folder)
    assert answers(folder / "plain") == TOGETHER


@pytest.mark.parametrize("mode", ["thin", "full"])
@pytest.mark.parametrize("second", [
    "two.o", "native.o", "no_rtti.o", "stripped.o", "-L. -lold", "-L. -ltwo -Wl,-rpath,$ORIGIN",
    "two.o -fno-whole-program-vtables",
])
def test_a_second_class_is_seen_wherever_it_is(mode: str, second: str, folder: Path) -> None:
    app = link(folder, f"-flto={mode} -O2 -g main.o one.o {second}")
    assert answers(app) == TOGETHER and indirect_calls(app)


PLUGIN = """
#include <dlfcn.h>
extern "C" Base *other() {
  void *lib = dlopen("./libtwo.so", RTLD_NOW);
  Base *(*call)() = reinterpret_cast<Base *(*)()>(dlsym(lib, "other"));
  return call();
}
"""


@pytest.mark.parametrize("mode", ["thin", "full"])
def test_what_is_loaded_at_run_time_may_derive(mode: str, folder: Path) -> None:
    (folder / "plugin.cpp").write_text(BASE + PLUGIN)
    app = link(folder, f"-flto={mode} -O2 -g main.o one.o plugin.cpp -ldl")
    assert answers(app) == TOGETHER and indirect_calls(app)


def test_a_shared_library_keeps_virtual_calls(folder: Path) -> None:
    link(folder, "-shared -O2 -g alone.o one.o")
    assert indirect_calls(folder / "app")


# -- what stands in the way -----------------------------------------------------------------------------
def told(inputs: Sequence[Path | str], folder: Path, *others: str, libs: Sequence[str] = ()) -> str:
    return obstacle(inputs, libs, [folder], others)


def test_obstacles_are_named(folder: Path) -> None:
    ours = [folder / "main.o", folder / "one.o", folder / "native.o"]
    assert told(ours, folder, libs=("m", "stdc++", "pthread")) == ""
    assert "exports its symbols" in told(ours, folder, "--export-dynamic")
    assert "without type informations" in told([*ours, folder / "no_rtti.o"], folder)
    assert "without type informations" in told([*ours, folder / "stripped.o"], folder)
    assert "without type informations" in told([*ours, "-lold"], folder)
    assert "written in C++" in told(ours, folder, libs=("two",))
    assert "not where" in told(ours, folder, libs=("gone",))
    (folder / "libscript.so").write_text("INPUT(libother.so)\n")
    assert "script" in told(ours, folder, libs=("script",))


def test_libraries_in_c_do_not_matter(folder: Path) -> None:
    (folder / "c.c").write_text("int in_c(void) { return 3; }\n")
    run("gcc", "-shared", "-fPIC", "c.c", "-o", "libinc.so", cwd=folder)
    assert told([folder / "one.o"], folder, libs=("inc",)) == ""


@pytest.mark.parametrize("mode", ["thin", "full"])
def test_beside_a_model(mode: str, folder: Path) -> None:
    """`monobloc build` and `link` resolve them too."""
    model = Path(__file__).resolve().parents[2] / "examples" / "mnist8.onnx"
    text = (folder / "alone.cpp").read_text().replace("Base *b =", "if (mnist8_run()) return 1; Base *b =")
    (folder / "m.cpp").write_text(f'#include "mnist8.h"\n{text}')
    run(*MONOBLOC, "build", model, "m.cpp", "one.cpp", "-o", "app", "--lto", mode, "--debug", cwd=folder)
    assert answers(folder / "app") == ALONE and not indirect_calls(folder / "app")
    run(*MONOBLOC, "build", model, "m.cpp", "one.cpp", "no_rtti.o", "-o", "app", "--lto", mode, "--debug", cwd=folder)
    assert indirect_calls(folder / "app")
