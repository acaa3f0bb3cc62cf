"""LLVM's remarks in the words of models: functions become layers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from monobloc.link.remarks import BY_HAND, Remark
from monobloc.link.trace import Trace
from monobloc.report.demangle import readable
from monobloc.report.owners import Owner

Row = dict[str, Any]
_ELSEWHERE = "its definition is unavailable"


def told(found: Sequence[Remark], trace: Trace, known: Sequence[Owner | None]) -> dict[str, list[Row]]:
    """What was inlined into what and what not, and for every function with loops what became of them.

    `known`: the owners of the trace's pieces.
    """
    where = places(trace, known)
    ours = {p.name for p, o in zip(trace.pieces, known, strict=True) if o is not None and o.model}
    out: dict[str, list[Row]] = {"inlined": [], "not_inlined": [], "loops": []}
    loops: dict[str, Row] = {}
    decided = {(r.function, r.callee) for r in found if r.detail != _ELSEWHERE}
    for r in found:
        if r.detail == _ELSEWHERE and (r.function, r.callee) in decided:
            continue  # one module saw a declaration only, another the code
        if r.kind == "not inlined" and "noinline" in r.detail and r.callee in ours:
            continue  # a kernel is one function, so that its registers are its own and layers share it
        function = _told(r.function, where)
        if r.kind in ("inlined", "not inlined"):
            row: Row = {"callee": readable(r.callee), "into": function, "count": r.count}
            if r.detail:
                row["reason"] = r.detail
            out[r.kind.replace(" ", "_")].append(row)
        else:
            row = loops.setdefault(r.function, {"function": function, "vectorized": 0, "by_hand": False, "width": {},
                                                "not": {}})
            if r.detail == BY_HAND:
                row["by_hand"] = True
            elif r.kind == "vectorized":
                row["vectorized"] += r.count
                row["width"][r.detail] = row["width"].get(r.detail, 0) + r.count
            else:
                row["not"][r.detail] = row["not"].get(r.detail, 0) + r.count
    out["loops"] = list(loops.values())
    return out


def places(trace: Trace, known: Sequence[Owner | None]) -> dict[str, str]:
    """Symbol -> in words where it belongs, of all symbols that a piece has."""
    out: dict[str, str] = {}
    for p, o in zip(trace.pieces, known, strict=True):
        if p.symbol and o is not None:
            out.setdefault(p.name, f"{o.group}: {o.part}" if o.part else o.group)
    return out


def _told(symbol: str, where: dict[str, str]) -> str:
    """`kws: conv1` for a layer, `gemm0_k_tile1 (kws: conv1)` for a kernel's part, else the symbol."""
    place = where.get(symbol)
    if place is None:
        return readable(symbol)
    return place if symbol.startswith("layer_") else f"{readable(symbol)} ({place})"
