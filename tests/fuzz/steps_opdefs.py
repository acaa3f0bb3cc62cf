"""Steps made from the OpDefs: their cases say which ranks, shapes and operands go together, ONNX's schema which types
and attributes; attributes are changed towards the odd. What no oracle takes is left out by the builder.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import onnx
from builder import Builder
from onnx import helper
from steps import chance, number, some

from monobloc.frontend.coverage import coverage
from monobloc.ir.types import DType
from monobloc.ops import Case, OpDef

INTEGERS, REALS = (-2, -1, 0, 1, 2, 3, 7), (0.0, -0.5, 1.0, 1e-3, 3.0)
# random, or undefined where inputs are special
LEFT_OUT = {"Identity", "GridSample", "RoiAlign", "MaxUnpool", "BitShift", "TensorScatter"}


@cache
def pool(opset: int) -> tuple[tuple[OpDef, Any, tuple[DType, ...], tuple[Case, ...]], ...]:
    """Operators whose cases are nodes of ONNX as they stand, with their schemas and types."""
    out = []
    for c in coverage():
        if c.domain or c.reader is None or c.name != c.reader.name or c.name in LEFT_OUT:
            continue
        if not onnx.defs.has(c.name, opset):
            continue
        s = onnx.defs.get_schema(c.name, opset)
        cases = tuple(k for k in c.reader.cases(np.random.default_rng(0)) if fits(k, s))
        types = tuple(d for d in c.types if not d.is_opaque and d is not DType.BF16)
        if cases and types and not s.deprecated:
            out.append((c.reader, s, types, cases))
    return tuple(out)


def fits(case: Case, s: Any) -> bool:
    small = all(x is None or np.asarray(x).size < 2000 for x in case.inputs)
    plain = not any(isinstance(v, DType) and v.is_opaque for v in case.attrs.values())
    return small and plain and set(case.attrs) <= set(s.attributes) and s.min_input <= len(case.inputs) <= s.max_input


def from_opdef(b: Builder) -> str:
    there = pool(b.opset)
    op, s, types, cases = there[number(b, 0, len(there) - 1)]
    case = cases[number(b, 0, len(cases) - 1)]
    kinds = [(s.inputs[min(k, len(s.inputs) - 1)].type_str) for k in range(len(case.inputs))]
    first = next((k for k in kinds if not k.startswith("tensor(")), "")
    dtype = types[0] if chance(b, 0.4) else types[number(b, 0, len(types) - 1)]
    ins = [operand(b, np.asarray(x), dtype if kind == first else None) if x is not None else ""
           for x, kind in zip(case.inputs, kinds, strict=True)]
    attrs = {k: v for k, v in odd(b, case.attrs, s).items() if v is not None and v != []}
    outs = max(1, s.min_output if s.min_output else 1)
    made = b.op(op.name, *ins, outs=outs, **attrs)
    return made[0] if made else ""


def operand(b: Builder, x: np.ndarray, dtype: DType | None) -> str:
    """A value of this shape: one that is there, or a new one; indices and the like keep their numbers."""
    if dtype is None or x.dtype.kind not in "fiub":
        kept = x if x.dtype.kind == "b" or chance(b, 0.7) else b.rng.permutation(x.ravel()).reshape(x.shape)
        return b.constant(kept) if chance(b) else b.input(kept)
    there = [n for n, v in b.values.items() if v.shape == x.shape and v.dtype == dtype.numpy and b.exact[n]]
    if there and chance(b, 0.6):
        return there[number(b, 0, len(there) - 1)]
    plain = x.astype(dtype.numpy) if x.dtype.kind == "f" and dtype.is_float and chance(b, 0.3) else None
    return b.leaf(x.shape, dtype.numpy) if plain is None else b.input(plain)


def odd(b: Builder, attrs: dict[str, Any], s: Any) -> dict[str, Any]:
    out = {k: helper.np_dtype_to_tensor_dtype(v.numpy) if isinstance(v, DType) else v for k, v in attrs.items()}
    for name, a in s.attributes.items():
        if name in ("to", "dtype") or not chance(b, 0.3):
            continue
        if a.type.name == "INT":
            out[name] = int(some(b, *INTEGERS))  # type: ignore[call-overload]
        elif a.type.name == "FLOAT":
            out[name] = float(some(b, *REALS))  # type: ignore[arg-type]
        elif a.type.name == "INTS" and isinstance(out.get(name), (list, tuple)) and out[name]:
            k = number(b, 0, len(out[name]) - 1)
            out[name] = [int(v) + (number(b, -1, 1) if j == k else 0) for j, v in enumerate(out[name])]
    return out
