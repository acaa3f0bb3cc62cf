"""Memory regions and budgets: what is in which section, that it stays there, and links that are too large."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnxruntime
import programs
import pytest

from monobloc.cli.settings import read_memory
from monobloc.driver import build
from monobloc.errors import LinkError, ModelError
from monobloc.link import memory
from monobloc.object import elf
from monobloc.options import Emit, Options
from monobloc.targets import Region

FAST = Region("fast", "ram", 16 << 10)
COLD = Region("cold", "flash", 64 << 10, hold=("cold",))

APP = """
#include <stdio.h>
#include <stdint.h>
#include "alpha.h"
__attribute__((section(".itcm.app"), noinline)) static float twice(float x) { return x * 2; }
int main(void) {
  for (int i = 0; i < ALPHA_IN_X_SIZE; i++) alpha_in_x()[i] = twice((float)(i % 23) / 46);
  if (alpha_run()) return 1;
  for (int i = 0; i < ALPHA_OUT_Y_SIZE; i++) printf("%.7g\\n", (double)alpha_out_y()[i]);
  return 0;
}
"""


@pytest.fixture(scope="module")
def alpha(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return programs.write_models(tmp_path_factory.mktemp("regions"))["alpha"]


def _want(alpha: Path) -> np.ndarray:
    x = (np.arange(3 * 32 * 32) % 23 / 23).astype(np.float32).reshape(1, 3, 32, 32)
    return np.asarray(onnxruntime.InferenceSession(str(alpha)).run(["y"], {"x": x})[0]).ravel()


def _link_with_script(block: Path, folder: Path) -> Path:
    """GNU ld puts the regions at addresses of their own, by the sections' names."""
    (folder / "regions.ld").write_text("""
SECTIONS {
  .fast 0x30000000 (NOLOAD) : { KEEP(*(.bss.mb.fast .bss.mb.fast.*)) }
  .cold 0x40000000 : { *(.rodata.mb.cold .rodata.mb.cold.*) }
  .itcm 0x50000000 : { *(.itcm .itcm.*) }
}
INSERT AFTER .bss;
""")
    (folder / "app.c").write_text(APP)
    out = folder / "app"
    command = ["gcc", "-O1", "-no-pie", f"-I{folder}", str(folder / "app.c"), str(block), "-o", str(out),
               f"-Wl,-T,{folder / 'regions.ld'}", "-Wl,--no-warn-rwx-segments"]
    subprocess.run(command, check=True)
    return out


