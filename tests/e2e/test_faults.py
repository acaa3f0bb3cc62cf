"""Builds that are killed, caches that are damaged, shared, full or read-only: the right image or an error.

The image must be the one of an undisturbed build, byte for byte, and nothing half-written may stay.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from monobloc.cache import Cache
from monobloc.object.toolchain import CompileJob, Made, Tools, compile_all, compile_here
from monobloc.targets import resolve

ROOT = Path(__file__).resolve().parents[2]
MNIST = ROOT / "examples" / "mnist8.onnx"
SEED = 4


def command(out: Path, cache: Path, lto: str = "thin") -> list[str]:
    return [sys.executable, "-m", "monobloc", "build", str(MNIST), "-o", str(out), "--lto", lto, "--cache", str(cache)]


def start(line: list[str], folder: Path) -> subprocess.Popen[bytes]:
    """A build in a process group of its own, with its temporary files in `folder`."""
    folder.mkdir(exist_ok=True)
    env = os.environ | {"TMPDIR": str(folder), "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=env, start_new_session=True)


def run(line: list[str], folder: Path) -> tuple[int, str]:
    p = start(line, folder)
    told = p.communicate(timeout=120)[0].decode()
    return p.returncode, told


@pytest.fixture(scope="module")
def right(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, Path, float]:
    """The undisturbed image, the cache it left, and the seconds it took."""
    folder = tmp_path_factory.mktemp("right")
    begin = time.monotonic()
    code, told = run(command(folder / "m", folder / "cache"), folder / "tmp")
    assert code == 0, told
    return (folder / "m").read_bytes(), folder / "cache", time.monotonic() - begin


def half_written(folder: Path) -> list[Path]:
    """What a writer that never renamed left under the name of a result."""
    return [p for p in folder.iterdir() if p.name not in ("m", "cache", "tmp") and not p.name.startswith(".")]


# -- killed ---------------------------------------------------------------------------------------------
def test_a_build_killed_at_any_moment(right: tuple[bytes, Path, float], tmp_path: Path) -> None:
    """Together with its compilers; the next build with the same cache gives the right image."""
    image, _, seconds = right
    rng, out, cache = random.Random(SEED), tmp_path / "m", tmp_path / "cache"
    for k in range(6):
        p = start(command(out, cache), tmp_path / "tmp")
        time.sleep(seconds * (0.15 + 0.14 * k) * rng.uniform(0.8, 1.2))
        os.killpg(p.pid, signal.SIGKILL)
        p.communicate()
        assert not out.exists() or out.read_bytes() == image
        assert not half_written(tmp_path)
    assert run(command(out, cache), tmp_path / "tmp")[0] == 0 and out.read_bytes() == image


def children(pid: int) -> list[int]:
    try:
        found = [int(c) for t in Path(f"/proc/{pid}/task").iterdir() for c in (t / "children").read_text().split()]
    except (OSError, ValueError):
        return []
    return [x for c in found for x in (c, *children(c))]


@pytest.mark.parametrize("nth", [0, 2, 5])
def test_a_compiler_killed_in_the_middle(nth: int, right: tuple[bytes, Path, float], tmp_path: Path) -> None:
    """Killed alone: an error that names the job and the signal, no image; or it was done, and all is right."""
    out, cache = tmp_path / "m", tmp_path / "cache"
    p, killed = start(command(out, cache), tmp_path / "tmp"), set()
    while p.poll() is None:
        for c in children(p.pid):
            if c in killed or not _compiles(c):
                continue
            killed.add(c)
            if len(killed) == nth + 1:
                try:
                    os.kill(c, signal.SIGKILL)
                except ProcessLookupError:
                    killed.remove(c)
        time.sleep(0.002)
    told = p.communicate()[0].decode()
    if p.returncode:
        assert p.returncode == 1 and "failed with signal 9" in told and "Traceback" not in told, told
        assert not out.exists()
    assert not half_written(tmp_path)
    assert run(command(out, cache), tmp_path / "tmp")[0] == 0 and out.read_bytes() == right[0]


def _compiles(pid: int) -> bool:
    try:
        return b"-c\0-x" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


# -- damaged --------------------------------------------------------------------------------------------
def _flip(p: Path) -> None:
    data = bytearray(p.read_bytes())
    data[random.Random(len(data)).randrange(len(data))] ^= 4
    p.write_bytes(data)


def _folder(p: Path) -> None:
    p.unlink()
    (p / "inside").mkdir(parents=True)


def _unreadable(p: Path) -> None:
    p.unlink()
    p.symlink_to("/proc/self/mem")


def _elsewhere(p: Path) -> None:
    p.unlink()
    p.symlink_to(p.parent / "nowhere")


DAMAGES: dict[str, Callable[[Path], None]] = {
    "truncated": lambda p: os.truncate(p, p.stat().st_size // 2),
    "bit flipped": _flip,
    "empty": lambda p: os.truncate(p, 0),
    "folder": _folder,
    "unreadable": _unreadable,
    "dangling": _elsewhere,
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_every_entry_damaged(damage: str, right: tuple[bytes, Path, float], tmp_path: Path) -> None:
    """All at once, LLVM's own among them: what is damaged counts as absent."""
    cache, out = tmp_path / "cache", tmp_path / "m"
    shutil.copytree(right[1], cache)
    ours, llvms = list((cache / "entries").glob("*/*")), list((cache / "lto").glob("*/llvmcache-*"))
    assert len(ours) >= 5 and len(llvms) >= 2
    for p in (*ours, *llvms):
        DAMAGES[damage](p)
    code, told = run(command(out, cache), tmp_path / "tmp")
    assert code == 0, told
    assert out.read_bytes() == right[0]
    again = run(command(out, cache), tmp_path / "tmp")
    assert again[0] == 0 and out.read_bytes() == right[0]


