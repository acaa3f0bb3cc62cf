"""ONNX to Graph: names, scopes, functions, branches, dimensions, outputs."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper, parser
from onnx.reference import ReferenceEvaluator

from monobloc.errors import ErrorList, InternalError, ModelError, UnsupportedError
from monobloc.frontend import Choices, walk
from monobloc.frontend.describe import describe
from monobloc.frontend.importer import load_onnx
from monobloc.ir.graph import Graph
from monobloc.ir.interp import interpret

SHARED = Path(__file__).parents[3] / "shared" / "models"
SEED = 20


def text(body: str, opset: int = 18, head: str = "", ir: int = 8) -> onnx.ModelProto:
    return parser.parse_model(f'<ir_version: {ir}, opset_import: ["" : {opset}{head}]>\n{body}')


def run(g: Graph, *inputs: np.ndarray) -> list[np.ndarray]:
    """The graph's outputs by the operators' references"""
    feeds = {v.origin: x for v, x in zip(g.inputs, inputs, strict=True)}
    return list(interpret(g, feeds).values())


def check(m: onnx.ModelProto, *inputs: np.ndarray, **options: Any) -> Graph:
    """Import, run, compare with ONNX's reference evaluator; the graph for more checks"""
    g: Graph = load_onnx(m, Choices(**options)).graph
    names = [v.origin for v in g.inputs]
    feeds = dict(zip(names, inputs, strict=True)) | options.get("bind", {})
    want = ReferenceEvaluator(m).run(None, feeds)
    for got, ref in zip(run(g, *inputs), want, strict=True):
        assert got.dtype == ref.dtype and got.shape == ref.shape
        np.testing.assert_allclose(got, ref, rtol=1e-5, atol=1e-6)
    return g


def floats(*shape: int) -> np.ndarray:
    return np.random.default_rng(SEED).standard_normal(shape).astype(np.float32)


def ops(g: Graph) -> list[str]:
    return [n.op for n in g.nodes]


# -- declared shapes -------------------------------------------------------------------------------
STALE = "g (float[2,3] x) => (float[1,n] y) <float[6] h> { h = Relu(x)  y = Abs(h) }"


def test_stale_shapes_are_ignored_when_the_user_says_so() -> None:
    m = text(STALE)
    with pytest.raises(ErrorList, match="--ignore-declared-shapes"):
        load_onnx(m)
    g = check(m, floats(2, 3), ignore_shapes=True)
    assert g.outputs[0][1].shape == (2, 3)


def test_stale_types_are_an_error_even_then() -> None:
    m = text("g (float[2,3] x) => (double[1,n] y) { y = Relu(x) }")
    with pytest.raises(ModelError, match="is declared f64, but is f32"):
        load_onnx(m, Choices(ignore_shapes=True))


# -- structure -------------------------------------------------------------------------------------
def test_initializers_that_are_also_inputs_are_constants() -> None:
    m = text("g (float[2] x, float[2] w) => (float[2] y) { y = Add(x, w) }", ir=3, opset=7)
    m.graph.initializer.append(numpy_helper.from_array(floats(2), "w"))
    imported = load_onnx(m)
    assert [v.name for v in imported.graph.inputs] == ["x"]
    assert imported.notes == []
    m.ir_version = 8
    assert load_onnx(m).notes == ["1 inputs have initializers and become constants"]


def test_absent_optional_inputs_are_none() -> None:
    m = text("g (float[5] x, float b) => (float[5] y) { y = Clip(x, , b) }")
    g = check(m, floats(5), np.float32(0.1))
    assert g.nodes[0].inputs[1] is None


def test_unsorted_nodes_are_sorted_and_unused_ones_left_out() -> None:
    m = text("g (float[2] x) => (float[2] y) { y = Abs(h)  z = Neg(h)  h = Relu(x) }")
    imported = load_onnx(m)
    assert ops(imported.graph) == ["Relu", "Abs"]
    assert imported.notes == ["1 nodes reach no output and are left out"]


def test_sorted_nodes_keep_their_order() -> None:
    m = text("g (float[2] x) => (float[2] y) { a = Relu(x) b = Abs(x) c = Neg(b) y = Add(c, a) }")
    assert ops(load_onnx(m).graph) == ["Relu", "Abs", "Neg", "Add"]


