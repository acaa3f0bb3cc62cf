"""Halves that are kept as float32 where memory has room: more exact, no larger, and the same whoever asks; in `strict`
rounded after every operator."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import onnxruntime
import pytest
from border import TYPES, build, model
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

from monobloc.codegen.excess import keep_precision
from monobloc.codegen.place import is_loops, place
from monobloc.codegen.unit import scratch_bytes
from monobloc.driver import import_model
from monobloc.ir.graph import Graph
from monobloc.ir.text import parse_graph, print_graph
from monobloc.ir.types import DType
from monobloc.options import Options
from monobloc.passes import PassContext, run_passes

node = helper.make_node
SEED = 41
print(f"seed {SEED}")
TYPES |= {"f16": TensorProto.FLOAT16, "bf16": TensorProto.BFLOAT16, "i16": TensorProto.INT16}
OPTIONS = Options(lto="none")
HALVES = {"f16": (np.dtype(np.float16), 2.0**-11), "bf16": (np.dtype(ml_dtypes.bfloat16), 2.0**-8)}


def normal(seed: int, *shape: int, scale: float = 0.2) -> np.ndarray:
    return np.random.default_rng([SEED, seed]).standard_normal(shape).astype(np.float32) * np.float32(scale)


def classifier(kind: str) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """The peak is in front; logits of ten lose their fraction where they are rounded."""
    d = HALVES[kind][0]
    weights = {"w0": normal(0, 24, 3, 3, 3), "w1": normal(1, 40, 24, 1, 1, scale=0.5)}
    nodes = [node("Conv", ["x", "w0"], ["a0"], pads=[1, 1, 1, 1]), node("Relu", ["a0"], ["a1"]),
             node("MaxPool", ["a1"], ["a2"], kernel_shape=[2, 2], strides=[2, 2]),
             node("Conv", ["a2", "w1"], ["a3"]), node("GlobalAveragePool", ["a3"], ["a4"]),
             node("Flatten", ["a4"], ["a5"]), node("Softmax", ["a5"], ["y"])]
    made = model(nodes, [("x", kind, [1, 3, 16, 16])], [("y", kind, [1, 40])],
                 **{k: w.astype(d) for k, w in weights.items()})
    made.opset_import[0].version = 22
    return made, {k: w.astype(d).astype(np.float32) for k, w in weights.items()}


def transformer(kind: str) -> onnx.ModelProto:
    """Attention, whose products are strided views; a residual that is read twice; and results in place."""
    d = HALVES[kind][0]
    weights = {f"w{c}": normal(k, 32, 32) for k, c in enumerate("qkvo")} | {"one": np.ones(32), "zero": np.zeros(32)}
    nodes = [node("LayerNormalization", ["x", "one", "zero"], ["n"])]
    for c in "qkv":
        nodes += [node("MatMul", ["n", f"w{c}"], [c]), node("Reshape", [c, "split"], [f"{c}r"]),
                  node("Transpose", [f"{c}r"], [f"{c}t"], perm=[0, 2, 3, 1] if c == "k" else [0, 2, 1, 3])]
    nodes += [node("MatMul", ["qt", "kt"], ["s"]), node("Softmax", ["s"], ["p"]), node("MatMul", ["p", "vt"], ["a"]),
              node("Transpose", ["a"], ["at"], perm=[0, 2, 1, 3]), node("Reshape", ["at", "join"], ["ar"]),
              node("MatMul", ["ar", "wo"], ["o"]), node("Add", ["o", "x"], ["r"]), node("Tanh", ["r"], ["t"]),
              node("Concat", ["r", "t"], ["c"], axis=2), node("ReduceMean", ["c"], ["y"], axes=[1])]
    made = model(nodes, [("x", kind, [1, 24, 32])], [("y", kind, [1, 1, 64])],
                 **{k: w.astype(d) for k, w in weights.items()},
                 split=np.array([1, 24, 4, 8]), join=np.array([1, 24, 32]))
    made.opset_import[0].version = 17
    return made


def in_float(m: onnx.ModelProto, x: np.ndarray) -> np.ndarray:
    """The same graph on the same numbers, all float32."""
    return np.asarray(ReferenceEvaluator(in_float_model(m)).run(None, {"x": x.astype(np.float32)})[0])


def in_float_model(m: onnx.ModelProto) -> onnx.ModelProto:
    wide = onnx.ModelProto()
    wide.CopyFrom(m)
    for p in (*wide.graph.input, *wide.graph.output):
        p.type.tensor_type.elem_type = TensorProto.FLOAT
    for t in wide.graph.initializer:
        a = onnx.numpy_helper.to_array(t)
        if a.dtype in {d for d, _ in HALVES.values()}:
            t.CopyFrom(onnx.numpy_helper.from_array(a.astype(np.float32), t.name))
    return wide


def rounded(m: onnx.ModelProto, x: np.ndarray, kind: str) -> np.ndarray:
    """The graph in float32 with a pair of casts behind every node, as onnxruntime computes it."""
    wide = in_float_model(m)
    nodes = list(wide.graph.node)
    del wide.graph.node[:]
    for n in nodes:
        y = n.output[0]
        n.output[0] = f"{y}.wide"
        wide.graph.node.extend([n, node("Cast", [f"{y}.wide"], [f"{y}.half"], to=TYPES[kind]),
                                node("Cast", [f"{y}.half"], [y], to=TensorProto.FLOAT)])
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(wide.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return np.asarray(session.run(None, {"x": x.astype(np.float32)})[0])


@pytest.mark.parametrize("kind", HALVES)
@pytest.mark.parametrize("what", ["classifier", "transformer"])
def test_strict_rounds_after_every_operator(what: str, kind: str, tmp_path: Path) -> None:
    m = classifier(kind)[0] if what == "classifier" else transformer(kind)
    d, step = HALVES[kind]
    x = normal(9, *[p.dim_value for p in m.graph.input[0].type.tensor_type.shape.dim], scale=1).astype(d)
    want = rounded(m, x, kind)
    got, loose = (build({n: m}, tmp_path, replace(OPTIONS, numerics=n))(x=x)["y"].astype(np.float32)
                  for n in ("strict", "default"))
    # a sum in another order may be rounded to the number beside; on this machine none is
    assert (got != want).mean() <= 0.05 and np.abs(got - want).max() <= 2 * step * np.abs(want).max()
    assert (loose != want).mean() > 0.05, "this model does not tell whether values are rounded"


@pytest.mark.parametrize("kind", HALVES)
def test_what_fits_is_not_rounded(kind: str, tmp_path: Path) -> None:
    m, _ = classifier(kind)
    d, step = HALVES[kind]
    x = normal(9, 1, 3, 16, 16, scale=2).astype(d)
    want = in_float(m, x)

    def off(numerics: str) -> float:
        made = build({numerics: m}, tmp_path, replace(OPTIONS, numerics=numerics))
        assert any(v.type.stored for n in made.low.graph.nodes for v in n.outputs) == (numerics == "default")
        return float((np.abs(made(x=x)["y"].astype(np.float32) - want) / np.maximum(want, 1e-3)).max())

    # what is left: values at the peak, which a mean follows, and the result itself
    assert off("default") < 2.5 * step, "a value below the peak was rounded"
    assert kind == "bf16" or off("strict") > 5 * step, "this model does not tell whether values are rounded"


def test_threads_and_modes_keep_the_same(tmp_path: Path) -> None:
    m = transformer("f16")
    x = normal(8, 1, 24, 32, scale=1).astype(np.float16)
    seen = {}
    for lto, threads in (("none", 1), ("thin", 4)):
        made = build({f"{lto}{threads}": m}, tmp_path, replace(OPTIONS, lto=lto, threads=threads))
        kept = tuple(v.name for n in made.low.graph.nodes for v in n.outputs if v.type.stored)
        assert len(kept) > 3
        seen[lto] = kept, made(x=x)["y"].tobytes()
    assert len(set(seen.values())) == 1
    step = HALVES["f16"][1]
    np.testing.assert_allclose(made(x=x)["y"].astype(np.float32), in_float(m, x), rtol=4 * step, atol=4 * step)


def selected(m: onnx.ModelProto, threads: int, optimize: str = "size") -> tuple[Graph, PassContext]:
    g = import_model(m.SerializeToString(), OPTIONS).graph
    ctx = PassContext(OPTIONS.target, threads=threads, optimize=optimize)
    run_passes(g, ctx)
    return g, ctx


def arena(g: Graph, ctx: PassContext) -> int:
    return place(g, ctx, scratch_bytes(g, ctx.target, ctx.threads)).arena


@pytest.mark.parametrize("threads", [1, 2, 3, 8])
@pytest.mark.parametrize("what", ["classifier", "transformer", "chain"])
def test_for_size_the_arena_does_not_grow(what: str, threads: int) -> None:
    m = classifier("f16")[0] if what == "classifier" else transformer("f16") if what == "transformer" else chain()
    g, ctx = selected(m, threads)
    before = arena(g, ctx)
    keep_precision(g, ctx)
    assert any(v.type.stored for n in g.nodes for v in n.outputs)
    assert arena(g, ctx) <= before


@pytest.mark.parametrize("what", ["classifier", "transformer", "chain"])
def test_for_speed_no_layer_rounds(what: str) -> None:
    """All that another loop or kernel reads, and that nobody else sees; more than is free, and of the same kind."""
    m = classifier("f16")[0] if what == "classifier" else transformer("f16") if what == "transformer" else chain()
    kept = {}
    for optimize in ("size", "speed"):
        g, ctx = selected(m, 1, optimize)
        keep_precision(g, ctx)
        kept[optimize] = {v.name for n in g.nodes for v in n.outputs if v.type.stored}
    seen = {v.name for v in g.output_values}
    halves = {v.name for n in g.nodes for v in n.outputs if v.dtype is DType.F16 and all(map(is_loops, v.users))}
    assert kept["size"] <= kept["speed"] and halves - seen <= kept["speed"] and not kept["speed"] & seen


def chain() -> onnx.ModelProto:
    """Convolutions with large scratch and small results, which the peak of many threads is, after a large result."""
    d = np.float16
    nodes = [node("Conv", ["x", "w0"], ["a"]), node("MaxPool", ["a"], ["b"], kernel_shape=[4, 4], strides=[4, 4]),
             node("Conv", ["b", "w1"], ["c"], pads=[2, 2, 2, 2]), node("Conv", ["c", "w1"], ["e"], pads=[2, 2, 2, 2]),
             node("GlobalAveragePool", ["e"], ["f"]), node("Softmax", ["f"], ["y"], axis=1)]
    return model(nodes, [("x", "f16", [1, 4, 32, 32])], [("y", "f16", [1, 32, 1, 1])],
                 w0=normal(5, 32, 4, 1, 1).astype(d), w1=normal(6, 32, 32, 5, 5).astype(d))


def test_what_others_see_stays_half(tmp_path: Path) -> None:
    """Outputs, kept inner values among them, have the type that the model gives them."""
    m, _ = classifier("f16")
    made = build({"m": m}, tmp_path, replace(OPTIONS, keep_outputs=("y", "a4")))
    x = normal(9, 1, 3, 16, 16, scale=2).astype(np.float16)
    assert {k: y.dtype for k, y in made(x=x).items()} == {"y": np.float16, "a4": np.float16}
    assert not any(v.type.stored for v in made.low.graph.output_values)


MADE = [node("LayerNormalization", ["x", "one"], ["norm"]), node("LogSoftmax", ["x"], ["log"]),
        node("MatMul", ["x", "w"], ["sum"]), node("Mul", ["x", "x"], ["square"]), node("Tanh", ["square"], ["tanh"]),
        node("Add", ["sum", "tanh"], ["both"]), node("Transpose", ["both"], ["turned"], perm=[1, 0])]
TOLD = {"wide": ("Cast", "f32"), "whole": ("Cast", "i32"), "bits": ("BitCast", "i16")}


@pytest.mark.parametrize("seen", [False, True])
@pytest.mark.parametrize("kind", HALVES)
def test_a_cast_reads_what_the_half_is(kind: str, seen: bool, tmp_path: Path) -> None:
    """Whatever made it, and whether or not others see it: the number that an output shows, in every type."""
    d, made, ports = HALVES[kind][0], [n.output[0] for n in MADE], [16, 16]
    reads = [node(op, [h], [f"{h}.{y}"], to=TYPES[t]) for h in made for y, (op, t) in TOLD.items()]
    outs = [(f"{h}.{y}", t, ports) for h in made for y, (_, t) in TOLD.items()]
    m = model([*MADE, *reads], [("x", kind, ports)], [*outs, *((h, kind, ports) for h in made if seen)], opset=26,
              one=np.ones(16, d), w=normal(4, 16, 16, scale=1).astype(d))
    got = build({"m": m}, tmp_path, OPTIONS)(x=normal(3, 16, 16, scale=2).astype(d))
    for h in made:
        half = got[f"{h}.bits"].view(d)
        assert not seen or half.tobytes() == got[h].tobytes(), h
        assert (half.astype(np.float32) == got[f"{h}.wide"]).all(), h
        assert (half.astype(np.float32).astype(np.int32) == got[f"{h}.whole"]).all(), h


def test_the_text_says_what_is_stored() -> None:
    g, ctx = selected(classifier("bf16")[0], 1)
    keep_precision(g, ctx)
    text = print_graph(g)
    assert " : bf16/f32[" in text
    table = {(v.const.key, v.type): v.const for part in g.tree() for v in part.constants() if v.const is not None}
    again = parse_graph(text, lambda key, t: table[key, t])
    assert print_graph(again) == text
    assert any(v.type.stored is DType.F32 for n in again.nodes for v in n.outputs)
