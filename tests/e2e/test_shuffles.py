"""The order of Modules and the number of jobs change no byte; the user's own objects keep their order."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from programs import write_models

from monobloc.driver import compile_parts, compile_source, import_model, link, module_of
from monobloc.object import sysroot
from monobloc.options import Options
from monobloc.targets import resolve

SHUFFLES = 20


@pytest.fixture(scope="module")
def parts(cache: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two models, each in parts of their own."""
    folder = tmp_path_factory.mktemp("parts")
    o = Options(lto="none", cache=cache, partitions=3)
    out = []
    for name, path in write_models(folder).items():
        out += compile_parts(module_of(path, import_model(path, o), o), folder / f"{name}.o", o)
    assert len(out) == 6
    return out


@pytest.mark.parametrize("lto", ["none", "thin", "full"])
def test_shuffled_modules_give_one_image(lto: str, parts: list[Path], cache: Path, tmp_path: Path) -> None:
    """Linked with a dump, which no image cache answers: equal bytes come from equal work."""
    rng, images = np.random.default_rng(77), set()
    for k in range(SHUFFLES):
        o = Options(lto=lto, cache=cache, jobs=1 + k % 2, dump=tmp_path / "dump")  # type: ignore[arg-type]
        order = [parts[i] for i in rng.permutation(len(parts))]
        link(order, tmp_path / "x.so", "shared", o)
        images.add((tmp_path / "x.so").read_bytes())
    assert len(images) == 1


def test_jobs_without_a_cache_give_one_image(parts: list[Path], tmp_path: Path) -> None:
    images = set()
    for jobs in (1, 2):
        link(parts, tmp_path / "x.so", "shared", Options(lto="thin", jobs=jobs))
        images.add((tmp_path / "x.so").read_bytes())
    assert len(images) == 1


CONSTRUCTOR = """
#include <stdio.h>
__attribute__((constructor)) static void start(void) {{ putchar('{letter}'); }}
"""


@pytest.mark.parametrize("lto", ["none", "thin", "full"])
@pytest.mark.parametrize("letters", ["abc", "cab"])
def test_the_users_objects_keep_their_order(
    lto: str, letters: str, parts: list[Path], cache: Path, tmp_path: Path
) -> None:
    """Constructors run in the order of the command line, wherever the models stand between them."""
    if sysroot.system_libc(resolve()) is None:
        pytest.skip("no system compiler with a libc here")
    o = Options(lto=lto, cache=cache)  # type: ignore[arg-type]
    (tmp_path / "main.c").write_text("int alpha_run(void);\nint main(void) { return alpha_run(); }\n")
    made = []
    for name, text in [("main", ""), *((x, CONSTRUCTOR.format(letter=x)) for x in letters)]:
        source = tmp_path / f"{name}.c"
        if text:
            source.write_text(text)
        made.append(tmp_path / f"{name}.o")
        compile_source(source, made[-1], o)
    for order in ([*parts, *made], [made[0], *parts[3:], made[1], made[2], *parts[:3], made[3]]):
        link(order, tmp_path / "app", "exe", replace(o, dump=None))
        ran = subprocess.run([tmp_path / "app"], capture_output=True, text=True, check=True)
        assert ran.stdout == letters
