"""Terminals: messages on stderr, results on stdout, colour and progress only where somebody looks."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import IO, Any

from monobloc.errors import MonoblocError

RED, YELLOW, GREEN, BOLD, DIM = "31;1", "33", "32", "1", "2"


def is_terminal(stream: IO[str]) -> bool:
    return stream.isatty() and os.environ.get("TERM") != "dumb"


def colours(stream: IO[str]) -> bool:
    return is_terminal(stream) and not os.environ.get("NO_COLOR")


def paint(text: str, code: str, stream: IO[str]) -> str:
    return f"\x1b[{code}m{text}\x1b[0m" if colours(stream) else text


# -- messages -----------------------------------------------------------------------------------------
def message(text: str) -> None:
    print(text, file=sys.stderr)


def error(text: str) -> None:
    message(f"{paint('error:', RED, sys.stderr)} {text}")


def warning(text: str) -> None:
    message(f"{paint('warning:', YELLOW, sys.stderr)} {text}")


def note(text: str) -> None:
    message(f"{paint('note:', BOLD, sys.stderr)} {text}")


def notes(texts: Iterable[str]) -> None:
    for text in texts:
        note(text)


def problems(found: Iterable[MonoblocError]) -> None:
    for e in found:
        error(str(e))


class Progress:
    """One line on stderr that says what is going on; nothing where nobody looks."""

    def __init__(self) -> None:
        self.live = is_terminal(sys.stderr)
        self.start = time.monotonic()

    def __call__(self, text: str) -> None:
        if self.live:
            seconds = time.monotonic() - self.start
            width = max(os.get_terminal_size(sys.stderr.fileno()).columns - 1, 20)
            sys.stderr.write(f"\r\x1b[K{f'{text} ... {seconds:.1f} s'[:width]}")
            sys.stderr.flush()

    def clear(self) -> None:
        if self.live:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()


@contextmanager
def progress() -> Iterator[Progress]:
    p = Progress()
    try:
        yield p
    finally:
        p.clear()


# -- results ------------------------------------------------------------------------------------------
def say(text: str = "") -> None:
    print(text)


def heading(text: str) -> None:
    print(paint(text, BOLD, sys.stdout))


def table(head: Sequence[str], rows: Iterable[Sequence[Any]], right: Sequence[int] = (), title: str = "") -> None:
    """Columns as wide as they must be; `right` names the columns of numbers."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    t = Table(box=box.SIMPLE_HEAD if any(head) else None, show_header=any(head), pad_edge=False,
              title=Text(title) if title else None, title_justify="left")
    for k, name in enumerate(head):
        t.add_column(Text(name), justify="right" if k in right else "left", overflow="fold")
    for row in rows:
        t.add_row(*(Text(str(x)) for x in row))
    wide = None if is_terminal(sys.stdout) else 10_000  # whoever reads a file wants whole lines
    console = Console(file=sys.stdout, no_color=not colours(sys.stdout), highlight=False, width=wide)
    with console.capture() as text:
        console.print(t)
    print("\n".join(line.rstrip() for line in text.get().splitlines()))


def facts(rows: Iterable[tuple[str, Any]]) -> None:
    """Labels and what they label."""
    rows = list(rows)
    width = max((len(k) for k, _ in rows), default=0)
    for label, value in rows:
        print(f"{paint(f'{label:<{width}}', DIM, sys.stdout)}  {value}")


def size(n: int | float | None) -> str:
    """Bytes for people: `30,920 B`, `4.5 MiB`"""
    if n is None:
        return "-"
    if n < 100_000:
        return f"{int(n):,} B"
    for unit in ("KiB", "MiB"):
        n /= 1024
        if n < 1000:
            return f"{n:.4g} {unit}"
    return f"{n / 1024:.4g} GiB"


def seconds(s: float) -> str:
    for unit, scale in (("s", 1.0), ("ms", 1e3), ("us", 1e6)):
        if s * scale >= 1:
            return f"{s * scale:.4g} {unit}"
    return f"{s * 1e9:.3g} ns"


def short(name: str, most: int = 48) -> str:
    """A name that fits into a table: exporters write very long ones."""
    return name if len(name) <= most else f"{name[: most // 2]}...{name[-most // 2 + 3 :]}"


def number(x: float) -> str:
    return "0" if x == 0 else f"{x:.3g}"
