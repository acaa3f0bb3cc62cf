"""Reports: every byte of every kind of file has an owner, and figures add up."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from cli_tools import Command, tiny
from onnx import TensorProto, helper, numpy_helper

Report = dict[str, Any]

APP = """
#include <stdio.h>
#include "kws.h"
#include "vad.h"
int dsp_level(int);
static float first(const float *p) { return p[0]; }
int main(int argc, char **argv) {
  (void)argv;
  kws_in_x()[0] = (float)argc;
  if (kws_run() || vad_run()) return 1;
  printf("%g %g %d\\n", first(kws_out_y()), first(vad_out_y()), dsp_level(argc));
  return 0;
}
"""
DSP = """
static const int table[64] = {1, 2, 3};
static __attribute__((noinline)) int inner(int x) {
  volatile int s = 0;
  for (int i = 0; i < x; i++) s += table[i & 63];
  return s;
}
int dsp_level(int x) { return inner(x) + inner(x + 1); }
int dsp_unused(int x) { return x * 5; }
"""


def layered(path: Path, seed: int, shared: np.ndarray) -> Path:
    """y = Tanh(Relu(x @ w + b) @ shared); a second head that nobody reads."""
    rng = np.random.default_rng(seed)
    weights = {"w": rng.standard_normal((8, 64)), "b": rng.standard_normal(64), "shared": shared,
               "head": rng.standard_normal((64, 40))}
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["xw"], "product"),
        helper.make_node("Add", ["xw", "b"], ["sum"], "bias"),
        helper.make_node("Relu", ["sum"], ["act"], "act"),
        helper.make_node("MatMul", ["act", "shared"], ["mixed"], "mix"),
        helper.make_node("Tanh", ["mixed"], ["y"], "last"),
        helper.make_node("MatMul", ["act", "head"], ["unread"], "head"),
    ]
    g = helper.make_graph(
        nodes, "layered", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 32]),
         helper.make_tensor_value_info("unread", TensorProto.FLOAT, [1, 40])],
        [numpy_helper.from_array(v.astype(np.float32), k) for k, v in weights.items()],
    )  # fmt: skip
    onnx.save(helper.make_model(g, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), str(path))
    return path


@pytest.fixture
def program(tmp_path: Path, mb: Command) -> tuple[str, ...]:
    """Two models that share a weight, an application and a library of which it uses a part."""
    shared = np.random.default_rng(3).standard_normal((64, 32))
    layered(tmp_path / "kws.onnx", 1, shared)
    layered(tmp_path / "vad.onnx", 2, shared)
    (tmp_path / "app.c").write_text(APP)
    (tmp_path / "dsp.c").write_text(DSP)
    assert mb("compile", "dsp.c", "-o", "dsp.o").code == 0
    assert mb("ar", "rcs", "libdsp.a", "dsp.o").code == 0
    return ("kws.onnx", "vad.onnx", "app.c", "libdsp.a")


def report(path: Path | str) -> Report:
    out: Report = json.loads(Path(path).read_text(encoding="utf-8"))
    return out


def owned(r: Report) -> dict[str, int]:
    return {t["name"]: t["bytes"] for t in r["totals"]["owner"]}


def adds_up(r: Report, file: Path) -> None:
    size = file.stat().st_size
    assert r["bytes"] == size and sum(b["bytes"] for b in r["boxes"]) == size
    assert all(b["bytes"] > 0 and len(b["path"]) >= 2 for b in r["boxes"])
    for rows in r["totals"].values():
        assert sum(t["bytes"] for t in rows) == size
        assert [t["bytes"] for t in rows] == sorted((t["bytes"] for t in rows), reverse=True)


@pytest.mark.parametrize("lto", ["none", "thin", "full"])
def test_a_program_adds_up_and_everything_has_its_owner(
    program: tuple[str, ...], tmp_path: Path, mb: Command, lto: str
) -> None:
    assert mb("build", *program, "-o", "app", "--lto", lto, "--report", "r.json").code == 0
    r = report("r.json")
    adds_up(r, tmp_path / "app")
    by = {tuple(b["path"]): b for b in r["boxes"]}
    assert owned(r).keys() >= {"kws", "vad", "application", "C library", "library libdsp.a", "runtime",
                               "shared by several", "the file itself"}  # fmt: skip
    shared = [b for b in r["boxes"] if b["kind"] == "weights" and b["path"][0] == "shared by several"]
    assert [b["bytes"] for b in shared] == [64 * 32 * 4]
    assert {u.partition(":")[0] for u in shared[0]["users"]} == {"kws", "vad"}
    assert by["application", "app.c", "main"]["chain"] == ["_start"]
    used = {b["path"][2] for b in r["boxes"] if b["path"][:2] == ["library libdsp.a", "dsp.o"]}
    assert used & {"inner", "dsp_level"}
    assert not any("dsp_unused" in b["path"][2] for b in r["boxes"])
    for m in ("kws", "vad"):
        layers = {b["path"][1] for b in r["boxes"] if b["path"][0] == m}
        assert any(layer == "product" for layer in layers), layers
        own = [b["bytes"] for b in r["memory"] if b["path"][0] == m and b["symbol"].startswith("mb_mem_")]
        assert sum(own) > 0
    work = [b["bytes"] for b in r["memory"] if b["path"][:2] == ["shared by several", "memory of all models"]]
    assert max(work) >= max(b["bytes"] for m in r["models"] for b in m["banks"] if b["shared"])


def test_models_and_foreign_files_are_told_apart(tmp_path: Path, program: tuple[str, ...], mb: Command) -> None:
    assert "layer product of kws" in mb("inspect", "kws.onnx", "--why", "bias").out
    told = json.loads(mb("inspect", "dsp.o", "--json").out)
    adds_up(told, tmp_path / "dsp.o")
    assert owned(told)["not told apart"] > 0
    assert "needed by dsp_level" in mb("inspect", "dsp.o", "--why", "inner").out


def test_every_kind_of_file_adds_up(tmp_path: Path, mb: Command) -> None:
    tiny(tmp_path / "m.onnx")
    for out in ("m.exe", "m.so", "m.a", "m.o"):
        assert mb("build", "m.onnx", "-o", out, "--report", f"{out}.json").code == 0
        adds_up(report(f"{out}.json"), tmp_path / out)
    assert mb("link", "-r", "m.o", "-o", "closed.o", "--report", "closed.json").code == 0
    closed = report("closed.json")
    adds_up(closed, tmp_path / "closed.o")
    assert owned(closed)["m"] > 0
    whole = [b for b in report("m.o.json")["boxes"] if b["path"][1] == "for linking as a whole"]
    assert {b["section"] for b in whole} >= {".monobloc.ir", ".monobloc.bc", ".monobloc.summary"}


def test_two_folders_tell_the_same(tmp_path: Path, program: tuple[str, ...], mb: Command) -> None:
    told = []
    for k in range(2):
        out = tmp_path / f"folder{k}" / "app"
        out.parent.mkdir()
        cache = ["--cache", tmp_path / "one"] if k else ["--no-cache"]
        assert mb("build", *program, "-o", out, "--report", out.parent / "r.json", *cache).code == 0
        r = report(out.parent / "r.json")
        r.pop("timings", None)
        told.append(r)
    assert told[0] == told[1]
    text = json.dumps(told[0])
    assert str(tmp_path) not in text and not re.search(r"monobloc-\w{8}", text)


# -- why ----------------------------------------------------------------------------------------------
@pytest.fixture
def told(program: tuple[str, ...], mb: Command) -> Report:
    """The report of a thin link, with LLVM's remarks."""
    assert mb("build", *program, "-o", "app", "--report", "r.json").code == 0
    return report("r.json")


