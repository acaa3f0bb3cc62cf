"""ONNX's own node tests, through the front end and the references: every operator in every corner.

Inputs that decide a shape are bound to the test's values. What is refused stands in
`onnx_nodes_refused.txt`, so that support is not lost silently; running this file rewrites the list.
"""

from __future__ import annotations

import collections
import functools
import re
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.numpy_helper
import pytest
from eval_expr import as_onnx, eval_node

from monobloc.errors import ErrorList, ModelError, MonoblocError, UnsupportedError
from monobloc.frontend.importer import load_onnx
from monobloc.frontend.importing import Choices
from monobloc.ir.graph import Graph, Value
from monobloc.ir.interp import interpret, run_node
from monobloc.ir.strings import to_chars
from monobloc.ir.types import DType
from monobloc.ops import opdef
from monobloc.options import STRING_ROOM

REFUSED = Path(__file__).with_name("onnx_nodes_refused.txt")
OURS = {d.numpy for d in DType}
EXPR_LIMIT = 1 << 16  # larger folds are checked by the operators' own cases

# tests whose expected values we do not share, and why
DIFFERENT = {
    "test_resize_downsample_scales_linear_align_corners": "takes the size before rounding; onnxruntime does not",
    "test_resize_downsample_scales_cubic_align_corners": "as above",
}


@functools.lru_cache(maxsize=1)
def node_tests() -> dict[str, Any]:
    from onnx.backend.test.case.node import collect_testcases

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tests = collect_testcases(None)
    # "_expanded" tests are the function bodies of others, which the front end expands anyway
    return {t.name: t for t in tests if t.model is not None and t.data_sets and "_expanded" not in t.name}


@functools.lru_cache(maxsize=1)
def by_operator() -> dict[str, list[Any]]:
    out: dict[str, list[Any]] = collections.defaultdict(list)
    for t in node_tests().values():
        out[t.model.graph.node[-1].op_type].append(t)
    return dict(sorted(out.items()))


def feeds_of(t: Any) -> dict[str, np.ndarray] | None:
    """Inputs by name; None where one is no tensor of ours."""
    names = [i.name for i in t.model.graph.input]
    ins, outs = ([array_of(x) for x in side] for side in t.data_sets[0])
    ours = {*OURS, np.dtype(object)}
    plain = all(x is not None and x.dtype in ours for x in (*ins, *outs)) and len(names) == len(ins)
    return dict(zip(names, ins, strict=True)) if plain else None  # type: ignore[arg-type]


def array_of(x: Any) -> np.ndarray | None:
    """A test's tensor; None for sequences and optionals."""
    if isinstance(x, onnx.TensorProto):
        return onnx.numpy_helper.to_array(x)
    return None if x is None or isinstance(x, (list, dict)) else np.asarray(x)


def imported(model: Any, feeds: dict[str, np.ndarray]) -> Graph:
    """The graph, with those inputs bound that the messages ask for."""
    bound: set[str] = set()
    while True:
        try:
            return load_onnx(model, Choices(bind={k: feeds[k] for k in bound})).graph
        except MonoblocError as e:
            errors = e.errors if isinstance(e, ErrorList) else [e]
            hints = [h for x in errors if isinstance(x, UnsupportedError) for h in x.hints]
            wanted = {m for h in hints for m in re.findall(r"--bind ([^\s=]+)=", h)} & feeds.keys()
            if wanted <= bound:
                raise
            bound |= wanted


def refusal(e: MonoblocError) -> bool:
    """Whether all that is wrong is that we cannot do it."""
    errors = e.errors if isinstance(e, ErrorList) else [e]
    return all(isinstance(x, UnsupportedError) and not isinstance(x, ModelError) for x in errors)


def close(got: np.ndarray, want: np.ndarray, t: Any) -> None:
    got = as_onnx(got)
    assert got.shape == want.shape and got.dtype == want.dtype, f"{got.dtype}{got.shape}, not {want.dtype}{want.shape}"
    if want.dtype.kind in "biuO":
        np.testing.assert_array_equal(got, want)
        return
    half = want.dtype.itemsize == 2
    rtol, atol = (1e-2, 1e-2) if half else (max(t.rtol, 1e-4), max(t.atol, 1e-5))
    np.testing.assert_allclose(got.astype(np.float64), want.astype(np.float64), rtol=rtol, atol=atol)


def check_expressions(g: Graph, feeds: dict[str, np.ndarray]) -> None:
    """Every node with an expression computes what its reference does."""
    env: dict[Value, np.ndarray] = {v: v.const.array for v in g.constants() if v.const is not None}
    env |= {v: feeds[v.origin or v.name] for v in g.inputs}
    for n in g.nodes:
        ys = run_node(n, env)
        if opdef(n).has_expr and sum(v.type.size for v in n.used) <= EXPR_LIMIT:
            for (at, got), y in zip(eval_node(n, env, limit=256), ys, strict=True):
                if y.dtype == "S1":
                    assert (got == y.ravel()[at]).all(), n.op
                    continue
                loose = y.dtype.itemsize == 2
                tol = {"rtol": 1e-2, "atol": 1e-2} if loose else {"rtol": 1e-4, "atol": 1e-4}
                np.testing.assert_allclose(got.astype(np.float64), y.ravel()[at].astype(np.float64), **tol)
        env |= dict(zip(n.outputs, ys, strict=True))


def run(t: Any) -> bool:
    """Check one test; False when it is refused."""
    feeds = feeds_of(t)
    if feeds is None:
        return False
    try:
        g = imported(t.model, feeds)
    except MonoblocError as e:
        if refusal(e):
            return False
        raise
    feeds = {k: to_chars(x, k, STRING_ROOM) if x.dtype == object else x for k, x in feeds.items()}
    states = {v.origin or v.name: np.zeros(v.shape, v.dtype.numpy) for v in g.inputs if v.state}
    feeds |= states  # which only random operators have here
    hidden = {v.state for v in g.inputs}
    got = {k: y for k, y in interpret(g, feeds).items() if k not in hidden}
    for y, want in zip(got.values(), t.data_sets[0][1], strict=True):
        if states:
            assert (y.dtype, y.shape) == (array_of(want).dtype, array_of(want).shape)
            continue
        close(y, array_of(want), t)  # type: ignore[arg-type]
    check_expressions(g, feeds)
    return True


@pytest.mark.parametrize("op", by_operator())
def test_operator_is_what_onnx_expects(op: str) -> None:
    refused = set(REFUSED.read_text().split())
    for t in by_operator()[op]:
        if t.name in DIFFERENT:
            continue
        try:
            with np.errstate(all="ignore"):
                done = run(t)
        except (AssertionError, MonoblocError) as e:
            raise AssertionError(f"{t.name}: {e}") from e
        assert done or t.name in refused, f"{t.name} is refused"


def main() -> None:
    lost = []
    for name, t in node_tests().items():
        try:
            if not run(t):
                lost.append(name)
        except (AssertionError, MonoblocError) as e:
            print(f"{name}: {e}"[:300])
    REFUSED.write_text("".join(f"{name}\n" for name in sorted(lost)))


if __name__ == "__main__":
    main()
