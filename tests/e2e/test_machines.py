"""Other machines: cross builds under an emulator, older levels of this one, and CPUs that lack what was asked."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import numpy as np
import programs
import pytest
from cells import NAMES, OUTPUTS, Bench, Cell, call

from monobloc import driver
from monobloc.errors import LinkError
from monobloc.frontend.importer import load_onnx
from monobloc.ir.interp import interpret
from monobloc.options import Options
from monobloc.targets import cpus, names, resolve, runs_here

RTOL = ATOL = 2e-5
OLD_CPU = "Nehalem"  # SSE4.2, no AVX


def emulator(target: str, *args: str) -> list[str]:
    runner = resolve(target).runner
    found = shutil.which(runner[0]) if runner else None
    if found is None:
        pytest.skip(f"no emulator for {target} (apt-get install qemu-user)")
    return [found, *runner[1:], *args]


@pytest.fixture(scope="module")
def oracle(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[np.ndarray]]:
    models = programs.write_models(tmp_path_factory.mktemp("oracle"))
    out = {}
    for name in NAMES:
        ys = interpret(load_onnx(models[name]).graph, programs.feeds(name))
        out[name] = [ys[o] for o in OUTPUTS[name]]
    return out


def run_exe(command: list[str], name: str, folder: Path, threads: int = 1) -> list[np.ndarray]:
    folder.mkdir(exist_ok=True)
    feeds = programs.feeds(name)
    for k, x in feeds.items():
        np.save(folder / f"{k}.npy", x)
    args = [f"{k}={folder / k}.npy" for k in feeds]
    call(*command, "--model", name, *args, "--threads", threads, "-o", f"{folder}/out-{{}}.npy")
    return [np.load(folder / f"out-{k}.npy") for k in OUTPUTS[name]]


def levels() -> list[tuple[str, str]]:
    return [(name, cpu) for name in names() for cpu in cpus(name)]


@pytest.mark.parametrize(("target", "cpu"), levels())
def test_runs_on(cache: Path, oracle: dict[str, list[np.ndarray]], tmp_path: Path, target: str, cpu: str) -> None:
    """Every level of every target: natively where it runs here, else under the emulator."""
    t = resolve(target, cpu)
    command = [] if runs_here(t) else emulator(target)
    if not runs_here(t) and t.f32_lanes == 16:
        pytest.skip("the emulator has no such vectors")
    models = list(programs.write_models(tmp_path).values())
    answers = []
    for lto, threads in (("none", 1), ("thin", 2), ("full", 2)):
        o = Options(target=t, lto=lto, threads=threads, cache=cache, jobs=2)  # type: ignore[arg-type]
        image = driver.build(models, tmp_path / f"{lto}{threads}", "exe", o).path
        for use in range(1, threads + 1):
            got = [run_exe([*command, str(image)], n, tmp_path / n, use) for n in NAMES]
            for name, ys in zip(NAMES, got, strict=True):
                for y, want in zip(ys, oracle[name], strict=True):
                    np.testing.assert_allclose(y, want, RTOL, ATOL)
            answers.append(b"".join(y.tobytes() for ys in got for y in ys))
    assert len(set(answers)) == 1, "the modes of LTO or the threads differ"


@pytest.mark.parametrize("target", [n for n in names() if not runs_here(resolve(n))])
def test_objects_of_another_machine(target: str, tmp_path: Path, cache: Path) -> None:
    """A link compiles graphs, and a graph is for every machine; only its own code is not."""
    model = programs.write_models(tmp_path)["alpha"]
    driver.compile_to_object(model, tmp_path / "alpha.o", Options(target=resolve(target), cache=cache))
    driver.link([tmp_path / "alpha.o"], tmp_path / "linked", "exe", Options(cache=cache))
    driver.build([model], tmp_path / "built", "exe", Options(cache=cache))
    assert (tmp_path / "linked").read_bytes() == (tmp_path / "built").read_bytes()
    for lto in ("none", "thin"):
        with pytest.raises(LinkError, match=f"alpha.o holds code for {target}, this link is for {resolve().name}"):
            driver.link([tmp_path / "alpha.o"], tmp_path / "x", "exe", Options(graph_lto=False, lto=lto, cache=cache))


MAIN = """
#include <stdio.h>
#include "alpha.h"
int main(void) {
  int status = alpha_run();
  printf("%d %s\\n", status, alpha_strerror(status));
  return status;
}
"""


@pytest.fixture(scope="module")
def modern(tmp_path_factory: pytest.TempPathFactory, cache: Path) -> Bench:
    """A bench whose images need more than the old CPU has."""
    here = resolve()
    if "x86_64" not in here.runner[-1]:
        pytest.skip("only x86-64 has levels that an emulated CPU lacks")
    return Bench(tmp_path_factory.mktemp("modern"), cache, resolve(here.name, "x86-64-v3"))


@pytest.mark.parametrize("lto", ["none", "thin", "full"])
def test_executable_names_what_the_cpu_lacks(modern: Bench, lto: str) -> None:
    image = modern.image(Cell("exe", lto=lto, threads=2))  # type: ignore[arg-type]
    command = [*emulator(modern.target.name, "-cpu", OLD_CPU), str(image), "--model", "alpha", "--seed", "1"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 1, done
    assert "this CPU lacks avx, avx2, bmi, bmi2, f16c, fma, lzcnt, movbe" in done.stderr
    assert "built for x86_64-linux x86-64-v3" in done.stderr and done.stdout == ""


@pytest.mark.skipif(not shutil.which("gcc"), reason="no gcc: apt-get install gcc")
@pytest.mark.parametrize("parts", ["objects", "closed", "closed-archive"])
def test_library_returns_an_error(modern: Bench, tmp_path: Path, parts: str) -> None:
    cell = Cell("app", "gcc", parts, lto="thin")  # type: ignore[arg-type]
    (tmp_path / "main.c").write_text(MAIN)
    headers = modern.object("alpha", 1).parent
    call("gcc", "-I", headers, tmp_path / "main.c", *modern.parts(cell), "-o", tmp_path / "main")
    command = [*emulator(modern.target.name, "-cpu", OLD_CPU), str(tmp_path / "main")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (3, "3 this CPU lacks features the model was built for\n"), done


def test_old_cpu_runs_the_baseline(oracle: dict[str, list[np.ndarray]], cache: Path, tmp_path: Path) -> None:
    here = resolve()
    if "x86_64" not in here.runner[-1]:
        pytest.skip("only x86-64 has levels that an emulated CPU lacks")
    models = list(programs.write_models(tmp_path).values())
    o = Options(target=resolve(here.name), cache=cache)
    image = driver.build(models, tmp_path / "image", "exe", o).path
    command = [*emulator(here.name, "-cpu", OLD_CPU), str(image)]
    for name in NAMES:
        for y, want in zip(run_exe(command, name, tmp_path / name), oracle[name], strict=True):
            np.testing.assert_allclose(y, want, RTOL, ATOL)
