"""`monobloc cc`, `c++`, `ar` and `ld` in place of a build's own tools."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from monobloc.drivers import args, models, tools
from monobloc.errors import LinkError
from monobloc.object import elf, fat

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"
MONOBLOC = f"{sys.executable} -m monobloc"
HELLO = '#include <stdio.h>\n#include <math.h>\n\
int main(int c, char **v) { (void)v; printf("%g\\n", sqrt(c + 3.0)); }\n'

pytestmark = pytest.mark.skipif(not shutil.which("cc"), reason="no C library: the system has no `cc`")


def run(*words: object, cwd: Path, code: int = 0, **env: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run([str(w) for w in words], cwd=cwd, capture_output=True, text=True, timeout=300,
                          env={**os.environ, **env}, stdin=subprocess.DEVNULL)
    assert done.returncode == code, f"{' '.join(map(str, words))}: {done.returncode}\n{done.stdout}{done.stderr}"
    return done


def tool(verb: str, *words: object, cwd: Path, code: int = 0) -> subprocess.CompletedProcess[str]:
    return run(*MONOBLOC.split(), verb, *words, cwd=cwd, code=code)


def names(path: Path) -> set[str]:
    return {s.name for s in elf.symbols(path.read_bytes()) if s.defined}


def sections(path: Path) -> set[str]:
    return {s.name for s in elf.sections(path.read_bytes())}


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a model's object, its header, an archive of it, and the program that uses it."""
    folder = tmp_path_factory.mktemp("digits")
    run(*MONOBLOC.split(), "compile", EXAMPLES / "mnist8.onnx", "-o", "digits.o", "--name", "digits", cwd=folder)
    for name in ("app.c", "dsp.c", "dsp.h"):
        shutil.copy(EXAMPLES / "makefile-project" / name, folder)
    (folder / "lib").mkdir()
    tool("ar", "rcs", "lib/libkws.a", "digits.o", cwd=folder)
    tool("cc", "-O2", "-c", "app.c", "dsp.c", cwd=folder)
    return folder


# -- arguments ----------------------------------------------------------------------------------------
def test_values_are_no_inputs() -> None:
    found = args.items("-o app -Iinclude -I other -x c++ a.txt -x none b.o -MF d -lm -L lib -- -odd.c".split())
    assert [i.words[0] for i in found if i.input] == ["a.txt", "b.o", "-odd.c"]
    assert [i.is_source for i in found if i.input] == [True, False, True]
    assert args.output(found, "a.out") == Path("app")
    assert [v for i in found if (v := i.value("-L"))] == ["lib"]


@pytest.mark.parametrize("words, mode", [
    ("", "thin"), ("-flto", "thin"), ("-flto=full", "full"), ("-flto=auto", "thin"), ("-flto=8", "thin"),
    ("-flto=full -fno-lto", "none"), ("-fno-lto -flto", "thin"),
])
def test_modes(words: str, mode: str) -> None:
    assert args.lto_mode(args.items(words.split())) == mode


def test_unknown_mode() -> None:
    with pytest.raises(LinkError, match="thicc"):
        args.lto_mode(args.items(["-flto=thicc"]))


def test_response_files(tmp_path: Path) -> None:
    (tmp_path / "inner").write_text("-lm")
    (tmp_path / "outer").write_text(f"'a b.o' @{tmp_path / 'inner'}")
    assert args.expand([f"@{tmp_path / 'outer'}", "@gone"]) == ["a b.o", "-lm", "@gone"]


def test_words_as_clang_prints_them() -> None:
    line = r' "/usr/bin/ld" "-rpath" "\$ORIGIN/a b" "say \"x\"" "C:\\d" ""'
    assert tools.words_of(line) == ["/usr/bin/ld", "-rpath", "$ORIGIN/a b", 'say "x"', r"C:\d", ""]


