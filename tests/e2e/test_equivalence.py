"""The equivalence matrix: one program, built and linked in every way, gives the same answers."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import programs
import pytest
from cells import NAMES, OUTPUTS, Bench, Cell, as_arrays, foreign_cells, own_cells

from monobloc.frontend.importer import load_onnx
from monobloc.ir.interp import interpret

RTOL = ATOL = 2e-5


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory, cache: Path) -> Bench:
    return Bench(tmp_path_factory.mktemp("matrix"), cache)


@pytest.fixture(scope="module")
def oracle(bench: Bench) -> list[np.ndarray]:
    """What the graphs mean."""
    out = []
    for k in range(2):
        for name in NAMES:
            ys = interpret(load_onnx(bench.models[name]).graph, programs.feeds(name, k))
            out += [ys[o] for o in OUTPUTS[name]]
    return out


@pytest.fixture(scope="module")
def first(bench: Bench) -> dict[str, bytes]:
    """The answers of each family, from the library with no LTO and one thread."""
    cells = {"graph": Cell("shared", lto="none"), "object": Cell("shared", lto="none", graph_lto=False)}
    return {family: bench.answers(c, bench.image(c), 1) for family, c in cells.items()}


@pytest.mark.parametrize("family", ["graph", "object"])
def test_family_is_right(first: dict[str, bytes], oracle: list[np.ndarray], family: str) -> None:
    for got, want in zip(as_arrays(first[family], oracle), oracle, strict=True):
        np.testing.assert_allclose(got, want, RTOL, ATOL)


@pytest.mark.parametrize("cell", list(own_cells()), ids=str)
def test_own_link(bench: Bench, first: dict[str, bytes], cell: Cell) -> None:
    _same_bits(bench, first, cell)


@pytest.mark.skipif(not (shutil.which("gcc") and shutil.which("ld")), reason="no gcc: apt-get install gcc")
@pytest.mark.parametrize("cell", list(foreign_cells()), ids=str)
def test_foreign_link(bench: Bench, first: dict[str, bytes], cell: Cell) -> None:
    _same_bits(bench, first, cell)


def _same_bits(bench: Bench, first: dict[str, bytes], cell: Cell) -> None:
    image = bench.image(cell)
    for threads in range(1, cell.threads + 1):
        got = bench.answers(cell, image, threads)
        assert got == first[cell.family], f"{cell} with {threads} threads differs"


SAME_IMAGES = [
    ({}, {"jobs": 1}),
    ({}, {"cache": None}),
    ({"parts": "objects"}, {}),
    ({"parts": "ld-r"}, {}),
    ({"parts": "lld-r"}, {}),
    ({"parts": "archive"}, {}),
]


@pytest.mark.parametrize("change", SAME_IMAGES, ids=lambda c: "-".join(f"{k}={v}" for d in c for k, v in d.items()))
@pytest.mark.parametrize("lto", ["none", "thin", "full"])
@pytest.mark.parametrize("kind", ["shared", "exe"])
def test_same_bytes(bench: Bench, tmp_path: Path, kind: str, lto: str, change: tuple[dict, dict]) -> None:
    """However the graphs come to the link, in one job or more, from the cache or not: one image."""
    base = Cell(kind, lto=lto, threads=2)  # type: ignore[arg-type]
    want = bench.image(base, tmp_path / "want").read_bytes()
    cell = Cell(kind, lto=lto, threads=2, **change[0])  # type: ignore[arg-type]
    got = bench.image(cell, tmp_path / "got", **change[1]).read_bytes()
    assert got == want
