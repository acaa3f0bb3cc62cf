"""Loop nests: few loops, contiguous inside, folds outside the loops that do not need them, work divided once."""

from __future__ import annotations

import re

import numpy as np
import pytest

from monobloc.codegen.loops import LoopContext, Writer, emit_outputs
from monobloc.codegen.storage import Storage, dense
from monobloc.ir.graph import Graph, Value
from monobloc.ir.types import DType, TensorType
from monobloc.ops.build import Builder
from monobloc.passes import PassContext, run_passes
from monobloc.passes.fuse import Fuse
from monobloc.targets import resolve


def graph(*shapes: tuple[int, ...]) -> tuple[Graph, Builder, list[Value]]:
    g = Graph("g")
    return g, Builder(g), [g.add_input(f"x{k}", TensorType(DType.F32, s)) for k, s in enumerate(shapes)]


def code(g: Graph, y: Value, threads: int = 1, layout: tuple[int, ...] | None = None) -> list[str]:
    """C of the last node after fusion; `layout` is that of every value of the output's rank."""
    g.outputs = [("y", y)]
    run_passes(g, PassContext(resolve()), [Fuse()])
    node, w = g.nodes[-1], Writer()

    def storage(v: Value) -> Storage:
        fits = layout is not None and v.type.rank == len(layout)
        return dense(v.name if v.const is not None else 0, v.type.with_layout(layout) if fits else v.type)

    emit_outputs(node, LoopContext(storage, lambda v: f"p_{v.name}", threads), w)
    return w.lines


def loops(lines: list[str]) -> list[str]:
    return [m[1] for line in lines if (m := re.search(r"for \(long \w+ = \w+; \w+ < (\w+);", line))]


def depth(lines: list[str], text: str) -> int:
    """How many loops stand round the first line with that text."""
    at = next(k for k, line in enumerate(lines) if text in line)
    inside = (len(lines[at]) - len(lines[at].lstrip())) // 2
    return inside - 1


def test_contiguous_loops_are_one() -> None:
    g, b, (x,) = graph((2, 3, 4, 5))
    assert loops(code(g, b.one("Tanh", x))) == ["120"]


def test_the_innermost_loop_runs_along_the_output() -> None:
    g, b, (x,) = graph((3, 40))
    lines = code(g, b.one("Transpose", x, perm=[1, 0]))
    assert loops(lines) == ["40", "3"]
    g, b, (x,) = graph((2, 30, 4, 5))
    bias = b.const(np.ones((30, 1, 1), np.float32))
    assert loops(code(g, b.one("Add", x, bias), layout=(0, 2, 3, 1))) == ["40", "30"]


def test_a_broadcast_keeps_only_the_loops_it_needs() -> None:
    g, b, (x, z) = graph((6, 5, 4), (6, 1, 1))
    assert loops(code(g, b.one("Mul", x, z))) == ["6", "20"]


def test_a_row_fold_stands_outside_the_row() -> None:
    """softmax: the maximum and the sum of a row are computed once per row."""
    g, b, (x,) = graph((7, 100))
    lines = code(g, b.one("Softmax", x, axis=1))
    assert depth(lines, "acc") <= 1
    store = next(k for k, line in enumerate(lines) if "p_softmax[" in line)
    assert not any("lane" in line for line in lines[store - 2 :]), "the fold is computed for every element"


def test_a_fold_along_memory_runs_in_lanes() -> None:
    g, b, (x,) = graph((7, 100))
    text = "\n".join(code(g, b.one("ReduceSum", x, axes=[1], keepdims=0)))
    assert re.search(r"const float acc\d+ = mb_lanes_sum\(lane\d+\);", text)


def test_a_fold_across_memory_runs_in_strips() -> None:
    g, b, (x,) = graph((50, 640))
    lines = code(g, b.one("ReduceSum", x, axes=[0], keepdims=0))
    assert any(re.search(r"float acc\d+\[64\]", line) for line in lines)
    assert "vectorize(assume_safety)" in "\n".join(lines)


@pytest.mark.parametrize("shape", [(5,), (40, 3), (2, 64, 5), (1, 1), ()])
def test_work_is_divided_once(shape: tuple[int, ...]) -> None:
    """One loop has bounds by thread; without a loop one thread does the work."""
    g, b, (x,) = graph(shape)
    text = "\n".join(code(g, b.one("Tanh", x), threads=4))
    size = int(np.prod(shape))
    if size == 1:
        assert "if (tid == 0)" in text
    else:
        assert text.count("* tid / nt") == 1 and text.count("* (tid + 1) / nt") == 1


def test_one_thread_needs_no_division() -> None:
    g, b, (x,) = graph((40, 30))
    text = "\n".join(code(g, b.one("Tanh", x)))
    assert "tid" not in text and "nt" not in re.findall(r"\b\w+\b", text)


def test_run_time_indices_are_checked() -> None:
    g = Graph("g")
    b = Builder(g)
    x, i = g.add_input("x", TensorType(DType.F32, (10, 3))), g.add_input("i", TensorType(DType.I64, (4,)))
    text = "\n".join(code(g, b.one("Gather", x, i, axis=0)))
    assert re.search(r"mb_index\(.*10.*&bad\)", text)


def test_equal_parts_are_computed_once() -> None:
    g, b, (x,) = graph((30,))
    t = b.one("Exp", x)
    text = "\n".join(code(g, b.one("Mul", b.one("Add", t, x), b.one("Sub", t, x))))
    assert text.count("mb_exp") == 0  # it is read twice: a layer of its own
    g, b, (x,) = graph((30,))
    text = "\n".join(code(g, b.one("Gelu", x, approximate="none")))
    assert len(re.findall(r"p_x0\[", text)) == 1
