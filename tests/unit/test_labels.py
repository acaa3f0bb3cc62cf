"""Categories of ai.onnx.ml and grams of strings, against onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper

import monobloc
from monobloc.errors import MonoblocError
from monobloc.frontend.importer import load_onnx
from monobloc.frontend.importing import Choices

ML = "ai.onnx.ml"
WORDS = np.array([["a", "bb", "no"], ["", "ccc", "a"]], object)


def model(op: str, x: np.ndarray, domain: str, opset: int, **attrs: Any) -> onnx.ModelProto:
    outputs = ["y", "scores"] if op == "LinearClassifier" else ["y"]
    node = helper.make_node(op, ["x"], outputs, domain=domain, **attrs)
    port = helper.make_tensor_value_info("x", helper.np_dtype_to_tensor_dtype(x.dtype), list(x.shape))
    g = helper.make_graph([node], "g", [port], [helper.make_empty_tensor_value_info("y")])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(ML, opset)]
    return helper.make_model(g, opset_imports=opsets, ir_version=10)


def check(op: str, x: np.ndarray, domain: str = ML, opset: int = 2, **attrs: Any) -> np.ndarray:
    """Compiled code against onnxruntime"""
    m = model(op, x, domain, opset, **attrs)
    quiet = ort.SessionOptions()
    quiet.log_severity_level = 4
    want = ort.InferenceSession(m.SerializeToString(), quiet, providers=["CPUExecutionProvider"]).run(None, {"x": x})[0]
    got = monobloc.compile(m, lto="none", strings=8).run({"x": x})["y"]
    if want.dtype.kind == "f":
        assert got.dtype == want.dtype
        np.testing.assert_array_equal(got, want)
        assert (np.signbit(got) == np.signbit(want)).all()
    else:
        assert got.tolist() == want.tolist() and (got.dtype == want.dtype or want.dtype.kind in "UO")
    return want


@pytest.mark.parametrize("attrs", [
    {"keys_strings": ["a", "", "bb"], "values_int64s": [5, 6, 7]},
    {"keys_strings": ["a", "bb"], "values_int64s": [5, 7], "default_int64": 42},
    {"keys_strings": ["a", "bb"], "values_floats": [0.5, -1.0]},
    {"keys_strings": ["a", "bb"], "values_strings": ["first", "s"], "default_string": "none of them"},
    {"keys_strings": ["bb"], "values_strings": [""]},
    {"keys_strings": ["a longer key than any string", "bb"], "values_int64s": [5, 7]},
])  # fmt: skip
def test_strings_are_keys(attrs: dict[str, Any]) -> None:
    check("LabelEncoder", WORDS, **attrs)


@pytest.mark.parametrize("attrs", [
    {"keys_floats": [1.0, float("nan"), 0.0], "values_strings": ["one", "nan", "zero"]},
    {"keys_floats": [float("nan"), 2.0, -3.0], "values_floats": [1.0, 2.0, 3.0], "default_float": 9.0},
    {"keys_floats": [1.0, 2.0], "values_int64s": [3, 4]},
])  # fmt: skip
def test_numbers_are_keys(attrs: dict[str, Any]) -> None:
    check("LabelEncoder", np.array([1, np.nan, -0.0, 2, np.inf, -3], np.float32), opset=4, **attrs)


def test_integers_are_keys() -> None:
    x = np.array([[1, -5], [2**40, 7]])
    check("LabelEncoder", x, keys_int64s=[2**40, 1, -5], values_strings=["big", "one", "below"])
    check("LabelEncoder", x, keys_int64s=[2**40, 1], values_floats=[0.1, 0.2])


def test_tensors_of_keys() -> None:
    keys = helper.make_tensor("k", TensorProto.STRING, [2], ["a", "bb"])
    values = helper.make_tensor("v", TensorProto.INT16, [2], [7, 8])
    rest = helper.make_tensor("d", TensorProto.INT16, [1], [-3])
    check("LabelEncoder", WORDS, opset=4, keys_tensor=keys, values_tensor=values, default_tensor=rest)


def test_one_of_several_strings() -> None:
    check("OneHotEncoder", WORDS, opset=1, cats_strings=["a", "ccc", ""])


def test_classes_have_names() -> None:
    x = np.random.default_rng(3).standard_normal((6, 3)).astype(np.float32)
    w = np.random.default_rng(4).standard_normal(9).tolist()
    three = {"coefficients": w, "intercepts": [0.1, 0.2, 0.3], "classlabels_strings": ["a", "", "ccc"]}
    two = {"coefficients": w[:3], "intercepts": [0.1], "classlabels_strings": ["no", "yes"]}
    for attrs in (three, two):
        check("LinearClassifier", x, opset=1, **attrs)


def test_category_mapper() -> None:
    check("CategoryMapper", WORDS, opset=1, cats_strings=["a", "bb", "ccc"], cats_int64s=[4, 5, 6], default_int64=-7)
    x = np.array([4, 9, 6])
    check("CategoryMapper", x, opset=1, cats_strings=["a", "bb", "ccc"], cats_int64s=[4, 5, 6], default_string="other")


@pytest.mark.parametrize("mode", ["TF", "IDF", "TFIDF"])
def test_grams_of_strings(mode: str) -> None:
    x = np.array([["to", "be", "or", "not", "to", "be"], ["be", "not", "to", "", "be", "be"]], object)
    pool = ["to", "be", "?", "to", "be", "not", "to"]
    want = check("TfIdfVectorizer", x, "", mode=mode, min_gram_length=1, max_gram_length=2, max_skip_count=1,
                 ngram_counts=[0, 3], ngram_indexes=[0, 1, 2, 4, 3], pool_strings=pool,
                 weights=[1.0, 2.0, 0.5, 3.0, 4.0])  # fmt: skip
    assert want.any()


def test_what_is_refused() -> None:
    for attrs, message in (
        ({"keys_strings": ["a"], "values_int64s": [1, 2]}, "has 1 keys and 2 values"),
        ({"keys_int64s": [1], "values_int64s": [1]}, "has keys of the type int64 for char"),
        ({"keys_strings": ["a"]}, "needs one of `values_strings`"),
    ):
        with pytest.raises(MonoblocError, match=message):
            load_onnx(model("LabelEncoder", WORDS, ML, 2, **attrs), Choices())
