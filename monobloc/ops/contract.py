"""What an operator promises of unusual operands: in words, and by an example that is tried.

Problem: a page on NaN, overflow and ties that nobody checks is soon wrong. Idea: every sentence stands in its
OpDef beside an example (`edges`). `tools/gen_docs.py` prints the sentences as docs/numerics.md; a test compiles
the examples and asks onnxruntime and ONNX's reference for theirs. Where one of those answers otherwise, the sentence
says so (`but`), with the reason; a difference that is not declared fails the test, and so does one that is gone.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np

Topic = Literal["NaN", "infinities", "-0.0", "overflow", "division by 0", "indices", "ties", "nothing", "other"]
NAN, INF = math.nan, math.inf
# reasons that several operators have
NAN_LOST = "ONNX's text says the largest (or smallest) number, and a NaN must not vanish depending on its place"
HALF_HOLDS = "a half holds the result, though not the sum on the way"
INTEGERS_WRAP = "ONNX leaves it open; integers wrap as in Add"


@dataclass(frozen=True)
class But:
    """Who answers otherwise: `onnxruntime`, or `onnx`, which is its reference evaluator."""

    who: Literal["onnxruntime", "onnx"]
    does: str
    why: str


@dataclass(frozen=True)
class Edge:
    """One promise. `gives` holds the outputs of the example; none: `run` returns E_INDEX."""

    topic: Topic
    says: str
    inputs: tuple[Any, ...]
    gives: tuple[np.ndarray, ...] = ()
    attrs: Mapping[str, Any] = field(default_factory=dict)
    but: tuple[But, ...] = ()
    zeros: bool = True  # the sign of a zero is promised

    def differs(self, who: Literal["onnxruntime", "onnx"], does: str, why: str) -> Edge:
        return replace(self, but=(*self.but, But(who, does, why)))


def f32(*values: Any) -> np.ndarray:
    return np.array(values, np.float32)


def f16(*values: Any) -> np.ndarray:
    return np.array(values, np.float16)


def i8(*values: Any) -> np.ndarray:
    return np.array(values, np.int8)


def i32(*values: Any) -> np.ndarray:
    return np.array(values, np.int32)


def i64(*values: Any) -> np.ndarray:
    return np.array(values, np.int64)


def said(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    return f"{value:.6g}" if value else "-0.0" if math.copysign(1, value) < 0 else "0"


def at(nan: float, inf: float, low: float, zero: float, attrs: Mapping[str, Any] | None = None,
       zeros: bool = True) -> tuple[Edge, ...]:
    """A function of one number at NaN, inf, -inf and -0.0."""
    given, sign = attrs or {}, "" if zeros else " of either sign"
    return (
        Edge("NaN", "stays" if math.isnan(nan) else f"gives {said(nan)}", (f32(NAN),), (f32(nan),), given),
        Edge("infinities", f"inf gives {said(inf)}, -inf gives {said(low)}", (f32(INF, -INF),), (f32(inf, low),), given,
             zeros=zeros),
        Edge("-0.0", f"gives {said(zero)}{sign}", (f32(-0.0),), (f32(zero),), given, zeros=zeros),
    )
