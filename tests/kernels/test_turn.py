"""mb/turn.h: transpositions of every element size and odd edges, on guarded memory; copies that become one."""

from __future__ import annotations

import ctypes
import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from monobloc.codegen.lower import lower
from monobloc.ir.graph import Graph
from monobloc.ir.types import DType, TensorType
from monobloc.link.image import link_modules
from monobloc.link.objects import Module
from monobloc.link.request import Request
from monobloc.loader import CompiledModel
from monobloc.ops import registry
from monobloc.options import Options
from monobloc.passes import PassContext
from tests.kernels import harness

SHAPES = [(1, 1), (16, 16), (17, 33), (5, 70), (64, 8), (8, 3), (40, 31)]


@pytest.mark.parametrize("vl", [4, 8, 16])
def test_turn(vl: int, tmp_path: Path) -> None:
    if not harness.cpu_has(vl):
        pytest.skip(f"this CPU has no vectors of {vl} floats")
    text = '#include "mb/turn.h"\n' + "\n".join(
        f"void turn{k}(void *y, long ys, const void *x, long xs, long n, long m) {{ mb_turn{k}(y, ys, x, xs, n, m); }}"
        for k in (1, 2, 4, 8)
    )
    lib = harness.compile_shared(text, tmp_path, vl)
    for size in (1, 2, 4, 8):
        for n, m in SHAPES:
            for at_end in (True, False):
                x = np.arange(m * n, dtype=f"u{size}").reshape(m, n)
                g, y = harness.Guarded(x, at_end), harness.Guarded(np.zeros((n, m), x.dtype), at_end)
                long = ctypes.c_long
                turn = getattr(lib, f"turn{size}")
                turn(y.pointer, long(m), g.pointer, long(n), long(n), long(m))
                np.testing.assert_array_equal(y.array, x.T, err_msg=f"{size} {n}x{m}")
                assert y.canaries_intact() and g.canaries_intact(), f"{size} {n}x{m}"
                wide = np.zeros((n, m + 3), x.dtype)  # rows that lie apart
                turn(ctypes.c_void_p(wide.ctypes.data), long(m + 3), g.pointer, long(n), long(n), long(m))
                np.testing.assert_array_equal(wide[:, :m], x.T)
                assert not wide[:, m:].any()


@pytest.mark.parametrize("threads", [1, 2])
def test_transposes_of_every_order_and_type(threads: int, tmp_path: Path) -> None:
    """Through an image, which says in its C where squares are used."""
    g, feeds, want = Graph("t"), {}, {}
    rng = np.random.default_rng(5)
    for k, (perm, kind) in enumerate(itertools.product(itertools.permutations(range(3)), "f4 i1 f8 f2 i8 b1".split())):
        x = rng.integers(0, 100, (17, 10, 24)).astype(kind)
        v = g.add_input(f"x{k}", TensorType(DType.of(x.dtype), x.shape))
        y = registry()["Transpose"].infer([v], {"perm": list(perm)})
        n = g.make("Transpose", [v], y, {"perm": list(perm)}, name=f"t{k}")
        g.outputs.append((f"y{k}", n.outputs[0]))
        feeds[f"x{k}"], want[f"y{k}"] = x, x.transpose(perm)
    options = Options(lto="none", cache=tmp_path / "cache", threads=threads)
    link_modules([Module(g, "t", "t")], Request(tmp_path / "t.so", "shared", options))
    got = CompiledModel(tmp_path / "t.so").run(feeds)
    for name, y in want.items():
        np.testing.assert_array_equal(got[name], y, err_msg=name)
    text = "".join(lower(g, PassContext(options.target, threads=threads), "t", "t").unit.files.values())
    assert all(f"mb_turn{size}(" in text for size in (1, 2, 4, 8))


# Whatever only moves elements, over axes that are long enough for squares and vectors; operators' own cases are short.
LONG = (17, 10, 24)
COPIES: list[tuple[str, tuple[int, ...], dict[str, Any]]] = [
    *(("Expand", tuple(d if k in kept else 1 for k, d in enumerate(LONG)), {"shape": list(LONG)})
      for kept in ((), (0,), (1,), (2,), (0, 1), (0, 2), (1, 2))),
    ("Expand", (24,), {"shape": [17, 24]}), ("Expand", (9, 1), {"shape": [9, 8]}),
    ("Tile", (10, 24), {"repeats": [2, 3]}), ("Tile", (17, 1), {"repeats": [1, 16]}),
    ("Tile", (1, 17), {"repeats": [16, 1]}),
    *(("Slice", LONG, {"starts": first, "steps": steps, "sizes": sizes}) for first, steps, sizes in (
        ([0, 0, 0], [1, 1, 1], [17, 1, 24]), ([16, 9, 23], [-1, -1, -1], [17, 10, 24]),
        ([1, 0, 3], [2, 1, 2], [8, 10, 10]), ([0, 0, 5], [1, 1, 1], [17, 10, 1]))),
    *(("Pad", (10, 24), {"pads": [1, 2, 3, 4], "mode": mode}) for mode in ("constant", "reflect", "edge", "wrap")),
    ("Trilu", (2, 17, 24), {"upper": 1, "k": 0}), ("Reshape", LONG, {"shape": [24, 170]}),
    *(("Transpose", LONG, {"perm": list(perm)}) for perm in itertools.permutations(range(3))),
    ("Transpose", (1, 16, 1, 24), {"perm": [3, 2, 1, 0]}), ("Transpose", (2, 9, 3, 11), {"perm": [2, 3, 0, 1]}),
]


@pytest.mark.parametrize("kind", ["f4", "i1", "i8", "f2"])
@pytest.mark.parametrize("threads", [1, 2])
def test_copies_over_long_axes(kind: str, threads: int, tmp_path: Path) -> None:
    g, feeds, want, rng = Graph("c"), {}, {}, np.random.default_rng(6)
    for k, (op, shape, attrs) in enumerate(COPIES):
        x = rng.integers(0, 100, shape).astype(kind)
        v = g.add_input(f"x{k}", TensorType(DType.of(x.dtype), shape))
        n = g.make(op, [v], registry()[op].infer([v], attrs), attrs, name=f"c{k}")
        g.outputs.append((f"y{k}", n.outputs[0]))
        feeds[f"x{k}"], want[f"y{k}"] = x, registry()[op].ref(attrs, x)
    link_modules([Module(g, "c", "c")], Request(tmp_path / "c.so", "shared", Options(
        lto="none", cache=tmp_path / "cache", threads=threads)))
    got = CompiledModel(tmp_path / "c.so").run(feeds)
    for (name, y), case in zip(want.items(), COPIES, strict=True):
        np.testing.assert_array_equal(got[name], y, err_msg=str(case))
