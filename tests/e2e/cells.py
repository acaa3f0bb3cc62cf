"""The cells of the equivalence matrix: how one program is built, linked, run, and its answers read.

A cell's answers are the bytes of every output of both models for two inputs, in one fixed order,
whatever kind of image they came from. Two families of answers exist:

    graph    the code that the link makes from the graphs
    object   the code that lies in the objects, made with default decisions

Within a family all answers are equal to the bit; across families they agree within tolerance.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Literal

import numpy as np
import programs

from monobloc import driver
from monobloc.link.image import Image
from monobloc.loader import CompiledModel
from monobloc.object import toolchain
from monobloc.options import Emit, Lto, Options
from monobloc.targets import Target, resolve

HERE = Path(__file__).parent
OUTPUTS = {"alpha": ("y", "features"), "beta": ("y",)}
NAMES = tuple(OUTPUTS)


@dataclass(frozen=True)
class Cell:
    """`kind` is what comes out; `parts` what goes into the link; `linker` who links."""

    kind: Literal["shared", "exe", "app"]
    linker: Literal["ours", "gcc", "lld", "lld-fat"] = "ours"
    parts: Literal["models", "objects", "ld-r", "lld-r", "archive", "closed", "closed-archive"] = "models"
    lto: Lto = "thin"
    graph_lto: bool = True
    threads: int = 1
    order: tuple[str, ...] = NAMES
    pie: bool = True

    @property
    def family(self) -> str:
        closed = self.parts in ("closed", "closed-archive")
        return "graph" if closed or (self.linker == "ours" and self.graph_lto) else "object"

    def __str__(self) -> str:
        flags = [self.kind, self.linker, self.parts, self.lto, f"{self.threads}t"]
        flags += ["nograph"] * (not self.graph_lto) + ["nopie"] * (not self.pie)
        return "-".join([*flags, *(["swapped"] * (self.order != NAMES))])


def own_cells() -> Iterator[Cell]:
    """Our link: every mode of LTO, with and without the graphs, one thread and two, every kind of image."""
    for kind, lto, graph_lto, threads in product(
        ("shared", "exe", "app"), ("none", "thin", "full"), (True, False), (1, 2)
    ):
        yield Cell(kind, lto=lto, graph_lto=graph_lto, threads=threads)
    for kind, lto, graph_lto in product(("shared", "app"), ("none", "thin", "full"), (True, False)):
        yield Cell(kind, parts="objects", lto=lto, graph_lto=graph_lto, threads=2, order=NAMES[::-1])
    for parts, lto, graph_lto in product(("ld-r", "lld-r", "archive"), ("none", "thin"), (True, False)):
        yield Cell("app", parts=parts, lto=lto, graph_lto=graph_lto, threads=2)
        yield Cell("exe", parts=parts, lto=lto, graph_lto=graph_lto)


def foreign_cells() -> Iterator[Cell]:
    """Somebody else's link of our objects, of objects joined before, and of what `link -r` closed."""
    for linker, parts, pie in product(("gcc", "lld", "lld-fat"), ("objects", "ld-r", "lld-r"), (True, False)):
        yield Cell("app", linker, parts, threads=1 + pie, pie=pie, order=NAMES if pie else NAMES[::-1])
    for linker, parts, lto in product(("gcc", "lld"), ("closed", "closed-archive"), ("none", "thin", "full")):
        yield Cell("app", linker, parts, lto, threads=2)


