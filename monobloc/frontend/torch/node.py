"""One ATen call as its reader sees it: arguments by the names of PyTorch's schema, tensors as values, sizes as numbers.

Readers write operators of the IR. Where ONNX has the same operator, they call its own reader (`onnx`), so that what an
operator needs is known in one place. Types are promoted by PyTorch's own rules, which it keeps with every node.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

import numpy as np
import torch

from monobloc.errors import Loc, ModelError, UnsupportedError
from monobloc.frontend.limits import Limits
from monobloc.frontend.node import OnnxNode
from monobloc.frontend.ragged import on_ragged
from monobloc.frontend.signature import opset_newest
from monobloc.frontend.sized_shapes import sized_shape
from monobloc.frontend.torch.tensors import dtype_of
from monobloc.ir.graph import Value
from monobloc.ir.symbolic import is_open
from monobloc.ir.types import DType
from monobloc.ops import onnx_reader
from monobloc.ops.build import Builder, cast_to
from monobloc.ops.movement import slice_of, transpose
from monobloc.ops.shape import reshape
from monobloc.ops.sized import Ragged

Number = int | float | bool
Results = Any  # a value or number, or a list of them as the operator gives them
Reader = Callable[["AtenNode"], Results]


def holds(args: Any, kind: type) -> bool:
    """Whether arguments have something of a kind among them, in lists too"""
    if isinstance(args, (list, tuple)):
        return any(holds(a, kind) for a in args)
    return any(holds(a, kind) for a in args.values()) if isinstance(args, Mapping) else isinstance(args, kind)


@dataclass(frozen=True)
class DataNumber:
    """A number that data decide: `value` has one element and no axes"""

    value: Value


@dataclass
class AtenNode:
    """See the module's text. `metas` are the arguments as PyTorch traced them, `made` what it says comes out;
    `needed` are the numbers of the results that are read, of an operator that has several; `limits` is what is known
    of the program's numbers."""

    op: str
    b: Builder
    loc: Loc
    args: Mapping[str, Any]
    metas: Mapping[str, Any]
    made: Any
    needed: frozenset[int] = frozenset()
    limits: Limits = field(default_factory=Limits)

    # -- arguments ----------------------------------------------------------------------------------
    def __getitem__(self, name: str) -> Any:
        return self.args[name]

    def get(self, name: str, default: Any = None) -> Any:
        return self.args.get(name, default)

    def x(self, name: str = "self") -> Value:
        """A tensor; a number becomes a constant"""
        v = self.args[name]
        return v if isinstance(v, Value) else self.scalar(v, self.dtype_of(name))

    def values(self, name: str) -> list[Value]:
        return [v for v in self.args[name] if isinstance(v, Value)]

    def ints(self, name: str, rank: int | None = None) -> list[int]:
        """A list of sizes; one number stands for all axes."""
        found = self.args[name]
        found = [found] if isinstance(found, (int, bool)) else list(found or ())
        if any(isinstance(v, (Value, DataNumber)) for v in found):
            self.unsupported(f"`{name}` that is data")
        return found * rank if rank is not None and len(found) == 1 else found

    def const(self, name: str) -> np.ndarray:
        v = self.x(name)
        if v.const is None:
            self.unsupported(f"`{name}` that is known only at run time")
        return v.const.array

    def number(self, name: str) -> Number:
        """A number that is known while compiling"""
        v = self.args[name]
        if isinstance(v, Value):
            return self.const(name).reshape(()).item()  # type: ignore[no-any-return]
        return v  # type: ignore[no-any-return]

    def axis(self, name: str = "dim", rank: int | None = None) -> int:
        return self.axis_of(self.args[name], self.x().type.rank if rank is None else rank)

    def axis_of(self, a: int, rank: int) -> int:
        rank = max(rank, 1)
        if not -rank <= a < rank:
            self.fail(f"axis {a} is out of range for a tensor of rank {rank}")
        return a % rank

    def axes(self, name: str = "dim") -> list[int]:
        """Axes named, or all of them"""
        rank = self.x().type.rank
        given = self.args.get(name)
        given = [given] if isinstance(given, int) else given
        if not given:
            return list(range(rank))
        return sorted({self.axis_of(a, rank) for a in given}) if rank else []

    # -- types --------------------------------------------------------------------------------------
    @property
    def out(self) -> DType:
        """The element type of the (first) result"""
        made = self.made[0] if isinstance(self.made, (list, tuple)) else self.made
        return dtype_of(made.dtype)

    def shape(self, k: int | None = None) -> list[Any]:
        """Sizes of the result as traced: numbers, and symbols where they are not fixed"""
        made = self.made if k is None else self.made[k]
        return list(made.shape)

    def dtype_of(self, name: str) -> DType:
        v = self.args[name]
        return v.dtype if isinstance(v, Value) else dtype_of(torch.result_type(self.metas[name], self.metas[name]))

    def promoted(self, *names: str, real: bool = False) -> DType:
        """The type that PyTorch computes in"""
        found = self.metas[names[0]]
        kinds = [found, *[self.metas[n] for n in names[1:]]]
        dtype = torch.result_type(kinds[0], kinds[-1])
        if real and not (dtype.is_floating_point or dtype.is_complex):
            dtype = torch.get_default_dtype()
        return dtype_of(dtype)

    def cast(self, v: Value, to: DType) -> Value:
        return cast_to(self.b, v, to)

    def scalar(self, v: Any, dtype: DType) -> Value:
        v = v.value if isinstance(v, DataNumber) else v
        if isinstance(v, Value):
            return self.cast(v, dtype)
        if isinstance(v, complex):
            self.unsupported("a complex number")
        if is_open(v):  # a size as a number: a run computes it, where it decides no shapes
            size = self.b.const(v)
            return self.cast(size if dtype.is_int else self.b.in_run(size) or size, dtype)
        if dtype.is_int and isinstance(v, int):  # as C wraps it
            bits = 8 * dtype.size
            v &= (1 << bits) - 1
            v -= (1 << bits) if dtype.is_signed and v >> (bits - 1) else 0
        return self.b.const(v, dtype)

    def pair(self, a: str = "self", b: str = "other", real: bool = False) -> tuple[Value, Value]:
        """Two operands in the type they are computed in"""
        dtype = self.promoted(a, b, real=real)
        return self.scalar(self.args[a], dtype), self.scalar(self.args[b], dtype)

    def floats(self, name: str = "self") -> Value:
        """A tensor, as floats where it holds integers"""
        return self.scalar(self.args[name], self.promoted(name, real=True))

    # -- what is written ----------------------------------------------------------------------------
    def one(self, op: str, *inputs: Value | None, **attrs: Any) -> Value:
        return self.b.one(op, *inputs, **attrs)

    def onnx(self, op: str, *inputs: Value | None, outputs: int = 1, domain: str = "", **attrs: Any) -> list[Value]:
        """What ONNX's operator of this name is read to; tensors may be of a size that data decide"""
        opset = opset_newest() if not domain else 1
        node = OnnxNode(op, domain, opset, self.b.name, list(inputs), attrs, outputs, self.loc)
        reader = onnx_reader(domain, op)
        assert reader is not None  # one of ours
        if any(isinstance(v, Ragged) for v in inputs):
            made = on_ragged(self.b, reader, node, self.limits)
        else:
            sized = sized_shape(self.b, node, self.limits)
            made = reader.from_onnx(self.b, node) if sized is None else sized
        return [v for v in made if v is not None]  # type: ignore[misc]

    def reshape(self, v: Value, shape: Sequence[int]) -> Value:
        return reshape(self.b, v, shape)

    def transpose(self, v: Value, perm: Sequence[int]) -> Value:
        return transpose(self.b, v, perm)

    def swap(self, v: Value, a: int = -1, b: int = -2) -> Value:
        """Two axes exchanged"""
        perm = list(range(v.type.rank))
        perm[a], perm[b] = perm[b], perm[a]
        return self.transpose(v, perm)

    def cut(self, v: Value, axis: int, first: int, count: int, step: int = 1) -> Value:
        return slice_of(self.b, v, [(first, step, count) if k == axis else (0, 1, d) for k, d in enumerate(v.shape)])

    def expand(self, v: Value, shape: Sequence[int]) -> Value:
        return v if list(v.shape) == list(shape) else self.b.one("Expand", v, shape=list(shape))

    def fold(self, op: str, v: Value, axes: Sequence[int], keep: bool = False) -> Value:
        """A reduction; over no axes it is still one"""
        return self.b.one(op, v, axes=list(axes), keepdims=int(keep))

    # -- errors -------------------------------------------------------------------------------------
    def fail(self, message: str) -> NoReturn:
        raise ModelError(message, loc=self.loc)

    def unsupported(self, message: str, hints: Sequence[str] = ()) -> NoReturn:
        raise UnsupportedError(f"{message} is not supported", loc=self.loc, hints=hints)
