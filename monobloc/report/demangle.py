"""C++ symbols as people write them, as far as names go: `ns::Class::method`, without parameters.

Only what ordinary code has is read (Itanium ABI, section 5.1): nested names, unnamed namespaces,
constructors, tables. Whatever else there is, templates above all, leaves the symbol as it is; a wrong name
would be worse than a long one.
"""

from __future__ import annotations

import re

_SPECIAL = {"_ZTV": "vtable of ", "_ZTI": "type info of ", "_ZTS": "type name of ", "_ZTT": "vtable table of "}
_NAME = re.compile(r"[1-9][0-9]*")
_KIND = re.compile(r"C[123]|D[0124]")


def readable(symbol: str) -> str:
    for prefix, what in _SPECIAL.items():
        if symbol.startswith(prefix):
            name, rest = _name(symbol[len(prefix) :])
            return what + name if name and not rest else symbol
    if not symbol.startswith("_Z"):
        return symbol
    name, _ = _name(symbol[2:].removeprefix("L"))
    return name or symbol


def _name(text: str) -> tuple[str, str]:
    """A name and what follows it; an empty name if there is something unknown in it."""
    if not text.startswith("N"):
        return _piece(text)
    text = text[1:].lstrip("rVKRO")
    parts: list[str] = []
    while text and not text.startswith("E"):
        if text.startswith("St"):
            parts, text = [*parts, "std"], text[2:]
            continue
        if (m := _KIND.match(text)) and parts:
            parts, text = [*parts, ("~" if m[0][0] == "D" else "") + parts[-1]], text[2:]
            continue
        part, text = _piece(text.removeprefix("L"))
        if not part:
            return "", text
        parts.append(part)
    return ("::".join(parts), text[1:]) if text else ("", "")


def _piece(text: str) -> tuple[str, str]:
    m = _NAME.match(text)
    if m is None or len(text) < m.end() + int(m[0]):
        return "", text
    end = m.end() + int(m[0])
    name, rest = text[m.end() : end], text[end:]
    if rest.startswith("I"):  # arguments of a template
        return "", text
    return "(unnamed)" if name.startswith("_GLOBAL__N") else name, rest
