"""Single operators of int16 from a trained speech model, beside the repository: every bit of every answer.

All of a family are compiled into one image; two families also with the linker's optimization of whole programs.
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from monobloc.frontend.tflite import load_tflite
from monobloc.ir.graph import Graph
from monobloc.ir.interp import interpret
from monobloc.link.clone import clone
from monobloc.link.image import link_modules
from monobloc.link.objects import Module
from monobloc.link.request import Request
from monobloc.loader import CompiledModel
from monobloc.options import Options

FAMILIES = {"add": 17, "conv": 22, "leaky_relu": 23, "pad": 19, "quantize": 2, "strided_slice": 34, "sub": 5,
            "transpose_conv": 5}
EVERY = [(f, "none") for f in FAMILIES] + [(f, lto) for f in ("conv", "sub") for lto in ("thin", "full")]


def numbers(path: Path) -> np.ndarray:
    return np.array([float(x) for x in re.split(r"[,\s]+", path.read_text().strip()) if x])


@pytest.mark.parametrize(("family", "lto"), EVERY)
def test_seanet(shared: Path, cache: Path, tmp_path: Path, family: str, lto: str) -> None:
    folder = shared / "tflite_ops" / "seanet" / family
    models = sorted(folder.glob("*.tflite"))
    assert len(models) == FAMILIES[family]
    whole, feeds, wanted = Graph(family), {}, {}
    for path in models:
        g, local = load_tflite(path).graph, {}
        files, given = sorted(folder.glob(f"{path.stem}_input*.csv")), {}
        for v, f in zip(g.inputs, [*files, *[None] * len(g.inputs)], strict=False):
            x = numbers(f).astype(v.dtype.numpy).reshape(v.shape) if f and v.users else np.zeros(v.shape, v.dtype.numpy)
            local[v] = whole.add_input(f"{path.stem}.{v.name}", v.type)
            given[v.name] = feeds[local[v].name] = x
        want = wanted[path.stem] = numbers(next(iter(sorted(folder.glob(f"{path.stem}_golden*.csv")))))
        if lto == "none":
            assert np.array_equal(interpret(g, given)[g.outputs[0][0]].ravel(), want), path.name
        clone(whole, g, local, {}, f"{path.stem}.")
        whole.outputs.append((path.stem, local[g.outputs[0][1]]))
    out, options = tmp_path / "family.so", Options(lto=lto, cache=cache)
    link_modules([Module(whole, family, family)], Request(out, "shared", options))
    got = CompiledModel(out).run(feeds)
    assert [name for name, want in wanted.items() if not np.array_equal(got[name].ravel(), want)] == []
