"""Which models are in a link: the rules of linkers, for objects and archives that hold models and code alike."""

from __future__ import annotations

import json
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from shop import HEADERS, NAMES, Shop, call
from small_models import dense

from monobloc import driver
from monobloc.errors import MonoblocError
from monobloc.loader import CompiledModel
from monobloc.object import ar, elf, toolchain

pytestmark = pytest.mark.skipif(not shutil.which("cc"), reason="no C library: the system has no `cc`")


# -- who waits ------------------------------------------------------------------------------------------
@pytest.mark.parametrize("thin", [False, True])
@pytest.mark.parametrize("native", [False, True])
def test_a_model_in_an_archive_waits_until_it_is_needed(shop: Shop, thin: bool, native: bool) -> None:
    lib = shop.archive("libm.a", *NAMES, thin=thin)
    app = shop.app("kws_run()", "seg_run()", native=native)
    assert shop.models(app, lib) == ["kws", "seg"]
    assert shop.models(lib, app) == ["kws", "seg"], "order matters"
    assert shop.models("--start-group", lib, "--end-group", app) == ["kws", "seg"]


def test_bitcode_needs_models_too(shop: Shop) -> None:
    source = shop.folder / "app.c"
    source.write_text(HEADERS + "int main(void) { return vad_run(); }\n")
    job = toolchain.CompileJob(source, shop.folder / "app.bc", shop.o.target, "bitcode", hosted=True)
    toolchain.compile_all([job])
    assert shop.models(job.out, shop.archive("libm.a", *NAMES), lto="thin") == ["vad"]


def test_objects_named_directly_are_in(shop: Shop) -> None:
    assert shop.models(shop.app("kws_run()"), *(shop.folder / f"{n}.o" for n in NAMES)) == sorted(NAMES)


@pytest.mark.parametrize(("name", "text", "why"), [
    ("app.c", "int main(void) { return 3; }\n", "`.*app.c` is source, and `link` takes objects"),
    ("notes.txt", "nothing a linker knows\n", "notes.txt"),
])
@pytest.mark.parametrize("application", [False, True])
def test_no_input_is_passed_over(name: str, text: str, why: str, application: bool, shop: Shop) -> None:
    """Beside models alone, too, where there is no application for the linker to look at."""
    (shop.folder / name).write_text(text)
    rest = [shop.app("kws_run()")] if application else []
    with pytest.raises(MonoblocError, match=why):
        shop.link(shop.folder / "kws.o", *rest, shop.folder / name)


def test_a_linker_script_beside_models_alone(shop: Shop) -> None:
    app, script = shop.app("kws_run() + 5"), shop.folder / "more.ld"
    script.write_text(f"INPUT({app})\n")
    assert call(shop.link(shop.folder / "kws.o", script).path) == "5\n"


def test_a_program_without_models(shop: Shop) -> None:
    """Nobody needs what the archive holds: an ordinary link."""
    assert shop.models(shop.app("7"), shop.archive("libm.a", *NAMES)) == []


def test_archives_alone_give_all_models(shop: Shop) -> None:
    lib = shop.archive("libm.a", *NAMES)
    image = shop.link(lib, emit="shared")
    assert [m.prefix for m in image.modules] == sorted(NAMES)
    assert shop.link(emit="shared", libs=["m"]).path.read_bytes() == image.path.read_bytes()


def test_whole_archive_takes_all(shop: Shop) -> None:
    lib, app = shop.archive("libm.a", "kws", "vad"), shop.app("kws_run()")
    other = shop.archive("libs.a", "seg")
    assert shop.models(app, "--whole-archive", lib, "--no-whole-archive", other) == ["kws", "vad"]
    assert shop.models(app, "--push-state", "--whole-archive", lib, "--pop-state", other) == ["kws", "vad"]


def test_what_joins_needs_more(shop: Shop) -> None:
    """The application needs a wrapper, the wrapper a model; both archives in the order that does not help."""
    wrapper = shop.code("wrapper", "int detect(void) { return vad_run(); }\n")
    unused = shop.code("unused", "int other(void) { return seg_run(); }\n")
    models, code = shop.archive("libm.a", *NAMES), shop.archive("libcode.a", wrapper, unused)
    app = shop.code("app", "int detect(void);\nint main(void) { return detect(); }\n")
    assert shop.models(models, code, app) == ["vad"]
    both = shop.archive("libboth.a", "kws", wrapper, "vad", unused)
    assert shop.models(app, both) == ["vad"]


def test_main_may_wait_in_an_archive(shop: Shop) -> None:
    assert shop.models(shop.archive("libapp.a", shop.app("seg_run()")), shop.archive("libm.a", *NAMES)) == ["seg"]


