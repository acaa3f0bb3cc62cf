"""Targets as data, and what is made of the processor at hand."""

import re
from pathlib import Path

import pytest

import monobloc
from monobloc import targets
from monobloc.errors import UnsupportedError
from monobloc.targets._host import HostCpu, host_cpu, parse_cpuinfo

V2 = "cx16 popcnt pni sse4_1 sse4_2 ssse3"
V3 = V2 + " avx avx2 bmi1 bmi2 f16c fma abm movbe"
V4 = V3 + " avx512bw avx512cd avx512dq avx512f avx512vl"


def x86(flags: str) -> targets.Target:
    return targets.resolve("host", host=HostCpu("x86_64", frozenset(flags.split())))


def test_named_targets_mean_their_baseline() -> None:
    assert targets.names() == ("aarch64-linux", "x86_64-linux")
    assert targets.cpus("x86_64-linux") == ("x86-64-v2", "x86-64-v3", "x86-64-v4")
    t = targets.resolve("x86_64-linux")
    assert (t.cpu, t.f32_lanes, t.vector_registers, t.features) == ("x86-64-v2", 4, 16, ())
    a = targets.resolve("aarch64-linux")
    assert (a.f32_lanes, a.vector_registers, a.elf_machine) == (4, 32, 183)


@pytest.mark.parametrize(
    ("cpu", "lanes", "registers"),
    [("x86-64-v2", 4, 16), ("x86-64-v3", 8, 16), ("x86-64-v4", 16, 32)],
)
def test_levels(cpu: str, lanes: int, registers: int) -> None:
    t = targets.resolve("x86_64-linux", cpu)
    assert dict(t.vector_defines) == {"MB_VL": str(lanes), "MB_NVREG": str(registers)}
    assert f"-march={cpu}" in t.cflags
    assert ("-mprefer-vector-width=512" in t.cflags) == (lanes == 16)


def test_features_are_flags_and_are_required_at_start() -> None:
    t = targets.resolve("x86_64-linux", "x86-64-v3", "+avxvnni, avx2")
    assert t.features == ("avxvnni",)  # avx2 is in v3 already
    assert "-mavxvnni" in t.cflags and {"avxvnni", "avx2", "fma"} <= set(t.required_cpu)
    a = targets.resolve("aarch64-linux", features=["fp16", "dotprod"])
    assert "-march=armv8-a+dotprod+fp16" in a.cflags
    assert t.baseline().required_cpu == () and "-march=x86-64" in t.baseline().cflags


def test_the_host_is_what_its_bits_say() -> None:
    assert x86(V2).cpu == "x86-64-v2" and x86(V3).cpu == "x86-64-v3"
    t = x86(V4 + " avx512_vnni amx_tile hypervisor")
    assert (t.cpu, t.features) == ("x86-64-v4", ("avx512vnni",))  # nothing that no kernel uses
    assert targets.resolve("x86_64-linux", "x86-64-v4", "amx-tile").has("amx-tile")
    large = x86(V4 + " avx512_fp16")
    assert (large.features, large.l2_bytes) == ((), 2 << 20)
    assert ("-march=native" not in t.cflags) and "-mavx512vnni" in t.cflags


def test_one_masked_bit_lowers_the_level() -> None:
    t = x86((V4 + " avx512_vnni avx_vnni").replace(" avx512vl", ""))
    assert (t.cpu, t.features) == ("x86-64-v3", ("avxvnni",))  # nothing that needs AVX-512
    assert x86(V3.replace(" fma", "")).cpu == "x86-64-v2"


def test_a_named_level_replaces_what_the_host_has() -> None:
    host = HostCpu("x86_64", frozenset((V4 + " avx512_vnni").split()))
    assert targets.resolve("host", "x86-64-v2", host=host).features == ()
    only = targets.resolve("host", features="avx512bf16", host=host)
    assert (only.cpu, only.features) == ("x86-64-v4", ("avx512bf16",))


def test_which_code_runs_here() -> None:
    host = HostCpu("x86_64", frozenset(V3.split()))
    runs = [
        targets.runs_here(targets.resolve("x86_64-linux", c), host)
        for c in targets.cpus("x86_64-linux")
    ]
    assert runs == [True, True, False]
    assert not targets.runs_here(targets.resolve("aarch64-linux"), host)
    asked = targets.resolve("x86_64-linux", "x86-64-v3", "avxifma")  # never switched on unasked
    assert not targets.runs_here(asked, host)
    assert targets.runs_here(asked, HostCpu("x86_64", host.flags | {"avx_ifma"}))
    arm = HostCpu("aarch64", frozenset({"asimd", "asimddp"}))
    assert targets.runs_here(targets.resolve("aarch64-linux", features="dotprod"), arm)
    assert not targets.runs_here(targets.resolve("aarch64-linux", features="sve"), arm)


def test_cpuinfo() -> None:
    text = "model name : flags\nflags\t\t: fpu avx2\n\nflags\t\t: fpu avx\nbugs : avx2\n"
    assert parse_cpuinfo(text) == {"fpu"}  # what all processors share
    assert parse_cpuinfo("Features\t: fp asimd\n") == {"fp", "asimd"}
    assert parse_cpuinfo("") == frozenset()
    assert host_cpu(Path("/nonexistent")).flags == frozenset()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("m68k",), "unknown target `m68k`"),
        (("x86_64-linux", "skylake"), "x86_64-linux has no cpu `skylake`"),
        (("x86_64-linux", None, "neon"), "x86_64-linux has no feature `neon`"),
    ],
)
def test_unknown_names(arguments: tuple[str, ...], message: str) -> None:
    with pytest.raises(UnsupportedError, match=message) as caught:
        targets.resolve(*arguments)
    assert caught.value.hints  # says what there is


def test_no_other_file_names_a_target() -> None:
    root = Path(monobloc.__file__).parent
    named = re.compile("|".join(map(re.escape, targets.names())))
    files = [p for p in root.rglob("*.py") if p.parent.name != "targets"]
    assert files and not [p for p in files if named.search(p.read_text())]
