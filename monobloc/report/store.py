"""Reports beside the cache, found again by an image's content: what `inspect IMAGE` shows."""

from __future__ import annotations

import json
import zlib
from pathlib import Path
from typing import Any

from monobloc import __version__
from monobloc.cache import Cache, file_digest, key


def _key(path: Path) -> str:
    return key(what="report", image=file_digest(path), version=__version__)


def keep(image: Path, report: dict[str, Any], cache: Cache | None) -> None:
    """What is known of an image; a report with LLVM's decisions stays when one without comes."""
    older = find(image, cache) if report.get("llvm") is None else None
    if cache is not None and (older is None or older.get("llvm") is None):
        cache.put(_key(image), zlib.compress(json.dumps(report).encode(), 3))


def find(image: Path, cache: Cache | None) -> dict[str, Any] | None:
    data = cache.get(_key(image)) if cache is not None else None
    try:
        return dict(json.loads(zlib.decompress(data))) if data is not None else None
    except (ValueError, zlib.error):
        return None
