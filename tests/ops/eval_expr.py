"""Evaluates index-space expressions on numpy arrays: the meaning of `expr`, without a compiler.

All output elements are evaluated at once: an index is an array with one entry per element. A fold
evaluates its body at every (element, index) pair whose guard holds, so that an index outside a tensor
is found (assertion) exactly where generated code would read it.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from monobloc.ir.codes import ROUND_MODES, encode
from monobloc.ir.expr import Expr, Fn, Load, Num, Op, Reduce, Var
from monobloc.ir.graph import Node, Value
from monobloc.ir.strings import to_text
from monobloc.ir.types import DType
from monobloc.ops import opdef
from monobloc.ops.exact import np_exact_quantize
from monobloc.ops.tfl import np_scale, np_scale64
from monobloc.ops.tfl_rows import np_divide

Array = np.ndarray
Env = dict[Any, Array]


class IndexOutside(Exception):
    """A checked run-time index lies outside its axis (MB_E_INDEX in generated code)."""


def as_onnx(x: Array) -> Array:
    """As ONNX's runtimes know it: strings are Python's."""
    return to_text(x) if x.dtype == "S1" else x


_np_erf = np.frompyfunc(math.erf, 1, 1)


def _wide(f: Any) -> Any:
    return lambda *a: f(*[x.astype(np.float64) for x in a])


def _erf(x: Array) -> Array:
    return _np_erf(x.astype(np.float64)).astype(np.float64)


def _int_div(a: Array, b: Array) -> Array:
    safe = np.where(b == 0, np.ones_like(b), b)
    q = np.floor_divide(a, safe)
    q = q + ((np.remainder(a, safe) != 0) & ((a < 0) != (safe < 0))).astype(a.dtype)
    return np.where(b == 0, np.zeros_like(q), q)


def _div(a: Array, b: Array) -> Array:
    return _int_div(a, b) if a.dtype.kind in "iu" else a / b


def _rem(f: Any) -> Any:
    return lambda a, b: np.where(b == 0, np.zeros_like(a), f(a, np.where(b == 0, np.ones_like(b), b)))


FUNCTIONS: dict[str, Any] = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": _div, "neg": np.negative,
    "max": np.maximum, "min": np.minimum, "imax": np.maximum, "imin": np.minimum,
    "floordiv": np.floor_divide, "floormod": np.remainder, "abs": np.abs, "sign": np.sign,
    "lt": np.less, "le": np.less_equal, "eq": np.equal, "land": np.logical_and, "lor": np.logical_or,
    "lxor": np.logical_xor, "lnot": np.logical_not, "band": np.bitwise_and, "bor": np.bitwise_or,
    "bxor": np.bitwise_xor, "bnot": np.invert, "shl": np.left_shift, "shr": np.right_shift,
    "floor": np.floor, "ceil": np.ceil, "round": np.rint, "trunc": np.trunc, "sqrt": np.sqrt,
    "reciprocal": lambda x: 1 / x, "rsqrt": lambda x: 1 / np.sqrt(x), "exp": _wide(np.exp),
    "expm1": _wide(np.expm1), "log": _wide(np.log), "log1p": _wide(np.log1p), "exp2": _wide(np.exp2),
    "log2": _wide(np.log2), "sin": _wide(np.sin),
    "cos": _wide(np.cos), "tan": _wide(np.tan), "asin": _wide(np.arcsin), "acos": _wide(np.arccos),
    "atan": _wide(np.arctan), "sinh": _wide(np.sinh), "cosh": _wide(np.cosh), "tanh": _wide(np.tanh),
    "asinh": _wide(np.arcsinh), "acosh": _wide(np.arccosh), "atanh": _wide(np.arctanh), "erf": _erf,
    "sigmoid": _wide(lambda x: 1 / (1 + np.exp(-x))), "softplus": _wide(lambda x: np.logaddexp(x, 0)),
    "softsign": _wide(lambda x: x / (1 + np.abs(x))),
    "mish": _wide(lambda x: x * np.tanh(np.logaddexp(x, 0))), "relu": lambda x: np.maximum(x, 0),
    "gelu": _wide(lambda x: 0.5 * x * (1 + _erf(x / np.sqrt(2)))),
    "gelu_tanh": _wide(lambda x: 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))),
    "pow": _wide(np.power), "ipow": lambda a, b: np.power(a, np.maximum(b, 0)),
    "fmod": np.fmod, "mod": np.mod, "irem": _rem(np.fmod), "imod": _rem(np.mod),
    "clip_lo": lambda x, lo: np.where(lo > x, lo, x), "clip_hi": lambda x, hi: np.where(hi < x, hi, x),
    "isnan": np.isnan, "select": np.where, "checked": lambda value, index: value, "fma": lambda a, b, c: a * b + c,
    "tfl_scale": np_scale, "tfl_scale64": np_scale64,
    "tfl_divide": np_divide, "exact_quantize": np_exact_quantize,
}  # fmt: skip
NEUTRAL = {"sum": 0, "prod": 1, "and": True, "or": False}
FOLD = {
    "sum": np.add, "prod": np.multiply, "max": np.maximum, "min": np.minimum,
    "and": np.logical_and, "or": np.logical_or,
}  # fmt: skip


def neutral(kind: str, dtype: DType) -> Any:
    if kind in NEUTRAL:
        return NEUTRAL[kind]
    if dtype.is_float:
        return -np.inf if kind == "max" else np.inf
    if dtype is DType.BOOL:
        return kind == "min"
    info = np.iinfo(dtype.numpy)
    return info.min if kind == "max" else info.max


class Evaluator:
    """Values of expressions over `count` elements; `tensors` holds the data of what is loaded."""

    def __init__(self, tensors: dict[Value, Array], count: int, env: Env) -> None:
        self.tensors, self.count, self.env = tensors, count, env
        self.memo: dict[Expr, Array] = {}

    def __call__(self, e: Expr) -> Array:
        if e not in self.memo:
            with np.errstate(all="ignore"):
                self.memo[e] = np.asarray(self._eval(e))
        return self.memo[e]

    def _eval(self, e: Expr) -> Array:
        if isinstance(e, Num):
            code = e.dtype.is_opaque
            return np.full(self.count, e.value, np.uint8 if code else e.dtype.numpy).view(e.dtype.numpy)
        if isinstance(e, Var):
            return self.env[e]
        if isinstance(e, Load):
            return self._load(e)
        if isinstance(e, Reduce):
            return self._reduce(e)
        assert isinstance(e, Op)
        args = [self(a) for a in e.args]
        if e.fn in ("cast", "encode"):
            return self._cast(*args, to=e.dtype)
        if e.fn == "bitcast":
            return args[0].view(e.dtype.numpy)
        if e.fn.startswith("index"):
            return self._index(e.fn, *args)
        out = FUNCTIONS[e.fn](*args)
        return np.broadcast_to(out, (self.count,)).astype(e.dtype.numpy, copy=False)

    def _cast(self, x: Array, saturate: Array | int = 1, rounding: Array | int = 0, *, to: DType) -> Array:
        x = x.astype(DType.of(x.dtype).value_type.numpy)
        if to.is_code:
            return encode(x, to, bool(np.all(saturate)), ROUND_MODES[int(np.max(rounding))])
        return x != 0 if to is DType.BOOL else x.astype(to.numpy)

    def _index(self, fn: str, at: Array, n: Array) -> Array:
        """A proven index must be what it is said to be."""
        assert fn in ("index", "index_wrap") or (at >= 0).all(), fn
        assert fn in ("index", "index_below") or ((at >= -n) & (at < n)).all(), fn
        at = np.where(at < 0, at + n, at)
        if ((at < 0) | (at >= n)).any():
            raise IndexOutside
        return at

    def _load(self, e: Load) -> Array:
        data = self.tensors[e.source]
        assert len(e.index) == data.ndim, f"{e.source} read with {len(e.index)} indices"
        at = [self(i) for i in e.index]
        for k, (i, n) in enumerate(zip(at, data.shape, strict=True)):
            assert i.dtype == np.int64, f"{e.source}: index of {i.dtype}"
            if i.size:
                assert i.min() >= 0 and i.max() < n, f"{e.source} read at {i.min()}..{i.max()} of {n} on axis {k}"
        return np.broadcast_to(data[tuple(at)], (self.count,))

    def _reduce(self, e: Reduce) -> Array:
        extents = [v.extent for v in e.vars]
        total = math.prod(extents)
        grid = np.indices(extents).reshape(len(extents), total)
        env = {v: np.repeat(x, total) for v, x in self.env.items()}
        env |= {v: np.tile(g, self.count) for v, g in zip(e.vars, grid, strict=True)}
        keep = np.ones(self.count * total, bool)
        if e.guard is not None:
            keep = Evaluator(self.tensors, self.count * total, env)(e.guard).astype(bool)
            env = {v: x[keep] for v, x in env.items()}
        body = Evaluator(self.tensors, int(keep.sum()), env)(e.body)
        out = np.full(self.count * total, neutral(e.kind, e.dtype), e.dtype.numpy)
        out[keep] = body
        out = out.reshape(self.count, total)
        if e.kind == "sum" and out.dtype.kind == "f":
            return out.sum(1, dtype=np.float64).astype(out.dtype)
        return FOLD[e.kind].reduce(out, axis=1, initial=neutral(e.kind, e.dtype)).astype(out.dtype)


def load_fn(v: Value) -> Fn:
    """reads one element of `v`"""
    return lambda *i: Load(v, tuple(i), v.dtype)


def eval_fn(f: Fn, shape: tuple[int, ...], tensors: dict[Value, Array], at: Array | None = None) -> Array:
    """`f` at the flat positions `at` of an output of `shape` (None: everywhere, in that shape)"""
    count = math.prod(shape)
    flat = np.arange(count) if at is None else at
    variables = [Var(f"i{k}", n) if n != 1 else Num(0, DType.I64) for k, n in enumerate(shape)]
    index = np.unravel_index(flat, shape) if shape and count else [flat] * len(shape)
    env = {v: i.astype(np.int64) for v, i in zip(variables, index, strict=True) if isinstance(v, Var)}
    e = f(*variables)
    out = Evaluator(tensors, flat.size, env)(e).astype(e.dtype.numpy, copy=False)
    return out.reshape(shape) if at is None else out


def eval_node(n: Node, tensors: dict[Value, Array], limit: int = 4096) -> list[tuple[Array, Array]]:
    """(flat positions, elements there) per output of a node with an expression"""
    fns = opdef(n).expr(n, *[None if v is None else load_fn(v) for v in n.inputs])
    out = []
    for f, v in zip(fns if isinstance(fns, list) else [fns], n.outputs, strict=True):
        count = v.type.size
        step = max(count // limit, 1)
        at = np.arange(0, count, step)
        if step > 1:
            at = np.unique(np.append(at, count - 1))
        out.append((at, eval_fn(f, v.shape, tensors, at)))
    return out
