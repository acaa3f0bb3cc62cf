"""Sequences and optionals: resolved while a model is read, and what is said where they cannot be."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import parser
from onnx.reference import ReferenceEvaluator

import monobloc
from monobloc.errors import MonoblocError
from monobloc.frontend.importer import load_onnx
from monobloc.frontend.importing import Choices, Imported
from monobloc.ir.interp import interpret
from monobloc.loader import flattened, gathered, spread
from monobloc.options import parse_shapes

SEED = 5
print(f"seed {SEED}")


def text(body: str, opset: int = 18) -> onnx.ModelProto:
    return parser.parse_model(f'<ir_version: 10, opset_import: ["" : {opset}]>\n{body}')


def floats(*shape: int) -> np.ndarray:
    return np.random.default_rng([SEED, *shape]).standard_normal(shape).astype(np.float32)


def check(m: onnx.ModelProto, feeds: dict[str, Any], **choices: Any) -> Imported:
    """Import, run with the operators' references, compare with ONNX's"""
    made = load_onnx(m, Choices(**choices))
    flat = flattened(feeds)
    got = interpret(made.graph, {v.origin: flat[v.origin] for v in made.graph.inputs})
    want = dict(zip([o.name for o in m.graph.output], ReferenceEvaluator(m).run(None, feeds), strict=True))
    assert list(got) == list(flattened(want))
    for name, y in flattened(want).items():
        np.testing.assert_array_equal(got[name], y)
        assert got[name].dtype == np.asarray(y).dtype
    return made


INSERTS = """g (float[2,3] a, float[4] b, seq(float[N]) s) => (seq(float[M]) y, int64 n, float[3] last) {
  at = Constant<value_int = -1>()
  one = SequenceInsert(s, b, at)
  y = SequenceErase(one)
  n = SequenceLength(one)
  rows = SplitToSequence<axis = 0, keepdims = 0>(a)
  last = SequenceAt(rows, at)
}"""


def test_items_are_put_in_taken_out_and_read() -> None:
    feeds = {"a": floats(2, 3), "b": floats(4), "s": [floats(1), floats(5), floats(2)]}
    made = check(text(INSERTS), feeds, shapes=parse_shapes(["s=[1,5,2]"]))
    assert [v.origin for v in made.graph.inputs] == ["a", "b", "s[0]", "s[1]", "s[2]"]
    assert "output 'y' is a sequence of 3 tensors of f32: 'y[0]' to 'y[2]'" in made.notes


@pytest.mark.parametrize("split", ["", "2", "{1,4}"])
def test_splits(split: str) -> None:
    sizes = f"k = Constant<value = int64{'[2]' if '{' in split else ''} {{{split.strip('{}')}}}>()" if split else ""
    parts = f"y = SplitToSequence<axis = -1>(x{', k' if split else ''})"
    check(text(f"g (float[2,5] x) => (seq(float[2,N]) y) {{ {sizes} {parts} }}"), {"x": floats(2, 5)})


@pytest.mark.parametrize("attrs", ["axis = 1", "axis = -1, new_axis = 1", "axis = 0, new_axis = 1"])
def test_joins(attrs: str) -> None:
    body = f"s = SequenceConstruct(a, b, a) y = ConcatFromSequence<{attrs}>(s)"
    m = text(f"g (float[2,3] a, float[2,3] b) => (float[N,M] y) {{ {body} }}")
    m.graph.output[0].type.tensor_type.ClearField("shape")
    check(m, {"a": floats(2, 3), "b": floats(2, 3) + 1})


LOOP = """g (float[2] x) => (seq(float[2]) y, float[6] joined) {
  n = Constant<value_int = 3>()
  yes = Constant<value = bool {1}>()
  none = SequenceEmpty()
  y = Loop(n, yes, none) <body = b (int64 i, bool c, seq(float[2]) s) => (bool go, seq(float[2]) more) {
    go = Identity(c)
    f = Cast<to = 1>(i)
    z = Add(x, f)
    more = SequenceInsert(s, z)
  }>
  joined = ConcatFromSequence<axis = 0>(y)
}"""


def test_a_loop_that_collects() -> None:
    check(text(LOOP), {"x": floats(2)})


def test_a_branch_gives_a_sequence() -> None:
    m = text("""g (float[2] x) => (seq(float[2]) y) {
      c = Constant<value = bool {0}>()
      y = If(c) <then_branch = t () => (seq(float[2]) a) { a = SequenceConstruct(x) },
                 else_branch = e () => (seq(float[2]) b) { b = SequenceConstruct(x, x) }>
    }""")
    check(m, {"x": floats(2)})


RUN_TIME = """g (float[2] x, bool c) => (seq(float[2]) y, float[2] z) {
  y, z = If(c) <then_branch = t () => (seq(float[2]) a, float[2] p) { p = Neg(x) a = SequenceConstruct(x, p) },
                else_branch = e () => (seq(float[2]) b, float[2] q) { q = Abs(x) b = SequenceConstruct(%s) }>
}"""


def test_a_branch_that_data_decide() -> None:
    """Sequences of one form go through it item by item; of two forms they cannot."""
    for c in (True, False):
        check(text(RUN_TIME % "q, q"), {"x": floats(2), "c": np.array(c)})
    with pytest.raises(MonoblocError, match="in the other; a type that data decide.*\n.*`--bind c=...`"):
        load_onnx(text(RUN_TIME % "q"))
    check(text(RUN_TIME % "q"), {"x": floats(2), "c": np.array(False)}, bind={"c": np.array(False)})


def test_a_loop_that_data_end() -> None:
    m = text(LOOP.replace("n = Constant<value_int = 3>()", "").replace("float[2] x", "float[2] x, int64 n"))
    with pytest.raises(MonoblocError, match="a sequence of 0 tensors of f32 that data decide.*\n.*`--bind n=...`"):
        load_onnx(m)
    check(m, {"x": floats(2), "n": np.array(3)}, bind={"n": np.array(3)})


def test_an_index_that_is_data() -> None:
    """It picks among items of one type; outside is an error, not another item."""
    m = text("g (float[3] a, float[3] b, int64 k) => (float[3] y) { s = SequenceConstruct(a, b) y = SequenceAt(s, k) }")
    for k in (0, 1, -1):
        check(m, {"a": floats(3), "b": floats(3) + 1, "k": np.int64(k)})
    made = monobloc.compile(m, lto="none")
    feeds = {"a": floats(3), "b": floats(3) + 1}
    np.testing.assert_array_equal(made.run({**feeds, "k": np.int64(-2)})["y"], feeds["a"])
    with pytest.raises(MonoblocError, match="index"):
        made.run({**feeds, "k": np.int64(2)})


def test_optionals() -> None:
    m = text("""g (optional(float[3]) x) => (bool has) { has = OptionalHasElement(x) }""")
    check(m, {"x": floats(3)})
    assert interpret(load_onnx(m, Choices(shapes=parse_shapes(["x=none"]))).graph, {})["has"].item() is False
    m = text("""g (optional(float[3]) x) => (float[3] y) { y = OptionalGetElement(x) }""")
    check(m, {"x": floats(3)})
    with pytest.raises(MonoblocError, match="OptionalGetElement.*reads an optional without a value"):
        load_onnx(m, Choices(shapes=parse_shapes(["x=none"])))


def test_in_python() -> None:
    """A list goes in; one array an item comes out, or lists where onnxruntime gives them."""
    m = text("g (seq(float[N]) s, float[2] x) => (seq(float[N]) y, float[2] z) { z = Neg(x) y = SequenceInsert(s, z) }")
    made = monobloc.compile(m, lto="none", shape={"s": [(1,), (3,)]})
    items = [floats(1), floats(3)]
    got = made.run({"s": items, "x": floats(2)})
    assert list(got) == ["y[0]", "y[1]", "y[2]", "z"]
    for y, want in zip(gathered("y", got), [*items, -floats(2)], strict=True):
        np.testing.assert_array_equal(y, want)
    with pytest.raises(MonoblocError, match="`s` is given 1 items, but was compiled for 2"):
        made.run({"s": items[:1]})
    with pytest.raises(MonoblocError, match="no output `w`"):
        gathered("w", got)
    assert spread({"z": [1, 2]}, ["z"]) == {"z": [1, 2]}


def test_a_sequence_of_nothing() -> None:
    m = text("g (seq(float[N]) s) => (int64 n) { n = SequenceLength(s) }")
    assert monobloc.compile(m, lto="none", shape={"s": []}).run()["n"] == 0


F, K = "float[3] x", "k = Constant<value_int=1>()"
REFUSED = [
    ("g (seq(float[N]) s) => (int64 n) { n = SequenceLength(s) }", "how many items it has is not known"),
    (f"g ({F}) => (float[3] y) {{ s = SequenceConstruct(x) y = Neg(s) }}", "Neg.*refused by Neg"),
    (f"g ({F}) => (float[3] y) {{ s = SequenceConstruct(x) {K} y = SequenceAt(s, k) }}",
     "the position 1 is outside of a sequence of 1 items"),
    (f"g ({F}, int64 k) => (float[N] y) {{ z = SplitToSequence(x) s = SequenceInsert(z, x) y = SequenceAt(s, k) }}",
     r"SequenceAt.*\(position\) is 'k', which is known only at run time"),
    (f"g ({F}) => (float[3] y) {{ y = SequenceConstruct(x) }}", "declared a tensor, but is a sequence of 1"),
    ("g (int64[1] k) => (seq(int64[1]) y) { e = SequenceEmpty() y = SequenceInsert(e, k) }", r"puts i64\[1\] into"),
]  # fmt: skip


@pytest.mark.parametrize(("body", "message"), REFUSED)
def test_what_is_refused(body: str, message: str) -> None:
    with pytest.raises(MonoblocError, match=message):
        load_onnx(text(body))


def test_words_for_shapes() -> None:
    assert parse_shapes(["s=[2x3,4]", "e=[]", "o=none", "x=2", "z="]) == {
        "s[0]": (2, 3), "s[1]": (4,), "e": (), "o[none]": (), "x": (2,), "z": (),
    }  # fmt: skip
    for wrong in ("s=[2x,3]", "s=[2", "s=2-3"):
        with pytest.raises(MonoblocError, match="is no shape"):
            parse_shapes([wrong])
