"""The program an executable made from models alone consists of: arguments, .npy files, messages."""

from __future__ import annotations

import re
import shutil
import struct
import subprocess
from pathlib import Path

import numpy as np
import pytest

N = 4000
PIE_RELR = ("-static", "-pie", "--no-dynamic-linker", "-z", "pack-relative-relocs", "-z", "relro")


def call(exe: Path, *args: object, runner: tuple[str, ...] = ()) -> subprocess.CompletedProcess:
    command = [*runner, str(exe), *(str(a) for a in args)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def data(folder: Path, k: int = 2) -> tuple[np.ndarray, Path, Path]:
    x = np.random.default_rng(1).standard_normal((2, N // 2)).astype(np.float32)
    np.save(folder / "x.npy", x)
    np.save(folder / "k.npy", np.int64(k))
    return x, folder / "x.npy", folder / "k.npy"


def expected(x: np.ndarray, k: int) -> np.ndarray:
    return x * np.float32(3) + np.float32(k)


def qemu(arch: str, *args: str) -> tuple[str, ...]:
    path = shutil.which(f"qemu-{arch}")
    if path is None:
        pytest.skip(f"qemu-{arch} is not installed (apt install qemu-user)")
    return (path, *args)


@pytest.mark.parametrize("threads", [1, 2, 4])
def test_values_do_not_depend_on_threads(image, tmp_path, threads):
    x, xp, kp = data(tmp_path)
    done = call(image("exe"), xp, kp, "--threads", threads, "-o", f"{tmp_path}/")
    assert (done.returncode, done.stderr, done.stdout) == (0, "", "")
    assert np.array_equal(np.load(tmp_path / "y.npy"), expected(x, 2))
    z = np.array([c.sum(dtype=np.float64) for c in x.reshape(10, -1)])
    np.testing.assert_allclose(np.load(tmp_path / "z_1.npy"), z, rtol=1e-5, atol=1e-4)
    assert np.load(tmp_path / "parts.npy").tolist() == [threads] * threads + [0] * (8 - threads)
    assert len(set(np.load(tmp_path / "mode.npy")[:threads])) == 1


def test_workers_do_their_part(image, tmp_path):
    args = ("--threads", 2, "--stack", "-o", f"who={tmp_path}/who.npy", "--seed", 0)
    done = call(image("exe"), *args)  # measuring stacks, nobody takes over a part
    assert done.returncode == 0, done.stderr
    first, second = np.load(tmp_path / "who.npy")[:2]
    assert first != second


@pytest.mark.parametrize("link", [PIE_RELR, ("-static", "--gc-sections")], ids=["relr", "fixed"])
def test_other_links(image, tmp_path, link):
    x, xp, kp = data(tmp_path)
    done = call(image("exe", link=link), xp, kp, "-o", f"y={tmp_path}/y.npy")
    assert done.returncode == 0, done.stderr
    assert np.array_equal(np.load(tmp_path / "y.npy"), expected(x, 2))


def test_single_thread_image_has_no_pool(image, tmp_path):
    x, xp, kp = data(tmp_path)
    exe = image("exe", THREADS=1)
    done = call(exe, xp, kp, "-o", f"y={tmp_path}/y.npy", "--stack")
    assert done.returncode == 0, done.stderr
    assert np.array_equal(np.load(tmp_path / "y.npy"), expected(x, 2))
    done = call(exe, xp, kp, "--threads", 2)
    assert done.returncode == 2
    assert "--threads: 2 asked for, the image was built for at most 1" in done.stderr


def test_named_inputs_and_patterns(image, tmp_path):
    x, xp, kp = data(tmp_path, 5)
    done = call(image("exe"), f"k={kp}", xp, "-o", f"{tmp_path}/out-{{}}.npy")
    assert done.returncode == 0, done.stderr
    assert np.array_equal(np.load(tmp_path / "out-y.npy"), expected(x, 5))
    assert not list(tmp_path.glob("*.tmp"))


def test_standard_input_and_output(image, tmp_path):
    x, xp, kp = data(tmp_path)
    exe = image("exe", OUTPUTS=1)
    done = subprocess.run(
        [exe, "-", kp, "-o", "-"], input=xp.read_bytes(), capture_output=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    (tmp_path / "y.npy").write_bytes(done.stdout)
    assert np.array_equal(np.load(tmp_path / "y.npy"), expected(x, 2))


def test_printed_values(image, tmp_path):
    x, xp, kp = data(tmp_path)
    done = call(image("exe"), xp, kp)
    lines = done.stdout.splitlines()
    assert lines[0].startswith("y f32 [2, 2000]: ") and lines[0].endswith(" ...")
    assert [float(v) for v in lines[0].split()[4:12]] == pytest.approx(
        expected(x, 2).ravel()[:8].tolist(), rel=1e-5
    )
    z = x.reshape(10, -1).sum(1)
    assert f"argmax {z.argmax()} (" in lines[1]


def test_random_inputs_are_seeded(image):
    exe = image("exe", OUTPUTS=2)
    first, again, other = (call(exe, "--seed", s) for s in (3, 3, 4))
    assert first.stdout == again.stdout != other.stdout
    assert first.stderr == ""
    assert "note: no input given: random data, seed 0" in call(exe).stderr


def write_npy(path: Path, header: str, payload: bytes, version: int = 1) -> Path:
    text = header.encode("latin1") + b"\n"
    length = struct.pack("<H" if version == 1 else "<I", len(text))
    path.write_bytes(b"\x93NUMPY" + bytes([version, 0]) + length + text + payload)
    return path


HEADER = "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 2000), }"


@pytest.mark.parametrize("version", [1, 2, 3])
@pytest.mark.parametrize("header", [HEADER, HEADER.replace(", }", "}").replace("'", '"')])
def test_header_versions(image, tmp_path, version, header):
    x, _, kp = data(tmp_path)
    path = write_npy(tmp_path / "v.npy", header, x.tobytes(), version)
    done = call(image("exe"), path, kp, "-o", f"y={tmp_path}/y.npy")
    assert done.returncode == 0, done.stderr
    assert np.array_equal(np.load(tmp_path / "y.npy"), expected(x, 2))


FULL = bytes(4 * N)
BAD_FILES = {
    "shape": (
        HEADER.replace("2, 2000", "2000, 2"),
        FULL,
        r"takes f32 \[2, 2000\], the file holds f32 \[2000, 2\]",
    ),
    "rank": (HEADER.replace("2, 2000", "4000,"), FULL, r"the file holds f32 \[4000\]"),
    "dtype": (HEADER.replace("<f4", "<f8"), FULL * 2, r"input 'x' takes f32 .* the file holds f64"),
    "big-endian": (HEADER.replace("<f4", ">f4"), FULL, r"holds '>f4'\n  note: big-endian"),
    "fortran": (HEADER.replace("False", "True"), FULL, "Fortran order"),
    "short": (HEADER, FULL[:-1], "promises 16000 bytes, the file holds 15999"),
    "long": (HEADER, FULL + b"x", "data goes on behind the array"),
    "structured": (HEADER.replace("'<f4'", "[('a', '<f4')]"), FULL, "header is not understood"),
    "negative": (HEADER.replace("2, 2000", "-2, -2000"), FULL, "header is not understood"),
    "huge": (HEADER.replace("2000", "9" * 40), FULL, "header is not understood"),
    "no shape": ("{'descr': '<f4', 'fortran_order': False}", FULL, "header is not understood"),
    "object": (HEADER.replace("<f4", "|O"), FULL, r"holds '\|O'"),
    "rank 40": (HEADER.replace("2, 2000", "1, " * 40), FULL, "header is not understood"),
}


@pytest.mark.parametrize("name", BAD_FILES)
def test_bad_files(image, tmp_path, name):
    header, payload, message = BAD_FILES[name]
    _, _, kp = data(tmp_path)
    path = write_npy(tmp_path / "bad.npy", header, payload)
    done = call(image("exe"), path, kp)
    assert done.returncode == 1 and done.stdout == ""
    assert done.stderr.startswith(f"error: {path}: ")
    assert re.search(message, done.stderr), done.stderr


@pytest.mark.parametrize("cut", [0, 5, 9, 11, 40])
def test_cut_headers(image, tmp_path, cut):
    _, xp, kp = data(tmp_path)
    xp.write_bytes(xp.read_bytes()[:cut])
    done = call(image("exe"), xp, kp)
    assert done.returncode == 1 and re.match(r"error: .*x.npy: .*(short|bytes)", done.stderr)


def test_mutated_headers_never_crash(image, tmp_path):
    _, xp, kp = data(tmp_path)
    original, rng = bytearray(xp.read_bytes()), np.random.default_rng(7)
    for _ in range(60):
        b = bytearray(original)
        for at in rng.integers(0, 128, rng.integers(1, 4)):
            b[at] = rng.integers(0, 256)
        xp.write_bytes(b)
        done = call(image("exe"), xp, kp)
        assert done.returncode in (0, 1), (bytes(b[:128]), done)
        assert done.returncode == 0 or done.stderr.startswith("error: ")


MISUSES = {
    "unknown option": (["--nonsense"], "error: --nonsense: unknown option"),
    "number": (["--repeat", "x"], "error: --repeat: not a usable number"),
    "no number": (["--repeat"], "error: --repeat: a number must follow"),
    "too many": (["a", "b", "c"], "error: c: the model has no input left for it"),
    "missing": (["k=a"], "error: fake: inputs are missing\n  note: 'x' f32 [2, 2000]"),
    "twice": (["k=a", "k=b"], "error: k=b: this input is given twice"),
    "outputs": (["-o", "one.npy"], "error: one.npy: one file for several outputs"),
    "same file": (["-o", "same"], "one file for several outputs"),
    "threads": (
        ["--threads", "9"],
        "error: --threads: 9 asked for, the image was built for at most 4",
    ),
    "model": (
        ["--model", "nope"],
        "error: --model: no model 'nope'\n  note: this image holds 'fake'",
    ),
}


@pytest.mark.parametrize("name", MISUSES)
def test_misuse(image, tmp_path, name):
    args, message = MISUSES[name]
    done = subprocess.run(
        [image("exe"), *args], capture_output=True, text=True, cwd=tmp_path, timeout=60
    )
    assert done.returncode == 2 and message in done.stderr, done.stderr


def test_unreadable_and_unwritable(image, tmp_path):
    _, xp, kp = data(tmp_path)
    done = call(image("exe"), tmp_path / "none.npy", kp)
    assert done.returncode == 1
    assert "none.npy: cannot be opened (no such file or folder)" in done.stderr
    done = call(image("exe"), xp, kp, "-o", f"y={tmp_path}/no/y.npy")
    assert done.returncode == 1 and "y.npy: cannot be written" in done.stderr
    done = call(image("exe"), xp, kp, "-o", f"y={tmp_path}")
    assert done.returncode == 1 and not list(tmp_path.glob("*.tmp"))


def test_status_of_the_lowest_part(image, tmp_path):
    _, xp, kp = data(tmp_path, 8)
    done = call(image("exe"), xp, kp)
    assert done.returncode == 1
    assert done.stderr == "error: fake: an index lies outside of its tensor\n"


def test_several_models(image, tmp_path):
    exe = image("exe", MODELS=2)
    done = call(exe)
    assert done.returncode == 2 and "holds 'fake', 'second'" in done.stderr
    done = call(exe, "--model", "second", "--seed", 1)
    assert done.returncode == 0 and done.stdout.startswith("z/1 f32 [10]: ")
    done = call(exe, "--info")
    assert done.returncode == 0
    assert "model fake\n" in done.stdout and "model second\n" in done.stdout
    assert "  input x f32 [2, 2000]\n  input k i64 []\n" in done.stdout


def test_times_and_stack(image):
    exe = image("exe")
    args = ("--threads", 2, "--repeat", 20, "--time", "--pretouch", "--stack", "--seed", 1)
    done = call(exe, *args)
    assert done.returncode == 0, done.stderr
    numbers = re.search(
        r"time us: first ([\d.]+) min ([\d.]+) median ([\d.]+) p99 ([\d.]+) runs 20", done.stdout
    )
    assert numbers, done.stdout
    first, least, median, p99 = map(float, numbers.groups())
    assert 0 < least <= median <= p99 and least <= first < 1e6
    stack = re.search(r"stack bytes: main (\d+) worker (\d+) bound 16384", done.stdout)
    assert stack, done.stdout
    for used in map(int, stack.groups()):  # layer_note has 2048 bytes on its stack
        assert 2048 < used < 8192


def test_help(image):
    done = call(image("exe"), "--help")
    assert done.returncode == 0 and done.stdout.startswith("usage: ") and done.stderr == ""


def test_cpu_features_are_named_before_anything_runs(image):
    exe = image("exe", FEATURES='"sse2,avx2,no-such-thing,fma"')
    done = call(exe, "--seed", 1, runner=qemu("x86_64", "-cpu", "Nehalem"))
    assert done.returncode == 1
    assert done.stderr == (
        "error: fake: this CPU lacks avx2, no-such-thing, fma\n  note: built for test\n"
    )
    assert call(exe, "--info", runner=qemu("x86_64", "-cpu", "Nehalem")).returncode == 0


def test_features_of_an_emulated_cpu(image):
    exe = image("exe", FEATURES='"sse3,ssse3,sse4.1,sse4.2,popcnt,cx16,fma"')
    done = call(exe, "--seed", 1, runner=qemu("x86_64", "-cpu", "Nehalem"))
    assert "lacks fma\n" in done.stderr


def test_runs_make_no_system_calls(image):
    """After start the executable's system calls do not depend on how often it runs."""

    def trace(repeat: int) -> list[str]:
        runner = qemu("x86_64", "-strace")
        done = call(image("exe", THREADS=1), "--repeat", repeat, "--seed", 1, runner=runner)
        assert done.returncode == 0
        return re.findall(r"^\d+ (\w+)\(", done.stderr, re.MULTILINE)

    once, often = trace(1), trace(40)
    assert once == often
    assert "mprotect" in once  # relocated constants become read-only
    assert not {"brk", "mmap", "open", "openat"} & set(once)


@pytest.mark.parametrize("threads", [1, 3])
def test_aarch64(image, tmp_path, threads):
    x, xp, kp = data(tmp_path)
    exe = image("exe", "aarch64", FEATURES='"neon,fp-armv8"')
    args = (xp, kp, "--threads", threads, "--stack", "-o", f"{tmp_path}/")
    done = call(exe, *args, runner=qemu("aarch64"))
    assert done.returncode == 0, done.stderr
    assert np.array_equal(np.load(tmp_path / "y.npy"), expected(x, 2))
    assert np.load(tmp_path / "mode.npy")[:threads].tolist() == [1 << 24] * threads
    missing = image("exe", "aarch64", FEATURES='"neon,sve2"')
    done = call(missing, "--seed", 1, runner=qemu("aarch64", "-cpu", "cortex-a57"))
    assert done.returncode == 1 and "this CPU lacks sve2" in done.stderr


def test_starts_without_environment(image):
    done = subprocess.run([image("exe")], env={}, capture_output=True, timeout=60)
    assert done.returncode == 0 and done.stdout.startswith(b"y ")
