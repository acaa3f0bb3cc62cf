"""Random float models as onnxruntime's quantizer leaves them, in every way that it can be asked.

The quantizer writes operators, types and scales that hand-written steps do not: this is what users have. Answers are
onnxruntime's on the quantized graph, none of its nodes fused. Half of the models have their scales moved to powers of
two, which makes their sums exact in float32; of others inputs are taken where no value lies near a tie between two
integers, as far as there are such. So answers must be equal, but for integers of 16 bits, which float32 cannot sum.
"""

from __future__ import annotations

import contextlib
import io
import logging
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
from builder import Builder
from narrowness import widened
from onnx import helper, numpy_helper
from onnxruntime import quantization as q
from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer
from steps import chance, some
from tolerance import differs

from monobloc.options import Options

TRIES, NEAR = 6, 2e-5  # draws of inputs; how near to a tie, in steps, no value may lie
FINE = 18  # bits behind the point that sums of products of bytes have, by powers of two as scales
SIXTEEN = 16  # steps that integers of 16 bits may be off
TYPES = {"u8": q.QuantType.QUInt8, "i8": q.QuantType.QInt8, "u16": q.QuantType.QUInt16, "i16": q.QuantType.QInt16,
         "u4": q.QuantType.QUInt4, "i4": q.QuantType.QInt4}
PRODUCTS = ("Conv", "ConvTranspose", "MatMul", "Gemm")


class Reader(q.CalibrationDataReader):  # type: ignore[misc]
    def __init__(self, *feeds: dict[str, np.ndarray]) -> None:
        self.left = iter(feeds)

    def get_next(self) -> dict[str, np.ndarray] | None:
        return next(self.left, None)


class Quantized(Builder):
    """What the quantizer made of a model, every value known."""

    def __init__(self, seed: int, model: onnx.ModelProto, feeds: Mapping[str, np.ndarray], how: str) -> None:
        super().__init__(seed)
        self.how, self.opsets, self.ir = how, list(model.opset_import), model.ir_version
        self.nodes = list(model.graph.node)
        weights = {t.name: numpy_helper.to_array(t) for t in model.graph.initializer}
        self.constants, self.inputs = list(weights), list(feeds)
        self.outputs = [o.name for o in model.graph.output]
        self.values = {**weights, **feeds, **answers(model, feeds)}
        self.exact = dict.fromkeys(self.values, True)

    def proto(self, graph: onnx.GraphProto) -> onnx.ModelProto:
        return helper.make_model(graph, opset_imports=self.opsets, ir_version=self.ir)

    def _empty(self) -> Builder:
        b = Quantized.__new__(Quantized)
        Builder.__init__(b, self.seed)
        b.how, b.opsets, b.ir = self.how, self.opsets, self.ir
        return b

    def differs(self, got: np.ndarray, want: np.ndarray) -> str:
        """Steps of 16 bits are finer than what float32 sums"""
        step = 0.0
        if got.shape == want.shape and sixteen(self):
            step = 1.0 if want.dtype.kind in "iu" else self.largest_scale()
        near = step and np.abs(got.astype(np.float64) - want).max(initial=0) <= SIXTEEN * step
        return "" if near and got.dtype == want.dtype else differs(got, want)

    def faults(self, o: Options) -> list[str]:
        return widened(self, o)

    def largest_scale(self) -> float:
        """Of values of 16 bits"""
        wide = (n for n in self.nodes if n.op_type == "QuantizeLinear" and self.values[n.output[0]].dtype.itemsize == 2)
        return max((float(self.values[n.input[1]].max()) for n in wide), default=0.0)


def sixteen(b: Quantized) -> bool:
    """Whether integers of 16 bits take part"""
    return any(x.dtype.itemsize == 2 for x in b.values.values() if x.dtype.kind in "iu")


# -- what is quantized --------------------------------------------------------------------------------
def quantized_model(b: Builder) -> Builder:
    """A float model, quantized in a way that its seed says; as it is where the quantizer takes none of some."""
    return next(filter(None, (_quantized(b, _way(b)) for _ in range(TRIES))), b)


def _quantized(b: Builder, how: dict[str, Any]) -> Quantized | None:
    made = _quantize(b.model(), b, how)
    if made is None:
        return None
    text = " ".join(f"{k}={v}" for k, v in how.items())
    try:
        for powers in (False, True)[how["scales"] == "powers":]:
            if powers:
                _powers_of_two(made)
            for _ in range(TRIES):
                m = Quantized(b.seed, made, _feeds(b), text + " moved" * powers)
                if not all(x.size and np.isfinite(x).all() for x in m.values.values() if x.dtype == np.float32):
                    continue  # sums of no bytes are undefined in onnxruntime
                if not ties(m, powers):
                    return m
        return m if sixteen(m) else None
    except Exception:  # noqa: BLE001 - onnxruntime does not run what its quantizer wrote
        return None


