"""Number formatting, memory functions and floating-point modes, called directly."""

from __future__ import annotations

import ctypes
import random
import struct

import numpy as np
import pytest

from build import HARDEN, HERE, ZIG, call, compile_c


@pytest.fixture(scope="session")
def probe(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    folder = tmp_path_factory.mktemp("probe")
    out = compile_c(HERE / "probe.c", folder / "probe.o", "x86_64", {})
    call(ZIG, "ld.lld", "-shared", *HARDEN, out, "-o", folder / "probe.so")
    return ctypes.CDLL(str(folder / "probe.so"))


def shown(probe: ctypes.CDLL, v: float) -> str:
    to = ctypes.create_string_buffer(32)
    n = probe.probe_format(to, ctypes.c_double(v))
    return to.raw[:n].decode()


EDGES = [0.0, -0.0, 1.0, 0.5, 123456.0, 1234565.0, 1234575.0, 999999.5, 9999995.0, 0.0001, 0.00001]
EDGES += [5e-324, 2.2250738585072014e-308, 1.7976931348623157e308, 1e22, 1e23, 0.1, 2.5, 1e-5, 1e5]
EDGES += [float("inf"), float("-inf"), 0.00012345650000000001, 1000005.0, 1000015.0, 99999.95]


@pytest.mark.parametrize("v", EDGES)
def test_format_edges(probe, v):
    assert shown(probe, v) == f"{v:g}" and shown(probe, -v) == f"{-v:g}"


def test_format_random(probe):
    rng = random.Random(5)
    for _ in range(20000):
        v = struct.unpack("<d", rng.randbytes(8))[0]
        if rng.random() < 0.5:
            v = float(np.float32(rng.uniform(-10, 10) * 10 ** rng.randint(-8, 8)))
        assert shown(probe, v) == ("nan" if v != v else f"{v:g}"), v


@pytest.mark.parametrize("text", ["0", "1", "007", "18446744073709551615"])
def test_parse(probe, text):
    v = ctypes.c_uint64()
    assert probe.probe_parse(text.encode(), ctypes.byref(v)) == 1 and v.value == int(text)


@pytest.mark.parametrize("text", ["", "-1", "+1", "1x", " 1", "18446744073709551616", "9" * 30])
def test_parse_refuses(probe, text):
    assert probe.probe_parse(text.encode(), ctypes.byref(ctypes.c_uint64())) == 0


def sizes(rng: random.Random) -> int:
    return rng.choice([rng.randint(0, 70), rng.randint(0, 70), rng.randint(0, 1100), 5000])


def test_memory_functions(probe):
    rng = random.Random(9)
    for _ in range(3000):
        data = bytearray(rng.randbytes(12000))
        n, to, at = sizes(rng), rng.randint(0, 3000), rng.randint(0, 3000)
        if rng.random() < 0.5:
            at = to + rng.randint(-40, 40) if to > 40 else at
        buffer = ctypes.create_string_buffer(bytes(data), len(data))
        base = ctypes.addressof(buffer)
        pick = rng.choice(["move", "set", "copy"])
        if pick == "copy" and abs(to - at) < n:
            to, at = 0, n
        want = bytearray(data)
        if pick == "set":
            probe.probe_set(ctypes.c_void_p(base + to), 0x1C3, ctypes.c_size_t(n))
            want[to : to + n] = b"\xc3" * n
        else:
            function = probe.probe_move if pick == "move" else probe.probe_copy
            function(ctypes.c_void_p(base + to), ctypes.c_void_p(base + at), ctypes.c_size_t(n))
            want[to : to + n] = data[at : at + n]
        assert buffer.raw == bytes(want), (pick, n, to, at)


def test_compare(probe):
    rng = random.Random(3)
    for _ in range(3000):
        a = rng.randbytes(rng.randint(0, 40))
        b = bytearray(a)
        if a and rng.random() < 0.8:
            b[rng.randrange(len(a))] ^= 1 << rng.randrange(8)
        r = probe.probe_compare(a, bytes(b), ctypes.c_size_t(len(a)))
        assert (r > 0) - (r < 0) == (a > bytes(b)) - (a < bytes(b))


def test_floating_point_modes(probe):
    seen = (ctypes.c_uint64 * 5)()
    for outer in (0x1F80, 0x9FC0, 0x7F80, 0x1F00):  # default, flushing, toward zero, traps on
        probe.probe_modes(ctypes.c_uint64(outer), seen)
        assert list(seen) == [0x9FC0, outer, 0x1F80, 0, 1]
