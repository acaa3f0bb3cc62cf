"""Bitcode of every form is read in every place of a link; what cannot be used is told, and native code stands in."""

from __future__ import annotations

import shutil
import subprocess
from contextlib import suppress
from pathlib import Path

import foreign_tools as ft
import pytest

from monobloc.driver import build
from monobloc.errors import LinkError
from monobloc.link.bitcode import Reader, mark_inline, recursive
from monobloc.object import ar, bitcode, elf, toolchain
from monobloc.options import Options
from monobloc.targets import resolve

pytestmark = pytest.mark.skipif(resolve().arch != "x86_64", reason="objects are compiled for x86-64")
SOURCE = "int other(int); int f(int x) { return other(x) + 1; } int g(void) { return 7; }"
CHAR6 = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._"
MODES = ("none", "thin", "full")


def packed(text: str) -> tuple[int, int]:
    return sum(CHAR6.index(c) << 6 * k for k, c in enumerate(text)), 6 * len(text)


def newer(data: bytes, to: str = "LLVM99") -> bytes:
    """The same bitcode, as a newer compiler would sign it: letters of six bits at any bit."""
    old, width = packed("LLVM22")
    for at in range(8 * min(len(data), 4096)):
        first = at // 8
        if int.from_bytes(data[first : first + 8], "little") >> at % 8 & ((1 << width) - 1) == old:
            word = int.from_bytes(data[first : first + 8], "little") ^ (old ^ packed(to)[0]) << at % 8
            return data[:first] + word.to_bytes(8, "little") + data[first + 8 :]
    raise AssertionError("no signature found")


def section(path: Path, name: str) -> bytes:
    content = elf.get_section(path.read_bytes(), name)
    assert content is not None
    return bytes(content)


def read(path: Path, lto: str = "thin") -> tuple[Path, list[str]]:
    """What the linker is given in its place, and what the user is told."""
    reader = Reader(path.parent / "read", Options(lto=lto, cache=None))  # type: ignore[arg-type]
    made = reader.inputs([path])[0]
    assert isinstance(made, Path)
    return made, reader.notes


@pytest.mark.parametrize("form", ["plain", "thin", "full", "fat", "embedded"])
def test_every_form_becomes_one_that_links_in_both_modes(form: str, tmp_path: Path) -> None:
    made, notes = read(ft.compile_c(SOURCE, tmp_path / "f.o", form))
    b = bitcode.read(made.read_bytes(), "f")
    assert not notes
    assert b.thin and b.unified and b.modules == 1 and b.defined == {"f", "g"}
    assert b.producer == f"LLVM{toolchain.find_tools().llvm}"


def test_without_lto_native_code_is_used_and_plain_bitcode_compiled(tmp_path: Path) -> None:
    for form in ("fat", "embedded", "native"):
        path = ft.compile_c(SOURCE, tmp_path / form / "f.o", form)
        assert read(path, "none") == (path, [])
    made, _ = read(ft.compile_c(SOURCE, tmp_path / "plain" / "f.o", "plain"), "none")
    assert {s.name for s in elf.symbols(made.read_bytes()) if s.defined and s.name} >= {"f", "g"}


def test_members_of_archives_and_of_thin_archives(tmp_path: Path) -> None:
    plain, native = (ft.compile_c(SOURCE.replace("f(", f"f{f}(").replace("g(", f"g{f}("), tmp_path / f / "same.o", f)
                     for f in ("plain", "native"))
    whole = toolchain.archive([plain, native], tmp_path / "a.a")
    thin = tmp_path / "t.a"
    subprocess.run([*toolchain.find_tools().ar, "rcsDT", thin, plain, native], check=True)
    for path in (whole, thin):
        made, _ = read(path)
        members = list(ar.members(ar.map_file(made), made))
        assert [m.name for m in members] == ["same.o", "same.o"]
        assert bitcode.read(members[0].data, "m").unified and bytes(members[1].data) == native.read_bytes()


def test_bitcode_of_a_newer_llvm_names_file_and_versions(tmp_path: Path) -> None:
    path = ft.compile_c(SOURCE, tmp_path / "f.o", "plain")
    path.write_bytes(newer(path.read_bytes()))
    ours = toolchain.find_tools().llvm
    library = toolchain.archive([path], tmp_path / "lib.a")
    for given, name in ((path, "f.o"), (library, r"lib.a\(f.o\)")):
        with pytest.raises(LinkError, match=rf"{name}: its bitcode is of LLVM 99.*reads up to LLVM {ours}"):
            read(given)


