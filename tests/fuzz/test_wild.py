"""Wild models: special values, odd attributes, operators as their OpDefs have them; and what was found by them before.

`python tools/fuzz.py` looks longer. `found/` holds a minimal model of each kind that once failed, with right answers.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import onnx
import pytest

sys.path.insert(0, str(Path(__file__).parent))
from builder import Builder  # noqa: E402
from tolerance import differs  # noqa: E402
from trial import models, reduced, trial  # noqa: E402

from monobloc.driver import import_model  # noqa: E402
from monobloc.link.image import link_modules  # noqa: E402
from monobloc.link.objects import Module  # noqa: E402
from monobloc.link.request import Request  # noqa: E402
from monobloc.loader import CompiledModel  # noqa: E402
from monobloc.options import Options  # noqa: E402

SEED, COUNT = 20, 10
print(f"seed {SEED}")
FOUND = sorted((Path(__file__).parent / "found").glob("*.onnx"))


def test_wild_models(tmp_path: Path) -> None:
    batch, _ = models(range(SEED, SEED + COUNT))
    found, refused = trial(batch, tmp_path, Options(cache=tmp_path / "cache"), ("none", "full"))
    assert not found, "\n".join(f"{f.label} {f.builder.seed}, --lto {f.mode}: {f.why}" for f in found)
    assert len(batch) > COUNT // 2 and len(refused) < COUNT // 2


def test_a_wrong_answer_is_found_and_reduced(tmp_path: Path) -> None:
    """The chain's last node is right; the one before it has, by its record, another answer."""
    b = Builder(SEED)
    x = b.input(b.random((2, 3)))
    y = b.one("Neg", b.one("Abs", x))
    z = b.one("Floor", b.one("Sigmoid", y))
    b.values[y] = b.values[y] + 1
    b.outputs = [y, z]
    (f,), refused = trial([("chain", b)], tmp_path, Options(cache=tmp_path / "cache"), ("none",))
    assert "Neg" in f.why and not refused
    small = reduced(f, tmp_path / "reduce", Options(cache=tmp_path / "cache"))
    assert [n.op_type for n in small.builder.nodes] == ["Neg"]


@pytest.mark.skipif(not FOUND, reason="nothing was found yet")
@pytest.mark.parametrize("lto", ["none", "full"])
def test_what_was_found_before(lto: str, tmp_path: Path, cache: Path) -> None:
    o = Options(lto=lto, cache=cache)  # type: ignore[arg-type]
    graphs = [import_model(onnx.load(p), o).graph for p in FOUND]
    out = tmp_path / "found.so"
    link_modules([Module(g, f"f{k}", f"f{k}", f"f{k}") for k, g in enumerate(graphs)], Request(out, "shared", o))
    made = {m.name: m for m in (CompiledModel(out, k) for k in range(len(FOUND)))}
    bad = []
    for k, path in enumerate(FOUND):
        with np.load(path.with_suffix(".npz")) as z:
            feeds = {n[3:]: z[n] for n in z.files if n.startswith("in:")}
            want = {n[4:]: z[n] for n in z.files if n.startswith("out:")}
        got = made[f"f{k}"].run(feeds)
        bad += [f"{path.name}: {n}: {d}" for n, y in want.items() if (d := differs(got[n], y))]
    assert not bad, "\n".join(bad)