def test_what_became_of_everything(told: Report) -> None:
    kws, vad = told["models"]
    gone = {(x["what"], x["name"]): x for x in kws["removed"]}
    assert gone["output", "unread"]["reason"] == "no living code reads it"
    assert gone["node", "head"]["reason"] == gone["weight", "head"]["reason"] == "only removed outputs need it: unread"
    assert gone["weight", "head"]["bytes"] == 64 * 40 * 4
    assert {"layer": "product", "ops": ["MatMul", "Add", "Relu"], "from": ["product", "bias", "act"]} in kws["fused"]
    (merged,) = told["merged"]
    assert merged["saved"] == 64 * 32 * 4
    assert {(t["model"], t["name"]) for t in merged["tensors"]} == {("kws", "shared"), ("vad", "shared")}
    assert kws["readers"]["out y"][0].startswith("main")
    assert {"callee": "dsp_level", "into": "main (application: app.c)", "count": 1} in told["llvm"]["inlined"]
    kept_apart = [x for x in told["llvm"]["not_inlined"] if x["callee"] == "inner"]
    assert kept_apart and "noinline" in kept_apart[0]["reason"]


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("inner", ["library libdsp.a > dsp.o > inner", "needed by main", "by _start"]),
        ("libdsp.a", ["library libdsp.a", "needed by inner"]),
        ("unread", ["output unread of kws is not in the image: no living code reads it"]),
        ("head", ["weight head, 10,240 bytes of vad is not in the image: only removed outputs need it: unread"]),
        ("shared", ["stored once with shared of vad", "8,192 bytes saved"]),
        ("bias", ["layer product of kws: MatMul + Add + Relu as gemm"]),
        ("w", ["weight w.packed", "read by product", "by layer product of kws", "by main"]),
        ("y", ["output y of kws", "needed by main"]),
        ("kws_run", ["kws_run was inlined into main"]),
        ("dsp_level", ["dsp_level was inlined into main (application: app.c)"]),
    ],
)
def test_why(told: Report, mb: Command, name: str, says: list[str]) -> None:
    out = mb("inspect", "app", "--why", name).out  # kept with the image
    assert not [s for s in says if s not in out], out
    assert mb("inspect", "r.json", "--why", name).out == out


