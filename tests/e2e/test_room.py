"""Large weights are written behind the linker: the image is the one that a link of all bytes gives."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from monobloc.driver import build
from monobloc.link import room
from monobloc.loader import CompiledModel
from monobloc.object import toolchain
from monobloc.object.elf import SHT_NOBITS, Elf, Section
from monobloc.object.strip import build_id_place
from monobloc.options import Lto, Options
from monobloc.targets import resolve

WIDE = 160  # floats squared: 100 KiB


def model(path: Path, bit: int = 0, wide: int = WIDE, layers: int = 2) -> Path:
    """Products by large weights and one sum; the lowest bit of one weight as asked for."""
    rng, last, nodes, weights = np.random.default_rng(3), "x", [], []
    for k in range(layers):
        w = (rng.standard_normal((wide, wide)) / np.sqrt(wide)).astype(np.float32)
        if k == 0:
            w.view(np.uint32)[5, 7] = w.view(np.uint32)[5, 7] & ~np.uint32(1) | np.uint32(bit)
        weights.append(numpy_helper.from_array(w, f"w{k}"))
        nodes.append(helper.make_node("MatMul", [last, f"w{k}"], [f"y{k}"]))
        last = f"y{k}"
    weights.append(numpy_helper.from_array(rng.standard_normal(wide).astype(np.float32), "b"))
    nodes.append(helper.make_node("Add", [last, "b"], ["y"]))
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [1, wide]) for n in "xy")
    graph = helper.make_graph(nodes, "m", [x], [y], weights)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


@pytest.fixture(scope="module")
def o(tmp_path_factory: pytest.TempPathFactory) -> Options:
    return Options(target=resolve("host"), cache=tmp_path_factory.mktemp("cache"))


def image(m: Path, out: Path, o: Options) -> bytes:
    build([m], out, "shared", o)
    return out.read_bytes()


class Links:
    """How many weights waited in each link of a test; no image is taken out of the cache."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.waited: list[int] = []
        monkeypatch.setattr("monobloc.link.image_cache.request_key", lambda *_: "")
        fill = room.fill

        def told(path: Path, weights: Mapping[str, object], names: Mapping[str, str]) -> list[room.Place]:
            self.waited.append(len(names))
            return fill(path, weights, names)  # type: ignore[arg-type]

        monkeypatch.setattr(room, "fill", told)


@pytest.mark.parametrize("lto", ["none", "thin", "full"])
def test_the_image_is_that_of_a_link_of_all_bytes(
    lto: Lto, o: Options, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    links, m, o = Links(monkeypatch), model(tmp_path / "m.onnx"), replace(o, lto=lto)
    behind = image(m, tmp_path / "behind.so", o)
    with monkeypatch.context() as patch:
        patch.setattr(room, "waiting", lambda *_: frozenset())
        whole = image(m, tmp_path / "whole.so", o)
    assert links.waited == [2, 0]
    assert without_id(behind) == without_id(whole)
    x = np.random.default_rng(4).standard_normal((1, WIDE)).astype(np.float32)
    weights = [numpy_helper.to_array(w) for w in onnx.load(m).graph.initializer]
    y = CompiledModel(tmp_path / "behind.so")(x)
    assert np.allclose(y, x @ weights[0] @ weights[1] + weights[2], atol=1e-4)


def without_id(data: bytes) -> bytes:
    at, size = build_id_place(Elf(data)) or (0, 0)
    return data[:at] + bytes(size) + data[at + size :]


def test_without_room_the_linker_gets_the_bytes(
    o: Options, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    links, m = Links(monkeypatch), model(tmp_path / "m.onnx")
    want = image(m, tmp_path / "a.so", o)

    class NoBits(Elf):
        """As if the linker had made zeros of the constants"""

        @cached_property
        def sections(self) -> list[Section]:
            return [replace(s, type=SHT_NOBITS) if s.name == ".rodata" else s for s in super().sections]

    monkeypatch.setattr(room, "Elf", NoBits)
    assert without_id(image(m, tmp_path / "b.so", o)) == without_id(want)
    assert links.waited == [2, 2, 0]


def test_arguments_for_the_linker_see_all_bytes(
    o: Options, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They may sort, compress or strip what we would look for."""
    links, m = Links(monkeypatch), model(tmp_path / "m.onnx")
    image(m, tmp_path / "a.so", replace(o, link_args=("--sort-section=name",)))
    assert links.waited == [0]


def test_the_build_id_is_of_the_content(o: Options, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Links(monkeypatch)

    def ident(name: str, m: Path, *args: str) -> bytes:
        data = image(m, tmp_path / name, replace(o, link_args=args))
        at, size = build_id_place(Elf(data)) or (0, 0)
        return data[at : at + size]

    m = model(tmp_path / "m.onnx")
    first = ident("a.so", m)
    assert len(first) == 20 and any(first) and ident("b.so", m) == first
    assert ident("c.so", model(tmp_path / "m.onnx", bit=1)) != first
    assert ident("d.so", m, "--build-id=0xabcdef") == b"\xab\xcd\xef"
    assert ident("e.so", m, "--build-id=none") == b""


@pytest.mark.parametrize("lto", ["none", "full"])
def test_new_weights_need_no_link(lto: Lto, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    m, o = model(tmp_path / "m.onnx"), Options(target=resolve("host"), cache=tmp_path / "cache", lto=lto)
    first = image(m, tmp_path / "a.so", o)
    commands: list[list[str]] = []
    run = toolchain.run

    def told(command: list[str], **more: Any) -> Any:
        commands.append(command)
        return run(command, **more)

    monkeypatch.setattr(toolchain, "run", told)
    model(m, bit=1)
    again = image(m, tmp_path / "a.so", o)
    assert not any("ld.lld" in c for c in commands)
    assert again == image(m, tmp_path / "b.so", replace(o, cache=None)) != first
    assert any("ld.lld" in c for c in commands)


SCRIPT = r"""
import re, sys
from pathlib import Path
from monobloc.driver import build
import monobloc.frontend.importer, monobloc.link.final
from monobloc.options import Options
from monobloc.targets import resolve
peak = lambda: int(re.search(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text())[1])
before = peak()
build([Path(sys.argv[1])], Path(sys.argv[2]), "shared", Options(target=resolve("host"), cache=Path(sys.argv[3])))
print(peak() - before)
"""


def test_a_build_holds_a_few_weights_at_a_time(tmp_path: Path) -> None:
    """Sixteen of four MiB: neither the model nor what is packed of it is ever in memory as a whole."""
    m = model(tmp_path / "m.onnx", wide=1024, layers=16)
    ran = subprocess.run([sys.executable, "-c", SCRIPT, m, tmp_path / "m.so", tmp_path / "cache"], check=True,
                         capture_output=True, text=True)  # fmt: skip
    assert (tmp_path / "m.so").stat().st_size > 60 << 20
    assert int(ran.stdout) < 50 << 10  # KiB
