"""Files of layers that a link takes as finished code: which they are, that it leaves them alone, and what is told."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from chain_model import chain

from monobloc.cli import run
from monobloc.driver import build
from monobloc.kernels.foreign import read_rows
from monobloc.link.finished import FEW, finished
from monobloc.loader import CompiledModel
from monobloc.object import elf
from monobloc.options import Options

MANY, SMALL = 24, 3  # layers, each with a kernel of its own; the small program is one file


def code_sizes(path: Path) -> dict[str, int]:
    """Of functions of layers and kernels, by name; where they lie changes distances in them, not their sizes."""
    e = elf.Elf(path.read_bytes())
    return {s.name: s.size for s in e.symbols if s.type == elf.STT_FUNC and s.defined and "layer_" in s.name}


def test_the_link_leaves_layers_as_they_were_compiled(tmp_path: Path) -> None:
    path = chain(tmp_path / "m.onnx", MANY)
    x = np.random.default_rng(2).standard_normal((2, 12)).astype(np.float32)
    sizes, answers = {}, {}
    for lto in ("none", "thin", "full"):
        o = Options(lto=lto, debug=True, cache=tmp_path / "cache")  # type: ignore[arg-type]
        made = build([path], tmp_path / f"{lto}.so", "shared", o)
        layers = [n for n in made.programs[0].files if not n.endswith(".run.c")]
        assert len(layers) >= FEW, "the model has become too small for this test"
        assert finished(made.programs, o) == (set() if lto == "none" else set(layers))
        compiled = made.image.partitions.compiled
        assert compiled == (len(layers) + 2 if lto == "none" else 2 if lto == "thin" else 0)  # native ones are kept
        sizes[lto], answers[lto] = code_sizes(made.path), CompiledModel(made.path)(x)
    assert sizes["none"] and sizes["none"] == sizes["thin"] == sizes["full"]
    assert np.array_equal(answers["none"], answers["thin"]) and np.array_equal(answers["none"], answers["full"])


def test_small_programs_and_those_for_size_are_optimized_as_a_whole(tmp_path: Path) -> None:
    o = Options(lto="full", cache=tmp_path / "cache")
    small = build([chain(tmp_path / "s.onnx", SMALL)], tmp_path / "s.so", "shared", o)
    assert not finished(small.programs, o)
    large = build([chain(tmp_path / "m.onnx", MANY)], tmp_path / "m.so", "shared", o)
    assert finished(large.programs, o) and not finished(large.programs, replace(o, optimize="size"))


ROW = """
[[kernel]]
op = "MatMul"
inputs = ["a: f32[m,k]", "b: f32[k,n]"]
outputs = ["c: f32[m,n]"]
call = "their_gemm({a}, {b}, {c}, {m}, {n}, {k})"
prototype = "void their_gemm(const float *, const float *, float *, int, int, int)"
returns = "nothing"
when = "n == 20"
"""
THEIRS = """
void their_gemm(const float *a, const float *b, float *c, int m, int n, int k) {
  for (int i = 0; i < m * n; i++) {
    float s = 0;
    for (int l = 0; l < k; l++) s += a[i / n * k + l] * b[l * n + i % n];
    c[i] = s;
  }
}
"""


def test_a_file_that_calls_a_foreign_kernel_is_optimized_at_the_link(tmp_path: Path) -> None:
    """Its function is inlined there, which native code could not be."""
    (tmp_path / "r.toml").write_text(ROW)
    (tmp_path / "k.c").write_text(THEIRS)
    rows = tuple(read_rows(tmp_path / "r.toml", {"MatMul"}))
    o = Options(lto="full", kernels=rows, cache=tmp_path / "cache")
    path = chain(tmp_path / "m.onnx", MANY)
    made = build([path, tmp_path / "k.c"], tmp_path / "m.so", "shared", o)
    done, files = finished(made.programs, o), made.programs[0].files
    calls = {n for n, text in files.items() if "their_gemm(" in text}
    assert done and calls and set(files) - done == {*calls, "m.run.c"}
    x = np.random.default_rng(2).standard_normal((2, 12)).astype(np.float32)
    plain = build([path], tmp_path / "plain.so", "shared", Options(cache=tmp_path / "cache"))
    np.testing.assert_allclose(CompiledModel(made.path)(x), CompiledModel(plain.path)(x), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("lto", ["thin", "full"])
def test_the_report_tells_of_loops_in_finished_code(lto: str, tmp_path: Path) -> None:
    path = chain(tmp_path / "m.onnx", MANY)
    line = ["build", str(path), "-o", str(tmp_path / "m.so"), "--lto", lto, "--cache", str(tmp_path / "c")]
    told = []
    for k in (1, 2):  # the second time out of the cache
        (tmp_path / "m.so").unlink(missing_ok=True)
        assert run([*line, "--report", str(tmp_path / f"{k}.json")]) == 0
        told.append(json.loads((tmp_path / f"{k}.json").read_text())["llvm"])
    assert told[0] == told[1]
    assert sum("m: " in row["function"] for row in told[0]["loops"]) >= MANY // 2
    assert run(line[:-2] + ["--cache", str(tmp_path / "other"), "-o", str(tmp_path / "n.so")]) == 0
    assert (tmp_path / "m.so").read_bytes() == (tmp_path / "n.so").read_bytes()  # asking changes nothing