# -- compiling ----------------------------------------------------------------------------------------
def test_objects_are_fat(tmp_path: Path) -> None:
    (tmp_path / "a.c").write_text(HELLO)
    tool("cc", "-O2", "-c", "a.c", "--depfile", "a.dep", cwd=tmp_path)
    assert {".llvm.lto", ".text.main"} <= sections(tmp_path / "a.o")
    assert (tmp_path / "a.dep").read_text().startswith("a.o: a.c")
    run("cc", "a.o", "-lm", "-o", "a", cwd=tmp_path)  # any linker takes them
    assert run("./a", cwd=tmp_path).stdout == "2\n"
    tool("cc", "-fno-lto", "-c", "a.c", "-o", "n.o", cwd=tmp_path)
    assert ".llvm.lto" not in sections(tmp_path / "n.o")


def test_other_stages_are_clangs(tmp_path: Path) -> None:
    (tmp_path / "a.c").write_text("#define X 42\nint x = X;\n")
    assert "int x = 42;" in tool("cc", "-E", "a.c", cwd=tmp_path).stdout
    assert ".long" in tool("cc", "-S", "-flto", "a.c", "-o", "-", cwd=tmp_path).stdout
    assert "clang version" in tool("cc", "--version", cwd=tmp_path).stdout
    assert tool("cc", "-dumpmachine", cwd=tmp_path).stdout.strip().endswith("-linux-gnu")
    assert Path(tool("cc", "-print-file-name=crti.o", cwd=tmp_path).stdout.strip()).is_file()
    assert "search starts here" in tool("cc", "-v", "-E", "a.c", cwd=tmp_path).stderr
    assert Path(tool("cc", "-print-cmake-dir", cwd=tmp_path).stdout.strip(), "MonoblocConfig.cmake").is_file()


def test_checks_of_configure(tmp_path: Path) -> None:
    """Warnings as errors must not hit options of ours; what is missing must fail, with clang's words."""
    (tmp_path / "c.c").write_text(HELLO)
    (tmp_path / "s.S").write_text(".globl f\nf: ret\n.section .note.GNU-stack\n")
    (tmp_path / "no.c").write_text("char no_such_function(); int main(void) { return no_such_function(); }\n")
    tool("cc", "-Werror", "-Wall", "-MD", "-pthread", "-L.", "-Wl,-O1", "c.c", "s.S", "-lm", "-o", "c", cwd=tmp_path)
    assert run("./c", cwd=tmp_path).stdout == "2\n"
    tool("cc", "-Werror", "-c", "s.S", cwd=tmp_path)
    assert "undefined symbol: no_such_function" in tool("cc", "no.c", cwd=tmp_path, code=1).stderr
    assert "monobloc cc: error: no such file" in tool("cc", "-c", "gone.c", cwd=tmp_path, code=1).stderr
    assert "no input files" in tool("cc", cwd=tmp_path, code=1).stderr
    assert "unable to find library" in tool("cc", "c.c", "-lno_such_library", cwd=tmp_path, code=1).stderr


# -- linking without models ---------------------------------------------------------------------------
@pytest.mark.parametrize("flags", ["", "-flto=full", "-fno-lto", "-static", "-no-pie -g"])
def test_links_without_models(flags: str, tmp_path: Path) -> None:
    (tmp_path / "a.cpp").write_text('#include <iostream>\nint two();\nint main() { std::cout << two() << "\\n"; }\n')
    (tmp_path / "b.cpp").write_text("int two() { return 2; }\nint unused_three() { return 3; }\n")
    tool("c++", *flags.split(), "-O2", "-c", "a.cpp", "b.cpp", cwd=tmp_path)
    tool("c++", *flags.split(), "-O2", "a.o", "b.o", "-o", "a", cwd=tmp_path)
    assert run("./a", cwd=tmp_path).stdout == "2\n"
    found = names(tmp_path / "a")
    assert not any("unused_three" in n for n in found)
    assert ("_Z3twov" in found) == (flags == "-fno-lto")  # inlined across files by LTO alone


