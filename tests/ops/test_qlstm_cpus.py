"""The loop of DynamicQuantizeLSTM in every width of vectors, with and without a dot product of bytes."""

from __future__ import annotations

import platform
from pathlib import Path

import numpy as np
import pytest
from test_codegen import all_cases, node_of

from monobloc.errors import MonoblocError
from monobloc.ir.graph import Graph
from monobloc.link.image import link_modules
from monobloc.link.objects import Module
from monobloc.link.request import Request
from monobloc.loader import CompiledModel
from monobloc.ops import registry
from monobloc.options import Options
from monobloc.targets import resolve

CPUS = [("x86-64-v4", "avx512vnni"), ("x86-64-v4", ""), ("x86-64-v3", "avxvnni"), ("x86-64-v3", ""), ("x86-64-v2", "")]


@pytest.mark.skipif(platform.machine() != "x86_64", reason="levels of x86-64")
@pytest.mark.parametrize(("cpu", "features"), CPUS)
def test_every_machine_agrees(cpu: str, features: str, tmp_path: Path, cache: Path) -> None:
    op = registry()["QuantizedLstmLoop"]
    g, feeds, want = Graph("q"), {}, {}
    for k, (_, case) in enumerate(all_cases([op])):
        n = node_of(g, op, case, k, feeds)
        for j, (v, y) in enumerate(zip(n.outputs, op.run(case.attrs, case.inputs, len(n.outputs)), strict=True)):
            g.outputs.append((f"y{k}_{j}", v))
            want[f"y{k}_{j}"] = y
    options = Options(lto="none", cache=cache, target=resolve("x86_64-linux", cpu, features or None))
    link_modules([Module(g, "q", "q")], Request(tmp_path / "m.so", "shared", options))
    try:
        model = CompiledModel(tmp_path / "m.so")
        got = model.run(feeds)
    except MonoblocError as e:
        if "CPU" not in str(e):
            raise
        pytest.skip(str(e).splitlines()[0])
    for name, y in want.items():
        np.testing.assert_allclose(got[name], y, rtol=1e-4, atol=1e-5, err_msg=f"{cpu} {features} {name}")
