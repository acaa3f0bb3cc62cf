"""A report on a terminal."""

from __future__ import annotations

from typing import Any

from monobloc.cli import console
from monobloc.cli.console import short

SHORT = 12
BAR = 40
Report = dict[str, Any]


def show(r: Report, everything: bool = False) -> None:
    limit = None if everything else SHORT
    machine = f" for {r['target']} {r['cpu']}" if r.get("target") else ""
    console.heading(f"{r['image']}: {console.size(r['bytes'])}{machine}")
    owners = r.get("totals", {}).get("owner", [])
    if len(owners) > 1:
        _table("where the bytes go", ("whose", "bytes", ""), owners,
               lambda t: (t["name"], f"{t['bytes']:,}", f"{100 * t['bytes'] / r['bytes']:.1f}%"), limit)
    sections = [s for s in r["sections"] if s["bytes"]]
    if sections:
        _table("sections", ("section", "bytes", "flags"), sections if everything else _by_kind(sections),
               lambda s: (s["name"], f"{s['bytes']:,}", s["flags"]), None)
    if r["symbols"]:
        _table("largest symbols", ("symbol", "bytes", "section"), r["symbols"],
               lambda s: (s["name"], f"{s['bytes']:,}", s["section"]), limit)
    for m in r["models"]:
        show_model(m, limit)


def _by_kind(sections: list[Report]) -> list[Report]:
    """Relocatables have a section per function and weight: those of one kind as one line."""
    found: dict[tuple[str, str], list[Report]] = {}
    for s in sections:
        words = s["name"].split(".")
        keep = 4 if s["name"].startswith((".rela.", ".rodata.mb.", ".lrodata.mb.")) else 3
        kind = s["name"] if len(words) < keep or "monobloc" in words else ".".join(words[: keep - 1]) + ".*"
        found.setdefault((kind, s["flags"]), []).append(s)
    return [{"name": f"{kind} ({len(x)})" if len(x) > 1 else x[0]["name"], "bytes": sum(s["bytes"] for s in x),
             "flags": flags} for (kind, flags), x in found.items()]


def _table(title: str, head: tuple[str, ...], rows: list[Any], row: Any, limit: int | None) -> None:
    console.heading(title)
    console.table(head, [row(x) for x in rows[:limit]], right=(1,))
    if limit is not None and len(rows) > limit:
        console.say(f"  and {len(rows) - limit} more (`--all`)")
    console.say()


def show_model(m: Report, limit: int | None) -> None:
    console.heading(f"model {m['title']}")
    console.facts([
        *(("input", f"{p['name']} {p['type']} at {p['offset']}") for p in m["inputs"]),
        *(("output", f"{p['name']} {p['type']} at {p['offset']}") for p in m["outputs"]),
        ("arena", f"{m['arena']:,} bytes, lower bound {m['arena_bound']:,}"
                  + (" (order proven best)" if m["order_optimal"] else "")),
        ("stack", f"{m['stack_bound']:,} bytes at most" if m["stack_bound"] else "not bounded"),
        ("weights", f"{m['weights']:,} bytes in {len(m['constants'])} tensors"),
    ])
    console.say()
    _memory(m, limit)
    weights = sorted(m["constants"], key=lambda w: -w["bytes"])
    if weights:
        _table("weights", ("weight", "bytes", "type", "read by"), weights,
               lambda w: (short(w["name"]), f"{w['bytes']:,}", w["type"], ", ".join(map(short, w["nodes"][:3]))), limit)
    console.heading("layers")
    layers = m["layers"][: limit and 3 * limit]
    rows = [(short(x["name"]), " + ".join(x["ops"]), ", ".join(x["types"]), x["kernel"] or "loops") for x in layers]
    console.table(("layer", "ops", "output", "kernel"), rows)
    if len(layers) < len(m["layers"]):
        console.say(f"  and {len(m['layers']) - len(layers)} more (`--all`)")


def _memory(m: Report, limit: int | None) -> None:
    """Buffers by size, each with a bar over the steps it is alive."""
    steps = max(len(m["steps"]), 1)
    width = min(BAR, steps)
    buffers = sorted(m["buffers"], key=lambda b: (-b["bytes"], b["offset"]))
    rows = []
    for b in buffers[:limit]:
        left, right = b["first"] * width // steps, b["last"] * width // steps
        rows.append((short(b["name"]), f"{b['offset']:,}", f"{b['bytes']:,}", f"{b['first']}-{b['last']}",
                     "." * left + "#" * (right - left + 1) + "." * (width - right - 1)))
    console.heading("memory plan")
    console.table(("buffer", "offset", "bytes", "steps", "alive"), rows, right=(1, 2))
    if len(rows) < len(buffers):
        console.say(f"  and {len(buffers) - len(rows)} more (`--all`)")
    console.say()
