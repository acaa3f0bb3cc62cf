"""Pieces of files, read when they are asked for, and only from a file that is still the one that was looked at.

Nothing is mapped: whoever shortens a file that we map kills us, and what was read of one stays in our memory.
"""

from __future__ import annotations

import os

from monobloc.errors import ModelError

State = tuple[int, ...]


def state(fd: int) -> State:
    """What tells a file from one that was written in its place: size, time, and which it is."""
    s = os.fstat(fd)
    return s.st_size, s.st_mtime_ns, s.st_ino, s.st_dev


def read_at(fd: int, at: int, size: int, seen: State, name: str) -> bytes:
    """`size` bytes at `at`; ModelError when the file is no longer as it was seen."""
    parts: list[bytes] = []
    while size and state(fd) == seen:
        parts.append(os.pread(fd, size, at))  # two gigabytes at most
        if not parts[-1]:
            break
        at, size = at + len(parts[-1]), size - len(parts[-1])
    if size or state(fd) != seen:
        raise ModelError(f"{name} changed while it was read", hints=["build again when it is complete"])
    return parts[0] if len(parts) == 1 else b"".join(parts)
