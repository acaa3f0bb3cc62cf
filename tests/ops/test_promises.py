"""What operators promise of unusual operands (`edges`, `moves`) holds: interpreted, compiled, and beside two oracles.

docs/numerics.md prints the same promises, so a sentence there that is not true fails here.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from onnx_form import asked, has_onnx_form, onnx_model

from monobloc.errors import ModelError
from monobloc.ir.graph import Graph
from monobloc.ir.types import DType, TensorType
from monobloc.link.image import link_modules
from monobloc.link.objects import Module
from monobloc.link.request import Request
from monobloc.loader import CompiledModel
from monobloc.ops import Case, OpDef, registry
from monobloc.ops.contract import Edge
from monobloc.options import Options

SEED = 5
print(f"seed {SEED}")
Array = np.ndarray
# ONNX has as an input what is an attribute inside the compiler
AS_INPUT = {"TopK": "k", "CumSum": "axis", "CumProd": "axis", "Slice": "starts"}
NOT_ONNX = {"to"}


def all_edges() -> list[tuple[OpDef, Edge]]:
    return [(op, e) for _, op in sorted(registry().items()) for e in op.edges]


EDGES = all_edges()
IDS = [f"{op.name}-{k}-{e.topic}" for k, (op, e) in enumerate(EDGES)]


def case_of(op: OpDef, e: Edge) -> Case:
    return Case(e.inputs, {**op.example, **e.attrs})


def graph_of(op: OpDef, case: Case) -> tuple[Graph, dict[str, Array]]:
    g, feeds, ins = Graph(op.name), {}, []
    for j, x in enumerate(case.inputs):
        if x is None:
            ins.append(None)
            continue
        feeds[f"x{j}"] = np.asarray(x)
        ins.append(g.add_input(f"x{j}", TensorType(DType.of(feeds[f"x{j}"].dtype), feeds[f"x{j}"].shape)))
    n = g.make(op.name, ins, op.infer(ins, case.attrs), case.attrs, name=op.name)
    g.outputs = [(f"y{j}", v) for j, v in enumerate(n.outputs)]
    return g, feeds


def same(got: Array, want: Array, rtol: float, zeros: bool) -> bool:
    if got.dtype != want.dtype or got.shape != want.shape:
        return False
    if want.dtype.kind in "biu":
        return bool((got == want).all())
    g, w = got.astype(np.float64), want.astype(np.float64)
    close = np.allclose(g, w, rtol=rtol, atol=0, equal_nan=True)
    signs = np.signbit(g) == np.signbit(w)
    return close and bool((signs | (w != 0) | np.isnan(w)).all() if zeros else True)


def agrees(op: OpDef, e: Edge, got: list[Array]) -> bool:
    zeros, rtol = e.zeros and e.topic in ("-0.0", "infinities"), 1e-3 if e.gives[0].dtype == np.float16 else 1e-5
    return all(same(np.asarray(y), np.asarray(w), rtol, zeros) for y, w in zip(got, e.gives, strict=False))


@pytest.mark.parametrize(("op", "e"), [(op, e) for op, e in EDGES if e.gives],
                         ids=[i for i, (_, e) in zip(IDS, EDGES, strict=True) if e.gives])
def test_interpreted(op: OpDef, e: Edge) -> None:
    case = case_of(op, e)
    with np.errstate(all="ignore"):
        got = op.run(case.attrs, [None if x is None else np.asarray(x) for x in case.inputs], len(e.gives))
    assert agrees(op, e, got), f"{op.name}: {e.topic} {e.says}: {got} instead of {e.gives}"


@pytest.mark.parametrize("lto", ["none", "full"])
def test_compiled(lto: str, tmp_path: Path, cache: Path) -> None:
    made = [graph_of(op, case_of(op, e)) for op, e in EDGES]
    out, o = tmp_path / "promises.so", Options(lto=lto, cache=cache)  # type: ignore[arg-type]
    link_modules([Module(g, f"p{k}", f"p{k}", f"p{k}") for k, (g, _) in enumerate(made)], Request(out, "shared", o))
    models = {m.name: m for m in (CompiledModel(out, k) for k in range(len(made)))}
    bad = []
    for k, ((op, e), (_, feeds)) in enumerate(zip(EDGES, made, strict=True)):
        bad += [f"{op.name}: {e.topic} {e.says}: {why}" for why in broken(op, e, models[f"p{k}"], feeds)]
    assert not bad, "\n".join(bad)


def broken(op: OpDef, e: Edge, model: CompiledModel, feeds: dict[str, Array]) -> Iterator[str]:
    try:
        got = list(model.run(feeds).values())
    except ModelError as error:
        if e.gives:
            yield str(error)
        return
    if not e.gives:
        yield f"no error, but {got}"
    elif not agrees(op, e, got):
        yield f"{got} instead of {e.gives}"


# -- beside others ------------------------------------------------------------------------------------
def onnx_case(op: OpDef, e: Edge) -> Case | None:
    """The example in ONNX's own form, where there is one."""
    case = case_of(op, e)
    attrs = {k: v for k, v in case.attrs.items() if k not in NOT_ONNX}
    moved = "axes" if op.name.startswith("Reduce") else AS_INPUT.get(op.name, "")
    inputs = case.inputs
    if moved:
        value = attrs.pop(moved)
        inputs = (*inputs, np.array(value if moved in ("axes", "axis") else [value], np.int64))
    case = Case(inputs, attrs)
    return case if has_onnx_form(op, case) else None


