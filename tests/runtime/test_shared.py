"""Shared libraries in a process that is not ours: threads, fork, unloading, two callers."""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from build import CSRC, HERE, call, fake_defines
from monobloc.targets import aarch64_linux, resolve, x86_64_linux

N = 4000
OFFSET_K, OFFSET_Y = 4 * N, 4 * N + 8
Status = ctypes.CFUNCTYPE(ctypes.c_int)
StatusAt = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)
VoidAt = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
Void = ctypes.CFUNCTYPE(None)
Text = ctypes.c_char_p


class Tensor(ctypes.Structure):
    _fields_ = [
        *(("name", Text), ("dtype", ctypes.c_int32), ("rank", ctypes.c_int32)),
        *(("dims", ctypes.POINTER(ctypes.c_int64)), ("bytes", ctypes.c_uint64)),
        ("at", ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)),
    ]


class Info(ctypes.Structure):
    _fields_ = [
        *(("abi", ctypes.c_uint32), ("size", ctypes.c_uint32), ("name", Text)),
        *(("n_inputs", ctypes.c_int32), ("n_outputs", ctypes.c_int32)),
        *(("inputs", ctypes.POINTER(Tensor)), ("outputs", ctypes.POINTER(Tensor))),
        *((n, ctypes.c_uint64) for n in ("ram_size", "weights_bytes", "stack_bound")),
        *(("run", Status), ("run_at", StatusAt), ("reset", Void), ("reset_at", VoidAt)),
        *(("ram", ctypes.CFUNCTYPE(ctypes.c_void_p)),),
        *(("set_threads", ctypes.CFUNCTYPE(None, ctypes.c_int)), ("stop", Void)),
        *(("strerror", ctypes.CFUNCTYPE(Text, ctypes.c_int)),),
        *(("target", Text), ("features", Text), ("max_threads", ctypes.c_int32)),
        *(("n_banks", ctypes.c_int32), ("banks", ctypes.c_void_p), ("dynamic", ctypes.c_void_p)),
    ]


class Model:
    """The library's first model, with an arena of its own for each instance."""

    def __init__(self, path: Path) -> None:
        self.lib = ctypes.CDLL(str(path))
        self.lib.monobloc_model.restype = ctypes.POINTER(Info)
        self.info = self.lib.monobloc_model(0).contents
        size = self.info.ram_size
        self.keep = np.zeros(size + 64, np.uint8)
        self.ram = (self.keep.ctypes.data + 63) // 64 * 64
        start = self.ram - self.keep.ctypes.data
        self.bytes = self.keep[start : start + size]
        self.info.reset_at(self.ram)

    def view(self, offset: int, dtype: type, count: int) -> np.ndarray:
        return self.bytes[offset:].view(np.uint8)[: count * np.dtype(dtype).itemsize].view(dtype)

    def out(self, i: int, dtype: type, count: int) -> np.ndarray:
        at = self.info.outputs[i].at(self.ram) - self.ram
        return self.view(at, dtype, count)

    def fill(self, seed: int, k: int = 2) -> np.ndarray:
        x = np.random.default_rng(seed).standard_normal(N).astype(np.float32)
        self.view(0, np.float32, N)[:] = x
        self.view(OFFSET_K, np.int64, 1)[0] = k
        return x * np.float32(3) + np.float32(k)

    def run(self) -> int:
        return self.info.run_at(self.ram)

    def y(self) -> np.ndarray:
        return self.out(0, np.float32, N)


@pytest.fixture
def model(image):
    m = Model(image("shared"))
    yield m
    m.info.stop()


def tasks() -> set[str]:
    return set(os.listdir("/proc/self/task"))


def settles(holds: Callable[[], bool]) -> bool:
    """A thread that was joined stays in /proc for a moment: the kernel wakes who waits for it before it is gone."""
    end = time.monotonic() + 20
    while not holds():
        if time.monotonic() > end:
            return False
        time.sleep(0.001)
    return True


def test_description(model):
    info = model.info
    assert (info.abi, info.size, info.name) == (1, ctypes.sizeof(Info), b"fake")
    assert not model.lib.monobloc_model(1) and not model.lib.monobloc_model(-1)
    assert [info.inputs[0].dims[i] for i in range(2)] == [2, 2000]
    assert info.strerror(3) == b"this CPU lacks features the model was built for"


