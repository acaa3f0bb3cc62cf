"""Outputs that the application does not read are gone, with the weights and RAM that only they needed."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import heads
import numpy as np
import pytest

from monobloc.driver import Build, compile_source, compile_to_object
from monobloc.driver import build as build_image
from monobloc.errors import LinkError
from monobloc.object import elf, toolchain
from monobloc.options import Options


@dataclass(frozen=True)
class Program:
    """A folder with the model's object and header, and the right answer."""

    folder: Path
    want: np.ndarray
    o: Options

    def app(self, name: str, text: str = heads.APP) -> Path:
        (self.folder / name).write_text(text)
        return self.folder / name

    def link(self, out: str, *inputs: Path, **options: object) -> Build:
        o = replace(self.o, **options)  # type: ignore[arg-type]
        return build_image([self.folder / "twoheads.o", *inputs], self.folder / out, "exe", o)

    def right(self, made: Build) -> bool:
        return bool(np.allclose(heads.answers(made.path), self.want, rtol=1e-4, atol=1e-4))


def gone(made: Build) -> bool:
    """The head, its weights and its RAM."""
    data = made.path.read_bytes()
    return (made.image.removed == {"twoheads": ["big"]} and heads.head_pattern() not in data
            and len(data) < heads.HEAD_BYTES // 4 and made.programs[0].placement.arena < heads.WIDE * 4)


def kept(made: Build) -> bool:
    data = made.path.read_bytes()
    return (made.image.removed == {} and heads.head_pattern() in data and len(data) > heads.HEAD_BYTES
            and made.programs[0].placement.arena >= heads.WIDE * 4)


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory, cache: Path) -> Program:
    folder = tmp_path_factory.mktemp("live")
    want = heads.model(folder / "twoheads.onnx")
    o = Options(lto="none", cache=cache)
    compile_to_object(folder / "twoheads.onnx", folder / "twoheads.o", o)
    return Program(folder, want, o)


@pytest.mark.parametrize("lto", ["none", "thin", "full"])
@pytest.mark.parametrize("kind", ["c", "c++", "fat", "bitcode", "native"])
def test_the_unread_head_is_gone(kind: str, lto: str, program: Program) -> None:
    app = heads.application(kind, program.app(f"{kind}.{lto}.c"), program.o)
    made = program.link(f"{kind}.{lto}", app, lto=lto)
    assert gone(made) and program.right(made)


def test_a_read_head_stays(program: Program) -> None:
    app = program.app("both.c", heads.APP.replace("escaped = x;", "never();"))
    assert kept(program.link("both", app, lto="thin"))


def test_no_symbol_of_the_head_is_left(program: Program) -> None:
    made = program.link("debug", program.app("debug.c"), debug=True, lto="none")
    names = {s.name for s in elf.symbols(made.path.read_bytes())}
    assert any("small" in n for n in names) and not any("big" in n for n in names)


def test_the_image_is_that_of_a_model_without_the_head(program: Program, tmp_path: Path) -> None:
    """Nothing of the head is left, not even in names or in the order of layers."""
    heads.model(tmp_path / "twoheads.onnx", ["small"])
    app = program.app("app.c")
    made = program.link("as-one", app, lto="thin")
    alone = build_image([tmp_path / "twoheads.onnx", app], tmp_path / "as-one", "exe", replace(program.o, lto="thin"))
    assert made.path.read_bytes() == alone.path.read_bytes()


# -- ways to name an accessor ---------------------------------------------------------------------------
WAYS = {
    "a function that nothing calls": ("void unused(void) { escaped = twoheads_out_big(); }", "", False),
    "a table that nothing reads": ("static const void *const t[] = {(void *)twoheads_out_big};", "", False),
    "an external table that nothing reads": ("const void *const t[] = {(void *)twoheads_out_big};", "", False),
    "a table that is read": ("const float *(*const t[])(void) = {twoheads_out_small, twoheads_out_big};",
                             "escaped = t[*(volatile int *)x & 1]();", True),
    "its re-entrant form": ("static char ram[TWOHEADS_RAM_MAX];", "escaped = twoheads_out_big_at(ram);", True),
    "the table of models": ("extern const void *monobloc_model(int);", "escaped = monobloc_model(0);", True),
}


@pytest.mark.parametrize(("way", "lto"), [*((w, "thin") for w in WAYS), *((w, "none") for w in list(WAYS)[:3])])
def test_what_counts_as_reading(way: str, lto: str, program: Program) -> None:
    code, call, reads = WAYS[way]
    text = heads.APP.replace("int main", f"{code}\nint main").replace("escaped = x;", f"escaped = x; {call}")
    number = list(WAYS).index(way)
    made = program.link(f"way{number}.{lto}", program.app(f"way{number}.c", text), lto=lto)
    assert (kept if reads else gone)(made) and program.right(made)


@pytest.mark.parametrize(("flag", "lto"), [("rcsD", "none"), ("rcsDT", "thin"), ("rcsD", "full")])
def test_readers_in_archives_count_if_they_are_linked(flag: str, lto: str, program: Program) -> None:
    """A member that reads the head counts once something needs that member."""
    text = '#include "twoheads.h"\nconst void *volatile NAME_;\nvoid NAME(void) { NAME_ = twoheads_BUFFER(); }\n'
    members: list[Path] = []
    for name, buffer in (("used", "in_x"), ("other", "out_big")):
        source = program.app(f"{name}.c", text.replace("NAME", name).replace("BUFFER", buffer))
        members.append(source.with_suffix(".o"))
        compile_source(source, members[-1], program.o)
    library = program.folder / f"lib{flag}.a"
    library.unlink(missing_ok=True)
    toolchain.run([*toolchain.find_tools().ar, flag, str(library), *map(str, members)], what="ar")
    for call, check in (("used", gone), ("other", kept)):
        text = heads.APP.replace("int main", f"void {call}(void);\nint main").replace("escaped = x;", f"{call}();")
        made = program.link(f"{call}.{flag}.{lto}", program.app(f"{call}.app.c", text), library, lto=lto)
        assert check(made) and program.right(made)


