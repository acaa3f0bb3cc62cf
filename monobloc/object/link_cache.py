"""A link of the same files gives the same file, so it is kept: above all Full LTO, which generates all code again.

Large weights are not in what is linked (`link/room.py`), so new weights need no link at all. The key holds the
content of every file on the line and the state of the folders in which libraries are looked for; what else the
linker read it says itself (`--dependency-file`), and a kept link counts only while those files are as they were.
Runs of zeros, which are room for weights, are not stored.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from monobloc.cache import Cache, file_digest, file_state, key
from monobloc.object import ar

if TYPE_CHECKING:
    from monobloc.object.toolchain import LinkJob

_BLOCK = 1 << 12
_BETWEEN = ("--start-lib", "--end-lib", "--whole-archive", "--no-whole-archive", "--start-group", "--end-group")
_HEAD = struct.Struct("<Q")


@dataclass(frozen=True)
class KnownLink:
    """Where the result of one link is kept; `recall` puts it into its place."""

    cache: Cache
    key: str

    def recall(self, out: Path, link_map: Path | None) -> tuple[str, str] | None:
        """What the linker said, once the file and its map are there again."""
        data = self.cache.get(self.key)
        if data is None:
            return None
        (size,) = _HEAD.unpack_from(data)
        head: dict[str, Any] = json.loads(data[_HEAD.size : _HEAD.size + size])
        if any(file_state(path) != state for path, state in head["read"]):
            return None
        at = _HEAD.size + size
        with open(out, "wb") as f:
            f.truncate(head["size"])
            for place, length in head["blocks"]:
                f.seek(place)
                f.write(data[at : at + length])
                at += length
        out.chmod(head["mode"])
        if link_map is not None:
            link_map.write_bytes(data[at:])
        return head["stdout"], head["stderr"]

    def keep(self, job: LinkJob, out: Path, read: Path, link_map: Path | None, said: tuple[str, str]) -> None:
        """`read`: the linker's list of what it read."""
        given = {str(x) for x in job.inputs}
        others = [p for p in _listed(read.read_text(encoding="utf-8", errors="surrogateescape"))
                  if p not in given and not p.startswith(f"{out.parent}/")]  # made of the job's own words
        if any("\\" in p for p in others):
            return  # escaped: whatever its name is
        blocks = list(_blocks(out))
        head = {"read": [[p, file_state(p)] for p in others], "size": out.stat().st_size, "stdout": said[0],
                "stderr": said[1], "blocks": [[at, len(b)] for at, b in blocks], "mode": out.stat().st_mode & 0o777}
        text = json.dumps(head).encode()
        map_text = link_map.read_bytes() if link_map is not None else b""
        self.cache.put(self.key, b"".join([_HEAD.pack(len(text)), text, *(b for _, b in blocks), map_text]))


def known_link(cache: Cache | None, job: LinkJob, words: Sequence[str], tool: str) -> KnownLink | None:
    """`words`: the command without its inputs. None where more decides than we know: libraries looked for by name."""
    if cache is None or job.libs or job.libdirs or any(x not in _BETWEEN for x in job.inputs if isinstance(x, str)):
        return None
    try:
        files = [[x.name, file_digest(x), _is_thin(x)] if isinstance(x, Path) else [x] for x in job.inputs]
    except OSError:
        return None  # the linker will tell
    if any(f[-1] is True for f in files):
        return None  # its members are elsewhere
    folders = [[str(d), file_state(str(d))] for d in job.libc.libdirs] if job.libc else []
    return KnownLink(cache, key(what="link", tool=tool, words=list(words), exports=list(job.exports), files=files,
                                folders=folders, map=job.map is not None))


def _is_thin(path: Path) -> bool:
    with open(path, "rb") as f:
        return f.read(len(ar.THIN)) == ar.THIN


def _listed(rules: str) -> list[str]:
    """The prerequisites of a Makefile's first rule, one a line."""
    first = rules.partition("\n\n")[0].splitlines()
    return [line.strip().removesuffix("\\").rstrip() for line in first[1:]]


def _blocks(path: Path) -> Iterator[tuple[int, bytes]]:
    """What is not zero"""
    at, zeros = 0, bytes(_BLOCK)
    with open(path, "rb") as f:
        while block := f.read(_BLOCK):
            if block != zeros[: len(block)]:
                yield at, block
            at += len(block)
