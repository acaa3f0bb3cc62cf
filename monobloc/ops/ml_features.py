"""Features (`ai.onnx.ml`): scaling, replacing, encoding, choosing and joining columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from monobloc.ir.graph import Value
from monobloc.ir.types import DType
from monobloc.ops import OpDef
from monobloc.ops.build import cast_to, read_as
from monobloc.ops.labels import same_as_keys
from monobloc.ops.ml_scores import ML, constant

F32, I64 = DType.F32, DType.I64


def per_column(b: Any, n: Any, what: str, values: Sequence[float], x: Value, dtype: DType) -> Value:
    """One value for all columns, or one for each"""
    if len(values) not in (1, x.shape[-1] if x.type.rank else 1):
        n.fail(f"{len(values)} values of `{what}` for {x.type}")
    return b.const(np.asarray(values if len(values) > 1 else values[0], dtype.numpy))


class Scaler(OpDef):
    """(x - offset) * scale"""

    name = "Scaler"
    domain = ML

    def from_onnx(self, b: Any, n: Any) -> Sequence[Value | None]:
        x = cast_to(b, n.inputs[0], F32)
        offset, scale = (n.attrs.get(k) or [d] for k, d in (("offset", 0.0), ("scale", 1.0)))
        y = b.one("Sub", x, per_column(b, n, "offset", offset, x, F32))
        return [b.one("Mul", y, per_column(b, n, "scale", scale, x, F32))]


class Normalizer(OpDef):
    """Rows divided by their largest element, the sum of absolutes, or the root of the sum of squares; not by 0"""

    name = "Normalizer"
    domain = ML

    def from_onnx(self, b: Any, n: Any) -> Sequence[Value | None]:
        x, norm = cast_to(b, n.inputs[0], F32), n.attrs.get("norm", "MAX")
        reduce = {"MAX": "ReduceMax", "L1": "ReduceL1", "L2": "ReduceL2"}.get(norm)
        if reduce is None or x.type.rank not in (1, 2):
            n.fail(f"norm `{norm}` of {x.type}, must be MAX, L1 or L2 of rows")
        size = b.one(reduce, x, axes=[x.type.rank - 1], keepdims=1)
        return [b.one("Div", x, b.one("Where", b.one("Equal", size, constant(b, 0)), constant(b, 1), size))]


class Binarizer(OpDef):
    """1 above the threshold, else 0"""

    name = "Binarizer"
    domain = ML

    def from_onnx(self, b: Any, n: Any) -> Sequence[Value | None]:
        x = n.inputs[0]
        high = b.one("Greater", x, b.const(float(n.attrs.get("threshold", 0.0)), x.dtype))
        return [b.one("Cast", high, to=x.dtype)]


class Imputer(OpDef):
    """One value (it may be NaN) replaced by another, which a column may have of its own"""

    name = "Imputer"
    domain = ML

    def from_onnx(self, b: Any, n: Any) -> Sequence[Value | None]:
        x = n.inputs[0]
        kind = "float" if x.dtype.is_float else "int64"
        values, old = n.attrs.get(f"imputed_value_{kind}s"), n.attrs.get(f"replaced_value_{kind}", 0)
        if not values:
            n.fail(f"has no imputed_value_{kind}s for {x.type}")
        gone = b.one("IsNaN", x) if old != old else b.one("Equal", x, b.const(old, x.dtype))
        return [b.one("Where", gone, per_column(b, n, "imputed values", values, x, x.dtype), x)]


class OneHotEncoder(OpDef):
    """A further axis with 1 at the category that an element is; of others an error, or zeros"""

    name = "OneHotEncoder"
    domain = ML
    strings = "own"

    def from_onnx(self, b: Any, n: Any) -> Sequence[Value | None]:
        x = n.inputs[0]
        kind = "strings" if x.dtype is DType.CHAR else "int64s"
        categories = n.attrs.get(f"cats_{kind}")
        if not categories:
            n.fail(f"has no cats_{kind} for {x.type}")
        x = b.one("Cast", x, to=I64) if x.dtype not in (I64, DType.CHAR) else x
        y = b.one("Cast", same_as_keys(b, x, np.array(categories, object if kind == "strings" else np.int64)), to=F32)
        if n.attrs.get("zeros", 1):
            return [y]
        none = b.one("Equal", b.emit("ReduceMax", [y], {"axes": [y.type.rank - 1], "keepdims": 1})[0], constant(b, 0))
        # an index outside its axis is the error of a run
        one = read_as(b, n, "Gather", [constant(b, [1]), b.one("Cast", none, to=I64)], axis=0)
        return [b.one("Mul", y, one)]


class ArrayFeatureExtractor(OpDef):
    """Chosen columns; a vector is one row"""

    name = "ArrayFeatureExtractor"
    domain = ML

    def from_onnx(self, b: Any, n: Any) -> Sequence[Value | None]:
        x, at = n.inputs
        x = b.one("Reshape", x, shape=[1, *x.shape]) if x.type.rank == 1 else x
        return [read_as(b, n, "Gather", [x, b.one("Reshape", at, shape=[at.type.size])], axis=-1)]


class FeatureVectorizer(OpDef):
    """Inputs side by side, as floats; each a row of its first columns"""

    name = "FeatureVectorizer"
    domain = ML

    def from_onnx(self, b: Any, n: Any) -> Sequence[Value | None]:
        widths = n.attrs.get("inputdimensions") or [v.shape[-1] if v.type.rank else 1 for v in n.inputs]
        parts = []
        for v, width in zip(n.inputs, widths, strict=True):
            rows = v.shape[0] if v.type.rank > 1 else 1
            if rows * width != v.type.size:
                n.unsupported(f"{v.type} as rows of {width}")
            parts.append(b.one("Reshape", cast_to(b, v, F32), shape=[rows, width]))
        return [parts[0] if len(parts) == 1 else b.emit("Concat", parts, {"axis": 1})[0]]


class ZipMap(OpDef):
    """Its numbers as the tensor that they are: column k is of label k, where other runtimes give maps"""

    name = "ZipMap"
    domain = ML

    def from_onnx(self, b: Any, n: Any) -> Sequence[Value | None]:
        x = n.inputs[0]
        labels = n.attrs.get("classlabels_strings") or n.attrs.get("classlabels_int64s") or []
        if x.shape[-1:] != (len(labels),):
            n.fail(f"{len(labels)} labels for the columns of {x.type}", hint="each column needs a label")
        return [x]