def test_a_chain_of_many_nodes_needs_no_deep_recursion() -> None:
    body = "".join(f"h{i + 1} = Neg(h{i}) " for i in reversed(range(3000)))
    m = text(f"g (float[2] h0) => (float[2] h3000) {{ {body} }}")
    assert len(load_onnx(m).graph.nodes) == 3000


NAMES = ["a.b", "a_b", "a/b", "int", "main", "1x", "\u65e5\u672c:\u00fc", "x" * 5000, " ", '%q"\\']


def test_names_are_kept_whatever_they_are() -> None:
    m = onnx.ModelProto(ir_version=8, opset_import=[helper.make_opsetid("", 17)])
    m.graph.name = "g"
    chain = ["x", *NAMES]
    for i, o in pairwise(chain):
        m.graph.node.append(helper.make_node("Neg", [i], [o], name=o))
    m.graph.input.append(helper.make_tensor_value_info("x", TensorProto.FLOAT, [2]))
    m.graph.output.append(helper.make_tensor_value_info(NAMES[-1], TensorProto.FLOAT, [2]))
    g = load_onnx(m).graph
    assert [n.outputs[0].origin for n in g.nodes] == NAMES
    assert [n.name for n in g.nodes] == NAMES
    assert g.outputs[0][0] == NAMES[-1]
    assert all(n.locs == (n.name,) for n in g.nodes)


def test_outputs_that_are_inputs_initializers_or_twice() -> None:
    m = text("g (float[2] x) => (float[2] x, float[2] w, float[2] y, float[2] z) { y = Abs(x) }")
    m.graph.initializer.append(numpy_helper.from_array(floats(2), "w"))
    m.graph.node.append(helper.make_node("Identity", ["y"], ["z"]))
    g = check(m, floats(2))
    assert [n for n, _ in g.outputs] == ["x", "w", "y", "z"]
    values = [v for _, v in g.outputs]
    assert values[0] is g.inputs[0] and values[1].const is not None and values[2] is values[3]


def test_the_same_output_listed_twice_gets_two_names() -> None:
    m = text("g (float[2] x) => (float[2] y) { y = Abs(x) }")
    m.graph.output.append(m.graph.output[0])
    imported = load_onnx(m)
    assert [n for n, _ in imported.graph.outputs] == ["y", "y.1"]
    assert any("listed more than once" in n for n in imported.notes)


def test_zero_size_and_rank_zero() -> None:
    m = text("g (float[0,3] x, float s) => (float[0,3] y, float z) { y = Mul(x, s)  z = Abs(s) }")
    g = check(m, floats(0, 3), np.float32(-2))
    assert [v.shape for _, v in g.outputs] == [(0, 3), ()]


def test_kept_outputs_may_be_inner_values() -> None:
    m = text("g (float[2] x) => (float[2] y, float[2] z) { h = Abs(x) y = Neg(h) z = Nope(h) }")
    g = load_onnx(m, Choices(keep_outputs=["h"])).graph
    assert ops(g) == ["Abs"] and [n for n, _ in g.outputs] == ["h"]


def test_other_symbols_of_outputs_are_fine() -> None:
    m = text("g (float[n,3] x) => (float[m,k] y) { y = Abs(x) }")
    assert load_onnx(m, Choices(dims={"n": 4})).graph.outputs[0][1].shape == (4, 3)


def test_all_problems_are_told_and_their_followers_are_not() -> None:
    m = text(
        """g (float[2] x) => (float[2] y, float[2] z) {
            a = Nope(x)  b = Relu(a)  y = Abs(b)  z = acme.Nope(x)  }""",
        head=', "acme" : 1',
    )
    with pytest.raises(ErrorList) as e:
        load_onnx(m)
    assert [type(x) for x in e.value.errors] == [ModelError, UnsupportedError]


@pytest.mark.parametrize(("met", "kind"), [(TypeError("no x"), InternalError), (IndexError("no x"), ModelError)])
def test_a_bug_of_ours_is_not_told_as_the_models_fault(monkeypatch: Any, met: Exception, kind: type) -> None:
    def stumbles(*_: Any) -> Any:
        raise met

    monkeypatch.setattr(walk.Walker, "_values", stumbles)
    with pytest.raises(kind, match=rf"model: Neg '#0\(Neg\)': .*: {type(met).__name__}: no x") as e:
        load_onnx(text("g (float[2] x) => (float[2] y) { y = Neg(x) }"))
    assert e.value.__cause__ is met


