"""External data: tensors whose bytes lie in files beside the model, read without trusting the
model.

What a model may name: a regular file in its own folder or below. Links are followed first and the
target is judged, so no `..`, absolute path or link leaves the folder; hard links are refused,
since they name foreign files without showing it. One layout of links is known and allowed: that
of the Hugging Face cache, where `snapshots/<revision>/x` points to `blobs/<hash>` of the same
repository. Offsets and lengths are checked against the file before anything is allocated; data are
read, not mapped, when somebody asks for them.
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass, field
from pathlib import Path

from monobloc.errors import ModelError
from monobloc.frontend import proto
from monobloc.frontend.pieces import State, read_at, state

KEYS = frozenset({"location", "offset", "length", "checksum"})


@dataclass(frozen=True)
class Span:
    """Bytes of a file"""

    path: Path
    seen: State
    offset: int
    length: int


@dataclass
class ExternalFiles:
    """The files of one model; each is judged once."""

    folder: Path | None
    _files: dict[str, tuple[Path, State]] = field(default_factory=dict)

    def span(self, t: proto.TensorProto, nbytes: int) -> Span:
        """Where the `nbytes` of a tensor lie; ModelError when that is nowhere allowed."""
        keys = _entries(t)
        if "location" not in keys:
            raise ModelError("external data without a location")
        path, seen = self._locate(keys["location"])
        offset = _number(keys, "offset", 0)
        length = _number(keys, "length", nbytes)
        if length != nbytes:
            raise ModelError(f"external data of {length} bytes for a tensor of {nbytes} bytes")
        if offset + length > seen[0]:
            raise ModelError(
                f"external data at {offset} of {length} bytes do not fit into {path.name}, which has {seen[0]} bytes"
            )
        return Span(path, seen, offset, length)

    def bytes(self, span: Span) -> memoryview:
        if not span.length:
            return memoryview(b"")
        fd = _open(span.path)
        try:
            return memoryview(read_at(fd, span.offset, span.length, span.seen, f"external data file {span.path.name}"))
        finally:
            os.close(fd)

    def _locate(self, location: str) -> tuple[Path, State]:
        if location not in self._files:
            self._files[location] = self._find(location)
        return self._files[location]

    def _find(self, location: str) -> tuple[Path, State]:
        if self.folder is None:
            raise ModelError(
                f"external data in '{location}', but the model was given without its folder",
                hints=["pass the model's path"],
            )
        path = allowed(self.folder, location)
        fd = _open(path, location)
        try:
            return path, state(fd)
        finally:
            os.close(fd)


def _entries(t: proto.TensorProto) -> dict[str, str]:
    out: dict[str, str] = {}
    for e in t.external_data:
        if e.key not in KEYS:
            raise ModelError(
                f"external data with an unknown key '{e.key}'",
                notes=[f"known: {', '.join(sorted(KEYS))}"],
            )
        if e.key in out:
            raise ModelError(f"external data with two entries '{e.key}'")
        out[e.key] = e.value
    return out


def _number(keys: dict[str, str], key: str, default: int) -> int:
    text = keys.get(key)
    if text is None:
        return default
    if not (text.isascii() and text.isdigit() and len(text) < 20):
        raise ModelError(f"external data with {key} '{text[:40]}', which is no number of bytes")
    return int(text)


def allowed(folder: Path, location: str) -> Path:
    """The real path behind a location, if it may be read."""
    parts = location.replace("\\", "/").split("/")
    if not location or "\0" in location or ".." in parts or parts[0] == "" or ":" in parts[0]:
        raise ModelError(
            f"external data location '{location}' leads out of the model's folder",
            notes=["only files in the model's folder and below are read"],
        )
    base = folder.resolve()
    path = folder / location
    try:
        real = path.resolve(strict=True)
    except (OSError, RuntimeError):
        raise ModelError(f"external data file '{location}' is missing", notes=[f"looked in {folder}"]) from None
    if real.is_relative_to(base) or _in_hub_cache(base, real):
        return real
    raise ModelError(
        f"external data file '{location}' is a link out of the model's folder",
        notes=["only files in the model's folder and below are read"],
        hints=["copy the file to where the link is"],
    )


def _in_hub_cache(base: Path, real: Path) -> bool:
    """`.../snapshots/<revision>[/...]` beside a real folder `blobs` that holds the file itself"""
    for snapshot in (base, *base.parents):
        if snapshot.parent.name == "snapshots":
            blobs = snapshot.parent.parent / "blobs"
            return real.parent == blobs and not blobs.is_symlink()
    return False


def _open(path: Path, location: str = "") -> int:
    """A descriptor of a plain file with one name; `path` has no links left."""
    name = location or path.name
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as e:
        raise ModelError(f"external data file '{name}' cannot be read: {e.strerror}") from None
    info = os.fstat(fd)
    if not stat.S_ISREG(info.st_mode):
        os.close(fd)
        raise ModelError(f"external data file '{name}' is no plain file")
    if info.st_nlink > 1:
        os.close(fd)
        raise ModelError(
            f"external data file '{name}' has {info.st_nlink} hard links",
            notes=["so it may be a file from elsewhere"],
            hints=["copy it: `cp FILE FILE.tmp && mv FILE.tmp FILE`"],
        )
    return fd