@pytest.mark.parametrize("who", ["onnx", "onnxruntime"])
def test_others_agree_but_where_we_say_so(who: str) -> None:
    asking = [(op, e, c) for op, e in EDGES if e.gives and (c := onnx_case(op, e)) is not None]
    feeds = [{f"x{i}": np.asarray(x) for i, x in enumerate(c.inputs) if x is not None} for _, _, c in asking]
    told = asked(who, [(onnx_model(op, c, len(e.gives)), f) for (op, e, c), f in zip(asking, feeds, strict=True)])
    bad = []
    for (op, e, _), got in zip(asking, told, strict=True):
        declared = [b for b in e.but if b.who == who]
        if isinstance(got, str) and got.startswith("refuses"):
            continue  # it has no such operator or type
        fine = not isinstance(got, str) and agrees(op, e, got)
        if fine == bool(declared):
            bad.append(f"{op.name}: {e.topic} {e.says}: {who} {'agrees' if fine else f'says {got}'}, we say {e.gives}")
    assert not bad, "\n".join(bad)
    assert len([g for g in told if not isinstance(g, str)]) > 100


# -- completeness -------------------------------------------------------------------------------------
def test_moved_elements_keep_every_bit() -> None:
    """NaNs of any payload and zeros of any sign come out as they went in."""
    rng = np.random.default_rng(SEED)
    odd = np.array([0x80000000, 0x7FC00001, 0xFFC12345, 0x7F800000, 0xFF800000, 1], np.uint32).view(np.float32)
    tried = []
    for name, op in sorted(registry().items()):
        for case in op.cases(rng) if op.moves else ():
            xs = [None if x is None else np.asarray(x) for x in case.inputs]
            k = next((k for k, x in enumerate(xs) if x is not None and x.dtype == np.float32), None)
            if k is None:
                continue
            xs[k] = rng.choice(odd, xs[k].shape)  # type: ignore[union-attr]
            with np.errstate(all="ignore"):
                got = op.run(case.attrs, xs, 1)[0]
            if got.dtype.itemsize != 4:
                continue
            known = {*odd.view(np.uint32).tolist(), 0,
                     *(b for x in xs if x is not None and x.dtype.itemsize == 4 for b in x.view(np.uint32).ravel())}
            assert set(np.ascontiguousarray(got).view(np.uint32).ravel().tolist()) <= known, f"{name} {case.name}"
            tried.append(name)
    assert len(set(tried)) >= 12


def test_every_operator_says_what_it_does() -> None:
    """An operator of ONNX that computes with floats promises something of what is unusual."""
    silent = [n for n, op in sorted(registry().items()) if not op.internal and type(op).infer is not OpDef.infer
              and not op.domain and not op.moves and not op.edges and takes_floats(op)]
    assert not silent, f"operators without a promise: {silent}"


def takes_floats(op: OpDef) -> bool:
    cases = list(op.cases(np.random.default_rng(SEED)))
    return any(np.asarray(x).dtype.kind == "f" for c in cases for x in c.inputs if x is not None)