def test_thousands_of_problems_are_told_in_time() -> None:
    body = "".join(f"h{i} = Nope(x)  k{i} = Abs(z{i})  y{i} = Sum(k{i}, h{i}) " for i in range(2000))
    m = text(f"g (float[2] x) => (float[2] y0, float[2] y1999) {{ {body} }}")
    m.graph.output.extend(helper.make_tensor_value_info(f"y{i}", TensorProto.FLOAT, [2]) for i in range(1, 1999))
    with pytest.raises(ErrorList) as e:
        load_onnx(m)
    assert len(e.value.errors) == 4000


# -- functions -------------------------------------------------------------------------------------
def test_local_functions_are_unfolded_with_their_attributes() -> None:
    m = text(
        """g (float[4] x) => (float[4] y, float[4] z) {
            [outer] y = f.Leaky2 <slope = 0.5> (x)
            z = f.Leaky2(x)
        }
        <domain: "f", opset_import: ["" : 18, "f" : 1]>
        Leaky2 <slope: float = 0.25> (a) => (b) { h = f.Leaky <alpha: float = @slope> (a)
                                                 [last] b = f.Leaky <alpha: float = @slope> (h) }
        <domain: "f", opset_import: ["" : 18]>
        Leaky <alpha> (a) => (b) { b = LeakyRelu <alpha: float = @alpha> (a) }""",
        head=', "f" : 1',
    )
    g = load_onnx(m).graph
    x = floats(4)
    y, z = run(g, x)
    np.testing.assert_allclose(y, np.where(x < 0, x * 0.25, x), rtol=1e-6)
    np.testing.assert_allclose(z, np.where(x < 0, x * 0.0625, x), rtol=1e-6)
    assert g.nodes[1].name == "outer/last/#0(LeakyRelu)"
    assert [v.origin for v in g.nodes[0].outputs + g.nodes[1].outputs] == ["outer/h", "y"]


def test_functions_do_not_see_names_around_them() -> None:
    m = text(
        """g (float[4] x) => (float[4] y) { h = Abs(x)  y = f.F(x) }
        <domain: "f", opset_import: ["" : 18]> F (a) => (b) { b = Add(a, h) }""",
        head=', "f" : 1',
    )
    with pytest.raises(ModelError, match="reads 'h', which nothing makes"):
        load_onnx(m)


def test_absent_inputs_reach_function_bodies() -> None:
    m = text(
        """g (float[4] x, float hi) => (float[4] y) { y = f.F(x, , hi) }
        <domain: "f", opset_import: ["" : 18]> F (a, lo, hi) => (b) { b = Clip(a, lo, hi) }""",
        head=', "f" : 1',
    )
    assert load_onnx(m).graph.nodes[0].inputs[1] is None


SCHEMA_BODIES = [  # operator, opset, attributes, input shapes
    ("Mish", 18, {}, [(3, 4)]),
    ("Softsign", 18, {}, [(3, 4)]),
    ("Selu", 18, {"alpha": 1.5}, [(3, 4)]),
    ("Elu", 22, {}, [(3, 4)]),
    ("HardSwish", 14, {}, [(3, 4)]),
    ("Gelu", 20, {"approximate": "tanh"}, [(3, 4)]),
    ("ThresholdedRelu", 22, {"alpha": 0.25}, [(3, 4)]),
    ("PRelu", 16, {}, [(3, 4), (4,)]),
    ("Celu", 12, {}, [(3, 4)]),
    ("LayerNormalization", 17, {"axis": -1}, [(3, 4), (4,), (4,)]),
    ("MeanVarianceNormalization", 13, {"axes": [0, 1]}, [(3, 4)]),
]


@pytest.mark.parametrize(("op", "opset", "attrs", "shapes"), SCHEMA_BODIES)
def test_operators_without_a_reader_unfold_by_their_schema(
    op: str, opset: int, attrs: dict[str, Any], shapes: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = walk.onnx_reader
    monkeypatch.setattr(walk, "onnx_reader", lambda domain, name: None if name == op else reader(domain, name))
    inputs = [f"x{i}" for i in range(len(shapes))]
    node = helper.make_node(op, inputs, ["y"], **attrs)
    ports = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in zip(inputs, shapes, strict=True)]
    out = helper.make_tensor_value_info("y", TensorProto.FLOAT, list(shapes[0]))
    graph = helper.make_graph([node], "g", ports, [out])
    m = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
    g = check(m, *[floats(*s) for s in shapes])
    assert op not in ops(g) and len(g.nodes) > 1


