"""Memory on the page: what the image's RAM consists of, and each model's plan over its steps."""

from __future__ import annotations

from html import escape
from typing import Any

from monobloc.report.markup import fold, hue, number, table

Report = dict[str, Any]
WIDTH, HEIGHT, LEFT = 1000, 300, 70
SHOWN = 12  # rows of memory in words; the bar has all


def section(r: Report) -> str:
    rows = r.get("memory") or []
    models = [m for m in r["models"] if m["buffers"]]
    if not rows and not models:
        return ""
    out = ["<h2>Memory while it runs</h2>"]
    if rows:
        total = sum(x["bytes"] for x in rows)
        out.append(f"<p>{number(total)} bytes of zeroed memory, largest first. No model allocates anything later.</p>")
        out.append(_stack(rows, total))
        out.append(table(("memory of", "what", "bytes"),
            [[_chip(k) + escape(" > ".join(x["path"][:-1])), x["symbol"] or x["path"][-1], x["bytes"]]
             for k, x in enumerate(rows[:SHOWN])], _rest(rows, total), raw=(0,)))
    if any(b["shared"] for m in models for b in m.get("banks", ())):
        out.append("<p>Models run one at a time, so what lives within a run is in one piece of memory that all share, "
                   "as large as the largest needs it.</p>")
    out += [_plan(m) for m in models]
    return "".join(out)


def _chip(k: int) -> str:
    return f'<i class=chip style="background:{hue(k)}"></i>'


def _rest(rows: list[Report], total: int) -> tuple[Any, ...]:
    more = f" ({len(rows) - SHOWN} more are not shown)" if len(rows) > SHOWN else ""
    return f"all of it{more}", "", total


def _stack(rows: list[Report], total: int) -> str:
    parts = "".join(
        f'<i style="width:{100 * x["bytes"] / max(total, 1):.3f}%;background:{hue(k)}" '
        f'title="{escape(" > ".join(x["path"]))}: {number(x["bytes"])} bytes"></i>' for k, x in enumerate(rows))
    return f"<div class=stack>{parts}</div>"


def _plan(m: Report) -> str:
    over = m["arena"] - m["arena_bound"]
    best = "which no plan can beat" if over <= 0 else f"{number(over)} over the least that any plan could need"
    banks = ", ".join(f"{number(b['bytes'])} {_bank(b)}" for b in m.get("banks", ()) if b["bytes"])
    ports = [[kind, p["name"], p["type"], p["offset"], p["bytes"]]
             for kind, key in (("input", "inputs"), ("output", "outputs")) for p in m[key]]
    return (f"<h3>{escape(m['title'])}: {number(m['arena'])} bytes, {best}</h3><p class=soft>{banks}</p>{_drawing(m)}"
            "<p class=soft>Time runs to the right, one step for each layer; addresses go up. A box is a tensor for as "
            "long as it lives; point at one to read its name.</p>"
            + fold("Inputs and outputs", table(("", "name", "type", "offset", "bytes"), ports)))


def _bank(b: Report) -> str:
    where = f" in {b['region']}" if b["region"] else ""
    return ("for inputs and outputs" if b["name"] == "io" else "shared with other models" if b["shared"]
            else "while it runs") + where


def _drawing(m: Report) -> str:
    steps, arena = max(len(m["steps"]), 1), max(m["arena"], 1)
    width = WIDTH - LEFT
    out = []
    kept = max((b["start"] + b["bytes"] for b in m.get("banks", ()) if b["name"] == "io"), default=0)
    for k, b in enumerate(m["buffers"]):
        x, w = LEFT + width * b["first"] / steps, width * (b["last"] - b["first"] + 1) / steps
        h = HEIGHT * b["bytes"] / arena
        y = HEIGHT - HEIGHT * b["offset"] / arena - h
        told = (f"{b['name']} {b['type']}: {number(b['bytes'])} bytes at {number(b['offset'])}, "
                f"steps {b['first']} to {b['last']}")
        if b["offset"] < kept:  # inputs and outputs hold their place all the time
            out.append(f'<rect x="{LEFT}" y="{y:.2f}" width="{width}" height="{max(h, 0.6):.2f}" fill="{hue(k)}" '
                       f'opacity=".3"><title>{escape(told)}; kept between runs</title></rect>')
        out.append(f'<rect x="{x:.2f}" y="{y:.2f}" width="{w:.2f}" height="{max(h, 0.6):.2f}" fill="{hue(k)}">'
                   f"<title>{escape(told)}</title></rect>")
        if w > 90 and h > 13:
            name = b["name"] if len(b["name"]) * 6.4 < w - 8 else b["name"][: int((w - 8) / 6.4) - 2] + ".."
            out.append(f'<text x="{x + 4:.1f}" y="{y + h / 2 + 4:.1f}" pointer-events="none">{escape(name)}</text>')
    for b in m.get("banks", ())[1:]:
        y = HEIGHT - HEIGHT * b["start"] / arena
        if b["start"]:
            out.append(f'<line x1="0" x2="{WIDTH}" y1="{y:.1f}" y2="{y:.1f}"/>')
    out.append(f'<text x="4" y="12">{number(m["arena"])}</text><text x="4" y="{HEIGHT - 4}">0</text>')
    return f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="memory over time">{"".join(out)}</svg>'