@pytest.mark.parametrize(("form", "name"), [("embedded", ".llvmbc"), ("fat", ".llvm.lto")])
def test_native_code_stands_in_for_newer_bitcode(form: str, name: str, tmp_path: Path) -> None:
    path = ft.compile_c(SOURCE, tmp_path / "f.o", form)
    code = section(path, name)
    path.write_bytes(path.read_bytes().replace(code, newer(code)))
    made, (note,) = read(path)
    assert "f.o: its native code is linked, not its bitcode: its bitcode is of LLVM 99" in note
    assert elf.get_section(made.read_bytes(), ".llvm.lto") is None
    assert {s.name for s in elf.symbols(made.read_bytes()) if s.defined} >= {"f", "g"}


@pytest.mark.parametrize(("forms", "why"), [
    (("embedded", "embedded"), "holds 2 modules one behind the other"), (("embedded", "native"), "`g1` is not in it"),
    (("fat", "fat"), "holds 2 modules one behind the other"),
])  # fmt: skip
def test_joined_objects_are_linked_as_native_code(forms: tuple[str, str], why: str, tmp_path: Path) -> None:
    ld = shutil.which("ld")
    if ld is None:
        pytest.skip("no GNU ld")
    parts = [ft.compile_c(f"int g{k}(void) {{ return {k}; }}", tmp_path / f"{k}.o", f) for k, f in enumerate(forms)]
    path = tmp_path / "joined.o"
    subprocess.run([ld, "-r", *parts, "-o", path], check=True)
    made, notes = read(path)
    assert len(notes) == 1 and why in notes[0]
    assert {s.name for s in elf.symbols(made.read_bytes()) if s.defined} >= {"g0", "g1"}


def test_code_of_another_machine_is_told(tmp_path: Path) -> None:
    path = ft.compile_c(SOURCE, tmp_path / "f.o", "plain", ())
    reader = Reader(tmp_path / "read", Options(target=resolve("aarch64-linux"), cache=None))
    with pytest.raises(LinkError, match="f.o holds code for x86_64, this link is for aarch64"):
        reader.inputs([path])


def test_damaged_bitcode_is_an_error(tmp_path: Path) -> None:
    data = ft.compile_c(SOURCE, tmp_path / "f.o", "plain").read_bytes()
    for size in (8, 19, 60, 200, 1000):
        with pytest.raises(LinkError, match="damaged bitcode"):
            bitcode.read(data[:size], "f.o")
    for at in range(8, len(data), 7):  # never anything but an error of ours
        with suppress(LinkError):
            bitcode.read(data[:at] + bytes([data[at] ^ 0x5A]) + data[at + 1 :], "f.o")
    (tmp_path / "f.o").write_bytes(data[:4])
    with pytest.raises(LinkError, match=r"f.o: it holds no module"):
        read(tmp_path / "f.o")


@pytest.mark.parametrize("lto", MODES)
def test_an_application_of_all_forms_links_with_a_model(lto: str, tmp_path: Path, cache: Path) -> None:
    root = Path(__file__).resolve().parents[2]
    parts = [ft.compile_c(f"int part_{f}(int x) {{ return x + {k}; }}", tmp_path / f"{f}.o", f)
             for k, f in enumerate(ft.FORMS)]
    calls = " + ".join(f"part_{f}(1)" for f in ft.FORMS)
    names = "".join(f"int part_{f}(int);" for f in ft.FORMS)
    app = tmp_path / "app.c"
    app.write_text(f'#include "mnist8.h"\n{names} int main(void) {{ return mnist8_run() ? 1 : {calls}; }}\n')
    library = toolchain.archive(parts[3:], tmp_path / "libparts.a")
    made = build([app, root / "examples/mnist8.onnx", *parts[:3], library], tmp_path / "app", "exe",
                 Options(lto=lto, cache=cache))  # type: ignore[arg-type]
    assert subprocess.run([made.path]).returncode == len(parts) + sum(range(len(parts)))


# -- the text -------------------------------------------------------------------------------------------
TEXT = """define i32 @a(i32 %0) local_unnamed_addr #0 {
  %2 = call i32 @b(i32 %0)
}

define internal i32 @b(i32 %0) #1 {
  %2 = tail call i32 @"c d"(i32 %0) #3
}

define i32 @"c d"(i32 %0) #0 {
  %2 = call i32 @b(i32 %0)
}

attributes #0 = { nounwind "target-cpu"="x86-64" }
attributes #1 = { noinline nounwind }
"""


def test_functions_are_marked_unless_they_must_not_be_inlined() -> None:
    marked = mark_inline(TEXT, lambda n: True)
    assert '@a(i32 %0) local_unnamed_addr alwaysinline #0 {' in marked
    assert '@"c d"(i32 %0) alwaysinline #0 {' in marked and "@b(i32 %0) #1 {" in marked
    assert mark_inline(TEXT, {"c d"}.__contains__).count("alwaysinline") == 1


def test_recursion_is_seen_through_other_functions() -> None:
    assert recursive(TEXT) == ["b", '"c d"']
    assert recursive(TEXT.replace('@"c d"(i32 %0) #3', "@e(i32 %0)")) == []
