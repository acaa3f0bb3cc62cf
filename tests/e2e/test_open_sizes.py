"""Sizes that stay open: `--dim n=1..8` is one graph whose extents a run chooses."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import monobloc
from monobloc import verify_run
from monobloc.driver import build, compile_to_object, link
from monobloc.errors import ModelError, UnsupportedError
from monobloc.frontend import Choices, load_model
from monobloc.ir.symbolic import Space
from monobloc.ir.text import copy_graph, parse_graphs, print_graph
from monobloc.ir.verify import verify
from monobloc.loader import CompiledModel
from monobloc.options import Options
from monobloc.run_image import build_to_run

Weights = dict[str, np.ndarray]


def _model(nodes: list[onnx.NodeProto], x: list[int | str], weights: Weights, outs: tuple[str, ...] = ("y",),
           kind: int = TensorProto.FLOAT) -> onnx.ModelProto:
    ports = [helper.make_tensor_value_info("x", kind, x)]
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in outs]
    g = helper.make_graph(nodes, "open", ports, ends, [numpy_helper.from_array(v, n) for n, v in weights.items()])
    return helper.make_model(g, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


node = helper.make_node


def _rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def _f(*shape: int, seed: int = 0) -> np.ndarray:
    return (_rng(seed).standard_normal(shape) / np.sqrt(shape[-1])).astype(np.float32)


# -- models --------------------------------------------------------------------------------------------
def attention() -> tuple[onnx.ModelProto, dict[str, range]]:
    """Heads, a mask made of positions, softmax along an open axis, a mean over it; Reshape by Shape."""
    nodes = [
        node("MatMul", ["x", "wq"], ["q"]), node("MatMul", ["x", "wk"], ["k"]), node("MatMul", ["x", "wv"], ["v"]),
        node("Shape", ["x"], ["shape"]), node("Gather", ["shape", "i0"], ["n"]), node("Gather", ["shape", "i1"], ["t"]),
        node("Concat", ["n", "t", "heads"], ["split"], axis=0),
        *(n for s in "qkv" for n in (node("Reshape", [s, "split"], [s + "r"]),
                                     node("Transpose", [s + "r"], [s + "h"], perm=[0, 2, 1, 3]))),
        node("Transpose", ["kh"], ["kt"], perm=[0, 1, 3, 2]), node("MatMul", ["qh", "kt"], ["s0"]),
        node("Squeeze", ["t"], ["ts"]), node("Range", ["zero", "ts", "one"], ["pos"]),
        node("Unsqueeze", ["pos", "a1"], ["rows"]), node("GreaterOrEqual", ["rows", "pos"], ["seen"]),
        node("Where", ["seen", "s0", "low"], ["s"]), node("Softmax", ["s"], ["p"], axis=-1),
        node("MatMul", ["p", "vh"], ["o"]), node("Transpose", ["o"], ["ot"], perm=[0, 2, 1, 3]),
        node("Concat", ["n", "t", "wide"], ["join"], axis=0), node("Reshape", ["ot", "join"], ["h"]),
        node("MatMul", ["h", "wo"], ["ho"]), node("Add", ["ho", "x"], ["r"]),
        node("LayerNormalization", ["r", "g", "b"], ["y"], axis=-1), node("ReduceMean", ["y"], ["z"], axes=[1]),
        node("ReduceMax", ["y"], ["top"], axes=[0, 1], keepdims=0),
    ]
    weights = {
        "wq": _f(24, 24, seed=1), "wk": _f(24, 24, seed=2), "wv": _f(24, 24, seed=3), "wo": _f(24, 24, seed=4),
        "g": _f(24, seed=5), "b": _f(24, seed=6), "low": np.float32(-1e9), "i0": np.array([0]), "i1": np.array([1]),
        "heads": np.array([3, 8]), "wide": np.array([24]), "zero": np.int64(0), "one": np.int64(1),
        "a1": np.array([1]),
    }
    return _model(nodes, ["n", "t", 24], weights, ("y", "z", "top")), {"n": range(1, 4), "t": range(1, 38)}


def pictures() -> tuple[onnx.ModelProto, dict[str, range]]:
    """Convolutions of every family, pooling, a residual, a flattened product."""
    nodes = [
        node("Conv", ["x", "w1", "b1"], ["a"], pads=[1, 1, 1, 1], strides=[2, 2]), node("Relu", ["a"], ["ar"]),
        node("Conv", ["ar", "wd"], ["d"], group=20, pads=[1, 1, 1, 1]), node("HardSwish", ["d"], ["dr"]),
        node("Conv", ["dr", "wp", "bp"], ["p"]), node("Add", ["p", "ar"], ["s"]),
        node("Conv", ["s", "wf"], ["few"], pads=[1, 1, 1, 1]), node("Sigmoid", ["few"], ["few_s"]),
        node("MaxPool", ["s"], ["m"], kernel_shape=[2, 2], strides=[2, 2]),
        node("GlobalAveragePool", ["m"], ["g"]), node("Flatten", ["g"], ["f"]),
        node("Gemm", ["f", "wg", "bg"], ["y"], transB=1), node("Flatten", ["few_s"], ["mask"]),
        node("Concat", ["y", "mask"], ["both"], axis=1),
    ]
    weights = {"w1": _f(20, 3, 3, 3), "b1": _f(20, seed=1), "wd": _f(20, 1, 3, 3, seed=2),
               "wp": _f(20, 20, 1, 1, seed=3), "bp": _f(20, seed=4), "wf": _f(2, 20, 3, 3, seed=5),
               "wg": _f(7, 20, seed=6), "bg": _f(7, seed=7)}
    return _model(nodes, ["n", 3, 20, 36], weights, ("y", "both")), {"n": range(1, 6)}


def bytes_() -> tuple[onnx.ModelProto, dict[str, range]]:
    """QDQ: an integer convolution, a depthwise one and a product, batches open."""
    scales = {"xs": np.float32(0.05), "ws": np.float32(0.02), "hs": np.float32(0.1), "z": np.uint8(128),
              "zw": np.int8(0)}
    w = {"w": _rng(1).integers(-90, 90, (24, 3, 3, 3)).astype(np.int8),
         "d": _rng(2).integers(-90, 90, (24, 1, 3, 3)).astype(np.int8),
         "m": _rng(3).integers(-90, 90, (24, 17)).astype(np.int8)}

    def deq(name: str) -> onnx.NodeProto:
        return node("DequantizeLinear", [name, "ws", "zw"], [name + "f"])

    def squeezed(name: str, scale: str = "hs") -> list[onnx.NodeProto]:
        return [node("QuantizeLinear", [name, scale, "z"], [name + "q"]),
                node("DequantizeLinear", [name + "q", scale, "z"], [name + "d"])]

    nodes = [*squeezed("x", "xs"), deq("w"), node("Conv", ["xd", "wf"], ["h"]), *squeezed("h"), deq("d"),
             node("Conv", ["hd", "df"], ["e"], group=24, pads=[1, 1, 1, 1]), *squeezed("e"),
             node("Transpose", ["ed"], ["et"], perm=[0, 2, 3, 1]), deq("m"), node("MatMul", ["et", "mf"], ["p"]),
             *squeezed("p"), node("Identity", ["pd"], ["y"])]
    return _model(nodes, ["n", 3, 9, 10], {**w, **scales}), {"n": range(1, 5)}


def lines() -> tuple[onnx.ModelProto, dict[str, range]]:
    """Element by element along open axes: slices from both ends, a concatenation, padding, a running sum of parts."""
    nodes = [
        node("Slice", ["x", "one", "end", "axis"], ["tail"]), node("Slice", ["x", "zero", "last", "axis"], ["head"]),
        node("Sub", ["tail", "head"], ["diff"]), node("Concat", ["x", "diff"], ["c"], axis=1),
        node("Tanh", ["c"], ["y"]), node("ReduceSum", ["c", "axis"], ["z"], keepdims=0),
        node("Pad", ["x", "pads"], ["pad"]), node("ReduceMax", ["pad"], ["top"], axes=[2]),
    ]
    ints = {"one": [1], "zero": [0], "end": [1 << 40], "last": [-1], "axis": [1], "pads": [0, 1, 0, 0, 2, 0]}
    return (_model(nodes, ["n", "t", 5], {k: np.array(v) for k, v in ints.items()}, ("y", "z", "top")),
            {"n": range(1, 4), "t": range(2, 71)})


def recurrent() -> tuple[onnx.ModelProto, dict[str, range]]:
    """A recurrence over an open number of steps, both ways."""
    nodes = [node("GRU", ["x", "w", "r"], ["h", "last"], hidden_size=4, direction="bidirectional"),
             node("Transpose", ["h"], ["y"], perm=[2, 0, 1, 3])]
    return (_model(nodes, ["t", "n", 3], {"w": _f(2, 12, 3), "r": _f(2, 12, 4)}, ("y", "last")),
            {"t": range(1, 21), "n": range(1, 4)})


def rows() -> tuple[onnx.ModelProto, dict[str, range]]:
    """Weights larger than the nearest cache, one with a last, partial panel: rows of one tile and of many, and so few
    that a tile takes two panels."""
    nodes = [node("MatMul", ["x", "w"], ["a"]), node("Relu", ["a"], ["ar"]), node("MatMul", ["ar", "v"], ["y"])]
    return _model(nodes, ["n", 96], {"w": _f(96, 512), "v": _f(512, 75, seed=1)}), {"n": range(1, 62)}


def branches() -> tuple[onnx.ModelProto, dict[str, range]]:
    """Weights that only branches read, two of them of equal bytes and unequal shapes."""
    def branch(*nodes: onnx.NodeProto) -> onnx.GraphProto:
        last = nodes[-1].output[0]
        return helper.make_graph(nodes, last, [], [helper.make_tensor_value_info(last, TensorProto.FLOAT, None)])

    one = branch(node("MatMul", ["x", "w"], ["a"]))
    other = branch(node("Concat", ["x", "x"], ["xx"], axis=1), node("MatMul", ["xx", "v"], ["b0"]),
                   node("MatMul", ["b0", "u"], ["b"]))
    nodes = [node("ReduceSum", ["x"], ["sum"], keepdims=0), node("Greater", ["sum", "zero"], ["positive"]),
             node("If", ["positive"], ["y"], then_branch=one, else_branch=other)]
    w = _f(12, 12)
    return (_model(nodes, ["n", 12], {"w": w, "v": w.reshape(24, 6), "u": _f(6, 12, seed=1), "zero": np.float32(0)}),
            {"n": range(1, 9)})


def maps() -> tuple[onnx.ModelProto, dict[str, range]]:
    """Fully convolutional: down by strides and pools, up by both kinds of Resize and a transposed convolution, skips
    between them, a gate over the whole image. Height and width open, in steps."""
    nodes = [
        node("Conv", ["x", "w1", "b1"], ["a0"], pads=[1, 1, 1, 1], strides=[2, 2]), node("Relu", ["a0"], ["a"]),
        node("Conv", ["a", "wd"], ["d"], group=6, pads=[2, 2, 2, 2]), node("HardSwish", ["d"], ["dr"]),
        node("GlobalAveragePool", ["dr"], ["mean"]), node("Conv", ["mean", "wg"], ["g0"]),
        node("Sigmoid", ["g0"], ["g"]),
        node("Mul", ["dr", "g"], ["e"]), node("MaxPool", ["e"], ["m"], kernel_shape=[2, 2], strides=[2, 2]),
        node("Conv", ["m", "wp", "bp"], ["p"]),
        node("Resize", ["p", "", "twice"], ["up"], mode="nearest", coordinate_transformation_mode="asymmetric",
             nearest_mode="floor"),
        node("Concat", ["up", "e"], ["c"], axis=1),
        node("Conv", ["c", "wc"], ["f"], pads=[1, 1, 1, 1], group=2),
        node("Resize", ["f", "", "twice"], ["z"], mode="linear"),
        node("ConvTranspose", ["c", "wt"], ["t"], strides=[2, 2]),
        node("Concat", ["z", "t", "x"], ["all"], axis=1), node("Tanh", ["all"], ["y"]),
        node("AveragePool", ["all"], ["low"], kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]),
    ]
    weights = {"w1": _f(6, 3, 3, 3) / 3, "b1": _f(6, seed=1), "wd": _f(6, 1, 5, 5, seed=2) / 2,
               "wg": _f(6, 6, 1, 1, seed=3), "wp": _f(10, 6, 1, 1, seed=4), "bp": _f(10, seed=5),
               "wc": _f(4, 8, 3, 3, seed=6) / 4,
               "wt": _f(16, 5, 2, 2, seed=7) / 4, "twice": np.array([1, 1, 2, 2], np.float32)}
    return (_model(nodes, [1, 3, "h", "w"], weights, ("y", "low")), {"h": range(8, 61, 4), "w": range(8, 93, 4)})


def frames() -> tuple[onnx.ModelProto, dict[str, range]]:
    """One axis of time, every length: windows of it, and a recurrence over what they make."""
    nodes = [
        node("Conv", ["x", "w1", "b1"], ["a0"], pads=[2, 2], strides=[2]), node("Relu", ["a0"], ["a"]),
        node("Conv", ["a", "w2"], ["b0"], dilations=[2], pads=[4, 0]), node("Elu", ["b0"], ["b"]),
        node("Transpose", ["b"], ["t"], perm=[2, 0, 1]), node("GRU", ["t", "w", "r"], ["h", "last"], hidden_size=4),
        node("Squeeze", ["h", "one"], ["y"]),
    ]
    weights = {"w1": _f(20, 5, 5), "b1": _f(20, seed=1), "w2": _f(8, 20, 3, seed=2), "w": _f(1, 12, 8),
               "r": _f(1, 12, 4), "one": np.array([1])}
    return _model(nodes, ["n", 5, "frames"], weights, ("y", "last")), {"n": range(1, 4), "frames": range(3, 50)}


def halves() -> tuple[onnx.ModelProto, dict[str, range]]:
    """Two halves of which the second may be shorter: whether it is differs from size to size."""
    m = _model([node("Split", ["x"], ["y", "z"], axis=1, num_outputs=2)], [2, "t"], {}, ("y", "z"))
    m.opset_import[0].version = 18
    return m, {"t": range(2, 21)}


def thirds() -> tuple[onnx.ModelProto, dict[str, range]]:
    """Whether another window begins before the end differs with the remainder."""
    attrs = dict(kernel_shape=[4], strides=[3], dilations=[2], pads=[2, 1], ceil_mode=1)
    return _model([node("MaxPool", ["x"], ["y"], **attrs)], [1, 2, "t"], {}), {"t": range(7, 30)}


def bodies() -> tuple[onnx.ModelProto, dict[str, range]]:
    """An operator that ONNX defines by a graph, which it makes for tensors of these types"""
    attrs = dict(q_num_heads=2, kv_num_heads=2, is_causal=1)
    m = _model([node("Attention", ["x", "x", "x"], ["y"], **attrs)], ["n", "t", 8], {})
    m.opset_import[0].version, m.ir_version = 23, 10
    return m, {"n": range(1, 4), "t": range(2, 9)}


def fused() -> tuple[onnx.ModelProto, dict[str, range]]:
    """What onnxruntime's optimizer makes of attention: more sizes than an image has versions"""
    ms = {"domain": "com.microsoft"}
    nodes = [
        node("Attention", ["x", "w", "b"], ["y"], num_heads=3, unidirectional=1, **ms),
        node("MultiHeadAttention", ["x", "x", "x"], ["z"], num_heads=3, **ms),
        node("FusedMatMul", ["x", "x"], ["p"], transB=1, alpha=0.3, **ms),
        node("RotaryEmbedding", ["x", "from", "cos", "sin"], ["r"], num_heads=3, **ms),
        node("ReduceL2", ["x"], ["length"], axes=[2], keepdims=0), node("Clip", ["length", "", "most"], ["clipped"]),
        node("Cast", ["clipped"], ["ids"], to=TensorProto.INT32),
        node("EmbedLayerNormalization", ["ids", "", "words", "places", "", "scale", "shift"], ["e", "count"], **ms),
    ]
    weights = {"w": _f(12, 36), "b": _f(36), "from": np.int64([3]), "cos": _f(50, 2), "sin": _f(50, 2, seed=1),
               "most": np.float32(9), "words": _f(10, 8), "places": _f(40, 8), "scale": _f(8), "shift": _f(8)}
    m = _model(nodes, ["n", "t", 12], weights, ("y", "z", "p", "r", "e"))
    m.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    return m, {"n": range(1, 4), "t": range(2, 40)}


