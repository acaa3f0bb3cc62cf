"""Intervals hold: what an operator computes is in the range that its rule gives for its operands' ranges."""

from __future__ import annotations

import numpy as np
import pytest

from monobloc.ir.graph import Graph
from monobloc.ir.types import DType, TensorType
from monobloc.ops import Case, registry
from monobloc.passes.intervals import RULES, Range, Ranges, every, of_array

SEED = 77
print(f"seed {SEED}")
CASES = [(name, case) for name in sorted(RULES) if name in registry()
         for case in registry()[name].cases(np.random.default_rng(SEED))]


def shifted(case: Case, by: float) -> Case:
    """The same with other numbers: float inputs scaled, so that other ends of ranges are met."""
    with np.errstate(all="ignore"):
        ins = [x * x.dtype.type(by) if isinstance(x, np.ndarray) and x.dtype.kind == "f" else x for x in case.inputs]
    return Case(tuple(ins), case.attrs, case.name)


def check(name: str, case: Case) -> None:
    op, g, ranges = registry()[name], Graph("g"), Ranges()
    arrays = [None if x is None else np.asarray(x) for x in case.inputs]
    values = []
    for k, x in enumerate(arrays):
        if x is None:
            values.append(None)
        elif x.ndim == 0:
            values.append(g.constant(f"c{k}", x))
        else:
            v = g.add_input(f"x{k}", TensorType(DType.of(x.dtype), x.shape))
            ranges.known[v] = of_array(x, v.dtype)
            values.append(v)
    node = g.make(name, values, op.infer(values, dict(case.attrs)), case.attrs)
    with np.errstate(all="ignore"):
        made = op.run(case.attrs, arrays, len(node.outputs))
    for v, y in zip(node.outputs, made, strict=True):
        if y.size:
            said, met = ranges.of(v), of_array(y, v.dtype)
            numbers = y.astype(np.float64)[~np.isnan(y.astype(np.float64))]
            assert not numbers.size or (said.lo <= met.lo and met.hi <= said.hi), f"{met} is not in {said}"
            assert said.nan or not np.isnan(y.astype(np.float64)).any(), f"NaN is not in {said}"


@pytest.mark.parametrize("name,case", CASES, ids=[f"{n}-{k}-{c.name}" for k, (n, c) in enumerate(CASES)])
def test_results_are_in_range(name: str, case: Case) -> None:
    for by in (1.0, -1.0, 100.0, 0.0):
        check(name, shifted(case, by))


def test_every_rule_is_tried() -> None:
    untried = {name for name in RULES if name in registry() and name not in {n for n, _ in CASES}}
    assert untried <= {"Copy", "Split", "Flatten", "Squeeze", "Unsqueeze"}


def test_integers_that_may_wrap_are_anything() -> None:
    g, ranges = Graph("g"), Ranges()
    x, y = (g.add_input(n, TensorType(DType.I8, (4,))) for n in "xy")
    ranges.known |= {x: Range(0, 100), y: Range(0, 27)}
    assert ranges.of(g.make("Add", [x, y], [x.type]).outputs[0]) == Range(0, 127)
    ranges.known[y] = Range(0, 28)
    assert ranges.of(g.make("Add", [x, y], [x.type]).outputs[0]) == every(DType.I8)


def test_casts_of_what_does_not_fit_are_anything() -> None:
    g, ranges = Graph("g"), Ranges()
    x = g.add_input("x", TensorType(DType.F32, (4,)))
    cast = g.make("Cast", [x], [TensorType(DType.I32, (4,))], {"to": DType.I32})
    for r, want in ((Range(-1.5, 9.9), Range(-1, 9)), (Range(0.0, 3e9), every(DType.I32)),
                    (Range(0.0, 1.0, True), every(DType.I32))):
        ranges.known = {x: r}
        assert ranges.of(cast.outputs[0]) == want


@pytest.mark.parametrize(("d", "top"), [(DType.F32, 1e30), (DType.F16, 3e4), (DType.BF16, 1e30), (DType.F64, 1e300)])
def test_floats_that_may_overflow_may_be_infinite(d: DType, top: float) -> None:
    """And what is computed of infinity may be no number, which fits into no integer."""
    g, ranges = Graph("g"), Ranges()
    x = g.add_input("x", TensorType(d, (4,)))
    ranges.known[x] = Range(0.0, top)
    square = g.make("Mul", [x, x], [x.type]).outputs[0]
    assert ranges.of(square) == Range(0.0, np.inf)
    assert ranges.of(g.make("Sub", [square, square], [x.type]).outputs[0]).nan
    index = g.make("Cast", [g.make("Mul", [square, x], [x.type]).outputs[0]], [TensorType(DType.I64, (4,))],
                   {"to": DType.I64}).outputs[0]
    assert ranges.of(index) == every(DType.I64)
