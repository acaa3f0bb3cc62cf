"""Operators of ai.onnx.ml, one node each: read, interpreted, compiled, and compared with onnxruntime."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper
from test_microsoft import compiled, near, remember, runtime
from test_o2_onnx import Array, one_node, ours

from monobloc.errors import MonoblocError
from monobloc.frontend.importer import load_onnx
from monobloc.verify_run import ort_run, ort_session

SEED = 515
RNG = np.random.default_rng(SEED)
print(f"seed {SEED}")
F = np.float32
TRANSFORMS = ("NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO", "PROBIT")


def f32(*shape: int) -> Array:
    return RNG.standard_normal(shape).astype(F)


def model_of(op: str, ins: list[Array], outputs: int, version: int, **attrs: Any) -> Any:
    model, feeds = one_node(op, 18, ins, attrs, outputs)
    model.graph.node[0].domain = "ai.onnx.ml"
    model.opset_import.append(helper.make_opsetid("ai.onnx.ml", version))
    return model, feeds


def agree(op: str, ins: list[Array], outputs: int = 1, version: int = 3, **attrs: Any) -> None:
    model, feeds = model_of(op, ins, outputs, version, **attrs)
    wants = runtime(model, feeds)
    # what approximates PROBIT takes a difference of two numbers that are nearly equal
    tolerance = (1e-3, 1e-3, 0) if attrs.get("post_transform") == "PROBIT" else (1e-4, 1e-5, 0)
    for got, want in zip(ours(model, feeds), wants, strict=True):
        near(op, got, want, *tolerance)
    remember(__name__, model, feeds, wants, tolerance)


def refused(text: str, op: str, ins: list[Array], version: int = 3, **attrs: Any) -> None:
    with pytest.raises(MonoblocError, match=text):
        load_onnx(model_of(op, ins, 1, version, **attrs)[0])


# -- linear models and support vectors --------------------------------------------------------------------
@pytest.mark.parametrize("transform", TRANSFORMS)
def test_linear(transform: str) -> None:
    x = RNG.uniform(0.05, 0.2, (5, 3)).astype(F)
    w, shift = RNG.uniform(0.2, 1, 9).tolist(), [0.1, 0.2, 0.3]
    agree("LinearClassifier", [x], 2, 1, coefficients=w, intercepts=shift, classlabels_ints=[3, 5, 9],
          post_transform=transform)
    agree("LinearRegressor", [x], 1, 1, coefficients=w, intercepts=shift, targets=3, post_transform=transform)
    if transform != "PROBIT":
        two = {"coefficients": [1.0, -2.0, 0.5], "intercepts": [0.02], "classlabels_ints": [5, 7]}
        agree("LinearClassifier", [f32(6, 3)], 2, 1, post_transform=transform, **two)


def test_linear_of_other_types() -> None:
    for x in (f32(4, 3).astype(np.float64), RNG.integers(-5, 5, (4, 3)), RNG.integers(-5, 5, (4, 3)).astype(np.int32)):
        two = {"coefficients": f32(6).tolist(), "intercepts": [0.0, 1.0], "classlabels_ints": [0, 1]}
        agree("LinearClassifier", [x], 2, 1, **two)
    agree("LinearRegressor", [f32(4, 3)], 1, 1, coefficients=[1.0, 2.0, 3.0])
    refused("coefficients for 1 outputs of 3 columns", "LinearRegressor", [f32(4, 3)], 1, coefficients=[1.0])


@pytest.mark.parametrize("kind", ["LINEAR", "POLY", "RBF", "SIGMOID"])
def test_support_vectors(kind: str) -> None:
    x, vectors = f32(5, 3), f32(6, 3)
    kernel = {"kernel_type": kind, "kernel_params": [0.3, 0.5, 2.0], "support_vectors": vectors.ravel().tolist()}
    one = {"coefficients": f32(6).tolist(), "rho": [0.2], "n_supports": 6, **kernel}
    agree("SVMRegressor", [x], 1, 1, **one)
    agree("SVMRegressor", [x], 1, 1, one_class=1, **one)
    for per_class, labels in (([2, 1, 3], [4, 6, 8]), ([2, 4], [0, 1])):
        pairs = len(labels) * (len(labels) - 1) // 2
        attrs = {"vectors_per_class": per_class, "classlabels_ints": labels, "rho": f32(pairs).tolist()}
        attrs["coefficients"] = f32(6 * (len(labels) - 1)).tolist()
        agree("SVMClassifier", [x], 2, 1, **attrs, **kernel)
        platt = {"prob_a": (-np.abs(f32(pairs))).tolist(), "prob_b": f32(pairs).tolist()}
        agree("SVMClassifier", [x], 2, 1, **attrs, **platt, **kernel)
    if kind == "LINEAR":
        linear = {"kernel_type": "LINEAR", "kernel_params": [0.0] * 3}
        agree("SVMRegressor", [x], 1, 1, coefficients=f32(3).tolist(), rho=[0.1], **linear)
        refused("without vectors for each", "SVMClassifier", [x], 1, coefficients=[1.0, 2.0, 3.0])


# -- features -----------------------------------------------------------------------------------------------
def test_features() -> None:
    x = f32(4, 3)
    agree("Scaler", [x], 1, 1, offset=[0.1, 0.2, 0.3], scale=[2.0, 3.0, 4.0])
    agree("Scaler", [RNG.integers(-9, 9, (4, 3))], 1, 1, offset=[0.5], scale=[2.0])
    for norm in ("MAX", "L1", "L2"):
        rows = np.concatenate([np.abs(x) if norm == "MAX" else x, np.zeros((1, 3), F)])
        agree("Normalizer", [rows], 1, 1, norm=norm)
    agree("Binarizer", [x], 1, 1, threshold=0.2)
    holes = np.where(RNG.random((4, 3)) < 0.5, F(np.nan), x).astype(F)
    agree("Imputer", [holes], 1, 1, imputed_value_floats=[1.0, 2.0, 3.0], replaced_value_float=float("nan"))
    agree("Imputer", [RNG.integers(0, 2, (4, 3))], 1, 1, imputed_value_int64s=[7], replaced_value_int64=1)
    agree("ArrayFeatureExtractor", [x, np.int64([[2, 0, 2]])], 1, 1)
    agree("ArrayFeatureExtractor", [x[0], np.int64([1])], 1, 1)
    agree("FeatureVectorizer", [x, f32(4, 2)], 1, 1, inputdimensions=[3, 2])


def test_encoders() -> None:
    ids = RNG.integers(0, 6, (3, 4))
    agree("OneHotEncoder", [ids], 1, 1, cats_int64s=[1, 3, 4])
    agree("OneHotEncoder", [ids.astype(F)], 1, 1, cats_int64s=[0, 1, 2, 3, 4, 5], zeros=0)
    agree("LabelEncoder", [ids], 1, 2, keys_int64s=[1, 3, 4], values_floats=[0.5, 1.5, 2.5], default_float=-9.0)
    agree("LabelEncoder", [ids], 1, 2, keys_int64s=[1, 3, 4], values_int64s=[10, 30, 40])
    values = F([1, 2, np.nan, 5])
    for version in (2, 4):
        table = {"keys_floats": [1.0, float("nan"), 2.0], "values_int64s": [7, 8, 9]}
        agree("LabelEncoder", [values], 1, version, **table, default_int64=-2)


@pytest.mark.parametrize("labels", [{"classlabels_int64s": [0, 1, 2]}, {"classlabels_strings": ["a", "b", "c"]}])
def test_a_map_of_labels_is_its_tensor(labels: dict[str, Any]) -> None:
    x = f32(2, 3)
    model, feeds = model_of("ZipMap", [x], 1, 1, **labels)
    kind = onnx.TensorProto.INT64 if "classlabels_int64s" in labels else onnx.TensorProto.STRING
    pair = onnx.TypeProto.Map(key_type=kind, value_type=helper.make_tensor_type_proto(onnx.TensorProto.FLOAT, None))
    item = onnx.TypeProto(map_type=pair)
    model.graph.output[0].type.CopyFrom(onnx.TypeProto(sequence_type=onnx.TypeProto.Sequence(elem_type=item)))
    got, = ours(model, feeds)
    want, = ort_run(ort_session(model.SerializeToString()), feeds).values()
    assert np.array_equal(got, x) and np.array_equal(got, want)
    refused("3 labels for the columns", "ZipMap", [f32(2, 4)], 1, **labels)


@pytest.mark.parametrize("op", ["CastMap", "DictVectorizer"])
def test_operators_of_maps_say_what_to_do(op: str) -> None:
    refused("pass a tensor instead of a map", op, [f32(2, 3)], 1)


def test_a_category_that_there_is_not_is_an_error(tmp_path: Path, cache: Path) -> None:
    from monobloc.link.image import link_modules
    from monobloc.link.objects import Module
    from monobloc.link.request import Request
    from monobloc.loader import CompiledModel
    from monobloc.options import Options

    model, feeds = model_of("OneHotEncoder", [np.int64([3])], 1, 1, cats_int64s=[1, 3], zeros=0)
    out = tmp_path / "h.so"
    link_modules([Module(load_onnx(model).graph, "h", "h")], Request(out, "shared", Options(lto="none", cache=cache)))
    m = CompiledModel(out)
    np.testing.assert_array_equal(m.run(feeds)["y0"], [[0, 1]])
    with pytest.raises(MonoblocError):
        m.run({"x0": np.int64([2])})


# -- trees --------------------------------------------------------------------------------------------------
MODES = ["BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ"]


def forest(trees: int, columns: int, targets: list[int], what: str, modes: list[str], low: float) -> dict[str, Any]:
    """Random trees of depth 3; each leaf has a weight for one target, or for all."""
    names = "treeids nodeids featureids values modes truenodeids falsenodeids missing_value_tracks_true"
    a: dict[str, list[Any]] = {f"nodes_{k}": [] for k in names.split()}
    w: dict[str, list[Any]] = {f"{what}_{k}": [] for k in ("treeids", "nodeids", "ids", "weights")}
    for t in range(trees):
        for k in range(15):
            inner = k < 7
            row = (t, k, int(RNG.integers(columns)), float(RNG.integers(-2, 3)) / 2 if inner else 0.0,
                   str(RNG.choice(modes)) if inner else "LEAF", 2 * k + 1 if inner else 0, 2 * k + 2 if inner else 0,
                   int(RNG.integers(2)) if inner else 0)
            for name, v in zip(a, row, strict=True):
                a[name].append(v)
            for target in [] if inner else RNG.permutation(targets)[: int(RNG.integers(1, len(targets) + 1))]:
                for name, v in zip(w, (t, k, int(target), float(RNG.uniform(low, 1))), strict=True):
                    w[name].append(v)
    return a | w


@pytest.mark.parametrize("modes", [MODES[:1], MODES])
def test_tree_regressors(modes: list[str]) -> None:
    x = (RNG.integers(-4, 5, (9, 4)) / 4).astype(F)
    x[0, :2] = np.nan
    for targets in ([0], [0, 1, 2]):
        trees = forest(5, 4, targets, "target", modes, -1.0)
        for aggregate in ("SUM", "AVERAGE", "MIN", "MAX"):
            more = {"aggregate_function": aggregate, "n_targets": len(targets)}
            agree("TreeEnsembleRegressor", [x], **trees, **more)
            agree("TreeEnsembleRegressor", [x], **trees, **more, base_values=f32(len(targets)).tolist())
    agree("TreeEnsembleRegressor", [x], **trees, n_targets=3, post_transform="LOGISTIC")


def test_tree_regressors_of_doubles_and_integers() -> None:
    trees = forest(4, 3, [0], "target", MODES[:2], -1.0)
    whole = RNG.integers(-2, 3, (5, 3))  # which onnxruntime has no kernel for
    as_floats = ours(*model_of("TreeEnsembleRegressor", [whole.astype(F)], 1, 3, **trees))
    np.testing.assert_array_equal(ours(*model_of("TreeEnsembleRegressor", [whole], 1, 3, **trees)), as_floats)
    for name in ("nodes_values", "target_weights"):
        trees[f"{name}_as_tensor"] = helper.make_tensor(name, 11, [len(trees[name])], trees.pop(name))
    agree("TreeEnsembleRegressor", [f32(5, 3).astype(np.float64)], **trees, n_targets=1)


@pytest.mark.parametrize("transform", TRANSFORMS)
def test_tree_classifiers(transform: str) -> None:
    x = (RNG.integers(-4, 5, (9, 4)) / 4).astype(F)
    low = 0.01 if transform == "PROBIT" else -1.0
    for ids, labels in (([0, 1, 2], [0, 1, 2]), ([0, 1, 2], [5, 7, 9])):
        trees = forest(1 if transform == "PROBIT" else 4, 4, ids, "class", MODES[:1], low)
        attrs = trees | {"classlabels_int64s": labels, "post_transform": transform}
        agree("TreeEnsembleClassifier", [x], 2, **attrs)
        agree("TreeEnsembleClassifier", [x], 2, **attrs, base_values=RNG.uniform(0, 0.1, 3).tolist())
    for lowest in () if transform == "PROBIT" else (-1.0, 0.0):
        trees = forest(3, 4, [0], "class", MODES[:1], lowest)
        two = {"classlabels_int64s": [5, 7], "post_transform": transform}
        agree("TreeEnsembleClassifier", [x], 2, **trees, **two)
        agree("TreeEnsembleClassifier", [x], 2, **trees, **two, base_values=[0.2])
        agree("TreeEnsembleClassifier", [x], 2, **forest(3, 4, [1], "class", MODES[:1], lowest), **two)


def test_two_classes_with_a_score_each() -> None:
    """onnxruntime takes the second label whenever its score is above 0; ONNX's text says the best."""
    trees = forest(3, 4, [0, 1], "class", MODES[:1], 0.1)
    model, feeds = model_of("TreeEnsembleClassifier", [f32(20, 4)], 2, 3, **trees, classlabels_int64s=[5, 7])
    chosen, scores = ours(model, feeds)
    np.testing.assert_array_equal(chosen, np.where(scores[:, 1] > scores[:, 0], 7, 5))