def tied() -> tuple[onnx.ModelProto, dict[str, range]]:
    """A language model's ends: the table that is looked up is the last matrix, which either way is a guess of speed"""
    nodes = [node("Abs", ["x"], ["from_zero"]), node("Cast", ["from_zero"], ["ids"], to=TensorProto.INT64),
             node("Gather", ["table", "ids"], ["rows"]), node("Transpose", ["table"], ["matrix"], perm=[1, 0]),
             node("MatMul", ["rows", "matrix"], ["y"])]
    return _model(nodes, ["n", "t"], {"table": _f(100, 32)}), {"n": range(1, 4), "t": range(2, 40)}


MODELS = {f.__name__.strip("_"): f for f in (fused, tied, halves, thirds, bodies, maps, frames, rows, branches,
                                             attention, pictures, bytes_, lines, recurrent)}
TOLERANCE = {"bytes": dict(rtol=0, atol=0.11)}  # a step of the quantizer


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("threads", [1, 2])
def test_every_size_is_right(name: str, threads: int, tmp_path: Path, cache: Path) -> None:
    model, dims = MODELS[name]()
    path = tmp_path / f"{name}.onnx"
    onnx.save(model, path)
    graphs = load_model(path, Choices(dims=dims)).graphs
    assert any(g.space is not None for g in graphs), "nothing stayed open"
    build([path], tmp_path / "m.so", "shared", Options(dims={k: tuple(v) for k, v in dims.items()}, threads=threads,
                                                       cache=cache))
    m = CompiledModel(tmp_path / "m.so")
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    names = [o.name for o in session.get_outputs()]
    for at in _points(dims):
        declared = [d.dim_param or d.dim_value for d in model.graph.input[0].type.tensor_type.shape.dim]
        x = _rng(sum(at.values())).standard_normal([at.get(d, d) for d in declared]).astype(np.float32)
        for key, want in zip(names, session.run(names, {"x": x}), strict=True):
            got = m.run({"x": x})[key]
            assert got.shape == want.shape, at
            np.testing.assert_allclose(got, want, err_msg=f"{key} at {at}",
                                       **TOLERANCE.get(name, dict(rtol=1e-4, atol=1e-5)))
    m.stop()


