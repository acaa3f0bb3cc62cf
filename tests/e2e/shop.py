"""A folder with objects of three small models, and what makes code, archives and links in it."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from small_models import dense

from monobloc import driver
from monobloc.errors import MonoblocError
from monobloc.link.image import Image
from monobloc.object import ar, toolchain
from monobloc.options import Emit, Options

NAMES = ("kws", "vad", "seg")
HEADERS = "".join(f"int {n}_run(void); const float *{n}_out_y(void); float *{n}_in_x(void);\n" for n in NAMES)


class Shop:
    """Models come from another folder, if that has them already."""

    def __init__(self, folder: Path, cache: Path, made: Path | None = None) -> None:
        self.folder, self.o = folder, Options(lto="none", cache=cache)
        for k, n in enumerate(NAMES):
            if made is not None:
                shutil.copy(made / f"{n}.o", folder)
                continue
            dense(folder / f"{n}.onnx", seed=k)
            driver.compile_to_object(folder / f"{n}.onnx", folder / f"{n}.o", self.o)

    def code(self, name: str, text: str, native: bool = True, suffix: str = ".c", flags: Sequence[str] = ()) -> Path:
        """Native by the system's compiler, or a fat object by ours."""
        out, source = self.folder / f"{name}.o", self.folder / f"{name}{suffix}"
        begin, end = ('extern "C" {\n', "}\n") if suffix != ".c" else ("", "")
        source.write_text(f"#include <stdio.h>\n{begin}{HEADERS}{end}{text}")
        if native:
            call("cc", "-ffunction-sections", *flags, "-c", source, "-o", out)
        else:
            driver.compile_source(source, out, self.o)
        return out

    def app(self, *calls: str, native: bool = True) -> Path:
        body = " ".join(f'printf("%d\\n", {c});' for c in calls)
        return self.code("app", f"int main(void) {{ {body} return 0; }}\n", native)

    def archive(self, name: str, *members: str | Path, thin: bool = False) -> Path:
        out = self.folder / name
        out.unlink(missing_ok=True)
        paths = [m if isinstance(m, Path) else self.folder / f"{m}.o" for m in members]
        if thin:
            call("ar", "rcsT", out.name, *(p.name for p in paths), cwd=self.folder)
            assert out.read_bytes()[:8] == ar.THIN
        else:
            toolchain.archive(paths, out)
        return out

    def link(self, *words: Path | str, emit: Emit = "exe", libs: Sequence[str] = (), **more: object) -> Image:
        o = replace(self.o, **more)  # type: ignore[arg-type]
        return driver.link(words, self.folder / "out", emit, o, libs=libs, libdirs=[self.folder])

    def models(self, *words: Path | str, **more: object) -> list[str]:
        """The prefixes of the models that are in the image, which runs."""
        image = self.link(*words, **more)  # type: ignore[arg-type]
        call(image.path)
        return [m.prefix for m in image.modules]

    def told(self, *words: Path | str, **more: object) -> str:
        with pytest.raises(MonoblocError) as e:
            self.link(*words, **more)  # type: ignore[arg-type]
        return str(e.value)


def call(*words: object, cwd: Path | None = None) -> str:
    done = subprocess.run([str(w) for w in words], capture_output=True, text=True, cwd=cwd, timeout=60)
    assert done.returncode == 0, f"{words}\n{done.stdout}{done.stderr}"
    return done.stdout