def test_libraries_by_name(shop: Shop) -> None:
    shop.archive("libm1.a", *NAMES)
    app = shop.app("kws_run()")
    assert shop.models(app, libs=["m1"]) == ["kws"]
    assert shop.models(app, "-lm1", "-lm") == ["kws"]
    assert shop.models(app, "-l:libm1.a") == ["kws"]


def test_objects_between_start_lib_and_end_lib_wait(shop: Shop) -> None:
    words = [shop.folder / f"{n}.o" for n in NAMES]
    assert shop.models(shop.app("kws_run()"), "--start-lib", *words, "--end-lib") == ["kws"]


def test_a_symbol_asked_for_on_the_line(shop: Shop) -> None:
    lib = shop.archive("libm.a", *NAMES)
    assert shop.models(shop.app("kws_run()"), lib, link_args=("-u", "vad_run", "--undefined=seg_run")) == sorted(NAMES)


@pytest.mark.parametrize("words", ["--start-lib", "--whole-archive", "-Bstatic", "--push-state --start-lib"])
def test_states_end_with_the_line(words: str, shop: Shop) -> None:
    """They are not for the start files and the C library, which stand behind it."""
    app = shop.app("kws_run()")
    assert "kws" in shop.models(app, *words.split(), shop.archive("libm.a", *NAMES))
    assert call(shop.folder / "out") == "0\n"


@pytest.mark.parametrize("said, models", [
    ((), ["kws"]), (("-u", "vad_run"), ["kws", "vad"]), (("--undefined=seg_run", "-Xlinker", "-s"), ["kws", "seg"]),
    (("--wrap", "kws_run"), []),
])
def test_the_verb_takes_words_of_linkers(said: tuple[str, ...], models: list[str], shop: Shop) -> None:
    wrap = "int __wrap_kws_run(void) { return 0; }\n"
    app = shop.code("app", f"{wrap}int main(void) {{ return kws_run(); }}\n")
    out = shop.folder / "out"
    verb = [sys.executable, "-m", "monobloc", "link", "--lto", "none", "--cache", shop.o.cache]
    call(*verb, app, shop.archive("libm.a", *NAMES), *said, "-o", out, "-g", "--report", shop.folder / "r.json")
    call(out)
    assert [m["prefix"] for m in json.loads((shop.folder / "r.json").read_text())["models"]] == models


