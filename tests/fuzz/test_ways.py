"""The fuzzer's models are large enough for every way in which code is generated: none of them is left to a user to try.

Whoever adds a threshold to code generation or to a kernel's tiles adds it to `sizes.py`, and what tells the way here.
"""

from __future__ import annotations

import contextlib
import re
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from builder import Builder  # noqa: E402
from generators import wild_model  # noqa: E402
from sizes import ELEMENTS, OPEN, THRESHOLDS, long_shape, near, neighbours  # noqa: E402

from monobloc.codegen.lower import lower  # noqa: E402
from monobloc.driver import import_model  # noqa: E402
from monobloc.errors import MonoblocError  # noqa: E402
from monobloc.options import Options  # noqa: E402
from monobloc.passes import PassContext  # noqa: E402
from monobloc.targets import resolve  # noqa: E402

SEED = 600
print(f"seed {SEED}")
COPIES = {f"mb_turn{size}" for size in (1, 4, 8)}
FOLDS = {f"mb_lanes_{kind}" for kind in ("sum", "max", "min")}
PRODUCTS = {"gemm.ku=2", "gemm.ku=4", "gemm.pf=1", "gemm.pf=2", "gemm.b_kind=1",
            *(f"gemm.nv={n}" for n in (1, 2, 3, 4, 5, 8))}
WINDOWS = {"conv.copy=1", "conv.gather=1", "conv.narrow=1", "conv.split=1", "conv.pf=1", "conv.bh=2",
           *(f"conv.nv={n}" for n in (1, 2, 3, 4)), "conv_nchw.bh=4", "conv_nchw.nv=2", "dwconv.split=1"}
BYTES = {*(f"iconv.{way}" for way in ("form=2", "form=4", "split=1", "gather=1", "narrow=1", "bh=1", "bh=2")),
         *(f"iconv.x_size={n}" for n in (1, 2)), *(f"iconv.y_size={n}" for n in (1, 2, 4)),
         *(f"iconv.nv={n}" for n in (1, 2, 3, 4)), "idwconv.x_size=1", "idwconv.x_size=2", "idwconv.y_size=4"}
WAYS = {*COPIES, *FOLDS, *PRODUCTS, *WINDOWS, "mb_parallel_for"}
DESCRIPTOR = re.compile(r"mb_(gemm|conv_nchw|conv|dwconv|iconv|idwconv)\b[^=;(]*= *\{([^}]*)\}")


def ways(text: str) -> set[str]:
    """What functions are called, and what descriptors of kernels say"""
    fields = {f"{kind}.{f}" for kind, fields in DESCRIPTOR.findall(text) for f in
              re.findall(r"\.(\w+ = \d+)", fields)}
    return {*re.findall(r"\b(mb_\w+)\(", text), *(f.replace(" ", "") for f in fields)}


def generated(family: str, count: int) -> set[str]:
    """The ways in which a number of models are compiled"""
    o = Options(target=resolve("x86_64-linux", "x86-64-v4", "avx512vnni"), threads=2)
    found = set[str]()
    for k in range(count):
        _, b = wild_model(SEED + k, family)
        with contextlib.suppress(MonoblocError):
            low = lower(import_model(b.model(), o).graph, PassContext(o.target, threads=2), "m", "m")
            found |= ways("".join(low.unit.files.values()))
    return found


@pytest.mark.parametrize(("family", "count", "wanted"), [("long", 160, WAYS), ("quantized", 160, BYTES)])
def test_models_are_compiled_in_every_way(family: str, count: int, wanted: set[str]) -> None:
    missing = wanted - generated(family, count)
    assert not missing, f"of {count} models none is compiled so: {sorted(missing)}"


def test_sizes_lie_on_both_sides_of_every_threshold() -> None:
    b = Builder(SEED)
    drawn = {near(b) for _ in range(2000)}
    assert all({n for n in neighbours(t) if n <= 2 * max(THRESHOLDS)} & drawn for t in THRESHOLDS)
    assert not {t - 1 for t in THRESHOLDS if t - 1 not in OPEN} - drawn and not {*OPEN} & drawn


def test_long_shapes_stay_small() -> None:
    b = Builder(SEED)
    shapes = [long_shape(b, rank) for rank in (1, 2, 3, 4) for _ in range(200)]
    for shape in shapes:
        size = 1
        for d in shape:
            size *= d
        assert 0 < size <= ELEMENTS, shape
    assert sum(sorted(s)[-2] >= 8 for s in shapes if len(s) > 1) > 100