def test_trees_that_lead_nowhere_are_told() -> None:
    trees = forest(1, 4, [0], "target", MODES[:1], -1.0)
    back = trees | {"nodes_truenodeids": [0, *trees["nodes_truenodeids"][1:]]}
    refused("leads back to one of its own nodes", "TreeEnsembleRegressor", [f32(2, 4)], **back)
    gone = trees | {"nodes_truenodeids": [99, *trees["nodes_truenodeids"][1:]]}
    refused("leads to node 99", "TreeEnsembleRegressor", [f32(2, 4)], **gone)
    refused("reads column", "TreeEnsembleRegressor", [f32(2, 1)], **trees)
    refused("counts for target", "TreeEnsembleRegressor", [f32(2, 4)], **trees | {"target_ids": [3] * 8})


def tensor(name: str, values: Any, dtype: Any) -> Any:
    from onnx import numpy_helper

    return numpy_helper.from_array(np.asarray(values, dtype), name)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_tree_ensemble(dtype: Any) -> None:
    """A set, a chain of comparisons, leaves that are shared, and a tree that is a leaf"""
    common = {
        "nodes_splits": tensor("s", [0.0, 0.5, -0.25, 1.0], dtype), "nodes_featureids": [0, 2, 0, 1],
        "nodes_modes": tensor("m", [6, 0, 2, 6], np.uint8), "nodes_truenodeids": [1, 0, 1, 2],
        "nodes_trueleafs": [0, 1, 1, 1], "nodes_falsenodeids": [2, 2, 0, 3], "nodes_falseleafs": [0, 1, 1, 1],
        "leaf_targetids": [0, 1, 0, 0], "leaf_weights": tensor("w", [5.0, 10.0, -2.0, 7.0], dtype),
        "membership_values": tensor("v", [1.2, 3.7, 8.0, np.nan, 1.0, 2.0, np.nan], dtype), "n_targets": 2,
        "tree_roots": [0, 3], "nodes_missing_value_tracks_true": [0, 0, 1, 0],
    }
    x = np.array([[1.2, 3.5, 0.4], [8, 1, 0.6], [-0.3, 2, 3], [-0.2, 9, 3], [np.nan, 1, 1]], dtype)
    for aggregate in range(4):
        agree("TreeEnsemble", [x], 1, 5, aggregate_function=aggregate, **common)


def test_compiled(tmp_path: Path, cache: Path) -> None:
    compiled(__name__, tmp_path, cache)
