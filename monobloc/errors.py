"""Everything that can go wrong, and how it is told.

    MonoblocError
      ModelError        the model is wrong
      UnsupportedError  the model is right; we or the target cannot do it
      ToolchainError    clang, lld or ar failed: carries the command and what it printed
      LinkError         objects disagree, or are no objects
      InternalError     our bug

Messages start in lower case, name the thing, give both values, and end without a full stop. Notes
and hints stand on lines of their own. Problems are collected (`Diagnostics`) and reported together.
Only the command line turns errors into exit codes.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Loc:
    """A place in a model: file, node, operator (each may be empty)."""

    model: str = ""
    node: str = ""
    op: str = ""

    def __str__(self) -> str:
        where = f"{self.op} '{self.node}'" if self.op and self.node else self.op or self.node
        return ": ".join(p for p in (self.model, where) if p)


class MonoblocError(Exception):
    """Base. `str()` is the whole rendered message."""

    def __init__(
        self,
        message: str,
        *,
        loc: Loc | None = None,
        notes: Iterable[str] = (),
        hints: Iterable[str] = (),
    ) -> None:
        super().__init__(message)
        self.message, self.loc = message, loc
        self.notes, self.hints = tuple(notes), tuple(hints)

    def at(self, loc: Loc) -> MonoblocError:
        """The same error with a place, unless it has one."""
        self.loc = self.loc or loc
        return self

    def __str__(self) -> str:
        place = f"{self.loc}: " if self.loc and str(self.loc) else ""
        lines = [f"{place}{self.message}"]
        lines += [f"  note: {n}" for n in self.notes]
        lines += [f"  hint: {h}" for h in self.hints]
        return "\n".join(lines)


class ModelError(MonoblocError):
    """The model is wrong."""


class UnsupportedError(MonoblocError):
    """The model is right, but we or the target cannot do it."""


class LinkError(MonoblocError):
    """Objects disagree, or are not what they should be."""


@contextmanager
def naming(file: str) -> Iterator[None]:
    """What is wrong with objects within, with the file that they are in, unless a message begins with it."""
    try:
        yield
    except LinkError as e:
        if not e.message.startswith(file):
            e.message = f"{file}: {e.message}"
        raise


class InternalError(MonoblocError):
    """Our bug."""


class ToolchainError(MonoblocError):
    """A tool failed; `command` is what to run to see it again."""

    def __init__(
        self, message: str, *, command: str = "", output: str = "", **kw: Iterable[str]
    ) -> None:
        notes = [*kw.pop("notes", ())]
        if output:
            notes.append("it printed: " + output.strip()[:4000])
        if command:
            notes.append("command: " + command)
        super().__init__(message, notes=notes, hints=kw.pop("hints", ()))
        self.command, self.output = command, output


class ErrorList(MonoblocError):
    """Several errors at once, in the order they were found."""

    def __init__(self, errors: list[MonoblocError]) -> None:
        super().__init__(f"{len(errors)} errors")
        self.errors = errors

    def __str__(self) -> str:
        return "\n".join(map(str, self.errors))


@dataclass
class Diagnostics:
    """Collects errors; `checkpoint` stops with all of them."""

    errors: list[MonoblocError] = field(default_factory=list)
    _told: set[str] = field(default_factory=set)

    def report(self, error: MonoblocError) -> None:
        text = str(error)
        if text not in self._told:
            self._told.add(text)
            self.errors.append(error)

    def checkpoint(self) -> None:
        if len(self.errors) == 1:
            raise self.errors[0]
        if self.errors:
            raise ErrorList(list(self.errors))


def tell(notes: Iterable[str]) -> None:
    """What is no error, but should be known."""
    for n in notes:
        sys.stderr.write(f"note: {n}\n")
