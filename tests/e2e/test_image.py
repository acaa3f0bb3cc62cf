"""What an image is: made from the graph alone, the same bytes from anywhere, hard to break into, silent."""

from __future__ import annotations

import re
import shutil
import struct
import subprocess
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import programs
import pytest
from cells import NAMES, Bench, Cell, call

from monobloc import driver
from monobloc.object import elf, fat, toolchain
from monobloc.options import Options
from monobloc.targets import cpus, resolve

PT_LOAD, PT_DYNAMIC, PT_INTERP, PT_GNU_STACK, PT_GNU_RELRO = 1, 2, 3, 0x6474E551, 0x6474E552
DT_NEEDED, DT_TEXTREL, DT_FLAGS, DF_BIND_NOW = 1, 22, 30, 8


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory, cache: Path) -> Bench:
    return Bench(tmp_path_factory.mktemp("image"), cache)


def test_layers_are_divided_among_threads(bench: Bench) -> None:
    """Else the cells with two threads would prove nothing."""
    for name in NAMES:
        _, low = driver.object_of(bench.models[name], driver.import_model(bench.models[name], Options()),
                                  bench.options(Cell("app", threads=2)))
        assert "mb_parallel_for" in "".join(low.files.values())


# -- made from the graph -------------------------------------------------------------------------------
def without_code(path: Path, out: Path) -> Path:
    """The object with an empty file's code, and no bitcode."""
    (obj,) = fat.read(path)
    weights = {k: fat.Weight(bytes(w.read()), w.align) for k, w in obj.weights.items()}
    empty = b"".join(bytes(c) for c in elf.write_object(elf.Elf(obj.code).machine, [], []))
    replace(obj, code=empty, bitcode=b"", weights=weights).write(out, llvm=toolchain.find_tools().llvm)
    return out


def stripped(path: Path, out: Path) -> Path:
    """As anybody would do it."""
    if not shutil.which("objcopy"):
        pytest.skip("objcopy is not installed (apt-get install binutils)")
    call("objcopy", "-R", ".text*", "-R", ".rela*", "-R", ".monobloc.bc", path, out)
    assert not any(s.name.startswith((".text", ".monobloc.bc")) for s in elf.Elf(out.read_bytes()).sections)
    return out


@pytest.mark.parametrize("strip", [without_code, stripped])
@pytest.mark.parametrize(("kind", "lto"), [("exe", "none"), ("exe", "thin"), ("exe", "full"), ("shared", "thin")])
def test_link_compiles_the_graph(bench: Bench, tmp_path: Path, strip: object, kind: str, lto: str) -> None:
    objects = [bench.object(n, 1) for n in NAMES]
    less = [strip(p, tmp_path / p.name) for p in objects]  # type: ignore[operator]
    images = []
    for k, inputs in enumerate((objects, less)):
        o = bench.options(Cell("exe", lto=lto), cache=None)  # type: ignore[arg-type]
        driver.link(inputs, tmp_path / f"image{k}", kind, o)  # type: ignore[arg-type]
        images.append((tmp_path / f"image{k}").read_bytes())
    assert images[0] == images[1]


def test_stripped_objects_say_what_is_missing(bench: Bench, tmp_path: Path) -> None:
    less = without_code(bench.object("alpha", 1), tmp_path / "alpha.o")
    with pytest.raises(driver.LinkError, match="holds no bitcode"):
        driver.link([less], tmp_path / "x", "exe", bench.options(Cell("exe", graph_lto=False)))


@pytest.mark.parametrize("lto", ["none", "thin", "full"])
def test_objects_with_more_threads_than_the_link(bench: Bench, tmp_path: Path, lto: str) -> None:
    """Their code calls the thread pool, so it comes along."""
    o = bench.options(Cell("exe", lto=lto, graph_lto=False, threads=1))  # type: ignore[arg-type]
    driver.link([bench.object(n, k + 1) for k, n in enumerate(NAMES)], tmp_path / "image", "exe", o)
    call(tmp_path / "image", "--model", "beta", "--threads", 2, "--seed", 1)