@pytest.mark.parametrize("lto", ["thin", "full"])
def test_archives_of_plain_bitcode(lto: str, program: Program) -> None:
    source = program.app("plain.c", heads.APP.replace("int main", "int work"))
    member = heads.plain_bitcode(source, program.folder / "plain.o")
    library = toolchain.archive([member], program.folder / "libplain.a")
    app = program.app("caller.c", "int work(void);\nint main(void) { return work(); }\n")
    made = program.link(f"plain.{lto}", app, library, lto=lto)
    assert gone(made) and program.right(made)


# -- who reads, and who asks for it -----------------------------------------------------------------------
@pytest.mark.parametrize("lto", ["none", "thin"])
def test_who_reads_an_output_is_known(lto: str, program: Program) -> None:
    made = program.link("who", program.app("who.c"), lto=lto)
    first = made.image.live.readers["twoheads"]["out small"][0]
    assert first.startswith("main in who.c")
    assert "out big" not in made.image.live.readers["twoheads"]


def test_nothing_is_read_at_all(program: Program) -> None:
    """Only the call of run is left, which does nothing."""
    text = '#include "twoheads.h"\nint main(void) { return twoheads_run(); }\n'
    made = program.link("none", program.app("none.c", text), lto="thin")
    assert made.image.removed == {"twoheads": ["small", "big"]} and made.image.live.unread == {"twoheads": ["x"]}
    assert made.programs[0].placement.arena == 0 and made.programs[0].weights_bytes == 0
    assert heads.answers(made.path).size == 0


# -- inputs -----------------------------------------------------------------------------------------------
AUX = "for (int i = 0; i < TWOHEADS_IN_AUX_SIZE; i++) twoheads_in_aux()[i] = i;"
CHECK = "for (int i = 0; i < TWOHEADS_IN_AUX_SIZE; i++) if (twoheads_in_aux()[i] != i) return 2;"


@pytest.mark.parametrize("lto", ["none", "full"])
def test_inputs_that_nothing_needs(lto: str, program: Program, tmp_path: Path) -> None:
    """One that no code names has no RAM. One that is named stays what it is: memory of its own."""
    heads.model(tmp_path / "twoheads.onnx", unread_input=True)
    o = replace(program.o, lto=lto)  # type: ignore[arg-type]
    sizes = {}
    writes = heads.APP.replace("escaped = x;", AUX).replace("return 0;", CHECK + " return 0;")
    for name, text in (("unnamed", heads.APP), ("named", writes)):
        app = tmp_path / f"{name}.c"
        app.write_text(text)
        made = build_image([tmp_path / "twoheads.onnx", app], tmp_path / name, "exe", o)
        assert made.image.removed == {"twoheads": ["big"]} and program.right(made)
        assert made.image.live.unread == ({"twoheads": ["aux"]} if name == "unnamed" else {})
        sizes[name] = made.programs[0].placement.arena
    assert sizes["unnamed"] < heads.WIDE * 4 <= sizes["named"]


def test_a_shared_library_lists_what_it_kept(program: Program) -> None:
    """Loaders read the table of models, which holds the living outputs only."""
    from monobloc.loader import CompiledModel

    reader = program.app("reader.c", heads.READER)
    compile_source(reader, reader.with_suffix(".o"), program.o)
    used = replace(program.o, used_by=(reader.with_suffix(".o"),))
    build_image([program.folder / "twoheads.o"], program.folder / "k.so", "shared", used)
    m = CompiledModel(program.folder / "k.so")
    assert [p.name for p in m.outputs] == ["small"]
    np.testing.assert_allclose(m(np.arange(64, dtype=np.float32).reshape(1, 64) / 64).ravel(), program.want, atol=1e-4)


def test_functions_beside_the_models_of_a_shared_library(program: Program) -> None:
    """The user's own are exported as in any shared library, and the models are still for loaders to find."""
    import ctypes

    from monobloc.loader import CompiledModel

    text = heads.READER + "__attribute__((visibility(\"hidden\"))) int own(void) { return 7; }\n"
    out = program.folder / "with.so"
    build_image([program.folder / "twoheads.o", program.app("with.c", text)], out, "shared", program.o)
    library, m = ctypes.CDLL(str(out)), CompiledModel(out)
    library.first.restype = ctypes.c_float
    assert library.first() == 0 and [p.name for p in m.outputs] == ["small", "big"]
    names = {s.name for s in elf.linked_symbols(out.read_bytes()) if s.defined}
    assert "own" not in names and not any(n.startswith(("mb_", "layer_")) for n in names)


def test_an_object_for_another_machine_is_refused(program: Program) -> None:
    app = program.app("arm.c", heads.READER)
    with pytest.raises(LinkError, match=r"arm\.o is for arm with 32 bits, this link is for x86_64-linux"):
        program.link("arm", heads.made_by("arm-none-eabi-gcc", app, app.with_suffix(".o"), "-O1"))