@pytest.mark.parametrize("name", ["cut.o", "libcut.a"])
def test_damage_is_told_with_the_file(name: str, shop: Shop) -> None:
    whole = (shop.archive("libcut.a", *NAMES) if name.endswith(".a") else shop.folder / "kws.o").read_bytes()
    (shop.folder / name).write_bytes(whole[: len(whole) // 3])
    assert f"{shop.folder / name}: damaged" in shop.told(shop.app("kws_run()"), shop.folder / name)
    with pytest.raises(MonoblocError, match=f"{name}.*: damaged"):
        shop.link(shop.folder / "vad.o", emit="object", used_by=(shop.folder / name,))


def test_wrapped_references(shop: Shop) -> None:
    """`--wrap=kws_run`: the application's own `__wrap_kws_run` runs, which needs the real one."""
    app = shop.code("app", "int __real_kws_run(void);\nint __wrap_kws_run(void) { puts(\"wrapped\"); "
                           "return __real_kws_run(); }\nint main(void) { return kws_run(); }\n")
    image = shop.link(app, shop.archive("libm.a", *NAMES), link_args=("--wrap=kws_run",))
    assert [m.prefix for m in image.modules] == ["kws"]
    assert call(image.path) == "wrapped\n"
    alone = shop.code("app", "int __wrap_kws_run(void) { return 0; }\nint main(void) { return kws_run(); }\n")
    assert shop.models(alone, shop.archive("libm.a", *NAMES), link_args=("--wrap=kws_run",)) == []


def test_parts_join_together(shop: Shop) -> None:
    dense(shop.folder / "cut.onnx")
    o = replace(shop.o, partitions=2)
    imported = driver.import_model(shop.folder / "cut.onnx", o)
    parts = driver.compile_parts(driver.module_of(shop.folder / "cut.onnx", imported, o), shop.folder / "p.o", o)
    app = shop.code("app", "int cut_run(void);\nint main(void) { return cut_run(); }\n")
    assert shop.models(app, shop.archive("lib1.a", "kws", parts[1]), shop.archive("lib0.a", parts[0])) == ["cut"]


def test_connected_models_join(shop: Shop) -> None:
    app = shop.code("app", "int pipeline_run(void);\nint main(void) { return pipeline_run(); }\n")
    lib = shop.archive("libm.a", *NAMES)
    assert shop.models(app, lib, connect=(("vad.x", "kws.y"),)) == ["pipeline"]


def test_a_closed_object_holds_what_is_needed(shop: Shop) -> None:
    app = shop.app("kws_run()")
    lib = shop.archive("libm.a", *NAMES)
    image = shop.link(lib, emit="object", used_by=(app,))
    assert [m.prefix for m in image.modules] == ["kws"]
    assert "nobody needs any of the models" in shop.told(lib, emit="object", used_by=(shop.code("no", ""),))
    assert f"code besides: {app}" in shop.told(app, lib, emit="object")


def test_sources_include_headers_of_waiting_models(shop: Shop) -> None:
    (shop.folder / "app.c").write_text('#include "vad.h"\nint main(void) { vad_in_x()[0] = 1; return vad_run(); }\n')
    lib = shop.archive("libm.a", *NAMES)
    made = driver.build([shop.folder / "app.c", lib], shop.folder / "out", "exe", shop.o)
    assert [m.prefix for m in made.image.modules] == ["vad"]
    call(shop.folder / "out")


def test_dead_code_never_draws_a_model_in_again(shop: Shop) -> None:
    """An archive of models and code; the application names an output in a function that nobody calls.

    The output is removed, so its accessor stays undefined; a linker that saw the archive's own copy of the
    model would take that, and then have everything twice.
    """
    helper = shop.code("helper", "int helper(void) { return 3; }\n")
    app = shop.code("app", "int helper(void);\nconst float *never(void) { return kws_out_y(); }\n"
                           "int main(void) { return kws_run() + helper() - 3; }\n")
    image = shop.link(shop.archive("libboth.a", "kws", helper, "vad"), app)
    assert image.removed == {"kws": ["y"]}
    call(image.path)


@pytest.mark.parametrize("shape", [[], ["-static-libgcc"]])  # linked by us, and through one closed object
def test_drivers_follow_the_same_rules(shop: Shop, shape: list[str]) -> None:
    lib = shop.archive("libm.a", *NAMES)
    cc = [sys.executable, "-m", "monobloc", "cc", "-g", *shape]
    for calls, found in ((("kws_run()", "kws_run()"), {"kws_run"}), (("3",), set())):
        shop.app(*calls)
        call(*cc, "app.o", "-L.", "-lm", "-l:libm.a", "-o", "prog", cwd=shop.folder)
        assert call(shop.folder / "prog").split() == [c.replace("kws_run()", "0") for c in calls]
        names = {s.name for s in elf.symbols((shop.folder / "prog").read_bytes()) if s.defined}
        assert {f"{n}_run" for n in NAMES} & names == found
    assert lib.is_file()


# -- weak and strong ------------------------------------------------------------------------------------
def test_weak_references_need_nothing(shop: Shop) -> None:
    app = shop.code("app", "extern __typeof(vad_run) vad_run __attribute__((weak));\n"
                           'int main(void) { puts(vad_run ? "there" : "absent"); return kws_run(); }\n')
    lib = shop.archive("libm.a", *NAMES)
    for words, there in (((app, lib), "absent"), ((app, lib, shop.folder / "vad.o"), "there")):
        image = shop.link(*words)
        assert call(image.path) == f"{there}\n"


def test_weak_definitions_satisfy_and_give_way(shop: Shop) -> None:
    app = shop.code("app", "__attribute__((weak)) int kws_run(void) { return 41; }\n"
                           'int main(void) { printf("%d\\n", kws_run()); return 0; }\n')
    assert call(shop.link(app, shop.archive("libm.a", *NAMES)).path) == "41\n"
    assert call(shop.link(app, shop.folder / "kws.o").path) == "0\n"


@pytest.mark.parametrize("lto", ["none", "thin", "full"])
def test_the_application_overrides_weak_functions_of_a_library(shop: Shop, lto: str) -> None:
    hook = "__attribute__((weak)) int hook(void) { return 1; }\n"
    lib = shop.archive("libl.a", shop.code("lib", hook + "int use(void) { return hook(); }\n", native=False))
    app = shop.code("app", "int use(void); int hook(void) { return 2; }\n"
                           'int main(void) { printf("%d\\n", use() + kws_run()); return 0; }\n', native=False)
    assert call(shop.link(app, lib, shop.folder / "kws.o", lto=lto).path) == "2\n"


@pytest.mark.parametrize("how", ["native", "fat", "archive"])
def test_a_function_under_a_models_name(shop: Shop, how: str) -> None:
    text = "int kws_run(void) { return 1; }\nint helper(void) { return 2; }\n"
    own = shop.code("own", text, native=how != "fat")
    place: Path | str = own
    if how == "archive":
        own = shop.archive("libown.a", own)
        place = f"{own}(own.o)"
    app = shop.code("app", "int helper(void);\nint main(void) { return kws_run() + helper(); }\n")
    text = shop.told(app, own, shop.folder / "kws.o")
    assert f"`kws_run` is defined twice: by the model `kws` of {shop.folder}/kws.o, and by {place}" in text


def test_a_function_in_front_of_a_waiting_model(shop: Shop) -> None:
    """As with every archive: the application's own definition satisfies, and nothing is drawn in."""
    app = shop.code("app", "int kws_run(void) { return 0; }\nint main(void) { return kws_run(); }\n")
    assert shop.models(app, shop.archive("libm.a", *NAMES)) == []


# -- twice ----------------------------------------------------------------------------------------------
def other_kws(shop: Shop) -> Path:
    (shop.folder / "v2").mkdir()
    dense(shop.folder / "v2/kws.onnx", seed=9)
    driver.compile_to_object(shop.folder / "v2/kws.onnx", shop.folder / "v2/kws.o", shop.o)
    return shop.folder / "v2/kws.o"


def test_two_models_of_one_prefix(shop: Shop) -> None:
    other, app = other_kws(shop), shop.app("kws_run()")
    one, two = shop.archive("lib1.a", "vad", "kws"), shop.archive("lib2.a", other)
    text = shop.told(app, shop.folder / "kws.o", other)
    assert f"two models have the prefix `kws`: {shop.folder}/kws.o and {other}" in text
    text = shop.told(app, "--whole-archive", one, two, "--no-whole-archive")
    assert f"two models have the prefix `kws`: {one}(kws.o) and {two}(kws.o)" in text


def test_the_first_archive_is_taken(shop: Shop) -> None:
    other, app = other_kws(shop), shop.app("kws_run()")
    one, two = shop.archive("lib1.a", "kws"), shop.archive("lib2.a", other)
    for words, origin in (((app, one, two), f"{one}(kws.o)"), ((two, app, one), f"{two}(kws.o)")):
        assert [m.origin for m in shop.link(*words).modules] == [origin]


def test_one_object_by_several_ways(shop: Shop) -> None:
    """Directly, through a symbolic link, as a member of a thin archive, by an archive named twice."""
    app, thin = shop.app("kws_run()"), shop.archive("libt.a", "kws", "vad", thin=True)
    (shop.folder / "again.o").symlink_to(shop.folder / "kws.o")
    assert shop.models(app, shop.folder / "kws.o", shop.folder / "again.o") == ["kws"]
    assert shop.models(app, "--whole-archive", thin, "--no-whole-archive", shop.folder / "kws.o") == ["kws", "vad"]
    lib = shop.archive("libm.a", *NAMES)
    assert shop.models(app, "--whole-archive", lib, lib) == sorted(NAMES)


# -- other --------------------------------------------------------------------------------------------
def test_numerics_of_models_and_link(shop: Shop) -> None:
    o = replace(shop.o, numerics="strict")
    dense(shop.folder / "exact.onnx")
    driver.compile_to_object(shop.folder / "exact.onnx", shop.folder / "exact.o", o)
    text = shop.told(shop.folder / "exact.o", shop.folder / "kws.o", emit="shared")
    for name, numerics in (("exact", "strict"), ("kws", "default")):
        assert f"{shop.folder}/{name}.o: `--numerics {numerics}`" in text
    assert "pass `--numerics strict`" in shop.told(shop.folder / "exact.o", emit="shared")
    assert CompiledModel(shop.link(shop.folder / "exact.o", emit="shared", numerics="strict").path).name == "exact"


def test_all_missing_files_are_told(shop: Shop) -> None:
    text = shop.told(shop.folder / "no.o", shop.folder / "kws.o", shop.folder / "nolib.a")
    assert "no.o" in text and "nolib.a" in text


def test_two_members_of_one_name(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """Archives may hold two members of one name; beside a model, both stay."""
    (shop.folder / "d").mkdir()
    one = shop.code("util", "int one(void) { return 1; }\n")
    two = one.rename(shop.folder / "d/util.o")
    one = shop.code("util", "int two(void) { return 2; }\n")
    members = [ar.Member(p.name, memoryview(p.read_bytes())) for p in (one, two, shop.folder / "kws.o")]
    lib = shop.folder / "libd.a"
    lib.write_bytes(b"".join(ar.write(members)))
    app = shop.code("app", "int one(void), two(void);\nint main(void) { return one() + two() - 3 + kws_run(); }\n")
    assert shop.models(lib, app) == ["kws"]
