"""What an image looks like to the system: large weights out of reach, stripped, sizes."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import pytest

from monobloc.driver import build, compile_to_object, link
from monobloc.object import elf
from monobloc.options import Emit, Options

ROOT = Path(__file__).resolve().parents[2]
MODEL = ROOT / "examples" / "mnist8.onnx"


def output(exe: Path, folder: Path) -> bytes:
    out = folder / f"{exe.name}.npy"
    subprocess.run([exe, "--seed", "7", "-o", out], check=True, timeout=60, capture_output=True)
    return np.load(out).tobytes()


def options(lto: str, large: bool, **more: object) -> Options:
    return Options(lto=lto, large_over=1000 if large else 1 << 30, cache=None, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize("lto", ["none", "thin", "full"])
def test_weights_that_are_far_away_give_the_same_bits(lto: str, tmp_path: Path) -> None:
    near, far = tmp_path / "near", tmp_path / "far"
    build([MODEL], near, "exe", options(lto, large=False))
    build([MODEL], far, "exe", options(lto, large=True))
    names = {s.name: s for s in elf.sections(far.read_bytes())}
    assert names[".lrodata"].size > 30_000 and names[".lrodata"].flags & elf.SHF_X86_64_LARGE
    assert ".lrodata" not in {s.name for s in elf.sections(near.read_bytes())}
    assert output(near, tmp_path) == output(far, tmp_path)


@pytest.mark.parametrize("graph_lto", [True, False])
@pytest.mark.parametrize("lto", ["none", "thin"])
def test_objects_with_large_weights_link(lto: str, graph_lto: bool, tmp_path: Path) -> None:
    o = options(lto, large=True, graph_lto=graph_lto)
    compile_to_object(MODEL, tmp_path / "m.o", o)
    assert any(s.name.startswith(".lrodata.mb.") for s in elf.sections((tmp_path / "m.o").read_bytes()))
    link([tmp_path / "m.o"], tmp_path / "exe", "exe", o)
    build([MODEL], tmp_path / "plain", "exe", options(lto, large=False, graph_lto=graph_lto))
    assert output(tmp_path / "exe", tmp_path) == output(tmp_path / "plain", tmp_path)


def test_no_code_reaches_large_weights_by_32_bits(tmp_path: Path) -> None:
    """Distances in code to a weight must be 64 bits wide, or 3 GB of them do not link."""
    made = tmp_path / "m.o"
    compile_to_object(MODEL, made, options("none", large=True))
    e = elf.Elf(made.read_bytes())
    wide = {1, 24, 25, 27, 28, 29}  # R_X86_64: 64, PC64, GOTOFF64, GOT64, GOTPCREL64, GOTPC64
    kinds = set()
    for s in e.sections:
        if s.type == elf.SHT_RELA and e.sections[s.info].flags & elf.SHF_EXECINSTR:
            data = bytes(e.content(s))
            for at in range(0, len(data), 24):
                info = int.from_bytes(data[at + 8 : at + 16], "little")
                if e.symbols[info >> 32].name.startswith("mb_w_"):
                    kinds.add(info & 0xFFFFFFFF)
    assert kinds and kinds <= wide, kinds


@pytest.mark.parametrize(("emit", "name"), [("exe", "x"), ("shared", "x.so")])
def test_images_are_small_and_stripped(emit: Emit, name: str, tmp_path: Path) -> None:
    made = tmp_path / name
    build([MODEL], made, emit, options("thin", large=False))
    data = made.read_bytes()
    e = elf.Elf(data)
    weights = 31_000
    assert len(data) < weights + 42_000, "the runtime or the padding has grown"
    kept = {s.name for s in e.sections if s.index and not s.flags & elf.SHF_ALLOC}
    assert kept <= {".comment", ".shstrtab"}
    end = e.header[6] + e.header[11] * e.header[12]
    assert end == len(data), "nothing lies behind the section table"
