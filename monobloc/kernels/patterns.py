"""The small language of kernel rows: what an operand looks like, and integers computed from it.

    a: f16[m,k]        an operand called `a`; its sizes bind m and k, and an equal name must be equal
    w: const f32|f16[*,k,8]   constant, one of two types, any leading axes, exactly 8 in the last
    x: f32[*n]         n is the product of all sizes

Expressions are integer arithmetic and comparisons over these names, over an operand's `rank`, `size`,
`bytes`, `dim[i]` and `stride[i]`, over `attr.NAME` of the operator, and `threads`. They are read into
Python's own syntax tree, of which only the harmless kinds of node are accepted.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

DTYPES = ("f32", "f64", "f16", "bf16", "i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64", "bool")
_NAME = r"[A-Za-z_]\w*"
_OPERAND = re.compile(rf"({_NAME})\s*:\s*(const\s+)?({_NAME}(?:\s*\|\s*{_NAME})*)\s*\[([^\]]*)\]")
_DIM = re.compile(rf"\*(?:{_NAME})?|{_NAME}|\d+")
RESERVED = ("attr", "threads", "scratch", "tid", "nt")
_FIELDS = ("rank", "size", "bytes")
_LISTS = ("dim", "stride")


class RowError(ValueError):
    """What is wrong with a piece of a row, in words."""


class NoValue(Exception):  # noqa: N818 - says why a row does not fit, no error
    """An expression that has no value for this node, and why."""


# -- operands -----------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Operand:
    """One operand's pattern."""

    name: str
    dtypes: tuple[str, ...]
    dims: tuple[str, ...]
    const: bool

    @property
    def dim_names(self) -> set[str]:
        return {d.lstrip("*") for d in self.dims if not d.isdigit()} - {"", "_"}


def parse_operand(text: str) -> Operand:
    m = _OPERAND.fullmatch(text.strip())
    if m is None:
        raise RowError(f"`{text}` is no operand: it looks like `a: f32[m,k]`")
    dtypes = tuple(d.strip() for d in m[3].split("|"))
    unknown = [d for d in dtypes if d not in DTYPES]
    if unknown:
        raise RowError(f"`{text}`: unknown type `{unknown[0]}`; types are {', '.join(DTYPES)}")
    dims = tuple(d.strip() for d in m[4].split(",")) if m[4].strip() else ()
    for d in dims:
        if not _DIM.fullmatch(d) or d.lstrip("*") in RESERVED:
            raise RowError(f"`{text}`: `{d}` is no size: sizes are names, numbers, `_`, and once `*name`")
    if sum(d.startswith("*") for d in dims) > 1:
        raise RowError(f"`{text}`: more than one `*`")
    if m[1] in RESERVED:
        raise RowError(f"`{text}`: `{m[1]}` names something else")
    return Operand(m[1], dtypes, dims, bool(m[2]))


def bind_dims(o: Operand, shape: Sequence[int], names: dict[str, int]) -> str:
    """Binds the names of the sizes; why they do not fit, or nothing."""
    dims = list(o.dims)
    star = next((k for k, d in enumerate(dims) if d.startswith("*")), None)
    fixed = len(dims) - (star is not None)
    if len(shape) < fixed or (star is None and len(shape) > fixed):
        return f"`{o.name}` has rank {len(shape)}, the row takes {'at least ' if star is not None else ''}{fixed}"
    sizes = list(shape)
    if star is not None:
        many = len(shape) - fixed
        product = 1
        for d in sizes[star : star + many]:
            product *= d
        sizes[star : star + many] = [product]
    for dim, size in zip(dims, sizes, strict=True):
        name = dim.lstrip("*")
        if name.isdigit():
            if int(name) != size:
                return f"a size of `{o.name}` is {size}, the row takes {name}"
        elif name not in ("", "_") and names.setdefault(name, size) != size:
            return f"`{name}` is {names[name]} and, in `{o.name}`, {size}"
    return ""


# -- expressions --------------------------------------------------------------------------------------
_BINARY: dict[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod, ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le,
    ast.Gt: operator.gt, ast.GtE: operator.ge,
}  # fmt: skip


@dataclass(frozen=True)
class Facts:
    """What an expression may ask of a node."""

    dims: Mapping[str, int]
    operands: Mapping[str, Mapping[str, Any]]  # name -> rank, size, bytes, dim, stride
    attrs: Mapping[str, Any]
    op: str
    threads: int = 1


def parse_expression(text: str, dims: set[str], operands: set[str]) -> ast.expr:
    """The syntax tree; RowError for what has no meaning here."""
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise RowError(f"`{text}` is no expression") from None
    for problem in _problems(tree, dims, operands):
        raise RowError(f"`{text}`: {problem}")
    return tree


