"""A report as one page that needs nothing else: memory over time as a drawing, then tables."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

Report = dict[str, Any]
WIDTH, HEIGHT = 1000, 420

_STYLE = """
body{font:14px/1.45 system-ui,sans-serif;margin:2em auto;max-width:1100px;padding:0 1em;color:#222;background:#fff}
table{border-collapse:collapse;margin:.5em 0 1.5em}td,th{padding:.15em .8em .15em 0;text-align:left;vertical-align:top}
th{border-bottom:1px solid #999;font-weight:600}td.n,th.n{text-align:right;font-variant-numeric:tabular-nums}
code,td{font-family:ui-monospace,monospace;font-size:12px;overflow-wrap:anywhere}details{margin:.5em 0}
svg{background:#f6f6f6;border:1px solid #ccc;width:100%;height:auto}rect.b{stroke:#fff;stroke-width:.5}
rect.b:hover{stroke:#000;stroke-width:1.5}summary{cursor:pointer;font-weight:600}
"""


def page(r: Report) -> str:
    body = [f"<h1>{escape(r['image'])}</h1>", _facts(r), *(_model(m) for m in r["models"])]
    body += [_fold("Sections", _table(("section", "bytes", "flags"),
                                      ([s["name"], s["bytes"], s["flags"]] for s in r["sections"]))),
             _fold("Symbols", _table(("symbol", "bytes", "section"),
                                     ([s["name"], s["bytes"], s["section"]] for s in r["symbols"])))]
    return (f"<!doctype html><html lang=en><meta charset=utf-8><title>{escape(r['image'])}</title>"
            f"<style>{_STYLE}</style><body>{''.join(body)}</body></html>\n")


def _facts(r: Report) -> str:
    rows = [["size", f"{r['bytes']:,} bytes"], ["RAM", f"{r['ram']:,} bytes of arenas"],
            ["target", " ".join([r["target"], r["cpu"], *r["features"]])], ["made by", f"monobloc {r['monobloc']}"],
            *[[k, str(v)] for k, v in r["options"].items() if v is not None]]
    return _table((), rows)


def _table(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    def cell(x: Any, tag: str = "td") -> str:
        return f"<{tag} class=n>{x:,}</{tag}>" if isinstance(x, int) else f"<{tag}>{escape(str(x))}</{tag}>"

    top = f"<tr>{''.join(cell(h, 'th') for h in head)}</tr>" if head else ""
    return f"<table>{top}{''.join('<tr>' + ''.join(map(cell, row)) + '</tr>' for row in rows)}</table>"


def _fold(title: str, inner: str, opened: bool = False) -> str:
    return f"<details{' open' if opened else ''}><summary>{escape(title)}</summary>{inner}</details>"


def _model(m: Report) -> str:
    ports = [[kind, p["name"], p["type"], p["offset"], p["bytes"]]
             for kind in ("inputs", "outputs") for p in m[kind]]
    layers = ([k, x["name"], " + ".join(x["ops"]), ", ".join(x["types"]), x["kernel"] or "loops"]
              for k, x in enumerate(m["layers"]))
    weights = ([w["name"], w["bytes"], w["type"], ", ".join(w["nodes"])]
               for w in sorted(m["constants"], key=lambda w: -w["bytes"]))
    reasons = ([d["node"], d["pass"], d["reason"]] for d in m["decisions"])
    over = f"{100 * (m['arena'] / m['arena_bound'] - 1):.1f}% over" if m["arena_bound"] else "equal to"
    return "".join([
        f"<h2>{escape(m['title'])}</h2>",
        f"<p>Arena {m['arena']:,} bytes, {over} the lower bound of {m['arena_bound']:,}. "
        f"Weights {m['weights']:,} bytes.</p>",
        _table(("", "name", "type", "offset", "bytes"), ports),
        _drawing(m),
        _fold("Layers", _table(("step", "layer", "ops", "output", "kernel"), layers), True),
        _fold("Weights", _table(("weight", "bytes", "type", "read by"), weights)),
        _fold("Decisions", _table(("node", "pass", "reason"), reasons)),
    ])


def _drawing(m: Report) -> str:
    """Steps to the right, addresses upward; each buffer is a box for as long as it lives."""
    steps, arena = max(len(m["steps"]), 1), max(m["arena"], 1)
    boxes = []
    for k, b in enumerate(m["buffers"]):
        x, w = WIDTH * b["first"] / steps, WIDTH * (b["last"] - b["first"] + 1) / steps
        h = HEIGHT * b["bytes"] / arena
        y = HEIGHT - HEIGHT * b["offset"] / arena - h
        told = f"{b['name']} {b['type']}: {b['bytes']:,} bytes at {b['offset']:,}, steps {b['first']} to {b['last']}"
        boxes.append(f'<rect class=b x="{x:.2f}" y="{y:.2f}" width="{w:.2f}" height="{max(h, 0.5):.2f}" '
                     f'fill="hsl({k * 47 % 360} 45% 60%)"><title>{escape(told)}</title></rect>')
    return (f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role=img aria-label="memory over time">{"".join(boxes)}</svg>'
            f"<p>Steps to the right, addresses upward; hover for names.</p>")