def test_bitcode_holds_no_other_bitcode(tmp_path: Path) -> None:
    (tmp_path / "main.c").write_text("int main(void) { return 4; }\n")
    tool("cc", "-O2", "-emit-llvm", "-c", "main.c", "-o", "main.bc", cwd=tmp_path)
    assert tool("cc", "-O2", "main.bc", "-o", "app", cwd=tmp_path).stderr == ""
    run("./app", cwd=tmp_path, code=4)


@pytest.mark.parametrize("shape", ["", "-static"])
def test_objects_that_hold_no_code_are_refused(shape: str, digits: Path) -> None:
    if not shutil.which("gcc"):
        pytest.skip("no `gcc`")
    run("gcc", "-O2", "-flto", "-fno-fat-lto-objects", "-c", "app.c", "-o", "slim.o", cwd=digits)
    said = tool("cc", *shape.split(), "slim.o", "dsp.o", "digits.o", "-lm", "-o", "app", cwd=digits, code=1).stderr
    assert "slim.o is a slim LTO object of GCC" in said and "-ffat-lto-objects" in said


def test_objects_that_other_tools_changed(tmp_path: Path) -> None:
    """`ld -r` and `objcopy` change the native half only; then that half is linked."""
    if not shutil.which("objcopy"):
        pytest.skip("no `objcopy`")
    (tmp_path / "lib.c").write_text("int lib(void) { return 4; }\n")
    (tmp_path / "main.c").write_text("int lib(void);\nint main(void) { return lib(); }\n")
    (tmp_path / "thrower.cpp").write_text(
        "#include <stdexcept>\nvoid f(int x) { if (x) throw std::logic_error(\"\"); }\n"
        "int main() { try { f(1); } catch (const std::exception &) { return 4; } }\n")
    tool("cc", "-O2", "-c", "lib.c", "main.c", cwd=tmp_path)
    run("ld", "-r", "main.o", "lib.o", "-o", "joined.o", cwd=tmp_path)
    run("objcopy", "--redefine-sym", "lib=other", "lib.o", "renamed.o", cwd=tmp_path)
    run("objcopy", "--localize-symbol=lib", "lib.o", "local.o", cwd=tmp_path)
    for line, why in (("joined.o", "2 modules"), ("main.c -Dlib=other renamed.o", "`other` is not in it"),
                      ("main.o lib.o local.o", "`lib` is local")):
        said = tool("cc", "-O2", *line.split(), "-o", "app", cwd=tmp_path).stderr
        run("./app", cwd=tmp_path, code=4)
        assert "its native code is linked" in said and why in said, said
    tool("c++", "-O2", "-c", "thrower.cpp", cwd=tmp_path)
    assert tool("c++", "-O2", "thrower.o", "-o", "app", cwd=tmp_path).stderr == ""
    run("./app", cwd=tmp_path, code=4)


def test_the_linker_says_which_it_is(tmp_path: Path) -> None:
    """Build systems ask for it by `-Wl,--version`, and choose options by the answer."""
    assert tool("cc", "-Wl,--version", cwd=tmp_path).stdout.startswith("LLD")


def test_sections_found_by_name_stay(tmp_path: Path) -> None:
    (tmp_path / "a.c").write_text(
        '__attribute__((section("plugins"), used)) static int p = 7;\n'
        "extern int __start_plugins[], __stop_plugins[];\n"
        "int main(void) { return __stop_plugins - __start_plugins == 1 ? __start_plugins[0] : 1; }\n")
    tool("cc", "-O2", "a.c", "-o", "a", cwd=tmp_path)
    run("./a", cwd=tmp_path, code=7)


