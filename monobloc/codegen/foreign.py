"""What a C file needs before it can call functions of foreign libraries: headers or prototypes."""

from __future__ import annotations

from collections.abc import Iterable

from monobloc.ir.graph import Node


def declarations(nodes: Iterable[Node]) -> list[str]:
    """Each once, in order; a prototype's mistakes are told at its row."""
    out: dict[str, None] = {}
    for n in nodes:
        if n.op == "Foreign":
            a = n.attrs
            text = str(a["declaration"])
            place = "" if text.startswith("#") else f'#line {a["line"]} "{a["file"]}"\n'
            if text not in (t.partition("\n")[2] if t.startswith("#line") else t for t in out):
                out[f"{place}{text}"] = None
    return list(out)
