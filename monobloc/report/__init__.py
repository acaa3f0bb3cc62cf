"""What was made, and why: facts of images, as tables, JSON and a page.

`facts` makes one plain dictionary from a link; everything that is printed or written comes from it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from monobloc.cache import write_atomic


def write(report: dict[str, Any], path: Path) -> None:
    """As JSON, or as a page that needs nothing else."""
    if path.suffix in (".html", ".htm"):
        from monobloc.report.html import page

        write_atomic(path, [page(report).encode()])
    else:
        write_atomic(path, [(json.dumps(report, indent=1, ensure_ascii=False) + "\n").encode()])
