"""What a header promised when a model was compiled holds for the image, or the link says that it does not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from monobloc.driver import build, compile_to_object
from monobloc.errors import LinkError
from monobloc.options import Options

MODEL = Path(__file__).parent.parent / "models" / "unet_small.onnx"
APP = """
#include "net.h"
static _Alignas(64) char ram[NET_RAM_MAX];
int main(void) { CALL; return sizeof ram < net_ram_size; }
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, cache: Path) -> Path:
    folder = tmp_path_factory.mktemp("promise")
    compile_to_object(MODEL, folder / "net.o", Options(lto="none", cache=cache, name="net"))
    call = "net_reset_at(ram); if (net_run_at(ram) || net_out_mask_at(ram)[0] > 9) return 2"
    (folder / "own.c").write_text(APP.replace("CALL", call))
    (folder / "image.c").write_text(APP.replace("CALL", "if (net_run() || net_out_mask()[0] > 9) return 2"))
    return folder


@pytest.mark.parametrize("threads", [1, 4])
def test_memory_that_the_application_gives_is_enough(threads: int, folder: Path, cache: Path) -> None:
    """Each thread has scratch memory of its own, and the header was written for one."""
    o = replace(Options(lto="none", cache=cache), threads=threads)
    if threads == 1:
        build([folder / "net.o", folder / "own.c"], folder / "own", "exe", o)
        return
    with pytest.raises(LinkError, match=r"a run needs \d+ bytes, .* says \d+ \(`NET_RAM_MAX`\)"):
        build([folder / "net.o", folder / "own.c"], folder / "own", "exe", o)


def test_memory_of_the_image_is_always_enough(folder: Path, cache: Path) -> None:
    build([folder / "net.o", folder / "image.c"], folder / "image", "exe", Options(lto="none", cache=cache, threads=4))


def test_a_library_says_that_it_needs_more(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    build([folder / "net.o"], folder / "net.so", "shared", Options(lto="none", threads=4))
    assert "must be of `net_ram_size` bytes" in capfd.readouterr().err