# -- branches --------------------------------------------------------------------------------------
IF = """g (float[2] x) => (float[2] y) {
    c = Constant <value_int = %d> ()
    cond = Cast <to = 9> (c)
    h = Abs(x)
    y = If(cond) <then_branch = t () => (float[2] p) { h = Neg(x)  p = Exp(h) },
                  else_branch = e () => (float[2] q) { q = Exp(h) }>
}"""


@pytest.mark.parametrize("taken", [0, 1])
def test_if_with_a_constant_condition_is_its_branch(taken: int) -> None:
    """the inner `h` hides the outer one, in its own branch only"""
    x = floats(2)
    g = load_onnx(text(IF % taken)).graph
    (y,) = run(g, x)
    np.testing.assert_allclose(y, np.exp(-x if taken else np.abs(x)), rtol=1e-6)
    assert "If" not in ops(g)
    assert g.outputs[0][1].origin == "y"


def test_the_branch_not_taken_may_be_anything() -> None:
    body = IF.replace("q = Exp(h)", "q = acme.Nope(h)")
    assert "Exp" in ops(load_onnx(text(body % 1)).graph)
    with pytest.raises(ModelError, match="Nope"):
        load_onnx(text(body % 0))


def test_nested_if_reads_initializers_around_it() -> None:
    m = text(
        """g (float[2] x) => (float[2] y) {
            y = If(c) <then_branch = t () => (float[2] p) {
                p = If(c) <then_branch = tt () => (float[2] pp) { pp = Add(x, w) },
                           else_branch = te () => (float[2] pe) { pe = Sub(x, w) }>
            }, else_branch = e () => (float[2] q) { q = Abs(x) }>
        }"""
    )
    m.graph.initializer.append(numpy_helper.from_array(np.array(True), "c"))
    m.graph.initializer.append(numpy_helper.from_array(floats(2), "w"))
    assert ops(check(m, floats(2))) == ["Add"]


def test_branches_have_initializers_of_their_own() -> None:
    m = text(IF % 1)
    branch = next(a.g for n in m.graph.node for a in n.attribute if a.name == "then_branch")
    branch.initializer.append(numpy_helper.from_array(np.float32([3, 4]), "k"))
    branch.node[0].CopyFrom(helper.make_node("Identity", ["k"], ["h"]))
    (y,) = run(load_onnx(m).graph, floats(2))
    np.testing.assert_allclose(y, np.exp(np.float32([3, 4])), rtol=1e-6)


def test_a_condition_can_be_bound() -> None:
    m = text(
        """g (bool c, float[2] x) => (float[2] y) {
            y = If(c) <then_branch = t () => (float[2] p) { p = Neg(x) },
                       else_branch = e () => (float[2] q) { q = Exp(x) }> }"""
    )
    assert ops(load_onnx(m).graph) == ["If"]
    imported = load_onnx(m, Choices(bind={"c": False}))
    assert ops(imported.graph) == ["Exp"] and [v.name for v in imported.graph.inputs] == ["x"]
    assert imported.notes == ["input 'c' is bound and becomes a constant"]


# -- dimensions ------------------------------------------------------------------------------------
def test_leading_dimensions_become_one_with_a_note() -> None:
    m = text("g (float[batch,3] x, float[batch,3] z) => (float[batch,3] y) { y = Add(x, z) }")
    imported = load_onnx(m)
    assert [v.shape for v in imported.graph.inputs] == [(1, 3), (1, 3)]
    assert imported.dims == {"batch": 1}
    assert len(imported.notes) == 1 and "--dim batch=N" in imported.notes[0]


def test_dims_and_shapes_bind_symbols_everywhere() -> None:
    m = text("g (float[b,n] x, float[n,b] z) => (float[b,n] y) { t = Abs(x)  y = Neg(t) }")
    assert [v.shape for v in load_onnx(m, Choices(dims={"b": 2, "n": 5})).graph.inputs] == [(2, 5), (5, 2)]
    imported = load_onnx(m, Choices(shapes={"x": (3, 4)}))
    assert [v.shape for v in imported.graph.inputs] == [(3, 4), (4, 3)]
    assert imported.dims == {"b": 3, "n": 4} and imported.notes == []


