"""x86-64 Linux: the psABI's levels v2, v3 and v4, and single features beyond them.

`-march=x86-64-v4 -mavx512vnni ...` says exactly what the code may use. A model name such as
`sapphirerapids`, or `native`, would switch on features that a hypervisor has masked.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from monobloc.targets import Target

_V2 = ("cx16", "popcnt", "sse3", "sse4.1", "sse4.2", "ssse3")
_V3 = (*_V2, "avx", "avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe")
_V4 = (*_V3, "avx512bw", "avx512cd", "avx512dq", "avx512f", "avx512vl")

CPUS: dict[str, dict[str, Any]] = {
    "x86-64-v2": {"implied": _V2, "f32_lanes": 4, "vector_registers": 16},
    "x86-64-v3": {"implied": _V3, "f32_lanes": 8, "vector_registers": 16},
    "x86-64-v4": {
        "implied": _V4,
        "f32_lanes": 16,
        "vector_registers": 32,
        "l2_bytes": 1 << 20,
        "flags": ("-mprefer-vector-width=512",),
    },
}

# LLVM's spelling -> the kernel's, for what code generation can use.
FEATURES = {
    "amx-bf16": "amx_bf16",
    "amx-fp16": "amx_fp16",
    "amx-int8": "amx_int8",
    "amx-tile": "amx_tile",
    "avx512bf16": "avx512_bf16",
    "avx512bitalg": "avx512_bitalg",
    "avx512fp16": "avx512_fp16",
    "avx512ifma": "avx512ifma",
    "avx512vbmi": "avx512vbmi",
    "avx512vbmi2": "avx512_vbmi2",
    "avx512vnni": "avx512_vnni",
    "avx512vpopcntdq": "avx512_vpopcntdq",
    "avxifma": "avx_ifma",
    "avxneconvert": "avx_ne_convert",
    "avxvnni": "avx_vnni",
    "avxvnniint8": "avx_vnni_int8",
    "gfni": "gfni",
} | {f: f for f in ("avx", "avx2", "fma", "f16c", "bmi2", "movbe", "popcnt")}
# Of these the host's are switched on unasked: dot products of bytes and of bfloat16.
USEFUL = ("avx512bf16", "avx512vnni", "avxvnni")
_KERNEL_SPELLING = {
    "bmi": "bmi1",
    "lzcnt": "abm",
    "sse3": "pni",
    "sse4.1": "sse4_1",
    "sse4.2": "sse4_2",
}

TARGET = Target(
    name="x86_64-linux",
    triple="x86_64-linux-gnu",
    arch="x86_64",
    cpu="x86-64-v2",
    baseline_cpu="x86-64",
    elf_machine=62,
    runner=("qemu-x86_64",),
    large_data_flags=("-mcmodel=medium", "-mlarge-data-threshold=0"),
    runtime=("start_linux.c", "cpu_x86.c"),
    gnu_prefix="x86_64-linux-gnu",
    musl_triple="x86_64-linux-musl",
    dynamic_linker="/lib64/ld-linux-x86-64.so.2",
)


# Every core with it so far has at least these caches.
_LARGE_CACHES: dict[str, Any] = {"l1_bytes": 48 << 10, "l2_bytes": 2 << 20}


def from_host(flags: frozenset[str]) -> tuple[str, tuple[str, ...], dict[str, Any]]:
    """The highest level whose every feature is there, and what is of use beyond it.

    An image needs at start whatever it was compiled with, so features that no kernel and no loop
    can use are left to be asked for.
    """
    level = next((n for n in reversed(CPUS) if host_has(CPUS[n]["implied"], flags)), TARGET.cpu)
    wide = level == "x86-64-v4"
    features = [f for f in USEFUL if FEATURES[f] in flags]
    # A feature of AVX-512 drags the whole of AVX-512 in with it.
    found = tuple(f for f in features if wide or not f.startswith("avx512"))
    return level, found, _LARGE_CACHES if "avx512_fp16" in flags else {}


def host_has(features: tuple[str, ...], flags: frozenset[str]) -> bool:
    return all(_KERNEL_SPELLING.get(f, FEATURES.get(f, f)) in flags for f in features)


def refine(t: Target) -> Target:
    """Facts that follow from single features."""
    if t.has("avx") and t.f32_lanes < 8 and t.has("avx2"):
        t = replace(t, f32_lanes=8)
    vnni = {16: t.has("avx512vnni"), 8: t.has("avxvnni") or t.has("avx512vnni")}
    t = replace(t, byte_dot=vnni.get(t.f32_lanes, False))
    if t.has("avx512fp16"):
        t = replace(t, **_LARGE_CACHES)
    return t
