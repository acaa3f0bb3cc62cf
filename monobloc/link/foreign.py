"""Kernel libraries of others in a link: which are needed, in which form, and whose mistakes are whose.

Only the libraries of rows that a program uses are linked. Their bitcode is translated (`bitcode`) with
the functions marked for inlining that the row asks for: a layer calls the generic entry with constants,
so after inlining only the path for its type and layout is left, and the rest of the library is dropped.
What the compiler says of a row's call or prototype is told at the row.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from monobloc.cache import Cache
from monobloc.codegen.lower import Lowered
from monobloc.errors import Diagnostics, ErrorList, LinkError, Loc, MonoblocError, ToolchainError, tell
from monobloc.kernels.foreign import Row
from monobloc.link import bitcode
from monobloc.link.objects import compile_runtime
from monobloc.options import Options

_ERROR = re.compile(r"^([^\s:][^:\n]*):(\d+):(?:\d+:)? (?:fatal )?error: (.*)$", re.MULTILINE)


def used_rows(programs: Sequence[Lowered], o: Options) -> list[Row]:
    """Rows that compute a layer, in the order of the rows."""
    graphs = [part for p in programs for x in p.versions for part in x.graph.tree()]
    used = {n.attrs["row"] for g in graphs for n in g.nodes if n.op == "Foreign"}
    return [r for k, r in enumerate(o.kernels) if k in used]


@dataclass(frozen=True)
class Kernels:
    """What a link takes of foreign libraries."""

    inputs: tuple[Path, ...] = ()
    bounded: bool = True  # whether the stack that they take can be told


def libraries(
    programs: Sequence[Lowered], o: Options, folder: Path, cache: Cache | None = None,
    user: Sequence[Path | str] = (), libs: Sequence[str] = (),
) -> Kernels:
    """Libraries of the rows in use as the linker takes them; a function that none defines is an error."""
    rows = used_rows(programs, o)
    _check_functions(rows, [p for p in user if isinstance(p, Path)], bool(libs))
    out: list[Path | str] = []
    unbounded = [f"{r.where}: the row names no library" for r in rows if not r.libraries]
    for k, path in enumerate(dict.fromkeys(p for r in rows for p in r.libraries)):
        inline = _inlined([r for r in rows if path in r.libraries])
        reader = bitcode.Reader(folder / f"kernels{k}", o, cache, inline, kernels=True)
        out += reader.inputs([path])
        unbounded += reader.unbounded
        tell(reader.notes)
    if unbounded:
        tell([f"the stack has no bound that can be told: {unbounded[0]}"])
    helpers = compile_runtime(o, folder, ["half.c"], cache, weak=True) if rows else ()
    return Kernels((*map(Path, out), *helpers), not unbounded)


def _inlined(rows: Sequence[Row]) -> bitcode.Inline | None:
    if any(r.inline == "all" for r in rows):
        return lambda _: True
    entries = {r.function for r in rows if r.inline == "entry"}
    return entries.__contains__ if entries else None


def _check_functions(rows: Sequence[Row], user: Sequence[Path], more: bool) -> None:
    """`more`: there are libraries that only the linker finds."""
    problems = Diagnostics()
    theirs = bitcode.defined([p for p in user if p.is_file()]) if rows else set()
    known = {p: bitcode.defined([p]) for p in {p for r in rows for p in r.libraries}}
    for r in rows:
        names = theirs.union(*(known[p] for p in r.libraries))
        if r.function in names or (more and not r.libraries):
            continue
        near = difflib.get_close_matches(r.function, sorted(names), 1)
        where = ", ".join(str(p) for p in r.libraries) or "what is linked (the row has no `library`)"
        problems.report(LinkError(f"`{r.function}` is not defined in {where}", loc=Loc(r.where),
                                  hints=[f"did you mean `{near[0]}`?"] if near else ()))
    problems.checkpoint()


# -- whose mistake it is ----------------------------------------------------------------------------------
@contextmanager
def explained(o: Options) -> Iterator[None]:
    """What goes wrong at a kernel row is told as the row's problem."""
    try:
        yield
    except (ToolchainError, ErrorList) as e:
        if not o.kernels:
            raise
        found = Diagnostics()
        for error in e.errors if isinstance(e, ErrorList) else [e]:
            for problem in _row_problems(error, o.kernels):
                found.report(problem)
        found.checkpoint()
        if isinstance(e, ToolchainError) and "undefined symbol" in e.output:
            e.hints = (*e.hints, "a kernel library that calls libc needs a program of yours, which brings one")
        raise


def _row_problems(e: MonoblocError, rows: Sequence[Row]) -> Iterator[LinkError]:
    for file, line, text in _ERROR.findall(e.output) if isinstance(e, ToolchainError) else ():
        for r in rows:
            if (r.file, r.line) == (file, int(line)):
                yield LinkError(f"the call of `{r.function}` does not compile: {text}", loc=Loc(r.where))
        included = next((r for r in rows if r.header is not None and Path(file).name == r.header.name), None)
        if included is not None:  # a header is told once, however many rows name it
            yield LinkError(f"{included.header}:{line} does not compile: {text}", loc=Loc(included.where))
