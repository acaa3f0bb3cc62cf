"""How scalar functions are spelled in C: the one table between expressions and `mb/*.h`.

Two spellings: inside loops, where clang vectorizes plain C (operators, `?:`), and inside epilogues of
contractions, where one text serves vectors and single elements through overloaded `mb_*` functions.
"""

from __future__ import annotations

import math

from monobloc.errors import UnsupportedError
from monobloc.ir.symbolic import is_open
from monobloc.ir.types import DType

ARITH = {"add": "+", "sub": "-", "mul": "*"}
COMPARE = {"lt": "<", "le": "<=", "eq": "=="}
LOGIC = {"land": "&", "lor": "|", "lxor": "^"}
BITS = {"band": "&", "bor": "|", "bxor": "^"}

# functions of mb/math.h and mb/base.h by name, for float and double
FLOAT_FNS = frozenset(
    "abs neg sign floor ceil round sqrt reciprocal exp log sin cos tan asin acos atan sinh cosh tanh asinh acosh "
    "atanh erf sigmoid softplus softsign mish relu max min pow fmod mod expm1 log1p gelu gelu_tanh silu rsqrt "
    "isnan clip_lo clip_hi trunc".split()
)
# integer functions of mb/math_int.h and mb/scalar.h; arguments are cast, since overloads need one type
INT_FNS = {
    "abs": "mb_iabs", "neg": "mb_ineg", "sign": "mb_isign", "div": "mb_idiv", "imod": "mb_imod", "irem": "mb_ifmod",
    "ipow": "mb_ipow", "relu": "mb_relu", "max": "mb_max", "min": "mb_min", "clip_lo": "mb_clip_lo",
    "clip_hi": "mb_clip_hi", "tfl_scale": "mb_tfl_scale", "tfl_scale64": "mb_tfl_scale64",
    "tfl_divide": "mb_tfl_divide", "exact_quantize": "mb_exact_quantize",
}  # fmt: skip
INDEX_FNS = {"floordiv": "mb_floordiv", "floormod": "mb_floormod", "imin": "mb_min_long", "imax": "mb_max_long"}

# an index that is data, as far as nothing proves it (ops/indexing.py)
INDEX_CHECKS = {
    "index": "mb_index({0}, {1}, &bad)", "index_below": "mb_index_below({0}, {1}, &bad)",
    "index_wrap": "mb_index_wrap({0}, {1})", "index_inside": "{0}",
}  # fmt: skip


def compute_type(d: DType) -> DType:
    """The type arithmetic is done in: half floats compute as float."""
    return DType.F32 if d in (DType.F16, DType.BF16) else d


def literal(value: float | int | bool, d: DType) -> str:
    """A C literal that reads back exactly."""
    if is_open(value):  # type: ignore[arg-type]
        return f"(({compute_type(d).c}){value})" if d.is_float else str(value)
    if d.is_float:
        v = float(value)
        if math.isnan(v):
            return "__builtin_nanf(\"\")" if d is not DType.F64 else "__builtin_nan(\"\")"
        if math.isinf(v):
            text = "__builtin_inff()" if d is not DType.F64 else "__builtin_inf()"
            return text if v > 0 else f"(-{text})"
        text = v.hex() if abs(v) < 1e-4 or abs(v) >= 1e7 or not _short(v) else repr(v)
        text = f"({text})" if text.startswith("-") else text
        return text if d is DType.F64 else (text[:-1] + "f)" if text.endswith(")") else text + "f")
    if d is DType.BOOL:
        return "1" if value else "0"
    v = int(value)
    if v == -(1 << 63):
        return "(-9223372036854775807L - 1)"
    if d in (DType.I64, DType.U64):
        return f"({v}L)" if v < 0 else f"{v}L" if v < 1 << 63 else f"{v}UL"
    if d is DType.U32:
        return f"{v}U"
    if v == -(1 << 31):  # C reads the minus apart, and what it stands before is no int
        return "(-2147483647 - 1)"
    return str(v) if v >= 0 else f"({v})"


def _short(v: float) -> bool:
    return len(repr(v)) <= 9


