"""OpDef: everything the compiler knows of one operator, in one place; and the loader.

An operator is one class in one file of this folder. Listing the folder registers it; `files.py` says
where to look first, so that a model loads the files of its own operators and no others. A class says

    name, domain, since   which ONNX operator it is, and the opsets it reads
    from_onnx             how an ONNX node of any of these opsets becomes IR (default: as it stands)
    infer                 the output types
    ref                   what it computes, in numpy: oracle, constant folder and interpreter
    expr                  way down 1: an index-space expression (fusion is composition)
    contraction           way down 2: the family of register-tiled kernels ("matmul", "conv", ...)
    routine               way down 3: C statements written by the op itself
    view                  the output is the input's memory seen differently; no code at all
    tol, cases            tolerance against the reference, and test cases
    edges, moves          what it promises of NaN, infinities, overflow, indices, ties (docs/numerics.md)

Inside the compiler every shape is known, so what ONNX passes as shape inputs (axes, pads, sizes) is
an attribute here: the importer reads the constant.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any, ClassVar

import numpy as np

from monobloc.ir.expr import Fn
from monobloc.ir.graph import Node, Value
from monobloc.ir.types import TensorType
from monobloc.ops.contract import Edge


@dataclass(frozen=True)
class Tol:
    """|got - ref| <= atol + rtol * |ref|; exact for integers and for what only moves elements"""

    rtol: float = 1e-5
    atol: float = 1e-6


EXACT = Tol(0, 0)


@dataclass(frozen=True)
class Case:
    """One test: input arrays and attributes of a single node."""

    inputs: tuple[Any, ...]  # arrays and numpy scalars
    attrs: dict[str, Any]
    name: str = ""


class OpDef:
    """See the module's text. Instances have no state: one per class, made by the loader."""

    name: ClassVar[str] = ""
    domain: ClassVar[str] = ""
    since: ClassVar[int] = 1
    aliases: ClassVar[tuple[str, ...]] = ()  # further ONNX names that from_onnx reads
    tol: ClassVar[Tol] = Tol()
    elementwise: ClassVar[bool] = False  # output index i depends on input index i only (broadcasting)
    counts: ClassVar[bool] = False  # computes with sizes as with numbers
    contraction: ClassVar[str | None] = None
    splits: ClassVar[bool] = False  # a routine that parts its work by tid and nt
    edges: ClassVar[tuple[Edge, ...]] = ()  # promises of unusual operands: see `contract.py`
    example: ClassVar[Mapping[str, Any]] = {}  # the attributes of their examples, where an example says no other
    moves: ClassVar[bool] = False  # elements keep every bit: NaN, -0.0
    codes: ClassVar[bool] = False  # takes types that are codes: moves them, or knows what they stand for
    strings: ClassVar[str] = ""  # "moves" them, "compares" them, or has its "own" way (ops/strings.py)
    bundles: ClassVar[bool] = False  # takes sequences and optionals (ops/sequence.py)
    internal: ClassVar[bool] = False  # made by passes, never read from a model

    def from_onnx(self, b: Any, n: Any) -> Sequence[Value | None]:
        """IR values for the node's outputs. `b` emits nodes, `n` is the ONNX node (see frontend)."""
        return b.emit(self.name, n.inputs, n.attrs, outputs=n.n_outputs)

    def infer(self, ins: Sequence[Value | None], attrs: dict[str, Any]) -> list[TensorType]:
        raise NotImplementedError(self.name)

    def ref(self, attrs: dict[str, Any], *xs: np.ndarray | None) -> Any:
        """One array or a list of arrays."""
        raise NotImplementedError(self.name)

    def expr(self, n: Node, *xs: Fn | None) -> Fn | list[Fn]:
        """Function(s) from an output index to the element there; `xs` read the inputs."""
        raise NotImplementedError(self.name)

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        return iter(())

    # -- what follows from the above ------------------------------------------------------------------
    @property
    def has_expr(self) -> bool:
        return type(self).expr is not OpDef.expr

    @property
    def has_routine(self) -> bool:
        return hasattr(self, "routine")

    def run(self, attrs: dict[str, Any], xs: Sequence[np.ndarray | None], n: int) -> list[np.ndarray]:
        """`ref` with its result as a list of `n` arrays"""
        out = self.ref(attrs, *xs)
        out = list(out) if isinstance(out, (list, tuple)) else [out]
        return [np.asarray(y) for y in out[:n]]


@lru_cache(maxsize=1)
def registry() -> dict[str, OpDef]:
    """Every operator by name; the folder is the list."""
    out: dict[str, OpDef] = {}
    for info in sorted(pkgutil.iter_modules(__path__), key=lambda m: m.name):
        for name, op in _of_file(info.name).items():
            assert name not in out, f"operator {name} is defined twice"
            out[name] = op
    return out


@lru_cache(maxsize=1)
def onnx_names() -> dict[tuple[str, str], OpDef]:
    """(domain, ONNX name) -> the OpDef that reads it"""
    return {key: op for op in registry().values() for key in _read_by(op)}


def opdef(node: Node | str) -> OpDef:
    return _named(node if isinstance(node, str) else node.op)


@cache
def onnx_reader(domain: str, name: str) -> OpDef | None:
    """The OpDef that reads an ONNX operator; only the files that may define it are loaded."""
    near = (op for op in _near(name) if (domain, name) in _read_by(op))
    return next(near, None) or onnx_names().get((domain, name))


@cache
def _named(name: str) -> OpDef:
    near = (op for op in _near(name.rpartition("::")[2]) if op.name == name)
    return next(near, None) or registry()[name]


def _near(short: str) -> Iterator[OpDef]:
    """What is in the files that `files.py` names; who does not find what he looks for there lists the folder."""
    for file in _files().get(short, ()):
        with suppress(ModuleNotFoundError):
            yield from _of_file(file).values()


@lru_cache(maxsize=1)
def _files() -> dict[str, list[str]]:
    """The files for each name without its domain"""
    from monobloc.ops.files import NAMES

    out: dict[str, list[str]] = {}
    for file, names in NAMES.items():
        for name in names.split():
            out.setdefault(name, []).append(file)
    return out


@cache
def _of_file(file: str) -> dict[str, OpDef]:
    """The operators of one file of this folder, one instance each"""
    module = importlib.import_module(f"{__name__}.{file}")
    own = (c for c in vars(module).values()
           if isinstance(c, type) and issubclass(c, OpDef) and c.__module__ == module.__name__ and c.name)
    return {c.name: c() for c in own}


def _read_by(op: OpDef) -> list[tuple[str, str]]:
    """Domain and name of what it reads"""
    split = [name.rpartition("::") for name in (() if op.internal else (op.name, *op.aliases))]
    return [(domain or op.domain, short) for domain, _, short in split]