def _problems(e: ast.AST, dims: set[str], operands: set[str]) -> Iterator[str]:
    if isinstance(e, ast.Constant):
        if not isinstance(e.value, (int, float, str)):
            yield f"`{ast.unparse(e)}` is no number"
    elif isinstance(e, ast.Name):
        if e.id not in dims and e.id != "threads":
            known = sorted(dims | operands)
            yield f"unknown name `{e.id}`; names are {', '.join([*known, 'attr', 'threads'])}"
    elif isinstance(e, ast.Attribute) and isinstance(e.value, ast.Name):
        if e.value.id != "attr" and (e.value.id not in operands or e.attr not in _FIELDS):
            yield f"`{ast.unparse(e)}` is nothing: operands have {', '.join((*_FIELDS, *_LISTS))}"
    elif isinstance(e, ast.Subscript):
        yield from _subscript_problems(e, dims, operands)
    elif isinstance(e, ast.BinOp) and type(e.op) in _BINARY:
        for side in (e.left, e.right):
            yield from _problems(side, dims, operands)
    elif isinstance(e, ast.Compare) and all(type(o) in _BINARY for o in e.ops):
        for side in (e.left, *e.comparators):
            yield from _problems(side, dims, operands)
    elif isinstance(e, (ast.BoolOp, ast.List)):
        for side in e.values if isinstance(e, ast.BoolOp) else e.elts:
            yield from _problems(side, dims, operands)
    elif isinstance(e, ast.IfExp):
        for side in (e.test, e.body, e.orelse):
            yield from _problems(side, dims, operands)
    elif isinstance(e, ast.UnaryOp) and isinstance(e.op, (ast.USub, ast.Not)):
        yield from _problems(e.operand, dims, operands)
    else:
        yield f"`{ast.unparse(e)}` is not allowed: integers, names, + - * // %, comparisons, and, or, not, if else"


def _subscript_problems(e: ast.Subscript, dims: set[str], operands: set[str]) -> Iterator[str]:
    base = e.value
    named = isinstance(base, ast.Attribute) and isinstance(base.value, ast.Name)
    known = named and (base.value.id == "attr" or (base.value.id in operands and base.attr in _LISTS))  # type: ignore
    if not known:
        yield f"`{ast.unparse(e)}` is nothing: lists are attributes, and an operand's `dim` and `stride`"
    yield from _problems(e.slice, dims, operands)


def evaluate(e: ast.expr, f: Facts) -> Any:
    """Value of a checked expression; NoValue where the node has none."""
    if isinstance(e, ast.Constant):
        return e.value
    if isinstance(e, ast.Name):
        return f.threads if e.id == "threads" else f.dims[e.id]
    if isinstance(e, ast.Attribute):
        return _field(e, f)
    if isinstance(e, ast.Subscript):
        items, at = _field(e.value, f), evaluate(e.slice, f)
        if not isinstance(items, (list, tuple)) or not isinstance(at, int) or not -len(items) <= at < len(items):
            raise NoValue(f"`{ast.unparse(e)}` does not exist")
        return items[at]
    if isinstance(e, ast.UnaryOp):
        value = evaluate(e.operand, f)
        return not value if isinstance(e.op, ast.Not) else _arithmetic(operator.neg, value)
    if isinstance(e, ast.List):
        return [evaluate(x, f) for x in e.elts]
    if isinstance(e, ast.IfExp):
        return evaluate(e.body if evaluate(e.test, f) else e.orelse, f)
    if isinstance(e, ast.BoolOp):
        short = isinstance(e.op, ast.Or)
        return short if any(bool(evaluate(x, f)) is short for x in e.values) else not short
    if isinstance(e, ast.Compare):
        return _compare(e, f)
    assert isinstance(e, ast.BinOp)
    return _arithmetic(_BINARY[type(e.op)], evaluate(e.left, f), evaluate(e.right, f))


def _arithmetic(how: Callable[..., Any], *values: Any) -> Any:
    if not all(isinstance(v, (int, float)) for v in values):
        raise NoValue(f"{values[0]!r} is no number")
    try:
        return how(*values)
    except (ZeroDivisionError, OverflowError) as e:
        raise NoValue(str(e)) from None


def _compare(e: ast.Compare, f: Facts) -> bool:
    left = _plain(evaluate(e.left, f))
    for op, side in zip(e.ops, e.comparators, strict=True):
        right = _plain(evaluate(side, f))
        try:
            if not _BINARY[type(op)](left, right):
                return False
        except TypeError:
            raise NoValue(f"{left!r} and {right!r} do not compare") from None
        left = right
    return True


def _plain(x: Any) -> Any:
    return list(x) if isinstance(x, tuple) else x


def _field(e: ast.expr, f: Facts) -> Any:
    assert isinstance(e, ast.Attribute) and isinstance(e.value, ast.Name)
    if e.value.id != "attr":
        return f.operands[e.value.id][e.attr]
    if f.attrs.get(e.attr) is None:
        known = ", ".join(sorted(f.attrs)) or "none"
        raise NoValue(f"{f.op} has no attribute `{e.attr}` here; it has: {known}")
    return f.attrs[e.attr]