def _way(b: Builder) -> dict[str, Any]:
    """How to quantize"""
    form = str(some(b, *["qdq"] * 5, *["qoperator"] * 3, "dynamic", "nbits"))
    how: dict[str, Any] = {"form": form, "scales": str(some(b, "powers", "as they are"))}
    if form == "nbits":
        how |= {"bits": some(b, 4, 4, 8), "block": some(b, 16, 32), "symmetric": chance(b), "qdq": chance(b, 0.4)}
        return how
    x = "u8" if form == "dynamic" else str(some(b, "u8", "u8", "i8", "i8", *(["i16", "u16"] if form == "qdq" else [])))
    w = str(some(b, "i8", "i8", "u8", *(["i4", "u4"] if form == "qdq" else [])))
    if form == "qoperator" and x == "i8":
        w = "i8"
    return how | {"x": x, "w": w, "per_channel": chance(b), "reduce_range": w.endswith("8") and chance(b, 0.2),
                  "extra": {"ActivationSymmetric": chance(b, 0.3), "WeightSymmetric": chance(b, 0.7),
                            "QDQKeepRemovableActivations": chance(b, 0.2), "DedicatedQDQPair": chance(b, 0.2),
                            "AddQDQPairToWeight": chance(b, 0.1), "ForceQuantizeNoInputCheck": chance(b, 0.2),
                            "UseQDQContribOps": chance(b, 0.1), "MatMulConstBOnly": chance(b)}}


@contextlib.contextmanager
def _silence() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            yield
    finally:
        logging.disable(logging.NOTSET)


def _quantize(model: onnx.ModelProto, b: Builder, how: dict[str, Any]) -> onnx.ModelProto | None:
    with tempfile.TemporaryDirectory() as folder, _silence():
        path = Path(folder) / "m.onnx"
        try:
            if how["form"] == "nbits":
                form = q.QuantFormat.QDQ if how["qdq"] else q.QuantFormat.QOperator
                z = MatMulNBitsQuantizer(model, how["bits"], how["block"], how["symmetric"], quant_format=form)
                z.process()
                return z.model.model
            common = {"per_channel": how["per_channel"], "reduce_range": how["reduce_range"],
                      "weight_type": TYPES[how["w"]], "extra_options": how["extra"]}
            if how["form"] == "dynamic":
                q.quantize_dynamic(model, path, **common)
            else:
                form = q.QuantFormat.QDQ if how["form"] == "qdq" else q.QuantFormat.QOperator
                q.quantize_static(model, path, Reader(b.feeds(), _feeds(b)), quant_format=form,
                                  activation_type=TYPES[how["x"]], **common)
            return onnx.load(path)
        except Exception:  # noqa: BLE001 - what it refuses is none of its models
            return None


def _feeds(b: Builder) -> dict[str, np.ndarray]:
    """Inputs of the same kind: other numbers, but what they index or count"""
    return {i: b.random(x.shape) if (x := b.values[i]).dtype == np.float32 else x for i in b.inputs}


def _scales(model: onnx.ModelProto) -> set[str]:
    """Constants that scale integers"""
    found = set()
    for n in model.graph.node:
        if n.op_type in ("QuantizeLinear", "DequantizeLinear"):
            found.add(n.input[1])
        elif n.domain == "com.microsoft" or n.op_type.startswith("QLinear"):
            found |= {i for i in n.input if i.endswith("scale")}
    return found


def _powers_of_two(model: onnx.ModelProto) -> None:
    """Move scales to powers of two; of a bias so that it fits the product, as all of them are moved alike."""
    scales = _scales(model)
    for t in model.graph.initializer:
        if t.name in scales:
            a = numpy_helper.to_array(t)
            with np.errstate(divide="ignore", invalid="ignore"):
                p = np.where(a > 0, np.exp2(np.rint(np.log2(a.astype(np.float64)))), a)
            t.CopyFrom(numpy_helper.from_array(np.asarray(p, a.dtype), t.name))