def test_threads_start_with_set_threads_and_end_with_stop(model):
    before, want = tasks(), model.fill(1)
    assert model.run() == 0 and model.out(2, np.int64, 8)[:2].tolist() == [1, 0]
    for threads in (2, 4, 3, 9, 1, 2):
        model.info.set_threads(threads)
        used = min(threads, 4)
        assert settles(lambda n=used: len(tasks() - before) == n - 1)
        model.y()[:] = 0
        assert model.run() == 0 and np.array_equal(model.y(), want)
        assert model.out(2, np.int64, 8).tolist() == [used] * used + [0] * (8 - used)
        assert len(set(model.out(4, np.int64, used))) == 1
    model.info.stop()
    assert settles(lambda: tasks() <= before)  # one of an earlier test may have been in /proc still
    assert model.run() == 0 and np.array_equal(model.y(), want)


def test_lowest_part_wins(model):
    model.info.set_threads(4)
    for _ in range(200):
        model.fill(1, k=7)
        assert model.run() == 101
        model.fill(1, k=8)
        assert model.run() == 1


def test_idle_workers_use_no_cpu(model):
    before = tasks()
    model.info.set_threads(3)
    model.run()
    workers = tasks() - before

    def used() -> int:
        return sum(
            int(Path(f"/proc/self/task/{t}/schedstat").read_text().split()[0]) for t in workers
        )

    seen = []
    for _ in range(5):  # on a busy machine a worker may yet have to look for work for the last time
        time.sleep(0.05)
        first = used()
        time.sleep(0.3)
        seen.append(used() - first)
        if seen[-1] < 2_000_000:
            break
    assert seen[-1] < 2_000_000, seen


def test_workers_leave_signals_to_the_application(model):
    before = tasks()
    model.info.set_threads(2)
    (worker,) = tasks() - before

    def blocked_there() -> int:
        status = Path(f"/proc/self/task/{worker}/status").read_text()
        return int(status.split("SigBlk:")[1].split()[0], 16)

    end = time.monotonic() + 5  # libc blocks everything while a thread starts
    while blocked_there() >> 32 & 1 and time.monotonic() < end:
        time.sleep(0.01)
    blocked = blocked_there()
    for signal, blocks in ((2, 1), (10, 1), (15, 1), (11, 0), (33, 0)):
        assert blocked >> (signal - 1) & 1 == blocks, signal
    mine = Path("/proc/thread-self/status").read_text().split("SigBlk:")[1].split()[0]
    assert int(mine, 16) >> 1 & 1 == 0


def test_two_callers_on_two_arenas(image, model):
    other = Model(image("shared"))
    model.info.set_threads(3)
    wants = [model.fill(1), other.fill(2)]
    wrong: list[int] = []

    def work(i: int, m: Model) -> None:
        for _ in range(2000):
            m.y()[:7] = 0
            if m.run() or not np.array_equal(m.y(), wants[i]):
                wrong.append(i)

    threads = [threading.Thread(target=work, args=(i, m)) for i, m in enumerate((model, other))]
    for t in threads:
        t.start()
    for i in range(20):  # the number of threads may change below them
        model.info.set_threads(1 + i % 4)
        time.sleep(0.002)
    for t in threads:
        t.join()
    assert not wrong


def test_busy_arena(model):
    model.info.set_threads(2)
    model.bytes[-64:] = 1  # the flag lies in the arena's last line
    model.fill(1)
    assert model.run() == 4
    model.info.reset_at(model.ram)
    assert model.run() == 0


def in_child(work) -> int:
    """Exit status of a forked child that runs `work`, which returns whether all is well."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            code = 0 if work() else 2
        finally:
            os._exit(code)
    end = time.monotonic() + 30
    while time.monotonic() < end:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.005)
    os.kill(pid, 9)
    os.waitpid(pid, 0)
    return -99


def test_fork(model):
    model.info.set_threads(3)
    want = model.fill(1)
    model.run()

    def child() -> bool:
        ok = model.run() == 0 and len(tasks()) == 1
        model.y()[:] = 0
        ok = ok and model.run() == 0 and np.array_equal(model.y(), want)
        model.info.set_threads(2)
        ok = ok and len(tasks()) == 2 and model.run() == 0 and np.array_equal(model.y(), want)
        model.info.stop()
        return ok and settles(lambda: len(tasks()) == 1)

    def stops_at_once() -> bool:
        model.info.stop()
        return model.run() == 0

    for _ in range(5):
        assert in_child(child) == 0
        assert in_child(stops_at_once) == 0
        assert model.run() == 0 and np.array_equal(model.y(), want)


def test_fork_while_another_thread_runs(image, model):
    other = Model(image("shared"))
    model.info.set_threads(3)
    want, stop = other.fill(2), threading.Event()
    model.fill(1)
    runner = threading.Thread(target=lambda: [model.run() for _ in iter(stop.is_set, True)])
    runner.start()
    try:
        for _ in range(10):
            assert in_child(lambda: other.run() == 0 and np.array_equal(other.y(), want)) == 0
    finally:
        stop.set()
        runner.join()


UNLOAD = """
import ctypes, os, sys, _ctypes
sys.path.insert(0, sys.argv[2])
from test_shared import Model, settles, tasks
before = tasks()
m = Model(sys.argv[1])
m.fill(1)
for _ in range(20):
    m.info.set_threads(3)
    m.run()
    if sys.argv[3] == "stop":
        m.info.stop()
    if sys.argv[3] == "exit":
        sys.exit(0)
    _ctypes.dlclose(m.lib._handle)
    assert settles(lambda: tasks() == before), tasks()
    assert "fake.so" not in open("/proc/self/maps").read()
    m = Model(sys.argv[1])
    m.fill(1)
