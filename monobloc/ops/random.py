"""Random numbers: a function of a seed, of how many runs came before, and of the place in the tensor.

So a run needs no generator that is called in order: threads, fusion and layouts change nothing. The seed is the node's
attribute, or comes from its name; the number of the run is state of the model, which `reset` sets back. The function
is the finalizer of SplitMix64 (Steele, Lea, Flood 2014). onnxruntime's numbers are others.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from monobloc.ir.expr import Expr, Fn, Num, call, cast
from monobloc.ir.graph import Graph, Node, Value
from monobloc.ir.types import DType, TensorType
from monobloc.ops import Case, OpDef
from monobloc.ops.build import cast_to
from monobloc.ops.shape import flatten_index, reshape

Array = np.ndarray
Attrs = dict[str, Any]
U64, F32, F64 = DType.U64, DType.F32, DType.F64
STEP, RUN = 0x9E3779B97F4A7C15, 0xD1B54A32D192ED03  # odd: every multiple of the first 2^64 is another number
FINAL = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB))


class Uniform(OpDef):
    """Numbers in [0, 1) of the number of the run; attributes seed, shape, to"""

    name = "Uniform"
    internal = True

    def infer(self, ins: Sequence[Value | None], attrs: Attrs) -> list[TensorType]:
        return [TensorType(attrs["to"], tuple(attrs["shape"]))]

    def ref(self, attrs: Attrs, *xs: Array | None) -> Array:
        assert xs[0] is not None
        with np.errstate(over="ignore"):
            z: Any
            at = np.arange(int(np.prod(attrs["shape"], dtype=np.int64)), dtype=np.uint64)
            z = (at + xs[0].reshape(()) * np.uint64(RUN) + np.uint64(attrs["seed"])) * np.uint64(STEP)
            for shift, factor in FINAL:
                z = (z ^ z >> np.uint64(shift)) * np.uint64(factor)
            z ^= z >> np.uint64(31)
        bits = 24 if attrs["to"] is F32 else 53
        kind = attrs["to"].numpy
        return ((z >> np.uint64(64 - bits)).astype(kind) * kind.type(2.0**-bits)).reshape(attrs["shape"])

    def expr(self, n: Node, *xs: Fn | None) -> Fn:
        run, shape, to = xs[0], n.attrs["shape"], n.attrs["to"]
        assert run is not None
        bits = 24 if to is F32 else 53

        def at(*i: Expr) -> Expr:
            place = cast(flatten_index(shape, i), U64)
            start = call("add", call("mul", run(), Num(RUN, U64)), Num(n.attrs["seed"], U64))
            z = call("mul", call("add", place, start), Num(STEP, U64))
            for shift, factor in FINAL:
                z = call("mul", mixed(z, shift), Num(factor, U64))
            top = call("shr", mixed(z, 31), Num(64 - bits, U64))
            return call("mul", cast(top, to), Num(2.0**-bits, to))

        return at

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        for k, to in enumerate((F32, F64)):
            yield Case((np.uint64(k),), {"seed": 2**63 + 5, "shape": [3, 5], "to": to}, to.value)


def mixed(z: Expr, shift: int) -> Expr:
    return call("bxor", z, call("shr", z, Num(shift, U64)))


class Random(OpDef):
    """Base: made of uniform numbers while the model is read"""

    def uniform(self, b: Any, n: Any, shape: Sequence[int], to: DType, count: int = 1) -> list[Value]:
        """`count` independent tensors of numbers in [0, 1)"""
        if type(b.graph) is not Graph:
            n.unsupported(f"{n.op} in a body that runs by chance or more than once")
        run = b.graph.add_input(f"{n.name}/run", TensorType(U64, ()))
        run.state = f"{n.name}/next_run"
        b.graph.outputs.append((run.state, b.one("Add", run, b.const(1, U64))))
        seed = repr(n.attrs["seed"]) if "seed" in n.attrs else n.name
        keys = [hashlib.blake2b(f"{seed} {k}".encode(), digest_size=8).digest() for k in range(count)]
        attrs = {"shape": list(shape), "to": F64 if to is F64 else F32}
        return [b.one("Uniform", run, seed=int.from_bytes(key, "little"), **attrs) for key in keys]

    def form(self, n: Any) -> tuple[list[int], DType]:
        """Shape and element type, those of the input where there is one"""
        x = n.input(0)
        if x is None:
            return n.ints("shape"), n.dtype_attr("dtype", F32)
        to = n.dtype_attr("dtype", x.dtype)
        if not to.is_float and n.op != "Bernoulli":
            n.fail(f"makes random numbers of the type {to.value}")
        return list(x.shape), to


class RandomUniform(Random):
    name = "RandomUniform"
    aliases = ("RandomUniformLike",)

    def from_onnx(self, b: Any, n: Any) -> Sequence[Value | None]:
        shape, to = self.form(n)
        low, high = float(n.attrs.get("low", 0.0)), float(n.attrs.get("high", 1.0))
        (u,) = self.uniform(b, n, shape, to)
        y = b.one("Add", b.one("Mul", u, b.const(high - low, u.dtype)), b.const(low, u.dtype))
        return [cast_to(b, y, to)]


class RandomNormal(Random):
    """Box and Muller's: two uniform numbers are a length and a direction"""

    name = "RandomNormal"
    aliases = ("RandomNormalLike",)

    def from_onnx(self, b: Any, n: Any) -> Sequence[Value | None]:
        shape, to = self.form(n)
        u, v = self.uniform(b, n, shape, to, 2)
        d = u.dtype
        size = b.one("Mul", b.one("Log", b.one("Sub", b.const(1, d), u)), b.const(-2, d))
        y = b.one("Mul", b.one("Sqrt", size), b.one("Cos", b.one("Mul", v, b.const(2 * np.pi, d))))
        mean, scale = (float(n.attrs.get(k, default)) for k, default in (("mean", 0.0), ("scale", 1.0)))
        return [cast_to(b, b.one("Add", b.one("Mul", y, b.const(scale, d)), b.const(mean, d)), to)]


class Bernoulli(Random):
    """1 with the probability that the input says"""

    name = "Bernoulli"

    def from_onnx(self, b: Any, n: Any) -> Sequence[Value | None]:
        x = n.inputs[0]
        shape, to = self.form(n)
        (u,) = self.uniform(b, n, shape, x.dtype)
        return [b.one("Cast", b.one("Less", u, cast_to(b, x, u.dtype)), to=to)]


class Multinomial(Random):
    """Rows are logarithms of probabilities, up to a constant; the share of classes that a number has passed is drawn"""

    name = "Multinomial"

    def from_onnx(self, b: Any, n: Any) -> Sequence[Value | None]:
        x, draws = n.inputs[0], int(n.attrs.get("sample_size", 1))
        if x.type.rank != 2:
            n.fail(f"takes rows of classes, not {x.type}")
        rows, classes = x.shape
        (u,) = self.uniform(b, n, [rows, draws, 1], x.dtype)
        shares = b.one("CumSum", cast_to(b, b.one("Softmax", x, axis=1), u.dtype), axis=1, exclusive=0, reverse=0)
        passed = b.one("LessOrEqual", reshape(b, shares, [rows, 1, classes]), u)
        count = b.one("ReduceSum", b.one("Cast", passed, to=DType.I32), axes=[2], keepdims=0)
        last = b.one("Min", count, b.const(classes - 1, DType.I32))  # the last share may be just below 1
        return [cast_to(b, last, n.dtype_attr("dtype", DType.I32))]
