"""A page of several scripts' tables: each puts its own section anew, and leaves the others."""

from __future__ import annotations

from pathlib import Path


def write_section(page: Path, heading: str, text: str) -> None:
    """`text` in place of what stands under the heading, a line of its own, or at the end of the page."""
    before, _, rest = f"\n{page.read_text(encoding='utf-8')}".partition(f"\n{heading}\n")
    others = rest[rest.find("\n## ") :] if "\n## " in rest else "\n"
    page.write_text(f"{before.strip()}\n\n{heading}\n\n{text.strip()}\n{others}".rstrip() + "\n", encoding="utf-8")