def test_an_entry_under_another_key(right: tuple[bytes, Path, float], tmp_path: Path) -> None:
    """Whole files, but swapped among each other, as a bad restore of a backup does."""
    cache, out = tmp_path / "cache", tmp_path / "m"
    shutil.copytree(right[1], cache)
    entries = sorted(p for p in (cache / "entries").glob("*/*"))
    contents = [p.read_bytes() for p in entries]
    for p, data in zip(entries, contents[1:] + contents[:1], strict=True):
        p.write_bytes(data)
    code, told = run(command(out, cache), tmp_path / "tmp")
    assert code == 0 and out.read_bytes() == right[0], told


# -- shared ---------------------------------------------------------------------------------------------
def test_two_builds_share_one_cache(right: tuple[bytes, Path, float], tmp_path: Path) -> None:
    outs = [tmp_path / "a" / "m", tmp_path / "b" / "m"]
    for out in outs:
        out.parent.mkdir()
    running = [start(command(out, tmp_path / "cache"), out.parent / "tmp") for out in outs]
    told = [p.communicate(timeout=120)[0].decode() for p in running]
    assert [p.returncode for p in running] == [0, 0], told
    assert all(out.read_bytes() == right[0] for out in outs)


# -- no room, no right to write ---------------------------------------------------------------------------
def test_a_cache_that_cannot_be_written(right: tuple[bytes, Path, float], tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file where the folder should be")
    code, told = run(command(tmp_path / "m", tmp_path / "cache"), tmp_path / "tmp")
    assert code == 0 and (tmp_path / "m").read_bytes() == right[0], told


@pytest.mark.parametrize("room", [2_000, 20_000, 40_000])
def test_no_room_for_files(room: int, right: tuple[bytes, Path, float], tmp_path: Path) -> None:
    """No file may grow beyond `room` bytes, as on a full disk: the right image or an error, nothing half-written."""
    out, cache = tmp_path / "m", tmp_path / "cache"
    limited = (
        f"import resource, runpy, sys; resource.setrlimit(resource.RLIMIT_FSIZE, ({room}, {room}))\n"
        "runpy.run_module('monobloc', run_name='__main__')\n"
    )
    line = [sys.executable, "-c", limited, *command(out, cache)[3:]]
    code, told = run(line, tmp_path / "tmp")
    assert "Traceback" not in told
    if code:
        assert code == 1 and not out.exists() and "error:" in told, told
    else:
        assert out.read_bytes() == right[0]
    assert not half_written(tmp_path)
    assert run(command(out, cache), tmp_path / "tmp")[0] == 0 and out.read_bytes() == right[0]


# -- jobs are data ----------------------------------------------------------------------------------------
def test_a_job_is_a_pure_function(tmp_path: Path) -> None:
    """The same job in another folder, another process and another environment gives the same bytes."""
    text = b'#include "mb/base.h"\nfloat twice(float x) { return mb_add(x, x); }\n'
    include = ROOT / "monobloc/csrc/include"
    job = CompileJob(text, tmp_path / "here.o", resolve("x86_64-linux"), includes=(include,), name="a.c")
    compile_all([job], 1, Cache(tmp_path / "cache"))
    moved = tmp_path / "elsewhere"
    shutil.copytree(include, moved / "headers")
    code = (
        "import sys; from pathlib import Path; from monobloc.object.toolchain import CompileJob, compile_all\n"
        "from monobloc.targets import resolve\n"
        f"job = CompileJob({text!r}, Path('there.o'), resolve('x86_64-linux'), "
        "includes=(Path('headers'),), name='a.c')\n"
        "compile_all([job])\n"
    )
    env = {"PYTHONPATH": str(ROOT), "CPATH": "/nowhere", "TMPDIR": str(tmp_path), "PATH": os.defpath}
    env["SOURCE_DATE_EPOCH"] = "7"
    subprocess.run([sys.executable, "-c", code], cwd=moved, env=env, check=True)
    assert (moved / "there.o").read_bytes() == (tmp_path / "here.o").read_bytes()


def test_jobs_may_run_elsewhere(tmp_path: Path) -> None:
    """One function is all that a remote executor replaces; what it made is cached as our own would be."""
    met: list[str] = []

    def elsewhere(job: CompileJob, tools: Tools) -> Made:
        met.append(job.file_name)
        return compile_here(replace(job, out=tmp_path / "far" / job.out.name), tools)

    cache, target = Cache(tmp_path / "cache"), resolve("x86_64-linux")
    jobs = [CompileJob(f"int f{k};\n".encode(), tmp_path / f"{k}.o", target, name=f"{k}.c") for k in range(2)]
    assert [c.cached for c in compile_all(jobs, 2, cache, execute=elsewhere)] == [False, False]
    assert [c.cached for c in compile_all(jobs, 2, cache, execute=elsewhere)] == [True, True]
    assert sorted(met) == ["0.c", "1.c"]