def call(*args: object, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    done = subprocess.run([str(a) for a in args], capture_output=True, text=True, cwd=cwd, timeout=120)
    assert done.returncode == 0, f"{' '.join(map(str, args))}\n{done.stdout}{done.stderr}"
    return done


class Bench:
    """A folder with the models, their objects and images; everything is made when it is asked for."""

    def __init__(self, folder: Path, cache: Path, target: Target | None = None) -> None:
        self.folder, self.cache, self.target = folder, cache, target or resolve()
        self.models = programs.write_models(folder)
        self.app = folder / "app.c"
        shutil.copy(HERE / "app.c", self.app)
        self.input = folder / "in.bin"
        self.input.write_bytes(b"".join(_raw_feeds(k) for k in range(2)))

    def options(self, c: Cell, **more: object) -> Options:
        o = Options(target=self.target, lto=c.lto, graph_lto=c.graph_lto, threads=c.threads, jobs=2, cache=self.cache)
        return replace(o, **more)  # type: ignore[arg-type]

    # -- making --
    def object(self, name: str, threads: int) -> Path:
        out = self.folder / f"t{threads}" / f"{name}.o"
        if not out.exists():
            driver.compile_to_object(self.models[name], out, self.options(Cell("app", threads=threads)))
        return out

    def parts(self, c: Cell) -> list[Path]:
        """What represents the models on the link's line."""
        if c.parts == "models":
            return [self.models[n] for n in c.order]
        if c.parts in ("closed", "closed-archive"):
            return [self._closed(c)]
        objects = [self.object(n, c.threads) for n in c.order]
        if c.parts == "objects":
            return objects
        out = self.folder / f"t{c.threads}" / (f"{c.parts}.a" if c.parts == "archive" else f"{c.parts}.o")
        if c.parts == "archive":
            toolchain.archive(objects, out)
        elif c.parts == "ld-r":
            call("ld", "-r", *objects, "-o", out)
        else:
            call(*toolchain.find_tools().lld, "-r", *objects, "-o", out)
        return [out]

    def _closed(self, c: Cell) -> Path:
        emit: Emit = "object" if c.parts == "closed" else "archive"
        out = self.folder / f"{c.parts}-{c.lto}-{c.threads}{'.o' if emit == 'object' else '.a'}"
        if not out.exists():
            driver.link([self.object(n, c.threads) for n in c.order], out, emit, self.options(c))
        return out

    def image(self, c: Cell, out: Path | None = None, **more: object) -> Path:
        """The image of a cell, linked by whom the cell says."""
        out = out or self.folder / (f"{c}.so" if c.kind == "shared" else str(c))
        if c.linker == "ours":
            self._own(c, out, **more)
        else:
            self._foreign(c, out)
        return out

    def _own(self, c: Cell, out: Path, **more: object) -> Image:
        inputs = [*([self.app] if c.kind == "app" else []), *self.parts(c)]
        if c.kind == "app":
            for name in NAMES:  # the headers, where app.c finds them
                header = self.object(name, c.threads).with_suffix(".h")
                shutil.copy(header, self.folder / header.name)
        return driver.build(inputs, out, "shared" if c.kind == "shared" else "exe", self.options(c, **more)).image

    def _foreign(self, c: Cell, out: Path) -> None:
        headers = ["-I", self.object(NAMES[0], c.threads).parent]
        for name in NAMES:
            self.object(name, c.threads)
        pie = ["-pie", "-fPIE"] if c.pie else ["-no-pie", "-fno-pie"]
        source: list[object] = [*headers, self.app]
        if c.linker == "lld-fat":
            made = out.with_suffix(".app.o")
            fat = toolchain.CompileJob(self.app, made, self.target, "fat", hosted=True,
                                       includes=(self.object(NAMES[0], c.threads).parent,), libc=_libc(self.target))
            toolchain.compile_all([fat])
            source = [made]
        lld = ["-B", _lld_folder(self.folder), "-fuse-ld=lld"] if c.linker != "gcc" else []
        lld += ["-Wl,--fat-lto-objects"] if c.linker == "lld-fat" else []
        call("gcc", "-Wall", "-Werror", "-O1", *pie, *lld, *source, *self.parts(c), "-pthread", "-o", out)

    # -- running --
    def answers(self, c: Cell, image: Path, threads: int) -> bytes:
        if c.kind == "app":
            out = image.with_suffix(".bin")
            call(image, self.input, out, threads)
            return out.read_bytes()
        get = _from_library if c.kind == "shared" else _from_exe
        found = [get(image, c, name, programs.feeds(name, k), threads) for k in range(2) for name in NAMES]
        return b"".join(found)


def _libc(target: Target) -> toolchain.Libc:
    from monobloc.object import sysroot

    return sysroot.libc_for(target, None)


def _lld_folder(folder: Path) -> Path:
    """A folder in which gcc finds our lld under the name it looks for."""
    wrapper = folder / "bin" / "ld.lld"
    if not wrapper.exists():
        wrapper.parent.mkdir(exist_ok=True)
        wrapper.write_text(f'#!/bin/sh\nexec {" ".join(toolchain.find_tools().lld)} "$@"\n')
        wrapper.chmod(0o755)
    return wrapper.parent


def _raw_feeds(k: int) -> bytes:
    return b"".join(x.tobytes() for name in NAMES for x in programs.feeds(name, k).values())


def _from_library(path: Path, c: Cell, name: str, feeds: dict[str, np.ndarray], threads: int) -> bytes:
    shown = sorted(c.order) if c.graph_lto else c.order  # an image lists its models by prefix
    m = CompiledModel(path, list(shown).index(name))
    assert m.name == name
    m.set_threads(threads)
    out = m.run(feeds)
    m.stop()
    return b"".join(out[k].tobytes() for k in OUTPUTS[name])


def _from_exe(path: Path, c: Cell, name: str, feeds: dict[str, np.ndarray], threads: int) -> bytes:
    folder = path.parent / f"{path.name}.{name}"
    folder.mkdir(exist_ok=True)
    for k, x in feeds.items():
        np.save(folder / f"{k}.npy", x)
    args = [f"{k}={folder / k}.npy" for k in feeds]
    call(path, "--model", name, *args, "--threads", threads, "-o", f"{folder}/out-{{}}.npy")
    return b"".join(np.load(folder / f"out-{k}.npy").tobytes() for k in OUTPUTS[name])


def as_arrays(answers: bytes, want: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The bytes as arrays of these shapes, for comparing within tolerance."""
    out, at = [], 0
    for w in want:
        out.append(np.frombuffer(answers, w.dtype, w.size, at).reshape(w.shape))
        at += w.nbytes
    assert at == len(answers), f"{len(answers)} bytes of answers, {at} expected"
    return out