def test_dimensions_that_are_arithmetic_follow() -> None:
    m = text("g (float[b,n] x) => (float[b,n] y) { y = Abs(x) }")
    for name, dim in (("p", "n + 1"), ("q", "2*n"), ("r", "floor(n/2)"), ("s", "n - past")):
        port = helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, dim])
        m.graph.input.append(port)
    imported = load_onnx(m, Choices(dims={"n": 9, "past": 2}))
    assert [v.shape[1] for v in imported.graph.inputs] == [9, 10, 18, 4, 7]


def test_question_marks_are_no_symbol() -> None:
    m = text("g (float[b,n] x) => (float[b,n] y) { y = Abs(x) }")
    dims = m.graph.input[0].type.tensor_type.shape.dim
    dims[0].dim_value, dims[1].dim_param = -1, "?"
    assert load_onnx(m, Choices(shapes={"x": (2, 3)})).graph.inputs[0].shape == (2, 3)
    with pytest.raises(ModelError, match="--shape x=1xN"):
        load_onnx(m)


def test_zero_is_a_size() -> None:
    m = text("g (float[b,n] x) => (float[b,n] y) { y = Abs(x) }")
    assert load_onnx(m, Choices(dims={"n": 0})).graph.inputs[0].shape == (1, 0)


def test_all_inputs_that_are_shapes_are_named_at_once() -> None:
    m = text("g (int64 s, int64 e) => (int64[n] y) { t = Abs(e)  y = Range(s, t, s) }")
    with pytest.raises(UnsupportedError, match=r"`--bind s=... --bind e=...`"):
        load_onnx(m)
    g = load_onnx(m, Choices(bind={"s": 2, "e": 7})).graph
    np.testing.assert_array_equal(run(g)[0], [2, 4, 6])


def test_shape_arithmetic_folds() -> None:
    m = text(
        """g (float[b,6] x) => (float[k,2] y) {
            s = Shape(x)
            zero = Constant <value_int = 0> ()
            n = Gather(s, zero)
            axes = Constant <value_ints = [0]> ()
            lead = Unsqueeze(n, axes)
            rest = Constant <value_ints = [-1, 2]> ()
            shape = Concat <axis = 0> (lead, rest)
            t = Reshape(x, shape)
            two = Constant <value_ints = [-1, 2]> ()
            y = Reshape(t, two)
        }"""
    )
    g = check(m, floats(4, 6), dims={"b": 4})
    assert ops(g) == ["Reshape", "Reshape"]


# -- facts -----------------------------------------------------------------------------------------
def test_describe_tells_all_that_is_unsupported() -> None:
    m = text(
        "g (float[b,n] x) => (float[b,n] y) { a = acme.One(x)  y = acme.Two(a) }",
        head=', "acme" : 1',
    )
    facts = describe(m)
    assert [str(p.type) for p in facts.inputs] == ["f32[b,n]"]
    assert facts.ops == {"acme::One": 1, "acme::Two": 1}
    assert [e.loc.op for e in facts.unsupported if e.loc] == ["acme::One", "acme::Two"]
    assert len(facts.problems) == 1 and "--dim n=N" in str(facts.problems[0])
    assert facts.imported is None


def test_describe_counts_weights() -> None:
    m = text("g (float[2] x) => (float[2] y) { c = Constant <value_ints = [1]> () y = Add(x, w) }")
    m.graph.initializer.append(numpy_helper.from_array(floats(2), "w"))
    facts = describe(m)
    assert facts.weight_bytes == 8 and facts.weight_bytes_by_type == {"f32": 8}
    assert facts.imported is not None and facts.imported.opsets == {"": 18}


@pytest.mark.skipif(not SHARED.is_dir(), reason=f"no models at {SHARED}")
@pytest.mark.parametrize("path", sorted(SHARED.glob("*.onnx")), ids=lambda p: p.stem)
def test_describe_real_models(path: Path) -> None:
    facts = describe(path)
    assert facts.inputs and facts.outputs and facts.weight_bytes > 0
    known = ("the sizes of some dimensions",)
    assert all(p.message.startswith(known) for p in facts.problems), [*map(str, facts.problems)]