@pytest.mark.parametrize("name", MODELS)
def test_a_text_is_read_for_the_same_sizes(name: str) -> None:
    """Guards hold in their versions, and so do questions that earlier versions have answered for them."""
    model, dims = MODELS[name]()
    graphs = [g for g in load_model(model, Choices(dims=dims)).graphs if g.space is not None]
    for g, again in ((g, copy_graph(g)) for g in graphs):
        verify(again)
        assert g.space and again.space and (g.space.points == again.space.points).all()
        assert again.space.conditions == g.space.conditions
        here = copy_graph(g, lambda _, space=g.space: Space(space.symbols, space.points, fixed=space.fixed))
        assert here.space and here.space.conditions == g.space.conditions, "a guard that these sizes cannot break"


def _points(dims: dict[str, range]) -> list[dict[str, int]]:
    """All sizes of each dimension, with those of the others that are at their ends."""
    out: list[dict[str, int]] = []
    for name, sizes in dims.items():
        others = [d for d in dims if d != name]
        for n in sizes:
            for ends in ([0], [-1]) if others else ([0],):
                out.append({name: n, **{d: dims[d][e] for d in others for e in ends}})
    return out


def test_largest_memory_and_one_set_of_weights(tmp_path: Path, cache: Path) -> None:
    model, dims = attention()
    path = tmp_path / "a.onnx"
    onnx.save(model, path)
    one = monobloc.compile(path, dim=dims, cache=cache)
    largest = monobloc.compile(path, dim={k: v[-1] for k, v in dims.items()}, cache=cache)
    assert one.arena_bytes <= 1.3 * largest.arena_bytes + 256
    data = one.path.read_bytes()
    for w in model.graph.initializer:
        a = numpy_helper.to_array(w)
        if a.ndim == 2:
            assert data.count(a[3, :4].tobytes()) == 1, w.name
    with pytest.raises(ModelError, match=r"dimension `t` is 38, a takes 1\.\.37"):
        one.run({"x": np.zeros((1, 38, 24), np.float32)})


