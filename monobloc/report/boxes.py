"""Where the bytes of a file go: one row per thing, with the path of boxes it lies in.

The rows add up to the file. `path` goes from the outermost box inwards: a model, its layer, the symbol
or weight; the application, its file, the symbol; and so on. `kind` and `section` cut the same bytes in
other ways. What takes memory but no room in the file (zeroed data) is listed apart.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from monobloc.codegen.lower import Lowered
from monobloc.link.trace import ENTRY, Piece, Trace
from monobloc.object import elf
from monobloc.object.elf import Buffer, Elf
from monobloc.report.demangle import readable
from monobloc.report.extents import Extent, extents
from monobloc.report.owners import FILE, UNKNOWN, Names, Owner, owners, table_of

Row = dict[str, Any]
LTO_PARTS = (".monobloc", ".llvm.lto", ".llvmbc", ".llvmcmd")


@dataclass(frozen=True)
class Boxes:
    """Rows of a file, and what they were made from"""

    rows: list[Row]
    memory: list[Row]  # what only starts to exist when the file runs
    trace: Trace
    owners: list[Owner | None]  # of the trace's pieces


def boxes(data: Buffer, trace: Trace | None, programs: Sequence[Lowered]) -> Boxes:
    found, known = extents(data, trace)
    teller = Teller(known, programs, _executable(data))
    rows = _joined(teller.row(x) for x in found)
    zeros = _zeroed(data)
    memory = [teller.memory_row(k) for k, p in enumerate(known.pieces)
              if p.section in zeros and (p.symbol or p.name)]
    return Boxes(rows, sorted(memory, key=lambda r: (-r["bytes"], r["path"])), known, teller.owners)


def _executable(data: Buffer) -> set[str]:
    """Names of sections that hold code."""
    if not elf.is_elf(data):
        return set()
    return {s.name for s in Elf(data).sections if s.flags & elf.SHF_EXECINSTR}


def _zeroed(data: Buffer) -> set[str]:
    if not elf.is_elf(data):
        return set()
    return {s.name for s in Elf(data).sections if s.type == elf.SHT_NOBITS and s.flags & elf.SHF_WRITE
            and s.name != ".relro_padding"}


class Teller:
    """Makes rows; knows the owners of all pieces."""

    def __init__(self, trace: Trace, programs: Sequence[Lowered], code: set[str]) -> None:
        self.trace, self.code = trace, code
        self.names = Names(programs)
        self.owners = owners(trace, self.names)

    def row(self, x: Extent) -> Row:
        if x.piece is None:
            return _structure(x)
        p, o = self.trace.pieces[x.piece], self.owners[x.piece]
        row: Row = {"path": self.path(p, o), "kind": self.kind(p), "section": p.section, "bytes": x.size}
        if p.symbol:
            row["symbol"] = p.name
        if p.also:
            row["also"] = list(p.also)
        if o is not None and o.users:
            row["users"] = list(o.users)
        if p.kept_by is not None:
            row["chain"] = self.chain(p)
        return row

    def chain(self, p: Piece) -> list[str]:
        """Who refers to it, who refers to that, and so on up to what the loader or another file reaches."""
        out = []
        while p.kept_by is not None and p.kept_by != ENTRY:
            out.append(self.told(p.kept_by))
            p = self.trace.pieces[p.kept_by]
        return out

    def told(self, k: int) -> str:
        """A piece in a chain: layers by the names of the model."""
        p, o = self.trace.pieces[k], self.owners[k]
        if o is not None and o.model and p.name.startswith("layer_"):
            return f"layer {o.part} of {o.group}"
        return readable(p.name)

    def memory_row(self, k: int) -> Row:
        p = self.trace.pieces[k]
        return {"path": self.path(p, self.owners[k]), "section": p.section, "bytes": p.size,
                "symbol": p.name if p.symbol else ""}

    def path(self, p: Piece, o: Owner | None) -> list[str]:
        label = self.label(p)
        if o is None:
            table = table_of(p.section)
            return [FILE, table, p.section] if table else [UNKNOWN, p.section, label]
        if o.model and p.name.startswith("mb_mem_"):
            return [o.group, "memory", label]
        return [o.group, o.part or "interface", "code" if o.model and p.name.startswith("layer_") else label]

    def label(self, p: Piece) -> str:
        known = self.names.weights.get(p.name)
        if known:
            return " = ".join(dict.fromkeys(n for _, n, _ in known))
        if not p.symbol or p.name.startswith(".L"):
            return _what(p.name or p.section)
        return readable(p.name)

    def kind(self, p: Piece) -> str:
        if p.name in self.names.weights or p.name.startswith("mb_w_"):
            return "weights"
        if p.section in self.code or p.section.startswith(".text"):
            return "code"
        return "structure" if table_of(p.section) else "data"


def _what(section: str) -> str:
    """`.rodata.str1.1` and its like, in words."""
    if section.startswith((".rodata.str", ".L.str", ".L__const", ".Lstr")):
        return "strings"
    if section.startswith((".rodata.cst", ".LCPI")):
        return "constants in code"
    if section.startswith((".eh_frame", ".gcc_except")):
        return "unwind tables"
    return section


def _structure(x: Extent) -> Row:
    """What belongs to nobody but the file."""
    if x.section == "padding" or (x.structure and not _is_table(x)):
        return {"path": [FILE, "padding", x.section], "kind": "padding", "section": x.section, "bytes": x.size}
    if x.section.startswith(LTO_PARTS):
        what = "for linking as a whole"
    elif x.section.startswith((".rela.", ".rel.")):
        what = "relocations"
    elif x.section.startswith((".symtab", ".strtab", ".shstrtab", ".group", "archive index")):
        what = "symbol tables"
    elif x.section.startswith(".debug"):
        what = "debug information"
    else:
        what = table_of(x.section) or ("headers" if "header" in x.section else "other sections")
    return {"path": [FILE, what, x.section], "kind": "structure", "section": x.section, "bytes": x.size}


def _is_table(x: Extent) -> bool:
    return "header" in x.section or x.section == "archive index" or not x.section.startswith(
        (".text", ".rodata", ".data", ".lrodata", ".init", ".fini"))


def _joined(rows: Iterable[Row]) -> list[Row]:
    """Rows of one thing as one, in the order they first stand in the file."""
    out: dict[tuple[Any, ...], Row] = {}
    for row in rows:
        k = (tuple(row["path"]), row["kind"], row["section"], row.get("symbol"))
        if k in out:
            out[k]["bytes"] += row["bytes"]
        else:
            out[k] = row
    return list(out.values())


# -- sums ---------------------------------------------------------------------------------------------
def totals(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """The same bytes three ways, each largest first and adding up to the file."""
    return {
        "owner": _sums((r["path"][0], r["bytes"]) for r in rows),
        "kind": _sums((r["kind"], r["bytes"]) for r in rows),
        "section": _sums((r["section"], r["bytes"]) for r in rows),
    }


def _sums(pairs: Iterable[tuple[str, int]]) -> list[Row]:
    sums: dict[str, int] = {}
    for name, size in pairs:
        sums[name] = sums.get(name, 0) + size
    return [{"name": n, "bytes": s} for n, s in sorted(sums.items(), key=lambda x: (-x[1], x[0]))]
