"""Kernel rows: somebody else's library computes operators; after LTO only the path in use is left, in the layer."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import foreign_tools as ft
import numpy as np
import pytest

import monobloc
from monobloc.driver import build
from monobloc.object import elf, toolchain
from monobloc.targets import resolve

pytestmark = pytest.mark.skipif(resolve().arch != "x86_64", reason="the library is compiled for x86-64")
LTO = ("none", "thin", "full")


def answer(path: Path) -> np.ndarray:
    return np.asarray(monobloc.load(path)(ft.half_input()))


@pytest.mark.parametrize(
    ("form", "lto"), [(f, "thin") for f in ("plain", "thin", "full", "fat", "embedded")] + [("plain", "full")]
)
def test_only_the_path_in_use_is_left(form: str, lto: str, tmp_path: Path) -> None:
    """No function of the library remains, its other paths are gone, and sizes are constants in the layers."""
    ft.library(tmp_path, form)
    made = build([ft.half_model(tmp_path / "m.onnx")], tmp_path / "m", "exe", ft.options(tmp_path, lto=lto, debug=True))
    data = made.path.read_bytes()
    names = [s.name for s in elf.symbols(data) if s.type == elf.STT_FUNC]
    assert not [n for n in names if "gemm" in n], names
    assert ft.mark("f16") in data
    assert ft.mark("f32") not in data and ft.mark("i8") not in data
    for m, n, k in ((8, 48, 64), (8, 80, 48), (8, 10, 80)):
        assert ft.sizes(m, n, k) in data, "a size is no constant"
    assert made.programs[0].interface.stack_bound > 0
    _no_calls(made.path)


def _no_calls(path: Path) -> None:
    if shutil.which("objdump") is None:
        return  # what is left of this proof is the absence of the symbols
    done = subprocess.run(["objdump", "-d", "--no-show-raw-insn", path], capture_output=True, text=True, check=True)
    layers = [f for f in done.stdout.split("\n\n") if re.match(r"[0-9a-f]+ <layer_.*fc", f)]
    assert len(layers) == 3
    for code in layers:
        calls = [line for line in code.splitlines() if re.search(r"\scall|\sjmp\s+[^<]*<(?!layer)", line)]
        assert not calls, calls


@pytest.mark.parametrize("form", ["plain", "embedded", "native"])
def test_without_lto_the_library_is_linked_as_it_is(form: str, tmp_path: Path) -> None:
    ft.library(tmp_path, form)
    made = build([ft.half_model(tmp_path / "m.onnx")], tmp_path / "m", "exe",
                 ft.options(tmp_path, lto="none", debug=True))
    data = made.path.read_bytes()
    names = {s.name for s in elf.symbols(data)}
    assert "ug_gemm" in names
    assert all(ft.mark(p) in data for p in ft.PATHS)
    assert ("ug_gemm_part" in names) == (form == "embedded"), "sections that nobody needs are dropped"
    bound = made.programs[0].interface.stack_bound
    assert (bound > 0) == (form == "plain"), "what native code takes of the stack is not known"


@pytest.mark.parametrize("lto", LTO)
def test_answers_are_right_in_every_mode(lto: str, tmp_path: Path) -> None:
    ft.library(tmp_path, "plain")
    made = build([ft.half_model(tmp_path / "m.onnx")], tmp_path / "m.so", "shared", ft.options(tmp_path, lto=lto))
    x = ft.half_input()
    np.testing.assert_allclose(answer(made.path), ft.half_answer(x), rtol=2e-2, atol=4e-3, err_msg=f"seed {ft.SEED}")
    assert {n.op for n in made.programs[0].graph.nodes} == {"Foreign", "Relu"}


def test_native_libraries_of_gcc_link(tmp_path: Path) -> None:
    gcc = shutil.which("gcc")
    if gcc is None:
        pytest.skip("no gcc")
    ft.library(tmp_path, "native")
    out = tmp_path / "objects" / "gcc.o"
    done = subprocess.run([gcc, "-O2", "-fPIC", "-mf16c", "-ffunction-sections", "-c", tmp_path / "objects" / "ugemm.c",
                           f"-I{ft.EXAMPLE}", "-o", out], capture_output=True, text=True)
    if done.returncode:
        pytest.skip("this gcc has no _Float16")
    toolchain.archive([out], tmp_path / "libugemm.a")
    build([ft.half_model(tmp_path / "m.onnx")], tmp_path / "m.so", "shared", ft.options(tmp_path))
    np.testing.assert_allclose(answer(tmp_path / "m.so"), ft.half_answer(ft.half_input()), rtol=2e-2, atol=4e-3)


def test_one_relocatable_holds_the_kernels_too(tmp_path: Path) -> None:
    gcc = shutil.which("gcc")
    if gcc is None:
        pytest.skip("no gcc")
    ft.library(tmp_path, "fat")
    made = build([ft.half_model(tmp_path / "m.onnx")], tmp_path / "m.a", "archive", ft.options(tmp_path))
    whole = ("-Wl,--whole-archive", made.path, "-Wl,--no-whole-archive")
    subprocess.run([gcc, "-shared", "-o", tmp_path / "m.so", *whole], check=True)
    symbols = elf.symbols((tmp_path / "m.so").read_bytes())
    assert "ug_gemm" not in {s.name for s in symbols if s.bind != elf.STB_LOCAL}
