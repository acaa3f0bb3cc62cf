"""Pieces of HTML that all parts of the page are made of."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

Row = dict[str, Any]


def number(n: int) -> str:
    return f"{n:,}"


def count(n: int, what: str) -> str:
    return f"{n:,} {what}{'' if n == 1 else 's'}"


def cards(facts: Iterable[tuple[str, str]]) -> str:
    inner = "".join(f"<div class=card><b>{escape(value)}</b><span>{escape(what)}</span></div>" for value, what in facts)
    return f"<div class=cards>{inner}</div>"


def table(
    head: Sequence[str], rows: Iterable[Sequence[Any]], total: Sequence[Any] = (), raw: Sequence[int] = (),
    right: Sequence[int] = (),
) -> str:
    """Whole numbers stand to the right; columns in `raw` are HTML already."""
    def cell(k: int, x: Any, tag: str = "td", numeric: bool = False) -> str:
        text = x if k in raw and tag == "td" else f"{x:,}" if isinstance(x, int) else escape(str(x))
        n = " class=n" if isinstance(x, int) or k in right or numeric else ""
        return f"<{tag}{n}>{text}</{tag}>"

    body = [list(r) for r in rows]
    numbers = {k for k, x in enumerate(body[0]) if isinstance(x, int)} if body else set()
    top = f"<tr>{''.join(cell(k, h, 'th', k in numbers) for k, h in enumerate(head))}</tr>" if head else ""
    lines = "".join(f"<tr>{''.join(cell(k, x) for k, x in enumerate(row))}</tr>" for row in body)
    last = f"<tr class=sum>{''.join(cell(k, x) for k, x in enumerate(total))}</tr>" if total else ""
    return f"<table>{top}{lines}{last}</table>"


def fold(title: str, inner: str, opened: bool = False) -> str:
    return f"<details{' open' if opened else ''}><summary>{escape(title)}</summary>{inner}</details>"


def bars(what: str, rows: Sequence[Row], total: int) -> str:
    """Sums with their part of the whole, and the whole itself below."""
    body = [[t["name"], t["bytes"], f"{100 * t['bytes'] / max(total, 1):.1f}%",
             f'<span class=bar style="width:{300 * t["bytes"] / max(total, 1):.1f}px"></span>'] for t in rows]
    return table((what, "bytes", "", ""), body, ("the whole file", total), raw=(3,), right=(2,))


def hue(k: int) -> str:
    return f"hsl({k * 47 % 360} 45% 62%)"
