"""Connected models of several sizes: one program that takes the sizes that all of them take."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from sized_chain import backbone, head, list_head, run, x_of

import monobloc
from monobloc.driver import build, compile_to_object, link
from monobloc.errors import LinkError
from monobloc.link.connect import parse_connections
from monobloc.loader import CompiledModel
from monobloc.options import Options

N, T = range(2, 5), range(1, 9)


def _options(cache: Path, connect: str, dims: dict[str, tuple[int, ...]], **more: object) -> Options:
    return replace(Options(lto="none", cache=cache, connect=tuple(parse_connections(connect.split())), dims=dims),
                   **more)  # type: ignore[arg-type]


def _close(got: np.ndarray, want: np.ndarray, at: object) -> None:
    assert got.shape == want.shape, at
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5, err_msg=str(at))


@pytest.mark.parametrize(("lto", "threads"), [("none", 1), ("thin", 2), ("full", 1)])
def test_dimensions_of_one_name_are_one(lto: str, threads: int, tmp_path: Path, cache: Path) -> None:
    """At every size what onnxruntime makes of one model after the other."""
    a, b = tmp_path / "body.onnx", tmp_path / "head.onnx"
    backbone(a)
    head(b, scale=True)
    o = _options(cache, "head=body", {"n": tuple(N), "t": tuple(T)}, lto=lto, threads=threads)
    build([b, a], tmp_path / "p.so", "shared", o)
    m = CompiledModel(tmp_path / "p.so")
    assert m.dims == {"n": N, "t": T} and [i.name for i in m.inputs] == ["x", "scale"]
    for n, t in product(N, T):
        scale = np.arange(1, n + 1, dtype=np.float32)[:, None]
        got, mid = m.run({"x": x_of(n, t), "scale": scale}), run(a, {"x": x_of(n, t)})
        _close(got["y"], run(b, {"features": mid["features"], "scale": scale})["y"], (n, t))
        _close(got["p"], mid["p"], (n, t))
    m.stop()


def test_what_an_input_reads_decides_its_sizes(tmp_path: Path, cache: Path) -> None:
    """`count` of the second model is n*t of the first: nothing to set, and no size that nobody asked for."""
    a, b = tmp_path / "body.onnx", tmp_path / "list.onnx"
    backbone(a)
    list_head(b)
    compile_to_object(a, tmp_path / "a.o", Options(dims={"n": tuple(N), "t": tuple(T)}, cache=cache))
    compile_to_object(b, tmp_path / "b.o", Options(dims={"count": tuple(range(1, 65))}, cache=cache))
    link([tmp_path / "a.o", tmp_path / "b.o"], tmp_path / "p.so", "shared", _options(cache, "list=body", {}))
    m = CompiledModel(tmp_path / "p.so")
    assert m.dims == {"n": N, "t": T}
    for n, t in product(N, T):
        _close(m.run({"x": x_of(n, t)})["z"], run(b, {"rows": run(a, {"x": x_of(n, t)})["rows"]})["z"], (n, t))


@pytest.mark.parametrize("sets", ["body", "head", "both"])
def test_sets_and_ranges_meet(sets: str, tmp_path: Path, cache: Path) -> None:
    """Versions of one model beside an open size of the other, under two names."""
    a, b = tmp_path / "body.onnx", tmp_path / "head.onnx"
    backbone(a, "images")
    head(b, "batch", "steps")
    few, steps, row = (1, 5), (3, 8), tuple(range(3, 9))
    dims = {"images": few, "t": row if sets == "head" else steps}
    other = {"batch": few if sets != "body" else tuple(range(1, 6)), "steps": steps if sets == "both" else row}
    said = {**{f"body.{k}": v for k, v in dims.items()}, **{f"head.{k}": v for k, v in other.items()}}
    build([b, a], tmp_path / "p.so", "shared", _options(cache, "head=body", said))
    m = CompiledModel(tmp_path / "p.so")
    assert {k: tuple(v) for k, v in m.dims.items()} == dims
    for n, t in product(few, dims["t"]):
        _close(m.run({"x": x_of(n, t)})["y"], run(b, {"features": run(a, {"x": x_of(n, t)})["features"]})["y"], (n, t))


def test_in_python_and_for_single_models(tmp_path: Path, cache: Path) -> None:
    """`body.t=...` is said of one of several models; a size that is given once fixes what reads it."""
    a, b = tmp_path / "body.onnx", tmp_path / "head.onnx"
    backbone(a)
    head(b, "n", "steps")
    m = monobloc.compile({"body": a, "head": b}, connect=["head=body"], cache=cache, lto="none",
                         dim={"n": range(1, 4), "body.t": 7, "head.steps": range(1, 9)})
    assert m.dims == {"n": range(1, 4)}
    for n in range(1, 4):
        want = run(b, {"features": run(a, {"x": x_of(n, 7)})["features"]})["y"]
        _close(m.run({"x": x_of(n, 7)})["y"], want, n)


def test_sizes_that_do_not_fit(tmp_path: Path, cache: Path) -> None:
    a, b = tmp_path / "body.onnx", tmp_path / "head.onnx"
    backbone(a)
    head(b, scale=True)

    def told(first: dict[str, tuple[int, ...]], second: dict[str, tuple[int, ...]], connect: str = "head=body") -> str:
        said = {f"{m}.{k}": v for m, dims in (("body", first), ("head", second)) for k, v in dims.items()}
        with pytest.raises(LinkError) as e:
            build([a, b], tmp_path / "p.so", "shared", _options(cache, connect, said))
        return str(e.value)

    small, large = {"n": (1, 2, 3), "t": (4, 5, 6)}, {"n": (1, 2, 3), "t": (4, 5, 6, 7)}
    assert "`head` would run with n=1, t=7 where n=1, t=7, and it takes n=1..3 t=4..6" in told(large, small)
    assert "shapes differ" in told(large, {"n": (3,), "t": (7,)})
    head(b, steps="k")
    assert "`head.features` is f32[(n),4,16], `body.features` is f32[(n),(t),16]" in \
        told(small, {"n": (1, 2, 3), "k": (4,)})
