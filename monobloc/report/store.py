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


def _keys(digest: str, of: Iterable[Module]) -> tuple[str, str]:
    """Of the image as these modules made it, and of the image alone."""
    own = sorted(map(module_key, of))
    a, b = (key(what="report", image=digest, of=x, version=__version__) for x in (own, []))
    return a, b


def keep(report: dict[str, Any], cache: Cache | None, of: Iterable[Module]) -> None:
    """What is known of an image; a report with LLVM's decisions stays when one of the same modules without comes."""
    if cache is None:
        return
    keys = _keys(report["sha256"], of)
    older = _kept(keys[0], cache) if report.get("llvm") is None else None
    best = report if older is None or older.get("llvm") is None else older
    packed = zlib.compress(json.dumps(best).encode(), 3)
    for k in keys:
        cache.put(k, packed)


def find(image: Path, cache: Cache | None, of: Iterable[Module] = ()) -> dict[str, Any] | None:
    return _kept(_keys(file_digest(image), of)[0], cache) if cache is not None else None


def _kept(k: str, cache: Cache) -> dict[str, Any] | None:
    data = cache.get(k)
    try:
        return dict(json.loads(zlib.decompress(data))) if data is not None else None
    except (ValueError, zlib.error):
        return None
