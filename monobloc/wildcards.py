"""Names with `*`, which stands for anything: `past_key_values.*.key`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence


def match(pattern: str, name: str) -> re.Match[str] | None:
    """What every `*` of the pattern stands for, if this is such a name"""
    return re.fullmatch("(.*)".join(map(re.escape, pattern.split("*"))), name, re.S)


def filled(pattern: str, parts: Sequence[str]) -> str:
    """The pattern with what each `*` stands for"""
    first, *rest = pattern.split("*")
    return first + "".join(part + text for part, text in zip(parts, rest, strict=False))


def expanded(names: Iterable[str], known: Sequence[str]) -> list[str]:
    """Every pattern as the names it stands for, in their order; one that stands for none stays as it is."""
    out: dict[str, None] = {}
    for name in names:
        found = [k for k in known if match(name, k)] if "*" in name else []
        out |= dict.fromkeys(found or [name])
    return list(out)