def test_a_range_in_steps_stays_open(tmp_path: Path, cache: Path) -> None:
    """`8..80:8`: one version for all multiples, none for what lies between, which a library says."""
    nodes = [node("Softmax", ["x"], ["s"], axis=1), node("ReduceSum", ["s", "axis"], ["y"], keepdims=0)]
    path = tmp_path / "steps.onnx"
    onnx.save(_model(nodes, ["n", "w"], {"axis": np.array([0])}), path)
    dims = {"n": range(1, 4), "w": range(8, 81, 8)}
    graphs = load_model(path, Choices(dims=dims)).graphs
    assert [str(d) for d in graphs[0].dims] == ["1..3", "8..80:8"]
    table = {v.const.key: v.const for v in graphs[0].constants() if v.const is not None}
    text = print_graph(graphs[0])
    assert print_graph(parse_graphs(text, lambda key, _: table[key])[0]) == text
    m = monobloc.compile(path, dim=dims, cache=cache)
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    for n, w in ((1, 8), (2, 40), (3, 80)):
        x = _rng(w).standard_normal((n, w)).astype(np.float32)
        np.testing.assert_allclose(m(x), session.run(None, {"x": x})[0], rtol=1e-5, atol=1e-6)
    with pytest.raises(ModelError, match=r"dimension `w` is 44, steps takes 8,16,24"):
        m(np.zeros((1, 44), np.float32))