# -- linking with models ------------------------------------------------------------------------------
@pytest.mark.parametrize("line", [
    "app.o dsp.o digits.o -lm",
    "-flto=full digits.o dsp.o app.o -lm -pthread -rdynamic -Wl,-rpath,/x",
    "-fno-lto app.o dsp.o digits.o -lm",
    "app.c dsp.c digits.o -O2 -lm",
    "app.o -Llib -Wl,--start-group dsp.o -lkws -Wl,--end-group -lm",
    "-static app.o dsp.o digits.o -lm",
    "-no-pie app.o dsp.o -Llib -lkws -lm",
    "app.o dsp.o digits.o -lm -s",
    "-g app.c dsp.c digits.o -lm -Wl,--strip-all,--gc-sections",
    "app.o dsp.o -Wl,--start-lib digits.o -lm",
    "-static app.o dsp.o -Wl,--whole-archive,lib/libkws.a,--no-whole-archive -lm",
])
def test_links_with_a_model(line: str, digits: Path) -> None:
    tool("cc", *line.split(), "-o", "app", cwd=digits)
    assert run("./app", cwd=digits).stdout == "class 1\n"
    assert ".monobloc.ir" not in sections(digits / "app")


@pytest.mark.parametrize("line", [
    "-Wl,--whole-archive,lib/libkws.a,--no-whole-archive",
    "-Wl,--start-group,digits.o,dsp.o,--end-group",
    "-Xlinker --start-lib -Xlinker digits.o -Xlinker --end-lib",
    "-Wl,-Llib -Wl,-lkws",
    "-Wl,-L,lib -Xlinker -l -Wl,kws",
    "-Wl,--library-path=lib,--library=kws",
])
def test_models_that_are_named_to_the_linker_alone(line: str, digits: Path) -> None:
    """They are compiled from their graphs, as where the compiler names them."""
    rest = ["app.o", *(["dsp.o"] if "dsp.o" not in line else []), "-lm"]
    tool("cc", *rest, "digits.o", *([] if "dsp.o" in rest else ["dsp.o"]), "-o", "plain", cwd=digits)
    tool("cc", *rest, *line.split(), "-o", "handed", cwd=digits)
    assert run("./handed", cwd=digits).stdout == "class 1\n"
    assert (digits / "handed").stat().st_size == (digits / "plain").stat().st_size


@pytest.mark.parametrize("said, meant", [
    ("-Wl,-rpath,/x -Wl,-z -Wl,now", "-Xlinker -rpath -Xlinker /x -Xlinker -z -Xlinker now"),
    ("-Wl,-T,a.ld -Wl,--script=b.ld", "-Ta.ld -Tb.ld"),
    ("-Wl,-Ttext=0x1000 -Wl,-static", "-Xlinker -Ttext=0x1000 -Xlinker -static"),
    ("-Wl,-Map,no.map a.o", "-Xlinker -Map -Xlinker no.map a.o"),
    ("-Wl,--library-path,x -Wl,--strip-all", "-Lx -s"),
])
def test_words_for_the_linker(said: str, meant: str) -> None:
    assert args.words(args.handed_on(args.items(said.split()))) == meant.split()


def test_what_nobody_uses_is_gone(digits: Path) -> None:
    tool("cc", "app.o", "dsp.o", "digits.o", "-g", "-o", "app", cwd=digits)
    found = names(digits / "app")
    assert "dsp_rms" not in found and "main" in found


@pytest.mark.parametrize("line, level", [("-Os", "size"), ("-Os -O3", "speed"), ("-O2", "speed"), ("-O -Oz", "size")])
def test_the_last_level_counts(line: str, level: str, digits: Path) -> None:
    assert models.options([digits / "digits.o"], args.items(line.split()), "thin", {}).optimize == level


