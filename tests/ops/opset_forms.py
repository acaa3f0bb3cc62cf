"""Nodes of single operators as each of their versions writes them, where the OpDefs' cases are none of that version.

All forms of an operator are the same computation, so that the newest is an oracle for the others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from onnx import TensorProto, numpy_helper

SEED = 6
RNG = np.random.default_rng(SEED)
print(f"seed {SEED}")


@dataclass(frozen=True)
class Form:
    """A node from an opset on; all inputs but the first are constants, or all"""

    since: int
    inputs: Sequence[np.ndarray | None]
    attrs: Mapping[str, Any]
    outputs: int = 1
    constant: bool = False


def f32(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def i64(*values: Any) -> np.ndarray:
    return np.array(values, np.int64)


def layer(op: str, gates: int) -> list[Form]:
    """Recurrent: before opset 7 the output of all steps is one only if it is asked for"""
    ins = [f32(4, 2, 3), f32(1, gates * 5, 3), f32(1, gates * 5, 5), f32(1, 2 * gates * 5)]
    return [Form(1, ins, {"hidden_size": 5, "output_sequence": 1}, 2), Form(7, ins, {"hidden_size": 5}, 2)]


X, BATCH = f32(2, 3, 4, 5), [f32(3), f32(3), f32(3), np.abs(f32(3)) + 1]
WINDOW: dict[str, Any] = {"kernel_shape": [2, 3], "strides": [1, 2], "pads": [1, 0, 0, 1]}
GEMM = [f32(2, 3), f32(4, 3), f32(1)]
LABELS = i64(0, 2, 1)
SIGNAL = f32(2, 8, 1)
TWO, HALF = np.array(2, np.int64), np.float32(0.25)
ROIS, INDICES = np.float32([[0, 0, 3, 2], [1, 1, 4, 3]]), i64(1, 0)
ROI: dict[str, Any] = {"output_height": 2, "output_width": 2, "spatial_scale": 0.5}
GRAMS = {"mode": "TF", "min_gram_length": 1, "max_gram_length": 1, "max_skip_count": 0, "ngram_counts": [0],
         "ngram_indexes": [0, 1], "pool_int64s": [3, 5]}
SAME = np.where(np.arange(9) % 2, 1, 3).astype(np.float32)
VALUE = numpy_helper.from_array(f32(2, 2))
SCALES = np.float32([1, 1, 2, 3])

FORMS: dict[str, list[Form]] = {
    "AffineGrid": [Form(20, [f32(2, 2, 3), i64(2, 3, 4, 5)], {})],
    "ArgMax": [Form(1, [X], {"axis": 2})],
    "ArgMin": [Form(1, [X], {"axis": 2})],
    "Attention": [Form(23, [f32(1, 2, 3, 4), f32(1, 2, 3, 4), f32(1, 2, 3, 4)], {"is_causal": 1})],
    "AveragePool": [Form(1, [X], {k: v for k, v in WINDOW.items() if k != "pads"})],  # the reference counts pads in 1
    "BatchNormalization": [Form(1, [X, *BATCH], {"consumed_inputs": [0, 0, 0, 1, 1], "is_test": 1}),
                           Form(6, [X, *BATCH], {"is_test": 1}), Form(7, [X, *BATCH], {})],
    "BlackmanWindow": [Form(17, [np.array(6)], {"periodic": 0}, constant=True)],
    "Cast": [Form(1, [X], {"to": "INT32"}), Form(6, [X], {"to": TensorProto.INT32})],
    "CastLike": [Form(15, [X, np.float16(1)], {})],
    "CenterCropPad": [Form(18, [X, i64(5, 3)], {"axes": [2, 3]})],
    "Clip": [Form(1, [X], {"min": -0.25, "max": 0.25, "consumed_inputs": [0]}),
             Form(6, [X], {"min": -0.25, "max": 0.25}), Form(11, [X, -HALF, HALF], {})],
    "Col2Im": [Form(18, [f32(1, 8, 6), i64(3, 4), i64(2, 2)], {})],
    "Compress": [Form(9, [X, np.array([True, False, True])], {"axis": 1})],
    "Concat": [Form(1, [X, X], {}), Form(4, [X, X], {"axis": 1})],
    "Constant": [Form(1, [], {"value": VALUE})],
    "ConstantOfShape": [Form(9, [i64(2, 3)], {"value": numpy_helper.from_array(np.float32([3]))}, constant=True)],
    "CumProd": [Form(26, [X, np.array(1)], {"reverse": 1})],
    "CumSum": [Form(11, [X, np.array(1)], {"reverse": 1})],
    "DFT": [Form(17, [SIGNAL], {"axis": 1}), Form(20, [SIGNAL, None, np.array(1)], {})],
    "DeformConv": [Form(19, [f32(1, 2, 4, 4), f32(3, 2, 2, 2), f32(1, 8, 3, 3)], {})],
    "DepthToSpace": [Form(1, [f32(1, 8, 2, 3)], {"blocksize": 2})],
    "DequantizeLinear": [Form(10, [np.uint8([3, 200]), HALF, np.uint8(9)], {})],
    "Dropout": [Form(1, [X], {"is_test": 1, "consumed_inputs": [0]}), Form(6, [X], {"is_test": 1}), Form(7, [X], {})],
    "DynamicQuantizeLinear": [Form(11, [X], {}, 3)],
    "Expand": [Form(8, [f32(3, 1), i64(2, 3, 4)], {})],
    "EyeLike": [Form(9, [f32(3, 4)], {"k": 1})],
    "Flatten": [Form(1, [X], {"axis": 2})],
    "GRU": layer("GRU", 3),
    "GatherND": [Form(11, [f32(2, 3), i64([1, 2], [0, 0])], {})],
    "Gemm": [Form(1, GEMM, {"transB": 1, "alpha": 0.5, "broadcast": 1}), Form(7, GEMM, {"transB": 1, "alpha": 0.5})],
    "GlobalAveragePool": [Form(1, [X], {})],
    "GlobalLpPool": [Form(1, [X], {"p": 2.0}), Form(2, [X], {"p": 2})],
    "GlobalMaxPool": [Form(1, [X], {})],
    "HammingWindow": [Form(17, [np.array(6)], {}, constant=True)],
    "HannWindow": [Form(17, [np.array(6)], {}, constant=True)],
    "Identity": [Form(1, [X], {})],
    "LSTM": layer("LSTM", 4),
    "LpPool": [Form(1, [X], {**WINDOW, "p": 1.0}), Form(2, [X], {**WINDOW, "p": 1})],
    "MaxPool": [Form(1, [X], WINDOW), Form(8, [X], WINDOW, 2)],
    "MaxRoiPool": [Form(1, [X, np.float32([[1, 0, 0, 3, 2], [0, 1, 1, 4, 3]])], {"pooled_shape": [2, 2]})],
    "MaxUnpool": [Form(9, [f32(1, 1, 2, 2), i64(0, 3, 8, 15).reshape(1, 1, 2, 2)],
                       {"kernel_shape": [2, 2], "strides": [2, 2]})],
    "MelWeightMatrix": [Form(17, [np.array(4), np.array(16), np.array(8000), np.float32(0), np.float32(4000)], {},
                             constant=True)],
    "NegativeLogLikelihoodLoss": [Form(12, [f32(3, 4), LABELS], {"reduction": "sum"})],
    "NonMaxSuppression": [Form(10, [np.float32([[[0, 0, 1, 1], [0, 0, 1, 0.9], [2, 2, 3, 3]]]),
                                    np.float32([[[0.5, 0.9, 0.7]]]), TWO, HALF], {})],
    "OneHot": [Form(9, [i64(1, 0, 2), np.array([3]), np.float32([0, 5])], {"axis": 0})],
    "Pad": [Form(1, [X], {"paddings": [0, 0, 1, 0, 0, 0, 0, 2], "value": 0.25}),
            Form(2, [X], {"pads": [0, 0, 1, 0, 0, 0, 0, 2], "value": 0.25}),
            Form(11, [X, i64(0, 0, 1, 0, 0, 0, 0, 2), HALF], {})],
    "QuantizeLinear": [Form(10, [X, HALF, np.uint8(9)], {})],
    "RNN": layer("RNN", 1),
    "Range": [Form(11, [np.array(1), np.array(9), np.array(3)], {}, constant=True)],
    "Reshape": [Form(1, [X], {"shape": [0, -1, 10], "consumed_inputs": [0]}), Form(5, [X, i64(0, -1, 10)], {})],
    "Resize": [Form(10, [X, SCALES], {"mode": "nearest"}),
               Form(11, [X, np.float32([]), SCALES],
                    {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"})],
    "RoiAlign": [Form(10, [X, ROIS, INDICES], ROI),
                 Form(16, [X, ROIS, INDICES], {**ROI, "coordinate_transformation_mode": "output_half_pixel"})],
    "RotaryEmbedding": [Form(23, [f32(1, 2, 3, 4), f32(5, 2), f32(5, 2), i64([0, 1, 2])], {})],
    "STFT": [Form(17, [f32(1, 16, 1), np.array(4), None, np.array(8)], {})],
    "Scatter": [Form(9, [f32(3, 3), i64([1, 0], [2, 2]), f32(2, 2)], {"axis": 1})],
    "ScatterElements": [Form(11, [f32(3, 3), i64([1, 0], [2, 1]), f32(2, 2)], {"axis": 1})],
    "ScatterND": [Form(11, [f32(3, 3), i64([1, 0], [2, 2]), f32(2)], {})],
    "Shape": [Form(1, [X], {})],
    "Size": [Form(1, [X], {})],
    "Slice": [Form(1, [X], {"starts": [1, -3], "ends": [9, -1], "axes": [1, 3]}),
              Form(10, [X, i64(1, -3), i64(9, -1), i64(1, 3)], {})],
    "SoftmaxCrossEntropyLoss": [Form(12, [f32(3, 4), LABELS], {"reduction": "sum"})],
    "SpaceToDepth": [Form(1, [f32(1, 2, 4, 6)], {"blocksize": 2})],
    "Split": [Form(1, [X], {"axis": 2, "split": [1, 3]}, 2), Form(2, [X], {"axis": 2, "split": [1, 3]}, 2),
              Form(13, [X, i64(1, 3)], {"axis": 2}, 2)],
    "Squeeze": [Form(1, [f32(1, 3, 1)], {"axes": [0]}), Form(13, [f32(1, 3, 1), i64(0)], {})],
    "Swish": [Form(24, [X], {"alpha": 0.5})],
    "TfIdfVectorizer": [Form(9, [i64(3, 5, 5, 1)], GRAMS)],
    "Tile": [Form(1, [X, np.float32(3), np.float32(2)], {}), Form(6, [X, i64(1, 1, 3, 1)], {})],
    "TopK": [Form(1, [X], {"k": 2, "axis": 3}, 2), Form(10, [X, i64(2)], {"axis": 3}, 2)],
    "Trilu": [Form(14, [f32(3, 4), np.array(1)], {})],
    "Unique": [Form(11, [SAME], {}, 4)],
    "Unsqueeze": [Form(1, [X], {"axes": [0, 3]}), Form(13, [X, i64(0, 3)], {})],
    "Upsample": [Form(1, [X], {"height_scale": 2.0, "width_scale": 3.0}), Form(7, [X], {"scales": SCALES.tolist()}),
                 Form(9, [X, SCALES], {})],
}
ELSEWHERE = {
    "If": "tests/e2e/test_control.py", "Loop": "tests/e2e/test_control.py", "Scan": "tests/e2e/test_control.py",
    **dict.fromkeys(("ConcatFromSequence", "Optional", "OptionalGetElement", "OptionalHasElement", "SequenceAt",
                     "SequenceConstruct", "SequenceEmpty", "SequenceErase", "SequenceInsert", "SequenceLength",
                     "SequenceMap", "SplitToSequence"), "tests/unit/test_sequences.py"),
    **dict.fromkeys(("StringConcat", "StringNormalizer", "StringSplit"), "tests/unit/test_strings.py"),
    "ImageDecoder": "refused: tests/errors", "RegexFullMatch": "tests/unit/test_regex.py",
    **dict.fromkeys(("Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform",
                     "RandomUniformLike"), "random: tests/unit/test_random.py"),
}