def spell(fn: str, args: list[str], kinds: list[DType], result: DType) -> str:
    """C text of a scalar function inside a loop."""
    kind = compute_type(kinds[0])
    if fn in ARITH and len(args) == 2:
        text = f"({args[0]} {ARITH[fn]} {args[1]})"
        return text if kind.is_float or kind.size >= 4 else f"({kind.c}){text}"
    if fn in COMPARE:
        return f"({args[0]} {COMPARE[fn]} {args[1]})"
    if fn in LOGIC:
        return f"({args[0]} {LOGIC[fn]} {args[1]})"
    if fn in BITS:
        return f"({kind.c})({args[0]} {BITS[fn]} {args[1]})"
    if fn == "lnot":
        return f"(!{args[0]})"
    if fn == "select":
        return f"({args[0]} ? {args[1]} : {args[2]})"
    if fn == "checked":
        return f"((void)({args[1]}), {args[0]})"
    if fn == "unrounded":
        return args[0]
    if fn == "cast":
        return _cast(args[0], kind, compute_type(result), result)
    if fn == "encode":
        return f"mb_{result.value}_code({_number(args[0], kinds[0])}, {', '.join(args[1:])})"
    if fn == "bitcast":
        return _bitcast(args[0], kinds[0], result)
    if fn == "div" and kind.is_float:
        return f"({args[0]} / {args[1]})"
    if fn in INDEX_FNS:
        return f"{INDEX_FNS[fn]}({', '.join(args)})"
    if fn in INDEX_CHECKS:
        return INDEX_CHECKS[fn].format(*args)
    if fn == "bnot":
        return f"({kind.c})(~{args[0]})"
    if fn in ("shl", "shr"):
        return _shift(fn, args[0], args[1], kind)
    if not kind.is_float and fn in INT_FNS:
        return f"{INT_FNS[fn]}({', '.join(f'({kind.c}){a}' for a in args)})"
    if kind.is_float and fn in FLOAT_FNS:
        return f"mb_{fn}({', '.join(args)})"
    raise UnsupportedError(f"no C function `{fn}` for {kind.value}")


def _shift(fn: str, x: str, by: str, d: DType) -> str:
    """By the width or more, or a negative number: nothing of the value is left, its sign is in every bit."""
    width, count = d.size * 8, f"(uint{max(d.size * 8, 32)}_t)({by})"
    if fn == "shr" and d.is_signed:
        return f"({d.c})({x} >> ({count} < {width} ? {count} : {width - 1}))"
    op = "<<" if fn == "shl" else ">>"
    return f"({d.c})({count} < {width} ? {x} {op} {by} : 0)"


def _cast(x: str, source: DType, compute: DType, result: DType) -> str:
    if source.is_code:
        source, x = DType.F32 if source.value_type.is_float else DType.I32, f"mb_{source.value}_value({x})"
    if result.is_code:
        floats = result.value_type.is_float
        return f"mb_{result.value}_code({_number(x, source)}, 1)" if floats else _low_bits(x, source, result)
    if result is DType.BOOL:
        return f"({x} != 0)"
    if source.is_float and result.is_int:
        return f"mb_cast_{result.value}({x})"
    text = f"({compute.c}){x}"
    # a half float is rounded here even when the result is used as float at once
    if compute is result:
        return f"({text})"
    return f"mb_wide(mb_{result.value}({_number(x, source)}))"


def _number(x: str, source: DType) -> str:
    """As a float or double that holds it."""
    if source.is_code:
        x = f"mb_{source.value}_value({x})"
    return f"({'double' if source is DType.F64 or source.is_int else 'float'}){x}"


def _low_bits(x: str, source: DType, result: DType) -> str:
    whole = f"mb_cast_i32({x})" if source.is_float else x
    return f"(uint8_t)({whole} & {(1 << result.bits) - 1})"


def _bitcast(x: str, source: DType, result: DType) -> str:
    """Through a union: the types may alias in C, and it is no instruction."""
    bits = f"mb_{source.value}({x})" if compute_type(source) is not source else x
    text = f"((union {{ {source.c} from; {result.c} to; }}){{ .from = {bits} }}).to"
    return f"mb_wide({text})" if compute_type(result) is not result else text


NEUTRAL = {"sum": 0, "prod": 1, "and": True, "or": False}


def neutral(kind: str, d: DType) -> str:
    """The value a fold starts from."""
    if kind in NEUTRAL:
        return literal(NEUTRAL[kind], d)
    if d.is_float:
        return literal(math.inf if kind == "min" else -math.inf, d)
    if d is DType.BOOL:
        return "1" if kind == "min" else "0"
    bits = d.size * 8
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if d.is_signed else (0, (1 << bits) - 1)
    return literal(high if kind == "min" else low, d)


def combine(kind: str, a: str, b: str) -> str:
    """One step of a fold."""
    op = {"sum": "+", "prod": "*", "and": "&", "or": "|"}.get(kind)
    return f"{a} {op} {b}" if op else f"mb_{kind}({a}, {b})"
