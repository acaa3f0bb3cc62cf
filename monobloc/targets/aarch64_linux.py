"""AArch64 Linux: Armv8.0 with NEON as baseline, later extensions by name."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from monobloc.targets import Target

CPUS: dict[str, dict[str, Any]] = {
    "armv8-a": {"implied": ("neon",)},
    "armv8.2-a": {"implied": ("crc", "lse", "neon", "rdm")},
    "armv8.6-a": {"implied": ("bf16", "crc", "dotprod", "i8mm", "lse", "neon", "rdm")},
}

# LLVM's spelling -> the kernel's.
FEATURES = {
    "bf16": "bf16",
    "crc": "crc32",
    "dotprod": "asimddp",
    "fp16": "asimdhp",
    "fp16fml": "asimdfhm",
    "i8mm": "i8mm",
    "lse": "atomics",
    "rdm": "asimdrdm",
    "sve": "sve",
    "sve2": "sve2",
}

TARGET = Target(
    name="aarch64-linux",
    triple="aarch64-linux-gnu",
    arch="aarch64",
    cpu="armv8-a",
    baseline_cpu="armv8-a",
    elf_machine=183,
    implied=("neon",),
    feature_flag="+{}",
    # Out-of-line atomics would call a helper of libgcc.
    flags=("-mno-outline-atomics",),
    f32_lanes=4,
    vector_registers=32,
    l2_bytes=512 << 10,
    page_size=65536,
    runner=("qemu-aarch64",),
    runtime=("start_linux.c", "cpu_aarch64.c"),
    gnu_prefix="aarch64-linux-gnu",
    musl_triple="aarch64-linux-musl",
    dynamic_linker="/lib/ld-linux-aarch64.so.1",
)


def from_host(flags: frozenset[str]) -> tuple[str, tuple[str, ...], dict[str, Any]]:
    # SVE is left to be asked for: kernels are written for vectors of a fixed length.
    found = tuple(f for f, k in FEATURES.items() if k in flags and not f.startswith("sve"))
    return TARGET.cpu, found, {}


def host_has(features: tuple[str, ...], flags: frozenset[str]) -> bool:
    return all({"neon": "asimd", **FEATURES}[f] in flags for f in features)


def refine(t: Target) -> Target:
    return replace(t, byte_dot=t.has("dotprod"))
