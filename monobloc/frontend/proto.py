"""ONNX's messages and schemas, by the names of the modules that hold them: package `onnx` itself need not be there.

The problem: it imports its checkers, parsers and converters, and with them what they need; that takes longer than to
read a model. `cli/light.py` loads these two modules alone. Where nobody did, Python imports the package first.
"""

from onnx.onnx_cpp2py_export import defs
from onnx.onnx_ml_pb2 import (
    IR_VERSION,
    AttributeProto,
    FunctionProto,
    GraphProto,
    ModelProto,
    NodeProto,
    SparseTensorProto,
    TensorProto,
    TensorShapeProto,
    TypeProto,
    ValueInfoProto,
)

__all__ = [
    "IR_VERSION",
    "AttributeProto",
    "FunctionProto",
    "GraphProto",
    "ModelProto",
    "NodeProto",
    "SparseTensorProto",
    "TensorProto",
    "TensorShapeProto",
    "TypeProto",
    "ValueInfoProto",
    "defs",
]
