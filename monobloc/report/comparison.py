"""One program linked in each LTO mode: what each costs and gains, by owner.

Built only when asked for, since it links twice more; figures are those of finished files.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

MODES = ("none", "thin", "full")
Report = dict[str, Any]


def compare(chosen: Report, other: Callable[[str], Report]) -> list[Report]:
    """A row for each mode: the file, and its bytes by owner and kind."""
    mine = chosen["options"]["lto"]
    return [_row(mode, chosen if mode == mine else other(mode)) for mode in MODES]


def _row(mode: str, r: Report) -> Report:
    return {"lto": mode, "bytes": r["bytes"], "owner": {t["name"]: t["bytes"] for t in r["totals"]["owner"]},
            "kind": {t["name"]: t["bytes"] for t in r["totals"]["kind"]}}
