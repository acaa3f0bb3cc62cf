"""What classical models make of their scores (`ai.onnx.ml`): transforms, labels; linear models and support vectors.

As onnxruntime has them, whose text is the only exact one: two classes with one score get a second one, and the
label depends on which form the scores have.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from monobloc.ir.graph import Value
from monobloc.ir.types import DType
from monobloc.ops import OpDef
from monobloc.ops.build import cast_to, read_as
from monobloc.ops.fused import plus
from monobloc.ops.labels import named

ML = "ai.onnx.ml"
F32, I64 = DType.F32, DType.I64
TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")


def as_float(b: Any, x: Value) -> Value:
    """[rows, columns] in float32; a vector is one row"""
    x = cast_to(b, x, F32)
    return x if x.type.rank == 2 else b.one("Reshape", x, shape=[1, x.type.size]) if x.type.rank < 2 else x


def constant(b: Any, values: Any) -> Value:
    return b.const(np.asarray(values, np.float32))


def transform_of(n: Any) -> str:
    name = n.attrs.get("post_transform", "NONE")
    name = TRANSFORMS[name] if isinstance(name, int) and 0 <= name < len(TRANSFORMS) else name
    if name not in TRANSFORMS:
        n.fail(f"post_transform is `{name}`, must be one of {', '.join(TRANSFORMS)}")
    return str(name)


def transformed(b: Any, scores: Value, transform: str) -> Value:
    """Scores [rows, classes] as a transform leaves them"""
    if transform == "LOGISTIC":
        return b.one("Sigmoid", scores)
    if transform == "SOFTMAX":
        return b.one("Softmax", scores, axis=1)
    if transform == "SOFTMAX_ZERO":
        return _softmax_zero(b, scores)
    return _probit(b, scores) if transform == "PROBIT" else scores


def _softmax_zero(b: Any, s: Value) -> Value:
    """A softmax that leaves scores of zero out"""
    off = b.one("Sub", s, b.emit("ReduceMax", [s], {"axes": [1], "keepdims": 1})[0])
    counts = b.one("Greater", b.one("Abs", s), constant(b, 1e-7))
    e = b.one("Where", counts, b.one("Exp", off), constant(b, 0))
    total = b.one("ReduceSum", e, axes=[1], keepdims=1)
    return b.one("Div", e, b.one("Where", b.one("Greater", total, constant(b, 0)), total, constant(b, 1)))


def _probit(b: Any, s: Value) -> Value:
    """sqrt(2) * erfinv(2 s - 1), in the approximation that onnxruntime uses"""
    x = b.one("Sub", b.one("Mul", s, constant(b, 2)), constant(b, 1))
    log = b.one("Log", b.one("Mul", b.one("Sub", constant(b, 1), x), b.one("Add", constant(b, 1), x)))
    v = b.one("Add", b.one("Mul", log, constant(b, 0.5)), constant(b, 2 / (math.pi * 0.147)))
    root = b.one("Sqrt", b.one("Sub", b.one("Mul", v, v), b.one("Mul", log, constant(b, 1 / 0.147))))
    size = b.one("Sqrt", b.one("Sub", root, v))
    return b.one("Mul", b.one("Mul", b.one("Sign", x), size), constant(b, math.sqrt(2)))


def second_class(b: Any, n: Any, score: Value, transform: str, probabilities: bool) -> Value:
    """Both scores of two classes of which one has a score [rows, 1]"""
    if transform == "PROBIT":
        n.unsupported("PROBIT of one score for two classes")
    if transform == "LOGISTIC":
        first, score = b.one("Sigmoid", b.one("Neg", score)), b.one("Sigmoid", score)
    else:
        first = b.one("Sub", constant(b, 1), score) if probabilities else b.one("Neg", score)
    return b.one("Concat", first, score, axis=1)


def labels_of(n: Any, ints: str, strings: str) -> np.ndarray:
    """The names of the classes; without any they are numbers"""
    if n.attrs.get(strings):
        return np.array(n.attrs[strings], object)
    return np.array(n.attrs.get(ints) or [], np.int64)


def label(b: Any, n: Any, labels: np.ndarray, index: Value) -> Value:
    """The labels at [rows] indices"""
    if labels.dtype != object and (labels == np.arange(len(labels))).all():
        return cast_to(b, index, I64)
    return named(b, n, labels, index)


def best(b: Any, n: Any, scores: Value) -> Value:
    """[rows]: the first class of the largest score"""
    return b.one("ArgMax", scores, axis=1, keepdims=0, select_last_index=0)


def above(b: Any, score: Value, limit: float) -> Value:
    """[rows]: 1 where a single score is above, else 0"""
    flat = b.one("Reshape", score, shape=[score.shape[0]])
    return b.one("Cast", b.one("Greater", flat, constant(b, limit)), to=I64)


# -- linear -------------------------------------------------------------------------------------------
def linear(b: Any, n: Any, x: Value, coefficients: Sequence[float], intercepts: Sequence[float], rows: int) -> Value:
    """x times the coefficients [rows, columns] of as many outputs"""
    if len(coefficients) != rows * x.shape[1]:
        n.fail(f"{len(coefficients)} coefficients for {rows} outputs of {x.shape[1]} columns")
    w = constant(b, np.asarray(coefficients, np.float32).reshape(rows, x.shape[1]).T)
    y = read_as(b, n, "MatMul", [x, w])
    return plus(b, y, constant(b, intercepts)) if len(intercepts) else y


class LinearRegressor(OpDef):
    """X W' + intercepts, transformed"""

    name = "LinearRegressor"
    domain = ML

    def from_onnx(self, b: Any, n: Any) -> Sequence[Value | None]:
        targets = int(n.attrs.get("targets", 1))
        x = as_float(b, n.inputs[0])
        y = linear(b, n, x, n.attrs.get("coefficients", []), n.attrs.get("intercepts", []), targets)
        transform = transform_of(n)
        if transform == "SOFTMAX" and targets == 1:
            return [y]  # one score has no others to be compared with
        return [transformed(b, y, transform)]


