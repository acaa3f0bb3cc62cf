"""mb/math.h against libm in the next wider type: the bounds are those that docs/math.md promises.

The comparison itself is in C (math_probe.c), so that millions of arguments take moments; libm is
found in the test process, the shared object leaves its functions undefined.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import platform
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from tests.kernels import harness

SEED = 20240607
HERE = Path(__file__).parent
LANES = (4, 8, 16)
TWO = ("pow", "fmod", "mod", "atan2")
FAINT = ("silu", "gelu", "gelu_tanh", "mish")  # below 2^-110 no relative accuracy is promised
VECTORIZED: tuple[str, ...] = (
    "exp",
    "tanh",
    "sigmoid",
    "erf",
    "gelu",
    "log",
    "gelu_tanh",
    "silu",
    "softplus",
)
VECTORIZED += ("sin", "cos", "tan", "pow", "fmod", "atan2", "asin", "round", "sqrt", "mish")
SPECIAL = [0, 1, 0.5, 2, 3, 1.5, np.inf, 1e-10, 1e10, 88.5, 104, 127.5, 126, 149.5, 151, 0.25]


class Report(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_double) for name in ("floor", "worst", "at", "at2", "got", "want")),
        ("wrong", ctypes.c_long),
        ("differ", ctypes.c_long),
        *((f"wrong_{name}", ctypes.c_double) for name in ("at", "at2", "got", "want")),
    )


@dataclass(frozen=True)
class Bound:
    """The promised ulp of one function: float, float without fused multiply-add, double."""

    fused: float
    plain: float
    double: float


def bounds() -> dict[str, Bound]:
    """The table of docs/math.md."""
    text = (harness.ROOT / "docs" / "math.md").read_text()
    found = {}
    for names, *values in re.findall(
        r"^\| ([a-z0-9_, ]+) \| ([\d.]+) \| ([\d.]+) \| ([\d.]+) \|", text, re.M
    ):
        for name in names.split(", "):
            found[name] = Bound(*map(float, values))
    return found


BOUNDS = bounds()


def build(source: Path, folder: Path, vl: int) -> ctypes.CDLL:
    """A shared object for ``vl`` lanes whose libm functions come from this process."""
    if platform.machine() != "x86_64" or not harness.cpu_has(vl):
        pytest.skip(f"this machine cannot run code for {vl} lanes")
    ctypes.CDLL(ctypes.util.find_library("m"), ctypes.RTLD_GLOBAL)
    march, nvreg = harness.MARCH[vl]
    obj, so = folder / f"{source.stem}{vl}.o", folder / f"{source.stem}{vl}.so"
    lanes = [f"-march={march}", f"-DMB_VL={vl}", f"-DMB_NVREG={nvreg}"]
    wide = ["-mprefer-vector-width=512"] if vl == 16 else []
    command: list[str | Path] = [
        harness.ZIG,
        "clang",
        *harness.FLAGS,
        *lanes,
        *wide,
        "-c",
        source,
        "-o",
        obj,
    ]
    subprocess.run(command, check=True)
    subprocess.run([harness.ZIG, "ld.lld", "-shared", "-z", "undefs", obj, "-o", so], check=True)
    return ctypes.CDLL(str(so))


@pytest.fixture(scope="module")
def probes(tmp_path_factory: pytest.TempPathFactory) -> dict[int, ctypes.CDLL]:
    folder = tmp_path_factory.mktemp("math")
    lanes = [vl for vl in LANES if harness.cpu_has(vl)]
    return {vl: build(HERE / "math_probe.c", folder, vl) for vl in lanes}


def specials(dtype: type) -> np.ndarray:
    info = np.finfo(dtype)
    edges = [
        info.max,
        info.tiny,
        info.smallest_subnormal,
        info.tiny / 8,
        1 + info.eps,
        1 - info.epsneg,
    ]
    whole = [2.0**info.nmant, 2.0**info.nmant - 0.5, 2.0 ** (info.nmant + 1) - 1]
    limits = [88.72284, 89.4159, 103.97, 709.7827, 710.4758, 745.13]
    values: np.ndarray = np.array([*SPECIAL, *edges, *whole, *limits], dtype)
    return np.concatenate([values, -values, np.array([np.nan], dtype)])


def arguments(dtype: type, count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Samples for functions of one argument, and for functions of two."""
    rng = np.random.default_rng(SEED)
    print(f"seed {SEED}")
    unsigned = np.uint32 if dtype is np.float32 else np.uint64
    patterns = rng.integers(0, np.iinfo(unsigned).max, count, unsigned, endpoint=True)
    random: np.ndarray = patterns.view(dtype)
    span = 100 if dtype is np.float32 else 720
    near = [rng.uniform(-a, b, count // 3) for a, b in ((span, span), (9, 9), (1, 2), (0.1, 0.1))]
    turns = rng.integers(1, 1 << 16, count // 3) * (np.pi / 2)
    edge = specials(dtype)
    left, right = (a.ravel() for a in np.meshgrid(edge, edge))
    power = rng.uniform(-span, span, count)
    base = np.exp(rng.uniform(-30, 30, count))
    x = [left, random, rng.uniform(0, 10, count), base, rng.integers(-20, 20, count)]
    y = [right, rng.permutation(random), rng.uniform(-30, 30, count), power / np.log(base)]
    y.append(rng.integers(-10, 10, count))
    x.append(rng.uniform(0.9, 1.1, count))
    y.append(rng.uniform(-900, 900, count))
    with np.errstate(over="ignore", invalid="ignore"):  # signalling NaN among the patterns
        one: np.ndarray = np.concatenate([edge, random, *near, turns]).astype(dtype)
        return one, np.concatenate(x).astype(dtype), np.concatenate(y).astype(dtype)


FLOATS = arguments(np.float32, 300_000)
DOUBLES = arguments(np.float64, 60_000)


def padded(values: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(np.pad(values, (0, -len(values) % 1024), constant_values=1))


def measure(probe: ctypes.CDLL, symbol: str, name: str, samples: tuple[np.ndarray, ...]) -> Report:
    one, x, y = samples
    a, b = (x, y) if name in TWO else (one, one)
    a, b = padded(a), padded(b)
    faint = 2.0**-110 if a.dtype == np.float32 else 2.0**-1000
    report = Report(floor=faint if name in FAINT else 0)
    pointers = [ctypes.c_void_p(v.ctypes.data) for v in (a, b)]
    getattr(probe, symbol)(*pointers, ctypes.c_long(len(a)), ctypes.byref(report))
    return report


def check(name: str, report: Report, bound: float) -> None:
    where = f"{name}({report.wrong_at!r}, {report.wrong_at2!r})"
    assert not report.wrong, f"{where} is {report.wrong_got!r}, not {report.wrong_want!r}"
    assert not report.differ, f"{name}: {report.differ} results differ between scalar and vector"
    where = f"{name}({report.at!r}, {report.at2!r}) is {report.got!r}, not {report.want!r}"
    assert report.worst <= bound, f"{where}: {report.worst} ulp, promised {bound}"


def test_the_table_is_complete() -> None:
    source = (HERE / "math_probe.c").read_text()
    for macro in (r"\b(?:ONE|TWO)\((\w+), \w+\)", r"\b(?:ONE|TWO)_D\((\w+), \w+\)"):
        names = set(re.findall(macro, source)) - {"NAME"}
        assert names == set(BOUNDS)


@pytest.mark.parametrize("vl", LANES)
@pytest.mark.parametrize("name", BOUNDS)
def test_float(probes: dict[int, ctypes.CDLL], name: str, vl: int) -> None:
    if vl not in probes:
        pytest.skip(f"this machine cannot run code for {vl} lanes")
    bound = BOUNDS[name].plain if vl == 4 else BOUNDS[name].fused
    check(name, measure(probes[vl], f"check_{name}", name, FLOATS), bound)


@pytest.mark.parametrize("vl", (4, 8))
@pytest.mark.parametrize("name", BOUNDS)
def test_double(probes: dict[int, ctypes.CDLL], name: str, vl: int) -> None:
    if vl not in probes:
        pytest.skip(f"this machine cannot run code for {vl} lanes")
    check(name, measure(probes[vl], f"check_d_{name}", name, DOUBLES), BOUNDS[name].double)


def test_double_is_not_rounded(probes: dict[int, ctypes.CDLL]) -> None:
    x, y = np.array([-1.0 - 2.0**-50, 0.1, np.nan]), np.zeros(7)
    probe = next(iter(probes.values()))
    probe.doubles(ctypes.c_void_p(x.ctypes.data), ctypes.c_void_p(y.ctypes.data))
    square = x[0] * x[0] + x[1]
    np.testing.assert_array_equal(y[:4], [-x[0], -x[0], 0.1, x[0]])
    assert abs(y[4] - square) < 1e-15
    assert np.isnan(y[5:]).all()


def test_constant_beside_vector(probes: dict[int, ctypes.CDLL]) -> None:
    assert [vl for vl, probe in probes.items() if probe.mixed()] == []


INTEGERS = {f"{k}{bits}": np.dtype(f"{k}{bits // 8}") for k in "iu" for bits in (8, 16, 32, 64)}


def wrap(value: int, dtype: np.dtype) -> int:
    bits = 8 * dtype.itemsize
    value &= (1 << bits) - 1
    return value - (1 << bits) if dtype.kind == "i" and value >> (bits - 1) else value


def integer_answers(a: int, b: int, dtype: np.dtype) -> tuple[int, int, int, int]:
    """Quotient, remainder with the sign of a, of b, and power: by Python's integers."""
    if b < 0:
        power = {1: 1, -1: a if b % 2 else 1}.get(a, 0)
    else:
        power = pow(a, b, 1 << 64)
    if b == 0:
        return 0, 0, 0, wrap(power, dtype)
    quotient = abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
    return wrap(quotient, dtype), a - quotient * b, a % b, wrap(power, dtype)


@pytest.mark.parametrize("name", INTEGERS)
def test_integers(probes: dict[int, ctypes.CDLL], name: str) -> None:
    dtype, info = INTEGERS[name], np.iinfo(INTEGERS[name])
    rng = np.random.default_rng(SEED)
    edge = [v for v in (info.min, info.min + 1, -2, -1, 0, 1, 2, 3, info.max) if v >= info.min]
    a, b = (v.ravel() for v in np.meshgrid(np.array(edge, dtype), np.array(edge, dtype)))
    a = np.concatenate([a, rng.integers(info.min, info.max, 300, dtype)])
    b = np.concatenate([b, rng.integers(max(info.min, -9), 9, 300, dtype)])
    out = [np.zeros(len(a), dtype) for _ in range(4)]
    pointers = [ctypes.c_void_p(v.ctypes.data) for v in (a, b, *out)]
    next(iter(probes.values()))[f"int_{name}"](*pointers, ctypes.c_long(len(a)))
    for i, (p, q) in enumerate(zip(a.tolist(), b.tolist(), strict=True)):
        got = tuple(int(v[i]) for v in out)
        assert got == integer_answers(p, q, dtype), f"{name}: {p}, {q}"


def cast_answer(value: float, dtype: np.dtype) -> int:
    """The x86 conversion: through int32 or int64, the most negative value for what does not fit."""
    bits = 64 if dtype.itemsize == 8 or dtype == np.uint32 else 32
    limit = 1 << (64 if dtype == np.uint64 else bits - 1)
    fits = np.isfinite(value) and -(1 << (bits - 1)) <= int(value) < limit
    return wrap(int(value) if fits else -(1 << (bits - 1)), dtype)


def saturated_answer(value: float, dtype: np.dtype) -> int:
    low, high = int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)
    if np.isnan(value):
        return 0
    if np.isinf(value):
        return high if value > 0 else low
    return min(max(int(value), low), high)


@pytest.mark.parametrize("vl", LANES)
@pytest.mark.parametrize("name", INTEGERS)
def test_conversions(probes: dict[int, ctypes.CDLL], name: str, vl: int) -> None:
    if vl not in probes:
        pytest.skip(f"this machine cannot run code for {vl} lanes")
    dtype = INTEGERS[name]
    powers = [
        s * 2.0**p * (1 + e)
        for p in range(66)
        for s in (1, -1)
        for e in (0, 1e-7, -1e-7, 1e-15, -1e-15)
    ]
    halves = [v / 2 for v in range(-600, 600)]
    doubles = np.array([*powers, *halves, np.inf, -np.inf, np.nan, 1e300, 65535.99, 2**32 - 0.5])
    with np.errstate(over="ignore"):
        floats = doubles.astype(np.float32)
    out = [np.zeros(len(doubles), dtype) for _ in range(4)]
    pointers = [ctypes.c_void_p(v.ctypes.data) for v in (floats, doubles, *out)]
    probes[vl][f"cast_{name}"](*pointers, ctypes.c_long(len(doubles)))
    for values, cast, saturated in ((floats, out[0], out[2]), (doubles, out[1], out[3])):
        for value, c, s in zip(values.tolist(), cast.tolist(), saturated.tolist(), strict=True):
            assert c == cast_answer(value, dtype), f"cast {value!r} to {name}"
            assert s == saturated_answer(value, dtype), f"saturate {value!r} to {name}"


@pytest.mark.parametrize("vl", (8, 16))
def test_loops_are_vectorized(tmp_path: Path, vl: int) -> None:
    """One loop per line; clang names the lines it vectorized."""
    lines = ['#include "mb/math.h"']
    for name in VECTORIZED:
        call = f"mb_{name}(x[i], z[i])" if name in TWO else f"mb_{name}(x[i])"
        arrays = "const float *restrict x, const float *restrict z, float *restrict y"
        loop = f"for (long i = 0; i < n; i++) y[i] = {call};"
        lines.append(f"void f_{name}({arrays}, long n) {{ (void)z; {loop} }}")
    source = tmp_path / "loops.c"
    source.write_text("\n".join(lines) + "\n")
    lanes = [f"-march={harness.MARCH[vl][0]}", f"-DMB_VL={vl}", "-Rpass=loop-vectorize"]
    command: list[str | Path] = [
        harness.ZIG,
        "clang",
        *harness.FLAGS,
        *lanes,
        "-c",
        source,
        "-o",
        tmp_path / "x.o",
    ]
    remarks = subprocess.run(command, check=True, capture_output=True, text=True).stderr
    done = {int(n) for n in re.findall(r"loops\.c:(\d+):\d+: remark: vectorized loop", remarks)}
    missing = [name for i, name in enumerate(VECTORIZED, 2) if i not in done]
    assert not missing, f"not vectorized for {harness.MARCH[vl][0]}: {missing}"


def host_hashes(folder: Path, vl: int) -> list[int]:
    out = (ctypes.c_uint64 * 64)()
    count = build(HERE / "math_hash.c", folder, vl).hashes(out)
    return list(out)[:count]


def test_avx2_and_avx512_agree(tmp_path: Path) -> None:
    assert host_hashes(tmp_path, 8) == host_hashes(tmp_path, 16)


def test_arm_agrees(tmp_path: Path) -> None:
    if not shutil.which("qemu-aarch64"):
        pytest.skip("qemu-aarch64 is not installed")
    flags = [f.replace("x86_64", "aarch64") for f in harness.FLAGS]
    obj, exe = tmp_path / "hash.o", tmp_path / "hash"
    command: list[str | Path] = [
        harness.ZIG,
        "clang",
        *flags,
        "-DMB_VL=4",
        "-c",
        HERE / "math_hash.c",
        "-o",
        obj,
    ]
    subprocess.run(command, check=True)
    subprocess.run([harness.ZIG, "ld.lld", "-static", obj, "-o", exe], check=True)
    run = subprocess.run(["qemu-aarch64", exe], check=True, capture_output=True, timeout=60)
    assert np.frombuffer(run.stdout, "<u8").tolist() == host_hashes(tmp_path, 8)
