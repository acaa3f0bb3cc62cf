"""build, compile, link: every kind of image, project files, reports, dependencies."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import numpy as np
import pytest
from cli_tools import Command, tiny

import monobloc
from monobloc.object import elf


def test_build_makes_what_the_suffix_says(mb: Command, model: Path) -> None:
    for out, emit in (("m", "exe"), ("m.so", "shared"), ("m.a", "archive"), ("m2.o", "object")):
        told = mb("build", model, "-o", out)
        assert told.code == 0, told.err
        assert f"{emit} for" in told.out and "arena" in told.out and told.err == ""
        assert Path(out).stat().st_size > 0
    assert subprocess.run(["./m", "--info"], capture_output=True, text=True).stdout.startswith("model m\n")
    assert monobloc.load("m.so").outputs[0].shape == (1, 4)


def test_default_output_is_the_stem(mb: Command, model: Path) -> None:
    assert mb("build", model).code == 0
    assert Path("m").is_file()


def test_a_warm_build_tells_the_same(mb: Command, model: Path) -> None:
    cold = mb("build", model, "-o", "m.so", "--report", "a.json", "--cache", "own")
    warm = mb("build", model, "-o", "m.so", "--report", "b.json", "--cache", "own")
    image, work = cold.out.splitlines()[:-1], cold.out.splitlines()[-1]
    assert re.fullmatch(r"  compiled \d of 2 partitions", work)
    assert image == warm.out.splitlines() and (cold.code, cold.err) == (warm.code, warm.err)
    a, b = (json.loads(Path(f"{k}.json").read_text()) for k in "ab")
    assert (a.pop("partitions")["count"], b.pop("partitions")["count"]) == (2, 0)
    assert a.pop("timings").keys() == b.pop("timings").keys() and a == b


def test_two_stages_equal_one(mb: Command, model: Path) -> None:
    assert mb("build", model, "-o", "one.so").code == 0
    assert mb("compile", model, "-o", "m.o", "--header", "inc/m.h").code == 0
    assert "m_run(void)" in Path("inc/m.h").read_text()
    told = mb("link", "m.o", "-o", "two.so", "-Map", "two.map")
    assert told.code == 0, told.err
    assert Path("one.so").read_bytes() == Path("two.so").read_bytes()
    assert "m_run_at" in Path("two.map").read_text()


def test_relocatable(mb: Command, model: Path) -> None:
    mb("compile", model, "-o", "m.o")
    assert mb("link", "-r", "m.o", "-o", "closed.o").code == 0
    data = Path("closed.o").read_bytes()
    assert elf.Elf(data).type == elf.ET_REL
    assert "m_run" in {s.name for s in elf.symbols(data) if s.bind == elf.STB_GLOBAL}
    assert mb("link", "-r", "m.o", "--emit", "shared").code == 2


def test_response_files_and_groups(mb: Command, model: Path) -> None:
    mb("compile", model, "-o", "m.o")
    Path("words").write_text("--start-group m.o --end-group # the model\n-o 'grouped.so'\n")
    told = mb("link", "@words")
    assert told.code == 0, told.err
    assert Path("grouped.so").is_file()


APP = """#include <stdio.h>
#include "m.h"
#include "mine.h"
int main(void) { m_in_x()[0] = FIRST; printf("%d %d\\n", m_run(), OTHER); return 0; }
"""


def test_with_a_program_of_ones_own(mb: Command, model: Path) -> None:
    Path("inc").mkdir()
    Path("inc/mine.h").write_text("#define OTHER 7\n")
    Path("app.c").write_text(APP)
    told = mb("build", "app.c", model, "-o", "one", "-I", "inc", "-D", "FIRST=2.5f")
    assert told.code == 0, told.err
    assert mb("compile", model, "-o", "m.o").code == 0
    assert mb("compile", "app.c", "-o", "app.o", "-Iinc", "-DFIRST").code == 0
    told = mb("link", "app.o", "m.o", "-o", "two")
    assert told.code == 0, told.err
    for out in ("one", "two"):
        assert subprocess.run([f"./{out}"], capture_output=True, text=True, check=True).stdout == "0 7\n"
    told = mb("build", "app.c", model, "-o", "one", "-D", "FIRST=1")
    assert told.code == 1 and "mine.h" in told.err
    Path("monobloc.toml").write_text('sources = ["app.c"]\ninclude = "inc"\ndefine = ["FIRST=3"]\noutput = "three"\n'
                                     '[[model]]\npath = "m.onnx"\n')
    told = mb("build")
    assert told.code == 0, told.err
    assert subprocess.run(["./three"], capture_output=True, text=True, check=True).stdout == "0 7\n"


def test_project_file(mb: Command, tmp_path: Path) -> None:
    tiny(tmp_path / "a.onnx")
    tiny(tmp_path / "b.onnx", batch="n")
    Path("monobloc.toml").write_text(
        'output = "both.so"\nlto = "none"\nreport = "r.json"\n'
        '[[model]]\npath = "a.onnx"\nname = "first"\n'
        '[[model]]\npath = "b.onnx"\nname = "second"\ndim = { n = 3 }\n'
        '[memory]\nram = "64K"\n')  # fmt: skip
    told = mb("build")
    assert told.code == 0, told.err
    first, second = monobloc.load("both.so", 0), monobloc.load("both.so", 1)
    assert [first.name, second.name] == ["first", "second"]
    assert second.inputs[0].shape == (3, 8)
    assert json.loads(Path("r.json").read_text())["options"]["lto"] == "none"
    assert mb("build", "--lto", "full", "-o", "full.so").code == 0, "the command line goes first"
    assert json.loads(Path("r.json").read_text())["options"]["lto"] == "full"
    assert mb("check").code == 0
    assert mb("build", "--ram", "1").code == 1


@pytest.mark.parametrize(("text", "says"), [
    ("tarrget = 'host'\n", "did you mean `target`?"),
    ("[[model]]\nname = 'x'\n", "has no `path`"),
    ("[[model]]\npath = 'x.onnx'\nlto = 'full'\n", "unknown key `lto`"),
    ("output = \n", "monobloc.toml: "),
    ("output = 'x'\n", "names no model"),
    ("memory = 3\n", "is no table"),
])  # fmt: skip
def test_project_files_that_are_wrong(mb: Command, text: str, says: str) -> None:
    Path("monobloc.toml").write_text(text)
    told = mb("build")
    assert told.code == 1 and says in told.err


def test_report(mb: Command, model: Path) -> None:
    assert mb("build", model, "-o", "m", "--report", "r.json", "--depfile", "m.d").code == 0
    r = json.loads(Path("r.json").read_text())
    (m,) = r["models"]
    assert r["bytes"] == Path("m").stat().st_size
    assert {p["name"] for p in m["inputs"]} == {"x"} and m["arena"] >= m["arena_bound"] > 0
    for b in m["buffers"]:
        assert b["offset"] >= 0 and b["offset"] + b["bytes"] <= m["arena"]
        assert 0 <= b["first"] <= b["last"] < len(m["steps"])
    alive = [(a, b) for a in m["buffers"] for b in m["buffers"] if a["name"] < b["name"] and
             a["first"] <= b["last"] and b["first"] <= a["last"]]
    assert all(a["offset"] + a["bytes"] <= b["offset"] or b["offset"] + b["bytes"] <= a["offset"] or
               a["last"] == b["first"] or b["last"] == a["first"] for a, b in alive)
    assert any(s["name"].startswith("mb_mem_") for s in r["symbols"]) and m["decisions"] and m["layers"]
    assert Path("m.d").read_text() == f"m: {model}\n"
    assert mb("build", model, "-o", "m", "--report", "r.html").code == 0
    page = Path("r.html").read_text()
    assert page.startswith("<!doctype html>") and page.count("<rect") == 2 * len(m["buffers"])  # in RAM, and over time


def test_depfile_names_external_data(mb: Command, model: Path) -> None:
    import onnx

    big = onnx.load(str(model))
    big.graph.initializer[0].CopyFrom(onnx.numpy_helper.from_array(np.ones((8, 4), np.float32), "w"))
    onnx.save(big, "ext.onnx", save_as_external_data=True, location="ext data.bin", size_threshold=0)
    assert mb("compile", "ext.onnx", "-o", "e.o", "--depfile", "e.d").code == 0
    assert Path("e.d").read_text() == "e.o: ext.onnx ext\\ data.bin\n"


def test_dump_and_replay(mb: Command, model: Path) -> None:
    assert mb("build", model, "-o", "m", "--dump", "d").code == 0
    dumps = sorted(Path("d/m").glob("*.mb"))
    assert dumps[0].name == "00.import.mb" and Path("d/m/m.run.c").is_file()
    told = mb("opt", dumps[0], "-o", "all.mb")
    assert told.code == 0, told.err
    assert Path("all.mb").read_text() == dumps[-2 if dumps[-1].name == "m.mb" else -1].read_text()


def test_linker_scripts_and_maps_are_for_images(mb: Command, model: Path) -> None:
    mb("compile", model, "-o", "m.o")
    assert mb("link", "-r", "m.o", "-o", "r.o", "-Map", "r.map").code == 2
    assert mb("link", "m.o", "-o", "m", "-T", "none.ld").code == 1
    Path("s.ld").write_text("SECTIONS { .marker : { LONG(42) } } INSERT AFTER .rodata;\n")
    told = mb("link", "m.o", "-o", "m", "-T", "s.ld")
    assert told.code == 0, told.err
    assert ".marker" in {s.name for s in elf.sections(Path("m").read_bytes())}


def test_no_cache_leaves_none(mb: Command, model: Path, tmp_path: Path) -> None:
    assert mb("build", model, "-o", "m.so", "--cache", "c").code == 0
    assert (tmp_path / "c" / "entries").is_dir()
    assert mb("build", model, "-o", "n.so", "--cache", "d", "--no-cache").code == 0
    assert not (tmp_path / "d").exists() and Path("m.so").read_bytes() == Path("n.so").read_bytes()


def test_parts_give_the_image_of_the_whole(mb: Command, model: Path) -> None:
    assert mb("build", model, "-o", "whole.so").code == 0
    for words in (("--partitions", 2), ("--split-at", "sum")):
        told = mb("compile", model, "-o", "p.o", *words)
        assert told.code == 0, told.err
        parts = [line.split(":")[0] for line in told.out.splitlines()]
        assert parts == ["p.0.o", "p.1.o"]
        assert mb("link", *parts, "-o", "linked.so").code == 0
        assert Path("linked.so").read_bytes() == Path("whole.so").read_bytes()
    assert mb("compile", model, "--partitions", 2, "--header", "h.h").code == 2


def test_connected_models_are_one(mb: Command, tmp_path: Path) -> None:
    import onnx
    from onnx import TensorProto, helper

    tiny(tmp_path / "body.onnx")
    node = helper.make_node("Neg", ["f"], ["g"])
    ports = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [1, 4]) for n in "fg"]
    head = helper.make_model(helper.make_graph([node], "head", ports[:1], ports[1:]),
                             opset_imports=[helper.make_opsetid("", 13)], ir_version=8)  # fmt: skip
    onnx.save(head, "head.onnx")
    told = mb("build", "body.onnx", "head.onnx", "--connect", "head.f=body.y", "--name", "both", "-o", "both.so")
    assert told.code == 0, told.err
    m = monobloc.load("both.so")
    assert m.name == "both" and [s.name for s in m.inputs] == ["x"]
    assert {s.name for s in m.outputs} == {"g", "best"}
    assert "model both" in mb("inspect", "both.so").out
    assert mb("build", "body.onnx", "head.onnx", "--connect", "nonsense").code == 2
    assert mb("build", "body.onnx", "head.onnx", "--connect", "head.f=body.z").code == 1
    Path("monobloc.toml").write_text('connect = ["head.f=body.y"]\nname = "both"\noutput = "again.so"\n'
                                     '[[model]]\npath = "body.onnx"\n[[model]]\npath = "head.onnx"\n')
    told = mb("build")
    assert told.code == 0, told.err
    assert Path("again.so").read_bytes() == Path("both.so").read_bytes()


def test_outputs_nobody_reads_are_told(mb: Command, model: Path) -> None:
    Path("app.c").write_text('#include "m.h"\nint main(void) { return m_run() + (int)m_out_best()[0] * 0; }\n')
    told = mb("build", "app.c", model, "-o", "app", "--report", "r.json")
    assert told.code == 0 and "outputs nobody reads are gone: y" in told.out, told
    (m,) = json.loads(Path("r.json").read_text())["models"]
    assert m["removed_outputs"] == ["y"] and [p["name"] for p in m["outputs"]] == ["best"]
    assert "output y of m is not in the image: no living code reads it" in mb("inspect", "r.json", "--why", "y").out


def test_used_by(mb: Command, model: Path) -> None:
    Path("app.c").write_text("extern const long *m_out_best(void);\nlong f(void) { return *m_out_best(); }\n")
    assert mb("compile", "app.c", "-o", "app.o").code == 0
    told = mb("build", model, "-o", "m.a", "--used-by", "app.o")
    assert told.code == 0 and "gone: y" in told.out, told
    assert mb("build", model, "-o", "m.a", "--used-by", "no.o").code == 1
