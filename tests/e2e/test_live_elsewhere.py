"""Liveness from objects that are linked elsewhere (`--used-by`), in every form compilers give them."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import heads
import numpy as np
import pytest

from monobloc.driver import compile_source, compile_to_object, link
from monobloc.errors import LinkError
from monobloc.link.image import Image
from monobloc.link.symbols import undefined
from monobloc.object import bitcode, elf, slim, toolchain
from monobloc.options import Emit, Options

GONE = {"twoheads": ["big"]}
LTO = ("-O2", "-flto", "-ffunction-sections")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, cache: Path) -> Path:
    folder = tmp_path_factory.mktemp("elsewhere")
    heads.model(folder / "twoheads.onnx")
    compile_to_object(folder / "twoheads.onnx", folder / "twoheads.o", Options(lto="none", cache=cache))
    (folder / "app.c").write_text(heads.APP)
    (folder / "reader.c").write_text(heads.READER)
    (folder / "both.c").write_text(heads.READER + "const void *both(void) { return twoheads_out_big(); }\n")
    return folder


@pytest.fixture
def o(cache: Path) -> Options:
    return Options(lto="thin", cache=cache)


def models(folder: Path, o: Options, *used: Path) -> Image:
    """`monobloc link -r twoheads.o --used-by ... -o models.o`"""
    return link([folder / "twoheads.o"], folder / "models.o", "object", replace(o, used_by=used))


# -- forms -------------------------------------------------------------------------------------------------
def _object(form: str, source: Path, out: Path, o: Options) -> Path:
    if form == "fat":
        compile_source(source, out, o)
    elif form.startswith("bitcode"):
        heads.plain_bitcode(source, out, *form.split()[1:])
    else:
        tool, *flags = form.split()
        heads.made_by(tool, source, out, *LTO[: 1 + 2 * bool(flags)], *flags)
    return out


GCC = [f"{tool}{form}" for tool in ("gcc", "arm-none-eabi-gcc")
       for form in ("", " -fno-fat-lto-objects", " -ffat-lto-objects")]
FORMS = ["fat", "bitcode", "bitcode -flto=thin", "bitcode --target=arm-none-eabi", *GCC]


@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_object_is_read(form: str, folder: Path, o: Options, tmp_path: Path) -> None:
    """The application reads one head: its unread static function is gone before any linker sees it."""
    app = _object(form, folder / "app.c", tmp_path / "app.o", o)
    both = _object(form, folder / "both.c", tmp_path / "both.o", o)
    assert models(folder, o, app).removed == GONE
    assert models(folder, o, both).removed == {}


@pytest.mark.parametrize("flag", ["rcsD", "rcsDT"], ids=["archive", "thin archive"])
def test_archives_of_all_forms(flag: str, folder: Path, o: Options, tmp_path: Path) -> None:
    """One member is no object at all; linkers pass it by, and so does this."""
    forms = [f for f in FORMS if f.startswith(("fat", "bitcode")) or shutil.which(f.split()[0])]
    members = [_object(f, folder / "reader.c", tmp_path / f"{k}.o", o) for k, f in enumerate(forms)]
    (tmp_path / "notes.txt").write_text("twoheads_out_big")
    names = [m.name for m in (*members, tmp_path / "notes.txt")]
    ar = toolchain.find_tools().ar
    toolchain.run([*ar, flag, "all.a", *names], what="ar", cwd=tmp_path)
    assert models(folder, o, tmp_path / "all.a").removed == GONE
    both = _object(forms[-1], folder / "both.c", tmp_path / "both.o", o)
    toolchain.run([*ar, flag, "all.a", both.name], what="ar", cwd=tmp_path)
    assert models(folder, o, tmp_path / "all.a").removed == {}


def test_an_archive_without_objects_is_refused(folder: Path, o: Options, tmp_path: Path) -> None:
    app = _object("fat", folder / "reader.c", tmp_path / "reader.o", o)
    inner, outer, empty = (tmp_path / f"lib{n}.a" for n in ("inner", "outer", "empty"))
    toolchain.archive([app], inner)
    toolchain.archive([inner], outer)
    empty.write_bytes(b"!<arch>\n")
    with pytest.raises(LinkError, match=r"libouter\.a`: it holds no object(?s:.*)libinner\.a` is an archive"):
        link([folder / "twoheads.o"], tmp_path / "x.o", "object", replace(o, used_by=(outer,)))
    image = link([folder / "twoheads.o"], tmp_path / "x.o", "object", replace(o, used_by=(empty, inner)))
    assert image.removed == GONE


def test_who_needs_a_symbol_is_known(folder: Path, o: Options, tmp_path: Path) -> None:
    member = _object("fat", folder / "reader.c", tmp_path / "reader.o", o)
    library = toolchain.archive([member], tmp_path / "lib.a")
    assert models(folder, o, library).live.readers == {"twoheads": {"out small": ("lib.a(reader.o)",)}}


def test_a_stripped_shared_library(folder: Path, o: Options, tmp_path: Path) -> None:
    heads.need("gcc")
    made = tmp_path / "libapp.so"
    subprocess.run(["gcc", "-shared", "-fPIC", "-s", str(folder / "reader.c"), "-o", str(made)], check=True)
    assert models(folder, o, made).removed == GONE


# -- the other linker's side ---------------------------------------------------------------------------------
@pytest.mark.parametrize("fat", [False, True], ids=["slim", "fat"])
@pytest.mark.parametrize("lto", ["none", "thin", "full"])
def test_gcc_links_its_side_with_the_models(fat: bool, lto: str, folder: Path, o: Options, tmp_path: Path) -> None:
    """`gcc -flto app.o models.o`: the head is gone, and the answer is right."""
    kind = "-ffat-lto-objects" if fat else "-fno-fat-lto-objects"
    app = heads.made_by("gcc", folder / "app.c", tmp_path / "app.o", *LTO, kind)
    image = models(folder, replace(o, lto=lto), app)  # type: ignore[arg-type]
    assert image.removed == GONE
    out = tmp_path / "app"
    subprocess.run(["gcc", "-O2", "-flto", str(app), str(image.path), "-o", str(out)], check=True)
    data = out.read_bytes()
    assert len(data) < heads.HEAD_BYTES // 4 and heads.head_pattern() not in data
    np.testing.assert_allclose(heads.answers(out), heads.model(tmp_path / "m.onnx"), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("tool", ["gcc", "arm-none-eabi-gcc"])
def test_a_slim_object_is_refused_for_linking(tool: str, folder: Path, o: Options, tmp_path: Path) -> None:
    app = heads.made_by(tool, folder / "app.c", tmp_path / "app.o", *LTO, "-fno-fat-lto-objects")
    with pytest.raises(LinkError, match=r"app\.o is a slim LTO object of GCC") as e:
        link([folder / "twoheads.o", app], tmp_path / "x", "exe", o)
    assert "-ffat-lto-objects" in str(e.value) and "--used-by" in str(e.value)


@pytest.mark.parametrize("emit", ["object", "archive"])
def test_code_that_a_closed_object_would_lose_is_refused(emit: Emit, folder: Path, o: Options, tmp_path: Path) -> None:
    app = _object("fat", folder / "app.c", tmp_path / "app.o", o)
    library = toolchain.archive([app], tmp_path / "libapp.a")
    with pytest.raises(LinkError, match="is made of models alone") as e:
        link([folder / "twoheads.o", app, library], tmp_path / "x.out", emit, o)
    assert all(x in str(e.value) for x in ("app.o", "--used-by")) and not (tmp_path / "x.out").exists()


# -- what cannot be read is never "nobody uses it" -----------------------------------------------------------
def test_slim_and_native_code_joined_by_ld(folder: Path, o: Options, tmp_path: Path) -> None:
    """Both tables of a file count."""
    heads.need("ld")
    a = heads.made_by("gcc", folder / "reader.c", tmp_path / "a.o", *LTO, "-fno-fat-lto-objects")
    text = '#include "twoheads.h"\nconst void *native(void) { return twoheads_out_big(); }\n'
    (folder / "native.c").write_text(text)
    b = heads.made_by("gcc", folder / "native.c", tmp_path / "b.o", "-O1")
    c = heads.made_by("gcc", folder / "both.c", tmp_path / "c.o", *LTO, "-fno-fat-lto-objects")
    for pair, want in (((a, b), {}), ((a, c), {}), ((a,), GONE)):
        joined = tmp_path / "joined.o"
        subprocess.run(["ld", "-r", *map(str, pair), "-o", str(joined)], check=True)
        assert models(folder, o, joined).removed == want


@pytest.mark.parametrize("tool", ["gcc", "arm-none-eabi-gcc"])
def test_slim_objects_with_assembly_are_refused(tool: str, folder: Path, o: Options, tmp_path: Path) -> None:
    """GCC lists no symbols of top-level assembly."""
    (tmp_path / "asm.c").write_text('asm(".globl f\\nf: .long twoheads_out_big\\n");\nint g(void) { return 1; }\n')
    made = heads.made_by(tool, tmp_path / "asm.c", tmp_path / "asm.o", *LTO, "-fno-fat-lto-objects")
    with pytest.raises(LinkError, match=r"asm\.o: a slim LTO object of GCC with top-level assembly"):
        models(folder, o, made)
    fat = heads.made_by(tool, tmp_path / "asm.c", tmp_path / "asm.o", *LTO, "-ffat-lto-objects")
    assert models(folder, o, fat).removed == {"twoheads": ["small"]}


def test_assembly_in_bitcode_is_seen(o: Options, tmp_path: Path) -> None:
    (tmp_path / "asm.c").write_text('__asm__(".data\\n.globl f\\nf: .quad twoheads_out_big\\n.text\\n");\n')
    made = heads.plain_bitcode(tmp_path / "asm.c", tmp_path / "asm.o")
    assert undefined(made.read_bytes(), tmp_path / "s", o) == {"twoheads_out_big"}


def test_bitcode_without_a_symbol_table_is_compiled(o: Options, tmp_path: Path) -> None:
    """Tools that rewrite bitcode may leave it out; linkers then look into the module itself."""
    text = "const void *twoheads_out_big(void);\nconst void *f(void) { return twoheads_out_big(); }\n"
    (tmp_path / "a.c").write_text(text)
    data = heads.plain_bitcode(tmp_path / "a.c", tmp_path / "a.o").read_bytes()
    table = next(b for b in bitcode._top_level(memoryview(data)) if b.id == bitcode._SYMTAB)  # noqa: SLF001
    without = data[: table.start - 8] + data[table.end :]
    assert bitcode.read(data, "a").listed and not bitcode.read(without, "a").listed
    assert undefined(data, tmp_path / "s", o) == undefined(without, tmp_path / "s", o) == {"twoheads_out_big"}


def test_a_slim_object_without_its_table_is_refused(folder: Path, tmp_path: Path) -> None:
    made = heads.made_by("gcc", folder / "reader.c", tmp_path / "a.o", *LTO, "-fno-fat-lto-objects")
    data = made.read_bytes()
    assert slim.undefined(data) == {"twoheads_out_small"}
    with pytest.raises(LinkError, match="without a `.gnu.lto_.symtab`"):
        slim.undefined(data.replace(b".gnu.lto_.symtab", b".gnu.lto_.other_"))
    table = next(s for s in elf.sections(data) if s.name.startswith(".gnu.lto_.symtab"))
    at = table.offset + table.size - 20
    with pytest.raises(LinkError, match="damaged"):
        slim.undefined(data[:at] + b"x" * 20 + data[at + 20 :])


def test_damaged_bitcode_and_other_files(folder: Path, o: Options, tmp_path: Path) -> None:
    (tmp_path / "bad.o").write_bytes(b"BC\xc0\xde" + bytes(64))
    with pytest.raises(LinkError, match=r"bad\.o: "):
        models(folder, o, tmp_path / "bad.o")
    (tmp_path / "text.o").write_bytes(b"hello, world")
    with pytest.raises(LinkError, match=r"text\.o: `--used-by` takes objects"):
        models(folder, o, tmp_path / "text.o")