print("done")
"""


@pytest.mark.parametrize("how", ["stop", "close only", "exit"])
def test_unload(image, how):
    here = str(Path(__file__).parent)
    done = subprocess.run(
        [sys.executable, "-c", UNLOAD, image("shared"), here, how],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == ("" if how == "exit" else "done")


def test_missing_features_are_a_status(image):
    m = Model(image("shared", FEATURES='"sse2,never-made"'))
    m.fill(1)
    assert m.run() == 3


def test_features_agree_with_proc(image):
    flags = set(Path("/proc/cpuinfo").read_text().split("flags")[1].split("\n")[0].split())
    names = {"sse4.2": "sse4_2", "avx2": "avx2", "avx512f": "avx512f", "avx512vnni": "avx512_vnni"}
    names |= {"fma": "fma", "f16c": "f16c", "bmi": "bmi1", "bmi2": "bmi2", "lzcnt": "abm"}
    names |= {"avx512bf16": "avx512_bf16", "avx512fp16": "avx512_fp16", "avxvnni": "avx_vnni"}
    names |= {"movbe": "movbe", "popcnt": "popcnt", "ssse3": "ssse3", "avx512vl": "avx512vl"}
    names |= {"avx512bw": "avx512bw", "avx512dq": "avx512dq", "avx512cd": "avx512cd"}
    lib = Model(image("shared", FEATURES="names", MB_PROBE=1)).lib
    lib.probe_missing.restype = ctypes.c_char_p
    for llvm, linux in names.items():
        assert (lib.probe_missing(llvm.encode()) is None) == (linux in flags), llvm


def test_no_needed_libraries(image):
    for defines in ({}, {"THREADS": 1}):
        dynamic = subprocess.run(
            ["readelf", "-dW", image("shared", **defines)], capture_output=True, text=True
        ).stdout
        assert "NEEDED" not in dynamic and "TEXTREL" not in dynamic


def test_every_feature_of_a_target_can_be_checked():
    """A name the checker does not know counts as missing: no image would run."""
    for module in (aarch64_linux, x86_64_linux):
        (source,) = (s for s in module.TARGET.runtime if s.startswith("cpu_"))
        known = set(re.findall(r'\{"([^"]+)", ', (CSRC / "runtime" / source).read_text()))
        for cpu in module.CPUS:
            target = resolve(module.TARGET.name, cpu, tuple(module.FEATURES))
            assert set(target.required_cpu) <= known, cpu


def foreign_link(folder: Path, *flags: str) -> Path:
    """The system's compiler links application, model and runtime; two objects bring the runtime."""
    cc = shutil.which("gcc") or pytest.skip("gcc is not installed")
    rt = CSRC / "runtime"
    defines = [f"-D{k}={v}" for k, v in fake_defines(MB_RT_WEAK=1).items()]
    common = [cc, "-O2", "-fPIC", *flags, *defines, "-I", CSRC / "include"]
    for copy in ("1", "2"):
        for source in ("pool_pthread", "cpu_x86"):
            call(*common, "-c", rt / f"{source}.c", "-o", folder / f"{source}{copy}.o")
    objects = sorted(folder.glob("*.o"))
    call(
        *common, *flags, HERE / "app.c", HERE / "fake.c", *objects, "-o", folder / "app", "-pthread"
    )
    return folder / "app"


@pytest.mark.parametrize("flags", [(), ("-static",), ("-fsanitize=thread",)], ids=str)
def test_foreign_linker(tmp_path, flags):
    done = subprocess.run(
        [foreign_link(tmp_path, *flags)], capture_output=True, text=True, timeout=120
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "ok\n", "")
