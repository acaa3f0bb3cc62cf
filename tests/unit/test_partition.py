"""Files of a program: each kernel once, and a change moves nothing but what is next to it."""

from __future__ import annotations

import numpy as np
import pytest

from monobloc.codegen.lower import Lowered, lower
from monobloc.codegen.names import FILE_LIMIT, scoped
from monobloc.codegen.partition import FILES, Item, divide
from monobloc.ir.graph import Graph
from monobloc.ir.types import DType, TensorType
from monobloc.ops.build import Builder
from monobloc.passes import PassContext
from monobloc.targets import resolve


def items(count: int, kernels: int = 0) -> list[Item]:
    return [Item(f"layer_{k}", f"kernel {k % kernels}" if kernels else "") for k in range(count)]


def files(of: list[Item]) -> set[tuple[str, ...]]:
    return {tuple(of[k].name for k in chunk) for chunk in divide(of)}


@pytest.mark.parametrize(("count", "kernels"), [(0, 0), (1, 0), (40, 0), (100, 30), (2000, 0), (2000, 100)])
def test_every_layer_is_in_one_file_with_all_of_its_kernel(count: int, kernels: int) -> None:
    of = items(count, kernels)
    chunks = divide(of)
    assert sorted(k for chunk in chunks for k in chunk) == list(range(count))
    for chunk in chunks:
        here = {of[k].kernel for k in chunk} - {""}
        assert not any(of[k].kernel in here for other in chunks if other is not chunk for k in other)
    assert len(chunks) <= 2 * FILES


@pytest.mark.parametrize("kernels", [0, 60])
def test_an_inserted_layer_changes_the_files_beside_it(kernels: int) -> None:
    of = items(120, kernels)
    before = files(of)
    assert len(before) >= 8
    for at in range(0, 120, 7):
        after = files([*of[:at], Item("new"), *of[at:]])
        assert len(after - before) <= 3


def mlp(seed: int, relu_at: int = -1, name: str = "m") -> Lowered:
    """Twenty layers of different widths, with weights from the seed; one activation may differ."""
    rng = np.random.default_rng(seed)
    g = Graph("g")
    b = Builder(g)
    v = g.add_input("x", TensorType(DType.F32, (3, 16)))
    for k in range(20):
        w = b.const(rng.standard_normal((16 + k, 17 + k), np.float32), name=f"w{k}")
        v = b.one("Relu" if k == relu_at else "Tanh", b.one("MatMul", v, w))
    g.outputs = [("y", v)]
    return lower(g, PassContext(resolve()), name, name)


def test_long_names_of_model_and_nodes_make_files() -> None:
    low = mlp(1, name="models_" * 20)
    assert len(low.files) > 2 and max(map(len, low.files)) <= FILE_LIMIT


def test_new_weights_change_no_text() -> None:
    one, two = mlp(1), mlp(2)
    assert len(one.files) > 4 and one.files == two.files
    assert {v.const.key for v in one.unit.weights.values() if v.const} != {
        v.const.key for v in two.unit.weights.values() if v.const}


def _text(low: Lowered) -> dict[str, str]:
    """As it is compiled: without the lines of the listing"""
    return {n: "\n".join(x for x in t.splitlines() if not x.startswith("#line")) for n, t in low.files.items()}


@pytest.mark.parametrize("at", [0, 9, 19])
def test_another_operator_changes_one_file(at: int) -> None:
    before, after = _text(mlp(1)), _text(mlp(1, relu_at=at))
    assert len([n for n in after if after[n] != before.get(n)]) == 1


def test_names_of_programs_never_meet() -> None:
    assert scoped("net", "head_x") != scoped("net_head", "x")
