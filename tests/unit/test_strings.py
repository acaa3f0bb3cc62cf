"""Tensors of strings: moved, compared, joined; what they look like in Python, in C and in files."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, numpy_helper, parser
from onnx.reference import ReferenceEvaluator

import monobloc
from monobloc.errors import MonoblocError
from monobloc.frontend.importer import load_onnx
from monobloc.frontend.importing import Choices, Imported
from monobloc.ir.interp import interpret
from monobloc.ir.strings import to_chars, to_text
from monobloc.ir.text import parse_graph, print_graph

WORDS = np.array([["", "ab", "xyz"], ["äöü", "a longer one", "日本"]], object)


def text(body: str, opset: int = 20) -> onnx.ModelProto:
    return parser.parse_model(f'<ir_version: 10, opset_import: ["" : {opset}, "ai.onnx.ml" : 4]>\n{body}')


def plain(x: np.ndarray) -> np.ndarray:
    return to_text(x) if x.dtype == "S1" else x


def check(m: onnx.ModelProto, feeds: dict[str, np.ndarray], bind: tuple[str, ...] = ()) -> Imported:
    """With the operators' references, which the compiled code is held to elsewhere, against ONNX's"""
    made = load_onnx(m, Choices(bind={k: feeds[k] for k in bind}, strings=16,
                                shapes={k: x.shape for k, x in feeds.items() if k not in bind}))
    ours = {k: to_chars(x, k, 16) if x.dtype == object else x for k, x in feeds.items()}
    got = interpret(made.graph, {v.origin: ours[v.origin] for v in made.graph.inputs})
    for (name, y), want in zip(got.items(), ReferenceEvaluator(m).run(None, feeds), strict=True):
        assert plain(y).tolist() == np.asarray(want).tolist(), name
    large = {v.const.key: v.const for v in made.graph.constants() if v.const is not None}
    assert print_graph(parse_graph(print_graph(made.graph), lambda key, _: large[key])) == print_graph(made.graph)
    return made


MOVES = {
    "Transpose": "y = Transpose<perm = [1, 0]>(x)",
    "Concat": "y = Concat<axis = 1>(x, w)",
    "Gather": "k = Constant<value = int64[2] {2, 0}>() y = Gather<axis = 1>(x, k)",
    "GatherElements": "k = Constant<value = int64[1,3] {1, 0, 1}>() y = GatherElements<axis = 0>(x, k)",
    "Slice": "a = Constant<value = int64[1] {-1}>() e = Constant<value = int64[1] {9}>() y = Slice(x, a, e)",
    "Expand": "k = Constant<value = int64[3] {2, 2, 3}>() y = Expand(x, k)",
    "Tile": "k = Constant<value = int64[2] {2, 1}>() y = Tile(x, k)",
    "Reshape": "k = Constant<value = int64[2] {3, -1}>() y = Reshape(x, k)",
    "Flatten": "y = Flatten<axis = 0>(x)",
    "Unsqueeze": "k = Constant<value = int64[1] {0}>() y = Unsqueeze(x, k)",
    "Where": "c = Constant<value = bool[3] {1, 0, 1}>() y = Where(c, x, w)",
    "Identity": "y = Identity(x)",
    "Shape": "y = Shape(x)",
    "Size": "y = Size(x)",
    "Equal": "y = Equal(x, w)",
    "StringConcat": "y = StringConcat(x, w)",
}


@pytest.mark.parametrize("op", MOVES)
def test_moves(op: str) -> None:
    kind = {"Shape": "int64", "Size": "int64", "Equal": "bool"}.get(op, "string")
    m = text(f"g (string[2,3] x, string[2,M] w) => ({kind} y) {{ {MOVES[op]} }}")
    m.graph.output[0].type.tensor_type.ClearField("shape")
    check(m, {"x": WORDS, "w": np.array([["-", "ab", "xyz"], ["äöu", "a longer one", ""]], object)})


def test_numbers_that_are_data() -> None:
    """Rows are picked at run time, and an index outside is told."""
    m = text("g (string[2,3] x, int64[2] k) => (string[2,2] y) { y = Gather<axis = 1>(x, k) }")
    check(m, {"x": WORDS, "k": np.array([2, -3])})
    made = monobloc.compile(m, lto="none")
    assert made.run({"x": WORDS, "k": np.array([2, -3])})["y"].tolist() == WORDS[:, [2, 0]].tolist()
    with pytest.raises(MonoblocError, match="index"):
        made.run({"x": WORDS, "k": np.array([0, 3])})


def test_constants_and_initializers() -> None:
    m = text("""g (string[2] x) => (string[2] y, string[2] z, string s) {
      w = Constant<value_strings = ["p", "longest of all"]>() y = StringConcat(x, w)
      q = Identity(w0) t = Identity(w1) z = Concat<axis = 0>(q, t) s = Constant<value_string = "one">() }""")
    for k, v in (("w0", ["zero"]), ("w1", ["ß"])):
        m.graph.initializer.append(numpy_helper.from_array(np.array(v, object), k))
    check(m, {"x": np.array(["", "ab"], object)})


SPLITS = ["", '<delimiter = ",">', '<delimiter = "--">', "<maxsplit = 1>", '<delimiter = ",", maxsplit = 0>']


@pytest.mark.parametrize("attrs", SPLITS)
def test_splitting_what_is_known(attrs: str) -> None:
    m = text(f"g (string[3] x) => (string[3,N] y, int64[3] n) {{ y, n = StringSplit{attrs}(x) }}")
    check(m, {"x": np.array(["a,b,,c--d", " x  y z ", ","], object)}, bind=("x",))
    with pytest.raises(MonoblocError, match="StringSplit.*is 'x', which is known only at run time"):
        load_onnx(m)


def test_letters_change_their_case() -> None:
    """At run time those of one and two bytes, each for one of the same length."""
    m = text('g (string[4] x) => (string[4] y) { y = StringNormalizer<case_change_action = "UPPER">(x) }')
    got = monobloc.compile(m, lto="none").run({"x": ["monday", "Äpfel ß", "жук", "日本z"]})["y"]
    assert got.tolist() == ["MONDAY", "ÄPFEL ß", "ЖУК", "日本Z"]


STOPS = [["Monday", "tuesday", "wed", ""], ["monday", "Tuesday", "monday", "monday"], ["a", "b", "c", "d"]]


@pytest.mark.parametrize("dims", ["4", "1,4"])
@pytest.mark.parametrize("attrs", ["is_case_sensitive = 1", 'is_case_sensitive = 0, case_change_action = "UPPER"'])
def test_stopwords_of_strings_that_are_data(dims: str, attrs: str) -> None:
    """As many strings as are left, or one that is empty: the same as of strings that are bound"""
    m = text(f"""g (string[{dims}] x) => (string[{dims.replace("4", "N")}] y) {{
      y = StringNormalizer<{attrs}, stopwords = ["monday", "Tuesday"]>(x) }}""")
    made = monobloc.compile(m, lto="none", strings=10)
    for words in STOPS:
        x = np.array(words, object).reshape([int(d) for d in dims.split(",")])
        got = made.run({"x": x})["y"]
        bound = load_onnx(m, Choices(bind={"x": x})).graph.outputs[0][1]
        assert bound.const is not None and got.tolist() == to_text(bound.const.array).tolist()
        if "UPPER" not in attrs:
            session = ort.InferenceSession(m.SerializeToString(), providers=["CPUExecutionProvider"])
            assert got.tolist() == session.run(None, {"x": x})[0].tolist()


def test_choosing_strings_that_are_data() -> None:
    m = text("g (string[4] x, bool[4] c) => (string[N] y) { y = Compress<axis = 0>(x, c) }")
    made = monobloc.compile(m, lto="none", strings=6)
    for c in ([1, 0, 1, 1], [0, 0, 0, 0]):
        got = made.run({"x": ["a", "bb", "", "äö"], "c": np.array(c, bool)})["y"]
        assert got.tolist() == [w for w, k in zip(["a", "bb", "", "äö"], c, strict=True) if k]


def test_in_python() -> None:
    m = text("g (string[N] x) => (string[N] y) { y = Identity(x) }")
    made = monobloc.compile(m, lto="none", dim={"N": 3}, strings=6)
    assert (made.inputs[0].dtype, made.inputs[0].shape) == (np.dtype("S6"), (3,))
    for given in (["a", "äöü", ""], np.array(["a", "äöü", ""]), np.array(["a", "äöü", ""], object)):
        assert made.run({"x": given})["y"].tolist() == ["a", "äöü", ""]
    assert made.run({"x": np.array([b"a", b"bcdefg", b""])}, copy=False)["y"].tolist() == [b"a", b"bcdefg", b""]
    for wrong, message in ((["a", "seven77", ""], "of 7 bytes; there is room for 6"), (["a", "b"], "has shape"),
                           (["a", "b\0c", ""], "NUL"), (np.zeros(3), "is float64, not strings")):  # fmt: skip
        with pytest.raises(MonoblocError, match=message):
            made.run({"x": wrong})


def test_as_an_executable(tmp_path: Path) -> None:
    nodes = "y = StringConcat(x, w) same = Equal(x, w)"
    m = text(f"g (string[2] x, string[2] w) => (string[2] y, bool[2] same) {{ {nodes} }}")
    onnx.save(m, tmp_path / "m.onnx")
    run: Any = {"capture_output": True, "text": True, "cwd": tmp_path}
    for words in (["compile", "m.onnx", "-o", "m.o", "--strings", "8"], ["link", "m.o", "-o", "m", "--lto", "none"],
                  ["verify", "m.onnx", "--strings", "8"]):
        done = subprocess.run([sys.executable, "-m", "monobloc", *words], **run)
        assert done.returncode == 0, done.stderr
    assert "char *m_in_x(void);" in (tmp_path / "m.h").read_text()
    np.save(tmp_path / "x.npy", np.array([b"one", b"two"]))
    np.save(tmp_path / "w.npy", np.array([b"one", b"12345678"]))
    (tmp_path / "out").mkdir()
    assert subprocess.run(["./m", "x.npy", "w.npy", "-o", "out/"], **run).stderr == ""
    assert np.load(tmp_path / "out" / "y.npy").tolist() == [b"oneone", b"two12345678"]
    assert 'y char [2, 16]: "oneone" "two12345678"' in subprocess.run(["./m", "x.npy", "w.npy"], **run).stdout
    np.save(tmp_path / "w.npy", np.array([b"one", b"123456789"]))
    assert "takes char [2, 8]" in subprocess.run(["./m", "x.npy", "w.npy"], **run).stderr


def test_what_is_refused() -> None:
    for body, message in (
        ("g (string[2] x, int64[2] k) => (string[4] y) { y = Pad(x, k) }", "Pad of strings"),
        ("g (string[2] x) => (float[2] y) { y = Cast<to = 1>(x) }", "Cast of strings is not supported"),
        ("g (float[2] x) => (string[2] y) { y = Cast<to = 8>(x) }", "Cast.*to strings is not supported"),
    ):
        with pytest.raises(MonoblocError, match=message):
            load_onnx(text(body))
    m = text("g () => (string[1] y) { y = Identity(w) }")
    m.graph.initializer.append(TensorProto(name="w", data_type=TensorProto.STRING, dims=[1], string_data=[b"a\0b"]))
    with pytest.raises(MonoblocError, match="initializer 'w' has a string with the character NUL"):
        load_onnx(m)
