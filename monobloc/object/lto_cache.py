"""LLVM's cache of what ThinLTO compiled, made safe: nothing in it is used unless it is what was written.

LLVM keeps native code by the content of the bitcode it came from and believes whatever lies under the
name, so a flipped bit would become part of an image. Beside each entry stands its digest, written
after the link that made the entry; what has none, or another, goes before the next link. Each program
has a folder of its own, so that checking costs what is its own.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from monobloc.cache import Cache, file_digest, key, write_atomic

ROOM = 64 << 20  # LLVM gives up where it cannot write; that must not cost the build
PROGRAMS = 24  # the least recently linked go
_ENTRY, _DIGEST = "llvmcache-", "digest-"


@contextmanager
def lto_folder(cache: Cache | None, program: Sequence[str]) -> Iterator[Path | None]:
    """The folder for a link of these models, with nothing damaged in it; None where there can be none."""
    folder = _made(cache, key(program=list(program))[:32]) if cache is not None else None
    if folder is None:
        yield None
        return
    _check(folder)
    yield folder
    _note(folder)
    _collect(folder.parent)


def _made(cache: Cache, name: str) -> Path | None:
    try:
        folder = cache.folder("lto") / name
        folder.mkdir(exist_ok=True)
        os.utime(folder)
        room = shutil.disk_usage(folder).free
    except OSError:
        return None
    return folder if room > ROOM and os.access(folder, os.W_OK) and "%" not in str(folder.absolute()) else None


def _check(folder: Path) -> None:
    """Remove what is not what was written."""
    for path in _entries(folder):
        try:
            good = file_digest(path) == (folder / f"{_DIGEST}{path.name}").read_text()
        except (OSError, UnicodeDecodeError):
            good = False
        if not good:
            _remove(path)


def _note(folder: Path) -> None:
    """Digests of new entries; those of entries that LLVM dropped go."""
    for path in _entries(folder):
        digest = folder / f"{_DIGEST}{path.name}"
        if not digest.is_file():
            with suppress(OSError):
                write_atomic(digest, [file_digest(path).encode()])
    for digest in folder.glob(f"{_DIGEST}*"):
        if not (folder / digest.name.removeprefix(_DIGEST)).exists():
            _remove(digest)


def _entries(folder: Path) -> list[Path]:
    return sorted(folder.glob(f"{_ENTRY}*"))


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with suppress(OSError):
            path.unlink()


def _collect(root: Path) -> None:
    used: list[tuple[float, Path]] = []
    for p in root.iterdir():
        with suppress(OSError):  # another build may have removed it
            used.append((p.stat().st_mtime, p))
    for _, p in sorted(used)[:-PROGRAMS]:
        _remove(p)
