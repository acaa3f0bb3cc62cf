"""What the processor at hand can do, from its usable feature bits, never from its name.

Linux prints them in /proc/cpuinfo: on x86-64 the CPUID bits that the system also supports (a model
name lies in virtual machines), on AArch64 the HWCAP bits.
"""

from __future__ import annotations

import platform
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class HostCpu:
    arch: str
    flags: frozenset[str]


def parse_cpuinfo(text: str) -> frozenset[str]:
    """Flags that every processor has: a thread may run on any of them."""
    common: frozenset[str] | None = None
    for line in text.splitlines():
        key, _, value = line.partition(":")
        if key.strip() in ("flags", "Features"):
            flags = frozenset(value.split())
            common = flags if common is None else common & flags
    return common or frozenset()


def host_cpu(cpuinfo: Path = Path("/proc/cpuinfo")) -> HostCpu:
    arch = platform.machine().lower()
    arch = {"amd64": "x86_64", "arm64": "aarch64"}.get(arch, arch)
    try:
        text = cpuinfo.read_text(errors="replace")
    except OSError:
        text = ""
    return HostCpu(arch, parse_cpuinfo(text))