class LinearClassifier(OpDef):
    """Scores X W' + intercepts; the label is that of the best, or of two classes where one score is above 0"""

    name = "LinearClassifier"
    domain = ML

    def from_onnx(self, b: Any, n: Any) -> Sequence[Value | None]:
        labels = labels_of(n, "classlabels_ints", "classlabels_strings")
        coefficients = n.attrs["coefficients"]
        x = as_float(b, n.inputs[0])
        rows = len(n.attrs.get("intercepts") or []) or len(coefficients) // max(x.shape[1], 1)
        scores = linear(b, n, x, coefficients, n.attrs.get("intercepts") or [], rows)
        transform = transform_of(n)
        if rows == 1 and len(labels) == 2:
            chosen = label(b, n, labels, above(b, scores, 0.0))
            return [chosen, second_class(b, n, scores, transform, True)]
        if len(labels) != rows:
            n.unsupported(f"{len(labels)} classes of {rows} scores")
        return [label(b, n, labels, best(b, n, scores)), transformed(b, scores, transform)]


# -- support vectors ----------------------------------------------------------------------------------
def kernel(b: Any, n: Any, x: Value, vectors: np.ndarray) -> Value:
    """[rows, vectors]: the kernel of each row and vector"""
    kind, parameters = n.attrs.get("kernel_type", "LINEAR"), [*(n.attrs.get("kernel_params") or []), 0.0, 0.0, 0.0]
    gamma, offset, degree = (float(p) for p in parameters[:3])
    if kind == "RBF":
        rows = b.one("Reshape", x, shape=[x.shape[0], 1, x.shape[1]])
        d = b.one("Sub", rows, constant(b, vectors[None]))
        squared = b.one("ReduceSum", b.one("Mul", d, d), axes=[2], keepdims=0)
        return b.one("Exp", b.one("Mul", squared, constant(b, -gamma)))
    y = read_as(b, n, "MatMul", [x, constant(b, np.ascontiguousarray(vectors.T))])
    if kind == "LINEAR":
        return y
    y = b.one("Add", b.one("Mul", y, constant(b, gamma)), constant(b, offset))
    if kind == "POLY":
        return b.one("Pow", y, constant(b, degree))
    if kind == "SIGMOID":
        return b.one("Tanh", y)
    return n.fail(f"kernel_type is `{kind}`, must be LINEAR, POLY, RBF or SIGMOID")


def vectors_of(n: Any, x: Value, count: int) -> np.ndarray:
    flat = np.asarray(n.attrs.get("support_vectors") or [], np.float32)
    if flat.size != count * x.shape[1]:
        n.fail(f"{flat.size} numbers of support vectors, {count} of {x.shape[1]} columns are needed")
    return flat.reshape(count, x.shape[1])