def test_equal_weights_are_in_the_image_once(bench: Bench, tmp_path: Path) -> None:
    """`alpha` and `beta` hold one weight in common, which kernels of 16 lanes read alike for one row and for many."""
    cell = Cell("exe", lto="none", parts="models")
    data = bench.image(cell, tmp_path / "image", target=resolve("x86_64-linux", "x86-64-v4")).read_bytes()
    w = programs.common_weight()
    row = w[3].tobytes()  # packing keeps runs of columns together
    assert data.count(row[:64]) == 1


# -- reproducible --------------------------------------------------------------------------------------
@pytest.mark.parametrize("debug", [False, True])
def test_folders_do_not_matter(tmp_path: Path, debug: bool) -> None:
    """Two builds in two folders, each with a cache of its own, from models in two folders."""
    made: list[dict[str, bytes]] = []
    for name in ("one", "two/a folder deeper"):
        folder = tmp_path / name
        models = programs.write_models(folder)
        o = Options(lto="thin", threads=2, jobs=2, cache=folder / "cache", debug=debug)
        driver.compile_to_object(models["alpha"], folder / "alpha.o", o)
        driver.build(list(models.values()), folder / "image", "exe", o)
        driver.build(list(models.values()), folder / "image.so", "shared", o)
        driver.link([folder / "alpha.o"], folder / "closed.o", "object", o)
        files = ("alpha.o", "alpha.h", "image", "image.so", "closed.o")
        made.append({f: (folder / f).read_bytes() for f in files})
    assert [f for f in made[0] if made[0][f] != made[1][f]] == []
    assert str(tmp_path).encode() not in b"".join(made[0].values())


def test_warm_rebuild(tmp_path: Path) -> None:
    """An unchanged program comes out of the cache: the same bytes, at once."""
    models = list(programs.write_models(tmp_path).values())
    o = Options(threads=2, cache=tmp_path / "cache")
    driver.build(models, tmp_path / "cold", "exe", o)
    start = time.process_time()  # however busy the machine is
    again = driver.build(models, tmp_path / "warm", "exe", o)
    took = time.process_time() - start
    assert again.image.cached
    assert (tmp_path / "warm").read_bytes() == (tmp_path / "cold").read_bytes()
    assert took < 3, f"{took:.2f} s"


LARGEST = resolve("x86_64-linux", "x86-64-v4")  # whose objects do not just have the kernels that images have
CHANGES: list[dict[str, object]] = [
    {}, {"lto": "none"}, {"lto": "full"}, {"threads": 2}, {"optimize": "size"}, {"debug": True}, {"graph_lto": False},
    {"name": "other"}, {"keep_outputs": ("y",)}, {"numerics": "strict"}, {"profile": True},
    {"target": resolve(LARGEST.name, cpus(LARGEST.name)[0])}, {"shapes": {"x": (2, 16)}},
]  # fmt: skip


def test_options_that_change_output_are_in_the_key(tmp_path: Path) -> None:
    """A cache shared by builds with different options gives each what it asked for."""
    model = tmp_path / "small.onnx"
    model.write_bytes(programs.small().SerializeToString(deterministic=True))
    base, images = Options(target=LARGEST, cache=tmp_path / "cache"), []
    for change in CHANGES:
        made = []
        for cache in (base.cache, None):
            out = tmp_path / f"{len(images)}.so"
            driver.build([model], out, "shared", replace(base, **change, cache=cache))  # type: ignore[arg-type]
            made.append(out.read_bytes())
        assert made[0] == made[1], change
        images.append(made[0])
    assert len(set(images)) == len(CHANGES), "an option that is here to change the image does not"


# -- hard ----------------------------------------------------------------------------------------------
def segments(data: bytes) -> list[tuple[int, int, int, int]]:
    """(type, flags, offset, size) of every program header."""
    at, size, count = struct.unpack_from("<Q", data, 32)[0], *struct.unpack_from("<HH", data, 54)
    heads = [struct.unpack_from("<IIQQQQQQ", data, at + i * size) for i in range(count)]
    return [(h[0], h[1], h[2], h[5]) for h in heads]