def test_why_of_a_name_that_does_not_exist(told: Report, mb: Command) -> None:
    assert "did you mean 'dsp_level'" in mb("inspect", "app", "--why", "dsp_levl").err
    answer = mb("inspect", "app", "--why", "produkt")
    assert answer.code == 1 and "did you mean 'product'" in answer.err


def test_remarks_change_no_byte(program: tuple[str, ...], tmp_path: Path, mb: Command) -> None:
    for lto in ("thin", "full"):
        assert mb("build", *program, "-o", "with", "--lto", lto, "--report", "r.json").code == 0
        assert mb("build", *program, "-o", "without", "--lto", lto).code == 0
        assert (tmp_path / "with").read_bytes() == (tmp_path / "without").read_bytes()


# -- modes and measures -------------------------------------------------------------------------------
def test_modes_are_compared(program: tuple[str, ...], tmp_path: Path, mb: Command) -> None:
    assert mb("build", *program, "-o", "app", "--report", "r.json", "--compare-lto").code == 0
    r = report("r.json")
    assert [row["lto"] for row in r["comparison"]] == ["none", "thin", "full"]
    for row in r["comparison"]:
        assert sum(row["owner"].values()) == sum(row["kind"].values()) == row["bytes"]
        assert mb("build", *program, "-o", row["lto"], "--lto", row["lto"]).code == 0
        assert (tmp_path / row["lto"]).stat().st_size == row["bytes"]
    assert set(r["timings"]["lto"]) == {"none", "thin", "full"}
    assert mb("build", *program, "-o", "app", "--compare-lto").code == 2
    assert mb("compile", "kws.onnx", "--report", "r.json", "--compare-lto").code == 2  # nothing is linked


def test_phases_are_measured(program: tuple[str, ...], mb: Command) -> None:
    assert mb("build", *program, "-o", "app", "--report", "r.json", "--no-cache").code == 0
    timings = report("r.json")["timings"]
    phases = {p["phase"]: p for p in timings["phases"]}
    assert list(phases) == ["starting", "reading models", "compiling sources", "finding live outputs",
                            "optimizing models", "compiling models", "linking"]  # fmt: skip
    assert timings["seconds"] == pytest.approx(sum(p["seconds"] for p in phases.values()), abs=0.01)
    assert phases["linking"]["own_memory"] > 1 << 20
    assert max(p["tools_memory"] for p in phases.values()) > 1 << 20


# -- the page -----------------------------------------------------------------------------------------
def test_the_page_carries_the_report_and_needs_nothing_else(program: tuple[str, ...], mb: Command) -> None:
    assert mb("build", *program, "-o", "app", "--report", "r.json", "--compare-lto").code == 0
    assert mb("build", *program, "-o", "app", "--report", "r.html", "--compare-lto").code == 0
    page, r = Path("r.html").read_text(encoding="utf-8"), report("r.json")
    carried = json.loads(re.search(r'<script type="application/json" id="report">(.*?)</script>', page, re.S)[1])  # type: ignore[index]
    carried.pop("timings")
    r.pop("timings")
    assert carried == r
    outside = page.replace(re.search(r'<script type="application/json".*?</script>', page, re.S)[0], "")  # type: ignore[index]
    assert not re.search(r"https?://|@import|url\(|<link|src=", outside)
    for t in r["totals"]["owner"]:
        assert f"<td>{t['name']}</td><td class=n>{t['bytes']:,}</td>" in page
    assert f"<td>the whole file</td><td class=n>{r['bytes']:,}</td>" in page
    for row in r["comparison"]:
        assert f"<td class=n>{row['bytes']:,}</td>" in page
    for m in r["models"]:
        assert f"{m['arena']:,} bytes" in page
    assert "unread" in page and "8,192 bytes saved" in page


def test_names_cannot_leave_their_place_on_the_page(tmp_path: Path, mb: Command) -> None:
    m = onnx.load(str(tiny(tmp_path / "m.onnx")))
    m.graph.node[0].name = "</script><script>alert(1)</script>"
    onnx.save(m, "m.onnx")
    assert mb("build", "m.onnx", "-o", "m.so", "--report", "r.html").code == 0
    page = Path("r.html").read_text(encoding="utf-8")
    assert "alert(1)" in page and "<script>alert" not in page and page.count("</script>") == 2


def test_models_of_equal_bytes_are_told_apart(tmp_path: Path, mb: Command) -> None:
    """Names are no part of an image, so that another model's may have its bytes: each build tells its own."""
    m = onnx.load(str(tiny(tmp_path / "one.onnx")))
    m.graph.node[0].name = "another"
    onnx.save(m, "two.onnx")
    for model, name in (("one", "product"), ("two", "another"), ("one", "product")):
        out = f"{model}.so"
        assert mb("build", f"{model}.onnx", "-o", out, "--name", "m", "--report", f"{model}.json").code == 0
        assert name in {x["name"] for x in report(f"{model}.json")["models"][0]["layers"]}
        assert name in mb("inspect", out).out
    assert Path("one.so").read_bytes() == Path("two.so").read_bytes()
