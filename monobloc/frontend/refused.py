"""Operators that are not for inference on tensors, and what to do instead."""

from __future__ import annotations

from monobloc.errors import UnsupportedError

_TRAINING = "ai.onnx.preview.training"
_BLOCKED = "com.microsoft.nchwc"
_INSTEAD = {
    ("", "ImageDecoder"): "decode pictures in the application: "
                          "`--from TENSOR` starts the model behind it",
    ("ai.onnx.ml", "CastMap"): "pass a tensor instead of a map",
    ("ai.onnx.ml", "DictVectorizer"): "pass a tensor instead of a map",
    **{("com.microsoft", op): "compile the decoder alone, and let the application choose tokens"
       for op in ("BeamSearch", "GreedySearch", "Sampling", "WhisperBeamSearch")},
    ("com.microsoft", "EPContext"): "it holds what another compiler made: compile the model it was made of",
    ("com.microsoft", "SparseToDenseMatMul"): "store the matrix as a dense tensor",
}


def refused(domain: str, op: str) -> UnsupportedError:
    """An operator that nothing reads"""
    name = f"{domain}::{op}" if domain else op
    if domain == _TRAINING:
        return UnsupportedError(f"{name} is an operator for training, which is not supported",
                                hints=["export the model for inference"])
    if domain == _BLOCKED:
        return UnsupportedError(f"{name} is not supported: it has the layout of one kind of CPU",
                                hints=["compile the model that onnxruntime was given, or let it save "
                                       "with ORT_ENABLE_EXTENDED instead of ORT_ENABLE_ALL"])
    hint = _INSTEAD.get((domain, op))
    return UnsupportedError(f"the operator {name} is not supported", hints=[hint] if hint else [])
