"""Which operators models may hold, of which opsets and with which element types: what the importer would accept.

Nothing is listed by hand: ONNX's schemas say what an operator may be, OpDefs what is read of that (`codes`).
docs/operators.md prints it; tests import a node of every operator, type and version that it names.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from onnx import defs

from monobloc.frontend.functions import has_schema_body
from monobloc.frontend.signature import Signature, opset_newest, signature, type_name
from monobloc.ir.types import DType
from monobloc.ops import OpDef, onnx_names


@dataclass(frozen=True)
class Coverage:
    """One ONNX operator: the versions that are read, and the types of what it is named after."""

    domain: str
    name: str
    versions: tuple[int, ...]  # opsets in which it changed; the last one holds until today
    types: tuple[DType, ...]
    reader: OpDef | None  # None: ONNX's own definition by other operators is used

    @property
    def title(self) -> str:
        return f"{self.domain}::{self.name}" if self.domain else self.name


@lru_cache(maxsize=1)
def coverage() -> tuple[Coverage, ...]:
    """Everything that is read, in order of names."""
    readers = onnx_names()
    bodies = {("", s.name): None for s in defs.get_all_schemas() if s.domain == "" and ("", s.name) not in readers
              and has_schema_body(s.name, "", opset_newest()) and not s.deprecated}
    return tuple(covered(domain, name, op) for (domain, name), op in sorted((readers | bodies).items()))


def covered(domain: str, name: str, reader: OpDef | None) -> Coverage:
    newest = signature(name, domain, opset_newest())
    types = accepted(newest, reader) if newest is not None else ()
    return Coverage(domain, name, _versions(domain, name), types, reader)


def _versions(domain: str, name: str) -> tuple[int, ...]:
    known = {s.since_version for s in defs.get_all_schemas_with_history() if (s.domain, s.name) == (domain, name)}
    return tuple(sorted(known)) or (1,)


def accepted(s: Signature, reader: OpDef | None) -> tuple[DType, ...]:
    """Types of the first input whose type may vary, as far as the compiler has them."""
    params = [p for p in s.params if p.type in s.types] or list(s.params)
    if not params:
        return ()
    allowed = s.types.get(params[0].type) or frozenset({params[0].type})
    strings = reader is not None and reader.strings
    codes = reader is not None and reader.codes
    left_out = {d for d in DType if d is DType.CHAR and not strings or d.is_code and not codes}
    return tuple(d for d in DType if type_name(d) in allowed and d not in left_out)
