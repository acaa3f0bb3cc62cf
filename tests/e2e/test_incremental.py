"""What an edit recompiles: new weights nothing, an operator its partition, the application itself alone."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import onnx
import pytest
from chain_model import Change, chain
from onnx import helper

from monobloc.codegen.lower import Lowered
from monobloc.driver import Build, build
from monobloc.link.image import Partitions
from monobloc.loader import CompiledModel
from monobloc.object import sysroot
from monobloc.options import Options
from monobloc.targets import resolve

LAYERS = 16


def write(path: Path, change: Change = lambda nodes, weights: None) -> Path:
    return chain(path, LAYERS, 20, change)


def new_weight(nodes: list[onnx.NodeProto], weights: dict[str, np.ndarray]) -> None:
    weights["w7"] = weights["w7"] * np.float32(1.5)


def new_operator(nodes: list[onnx.NodeProto], weights: dict[str, np.ndarray]) -> None:
    nodes[15].op_type = "Sigmoid"


def one_more(nodes: list[onnx.NodeProto], weights: dict[str, np.ndarray]) -> None:
    """A product in the middle, which changes no other shape"""
    weights["extra"] = np.eye(28, dtype=np.float32) * 2
    nodes.insert(16, helper.make_node("MatMul", ["t7", "extra"], ["e"], "extra"))
    nodes[17].input[0] = "e"


def two_more(nodes: list[onnx.NodeProto], weights: dict[str, np.ndarray]) -> None:
    """Two of them: results take turns in two places, so none behind them moves"""
    one_more(nodes, weights)
    nodes.insert(17, helper.make_node("MatMul", ["e", "extra"], ["f"], "again"))
    nodes[18].input[0] = "f"


def built(path: Path, cache: Path, lto: str, out: str = "m.so") -> Build:
    o = Options(lto=lto, cache=cache)  # type: ignore[arg-type]
    return build([path], path.parent / out, "shared", o)


def made(path: Path, cache: Path, lto: str, out: str = "m.so") -> Partitions:
    return built(path, cache, lto, out).image.partitions


def places(low: Lowered) -> dict[str, list[int]]:
    """Where in memory the operands of every layer are; weights are named, and have no place."""
    p = low.placement
    return {n.name: [p.offset[p.storage[v].base] + p.storage[v].offset for v in (*n.used, *n.outputs) if v in p.storage]
            for n in p.order}


@pytest.mark.parametrize("lto", ["none", "thin"])
def test_what_an_edit_of_the_model_recompiles(lto: str, tmp_path: Path) -> None:
    path, cache = tmp_path / "m.onnx", tmp_path / "cache"
    write(path)
    first = made(path, cache, lto)
    assert first.compiled == first.count >= 6
    write(path, new_weight)
    assert made(path, cache, lto) == Partitions(first.count, 0)
    write(path, new_operator)
    assert made(path, cache, lto).compiled == 1
    for change in (new_weight, new_operator):  # and it is what a clean build gives
        write(path, change)
        made(path, cache, lto)
        made(path, tmp_path / f"clean.{change.__name__}", lto, "clean.so")
        assert (tmp_path / "m.so").read_bytes() == (tmp_path / "clean.so").read_bytes()


@pytest.mark.parametrize(("change", "moves"), [(one_more, 8), (two_more, 1)])
def test_an_inserted_operator_recompiles_what_is_near(change: Change, moves: int, tmp_path: Path) -> None:
    """The operator's partition, those with layers whose places in memory moved, and the two that know all layers."""
    path, cache = tmp_path / "m.onnx", tmp_path / "cache"
    write(path)
    first = built(path, cache, "none")
    write(path, change)
    second = built(path, cache, "none")
    before, after = places(first.programs[0]), places(second.programs[0])
    reached = {layer for layer, where in after.items() if before.get(layer) != where}
    assert len(reached & set(before)) == moves
    layers = [set(re.findall(r"^MB_LAYER int layer_1m_(\w+)\(", text, re.M))
              for text in second.programs[0].files.values()]
    assert set().union(*layers) == set(after)
    again = sum(bool(f & reached) for f in layers) + 2
    assert second.image.partitions == Partitions(first.image.partitions.count, again)


def test_new_weights_are_what_runs(tmp_path: Path) -> None:
    path, cache = tmp_path / "m.onnx", tmp_path / "cache"
    x = np.random.default_rng(1).standard_normal((2, 20)).astype(np.float32)
    answers = []
    for change in (lambda nodes, weights: None, new_weight):
        write(path, change)
        made(path, cache, "thin", f"{len(answers)}.so")  # a process loads what lies under one name once
        answers.append(CompiledModel(tmp_path / f"{len(answers)}.so")(x))
    assert np.abs(answers[0] - answers[1]).max() > 1e-4


APP = """
#include <stdio.h>
#include "m.h"
int main(void) { m_in_x()[0] = 1; int e = m_run(); printf("%d\\n", N); return e + (m_out_t15()[0] > 2); }
"""


@pytest.mark.parametrize("lto", ["none", "thin"])
def test_an_edit_of_the_application_recompiles_no_model(lto: str, tmp_path: Path) -> None:
    if sysroot.system_libc(resolve()) is None:
        pytest.skip("no system compiler with a libc here")
    path, app = tmp_path / "m.onnx", tmp_path / "app.c"
    write(path)
    o = Options(lto=lto, cache=tmp_path / "cache")  # type: ignore[arg-type]
    for k in (1, 2):
        app.write_text(APP.replace("N", str(k)))
        parts = build([path, app], tmp_path / "app", "exe", o).image.partitions
        assert parts.compiled == (parts.count if k == 1 else 0) and parts.count >= 6