@pytest.mark.skipif(shutil.which("gcc") is None, reason="no gcc whose linker takes a script")
@pytest.mark.parametrize("lto", ["none", "thin", "full"])
def test_regions_survive_lto_and_another_linker(lto: str, alpha: Path, tmp_path: Path) -> None:
    """Buffers and weights are where the script puts their sections; the answers are the same."""
    o = Options(lto=lto, regions=(FAST, COLD))  # type: ignore[arg-type]
    made = build([alpha], tmp_path / "block.o", "archive", o)
    (tmp_path / "alpha.h").write_text(made.programs[0].header)
    image = _link_with_script(tmp_path / "block.o", tmp_path)
    sections = {s.name: s for s in elf.sections(image.read_bytes())}
    assert 1024 < sections[".fast"].size <= 16 << 10 and sections[".fast"].type == elf.SHT_NOBITS
    assert 1024 < sections[".cold"].size <= 64 << 10
    assert sections[".itcm"].size > 0
    banks = {b.name: b.bytes for b in made.programs[0].placement.banks}
    assert sections[".fast"].size >= banks["fast_work"]
    text = subprocess.run([str(image)], check=True, capture_output=True, text=True).stdout
    np.testing.assert_allclose(np.array(text.split(), np.float32), _want(alpha), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("lto", ["none", "thin", "full"])
def test_sections_of_user_code_keep_their_names(lto: str, alpha: Path, tmp_path: Path) -> None:
    """By file a linker script cannot place what link-time optimization made; by section it can."""
    (tmp_path / "app.c").write_text(APP)
    o = Options(lto=lto, regions=(FAST,), debug=True)  # type: ignore[arg-type]
    build([alpha, tmp_path / "app.c"], tmp_path / "app", "exe", o)
    names = {s.name for s in elf.sections((tmp_path / "app").read_bytes())}
    assert ".itcm.app" in names


def test_the_hottest_buffers_are_in_the_region(alpha: Path, tmp_path: Path) -> None:
    made = build([alpha], tmp_path / "a.so", "shared", Options(lto="none", regions=(FAST,)))
    p = made.programs[0].placement
    fast = [v.name for v, offset, *_ in p.buffers if p.bank_at(offset).region == FAST]
    assert fast and all(v.type.bytes <= FAST.size for v, *_ in p.buffers if v.name in fast)  # type: ignore[operator]
    assert not p.bank_at(made.programs[0].interface.inputs[0].offset).region


@pytest.mark.parametrize("emit", ["shared", "exe"])
def test_inputs_and_outputs_in_a_region(emit: Emit, alpha: Path, tmp_path: Path) -> None:
    """Both forms of the accessors find them there."""
    region = Region("dma", "ram", hold=("io",))
    o = Options(lto="none", regions=(region,))
    made = build([alpha], tmp_path / "m", emit, o)
    banks = {b.name: b for b in made.programs[0].placement.banks}
    assert banks["io"].bytes == 0 and banks["dma_io"].bytes >= 4 * 3 * 32 * 32
    x = (np.arange(3 * 32 * 32) % 23 / 23).astype(np.float32).reshape(1, 3, 32, 32)
    if emit == "exe":
        np.save(tmp_path / "x.npy", x)
        command = [str(tmp_path / "m"), str(tmp_path / "x.npy"), "-o", f"y={tmp_path / 'y.npy'}"]
        subprocess.run(command, check=True, capture_output=True)
        got = np.load(tmp_path / "y.npy")
    else:
        from monobloc.loader import load

        got = load(tmp_path / "m").run({"x": x})["y"]
    np.testing.assert_allclose(got.ravel(), _want(alpha), rtol=1e-4, atol=1e-5)


def test_a_region_that_is_too_small_for_what_it_must_hold(alpha: Path, tmp_path: Path) -> None:
    o = Options(lto="none", regions=(Region("dma", "ram", 1000, hold=("io",)),))
    with pytest.raises(LinkError, match="region `dma` has 1000 bytes") as e:
        build([alpha], tmp_path / "a.so", "shared", o)
    assert any("12288 bytes: %x" in n for n in e.value.notes)
    assert not (tmp_path / "a.so").exists()


def test_a_name_that_nothing_has(alpha: Path, tmp_path: Path) -> None:
    o = Options(lto="none", regions=(Region("r", "ram", hold=("nothing",)),))
    with pytest.raises(LinkError, match="region `r` is to hold `nothing`"):
        build([alpha], tmp_path / "a.so", "shared", o)


# -- budgets --------------------------------------------------------------------------------------------
def test_over_the_ram_budget_by_the_plan(alpha: Path, tmp_path: Path) -> None:
    """The error lists what is there all the time and what is alive at the fullest step."""
    with pytest.raises(LinkError, match="over the budget of 20480") as e:
        build([alpha], tmp_path / "a", "exe", Options(lto="none", ram=20 << 10))
    told = "\n".join(e.value.notes)
    assert "12288 bytes all the time: %x" in told and "in step" in told
    assert not (tmp_path / "a").exists()


def test_over_the_ram_budget_by_the_image(alpha: Path, tmp_path: Path) -> None:
    """The application's own data count too, and are named."""
    big = APP.replace("int main", "static char own_buffer[100000];\nint main").replace(
        "return 0;", "own_buffer[alpha_run()] = 1; return own_buffer[5];")
    (tmp_path / "app.c").write_text(big)
    with pytest.raises(LinkError, match="of RAM, over the budget of 102400") as e:
        build([alpha, tmp_path / "app.c"], tmp_path / "app", "exe", Options(lto="none", ram=100 << 10))
    assert any("own_buffer" in n for n in e.value.notes)
    assert not (tmp_path / "app").exists()


def test_over_the_flash_budget(alpha: Path, tmp_path: Path) -> None:
    o = Options(lto="none")
    made = build([alpha], tmp_path / "a", "exe", o)
    weights = made.programs[0].weights_bytes
    with pytest.raises(LinkError, match=f"weights take {weights} bytes, over the budget of 1000") as e:
        build([alpha], tmp_path / "b", "exe", replace(o, flash=1000))
    assert any("%w3" in n for n in e.value.notes)
    with pytest.raises(LinkError, match="bytes of flash, over the budget") as e:
        build([alpha], tmp_path / "b", "exe", replace(o, flash=weights + 1))
    assert any("weight %w3" in n for n in e.value.notes)
    assert not (tmp_path / "b").exists()


def test_cold_weights_leave_until_the_rest_fits(alpha: Path, tmp_path: Path) -> None:
    """The budget of the main flash holds again, because a region takes what it has no room for."""
    whole = build([alpha], tmp_path / "whole.so", "shared", Options(lto="none"))
    size = sum(s.size for s in elf.sections(whole.path.read_bytes())
               if s.flags & elf.SHF_ALLOC and s.type != elf.SHT_NOBITS)
    small = Options(lto="none", flash=size - 20_000)
    with pytest.raises(LinkError, match="of flash, over the budget"):
        build([alpha], tmp_path / "a.so", "shared", small)
    o = replace(small, regions=(COLD,))
    data = build([alpha], tmp_path / "a.a", "archive", o).path.read_bytes()
    moved = [s for s in _members(data) if s.name.startswith(".rodata.mb.cold.")]
    stay = [s for s in _members(data) if s.name.startswith(".rodata.mb.") and s not in moved]
    assert moved and stay and sum(s.size for s in moved) > 15_000
    build([alpha], tmp_path / "a.so", "shared", o)


def _members(archive: bytes) -> list[elf.Section]:
    from monobloc.object import ar

    return [s for m in ar.members(memoryview(archive), None) for s in elf.sections(m.data)]


# -- the file -------------------------------------------------------------------------------------------
def test_the_file_of_regions(tmp_path: Path) -> None:
    path = tmp_path / "board.toml"
    path.write_text("""
[memory]
ram = "256K"
[memory.dtcm]
size = "64K"
section = ".dtcm_bss"
hold = "hot"
[memory.qspi]
kind = "flash"
size = "8M"
hold = ["cold"]
""")
    got = read_memory(path)
    assert got["ram"] == "256K"
    assert got["regions"] == (Region("dtcm", "ram", 64 << 10, ".dtcm_bss", ("hot",)),
                              Region("qspi", "flash", 8 << 20, "", ("cold",)))


@pytest.mark.parametrize(("text", "why"), [
    ("[memory.a]\nkind = \"rom\"", "kind"), ("[memory.a]\nhold = \"cold\"", "does not hold `cold`"),
    ("[memory.a]\nsise = 1", "unknown key `sise`"), ("[memory.\"a b\"]\nsize = 1", "the name `a b`"),
    ("[memory.a]\nsize = \"big\"", "is no size"), ("[other]", "unknown key `other`"),
    ("[memory.a]\nsection = '.bss.\"x'", "the section name"), ("[memory.a]\nsection = \".bss.x\\n\"", "section name"),
    ("[memory.a]\nsection = \".text.a\"", "`.text` sections are for other"),
    ("[memory.a]\nkind = \"flash\"\nsection = \".bss.a\"", "`.bss` sections are for other"),
])
def test_files_of_regions_that_are_wrong(text: str, why: str, tmp_path: Path) -> None:
    (tmp_path / "m.toml").write_text(text)
    with pytest.raises(ModelError, match=why):
        read_memory(tmp_path / "m.toml")


# -- what errors say --------------------------------------------------------------------------------------
def test_scratch_is_listed_with_its_size(alpha: Path, tmp_path: Path) -> None:
    """And counts when the fullest step is looked for."""
    made = build([alpha], tmp_path / "a.so", "shared", Options(lto="none"))
    p = made.programs[0].placement
    need = {n: p.scratch_bytes.get(n, 0) + sum(v.type.bytes for v, at, first, last in p.buffers
                                               if first <= t <= last and not p.bank_at(at).kept)
            for t, n in enumerate(p.order)}
    fullest = max(need, key=lambda n: need[n])
    with pytest.raises(LinkError) as e:
        build([alpha], tmp_path / "b.so", "shared", Options(lto="none", ram=1000))
    assert all(f"(`{fullest.name}`)" in n for n in e.value.notes if "in step" in n)
    told = [n for n in e.value.notes if n.endswith("its scratch")]
    assert len(told) == (fullest in p.scratch_bytes)
    assert all(f" {p.scratch_bytes[fullest]} bytes" in n for n in told)


def test_a_stack_that_is_not_known_is_not_told_as_zero() -> None:
    used = memory.Usage(ram=100, flash=0, in_ram=((90, "buffer"),), in_flash=())
    with pytest.raises(LinkError, match="takes 100 bytes of RAM") as e:
        memory.check_image(used, None, memory.Known(), Options(ram=50))
    assert e.value.notes[0] == "the stack of a run has no known bound and is not counted"
    with pytest.raises(LinkError, match="takes 130 bytes of RAM") as e:
        memory.check_image(used, 30, memory.Known(), Options(ram=50))
    assert e.value.notes[0] == "30 bytes: stack of a run, at most"
