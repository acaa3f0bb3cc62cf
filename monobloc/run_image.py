"""Running images: libraries in this process, executables here or in their target's emulator."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from monobloc import driver
from monobloc.errors import LinkError, ModelError, UnsupportedError
from monobloc.feeds import index_limits
from monobloc.ir.types import DType
from monobloc.loader import TensorSpec, load, spec_of, to_strings
from monobloc.object import ar, elf, fat
from monobloc.options import Options
from monobloc.targets import Target, names, resolve, runs_here

Progress = Callable[[str], None]


class Runnable(Protocol):
    """What both kinds of image can do."""

    @property
    def inputs(self) -> list[TensorSpec]: ...

    @property
    def outputs(self) -> list[TensorSpec]: ...

    def run(self, feeds: Mapping[str, Any] | None = None) -> dict[str, np.ndarray]: ...


@dataclass(frozen=True)
class Executable:
    """An executable with our `main`: inputs and outputs go through .npy files."""

    path: Path
    runner: tuple[str, ...]
    name: str
    inputs: list[TensorSpec]
    outputs: list[TensorSpec]

    def command(self, *words: str) -> list[str]:
        return [*self.runner, str(self.path.resolve()), *words]

    def run(self, feeds: Mapping[str, Any] | None = None) -> dict[str, np.ndarray]:
        with tempfile.TemporaryDirectory(prefix="monobloc-") as tmp:
            words = ["--model", self.name]
            for k, (name, value) in enumerate((feeds or {}).items()):
                array = np.ascontiguousarray(value)
                if array.dtype.kind in "UO":
                    spec = next(s for s in self.inputs if s.name == name)
                    array = to_strings(array, f"input `{name}`", spec.dtype)
                np.save(f"{tmp}/in{k}.npy", array)
                words.append(f"{name}={tmp}/in{k}.npy")
            for k, s in enumerate(self.outputs):
                words += ["-o", f"{s.name}={tmp}/out{k}.npy"]
            call(self.command(*words))
            return {s.name: _loaded(Path(f"{tmp}/out{k}.npy"), s) for k, s in enumerate(self.outputs)}


def _loaded(path: Path, s: TensorSpec) -> np.ndarray:
    a = np.asarray(np.load(path))
    if a.dtype.kind == "S":
        return np.char.decode(a, "utf-8", "replace").astype(object)
    return a.view(s.dtype) if a.dtype.kind == "V" else a


def call(command: Sequence[str], timeout: float | None = None) -> str:
    """stdout of a program that must succeed."""
    try:
        ran = subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False)
    except OSError as e:
        raise LinkError(f"cannot run `{command[0]}`: {(e.strerror or str(e)).lower()}") from None
    if ran.returncode:
        how = f"signal {-ran.returncode}" if ran.returncode < 0 else f"exit code {ran.returncode}"
        told = ran.stderr.strip().removeprefix("error: ")
        raise ModelError(f"the program ended with {how}", notes=[told] if told else [])
    return ran.stdout


# -- opening ------------------------------------------------------------------------------------------
def target_of(data: memoryview) -> Target:
    """The baseline of the machine that a file is for."""
    machine = elf.Elf(data).machine
    for n in names():
        t = resolve(n)
        if t.elf_machine == machine:
            return t
    raise UnsupportedError(f"the image is for {elf.MACHINE_NAMES.get(machine, f'machine {machine}')}, "
                           "which no target describes")


def runner_of(t: Target) -> tuple[str, ...]:
    """Nothing on this machine's own kind, else the target's emulator."""
    if runs_here(t):
        return ()
    if not t.runner or shutil.which(t.runner[0]) is None:
        missing = f"`{t.runner[0]}` is not installed" if t.runner else "it has no emulator"
        raise UnsupportedError(f"{t.name} cannot run here: {missing}",
                               hints=["apt-get install qemu-user"] if t.runner else [])
    return t.runner


def open_image(path: Path) -> Runnable:
    """A library or an executable made by `build`."""
    if not path.is_file():
        raise LinkError(f"cannot run `{path}`: no such file")
    data = ar.map_file(path)
    if not elf.is_elf(data):
        raise LinkError(f"`{path}` is neither a model nor an image")
    parsed, t = elf.Elf(data), target_of(data)
    if parsed.type == elf.ET_REL:
        raise LinkError(f"`{path}` is an object, which cannot run", hints=[f"`monobloc link {path} -o OUT` first"])
    if parsed.header[4]:  # it has an entry
        return _executable(path, runner_of(t))
    if not runs_here(t):
        raise UnsupportedError(f"`{path}` is a library for {t.name}, and only executables run in an emulator",
                               hints=["build it with `--emit exe`"])
    return load(path)


_INFO = re.compile(r"  (input|output) (.*) (\w+) (\[[\d, ]*\])")
_SIZES = re.compile(r"  (sizes|axes) (\S*) (.*)")


def _executable(path: Path, runner: tuple[str, ...]) -> Executable:
    try:
        text = call([*runner, str(path.resolve()), "--info"], timeout=60)
    except ModelError:
        text = ""
    if not text.startswith("model "):
        raise LinkError(f"`{path}` was not made from models alone",
                        hints=["a program with a main of its own is for you to run"])
    lines = text.split("\nmodel ")[0].splitlines()
    if text.count("\nmodel "):
        raise LinkError(f"`{path}` holds several models", hints=[f"`{path} --model NAME` runs one"])
    found: dict[str, list[TensorSpec]] = {"input": [], "output": []}
    for line in lines:
        if m := _INFO.fullmatch(line):
            found[m[1]].append(spec_of(m[2], DType(m[3]).numpy, tuple(ast.literal_eval(m[4]))))
    told = [m for line in lines if (m := _SIZES.fullmatch(line))]
    dims = [m[3] for m in told if m[1] == "sizes"]
    axes = {m[3]: tuple("" if k == "-1" else dims[int(k)] for k in m[2].split(",") if k)
            for m in told if m[1] == "axes"}
    inputs = [replace(s, axes=axes.get(s.name, ())[: len(s.shape)]) for s in found["input"]]
    return Executable(path, runner, lines[0].removeprefix("model "), inputs, found["output"])


@dataclass
class Built:
    """A model built for running, its files kept as long as this lives."""

    image: Runnable
    made: driver.Build
    folder: tempfile.TemporaryDirectory[str]

    @property
    def path(self) -> Path:
        return self.made.path

    @property
    def limits(self) -> dict[str, int]:
        """Of random data: what inputs may index"""
        found = [index_limits(g) for i in self.made.imported.values() for g in i.graphs]
        return {name: min(f[name] for f in found if name in f) for f in found for name in f}


def build_to_run(path: Path, o: Options, progress: Progress) -> Built:
    """A model or object as a library where the target runs here, else as an executable."""
    folder = tempfile.TemporaryDirectory(prefix="monobloc-")
    native = runs_here(o.target)
    runner = () if native else runner_of(o.target)
    out = Path(folder.name) / ("model.so" if native else "model")
    made = driver.build([path], out, "shared" if native else "exe", o, progress)
    return Built(load(out) if native else _executable(out, runner), made, folder)


def is_image(path: Path) -> bool:
    """Whether a file is run as it is; models and objects are built first."""
    if driver.is_model(path) or not path.is_file():
        return False
    data = ar.map_file(path)
    return not (ar.is_archive(data) or fat.is_monobloc(data))
