"""A content-addressed store of build results.

A key is the SHA-256 of everything that decides a result: sources, options, tool versions. An entry
is one file: a header with the digest of its key and content, then the content. It is written beside its
place and renamed, so two processes at once, or a crash, leave a whole entry or none; a damaged one
is a miss. Eviction drops the entries that were used longest ago.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO

_MAGIC = b"monobloc-cache-2\n"
_HEADER = len(_MAGIC) + 64 + 1
_PIECE = 1 << 20  # of files that are copied


def key(**parts: Any) -> str:
    """The key of a result that these parts (JSON values, bytes, tuples) determine."""
    return hashlib.sha256(json.dumps(_plain(parts), sort_keys=True).encode()).hexdigest()


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return {"sha256": hashlib.sha256(value).hexdigest()}
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    if value is None or isinstance(value, str | int | float | bool):
        return value
    raise TypeError(f"a cache key cannot hold {type(value).__name__}")


def file_digest(path: Path) -> str:
    with open(path, "rb") as f:
        return hashlib.file_digest(f, "sha256").hexdigest()


def file_state(path: str) -> list[int]:
    """What changes when a file is replaced or written; nothing for a file that is not there."""
    try:
        s = os.stat(path)
    except OSError:
        return []
    return [s.st_size, s.st_mtime_ns, s.st_ino, s.st_dev]


def tree_digest(folder: Path) -> str:
    """One digest of the names and contents of all files below a folder."""
    files = sorted(p for p in folder.rglob("*") if p.is_file())
    return key(files=[(p.relative_to(folder).as_posix(), file_digest(p)) for p in files])


def default_root(env: Mapping[str, str], platform: str = "linux") -> Path:
    """The user's cache folder, by the custom of the platform."""
    home = Path(env.get("HOME") or tempfile.gettempdir())
    if platform == "darwin":
        return home / "Library/Caches/monobloc"
    xdg = env.get("XDG_CACHE_HOME", "")
    return (Path(xdg) if xdg.startswith("/") else home / ".cache") / "monobloc"


@dataclass(frozen=True)
class Cache:
    root: Path
    max_bytes: int = 4 << 30

    def path(self, k: str) -> Path:
        return self.root / "entries" / k[:2] / k

    def folder(self, name: str) -> Path:
        """A folder beside the entries for a tool that keeps its own cache."""
        folder = self.root / name
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def get(self, k: str) -> bytes | None:
        """The content stored under the key, or None."""
        try:
            data = self.path(k).read_bytes()
        except OSError:
            return None
        body = memoryview(data)[_HEADER:]
        if data[: len(_MAGIC)] != _MAGIC or _digest(data) != _sum(k, [body]):
            self._drop(k)
            return None
        with suppress(OSError):
            os.utime(self.path(k))  # marks it as recently used
        return bytes(body)

    def put(self, k: str, data: bytes) -> None:
        """Stores the content. A full disk or a read-only folder costs the cache, not the build."""
        head = _MAGIC + _sum(k, [data]).encode() + b"\n"
        with suppress(OSError):
            write_atomic(self.path(k), [head, data])

    def get_file(self, k: str, out: Path) -> bool:
        """Writes the stored content to `out`; False if there is none."""
        with ExitStack() as stack:
            try:
                f = stack.enter_context(open(self.path(k), "rb"))
                head = f.read(_HEADER)
                good = head[: len(_MAGIC)] == _MAGIC and _digest(head) == _sum(k, _pieces(f))
            except OSError:
                return False
            if not good:
                self._drop(k)
                return False
            f.seek(_HEADER)
            write_atomic(out, _pieces(f))
        with suppress(OSError):
            os.utime(self.path(k))  # marks it as recently used
        return True

    def put_file(self, k: str, path: Path) -> None:
        """Stores a file's content, as `put`; never in memory as a whole."""
        with open(path, "rb") as f:
            digest = _sum(k, _pieces(f))
            f.seek(0)
            with suppress(OSError):
                write_atomic(self.path(k), chain([_MAGIC + digest.encode() + b"\n"], _pieces(f)))

    def _drop(self, k: str) -> None:
        with suppress(OSError):
            self.path(k).unlink()

    def collect(self) -> int:
        """Removes the least recently used entries until the rest fits; gives the bytes removed."""
        found = sorted(self._entries())
        excess, removed = sum(size for _, size, _ in found) - self.max_bytes, 0
        for _, size, path in found:
            if removed >= excess:
                break
            with suppress(OSError):
                path.unlink()
                removed += size
        return removed

    def _entries(self) -> list[tuple[float, int, Path]]:
        out = []
        for p in (self.root / "entries").glob("*/*"):
            with suppress(OSError):  # another process may have removed it
                s = p.stat()
                out.append((s.st_mtime, s.st_size, p))
        return out

    def clear(self) -> None:
        shutil.rmtree(self.root / "entries", ignore_errors=True)


def _pieces(f: BinaryIO) -> Iterator[bytes]:
    """The rest of a file"""
    return iter(partial(f.read, _PIECE), b"")


def _sum(k: str, body: Iterable[bytes | memoryview]) -> str:
    """Of the key too: an entry that lies under another's name is as wrong as a damaged one."""
    made = hashlib.sha256(k.encode())
    for piece in body:
        made.update(piece)
    return made.hexdigest()


def _digest(entry: bytes) -> str:
    return entry[len(_MAGIC) : len(_MAGIC) + 64].decode("latin-1")


def write_atomic(path: Path, chunks: Iterable[Any], mode: int = 0o666) -> None:
    """Writes buffers to a file that appears whole or not at all; what can be called gives its buffer when it is due."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fd, temporary = tempfile.mkstemp(prefix=f".{path.name[:40]}.", dir=path.parent)
    try:
        with open(fd, "wb") as f:
            for chunk in chunks:
                f.write(chunk() if callable(chunk) else chunk)
        os.chmod(temporary, mode & ~_umask())
        os.replace(temporary, path)
    except BaseException as e:
        with suppress(OSError):
            os.unlink(temporary)
        if isinstance(e, OSError) and not e.filename:  # a full disk does not say whose it is
            raise OSError(e.errno, e.strerror, str(path)) from None
        raise


def _umask() -> int:
    """The process's mask, read without changing it (another thread may be creating files)."""
    with suppress(OSError, StopIteration, ValueError), open("/proc/self/status") as f:
        return int(next(line for line in f if line.startswith("Umask:")).split()[1], 8)
    return 0o022