class SVMRegressor(OpDef):
    """Sum of coefficients times kernels, plus rho; or 1 and -1 for what is in one class and what is not"""

    name = "SVMRegressor"
    domain = ML

    def from_onnx(self, b: Any, n: Any) -> Sequence[Value | None]:
        x, count = as_float(b, n.inputs[0]), int(n.attrs.get("n_supports", 0))
        weights, rho = n.attrs.get("coefficients") or [], n.attrs.get("rho") or [0.0]
        if count:
            kernels = kernel(b, n, x, vectors_of(n, x, count))
            y = read_as(b, n, "MatMul", [kernels, constant(b, np.reshape(weights, (-1, 1)))])
        else:
            y = kernel(b, n, x, np.array([weights], np.float32))
        y = b.one("Add", y, constant(b, rho[:1]))
        if n.attrs.get("one_class", 0):
            return [b.one("Where", b.one("Greater", y, constant(b, 0)), constant(b, 1), constant(b, -1))]
        transform = transform_of(n)
        return [y if transform == "SOFTMAX" else transformed(b, y, transform)]


class SVMClassifier(OpDef):
    """One score for each pair of classes, or probabilities; the label is of the class that most pairs vote for"""

    name = "SVMClassifier"
    domain = ML

    def from_onnx(self, b: Any, n: Any) -> Sequence[Value | None]:
        labels = labels_of(n, "classlabels_ints", "classlabels_strings")
        per_class = n.attrs.get("vectors_per_class") or []
        if not per_class or len(labels) != len(per_class) or len(labels) < 2:
            n.unsupported("an SVMClassifier without vectors for each of its classes")
        if transform_of(n) != "NONE":
            n.unsupported(f"an SVMClassifier with post_transform {transform_of(n)}")
        x, count = as_float(b, n.inputs[0]), sum(per_class)
        k = kernel(b, n, x, vectors_of(n, x, count))
        weights, votes = self._pairs(n, per_class)
        scores = plus(b, read_as(b, n, "MatMul", [k, constant(b, weights)]), constant(b, n.attrs.get("rho") or 0.0))
        positive = b.one("Cast", b.one("Greater", scores, constant(b, 0)), to=F32)
        # a pair votes for its first class where its score is positive, else for its second
        tally = b.one("Add", read_as(b, n, "MatMul", [positive, constant(b, votes[0] - votes[1])]),
                      constant(b, votes[1].sum(0)))
        chosen = label(b, n, labels, best(b, n, tally))
        if n.attrs.get("prob_a"):
            return [chosen, self._probabilities(b, n, scores, len(labels))]
        if len(labels) > 2:
            return [chosen, scores]
        return [chosen, b.one("Concat", b.one("Neg", scores), scores, axis=1)]

    def _probabilities(self, b: Any, n: Any, scores: Value, classes: int) -> Value:
        """[rows, classes], by Platt's sigmoid of each pair's score, away from 0 and 1 as in libsvm"""
        slopes, shifts = n.attrs["prob_a"], n.attrs.get("prob_b") or []
        if len(slopes) != scores.shape[1] or len(shifts) != len(slopes):
            n.fail(f"{len(slopes)} numbers `prob_a` and {len(shifts)} `prob_b`, {scores.shape[1]} are needed")
        slope, shift = (constant(b, -np.asarray(v, np.float32)) for v in (slopes, shifts))
        won = b.one("Sigmoid", b.one("Add", b.one("Mul", scores, slope), shift))
        won = b.one("Min", b.one("Max", won, constant(b, 1e-7)), constant(b, 1 - 1e-7))
        return b.one("CoupledProbabilities", won, classes=classes)

    def _pairs(self, n: Any, per_class: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
        """Weights [vectors, pairs], and what class each pair's two votes are for [2, pairs, classes]"""
        classes, count = len(per_class), sum(per_class)
        coefficients = np.asarray(n.attrs.get("coefficients") or [], np.float32)
        if coefficients.size != (classes - 1) * count:
            n.fail(f"{coefficients.size} coefficients, {classes - 1} for each of {count} vectors are needed")
        rows, starts = coefficients.reshape(classes - 1, count), np.cumsum([0, *per_class])
        columns, votes = [], []
        for i in range(classes):
            for j in range(i + 1, classes):
                w = np.zeros(count, np.float32)
                w[starts[i] : starts[i + 1]] = rows[j - 1, starts[i] : starts[i + 1]]
                w[starts[j] : starts[j + 1]] = rows[i, starts[j] : starts[j + 1]]
                columns.append(w)
                votes.append((np.eye(classes)[i], np.eye(classes)[j]))
        return np.stack(columns, 1), np.array(votes, np.float32).transpose(1, 0, 2)
