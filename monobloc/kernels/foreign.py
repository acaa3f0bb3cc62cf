"""Kernel rows: which function of somebody else's library computes an operator, and how it is called.

A row is data in a TOML file (docs/foreign-kernels.md). It names one C function; what it says of
operands decides where it fits, and its call is the C text in which names become constants and pointers.
Everything that is wrong with a file is reported at once.
"""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from monobloc.errors import Diagnostics, Loc, ModelError
from monobloc.kernels.patterns import Operand, RowError, parse_expression, parse_operand

_CALL = re.compile(r"\s*([A-Za-z_]\w*)\s*\(.*\)\s*;?\s*", re.DOTALL)
_PLACE = re.compile(r"\{\{|\}\}|\{([^{}]*)\}")
_TABLE = re.compile(r"\s*\[\[\s*kernel\s*\]\]")
_WORDS = {"returns": ("status", "nothing"), "inline": ("all", "entry", "none")}
_FLAGS = ("threads", "strict", "imported")
_REQUIRED = ("op", "inputs", "outputs", "call")
KEYS = (*_REQUIRED, "when", "header", "prototype", "library", "scratch", *_WORDS, *_FLAGS)


@dataclass(frozen=True)
class Place:
    """A placeholder of a call: an expression, or a pointer."""

    text: str
    tree: ast.expr | None  # None: a pointer, or one of `scratch`, `tid`, `nt`


@dataclass(frozen=True, eq=False)
class Row:
    """One kernel of a foreign library."""

    where: str  # file and number, for messages
    file: str  # the file's name and the row's line in it, for the compiler's messages
    line: int
    ops: tuple[str, ...]
    function: str
    inputs: tuple[Operand, ...]
    outputs: tuple[Operand, ...]
    call: tuple[str | Place, ...]
    when: tuple[tuple[str, ast.expr], ...]
    scratch: ast.expr | None
    header: Path | None
    prototype: str
    libraries: tuple[Path, ...]
    returns: str
    inline: str
    threads: bool
    strict: bool
    imported: bool  # tried on the model as it was read, before anything is simplified

    @property
    def operands(self) -> tuple[Operand, ...]:
        return (*self.inputs, *self.outputs)

    @property
    def declaration(self) -> str:
        return f'#include "{self.header.name}"' if self.header else self.prototype


def header_folders(text: str, rows: Iterable[Row]) -> tuple[Path, ...]:
    """Where a C file finds the kernels' headers that it includes."""
    found = (r.header.parent for r in rows if r.header and r.declaration in text)
    return tuple(dict.fromkeys(found))


