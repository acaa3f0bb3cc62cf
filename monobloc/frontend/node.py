"""One ONNX node as an operator's `from_onnx` sees it: inputs are values, attributes are plain
Python.

The node knows where it stands, so that every error it raises names the model's file, the node and
the operator. Asking for a constant that is none says which input of the model decides it, and how
to bind it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np

from monobloc.errors import Loc, ModelError, UnsupportedError
from monobloc.frontend.proto import TensorProto
from monobloc.frontend.signature import Signature
from monobloc.frontend.tensors import dtype_of
from monobloc.ir.graph import Value
from monobloc.ir.symbolic import whole
from monobloc.ir.types import DType

_NEEDED: Any = object()


@dataclass(frozen=True)
class OnnxNode:
    """See the module's text. `inputs` ends with the last present; `opset` is that of `domain`."""

    op: str
    domain: str
    opset: int
    name: str
    inputs: list[Value | None]
    attrs: dict[str, Any]
    n_outputs: int
    loc: Loc
    signature: Signature | None = None

    # -- inputs ------------------------------------------------------------------------------------
    def input(self, i: int) -> Value | None:
        """Input i, None when it is absent"""
        return self.inputs[i] if i < len(self.inputs) else None

    def const(self, i: int, what: str = "") -> np.ndarray:
        """The data of input i, which must be known while compiling."""
        v = self.input(i)
        what = what or self._label(i)
        if v is None:
            self.fail(f"input {i} ({what}) is missing")
        if v.const is None:
            self._not_constant(v, i, what)
        return v.const.array

    def const_or(self, i: int, default: Any, what: str = "") -> Any:
        """The data of input i, or `default` when it is absent"""
        return default if self.input(i) is None else self.const(i, what)

    def ints(self, where: str | int, default: Sequence[int] | None = _NEEDED) -> Any:
        """A list of integers from an attribute (by name) or a constant input (by position)."""
        if isinstance(where, int):
            if self.input(where) is None:
                return self._default(default, f"input {where} ({self._label(where)})")
            data = self.const(where)
            if data.dtype.kind not in "iuO":
                self.fail(f"input {where} ({self._label(where)}) holds {data.dtype}, not integers")
            return [whole(x) for x in data.ravel()]
        if where not in self.attrs:
            return self._default(default, f"the attribute `{where}`")
        x = self.attrs[where]
        if isinstance(x, int):
            return [x]
        if not isinstance(x, list) or not all(isinstance(i, int) for i in x):
            self.fail(f"the attribute `{where}` is {x!r}, not integers")
        return list(x)

    # -- attributes --------------------------------------------------------------------------------
    def dtype_attr(self, name: str, default: DType | None = None) -> DType:
        """The element type an attribute stands for: a number, before opset 6 its name"""
        x = self.attrs.get(name)
        x = TensorProto.DataType.Value(x) if x in TensorProto.DataType.keys() else x  # noqa: SIM118 - no mapping
        if x is None:
            if default is not None:
                return default
            self.fail(f"the attribute `{name}` is missing")
        if not isinstance(x, int):
            self.fail(f"the attribute `{name}` is {x!r}, not an element type")
        try:
            return dtype_of(x, f"the attribute `{name}`")
        except (ModelError, UnsupportedError) as e:
            raise e.at(self.loc) from None

    # -- errors ------------------------------------------------------------------------------------
    def fail(self, message: str, hint: str = "", note: str = "") -> NoReturn:
        """The model is wrong here."""
        raise ModelError(message, loc=self.loc, notes=[note] if note else [], hints=[hint] if hint else [])

    def unsupported(self, message: str, hint: str = "", note: str = "") -> NoReturn:
        """The model is right, but this is not done yet."""
        notes, hints = [note] if note else [], [hint] if hint else []
        raise UnsupportedError(f"{message} is not supported", loc=self.loc, notes=notes, hints=hints)

    def _label(self, i: int) -> str:
        return self.signature.input_name(i) if self.signature else f"number {i}"

    def _default(self, default: Sequence[int] | None, what: str) -> list[int] | None:
        if default is _NEEDED:
            self.fail(f"{what} is missing")
        return None if default is None else list(default)

    def _sources(self, v: Value) -> list[str]:
        """Graph inputs behind `v`, and behind what looks like a shape beside it"""
        beside = [x for x in self.inputs[1:] if isinstance(x, Value) and x.dtype.is_int and x.type.rank < 2]
        found = [s for x in (v, *beside) for s in graph_inputs_behind(x)]
        return list(dict.fromkeys(found))

    def _not_constant(self, v: Value, i: int, what: str) -> NoReturn:
        sources = self._sources(v)
        names = ", ".join(f"'{s}'" for s in sources)
        binds = " ".join(f"--bind {s}=..." for s in sources)
        raise UnsupportedError(
            f"input {i} ({what}) is '{v.origin or v.name}', which is known only at run time",
            loc=self.loc,
            notes=[f"it depends on the model's input {names}"] if names else [],
            hints=[f"fix that input while compiling: `{binds}`"] if names else [],
        )


def graph_inputs_behind(v: Value, limit: int = 3) -> list[str]:
    """Names of the graph inputs a value is computed from, nearest first"""
    seen, queue, out = {v}, [v], []
    for x in queue:
        if x.producer is None:
            out += [x.origin] if x.const is None and x.origin else []  # a loop's own values have none
        for y in x.producer.used if x.producer else ():
            if y not in seen:
                seen.add(y)
                queue.append(y)
    return out[:limit]
