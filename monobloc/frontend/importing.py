"""What is asked of an import, what comes of it, and how it is told what went wrong: the same for every format."""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from monobloc.errors import InternalError, Loc, ModelError, MonoblocError
from monobloc.frontend import proto
from monobloc.frontend.dims import Declared, arithmetic
from monobloc.ir.dims import NamedShape, Sizes, fixed_dims, normal, related_dims
from monobloc.ir.graph import Graph
from monobloc.ir.strings import to_chars
from monobloc.ir.types import DType, Shape
from monobloc.options import STRING_ROOM
from monobloc.wildcards import expanded, filled, match

Model = str | os.PathLike[str] | bytes | memoryview | proto.ModelProto  # or an object of PyTorch's
# Whatever stands in a file, no reader has to trip over these: sizes, indices and numbers are what files spoil.
OURS = (AssertionError, AttributeError, NameError, NotImplementedError, TypeError)


@dataclass(frozen=True)
class Choices:
    """What the user decides of a model.

    `shapes` are of inputs, `dims` of symbols (several sizes: see `versions`), `bind` fixes inputs to values.
    `keep_outputs` names the outputs wanted, which may be any value of the graph. With `ignore_shapes` what the file
    declares of the shapes of inner values and outputs need not be right. `strings` is the room of each string of an
    input, in bytes. `max_trips` is how many iterations loops have at most, by their names; "": all of them.
    `max_values` is how large integers get that decide sizes, by the names of their tensors: one for all, or for each.
    `micro` asks for the integers of TFLite Micro. `states` are patterns of inputs that will be state, and of
    the outputs that they will keep, which are wanted beside those named.
    """

    shapes: Mapping[str, NamedShape] = field(default_factory=dict)
    dims: Mapping[str, Sizes] = field(default_factory=dict)
    bind: Mapping[str, Any] = field(default_factory=dict)  # arrays, once it is made
    keep_outputs: Sequence[str] | None = None
    ignore_shapes: bool = False
    strings: int = STRING_ROOM
    max_trips: Mapping[str, int] = field(default_factory=dict)
    max_values: Mapping[str, Sequence[int]] = field(default_factory=dict)
    micro: bool = False
    states: Sequence[tuple[str, str]] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "shapes", {k: tuple(d if isinstance(d, str) else int(d) for d in v)
                                            for k, v in self.shapes.items()})
        object.__setattr__(self, "dims", {k: normal(v) for k, v in self.dims.items()})
        object.__setattr__(self, "bind", {k: np.asarray(v) for k, v in self.bind.items()})


@dataclass(frozen=True)
class Imported:
    """A graph, what was assumed on the way, and facts of the file"""

    graph: Graph
    notes: list[str]
    dims: dict[str, int]
    opsets: dict[str, int]
    ir_version: int
    producer: str
    metadata: dict[str, str]
    more: tuple[Graph, ...] = ()  # further versions, at other sizes

    @property
    def graphs(self) -> tuple[Graph, ...]:
        """All versions; a model of fixed sizes has one."""
        return (self.graph, *self.more)


def fixed_shapes(choices: Choices) -> dict[str, Shape]:
    """The shapes given, their names as the sizes that `dims` has for them."""
    dims = fixed_dims(choices.dims)
    dims |= {k: n for k, text in related_dims(choices.dims).items() if (n := arithmetic(text, dims)) is not None}
    for name, shape in choices.shapes.items():
        for d in shape:
            if isinstance(d, str) and d not in dims:
                raise ModelError(f"the shape given for '{name}' names the size '{d}', which is not given",
                                 hints=[f"give it: `--dim {d}=4` or `--dim {d}=1..8`"])
    return {name: tuple(dims[d] if isinstance(d, str) else d for d in shape) for name, shape in choices.shapes.items()}


def given_dims(choices: Choices, known: Collection[Any]) -> tuple[dict[str, int], dict[str, str]]:
    """Dimensions of the model by size, and by what they follow from; without those that are only words of `--shape`."""
    words = {d for shape in choices.shapes.values() for d in shape}
    own = {k: n for k, n in choices.dims.items() if k in known or k not in words}
    return fixed_dims(own), related_dims(own)


def kept_outputs(choices: Choices, inputs: Iterable[str], outputs: Sequence[str], known: Collection[str],
                 report: Callable[[MonoblocError], None]) -> list[str]:
    """The names that `keep_outputs` means, patterns among them, and the outputs that inputs keep as state."""
    states = [filled(source, x.groups()) for pattern, source in choices.states for name in inputs
              if (x := match(pattern, name))]
    keep = dict.fromkeys([*expanded(choices.keep_outputs or (), outputs), *states])
    for name in keep:
        if name not in known or not name:
            report(unknown_name(f"has no value '{name}' to keep", name, outputs))
    return [n for n in keep if n in known]


class Told(MonoblocError):
    """What is wrong has been reported where it is wrong."""


# -- errors -------------------------------------------------------------------------------------------
@contextmanager
def guarded(model: Model) -> Iterator[None]:
    """Whatever goes wrong inside is told as an error of ours that names the file."""
    try:
        yield
    except Exception as e:
        error = told(e, Loc(Path(model).name if isinstance(model, (str, os.PathLike)) else "model"))
        raise error from error.__cause__


def told(e: Exception, loc: Loc) -> MonoblocError:
    """An exception as an error with a place: the model's, unless only a bug of ours raises its like."""
    if isinstance(e, MonoblocError):
        return e.at(loc)
    text = f"{type(e).__name__}: {str(e)[:200]}"
    error = (InternalError(f"stopped by a bug of ours: {text}", loc=loc) if isinstance(e, OURS)
             else ModelError(f"cannot be read: {text}", loc=loc))
    error.__cause__ = e
    return error


def unknown_name(message: str, name: str, known: Sequence[str]) -> ModelError:
    near = difflib.get_close_matches(name, known, 1)
    return ModelError(
        message,
        notes=[f"there are: {', '.join(known[:20]) or 'none'}"],
        hints=[f"did you mean '{near[0]}'?"] if near else [],
    )


# -- values -------------------------------------------------------------------------------------------
def as_declared(name: str, array: np.ndarray, t: Declared) -> np.ndarray:
    """A bound value in the input's type, when that keeps it as it is."""
    if t.dtype is DType.CHAR:
        chars = to_chars(array, f"the value of input '{name}'")
        return chars.reshape(1, -1) if not array.ndim and t.dims and len(t.dims) == 1 else chars
    out = t.dtype.hold(array)
    if out is None:
        given = f"{array.dtype}[{','.join(map(str, array.shape))}]"
        raise ModelError(f"input '{name}' is {t}, which cannot hold the given {given}")
    if out.ndim == 0 and t.dims and all(d == 1 or not isinstance(d, int) for d in t.dims):
        out = out.reshape((1,) * len(t.dims))
    return np.ascontiguousarray(out).reshape(out.shape)


def bound_values(
    bind: Mapping[str, Any], types: Mapping[str, Declared], notes: list[str], report: Callable[[MonoblocError], None]
) -> dict[str, np.ndarray]:
    """The values that inputs are bound to, in their types; every one that cannot be is reported."""
    out: dict[str, np.ndarray] = {}
    for name, array in bind.items():
        try:
            if name not in types:
                raise unknown_name(f"a value is given for '{name}', which is no input", name, list(types))
            out[name] = as_declared(name, array, types[name])
            notes.append(f"input '{name}' is bound and becomes a constant")
        except ModelError as e:
            report(e)
    return out
