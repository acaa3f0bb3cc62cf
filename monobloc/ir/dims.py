"""Dimensions that a program takes when it runs, and the sizes each may have.

A model that is compiled for several sizes is several graphs of one interface, its *versions*. Every graph
carries all dimensions of the program (`Graph.dims`) and its own sizes of them (`Graph.at`); whoever runs
the program sets the dimensions, and the version that has these sizes answers.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import cast

from monobloc.errors import ModelError
from monobloc.ir.symbolic import is_open

MAX_SIZES = 1 << 16
MAX_VERSIONS = 64
MAX_OPEN = 6  # versions of one region of sizes that stay open
SHOWN = 8  # conditions that an error names
Sizes = int | tuple[int, ...] | str  # one value, those that a run may choose from, or what it follows from
NamedShape = tuple[int | str, ...]  # sizes, or names of dimensions


@dataclass(frozen=True)
class Dim:
    """A dimension by the model's name for it, and its sizes, smallest first."""

    name: str
    sizes: tuple[int, ...]

    @property
    def most(self) -> int:
        return self.sizes[-1]

    @property
    def step(self) -> int:
        """What lies between its sizes, all the same; 0 where it is not"""
        steps = {b - a for a, b in pairwise(self.sizes)}
        return steps.pop() if len(steps) == 1 else 0

    @property
    def is_range(self) -> bool:
        """Three sizes or more in a row, or more in equal steps than an image has versions of one model's ranges"""
        return len(self.sizes) > 2 and self.step == 1 or len(self.sizes) > MAX_OPEN and self.step > 1

    def __str__(self) -> str:
        if not self.is_range:
            return ",".join(map(str, self.sizes))
        return f"{self.sizes[0]}..{self.most}" + (f":{self.step}" if self.step > 1 else "")

    def condition_of(self, n: str) -> str:
        """C text: whether `n` is one of its sizes"""
        if self.is_range:
            even = f" && ({n} - {self.sizes[0]}) % {self.step} == 0" if self.step > 1 else ""
            return f"{n} >= {self.sizes[0]} && {n} <= {self.most}{even}"
        return " || ".join(f"{n} == {s}" for s in self.sizes)


def parse_sizes(text: str) -> Sizes | None:
    """`4`, `1..8`, `32..640:32`, `1,4,8`, or arithmetic of other dimensions, `past+seq`; None for anything else."""
    if re.fullmatch(r"\d{1,9}", text):
        return int(text)
    if m := re.fullmatch(r"(\d{1,9})\.\.(\d{1,9})(?::([1-9]\d{0,8}))?", text):
        return normal(range(int(m[1]), int(m[2]) + 1, int(m[3] or 1))) if int(m[1]) <= int(m[2]) else None
    if re.fullmatch(r"\d{1,9}(,\d{1,9})+", text):
        return normal(map(int, text.split(",")))
    return text if re.fullmatch(r"[\w\s()+*/.-]*[A-Za-z_][\w\s()+*/.-]*", text) and ".." not in text else None


def normal(sizes: int | str | Iterable[int]) -> Sizes:
    """Sizes as they are kept: in order and each once, a single one as a number."""
    if isinstance(sizes, (int, str)) or is_open(cast(int, sizes)):
        return cast(int, sizes)
    if isinstance(sizes, range) and len(sizes) > MAX_SIZES:
        raise ModelError(f"{len(sizes)} sizes are given for one dimension; at most {MAX_SIZES} can be")
    out = tuple(sorted({int(s) for s in sizes}))
    if not out or out[0] < 0:
        raise ModelError("a dimension needs at least one size, and none is negative")
    return out[0] if len(out) == 1 else out


def open_dims(given: Mapping[str, Sizes]) -> tuple[Dim, ...]:
    """The dimensions that a run chooses, in the order given."""
    return tuple(Dim(name, sizes) for name, sizes in given.items() if isinstance(sizes, tuple))


def fixed_dims(given: Mapping[str, Sizes]) -> dict[str, int]:
    """The dimensions that are given as one size"""
    return {name: size for name, size in given.items() if not isinstance(size, (tuple, str))}


def related_dims(given: Mapping[str, Sizes]) -> dict[str, str]:
    """The dimensions that follow from others, and how"""
    return {name: size for name, size in given.items() if isinstance(size, str)}


def symbols_of(dims: Sequence[Dim]) -> list[str]:
    """What dimensions are called in the sizes of graphs and in C."""
    return [f"dim{k}" for k in range(len(dims))]


def is_dim(fixed: Mapping[str, int], size: int, symbol: str) -> bool:
    """Whether a size is that dimension, in a version where those of `fixed` have one size."""
    return str(size) == f"({symbol})" if is_open(size) else fixed.get(symbol) == size


def named(condition: str, dims: Sequence[Dim]) -> str:
    """A guard in the user's words"""
    return re.sub(r"\bdim(\d+)\b", lambda m: dims[int(m[1])].name, condition)


def told(at: Mapping[str, int]) -> str:
    """`batch=4, n=8`"""
    return ", ".join(f"{k}={v}" for k, v in at.items())
