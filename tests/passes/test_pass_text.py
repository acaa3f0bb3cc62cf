"""Passes as text: a graph before, the same graph after, one idea per file.

A file `NAME.mb` holds `passes: canonicalize, fold`, a graph, a line of dashes, and what these passes make
of it. `python tests/passes/test_pass_text.py --update` writes the lower halves anew; read the difference.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from monobloc.ir.text import parse_graph, print_graph
from monobloc.ir.verify import verify
from monobloc.passes import PassContext, pipeline
from monobloc.targets import resolve

HERE = Path(__file__).parent
RULE = "-" * 80
CASES = sorted(HERE.glob("*.mb"))


def after(text: str) -> str:
    """What the passes named in a case's first line make of its upper half."""
    head, _, graph = text.partition("\n")
    names = [n.strip() for n in head.removeprefix("passes:").split(",")]
    known = {p.name: p for p in pipeline()}
    g = parse_graph(graph)
    verify(g)
    ctx = PassContext(resolve("x86_64-linux", "x86-64-v3"))
    for name in names:
        before = print_graph(g)
        changed = known[name].run(g, ctx)
        verify(g)
        assert changed or print_graph(g) == before, f"{name} changed the graph and says that it did not"
    return print_graph(g)


@pytest.mark.parametrize("path", CASES, ids=lambda p: p.stem)
def test_pass(path: Path) -> None:
    before, rule, want = path.read_text(encoding="utf-8").partition("\n" + RULE + "\n")
    assert rule and want.strip(), f"{path.name} expects nothing"
    assert after(before) == want.rstrip("\n")


@pytest.mark.parametrize("path", CASES, ids=lambda p: p.stem)
def test_both_halves_read_back(path: Path) -> None:
    before, _, want = path.read_text(encoding="utf-8").partition("\n" + RULE + "\n")
    for text in (before.partition("\n")[2], want):
        once = print_graph(parse_graph(text))
        assert print_graph(parse_graph(once)) == once


def test_there_are_cases() -> None:
    assert len(CASES) >= 12


def update() -> None:
    for path in CASES:
        before = path.read_text(encoding="utf-8").partition("\n" + RULE + "\n")[0].rstrip("\n")
        path.write_text(f"{before}\n{RULE}\n{after(before)}\n", encoding="utf-8")


if __name__ == "__main__":
    if sys.argv[1:] != ["--update"]:
        sys.exit("usage: python tests/passes/test_pass_text.py --update")
    update()
