"""The first look at a file: how it begins, and what an archive has in it. Nothing is trusted, nothing else is read."""

from __future__ import annotations

import io
import os
import re
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

HEAD = 1 << 12


@dataclass(frozen=True)
class Sniffed:
    """`head` are the first bytes, `members` the names in a zip file"""

    name: str = ""
    suffix: str = ""
    head: bytes = b""
    kind: Literal["file", "zip", "folder", "object"] = "file"
    members: tuple[str, ...] = ()


def is_exported(member: str) -> bool:
    """Whether a member of an archive is a program of `torch.export`: of today's format, or that before PyTorch 2.8"""
    return re.search(r"(^|/)models/[^/]+\.json$", member) is not None or member == "serialized_exported_program.json"


def sniff(model: Any) -> Sniffed:
    if isinstance(model, (bytes, bytearray, memoryview)):
        data = bytes(model[:HEAD])
        return _of("", "", data, io.BytesIO(bytes(model)) if data.startswith(b"PK\3\4") else None)
    if not isinstance(model, (str, os.PathLike)):
        return Sniffed(kind="object")
    path = Path(model)
    if path.is_dir():
        return Sniffed(path.name, path.suffix, kind="folder", members=tuple(sorted(p.name for p in path.iterdir())))
    try:
        with open(path, "rb") as f:
            return _of(path.name, path.suffix, f.read(HEAD), f)
    except OSError:  # the reader says why
        return Sniffed(path.name, path.suffix)


def _of(name: str, suffix: str, head: bytes, file: Any) -> Sniffed:
    if not head.startswith(b"PK\3\4"):
        return Sniffed(name, suffix, head)
    try:
        with zipfile.ZipFile(file) as z:
            return Sniffed(name, suffix, head, "zip", tuple(z.namelist()))
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError):
        return Sniffed(name, suffix, head, "zip")