def dynamic(data: bytes) -> list[tuple[int, int]]:
    return [
        struct.unpack_from("<QQ", data, at)
        for kind, _, offset, size in segments(data) if kind == PT_DYNAMIC
        for at in range(offset, offset + size, 16)
    ]  # fmt: skip


@pytest.mark.parametrize("kind", ["exe", "shared", "app"])
@pytest.mark.parametrize("lto", ["none", "thin", "full"])
def test_hardened(bench: Bench, kind: str, lto: str) -> None:
    data = bench.image(Cell(kind, lto=lto, threads=2)).read_bytes()  # type: ignore[arg-type]
    found, tags = segments(data), dict(dynamic(data))
    kinds = [s[0] for s in found]
    assert not [s for s in found if s[0] == PT_LOAD and s[1] & 3 == 3], "a segment is writable and executable"
    assert [s[1] & 1 for s in found if s[0] == PT_GNU_STACK] == [0], "the stack is executable"
    assert PT_GNU_RELRO in kinds and DT_TEXTREL not in tags
    assert tags.get(DT_FLAGS, 0) & DF_BIND_NOW
    assert struct.unpack_from("<H", data, 16)[0] == 3, "no position-independent image"
    needed = [v for t, v in dynamic(data) if t == DT_NEEDED]
    if kind == "app":  # the user's own code calls libc
        assert PT_INTERP in kinds and needed
    else:
        assert PT_INTERP not in kinds and not needed


# -- silent --------------------------------------------------------------------------------------------
def traced(image: Path, folder: Path, *args: object) -> list[str]:
    """Names of the system calls of a run, all threads, in order."""
    if not shutil.which("strace"):
        pytest.skip("strace is not installed (apt-get install strace)")
    log = folder / "strace.txt"
    done = subprocess.run(["strace", "-f", "-o", log, image, *map(str, args)], capture_output=True, text=True)
    if "PTRACE" in done.stderr and done.returncode:
        pytest.skip("strace may not trace here")
    assert done.returncode == 0, done.stderr
    return re.findall(r"^\d+ +(?:<\.\.\. )?(\w+)\(", log.read_text(), re.M)


@pytest.mark.parametrize("lto", ["none", "thin", "full"])
def test_no_system_calls_between_inferences(bench: Bench, tmp_path: Path, lto: str) -> None:
    image = bench.image(Cell("exe", lto=lto))  # type: ignore[arg-type]
    args = ("--model", "beta", "--seed", 1)
    once, often = (traced(image, tmp_path, *args, "--repeat", n) for n in (1, 30))
    assert once == often, "inferences make system calls"
    assert once[0] == "execve" and {"write", "exit_group"} <= set(once)
    assert not {"brk", "mmap", "open", "openat", "mremap", "clone"} & set(once[1:])


def test_threads_only_wait(bench: Bench, tmp_path: Path) -> None:
    """With two threads, more inferences mean more waiting and waking, nothing else."""
    image = bench.image(Cell("exe", threads=2))
    args = ("--model", "alpha", "--seed", 1, "--threads", 2)
    once, often = (traced(image, tmp_path, *args, "--repeat", n) for n in (1, 30))
    quiet = {"futex", "sched_yield"}
    assert sorted(s for s in once if s not in quiet) == sorted(s for s in often if s not in quiet)
    assert {"clone", "clone3"} & set(once), "no thread was started"
    assert not {"brk", "mmap", "open", "openat", "mremap"} & set(often[1:])


def test_bytes_of_answers_are_not_random(bench: Bench, tmp_path: Path) -> None:
    """Seeded random input is the same everywhere: the executable's and numpy's answers can be compared."""
    image = bench.image(Cell("exe"))
    for k in range(2):
        call(image, "--model", "alpha", "--seed", 7, "-o", f"{tmp_path}/{k}-{{}}.npy")
    assert np.array_equal(np.load(tmp_path / "0-y.npy"), np.load(tmp_path / "1-y.npy"))
