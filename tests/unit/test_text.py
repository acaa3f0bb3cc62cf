"""The text form: whatever it says, it says exactly, and whatever it is given, it never falls over."""

from __future__ import annotations

import random

import numpy as np
import pytest

from monobloc.errors import ModelError
from monobloc.ir.graph import Const, Graph
from monobloc.ir.text import INLINE, parse_graph, print_graph
from monobloc.ir.types import DType, TensorType, parse_type
from monobloc.passes import PassContext, run_passes
from monobloc.targets import resolve

SEED = 99
print(f"seed {SEED}")
F = TensorType(DType.F32, (2, 3))


def source(g: Graph) -> object:
    table = {v.const.key: v.const for v in g.constants() if v.const is not None}
    return lambda key, _: table[key]


def read_back(g: Graph) -> Graph:
    text = print_graph(g)
    again = parse_graph(text, source(g))  # type: ignore[arg-type]
    assert print_graph(again) == text
    return again


NAMES = ["x", "a.b", "a_b", "a/b:0", "", "%x", 'qu"ote', "back\\slash", "new\nline", "é∑😀", "in", "_", "x" * 5000,
         "\u2028"]  # fmt: skip


def test_any_name() -> None:
    g = Graph('a "name"')
    for n in NAMES:
        v = g.make("Relu", [g.add_input(n, F)], [F], name=n, out_names=[n + "!"], locs=(n, "Conv_0")).outputs[0]
        g.outputs.append((n, v))
    again = read_back(g)
    assert [n for n, _ in again.outputs] == NAMES
    assert [v.origin for v in again.inputs] == [v.origin for v in g.inputs]
    assert [n.locs for n in again.nodes] == [n.locs for n in g.nodes]


EDGES = {
    DType.F32: [0.0, -0.0, 1.0, np.inf, -np.inf, np.nan, 1e-45, 3.4028235e38, 0.1],
    DType.F64: [0.0, -0.0, 5e-324, 1.7976931348623157e308, 0.1, -np.inf, np.nan],
    DType.F16: [0.0, -0.0, 6e-8, 65504.0, np.inf, 0.1],
    DType.BF16: [0.0, -0.0, 1e-38, 3e38, np.nan, 0.1],
    DType.I64: [0, -(1 << 63), (1 << 63) - 1, -1],
    DType.U64: [0, (1 << 64) - 1, 1 << 63],
    DType.I8: [-128, 127],
    DType.U32: [(1 << 32) - 1],
    DType.BOOL: [True, False],
}


@pytest.mark.parametrize("dtype", EDGES)
def test_constants_to_the_bit(dtype: DType) -> None:
    data = np.array(EDGES[dtype], dtype.numpy)
    g = Graph("g")
    for shape in [data.shape, (1, data.size, 1)]:
        g.outputs.append((f"y{len(g.outputs)}", g.constant("c", data.reshape(shape))))
    g.outputs.append(("scalar", g.constant("c", data[0])))
    g.outputs.append(("empty", g.constant("c", data[:0].reshape(0, 4))))
    for (_, a), (_, b) in zip(g.outputs, read_back(g).outputs, strict=True):
        assert a.const and b.const and a.type == b.type
        assert a.const.array.tobytes() == b.const.array.tobytes()


def test_large_constants_are_named_by_content() -> None:
    g = Graph("g")
    g.outputs = [("y", g.constant("w", np.zeros(INLINE + 1, np.float32)))]
    text = print_graph(g)
    assert f"@{g.outputs[0][1].const.key}" in text  # type: ignore[union-attr]
    with pytest.raises(ModelError, match="no source of constants"):
        parse_graph(text)
    read_back(g)


def test_attributes_and_absent_inputs() -> None:
    g = Graph("g")
    attrs = {"i": -5, "f": 1e-30, "inf": float("-inf"), "s": 'a "b"\n', "l": [1, 2, 3], "e": [], "n": None,
             "nested": [[1, 0.5], ["x"]], "t": DType.BF16, "b": True, "big": 1 << 62}  # fmt: skip
    x = g.add_input("x", F)
    g.outputs = [("y", g.make("Op", [x, None, x, None], [F, TensorType(DType.I64, ())], attrs).outputs[1])]
    (node,) = read_back(g).nodes
    assert node.attrs == attrs and [v is None for v in node.inputs] == [False, True, False, True]


def test_types() -> None:
    for dtype in DType:
        for t in [TensorType(dtype, ()), TensorType(dtype, (0,)), TensorType(dtype, (1, 2, 3), (0, 2, 1)),
                  TensorType(dtype, (2, 3), (1, 0), DType.F32)]:
            assert parse_type(str(t)) == t
    for bad in ["f32", "f33[1]", "f32[a]", "", "f32[1", "f32[-]", "f32[1,]", "f32[,]", "f32[2,3]{0,2}", "f32[2]{}",
                "f16/[2]", "f16/f33[2]"]:
        with pytest.raises(ValueError):
            parse_type(bad)


@pytest.mark.parametrize("t", ["f32[,,]", "f32[2,3]{0,0}", "f32[2,3]{1}"])
def test_wrong_types_are_told(t: str) -> None:
    with pytest.raises(ModelError, match="line 2"):
        parse_graph(f'graph "g" {{\n  in %x : {t}\n}}')


def sample() -> Graph:
    """A graph with all that the text form knows, groups and layouts included."""
    from monobloc.ops.build import Builder

    g = Graph("sample")
    b, rng = Builder(g), np.random.default_rng(SEED)
    x = g.add_input("x/in", TensorType(DType.F32, (1, 8, 6, 6)))
    attrs = {"group": 1, "pads": [1] * 4, "strides": [1, 1], "dilations": [1, 1], "kernel_shape": [3, 3]}
    y = b.one("Conv", x, b.const(rng.standard_normal((8, 8, 3, 3)).astype(np.float32)), None, **attrs)
    y = b.one("Add", b.one("Relu", y), x)
    g.outputs = [("y", b.one("ReduceMean", y, axes=[2, 3], keepdims=0)), ("z", y)]
    return g


@pytest.mark.parametrize("optimized", [False, True])
def test_mutated_text_is_an_error_or_a_graph(optimized: bool) -> None:
    """Objects carry this text, and objects come from anywhere: any change gives a clear error, or a graph."""
    g = sample()
    if optimized:
        run_passes(g, PassContext(resolve()))
    text, rng = print_graph(g), random.Random(SEED)
    assert ("Fused" in text) == optimized

    def weights(key: str, t: TensorType) -> Const:
        return Const(key=key, load=lambda: np.zeros(t.shape, t.dtype.numpy))

    parsed = 0
    for _ in range(3000):
        at, much = rng.randrange(len(text)), rng.randrange(1, 12)
        junk = "".join(rng.choice(text + "{}[]()%@\",:=-09e\n\0é") for _ in range(rng.randrange(0, 6)))
        mutated = rng.choice([text[:at] + junk + text[at + much :], text[:at], text[:at] + junk + text[at:]])
        try:
            parse_graph(mutated, weights)
            parsed += 1
        except ModelError as e:
            assert "line" in str(e)
    assert 0 < parsed < 3000
