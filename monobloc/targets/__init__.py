"""Machines as data: one file per machine, found by listing this folder.

A target file defines `TARGET`, the baseline as a frozen `Target`, `CPUS`, the levels that `--cpu`
names with what each changes, `from_host(flags)`, which names the level, the features worth using
and further facts of the machine at hand, and `host_has(features, flags)`. No other file names a
target; passes and code generation ask for capabilities.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from types import ModuleType

from monobloc.errors import UnsupportedError
from monobloc.targets._host import HostCpu, host_cpu
from monobloc.targets._memory import FLASH_HOLDS, RAM_HOLDS, Region
from monobloc.targets._memory import NAME as REGION_NAME

__all__ = [
    "FLASH_HOLDS", "HOST", "RAM_HOLDS", "REGION_NAME", "HostCpu", "Region", "Target", "cpus", "from_host", "host_cpu",
    "names", "resolve",
]

HOST = "host"


@dataclass(frozen=True)
class Target:
    name: str
    triple: str
    arch: str  # as `uname -m` says it
    cpu: str  # value of -march
    baseline_cpu: str  # value of -march that every machine of this kind can run
    elf_machine: int
    features: tuple[str, ...] = ()  # beyond what `cpu` implies, in LLVM's spelling
    implied: tuple[str, ...] = ()  # CPU features that `cpu` promises, in LLVM's spelling
    feature_flag: str = "-m{}"  # how one feature is written for the compiler
    flags: tuple[str, ...] = ()  # further compiler flags
    lto_flags: tuple[str, ...] = ()  # further linker flags when it generates code
    pointer_size: int = 8
    endian: str = "little"
    f32_lanes: int = 4
    vector_registers: int = 16
    byte_dot: bool = False  # one instruction adds up four products of bytes in every lane
    l1_bytes: int = 32 << 10
    l2_bytes: int = 256 << 10
    page_size: int = 4096
    cache_line: int = 64
    runner: tuple[str, ...] = ()  # emulator for machines of another kind
    libc_free: bool = True  # executables start without any libc
    large_data_flags: tuple[str, ...] = ()  # for code whose data may lie beyond 2 GiB
    runtime: tuple[str, ...] = ()  # sources in csrc/runtime that know this machine
    defines: tuple[tuple[str, str], ...] = ()
    gnu_prefix: str = ""  # of the system's cross tools: `<prefix>-gcc`
    musl_triple: str = ""  # of the libc that the toolchain can build itself
    dynamic_linker: str = ""
    regions: tuple[Region, ...] = ()  # memories beside the main RAM and flash

    @property
    def required_cpu(self) -> tuple[str, ...]:
        """What an image must find at start before it runs anything else."""
        return tuple(sorted({*self.implied, *self.features}))

    @property
    def cflags(self) -> tuple[str, ...]:
        """Compiler flags that select the machine, nothing else."""
        features = [self.feature_flag.format(f) for f in self.features]
        joined = self.feature_flag.startswith("+")  # `-march=cpu+feature+feature`
        march = [f"-march={self.cpu}{''.join(features) if joined else ''}"]
        return (f"--target={self.triple}", *march, *([] if joined else features), *self.flags)

    def baseline(self) -> Target:
        """What code may use that runs before the CPU check has passed."""
        return replace(self, cpu=self.baseline_cpu, features=(), implied=(), f32_lanes=4, byte_dot=False)

    @property
    def vector_defines(self) -> tuple[tuple[str, str], ...]:
        """The macros the kernels are written in."""
        return (
            ("MB_VL", str(self.f32_lanes)),
            ("MB_NVREG", str(self.vector_registers)),
            *self.defines,
        )

    def has(self, feature: str) -> bool:
        return feature in self.features or feature in self.implied


def _modules() -> dict[str, ModuleType]:
    names = sorted(m.name for m in pkgutil.iter_modules(__path__) if not m.name.startswith("_"))
    found = [importlib.import_module(f"{__name__}.{n}") for n in names]
    return {m.TARGET.name: m for m in found}


def names() -> tuple[str, ...]:
    return tuple(sorted(_modules()))


def cpus(name: str) -> tuple[str, ...]:
    """The levels `--cpu` may name, weakest first."""
    return tuple(_module(name).CPUS)


def resolve(
    name: str = HOST,
    cpu: str | None = None,
    features: Sequence[str] | str | None = None,
    *,
    host: HostCpu | None = None,
) -> Target:
    """The target of that name; `host` is this machine with all it has, others their baseline."""
    if name == HOST:
        target = from_host(host or host_cpu())
        if cpu is None and features is None:
            return target
        name, cpu = target.name, cpu or target.cpu  # what was named replaces what was found
    module = _module(name)
    target = _level(module, cpu or module.TARGET.cpu)
    return _with_features(module, target, _split(features))


def from_host(host: HostCpu) -> Target:
    for module in _modules().values():
        if module.TARGET.arch == host.arch:
            cpu, features, facts = module.from_host(host.flags)
            return replace(_with_features(module, _level(module, cpu), features), **facts)
    raise UnsupportedError(
        f"this machine is `{host.arch}`, and no target is written for it",
        notes=["targets: " + ", ".join(names())],
    )


def runs_here(target: Target, host: HostCpu | None = None) -> bool:
    """True if this machine can run the target's code without an emulator."""
    here = host or host_cpu()
    if target.arch != here.arch:
        return False
    return bool(_module(target.name).host_has(target.required_cpu, here.flags))


def _module(name: str) -> ModuleType:
    modules = _modules()
    if name not in modules:
        known = ", ".join([HOST, *sorted(modules)])
        raise UnsupportedError(f"unknown target `{name}`", hints=[f"targets: {known}"])
    return modules[name]


def _level(module: ModuleType, cpu: str) -> Target:
    if cpu not in module.CPUS:
        levels = ", ".join(module.CPUS)
        raise UnsupportedError(
            f"{module.TARGET.name} has no cpu `{cpu}`",
            hints=[f"cpus: {levels}; single features go in `--features`"],
        )
    target: Target = module.TARGET
    return replace(target, cpu=cpu, **module.CPUS[cpu])


def _split(features: Sequence[str] | str | None) -> tuple[str, ...]:
    parts = features.split(",") if isinstance(features, str) else features or ()
    return tuple(p.strip().removeprefix("+") for p in parts if p.strip())


def _with_features(module: ModuleType, target: Target, features: Sequence[str]) -> Target:
    unknown = [f for f in features if f not in module.FEATURES]
    if unknown:
        raise UnsupportedError(
            f"{target.name} has no feature `{unknown[0]}`",
            hints=["features: " + ", ".join(sorted(module.FEATURES))],
        )
    extra = tuple(sorted(set(features) - set(target.implied)))
    changed: Target = module.refine(replace(target, features=extra))
    return changed
