"""Symbols and their sizes from lld's map: images carry no symbol table."""

from __future__ import annotations

import re
from typing import Any

_LINE = re.compile(r"\s*([0-9a-f]+)\s+[0-9a-f]+\s+([0-9a-f]+)\s+\d+( +)(.*)")
_IN, _SYMBOL = 9, 17  # columns by which lld indents input sections and symbols


def symbols_of_map(text: str) -> list[dict[str, Any]]:
    """Symbols that take room, largest first; those at one address (folded code) share an entry."""
    found: dict[tuple[str, int], dict[str, Any]] = {}
    section = ""
    for line in text.splitlines()[1:]:
        m = _LINE.fullmatch(line)
        if m is None:
            continue
        address, size, indent, name = int(m[1], 16), int(m[2], 16), len(m[3]), m[4]
        if indent < _IN:
            section = name
        elif indent >= _SYMBOL - 1 and size and not name.startswith("."):
            entry = found.setdefault((section, address), {"name": name, "bytes": size, "section": section})
            if entry["name"] != name:
                entry.setdefault("also", []).append(name)
    return sorted(found.values(), key=lambda s: (-s["bytes"], s["name"]))
