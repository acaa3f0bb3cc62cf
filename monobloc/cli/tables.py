"""A report on a terminal, and what it says about one name."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
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


# -- why ----------------------------------------------------------------------------------------------
def names_like(m: Report, name: str) -> set[str]:
    """A name, and the layers that came from the model's node of that name or make the value."""
    out = {name}
    for x in m["layers"]:
        if name in x["from"] or x["name"].removeprefix("fused.") == name:
            out.add(x["name"])
    out |= {b["node"] for b in m["buffers"] if b["name"] == name and b["node"]}
    for w in m["constants"]:
        if name in (w["name"], w["symbol"]):
            out |= set(w["nodes"])
    return out


def decisions_about(m: Report, name: str) -> list[Report]:
    wanted = names_like(m, name)
    return [d for d in m["decisions"] if d["node"] in wanted or _part_of(d["node"], name)]


def _part_of(node: str, name: str) -> bool:
    """Nodes that passes made of one are called after it: `conv.bias`"""
    return node.startswith(name + ".")


def places_of(m: Report, name: str) -> Iterator[str]:
    wanted = names_like(m, name)
    for x in m["layers"]:
        if x["name"] in wanted or name in x["from"]:
            kernel = x["kernel"] or "loops"
            yield f"layer {x['name']}: {' + '.join(x['ops'])} as {kernel} -> {', '.join(x['types'])}"
    for b in m["buffers"]:
        if b["name"] == name or b["node"] in wanted:
            yield (f"buffer {b['name']}: {b['bytes']:,} bytes at {b['offset']:,}, alive from step {b['first']} "
                   f"to {b['last']}")
    for w in m["constants"]:
        if name in (w["name"], w["symbol"]):
            yield f"weight {w['name']} ({w['symbol']}): {w['bytes']:,} bytes, read by {', '.join(w['nodes'])}"
    if name in m.get("removed_outputs", ()):
        yield f"output {name} was removed, with all that only it needed: no code of the application reads it"
    if name in m["views"]:
        yield f"{name} is a view: no code, no memory of its own"


def similar(r: Report, name: str) -> list[str]:
    known = {x["name"] for m in r["models"] for x in m["layers"]} | {
        d["node"] for m in r["models"] for d in m["decisions"]}
    near = difflib.get_close_matches(name, sorted(known), 3)
    return [f"did you mean {' or '.join(repr(n) for n in near)}?"] if near else ["`monobloc inspect` lists the layers"]
