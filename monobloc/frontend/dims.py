"""Symbolic dimensions of the inputs: what the user gave, what the model says, what is assumed.

Every shape is known inside the compiler. Values come from `--dim` and from the shapes given with
`--shape` and `--bind`; a leading dimension that nobody gave becomes 1 with a note; the rest is
one error that prints what to type. Two values for one symbol are an error. A symbol written as
arithmetic of others (`past + 1`) follows from them.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from monobloc.errors import Loc, ModelError, UnsupportedError
from monobloc.frontend import proto
from monobloc.frontend.tensors import checked_shape, dtype_of
from monobloc.ir.types import DType, Shape

_ANONYMOUS = ("", "?", "*", "-1", "None")  # exporters that have no name write these

Dim = int | str | None  # a size, a symbol, or anything


@dataclass(frozen=True)
class Declared:
    """What a model says of a value; `dims` is None when it does not even say the rank."""

    dtype: DType
    dims: tuple[Dim, ...] | None

    def __str__(self) -> str:
        if self.dims is None:
            return f"{self.dtype.value}[...]"
        return f"{self.dtype.value}[{','.join('?' if d is None else str(d) for d in self.dims)}]"


_KINDS = {
    "sequence_type": "a sequence",
    "optional_type": "an optional",
    "map_type": "a map",
    "sparse_tensor_type": "a sparse tensor",
    "opaque_type": "an opaque value",
}


def declared(type: proto.TypeProto, what: str) -> Declared:
    """The declared type of a value; UnsupportedError for anything but a tensor."""
    kind = type.WhichOneof("value")
    if kind is None:
        raise ModelError(f"{what} has no type")
    if kind != "tensor_type":
        raise UnsupportedError(f"{what} is {_KINDS.get(kind, kind)}, which is not supported")
    dtype = dtype_of(type.tensor_type.elem_type, what)
    if not type.tensor_type.HasField("shape"):
        return Declared(dtype, None)
    return Declared(dtype, tuple(_dim(d) for d in type.tensor_type.shape.dim))


def _dim(d: proto.TensorShapeProto.Dimension) -> Dim:
    if d.WhichOneof("value") == "dim_value":
        return None if d.dim_value == -1 else d.dim_value  # -1: some exporters' word for any size
    return None if d.dim_param in _ANONYMOUS else str(d.dim_param)


@dataclass
class Dims:
    """Values of symbols, each with where it comes from."""

    given: Mapping[str, int]
    related: Mapping[str, str] = field(default_factory=dict)  # what symbols follow from
    values: dict[str, int] = field(default_factory=dict)
    sources: dict[str, str] = field(default_factory=dict)

    def set(self, symbol: str, value: int, source: str) -> None:
        old = self.values.get(symbol)
        if old is not None and old != value:
            raise ModelError(
                f"dimension '{symbol}' has two values: {old} and {value}",
                notes=[f"{old} comes from {self.sources[symbol]}", f"{value} comes from {source}"],
            )
        self.values.setdefault(symbol, value)
        self.sources.setdefault(symbol, source)

    def value(self, d: Dim) -> int | None:
        """The size of a dimension, if it is known by now."""
        if isinstance(d, str):
            return self.values[d] if d in self.values else arithmetic(self.related.get(d, d), self.values)
        return d


def solve(
    inputs: Mapping[str, Declared],
    shapes: Mapping[str, Shape],
    given: Mapping[str, int],
    model: str,
    related: Mapping[str, str] | None = None,
) -> tuple[dict[str, Shape], dict[str, int], list[str]]:
    """Shapes of all inputs, values of all symbols, notes on what was assumed."""
    dims = Dims(given, related or {})
    _check_names(inputs, shapes, [*given, *dims.related])
    for symbol, value in given.items():
        if value < 0:
            raise ModelError(f"dimension '{symbol}' is given as {value}, which is negative")
        dims.set(symbol, value, f"--dim {symbol}={value}")
    for name, shape in shapes.items():
        _take_shape(name, inputs[name], shape, dims)
    notes = _assume_leading(inputs, shapes, dims)
    _check_related(dims)
    _check_all_known(inputs, shapes, dims, model)
    out = {n: shapes[n] if n in shapes else _shape(n, d, dims) for n, d in inputs.items()}
    return out, dims.values, notes


def _check_names(inputs: Mapping[str, Declared], shapes: Mapping[str, Shape], given: Sequence[str]) -> None:
    for name in shapes:
        if name not in inputs:
            raise ModelError(f"a shape is given for '{name}', which is no input", notes=[_list("inputs", inputs)])
    symbols = _symbols(inputs)
    for symbol in given:
        if symbol not in symbols and not any(symbol in _names(s) for s in symbols):
            raise ModelError(
                f"a value is given for dimension '{symbol}', which no input has",
                notes=[_list("dimensions", symbols)],
                hints=[f"of several models, say whose it is: `--dim MODEL.{symbol}=...`"],
            )


def _symbols(inputs: Mapping[str, Declared]) -> list[str]:
    return list(dict.fromkeys(d for t in inputs.values() for d in t.dims or () if isinstance(d, str)))


def _check_related(dims: Dims) -> None:
    for symbol, text in dims.related.items():
        size = dims.value(symbol)
        if size is None:
            raise ModelError(f"`--dim {symbol}={text}` is no arithmetic of dimensions that are known",
                             notes=[_list("dimensions", list(dims.values))],
                             hints=["write a sum, a difference, a product or a quotient, as in `--dim total=past+seq`"])
        dims.set(symbol, size, f"--dim {symbol}={text}")


def _list(what: str, names: Mapping[str, Declared] | list[str]) -> str:
    return f"{what}: " + (", ".join(names) or "none")


def _take_shape(name: str, type: Declared, shape: Shape, dims: Dims) -> None:
    if type.dims is None:
        checked_shape(list(shape), f"input '{name}'")
        return
    text = f"shape {list(shape)}"
    if len(shape) != len(type.dims):
        raise ModelError(f"input '{name}' is {type}, but {text} is given", notes=["the ranks differ"])
    for axis, (d, s) in enumerate(zip(type.dims, shape, strict=True)):
        if isinstance(d, str):
            dims.set(d, s, f"{text} of input '{name}'")
        elif d is not None and d >= 0 and d != s:
            raise ModelError(
                f"input '{name}' is {type}, but {text} is given",
                notes=[f"axis {axis} is {d}, not {s}"],
            )
    checked_shape(list(shape), f"input '{name}'")


def _assume_leading(inputs: Mapping[str, Declared], shapes: Mapping[str, Shape], dims: Dims) -> list[str]:
    notes = []
    for name, type in inputs.items():
        if name in shapes or not type.dims or dims.value(type.dims[0]) is not None:
            continue
        d = type.dims[0]
        if isinstance(d, str):
            dims.set(d, 1, "the default for leading dimensions")
            notes.append(f"dimension '{d}' of input '{name}' is not given and becomes 1 (`--dim {d}=N`)")
        else:
            notes.append(f"the leading dimension of input '{name}' is not given and becomes 1")
    return notes


def _check_all_known(inputs: Mapping[str, Declared], shapes: Mapping[str, Shape], dims: Dims, model: str) -> None:
    """One error for all dimensions that are left, with the command that gives them."""
    notes, flags = [], []
    for name, type in inputs.items():
        if name in shapes:
            continue
        if type.dims is None:
            notes.append(f"input '{name}' is {type}: its rank is not known")
            flags.append(f"--shape {name}=1x...")
            continue
        open_dims = [d for axis, d in enumerate(type.dims) if axis and dims.value(d) is None]
        if not open_dims:
            continue
        notes.append(f"input '{name}' is {type}")
        unknown = [part for d in open_dims if isinstance(d, str) for part in _parts(d) if dims.value(part) is None]
        flags += [f"--dim {_quoted(part)}=N" for part in unknown]
        if None in open_dims:
            sizes = [
                str(v) if (v := dims.value(d)) is not None else "1" if not i else "N" for i, d in enumerate(type.dims)
            ]
            flags.append(f"--shape {name}={'x'.join(sizes)}")
    if notes:
        typed = " ".join(dict.fromkeys(flags))
        raise ModelError(
            "the sizes of some dimensions are not known",
            loc=Loc(model),
            notes=notes,
            hints=[f"give them, for example `monobloc build {model} {typed}`"],
        )


def _quoted(symbol: str) -> str:
    return symbol if all(c.isalnum() or c in "_.-" for c in symbol) else "'" + symbol + "'"


def _shape(name: str, type: Declared, dims: Dims) -> Shape:
    assert type.dims is not None
    sizes = [dims.value(d) for d in type.dims]
    try:
        return checked_shape([1 if s is None else s for s in sizes], f"input '{name}'")
    except ModelError as e:
        raise ModelError(e.message, hints=[f"give its shape with `--shape {name}=...`"]) from None


# -- symbols that are arithmetic -------------------------------------------------------------------
_OPS: dict[type, Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Div: operator.floordiv,
}


def _parsed(text: str) -> ast.expr | None:
    if len(text) > 200:
        return None
    try:
        return ast.parse(text.replace("floor", ""), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _names(text: str) -> set[str]:
    tree = _parsed(text)
    return set() if tree is None else {n.id for n in ast.walk(tree) if isinstance(n, ast.Name)}


def _parts(symbol: str) -> list[str]:
    """The symbols that one follows from, if it is arithmetic of some; or itself"""
    names = sorted(_names(symbol)) if isinstance(_parsed(symbol), ast.BinOp) else []
    return names or [symbol]


def arithmetic(text: str, values: Mapping[str, int]) -> int | None:
    """`2 * N`, `past + 1`, `floor(N / 2)` of known symbols; None for anything else"""
    tree = _parsed(text)
    return None if tree is None or isinstance(tree, ast.Constant) else _value(tree, values)


def _value(e: ast.expr, values: Mapping[str, int]) -> int | None:
    if isinstance(e, ast.Constant) and type(e.value) is int:
        return e.value
    if isinstance(e, ast.Name):
        return values.get(e.id)
    if not isinstance(e, ast.BinOp) or type(e.op) not in _OPS:
        return None
    a, b = _value(e.left, values), _value(e.right, values)
    if a is None or b is None or (b == 0 and isinstance(e.op, (ast.Div, ast.FloorDiv))):
        return None
    return _OPS[type(e.op)](a, b)