def read_rows(path: Path, ops: Collection[str]) -> tuple[Row, ...]:
    """All rows of a file."""
    try:
        text = path.read_text(encoding="utf-8")
        data = tomllib.loads(text)
    except OSError as e:
        raise ModelError(f"cannot read `{path}`: {(e.strerror or str(e)).lower()}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as e:
        raise ModelError(f"{path}: {str(e)[:1].lower()}{str(e)[1:]}") from None
    unknown = [k for k in data if k != "kernel"]
    if unknown:
        raise ModelError(f"{path}: unknown key `{unknown[0]}`", hints=["kernels are tables: [[kernel]]"])
    return rows_of(data.get("kernel", []), path, text, ops)


def rows_of(tables: Any, path: Path, text: str, ops: Collection[str]) -> tuple[Row, ...]:
    """Rows of the `[[kernel]]` tables of a file, whose text tells their lines."""
    problems, rows = Diagnostics(), []
    if not isinstance(tables, list) or not tables:
        raise ModelError(f"{path} holds no kernel", hints=["write one table `[[kernel]]` for each"])
    lines = [k for k, line in enumerate(text.splitlines(), 1) if _TABLE.match(line)]
    for k, table in enumerate(tables):
        line = lines[k] if len(lines) == len(tables) else 1
        where = f"{path}:{line}"
        found = _Reader(table, path, where, line, ops)
        for problem in found.problems:
            problems.report(ModelError(problem, loc=Loc(where)))
        if not found.problems:
            rows.append(found.row())
    problems.checkpoint()
    return tuple(rows)


class _Reader:
    """One table, read piece by piece; problems are collected."""

    def __init__(self, table: Any, path: Path, where: str, line: int, ops: Collection[str]) -> None:
        self.path, self.where, self.line = path, where, line
        self.table: Mapping[str, Any] = table if isinstance(table, dict) else {}
        self.problems: list[str] = [] if isinstance(table, dict) else ["`kernel` is no table"]
        self._keys()
        self.ops = self._texts("op")
        self.problems += [f"unknown operator `{o}`" for o in self.ops if o not in ops]
        self.inputs, self.outputs = self._operands("inputs"), self._operands("outputs")
        names = [o.name for o in (*self.inputs, *self.outputs)]
        self.problems += [f"two operands are called `{n}`" for n in sorted({n for n in names if names.count(n) > 1})]
        self.dims = {d for o in (*self.inputs, *self.outputs) for d in o.dim_names}
        self.names = set(names)
        self.problems += [f"`{n}` is both an operand and a size" for n in sorted(self.dims & self.names)]
        self.call = tuple(self._call())
        self.when = tuple((t, e) for t in self._texts("when") if (e := self._expression("when", t)) is not None)
        scratch = self.table.get("scratch")
        self.scratch = None if scratch is None else self._expression("scratch", str(scratch))
        self._declared()

    def _keys(self) -> None:
        for key, value in self.table.items():
            if key not in KEYS:
                self.problems.append(f"unknown key `{key}`; keys are {', '.join(KEYS)}")
            elif key in _FLAGS and not isinstance(value, bool):
                self.problems.append(f"`{key}` is true or false")
            elif key in _WORDS and value not in _WORDS[key]:
                self.problems.append(f"`{key}` is one of {', '.join(_WORDS[key])}")
        self.problems += [f"the row has no `{k}`" for k in _REQUIRED if k not in self.table]

    def _texts(self, key: str) -> tuple[str, ...]:
        value = self.table.get(key, [])
        items = value if isinstance(value, list) else [value]
        if not all(isinstance(i, str) for i in items):
            self.problems.append(f"`{key}` is a text or a list of texts")
            return ()
        return tuple(items)

    def _operands(self, key: str) -> tuple[Operand, ...]:
        out = []
        for text in self._texts(key):
            try:
                out.append(parse_operand(text))
            except RowError as e:
                self.problems.append(f"{key}: {e}")
        return tuple(out)

    def _expression(self, key: str, text: str) -> ast.expr | None:
        try:
            return parse_expression(text, self.dims, self.names)
        except RowError as e:
            self.problems.append(f"{key}: {e}")
            return None

    def _call(self) -> Iterator[str | Place]:
        text = self.table.get("call", "f()")
        if not isinstance(text, str) or not _CALL.fullmatch(text):
            self.problems.append("`call` is no call of a function: it looks like `f({a}, {m}, {y})`")
            return
        text, at = " ".join(text.split()).rstrip(";"), 0  # on one line, which the compiler can name
        for m in _PLACE.finditer(text):
            yield from _stray(text[at : m.start()], self.problems)
            at = m.end()
            if m[1] is None:
                yield m[0][0]
            elif (place := self._place(m[1].strip())) is not None:
                yield place
        yield from _stray(text[at:], self.problems)

    def _place(self, text: str) -> Place | None:
        if text in self.names:
            return Place(text, None)
        if text in ("scratch", "tid", "nt"):
            if text == "scratch" and "scratch" not in self.table:
                self.problems.append("call: `{scratch}` needs the key `scratch`, its bytes")
            if text != "scratch" and not self.table.get("threads"):
                self.problems.append(f"call: `{{{text}}}` needs `threads = true`")
            return Place(text, None)
        tree = self._expression("call", text)
        return None if tree is None else Place(text, tree)

    def _declared(self) -> None:
        """The function is declared by a header or a prototype, and the files named are there."""
        if ("header" in self.table) == ("prototype" in self.table):
            self.problems.append("a row has either a `header` or a `prototype` of its function")
        for key in ("header", "library"):
            for name in self._texts(key):
                if not (self.path.parent / name).is_file():
                    self.problems.append(f"{key}: cannot read `{self.path.parent / name}`: no such file")
        if self.table.get("threads") and not any(isinstance(p, Place) and p.text in ("tid", "nt") for p in self.call):
            self.problems.append("call: `threads = true` needs `{tid}` and `{nt}`: every thread calls the function")

    def row(self) -> Row:
        get, folder = self.table.get, self.path.parent
        m = _CALL.fullmatch(get("call", ""))
        assert m is not None
        prototype = " ".join(str(get("prototype", "")).split()).rstrip(";")
        return Row(
            where=self.where, file=self.path.name, line=self.line, ops=self.ops, function=m[1],
            inputs=self.inputs, outputs=self.outputs, call=self.call, when=self.when, scratch=self.scratch,
            header=folder / str(get("header")) if "header" in self.table else None,
            prototype=f"{prototype};" if prototype else "",
            libraries=tuple(folder / name for name in self._texts("library")),
            returns=get("returns", "status"), inline=get("inline", "all"), threads=get("threads", False),
            strict=get("strict", False), imported=get("imported", False),
        )  # fmt: skip


def _stray(text: str, problems: list[str]) -> Iterator[str]:
    if "{" in text or "}" in text:
        problems.append("call: a single brace; write `{{` for one in the C text")
    elif text:
        yield text
