"""Arguments before they are parsed: response files and the linker's own spellings."""

from __future__ import annotations

import shlex
from pathlib import Path

from monobloc.cli import Usage

DEPTH = 10  # response files may name others
LINKER_WORDS = (
    "--start-group", "--end-group", "--whole-archive", "--no-whole-archive", "-(", "-)", "--as-needed",
    "--no-as-needed", "-Bstatic", "-Bdynamic", "--start-lib", "--end-lib", "--push-state", "--pop-state",
)


def expand(argv: list[str], depth: int = 0) -> list[str]:
    """`@file` becomes what the file says, as for every linker."""
    out: list[str] = []
    for word in argv:
        path = Path(word[1:])
        if not word.startswith("@") or len(word) == 1:
            out.append(word)
        elif depth >= DEPTH:
            raise Usage(f"`{word}`: response files name each other more than {DEPTH} deep")
        elif not path.is_file():
            raise Usage(f"cannot read the response file `{path}`")
        else:
            out += expand(shlex.split(path.read_text(encoding="utf-8"), comments=True), depth + 1)
    return out


def files_and_options(words: list[str]) -> list[Path | str]:
    """Files as paths; linker options that belong between them as they are."""
    for word in words:
        if word.startswith("-") and word not in LINKER_WORDS:
            raise Usage(f"no such option: {word}\n  hint: between files go {' '.join(LINKER_WORDS[:4])}")
    return [w if w in LINKER_WORDS else Path(w) for w in words]
