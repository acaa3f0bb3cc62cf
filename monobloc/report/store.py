"""Reports beside the cache, found again by an image's content: what `inspect IMAGE` shows.

Models that differ in names only may give the same bytes. A build asks for the report of its own modules (`of`);
who has only the image gets that of the last build.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from monobloc import __version__
from monobloc.cache import Cache, file_digest, key
from monobloc.link.objects import Module, module_key


def _key(path: Path, of: Iterable[Module] = ()) -> str:
    return key(what="report", image=file_digest(path), of=sorted(map(module_key, of)), version=__version__)


def keep(image: Path, report: dict[str, Any], cache: Cache | None, of: Iterable[Module]) -> None:
    """What is known of an image; a report with LLVM's decisions stays when one of the same modules without comes."""
    if cache is None:
        return
    of = tuple(of)
    older = find(image, cache, of) if report.get("llvm") is None else None
    best = report if older is None or older.get("llvm") is None else older
    for k in (_key(image, of), _key(image)):
        cache.put(k, zlib.compress(json.dumps(best).encode(), 3))


def find(image: Path, cache: Cache | None, of: Iterable[Module] = ()) -> dict[str, Any] | None:
    data = cache.get(_key(image, of)) if cache is not None else None
    try:
        return dict(json.loads(zlib.decompress(data))) if data is not None else None
    except (ValueError, zlib.error):
        return None
