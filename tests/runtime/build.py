"""Compiles the C runtime with a model written by hand, for a machine and a kind of image."""

from __future__ import annotations

import subprocess
from pathlib import Path

import ziglang

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
CSRC = ROOT / "monobloc" / "csrc"
ZIG = Path(ziglang.__file__).parent / "zig"
WARN = ("-Wall", "-Wextra", "-Werror")
FLAGS = (
    *("-ffreestanding", "-std=gnu11", "-O2", "-fPIC", "-fvisibility=hidden"),
    "-ffp-contract=off",  # the answers are compared with numpy's
    *("-fno-stack-protector", "-ffunction-sections", "-fdata-sections", *WARN),
    *("-nostdinc", "-isystem", str(ZIG.parent / "lib" / "include")),
    *("-I", str(CSRC / "include")),
)
BASELINE = {"x86_64": ("-march=x86-64",), "aarch64": ()}
CPU = {"x86_64": "cpu_x86", "aarch64": "cpu_aarch64"}
EXE = ("main", "measure", "npy", "sizes", "start_linux", "tensor", "text", "mem")
HARDEN = ("-z", "relro", "-z", "now", "-z", "noexecstack", "-z", "separate-code", "--gc-sections")
PIE = ("-static", "-pie", "--no-dynamic-linker", "-z", "text", *HARDEN)


def call(*args: object) -> None:
    done = subprocess.run([str(a) for a in args], capture_output=True, text=True)
    assert done.returncode == 0, f"{' '.join(map(str, args))}\n{done.stderr}"


def compile_c(source: Path, out: Path, arch: str, defines: dict[str, object]) -> Path:
    flags = [f"-D{k}={v}" for k, v in defines.items()]
    target = f"--target={arch}-linux-none"
    call(ZIG, "clang", target, *FLAGS, *BASELINE[arch], *flags, "-c", source, "-o", out)
    return out


def fake_defines(**more: object) -> dict[str, object]:
    return {"THREADS": 4, "MODELS": 1, "OUTPUTS": 5, "SPIN": 0, "MB_MAX_THREADS": 4, **more}


def build(
    folder: Path, kind: str, arch: str = "x86_64", link: tuple[str, ...] = (), **more
) -> Path:
    """`kind` is exe or shared; further arguments are macros of fake.c."""
    folder.mkdir(parents=True, exist_ok=True)
    defines = fake_defines(**more)
    threads = int(str(defines["THREADS"]))
    pool = {"exe": "pool_clone", "shared": "pool_pthread"}[kind]
    names = [CPU[arch], *(EXE if kind == "exe" else ("mem",)), *([pool] if threads > 1 else [])]
    if kind == "shared":
        defines["MB_PTHREAD_WEAK"] = 1
    objects = [compile_c(HERE / "fake.c", folder / "fake.o", arch, defines)]
    for name in names:
        objects.append(
            compile_c(CSRC / "runtime" / f"{name}.c", folder / f"{name}.o", arch, defines)
        )
    out = folder / ("fake.so" if kind == "shared" else "fake")
    mode = ("-shared", *HARDEN) if kind == "shared" else link or PIE
    call(ZIG, "ld.lld", *mode, *objects, "-o", out)
    return out
