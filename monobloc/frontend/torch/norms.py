"""Normalizations and softmax."""

from __future__ import annotations

import math

import numpy as np

from monobloc.frontend.torch.node import AtenNode, Reader, Results
from monobloc.frontend.torch.tensors import dtype_of
from monobloc.ir.graph import Value
from monobloc.ir.types import DType


def given(n: AtenNode, name: str, size: int | list[int], otherwise: int, dtype: DType) -> Value:
    """A parameter, or what stands for one that is absent"""
    v = n.get(name)
    shape = [size] if isinstance(size, int) else size
    return n.cast(v, dtype) if isinstance(v, Value) else n.expand(n.scalar(otherwise, dtype), shape)


# -- with given statistics ----------------------------------------------------------------------------
def batch_norm(n: AtenNode) -> Results:
    x = n.x("input")
    c, epsilon = x.shape[1] if x.type.rank > 1 else 1, float(n["eps"])
    scale, bias = given(n, "weight", c, 1, x.dtype), given(n, "bias", c, 0, x.dtype)
    mean, var = n.cast(n.x("running_mean"), x.dtype), n.cast(n.x("running_var"), x.dtype)
    y = n.onnx("BatchNormalization", x, scale, bias, mean, var, epsilon=epsilon)[0]
    none = n.b.const(np.zeros(0), x.dtype)
    return [y, none, none]


# -- with those of the data ---------------------------------------------------------------------------
def moments(n: AtenNode, x: Value, axes: list[int]) -> tuple[Value, Value]:
    """(mean, variance without correction), axes kept"""
    mean = n.fold("ReduceMean", x, axes, True)
    apart = n.one("Sub", x, mean)
    return mean, n.fold("ReduceMean", n.one("Mul", apart, apart), axes, True)


def batch_norm_of_data(n: AtenNode) -> Results:
    """In training, or without running statistics; those move by the momentum"""
    x = n.x("input")
    axes = [k for k in range(x.type.rank) if k != 1]
    c, count = x.shape[1], math.prod(x.shape[a] for a in axes)
    mean, var = moments(n, x, axes)
    flat = [n.reshape(v, [c]) for v in (mean, var)]
    scale, bias = given(n, "weight", c, 1, x.dtype), given(n, "bias", c, 0, x.dtype)
    y = n.onnx("BatchNormalization", x, scale, bias, *flat, epsilon=float(n["eps"]))[0]
    inverse = n.one("Reciprocal", n.one("Sqrt", n.one("Add", flat[1], n.scalar(n["eps"], x.dtype))))
    out = [y, flat[0], inverse]
    if n.op.startswith("_native_batch_norm_legit_functional"):
        wide = n.one("Mul", flat[1], n.scalar(count / max(count - 1, 1), x.dtype))
        out += [_moved(n, "running_mean", flat[0]), _moved(n, "running_var", wide)]
    return out


def _moved(n: AtenNode, name: str, to: Value) -> Value:
    old, step = n.x(name), float(n["momentum"])
    kept = n.one("Mul", old, n.scalar(1 - step, old.dtype))
    return n.one("Add", kept, n.one("Mul", n.cast(to, old.dtype), n.scalar(step, old.dtype)))


def instance_norm(n: AtenNode) -> Results:
    x = n.x("input")
    if not n["use_input_stats"]:
        return batch_norm(n)[0]
    c = x.shape[1]
    scale, bias = given(n, "weight", c, 1, x.dtype), given(n, "bias", c, 0, x.dtype)
    return n.onnx("InstanceNormalization", x, scale, bias, epsilon=float(n["eps"]))[0]


def layer_norm(n: AtenNode) -> Results:
    """Result, mean and inverse deviation"""
    x, shape = n.x("input"), n.ints("normalized_shape")
    axis = x.type.rank - len(shape)
    scale = given(n, "weight", shape, 1, x.dtype)
    bias = n.get("bias")
    bias = n.cast(bias, x.dtype) if isinstance(bias, Value) else None
    return n.onnx("LayerNormalization", x, scale, bias, outputs=3, axis=axis, epsilon=float(n["eps"]))


def layer_norm_only(n: AtenNode) -> Results:
    return layer_norm(n)[0]


def rms_norm(n: AtenNode) -> Results:
    x, shape = n.x("input"), n.ints("normalized_shape")
    epsilon = n.get("eps")
    if epsilon is None:
        epsilon = float(np.finfo(np.float32 if x.dtype.size < 4 else x.dtype.numpy).eps)
    scale = given(n, "weight", shape, 1, x.dtype)
    return n.onnx("RMSNormalization", x, scale, axis=x.type.rank - len(shape), epsilon=float(epsilon))[0]


def group_norm(n: AtenNode) -> Results:
    x, groups = n.x("input"), n["group" if "group" in n.args else "num_groups"]
    c = x.shape[1]
    scale, bias = given(n, "weight", c, 1, x.dtype), given(n, "bias", c, 0, x.dtype)
    y = n.onnx("GroupNormalization", x, scale, bias, num_groups=groups, epsilon=float(n["eps"]))[0]
    if n.op == "group_norm.default":
        return y
    rows = n.reshape(x, [x.shape[0], groups, -1])
    mean, var = moments(n, rows, [2])
    inverse = n.one("Reciprocal", n.one("Sqrt", n.one("Add", var, n.scalar(n["eps"], x.dtype))))
    return [y, *(n.reshape(v, [x.shape[0], groups]) for v in (mean, inverse))]


# -- softmax ------------------------------------------------------------------------------------------
def softmax_of(n: AtenNode, x: Value, axis: int, op: str = "Softmax") -> Value:
    if not x.type.rank:
        return n.reshape(softmax_of(n, n.reshape(x, [1]), 0, op), [])
    return n.onnx(op, x, axis=axis)[0]


def softmax(op: str) -> Reader:
    def read(n: AtenNode) -> Results:
        x = n.x()
        dtype = n.get("dtype")
        wide = dtype_of(dtype) if dtype is not None else n.out
        return softmax_of(n, n.cast(x, wide), n.axis(), op)

    return read


def safe_softmax(n: AtenNode) -> Results:
    """Zeros where a whole row is -inf"""
    x, axis = n.x(), n.axis()
    some = n.one("Greater", n.fold("ReduceMax", x, [axis], True), n.scalar(-math.inf, x.dtype))
    y = softmax_of(n, x, axis)
    return n.one("Where", some, y, n.scalar(0, x.dtype))


READERS: dict[str, Reader] = {
    "_native_batch_norm_legit_no_training.default": batch_norm,
    "_native_batch_norm_legit_functional.default": batch_norm_of_data,
    "_native_batch_norm_legit.no_stats": batch_norm_of_data, "_native_batch_norm_legit.default": batch_norm_of_data,
    "instance_norm.default": instance_norm, "native_layer_norm.default": layer_norm,
    "layer_norm.default": layer_norm_only, "rms_norm.default": rms_norm, "native_group_norm.default": group_norm,
    "group_norm.default": group_norm, "_softmax.default": softmax("Softmax"),
    "_log_softmax.default": softmax("LogSoftmax"), "softmax.int": softmax("Softmax"),
    "log_softmax.int": softmax("LogSoftmax"), "_safe_softmax.default": safe_softmax,
}  # fmt: skip
