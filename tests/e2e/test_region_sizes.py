"""Memory regions of a model of several sizes: what is hot, and inputs and outputs, in banks of their own."""

from __future__ import annotations

import subprocess
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from sized_chain import backbone, head, run, x_of

from monobloc.driver import build
from monobloc.errors import LinkError
from monobloc.link.connect import parse_connections
from monobloc.loader import CompiledModel
from monobloc.options import Options
from monobloc.targets import Region

N, T = (1, 2, 3), (2, 3, 4, 5, 6, 7)
FAST = Region("fast", "ram", 2 << 10)
DMA = Region("dma", "ram", hold=("io",))


def _check(m: CompiledModel, path: Path) -> None:
    for n, t in product(N, T):
        got, want = m.run({"x": x_of(n, t)}), run(path, {"x": x_of(n, t)})
        for name, y in want.items():
            assert got[name].shape == y.shape
            np.testing.assert_allclose(got[name], y, rtol=1e-4, atol=1e-5, err_msg=f"{name} at {n}, {t}")


@pytest.mark.parametrize(("lto", "regions"), [("none", (FAST, DMA)), ("thin", (DMA, FAST)), ("full", (FAST,))],
                         ids=["none", "thin", "full"])
def test_every_size_is_right(lto: str, regions: tuple[Region, ...], tmp_path: Path, cache: Path) -> None:
    """In memory of the caller's, which is one piece, and in the image's own."""
    path = tmp_path / "body.onnx"
    backbone(path)
    o = Options(lto=lto, regions=regions, dims={"n": N, "t": T}, cache=cache)  # type: ignore[arg-type]
    made = build([path], tmp_path / "m.so", "shared", o)
    banks = {b.name: b for b in made.programs[0].interface.banks}
    assert 0 < banks["fast_work"].bytes <= 2 << 10
    assert ("dma_io" in banks and banks["dma_io"].bytes >= 4 * 3 * 7 * 12) == (DMA in regions)
    _check(CompiledModel(tmp_path / "m.so"), path)
    if lto == "none":
        build([path], tmp_path / "m", "exe", o)
        for n, t in ((1, 2), (3, 7), (2, 5)):
            np.save(tmp_path / "x.npy", x_of(n, t))
            subprocess.run([str(tmp_path / "m"), str(tmp_path / "x.npy"), "-o", f"rows={tmp_path / 'y.npy'}"],
                           check=True, capture_output=True)
            np.testing.assert_allclose(np.load(tmp_path / "y.npy"), run(path, {"x": x_of(n, t)})["rows"], rtol=1e-4)


def test_connected_models_share_regions(tmp_path: Path, cache: Path) -> None:
    a, b = tmp_path / "body.onnx", tmp_path / "head.onnx"
    backbone(a)
    head(b)
    o = Options(lto="none", regions=(FAST, DMA), dims={"n": N, "t": T}, cache=cache,
                connect=tuple(parse_connections(["head=body"])))
    build([a, b], tmp_path / "p.so", "shared", o)
    m = CompiledModel(tmp_path / "p.so")
    for n, t in product(N, T):
        want = run(b, {"features": run(a, {"x": x_of(n, t)})["features"]})["y"]
        np.testing.assert_allclose(m.run({"x": x_of(n, t)})["y"], want, rtol=1e-4, atol=1e-5)


def test_a_region_is_large_enough_for_the_largest(tmp_path: Path, cache: Path) -> None:
    path = tmp_path / "body.onnx"
    backbone(path)
    o = Options(lto="none", regions=(Region("dma", "ram", 1000, hold=("io",)),), dims={"n": N, "t": T}, cache=cache)
    with pytest.raises(LinkError, match="region `dma` has 1000 bytes"):
        build([path], tmp_path / "m.so", "shared", o)