@pytest.mark.parametrize("shape", [[], ["-no-pie"]], ids=["direct", "closed"])
def test_outputs_nobody_reads_are_gone(shape: list[str], tmp_path: Path) -> None:
    """A head of 1 MB and one of a few bytes; the program reads the small one, then both."""
    w = np.random.default_rng(1).standard_normal((256, 1024)).astype(np.float32)
    nodes = [helper.make_node("MatMul", ["x", "w"], ["large"]), helper.make_node("Relu", ["x"], ["small"])]
    outs = [helper.make_tensor_value_info(n, 1, [1, k]) for n, k in (("large", 1024), ("small", 256))]
    ins = [helper.make_tensor_value_info("x", 1, [1, 256])]
    graph = helper.make_graph(nodes, "heads", ins, outs, [numpy_helper.from_array(w, "w")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, tmp_path / "heads.onnx")
    run(*MONOBLOC.split(), "compile", "heads.onnx", "-o", "heads.o", cwd=tmp_path)
    body = '#include "heads.h"\nint main(void) {{ heads_run(); return (int)({}); }}\n'
    (tmp_path / "one.c").write_text(body.format("heads_out_small()[0]"))
    (tmp_path / "both.c").write_text(body.format("heads_out_small()[0] + heads_out_large()[0]"))
    (tmp_path / "call.c").write_text("int work(void);\nint main(void) { return work(); }\n")
    for name in ("one", "both"):
        tool("cc", *shape, "-O2", f"{name}.c", "heads.o", "-o", name, cwd=tmp_path)
        tool("cc", "-O2", "-Dmain=work", "-c", f"{name}.c", cwd=tmp_path)
        tool("ar", "rcs", f"lib{name}.a", f"{name}.o", cwd=tmp_path)
        tool("cc", *shape, "-O2", "call.c", "-L.", f"-l{name}", "heads.o", "-o", f"{name}.lib", cwd=tmp_path)
        for made in (name, f"{name}.lib"):
            run(f"./{made}", cwd=tmp_path)
    for suffix in ("", ".lib"):
        one, both = ((tmp_path / f"{n}{suffix}").stat().st_size for n in ("one", "both"))
        assert both - one >= w.nbytes, (one, both)


def test_a_shared_library_keeps_its_interface(digits: Path) -> None:
    tool("cc", "-shared", "dsp.o", "digits.o", "-lm", "-o", "libboth.so", cwd=digits)
    run("cc", "app.c", "-L.", "-lboth", f"-Wl,-rpath,{digits}", "-o", "dynamic", cwd=digits)
    assert run("./dynamic", cwd=digits).stdout == "class 1\n"


def test_dependency_file_of_a_link(digits: Path) -> None:
    tool("cc", "app.o", "dsp.o", "digits.o", "-Wl,--dependency-file=link.d", "-o", "app", cwd=digits)
    assert (digits / "link.d").read_text() == "app: app.o dsp.o digits.o\n"


def test_errors_of_a_link_are_the_linkers(digits: Path) -> None:
    assert "undefined symbol: dsp_line" in tool("cc", "app.o", "digits.o", "-o", "bad", cwd=digits, code=1).stderr
    assert "`gone.o`" in tool("cc", "app.o", "gone.o", "digits.o", "-o", "bad", cwd=digits, code=1).stderr
    assert not (digits / "bad").exists()


# -- ar and ld ----------------------------------------------------------------------------------------
def test_archives(digits: Path) -> None:
    tool("ar", "rcs", "one.a", "app.o", "dsp.o", cwd=digits)
    os.utime(digits / "dsp.o", (1, 1))
    tool("ar", "cr", "two.a", "app.o", cwd=digits)
    tool("ar", "q", "two.a", "dsp.o", cwd=digits)
    tool("ar", "s", "two.a", cwd=digits)
    assert tool("ar", "t", "one.a", cwd=digits).stdout.split() == ["app.o", "dsp.o"]
    assert (digits / "one.a").read_bytes() == (digits / "two.a").read_bytes(), "times or owners in an archive"
    (digits / "x").mkdir(exist_ok=True)
    tool("ar", "x", "../one.a", "dsp.o", cwd=digits / "x")
    assert (digits / "x" / "dsp.o").read_bytes() == (digits / "dsp.o").read_bytes()
    tool("ar", "t", "gone.a", cwd=digits, code=1)


def test_ld_joins_objects(digits: Path) -> None:
    tool("ld", "-r", "digits.o", "-o", "again.o", cwd=digits)
    assert [x.summary["prefix"] for x in fat.read(digits / "again.o")] == ["digits"]
    tool("ld", "-r", "app.o", "dsp.o", "digits.o", "-o", "joined.o", cwd=digits)
    tool("cc", "joined.o", "-lm", "-o", "app", cwd=digits)  # the program in the file is not lost
    assert run("./app", cwd=digits).stdout == "class 1\n"


@pytest.mark.parametrize("mode", ["none", "thin", "full"])
def test_ld_links_models(mode: str, digits: Path) -> None:
    (digits / "lib.map").write_text("{ global: digits_run; digits_in_*; digits_out_*; local: *; };\n")
    shape = ("-shared", "--version-script", "lib.map", f"--lto={mode}")
    tool("ld", *shape, "dsp.o", "digits.o", "-o", "libd.so", cwd=digits)
    (digits / "ask.py").write_text("import ctypes, sys\nlib = ctypes.CDLL('./libd.so')\n"
                                   "sys.exit(lib.digits_run() or hasattr(lib, 'digits_reset'))\n")
    run(sys.executable, "ask.py", cwd=digits)
    assert "unknown mode" in tool("ld", "--lto=thicc", "dsp.o", cwd=digits, code=1).stderr


# -- whole projects -----------------------------------------------------------------------------------
@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A copy of the examples, as a user has them."""
    shutil.copytree(EXAMPLES, tmp_path / "examples", ignore=shutil.ignore_patterns("build", "*.o", "*.a", "app"))
    return tmp_path / "examples"


@pytest.mark.skipif(not shutil.which("make"), reason="no `make`")
def test_makefile_project(project: Path) -> None:
    folder, own = project / "makefile-project", f"MONOBLOC={MONOBLOC}"
    run("make", own, cwd=folder)
    assert run("./app", cwd=folder).stdout == "class 1\n"
    plain = names(folder / "app")
    run("make", "clean", cwd=folder)
    run("make", own, f"CC={MONOBLOC} cc", f"AR={MONOBLOC} ar", "CFLAGS=-O2 -Wall -Werror", cwd=folder)
    assert run("./app", cwd=folder).stdout == "class 1\n"
    assert "dsp_rms" in plain and "dsp_rms" not in names(folder / "app")
    assert "up to date" in run("make", own, cwd=folder).stdout


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("cmake"), reason="no `cmake`: apt or pip installs it")
@pytest.mark.parametrize("whole", [False, True], ids=["plain", "whole"])
def test_cmake_project(whole: bool, project: Path) -> None:
    folder = project / "cmake-project"
    script = folder / "monobloc.sh"
    script.write_text(f'#!/bin/sh\nexec {MONOBLOC} "$@"\n')
    script.chmod(0o755)
    config = tool("cc", "-print-cmake-dir", cwd=folder).stdout.strip()
    compilers = {"CC": f"{script} cc", "CXX": f"{script} c++"} if whole else {}
    found = (f"-DMonobloc_DIR={config}", f"-DMONOBLOC_EXECUTABLE={script}")
    said = run("cmake", "-B", "build", *found, cwd=folder, **compilers)
    assert not whole or "Clang" in said.stdout
    run("cmake", "--build", "build", cwd=folder)
    assert run("build/app", cwd=folder).stdout == "class 1\n"
    again = run("cmake", "--build", "build", cwd=folder).stdout
    assert "Compiling model" not in again and "Building" not in again
    os.utime(project / "mnist8.onnx")
    assert "Compiling model" in run("cmake", "--build", "build", cwd=folder).stdout