@pytest.mark.parametrize("sizes", [(2, 9), tuple(range(2, 10))])
def test_random_indices_fit_every_size(sizes: tuple[int, ...], tmp_path: Path, cache: Path) -> None:
    """Data that is made up for a run must not point behind the smallest table."""
    ports = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3]),
             helper.make_tensor_value_info("i", TensorProto.INT64, [4])]
    end = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    g = helper.make_graph([node("Gather", ["x", "i"], ["y"], axis=0)], "pick", ports, [end])
    path = tmp_path / "pick.onnx"
    onnx.save(helper.make_model(g, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    made = build_to_run(path, Options(dims={"n": sizes}, cache=cache), lambda _: None)
    assert made.limits == {"i": 2}


def test_what_cannot_stay_open(tmp_path: Path) -> None:
    """The coordinates of a resized line depend on what it was. The dimension is named, and what to do."""
    resize = node("Resize", ["x", "", "", "sizes"], ["y"], mode="cubic")
    onnx.save(_model([resize], [1, 1, "width"], {"sizes": np.array([1, 1, 7])}), tmp_path / "r.onnx")
    with pytest.raises(UnsupportedError) as e:
        build([tmp_path / "r.onnx"], tmp_path / "m.so", "shared", Options(dims={"width": tuple(range(3, 103))}))
    assert "at most 64 versions" in str(e.value) and "it is told apart whether (width" in str(e.value)


def test_widths_of_bytes(tmp_path: Path, cache: Path) -> None:
    """Among them one at which the rows of a product of bytes lie along an axis before one of one element."""
    model, _ = bytes_()
    model.graph.input[0].type.tensor_type.shape.dim[3].dim_param = "width"
    onnx.save(model, tmp_path / "b.onnx")
    m = monobloc.compile(tmp_path / "b.onnx", dim={"n": 1, "width": range(3, 10)}, cache=cache)
    session = onnxruntime.InferenceSession(str(tmp_path / "b.onnx"), providers=["CPUExecutionProvider"])
    for w in range(3, 10):
        x = _rng(w).standard_normal((1, 3, 9, w)).astype(np.float32)
        np.testing.assert_allclose(m(x), session.run(None, {"x": x})[0], **TOLERANCE["bytes"])


def test_convolutions_of_open_sizes_are_one_version(tmp_path: Path, cache: Path) -> None:
    """In steps in which all halves meet again; every LTO mode gives the same bits, and weights are stored once."""
    model, dims = maps()
    path = tmp_path / "maps.onnx"
    onnx.save(model, path)
    x = _rng(1).standard_normal((1, 3, 24, 40)).astype(np.float32)
    answers = []
    for lto in ("none", "thin", "full"):
        made = build([path], tmp_path / f"{lto}.so", "shared",
                     Options(dims={k: tuple(v) for k, v in dims.items()}, lto=lto, cache=cache))
        assert len(made.imported) == 1 and all(len(i.graphs) == 1 for i in made.imported.values())
        m = CompiledModel(tmp_path / f"{lto}.so")
        answers.append(m.run({"x": x})["y"])
        weights = next(numpy_helper.to_array(w) for w in model.graph.initializer if w.name == "wp")
        assert m.path.read_bytes().count(weights[:4, 0, 0, 0].tobytes()) == 1, "four channels, side by side"
    assert all((a == answers[0]).all() for a in answers)


def test_objects_keep_sizes_open(tmp_path: Path, cache: Path) -> None:
    """Compiled by itself, bound and linked; verified by the reference of the graph at each size."""
    model, dims = attention()
    onnx.save(model, tmp_path / "a.onnx")
    compile_to_object(tmp_path / "a.onnx", tmp_path / "a.o", Options(dims={k: tuple(v) for k, v in dims.items()},
                                                                     cache=cache))
    link([tmp_path / "a.o"], tmp_path / "own.so", "shared", Options(graph_lto=False, cache=cache))
    own = CompiledModel(tmp_path / "own.so")
    link([tmp_path / "a.o"], tmp_path / "a.so", "shared", Options(keep_outputs=("z",), cache=cache))
    m, graphs = CompiledModel(tmp_path / "a.so"), load_model(tmp_path / "a.onnx", Choices(dims=dims)).graphs
    for n, t in ((1, 1), (1, 9), (3, 1), (2, 2), (3, 37)):
        feeds = {"x": _rng(n + t).standard_normal((n, t, 24)).astype(np.float32)}
        want = verify_run.reference(graphs, feeds)["z"]
        got = m.run(feeds)
        assert list(got) == ["z"]
        np.testing.assert_allclose(got["z"], want, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(own.run(feeds)["z"], want, rtol=1e-4, atol=1e-5)


def test_a_value_for_an_input_of_an_open_size(tmp_path: Path, cache: Path) -> None:
    """Bound at the link, where sizes are open already: told, and no size goes missing."""
    model = _model([node("Neg", ["x"], ["y"])], ["n", 4], {})
    onnx.save(model, tmp_path / "a.onnx")
    compile_to_object(tmp_path / "a.onnx", tmp_path / "a.o", Options(dims={"n": (1, 2, 3)}, cache=cache))
    with pytest.raises(ModelError, match=r"f32\[\(dim0\),4\]") as e:
        link([tmp_path / "a.o"], tmp_path / "a.so", "shared",
             Options(bind={"x": np.zeros((2, 4), np.float32)}, cache=cache))
    assert "give its dimensions one size" in str(e.value)


def test_a_short_list_of_floats_needs_no_version_of_its_own() -> None:
    m = _model([node("Exp", ["x"], ["y"])], ["t"], {})
    assert len(load_model(m, Choices(dims={"t": range(2, 20)})).graphs) == 1


def test_few_rows_give_the_same_bits_with_any_number_of_threads(tmp_path: Path, cache: Path) -> None:
    """One thread takes several panels of the weights at once, two take them alone: the sums are the same chains."""
    m = _model([node("MatMul", ["x", "w"], ["y"])], ["n", 384], {"w": _f(384, 384)})
    one, two = (monobloc.compile(m, dim={"n": range(1, 17)}, threads=t, lto="none", cache=cache) for t in (1, 2))
    for n in (1, 2, 3, 4, 5, 6):
        x = _f(n, 384, seed=n)
        assert one.run({"x": x})["y"].tobytes() == two.run({"x": x})["y"].tobytes(), f"{n} rows"
        np.testing.assert_allclose(two.run({"x": x})["y"], x @ _f(384, 384), rtol=1e-4, atol=1e-5)


def test_a_version_of_few_sizes_is_read_for_just_these(cache: Path) -> None:
    """Below four columns there is one pixel: a fact of those sizes, which the text of the graph has to say."""
    m = _model([node("Conv", ["x", "w"], ["y"], strides=[1, 4], pads=[0, 1, 0, 3])], [1, 3, "h", "w"],
               {"w": _f(5, 3, 1, 4)})
    sizes: dict[str, int | tuple[int, ...]] = {"h": tuple(range(1, 9)), "w": tuple(range(2, 20))}
    graphs = load_model(m, Choices(dims=sizes)).graphs
    assert len(graphs) == 2 and sum(len(g.space.points) for g in graphs if g.space) == 8 * 18
    for g, again in ((g, copy_graph(g)) for g in graphs):
        verify(again)
        assert g.space and again.space and (g.space.points == again.space.points).all()
    made = monobloc.compile(m, dim=sizes, lto="none", cache=cache)
    session = onnxruntime.InferenceSession(m.SerializeToString(), providers=["CPUExecutionProvider"])
    for h, w in ((1, 2), (8, 3), (5, 4), (8, 19)):
        x = _f(1, 3, h, w, seed=h)
        np.testing.assert_allclose(made.run({"x": x})["y"], session.run(None, {"x": x})[0], rtol=1e-5, atol=1e-6)
