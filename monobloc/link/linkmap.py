"""Which file every part of an image came from, read from lld's map: an image itself no longer says."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

_LINE = re.compile(r"\s*([0-9a-f]+)\s+[0-9a-f]+\s+([0-9a-f]+)\s+\d+( +)(.*)")
_INPUT = re.compile(r"(.*):\((.*)\)")
_IN, _SYMBOL = 9, 17  # columns by which lld indents input sections and symbols


@dataclass(frozen=True)
class Contribution:
    """What one file put into a section of the image; `nth` tells sections of one name apart"""

    section: str
    nth: int
    address: int
    size: int
    file: str
    input: str


def contributions(text: str) -> Iterator[Contribution]:
    section, seen = "", dict[str, int]()
    for line in text.splitlines()[1:]:
        m = _LINE.fullmatch(line)
        if m is None:
            continue
        address, size, indent, name = int(m[1], 16), int(m[2], 16), len(m[3]), m[4]
        if indent < _IN:
            section = name
            seen[section] = seen.get(section, -1) + 1
        elif indent < _SYMBOL - 1 and size and (found := _INPUT.fullmatch(name)):
            yield Contribution(section, seen[section], address, size, plain_file(found[1]), found[2])


def plain_file(path: str) -> str:
    """`app.o` or `libdsp.a(fir.o)`, whatever folder it lay in and whatever LTO made of it.

    ThinLTO compiles `dir/app.o` into `out.lto.app.o` and `libdsp.a(fir.o at 100)` likewise; what was
    compiled from a source on the way goes by the source: `app.c`, not `app.c.o`.
    """
    if path.startswith("<"):
        return ""
    head, bracket, member = path.partition("(")
    name = head.rpartition("/")[2] + re.sub(r" at \d+\)(\.o)?$", ")", bracket + member)
    if name.startswith("out.lto."):
        name = "" if name == "out.lto.o" else name.removeprefix("out.lto.")
    return re.sub(r"(\.(?:c|cc|cpp|cxx|C|S|s))\.o(?=\)?$)", r"\1", name) if "." in name else name
