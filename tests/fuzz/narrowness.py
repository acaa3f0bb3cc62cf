"""Whether the weights of a quantized model's products stay as narrow in a program as its file has them.

A program that computes the right numbers may still have written its weights out as floats, four times as large or
eight: no comparison of answers tells.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import onnx
from builder import Builder, is_float

from monobloc.codegen.lower import lower
from monobloc.driver import import_model
from monobloc.ir.graph import Value
from monobloc.options import Options
from monobloc.passes import PassContext

LANES = 16  # columns that kernels take at once, and pad to
MANY = 300  # elements from which it matters; tables of what bytes stand for have 256
TABLES = ("Resize", "AveragePool")  # operators that keep coordinates or counts, of which there are as many
PRODUCTS = {  # and which of their operands are weights
    "MatMul": (0, 1), "Gemm": (0, 1), "Conv": (1,), "ConvTranspose": (1,), "QLinearConv": (3,), "QLinearMatMul": (0, 3),
    "QGemm": (0, 3), "MatMulInteger": (0, 1), "ConvInteger": (1,), "MatMulNBits": (1,)}
MOVES = ("DequantizeLinear", "QuantizeLinear", "Transpose", "Reshape", "Squeeze", "Unsqueeze", "Flatten", "Identity")


def widened(b: Builder, o: Options) -> list[str]:
    """Weights of bytes, or less, that are floats in the program; less a zero point they may need 16 bits"""
    stored = {c: b.values[c] for c in dict.fromkeys(_weights(b)) if _is_narrow(b.values[c])}
    if not stored or o.numerics == "strict":  # which computes with floats as the graph does
        return []
    ctx = PassContext(o.target, numerics=o.numerics, threads=o.threads, optimize=o.optimize)
    low = lower(import_model(b.model(), o).graph, ctx, "m", "m")
    floats = [b.values[c] for c in (*b.constants, *b.outputs) if is_float(b.values[c].dtype)]  # stored, or shown
    wide = [v for v in low.unit.weights.values()
            if not v.name.startswith(TABLES) and not any(_fits(v, f) for f in floats)]
    return [f"a weight is widened: {c}, {a.dtype.name}{list(a.shape)}, is %{v.name}, {v.type}"
            for c, a in stored.items() for v in wide if v.dtype.size > 2 and _fits(v, a)]


def _weights(b: Builder) -> Iterator[str]:
    """Constants that products read, but those of transposed convolutions in groups, whose kernels are of floats"""
    made = {o: n for n in b.nodes for o in n.output}
    for n in b.nodes:
        for k in PRODUCTS.get(n.op_type, ()):
            name = n.input[k]
            while name in made and made[name].op_type in MOVES:
                name = made[name].input[0]
            if name in b.constants and not (n.op_type == "ConvTranspose" and _group(n) > 1):
                yield name


def _group(n: onnx.NodeProto) -> int:
    return next((a.i for a in n.attribute if a.name == "group"), 1)


def _is_narrow(a: np.ndarray) -> bool:
    return a.size >= MANY and a.dtype.name in ("int8", "uint8", "int4", "uint4")


def _fits(v: Value, a: np.ndarray) -> bool:
    """Whether a constant of the program may be one of the model, whose columns, in either axis, kernels pad"""
    most = a.size
    for d in a.shape[:2]:
        most = most // max(1, d) * -(-d // LANES) * LANES
    return a.size <= v.type.size <= most


__all__ = ["widened"]