def answers(model: onnx.ModelProto, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Every value, as onnxruntime computes the graph without fusing"""
    m = onnx.ModelProto()
    m.CopyFrom(model)
    names = list(dict.fromkeys(o for n in m.graph.node for o in n.output if o))
    del m.graph.output[:]
    m.graph.output.extend(helper.make_empty_tensor_value_info(n) for n in names)
    o = ort.SessionOptions()
    o.log_severity_level, o.intra_op_num_threads = 4, 1
    o.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    s = ort.InferenceSession(m.SerializeToString(), o, providers=["CPUExecutionProvider"])
    return dict(zip(names, s.run(names, dict(feeds)), strict=True))


# -- ties ---------------------------------------------------------------------------------------------
def ties(b: Quantized, exact: bool) -> bool:
    """Whether there are values that two right roundings may make two integers of; where sums are `exact`, no tie is"""
    for n in b.nodes:
        v = {k: x.astype(np.float64) for k, i in enumerate(n.input) if i and (x := b.values[i]).dtype.kind in "fiu"}
        steps = STEPS[n.op_type](n, v, b) if n.op_type in STEPS else None
        sure = exact and not n.domain and (n.op_type != "QuantizeLinear" or coarse(v[0]))
        if steps is not None and near(steps, sure, NEAR * _blur(b, n)):  # onnxruntime adds zero points before it rounds
            return True
    return False


def _blur(b: Quantized, n: onnx.NodeProto) -> int:
    """How much less is known of a value: places between pixels, and so the pixels there, are rounded by their number"""
    resized = any(m.op_type == "Resize" and n.input[0] in m.output for m in b.nodes)
    return max(b.values[n.input[0]].shape) if resized else 1


def near(steps: np.ndarray, exact: bool, width: float = NEAR) -> bool:
    off = np.abs(np.abs(steps - np.floor(steps)) - 0.5)
    return bool(((off < width * np.maximum(1, np.abs(steps) / 16)) & ~(exact & (off == 0))).any())


def coarse(x: np.ndarray) -> bool:
    """Whether these are sums of dequantized numbers: what floats make has ties by chance, and two right answers"""
    return bool((np.ldexp(x, FINE) == np.rint(np.ldexp(x, FINE))).all())


def _attribute(n: onnx.NodeProto, name: str, default: float) -> Any:
    return next((helper.get_attribute_value(a) for a in n.attribute if a.name == name), default)


def _real(v: Mapping[int, np.ndarray], k: int) -> np.ndarray:
    """A quantized operand whose scale and zero point follow it"""
    return np.asarray((v[k] - v.get(k + 2, 0)) * v[k + 1])


def _softmax(x: np.ndarray, axis: int) -> np.ndarray:
    e = np.exp(x - x.max(axis, keepdims=True))
    return np.asarray(e / e.sum(axis, keepdims=True))


Values = Mapping[int, np.ndarray]
STEPS: dict[str, Callable[[onnx.NodeProto, Values, Quantized], np.ndarray]] = {  # of the result, before it is rounded
    "QuantizeLinear": lambda n, v, b: v[0] / v[1] if v[1].size == 1 else np.zeros(()),  # of constants
    "DynamicQuantizeLinear": lambda n, v, b: v[0] / b.values[n.output[1]].astype(np.float64),
    "Resize": lambda n, v, b: _resized(n, b),
    "QLinearSigmoid": lambda n, v, b: 1 / (1 + np.exp(-_real(v, 0))) / v[3],
    "QLinearSoftmax": lambda n, v, b: _softmax(_real(v, 0), _attribute(n, "axis", -1)) / v[3],
    "QLinearLeakyRelu": lambda n, v, b: _leaky(_real(v, 0), _attribute(n, "alpha", 0.01)) / v[3],
    "QLinearAdd": lambda n, v, b: (_real(v, 0) + _real(v, 3)) / v[6],
    "QLinearMul": lambda n, v, b: _real(v, 0) * _real(v, 3) / v[6],
    "QLinearGlobalAveragePool": lambda n, v, b: _mean(n, _real(v, 0)) / v[3],
    "QLinearAveragePool": lambda n, v, b: _pooled(n, _real(v, 0), b) / v[3],
}


def _resized(n: onnx.NodeProto, b: Quantized) -> np.ndarray:
    """Means of integers are cut, so that what lies near an integer may be two"""
    given = {i: b.values[i] for i in n.input if i}
    if given[n.input[0]].dtype.kind not in "iu":
        return np.zeros(())
    y = b._run(n, given | {n.input[0]: given[n.input[0]].astype(np.float32)}, list(n.output))
    return np.zeros(()) if y is None else y[0].astype(np.float64) + 0.5


def _pooled(n: onnx.NodeProto, x: np.ndarray, b: Quantized) -> np.ndarray:
    attrs = {a.name: helper.get_attribute_value(a) for a in n.attribute if a.name != "channels_last"}
    y = b._run(helper.make_node("AveragePool", ["x"], ["y"], **attrs), {"x": x.astype(np.float32)}, ["y"])
    return np.zeros(()) if y is None else y[0].astype(np.float64)


def _leaky(x: np.ndarray, alpha: float) -> np.ndarray:
    return np.where(x < 0, x * alpha, x)


def _mean(n: onnx.NodeProto, x: np.ndarray) -> np.ndarray:
    return np.asarray(x.mean(tuple(range(1, x.ndim - 1) if _attribute(n, "channels_last", 0) else range(2, x.ndim))))


__all__ = ["Quantized", "quantized_model"]
